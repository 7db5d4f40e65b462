# SPDX-License-Identifier: Apache-2.0
"""Gemma 2 and 3 for Megatron-Core, which has no norms behind attention and MLP, no caps of scores and logits, and one rotary embedding.

model(args, size) is a GPTModel of Megatron-Core's local layers with these parts, as the arguments of a checkpoint say.  The names of
its parameters are those of Megatron-Bridge's modules.
"""
import torch
from megatron.core import parallel_state as ps
from megatron.core.models.common.embeddings import RotaryEmbedding
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.tensor_parallel import RowParallelLinear
from megatron.core.transformer.attention import SelfAttention
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from megatron.core.transformer.transformer_config import TransformerConfig


class Norm(torch.nn.Module):
    """RMSNorm around 0."""

    def __init__(self, config, hidden_size, eps=1e-6):
        super().__init__()
        self.weight, self.eps = torch.nn.Parameter(torch.zeros(hidden_size)), eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * (1 + self.weight)


class NormedLinear(RowParallelLinear):
    def __init__(self, input_size, output_size, *, config, **k):
        super().__init__(input_size, output_size, config=config, **k)
        self.post_layernorm = Norm(config, output_size, config.layernorm_epsilon)

    def forward(self, x):
        out, bias = super().forward(x)
        return self.post_layernorm(out), bias


def has_window(config, layer):
    """True for a layer (from 1) that sees only the tokens before it."""
    pattern = getattr(config, 'interleaved_attn_pattern', [1, 1])
    return layer % sum(pattern) != 0


class Scores(torch.nn.Module):
    """The attention itself, with one rank's heads."""

    def __init__(self, config, layer_number, **_):
        super().__init__()
        self.scale, self.cap = config.gemma['query_pre_attn_scalar'] ** -0.5, config.gemma.get('attn_logit_softcapping')
        window = config.gemma['window_size']
        window = window[0] + 1 if isinstance(window, list) else window
        self.window = window if has_window(config, layer_number) else None

    def forward(self, query, key, value, mask, **_):    # each of [tokens, batch, heads, size]
        n = query.shape[2] // key.shape[2]
        key, value = key.repeat_interleave(n, 2), value.repeat_interleave(n, 2)
        scores = torch.einsum('sbhd,tbhd->bhst', query, key) * self.scale
        scores = self.cap * torch.tanh(scores / self.cap) if self.cap else scores
        at = torch.arange(query.shape[0])
        mask = mask | (at[:, None] - at >= self.window) if self.window else mask
        return torch.einsum('bhst,tbhd->sbhd', scores.masked_fill(mask, float('-inf')).softmax(-1), value).flatten(2)


class Attention(SelfAttention):
    """With the rotary embedding of its layer."""

    def __init__(self, config, submodules, layer_number, *a, **k):
        super().__init__(config, submodules, layer_number, *a, **k)
        base, stretch = config.gemma['rotary_base'], config.gemma.get('rope_scaling_factor', 1.0)
        local = has_window(config, layer_number)
        base, stretch = (base, None) if not isinstance(base, list) else (base[0], None) if local else (base[1], stretch)
        self.__dict__['turns'] = RotaryEmbedding(config.kv_channels, 1.0, rotary_base=base, seq_len_interpolation_factor=stretch, use_cpu_initialization=True)

    def forward(self, x, *a, rotary_pos_emb=None, **k):
        return super().forward(x, *a, rotary_pos_emb=self.turns(x.shape[0]), **k)


def model(args, size):
    config = TransformerConfig(
        num_layers=args['num_layers'], hidden_size=args['hidden_size'], ffn_hidden_size=args['ffn_hidden_size'],
        num_attention_heads=args['num_attention_heads'], num_query_groups=args['num_query_groups'], kv_channels=args['kv_channels'],
        normalization='RMSNorm', layernorm_epsilon=args['norm_epsilon'], gated_linear_unit=args['gated_linear_unit'],
        activation_func=lambda x: torch.nn.functional.gelu(x, approximate='tanh'), add_bias_linear=args['add_bias_linear'],
        qk_layernorm=args['qk_layernorm'], hidden_dropout=0.0, attention_dropout=0.0, use_cpu_initialization=True, pipeline_dtype=torch.float32,
        bias_activation_fusion=False, bias_dropout_fusion=False, masked_softmax_fusion=False, apply_rope_fusion=False,
        gradient_accumulation_fusion=False, persist_layer_norm=False, tensor_model_parallel_size=size['tp'], pipeline_model_parallel_size=size['pp'])
    config.gemma = args
    config.interleaved_attn_pattern = args.get('interleaved_attn_pattern', [1, 1])
    layer = get_gpt_layer_local_spec(qk_layernorm=config.qk_layernorm, normalization='RMSNorm')
    parts = layer.submodules
    parts.input_layernorm = parts.pre_mlp_layernorm = Norm
    parts.self_attention.module, parts.mlp.submodules.linear_fc2 = Attention, NormedLinear
    own = parts.self_attention.submodules
    own.linear_proj, own.core_attention = NormedLinear, Scores
    own.q_layernorm = own.k_layernorm = Norm if config.qk_layernorm else own.q_layernorm
    made = GPTModel(config, TransformerBlockSubmodules(layer_specs=[layer] * (args['num_layers'] // size['pp']), layer_norm=Norm), vocab_size=args['padded_vocab_size'],
                    max_sequence_length=32, pre_process=ps.is_pipeline_first_stage(), post_process=ps.is_pipeline_last_stage(),
                    share_embeddings_and_output_weights=True, parallel_output=False, position_embedding_type='rope')
    cap = args.get('final_logit_softcapping')
    if made.pre_process:
        made.embedding.register_forward_hook(lambda _, a, out: out * args['hidden_size'] ** 0.5)
    if made.post_process and cap:
        made.register_forward_hook(lambda _, a, out: cap * torch.tanh(out / cap))
    return made
