# SPDX-License-Identifier: Apache-2.0
# A mixture of experts under AutoEP, at stages 1 and 3: the module's weights, gathered by DeepSpeed itself, under the hub's names.
for stage in 1 3; do
    run=$FIXTURES/autoep_z${stage}_w2
    ckpt convert -q "$run/run" hf$stage --to hf --dtype bf16 && ckpt diff hf$stage "$run/truth.safetensors"
    zero_to_fp32 "$run/run" all$stage --safe_serialization >/dev/null 2>&1
    ckpt convert -q all$stage all16_$stage --to hf --dtype bf16 && ckpt diff all16_$stage "$run/truth.safetensors"
done
ckpt ls hf1 | grep layers.0.mlp
# Mixtral names its experts in another way: the configuration beside the run says so, or the run's own
cp -r "$FIXTURES/autoep_z3_w2/run" mixtral
echo '{"model_type": "mixtral"}' >mixtral/config.json
ckpt ls mixtral | grep layers.0.block | head -3
