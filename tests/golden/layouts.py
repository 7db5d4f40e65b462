# SPDX-License-Identifier: Apache-2.0
"""Layouts that no fixture has, made here element by element as their programs' own converters do it, for maps.py.

Each is a model under Hugging Face's names with all elements different, and the same under the other side's names:

    torchtitan   torchtitan/models/{qwen3,deepseek_v3,gpt_oss}/state_dict_adapter.py: experts stacked, no permutation
    GPT-NeoX     tools/ckpts/convert_neox_to_hf.py, "llama": of each rank q, k, v one after the other; up before gate
    Megatron     GroupedMLP's weight1, weight2 and Transformer Engine's weightN; --apply-layernorm-1p; --rotary-interleaved
"""
import json
import os
import struct

H, HEADS, GROUPS, D, F, E, V, LAYERS = 8, 4, 2, 4, 6, 3, 10, 2


class Numbers:
    """A tensor as nested lists."""

    def __init__(self):
        self.n = 0

    def __call__(self, *shape):
        if not shape:
            self.n += 1
            return float(self.n)
        return [self(*shape[1:]) for _ in range(shape[0])]


def shape(t):
    return [len(t)] + shape(t[0]) if isinstance(t, list) else []


def flat(t):
    return [x for part in t for x in flat(part)] if isinstance(t, list) else [t]


def turned(t):
    return [list(row) for row in zip(*t)]


def columns(parts):
    return [[x for part in row for x in part] for row in zip(*parts)]


def write(path, tensors):
    head, data = {}, b''
    for name, t in tensors.items():
        body = struct.pack('<%df' % len(flat(t)), *flat(t))
        head[name] = {'dtype': 'F32', 'shape': shape(t), 'data_offsets': [len(data), len(data) + len(body)]}
        data += body
    text = json.dumps(head).encode()
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + data)
    return path


def common(new, top, attention):
    """What most models have: HF's name -> values; attention: names behind self_attn."""
    t = {'model.embed_tokens.weight': new(V, H), 'model.norm.weight': new(H), 'lm_head.weight': new(V, H)}
    for i in range(LAYERS):
        at = 'model.layers.%d.' % i
        for name, rows in attention.items():
            t[at + 'self_attn.' + name] = new(*rows)
        t[at + 'input_layernorm.weight'], t[at + 'post_attention_layernorm.weight'] = new(H), new(H)
    return t


def experts(new, t, at, name='mlp'):
    for e in range(E):
        for part, rows in ('gate_proj', (F, H)), ('up_proj', (F, H)), ('down_proj', (H, F)):
            t['%s%s.experts.%d.%s.weight' % (at, name, e, part)] = new(*rows)


def stacked(t, at, part):
    return [t['%smlp.experts.%d.%s.weight' % (at, e, part)] for e in range(E)]


QKV = {'q_proj.weight': (HEADS * D, H), 'k_proj.weight': (GROUPS * D, H), 'v_proj.weight': (GROUPS * D, H), 'o_proj.weight': (H, HEADS * D)}
TITAN = {'model.embed_tokens.weight': 'tok_embeddings.weight', 'model.norm.weight': 'norm.weight', 'lm_head.weight': 'lm_head.weight',
         'input_layernorm.weight': 'attention_norm.weight', 'post_attention_layernorm.weight': 'ffn_norm.weight',
         'self_attn.q_norm.weight': 'attention.q_norm.weight', 'self_attn.k_norm.weight': 'attention.k_norm.weight',
         'self_attn.o_proj.weight': 'attention.wo.weight', 'self_attn.o_proj.bias': 'attention.wo.bias', 'self_attn.sinks': 'attention.sinks',
         'mlp.gate.weight': 'moe.router.gate.weight', 'mlp.router.weight': 'moe.router.gate.weight', 'mlp.router.bias': 'moe.router.gate.bias',
         'self_attn.kv_a_proj_with_mqa.weight': 'attention.wkv_a.weight', 'self_attn.kv_a_layernorm.weight': 'attention.kv_norm.weight',
         'self_attn.kv_b_proj.weight': 'attention.wkv_b.weight', 'mlp.gate.e_score_correction_bias': 'moe.expert_bias_E',
         'mlp.shared_experts.gate_proj.weight': 'moe.shared_experts.w1.weight', 'mlp.shared_experts.up_proj.weight': 'moe.shared_experts.w3.weight',
         'mlp.shared_experts.down_proj.weight': 'moe.shared_experts.w2.weight',
         'mlp.experts.gate_up_proj_bias': 'moe.routed_experts.inner_experts.mlp1_bias_EG',
         'mlp.experts.down_proj_bias': 'moe.routed_experts.inner_experts.mlp2_bias_ED',
         **{'self_attn.%s_proj.%s' % (x, p): 'attention.qkv_linear.w%s.%s' % (x, p) for x in 'qkv' for p in ('weight', 'bias')}}


