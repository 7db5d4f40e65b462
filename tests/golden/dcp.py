#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's distributed checkpoints: every tensor against what was recorded of the live objects before they were saved.

    dcp.py --bin build/bin FIXTURES [--some]

Each folder with a .metadata, or with FSDP's files of each rank, goes to safetensors: weights and buffers under the names that the module gives them, moments as
"<moment>/<parameter>", and whatever the program saved beside them.  Where there is an optimizer, the folder becomes a ZeRO
checkpoint of other worlds and stages too, and a distributed checkpoint of other ranks, which must hold the same; and so must
those that runs of DeepSpeed become.  --some: one world and stage.
"""
import argparse
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

from readers import Entry, read_safetensors
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from turns import mine  # noqa: E402

GRID = [(world, stage) for world in (1, 2, 3, 5) for stage in (1, 2, 3)]
# what goes to it now: CI takes turns
TURN = list(mine(GRID))
# an optimizer that keeps one tensor for three of the model's: only a layout map says which rows are whose
FUSED = ('titan_llama3_fused_w3',)
# an optimizer with a tensor of one element that has an axis, which FSDP's files for each rank take for moments; slices that nothing says how to join
NO_RUN = ('k_dst_hybrid_optimizer_state_1', 'tp2_z0_w2', 'z2_bf16_w2_bnb8', 'z2_w2_bnb8_blocks')
# torchtitan has parameters at the root, where a program's own tensor would be one, and knows groups by settings that old files lack
NO_TITAN = ('k_client_z1', 'k_client_z3', 'old0316_z1_fp16_w2', 'old0316_z2_fp16_w3')
# one value for a parameter, which DeepSpeed keeps for a group; a tensor that a program saved beside the model
ONE = ('mu_product/*', 'RMS/*', 't')
# what DeepSpeed keeps beside weights and moments, as `ckpt tree` prints it
VALUES = re.compile(r'^ *((?:global_steps|skipped_steps|global_samples|cur_scale|cur_iter|last_overflow_iter|scale_window|ds_version|'
                    r'dynamic_loss_scale|last_batch_iteration|clip_grad|train_micro_batch_size_per_gpu): .*)$', re.M)
passed, failed = 0, []


def verdict(name, problem):
    global passed
    if problem:
        failed.append(name)
        print('FAIL %s: %s' % (name, problem))
    else:
        passed += 1


def run(*cmd):
    p = subprocess.run(cmd, capture_output=True, text=True)
    return '' if p.returncode == 0 else 'exit %d: %s' % (p.returncode, p.stderr.strip()[-300:])


def folders(fixture):
    """What a user would name: the folder of .metadata; of accelerate's pairs the one above."""
    for depth in ('', '*/', '*/*/'):
        for path in sorted(glob.glob(os.path.join(fixture, 'ckpt', depth, '.metadata'))):
            folder = os.path.dirname(path)
            name = os.path.basename(folder)
            if name.startswith('pytorch_model_fsdp_'):
                yield os.path.dirname(folder)
            elif not name.startswith('optimizer_'):
                yield folder
        for path in sorted(glob.glob(os.path.join(fixture, 'ckpt', depth, 'model_world_size_*_rank_0.pt'))):
            if not os.path.exists(os.path.join(os.path.dirname(path), '.metadata')):
                yield os.path.dirname(path)
        for name in 'pytorch_model_fsdp.bin', 'checkpoint.pt':
            for path in sorted(glob.glob(os.path.join(fixture, 'ckpt', depth, name))):
                yield os.path.dirname(path)
        for path in sorted(glob.glob(os.path.join(fixture, 'ckpt', depth, 'shard-00001-model-00001-of-*.safetensors'))):
            yield os.path.dirname(path)


def moments(e):
    state = (e.get('optimizer') or {}).get('state') or {}
    return {'%s/%s' % (kind, name): t for kind, of in state.items() if isinstance(of, dict)
            for name, t in of.items() if isinstance(t, dict) and 'sha256' in t}


def same(got, want):
    for name, t in want.items():
        if name not in got:
            return '%s is missing' % name
        if list(got[name]) != [t['dtype'], t['shape'], t['sha256']]:
            return '%s is %s, expected %s' % (name, got[name], t)
    return ''


