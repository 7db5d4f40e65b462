#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that know nothing of ckpt read what `ckpt mount` shows, as they read files that were written.

    mounts.py --bin build/bin [DeepSpeed|FSDP2|transformers|safetensors|torch|numpy...] [-v]

transformers loads model folders, safetensors takes slices, torch loads archives with and without mmap, numpy its own: all must be
what they make of the files of `ckpt convert`, bit for bit.  DeepSpeed trains a small model and saves on the way; mounts of that
save as runs of other worlds and stages, or as a universal checkpoint, must then go on with the losses of the run that was
never interrupted, as in reshard_resume.py and universal.py; so must FSDP2 from a distributed checkpoint (fsdp_resume.py).

Each mount is ended by SIGTERM: status 0, nothing stays mounted, the folder is empty, and no more than 300 MiB were in use.
Skipped where nothing can be mounted.
"""
import contextlib
import dataclasses
import io
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

os.environ.update(DS_ACCELERATOR='cpu', GLOO_SOCKET_IFNAME='lo', HF_HUB_OFFLINE='1')
try:
    import checks
    import ds_harness
    import fsdp_resume
    import numpy
    import ranks
    import reshard_resume
    import torch
    import universal
    from safetensors import safe_open
    from safetensors.torch import save_file
except ImportError as x:
    print('mounts: 0 passed, 0 failed, skipped: %s' % x)
    sys.exit(0)

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'fixtures')
LLAMA = os.path.join(FIXTURES, 'hf_trainer_llama_z3_bf16_w2', 'ckpt')
PEAK = 300 << 20   # bytes; more of the generated checkpoint is read through one mount
LIMIT = 60         # seconds for a mount to begin or to end
BIG = 'generated'

# A run of DeepSpeed: (world, stage, dtype), and how it goes on.
RUNS = {
    (2, 3, 'fp32'): {'zero': ((3, 2), (1, 1), (3, 3)), 'universal': ((3, 2), (1, 3)), 'dcp': ((3,),)},
    (3, 2, 'bf16'): {'zero': ((3, 2), (2, 3), (2, 1)), 'universal': ((2, 1),), 'dcp': ()},
}
PRETRAINED = (('hf',), ('hf', '--max-shard-size', '4KB'), ('hf', '--dtype', 'fp32'), ('hf-bin',), ('hf-bin', '--max-shard-size', '4KB'))
SLICES = ((LLAMA,), (LLAMA, '--with-optimizer'), (BIG, '--with-optimizer'), (BIG, '--dtype', 'bf16'), (BIG, '--verify'))
ARCHIVES = ((LLAMA,), (os.path.join(FIXTURES, 'torch_dtypes', 'zip.pt'),), (os.path.join(FIXTURES, 'torch_views', 'zip.pt'),),
            (os.path.join(FIXTURES, 'torch_views', 'legacy.pt'),), (BIG,), (BIG, '--dtype', 'fp16', '--with-optimizer'))
NPZ = ((LLAMA, '--dtype', 'fp32', '--with-optimizer'), (os.path.join(FIXTURES, 'numpy_npz', 'plain.npz'),),
       (os.path.join(FIXTURES, 'numpy_npz', 'deflated.npz'),), (BIG, '--dtype', 'fp16'))


# ---- mounting ----

def begin(a, folder, source, options):
    """The process of `ckpt mount`, once its folder is mounted or it has ended."""
    command = [os.path.join(a.bin, 'ckpt'), 'mount', '-q', source, folder, *options]
    p = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    until = time.time() + LIMIT
    while p.poll() is None and not os.path.ismount(folder) and time.time() < until:
        time.sleep(0.005)
    return p


def peak(p):
    """The largest memory that the process has had, in bytes."""
    with open('/proc/%d/status' % p.pid, encoding='utf-8') as f:
        return int(f.read().split('VmHWM:')[1].split()[0]) << 10


def end(p, folder):
    """End it as a service manager does; what is wrong then.  Nothing may stay behind, also where it hangs."""
    p.send_signal(signal.SIGTERM)
    try:
        _, said = p.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        subprocess.run(['fusermount3', '-u', '-z', folder], capture_output=True, check=False)
        p.kill()
        p.communicate()
        return ['the mount does not end']
    problems = ['the mount ended with status %d: %s' % (p.returncode, said.strip())] if p.returncode else []
    if os.path.ismount(folder):
        subprocess.run(['fusermount3', '-u', '-z', folder], capture_output=True, check=False)
        return problems + ['the folder is still a mount']
    return problems + (['the folder is not empty: %s' % os.listdir(folder)] if os.listdir(folder) else [])


@contextlib.contextmanager
def mounted(a, tmp, problems, source, *options):
    """A folder that shows source in another format; what is wrong with the mount itself goes to problems."""
    folder = tempfile.mkdtemp(prefix='mount', dir=tmp)
    p = begin(a, folder, source, options)
    failed, used = None, 0
    try:
        if not os.path.ismount(folder):
            raise RuntimeError('nothing is mounted')
        yield folder
        used = peak(p)
    except Exception as x:   # a mount that has ended by itself is the cause of it: both are said
        failed = x
    finally:
        found = end(p, folder)
    if failed:
        raise RuntimeError('; '.join(['%s: %s' % (type(failed).__name__, failed)] + found)) from failed
    problems += found
    if used > PEAK:
        problems.append('the mount has used %d MiB' % (used >> 20))


def why_not(a, tmp):
    """Why nothing can be mounted here; '': something can, or fails otherwise, which the checks then say."""
    if not os.path.exists('/dev/fuse'):
        return 'no /dev/fuse'
    folder = tempfile.mkdtemp(dir=tmp)
    p = begin(a, folder, LLAMA, ('--to', 'safetensors'))
    if os.path.ismount(folder):
        end(p, folder)
        return ''
    p.kill()
    said = p.communicate()[1].strip()
    return said.splitlines()[-1] if 'cannot be mounted' in said or 'cannot be loaded' in said else ''


# ---- files ----

def source_of(a, tmp, source):
    """A fixture as it is; BIG: a checkpoint that is larger than the memory that a mount may use."""
    if source != BIG:
        return source
    folder = os.path.join(tmp, BIG)
    if not os.path.exists(folder):
        gen = os.path.join(os.path.dirname(os.path.abspath(a.bin)), 'gen_zero')
        subprocess.run([gen, '--stage', '3', '--world', '2', '--dtype', 'bf16', '--layers', '3', '--width', '768', '--vocab', '16000',
                        folder], check=True, capture_output=True)
    return folder


def written(a, tmp, source, *options):
    """What is shown, written by `ckpt convert`; the options of mounts alone left out."""
    out = os.path.join(tempfile.mkdtemp(prefix='real', dir=tmp), 'model')
    checks.ckpt(a, 'convert', '-q', source, out, *[x for x in options if x != '--verify'])
    return out


def bytes_differ(got, want):
    with open(got, 'rb') as f, open(want, 'rb') as g:
        while True:
            x, y = f.read(1 << 22), g.read(1 << 22)
            if x != y:
                return ['%s has other bytes' % os.path.basename(got)]
            if not x:
                return []


def folders_differ(got, want):
    """Names, and bytes where there are no archives of torch: theirs are written with other checksums."""
    names = sorted(os.listdir(want))
    if sorted(os.listdir(got)) != names:
        return ['the mount has %s instead of %s' % (sorted(os.listdir(got)), names)]
    plain = [n for n in names if not n.endswith(('.bin', '.pt'))]
    return [x for n in plain for x in bytes_differ(os.path.join(got, n), os.path.join(want, n))]


def pretrained(a, tmp, *options):
    """transformers makes the same model of the mount as of the folder that was written."""
    from transformers import AutoModelForCausalLM
    problems, real = [], written(a, tmp, LLAMA, '--to', *options)
    with mounted(a, tmp, problems, LLAMA, '--to', *options) as folder:
        got, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
        problems += ['%s: %s' % (k, sorted(v)[:3]) for k, v in info.items() if v]
        problems += folders_differ(folder, real)
    want = AutoModelForCausalLM.from_pretrained(real)
    problems += reshard_resume.tensors_differ('the model', got.state_dict(), want.state_dict())
    x = torch.arange(12).reshape(2, 6)
    with torch.no_grad():   # what was mounted is gone
        same = torch.equal(got(x).logits, want(x).logits)
    return problems + ([] if same else ['the model computes something else'])


def cuts(shape, rng):
    """Places of a few slices: one element, and ranges of each axis."""
    if not shape or 0 in shape:
        return []
    ends = [[sorted(rng.sample(range(n + 1), 2)) for n in shape] for _ in range(2)]
    one = [rng.randrange(n) for n in shape]
    return [tuple(slice(*e) for e in axes) for axes in ends] + [tuple(slice(i, i + 1) for i in one), (slice(0, 1),)]


def slices(a, tmp, source, *options):
    """safetensors' slices, here and there before anything is read in order; then all bytes."""
    source = source_of(a, tmp, source)
    problems, real, rng = [], written(a, tmp, source, '--to', 'safetensors', *options), random.Random(7)
    with mounted(a, tmp, problems, source, '--to', 'safetensors', *options) as folder:
        path = os.path.join(folder, 'model.safetensors')
        with safe_open(path, 'pt') as got, safe_open(real, 'pt') as want:
            if list(got.keys()) != list(want.keys()) or got.metadata() != want.metadata():
                problems.append('names or metadata differ')
                return problems
            for name in rng.sample(list(want.keys()), len(want.keys())):
                for cut in cuts(want.get_slice(name).get_shape(), rng):
                    if not reshard_resume.same_bits(got.get_slice(name)[cut], want.get_slice(name)[cut]):
                        problems.append('%s%s has other values' % (name, cut))
        problems += bytes_differ(path, real)
    return problems


