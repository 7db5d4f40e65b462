#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check hfp_uniform and hfp_kinds in formats/hf/plain.c: in transformers, all layers of these model types have the same names, or all
layers of equal layer_types.

    uniform_layers.py [MODEL_TYPE ...]
"""
import collections
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import layer_table
import tiny_models as tiny

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../formats/hf/plain.c')
LAYERS = re.compile(r'(^|\.)(layers|layer|h|blocks|block)$')  # as ckpt_hf_stack_is_layers
WHOLE = re.compile('ForCausalLM|LMHead|ForMaskedLM|Conditional|PreTraining|Classification$|Model$')


def listed(array):
    with open(SOURCE) as f:
        text = f.read().split(array + '[] = {', 1)[1].split('};', 1)[0]
    return re.findall(r'"([^"]+)"', text)


def uneven(model, by_type):
    """The stacks whose layers, or whose layers of one type, differ in their names."""
    types = (by_type and getattr(model.config.get_text_config(), 'layer_types', None)) or []
    stacks = collections.defaultdict(lambda: collections.defaultdict(set))
    for name in model.state_dict():
        found = re.match(r'(.*?)\.(\d+)\.(.*)$', name)
        if found and LAYERS.search(found[1]):
            stacks[found[1]][int(found[2])].add(found[3])
    bad = []
    for prefix, layers in stacks.items():
        kinds = collections.defaultdict(set)
        for i, names in layers.items():
            kinds[types[i] if i < len(types) else None].add(frozenset(names))
        bad += [prefix] if any(len(k) > 1 for k in kinds.values()) else []
    return bad


def models(kind, names):
    """Models of the type's classes, and of the first one with each field of its configuration changed."""
    first = True
    for name in filter(WHOLE.search, names):
        try:
            model, config = tiny.build(kind, name, limit=12_000_000)
        except Exception:  # too large, or no model without arguments
            continue
        yield model
        yield from layer_table.variations(model, config, 8) if first else ()
        first = False


def main():
    # the rows have names of layers, too
    by_type, bad = [k for k in listed('hfp_kinds') if k in tiny.classes()], 0
    kinds = sys.argv[1:] or listed('hfp_uniform') + by_type
    for kind in kinds:
        made = [uneven(m, kind in by_type) for m in models(kind, tiny.classes().get(kind, []))]
        wrong = sorted({prefix for prefixes in made for prefix in prefixes})
        bad += not made or bool(wrong)
        print('%s: %d models%s' % (kind, len(made), ', uneven: ' + ' '.join(wrong) if wrong else ''), flush=True)
    print('%d types, %d wrong' % (len(kinds), bad))
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