def recorded(path):
    """expected.json of a fixture.  Lightning's module holds the model as `net`, a word that all names share and no loader knows."""
    with open(os.path.join(path, 'expected.json')) as f:
        text = f.read()
    return json.loads(text.replace('"net.', '"') if os.path.basename(path).startswith('lightning_') else text)


def raw(got, e):
    """Every tensor that .metadata lists is there once, under one of the names that it may have."""
    sums = sorted(t['sha256'] for t in e['tensors'].values())
    mine = sorted(t[2] for t in got.values())
    return '' if sums == mine else 'the tensors are not those of .metadata: %d and %d' % (len(mine), len(sums))


def convert(ckpt, source, out, *more):
    return run(ckpt, 'convert', '-q', '--force', '--with-optimizer', *more, source, out)


def differs(source, out):
    """What two safetensors files hold differently, where values that one of them keeps in its tree do not count."""
    had, got = read_safetensors(source)[0], read_safetensors(out)[0]
    lost = [n for n in had if n in got and tuple(got[n])[2] != tuple(had[n])[2]]
    lost += [n for n in had if n not in got and not n.startswith(('list.', 'nested'))]
    return '%s differ' % lost[:3] if lost else ''


def reshard(ckpt, source, tmp, grid):
    """The same values after a way through ZeRO, whatever dtype it keeps masters in, and on from there to a distributed checkpoint."""
    a, b, z, d = (os.path.join(tmp, n) for n in ('a.safetensors', 'b.safetensors', 'zero', 'through'))
    problem = convert(ckpt, source, a, '--dtype', 'fp32')
    for world, stage in grid:
        if problem:
            break
        problem = run(ckpt, 'reshard', '-q', '--force', source, z, '--world', str(world), '--stage', str(stage))
        problem = problem or convert(ckpt, z, b, '--dtype', 'fp32') or run(ckpt, 'verify', '-q', z) or differs(a, b)
        problem = problem or run(ckpt, 'reshard', '-q', '--force', '--to', 'dcp', '--world', str(world % 3 + 1), '--to-tag', 'x', z, d)
        problem = problem or convert(ckpt, os.path.join(d, 'x'), b, '--dtype', 'fp32') or differs(a, b)
        problem = problem and 'world %d, stage %d: %s' % (world, stage, problem)
    return problem