def titan_names(t, other):
    for name, value in t.items():
        at, _, rest = name.partition('.layers.')
        number, _, rest = rest.partition('.')
        if at == 'model' and number and rest in TITAN:
            other['layers.%s.%s' % (number, TITAN[rest])] = value
        elif name in TITAN:
            other[TITAN[name]] = value
    return other


def titan_qwen(new, names):
    t, other = common(new, 'model', {**QKV, 'q_norm.weight': (D,), 'k_norm.weight': (D,)}), {}
    for i in range(LAYERS):
        at = 'model.layers.%d.' % i
        t[at + 'mlp.gate.weight'] = new(E, H)
        experts(new, t, at)
        for part, name in names.items():
            other['layers.%d.moe.%s' % (i, name)] = stacked(t, at, part)
    return t, titan_names(t, other)


def titan_deepseek(new):
    t = common(new, 'model', {'kv_a_proj_with_mqa.weight': (6, H), 'kv_a_layernorm.weight': (4,), 'kv_b_proj.weight': (16, 4), 'o_proj.weight': (H, 8)})
    other = {}
    for i in range(LAYERS):
        at = 'model.layers.%d.' % i
        t[at + 'self_attn.q_proj.weight'] = new(12, H)
        other['layers.%d.attention.wq.weight' % i] = t[at + 'self_attn.q_proj.weight']
        t[at + 'mlp.gate.weight'], t[at + 'mlp.gate.e_score_correction_bias'] = new(E, H), new(E)
        experts(new, t, at)
        for part, name in ('gate_proj', 'w1_EFD'), ('up_proj', 'w3_EFD'), ('down_proj', 'w2_EDF'):
            t[at + 'mlp.shared_experts.%s.weight' % part] = new(F, H)
            other['layers.%d.moe.routed_experts.inner_experts.%s' % (i, name)] = stacked(t, at, part)
    other = titan_names(t, other)
    return t, {n: v for n, v in other.items() if 'qkv_linear' not in n}


def titan_gpt_oss(new):
    biases = {n.replace('weight', 'bias'): rows[:1] for n, rows in QKV.items()}
    t, other = common(new, 'model', {**QKV, **biases, 'sinks': (HEADS,)}), {}
    for i in range(LAYERS):
        at, to = 'model.layers.%d.mlp.' % i, 'layers.%d.moe.routed_experts.inner_experts.' % i
        t[at + 'router.weight'], t[at + 'router.bias'] = new(E, H), new(E)
        t[at + 'experts.gate_up_proj'], t[at + 'experts.gate_up_proj_bias'] = new(E, H, 2 * F), new(E, 2 * F)
        t[at + 'experts.down_proj'], t[at + 'experts.down_proj_bias'] = new(E, F, H), new(E, H)
        other[to + 'mlp1_weight_EGD'] = [turned(e) for e in t[at + 'experts.gate_up_proj']]
        other[to + 'mlp2_weight_EDF'] = [turned(e) for e in t[at + 'experts.down_proj']]
    return t, titan_names(t, other)


