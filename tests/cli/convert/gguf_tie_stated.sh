# SPDX-License-Identifier: Apache-2.0
# config.json ties the head, but the folder stores one: GGUF drops it only if it equals the embedding.
cat > make.py <<'PY'
import json, struct, sys

with open('in/model.safetensors', 'rb') as f:
    raw = f.read()
n = struct.unpack('<Q', raw[:8])[0]
head, data = json.loads(raw[8:8 + n]), bytearray(raw[8 + n:])
if sys.argv[1] == 'equal':
    a, b = (head[k]['data_offsets'] for k in ('model.embed_tokens.weight', 'lm_head.weight'))
    data[b[0]:b[1]] = data[a[0]:a[1]]
with open('in/model.safetensors', 'wb') as f:
    f.write(raw[:8 + n] + data)
with open('in/config.json') as f:
    config = json.load(f)
with open('false.json', 'w') as f:
    json.dump(config, f)
config['tie_word_embeddings'] = True
with open('in/config.json', 'w') as f:
    json.dump(config, f)
PY
for values in other equal; do
    rm -rf in && cp -R "$FIXTURES/gguf_llama_deep/hf" in && chmod -R u+w in && python3 make.py $values
    ckpt convert -q in $values.gguf; echo "$values: status $?"
done
ckpt ls equal.gguf | grep -c "^output.weight"
ckpt convert -q in both.gguf --config false.json && ckpt ls both.gguf | grep '^output.weight'
# --config counts, not the folder's own file
mv in/config.json true.json && cp false.json in/config.json
ckpt convert -q in given.gguf --config true.json && ckpt ls given.gguf | grep -c "^output.weight"
rm -rf in && cp -R "$FIXTURES/gguf_llama_deep/hf" in
ckpt convert -q in wrong.gguf --config true.json; echo "status $?"
ckpt convert -q in untied.gguf --untie --config true.json; echo "status $?"