def parted(fused, heads, kv, names, pairs):
    """The rows of torchtitan's fused queries, keys and values by the names of their parts: per group its queries, a key, a value. Unless
    pairs stay side by side, as torchtitan has them, a head's rows are the pairs' first halves and then their second ones."""
    rows, width = fused[1]
    d, step = rows // (heads + 2 * kv), len(fused.raw) // rows
    at = lambda head, row: fused.raw[(head * d + row) * step:][:step]
    halves = range(d) if pairs else [2 * i + half for half in (0, 1) for i in range(d // 2)]
    group = heads // kv + 2
    parts = {names[0]: [(g * group + q, halves) for g in range(kv) for q in range(group - 2)],
             names[1]: [(g * group + group - 2, halves) for g in range(kv)],
             names[2]: [(g * group + group - 1, range(d)) for g in range(kv)]}
    return {name: Entry(fused[0], (len(of) * d, width), b''.join(at(head, row) for head, order in of for row in order))
            for name, of in parts.items()}


def fused(ckpt, e, source, tmp, grid, layouts):
    """Through a layout map with the sizes that no file has: refused without, then the moments' rows are those of their weights."""
    out, z, d = (os.path.join(tmp, n) for n in ('o.safetensors', 'zero', 'through'))
    heads, kv = (e['config'][k] for k in ('n_heads', 'n_kv_heads'))
    own, plain = layouts != 'torchtitan:hf', lambda entry: (entry[0], tuple(entry[1]), entry[2])
    form, names = (('layers.%s.attention.qkv_linear.%s.weight', ('wq', 'wk', 'wv')) if own else
                   ('model.layers.%s.self_attn.%s.weight', ('q_proj', 'k_proj', 'v_proj')))
    how = ['--map', layouts, '--size', 'heads=%d' % heads, '--size', 'kv=%d' % kv]
    problem = convert(ckpt, source, out)
    had = {} if problem else read_safetensors(out)[0]
    want = {n: (t['dtype'], tuple(t['shape']), t['sha256']) for n, t in e['weights' if own else 'hf_weights'].items()}
    want.update((n, plain(t)) for n, t in had.items() if own and 'wqkv' not in n)
    for name, t in had.items():
        if 'wqkv' in name:
            kind, layer = name.split('/')[0], name.split('layers.')[1].split('.')[0]
            parts = dict.fromkeys(names, t) if kind == 'step' else parted(t, heads, kv, names, own)
            want.update(('%s/%s' % (kind, form % (layer, n)), plain(p)) for n, p in parts.items())
    if not problem and not run(ckpt, 'reshard', '-q', source, z):
        problem = 'taken for a run without a layout map'
    for world, stage in grid:
        problem = problem or run(ckpt, 'reshard', '-q', '--force', *how, source, z, '--world', str(world), '--stage', str(stage))
        problem = problem or run(ckpt, 'reshard', '-q', '--force', '--to', 'dcp', '--to-tag', 'x', z, d)
        for path in z, os.path.join(d, 'x'):
            problem = problem or convert(ckpt, path, out)
            got = {} if problem else read_safetensors(out)[0]
            # ZeRO counts the steps of groups
            off = [n for n in want if (path != z or not n.startswith('step/')) and
                   (n not in got or plain(got[n]) != want[n])]
            problem = problem or (off and 'world %d, stage %d: %s' % (world, stage, off[:3]))
    return problem


def lightning(ckpt, source, tmp):
    """What Lightning keeps in meta.pt is of the run; the one schedule is the run's."""
    out = os.path.join(tmp, 'of-lightning')
    problem = run(ckpt, 'reshard', '-q', source, out)
    tree = '' if problem else subprocess.run([ckpt, 'tree', out], capture_output=True, text=True, check=True).stdout
    lost = [text for text in ('    lr_scheduler: dict of', 'pytorch-lightning_version: ', 'fit_loop: dict of', 'hyper_parameters: ') if text not in tree]
    return problem or (lost and 'not in the run: %s' % lost)


def written(ckpt, source, tmp):
    """The same checkpoint over three ranks, in FSDP's forms."""
    # what stands in a value of the run is a tensor by itself in one of them
    inside = [x for name in ('rng.*', 'list.*', 'nested*') + ONE for x in ('--exclude', name)]
    problem = ''
    for form, *layout in ('dcp',), ('fsdp-ranks',), ('dcp', '--layout', 'torchtitan'), ('dcp', '--layout', 'accelerate'):
        if 'torchtitan' in layout and any(name in source for name in NO_TITAN):
            continue
        out = os.path.join(tmp, '-'.join([form] + layout[1:]))
        problem = problem or run(ckpt, 'reshard', '-q', '--to', form, *layout, '--world', '3', '--to-tag', 'x', source, out)
        problem = problem or run(ckpt, 'diff', '-q', '--with-optimizer', *inside, source, os.path.join(out, 'x'))
    return problem


def there_and_back(ckpt, source, tmp):
    """A run of DeepSpeed goes through FSDP's forms and is the same run: its tensors, counters, loss scale, configuration."""
    z, straight = (os.path.join(tmp, n) for n in ('zero', 'straight'))
    how = ('--world', '4' if 'moe_ep2' in source else '3', '--stage', '2')  # experts are cut over two ranks
    problem = run(ckpt, 'reshard', '-q', *how, source, straight)
    values = lambda path: set(VALUES.findall(subprocess.run([ckpt, 'tree', path], capture_output=True, text=True).stdout))
    for form in 'dcp', 'fsdp-ranks':
        out = os.path.join(tmp, 'way-' + form)
        problem = problem or run(ckpt, 'reshard', '-q', '--to', form, '--world', '2', '--to-tag', 'x', source, out)
        problem = problem or run(ckpt, 'reshard', '-q', '--force', *how, os.path.join(out, 'x'), z)
        a, b = os.path.join(tmp, 'a.safetensors'), os.path.join(tmp, 'b.safetensors')
        problem = problem or convert(ckpt, source, a, '--dtype', 'fp32') or convert(ckpt, z, b, '--dtype', 'fp32') or differs(a, b)
        if not problem and values(straight) != values(z):
            problem = 'not the same: %s' % sorted(values(straight) ^ values(z))[:3]
    return problem


def fixture(ckpt, path, some):
    e = recorded(path)
    name = os.path.basename(path)
    for source in folders(path):
        with tempfile.TemporaryDirectory() as tmp:
            out = os.path.join(tmp, 'o.safetensors')
            problem = convert(ckpt, source, out)
            got = {} if problem else {k: tuple(v) for k, v in read_safetensors(out)[0].items()}
            tied = {a: e['weights'][o] for a, o in (e.get('tied') or {}).items() if o in e.get('weights', {})}
            verdict(name + ' weights', problem or same(got, dict(e.get('weights') or {}, **(e.get('buffers') or {}), **tied)))
            if e.get('tensors') and not problem:
                verdict(name + ' tensors', raw(got, e))
            if moments(e) and not problem and name not in FUSED and not e.get('save', '').startswith('hf'):
                verdict(name + ' moments', same(got, moments(e)))
                verdict(name + ' ZeRO', reshard(ckpt, source, tmp, GRID[8:9] if some else TURN))
                verdict(name + ' written', written(ckpt, source, tmp))
            if not problem and os.path.exists(os.path.join(source, 'meta.pt')):
                verdict(name + ' meta.pt', lightning(ckpt, source, tmp))
            if name in FUSED and not problem:
                for layouts in 'torchtitan:hf', 'fused-qkv:torchtitan':
                    verdict('%s ZeRO %s' % (name, layouts), fused(ckpt, e, source, tmp, GRID[8:9] if some else TURN, layouts))
            if not problem:
                verdict(name + ' verify', run(ckpt, 'verify', '-q', source))


def single(ckpt, path):
    """A file with a model and its optimizer, which reshard takes for a run; as ZeRO it has what was recorded."""
    e = recorded(path)
    for source in glob.glob(os.path.join(path, '*.ckpt')) + glob.glob(os.path.join(path, 'ckpt', 'checkpoint.pt')):
        if not os.path.isfile(source):
            continue
        with tempfile.TemporaryDirectory() as tmp:
            z, out = os.path.join(tmp, 'zero'), os.path.join(tmp, 'o.safetensors')
            problem = run(ckpt, 'reshard', '-q', source, z, '--world', '2', '--stage', '2') or convert(ckpt, z, out)
            got = {} if problem else {k: tuple(v) for k, v in read_safetensors(out)[0].items()}
            verdict(os.path.basename(path) + ' as one file', problem or same(got, dict(e['weights'], **moments(e))))


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', required=True)
    p.add_argument('--some', action='store_true')
    p.add_argument('fixtures')
    a = p.parse_args()
    ckpt = os.path.join(a.bin, 'ckpt')
    for path in sorted(glob.glob(os.path.join(a.fixtures, '*', 'expected.json'))):
        # Megatron-Core's folders have a layout of their own (megatron.py)
        if not os.path.basename(os.path.dirname(path)).startswith('mcore_'):
            fixture(ckpt, os.path.dirname(path), a.some)
            single(ckpt, os.path.dirname(path))
    for source in sorted(glob.glob(os.path.join(a.fixtures, '*', 'ckpt'))):
        name = os.path.basename(os.path.dirname(source))
        facts = subprocess.run([ckpt, 'info', '--json', source], capture_output=True, text=True)
        if name in NO_RUN or facts.returncode or json.loads(facts.stdout)['format'] not in ('deepspeed', 'universal'):
            continue
        with tempfile.TemporaryDirectory() as tmp:
            verdict(name + ' written', written(ckpt, source, tmp))
            verdict(name + ' there and back', there_and_back(ckpt, source, tmp))
    print('dcp: %d passed, %d failed' % (passed, len(failed)))
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
