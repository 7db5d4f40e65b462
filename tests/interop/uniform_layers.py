#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check hfp_uniform in formats/hf/plain.c: in transformers, all layers of these model types have the same names.

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


def listed():
    with open(SOURCE) as f:
        text = f.read().split('hfp_uniform[] = {', 1)[1].split('};', 1)[0]
    return re.findall(r'"([^"]+)"', text)


def uneven(model):
    """The stacks whose layers differ in their names."""
    stacks = collections.defaultdict(lambda: collections.defaultdict(set))
    for name in model.state_dict():
        found = re.match(r'(.*?)\.(\d+)\.(.*)$', name)
        if found and LAYERS.search(found[1]):
            stacks[found[1]][found[2]].add(found[3])
    return [prefix for prefix, layers in stacks.items() if len(set(map(frozenset, layers.values()))) > 1]


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
    kinds, bad = sys.argv[1:] or listed(), 0
    for kind in kinds:
        made = [uneven(m) for m in models(kind, tiny.classes().get(kind, []))]
        wrong = sorted({prefix for prefixes in made for prefix in prefixes})
        bad += not made or bool(wrong)
        print('%s: %d models%s' % (kind, len(made), ', uneven: ' + ' '.join(wrong) if wrong else ''), flush=True)
    print('%d types, %d wrong' % (len(kinds), bad))
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
