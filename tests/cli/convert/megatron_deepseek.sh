# SPDX-License-Identifier: Apache-2.0
# DeepSeek-V3 becomes a torch_dist checkpoint of Megatron-Core and the same folder again.
hf=$FIXTURES/map_mcore_deepseek3/hf
ckpt convert -q "$hf" run --to megatron --make-vocab-size-divisible-by 8
ckpt ls run | sed -n '1,21p'
ckpt tree run | sed -n '/args/,/content_metadata/p'
# norms have the names of Megatron-Core's local layers, and those of Transformer Engine
tr -s '\0-\37' '\n' <run/release/.metadata | grep -a -o 'decoder.layers.[01]\..*norm[._].*weight' | sort -u
# one extra state for each layer, and for each expert
ckpt tree run | grep -E -c '_extra_state/shard_0_1.*None'
ckpt tree run | grep -E 'experts.linear_fc1._extra_state'
ckpt convert -q run back --to hf && ckpt diff "$hf" back
grep -E 'first_k|group|norm_topk|q_lora|mscale|factor' back/config.json

# a checkpoint of Transformer Engine's layers
ckpt convert -q "$hf" local.safetensors --map hf:megatron
cat >te.map <<EOF
decoder.layers.0.pre_mlp_layernorm.weight = decoder.layers.0.mlp.linear_fc1.layer_norm_weight
decoder.layers.{i}.self_attention.q_layernorm.weight = decoder.layers.{i}.self_attention.linear_q_up_proj.layer_norm_weight
decoder.layers.{i}.self_attention.kv_layernorm.weight = decoder.layers.{i}.self_attention.linear_kv_up_proj.layer_norm_weight
{rest...} = {rest...}
EOF
ckpt convert -q local.safetensors te.safetensors --map ./te.map && ckpt ls te.safetensors | grep -c layer_norm_weight
ckpt convert -q te.safetensors te --to hf --map megatron:hf --config "$hf"/config.json && ckpt diff "$hf" te
ckpt convert -q te.safetensors te.run --to megatron --map megatron:torch_dist --make-vocab-size-divisible-by 1 && ckpt diff local.safetensors te.run

# --apply-layernorm-1p: norms are stored less 1
ckpt convert -q "$hf" less.safetensors --map hf:megatron --size args.apply_layernorm_1p=true
ckpt diff -q local.safetensors less.safetensors --map none | grep -c norm
ckpt convert -q less.safetensors more --to hf --map megatron:hf --config "$hf"/config.json --size args.apply_layernorm_1p=true
ckpt diff --tol 1e-6 "$hf" more

# what Megatron-Core computes otherwise
try() {
    mkdir -p "$1" && cp "$hf"/model.safetensors "$1" && sed "$2" "$hf"/config.json >"$1"/config.json
    ckpt convert -q "$1" out --to megatron || echo "status $?"
    rm -rf out
}
try halves 's/"rope_interleave": true/"rope_interleave": false/'
try unscaled 's/"norm_topk_prob": true/"norm_topk_prob": false/'
try groups 's/"num_experts_per_tok": 2/"num_experts_per_tok": 3/'
try every 's/"moe_intermediate_size"/"moe_layer_freq": 2, &/'
try ntk 's/"rope_type": "yarn"/"rope_type": "dynamic"/'
try eps 's/"rms_norm_eps": 1e-06/"rms_norm_eps": 1e-05/'
# a layer that predicts one more token
try next 's/"num_hidden_layers": 3/"num_hidden_layers": 2/'
ckpt convert next out.safetensors --map hf:megatron 2>&1 | grep -E 'predicts|wrote' | sed 's/ in .*//'
# the bias of the routers stays F32 in every output, as the frameworks hold it; a pattern converts it
ckpt convert --dtype bf16 "$FIXTURES"/map_mcore_deepseek3/hf half --to hf 2>&1 | grep keep
for format in megatron megatron-legacy dcp fsdp-ranks; do
    ckpt convert --dtype bf16 "$FIXTURES"/map_mcore_deepseek3/hf half.$format --to $format 2>&1 | grep keep
done
ckpt convert -q half.megatron half.hf --to hf && ckpt convert -q --dtype 'bf16:*' half half.safetensors
for at in half half.*; do
    ckpt ls "$at" | grep -E 'layers.1.*(expert|correction)_bias|embed.*F32'
done
