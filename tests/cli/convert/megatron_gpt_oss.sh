# SPDX-License-Identifier: Apache-2.0
# GPT-OSS becomes a torch_dist checkpoint of Megatron-Core and the same folder again.
hf=$FIXTURES/map_mcore_gptoss/hf
ckpt convert -q "$hf" run --to megatron --make-vocab-size-divisible-by 8
ckpt ls run
ckpt tree run | sed -n '/args/,/content_metadata/p'
ckpt convert -q run back --to hf && ckpt diff "$hf" back
grep -E -A 3 'layer_types|sliding_window|swiglu|truncate' back/config.json

# experts of Transformer Engine's grouped layers
ckpt convert -q "$hf" local.safetensors --map hf:megatron
cat >te.map <<EOF
decoder.layers.{i}.input_layernorm.weight = decoder.layers.{i}.self_attention.linear_qkv.layer_norm_weight
decoder.layers.{i}.mlp.experts.local_experts.{e}.{m*}.{p*} = decoder.layers.{i}.mlp.experts.{m*}.{p*}{e}
{rest...} = {rest...}
EOF
ckpt convert -q local.safetensors te.safetensors --map ./te.map && ckpt ls te.safetensors | grep -c 'linear_fc1.bias[0-2]'
ckpt convert -q te.safetensors te --to hf --map megatron:hf --config "$hf"/config.json && ckpt diff "$hf" te

try() {
    mkdir -p "$1" && cp "$hf"/model.safetensors "$1" && sed "$2" "$hf"/config.json >"$1"/config.json
    ckpt convert -q "$1" out --to megatron || echo "status $?"
    [ ! -d out ] || ckpt tree out | grep -E 'window_attn|round_to_int|clamp'
    rm -rf out
}
# other layers with windows, bounds that are rounded, another limit
try windows 's/"sliding_attention"/"full_attention"/'
try rounded 's/"truncate": false/"truncate": true/'
try limit 's/"swiglu_limit": 7.0/"swiglu_limit": 5.0/'
# what Megatron-Core computes otherwise
try alpha 's/"swiglu_alpha": 1.702/"swiglu_alpha": 1.5/'
try linear 's/"rope_type": "yarn"/"rope_type": "linear"/'
# what contradicts the tensors, layers of a third kind or a wrong number of them, and a scale that is none
try experts 's/"num_local_experts": 3/"num_local_experts": 7/'
try alias 's/"num_local_experts": 3/"num_local_experts": 3, "num_experts": 5/'
try third 's/"full_attention"/"chunked_attention"/'
try more 's/"full_attention"/"full_attention","full_attention"/'
try fewer '/"sliding_attention",/d'
try scale 's/"factor": 4.0/"factor": 0/'
