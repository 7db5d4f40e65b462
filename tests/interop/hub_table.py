#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write tools/share/maps/hf-hub-names.map: what transformers calls a model's tensors in memory, and what save_pretrained makes of them.

    hub_table.py [--update FILE] [MODEL_TYPE ...]

Each class that can be made tiny gets tensors whose elements are numbered; where save_pretrained puts each number gives the rule, whatever
code of transformers has moved it.  Classes that cannot be made tiny get the rules that explain their names, if any do.
"""
import argparse
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tiny_models
import torch
from transformers.core_model_loading import revert_weight_conversion

torch.set_num_threads(1)

HEAD = '''# What save_pretrained of transformers 5 calls the tensors of a model, as the hub has them (left), and
# what they are called in memory (right), as runs and their checkpoints have them: experts apart or
# stacked, parts of a model under other prefixes.
#
# tests/interop/hub_table.py makes this file of what transformers does: changes here are lost.
map hf:packed
about transformers' names: as save_pretrained writes them (the hub's) and in memory (runs')
left has own names
right has own names

sizes
    type  = model_type or "?"
    class = architectures.0 or "?"
    two   = 2

tensors'''


class Odd(Exception): pass

def digits(name): return [t for t in name.split(".") if t.isdigit()]

def box(A, base, shape):
    """Where a part lies in a whole: for each axis of the whole (axis of the part or None, start, step, count)."""
    st = [1]
    for s in reversed(shape[1:]): st.append(st[-1] * s)
    st = st[::-1] if shape else []
    A = A - base
    first = int(A.reshape(-1)[0])
    strides = []
    for k in range(A.dim()):
        strides.append(int(A.select(k, 1).reshape(-1)[0]) - first if A.shape[k] > 1 else 0)
    want = torch.full(tuple(A.shape), first, dtype=torch.int64)
    for k in range(A.dim()):
        v = [1] * A.dim(); v[k] = A.shape[k]
        want = want + (torch.arange(A.shape[k]) * strides[k]).view(v)
    if not torch.equal(want, A.long()): raise Odd("no box")
    at, rest = [], first
    for s in st: at.append(rest // s); rest %= s
    axes = [(None, a, 1, 1) for a in at]
    for k in range(A.dim()):
        if A.shape[k] == 1: continue
        for j in range(len(shape)):
            if strides[k] >= st[j] and strides[k] % st[j] == 0 and (shape[j] > 1) and (j == 0 or strides[k] < st[j - 1]):
                if axes[j][0] is not None: raise Odd("two axes in one")
                axes[j] = (k, at[j], strides[k] // st[j], A.shape[k]); break
        else: raise Odd("no stride")
    # axes of one element: in order, whichever are free
    free = [j for j in range(len(shape)) if axes[j][0] is None and shape[j] == 1]
    for k in range(A.dim()):
        if A.shape[k] == 1:
            if not free: raise Odd("axis of one")
            j = free.pop(0); axes[j] = (k, 0, 1, 1)
    return axes

def halves(whole, wshape, base, n, A):
    """One tensor of halves that lie one behind the other in the one, and alternate in the other."""
    W = torch.arange(base, base + A.numel()).view(wshape)
    if tuple(A.shape) != tuple(wshape): return None
    for j in range(len(wshape)):
        if wshape[j] % 2: continue
        s = list(wshape); t = s[:j] + [2, s[j] // 2] + s[j + 1:]; u = s[:j] + [s[j] // 2, 2] + s[j + 1:]
        ax = list("abcdfghk"[:len(wshape)])
        for a, b, v in (("(two %s)", "(%s two)", t), ("(%s two)", "(two %s)", u)):
            if torch.equal(W.view(v).transpose(j, j + 1).reshape(wshape), A.long()):
                x, y = list(ax), list(ax); x[j] = a % ax[j]; y[j] = b % ax[j]
                return [(whole, " ".join(x))], [(n, " ".join(y))]
    return None

def explain(whole, wshape, base, parts):
    if len(parts) == 1 and tuple(parts[0][1].shape) == tuple(wshape):
        got = halves(whole, wshape, base, *parts[0])
        if got: return got
    return explain_box(whole, wshape, base, parts)

def explain_box(whole, wshape, base, parts):
    """The term of a tensor and the terms of those that it is made of: [(name, axes)], [(name, axes)]."""
    boxes = {n: box(A, base, wshape) for n, A in parts}
    nd = len(wshape)
    cut, expert = {}, None
    for j in range(nd):
        if all(b[j][0] is None for b in boxes.values()):
            if expert is not None: raise Odd("two axes of experts")
            expert = j
    if expert is not None:
        tok = None
        for n, b in boxes.items():
            t = n.split("."); pos = [i for i, x in enumerate(t) if x.isdigit() and int(x) == b[expert][1]]
            tok = set(pos) if tok is None else tok & set(pos)
        if not tok: raise Odd("experts are not numbered")
        epos = max(tok)
    for j in range(nd):
        if j == expert: continue
        counts = {b[j][3] for b in boxes.values()}
        if len(counts) != 1: raise Odd("parts of several sizes")
        c = counts.pop()
        if c == wshape[j]: continue
        if wshape[j] % c: raise Odd("uneven parts")
        kind = {(b[j][2]) for b in boxes.values()}
        if kind == {1}: cut[j] = ("block", wshape[j] // c, c)
        elif kind == {wshape[j] // c}: cut[j] = ("stride", wshape[j] // c, c)
        else: raise Odd("cut")
    if len(cut) > 1: raise Odd("cut along two axes")
    names = "abcdfghk"
    if expert is None and not cut:
        # one of one shape: turned, at most
        (n, b), = boxes.items()
        order = [None] * nd
        for j in range(nd): order[b[j][0]] = names[j]
        if order == list(names[:nd]): return [(whole, None)], [(n, None)]
        return [(whole, " ".join(names[:nd]))], [(n, " ".join(order))]
    label = "xyzuvw"
    j = next(iter(cut), None)
    n_parts = cut[j][1] if cut else 1
    if n_parts > 6: raise Odd("too many parts")
    group = {}
    for n, b in boxes.items():
        p = 0 if not cut else (b[j][1] // cut[j][2] if cut[j][0] == "block" else b[j][1])
        t = n.split(".")
        if expert is not None: t[epos] = "{e}"
        ax = [None] * (nd - (expert is not None))
        for q in range(nd):
            if q == expert: continue
            a = names[q]
            if q == j: a = "(%s %s)" % ((label[p], a) if cut[j][0] == "block" else (a, label[p]))
            if b[q][0] is None: raise Odd("lost axis")
            ax[b[q][0]] = a
        key = (".".join(t), p, " ".join(ax))
        group.setdefault(key, set()).add(b[expert][1] if expert is not None else 0)
    if len(group) != n_parts or any(len(v) != (wshape[expert] if expert is not None else 1) for v in group.values()):
        raise Odd("parts missing")
    wax = []
    for q in range(nd):
        a = names[q]
        if q == expert: a = "e"
        elif q == j:
            l = "|".join(label[:n_parts]); a = "(%s %s)" % ((l, a) if cut[j][0] == "block" else (a, l))
        wax.append(a)
    out = sorted(group, key=lambda g: g[1])
    return [(whole, " ".join(wax))], [(g[0], g[2]) for g in out]

def general(names):
    """Numbers that all names have are captures."""
    d = [[t for t in n.split(".") if t.isdigit()] for n in names]
    if any(x != d[0] for x in d): return list(names)
    out = []
    for n in names:
        i, t = 0, n.split(".")
        for k, x in enumerate(t):
            if x.isdigit(): t[k] = "{%s}" % "ijklmnop"[i]; i += 1
        out.append(".".join(t))
    return out

def rename_rule(mem, hub, keep):
    """Prefixes before the longest common end, `keep` components of which stay in the rule."""
    m, h = mem.split("."), hub.split(".")
    n = 0
    while n < min(len(m), len(h)) and m[-1 - n] == h[-1 - n]: n += 1
    n = max(0, min(n - keep, len(m) - 1, len(h) - 1))
    a, b = m[:len(m) - n], h[:len(h) - n]
    if n == 0: return (".".join(a), ".".join(b), True)
    return (".".join(a), ".".join(b), False)

def regex(pattern):
    out = ""
    for p in re.split(r"(\{[^}]*\})", pattern):
        if p.startswith("{"):
            nm = re.sub(r"\W", "", p)
            out += "(?P<%s>%s)" % (nm, ".*?" if p.endswith("...}") else "0|[1-9][0-9]*")
        else: out += re.escape(p)
    return re.compile(out + r"\Z")

def put(pattern, g):
    return re.sub(r"\{(\w+)[.]*\}", lambda x: g[x.group(1)], pattern)

class Rule:
    def __init__(self, hub, mem):
        self.hub, self.mem = hub, mem   # lists of (pattern, axes)
        self.h = [regex(n) for n, _ in hub]; self.m = [regex(n) for n, _ in mem]
    def text(self):
        side = lambda s: ", ".join(n + (' "%s"' % a if a else "") for n, a in s)
        return "? %s = %s" % (side(self.hub), side(self.mem))
    def weight(self):
        f = lambda s: max(len(re.sub(r"\{[^}]*\.\.\.\}", "", n).split(".")) for n, _ in s)
        anyrun = any("..." in n for n, _ in self.hub)
        packed = any(a for _, a in self.hub)
        return (0 if packed else 1, 1 if anyrun else 0, -(f(self.hub) + f(self.mem)))

def strip_front(names):
    """Common components before the first number's list become {p...}."""
    t = [n.split(".") for n in names]
    k = 0
    while all(len(x) > k + 1 and x[k] == t[0][k] for x in t): k += 1
    first = next((i for i, x in enumerate(t[0]) if x.startswith("{")), None)
    if first is None or first == 0: return names
    # "layers.{i}" stays
    cut = min(k, first - 1)
    if any(".".join(x[cut:]) == "" for x in t): return names
    return ["{p...}" + ".".join(x[cut:]) for x in t]

