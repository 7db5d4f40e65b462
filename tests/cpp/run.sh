#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests of ckpt.hpp: it names every function of the library, and its test is compiled and run by each C++ compiler that is here, as
# C++17 and as C++20.  What is not here is named and skipped.
#
#   run.sh BUILD FIXTURES      CXXS: the compilers (g++ clang++), CXXFLAGS and LDLIBS: for a library built with a sanitizer
set -u
build=$1
CKPT_FIXTURES=$2
export CKPT_FIXTURES
passed=0
failed=0
flags="-g -O0 -Wall -Wextra -Wpedantic -Werror -Wshadow -Wconversion -Wold-style-cast -pthread -Ilibckpt/include"
here=tests/cpp
out=$build/cpp
mkdir -p "$out"
library="-L$build/lib -lckpt -Wl,-rpath,$(cd "$build/lib" && pwd)"
[ -z "${LDLIBS:-}" ] || library="$build/lib/libckpt.a $LDLIBS"

# every function of the library is reached from C++
missing=$(sed -n 's/^ *\(ckpt_[a-z0-9_]*\);/\1/p' libckpt/libckpt.map | while read -r f; do
    grep -qw "$f" libckpt/include/ckpt*.hpp || echo "$f"
done)
if [ -z "$missing" ]; then
    passed=$((passed + 1))
else
    echo "FAIL ckpt.hpp does not use:" $missing
    failed=$((failed + 1))
fi

# one COMPILER STANDARD
one() {
    name=$out/test_hpp.$1.$2
    # shellcheck disable=SC2086
    if $1 -std=c++17 $flags ${CXXFLAGS:-} -c -o "$name.o" $here/second.cpp &&
        $1 -std="$2" $flags ${CXXFLAGS:-} -o "$name" $here/test_hpp.cpp "$name.o" $library; then
        said=$("$name" 2>&1)
        status=$?
        last=$(printf '%s\n' "$said" | tail -n 1)
        p=$(printf '%s\n' "$last" | sed -n 's/^\([0-9]*\) passed, [0-9]* failed$/\1/p')
        f=$(printf '%s\n' "$last" | sed -n 's/^[0-9]* passed, \([0-9]*\) failed$/\1/p')
        [ -n "$f" ] && { [ "$status" -eq 0 ] || [ "$f" -gt 0 ]; } || f=$((${f:-0} + 1))
        [ "$f" -eq 0 ] || printf '%s\n' "$1 $2:" "$said" | grep -v ' passed, '
        passed=$((passed + ${p:-0}))
        failed=$((failed + f))
    else
        echo "FAIL $1 -std=$2: does not compile"
        failed=$((failed + 1))
    fi
}

any=
for cxx in ${CXXS:-g++ clang++}; do
    if ! command -v "$cxx" >/dev/null 2>&1; then
        echo "cpp: skipped $cxx: it is not installed"
    elif ! printf '#include <string>\n' | "$cxx" -std=c++20 -x c++ -fsyntax-only - 2>/dev/null; then
        echo "cpp: skipped $cxx: it finds no C++ library, or knows no C++20"
    else
        any=yes
        one "$cxx" c++17
        one "$cxx" c++20
    fi
done
[ -n "$any" ] || echo "cpp: skipped the test: no C++ compiler is here (Debian: g++)"
echo "cpp: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
