#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Megatron-Core loads what `ckpt --to megatron` writes, on CPUs.

    mcore.py --bin BUILD_BIN CORE...     CORE: a folder with megatron-core, one version each

Small models of transformers become torch_dist checkpoints.  On four processes (gloo), megatron.core.dist_checkpointing.load fills a
GPTModel of the local layers under each parallel layout: the logits must be those of transformers.  So must they be if each process
fills its model with its own file of `ckpt --to megatron-legacy`.  Newer models are built from the arguments in the files alone.  From 0.16 on, the distributed optimizer takes a ZeRO run's masters and moments, each rank its
part, and trains on: its next losses are DeepSpeed's.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

# of four processes; what remains are data-parallel ranks
LAYOUTS = {'llama': [{}, {'tp': 2}, {'tp': 2, 'pp': 2}], 'mixtral': [{'ep': 2}, {'ep': 2, 'tp': 2}], 'gpt2': [{'tp': 4}, {'pp': 2}],
           'deepseek_v3': [{'tp': 2}, {'pp': 2}, {'ep': 2}], 'deepseek_v3_plain': [{}], 'deepseek_v2': [{'tp': 2}],
           'gpt_oss': [{'pp': 2}, {'ep': 2}], 'gemma2': [{'tp': 2}], 'gemma3': [{'pp': 2}]}
# the same with a file for each rank
RANKS = {'llama': [{'tp': 2, 'pp': 2}], 'mixtral': [{'ep': 2, 'tp': 2}], 'gpt2': [{'tp': 2, 'pp': 2}], 'deepseek_v3': [{'pp': 2, 'ep': 2}],
         'gpt_oss': [{'pp': 2, 'ep': 2}], 'gemma3': [{'tp': 2}]}
SIZES = {'tp': 'tensor', 'pp': 'pipeline', 'ep': 'expert'}
PROCESSES, SOURCES = 4, 2
LIMIT = 1e-5
# a run of DeepSpeed that goes on in Megatron: its vocabulary needs no padding, whose rows would take part in Megatron's loss
VOCAB, LR, BETAS, SAVED, TRAINED, NEXT = 64, 0.02, (0.9, 0.95), 3, 3, 5e-7
RUN = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'fixtures', 'hf_trainer_llama_z3_bf16_w2', 'ckpt')


def gpt_oss():
    """A configuration with three layers in which windows and clamps have an effect."""
    import transformers as t
    return t.GptOssConfig(vocab_size=61, hidden_size=32, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
                          intermediate_size=24, num_local_experts=4, num_experts_per_tok=2, sliding_window=3, max_position_embeddings=64, swiglu_limit=0.2,
                          rope_parameters={'rope_type': 'yarn', 'rope_theta': 5000.0, 'factor': 4.0, 'beta_fast': 32.0, 'beta_slow': 1.0, 'truncate': False,
                                           'original_max_position_embeddings': 16})


def gemma(kind):
    """A configuration with windows, caps and rotary embeddings that have an effect."""
    import transformers as t
    base = {'vocab_size': 61, 'hidden_size': 32, 'num_hidden_layers': 4, 'num_attention_heads': 4, 'num_key_value_heads': 2, 'head_dim': 8,
            'intermediate_size': 24, 'sliding_window': 3, 'max_position_embeddings': 64, 'query_pre_attn_scalar': 12}
    if kind == 'gemma2':
        return t.Gemma2Config(**base, attn_logit_softcapping=0.5, final_logit_softcapping=0.7)
    return t.Gemma3TextConfig(**base, sliding_window_pattern=2, rope_parameters={
        'full_attention': {'rope_type': 'linear', 'factor': 4.0, 'rope_theta': 50000.0}, 'sliding_attention': {'rope_type': 'default', 'rope_theta': 500.0}})