def infer(mem, out):
    """Rules of one class.  mem: name -> shape, out: hub's name -> numbers of elements.  Returns rules, odd ones."""
    offs, off = {}, 0
    names = list(mem)
    starts = []
    for k in names:
        n = 1
        for s in mem[k]: n *= s
        offs[k] = (off, n); starts.append(off); off += n
    starts_t = torch.tensor(starts)
    pairs, packed, odd = [], [], []
    src = {}
    for h, A in out.items():
        if A.numel() == 0: src[h] = {h} if h in mem else set(); continue
        a0, n0 = offs.get(h, (None, None)) if h in mem else (None, None)
        a1, b1 = int(A.reshape(-1)[0]), int(A.reshape(-1)[-1])
        ka = names[int(torch.searchsorted(starts_t, torch.tensor([a1]), right=True)[0]) - 1]
        kb = names[int(torch.searchsorted(starts_t, torch.tensor([b1]), right=True)[0]) - 1]
        if ka == kb and offs[ka][1] > 0 and a1 == offs[ka][0] and A.numel() == offs[ka][1] and b1 == a1 + A.numel() - 1 and tuple(A.shape) == tuple(mem[ka]):
            src[h] = {ka}; continue
        u = torch.unique(torch.searchsorted(starts_t, A.reshape(-1), right=True) - 1).tolist()
        src[h] = {names[i] for i in u if offs[names[i]][1] > 0}
    by = {}
    for h, s in src.items():
        for m in s: by.setdefault(m, []).append(h)
    done = set()
    truth = {}
    for h in out:
        if h in done or not src[h]: continue
        if out[h].numel() == 0:
            pairs.append((h, h)); continue
        hs, ms = {h}, set()
        while True:
            ms2 = set().union(*(src[x] for x in hs)); hs2 = set().union(*(by[m] for m in ms2))
            if ms2 == ms and hs2 == hs: break
            ms, hs = ms2, hs2
        done |= hs
        try:
            if len(ms) == 1:
                m = next(iter(ms))
                if len(hs) == 1 and tuple(out[h].shape) == tuple(mem[m]) and int(out[h].reshape(-1)[0]) == offs[m][0] and bool((out[h].reshape(-1) == torch.arange(offs[m][0], offs[m][0] + offs[m][1])).all()):
                    pairs.append((m, h)); continue
                if out[h].numel() and sum(out[x].numel() for x in hs) != offs[m][1]: raise Odd("not once")
                w, p = explain(m, mem[m], offs[m][0], [(x, out[x]) for x in sorted(hs)])
                hub, memt = p, w
            elif len(hs) == 1:
                A = out[h].reshape(-1); inv = torch.argsort(A)
                sizes = sorted((offs[m][0], m) for m in ms)
                parts, at = [], 0
                for o, m in sizes:
                    n = offs[m][1]; parts.append((m, inv[at:at + n].view(mem[m]))); at += n
                hub, memt = explain(h, tuple(out[h].shape), 0, parts)
            else: raise Odd("several of several")
            packed.append((hub, memt, hs, ms))
        except Odd as e:
            odd.append((sorted(ms)[:3], sorted(hs)[:3], str(e)))
    rules = {}
    for hub, memt, hs, ms in packed:
        g = general([n for n, _ in hub + memt])
        g2 = strip_front(g)
        hub2 = [(n, a) for n, (_, a) in zip(g2[:len(hub)], hub)]; mem2 = [(n, a) for n, (_, a) in zip(g2[len(hub):], memt)]
        r = Rule(hub2, mem2); rules[r.text()] = r
    # renames
    memset, hubset = dict(pairs), {h: m for m, h in pairs}
    inpack = set().union(*[ms for _, _, _, ms in packed]) if packed else set()
    want = [(m, h) for m, h in pairs if m != h]
    level = {p: 0 for p in want}
    for _ in range(12):
        cand = dict(rules)
        of = {}
        for m, h in want:
            a, b, exact = rename_rule(m, h, level[m, h])
            ga, gb = general([a, b])
            if ga == a and gb == b and digits(a) != digits(b): pass
            fa, fb = strip_front([ga, gb]) if level[m, h] < 2 else (ga, gb)
            if not exact: fa, fb = fa + ".{rest...}", fb + ".{rest...}"
            if "{p...}" in fa and not exact and len(fa.split(".")) < 6: fa, fb = [x + ".{rest...}" for x in (ga, gb)]
            r = Rule([(fb, None)], [(fa, None)])
            cand[r.text()] = r; of[m, h] = r.text()
        order = sorted(cand.values(), key=Rule.weight)
        bad = set()
        # towards the hub
        for m, h in pairs:
            got = m
            for r in order:
                if len(r.mem) == 1 and not r.mem[0][1] and not r.hub[0][1]:
                    x = r.m[0].match(m)
                    if x: got = put(r.hub[0][0], x.groupdict()); break
            if got != h: bad.add((m, h, r.text() if got != m else None))
            for r in order:   # the hub's names are no model's, too
                if r.hub[0][0] != r.mem[0][0] and any(x.match(h) for x in r.m) and h not in mem: bad.add((m, h, r.text()))
            got = h
            for r in order:
                if len(r.hub) == 1 and not r.hub[0][1] and not r.mem[0][1]:
                    x = r.h[0].match(h)
                    if x: got = put(r.mem[0][0], x.groupdict()); break
            if got != m: bad.add((m, h, r.text() if got != h else None))
        if not bad: return order, odd
        texts, own = {t for _, _, t in bad}, {(m, h) for m, h, _ in bad}
        for p in want:
            level[p] += of[p] in texts or p in own
    return order, odd + [("unsettled", sorted(bad)[:3])]



