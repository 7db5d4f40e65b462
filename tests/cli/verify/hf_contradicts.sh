# SPDX-License-Identifier: Apache-2.0
# A config.json of another model of the same widths: more or fewer layers, experts, a head for classes, biases.
cat > with.py <<'PY'
import json, sys

with open(sys.argv[1]) as f:
    config = json.load(f)
config.update(json.loads(sys.argv[2]))
with open('model/config.json', 'w') as f:
    json.dump(config, f)
PY
cp -R "$FIXTURES/gguf_llama_deep/hf" model && chmod -R u+w model
for change in '{}' '{"num_hidden_layers": 4}' '{"num_hidden_layers": 10}' '{"model_type": "mixtral", "num_local_experts": 4}' \
    '{"architectures": ["LlamaForSequenceClassification"]}' '{"attention_bias": true}' '{"mlp_bias": true}'; do
    python3 with.py "$FIXTURES/gguf_llama_deep/hf/config.json" "$change"
    ckpt verify model > said
    echo "$change: status $?"
    grep '^error\|^warning' said
done
ckpt convert -q --strict --to hf model out
echo "strict: $?"