def by_kind(kind):
    """A configuration with stretched positions, compressed queries and groups of experts, or one without."""
    import transformers as t
    if kind == 'gpt_oss':
        return gpt_oss()
    if kind.startswith('gemma'):
        return gemma(kind)
    base = {'vocab_size': 61, 'hidden_size': 32, 'num_hidden_layers': 4, 'num_attention_heads': 4, 'num_key_value_heads': 4,
            'intermediate_size': 24, 'max_position_embeddings': 64, 'kv_lora_rank': 16, 'qk_rope_head_dim': 8, 'qk_nope_head_dim': 12,
            'v_head_dim': 10, 'n_routed_experts': 8, 'n_shared_experts': 2, 'moe_intermediate_size': 20, 'num_experts_per_tok': 4}
    yarn = {'rope_type': 'yarn', 'rope_theta': 5000.0, 'factor': 4.0, 'original_max_position_embeddings': 16, 'beta_fast': 32, 'beta_slow': 1,
            'mscale': 0.9, 'mscale_all_dim': 0.7}
    if kind == 'deepseek_v3':
        return t.DeepseekV3Config(**base, q_lora_rank=12, n_group=4, topk_group=2, first_k_dense_replace=1, rope_parameters=yarn)
    if kind == 'deepseek_v3_plain':
        return t.DeepseekV3Config(**base, q_lora_rank=None, n_group=1, topk_group=1, first_k_dense_replace=2, routed_scaling_factor=1.5)
    return t.DeepseekV2Config(**base, q_lora_rank=12, routed_scaling_factor=2.0, rope_parameters={**yarn, 'mscale': 0.7})


def tiny(kind, folder):
    import torch
    import transformers as t
    torch.manual_seed(3)
    base = {'vocab_size': 61, 'hidden_size': 32, 'num_hidden_layers': 2, 'num_attention_heads': 4, 'num_key_value_heads': 2,
            'intermediate_size': 24, 'max_position_embeddings': 32}
    config = {'llama': lambda: t.LlamaConfig(**base), 'mixtral': lambda: t.MixtralConfig(**base, num_local_experts=4, sliding_window=None),
              'gpt2': lambda: t.GPT2Config(vocab_size=61, n_embd=32, n_layer=2, n_head=4, n_positions=32)}.get(kind, lambda: by_kind(kind))()
    model = t.AutoModelForCausalLM.from_config(config).float()
    for name, p in [*model.named_parameters(), *model.named_buffers()]:    # norms and biases too, which begin as ones and zeros
        if not name.endswith('inv_freq'):
            p.data += torch.randn_like(p) * 0.05
    model.save_pretrained(folder)


def on_cpu(make):
    def made(*a, **k):
        if str(k.get('device')).startswith('cuda'):
            k['device'] = 'cpu'
        return make(*a, **k)
    return made


def shims(core):
    """What Megatron-Core needs of a GPU."""
    import contextlib
    import torch
    sys.path.insert(0, core)

    class Stream:
        def __init__(self, *a, **k):
            pass

        def __getattr__(self, name):
            return lambda *a, **k: None
    cuda = torch.cuda
    cuda.current_device = lambda: 'cpu'
    cuda.Stream = cuda.Event = Stream
    cuda.current_stream = cuda.default_stream = lambda *a, **k: Stream()
    cuda.stream = lambda *a, **k: contextlib.nullcontext()
    cuda.synchronize = lambda *a, **k: None
    torch.Tensor.cuda = lambda self, *a, **k: self
    import megatron.core.tensor_parallel.random as r
    r.CudaRNGStatesTracker.fork = lambda self, name=None: contextlib.nullcontext()
    import megatron.core.transformer.moe.moe_utils as m
    m.te_general_gemm = getattr(m, 'te_general_gemm', None)
    import megatron.core.transformer.multi_latent_attention as mla
    mla.HAVE_TE = False    # it is not there, although its import does not fail