def neox_llama(new, ranks, newer):
    """ranks == 0: one file without slices."""
    t, other = common(new, 'model', QKV), {}

    def put(name, values, axis):
        if not ranks:
            other[name] = values
            return
        for r in range(ranks):
            part = lambda rows: rows[r * len(rows) // ranks:(r + 1) * len(rows) // ranks]
            other['mp_rank_%02d/%s' % (r, name)] = values if axis is None else part(values) if axis == 0 else [part(row) for row in values]

    def fused(name, parts):
        for r in range(max(ranks, 1)):
            part = lambda rows: rows[r * len(rows) // max(ranks, 1):(r + 1) * len(rows) // max(ranks, 1)]
            other[('mp_rank_%02d/' % r if ranks else '') + name] = [row for p in parts for row in part(p)]

    put('0.word_embeddings.weight', t['model.embed_tokens.weight'], 0)
    for i in range(LAYERS):
        at, to = 'model.layers.%d.' % i, '%d.' % (i + 2)
        for part in 'gate_proj', 'up_proj':
            t[at + 'mlp.%s.weight' % part] = new(F, H)
        t[at + 'mlp.down_proj.weight'] = new(H, F)
        for norm in 'input_layernorm', 'post_attention_layernorm':
            put(to + norm + '.scale', t[at + norm + '.weight'], None)
        fused(to + 'attention.query_key_value.weight', [t[at + 'self_attn.%s_proj.weight' % x] for x in 'qkv'])
        put(to + 'attention.dense.weight', t[at + 'self_attn.o_proj.weight'], 1)
        if newer:
            fused(to + 'mlp.linear1.weight', [t[at + 'mlp.up_proj.weight'], t[at + 'mlp.gate_proj.weight']])
        else:
            put(to + 'mlp.w1.weight', t[at + 'mlp.gate_proj.weight'], 0)
            put(to + 'mlp.w3.weight', t[at + 'mlp.up_proj.weight'], 0)
        put(to + ('mlp.linear2.weight' if newer else 'mlp.w2.weight'), t[at + 'mlp.down_proj.weight'], 1)
    put('%d.norm.scale' % (LAYERS + 3), t['model.norm.weight'], None)
    put('%d.final_linear.weight' % (LAYERS + 4), t['lm_head.weight'], 0)
    return t, other


def megatron(new, how):
    """how: 'weight1', 'te', 'local': where experts are; '1p': norms less 1, 'pairs': rotary embeddings of neighbours."""
    t, other = common(new, 'model', QKV), {}
    less = 1 if how == '1p' else 0
    norm = lambda values: [x - less for x in values]
    other['embedding.word_embeddings.weight'], other['output_layer.weight'] = t['model.embed_tokens.weight'], t['lm_head.weight']
    other['decoder.final_layernorm.weight'] = norm(t['model.norm.weight'])
    for i in range(LAYERS):
        at, to = 'model.layers.%d.' % i, 'decoder.layers.%d.' % i
        q, k, v = (t[at + 'self_attn.%s_proj.weight' % x] for x in 'qkv')
        order = [x // 2 + D // 2 * (x % 2) for x in range(D)] if how == 'pairs' else list(range(D))
        rows = []
        for g in range(GROUPS):
            n = HEADS // GROUPS
            for head in range(n):
                rows += [q[((g * n + head) * D) + x] for x in order]
            rows += [k[g * D + x] for x in order] + v[g * D:(g + 1) * D]
        other[to + 'self_attention.linear_qkv.weight'] = rows
        other[to + 'self_attention.linear_proj.weight'] = t[at + 'self_attn.o_proj.weight']
        other[to + 'input_layernorm.weight'] = norm(t[at + 'input_layernorm.weight'])
        other[to + 'pre_mlp_layernorm.weight'] = norm(t[at + 'post_attention_layernorm.weight'])
        t[at + 'mlp.gate.weight'] = new(E, H)
        other[to + 'mlp.router.weight'] = t[at + 'mlp.gate.weight']
        experts(new, t, at)
        one = [t['%smlp.experts.%d.gate_proj.weight' % (at, e)] + t['%smlp.experts.%d.up_proj.weight' % (at, e)] for e in range(E)]
        two = stacked(t, at, 'down_proj')
        if how == 'weight1':
            other[to + 'mlp.experts.weight1'] = columns([turned(x) for x in one])
            other[to + 'mlp.experts.weight2'] = [row for x in two for row in turned(x)]
        for e in range(E if how != 'weight1' else 0):
            name = 'mlp.experts.linear_fc%%d.weight%d' % e if how == 'te' else 'mlp.experts.local_experts.%d.linear_fc%%d.weight' % e
            other[to + name % 1], other[to + name % 2] = one[e], two[e]
    return t, other


def cases():
    """Name, maps forth, options, is it read from the other side only, the two sides."""
    heads = ('--size', 'heads=%d' % HEADS, '--size', 'kv=%d' % GROUPS)
    newest = {'gate_proj': 'routed_experts.inner_experts.w1_EFD', 'up_proj': 'routed_experts.inner_experts.w3_EFD',
              'down_proj': 'routed_experts.inner_experts.w2_EDF'}
    first = {'gate_proj': 'experts.w1', 'up_proj': 'experts.w3', 'down_proj': 'experts.w2'}
    yield 'torchtitan Qwen3-MoE', 'torchtitan', 'qwen3_moe', (), False, titan_qwen(Numbers(), newest)
    yield 'torchtitan Qwen3-MoE, first names', 'torchtitan', 'qwen3_moe', (), True, titan_qwen(Numbers(), first)
    yield 'torchtitan DeepSeek-V3', 'torchtitan', 'deepseek_v3', (), False, titan_deepseek(Numbers())
    yield 'torchtitan GPT-OSS', 'torchtitan', 'gpt_oss', (), False, titan_gpt_oss(Numbers())
    yield 'GPT-NeoX Llama', 'neox', 'llama', heads, False, neox_llama(Numbers(), 0, True)
    yield 'GPT-NeoX Llama, older', 'neox', 'llama', heads, True, neox_llama(Numbers(), 0, False)
    yield 'GPT-NeoX Llama, 2 ranks', 'neox', 'llama', heads, True, neox_llama(Numbers(), 2, True)
    yield 'GPT-NeoX Llama, older, 2 ranks', 'neox', 'llama', heads, True, neox_llama(Numbers(), 2, False)
    attention = ('--size', 'heads=%d' % HEADS, '--size', 'group=%d' % GROUPS)
    size = ('--size', 'e=%d' % E)
    yield 'Megatron', 'megatron', 'qwen3_moe', attention, False, megatron(Numbers(), 'local')
    yield 'Megatron, experts by Transformer Engine', 'megatron', 'qwen3_moe', attention, True, megatron(Numbers(), 'te')
    yield 'Megatron, GroupedMLP', 'megatron', 'qwen3_moe', attention + size, True, megatron(Numbers(), 'weight1')
    one, pairs = ('--size', 'args.apply_layernorm_1p=true'), ('--size', 'args.rotary_interleaved=true')
    yield 'Megatron, norms less 1', 'megatron', 'qwen3_moe', attention + one, False, megatron(Numbers(), '1p')
    yield 'Megatron, pairs', 'megatron', 'qwen3_moe', attention + pairs, False, megatron(Numbers(), 'pairs')


def check(run, folder, tensors):
    for n, (name, side, kind, options, back_only, (t, other)) in enumerate(cases()):
        a, b = (write(os.path.join(folder, '%s%d.safetensors' % (x, n)), v) for x, v in (('a', t), ('b', other)))
        config = os.path.join(folder, '%d.json' % n)
        with open(config, 'w') as f:
            json.dump({'model_type': kind, 'num_hidden_layers': LAYERS}, f)
        given = ('--config', config, *options)
        run.check(name + ' to hf', b, tensors(a), '--map', side + ':hf', *given)
        if not back_only:
            there = run.check(name, a, tensors(b), '--map', 'hf:' + side, *given)
            if there:
                run.check(name + ' there and back', there, tensors(a), '--map', side + ':hf', *given)
