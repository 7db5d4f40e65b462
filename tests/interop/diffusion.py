#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pipelines of diffusers, and LoRA in the names of kohya, diffusers and ComfyUI, beside diffusers.

  diffusion.py --bin build/bin DIFFUSERS [NAME...]

DIFFUSERS is a folder with the package.  An adapter of every linear layer and convolution of Stable Diffusion 1.5, SDXL and Flux, in
kohya's names, goes to diffusers', to ComfyUI's and back without a changed byte; diffusers' own converter finds the same modules in it.
With small models of these architectures, the outputs with ckpt's file are those of the sums that kohya's file states.  A pipeline that
diffusers saved is read as one source, and diffusers loads a component or a pipeline that ckpt wrote; a LoRA that ckpt merged into it has
diffusers' own bits.
"""
import argparse
import os
import shutil
import sys

import torch
from safetensors.torch import load_file, save_file

from checks import Tally, ckpt, mine, scratch

FAMILIES = 'sd', 'sdxl', 'flux'
TEXT = dict(vocab_size=99, hidden_size=32, intermediate_size=37, num_hidden_layers=2, num_attention_heads=4, projection_dim=32)


def unet(family, small, deep):
    """A UNet with the modules of the real one; small: with few channels; not deep: with few blocks of each kind."""
    wide = dict(sd=(320, 640, 1280, 1280), sdxl=(320, 640, 1280))[family]
    config = dict(block_out_channels=[c // 10 for c in wide] if small else wide, norm_num_groups=8, cross_attention_dim=32 if small else 768)
    if family == 'sdxl':
        config.update(down_block_types=('DownBlock2D', 'CrossAttnDownBlock2D', 'CrossAttnDownBlock2D'),
                      up_block_types=('CrossAttnUpBlock2D', 'CrossAttnUpBlock2D', 'UpBlock2D'), transformer_layers_per_block=[1, 2, 10 if deep else 1],
                      addition_embed_type='text_time', addition_time_embed_dim=8, projection_class_embeddings_input_dim=80,
                      use_linear_projection=True)
    return diffusers.UNet2DConditionModel(sample_size=8, attention_head_dim=8, **config)


def flux(small):
    few = dict(num_layers=2, num_single_layers=2, attention_head_dim=16, num_attention_heads=2, joint_attention_dim=32,
               pooled_projection_dim=32, in_channels=4, axes_dims_rope=(4, 4, 8)) if small else {}
    return diffusers.FluxTransformer2DModel(guidance_embeds=True, **few)


def main_model(family, small, deep=False):
    torch.manual_seed(0)
    return flux(small) if family == 'flux' else unet(family, small, deep)


def text_encoders(family):
    torch.manual_seed(1)
    config = transformers.CLIPTextConfig(**TEXT)
    both = {'text_encoder': transformers.CLIPTextModel(config)}
    if family == 'sdxl':
        both['text_encoder_2'] = transformers.CLIPTextModelWithProjection(config)
    return {k: v.eval() for k, v in both.items()}


def layers(model):
    return {n: m for n, m in model.named_modules() if isinstance(m, (torch.nn.Linear, torch.nn.Conv2d))}


def original(name):
    """The name that a UNet's module has in the original code."""
    part = name.split('.')
    inner = {'conv1': 'in_layers.2', 'time_emb_proj': 'emb_layers.1', 'conv2': 'out_layers.3', 'conv_shortcut': 'skip_connection'}
    top = {'conv_in': 'input_blocks.0.0', 'conv_out': 'out.2', 'time_embedding.linear_1': 'time_embed.0',
           'time_embedding.linear_2': 'time_embed.2', 'add_embedding.linear_1': 'label_emb.0.0', 'add_embedding.linear_2': 'label_emb.0.2'}
    if name in top:
        return top[name]
    if part[0] == 'mid_block':
        at = 'middle_block.%d' % (1 if part[1] == 'attentions' else 2 * int(part[2]))
        return '.'.join([at, inner.get(part[3], part[3]), *part[4:]])
    level, kind, layer = int(part[1]), part[2], int(part[3])
    if kind == 'downsamplers':
        return 'input_blocks.%d.0.op' % (3 * level + 3)
    if kind == 'upsamplers':
        return 'output_blocks.%d.2.conv' % (3 * level + 2)
    at = ('input_blocks.%d' % (3 * level + layer + 1)) if part[0] == 'down_blocks' else 'output_blocks.%d' % (3 * level + layer)
    return '.'.join([at, '1' if kind == 'attentions' else '0', inner.get(part[4], part[4]), *part[5:]])


