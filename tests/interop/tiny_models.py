# SPDX-License-Identifier: Apache-2.0
"""Tiny models of the architectures that transformers knows: its default configurations with fewer layers, experts and channels.

    classes()           model type -> names of the classes that AutoModel and its kin make of it
    build(type, class)  (model without values, its configuration); RuntimeError: none that is small enough
"""
import copy
import os
import re
import warnings

os.environ.setdefault('CUDA_VISIBLE_DEVICES', '')
warnings.filterwarnings('ignore')
import torch
import transformers
from transformers import CONFIG_MAPPING
from transformers.conversion_mapping import get_checkpoint_conversion_mapping
from transformers.models.auto import modeling_auto

transformers.logging.set_verbosity_error()

LAYERS = re.compile(r'^(num_(hidden_|encoder_|decoder_|kv_|block_|transformer_)?layers|n_layers?|(encoder|decoder)_layers|depth'
                    r'|num_.*_layers|.*_depth|num_blocks|n_blocks)$')
WIDTH = re.compile(r'size|dim|width|channels?|hidden|rank|d_model|d_ff|d_kv|n_embd|n_inner|ffn|filters|features|d_state|units|inner'
                   r'|intermediate|embed|proj')
OTHER = re.compile(r'image|patch|window|kernel|chunk|grid|pool|stride|vocab|batch|crop|num_|n_head|_id$|_index$|tile|mel|bins|sample'
                   r'|attention_heads|conv_size|group_size|merge_size|block_size')
DROP = {'torch_dtype', 'dtype', 'transformers_version', 'architectures', '_name_or_path', 'out_features', 'out_indices', 'stage_names',
        '_out_features', '_out_indices'}
# what default configurations leave open
OPEN = {'moe_intermediate_size': 16, 'vocab_size': 160, 'n_routed_experts': 4, 'num_experts': 4, 'head_dim': 16, 'n_shared_experts': 1,
        'num_experts_per_tok': 2, 'first_k_dense_replace': 1}

# defaults that are of no model
WRONG = {'aya_vision': {'vision_config': {'num_attention_heads': 16, 'model_type': 'siglip_vision_model'}},
         'lfm2_moe': {'layer_types': ['conv', 'full_attention', 'conv', 'conv', 'full_attention'], 'num_hidden_layers': 5, 'num_dense_layers': 1}}

# parts that a configuration names by word alone
HIDDEN = {k: ['clip_vision_model', 'CLIPVisionModel', 'vit', 'ViTModel'] for k in
          ('vision-encoder-decoder', 'vision-text-dual-encoder', 'colpali', 'altclip', 'shieldgemma2', 'zoedepth', 'depth_anything')}


def classes():
    out = {}
    for name in dir(modeling_auto):
        if name.startswith('MODEL') and name.endswith('_NAMES'):
            for kind, some in getattr(modeling_auto, name).items():
                for one in some if isinstance(some, (tuple, list)) else [some]:
                    if one and one not in out.setdefault(kind, []):
                        out[kind].append(one)
    return out


def parts(config):
    """The model types of a configuration and of its parts."""
    yield config.model_type
    for part in (getattr(config, 'sub_configs', None) or {}).values():
        if isinstance(part, type) and hasattr(part, 'model_type'):
            yield from parts(part)


def renamed():
    """Those classes of which save_pretrained may write other names, or whose experts may be stacked."""
    out = {}
    for kind, names in sorted(classes().items()):
        config = CONFIG_MAPPING[kind]
        types = [kind, *parts(config)]
        with_experts = any(re.search('experts', k) for k in [*getattr(config, '__annotations__', {}), *vars(config)])
        for name in names:
            known = any(get_checkpoint_conversion_mapping(t) for t in [*types, name, *HIDDEN.get(kind, ())])
            if known or with_experts:
                out.setdefault(kind, []).append(name)
    return out


def whole(v):
    return isinstance(v, int) and not isinstance(v, bool)


def plain(v, n):
    return isinstance(v, list) and len(v) == n and all(isinstance(x, (str, int, float)) for x in v)


def layers_of(config):
    """How many layers there are, and up to four of them that have every kind; None: a few, of one kind."""
    for key, n in config.items():
        lists = [v for v in config.values() if whole(n) and n > 4 and plain(v, n)] if LAYERS.match(key) else []
        if lists:
            first = {tuple(str(v[i]) for v in lists): i for i in reversed(range(n))}
            return n, sorted(first.values())[:4] if len(first) > 1 else [0, 1]
    return None


def smaller(key, v, factor, kept):
    if LAYERS.match(key):
        return len(kept[1]) if kept and kept[0] == v else min(v, 2)
    if key in ('n_group', 'topk_group', 'num_expert_group'):
        return 1
    if key in ('first_k_dense_replace', 'moe_layer_start_index'):
        return min(v, 1)
    if re.search(r'experts$|^num_experts', key):
        return min(v, 4)
    if re.search(r'experts_per_tok|top_?k', key):
        return min(v, 2)
    if 'vocab' in key and v > 256:
        return 160
    if re.search(r'_(id|index)$', key) and v >= 160:
        return 1
    if re.search(r'max_.*positions?|n_positions', key) and v > 64:
        return 64
    return max(v // factor, 4) if v >= 64 and WIDTH.search(key) and not OTHER.search(key) else v


def shrink(config, factor, open_too):
    kept, out = layers_of(config), {}
    for key, v in config.items():
        if key in DROP:
            continue
        if key == 'per_layer_config' and kept and isinstance(v, dict):
            v = {j: v.get(i, v.get(str(i))) for j, i in enumerate(kept[1]) if i in v or str(i) in v}
        elif isinstance(v, dict) and key not in ('id2label', 'label2id', 'rope_parameters', 'rope_scaling'):
            v = shrink(v, factor, open_too)
        elif v is None and open_too and key in OPEN:
            v = OPEN[key]
        elif whole(v):
            v = smaller(key, v, factor, kept)
        elif kept and plain(v, kept[0]):
            v = [v[i] for i in kept[1]]
        elif isinstance(v, list) and v and all(whole(x) and x >= 64 for x in v) and WIDTH.search(key) and not OTHER.search(key):
            v = [max(x // factor, 4) for x in v]
        out[key] = v
    return out


def build(kind, name, limit=4_000_000, factors=(32, 16, 8, 4, 2, 1)):
    cls, config = getattr(transformers, name), CONFIG_MAPPING[kind]
    config = cls.config_class if isinstance(getattr(cls, 'config_class', None), type) else config
    base, why = config().to_dict(), 'too large'
    for key, v in WRONG.get(kind, {}).items():
        base[key] = dict(base[key], **v) if isinstance(v, dict) else v
    for open_too in (False, True):
        for factor in factors:
            try:
                own = config(**shrink(copy.deepcopy(base), factor, open_too))
                with torch.device('meta'):
                    model = cls(own)
            except Exception as e:  # whatever a class finds wrong with its configuration
                why = '%s: %s' % (type(e).__name__, str(e)[:150])
                continue
            if sum(p.numel() for p in model.parameters()) <= limit:
                own.architectures = [name]
                return model, own
            why = 'too large'
    raise RuntimeError(why)
