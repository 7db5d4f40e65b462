#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure PyTorch's distributed checkpoints: to safetensors, from ZeRO, and opening one of a million chunks.

  dcp.py --bin build/bin --gen build/gen_zero [--repeat 3] [--no-tools] [--no-run] [--ranks 1024] [--tensors 1000] [--work DIR]

GPT-2 355M with Adam, 4.3 GB, saved by torch's own dcp.save.  To fp32 safetensors beside `cp` and `sync` of the output, beside
dcp_to_torch_save and `accelerate merge-weights` (once each; that of the weights alone); ZeRO-3 of 4 ranks to DCP, the whole state, beside
`cp -r` of the source.  The programs take turns, a first round does not count.  The wide one has metadata made with torch's classes, and
data files with holes.
"""
import argparse
import os
import pickle
import platform
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from bench import SIZES, clear, measure, once, row, tree_bytes

TO_TORCH = 'import sys; from torch.distributed.checkpoint.format_utils import dcp_to_torch_save as c; c(sys.argv[1], sys.argv[2])'
MERGE = 'import sys; from accelerate.utils import merge_fsdp_weights as c; c(sys.argv[1], sys.argv[2], safe_serialization=True)'
COPY = ['sh', '-c', 'cp -r "$1" "$2" && find "$2" -type f -exec sync {} +', 'sh']


def gpt2(layers=24, width=1024, vocab=50257, context=1024):
    """Names and shapes of GPT-2's parameters."""
    yield 'transformer.wte.weight', (vocab, width)
    yield 'transformer.wpe.weight', (context, width)
    for i in range(layers):
        at = 'transformer.h.%d.' % i
        for name, rows, cols in (('attn.c_attn', width, 3 * width), ('attn.c_proj', width, width), ('mlp.c_fc', width, 4 * width),
                                 ('mlp.c_proj', 4 * width, width)):
            yield at + name + '.weight', (rows, cols)
            yield at + name + '.bias', (cols,)
        for name in ('ln_1', 'ln_2'):
            yield at + name + '.weight', (width,)
            yield at + name + '.bias', (width,)
    yield 'transformer.ln_f.weight', (width,)
    yield 'transformer.ln_f.bias', (width,)


def save(folder, with_adam):
    import torch
    import torch.distributed.checkpoint as dcp
    torch.manual_seed(0)
    model = {name: torch.randn(shape) for name, shape in gpt2()}
    state = {'model': model}
    if with_adam:
        group = {'lr': 1e-3, 'betas': (0.9, 0.999), 'eps': 1e-8, 'weight_decay': 0.01, 'params': list(model)}
        moments = {n: {'exp_avg': torch.randn_like(t), 'exp_avg_sq': torch.rand_like(t), 'step': torch.tensor(3.)} for n, t in model.items()}
        state['optim'] = {'state': moments, 'param_groups': [group]}
    dcp.save(state, storage_writer=dcp.FileSystemWriter(folder, thread_count=2), no_dist=True)


def wide(folder, ranks, tensors):
    """Row-sharded bf16 tensors of 1 GiB elements for 1024 ranks; names are a text of each rank's own, as gathered ones are."""
    import torch
    from torch.distributed.checkpoint.filesystem import _StorageInfo
    from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, MetadataIndex, TensorProperties, TensorStorageMetadata
    rows, width = 256, 4096
    n_bytes = rows * width * 2 + 1200
    os.mkdir(folder)
    state, storage, planner = {}, {}, {}
    name = lambda i: 'model.layers.%d.mlp.part%d.weight' % divmod(i, 7)
    for i in range(tensors):
        chunks = [ChunkStorageMetadata(torch.Size([r * rows, 0]), torch.Size([rows, width])) for r in range(ranks)]
        state[name(i)] = TensorStorageMetadata(TensorProperties(dtype=torch.bfloat16), torch.Size([ranks * rows, width]), chunks)
        planner[name(i)] = ('model', name(i)[6:])
    for r in range(ranks):
        path = '__%d_0.distcp' % r
        for i in range(tensors):
            storage[MetadataIndex(name(i), torch.Size([r * rows, 0]), r)] = _StorageInfo(path, n_bytes * i, n_bytes)
        with open(os.path.join(folder, path), 'wb') as f:
            f.seek(n_bytes * (tensors - 1))
            f.write(b'PK\3\4')  # opening looks at where the last entry begins
            f.truncate(n_bytes * tensors)
    with open(os.path.join(folder, '.metadata'), 'wb') as f:
        pickle.dump(Metadata(state, planner, storage), f, protocol=4)


