#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Load what the tools wrote with the real torch, safetensors, transformers and DeepSpeed, and compare bit for bit.

  load.py [--old] --bin build/bin FIXTURES...

--old: an old torch (1.13) alone: torch files only.
"""
import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'golden'))
from run import LOST, SKIP_KINDS, dtype_name  # noqa: E402

passed, failed = 0, 0


def tool(bin_, name, *args):
    p = subprocess.run([os.path.join(bin_, name)] + list(args), capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError('%s %s: exit %d: %s' % (name, ' '.join(args), p.returncode, p.stderr.strip()))
    return p.stdout


def digest(t):
    import torch
    t = t.detach().contiguous()
    return hashlib.sha256(bytes(t.reshape(-1).view(torch.uint8).numpy().tobytes()) if t.numel() else b'').hexdigest()


def check(label, fn, *args):
    global passed, failed
    try:
        fn(*args)
        passed += 1
    except Exception as e:  # a failure of any kind is a failed check
        failed += 1
        print('FAIL %s: %s' % (label, e))


EXTRA = {}


def same(got, want):
    import torch
    got = {k: v for k, v in got.items() if k in want or k not in EXTRA}
    assert set(got) == set(want), 'names differ: %s' % sorted(set(got) ^ set(want))[:5]
    for k, e in want.items():
        t, dtype = got[k], dtype_name(e['dtype'])
        if t.dtype == torch.float32 and dtype in ('bfloat16', 'float16'):   # widened, as DeepSpeed's script does
            t = t.to(getattr(torch, dtype))
            assert digest(t.float()) == digest(got[k]), '%s: not what widening gives' % k
        have = (str(t.dtype).replace('torch.', ''), list(t.shape), digest(t))
        assert have == (dtype, list(e['shape']), e['sha256']), '%s: %s, expected %s' % (k, have, e)


def torch_file(bin_, ckpt, want, tmp, old):
    import torch
    out = os.path.join(tmp, 'w.bin')
    tool(bin_, 'zero_to_fp32', ckpt, out)
    same(torch.load(out) if old else torch.load(out, weights_only=True), want)
    if not old:
        same(torch.load(out, weights_only=True, mmap=True), want)


def torch_shards(bin_, ckpt, want, tmp, old):
    import torch
    out = os.path.join(tmp, 'shards')
    tool(bin_, 'zero_to_fp32', ckpt, out, '--max_shard_size', '0.3KB')
    index = json.load(open(os.path.join(out, 'pytorch_model.bin.index.json')))
    got = {}
    for f in sorted(set(index['weight_map'].values())):
        part = torch.load(os.path.join(out, f)) if old else torch.load(os.path.join(out, f), weights_only=True)
        for k, v in part.items():
            assert index['weight_map'][k] == f, k
        got.update(part)
    same(got, want)
    total = sum({t.data_ptr(): t.numel() * t.element_size() for t in got.values() if t.numel()}.values())
    assert index['metadata']['total_size'] == total, (index['metadata'], total)


def safetensors_file(bin_, ckpt, want, tmp):
    import safetensors
    import safetensors.torch
    out = os.path.join(tmp, 'w.safetensors')
    tool(bin_, 'zero_to_fp32', ckpt, out)
    got = safetensors.torch.load_file(out)
    with safetensors.safe_open(out, 'pt') as f:
        meta = f.metadata()
    assert meta['format'] == 'pt'
    ties = {k: v for k, v in meta.items() if v in got and k not in got}
    for alias, owner in ties.items():
        got[alias] = got[owner]
    same(got, want)
    if not ties:  # byte for byte what the library itself writes
        again = os.path.join(tmp, 'again.safetensors')
        safetensors.torch.save_file({k: v.contiguous() for k, v in got.items()}, again, metadata={'format': 'pt'})
        assert open(out, 'rb').read() == open(again, 'rb').read(), 'bytes differ from safetensors'


def against_script(bin_, ckpt, want, tmp):
    """The real zero_to_fp32.py on the same folder gives the same dictionary."""
    import torch
    from deepspeed.utils import zero_to_fp32 as ds
    ours = os.path.join(tmp, 'ours.bin')
    tool(bin_, 'zero_to_fp32', ckpt, ours)
    got = torch.load(ours, weights_only=True)
    theirs = ds.get_fp32_state_dict_from_zero_checkpoint(ckpt)
    assert list(got) == list(theirs), 'names or order differ'
    for k in got:
        t = theirs[k].float() if theirs[k].is_floating_point() else theirs[k]
        assert got[k].dtype == t.dtype and got[k].shape == t.shape and digest(got[k]) == digest(t), k


def pretrained(bin_, src, tmp, cls):
    """transformers loads the folder without a missing or unexpected key."""
    import transformers
    out = os.path.join(tmp, 'hf')
    tool(bin_, 'ckpt', 'convert', '-q', src, out, '--to', 'hf', '--max-shard-size', '6KB')
    model, info = getattr(transformers, cls).from_pretrained(out, output_loading_info=True)
    assert not info['missing_keys'] and not info['unexpected_keys'] and not info['mismatched_keys'], info
    assert sum(p.numel() for p in model.parameters()) > 0


def generated(bin_, tmp, stage, world, dtype):
    """DeepSpeed's own script accepts what the benchmark's generator writes, and agrees with ours."""
    import torch
    from deepspeed.utils import zero_to_fp32 as ds
    gen = os.path.join(os.path.dirname(bin_), 'gen_zero')
    folder = os.path.join(tmp, 'gen%d_%d' % (stage, world))
    subprocess.run([gen, '--stage', str(stage), '--world', str(world), '--dtype', dtype, '--layers', '2', '--width', '48',
                    '--vocab', '131', folder], check=True, capture_output=True)
    ours = os.path.join(tmp, 'gen.bin')
    tool(bin_, 'zero_to_fp32', folder, ours)
    got = torch.load(ours, weights_only=True)
    theirs = ds.get_fp32_state_dict_from_zero_checkpoint(folder)
    assert list(got) == list(theirs) and len(got) > 10
    for k in got:
        assert digest(got[k]) == digest(theirs[k]), k


def fixtures(folders):
    seen = set()
    for top in folders:
        for name in sorted(os.listdir(top)) if os.path.isdir(top) else []:
            path = os.path.join(top, name)
            if name not in seen and not name.startswith(SKIP_KINDS) and os.path.exists(os.path.join(path, 'expected.json')):
                seen.add(name)
                yield name, path, json.load(open(os.path.join(path, 'expected.json')))


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--old', action='store_true')
    p.add_argument('--bin', default='build/bin')
    p.add_argument('folders', nargs='+')
    a = p.parse_args()
    for name, path, e in fixtures(a.folders):
        if str(e.get('weights_source', '')).startswith('live engine'):
            # the engine's parameters lack the module's buffers and tied names, which our outputs have: golden/run.py compares those
            EXTRA.update(e.get('buffers') or {}, **(e.get('tied') or {}))
        else:
            EXTRA.clear()
        EXTRA.update(dict.fromkeys(LOST.get(name, ())))
        if 'weights' not in e or (e.get('tag') is not None and e.get('tag') != e.get('latest')):
            continue
        ckpt = os.path.join(path, 'ckpt')
        for fn in [torch_file, torch_shards] if a.old else [torch_file, torch_shards, safetensors_file]:
            with tempfile.TemporaryDirectory() as tmp:
                args = (a.bin, ckpt, e['weights'], tmp) + ((a.old,) if fn is not safetensors_file else ())
                check('%s %s' % (name, fn.__name__), fn, *args)
        if not a.old and str(e.get('weights_source', '')) == 'deepspeed.utils.zero_to_fp32' and not name.startswith('old'):
            with tempfile.TemporaryDirectory() as tmp:
                check('%s against DeepSpeed' % name, against_script, a.bin, ckpt, e['weights'], tmp)
    if not a.old:
        for name, cls in (('hf_trainer_llama_z3_bf16_w2/ckpt', 'AutoModelForCausalLM'), ('hf_bert_sharded', 'AutoModelForMaskedLM'),
                          ('hf_trainer_bert_z2_fp32_w2/ckpt', 'AutoModelForSequenceClassification'),
                          ('old_hf_bert_bin', 'AutoModelForMaskedLM')):
            src = [os.path.join(f, name) for f in a.folders if os.path.isdir(os.path.join(f, name))]
            if src:
                with tempfile.TemporaryDirectory() as tmp:
                    check('transformers loads %s' % name, pretrained, a.bin, src[0], tmp, cls)
        for stage, world, dtype in ((1, 2, 'bf16'), (2, 3, 'fp16'), (3, 4, 'bf16'), (3, 7, 'fp32')):
            with tempfile.TemporaryDirectory() as tmp:
                check('generated stage %d world %d' % (stage, world), generated, a.bin, tmp, stage, world, dtype)
    print('interop%s: %d passed, %d failed' % (' (old torch)' if a.old else '', passed, failed))
    sys.exit(1 if failed or not passed else 0)


main()
