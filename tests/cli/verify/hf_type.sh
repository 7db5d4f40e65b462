# SPDX-License-Identifier: Apache-2.0
# The layers have other weights than models of the model_type in config.json: a warning in every command.
typed() { # FOLDER MODEL_TYPE
    cp -r "$FIXTURES/gguf_llama_deep/hf" "$1"
    sed "s/\"model_type\": \"llama\"/\"model_type\": \"$2\"/" "$FIXTURES/gguf_llama_deep/hf/config.json" >"$1/config.json"
}
for type in llama mistral qwen2 gemma3_text bert gpt2 cohere unheard_of; do
    echo "-- $type"
    typed $type $type
    ckpt verify $type 2>&1 | grep -v '^ok'
    ckpt verify -q --strict $type 2>/dev/null
    echo "$?"
done
echo "-- biases that the type lacks"
mkdir biased
cp "$FIXTURES/models/model_qwen2.safetensors" biased/model.safetensors
for more in qwen2 llama qwen3 'llama", "attention_bias": true, "x": "'; do
    printf '{"model_type": "%s"}' "$more" >biased/config.json
    ckpt verify biased 2>&1 | grep -v '^ok'
done
echo "-- other commands"
ckpt convert -q --strict bert out --to hf 2>/dev/null || echo "convert $?"
ckpt convert -q bert out --to hf 2>&1 | grep -c 'models of type bert'
ckpt reshard -q --strict bert run --to zero --world 1 --stage 1 --order stored 2>/dev/null || echo "reshard $?"
echo "-- the type of the language model counts, and code beside the model may make any other"
sed 's/"model_type": "llama"/"model_type": "llava", "text_config": {"model_type": "gemma3_text"}/' "$FIXTURES/gguf_llama_deep/hf/config.json" >bert/config.json
ckpt verify bert | grep -o 'models of type gemma3_text'
sed 's/"model_type": "llama"/"model_type": "bert", "auto_map": {"AutoModel": "x.X"}/' "$FIXTURES/gguf_llama_deep/hf/config.json" >bert/config.json
ckpt verify bert | grep -o 'models of type bert'
sed 's/"model_type": "llama"/"model_type": "llava", "text_config": {"model_type": "cohere"}/' "$FIXTURES/gguf_llama_deep/hf/config.json" >cohere/config.json
ckpt verify cohere | grep -o 'models of type cohere'
echo "-- a tower with biases, whose layers have the names of the language model's"
mkdir tower
python3 - "$FIXTURES/models/model_qwen2.safetensors" "$FIXTURES/gguf_llama_deep/hf/model.safetensors" <<'EOP'
import json, struct, sys
header, data = {}, b''
for prefix, path in zip(('audio_tower.', 'language_model.'), sys.argv[1:]):
    with open(path, 'rb') as f:
        n, = struct.unpack('<Q', f.read(8))
        own, bytes_ = json.loads(f.read(n)), f.read()
    for name, t in own.items():
        if name != '__metadata__':
            header[prefix + name] = dict(t, data_offsets=[len(data) + x for x in t['data_offsets']])
    data += bytes_
text = json.dumps(header).encode()
with open('tower/model.safetensors', 'wb') as f:
    f.write(struct.pack('<Q', len(text)) + text + data)
EOP
printf '{"model_type": "glmasr", "text_config": {"model_type": "llama"}}' >tower/config.json
ckpt verify -q --strict tower
echo "$?"
