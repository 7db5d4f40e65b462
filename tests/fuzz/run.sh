#!/usr/bin/env bash
# Build every fuzz target with libFuzzer, ASan and UBSan, seed it with the fixtures, and run it some seconds.
#
#   run.sh [SECONDS]        60 by default; findings are left in build/fuzz/
set -u
seconds=${1:-60}
sh tools/deps.sh build fuzz
out=build/fuzz
mkdir -p "$out"
flags="-std=c11 -O1 -g -fno-omit-frame-pointer -D_POSIX_C_SOURCE=200809L -D_FILE_OFFSET_BITS=64 -I. -Ilibckpt -Ilibckpt/base"
make -s CC=clang SAN=fuzzer-no-link,address,undefined B=build/fuzz-lib build/fuzz-lib/lib/libckpt.a || exit 1

# seeds: real files of the right kind, and the hostile ones
seed() {
    local dir=$1
    shift
    mkdir -p "$dir"
    find "$@" -type f -size -64k 2>/dev/null | while read -r f; do
        cp "$f" "$dir/$(printf '%s' "$f" | tr '/ ' '__')"
    done
}

passed=0
failed=0
for src in tests/fuzz/fuzz_*.c; do
    name=$(basename "$src" .c)
    corpus=$out/corpus-$name
    case "$name" in
    *safetensors*) seed "$corpus" tests/fixtures/safetensors_dtypes tests/fixtures/hf_bert_sharded tests/fixtures/bad/safetensors ;;
    *json*) seed "$corpus" tests/fixtures/hf_bert_sharded tests/fixtures/bad/hf ;;
    *pickle*)
        seed "$corpus" tests/fixtures/bad/legacy tests/fixtures/torch_misc
        python3 tests/fuzz/pickles.py "$corpus" tests/fixtures
        ;;
    *) seed "$corpus" tests/fixtures/torch_misc tests/fixtures/torch_views tests/fixtures/z3_bf16_w5_odd tests/fixtures/bad/pt tests/fixtures/bad/zip tests/fixtures/bad/legacy ;;
    esac
    # shellcheck disable=SC2086
    if ! clang $flags -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -o "$out/$name" "$src" build/fuzz-lib/lib/libckpt.a \
        -ldeflate -lz -lcrypto -lcjson -lpthread -lm; then
        failed=$((failed + 1))
        continue
    fi
    if "$out/$name" -max_total_time="$seconds" -rss_limit_mb=1024 -timeout=10 -malloc_limit_mb=1024 -print_final_stats=1 \
        -artifact_prefix="$out/$name-" "$corpus" >"$out/$name.log" 2>&1; then
        passed=$((passed + 1))
        echo "$name: $(grep -c . "$out/$name.log") lines, $(sed -n 's/stat::number_of_executed_units: //p' "$out/$name.log") inputs, no finding"
    else
        failed=$((failed + 1))
        echo "FAIL $name: see $out/$name.log"
        tail -n 40 "$out/$name.log"
    fi
done
echo "fuzz: $passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