def build(c, size, dtype):
    """A GPTModel like the model of a config.json."""
    import torch
    from megatron.core import parallel_state as ps
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.transformer_config import TransformerConfig
    gpt2, experts, f = c['model_type'] == 'gpt2', c.get('num_local_experts'), torch.nn.functional
    heads, hidden = c.get('num_attention_heads') or c['n_head'], c.get('hidden_size') or c['n_embd']
    inner = c.get('intermediate_size') or c.get('n_inner') or 4 * hidden
    moe = {'num_moe_experts': experts, 'moe_router_topk': c['num_experts_per_tok'], 'moe_ffn_hidden_size': inner,
           'moe_token_dispatcher_type': 'allgather', 'moe_router_load_balancing_type': 'none'} if experts else {}
    config = TransformerConfig(
        num_layers=c.get('num_hidden_layers') or c['n_layer'], hidden_size=hidden, num_attention_heads=heads, ffn_hidden_size=inner,
        num_query_groups=c.get('num_key_value_heads') or heads, normalization='LayerNorm' if gpt2 else 'RMSNorm', gated_linear_unit=not gpt2,
        activation_func=(lambda x: f.gelu(x, approximate='tanh')) if gpt2 else f.silu, add_bias_linear=gpt2,
        layernorm_epsilon=c.get('rms_norm_eps') or c['layer_norm_epsilon'], hidden_dropout=0.0, attention_dropout=0.0, use_cpu_initialization=True,
        params_dtype=dtype, pipeline_dtype=dtype, bf16=dtype == torch.bfloat16, bias_activation_fusion=False, bias_dropout_fusion=False,
        masked_softmax_fusion=False, apply_rope_fusion=False, gradient_accumulation_fusion=False, persist_layer_norm=False,
        tensor_model_parallel_size=size['tp'], pipeline_model_parallel_size=size['pp'], expert_model_parallel_size=size['ep'], **moe)
    return GPTModel(config, get_gpt_layer_local_spec(num_experts=experts, normalization=config.normalization), vocab_size=size['vocab'],
                    max_sequence_length=32, pre_process=ps.is_pipeline_first_stage(), post_process=ps.is_pipeline_last_stage(),
                    share_embeddings_and_output_weights=c.get('tie_word_embeddings', gpt2), parallel_output=False,
                    position_embedding_type='learned_absolute' if gpt2 else 'rope', rotary_base=(c.get('rope_parameters') or c).get('rope_theta', 10000))


def latent_attention():
    """The attention itself, which Megatron-Core has only in Transformer Engine if keys and values differ in size."""
    import torch

    class Attention(torch.nn.Module):
        def __init__(self, softmax_scale, **_):
            super().__init__()
            self.scale = softmax_scale

        def forward(self, query, key, value, mask, **_):    # each of [tokens, batch, heads, size]
            scores = torch.einsum('sbhd,tbhd->bhst', query, key) * self.scale
            out = torch.einsum('bhst,tbhd->sbhd', scores.masked_fill(mask, float('-inf')).softmax(-1), value)
            return out.flatten(2)
    return Attention


# Megatron-LM's arguments with another name in the configuration of Megatron-Core
RENAMED = {'num_experts': 'num_moe_experts', 'norm_epsilon': 'layernorm_epsilon', 'swiglu': 'gated_linear_unit',
           'apply_layernorm_1p': 'layernorm_zero_centered_gamma'}


def ranks_folder(kind, sizes):
    return kind + ''.join('.%s%d' % size for size in sizes.items())


def rank_file(folder):
    """What Megatron-LM loads on this rank from a folder with files for ranks."""
    import torch
    from megatron.core import parallel_state as ps
    name = 'mp_rank_%02d' % ps.get_tensor_model_parallel_rank()
    if ps.get_pipeline_model_parallel_world_size() > 1:
        name += '_%03d' % ps.get_pipeline_model_parallel_rank()
    if ps.get_expert_model_parallel_world_size() > 1:
        name += '_%03d' % ps.get_expert_model_parallel_rank()
    # Megatron-Core 0.16 allows it, earlier versions load without weights_only
    torch.serialization.add_safe_globals([argparse.Namespace])
    return torch.load(os.path.join(folder, name, 'model_optim_rng.pt'), map_location='cpu', weights_only=True)