def to_safetensors(a, work):
    src, weights, out, copy = (os.path.join(work, x) for x in ('src', 'weights', 'out', 'copy'))
    for folder, adam in ((src, True), (weights, False)):
        subprocess.run([sys.executable, __file__, '--save', folder] + ['--adam'] * adam, check=True)
    convert = [os.path.join(a.bin, 'ckpt'), 'convert', '-q', '--dtype', 'fp32', src, os.path.join(out, 'model.safetensors')]
    fresh = lambda: (clear(out)(), os.mkdir(out))
    once(convert, fresh)
    (ours, mem), (cp, _) = measure([(convert, fresh), (COPY + [out, copy], clear(copy))], a.repeat)
    print('\n### DCP to fp32 safetensors: GPT-2 355M with Adam, %.2f GB, %.2f GB of weights\n' % (tree_bytes(src) / 1e9, tree_bytes(out) / 1e9))
    row(['what', 's', 'peak MiB', 'beside cp', 'beside ours'])
    row(['---'] * 5)
    row(['ckpt convert', '%.2f' % ours, mem, '%.2f' % (ours / cp), '1.0'])
    row(['cp of the output, sync', '%.2f' % cp, '', '1.00', '%.1f' % (cp / ours)])
    jobs = [] if a.no_tools else [('dcp_to_torch_save', [sys.executable, '-c', TO_TORCH, src, os.path.join(copy, 'all.pt')]),
                                  ('accelerate merge-weights, weights alone', [sys.executable, '-c', MERGE, weights, copy])]
    for name, cmd in jobs:
        s, m = once(cmd, lambda: (clear(copy)(), os.mkdir(copy)))
        row([name, '%.2f' % s, m, '%.2f' % (s / cp), '%.1f' % (s / ours)])
    for d in (src, weights, out, copy):
        shutil.rmtree(d, ignore_errors=True)


def from_zero(a, work):
    src, out, copy = (os.path.join(work, x) for x in ('src', 'out', 'copy'))
    subprocess.run([a.gen, '--stage', '3', '--world', '4', '--dtype', 'bf16'] + SIZES['1.4'] + [src], check=True, stdout=subprocess.DEVNULL)
    reshard = [os.path.join(a.bin, 'ckpt'), 'reshard', '-q', '--to', 'dcp', src, out]
    (ours, mem), (cp, _) = measure([(reshard, clear(out)), (COPY + [src, copy], clear(copy))], a.repeat)
    print('\n### ZeRO-3 of 4 ranks to DCP, whole state: %.2f GB\n' % (tree_bytes(src) / 1e9))
    row(['what', 's', 'peak MiB', 'beside cp'])
    row(['---'] * 4)
    row(['ckpt reshard --to dcp (%.2f GB)' % (tree_bytes(out) / 1e9), '%.2f' % ours, mem, '%.2f' % (ours / cp)])
    row(['cp -r of the source, sync', '%.2f' % cp, '', '1.00'])
    for d in (src, out, copy):
        shutil.rmtree(d, ignore_errors=True)


def opening(a, work):
    src = os.path.join(work, 'wide')
    subprocess.run([sys.executable, __file__, '--wide', src, '--ranks', str(a.ranks), '--tensors', str(a.tensors)], check=True)
    (ls, mem), (info, _) = measure([([os.path.join(a.bin, 'ckpt'), v, src], None) for v in ('ls', 'info')], a.repeat)
    load = [sys.executable, '-c', 'import pickle, sys; pickle.load(open(sys.argv[1], "rb"))', os.path.join(src, '.metadata')]
    s, m = once(load)
    print('\n### Opening: %d ranks, %d tensors, .metadata of %.0f MB\n' %
          (a.ranks, a.tensors, os.path.getsize(os.path.join(src, '.metadata')) / 1e6))
    row(['what', 's', 'peak MiB'])
    row(['---'] * 3)
    row(['ckpt ls', '%.2f' % ls, mem])
    row(['ckpt info', '%.2f' % info, mem])
    row(['pickle.load of .metadata, torch imported', '%.2f' % s, m])
    shutil.rmtree(src, ignore_errors=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--gen', default='build/gen_zero')
    p.add_argument('--repeat', type=int, default=3)
    p.add_argument('--ranks', type=int, default=1024)
    p.add_argument('--tensors', type=int, default=1000)
    p.add_argument('--no-tools', action='store_true', help='without the tools of torch and accelerate')
    p.add_argument('--no-run', action='store_true', help='opening only')
    p.add_argument('--work', default=None, help='folder on the disk to measure (default: the temporary folder)')
    p.add_argument('--save', help=argparse.SUPPRESS)
    p.add_argument('--adam', action='store_true', help=argparse.SUPPRESS)
    p.add_argument('--wide', help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.save:
        return save(a.save, a.adam)
    if a.wide:
        return wide(a.wide, a.ranks, a.tensors)
    work = tempfile.mkdtemp(dir=a.work)
    model = [x.split(':')[1].strip() for x in open('/proc/cpuinfo') if x.startswith('model name')][:1]
    print('%s, %d processors; page cache warm; load %.1f' % (''.join(model) or platform.machine(), os.cpu_count(), os.getloadavg()[0]))
    try:
        if not a.no_run:
            to_safetensors(a, work)
            from_zero(a, work)
        opening(a, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == '__main__':
    main()
