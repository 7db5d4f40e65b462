# SPDX-License-Identifier: Apache-2.0
# A run of Megatron-Core gets Hugging Face's names, its masters and moments cut as its weights, and back.
src=$FIXTURES/mcore_llama_distopt_dp2/ckpt
ckpt reshard -q --map torch_dist:megatron:hf --world 2 --stage 3 "$src" zero
ckpt ls zero | tail -12
ckpt verify zero
echo '{"num_attention_heads": 4, "num_key_value_heads": 2}' >config.json
ckpt reshard -q --map hf:megatron:torch_dist --config config.json --make-vocab-size-divisible-by 16 --to dcp --to-tag back zero dcp
# the norms have the names of Transformer Engine again
ckpt diff --with-optimizer --exclude 'rng_state/*' "$src" dcp/back
ckpt reshard -q --map megatron:hf "$src" other || echo "status $?"
