#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adapters beside PEFT's own merging, and PEFT loading what is written.

    adapters.py [--bin build/bin] [-v] [NAME...]

Adapters of many kinds are made for a tiny Llama and a tiny GPT-2, merged by merge_and_unload and by ckpt convert --adapter:
F32 within 1e-6 of the tensor's largest value, BF16 within one step.  An adapter folder written by ckpt is loaded by PEFT with
no key left over, and gives the same logits.  So are adapters of prompts and prefixes, which ckpt does not merge, in both of
PEFT's files.
"""
import json
import os
import shutil
import sys

import checks

KINDS = {
    'lora': dict(r=4, lora_alpha=8, target_modules=['q_proj', 'down_proj']),
    'rslora': dict(r=8, lora_alpha=3, use_rslora=True, target_modules='all-linear', rank_pattern={'q_proj': 2}),
    'dora': dict(r=4, lora_alpha=8, use_dora=True, target_modules=['k_proj', 'up_proj']),
    'the embedding': dict(r=4, lora_alpha=8, target_modules=['embed_tokens']),
    'dora of the embedding': dict(r=4, lora_alpha=8, use_dora=True, target_modules=['embed_tokens']),
    'whole modules': dict(r=2, lora_alpha=8, target_modules=['v_proj'], modules_to_save=['lm_head', 'norm']),
    'alpha by layer': dict(r=2, lora_alpha=8, target_modules=['v_proj', 'o_proj'], alpha_pattern={r'layers\.[01]\.self_attn\.v_proj': 5}),
    'parameters': dict(r=2, lora_alpha=4, target_modules=[], target_parameters=['mlp.gate_proj.weight']),
    'gpt2': dict(r=3, lora_alpha=4, target_modules=['c_attn', 'c_proj'], fan_in_fan_out=True, bias='all'),
    'gpt2 said to be linear': dict(r=3, lora_alpha=4, target_modules=['c_proj'], fan_in_fan_out=True),
    'experts': dict(r=2, lora_alpha=4, target_modules=[], target_parameters=['mlp.experts.gate_up_proj', 'mlp.experts.down_proj']),
}

# adapters of other kinds: class of the configuration, model, its values
OTHERS = {
    'ia3': ('IA3Config', 'llama', dict(target_modules=['k_proj', 'down_proj', 'o_proj'], feedforward_modules=['down_proj', 'o_proj'])),
    'ia3 by pattern': ('IA3Config', 'llama', dict(target_modules='.*(up|down)_proj', feedforward_modules='.*down_proj')),
    'ia3 of gpt2': ('IA3Config', 'gpt2', dict(target_modules=['c_attn', 'attn.c_proj', 'mlp.c_proj'],
                                              feedforward_modules=['mlp.c_proj'], fan_in_fan_out=True)),
    'ia3 of convolutions': ('IA3Config', 'convnext', dict(target_modules=['patch_embeddings', 'dwconv', 'downsampling_layer.1', 'pwconv1'],
                                                          feedforward_modules=['dwconv', 'patch_embeddings'])),
    'loha': ('LoHaConfig', 'llama', dict(r=3, alpha=5, target_modules=['q_proj', 'down_proj'], modules_to_save=['lm_head'])),
    'loha by pattern': ('LoHaConfig', 'llama', dict(r=3, alpha=5, target_modules=['q_proj', 'v_proj'], rank_pattern={'v_proj': 2},
                                                    alpha_pattern={r'layers\.1\..*': 7})),
    'loha of convolutions': ('LoHaConfig', 'convnext', dict(r=3, alpha=5, target_modules=['patch_embeddings', 'dwconv', 'pwconv1'])),
    'loha of whole kernels': ('LoHaConfig', 'convnext', dict(r=3, alpha=5, target_modules=['patch_embeddings', 'dwconv', 'pwconv1'],
                                                             use_effective_conv2d=True)),
    'loha of 1-d convolutions': ('LoHaConfig', 'whisper', dict(r=3, alpha=5, target_modules=['conv1', 'conv2'], use_effective_conv2d=True)),
    'lokr': ('LoKrConfig', 'llama', dict(r=2, alpha=5, target_modules=['q_proj', 'down_proj', 'k_proj'])),
    'lokr of whole factors': ('LoKrConfig', 'llama', dict(r=64, alpha=80, target_modules=['q_proj', 'down_proj'])),
    'lokr in pairs': ('LoKrConfig', 'llama', dict(r=1, alpha=1, target_modules=['q_proj', 'up_proj'], decompose_both=True, decompose_factor=4)),
    'lokr of convolutions': ('LoKrConfig', 'convnext', dict(r=2, alpha=3, target_modules=['patch_embeddings', 'downsampling_layer.1'])),
    'lokr of whole kernels': ('LoKrConfig', 'convnext', dict(r=1, alpha=3, target_modules=['patch_embeddings', 'downsampling_layer.1'],
                                                             use_effective_conv2d=True)),
    'lokr of whole convolutions': ('LoKrConfig', 'convnext', dict(r=64, alpha=80, target_modules=['patch_embeddings', 'downsampling_layer.1'])),
    'lokr of 1-d convolutions': ('LoKrConfig', 'whisper', dict(r=64, alpha=80, target_modules=['conv1', 'conv2'])),
    'lokr of 1-d convolutions in pairs': ('LoKrConfig', 'whisper', dict(r=1, alpha=3, target_modules=['conv1', 'conv2'])),
    'vera': ('VeraConfig', 'llama', dict(r=5, target_modules=['q_proj', 'down_proj', 'v_proj'])),
    'vera of gpt2': ('VeraConfig', 'gpt2', dict(r=5, target_modules=['c_attn', 'c_proj'], fan_in_fan_out=True, bias='all')),
    'oft': ('OFTConfig', 'llama', dict(oft_block_size=4, target_modules=['q_proj', 'down_proj'], use_cayley_neumann=False)),
    'oft by rank': ('OFTConfig', 'llama', dict(r=2, oft_block_size=0, target_modules=['q_proj', 'down_proj'], num_cayley_neumann_terms=4)),
    'oft by series': ('OFTConfig', 'llama', dict(oft_block_size=8, target_modules=['q_proj', 'down_proj'], num_cayley_neumann_terms=7)),
    'oft of shared blocks': ('OFTConfig', 'llama', dict(oft_block_size=8, target_modules=['q_proj', 'v_proj'], block_share=True, coft=True, eps=0.5)),
    'oft constrained': ('OFTConfig', 'llama', dict(oft_block_size=4, target_modules=['q_proj', 'v_proj'], coft=True, eps=0.5)),
    'oft of the embedding': ('OFTConfig', 'llama', dict(oft_block_size=4, target_modules=['embed_tokens', 'q_proj'])),
    'tokens': ('TrainableTokensConfig', 'llama', dict(token_indices=[7, 59, 0])),
    'tokens of a tied head': ('TrainableTokensConfig', 'tied', dict(token_indices=[7, 59, 0])),
    'tokens beside lora': ('LoraConfig', 'llama', dict(r=2, target_modules=['q_proj'],
                                                       trainable_token_indices={'embed_tokens': [3, 7], 'lm_head': [1]})),
    'tokens beside lora, tied': ('LoraConfig', 'tied', dict(r=2, target_modules=['q_proj'], trainable_token_indices=[3, 7])),
    'tokens of both, tied': ('LoraConfig', 'tied', dict(r=2, target_modules=['q_proj'], trainable_token_indices={'embed_tokens': [3, 7], 'lm_head': [3, 7]})),
    'an embedding with its tied head': ('LoraConfig', 'tied', dict(r=2, target_modules=['q_proj'], modules_to_save=['embed_tokens'], ensure_weight_tying=True)),
    # with the embedding, which did not change
    'tokens, whole': ('TrainableTokensConfig', 'llama', dict(token_indices=[7, 59, 0])),
    'tokens, whole and tied': ('TrainableTokensConfig', 'tied', dict(token_indices=[7, 59, 0])),
    'tokens beside lora, whole': ('LoraConfig', 'llama', dict(r=2, target_modules=['q_proj'], trainable_token_indices=[3, 7])),
    'tokens beside lora, whole and tied': ('LoraConfig', 'tied', dict(r=2, target_modules=['q_proj'], trainable_token_indices=[3, 7])),
    'oft of convolutions': ('OFTConfig', 'convnext', dict(oft_block_size=4, target_modules=['patch_embeddings', 'downsampling_layer.1'])),
}

# several adapters made into one: method, model, weights, their configurations
COMBINED = {
    'cat': ('cat', 'llama', [1, -0.5], [dict(r=4, lora_alpha=8, target_modules=['q_proj', 'down_proj']),
                                        dict(r=2, lora_alpha=3, target_modules=['q_proj', 'v_proj'])]),
    'cat of patterns': ('cat', 'llama', [0.3, 0.7, 2], [dict(r=4, lora_alpha=8, target_modules=['q_proj', 'down_proj'], rank_pattern={'q_proj': 3}),
                                                        dict(r=2, lora_alpha=3, target_modules=['v_proj'], layers_to_transform=[1],
                                                             alpha_pattern={'v_proj': 7}),
                                                        dict(r=2, lora_alpha=3, target_modules=['v_proj'], layers_to_transform=[0])]),
    'cat of gpt2': ('cat', 'gpt2', [1, 1], [dict(r=3, lora_alpha=4, target_modules=['c_attn'], fan_in_fan_out=True),
                                            dict(r=2, lora_alpha=4, target_modules=['c_attn', 'c_proj'], fan_in_fan_out=True)]),
    'cat of convolutions': ('cat', 'convnext', [1, 2], [dict(r=2, lora_alpha=4, target_modules=['patch_embeddings', 'pwconv1'])] * 2),
    'cat of embeddings': ('cat', 'llama', [1, -0.5], [dict(r=4, lora_alpha=8, target_modules=['embed_tokens', 'q_proj']),
                                                      dict(r=2, lora_alpha=3, target_modules=['embed_tokens', 'v_proj'])]),
    'cat of an embedding': ('cat', 'llama', [1, 2], [dict(r=4, lora_alpha=8, target_modules=['q_proj']),
                                                     dict(r=2, lora_alpha=3, target_modules=['embed_tokens', 'v_proj'])]),
    'linear': ('linear', 'llama', [1, -0.5], [dict(r=3, lora_alpha=8, target_modules=['q_proj', 'down_proj']),
                                              dict(r=3, lora_alpha=3, target_modules=['q_proj', 'v_proj'])]),
    'linear of three': ('linear', 'llama', [1, 0.25, 3], [dict(r=3, lora_alpha=8, target_modules=['q_proj'])] * 3),
    'one': ('linear', 'llama', [0.5], [dict(r=3, lora_alpha=8, target_modules=['q_proj'])]),
}

# adapters made from two models: model, what the second adds, rank, options, and the largest error beside torch's truncated result
EXTRACTED = {
    'an update of rank 4': ('llama', 'low', 4, [], 1e-6),
    'all matrices': ('llama', 'matrices', 6, [], 1e-5),
    'Conv1D with biases': ('gpt2', 'biases', 5, ['--save-rest'], 1e-5),
    'all tensors': ('llama', 'all', 3, ['--save-rest'], 1e-5),
    'a tied model': ('tied', 'matrices', 3, [], 1e-5),
    'in 16 bits': ('llama', 'matrices', 8, ['--dtype', 'bf16'], 1e-2),
}

# adapters that no weight can hold: class of the configuration, its values
PROMPTS = {
    'prefix': ('PrefixTuningConfig', dict(num_virtual_tokens=3)),
    'prefix by a network': ('PrefixTuningConfig', dict(num_virtual_tokens=3, prefix_projection=True, encoder_hidden_size=16)),
    'prompt': ('PromptTuningConfig', dict(num_virtual_tokens=4)),
    'p-tuning': ('PromptEncoderConfig', dict(num_virtual_tokens=4, encoder_hidden_size=16)),
    'prompts of tasks': ('MultitaskPromptTuningConfig', dict(num_virtual_tokens=4, num_tasks=2, num_ranks=1)),
}


def model(kind, dtype):
    import torch
    from transformers import (ConvNextConfig, ConvNextForImageClassification, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM,
                              MixtralConfig, MixtralForCausalLM, WhisperConfig, WhisperModel)
    torch.manual_seed(0)
    if kind == 'convnext':
        made = ConvNextForImageClassification(ConvNextConfig(num_stages=2, hidden_sizes=[8, 12], depths=[1, 1], image_size=16))
    elif kind == 'whisper':
        made = WhisperModel(WhisperConfig(vocab_size=60, num_mel_bins=6, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
                                          decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_source_positions=8,
                                          max_target_positions=8, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1))
    elif kind.startswith('gpt2'):
        made = GPT2LMHeadModel(GPT2Config(vocab_size=60, n_positions=16, n_embd=24, n_layer=2, n_head=2))
    elif kind == 'experts':
        made = MixtralForCausalLM(MixtralConfig(vocab_size=60, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=2,
                                                num_key_value_heads=1, num_local_experts=4))
    else:
        made = LlamaForCausalLM(LlamaConfig(vocab_size=60, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=2,
                                            num_key_value_heads=1, tie_word_embeddings=kind == 'tied'))
    return made.to(dtype)


def trained(kind, base, autocast):
    """The model with an adapter of this kind whose factors are not zero."""
    import torch
    import peft
    config = getattr(peft, OTHERS[kind][0])(**OTHERS[kind][2]) if kind in OTHERS else peft.LoraConfig(**KINDS[kind])
    made = peft.get_peft_model(base, config, autocast_adapter_dtype=autocast)
    with torch.no_grad():
        for name, p in made.named_parameters():
            if p.requires_grad:
                p.add_(torch.randn_like(p) * 0.1)
    return made


def differences(got, want):
    import torch
    found = []
    for name in sorted(set(got) | set(want)):
        if name not in got or name not in want:
            # a tied head is in the live model alone
            if name != 'lm_head.weight':
                found.append('%s is in one of them' % name)
            continue
        a, b = got[name], want[name]
        if a.dtype != b.dtype or a.shape != b.shape:
            found.append('%s: %s %s, not %s %s' % (name, a.dtype, tuple(a.shape), b.dtype, tuple(b.shape)))
            continue
        off = (a.float() - b.float()).abs() > 1e-6 * b.float().abs().max()
        if a.dtype in (torch.bfloat16, torch.float16):
            off &= (a.view(torch.int16).int() - b.view(torch.int16).int()).abs() > 1
        if off.any():
            found.append('%s: %d of %d are off, by up to %g' % (name, off.sum(), off.numel(), (a.float() - b.float()).abs().max()))
    return found


def narrow(folder, dtype):
    """Round the file of an adapter to a dtype of 16 bits, as it is often given away."""
    from safetensors.torch import load_file, save_file
    path = os.path.join(folder, 'adapter_model.safetensors')
    save_file({n: t.to(dtype) for n, t in load_file(path).items()}, path, {'format': 'pt'})


def narrowed(args, kind, dtype, out):
    """An adapter of 16 bits merged into a base in F32: peft computes in F32."""
    import torch
    from peft import PeftModel
    from safetensors.torch import load_file
    of = OTHERS[kind][1] if kind in OTHERS else kind
    folder = {x: os.path.join(out, x) for x in ('base', 'adapter', 'merged')}
    for path in folder.values():
        shutil.rmtree(path, ignore_errors=True)
    base = model(of, torch.float32)
    base.save_pretrained(folder['base'], save_original_format=False)
    trained(kind, base, True).save_pretrained(folder['adapter'])
    narrow(folder['adapter'], dtype)
    want = PeftModel.from_pretrained(model(of, torch.float32), folder['adapter']).merge_and_unload()
    checks.ckpt(args, 'convert', '-q', folder['base'], folder['merged'], '--to', 'hf', '--adapter', folder['adapter'])
    return differences(load_file(os.path.join(folder['merged'], 'model.safetensors')), want.state_dict())


def other(args, kind, dtype, out, autocast=True):
    """An adapter of another kind than LoRA: merged, and written again with the same tensors."""
    import torch
    from peft import PeftModel
    from safetensors.torch import load_file
    folder = {x: os.path.join(out, x) for x in ('base', 'adapter', 'merged', 'again')}
    for path in folder.values():
        shutil.rmtree(path, ignore_errors=True)
    base = model(OTHERS[kind][1], dtype)
    base.save_pretrained(folder['base'], save_original_format=False)
    trained(kind, base, autocast).save_pretrained(folder['adapter'], save_embedding_layers=True if 'whole' in kind and 'tokens' in kind else 'auto')
    want = PeftModel.from_pretrained(model(OTHERS[kind][1], dtype), folder['adapter'], autocast_adapter_dtype=autocast).merge_and_unload()
    checks.ckpt(args, 'convert', '-q', folder['base'], folder['merged'], '--to', 'hf', '--adapter', folder['adapter'])
    checks.ckpt(args, 'convert', '-q', folder['adapter'], folder['again'], '--to', 'hf')
    merged = load_file(os.path.join(folder['merged'], 'model.safetensors'))
    found = differences(merged, want.state_dict())
    before = model(OTHERS[kind][1], dtype).state_dict()
    if all(merged[x].equal(before[x]) for x in merged):
        found.append('nothing was merged')
    a, b = (load_file(os.path.join(folder[x], 'adapter_model.safetensors')) for x in ('adapter', 'again'))
    if a.keys() != b.keys() or not all(a[x].equal(b[x]) for x in a):
        found.append('tensors of the adapter that was written again differ')
    if not a or not torch.all(torch.stack([x.float().isfinite().all() for x in a.values()])):
        found.append('the adapter is no test')
    return found


def combined(args, kind, dtype, out):
    """One adapter made of several: the updates of PEFT's add_weighted_adapter, and where its matrices have the same shapes, their bits."""
    import peft
    import torch
    from safetensors.torch import load_file
    method, base, weights, configs = COMBINED[kind]
    folders = [os.path.join(out, 'a%d' % i) for i in range(len(configs))]
    target = os.path.join(out, 'sum')
    live = None
    for path in folders + [target]:
        shutil.rmtree(path, ignore_errors=True)
    for i, (folder, config) in enumerate(zip(folders, configs)):
        made = peft.get_peft_model(model(base, dtype), peft.LoraConfig(**config))
        with torch.no_grad():
            for name, p in made.named_parameters():
                if p.requires_grad:
                    p.copy_(torch.randn_like(p) * 0.1)
        made.to(dtype).save_pretrained(folder)
        if live:
            live.load_adapter(folder, 'x%d' % i, autocast_adapter_dtype=False)
        else:
            live = peft.PeftModel.from_pretrained(model(base, dtype), folder, 'x0', autocast_adapter_dtype=False)
    checks.ckpt(args, 'merge', '-q', '-o', target, '--method', method, *('%s:%g' % x for x in zip(folders, weights)))
    live.add_weighted_adapter(['x%d' % i for i in range(len(configs))], weights, 'sum', combination_type=method)
    live.set_adapter('sum')
    want = live.merge_and_unload(adapter_names=['sum']).state_dict()
    ours = peft.PeftModel.from_pretrained(model(base, dtype), target, autocast_adapter_dtype=False)
    keys = set(peft.get_peft_model_state_dict(ours))
    found = [] if keys == set(load_file(os.path.join(target, 'adapter_model.safetensors'))) else ['PEFT has other keys']
    merged = ours.merge_and_unload().state_dict()
    before = model(base, dtype).state_dict()
    if all(merged[x].equal(before[x]) for x in merged):
        found.append('nothing was merged')
    return found + differences(merged, want)