FLUX = {'img_attn.qkv': ('attn.to_q', 'attn.to_k', 'attn.to_v'), 'txt_attn.qkv': ('attn.add_q_proj', 'attn.add_k_proj', 'attn.add_v_proj'),
        'img_attn.proj': ('attn.to_out.0',), 'txt_attn.proj': ('attn.to_add_out',), 'img_mlp.0': ('ff.net.0.proj',), 'img_mlp.2': ('ff.net.2',),
        'txt_mlp.0': ('ff_context.net.0.proj',), 'txt_mlp.2': ('ff_context.net.2',), 'img_mod.lin': ('norm1.linear',),
        'txt_mod.lin': ('norm1_context.linear',)}
SINGLE = {'linear1': ('attn.to_q', 'attn.to_k', 'attn.to_v', 'proj_mlp'), 'linear2': ('proj_out',), 'modulation.lin': ('norm.linear',)}
TOP = {'img_in': 'x_embedder', 'txt_in': 'context_embedder', 'final_layer.linear': 'proj_out', 'final_layer.adaLN_modulation.1': 'norm_out.linear'}
TOP.update({'%s_in.%s_layer' % (a, b): 'time_text_embed.%s_embedder.linear_%d' % (c, d) for a, c in
            (('time', 'timestep'), ('guidance', 'guidance'), ('vector', 'text')) for b, d in (('in', 1), ('out', 2))})


def flux_rows(model):
    """The original module of each layer, or of several: name -> (inputs, outputs, names in diffusers)."""
    every, rows = layers(model), {}
    for theirs, ours in TOP.items():
        rows[theirs] = (ours,)
    for prefix, table, blocks in (('double_blocks', FLUX, 'transformer_blocks'), ('single_blocks', SINGLE, 'single_transformer_blocks')):
        for i in range(len(getattr(model, blocks))):
            for theirs, ours in table.items():
                rows['%s.%d.%s' % (prefix, i, theirs)] = tuple('%s.%d.%s' % (blocks, i, o) for o in ours)
    if sorted(sum(rows.values(), ())) != sorted(every):
        raise SystemExit('this test does not know all layers of Flux')
    return {k: (every[v[0]].in_features, sum(every[n].out_features for n in v), v) for k, v in rows.items()}


def shapes(family, model):
    """kohya's name of each module -> shapes of its two factors of rank 1."""
    if family == 'flux':
        return {'lora_unet_' + k.replace('.', '_'): ((1, i), (o, 1)) for k, (i, o, _) in flux_rows(model).items()}
    found = {}
    for name, m in layers(model).items():
        name = 'lora_unet_' + (original(name) if family == 'sdxl' else name).replace('.', '_')
        if isinstance(m, torch.nn.Conv2d):
            found[name] = (1, m.in_channels, *m.kernel_size), (m.out_channels, 1, 1, 1)
        else:
            found[name] = (1, m.in_features), (m.out_features, 1)
    return found


def text_shapes(family, encoders):
    prefix = {'text_encoder': 'lora_te_' if family == 'sd' else 'lora_te1_', 'text_encoder_2': 'lora_te2_'}
    return {prefix[k] + 'text_model_' + n.replace('text_model.', '').replace('.', '_'): ((1, m.in_features), (m.out_features, 1))
            for k, e in encoders.items() for n, m in layers(e).items() if n != 'text_projection'}


