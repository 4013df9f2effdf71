#!/usr/bin/env bash
# Prepares DEST/include and DEST/lib with ONNX Runtime from package registries, for builds without the release page:
# the library from the Python wheel, the headers from a npm package that ships them (MIT, see DEST/LICENSE).
# Then: cmake -S runtime/cpp -B build -DONNXRUNTIME_ROOT=DEST
#
# usage: get_dependencies.sh DEST [x86_64|aarch64]
# On Debian and Ubuntu also SentencePiece and nlohmann/json, as far as they are not installed or another processor is
# asked for, into DEST/usr: -DSENTENCEPIECE_ROOT=DEST -DCMAKE_PREFIX_PATH=DEST/usr
set -euo pipefail

[ $# -ge 1 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
dest=$(mkdir -p "$1" && cd "$1" && pwd)
arch=${2:-$(uname -m)}
runtime=${ONNXRUNTIME_VERSION:-1.32.0}
headers=${ONNXRUNTIME_HEADERS:-com.github.asus4.onnxruntime@0.4.9} # headers of 1.29; they may be older, never newer
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
needs() { command -v "$1" >/dev/null || { echo "get_dependencies.sh: $1 is not installed" >&2; exit 5; }; }
needs python3

unzipped() { # archive, pattern, folder
    python3 - "$@" <<'PYTHON'
import fnmatch, pathlib, sys, zipfile
archive, pattern, folder = sys.argv[1:]
with zipfile.ZipFile(archive) as z:
    for name in fnmatch.filter(z.namelist(), pattern):
        if not name.endswith("/"):
            (pathlib.Path(folder) / pathlib.Path(name).name).write_bytes(z.read(name))
PYTHON
}

mkdir -p "$dest/lib" "$dest/include"
installed=$(echo "$(dirname "$0")"/../../.venv/lib/python3*/site-packages/onnxruntime/capi/"libonnxruntime.so.$runtime")
if [ ! -f "$dest/lib/libonnxruntime.so.$runtime" ] && [ "$arch" = "$(uname -m)" ] && [ -f "$installed" ]; then
    cp "$installed" "$dest/lib"
fi
if [ ! -f "$dest/lib/libonnxruntime.so.$runtime" ]; then
    python=python3
    python3 -m pip --version >/dev/null 2>&1 || { python3 -m venv "$work/venv" && python=$work/venv/bin/python; }
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.11 \
        --platform "manylinux_2_28_$arch" --dest "$work" "onnxruntime==$runtime"
    unzipped "$work"/onnxruntime-*.whl "onnxruntime/capi/libonnxruntime.so.$runtime" "$dest/lib"
fi
ln -sf "libonnxruntime.so.$runtime" "$dest/lib/libonnxruntime.so.1"
ln -sf libonnxruntime.so.1 "$dest/lib/libonnxruntime.so"

if [ ! -f "$dest/include/onnxruntime_cxx_api.h" ]; then
    needs npm
    (cd "$work" && npm pack --silent "$headers" >/dev/null)
    tar -xzf "$work"/*.tgz -C "$work" package/Plugins/Android/onnxruntime.aar package/LICENSE
    unzipped "$work/package/Plugins/Android/onnxruntime.aar" 'headers/*' "$dest/include"
    cp "$work/package/LICENSE" "$dest/LICENSE"
fi

packages=()
if [ "$arch" != "$(uname -m)" ] || [ ! -f /usr/include/sentencepiece_processor.h ]; then
    packages+=(libsentencepiece0 libsentencepiece-dev)
fi
[ -f /usr/include/nlohmann/json.hpp ] || packages+=(nlohmann-json3-dev)
if [ ${#packages[@]} -gt 0 ] && [ ! -d "$dest/usr" ] && command -v apt-get >/dev/null; then
    # A package state of its own, so that the machine's is not touched and no root is needed.
    debian=$([ "$arch" = aarch64 ] && echo arm64 || echo amd64)
    mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial"
    touch "$work/status"
    options=(-qq -o "APT::Architecture=$debian" -o "APT::Architectures::=$debian" -o "Dir::State=$work/state"
        -o "Dir::State::status=$work/status" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update
    (cd "$work" && apt-get "${options[@]}" download "${packages[@]}")
    for package in "$work"/*.deb; do dpkg-deb -x "$package" "$dest"; done
fi
echo "$dest: ONNX Runtime $runtime for $arch"
