#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run the command-line cases: tests/cli/<verb>/<case>.sh, each in a fresh folder, as many at a time as there are processors.
#
#   run.sh [--update] [FOLDER OF PROGRAMS [CASE...]]     default: build/bin, every case
#
# A case sees CKPT (the folder of the programs, which is also first in PATH) and FIXTURES.  What it prints is compared with
# <case>.out and <case>.err, its exit status with <case>.exit; a missing .err means no message, a missing .exit means 0.
# Paths, times and speeds are made equal first.  --update writes these files instead.
set -u
LC_ALL=C
NO_COLOR=1
export LC_ALL NO_COLOR
unset POSIXLY_CORRECT

[ -n "${CLI_RESULTS:-}" ] || CLI_UPDATE=
if [ "${1:-}" = --update ]; then
    CLI_UPDATE=1
    shift
fi
here=$(cd "$(dirname "$0")" && pwd)
CKPT=$(cd "${1:-build/bin}" && pwd) || exit 2
[ $# -gt 0 ] && shift
FIXTURES=$(cd "$here/../fixtures" && pwd) || exit 2
PATH=$CKPT:$PATH
export CKPT FIXTURES PATH
# a case may leave a folder that cannot be written to
tidy() {
    [ ! -d "$1" ] || chmod -R u+rwX "$1"
    rm -rf "$1"
}

# Folders, seconds and speeds differ from run to run, and what takes a second shows its progress.
normalise() {
    sed -e "s|$work/run|TMP|g" -e "s|$FIXTURES|FIXTURES|g" -e "s|$here|CASES|g" \
        -e 's/ in [0-9.]* m*s ([0-9.]* [KMGT]*B\/s)/ in TIME (SPEED)/' \
        -e 's/"seconds": [0-9.e+-]*/"seconds": T/' -e '/^[a-z]*  *[0-9]*% .* left$/d'
}

# same WANTED FOUND: equal, or the file of what is wanted does not exist and nothing was found.
same() {
    if [ -f "$1" ]; then
        cmp -s "$1" "$2"
    else
        [ ! -s "$2" ]
    fi
}

# Write an expectation, or remove it when it would be empty.
keep() {
    if [ -s "$2" ]; then
        cp "$2" "$1"
    else
        rm -f "$1"
    fi
}

# Its report is a file of its own, so that two do not mix; it is empty for a case that passed.
run_case() {
    base=${1%.sh}
    work=$CLI_RESULTS/$$
    tidy "$work"
    mkdir -p "$work/run"
    # cases that limit descriptors count on having the rest
    (cd "$work/run" && sh "$1" </dev/null >"$work/raw.out" 2>"$work/raw.err" 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-)
    status=$?
    normalise <"$work/raw.out" >"$work/out"
    normalise <"$work/raw.err" >"$work/err"
    : >"$work/exit"
    [ "$status" -eq 0 ] || echo "$status" >"$work/exit"
    for part in out err exit; do
        if [ -n "$CLI_UPDATE" ]; then
            keep "$base.$part" "$work/$part"
        elif ! same "$base.$part" "$work/$part"; then
            echo "FAILED ${base#"$here"/}.$part"
            [ -f "$base.$part" ] || : >"$work/nothing"
            diff -u "$([ -f "$base.$part" ] && echo "$base.$part" || echo "$work/nothing")" "$work/$part" |
                sed -n '3,40p'
            break
        fi
    done >"$work/report"
    mv "$work/report" "$CLI_RESULTS/$(printf '%s' "${base#"$here"/}" | tr / _).report"
    tidy "$work"
}

# the script calls itself for each case
if [ -n "${CLI_RESULTS:-}" ]; then
    run_case "$1"
    exit 0
fi
CLI_RESULTS=$(mktemp -d) || exit 2
trap 'tidy "$CLI_RESULTS"' EXIT
trap 'exit 130' INT TERM
export CLI_RESULTS CLI_UPDATE

if [ $# -eq 0 ]; then
    set -- "$here"/*/*.sh
fi
for case in "$@"; do
    case "$case" in
    /*) printf '%s\n' "$case" ;;
    *) printf '%s\n' "$PWD/$case" ;;
    esac
done | xargs -n 1 -P "$(nproc 2>/dev/null || echo 2)" sh "$here/run.sh" "$CKPT"
cat "$CLI_RESULTS"/*.report
passed=$(find "$CLI_RESULTS" -maxdepth 1 -name '*.report' -empty | wc -l)
# a case without a report has not passed
failed=$(($# - passed))
echo "command line: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