def make(found, dtype, alpha_dtype, plain, diagonal=()):
    """An adapter in kohya's names, of several ranks and alphas; plain: of alphas that equal the ranks."""
    torch.manual_seed(7)
    tensors = {}
    for i, (name, (down, up)) in enumerate(sorted(found.items())):
        rank = 12 if 'qkv' in name or 'linear1' in name else 2 + i % 3
        tensors[name + '.lora_down.weight'] = (torch.randn(rank, *down[1:]) * 0.2).to(dtype)
        tensors[name + '.lora_up.weight'] = (torch.randn(up[0], rank, *up[2:]) * 0.2).to(dtype)
        tensors[name + '.alpha'] = torch.tensor(rank if plain else 1.5 if i % 4 else 0.7 + i % 3).to(alpha_dtype)
        n = 4 if 'linear1' in name else 3 if 'qkv' in name else 0
        if n and any(d in name for d in diagonal):
            block = torch.zeros_like(tensors[name + '.lora_up.weight'])
            h = down[1]
            for p in range(n):
                rows, cols = slice(p * h, up[0] if p == 3 else (p + 1) * h), slice(p * 12 // n, (p + 1) * 12 // n)
                block[rows, cols] = tensors[name + '.lora_up.weight'][rows, cols]
            tensors[name + '.lora_up.weight'] = block
    return tensors


def same(a, b):
    """Names whose bytes differ."""
    return [k for k in {**a, **b} if k not in a or k not in b or a[k].dtype != b[k].dtype or a[k].shape != b[k].shape or
            not torch.equal(a[k].contiguous().reshape(-1).view(torch.uint8), b[k].contiguous().reshape(-1).view(torch.uint8))]


def circle(a, kohya, tensors, metadata=None):
    """Through all spellings and back."""
    paths = [kohya] + [kohya + '.' + s for s in ('d', 'c', 'd2', 'k')]
    save_file(tensors, kohya, metadata)
    for i, names in enumerate(('diffusers', 'comfyui', 'diffusers', 'kohya')):
        ckpt(a, 'convert', '-qf', paths[i], paths[i + 1], '--to', 'safetensors', '--lora-names', names)
    problems = ['circle: ' + k for k in same(tensors, load_file(paths[-1]))[:3]]
    problems += ['diffusers again: ' + k for k in same(load_file(paths[1]), load_file(paths[3]))[:3]]
    ckpt(a, 'convert', '-qf', kohya, paths[-1], '--to', 'safetensors', '--lora-names', 'comfyui')
    problems += ['comfyui at once: ' + k for k in same(load_file(paths[2]), load_file(paths[-1]))[:3]]
    return problems


def loader(family):
    return {'sd': pipelines.StableDiffusionLoraLoaderMixin, 'sdxl': pipelines.StableDiffusionXLLoraLoaderMixin,
            'flux': pipelines.FluxLoraLoaderMixin}[family]


def state(family, path, model):
    """What diffusers' loader reads from a file: tensors, alphas, metadata."""
    mixin, kwargs = loader(family), {}
    if family == 'flux':
        kwargs['return_alphas'] = True
    elif family == 'sdxl':
        kwargs['unet_config'] = model.config
    tensors, alphas, metadata = mixin.lora_state_dict(os.path.dirname(path), weight_name=os.path.basename(path), return_lora_metadata=True, **kwargs)
    return tensors, alphas, metadata


def peft_names(tensors):
    """What the loader's next steps make of the names."""
    unets = {k[5:]: v for k, v in tensors.items() if k.startswith('unet.')}
    if unets and not any('lora_A' in k for k in unets):
        unets = convert_unet_state_dict_to_peft(unets)
    out = {'unet.' + k: v for k, v in unets.items()}
    texts = {k: v for k, v in tensors.items() if k.startswith('text_encoder')}
    texts = convert_state_dict_to_peft(convert_state_dict_to_diffusers(texts)) if texts else {}
    rest = {k: v for k, v in tensors.items() if not k.startswith(('unet.', 'text_encoder'))}
    return {k.replace('text_encoder.text_model.', 'text_encoder.'): v for k, v in {**out, **texts, **rest}.items()}


def every_name(a, family, tmp):
    """All modules of the real architecture, in 16 bits; diffusers' converter agrees.  For Flux it wants the real sizes."""
    with torch.device('meta'):
        model = main_model(family, False, True)
        few = model if family == 'flux' else main_model(family, True, True)
    found = shapes(family, few)
    if sorted(layers(model)) != sorted(layers(few)):
        return ['the small model has other layers']
    tensors = make({**found, **text_shapes(family, text_encoders(family))}, torch.float16, torch.float16, True)
    path = os.path.join(tmp, family + '.every.safetensors')
    problems = circle(a, path, tensors, {'ss_network_dim': '4', 'sshs_model_hash': '0'})
    os.rename(path + '.d', path + '.d.safetensors')
    theirs, _, _ = state(family, path, model)
    ours, _, _ = state(family, path + '.d.safetensors', model)
    # the converter forgets the component of the modules outside of Flux's blocks, which the loader then does not load
    theirs = {k if k.startswith(('transformer.', 'text_encoder', 'unet.')) else 'transformer.' + k: v for k, v in theirs.items()}
    theirs, ours = peft_names(theirs), peft_names(ours)
    return problems + ['converter: ' + k for k in same(theirs, ours)[:3]]


def attach(family, path, model, encoders):
    mixin = loader(family)
    tensors, alphas, metadata = state(family, path, model)
    if family == 'flux':
        mixin.load_lora_into_transformer(tensors, alphas, model, adapter_name='a', metadata=metadata)
    else:
        mixin.load_lora_into_unet(tensors, alphas, model, adapter_name='a', metadata=metadata)
    for prefix, encoder in encoders.items():
        mixin.load_lora_into_text_encoder(tensors, alphas, encoder, prefix=prefix, adapter_name='a', metadata=metadata)


def outputs(family, model, encoders):
    torch.manual_seed(2)
    with torch.no_grad():
        ids = torch.tensor([[1, 5, 9, 12]])
        out = [e(ids)[0].float() for e in encoders.values()]
        if family == 'flux':
            out.append(model(hidden_states=torch.randn(1, 16, 4), encoder_hidden_states=torch.randn(1, 4, 32), pooled_projections=torch.randn(1, 32),
                             timestep=torch.tensor([0.5]), img_ids=torch.zeros(16, 3), txt_ids=torch.zeros(4, 3), guidance=torch.tensor([3.5]))[0])
        else:
            more = dict(added_cond_kwargs=dict(text_embeds=torch.randn(1, 32), time_ids=torch.ones(1, 6))) if family == 'sdxl' else {}
            out.append(model(torch.randn(1, 4, 16, 16), torch.tensor([7]), torch.randn(1, 4, 32), **more)[0])
    return out


def merge(family, tensors, model, encoders):
    """Add what kohya's file says to the weights: up times down times alpha over rank."""
    texts = {'text_encoder': 'lora_te_' if family == 'sd' else 'lora_te1_', 'text_encoder_2': 'lora_te2_'}
    place = {}  # kohya's name -> layers, whose outputs lie one after another
    for k, e in encoders.items():
        for n, m in layers(e).items():
            place[texts[k] + 'text_model_' + n.replace('text_model.', '').replace('.', '_')] = [m]
    for n, m in layers(model).items() if family != 'flux' else ():
        place['lora_unet_' + (original(n) if family == 'sdxl' else n).replace('.', '_')] = [m]
    for k, parts in flux_rows(model).items() if family == 'flux' else ():
        place['lora_unet_' + k.replace('.', '_')] = [layers(model)[p] for p in parts[2]]
    with torch.no_grad():
        for name in {k.split('.')[0] for k in tensors}:
            down, up, alpha = (tensors[name + end].double() for end in ('.lora_down.weight', '.lora_up.weight', '.alpha'))
            delta = (up.flatten(1) @ down.flatten(1)) * (alpha / down.shape[0])
            if 'adaLN' in name:  # diffusers has the two halves in the other order
                delta = torch.cat(delta.chunk(2)[::-1])
            for m, part in zip(place[name], delta.split([m.weight.shape[0] for m in place[name]])):
                m.weight.copy_((m.weight.double() + part.reshape(m.weight.shape)).float())


def computed(a, family, tmp, diagonal=()):
    """Outputs of small models with the sums of kohya's file, and with ckpt's file, as diffusers loads it."""
    path, results = os.path.join(tmp, family + '.small.safetensors'), []
    found = {**shapes(family, main_model(family, True)), **text_shapes(family, text_encoders(family))}
    tensors = make(found, torch.float32, torch.float64 if diagonal else torch.float32, False, diagonal)
    problems = circle(a, path, tensors)
    os.rename(path + '.d', path + '.d.safetensors')
    for way in 'base', 'merged', 'loaded':
        model, encoders = main_model(family, True).eval(), text_encoders(family)
        if way == 'merged':
            merge(family, tensors, model, encoders)
        elif way == 'loaded':
            attach(family, path + '.d.safetensors', model, encoders)
        results.append(outputs(family, model, encoders))
    for i, (base, merged, loaded) in enumerate(zip(*results)):
        off = ((merged - loaded).abs().max() / merged.abs().max()).item()
        moved = ((merged - base).abs().max() / merged.abs().max()).item()
        if not off < 2e-5 or not moved > 1e-3:
            problems.append('output %d: differs by %g, the adapter changes it by %g' % (i, off, moved))
    if diagonal:
        data = load_file(path + '.d.safetensors')
        name = 'transformer.transformer_blocks.0.attn.to_k.lora_A.weight'
        if data[name].shape[0] != 4:
            problems.append('a block-diagonal adapter was not split: %s' % (data[name].shape,))
    return problems


def saved(a, family, tmp):
    """An adapter that diffusers saved, with its metadata."""
    model, mixin = main_model(family, True), loader(family)
    targets = ['to_q', 'to_v', 'proj_mlp', 'conv1'] if family != 'flux' else ['to_q', 'add_q_proj', 'add_k_proj', 'proj_mlp']
    config = peft.LoraConfig(r=4, lora_alpha=6, target_modules=targets, rank_pattern={'attn2.to_v': 2}, init_lora_weights='gaussian')
    model.add_adapter(config)
    torch.manual_seed(9)
    for name, p in model.named_parameters():
        if 'lora_B' in name:
            torch.nn.init.normal_(p.data, 0, 0.1)
    kind = 'transformer' if family == 'flux' else 'unet'
    mixin.save_lora_weights(tmp, **{kind + '_lora_layers': peft.get_peft_model_state_dict(model),
                                    **_collate_lora_metadata({kind: model})})
    path = os.path.join(tmp, 'pytorch_lora_weights.safetensors')
    first, problems = load_file(path), []
    for names in 'kohya', 'comfyui':
        ckpt(a, 'convert', '-qf', path, path + '.x', '--to', 'safetensors', '--lora-names', '%s:%s' % (names, family))
        ckpt(a, 'convert', '-qf', path + '.x', path + '.y.safetensors', '--to', 'safetensors', '--lora-names', 'diffusers')
        problems += [names + ': ' + k for k in same(first, load_file(path + '.y.safetensors'))[:3]]
        back = main_model(family, True).eval()
        attach(family, path + '.y.safetensors', back, {})
        off = (outputs(family, model.eval(), {})[0] - outputs(family, back, {})[0]).abs().max().item()
        if off != 0:
            problems.append('%s: outputs differ by %g' % (names, off))
    return problems


def small_pipeline(family):
    """A pipeline with few channels."""
    vae = diffusers.AutoencoderKL(block_out_channels=(8, 8), norm_num_groups=4, down_block_types=['DownEncoderBlock2D'] * 2,
                                  up_block_types=['UpDecoderBlock2D'] * 2)
    letters = [chr(i) for i in range(97, 123)]
    words = letters + [c + '</w>' for c in letters] + ['<|startoftext|>', '<|endoftext|>']
    tokenizer = transformers.CLIPTokenizer(vocab={w: i for i, w in enumerate(words)}, merges=[])
    parts = dict(vae=vae, tokenizer=tokenizer, **text_encoders(family))
    if family == 'flux':
        torch.manual_seed(3)
        t5 = transformers.T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=37, num_layers=2, num_heads=4)
        return diffusers.FluxPipeline(transformer=main_model(family, True), text_encoder_2=transformers.T5EncoderModel(t5), tokenizer_2=tokenizer,
                                      scheduler=diffusers.FlowMatchEulerDiscreteScheduler(), **parts)
    parts.update(unet=main_model(family, True), scheduler=diffusers.DDIMScheduler(), feature_extractor=None)
    if family == 'sdxl':
        return diffusers.StableDiffusionXLPipeline(tokenizer_2=tokenizer, **parts)
    return diffusers.StableDiffusionPipeline(safety_checker=None, requires_safety_checker=False, **parts)