def by_arguments(folder, size):
    """The GPTModel that the arguments of a checkpoint describe."""
    import dataclasses
    import torch
    from megatron.core import parallel_state as ps
    from megatron.core.fusions.fused_bias_geglu import quick_gelu
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
    from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig
    common = os.path.join(folder, 'common.pt')
    args = vars((torch.load(common, weights_only=False) if os.path.exists(common) else rank_file(folder))['args'])
    if 'query_pre_attn_scalar' in args:
        import mcore_gemma
        return mcore_gemma.model(args, size)
    latent, quick = args.get('multi_latent_attention'), args.get('quick_geglu', False)
    kind = MLATransformerConfig if latent else TransformerConfig
    known = {f.name for f in dataclasses.fields(kind)}
    given = {RENAMED.get(k, k): v for k, v in args.items() if RENAMED.get(k, k) in known}
    config = kind(**{
        **given, 'activation_func': quick_gelu if quick else torch.nn.functional.silu, 'gated_linear_unit': quick or args['swiglu'],
        'hidden_dropout': 0.0, 'attention_dropout': 0.0, 'use_cpu_initialization': True, 'pipeline_dtype': torch.float32,
        'bias_activation_fusion': False, 'bias_dropout_fusion': False, 'masked_softmax_fusion': False, 'apply_rope_fusion': False,
        'gradient_accumulation_fusion': False, 'persist_layer_norm': False, 'moe_token_dispatcher_type': 'allgather',
        'moe_router_load_balancing_type': 'none', 'tensor_model_parallel_size': size['tp'], 'pipeline_model_parallel_size': size['pp'],
        'expert_model_parallel_size': size['ep']})
    for name, value in args.items():    # which its configuration takes without a field for them
        if name.startswith('yarn_'):
            setattr(config, name, value)
    spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization='RMSNorm')
    for layer in spec.layer_specs if latent else []:
        layer.submodules.self_attention.submodules.core_attention = latent_attention()
    return GPTModel(config, spec, vocab_size=args['padded_vocab_size'], max_sequence_length=32, pre_process=ps.is_pipeline_first_stage(),
                    post_process=ps.is_pipeline_last_stage(), share_embeddings_and_output_weights=not args['untie_embeddings_and_output_weights'],
                    parallel_output=False, position_embedding_type=args['position_embedding_type'], rotary_base=args['rotary_base'])


def logits(model, pp, hidden):
    """The logits of one sequence, on the last stage; None elsewhere."""
    import torch
    import torch.distributed as dist
    from megatron.core import parallel_state as ps
    ids, mask = torch.arange(8)[None], torch.triu(torch.ones(1, 1, 8, 8, dtype=torch.bool), 1)
    with torch.no_grad():
        if pp > 1 and not ps.is_pipeline_first_stage():
            x = torch.empty(8, 1, hidden)
            dist.recv(x, ps.get_pipeline_model_parallel_prev_rank())
            model.set_input_tensor(x)
        out = model(ids, ids, mask)
        if pp > 1 and ps.is_pipeline_first_stage():
            dist.send(out.contiguous(), ps.get_pipeline_model_parallel_next_rank())
            return None
    return out


def load(folder, hf, sizes):
    """Load a checkpoint under a layout; a problem, or ''."""
    import torch
    from megatron.core import dist_checkpointing, parallel_state as ps
    with open(os.path.join(hf, 'config.json'), encoding='utf-8') as f:
        c = json.load(f)
    size = {'tp': 1, 'pp': 1, 'ep': 1, 'vocab': 128, **sizes}
    ps.initialize_model_parallel(tensor_model_parallel_size=size['tp'], pipeline_model_parallel_size=size['pp'], expert_model_parallel_size=size['ep'])
    model = (by_arguments(folder, size) if c['model_type'] not in ('llama', 'mixtral', 'gpt2') else build(c, size, torch.float32)).eval()
    for p in model.parameters():
        p.data.fill_(7.0)
    if os.path.exists(os.path.join(folder, 'common.pt')):
        got = dist_checkpointing.load({'model': model.sharded_state_dict()}, folder)
    else:
        got, want = rank_file(folder), {'tensor': size['tp'], 'pipeline': size['pp'], 'expert': size['ep']}
        found = {k: getattr(got['args'], k + '_model_parallel_size') for k in want}
        if found != want or got['checkpoint_version'] < 3 or got['iteration'] != 0:
            return 'the file of this rank states other sizes: %s' % found
    model.load_state_dict(got['model'], strict=True)
    ones, torch.ones = torch.ones, on_cpu(torch.ones)    # masks of windows; transformers below needs the real one
    out = logits(model, size['pp'], c.get('hidden_size') or c.get('n_embd'))
    torch.ones = ones
    ps.destroy_model_parallel()
    if out is None:
        return ''
    from transformers import AutoModelForCausalLM
    with torch.no_grad():
        want = AutoModelForCausalLM.from_pretrained(hf, attn_implementation='eager').eval()(torch.arange(8)[None]).logits
    off = (out[..., :c['vocab_size']] - want).abs().max().item()
    return '' if off <= LIMIT * max(1, want.abs().max().item()) else 'logits off by %.2g' % off


