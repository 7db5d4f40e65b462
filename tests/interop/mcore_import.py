#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tensors of `ckpt --to megatron` are those that mbridge imports from the same Hugging Face folder.

    mcore_import.py --bin BUILD_BIN CORE MBRIDGE     folders with megatron-core and with mbridge (PyPI)

On two tensor-parallel processes (gloo), Megatron-Core fills the local layers of a GPTModel from the torch_dist folder.  mbridge
fills modules with the names of Transformer Engine's layers, which need a GPU, in the same shapes.  Every tensor must be equal in
every bit, and mbridge must have asked for every tensor of the folder.  The file of each rank that `ckpt --to megatron-legacy`
writes must have the names and the bits of mbridge's modules, too.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
from types import SimpleNamespace

import mcore

TP = 2
KINDS = ('llama', 'qwen2', 'qwen2_moe', 'qwen3', 'qwen3_moe', 'mixtral', 'deepseek_v3')
# norms of the local layers, and the name of the same norm in Transformer Engine's layers
NORMS = {'input_layernorm.': 'self_attention.linear_qkv.layer_norm_', 'pre_mlp_layernorm.': 'mlp.linear_fc1.layer_norm_',
         'self_attention.q_layernorm.': 'self_attention.linear_q_up_proj.layer_norm_',
         'self_attention.kv_layernorm.': 'self_attention.linear_kv_up_proj.layer_norm_'}


def config(kind):
    """A small configuration of a kind; its vocabulary needs padding unless it is tied."""
    import transformers as t
    base = {'vocab_size': 61, 'hidden_size': 32, 'num_hidden_layers': 2, 'num_attention_heads': 4, 'num_key_value_heads': 2,
            'intermediate_size': 24, 'max_position_embeddings': 32}
    experts = {**base, 'moe_intermediate_size': 20, 'num_experts': 4, 'num_experts_per_tok': 2, 'decoder_sparse_step': 1}
    return {
        'llama': lambda: t.LlamaConfig(**base), 'mixtral': lambda: t.MixtralConfig(**base, head_dim=8, num_local_experts=4, sliding_window=None),
        'qwen2': lambda: t.Qwen2Config(**base), 'qwen3': lambda: t.Qwen3Config(**base, head_dim=12),
        'qwen2_moe': lambda: t.Qwen2MoeConfig(**experts, shared_expert_intermediate_size=28, qkv_bias=True),
        'qwen3_moe': lambda: t.Qwen3MoeConfig(**experts, head_dim=8),
        'deepseek_v3': lambda: t.DeepseekV3Config(
            **{**base, 'num_key_value_heads': 4}, q_lora_rank=12, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=12, v_head_dim=10, n_routed_experts=4,
            n_shared_experts=1, moe_intermediate_size=20, num_experts_per_tok=2, n_group=2, topk_group=1, first_k_dense_replace=1),
    }[kind]()


def make(kind, folder):
    """A model whose weights are all different, in bfloat16."""
    import torch
    import transformers as t
    torch.manual_seed(5)
    model = t.AutoModelForCausalLM.from_config(config(kind))
    for name, p in [*model.named_parameters(), *model.named_buffers()]:
        if not name.endswith('inv_freq'):
            p.data = torch.randn_like(p, dtype=torch.float32)
    model.bfloat16().save_pretrained(folder, max_shard_size='20KB')


def fused(name, names):
    """The name in Transformer Engine's layers of a tensor in the local ones."""
    layer = re.match(r'decoder\.layers\.\d+\.', name)
    if not layer:
        return name
    rest, latent = name[layer.end():], layer[0] + 'self_attention.linear_kv_down_proj.weight' in names
    for local, own in NORMS.items():
        if rest.startswith(local) and not (local.startswith('pre') and layer[0] + 'mlp.router.weight' in names) and \
                not (local.startswith('input') and latent) and (latent or local[0] != 's' or 'kv' in local):
            return layer[0] + own + rest[len(local):]
    expert = re.fullmatch(r'mlp\.experts\.local_experts\.(\d+)\.(linear_fc[12]\.weight)', rest)
    return layer[0] + ('mlp.experts.%s%s' % (expert[2], expert[1]) if expert else rest)


def modules(tensors):
    """Modules with parameters of these names, in their shapes and dtypes, that hold no value of them."""
    import torch
    root = torch.nn.Module()
    for name, value in tensors.items():
        *path, last = name.split('.')
        at = root
        for part in path:
            if part not in at._modules:
                at.add_module(part, torch.nn.ModuleList() if part == 'layers' else torch.nn.Module())
            at = at._modules[part]
        at.register_parameter(last, torch.nn.Parameter(torch.full_like(value, 7.0), requires_grad=False))
    for i, layer in enumerate(root.decoder.layers):
        layer.layer_number = i + 1
    return root


