#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Static checks: analyzers, include direction, exported symbols, the public header alone, shell scripts, manual pages.
# What is not installed is named and skipped.
set -u
failed=0
passed=0
public="-std=c11 -D_POSIX_C_SOURCE=200809L -D_FILE_OFFSET_BITS=64 -I. -Ilibckpt/include -Ibuild/gen"
flags="$public -include libckpt/base/tensor.h"
mpi=$(pkg-config --cflags ompi-c 2>/dev/null | sed 's/-I/-isystem /g')
if [ -n "$mpi" ] || pkg-config --exists ompi-c 2>/dev/null; then
    mpi="-DZT_HAVE_MPI $mpi"
fi
fuse=$(pkg-config --cflags 'fuse3 >= 3.12' 2>/dev/null | sed 's/-I/-isystem /g')
# as the Makefile has it: another library's cblas.h may be installed
[ "$(uname -m)" != x86_64 ] || flags="$flags -DZT_ONEDNN"
sources=$(find libckpt formats tools engine -name '*.c' | sort)
# without its headers the plugin of ckpt mount is not built either
[ -n "$fuse" ] || sources=$(printf '%s\n' "$sources" | grep -v '^tools/mount/fuse.c$')
cores=$(nproc 2>/dev/null || echo 2)

# The analyzers take longer than all else here.  In CI, which sets CKPT_TURN=K/N (tests/turns.py), they see the files of the last
# twenty commits, and every Nth of the others.
analyzed() {
    RECENT=$(git log -n 20 --name-only --format= 2>/dev/null) TURN=${CKPT_TURN:-0/1}
    export RECENT TURN
    printf '%s\n' "$sources" | awk 'BEGIN { n = split(ENVIRON["RECENT"], path, "\n"); for (i = 1; i <= n; i++) recent[path[i]] = 1; split(ENVIRON["TURN"], t, "/") }
        ($0 in recent) || NR % t[2] == t[1] % t[2]'
}

check() {
    name=$1
    shift
    if out=$("$@" 2>&1); then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $name"
        printf '%s\n' "$out" | head -n 40
    fi
}

have() {
    command -v "$1" >/dev/null 2>&1 || {
        echo "skipped: $1 is not installed"
        return 1
    }
}

# Each installed header compiles alone; those for C in C++ too, where their functions must have C's names.
headers() {
    for h in ckpt ckpt_extra ckpt_shape ckpt_team ckpt_types; do
        printf '#include "%s.h"\nint main(void) { return sizeof(ckpt_err) == 0; }\n' $h >build/header_test.c
        cc -std=c11 -Wall -Wextra -Wpedantic -Werror -Ilibckpt/include -fsyntax-only build/header_test.c || return 1
        command -v g++ >/dev/null || continue
        g++ -x c++ -std=c++17 -Wall -Wextra -Werror -Ilibckpt/include -fsyntax-only build/header_test.c || return 1
        for f in $(sed -n 's/^CKPT_API .*[ *]\(ckpt_[a-z0-9_]*\)(.*/\1/p' libckpt/$h.h libckpt/base/$h.h 2>/dev/null); do
            echo "void *p_$f = (void *)&$f;"
        done | { printf '#include "%s.h"\n' $h && cat; } >build/header_names.cpp
        g++ -std=c++17 -w -Ilibckpt/include -c -o build/header_names.o build/header_names.cpp || return 1
        ! nm -u build/header_names.o | grep ' _Z' || return 1
    done
    for h in ckpt ckpt_map ckpt_reader ckpt_shape ckpt_types; do
        printf '#include "%s.hpp"\nint main() {}\n' $h >build/header_test.cpp
        ! command -v g++ >/dev/null || g++ -std=c++17 -Wall -Wextra -Werror -Ilibckpt/include -fsyntax-only build/header_test.cpp || return 1
    done
}

symbols() {
    nm -D --defined-only build/lib/libckpt.so.0 | awk '$2 ~ /[TDBR]/ {print $3}' | sed 's/@.*//' | grep -v '^LIBCKPT' | sort >build/exported
    sed -n 's/^ *\(ckpt_[a-z0-9_]*\);/\1/p' libckpt/libckpt.map | sort >build/listed
    diff build/exported build/listed && declared && documented
}

# what the public headers declare is what programs find
declared() {
    cat libckpt/include/ckpt*.h | tr '\n' ' ' | grep -o 'CKPT_API [^;(]*(' | sed 's/($//; s/.*[ *]//' | grep '^ckpt_' | sort >build/declared
    diff build/declared build/listed
}