def models(pipe):
    return {k: v for k, v in pipe.components.items() if isinstance(v, torch.nn.Module)}


def states(pipe, dtype=None):
    """All tensors of a pipeline, floats in another dtype."""
    return {c + '/' + k: v.to(dtype) if dtype and v.is_floating_point() else v for c, m in models(pipe).items() for k, v in m.state_dict().items()}


def others(folder):
    """The files without weights, apart from configurations: name -> bytes."""
    found = {}
    for top, _, names in os.walk(folder):
        for name in names:
            if not name.endswith(('.safetensors', '.index.json')) and '.index.' not in name and name != 'config.json':
                with open(os.path.join(top, name), 'rb') as f:
                    found[os.path.relpath(os.path.join(top, name), folder)] = f.read()
    return found


def written(a, family, tmp):
    """Pipelines that ckpt wrote: in one file and in shards, in another dtype, with a variant; diffusers loads the same states."""
    pipe, folder = small_pipeline(family), os.path.join(tmp, family + '.pipe')
    pipe.save_pretrained(folder)
    pipe.save_pretrained(folder + '16', variant='fp16', max_shard_size='300KB')
    problems, cls = [], type(pipe)
    for more, source, keywords in (((), '', {}), (('--max-shard-size', '200KB'), '', {}), ((), '16', dict(variant='fp16')),
                                   (('--dtype', 'bf16', '--max-shard-size', '200KB'), '', dict(torch_dtype=torch.bfloat16)),
                                   (('--dtype', 'f16'), '16', dict(torch_dtype=torch.float16))):
        out = os.path.join(tmp, 'written')
        shutil.rmtree(out, ignore_errors=True)
        ckpt(a, 'convert', '-q', folder + source, out, '--to', 'hf', *more)
        back = cls.from_pretrained(out, **keywords)
        what = '%s%s %s' % (family, source, ' '.join(more))
        want = states(cls.from_pretrained(folder + source, **{**keywords, 'variant': 'fp16' if source else None}))
        problems += ['%s: %s' % (what, k) for k in same(want, states(back))[:3]]
        if others(folder + source) != others(out):
            problems.append(what + ': other files differ')
        if 'variant' not in keywords and [n for n in os.listdir(os.path.join(out, 'vae')) if '.fp16' in n]:
            problems.append(what + ': the names have a variant')
        if not more:
            problems += ['%s: bytes of %s' % (what, k) for k in different(folder + source, out)]
    return problems