def compare(kind, work):
    """Compare one model; a problem, or ''."""
    import torch
    from mbridge import AutoBridge
    from mbridge.core.safetensor_io import SafeTensorIO
    from mbridge.models import DeepseekV3Bridge
    from megatron.core import dist_checkpointing
    from transformers import AutoConfig
    hf, ours = os.path.join(work, kind), os.path.join(work, kind + '.mcore', 'release')
    model = mcore.by_arguments(ours, {'tp': TP, 'pp': 1, 'ep': 1})
    for p in model.parameters():
        p.data.fill_(3.0)
    got = dist_checkpointing.load({'model': model.sharded_state_dict()}, ours)
    model.load_state_dict(got['model'], strict=True)
    have = {k: v for k, v in model.state_dict().items() if isinstance(v, torch.Tensor) and '_extra_state' not in k}
    have = {fused(k, have): v for k, v in have.items() if 'local_tokens_per_expert' not in k}

    config = AutoConfig.from_pretrained(hf)
    config.rope_theta = 10000.0    # transformers 5 has it in rope_parameters only
    DeepseekV3Bridge.TransformerConfigClass = SimpleNamespace    # it gives fields of an earlier Megatron-Core, which only its builder of models needs
    bridge = AutoBridge.from_config(config, dtype=torch.bfloat16, make_vocab_size_divisible_by=128 * TP)
    bridge.vocab_size, bridge.padded_vocab_size = 61, 128 * TP    # its builder of models for GPUs sets these
    bridge._get_safetensor_io = SafeTensorIO    # DeepSeek's own reads to a GPU
    asked, names = set(), bridge._weight_name_mapping_mcore_to_hf
    bridge._weight_name_mapping_mcore_to_hf = lambda name: [asked.add(n) or n for n in names(name)]
    of_rank = mcore.rank_file(os.path.join(work, kind + '.ranks', 'release'))['model']
    of_rank = {k: v for k, v in of_rank.items() if v is not None}
    if of_rank.keys() != have.keys():
        return 'the file of the rank has other names: %s' % sorted(of_rank.keys() ^ have.keys())[:3]
    for what, tensors in (('torch_dist', have), ('the file of the rank', of_rank)):
        theirs = modules(tensors)
        bridge.load_weights([theirs], hf)
        for name, value in theirs.state_dict().items():
            if not torch.equal(value.view(torch.uint8), tensors[name].view(torch.uint8)):
                return '%s, %s differs: %s, expected %s' % (what, name, tensors[name].flatten()[:4].tolist(), value.flatten()[:4].tolist())
    with open(os.path.join(hf, 'model.safetensors.index.json'), encoding='utf-8') as f:
        left = set(json.load(f)['weight_map']) - asked
    return 'mbridge asked for no %s' % sorted(left)[:3] if left else ''


def rank(core, mbridge, work):
    """One process: every model."""
    mcore.shims(core)
    sys.path.insert(0, mbridge)
    import torch
    import torch.distributed as dist
    from megatron.core import parallel_state as ps
    dist.init_process_group('gloo')
    ps.initialize_model_parallel(tensor_model_parallel_size=TP)
    problems = 0
    with torch.no_grad():
        for kind in KINDS:
            problem = compare(kind, work)
            problems += bool(problem)
            if problem:
                print('FAIL %s, rank %d: %s' % (kind, dist.get_rank(), problem), flush=True)
    dist.destroy_process_group()
    return 1 if problems else 0


def main():
    if sys.argv[1] == '--rank':
        return rank(*sys.argv[2:5])
    ckpt, core, mbridge = os.path.join(sys.argv[2], 'ckpt'), *sys.argv[3:5]
    with tempfile.TemporaryDirectory() as work:
        for kind in KINDS:
            make(kind, os.path.join(work, kind))
            for end, form in (('.mcore', 'megatron'), ('.ranks', 'megatron-legacy')):
                subprocess.run([ckpt, 'convert', '-q', os.path.join(work, kind), os.path.join(work, kind + end), '--to', form,
                                '--tensor-model-parallel-size', str(TP)], check=True)
        problem = mcore.processes(TP, '--rank', core, mbridge, work, script=os.path.abspath(__file__))
    if problem:
        print('FAIL\n' + problem)
    print('mbridge imports what ckpt writes for Megatron-Core: %d kinds of models, %s' % (len(KINDS), 'failed' if problem else 'equal in every bit'))
    return 1 if problem else 0


if __name__ == '__main__':
    sys.exit(main())
