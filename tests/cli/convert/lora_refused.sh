# SPDX-License-Identifier: Apache-2.0
# Adapters that do not fit, of other kinds, cut or with more in them than is used: nothing is written.
T=$FIXTURES/peft_gpt2_conv1d
try() {
    ckpt convert -q "$T/base" out --to hf --adapter "$@"
    echo "status $?"
    [ ! -e out ] || echo "out was written"
}
change() { # FOLDER EXPRESSION: a copy of the adapter whose configuration is edited
    cp -r "$T/adapter" "$1"
    chmod -R u+w "$1"
    sed -i "$2" "$1/adapter_config.json"
}
change ia3 's/"peft_type": "LORA"/"peft_type": "IA3"/'; try ia3
change prefix 's/"peft_type": "LORA"/"peft_type": "PREFIX_TUNING", "num_virtual_tokens": 3/'; try prefix
change rank 's/"r": 3/"r": 4/'; try rank
change alora 's/"alora_invocation_tokens": null/"alora_invocation_tokens": [1, 2]/'; try alora
change bias 's/"bias": "lora_only"/"bias": "none"/'; try bias
change pattern 's/"rank_pattern": {}/"rank_pattern": {"c_(": 3}/'; try pattern
change none 's/"lora_alpha": 12/"lora_alpha": "12"/'; try none
change null 's/"lora_alpha": 12/"lora_alpha": null/'; try null
change ranks 's/"rank_pattern": {}/"rank_pattern": "3"/'; try ranks
change saved 's/"modules_to_save": null/"modules_to_save": "ln_f"/'; try saved
change dora 's/"use_dora": false/"use_dora": true/'; try dora
change lost 's/"modules_to_save": null/"modules_to_save": ["ln_f"]/'; try lost
try "$FIXTURES/peft_tied_head/adapter"
try "$T/base"
try "$T/adapter:0"
mkdir cut extra
cp "$T/adapter/adapter_config.json" cut; cp "$T/adapter/adapter_config.json" extra
ckpt convert -q "$T/adapter/adapter_model.safetensors" cut/adapter_model.safetensors --exclude '*h.0.attn.c_attn.lora_B*'; try cut
echo '*mlp.c_fc.lora_A.weight *mlp.c_fc.vera_A.weight' >rules
ckpt convert -q "$T/adapter/adapter_model.safetensors" extra/adapter_model.safetensors --rename rules; try extra
ckpt convert "$T/base" out --to hf --adapter-only; echo "status $?"
ckpt convert "$T/base" out --to hf --adapter-only --adapter-config "$T/adapter/adapter_config.json"; echo "status $?"
ckpt convert "$T/base" out.npz --adapter-only; echo "status $?"
ls