def add(made, what):
    """Change the model as a training would."""
    import torch
    torch.manual_seed(3)
    with torch.no_grad():
        for name, p in made.named_parameters():
            table = p.ndim < 2 or any(x in name for x in ('embed', 'wte', 'wpe'))
            if what == 'low' and ('q_proj' in name or 'up_proj' in name):
                p.add_(torch.randn(p.shape[0], 4) @ torch.randn(4, p.shape[1]) * 0.05)
            elif what == 'all' or (what == 'matrices' and not table) or (what == 'biases' and (p.ndim < 2 or not table)):
                p.add_(torch.randn_like(p) * 0.1)
    return made


def extracted(args, kind, out):
    """The adapter made from two models: PEFT adds the best approximation of the difference, torch's truncated SVD."""
    import torch
    from peft import PeftModel
    from safetensors.torch import load_file
    of, what, rank, options, most = EXTRACTED[kind]
    folder = {x: os.path.join(out, x) for x in ('base', 'tuned', 'adapter', 'merged')}
    for path in folder.values():
        shutil.rmtree(path, ignore_errors=True)
    base, tuned = model(of, torch.float32), add(model(of, torch.float32), what)
    base.save_pretrained(folder['base'])
    tuned.save_pretrained(folder['tuned'])
    report = json.loads(checks.ckpt(args, 'extract-lora', '--json', folder['base'], folder['tuned'], folder['adapter'], '--rank', str(rank), *options))
    errors = {x['module']: x['relative_error'] for x in report['matrices']}
    got = PeftModel.from_pretrained(model(of, torch.float32), folder['adapter']).merge_and_unload().state_dict()
    checks.ckpt(args, 'convert', '-q', folder['base'], folder['merged'], '--to', 'hf', '--adapter', folder['adapter'])
    ours = load_file(os.path.join(folder['merged'], 'model.safetensors'))
    before, after, found = base.state_dict(), tuned.state_dict(), differences(ours, got)
    for name, value in after.items():
        want = (value - before[name]).double()
        module = name[:-len('.weight')]
        if module in errors:
            u, s, v = torch.linalg.svd(want, full_matrices=False)
            left = (s[rank:].norm() / s.norm()).item()
            want = (u[:, :rank] * s[:rank]) @ v[:rank]
            if abs(errors[module] - left) > most:
                found.append('%s: error %g, not %g' % (module, errors[module], left))
        off = ((got[name] - before[name]).double() - want).norm() / max(want.norm().item(), 1e-2)
        if off > most:
            found.append('%s: %g from the best approximation' % (name, off))
    return found + ([] if errors else ['nothing was extracted'])