def different(folder, out):
    """The components' configurations and weights whose bytes are not those that diffusers saved."""
    found = []
    for top, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(top, name)
            with open(path, 'rb') as f:
                want = f.read()
            other = os.path.join(out, os.path.relpath(path, folder))
            if 'of-0' in name or '.index.' in name:  # ckpt has its own limit
                continue
            if not os.path.exists(other):
                found.append(os.path.relpath(path, folder))
                continue
            with open(other, 'rb') as f:
                if f.read() != want:
                    found.append(os.path.relpath(path, folder))
    return found


DTYPES = {'f32': torch.float32, 'f16': torch.float16, 'bf16': torch.bfloat16}


def fused(family, folder, path, dtype, weight):
    """The states of a pipeline into which diffusers merged a LoRA."""
    pipe = type(small_pipeline(family)).from_pretrained(folder, torch_dtype=dtype)
    pipe.load_lora_weights(os.path.dirname(path), weight_name=os.path.basename(path))
    pipe.fuse_lora(components=[c for c in pipe._lora_loadable_modules if getattr(pipe, c, None) is not None], lora_scale=weight)
    pipe.unload_lora_weights()
    return states(pipe)


def unlike(a, b):
    """Names whose bits differ; of F32 by more than 1e-6 of the largest value: torch sums a product of few columns in another order."""
    return [k for k in same(a, b) if k not in a or k not in b or a[k].dtype != torch.float32 or b[k].dtype != torch.float32 or
            (a[k].double() - b[k].double()).abs().max() > 1e-6 * a[k].double().abs().max()]


