#!/usr/bin/env bash
# Builds the C++ tests with sanitizers and runs them: addresses and undefined behaviour, then threads; and, where clang
# with its fuzzer is there, the fuzz target for FUZZ_SECONDS (60). Says what it leaves out.
#
# usage: tests/cpp/sanitize.sh BUNDLE
set -euo pipefail

[ $# -eq 1 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
export TFEXPORT_TEST_BUNDLE
TFEXPORT_TEST_BUNDLE=$(realpath "$1")
source=$(realpath "$(dirname "$0")/../../runtime/cpp")
dependencies=$source/build/dependencies
options=(-DONNXRUNTIME_ROOT="$dependencies" -DSENTENCEPIECE_ROOT="$dependencies" -DCMAKE_PREFIX_PATH="$dependencies/usr")

can_fuzz() {
    command -v clang++ >/dev/null || return 1
    echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
        clang++ -fsanitize=fuzzer,address -x c++ - -o /dev/null 2>/dev/null
}

tested() { # preset, targets, more options
    (cd "$source" && cmake --preset "$1" "${@:3}" "${options[@]}" >/dev/null)
    cmake --build "$source/build/$1" --parallel "$(nproc)" --target $2
    (cd "$source/build/$1" && ctest --output-on-failure)
}

fuzzed() {
    mkdir -p "$source/build/sanitize/corpus"
    cd "$source/build/sanitize"
    tests/fuzz_bundle -max_total_time="${FUZZ_SECONDS:-60}" -max_len=20000 -timeout=10 -rss_limit_mb=2048 \
        -malloc_limit_mb=256 -print_final_stats=1 corpus >fuzz.log 2>&1 || { cat fuzz.log; return 1; }
    tail -n 7 fuzz.log
}

if can_fuzz; then
    tested sanitize "tfexport-tests fuzz_bundle" -DCMAKE_CXX_COMPILER=clang++ -DTFEXPORT_BUILD_FUZZER=ON \
        -DTFEXPORT_SANITIZE=address,undefined,fuzzer-no-link
    fuzzed & # while the next is built
    tested thread-sanitize tfexport-tests
    wait $!
else
    echo "not fuzzed: clang++ with its fuzzer is not installed (clang, libclang-rt-dev)"
    tested sanitize tfexport-tests
    tested thread-sanitize tfexport-tests
fi