# every public function has its line in the page of the library
documented() {
    missing=$(while read -r name; do grep -q "^\.Fn $name " man/libckpt.3 || echo "$name"; done <build/listed)
    [ -z "$missing" ] || { echo "man/libckpt.3 lacks $missing"; return 1; }
}

# a folder may include only itself and what stands before it in the list
direction() {
    sh tests/lint/include_direction.sh
}

# no two folders call each other; lengths, comments, prefixes and names keep to the house rules
figures() {
    python3 tests/lint/figures.py --objects build/obj --limits | grep -v '^ '
    python3 tests/lint/figures.py --objects build/obj --limits >/dev/null
}

# as clang-format 14 sets it; other versions differ in details
formatted() {
    # shellcheck disable=SC2046
    clang-format --dry-run -Werror $(git ls-files '*.c' '*.h' '*.hpp' '*.cu' '*.cpp')
}

# the suppressed kinds follow no flow across a loop or a call here; the compilers' analyzers and the sanitizers do
cppcheck_all() {
    # shellcheck disable=SC2046
    cppcheck -q -j "$cores" --std=c11 --enable=warning,portability --error-exitcode=1 --inline-suppr \
        --suppress=missingIncludeSystem --suppress=uninitvar --suppress=legacyUninitvar --suppress=uninitStructMember \
        --suppress=ctuuninitvar --suppress=incorrectLogicOperator --suppress=nullPointer --suppress=zerodivcond --include=libckpt/base/tensor.h -I. -Ilibckpt/include $(analyzed)
}

# Without the kinds that need to know that a failure's code is never 0; in the kernels also without those that do not
# follow vectors (GNU C's vector types look uninitialised, their shifts too wide).
analyze() {
    # shellcheck disable=SC2086
    xargs -r -P "$cores" -n 1 cc $flags $mpi $fuse -O1 -fanalyzer -Wno-analyzer-null-dereference -Wno-analyzer-null-argument \
        -Wno-analyzer-malloc-leak "$@" -Werror -c -o /dev/null
}

analyzer() {
    analyzed | grep -v '^engine/device/' | analyze &&
        analyzed | grep '^engine/device/' |
        analyze -Wno-analyzer-use-of-uninitialized-value -Wno-analyzer-shift-count-overflow
}

# what programs were linked with; where it cannot be compared, why
abi() {
    sh tests/lint/abi.sh
    rc=$?
    [ "$rc" -eq 0 ] || [ "$rc" -eq 77 ]
}

mkdir -p build
# the tools that any program could be
public_members() {
    for f in tools/ckpt/*.c tools/report/*.c; do
        # shellcheck disable=SC2086
        cc $public -fsyntax-only "$f" || return 1
    done
}
check "ckpt and report see public members alone" public_members
# what is given away is built without asserts (RELEASE=1), where what only an assert uses is unused
no_asserts() {
    # shellcheck disable=SC2086
    printf '%s\n' "$sources" | xargs -r -P "$cores" -n 20 cc $flags $mpi $fuse -DNDEBUG -Wall -Wextra -Wpedantic -Werror -fsyntax-only
}
check "no warnings without asserts" no_asserts
check "each public header alone, as C11 and C++17" headers
[ -f build/lib/libckpt.so.0 ] && check "exported symbols are those of libckpt.map" symbols
if [ -f build/lib/libckpt.so.0 ]; then
    check "the library's ABI" abi
    printf '%s\n' "$out" | grep '^abi: ' | grep -v 'as in the dump'
fi
check "include direction" direction
[ -d build/obj ] && check "circles of calls, lengths, comments, prefixes" figures
check "texts that a stranger understands" python3 tests/lint/prose.py
check "files that comments name" python3 tests/lint/named_files.py
check "licence lines" sh tests/lint/spdx.sh
built=$(ls build/bin/ckpt build/bin/zerotrain build/lib/libckpt.so.0 2>/dev/null)
# shellcheck disable=SC2086
[ -n "$built" ] && have readelf && check "the programs' hardening" sh tests/lint/hardening.sh $built
if have clang-format; then
    if clang-format --version | grep -q ' version 14\.'; then
        check "clang-format" formatted
    else
        echo "skipped: clang-format is not version 14"
    fi
fi
have cppcheck && check cppcheck cppcheck_all
check "gcc -fanalyzer" analyzer
# shellcheck disable=SC2046
have shellcheck && check shellcheck shellcheck -S warning $(git ls-files '*.sh' | grep -v '^tests/cli/.*/') .ci/run
have mandoc && check "manual pages" sh -c "cd man && mandoc -T lint -W warning *.[0-9]"
echo "lint: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
