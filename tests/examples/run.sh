#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The example programs of this folder, one in each language: each is compiled, run over the same checkpoint, and must print what is
# in example.out and write the same file.  What Rust sees of the library is made from its header by bindgen, here and now.
# Languages whose compiler is not here are named and skipped.  The small programs are tried in C.
#
#   run.sh BUILD FIXTURES
set -u
build=$(cd "$1" && pwd)
fixtures=$2
here=tests/examples
out=$build/examples
include="-I$PWD/libckpt/include"
link="-L$build/lib -lckpt -Wl,-rpath,$build/lib"
from=$fixtures/z3_bf16_w5_odd/ckpt
passed=0
failed=0
mkdir -p "$out"

# try LANGUAGE COMMAND...: compile to $out/LANGUAGE, and judge what it does
try() {
    name=$1
    shift
    rm -f "$out/$name" "$out/$name.safetensors"
    if ! "$@" >"$out/$name.log" 2>&1; then
        echo "FAIL $name: does not compile"
        head -n 20 "$out/$name.log"
        failed=$((failed + 1))
        return
    fi
    same "$name" prints "$here/example.out" \
        "$("$out/$name" "$from" emb.weight "$out/$name.safetensors" 2>"$out/$name.err"; echo "status $?")"
    if cmp -s "$out/$name.safetensors" "$out/c.safetensors"; then
        passed=$((passed + 1))
    else
        echo "FAIL $name: writes another file than C"
        failed=$((failed + 1))
    fi
    # an error is an error in each of them
    "$out/$name" "$from" no.such "$out/none.safetensors" >/dev/null 2>"$out/$name.err"
    rc=$?
    if [ "$rc" -eq 5 ] && grep -q 'no.such' "$out/$name.err" && [ ! -e "$out/none.safetensors" ]; then
        passed=$((passed + 1))
    else
        echo "FAIL $name: a tensor that is not there ends with status $rc:"
        cat "$out/$name.err"
        failed=$((failed + 1))
    fi
}

# same LANGUAGE WHAT FILE TEXT
same() {
    printf '%s\n' "$4" >"$out/$1.out"
    if diff -u "$3" "$out/$1.out"; then
        passed=$((passed + 1))
    else
        echo "FAIL $1: $2 something else"
        failed=$((failed + 1))
    fi
}

have() {
    language=$1
    shift
    for tool in "$@"; do
        command -v "$tool" >/dev/null 2>&1 || {
            echo "examples: skipped $language: $tool is not installed"
            return 1
        }
    done
}

warn="-Wall -Wextra -Wpedantic -Werror"
# shellcheck disable=SC2086
try c ${CC:-cc} -std=c11 $warn $include -o "$out/c" $here/example.c $link
# shellcheck disable=SC2086
have C++ "${CXX:-g++}" && try cpp "${CXX:-g++}" -std=c++17 $warn $include -o "$out/cpp" $here/example.cpp $link

rust() {
    # shellcheck disable=SC2086
    bindgen libckpt/include/ckpt.h --allowlist-function 'ckpt_.*' --allowlist-var 'CKPT_.*' --no-layout-tests \
        -o "$out/ckpt_sys.rs" -- $include &&
        CKPT_SYS=$out/ckpt_sys.rs rustc --edition 2021 -o "$out/rust" -L "$build/lib" -l ckpt \
            -C "link-arg=-Wl,-rpath,$build/lib" $here/example.rs
}
have Rust rustc bindgen && try rust rust

go_example() {
    (cd $here/go && env GO111MODULE=off GOTOOLCHAIN=local GOCACHE="$out/go-cache" GOPATH="$out/go-path" GOFLAGS= CGO_ENABLED=1 \
        CGO_CFLAGS="-O1 $include" CGO_LDFLAGS="$link" go build -o "$out/go" .)
}
have Go go && try go go_example

# The small programs include the stable header only, so their include folder has nothing else.
# small NAME EXPECTED ARGUMENT...: compile small/NAME.c, run it, and look for a line of its output
mkdir -p "$out/include"
cp libckpt/include/ckpt.h libckpt/include/ckpt_types.h "$out/include"
small() {
    name=$1
    expected=$2
    shift 2
    # shellcheck disable=SC2086
    if ! ${CC:-cc} -std=c11 $warn -I"$out/include" -o "$out/small_$name" $here/small/"$name".c $link; then
        echo "FAIL $name: does not compile"
        failed=$((failed + 1))
    elif "$out/small_$name" "$@" >"$out/small.out" 2>&1 && grep -qx "$expected" "$out/small.out"; then
        passed=$((passed + 1))
    else
        echo "FAIL $name: does not print '$expected':"
        cat "$out/small.out"
        failed=$((failed + 1))
    fi
}

rm -rf "$out/hf" "$out/array.safetensors" "$out/late.safetensors"
small list 'emb.weight F32 161' "$from"
small mean 'emb.weight -0.015926' "$from"
small to_hf '18 tensors' "$from" "$out/hf"
small list 'emb.weight BF16 161' "$out/hf"
small verify '[1-9][0-9]* records have a correct CRC, 0 findings' "$from"
small from_memory '1 tensor' "$out/array.safetensors"
small mean 'weight 3.500000' "$out/array.safetensors"
small plan 'warning: bn.running_mean, bn.running_var: the ranks have different values; .*' "$from" 3
small plan '4 files, [0-9]* bytes' "$from" 3
small deadline '1628 bytes in 18 tensors' "$from" "$out/late.safetensors" 3600

# A conversion that is given up ends with the status of an interruption, and leaves no file.
rm -f "$out/late.safetensors"
"$out/small_deadline" "$from" "$out/late.safetensors" 0 >"$out/small.out" 2>&1
rc=$?
if [ "$rc" -eq 130 ] && grep -q 'gave up' "$out/small.out" && [ ! -e "$out/late.safetensors" ]; then
    passed=$((passed + 1))
else
    echo "FAIL deadline: a conversion that is given up ends with status $rc:"
    cat "$out/small.out"
    failed=$((failed + 1))
fi

echo "examples: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
