# SPDX-License-Identifier: Apache-2.0
# No GGUF file appears that lacks a tensor of its first or last block, or an outer one; selected tensors still make a file.
try() { # MODEL GLOB
    ckpt convert -q "$FIXTURES/$1/hf" lacks.pt --force --exclude "$2" 2>/dev/null
    echo "$1 $2"
    ckpt convert -q lacks.pt out.gguf --config "$FIXTURES/$1/hf/config.json" 2>said
    echo "status $?"
    grep -v warning: said >&2
    rm -f out.gguf
}
for glob in '*h.0.ln_1.bias' '*h.1.ln_1.bias' '*ln_f.weight' '*wpe*' 'nothing*'; do
    try map_mcore_gpt2 "$glob"
done
for glob in '*layers.0.attention.dense.bias' '*final_layer_norm*' '*embed_in*' '*embed_out*'; do
    try map_neox_tp2 "$glob"
done
try map_mcore_gptoss '*layers.0.self_attn.sinks'
ckpt convert -q "$FIXTURES/map_mcore_gpt2/hf" out.gguf --exclude '*wpe*' 2>/dev/null
echo "status $?"