def archives(a, tmp, source, *options):
    """torch.load, and with mmap, whose tensors are still there when the mount is ended."""
    source = source_of(a, tmp, source)
    problems, mapped = [], {}
    want = torch.load(written(a, tmp, source, '--to', 'torch', *options), weights_only=True)
    with mounted(a, tmp, problems, source, '--to', 'torch', '--name', 'weights.pt', *options) as folder:
        path = os.path.join(folder, 'weights.pt')
        mapped = torch.load(path, weights_only=True, mmap=True)
        problems += reshard_resume.tensors_differ('mmap', mapped, want)
        got = torch.load(path, weights_only=True)
        if list(got) != list(want) or [got[n].stride() for n in got] != [want[n].stride() for n in got]:
            problems.append('order or strides differ')
        problems += reshard_resume.tensors_differ('torch.load', got, want)
    del mapped
    return problems


def same_array(x, y):
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


def npz(a, tmp, source, *options):
    """numpy, which compares the checksums."""
    source = source_of(a, tmp, source)
    problems, real = [], written(a, tmp, source, '--to', 'npz', *options)
    with mounted(a, tmp, problems, source, '--to', 'npz', *options) as folder:
        path = os.path.join(folder, 'model.npz')
        with numpy.load(path) as got, numpy.load(real) as want:
            problems += [] if got.files == want.files else ['names differ']
            problems += ['%s has other values' % n for n in want.files if n in got and not same_array(got[n], want[n])]
        problems += bytes_differ(path, real)
    return problems