def one(args, kind, dtype, out, autocast=True):
    import torch
    from peft import PeftModel
    from safetensors.torch import load_file
    folder = {x: os.path.join(out, x) for x in ('base', 'adapter', 'merged', 'again')}
    for path in folder.values():
        shutil.rmtree(path, ignore_errors=True)
    base = model(kind, dtype)
    base.save_pretrained(folder['base'], save_original_format=False)
    live = trained(kind, base, autocast)
    live.save_pretrained(folder['adapter'])
    want = PeftModel.from_pretrained(model(kind, dtype), folder['adapter'], autocast_adapter_dtype=autocast).merge_and_unload()
    checks.ckpt(args, 'convert', '-q', folder['base'], folder['merged'], '--to', 'hf', '--adapter', folder['adapter'])
    checks.ckpt(args, 'convert', '-q', folder['adapter'], folder['again'], '--to', 'hf')
    found = differences(load_file(os.path.join(folder['merged'], 'model.safetensors')), want.state_dict())
    ids = torch.arange(12).reshape(1, 12)
    again = PeftModel.from_pretrained(model(kind, dtype), folder['again'])
    before = PeftModel.from_pretrained(model(kind, dtype), folder['adapter'])
    if not again(ids).logits.equal(before(ids).logits):
        found.append('logits of the adapter that was written again differ')
    return found


