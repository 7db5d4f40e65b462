#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check the tables of the layers' names with the models of transformers.

    uniform_layers.py [MODEL_TYPE ...]

hfp_uniform, hfp_kinds in formats/hf/plain.c: all layers of these types have the same names, or all layers of equal layer_types, which
have the names that hfp_kinds lists.  ckpt_hf_layers in formats/hf/layer_names.c: each layer of a type has the needed names, unless
formats/hf/type.c excludes the type, and no layer has two of three projections of which the table lists the third.
"""
import collections
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import layer_table
import tiny_models as tiny

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../formats/hf')
SOURCE = os.path.join(FOLDER, 'plain.c')
SETS = [('q_proj', 'k_proj', 'v_proj'), ('gate_proj', 'up_proj', 'down_proj')]
LAYERS = re.compile(r'(^|\.)(layers|layer|h|blocks|block)$')  # as ckpt_hf_stack_is_layers
WHOLE = re.compile('ForCausalLM|LMHead|ForMaskedLM|Conditional|PreTraining|Classification$|Model$')


def listed(array):
    with open(SOURCE) as f:
        text = f.read().split(array + '[] = {', 1)[1].split('};', 1)[0]
    return re.findall(r'"([^"]+)"', text)


def strings(text):
    return ''.join(re.findall(r'"([^"]*)"', text))


def table():
    """model type -> (needed names, all names) of ckpt_hf_layers"""
    with open(os.path.join(FOLDER, 'layer_names.c')) as f:
        text = f.read().split('ckpt_hf_layers[] = {', 1)[1]
    quoted = r'((?:"[^"]*"\s*)+)'
    rows = re.findall(r'\{%s,\s*%s,\s*%s\}' % (quoted, quoted, quoted), text)
    return {kind: (strings(needed).split(), (strings(needed) + ' ' + strings(more)).split())
            for kinds, needed, more in rows for kind in strings(kinds).split()}


def excluded(kind, needed):
    """As ckpt_hf_layer_names_of_each."""
    with open(os.path.join(FOLDER, 'type.c')) as f:
        text = f.read().split('hft_differ[] =', 1)[1].split(';', 1)[0]
    return kind in strings(text).split() or re.search('encoder|layer\\.#\\.|longformer', ' '.join(needed))


def kind_names(kind):
    """The names of hfp_kinds: of layers with full attention, and of others."""
    with open(SOURCE) as f:
        text = f.read()
    macros = {m[1]: m[2] for m in re.finditer(r'#define (HFP_\w+)((?:[^\n]*\\\n)*[^\n]*)', text)}
    row = re.search(r'\{"%s",\s*\d+,((?:[^{}]|\n)*)\}' % kind, text)[1]
    while re.search(r'HFP_\w+', row):
        row = re.sub(r'HFP_\w+', lambda m: macros[m[0]], row)
    full, other = row.split(',')[:2]
    return strings(full).split(), strings(other).split()


def modules(names):
    """The modules and parameters of a layer, without biases; '#' is a number."""
    flat = {re.sub(r'(?<=\.)\d+(?=\.)', '#', n) for n in names}
    return {n.rpartition('.')[0] if n.endswith('.weight') else n for n in flat if not n.endswith('.bias')}


def lacking(model, kind, needed, listed, kinds):
    """The names of the tables that layers of a model lack."""
    types = getattr(model.config.get_text_config(), 'layer_types', None) or []
    stacks = collections.defaultdict(set)
    for name in model.state_dict():
        found = re.match(r'(.*?)\.(\d+)\.(.*)$', name)
        if found and LAYERS.search(found[1]):
            stacks[found[1], int(found[2])].add(found[3])
    for (prefix, i), names in stacks.items():
        own = modules(names)
        here = kinds[types[i] != 'full_attention'] if kinds and i < len(types) else [] if kinds else needed
        lost = [n for n in here if n not in own]
        yield from lost if 2 * len(lost) <= len(here) else []
        for prefix in {n.rpartition('.')[0] for n in own}:
            for names in [[(prefix + '.' if prefix else '') + n for n in s] for s in SETS]:
                lost = [n for n in names if n not in own]
                shared = getattr(model.config, 'attention_k_eq_v', False) or kind == 'hy_v4'  # as formats/hf/whole.c
                yield from lost if len(lost) == 1 and lost[0] in listed and not shared else []


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
    by_type, bad = [k for k in listed('hfp_kinds') if re.fullmatch(r'[a-z0-9_]+', k) and k in tiny.classes()], 0
    even, names = listed('hfp_uniform') + by_type, table()
    kinds = sys.argv[1:] or sorted(set(even) | set(names))
    for kind in kinds:
        needed, known = names.get(kind, ([], []))
        needed = [] if excluded(kind, needed) else needed
        own = kind_names(kind) if kind in by_type else None
        made = list(models(kind, tiny.classes().get(kind, [])))
        # some classes make a model of another type inside
        made = [m for m in made if m.config.model_type == kind] or made
        wrong = {prefix for m in made if kind in even for prefix in uneven(m, kind in by_type)}
        wrong = sorted(wrong | {name for m in made for name in lacking(m, kind, needed, known, own)})
        bad += not made or bool(wrong)
        print('%s: %d models%s' % (kind, len(made), ', wrong: ' + ' '.join(wrong) if wrong else ''), flush=True)
    print('%d types, %d wrong' % (len(kinds), bad))
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
