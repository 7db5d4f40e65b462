# SPDX-License-Identifier: Apache-2.0
# The vision tower and projector of a model as llama.cpp's second file, and what is refused.
model() { # FOLDER: a Qwen2.5-VL of two layers
    mkdir "$1"
    python3 - "$1" <<'PY'
import json
import struct
import sys

vision, text = 8, 16
shapes = {'visual.patch_embed.proj.weight': (vision, 3, 2, 4, 4), 'visual.merger.ln_q.weight': (vision,),
          'model.embed_tokens.weight': (32, text), 'lm_head.weight': (32, text), 'model.norm.weight': (text,)}
for i in 0, 2:
    shapes['visual.merger.mlp.%d.weight' % i] = (text if i else 4 * vision, 4 * vision)
    shapes['visual.merger.mlp.%d.bias' % i] = (text if i else 4 * vision,)
for i in range(2):
    for name, rows, columns in (('attn.qkv', 3 * vision, vision), ('attn.proj', vision, vision), ('mlp.gate_proj', 12, vision),
                                ('mlp.up_proj', 12, vision), ('mlp.down_proj', vision, 12)):
        shapes['visual.blocks.%d.%s.weight' % (i, name)] = (rows, columns)
        shapes['visual.blocks.%d.%s.bias' % (i, name)] = (rows,)
    for n in 1, 2:
        shapes['visual.blocks.%d.norm%d.weight' % (i, n)] = (vision,)
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
    json.dump({'architectures': ['Qwen2_5_VLForConditionalGeneration'], 'model_type': 'qwen2_5_vl', 'hidden_size': text, 'vocab_size': 32,
               'num_attention_heads': 2, 'num_hidden_layers': 0, 'rms_norm_eps': 1e-5, 'vision_config': {
                   'depth': 2, 'hidden_size': vision, 'intermediate_size': 12, 'num_heads': 2, 'patch_size': 4, 'out_hidden_size': text,
                   'fullatt_block_indexes': [1], 'window_size': 112, 'hidden_act': 'silu'}}, f)
with open(sys.argv[1] + '/preprocessor_config.json', 'w') as f:
    json.dump({'image_mean': [0.5, 0.25, 0.125], 'image_std': [0.75, 0.5, 0.625]}, f)
PY
}
model vl
ckpt convert vl mmproj.gguf --to mmproj --dtype f16 2>&1 | grep -v '^wrote'
ckpt ls mmproj.gguf
ckpt tree mmproj.gguf
ckpt verify -q mmproj.gguf --made-from vl && echo made from it
echo "-- elements: the second third of qkv is k, the second image of the patches their second half"
python3 -c '
import subprocess
def raw(path, name, *how):
    return subprocess.run(["ckpt", "cat", "-qa", "--raw", *how, path, name], capture_output=True, check=True).stdout
q, p = raw("vl", "visual.blocks.1.attn.qkv.bias"), raw("vl", "visual.patch_embed.proj.weight", "--dtype", "f16")
print(raw("mmproj.gguf", "v.blk.1.attn_k.bias") == q[32:64])
print(raw("mmproj.gguf", "v.patch_embd.weight.1") == b"".join(p[i + 32:i + 64] for i in range(0, len(p), 64)))
'
echo "-- refused"
rm vl/preprocessor_config.json
ckpt convert -q vl x.gguf --to mmproj
ckpt convert -q vl x.gguf --to mmproj --dtype q4_k
ckpt convert -q vl x.gguf --to mmproj --dtype q4_k_m
ckpt convert -q vl x.gguf --to mmproj --max-shard-size 1KB
ckpt convert -q vl x.gguf --to mmproj --map none
ckpt convert -q "$FIXTURES/gguf_llama_deep/hf" x.gguf --to mmproj
# in processor_config.json, as transformers 5 writes it
echo '{"image_processor": {"image_mean": [0.5, 0.25, 0.125], "image_std": [0.75, 0.5, 0.625]}}' >vl/processor_config.json
ckpt convert -q vl again.gguf --to mmproj --dtype f16 && cmp mmproj.gguf again.gguf && echo the same
ckpt convert -q vl x.gguf --to mmproj --dtype 'f16:*attn*'
echo "-- a configuration of another model than the tensors"
cp vl/config.json config.json
for change in 's/112/56/' 's/"patch_size": 4/"patch_size": 9/' 's/"depth": 2/"depth": 32/' 's/"intermediate_size": 12/"intermediate_size": 77/' \
    's/"num_heads": 2/"num_heads": 0/' 's/\[1\]/[0]/' 's/\[1\]/[-1]/'; do
    sed "$change" config.json >vl/config.json
    ckpt convert -q vl x.gguf --to mmproj || echo "status $?"
done
cp config.json vl/config.json
sed -i 's/0.125\]/0.125, 1]/' vl/processor_config.json
ckpt convert -q vl x.gguf --to mmproj || echo "status $?"
sed -i 's/0.125, 1\]/0.125]/' vl/processor_config.json
echo "-- a tower of too many blocks, without elements, without its attention, and of sizes that overflow"
for shape in '1100 [8, 3, 2, 4, 4]' '1 [0, 3, 2, 4, 4]' '1 [8, 3, 2, 0, 4]' '2 [8, 3, 2, 4, 4]' '1 [4503599627370496, 4503599627370496, 2, 4, 4]'; do
    mkdir odd
    python3 - "$shape" <<'PY'
import json
import struct
import sys

n, shape = sys.argv[1].split(' ', 1)
head, data = {}, b''


def put(name, shape):
    global data
    size = 4
    for s in shape:
        size *= s
    size = size if size < 1 << 20 else 0
    head[name] = {'dtype': 'F32', 'shape': shape, 'data_offsets': [len(data), len(data) + size]}
    data += bytes(size)


put('visual.patch_embed.proj.weight', json.loads(shape))
put('visual.blocks.0.mlp.linear_fc1.weight', [4, 8])
for name in 'norm2', 'attn.proj', 'mlp.linear_fc2':
    if n != '2':
        put('visual.blocks.0.%s.weight' % name, [8])
for i in range(int(n)):
    put('visual.blocks.%d.norm1.weight' % i, [8])
text = json.dumps(head).encode()
with open('odd/model.safetensors', 'wb') as f:
    f.write(struct.pack('<Q', len(text)) + text + data)
with open('odd/config.json', 'w') as f:
    json.dump({'model_type': 'qwen3_vl', 'hidden_size': 16, 'vision_config': {'num_heads': 1, 'image_size': 56}}, f)
PY
    cp vl/processor_config.json odd
    ckpt convert -q odd odd.gguf --to mmproj 2>&1 | grep -v ': warning: .*matches no tensor'
    [ ! -e odd.gguf ] || { echo written && ckpt info odd.gguf | grep tensors && rm odd.gguf; }
    rm -r odd
done
echo "-- a block without one of its biases"
ckpt convert -q vl cut --to hf --exclude visual.blocks.0.attn.proj.bias
cp vl/*config.json cut
ckpt convert -q cut x.gguf --to mmproj || echo "status $?"
ls