def prompt(args, kind, binary, out):
    """An adapter of a prompt, read from one of PEFT's files and written as both."""
    import peft
    import torch
    folder = {x: os.path.join(out, x) for x in ('base', 'adapter', 'merged', 'again', 'torch')}
    for path in folder.values():
        shutil.rmtree(path, ignore_errors=True)
    name, values = PROMPTS[kind]
    base = model(kind, torch.float32)
    base.save_pretrained(folder['base'])
    live = peft.get_peft_model(base, getattr(peft, name)(task_type='CAUSAL_LM', **values))
    live.save_pretrained(folder['adapter'], safe_serialization=not binary)
    checks.ckpt(args, 'convert', '-q', folder['adapter'], folder['again'], '--to', 'hf')
    os.mkdir(folder['torch'])
    shutil.copy(os.path.join(folder['adapter'], 'adapter_config.json'), folder['torch'])
    checks.ckpt(args, 'convert', '-q', folder['again'], os.path.join(folder['torch'], 'adapter_model.bin'), '--to', 'torch')
    inputs = {'input_ids': torch.arange(12).reshape(1, 12)}
    if 'num_tasks' in values:
        inputs['task_ids'] = torch.tensor([1])

    def logits(which):
        return peft.PeftModel.from_pretrained(model(kind, torch.float32), folder[which]).eval()(**inputs).logits
    found = ['logits of the adapter written to %s differ' % x for x in ('again', 'torch') if not logits(x).equal(logits('adapter'))]
    for x in 'again', 'torch':
        checks.ckpt(args, 'diff', folder['adapter'], folder[x])
        checks.ckpt(args, 'verify', folder[x])
    try:
        checks.ckpt(args, 'convert', folder['base'], folder['merged'], '--to', 'hf', '--adapter', folder['adapter'])
        found.append('it was merged')
    except RuntimeError as x:
        found += [] if 'cannot be merged' in str(x) else [str(x)]
    return found


