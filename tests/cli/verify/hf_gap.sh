# SPDX-License-Identifier: Apache-2.0
# A Hugging Face model that contradicts its config.json, or in which one layer lacks a tensor, or one expert a weight, is not whole.
cat >less.py <<'END'
import json, os, sys

def less(source, folder, drop):
    """Copy a model without the tensors `drop`."""
    os.makedirs(folder, exist_ok=True)
    raw = open(source + '/model.safetensors', 'rb').read()
    n = int.from_bytes(raw[:8], 'little')
    head, data, out = json.loads(raw[8:8 + n]), raw[8 + n:], b''
    for name in [k for k in head if k in drop]:
        del head[name]
    for name, t in head.items():
        if name != '__metadata__':
            begin, end = t['data_offsets']
            t['data_offsets'] = [len(out), len(out) + end - begin]
            out += data[begin:end]
    text = json.dumps(head).encode()
    text += b' ' * (-len(text) % 8)
    open(folder + '/model.safetensors', 'wb').write(len(text).to_bytes(8, 'little') + text + out)
    open(folder + '/config.json', 'w').write(open(source + '/config.json').read())

less(sys.argv[1], sys.argv[2], sys.argv[3:])
END
case=0
while read -r source drop; do
    case=$((case + 1))
    python3 less.py "$FIXTURES/$source/hf" $case "$drop"
    ckpt verify $case >/dev/null
    echo "verify without $drop: $?"
    ckpt convert -q --to safetensors $case out
    echo "convert: $?"
done <<'END'
gguf_llama_deep model.layers.4.mlp.up_proj.weight
gguf_llama_deep model.layers.8.mlp.up_proj.weight
gguf_llama_deep model.layers.4.input_layernorm.weight
gguf_llama_deep model.layers.0.self_attn.v_proj.weight
gguf_llama_deep model.norm.weight
gguf_llama_deep lm_head.weight
gguf_mixtral model.layers.1.block_sparse_moe.experts.1.w3.weight
END
while read -r key value; do
    rm -rf copy
    cp -R "$FIXTURES"/gguf_llama_deep/hf copy
    sed -i "s/\"$key\": [0-9]*/\"$key\": $value/" copy/config.json
    ckpt verify copy >/dev/null
    echo "verify with $key $value: $?"
    ckpt convert -q -f --to safetensors copy out
    echo "convert: $?"
done <<'END'
num_key_value_heads 2
intermediate_size 40
vocab_size 301
hidden_size 33
num_attention_heads 8
vocab_size 300
END
