# SPDX-License-Identifier: Apache-2.0
# Gemma 3 becomes a torch_dist checkpoint for Megatron-Bridge's modules and the same folder again.
hf=$FIXTURES/map_mcore_gemma3/hf
ckpt convert -q "$hf" run --to megatron --make-vocab-size-divisible-by 8
ckpt ls run
ckpt tree run | sed -n '/args/,/content_metadata/p'
ckpt tree run | grep -E 'shard_0_2.*None'
ckpt convert -q run back --to hf && ckpt diff "$hf" back
grep -E 'rope|factor|window|scalar|model_type' back/config.json

# norms that Transformer Engine has fused, and norms around 1
ckpt convert -q "$hf" local.safetensors --map hf:megatron
cat >te.map <<EOF
decoder.layers.{i}.input_layernorm.weight = decoder.layers.{i}.self_attention.linear_qkv.layer_norm_weight
decoder.layers.{i}.pre_mlp_layernorm.weight = decoder.layers.{i}.mlp.linear_fc1.layer_norm_weight
{rest...} = {rest...}
EOF
ckpt convert -q local.safetensors te.safetensors --map ./te.map
ckpt convert -q te.safetensors te --to hf --map megatron:hf --config "$hf"/config.json && ckpt diff "$hf" te
ckpt convert -q "$hf" around.safetensors --map hf:megatron --size args.apply_layernorm_1p=false
ckpt diff -q local.safetensors around.safetensors --map none | grep -c norm
ckpt convert -q around.safetensors around --to hf --map megatron:hf --config "$hf"/config.json --size args.apply_layernorm_1p=false
ckpt diff --tol 1e-6 "$hf" around

# what these modules compute otherwise
try() {
    mkdir -p "$1" && cp "$hf"/model.safetensors "$1" && sed "$2" "$hf"/config.json >"$1"/config.json
    ckpt convert -q "$1" out --to megatron || echo "status $?"
    rm -rf out
}
try cap 's/"attn_logit_softcapping": null/"attn_logit_softcapping": 50.0/'
try layers 's/"full_attention"$/"sliding_attention"/'
try yarn 's/"rope_type": "linear"/"rope_type": "yarn"/'
try both 's/"use_bidirectional_attention": false/"use_bidirectional_attention": true/'
# Gemma 1 has the names of Llama
mkdir first && cp "$FIXTURES"/gguf_llama_deep/hf/model.safetensors first
sed 's/"model_type": "llama"/"model_type": "gemma"/' "$FIXTURES"/gguf_llama_deep/hf/config.json >first/config.json
ckpt convert -q first out --to megatron || echo "status $?"
# sizes that the tensors have or contradict, and scales that are none
try null 's/"head_dim": 4/"head_dim": null/' && ckpt convert -q null run8 --to megatron && ckpt tree run8 | grep kv_channels
try wide 's/"head_dim": 4/"head_dim": 8/'
for scale in '{"type": "linear"}' '{"type": "linear", "factor": 0}' '{"rope_type": "linear", "factor": "8"}'; do
    try scale "s/\"rope_parameters\"/\"rope_scaling\": $scale, \"x\"/"
done