def stacked(name):
    """A local parameter's name in a checkpoint, and its layer or None."""
    above, dot, below = name.partition('.layers.')
    if not dot:
        return name, None
    layer, _, rest = below.partition('.')
    for local, own in (('input_layernorm.', 'self_attention.linear_qkv.layer_norm_'), ('pre_mlp_layernorm.', 'mlp.linear_fc1.layer_norm_')):
        rest = rest.replace(local, own)
    return '%s.layers.%s' % (above, rest), int(layer)


def start(c, dtype, vocab, tp, **settings):
    """A model and its distributed optimizer, with a state to load into."""
    import torch
    from megatron.core import parallel_state as ps
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    ps.initialize_model_parallel(tensor_model_parallel_size=tp)
    model = build(c, {'tp': tp, 'pp': 1, 'ep': 1, 'vocab': vocab}, dtype)
    wrapped = DistributedDataParallel(model.config, DistributedDataParallelConfig(use_distributed_optimizer=True), model)
    config = OptimizerConfig(optimizer='adam', bf16=dtype == torch.bfloat16, params_dtype=dtype, use_distributed_optimizer=True, clip_grad=0.0, **settings)
    whole = get_megatron_optimizer(config, [wrapped])
    inner = whole.chained_optimizers[0].optimizer
    for group in inner.param_groups:    # a first step, so that there is a state to load
        for p in group['params']:
            p.grad = torch.zeros_like(p)
    inner.step()
    return model, wrapped, whole


def resume(model, whole, folder):
    """Load a run's model and optimizer, as Megatron-LM does; the optimizer, and all that was loaded."""
    from megatron.core import dist_checkpointing
    meta = {'distrib_optim_sharding_type': 'fully_reshardable', 'chained_optim_avoid_prefix': True, 'singleton_local_shards': False}
    asked = {'model': model.sharded_state_dict()}
    asked['optimizer'] = whole.sharded_state_dict(asked['model'], is_loading=True, metadata=meta)
    got = dist_checkpointing.load(asked, folder)
    model.load_state_dict(got['model'], strict=True)
    # Without a GPU, Megatron trains by torch's AdamW, whose step count is a tensor for each parameter.  Megatron fills it from the groups
    # and then looks for it among the file's tensors (KeyError 'step'), also in files of its own; and it gives all parameters one and the
    # same tensor, which every parameter then increments.  Here each parameter keeps a copy of the count that Megatron took from the groups.
    one = whole.chained_optimizers[0]
    put = one._set_main_param_and_optimizer_states

    def keep(param, tensors):
        at, order = one.model_param_group_index_map[param]
        state = one.optimizer.state[one.optimizer.param_groups[at]['params'][order]]
        state['step'] = state['step'].clone()
        put(param, {'step': state['step'].clone(), **tensors})
    one._set_main_param_and_optimizer_states = keep
    whole.load_state_dict(got['optimizer'])
    return one, got


def optimizer(work):
    """Load a ZeRO run into the distributed optimizer; a problem, or ''."""
    import torch
    from megatron.core import parallel_state as ps
    from safetensors.torch import load_file
    with open(os.path.join(RUN, 'config.json'), encoding='utf-8') as f:
        c = json.load(f)
    model, _, whole = start(c, torch.bfloat16, 128, 1, lr=0.01)
    one, _ = resume(model, whole, os.path.join(work, 'run', 'iter_0000004'))
    want, n = load_file(os.path.join(work, 'want.safetensors')), 0
    for local, p in model.named_parameters():
        name, layer = stacked(local)
        if p not in one.model_param_gbuf_map:
            continue
        have, part = one._get_main_param_and_optimizer_states(p), one._get_model_param_range_map(p)['param']
        if have['step'] != 4:
            return 'step %s of %s' % (have['step'], local)
        for kind, key in (('param', name), ('exp_avg', 'exp_avg/' + name), ('exp_avg_sq', 'exp_avg_sq/' + name)):
            value = want[key] if layer is None else want[key][layer]
            if not torch.equal(have[kind].flatten(), value.flatten()[part.start:part.end]):
                return '%s of %s' % (kind, local)
            n += 1
    ps.destroy_model_parallel()
    return '' if n else 'the rank has no parameters'


