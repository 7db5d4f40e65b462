#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write formats/hf/layer_names.c: the weights in the layers of each model type, as transformers makes them.

    layer_table.py [--update FILE] [MODEL_TYPE ...]

A name is needed if every model of the type has it: all classes, and the main class with each field of its configuration changed, as the hub
and as transformers in memory call it.  Types made of several models are left out; the types of their parts are rows of their own.
"""
import argparse
import copy
import json
import os
import re
import sys
import textwrap
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tiny_models as tiny
import torch
import transformers
from transformers import CONFIG_MAPPING
from transformers.core_model_loading import revert_weight_conversion

torch.set_num_threads(1)
MAIN = re.compile('ForCausalLM|LMHead|ForMaskedLM|ForConditionalGeneration|ForPreTraining')
LONGEST = 2000  # bytes of a list, beyond which it names the experts of one size of model
# what every configuration has, and the number of layers itself
KEPT = set(vars(transformers.PretrainedConfig())) | {
    'num_hidden_layers', 'n_layer', 'n_layers', 'num_layers', 'vocab_size', 'pad_token_id', 'bos_token_id', 'eos_token_id',
    'decoder_start_token_id', 'max_position_embeddings'}
# what no changed field shows, as kinds: (names that models may lack, names that they may have beside those found)
ADAPTER = ('', 'adapter_layer.linear_1 adapter_layer.linear_2 adapter_layer.norm')
OLD_T5 = ('', 'layer.#.EncDecAttention.relative_attention_bias')  # in the first public models
KNOWN = {
    'deberta': ('', 'attention.self.pos_proj attention.self.pos_q_proj'),
    'deberta-v2': ('', 'attention.self.pos_key_proj attention.self.pos_query_proj'),
    'granitemoeshared': ('', 'shared_mlp.input_linear shared_mlp.output_linear'),
    'lfm2': ('', 'conv.conv conv.in_proj conv.out_proj'),
    'longt5': (' '.join('layer.#.LocalSelfAttention.' + n for n in 'k o q relative_attention_bias v'.split()),
               ' '.join('layer.#.TransientGlobalSelfAttention.' + n for n in
                        'global_input_layer_norm global_relative_attention_bias k o q relative_attention_bias v'.split())),
    'mt5': OLD_T5, 'pop2piano': OLD_T5, 't5': OLD_T5, 'umt5': OLD_T5,
    'unispeech-sat': ADAPTER, 'wav2vec2': ADAPTER,
}
LEFT_OUT = {'xmod'}  # its names have those of languages in them

HEAD = '''/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_names.c: lists the weights in the layers of each model type.
 *
 * tests/interop/layer_table.py makes this file of what transformers %s does: changes here are
 * lost.
 */
#include "formats/hf/layer_names.h"

#include <stddef.h>

// clang-format off
const ckpt_hf_layer_names ckpt_hf_layers[] = {
'''
TAIL = '''    {NULL, NULL, NULL},
};
'''


def weights(names):
    """The names of weights in layers, as ckpt_hf_layer_names has them."""
    flat = {re.sub(r'(?<=\.)\d+(?=\.)', '#', n) for n in names}
    return {n.split('.#.', 1)[1][:-len('.weight')] for n in flat if '.weight' in n.partition('.#.')[2] and n.endswith('.weight')}


def of_model(model):
    """The names in the hub's files, and those in memory."""
    state = model.state_dict()
    yield weights(state)
    try:
        yield weights(revert_weight_conversion(model, state))
    except Exception:  # a conversion that needs values
        pass


def changed(key, v):
    """Other values of a field."""
    if isinstance(v, bool):
        return [not v]
    if isinstance(v, int):
        size = tiny.WIDTH.search(key) and not tiny.OTHER.search(key) or tiny.LAYERS.match(key)
        return [0, None] + ([] if size else [99])
    if isinstance(v, list) and v and len(v) <= 8:
        return [[x] * len(v) for x in {json.dumps(y): y for y in v}.values()] + [[], None]
    return [1, 8, True] if v is None else [None, 0.0] if isinstance(v, float) else [None] if isinstance(v, str) else []


def variations(model, config, seconds=60):
    base, end = config.to_dict(), time.time() + seconds
    for key, v in base.items():
        for other in changed(key, v) if key not in KEPT and key not in tiny.DROP else ():
            fields = {k: x for k, x in dict(copy.deepcopy(base), **{key: other}).items() if k not in tiny.DROP}
            try:
                with torch.device('meta'):
                    yield type(model)(type(config)(**fields))
            except Exception:  # no such model
                pass
            if time.time() > end:
                return


def sets_of(kind, names):
    """The sets of weights of all models of a type that can be made."""
    order = sorted(names, key=lambda n: (not re.search('ForCausalLM|LMHead|Conditional|MaskedLM', n), n))
    main = None
    for name in order:
        try:
            model, config = tiny.build(kind, name, limit=12_000_000)
        except Exception:
            continue
        yield from of_model(model)
        main = main or (model, config)
    for model in variations(*main) if main else ():
        yield from of_model(model)


def quoted(words):
    lines = textwrap.wrap(' '.join(words), 84, break_long_words=False, break_on_hyphens=False) or ['']
    return '\n     '.join('"%s%s"' % (line, ' ' if i + 1 < len(lines) else '') for i, line in enumerate(lines))


def write(rows, path):
    """rows: (needed, more) -> model types"""
    with open(path, 'w') as f:
        f.write(HEAD % '.'.join(transformers.__version__.split('.')[:2]))
        for (needed, more), kinds in sorted(rows.items(), key=lambda r: r[1]):
            f.write('    {%s,\n     %s,\n     %s},\n' % (quoted(sorted(kinds)), quoted(needed), quoted(more)))
        f.write(TAIL)


def table(found):
    """found: model type -> sets of names; types that need nothing tell nothing, and too long lists are of no use."""
    rows = {}
    for kind, sets in found.items():
        sets = [s for s in sets if s]
        needed = sorted(set.intersection(*sets)) if sets else []
        lacked, beside = (set(n.split()) for n in KNOWN.get(kind, ('', '')))
        more = sorted((set.union(*sets) | beside) - (set(needed) - lacked)) if sets else []
        needed = [n for n in needed if n not in lacked]
        if needed and kind not in LEFT_OUT and len(' '.join(more)) < LONGEST:
            rows.setdefault((tuple(needed), tuple(more)), []).append(kind)
    return rows


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--update', metavar='FILE')
    p.add_argument('kinds', nargs='*')
    a = p.parse_args()
    found = {}
    for kind, names in sorted(tiny.classes().items()):
        if (a.kinds and kind not in a.kinds) or not any(map(MAIN.search, names)) or getattr(CONFIG_MAPPING[kind], 'sub_configs', None):
            continue
        found[kind] = list(sets_of(kind, names))
        print('%s: %d models' % (kind, len(found[kind])), flush=True)
    rows = table(found)
    print('%d types in %d rows' % (sum(map(len, rows.values())), len(rows)))
    if a.update:
        write(rows, a.update)


if __name__ == '__main__':
    main()