def main():
    args = checks.arguments()
    tally = checks.Tally(args.verbose)
    import torch
    with checks.scratch() as out:
        for kind in KINDS:
            for dtype in torch.float32, torch.bfloat16:
                if not args.only or kind in args.only:
                    tally.call('%s, %s' % (kind, dtype), one, args, kind, dtype, out)
        for kind in COMBINED:
            for dtype in torch.float32, torch.bfloat16:
                if not args.only or kind in args.only:
                    tally.call('%s combined, %s' % (kind, dtype), combined, args, kind, dtype, out)
        for kind in OTHERS:
            for dtype in torch.float32, torch.bfloat16:
                if not args.only or kind in args.only:
                    tally.call('%s, %s' % (kind, dtype), other, args, kind, dtype, out)
        for kind in 'ia3', 'loha', 'lokr', 'lokr of whole kernels', 'vera', 'oft':
            for dtype in torch.float16, torch.bfloat16:
                if not args.only or kind in args.only:
                    tally.call('%s, %s throughout' % (kind, dtype), other, args, kind, dtype, out, False)
        for kind in 'lora', 'dora', 'loha', 'lokr', 'vera', 'oft':
            for dtype in torch.float16, torch.bfloat16:
                if not args.only or kind in args.only:
                    tally.call('%s, %s on F32' % (kind, dtype), narrowed, args, kind, dtype, out)
        # an adapter of 16 bits that stays one: each step is rounded
        for kind in 'dora', 'lora':
            for dtype in torch.float16, torch.bfloat16:
                if not args.only or kind in args.only:
                    tally.call('%s, %s throughout' % (kind, dtype), one, args, kind, dtype, out, False)
        for kind in EXTRACTED:
            if not args.only or kind in args.only:
                tally.call('extracted: %s' % kind, extracted, args, kind, out)
        for kind in PROMPTS:
            for binary in False, True:
                if not args.only or kind in args.only:
                    tally.call('%s, %s' % (kind, 'adapter_model.bin' if binary else 'safetensors'), prompt, args, kind, binary, out)
    return tally.end('adapters')


if __name__ == '__main__':
    sys.exit(main())