def numbered(kind, name):
    """(name -> shape in memory, the hub's name -> numbers of its elements) of a tiny model."""
    model, _ = tiny_models.build(kind, name)
    at, numbers = 0, {}
    for key, t in model.state_dict().items():
        numbers[key] = torch.arange(at, at + t.numel()).view(t.shape)
        at += t.numel()
    return {k: tuple(t.shape) for k, t in numbers.items()}, revert_weight_conversion(model, dict(numbers))


def names_alone(kind, name):
    """The names in memory, and the hub's, of a model that cannot be made tiny."""
    model, _ = tiny_models.build(kind, name, limit=1 << 62, factors=(1,))
    state = model.state_dict()
    return list(state), set(revert_weight_conversion(model, state))


def explains(rules, memory, hub):
    """Do rules lead from the one list of names to the other?"""
    got = set()
    for name in memory:
        for r in rules:
            found = [x.match(name) for x in r.m]
            if any(found):
                g = next(x for x in found if x).groupdict()
                made = [put(h, dict(g, e='{e}')) for h, _ in r.hub]
                ok = [any(re.fullmatch(re.escape(m).replace(r'\{e\}', '[0-9]+'), h) for h in hub) for m in made]
                if not all(ok):
                    return False
                got |= {h for h in hub if any(re.fullmatch(re.escape(m).replace(r'\{e\}', '[0-9]+'), h) for m in made)}
                break
        else:
            got.add(name)
    return got == hub


