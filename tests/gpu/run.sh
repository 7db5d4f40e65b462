#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything about the GPU's code that needs a GPU: tests, then measurements.  Under eight minutes on one H100.
#
#   tests/gpu/run.sh [BUILD [STEP...]]      default: build, and all steps, in this order:
#       operations   each operation beside the processor's
#       orders       in which order the library's products round (prints, checks nothing)
#       times        single operations
#       runs         recorded runs of DeepSpeed, on one rank and on two
#       cross        runs on the GPU beside runs on the processor, and saves that move between both
#       memory       bytes beside formulas
#       sanitize     compute-sanitizer
#       figures      training beside PyTorch
#       cudnn        attention by cuDNN (ZEROTRAIN_ATTENTION=cudnn): its results beside the processor's, and its time beside that of
#                    the plugin's kernels, alone and in training
#
# Variables: LIMIT, seconds for all steps together (default 470; each step also has its own limit); OUT, a folder that gets
# results.json, with a member for each step, and what each step printed.  OLD_PLUGIN, another build of the plugin, which times and
# figures run in turns with this one.  FIGURES, options for tests/bench/gpu.py.
#
# If BUILD/gpu-bundle.tar.xz exists, which `make gpu-bundle` makes on another machine with nvcc, it is unpacked there: programs,
# plugin, tests, and the libraries that a bare machine lacks, Open MPI among them.  Otherwise the sources are built.  The script
# says which steps it skips; the last line counts.
set -u
cd "$(dirname "$0")/../.." || exit 2
mkdir -p "${1:-build}"
b=$(cd "${1:-build}" && pwd)
shift
steps=${*:-operations orders times runs cross memory sanitize figures cudnn}
for name in $steps; do
    case $name in
    operations | orders | times | runs | cross | memory | sanitize | figures | cudnn) ;;
    *) echo "there is no step $name" && exit 2 ;;
    esac
done
limit=${LIMIT:-470}
old=${OLD_PLUGIN:+$(realpath "$OLD_PLUGIN")}
passed=0
failed=0
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT

say() {
    printf '[%4d s] %s\n' "$SECONDS" "$*"
}

# record NAME STATE PASSED FAILED SECONDS: the member of a step in results.json; its output is in $log/out
record() {
    local file
    printf '%s\t%s\t%d\t%d\t%d\n' "$@" >>"$log/steps"
    passed=$((passed + $3))
    failed=$((failed + $4))
    if [ -n "${OUT:-}" ]; then
        file=$(printf '%s' "$1" | tr -c 'A-Za-z0-9\n' '_')
        cp "$log/out" "$OUT/$file.txt" 2>/dev/null
    fi
}

# skip NAME WHY
skip() {
    echo "skipped: $1, $2"
    : >"$log/out"
    record "$1" "skipped: $2" 0 0 0
}

# step SECONDS LINES NAME COMMAND...: run it within its limit, add up its "N passed, N failed" lines, show its last LINES
step() {
    local most=$1 lines=$2 name=$3 begin=$SECONDS rc p f state=ok
    shift 3
    [ $((limit - SECONDS)) -ge "$most" ] || most=$((limit - SECONDS))
    if [ "$most" -lt 5 ]; then
        skip "$name" "no time is left"
        return
    fi
    say "$name"
    timeout -k 5 "$most" "$@" >"$log/out" 2>&1
    rc=$?
    p=$(sed -n 's/.*[^0-9]\([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed.*/\1/p' "$log/out" | awk '{s += $1} END {print s + 0}')
    f=$(sed -n 's/.*[^0-9]\([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed.*/\2/p' "$log/out" | awk '{s += $1} END {print s + 0}')
    [ "$p" -gt 0 ] || [ "$rc" -ne 0 ] || p=1
    [ "$f" -gt 0 ] || [ "$rc" -eq 0 ] || f=1
    [ "$rc" -eq 0 ] || state="exit status $rc"
    [ "$rc" -ne 124 ] || state="stopped after $most s"
    [ "$rc" -eq 0 ] || { echo "$state"; lines=25; }
    tail -n "$lines" "$log/out"
    record "$name" "$state" "$p" "$f" $((SECONDS - begin))
}

# The steps as one JSON file.
results() {
    python3 - "$log/steps" "$card" "$OUT" <<'END'
import json, os, re, sys
steps = []
with open(sys.argv[1]) as f:
    for line in f:
        name, state, passed, failed, seconds = line.rstrip('\n').split('\t')
        path = os.path.join(sys.argv[3], re.sub('[^A-Za-z0-9]', '_', name) + '.txt')
        lines = open(path, errors='replace').read().splitlines() if os.path.exists(path) else []
        steps.append({'name': name, 'state': state, 'passed': int(passed), 'failed': int(failed), 'seconds': int(seconds), 'output': lines[-200:]})
with open(os.path.join(sys.argv[3], 'results.json'), 'w') as f:
    json.dump({'card': sys.argv[2], 'passed': sum(s['passed'] for s in steps), 'failed': sum(s['failed'] for s in steps), 'steps': steps}, f, indent=1)
END
}

if ! card=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null); then
    echo "skipped: nvidia-smi shows no GPU"
    echo "0 passed, 0 failed"
    exit 0
fi
echo "$card"
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
# cuDNN, which the plugin loads when it is asked to: of the system, of the toolkit, or of a Python package
if ! ldconfig -p | grep -q 'libcudnn\.so\.9'; then
    for dir in "$(dirname "$(command -v nvcc || echo /nowhere)")/../lib64" /usr/local/cuda*/lib64 \
        $(python3 -c 'import glob, sysconfig; print(*glob.glob(sysconfig.get_paths()["purelib"] + "/nvidia/cudnn/lib"))' 2>/dev/null); do
        if [ -e "$dir/libcudnn.so.9" ]; then
            export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$dir
            break
        fi
    done
