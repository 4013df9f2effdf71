#!/usr/bin/env bash
# Checks that the library compiles with clang and libc++, the standard library of Android, iOS and macOS.
# Needs clang++ and libc++-dev; says so and ends with 0 where they are missing.
set -euo pipefail

cd "$(dirname "$0")/../../runtime/cpp"
if ! echo '#include <filesystem>' | clang++ -std=c++17 -stdlib=libc++ -fsyntax-only -x c++ - 2>/dev/null; then
    echo "libc++ is not tried: clang++ or libc++-dev is not installed"
    exit 0
fi
options=(-std=c++17 -stdlib=libc++ -fsyntax-only -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Werror
    -DORT_API_MANUAL_INIT -DTFEXPORT_VERSION='""' -DTFEXPORT_HAS_SENTENCEPIECE
    -Iinclude -Isrc -isystem build/dependencies/include -isystem build/dependencies/usr/include)
printf '%s\0' src/*.cpp cli/*.cpp | xargs -0 -n 1 -P "$(nproc)" clang++ "${options[@]}"
echo "libc++: all files compile"
