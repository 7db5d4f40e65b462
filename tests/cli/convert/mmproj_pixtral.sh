# SPDX-License-Identifier: Apache-2.0
# Pixtral's tower and projector as llama.cpp's second file: it has the embedding of the token that ends a row of an image.
model() { # FOLDER: two layers, and a vocabulary of 8 tokens
    mkdir "$1"
    python3 - "$1" <<'PY'
import json
import struct
import sys

wide, inner, text = 8, 12, 6
shapes = {'vision_tower.patch_conv.weight': (wide, 3, 4, 4), 'vision_tower.ln_pre.weight': (wide,),
          'multi_modal_projector.linear_1.weight': (text, wide), 'multi_modal_projector.linear_2.weight': (text, text),
          'language_model.model.embed_tokens.weight': (8, text), 'language_model.lm_head.weight': (8, text)}
for i in range(2):
    layer = 'vision_tower.transformer.layers.%d.' % i
    for name in 'qkvo':
        shapes[layer + 'attention.%s_proj.weight' % name] = (wide, wide)
    for name, shape in (('gate', (inner, wide)), ('up', (inner, wide)), ('down', (wide, inner))):
        shapes[layer + 'feed_forward.%s_proj.weight' % name] = shape
    shapes[layer + 'attention_norm.weight'] = shapes[layer + 'ffn_norm.weight'] = (wide,)
head, data = {}, b''
for name, shape in shapes.items():
    n = 1
    for s in shape:
        n *= s
    more = struct.pack('<%df' % n, *((i * 37 + len(data)) % 101 / 64 - 0.5 for i in range(n)))
    head[name] = {'dtype': 'F32', 'shape': shape, 'data_offsets': [len(data), len(data) + len(more)]}
    data += more
head = json.dumps(head).encode()
with open(sys.argv[1] + '/model.safetensors', 'wb') as f:
    f.write(struct.pack('<Q', len(head)) + head + data)
with open(sys.argv[1] + '/config.json', 'w') as f:
    json.dump({'architectures': ['LlavaForConditionalGeneration'], 'model_type': 'llava', 'vision_feature_layer': -1,
               'vision_feature_select_strategy': 'full', 'text_config': {'hidden_size': text, 'vocab_size': 8, 'num_hidden_layers': 0},
               'vision_config': {'model_type': 'pixtral', 'hidden_size': wide, 'intermediate_size': inner, 'num_attention_heads': 2,
                                 'num_hidden_layers': 2, 'patch_size': 4, 'image_size': 16, 'hidden_act': 'silu'}}, f)
with open(sys.argv[1] + '/preprocessor_config.json', 'w') as f:
    json.dump({'image_mean': [0.5, 0.25, 0.125], 'image_std': [0.75, 0.5, 0.625]}, f)
with open(sys.argv[1] + '/tokenizer.json', 'w') as f:
    json.dump({'added_tokens': [{'id': 5, 'content': '[IMG_BREAK]'}]}, f)
PY
}
model pix
ckpt convert -q pix mmproj.gguf --to mmproj && ckpt ls mmproj.gguf
ckpt tree mmproj.gguf
ckpt verify -q mmproj.gguf --made-from pix && echo made from it
row() {
    ckpt cat -qa --raw mmproj.gguf v.token_embd.img_break | cksum
    ckpt cat -qa --raw pix language_model.model.embed_tokens.weight | tail -c +$((24 * $1 + 1)) | head -c 24 | cksum
}
row 5
echo "-- two files that differ; tokenizer_config.json alone; other forms; no such token; beyond the embeddings; no tokenizer"
echo '{"added_tokens_decoder": {"2": {"content": "[IMG_BREAK]"}}}' >pix/tokenizer_config.json
ckpt convert -q pix x.gguf --to mmproj || echo "status $?"
mv pix/tokenizer.json . && ckpt convert -qf pix mmproj.gguf --to mmproj && row 2
mv tokenizer.json pix
for text in '{"added_tokens_decoder": {"x": {"content": "[IMG_BREAK]"}}}' '{"added_tokens_decoder": [1]}' '{"added_tokens_decoder": {"2": 7}}' '[]'; do
    echo "$text" >pix/tokenizer_config.json
    ckpt convert -qf pix mmproj.gguf --to mmproj && row 5
done
echo '{' >pix/tokenizer_config.json
ckpt convert -q pix x.gguf --to mmproj || echo "status $?"
rm pix/tokenizer_config.json
for id in -1 8 1e9 '"x"'; do
    echo '{"added_tokens": [{"id": '"$id"', "content": "[IMG_BREAK]"}]}' >pix/tokenizer.json
    ckpt convert -q pix x.gguf --to mmproj || echo "status $?"
done
echo '{"added_tokens": [{"id": 5, "content": "[IMG]"}]}' >pix/tokenizer.json
ckpt convert -q pix x.gguf --to mmproj || echo "status $?"
rm pix/tokenizer.json
ckpt convert -q pix x.gguf --to mmproj || echo "status $?"
ckpt convert -q pix x.gguf --to mmproj --size img_break=5 && ckpt ls x.gguf | grep img_break
echo "-- another layer of the tower, as LLaVA 1.5 has it"
sed -i 's/"vision_feature_layer": -1/"vision_feature_layer": -2/' pix/config.json
ckpt convert -qf pix x.gguf --to mmproj --size img_break=5 || echo "status $?"