def into(a, family, tmp, base, kind, weight=1):
    """A LoRA merged into a pipeline, in the names of three programs, beside diffusers.  It gets its own names: of others it gives many
    modules the alpha that most of them have, and rounds factors of Flux once more."""
    pipe, folder, problems = small_pipeline(family), os.path.join(tmp, 'into'), []
    path, out = os.path.join(tmp, 'into.safetensors'), os.path.join(tmp, 'into.out')
    shutil.rmtree(folder, ignore_errors=True)
    pipe.to(DTYPES[base]).save_pretrained(folder)
    tensors = make({**shapes(family, main_model(family, True)), **text_shapes(family, text_encoders(family))}, DTYPES[kind], DTYPES[kind], False)
    direct = family != 'flux' and base == kind == 'f16'
    for name in tensors if direct else ():
        if name.endswith('.alpha'):
            tensors[name].fill_(1.5)
    save_file(tensors, path)
    names = {'kohya': path}
    for program in 'diffusers', 'comfyui':
        names[program] = path[:-11] + program + '.safetensors'
        ckpt(a, 'convert', '-qf', path, names[program], '--to', 'safetensors', '--lora-names', program)
    want = fused(family, folder, names['kohya' if direct else 'diffusers'], DTYPES[base], weight)
    before = states(pipe)
    if not [k for k in want if not torch.equal(want[k], before[k])]:
        problems.append('diffusers changed nothing')
    for program, file in names.items():
        shutil.rmtree(out, ignore_errors=True)
        ckpt(a, 'convert', '-q', folder, out, '--to', 'hf', '--adapter', '%s:%g' % (file, weight))
        got = states(type(pipe).from_pretrained(out, torch_dtype=DTYPES[base]))
        problems += ['%s on %s, %s: %s' % (kind, base, program, k) for k in unlike(want, got)[:3]]
    return problems