def batch(step, rank):
    """The tokens of a rank in a step."""
    import torch
    return torch.randint(0, VOCAB, (2, 12), generator=torch.Generator().manual_seed(100 * step + rank))


def source(work):
    """One process of DeepSpeed: train, save, train on, and write the losses of the last steps."""
    import deepspeed
    import torch
    import torch.distributed as dist
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(5)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                         intermediate_size=24, max_position_embeddings=32, attn_implementation='eager'))
    groups = [{'params': [p for p in model.parameters() if (p.ndim > 1) == decays], 'weight_decay': 0.1 if decays else 0.0} for decays in (True, False)]
    config = {'train_micro_batch_size_per_gpu': 2, 'zero_optimization': {'stage': 2}, 'gradient_clipping': 0.0, 'zero_allow_untested_optimizer': True}
    engine = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(groups, lr=LR, betas=BETAS), config=config, dist_init_required=True)[0]
    losses = []
    for step in range(SAVED + TRAINED):
        if step == SAVED:
            engine.save_checkpoint(os.path.join(work, 'zero'))
        loss = engine(input_ids=batch(step, dist.get_rank()), labels=batch(step, dist.get_rank())).loss
        engine.backward(loss)
        engine.step()
        losses.append(loss.detach())
    losses = torch.stack(losses[SAVED:])
    dist.all_reduce(losses)
    if dist.get_rank() == 0:
        model.config.save_pretrained(os.path.join(work, 'zero'))
        with open(os.path.join(work, 'losses.json'), 'w', encoding='utf-8') as f:
            json.dump((losses / dist.get_world_size()).tolist(), f)
    return 0


