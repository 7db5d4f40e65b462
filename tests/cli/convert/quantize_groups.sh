# SPDX-License-Identifier: Apache-2.0
# Matrices of linear layers as numbers with a scale for a group of columns: tensors, configurations, refusals.
model=$FIXTURES/gguf_llama_deep/hf
for form in w4a16:16 w8a16:32 nvfp4a16 mxfp4a16 mlx4:32 mlx8:32; do
    ckpt convert -q "$model" "$form" --to hf --quantize "$form" --dtype bf16
    ckpt ls "$form" --include '*layers.0.self_attn.q*' --include 'lm_head*' --include '*embed*'
    tr -d '\n' <"$form"/config.json | grep -o '"quantization.*' | sed 's/  */ /g; s/"ignore": [^]]*\]/IGNORED/; s/, "architectures.*//'
    # floats again, which are near
    ckpt convert -q "$form" floats --to hf --dtype fp16 --force
    ckpt diff "$model" floats --include '*layers.0.self_attn.q*' 2>/dev/null | grep -o 'by at most.*'
done
ckpt verify -q w4a16:16 --made-from "$model" --quantize w4a16:16 --dtype bf16 2>/dev/null; echo "status $?"
ckpt verify -q mlx4:32 --made-from "$model" --quantize mlx4:64 --dtype bf16 >/dev/null 2>&1; echo "status $?"
for form in w4a16:24 w4a16:8 mlx4:16 nvfp4a16:16 w4a16:64x64 w5a16; do ckpt convert -q "$model" x --to hf --quantize $form; done
# a model whose tensors MLX changes; blocks that divide no row
sed 's/"llama"/"mixtral"/' "$model"/config.json >mixtral.json
ckpt convert -q "$model"/model.safetensors x --to hf --quantize mlx4:32 --config mixtral.json
ckpt convert -q "$model" x --to hf --quantize w4a16
ls