fi
# the CUDA runtime as a shared library, which cuDNN's headers load; a folder that is not needed could hide another cuBLASLt
if ! ldconfig -p | grep -q 'libcudart\.so\.'; then
    for dir in $(python3 -c 'import glob, sysconfig; print(*glob.glob(sysconfig.get_paths()["purelib"] + "/nvidia/*/lib"))' 2>/dev/null); do
        if ls "$dir"/libcudart.so.* >/dev/null 2>&1; then
            export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$dir
            break
        fi
    done
fi
if ldd "$bin/zerotrain" "$b"/gpu/test_attention "$plugin" | grep 'not found'; then
    echo "these libraries are missing here"
    exit 1
fi
golden=tests/fixtures/golden
[ -d ../shared/golden ] && golden=../shared/golden
[ -d shared/golden ] && golden=shared/golden

operations() {
    local t
    for t in "$b"/gpu/test_*; do
        case $t in *.d) continue ;; esac
        step 60 12 "operations: $(basename "$t")" "$t" "$plugin"
    done
}

# one rank by itself; two ranks share the GPU, through the host
runs() {
    step 100 2 "recorded runs of DeepSpeed, one rank" python3 tests/replay/deepspeed.py --bin "$bin" --golden $golden --device cuda --resume --worlds 1
    if command -v mpirun >/dev/null 2>&1; then
        # the small set: starting a process on a GPU takes its time
        step 100 2 "recorded runs of DeepSpeed, two ranks" python3 tests/replay/deepspeed.py --bin "$bin" --golden tests/fixtures/golden --device cuda --resume --worlds 2
    else
        skip "recorded runs of DeepSpeed, two ranks" "there is no mpirun"
    fi
}

# sanitize_one TOOL TEST: all of them together take two minutes at most
sanitize_one() {
    local left=$((sanitized + 120 - SECONDS)) begin=$SECONDS name="compute-sanitizer $1: $2" rc
    [ $((limit - SECONDS)) -ge $left ] || left=$((limit - SECONDS))
    if [ $left -lt 10 ]; then
        skip "$name" "no time is left"
        return
    fi
    say "$name"
    timeout $left compute-sanitizer --tool "$1" --error-exitcode 9 --log-file "$log/san" "$b/gpu/$2" "$plugin" >"$log/out" 2>&1
    rc=$?
    if [ $rc -eq 0 ]; then
        record "$name" ok 1 0 $((SECONDS - begin))
    elif [ $rc -eq 124 ]; then
        skip "$name" "too slow here"
    elif grep -q 'not supported\|Error: No attachable' "$log/san" 2>/dev/null; then
        skip "$name" "$(grep -m 1 'upported\|attachable' "$log/san")"
    else
        head -n 20 "$log/san" "$log/out"
        record "$name" "exit status $rc" 0 1 $((SECONDS - begin))
    fi
}

sanitize() {
    if ! command -v compute-sanitizer >/dev/null 2>&1; then
        skip sanitize "there is no compute-sanitizer"
        return
    fi
    sanitized=$SECONDS
    sanitize_one memcheck test_attention
    sanitize_one memcheck test_layers
    sanitize_one memcheck test_device
    sanitize_one racecheck test_layers
    # these take minutes, the second more than two
    sanitize_one initcheck test_attention
    sanitize_one racecheck test_attention
}

figures() {
    local left=$((limit - SECONDS))
    if [ $left -lt 60 ]; then
        skip figures "no time is left; python3 tests/bench/gpu.py --bin $bin"
        return
    fi
    [ $left -le 240 ] || left=240
    # shellcheck disable=SC2086 # FIGURES holds several options
    step $left 40 figures python3 tests/bench/gpu.py --bin "$bin" --time $((left - 5)) ${old:+--plugin "$old"} ${OUT:+--json "$OUT/figures.json"} ${FIGURES:-}
}

# Everything that decides whether cuDNN computes attention by default, in two minutes.
cudnn() {
    local why
    if ! why=$(ZEROTRAIN_ATTENTION=cudnn "$b/gpu/times" "$plugin" --small --only attention 2>&1); then
        skip cudnn "$(echo "$why" | tail -n 1)"
        return
    fi
    step 60 12 "cudnn: test_attention" env ZEROTRAIN_ATTENTION=cudnn "$b/gpu/test_attention" "$plugin"
    step 40 3 "cudnn: times, own kernels" "$b/gpu/times" "$plugin" --only attention
    step 40 4 "cudnn: times, cuDNN" env ZEROTRAIN_ATTENTION=cudnn "$b/gpu/times" "$plugin" --only attention
    step 60 2 "cudnn: recorded runs of DeepSpeed" env ZEROTRAIN_ATTENTION=cudnn python3 tests/replay/deepspeed.py --bin "$bin" --golden tests/fixtures/golden --device cuda --worlds 1
    step 150 40 "cudnn: figures" python3 tests/bench/gpu.py --bin "$bin" --models 124M,1.3B --only ours --cudnn --no-save --turns 2 --steps 15 --time 145 ${OUT:+--json "$OUT/cudnn.json"}
}

for name in $steps; do
    case $name in
    operations | runs | sanitize | figures | cudnn) $name ;;
    orders) step 40 60 orders "$b/gpu/orders" "$plugin" ;;
    times) step 40 40 times "$b/gpu/times" "$plugin" $old ;;
    cross) step 90 2 "saved on one device, resumed on the other" python3 tests/gpu/cross.py --bin "$bin" ;;
    memory) step 40 2 "memory against formulas" python3 tests/gpu/cross.py --bin "$bin" --memory ;;
    esac
done
[ -z "${OUT:-}" ] || results
say "done"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