def train(work):
    """Go on with DeepSpeed's run; a problem, or ''."""
    import torch
    import torch.distributed as dist
    from megatron.core import parallel_state as ps
    from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
    with open(os.path.join(work, 'zero', 'config.json'), encoding='utf-8') as f:
        c = json.load(f)
    with open(os.path.join(work, 'losses.json'), encoding='utf-8') as f:
        want = torch.tensor(json.load(f))
    model, wrapped, whole = start(c, torch.float32, VOCAB, PROCESSES // SOURCES, lr=LR, weight_decay=0.1, adam_beta1=BETAS[0], adam_beta2=BETAS[1])
    for p in model.parameters():
        p.data.fill_(7.0)
    _, got = resume(model, whole, os.path.join(work, 'on', 'iter_%07d' % SAVED))
    samples = got['args'].consumed_train_samples
    if samples != SAVED * SOURCES * 2:
        return '%d samples' % samples
    # it loads the learning rate; to the first step it applies the weight decay of its own options, in Megatron's files too
    schedule = OptimizerParamScheduler(whole, init_lr=0.0, max_lr=1.0, min_lr=0.5, lr_warmup_steps=0, lr_decay_steps=100, lr_decay_style='linear', start_wd=0.1,
                                       end_wd=0.1, wd_incr_steps=100, wd_incr_style='constant', use_checkpoint_opt_param_scheduler=True)
    schedule.load_state_dict(got['opt_param_scheduler'])
    losses = []
    for step in range(SAVED, SAVED + TRAINED):
        ids = batch(step, ps.get_data_parallel_rank())
        wrapped.zero_grad_buffer()
        whole.zero_grad()
        mask, at = torch.triu(torch.ones(1, 1, 11, 11, dtype=torch.bool), 1), torch.arange(11)[None].expand(2, 11)
        loss = torch.nn.functional.cross_entropy(wrapped(ids[:, :-1], at, mask).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        wrapped.finish_grad_sync()
        whole.step()
        schedule.step(SOURCES * 2)
        losses.append(loss.detach())
    losses = torch.stack(losses)
    dist.all_reduce(losses)
    off = ((losses / dist.get_world_size() - want) / want).abs().max().item()
    ps.destroy_model_parallel()
    return '' if off <= NEXT else 'next losses off by %.2g of them: %s, expected %s' % (off, losses / dist.get_world_size(), want)


def lacks(kind, sizes):
    """True for what Megatron-Core before 0.16 cannot build on a CPU: newer models, and experts in tensor parallel ranks."""
    import megatron.core
    old = megatron.core.__version__ < '0.16'
    return old and (kind not in ('llama', 'mixtral', 'gpt2') or {'ep', 'tp'} <= set(sizes))


def rank(core, work):
    """One process: every model under every layout."""
    shims(core)
    import torch
    import torch.distributed as dist
    import megatron.core
    dist.init_process_group('gloo')
    problems = 0
    for kind, layouts in LAYOUTS.items():
        for sizes in layouts:
            if lacks(kind, sizes):
                continue
            problem = load(os.path.join(work, kind + '.mcore', 'release'), os.path.join(work, kind), sizes)
            problems += bool(problem)
            if problem:
                print('FAIL %s %s %s: %s' % (megatron.core.__version__, kind, sizes, problem), flush=True)
    for kind, layouts in RANKS.items():
        for sizes in layouts:
            if lacks(kind, sizes):
                continue
            problem = load(os.path.join(work, ranks_folder(kind, sizes), 'release'), os.path.join(work, kind), sizes)
            problems += bool(problem)
            if problem:
                print('FAIL %s, a file for each rank, %s %s: %s' % (megatron.core.__version__, kind, sizes, problem), flush=True)
    if megatron.core.__version__ >= '0.16':
        for name in ('tensor', 'zeros', 'empty', 'full', 'ones'):
            setattr(torch, name, on_cpu(getattr(torch, name)))
        plain_type = torch.Tensor.type
        torch.Tensor.type = lambda self, *a, **k: plain_type(self, *a, **k) if a or k else plain_type(self).replace('torch.', 'torch.cuda.')
        for part in (optimizer, train):
            problem = part(work)
            problems += bool(problem)
            if problem:
                print('FAIL %s %s: %s' % (megatron.core.__version__, part.__name__, problem), flush=True)
    dist.destroy_process_group()
    return 1 if problems else 0


def processes(n, *words, script=__file__):
    """Run this file, or another, in n processes; what they have printed, or None if all went well."""
    command = [sys.executable, '-W', 'ignore', '-m', 'torch.distributed.run', '--standalone', '--nproc-per-node', str(n), os.path.abspath(script), *words]
    p = subprocess.run(command, capture_output=True, text=True,
                       env={**os.environ, 'OMP_NUM_THREADS': '1', 'GLOO_SOCKET_IFNAME': 'lo', 'CUDA_VISIBLE_DEVICES': '', 'DS_ACCELERATOR': 'cpu'})
    return '%s%s' % (p.stdout[-2000:], p.stderr[-6000:]) if p.returncode else None


def main():
    if sys.argv[1] == '--rank':
        return rank(*sys.argv[2:4])
    if sys.argv[1] == '--source':
        return source(sys.argv[2])
    ckpt, cores = os.path.join(sys.argv[2], 'ckpt'), sys.argv[3:]
    failed = 0
    with tempfile.TemporaryDirectory() as work:
        def to(verb, source, out, *more):
            subprocess.run([ckpt, verb, '-q', source, os.path.join(work, out), *more], check=True)
        for kind in LAYOUTS:
            tiny(kind, os.path.join(work, kind))
            to('convert', os.path.join(work, kind), kind + '.mcore', '--to', 'megatron')
            for sizes in RANKS.get(kind, []):
                cut = [word for k, n in sizes.items() for word in ('--%s-model-parallel-size' % SIZES[k], str(n))]
                to('convert', os.path.join(work, kind), ranks_folder(kind, sizes), '--to', 'megatron-legacy', '--layout', 'local',
                   '--make-vocab-size-divisible-by', str(128 // sizes.get('tp', 1)), *cut)
        to('reshard', RUN, 'run', '--to', 'megatron')
        to('convert', RUN, 'want.safetensors', '--with-optimizer', '--map', 'hf:megatron:torch_dist')
        problem = processes(SOURCES, '--source', work)
        if problem:
            print('FAIL DeepSpeed:\n' + problem)
            return 1
        to('reshard', os.path.join(work, 'zero'), 'on', '--to', 'megatron', '--make-vocab-size-divisible-by', str(VOCAB))
        for core in cores:
            problem = processes(PROCESSES, '--rank', core, work)
            failed += problem is not None
            if problem is not None:
                print('FAIL %s:\n%s' % (core, problem))
    print('Megatron-Core loads torch_dist checkpoints and files of ranks: %d versions, %d failed' % (len(cores), failed))
    return 1 if failed or not cores else 0


if __name__ == '__main__':
    sys.exit(main())
