#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The built programs have what the Makefile asks for against exploits: places that are not known (PIE), tables that cannot
# be written (RELRO, BIND_NOW), a stack that cannot run, checked copies, canaries, probed frames, landing pads.
#
#   hardening.sh FILE...     programs and shared libraries, built without SAN
set -u
failed=0

# lacks FILE WHAT: the check before it failed
lacks() {
    echo "$1: $2"
    failed=1
}

for file in "$@"; do
    program=$(readelf -lW "$file")
    dynamic=$(readelf -dW "$file")
    symbols=$(nm -D "$file")
    case "$file" in
    *.so*) ;;
    *) echo "$dynamic" | grep -q 'FLAGS_1.*PIE' || lacks "$file" "not a PIE" ;;
    esac
    echo "$dynamic" | grep -q 'FLAGS_1.*NOW' || lacks "$file" "symbols are bound late"
    echo "$program" | grep -q 'GNU_RELRO' || lacks "$file" "no RELRO"
    echo "$program" | grep 'GNU_STACK' | grep -q ' RW  *0x' || lacks "$file" "the stack may run code"
    echo "$program" | grep -q ' RWE ' && lacks "$file" "a segment is writable and may run code"
    echo "$symbols" | grep -q ' __stack_chk_fail' || lacks "$file" "no canaries"
    echo "$symbols" | grep -q ' __[a-z]*_chk@' || lacks "$file" "no checked copies (_FORTIFY_SOURCE)"
    [ "$(uname -m)" = x86_64 ] || continue
    code=$(objdump -d --no-show-raw-insn "$file")
    # a page of stack is touched before the next is taken
    echo "$code" | awk '/sub +\$0x1000,%rsp/ {at = NR} at && NR == at + 1 && /\$0x0,\(%rsp\)/ {found = 1} END {exit !found}' ||
        lacks "$file" "frames are not probed (-fstack-clash-protection)"
    [ "$(echo "$code" | grep -c endbr64)" -gt 50 ] || lacks "$file" "no landing pads (-fcf-protection)"
done
exit "$failed"
