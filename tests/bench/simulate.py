#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long conversions by many machines would take: the library's plans and splits, carried out on a clock (simulate.c).

  simulate.py --simulate build/simulate --gen build/gen_zero [--models 70B,405B,1T] [--nodes 1,8,64,256] [RATES] [--work DIR]
  simulate.py --check ...      small cases whose time is known by a formula; exit status 1 if one is not met

Checkpoints are sparse: shapes, headers and all, without payload.  What is assumed is printed above the tables.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

# arguments of gen_zero, ranks that trained it, what is published of DeepSpeed's script on one host of 1 TB (s)
LLAMA_70B = ['--layers', '80', '--width', '8192', '--vocab', '128256', '--llama', '28672,1024']
MODELS = {
    '70B': (LLAMA_70B, 64, 20 * 60 + 45),
    '70B ZeRO-1': (LLAMA_70B + ['--stage', '1'], 64, None),
    '405B': (['--layers', '126', '--width', '16384', '--vocab', '128256', '--llama', '53248,1024'], 512, 2 * 3600 + 9 * 60 + 59),
    '1T': (['--layers', '128', '--width', '25600', '--vocab', '51200', '--context', '2048'], 1024, None),
}
SHAPES = {'70B': 'Llama 3.1 70B', '70B ZeRO-1': 'the same, whose weights rank 0 has saved a second time, in bf16', '405B': 'Llama 3.1 405B', '1T': 'GPT of 1008 billion parameters (128 layers, width 25600)'}

# name, default, unit, what it is
RATES = [
    ('disk-read', 6, 'GB/s', 'a node reads from its local disk'),
    ('disk-write', 3, 'GB/s', 'a node writes to its local disk'),
    ('shared-read', 100, 'GB/s', 'all nodes together read from the shared file system'),
    ('shared-write', 60, 'GB/s', 'all nodes together write to it'),
    ('client', 8, 'GB/s', 'one node with the shared file system, in each direction'),
    ('net', 25, 'GB/s', 'one node with the others, in each direction'),
    ('cpu', 2, 'GB/s', 'read and written by one worker while it converts (measured here: 2.4, RESULTS.md, 1.42 GB in 0.58 s by two)'),
    ('disk-latency', 100, 'us', 'one read of the local disk'),
    ('shared-latency', 500, 'us', 'one read of the shared file system'),
    ('net-latency', 20, 'us', 'one message'),
    ('opens', 10000, '/s', 'files opened, made or renamed on a local disk'),
    ('shared-opens', 2000, '/s', 'the same on the shared file system, all nodes together'),
]


def generate(a, work, args, world):
    folder = os.path.join(work, 'checkpoint')
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([a.gen, '--sparse', '--dtype', 'bf16', '--world', str(world)] + args + [folder], check=True, stdout=subprocess.DEVNULL)
    return folder


def simulate(a, folder, *args, **rates):
    cmd = [a.simulate] + [str(x) for x in args]
    for name, value in rates.items():
        cmd += ['--' + name.replace('_', '-'), str(value)]
    return json.loads(subprocess.run(cmd + [folder], check=True, stdout=subprocess.PIPE).stdout)


# ---- the simulator against formulas ----

