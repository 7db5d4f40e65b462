# SPDX-License-Identifier: Apache-2.0
# GPT-OSS' experts stay in blocks of MXFP4 in GGUF; asked for another dtype, they become floats.
cat >make.py <<'EOP'
import json, os, struct, sys

HIDDEN, INNER, EXPERTS, WORDS = 64, 32, 2, 5
TENSORS = {'model.embed_tokens.weight': ('BF16', [WORDS, HIDDEN]), 'lm_head.weight': ('BF16', [WORDS, HIDDEN]),
           'model.norm.weight': ('BF16', [HIDDEN])}
layer = 'model.layers.0.'
for name, shape in {
        'input_layernorm.weight': [HIDDEN], 'post_attention_layernorm.weight': [HIDDEN], 'self_attn.sinks': [4],
        'self_attn.q_proj.weight': [64, HIDDEN], 'self_attn.q_proj.bias': [64], 'self_attn.k_proj.weight': [32, HIDDEN],
        'self_attn.k_proj.bias': [32], 'self_attn.v_proj.weight': [32, HIDDEN], 'self_attn.v_proj.bias': [32],
        'self_attn.o_proj.weight': [HIDDEN, 64], 'self_attn.o_proj.bias': [HIDDEN], 'mlp.router.weight': [EXPERTS, HIDDEN],
        'mlp.router.bias': [EXPERTS], 'mlp.experts.gate_up_proj_bias': [EXPERTS, 2 * INNER],
        'mlp.experts.down_proj_bias': [EXPERTS, HIDDEN]}.items():
    TENSORS[layer + name] = 'BF16', shape