# ---- a run of DeepSpeed, and how it goes on ----

def recipe(world, stage, dtype):
    """A fixture's run (tied weights, two groups, a schedule, a buffer) at another world and stage, before its first step."""
    e = ds_harness.read_expected(os.path.join(FIXTURES, 'z1_bf16_w3_groups'))
    config = {**e['ds_config'], 'bf16': {'enabled': dtype == 'bf16'}, 'gradient_clipping': 1.0,
              'zero_optimization': {'stage': stage}}
    return {**e, 'world': world, 'stage': stage, 'dtype': dtype, 'ds_config': config}


def train_rank(e, data, folder, out, rank):
    """Train, save, and train on without a break."""
    import deepspeed
    ds_harness.patch()
    model = ds_harness.make_model(e, {})
    model.mask.copy_(torch.ones_like(model.mask).tril())
    case = ds_harness.Case('', folder, folder, e['world'])
    engine = deepspeed.initialize(model=model, config=ds_harness.config_of(case, e),
                                  model_parameters=ds_harness.make_groups(model, e, False))[0]
    ds_harness.train(engine, dataclasses.replace(case, steps=e['global_step']), {**e, 'global_step': 0}, data, rank)
    engine.save_checkpoint(os.path.join(folder, e['checkpoint']))
    rates = engine.get_lr()
    rows = ds_harness.train(engine, case, e, data, rank)
    if rank == 0:
        torch.save({'rows': rows, 'rates': rates}, out)


