#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Benchmarks: ours beside `cp` of the same output and DeepSpeed's own script, in one run.  Prints figures, judges nothing.
#
#   run.sh BUILD_BIN [bench.py's arguments]          consolidating, then resharding, many machines, DCP, then training
#   run.sh BUILD_BIN reshard [reshard.py's arguments]
#   run.sh BUILD_BIN simulate [simulate.py's arguments]  many machines on a clock; moves no data
#   run.sh BUILD_BIN cold --work FOLDER [cold.py's arguments]  caches dropped before each run; needs root
#   run.sh BUILD_BIN dcp [dcp.py's arguments]        needs torch
#   run.sh BUILD_BIN mount [mount.py's arguments]    needs what can be mounted; root sets its own read-ahead
#   run.sh BUILD_BIN merge [merge.py's arguments]    needs torch and peft
#   run.sh BUILD_BIN gguf [gguf.py's arguments]      needs torch and transformers; LLAMA_CPP and LLAMA_LIB name llama.cpp's
#   run.sh BUILD_BIN quant [quant.py's arguments]    CKPT_GGML names libggml-base.so
#   run.sh BUILD_BIN quantized [quantized.py's arguments]  needs torch, mlx, bitsandbytes and compressed-tensors
#   run.sh BUILD_BIN text [text.py's arguments]      needs tokenizers
#   run.sh BUILD_BIN megatron [megatron.py's arguments]  a plan for DeepSeek-V3; moves no data
#   run.sh BUILD_BIN engine [engine.py's arguments]
set -eu
bin=$(cd "${1:-build/bin}" && pwd)
shift || true
make -s B="$(dirname "$bin")" "$(dirname "$bin")/gen_zero"
venv=${CKPT_INTEROP_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/ckpt-interop}
python=python3
[ -x "$venv/bin/python" ] && python=$venv/bin/python
gen=$(dirname "$bin")/gen_zero
if [ "${1:-}" = reshard ]; then
    shift
    exec "$python" tests/bench/reshard.py --bin "$bin" --gen "$gen" "$@"
fi
if [ "${1:-}" = simulate ]; then
    shift
    make -s B="$(dirname "$bin")" "$(dirname "$bin")/simulate"
    exec "$python" tests/bench/simulate.py --simulate "$(dirname "$bin")/simulate" --gen "$gen" "$@"
fi
if [ "${1:-}" = cold ]; then
    shift
    exec "$python" tests/bench/cold.py --bin "$bin" --gen "$gen" "$@"
fi
if [ "${1:-}" = dcp ]; then
    shift
    exec "$python" tests/bench/dcp.py --bin "$bin" --gen "$gen" "$@"
fi
if [ "${1:-}" = mount ]; then
    shift
    make -s B="$(dirname "$bin")" "$(dirname "$bin")/null_mount"
    exec "$python" tests/bench/mount.py --bin "$bin" --gen "$gen" --null "$(dirname "$bin")/null_mount" "$@"
fi
if [ "${1:-}" = merge ]; then
    shift
    exec "$python" tests/bench/merge.py --bin "$bin" "$@"
fi
if [ "${1:-}" = gguf ]; then
    shift
    exec "$python" tests/bench/gguf.py --bin "$bin" "$@"
fi
if [ "${1:-}" = quant ]; then
    shift
    exec "$python" tests/bench/quant.py --bin "$bin" "$@"
fi
if [ "${1:-}" = quantized ]; then
    shift
    exec "$python" tests/bench/quantized.py --bin "$bin" "$@"
fi
if [ "${1:-}" = text ]; then
    shift
    make -s B="$(dirname "$bin")" "$(dirname "$bin")/encode"
    exec "$python" tests/bench/text.py --encode "$(dirname "$bin")/encode" "$@"
fi
if [ "${1:-}" = megatron ]; then
    shift
    exec "$python" tests/bench/megatron.py --bin "$bin" "$@"
fi
if [ "${1:-}" = engine ]; then
    shift
    exec "$python" tests/bench/engine.py --bin "$bin" "$@"
fi
"$python" tests/bench/bench.py --bin "$bin" --gen "$gen" "$@"
"$python" tests/bench/reshard.py --bin "$bin" --gen "$gen"
make -s "$(dirname "$bin")/simulate"
"$python" tests/bench/simulate.py --simulate "$(dirname "$bin")/simulate" --gen "$gen"
! "$python" -c 'import torch' 2>/dev/null || "$python" tests/bench/dcp.py --bin "$bin" --gen "$gen"
exec "$python" tests/bench/engine.py --bin "$bin"
