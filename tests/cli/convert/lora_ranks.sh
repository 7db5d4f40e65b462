# SPDX-License-Identifier: Apache-2.0
# Rank and alpha of a stack of experts (target_parameters) are looked up by the parameter's name, not by its module's.
T=$FIXTURES/lora_packed
change() { # FOLDER EXPRESSION: a copy of the adapter whose configuration is edited
    cp -r "$T/adapter" "$1"
    chmod -R u+w "$1"
    sed -i "$2" "$1/adapter_config.json"
}
# every rank and alpha comes from a pattern, as peft writes them for all-linear
all='{".*\\\\.gate_up_proj": 2, ".*\\\\.down_proj": 2, ".*\\\\.q_proj": 2, ".*\\\\.v_proj": 2}'
change ranks "s/\"r\": 2/\"r\": 7/; s/\"rank_pattern\": {}/\"rank_pattern\": $all/"
ckpt convert -q "$T/base" out --to hf --adapter ranks && ckpt diff --tol 1e-7 "$T/want" out
change alphas 's/"lora_alpha": 8/"lora_alpha": 5/; s/"alpha_pattern": {}/"alpha_pattern": {"gate_up_proj": 8, "mlp.experts.down_proj": 8, "q_proj|v_proj": 8}/'
ckpt convert -q "$T/base" both --to hf --adapter alphas && ckpt diff --tol 1e-7 "$T/want" both
echo "-- a pattern of the module does not apply, and a wrong rank is refused"
change module 's/"alpha_pattern": {}/"alpha_pattern": {"experts": 3}/'
ckpt convert -q "$T/base" three --to hf --adapter module && ckpt diff --tol 1e-7 "$T/want" three
change wrong 's/"rank_pattern": {}/"rank_pattern": {"down_proj": 4}/'
ckpt convert -q "$T/base" four --to hf --adapter wrong; echo "status $?"
