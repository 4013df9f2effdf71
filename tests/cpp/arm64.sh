#!/usr/bin/env bash
# Builds the C++ runtime for arm64 and runs its tests, and the golden file of a bundle, under emulation.
# Needs g++-aarch64-linux-gnu, qemu-user, cmake, nlohmann-json3-dev; says so and ends with 0 where they are missing.
#
# usage: tests/cpp/arm64.sh BUNDLE
set -euo pipefail

[ $# -eq 1 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
bundle=$(realpath "$1")
source=$(realpath "$(dirname "$0")/../../runtime/cpp")
build=$source/build/arm64
for tool in aarch64-linux-gnu-g++ qemu-aarch64 cmake; do
    command -v "$tool" >/dev/null || { echo "arm64 is not tested: $tool is not installed"; exit 0; }
done

# The headers are those of any processor.
if [ -d "$source/build/dependencies/include" ] && [ ! -d "$build/dependencies/include" ]; then
    mkdir -p "$build/dependencies"
    cp -r "$source/build/dependencies/include" "$build/dependencies/"
fi
"$source/get_dependencies.sh" "$build/dependencies" aarch64

# ONNX Runtime reads /proc/cpuinfo, which qemu hands through from the machine that it runs on: it crashes on what x86
# says there. What it finds must fit the processor that qemu is told to be.
mkdir -p "$build/system/proc"
ln -sfn /usr/aarch64-linux-gnu/lib "$build/system/lib"
cat >"$build/system/proc/cpuinfo" <<'CPUINFO'
processor	: 0
BogoMIPS	: 48.00
Features	: fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid
CPU implementer	: 0x41
CPU architecture: 8
CPU variant	: 0x0
CPU part	: 0xd03
CPU revision	: 4

CPUINFO

libraries=$build/dependencies/lib:$build/dependencies/usr/lib/aarch64-linux-gnu
emulator=(qemu-aarch64 -L "$build/system" -cpu cortex-a53 -E "LD_LIBRARY_PATH=$libraries")
cmake -S "$source" -B "$build" -DCMAKE_TOOLCHAIN_FILE="$source/cmake/toolchains/linux-arm64.cmake" -DTFEXPORT_BUILD_TESTS=ON \
    -DONNXRUNTIME_ROOT="$build/dependencies" -DSENTENCEPIECE_ROOT="$build/dependencies" \
    -DCMAKE_PREFIX_PATH="$build/dependencies/usr" \
    -DTFEXPORT_EMULATOR="$(IFS=';'; echo "${emulator[*]}")"
cmake --build "$build" --parallel "$(nproc)" --target tfexport-tests tfexport-cli
export TFEXPORT_TEST_BUNDLE=$bundle TFEXPORT_TEST_REQUESTS=5 TFEXPORT_TEST_ROUNDS=300
(cd "$build" && ctest --output-on-failure)
"${emulator[@]}" "$build/tfexport-cli" "$bundle" --self-test --threads 1
