# SPDX-License-Identifier: Apache-2.0
# Keys of config.json: those that change what a model computes count, also if only one side has them; one number in two forms does not.
hf=$FIXTURES/gguf_llama_deep/hf
change() { # CODE: change the JSON x of a fresh copy, then prove it
    rm -rf out && cp -r "$hf" out && chmod -R u+w out
    python3 -c 'import json, sys; x = json.load(open("out/config.json")); exec(sys.argv[1]); json.dump(x, open("out/config.json", "w"))' "$1"
    echo "-- $1"
    ckpt verify out --made-from "$hf" 2>/dev/null | grep metadata
    ckpt verify -q out --made-from "$hf" >/dev/null 2>&1
    echo "exit status $?"
}
echo "== count"
change 'x["embedding_multiplier"] = 0.5; x["sliding_window"] = 4; x["num_experts_per_tok"] = 1'
change 'x["scale_attn_weights"] = False; x["tie_word_embeddings"] = True; x["attention_dropout"] = 0.5'
change 'x["text_config"] = {"rope_theta": 5.0}; x["architectures"] = ["LlamaModel"]'
change 'x["dtype"] = "float64"'
change 'x["rope_parameters"]["rope_theta"] += 0.5; x["hidden_size"] = True'
change 'del x["rms_norm_eps"]; x["mlp_bias"] = True'
echo "== do not count"
change 'x["transformers_version"] = "9"; x["_name_or_path"] = "x"; x["auto_map"] = {}; x["use_cache"] = not x["use_cache"]'
change 'del x["architectures"], x["dtype"], x["head_dim"]'
change 'x["hidden_dropout"] = 0; x["qkv_bias"] = False; x["sliding_window"] = None'
echo "== equal"
change 'x["rope_parameters"]["rope_theta"] = int(x["rope_parameters"]["rope_theta"]); x["vocab_size"] = float(x["vocab_size"]); x["layers"] = []'
change 'x["rope_theta"] = x.pop("rope_parameters")["rope_theta"]; x["torch_dtype"] = x.pop("dtype"); x["head_dim"] = None'