def pieces(numel, world):
    """Ranks that hold some of a ZeRO-3 parameter."""
    part = -(-numel // world)
    return -(-numel // part)


class Checks:
    def __init__(self):
        self.failed = self.passed = 0

    def near(self, what, got, want, above=0.0):
        """got is want, or more by at most `above`; rounding aside."""
        if want - 1e-9 * (1 + want) <= got <= want + above + 1e-9 * (1 + want):
            self.passed += 1
        else:
            self.failed += 1
            print('FAIL %s: %.9g, and the formula says %.9g (+ %.9g)' % (what, got, want, above))


def check(a, work):
    c = Checks()
    layers, width, vocab = 4, 1024, 4096
    model = ['--layers', str(layers), '--width', str(width), '--vocab', str(vocab), '--context', '256']
    sizes = [vocab * width, 256 * width, width, width]
    for _ in range(layers):
        sizes += [width] * 6 + [3 * width, 4 * width, 3 * width * width, width * width, 4 * width * width, 4 * width * width]
    elems = sum(sizes)
    folder = generate(a, work, model, 8)

    # one worker with one limit: bytes by rate, to the last bit
    one = simulate(a, folder, shared_read=1)
    c.near('bytes read', one['read'], 4 * elems)
    c.near('bytes written', one['written'], 4 * elems)
    c.near('reading', one['copy_s'], 4 * elems / 1e9)
    c.near('writing', simulate(a, folder, shared_write=2)['copy_s'], 4 * elems / 2e9)
    c.near('a client', simulate(a, folder, client=1)['copy_s'], 8 * elems / 1e9)
    c.near('the processor', simulate(a, folder, cpu=1)['copy_s'], 8 * elems / 1e9)
    c.near('a limit of each', simulate(a, folder, cpu=1, shared_read=2, client=4, shared_write=0.5)['copy_s'],
           elems * 4 / 1e9 * (2 + 0.5 + 0.25 + 0.25 + 2))
    # workers do not wait for each other's processors, and share what is shared
    block = one['buffers'] / 5
    c.near('four processors', simulate(a, folder, '--workers', 4, cpu=1)['copy_s'], 8 * elems / 4e9, 4 * block / 1e9)
    c.near('four readers', simulate(a, folder, '--workers', 4, shared_read=1)['copy_s'], 4 * elems / 1e9)
    c.near('the slower of two', simulate(a, folder, '--workers', 8, shared_read=1, shared_write=4)['copy_s'], 4 * elems / 1e9, block / 1e9)
    # each read waits, and nobody else with it
    split = sum(pieces(n, 8) for n in sizes)
    late = simulate(a, folder, shared_latency=1000)
    c.near('latency', late['copy_s'], late['pieces'] / 1e3)
    c.near('pieces', late['pieces'], split, late['jobs'])
    # machines: what is shared takes as long, what is theirs takes a part
    for nodes in (2, 4, 8):
        many = simulate(a, folder, '--nodes', nodes, shared_write=1)
        c.near('%d nodes, one file system' % nodes, many['copy_s'], 4 * elems / 1e9)
        many = simulate(a, folder, '--nodes', nodes, client=1)
        c.near('%d nodes, their links' % nodes, many['copy_s'], many['rank_most'] / 1e9)
        c.near('%d nodes, balance' % nodes, many['rank_most'], many['rank_mean'], many['rank_mean'] * 0.05)
        many = simulate(a, folder, '--nodes', nodes, '--ranks', 2, '--local', '--to', 'half', disk_write=1)
        ranks = many['nodes'] // nodes * 4
        c.near('%d nodes, their disks' % nodes, many['copy_s'], 12 * elems / max(1, min(nodes, ranks)) / 1e9, 12 * elems / 4 / 1e9 / 8)
    # all shards on one node, targets on two: half of the state goes over the link, stored and forwarded
    far = simulate(a, folder, '--nodes', 2, '--source-nodes', 1, '--local', '--to', 'half', net=1)
    c.near('far bytes', far['far'], 6 * elems, 12 * 4 * len(sizes) * 8)
    c.near('one worker, two ends of a link', far['copy_s'], 2 * far['far'] / 1e9)
    many = simulate(a, folder, '--nodes', 2, '--source-nodes', 1, '--local', '--to', 'half', '--workers', 8, net=1)
    c.near('eight workers, two ends of a link', many['copy_s'], many['far'] / 1e9, 2 * block / 1e9)
    wait = simulate(a, folder, '--nodes', 2, '--source-nodes', 1, '--local', '--to', 'half', net_latency=1000)
    c.near('messages', wait['copy_s'], wait['messages'] / 1e3)
    near = simulate(a, folder, '--nodes', 2, '--local', '--to', 'half', net=0.001, net_latency=1e6)
    c.near('nothing is far', near['far'], 0)
    c.near('nothing is waited for', near['copy_s'], 0)
    # opening and making files
    opened = simulate(a, folder, shared_opens=100)
    c.near('headers', opened['headers_s'], 16 / 100)
    asked = simulate(a, folder, '--nodes', 2, '--ranks', 3, shared_opens=100, net=1, net_latency=1000)
    c.near('headers of many', asked['headers_s'], 16 / 100 + 16 * 4 * 2 / 1e3 + 16 * 270000 * 5 / 2 / 1e9)
    c.near('files', opened['files_s'], 2 * opened['out_files'] / 100)
    print('simulate: %d checks passed, %d failed' % (c.passed, c.failed))
    return 1 if c.failed else 0


# ---- the tables ----

def si(n):
    for unit, size in (('TB', 1e12), ('GB', 1e9), ('MB', 1e6)):
        if n >= size:
            return '%.3g %s' % (n / size, unit)
    return '%d B' % n


def clock(s):
    if s is None:
        return '-'
    return '%.1f s' % s if s < 100 else '%d:%02d min' % (s // 60, s % 60) if s < 3600 else '%d:%02d:%02d h' % (s // 3600, s // 60 % 60, s % 60)


def row(cells):
    print('| %s |' % ' | '.join(str(x) for x in cells), flush=True)


def assumptions(a):
    print('Assumed:\n')
    for name, _, unit, what in RATES:
        print('* `--%s` %g %s: %s' % (name, getattr(a, name.replace('-', '_')), unit, what))
    print('* %d ranks a node, %d workers a rank; a worker reads the pieces of a block one after the other, converts, writes; nothing is cached' %
          (a.ranks, a.workers))
    print('* each shard\'s header is read by one rank and asked for by the others, 4 questions and 270 kB a file (counted with strace); each rank understands all '
          '(`plan`: processor time of this machine for opening, layout, plan and split)')
    print('* trained with bf16 and Adam, ZeRO-3 where no other is named, on 8 GPUs a node: by %s GPUs, or by all of the nodes that convert if they are more; '
          'local: a rank\'s shards are on the disk of its node' % ', '.join('%d (%s)' % (MODELS[m][1], m) for m in a.models.split(',')))
    print('* shapes: %s' % '; '.join('%s: %s' % (m, SHAPES[m]) for m in a.models.split(',')))
    print('* fp32: `ckpt convert`, to safetensors of 5 GB on the shared file system; half: `ckpt reshard`, weights and moments, to half the ranks, '
          'beside the shards (local: on the disks of the nodes of these ranks)')


def limit(d):
    """The busiest kind of server."""
    name, busy = max(d['busy'].items(), key=lambda x: x[1])
    return '%s %d %%' % (name.replace('_', ' '), round(busy * 100))


def tables(a, work):
    rates = {name.replace('-', '_'): getattr(a, name.replace('-', '_')) for name, *_ in RATES}
    assumptions(a)
    for target, title in (('fp32', 'ZeRO -> fp32 safetensors'), ('half', 'ZeRO, weights and moments -> half the ranks')):
        print('\n### %s\n' % title)
        row(['model', 'shards', 'nodes', 'from ranks', 'read', 'written', 'makespan', 'copying', 'plan', 'busiest', 'bytes a rank: mean', 'most / mean',
             'over the network', 'headers over it', 'peak MiB a rank', 'DeepSpeed\'s script'])
        row(['---'] * 16)
        for model in a.models.split(','):
            args, world, script = MODELS[model]
            made = None
            for nodes in (int(x) for x in a.nodes.split(',')):
                ranks = max(world, 8 * nodes)
                if ranks != made:
                    folder = generate(a, work, args, ranks)
                made = ranks
                for shards in ('shared', 'local'):
                    d = simulate(a, folder, '--to', target, '--nodes', nodes, '--ranks', a.ranks, '--workers', a.workers,
                                 *(['--local'] if shards == 'local' else []), **rates)
                    row([model, shards, nodes, ranks, si(d['read']), si(d['written']), clock(d['s']), clock(d['copy_s']),
                         '%.1f s' % (d['plan_s'] + d['split_s']), limit(d), si(d['rank_mean']), '%.3f' % d['over'], si(d['far']), si(d['told']),
                         round(d['plan_kib'] / 1024 + d['buffers'] / 2**20), clock(script) if target == 'fp32' and nodes == 1 else ''])


def main():
    p = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.add_argument('--simulate', default='build/simulate')
    p.add_argument('--gen', default='build/gen_zero')
    p.add_argument('--check', action='store_true', help='the simulator itself')
    p.add_argument('--models', default=','.join(MODELS))
    p.add_argument('--nodes', default='1,8,64,256')
    p.add_argument('--ranks', type=int, default=4, help='of a node')
    p.add_argument('--workers', type=int, default=4, help='of a rank')
    p.add_argument('--work', default=None, help='folder for the sparse checkpoints (default: the temporary folder)')
    for name, default, unit, what in RATES:
        p.add_argument('--' + name, type=float, default=default, help='%s: %s' % (unit, what))
    a = p.parse_args()
    work = tempfile.mkdtemp(dir=a.work)
    try:
        return check(a, work) if a.check else tables(a, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == '__main__':
    sys.exit(main())