def trained(world, stage, dtype, folder):
    """Run it: what expected.json would say of it, less what was saved."""
    os.makedirs(folder)
    e, rng = recipe(world, stage, dtype), torch.Generator().manual_seed(7)
    shape = (e['global_step'] + ds_harness.STEPS, world, e['gas'], e['micro'], 8)
    data = {k: torch.randint(0, 31, shape, generator=rng) for k in 'xy'}
    save_file(data, os.path.join(folder, 'batches.safetensors'))
    got, error = ranks.run_ranks(world, lambda rank, out: train_rank(e, data, folder, out, rank), 120)
    if error:
        raise RuntimeError(ds_harness.short(error))
    groups = [{**g, 'lr': lr} for g, lr in zip(e['optimizer']['param_groups'], got['rates'])]
    return {**e, 'resume': {'rows': got['rows'], 'losses': [r['loss'] for r in got['rows']]},
            'optimizer': {**e['optimizer'], 'param_groups': groups}}


def digests(tensors):
    return {n: {'dtype': 'float32', 'sha256': universal.digest(t)} for n, t in tensors.items()}


def original_of(e, folder):
    """What DeepSpeed holds of its own save; e gets it as expected.json has it."""
    r = reshard_resume.original_of('', folder, e, e['stage'])
    if r.error:
        raise RuntimeError('the original: ' + ds_harness.short(r.error))
    e['weights'], e['counters'] = digests(r.weights), r.counters
    e['optimizer']['state'] = {k: digests(v) for k, v in r.state.items()}
    return r


def script(folder):
    """DeepSpeed's own consolidation."""
    from deepspeed.utils import zero_to_fp32
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(folder)


def zero(a, tmp, e, folder, original, world, stage):
    """load_checkpoint of a resharded run, and on; in 16 bits another world rounds as the original does with whole batches."""
    problems, source = [], os.path.join(folder, e['checkpoint'])
    exact = e['dtype'] == 'fp32' or (world, stage) == (e['world'], e['stage'])
    with mounted(a, tmp, problems, source, '--to', 'zero', '-w', str(world), '-s', str(stage)) as run:
        r = ds_harness.run_one(ds_harness.Case('', folder, run, world, stage, whole=not exact, expected=e))
        if r.error:
            problems.append('DeepSpeed: ' + ds_harness.short(r.error))
            return problems
        problems += reshard_resume.tensors_differ('zero_to_fp32', script(run), script(source))
    losses = e['resume']['losses'] if exact else original.losses
    problems += reshard_resume.held_differ(r, original) + reshard_resume.run_differs('', e, r, original, losses)
    return problems, 'losses off by %.1e' % ds_harness.far(r.losses, losses)