def packed_there(memory):
    """Rules of a model whose experts the hub has packed, too: so its names are known to be right."""
    names = sorted({k.rsplit('.', 1)[1] for k, shape in memory.items() if '.experts.' in k and len(shape) == 3})
    same = ['{p...}.experts.' + n for n in names]
    return [Rule([(n, None)], [(n, None)]) for n in same]


def learn(kinds):
    """rules -> [(model type, class)], the classes that were understood of each type, and those that were not."""
    groups, known, unknown, late = {}, {}, [], []
    for kind, names in sorted(tiny_models.renamed().items()):
        for name in names if not kinds or kind in kinds else []:
            try:
                memory, hub = numbered(kind, name)
            except Exception as e:  # whatever a class finds wrong with its configuration
                late.append((kind, name, str(e)))
                continue
            rules, odd = infer(memory, hub)
            if odd:
                unknown.append((kind, name, str(odd[0])))
                continue
            known.setdefault(kind, set()).add(name)
            rules = rules or packed_there(memory)
            groups.setdefault(tuple(r.text() for r in rules), (rules, []))[1].append((kind, name))
    for kind, name, why in late:
        try:
            memory, hub = names_alone(kind, name)
        except Exception as e:
            unknown.append((kind, name, '%s: %s' % (why, e)))
            continue
        fit = [t for t, (r, _) in groups.items() if explains(r, memory, hub)]
        if fit:
            known.setdefault(kind, set()).add(name)
            groups[min(fit, key=len)][1].append((kind, name))
        else:
            unknown.append((kind, name, 'no rules explain its names'))
    return groups, known, unknown