def pipeline(a, tmp):
    """All tensors of a saved pipeline; a component in another dtype and in shards."""
    pipe, folder, one = small_pipeline('sd'), os.path.join(tmp, 'pipe'), os.path.join(tmp, 'one.safetensors')
    pipe.save_pretrained(folder)
    ckpt(a, 'convert', '-qf', folder, one, '--to', 'safetensors')
    problems = ['pipeline: ' + k for k in same(states(pipe), load_file(one))[:3]]
    ckpt(a, 'convert', '-qf', os.path.join(folder, 'unet'), os.path.join(tmp, 'unet'), '--to', 'hf', '--dtype', 'bf16', '--max-shard-size', '1MB')
    unet16 = diffusers.UNet2DConditionModel.from_pretrained(os.path.join(tmp, 'unet'), torch_dtype=torch.bfloat16)
    return problems + ['unet: ' + k for k in same({k: v.bfloat16() for k, v in pipe.unet.state_dict().items()}, unet16.state_dict())[:3]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--bin', required=True)
    parser.add_argument('diffusers')
    parser.add_argument('name', nargs='*')
    a = parser.parse_args()
    sys.path.append(a.diffusers)
    global diffusers, transformers, peft, pipelines, convert_unet_state_dict_to_peft, convert_state_dict_to_peft, convert_state_dict_to_diffusers
    global _collate_lora_metadata
    import diffusers
    import peft
    import transformers
    from diffusers.loaders import lora_pipeline as pipelines
    from diffusers.training_utils import _collate_lora_metadata
    from diffusers.utils import convert_state_dict_to_diffusers, convert_state_dict_to_peft, convert_unet_state_dict_to_peft
    tally = Tally()
    with scratch() as tmp:
        for family in a.name or mine(FAMILIES):
            tally.call('%s: all names' % family, every_name, a, family, tmp)
            tally.call('%s: outputs' % family, computed, a, family, tmp)
            tally.call('%s: saved by diffusers' % family, saved, a, family, tmp)
            tally.call('%s: written pipelines' % family, written, a, family, tmp)
            for base, kind, weight in (('f32', 'f32', 1), ('f16', 'f16', 1), ('bf16', 'bf16', 0.7), ('f16', 'f32', 1), ('f32', 'f16', -0.3)):
                tally.call('%s: LoRA of %s on %s' % (family, kind, base), into, a, family, tmp, base, kind, weight)
            if family == 'sd':
                tally.call('sd: pipeline', pipeline, a, tmp)
            if family == 'flux':
                tally.call('flux: block-diagonal', computed, a, 'flux', tmp, ('qkv', 'linear1'))
    return tally.end('diffusion models')


if __name__ == '__main__':
    sys.exit(main())
