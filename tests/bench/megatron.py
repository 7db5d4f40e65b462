#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A plan for DeepSeek-V3 (671 billion parameters) from Hugging Face's folder to Megatron-Core: its time and memory.

  megatron.py --bin BUILD_BIN [--work DIR] [--verbose]     (tests/bench/run.sh build/bin megatron)

The folder has the shapes of deepseek-ai/DeepSeek-V3 in sparse files: headers and the index without payload; in bf16, and in fp8 with
scales of blocks.  A dry run opens it, applies the layout maps, lays out the torch_dist checkpoint in bf16 and lists its files.
"""
import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

CONFIG = {
    'architectures': ['DeepseekV3ForCausalLM'], 'attention_bias': False, 'attention_dropout': 0.0, 'bos_token_id': 0, 'eos_token_id': 1,
    'ep_size': 1, 'first_k_dense_replace': 3, 'hidden_act': 'silu', 'hidden_size': 7168, 'initializer_range': 0.02, 'intermediate_size': 18432,
    'kv_lora_rank': 512, 'max_position_embeddings': 163840, 'model_type': 'deepseek_v3', 'moe_intermediate_size': 2048, 'moe_layer_freq': 1,
    'n_group': 8, 'n_routed_experts': 256, 'n_shared_experts': 1, 'norm_topk_prob': True, 'num_attention_heads': 128, 'num_experts_per_tok': 8,
    'num_hidden_layers': 61, 'num_key_value_heads': 128, 'num_nextn_predict_layers': 1, 'q_lora_rank': 1536, 'qk_nope_head_dim': 128,
    'qk_rope_head_dim': 64, 'rms_norm_eps': 1e-06, 'rope_scaling': {
        'beta_fast': 32, 'beta_slow': 1, 'factor': 40, 'mscale': 1.0, 'mscale_all_dim': 1.0, 'original_max_position_embeddings': 4096, 'type': 'yarn'},
    'rope_theta': 10000, 'routed_scaling_factor': 2.5, 'scoring_func': 'sigmoid', 'tie_word_embeddings': False, 'topk_group': 4,
    'topk_method': 'noaux_tc', 'torch_dtype': 'bfloat16', 'use_cache': True, 'v_head_dim': 128, 'vocab_size': 129280}
SIZES = {'BF16': 2, 'F32': 4, 'F8_E4M3': 1}


def tensors(fp8):
    """(name, dtype, shape) of the model, in the order of its layers."""
    h, c = CONFIG['hidden_size'], CONFIG
    heads, nope, rope, v = c['num_attention_heads'], c['qk_nope_head_dim'], c['qk_rope_head_dim'], c['v_head_dim']

    def matrix(name, rows, columns):
        yield name + '.weight', 'F8_E4M3' if fp8 else 'BF16', [rows, columns]
        if fp8:
            yield name + '.weight_scale_inv', 'F32', [(rows + 127) // 128, (columns + 127) // 128]

    def mlp(at, inner):
        yield from matrix(at + '.gate_proj', inner, h)
        yield from matrix(at + '.up_proj', inner, h)
        yield from matrix(at + '.down_proj', h, inner)

    yield 'model.embed_tokens.weight', 'BF16', [c['vocab_size'], h]
    for i in range(c['num_hidden_layers'] + c['num_nextn_predict_layers']):
        at, extra = 'model.layers.%d.' % i, i == c['num_hidden_layers']
        yield from matrix(at + 'self_attn.q_a_proj', c['q_lora_rank'], h)
        yield from matrix(at + 'self_attn.q_b_proj', heads * (nope + rope), c['q_lora_rank'])
        yield from matrix(at + 'self_attn.kv_a_proj_with_mqa', c['kv_lora_rank'] + rope, h)
        yield from matrix(at + 'self_attn.kv_b_proj', heads * (nope + v), c['kv_lora_rank'])
        yield from matrix(at + 'self_attn.o_proj', h, heads * v)
        for name, n in (('self_attn.q_a_layernorm', c['q_lora_rank']), ('self_attn.kv_a_layernorm', c['kv_lora_rank']),
                        ('input_layernorm', h), ('post_attention_layernorm', h)):
            yield at + name + '.weight', 'BF16', [n]
        if i < c['first_k_dense_replace']:
            yield from mlp(at + 'mlp', c['intermediate_size'])
            continue
        yield at + 'mlp.gate.weight', 'BF16', [c['n_routed_experts'], h]
        yield at + 'mlp.gate.e_score_correction_bias', 'F32', [c['n_routed_experts']]
        yield from mlp(at + 'mlp.shared_experts', c['moe_intermediate_size'])
        for e in range(c['n_routed_experts']):
            yield from mlp(at + 'mlp.experts.%d' % e, c['moe_intermediate_size'])
        if extra:
            yield at + 'embed_tokens.weight', 'BF16', [c['vocab_size'], h]
            yield at + 'shared_head.head.weight', 'BF16', [c['vocab_size'], h]
            yield from matrix(at + 'eh_proj', h, 2 * h) if not fp8 else [(at + 'eh_proj.weight', 'BF16', [h, 2 * h])]
            for name in ('enorm', 'hnorm', 'shared_head.norm'):
                yield at + name + '.weight', 'BF16', [h]
    yield 'model.norm.weight', 'BF16', [h]
    yield 'lm_head.weight', 'BF16', [c['vocab_size'], h]


def n_bytes(dtype, shape):
    n = SIZES[dtype]
    for s in shape:
        n *= s
    return n


def generate(folder, fp8, limit=4300000000):
    """Write the folder; the number of its tensors, elements and bytes."""
    files, used = [[]], 0
    for t in tensors(fp8):
        n = n_bytes(*t[1:])
        if used and used + n > limit:
            files.append([])
            used = 0
        files[-1].append(t)
        used += n
    index, total, elements = {}, 0, 0
    for k, file in enumerate(files):
        name = 'model-%05d-of-%06d.safetensors' % (k + 1, len(files))
        head, at = {}, 0
        for tensor, dtype, shape in file:
            n = n_bytes(dtype, shape)
            head[tensor] = {'dtype': dtype, 'shape': shape, 'data_offsets': [at, at + n]}
            index[tensor] = name
            elements += n // SIZES[dtype]
            at += n
        text = json.dumps(head, separators=(',', ':')).encode()
        text += b' ' * (-len(text) % 8)
        with open(os.path.join(folder, name), 'wb') as f:
            f.write(struct.pack('<Q', len(text)) + text)
            f.truncate(8 + len(text) + at)
        total += at
    with open(os.path.join(folder, 'model.safetensors.index.json'), 'w', encoding='utf-8') as f:
        json.dump({'metadata': {'total_size': total}, 'weight_map': index}, f)
    config = dict(CONFIG)
    if fp8:
        config['quantization_config'] = {'activation_scheme': 'dynamic', 'fmt': 'e4m3', 'quant_method': 'fp8', 'weight_block_size': [128, 128]}
    with open(os.path.join(folder, 'config.json'), 'w', encoding='utf-8') as f:
        json.dump(config, f)
    return len(index), elements, total


def plan(command):
    """Run a dry run: what it says, seconds, seconds of the processor, and its largest memory in MiB."""
    with tempfile.TemporaryFile('w+') as out:
        before = time.monotonic()
        p = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(p.pid, 0)
        seconds = time.monotonic() - before
        p.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read()
    if p.returncode:
        sys.exit('%s: status %d: %s' % (' '.join(command), p.returncode, text[-2000:]))
    return text, seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--bin', required=True)
    p.add_argument('--work')
    p.add_argument('--repeat', type=int, default=5)
    p.add_argument('--verbose', action='store_true', help='print what the dry run says')
    a = p.parse_args()
    print('| source | tensors | 10^9 elements | source GB | best s | best s of the processor | peak MiB |')
    print('| --- | --- | --- | --- | --- | --- | --- |')
    for dtype in ('bf16', 'fp8'):
        with tempfile.TemporaryDirectory(dir=a.work) as work:
            hf = os.path.join(work, 'DeepSeek-V3')
            os.mkdir(hf)
            n, elements, total = generate(hf, dtype == 'fp8')
            runs = [plan([os.path.join(a.bin, 'ckpt'), 'convert', '-n', hf, os.path.join(work, 'out'), '--to', 'megatron', '--max-shard-size', '5GB'])
                    for _ in range(a.repeat)]
            print('| %s | %d | %.1f | %.0f | %.2f | %.2f | %.0f |' % (dtype, n, elements / 1e9, total / 1e9, min(r[1] for r in runs),
                                                                 min(r[2] for r in runs), max(r[3] for r in runs)))
            if a.verbose:
                print(runs[0][0])


if __name__ == '__main__':
    main()
