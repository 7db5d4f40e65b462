#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The GPU plugin's kernels on an emulated GPU: emulated.sh BUILD
# Operations against the processor's, then recorded runs of DeepSpeed and saved and resumed runs through zerotrain.
set -u
b=${1:-build}
plugin=$b/emulated/libzerotrain-cuda.so
failed=0
ZEROTRAIN_CUDA_PLUGIN=$(cd "$(dirname "$plugin")" && pwd)/$(basename "$plugin")
export ZEROTRAIN_CUDA_PLUGIN

step() {
    "$@" || failed=1
}

for order in forward reverse; do
    echo "threads of a block $order:"
    export ZT_EMULATE_ORDER=$order
    for t in "$b"/gpu/test_*; do
        case $t in
        *.d) continue ;;
        esac
        step "$t" "$plugin"
    done
done
unset ZT_EMULATE_ORDER
# with little shared memory, tiles are loaded one at a time
for capability in 80 86; do
    echo "capability $capability:"
    ZT_EMULATE_CAPABILITY=$capability step "$b/gpu/test_attention" "$plugin"
done
# attention by an emulated cuDNN, and by none where it is wrong or missing
step env ZEROTRAIN_ATTENTION=cudnn "$b/gpu/test_attention" "$plugin"
step "$b/gpu/choices" "$plugin"
step "$b/gpu/times" "$plugin" --small >/dev/null
step env ZEROTRAIN_ATTENTION=cudnn "$b/gpu/times" "$plugin" --small --only attention >/dev/null
# every model, stage and dtype once; more would only repeat the kernels above, slowly
step python3 tests/replay/deepspeed.py --bin "$b/bin" --golden tests/fixtures/golden --device cuda --resume gpt2_w1_z0_fp32 \
    gpt2_z0_fp32 gpt2_z1_fp16 gpt2_z2_bf16 gpt2_z3_fp32 bert_z2_fp32 bert_z3_fp16 llama_z3_bf16
step python3 tests/replay/deepspeed.py --bin "$b/bin" --golden tests/fixtures/golden/decoders --device cuda
step python3 tests/replay/deepspeed.py --bin "$b/bin" --golden tests/fixtures/golden/t5 --device cuda t5_gated_w1_z3_fp32 t5_z2_bf16
step env ZEROTRAIN_ATTENTION=cudnn python3 tests/replay/deepspeed.py --bin "$b/bin" --golden tests/fixtures/golden --device cuda gpt2_z2_bf16 \
    llama_z3_bf16
step python3 tests/replay/generate.py --some --bin "$b/bin" --device cuda
[ "$failed" -eq 0 ]