for name, out, columns in ('gate_up_proj', 2 * INNER, HIDDEN), ('down_proj', HIDDEN, INNER):
    TENSORS[layer + 'mlp.experts.' + name + '_blocks'] = 'U8', [EXPERTS, out, columns // 32, 16]
    TENSORS[layer + 'mlp.experts.' + name + '_scales'] = 'U8', [EXPERTS, out, columns // 32]
CONFIG = {'architectures': ['GptOssForCausalLM'], 'model_type': 'gpt_oss', 'dtype': 'bfloat16', 'hidden_size': HIDDEN, 'head_dim': 16,
          'intermediate_size': INNER, 'num_hidden_layers': 1, 'num_attention_heads': 4, 'num_key_value_heads': 2, 'vocab_size': WORDS,
          'num_local_experts': EXPERTS, 'num_experts_per_tok': 1, 'max_position_embeddings': 64, 'sliding_window': 8,
          'rms_norm_eps': 1e-5, 'rope_theta': 150000.0, 'rope_scaling': {'rope_type': 'linear', 'factor': 2.0},
          'layer_types': ['sliding_attention'], 'quantization_config': {'quant_method': 'mxfp4'}}


def folder(to, tensors, config):
    os.mkdir(to)
    header, data = {}, b''
    for name, (dtype, shape) in sorted(tensors.items()):
        n = 1
        for k in shape:
            n *= k
        if dtype == 'BF16':
            some = b''.join(struct.pack('<f', ((i * 7 + len(name)) % 33 - 16) / 16)[2:] for i in range(n))
        elif name.endswith('_scales'):
            some = bytes(116 + i % 9 for i in range(n))
        else:
            some = bytes((i * 11 + i // 16) % 256 for i in range(n))
        header[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [len(data), len(data) + len(some)]}
        data += some
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    with open(to + '/model.safetensors', 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + data)
    with open(to + '/config.json', 'w', encoding='utf-8') as f:
        json.dump(config, f)


folder('oss', TENSORS, CONFIG)
# without a word in config.json, the names decide
folder('silent', TENSORS, {k: v for k, v in CONFIG.items() if k != 'quantization_config'})
folder('lacking', {n: t for n, t in TENSORS.items() if n != layer + 'mlp.experts.down_proj_scales'}, CONFIG)
folder('misfit', dict(TENSORS, **{layer + 'mlp.experts.down_proj_scales': ('U8', [EXPERTS, INNER, 2])}), CONFIG)
folder('zeros', dict(TENSORS, **{layer + 'mlp.experts.down_proj_zero_point': ('U8', [EXPERTS])}), CONFIG)
EOP
cat >look.py <<'EOP'
# the bits of a GGUF file's blocks against those of the folder
import struct, sys
sys.path.insert(0, sys.argv[1])
from gguf import Reader
import json

with open('oss/model.safetensors', 'rb') as f:
    n = struct.unpack('<Q', f.read(8))[0]
    header, data = json.loads(f.read(n)), f.read()


def stored(name):
    a, b = header['model.layers.0.mlp.experts.' + name]['data_offsets']
    return data[a:b]


def rows(name, per):
    """The rows of all experts, as lists of blocks: exponent, 32 codes."""
    codes, scales = stored(name + '_blocks'), stored(name + '_scales')
    blocks = [(scales[i], [codes[16 * i + k // 2] >> 4 * (k % 2) & 15 for k in range(32)]) for i in range(len(scales))]
    return [blocks[i:i + per] for i in range(0, len(blocks), per)]


def found(tensor, per):
    dtype, ne, raw = tensor
    assert dtype == 'MXFP4', dtype
    blocks = [(raw[i], [raw[i + 1 + k % 16] >> 4 * (k // 16) & 15 for k in range(32)]) for i in range(0, len(raw), 17)]
    return [blocks[i:i + per] for i in range(0, len(blocks), per)]


file = Reader(sys.argv[2])
t = file.tensors
both = rows('gate_up_proj', 2)
assert found(t['blk.0.ffn_gate_exps.weight'], 2) == both[::2], 'gate'
assert found(t['blk.0.ffn_up_exps.weight'], 2) == both[1::2], 'up'
assert found(t['blk.0.ffn_down_exps.weight'], 1) == rows('down_proj', 1), 'down'
print('the bits of the blocks, in a file of type', file.keys['general.file_type'][1])
EOP
python3 make.py
ckpt convert oss oss.gguf && python3 -B look.py "$FIXTURES"/../golden oss.gguf
ckpt ls oss.gguf
ckpt info oss.gguf
ckpt convert -q silent silent.gguf && ckpt diff -q oss.gguf silent.gguf
echo $?
ckpt verify -q oss.gguf --made-from oss
ckpt diff oss oss.gguf
echo "== a dtype for all"
for dtype in bf16 q8_0 q4_k_m; do
    ckpt convert -qf oss asked.gguf --dtype $dtype && ckpt ls asked.gguf | grep _exps.weight
    ckpt verify -q asked.gguf --made-from oss
done
ckpt convert -qf oss asked.gguf --dtype 'f16:*attn*' && ckpt ls asked.gguf | grep 'exps.weight\|attn_q.weight'
echo "== the blocks' own type"
for dtype in mxfp4_moe 'mxfp4:*_exps.weight,f16' 'mxfp4:*gate_exps*,q8_0:*exps.weight'; do
    echo "$dtype"
    ckpt convert -qf oss asked.gguf --dtype "$dtype" && ckpt ls asked.gguf | grep 'exps.weight\|attn_q.weight'
    ckpt verify -q asked.gguf --made-from oss
done
ckpt convert -qf oss asked.gguf --dtype mxfp4_moe && python3 -B look.py "$FIXTURES"/../golden asked.gguf
# floats are quantized as llama-quantize does it; blocks are not quantized again
ckpt convert -qf oss floats.gguf --dtype f32 && ckpt convert -qf floats.gguf asked.gguf --dtype mxfp4_moe
ckpt ls asked.gguf | grep 'exps.weight\|attn_q.weight'
ckpt convert -qf oss.gguf asked.gguf --dtype mxfp4_moe && ckpt ls asked.gguf | grep exps.weight
ckpt convert -q oss bad --to hf --dtype mxfp4
echo $?
echo "== back, and other targets"
ckpt convert -q oss.gguf back --to hf --dtype bf16 && ckpt diff oss back && ckpt ls back | grep experts
ckpt convert -q oss same --to hf && ckpt diff -q oss same
ckpt convert -q oss floats.safetensors --map hf:gguf && ckpt ls floats.safetensors | grep _exps.weight
echo "== refused"
for bad in lacking misfit zeros; do
    ckpt convert -q $bad bad.gguf
    echo "$? $([ -e bad.gguf ] && echo written)"
done
