#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything about the GPU's code that needs a GPU: tests, then measurements.  Under eight minutes on one H100.
#
#   tests/gpu/run.sh [BUILD]      default: build, from the root of the sources
#
# Where the sources can be built they are.  Else BUILD/gpu-bundle.tar.xz, which `make gpu-bundle` makes on another machine with
# nvcc, is unpacked there: programs, plugin, tests, and the libraries that a bare machine lacks, Open MPI among them.  What is
# missing is skipped and said so; the last line counts.
set -u
cd "$(dirname "$0")/../.." || exit 2
mkdir -p "${1:-build}"
b=$(cd "${1:-build}" && pwd)
passed=0
failed=0
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT

say() {
    printf '[%4d s] %s\n' "$SECONDS" "$*"
}

# step NAME COMMAND...: its "N passed, N failed" lines are added up
step() {
    local name=$1 rc p f
    shift
    say "$name"
    "$@" >"$log/out" 2>&1
    rc=$?
    p=$(sed -n 's/.*[^0-9]\([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed.*/\1/p' "$log/out" | awk '{s += $1} END {print s + 0}')
    f=$(sed -n 's/.*[^0-9]\([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed.*/\2/p' "$log/out" | awk '{s += $1} END {print s + 0}')
    [ "$p" -gt 0 ] || [ "$rc" -ne 0 ] || p=1
    [ "$f" -gt 0 ] || [ "$rc" -eq 0 ] || f=1
    passed=$((passed + p))
    failed=$((failed + f))
    if [ "$rc" -ne 0 ]; then tail -n 25 "$log/out"; else tail -n 2 "$log/out"; fi
}

if ! nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null; then
    echo "skipped: nvidia-smi shows no GPU"
    echo "0 passed, 0 failed"
    exit 0
fi
if [ -f "$b/gpu-bundle.tar.xz" ]; then
    say "unpacking $b/gpu-bundle.tar.xz"
    tar -C "$b" -xJf "$b/gpu-bundle.tar.xz" || exit 1
elif ! make -s B="$b" programs "$b/lib/libzerotrain-cuda.so" gpu-tests >"$log/make" 2>&1; then
    tail -n 20 "$log/make"
    echo "it cannot be built here: run 'make gpu-bundle' where it can"
    exit 1
fi
plugin=$b/lib/libzerotrain-cuda.so
bin=$b/bin
PATH=$bin:$PATH # the bundle's mpirun
# cuBLASLt where the system's loader does not know it: of the toolkit, or of a Python package
if ldd "$plugin" | grep -q 'libcublasLt.*not found'; then
    for dir in "$(dirname "$(command -v nvcc || echo /nowhere)")/../lib64" /usr/local/cuda*/lib64 \
        $(python3 -c 'import glob, sysconfig; print(*glob.glob(sysconfig.get_paths()["purelib"] + "/nvidia/*/lib"))' 2>/dev/null); do
        if ls "$dir"/libcublasLt.so.* >/dev/null 2>&1; then
            export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$dir
            break
        fi
    done
fi
if ldd "$bin/zerotrain" "$b"/gpu/test_attention "$plugin" | grep 'not found'; then
    echo "these libraries are missing here"
    exit 1
fi

# ---- operations --------------------------------------------------------------------------------
for t in "$b"/gpu/test_*; do
    case $t in *.d) continue ;; esac
    step "operations: $(basename "$t")" "$t" "$plugin"
done

# ---- whole runs --------------------------------------------------------------------------------
golden=tests/fixtures/golden
[ -d ../shared/golden ] && golden=../shared/golden
[ -d shared/golden ] && golden=shared/golden
# one rank by itself; two ranks share the GPU, through the host
step "recorded runs of DeepSpeed, one rank" python3 tests/replay/deepspeed.py --bin "$bin" --golden $golden --device cuda --resume --worlds 1
if command -v mpirun >/dev/null 2>&1; then
    # the small set: starting a process on a GPU takes its time
    step "recorded runs of DeepSpeed, two ranks" python3 tests/replay/deepspeed.py --bin "$bin" --golden tests/fixtures/golden --device cuda --resume --worlds 2
else
    echo "skipped: two ranks, there is no mpirun"
fi
step "saved on one device, resumed on the other" python3 tests/gpu/cross.py --bin "$bin"

# sanitize TOOL TEST: all of them together take two minutes at most
sanitize() {
    local left=$((sanitized + 120 - SECONDS)) rc
    say "compute-sanitizer $1: $2"
    if [ $left -lt 10 ]; then
        echo "skipped: no time is left"
        return
    fi
    timeout $left compute-sanitizer --tool "$1" --error-exitcode 9 --log-file "$log/san" "$b/gpu/$2" "$plugin" >"$log/out" 2>&1
    rc=$?
    if [ $rc -eq 0 ]; then
        passed=$((passed + 1))
    elif [ $rc -eq 124 ]; then
        echo "skipped: too slow here"
    elif grep -q 'not supported\|Error: No attachable' "$log/san" 2>/dev/null; then
        echo "skipped: $(grep -m 1 'upported\|attachable' "$log/san")"
    else
        failed=$((failed + 1))
        head -n 20 "$log/san" "$log/out"
    fi
}

if command -v compute-sanitizer >/dev/null 2>&1; then
    sanitized=$SECONDS
    sanitize memcheck test_attention
    sanitize memcheck test_layers
    sanitize memcheck test_device
    sanitize racecheck test_layers
    # these take minutes, the second more than two
    sanitize initcheck test_attention
    sanitize racecheck test_attention
else
    echo "skipped: no compute-sanitizer"
fi
step "memory against formulas" python3 tests/gpu/cross.py --bin "$bin" --memory

# ---- figures -----------------------------------------------------------------------------------
left=$((450 - SECONDS))
if [ $left -gt 60 ]; then
    say "figures"
    timeout $left python3 tests/bench/gpu.py --bin "$bin" --limit $((left / 3)) 2>&1 | tee "${OUT:-$log}/figures.txt"
else
    echo "skipped: figures, no time is left; python3 tests/bench/gpu.py --bin $bin"
fi
say "done"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
