#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Build every fuzz target with libFuzzer, ASan and UBSan, seed it with the fixtures, and run it some seconds.
#
#   run.sh [SECONDS [TARGET...]]     60 each, all of them by default; findings are left in build/fuzz/
#
# FUZZ_JOBS targets run at a time (2); FUZZ_BUILD is used instead of build/, FUZZ_LIB instead of its fuzz-lib: a build of
# everything with the sanitizers below, which takes clang ten minutes of a processor.
set -u
seconds=${1:-60}
[ $# -gt 0 ] && shift
jobs=${FUZZ_JOBS:-2}
build=${FUZZ_BUILD:-build}
lib=${FUZZ_LIB:-$build/fuzz-lib}
sh tools/deps.sh build fuzz
out=$build/fuzz
mkdir -p "$out"
linker=$(command -v ld.lld >/dev/null && echo -fuse-ld=lld)
flags="$linker -std=c11 -O1 -g -fno-omit-frame-pointer -D_POSIX_C_SOURCE=200809L -D_XOPEN_SOURCE=700 -D_FILE_OFFSET_BITS=64 -include libckpt/base/tensor.h -Werror=int-conversion -Werror=incompatible-pointer-types -I. -Ilibckpt/include"
mpi=$(pkg-config --libs ompi-c 2>/dev/null)
sgemm=$([ "$(uname -m)" = x86_64 ] && echo "-ldnnl -lgomp" || echo -lopenblas)
libs="$lib/lib/libzerotrain.a $lib/lib/libckpt.a $sgemm -lunistring $mpi -ldeflate -lz -lzip -lcrypto -lcjson -lpcre2-8 -lyaml -lpthread -lm"
make -s -j"$jobs" CC=clang SAN=fuzzer-no-link,address,undefined CFLAGS="-O1 -g1" B="$lib" "$lib/lib/libckpt.a" \
    "$lib/lib/libzerotrain.a" >"$out/build.log" || exit 1
# ckpt writes some of the seeds
make -s -j"$jobs" B="$build" "$build/bin/ckpt" >>"$out/build.log" || exit 1

# targets that work on files have them in memory
TMPDIR=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")") || exit 1
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
trap 'exit 130' INT TERM

# seeds: real files of the right kind, and the hostile ones
seed() {
    local dir=$1
    shift
    find "$@" -type f -size -64k 2>/dev/null | while read -r f; do
        cp "$f" "$dir/$(printf '%s' "$f" | tr '/ ' '__')"
    done
}

seeds() {
    local corpus=$2
    mkdir -p "$corpus"
    case "$1" in
    fuzz_safetensors) seed "$corpus" tests/fixtures/safetensors_dtypes tests/fixtures/hf_bert_sharded tests/fixtures/bad/safetensors ;;
    fuzz_npz) seed "$corpus" tests/fixtures/numpy_npz tests/fixtures/npz_more ;;
    fuzz_remap) seed "$corpus" tools/share/maps ;;
    fuzz_gguf) seed "$corpus" tests/fixtures/gguf_types tests/fixtures/bad/gguf ;;
    fuzz_tokenizer) seed "$corpus" tests/fixtures/tokenizers ;;
    fuzz_attest)
        "$build/bin/ckpt" convert -q -f tests/fixtures/model_signing/model "$TMPDIR/made.pt" --include '*' --attest "$corpus/made.json"
        ;;
    fuzz_imatrix) seed "$corpus" tests/fixtures/imatrix ;;
    fuzz_bundle) seed "$corpus" tests/fixtures/model_signing ;;
    fuzz_yaml) seed "$corpus" tests/cli/merge ;;
    fuzz_manifest)
        for f in peft_gpt2_conv1d/base z3_bf16_w5_odd/ckpt; do
            "$build/bin/ckpt" manifest -q "tests/fixtures/$f" -o "$corpus/${f%%/*}.json" && rm "$corpus/${f%%/*}.sha256"
        done
        ;;
    fuzz_json) seed "$corpus" tests/fixtures/hf_bert_sharded tests/fixtures/bad/hf ;;
    fuzz_pickle)
        seed "$corpus" tests/fixtures/bad/legacy tests/fixtures/torch_misc
        python3 tests/fuzz/pickles.py "$corpus" tests/fixtures
        ;;
    fuzz_torch | fuzz_zip) seed "$corpus" tests/fixtures/torch_misc tests/fixtures/torch_views tests/fixtures/z3_bf16_w5_odd tests/fixtures/bad/pt tests/fixtures/bad/zip tests/fixtures/bad/legacy ;;
    *)
        python3 tests/fuzz/seeds.py "$1" "$corpus" "$build/bin"
        [ "$1" != fuzz_dcp ] || python3 tests/hostile/dcp_bad.py --seeds "$corpus"
        ;;
    esac
}

# one TARGET: its result goes to a file, so that the output of two does not mix
one() {
    local name=$1
    local corpus=$out/corpus-$name
    # shellcheck disable=SC2086
    if ! seeds "$name" "$corpus" || ! clang $flags -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -o "$out/$name" \
        "tests/fuzz/$name.c" $libs; then
        echo "FAIL $name: was not built" >"$out/$name.result"
    elif "$out/$name" -max_total_time="$seconds" -rss_limit_mb=1024 -timeout=10 -malloc_limit_mb=1024 -print_final_stats=1 \
        -artifact_prefix="$out/$name-" "$corpus" >"$out/$name.log" 2>&1; then
        echo "$name: $(grep -c . "$out/$name.log") lines, $(sed -n 's/stat::number_of_executed_units: //p' "$out/$name.log") inputs, no finding" >"$out/$name.result"
    else
        {
            echo "FAIL $name: see $out/$name.log"
            # what and where (the stack comes first), and the input itself at the end
            grep -m 1 -A 40 -E 'ERROR: |runtime error: |fuzz_help' "$out/$name.log"
            tail -n 4 "$out/$name.log"
        } >"$out/$name.result"
    fi
}

if [ $# -eq 0 ]; then
    for src in tests/fuzz/fuzz_*.c; do
        set -- "$@" "$(basename "$src" .c)"
    done
fi
running=0
for name in "$@"; do
    rm -f "$out/$name.result"
    if [ "$running" -ge "$jobs" ]; then
        wait -n
        running=$((running - 1))
    fi
    one "$name" &
    running=$((running + 1))
done
wait

passed=0
failed=0
for name in "$@"; do
    cat "$out/$name.result"
    if grep -q '^FAIL' "$out/$name.result"; then
        failed=$((failed + 1))
    else
        passed=$((passed + 1))
    fi
done
echo "fuzz: $passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
