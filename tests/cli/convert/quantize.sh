# SPDX-License-Identifier: Apache-2.0
# Matrices of linear layers as fp8 with scales: which, in which form, and what is refused.
model=$FIXTURES/gguf_llama_deep/hf
ckpt convert -q "$model" block --to hf --quantize fp8-block:16x32
ckpt ls block --include 'model.layers.0.*' --include 'lm_head*' --include '*embed*'
ckpt info block | grep quantized
grep -o '"modules_to_not_convert": [^}]*' block/config.json
ckpt convert "$model" row --to hf --quantize fp8-channel --quantize-skip '*k_proj*' --dtype bf16 2>/dev/null
ckpt ls row --include '*layers.0.self_attn.[kq]*' --include '*embed*'
# floats again, and quantized anew
ckpt convert -q block floats --to hf --dtype fp32 && grep -c quantization_config floats/config.json
ckpt convert -q block again --to hf --quantize fp8-block:16x32 && ckpt diff block again --include '*.weight'
for how in fp8 fp8-block:0x1 fp8-block:64x fp8-block:64x64; do ckpt convert -q "$model" x --to hf --quantize $how; done
ckpt convert -q "$model" x.gguf --quantize fp8-block
ckpt convert -q "$model" x --to hf --quantize fp8-channel --quantize-skip '*' --quantize-skip 'nothing'
ckpt convert -q "$model" x --to hf --quantize fp8-channel --no-side-files
ckpt convert -q "$model" x --to hf --quantize fp8-channel --dtype 'bf16:*norm*'
ckpt convert -q "$model" y --to hf --quantize-skip 'x'
ckpt convert -q "$model"/model.safetensors x --to hf --quantize fp8-channel --config "$FIXTURES"/map_meta_s1/meta
mkdir bare && cp "$model"/model.safetensors bare
ckpt convert -q bare x --to hf --quantize fp8-channel
ls
