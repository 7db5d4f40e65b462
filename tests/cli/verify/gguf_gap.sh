# SPDX-License-Identifier: Apache-2.0
# A GGUF model in which one block lacks a tensor, or whose keys contradict its tensors, is refused.
cat >change.py <<'END'
import os, sys

raw = open(os.environ['FIXTURES'] + '/gguf_llama_deep/Q4_0.gguf', 'rb').read()
what, name, value = sys.argv[1:]
if what == 'key':  # a u32
    at = raw.index(name.encode()) + len(name) + 4
    raw = raw[:at] + int(value).to_bytes(4, 'little') + raw[at + 4:]
else:  # a tensor gets a name that the model does not have
    assert len(name) == len(value)
    raw = raw.replace(name.encode(), value.encode())
open('x.gguf', 'wb').write(raw)
END
while read -r what name value; do
    python3 change.py "$what" "$name" "$value"
    ckpt verify x.gguf >/dev/null
    echo "$name $value, verify: $?"
    ckpt convert -q -f --to safetensors --dtype bf16 x.gguf out
    echo "convert: $?"
done <<'END'
tensor blk.3.ffn_up.weight xlk.3.ffn_up.weight
tensor blk.8.attn_norm.weight xlk.8.attn_norm.weight
tensor output_norm.weight xutput_norm.weight
key llama.block_count 8
key llama.embedding_length 64
key llama.feed_forward_length 11
key llama.attention.head_count_kv 2
key llama.vocab_size 301
key llama.vocab_size 300
END