def universally(a, tmp, e, folder, _, world, stage):
    """load_universal, with what DeepSpeed leaves to the run itself as universal.py gives it."""
    problems = []
    made, gather = ds_harness.make_model, ds_harness.gather
    with mounted(a, tmp, problems, os.path.join(folder, e['checkpoint']), '--to', 'universal') as run:
        try:
            ds_harness.make_model, ds_harness.gather = universal.with_own(universal.model_file(run)), universal.with_steps(gather)
            # of several groups stage 3 takes the first one's settings for all: see universal.py
            case = ds_harness.Case('', folder, run, world, stage, universal=True, expected=e, wrong=stage < 3)
            r = ds_harness.run_one(case)
        finally:
            ds_harness.make_model, ds_harness.gather = made, gather
    losses = e['resume']['losses']
    return problems + universal.check(case, r, e, losses), 'losses off by %.1e' % ds_harness.far(r.losses, losses)


def fsdp(a, tmp, e, folder, _, world):
    """dcp.load under FSDP2, and on."""
    problems, source = [], os.path.join(folder, e['checkpoint'])
    data = fsdp_resume.load_file(os.path.join(folder, 'batches.safetensors'))
    with mounted(a, tmp, problems, source, '--to', 'dcp', '--to-tag', 'x', '-w', str(world)) as run:
        got, error = ranks.run_ranks(world, lambda rank, out: fsdp_resume.fsdp_rank(e, data, os.path.join(run, 'x'), out, rank), 120)
    if error:
        return problems + [ds_harness.short(error)]
    problems += fsdp_resume.held_differ(got['held'], fsdp_resume.flat(a, source, tmp))
    problems += fsdp_resume.run_differs(e, got, e['dtype'] != 'fp32')
    return problems, 'losses off by %.1e' % ds_harness.far(got['losses'], e['resume']['losses'][:len(got['losses'])])


# ---- all ----

def wanted(a, word):
    return not a.only or word in a.only


def train(run, world, stage, dtype, folder):
    run['e'] = trained(world, stage, dtype, folder)
    run['original'] = original_of(run['e'], folder)
    return []


def resume(a, tmp, tally):
    for (world, stage, dtype), ways in RUNS.items():
        label, run = '%s of %d ranks at stage %d' % (dtype, world, stage), {}
        folder = os.path.join(tmp, label.replace(' ', '_'))
        if not tally.call('DeepSpeed trains %s' % label, train, run, world, stage, dtype, folder):
            continue
        for way, check, word in ('zero', zero, 'DeepSpeed'), ('universal', universally, 'DeepSpeed'), ('dcp', fsdp, 'FSDP2'):
            for target in ways[way] if wanted(a, word) else ():
                tally.call('%s from %s of %s, at %s' % (word, way, label, target), check,
                           a, tmp, run['e'], folder, run['original'], *target)


def read(a, tmp, tally):
    for word, check, cases in (('transformers', pretrained, PRETRAINED), ('safetensors', slices, SLICES), ('torch', archives, ARCHIVES),
                               ('numpy', npz, NPZ)):
        for case in cases if wanted(a, word) else ():
            short = ' '.join(os.path.relpath(x, FIXTURES) if x.startswith(FIXTURES) else x for x in case)
            tally.call('%s: %s' % (word, short), check, a, tmp, *case)


def main():
    a = checks.arguments()
    with checks.scratch() as tmp:
        reason = why_not(a, tmp)
        if reason:
            print('mounts: 0 passed, 0 failed, skipped: %s' % reason)
            return 0
        tally = checks.Tally(a.verbose)
        ranks.prepare()
        from transformers.utils import logging
        logging.disable_progress_bar()
        # ranks are forked, so they come before anything that starts threads
        if wanted(a, 'DeepSpeed') or wanted(a, 'FSDP2'):
            resume(a, tmp, tally)
        read(a, tmp, tally)
    return tally.end('mounts')


if __name__ == '__main__':
    sys.exit(main())