def text(groups, known):
    types, classes, by = {}, {}, {}
    for rules, (_, users) in groups.items():
        for kind, name in users:
            by.setdefault(kind, {})[name] = rules
    for kind, some in by.items():
        if len(set(some.values())) == 1:
            types.setdefault(next(iter(some.values())), set()).add(kind)
        else:
            for name, rules in some.items():
                classes.setdefault(rules, set()).add(name)
    out = []
    for rules in sorted(set(types) | set(classes), key=lambda r: (sorted(types.get(r, '~')), sorted(classes.get(r, '~')))):
        for key, words in (('type', types.get(rules)), ('class', classes.get(rules))):
            if words and rules:
                out += ['', '    when %s in %s' % (key, ' '.join(sorted(words)))] + ['    ' + r for r in rules]
    return HEAD + '\n'.join(out) + '\n\n    always\n    ? * *\n'


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--update', metavar='FILE')
    p.add_argument('kinds', nargs='*')
    a = p.parse_args()
    groups, known, unknown = learn(a.kinds)
    for kind, name, why in unknown:
        print('%s: %s: left out: %s' % (kind, name, why[:160].replace('\n', ' ')), file=sys.stderr)
    made = text(groups, known)
    if a.update:
        with open(a.update, 'w') as f:
            f.write(made)
    else:
        print(made)


if __name__ == '__main__':
    main()
