# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2034,SC2154
# help.sh: what the tests of packages share.  Sourced, after NAME is set, by a script that runs at the root of the tree.
#
# What this machine does not allow or cannot reach is a skipped part, with the reason; a package that is wrong is a failure.
LC_ALL=C
export LC_ALL
passed=0
failed=0
fixture=$PWD/tests/fixtures/hf_trainer_llama_z3_bf16_w2/ckpt
work=$(mktemp -d "${TMPDIR:-/tmp}/ckpt-packages-XXXXXX")
trap 'rm -rf "$work"' EXIT
log=$work/log

# verdict WHAT COMMAND...: the command ends with 0
verdict() {
    what=$1
    shift
    if "$@" >"$log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $NAME: $what: $*"
        tail -n 30 "$log"
    fi
}

# status N COMMAND...: the command ends with N
status() {
    wanted=$1
    shift
    "$@"
    found=$?
    [ "$found" -eq "$wanted" ] || {
        echo "status $found, expected $wanted"
        return 1
    }
}

skip() {
    echo "$NAME: skipped: $1"
}

finish() {
    echo "$NAME: $passed passed, $failed failed"
    [ "$failed" -eq 0 ]
    exit
}

# nothing more can be done
leave() {
    skip "$1"
    finish
}

# have TOOL...: all are installed; else says which is not
have() {
    for tool in "$@"; do
        command -v "$tool" >/dev/null 2>&1 || {
            lacking=$tool
            return 1
        }
    done
}

# may_chroot: a program may be started with another root
may_chroot() {
    [ "$(id -u)" -eq 0 ] && chroot / true 2>/dev/null
}

# sysroot RELEASE ARCH: make it, in build/sysroot; not 0: could not be had, which $why says
sysroot() {
    sh tools/packaging/sysroot.sh "$1" "$2" "build/sysroot/$1-$2" >"$log" 2>&1
    rc=$?
    why="Debian $1's files for $2 cannot be had: $(tail -n 1 "$log")"
    case "$rc" in
    0) return 0 ;;
    3 | 4) return 1 ;;
    esac
    failed=$((failed + 1))
    echo "FAIL $NAME: sysroot $1 $2"
    tail -n 30 "$log"
    return 1
}

# main_job RUN FOLDER: what README promises, done by programs that RUN starts, on FOLDER/shards as they see it; compared
# with what the programs of this build write.  RUN is a command, to which words are added.
main_job() {
    run=$1 root=$2 as=${3:-}
    cp -r "$fixture" "$root/shards"
    chmod -R u+w "$root/shards"
    verdict "tells its version" $run ckpt version
    verdict "zero_to_fp32" $run zero_to_fp32 "$as/shards" "$as/fp32" --safe_serialization
    verdict "convert" $run ckpt convert "$as/shards" "$as/hf" --to hf --dtype bf16
    verdict "verify" $run ckpt verify "$as/shards"
    verdict "diff" $run ckpt diff "$as/fp32" "$as/shards"
    verdict "a layout map" $run ckpt convert "$as/shards" "$as/model.gguf" --to gguf --dtype bf16
    "$bin/zero_to_fp32" "$fixture" "$work/fp32" --safe_serialization >/dev/null 2>&1
    "$bin/ckpt" convert "$fixture" "$work/hf" --to hf --dtype bf16 >/dev/null 2>&1
    "$bin/ckpt" convert "$fixture" "$work/model.gguf" --to gguf --dtype bf16 >/dev/null 2>&1
    for out in fp32 hf model.gguf; do
        verdict "$out: the bytes that this build writes" diff -r "$work/$out" "$root/$out"
    done
    # byte 20000 lies in the fp32 weights of rank 1
    shard=$root/shards/global_step4/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt
    byte=$(od -An -tu1 -j20000 -N1 "$shard" | tr -d ' ')
    # shellcheck disable=SC2059
    printf "$(printf '\\%03o' $((byte ^ 1)))" | dd of="$shard" bs=1 seek=20000 conv=notrunc 2>/dev/null
    verdict "a flipped bit is found" status 3 $run zero_to_fp32 "$as/shards" "$as/wrong"
    verdict "and nothing written" test ! -e "$root/wrong"
    rm -rf "$work/fp32" "$work/hf" "$work/model.gguf" "$root/shards" "$root/fp32" "$root/hf" "$root/model.gguf"
}
