# SPDX-License-Identifier: Apache-2.0
# Neither a whole layer nor an embedding may be missing in a model for Megatron.
try() { # MODEL GLOB
    ckpt convert -q "$FIXTURES/$1/hf" lacks.pt --force --exclude "$2" 2>/dev/null
    for to in megatron megatron-legacy; do
        echo "$1 $2 $to"
        ckpt convert -q lacks.pt out --to $to --config "$FIXTURES/$1/hf/config.json" 2>said
        echo "status $?"
        grep -v warning: said >&2
        rm -rf out
    done
}
try map_mcore_gpt2 '*h.0.*'
try map_mcore_gpt2 '*h.1.*'
try map_mcore_gpt2 '*wpe*'
try map_neox_tp2 '*layers.3.*'
try map_neox_tp2 '*embed_in*'
try map_mcore_gptoss '*layers.1.*'
try map_mcore_gpt2 'nothing*'
