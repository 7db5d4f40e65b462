#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Complete or named: checkpoints with a file removed, cut, or taken from another save of the same model, in every verb.

  incomplete.py --bin build/bin [--some | --thin] [--log FILE] FIXTURES [NAME...]

Sources are the fixtures, and checkpoints that ckpt writes from one of them in every format it can write.  The other save has
the same tensors with other values, and stands one step further.  No command may end with status 0, under --strict where it has
that option, unless what it says or writes is what it says or writes of the whole checkpoint.  What no file can tell is in
EXCEPTIONS, each with its reason.
"""
import argparse
import collections
import hashlib
import json
import os
import re
import shutil
import signal
import struct
import sys
import tempfile
import zlib
from multiprocessing import Pool

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', 'golden'), os.path.join(HERE, '..', 'replay'), os.path.join(HERE, '..')]
from readers import read_safetensors
from training import ds_config, gpt2, write_tokens
from turns import mine

# Fixtures of the fast subset: one of each kind of source
SOME = ('accel_fsdp1_full_w2', 'dcp_hf_sharded_w2', 'old_hf_bert_bin', 'map_meta_llama2_s2', 'map_neox_tp2',
        'mcore_llama_distopt_dp2', 'mlegacy_gpt2_tp2_pp2', 'mlegacy_distopt_dp2', 'moe_ep2_z0_w2', 'pipe2_z0_w2', 'rl_verl_fsdp1_w2',
        'titan_llama3_fused_w3', 'tp2_z1_w4', 'z0_fp16_w2_fused', 'hf_trainer_fsdp1_full_w2', 'hf_trainer_llama_z3_bf16_w2', 'lightning_mp_w2',
        'numpy_npz', 'peft_tied_head')

# Fixtures of formats that ckpt does not write: with --some and --thin, all verbs
EACH = ('accel_fsdp1_full_w2', 'map_neox_tp2', 'mcore_llama_distopt_dp2', 'mlegacy_distopt_dp2', 'moe_ep2_z0_w2', 'pipe2_z0_w2', 'rl_verl_fsdp1_w2',
        'titan_llama3_fused_w3', 'tp2_z1_w4', 'z0_fp16_w2_fused', 'hf_trainer_llama_z3_bf16_w2', 'lightning_mp_w2', 'peft_tied_head')

# What is of no checkpoint: code, and what tests hold against a fixture
SIDE = re.compile(r'expected\.json$|README|\.py$|\.zerotrain$')
# a folder of these is a checkpoint, or has them below it
SINGLE = ('plain.npz', 'deflated.npz', 'one.npy', 'F16.gguf', 'zip.pt', 'legacy.pt', 'model.safetensors')
INNER = ('ckpt', 'meta', 'hf', 'adapter', 'universal')
VALUES = 'no file tells of which save the values of another file are'
READ = 'ckpt verify reads the masters and finds that they differ; weights alone are read without them'
# (source, file, kind, verbs, reason), regular expressions
EXCEPTIONS = (
    (r'(dcp_hf|hf_|old_hf_|gguf|made (hf|gguf)|map_|made consolidated).*', r'\.(safetensors|bin|gguf|pth)$', 'other', r'.*', VALUES),
    (r'.*', r'__\d+_\d+\.distcp$', 'other', r'.*', VALUES),
    (r'.*universal.*', r'(exp_avg|exp_avg_sq|fp32|optimizer_state)\.pt$', 'other', r'.*', VALUES),
    (r'.*', r'layer_\d+_expert_\d+_mp_rank_\d+_model_states\.pt$', 'other', r'.*', VALUES),
    (r'moe_ep2_z0.*', r'mp_rank_\d+_model_states\.pt$', 'other', r'.*', VALUES),
    (r'rl_.*', r'model_world_size_\d+_rank_\d+\.pt$', 'other', r'.*', VALUES),
    (r'mcore_.*', r'common\.pt$', 'other', r'.*', VALUES),
    (r'mcore_.*|mlegacy_.*', r'\.(distcp|pt)$', 'other', r'convert.*|ls.*|info|merge|mount', READ),
    (r'.*', r'(mp_rank_\d+|layer_\d+)\S*-?model_states\.pt$', 'other', r'diff', 'the masters are compared, which this file does not hold'),
    (r'hf_trainer_.*z[23].*', r'^model\.safetensors$', '.*', r'verify|doctor.*', 'the Trainer keeps it beside a run that is whole without it'),
    (r'dcp_hf_consolidated.*', r'^sharded/', '.*', r'.*', 'the pieces of what is consolidated beside them'),
    (r'made universal', r'zero_pp_rank_\d+_mp_rank_\d+_model_states\.pt$', 'removed', r'.*',
     'stage 3 alone loads it, and a converter of stages 1 and 2 writes none'),
    (r'accel.*', r'(optimizer|pytorch_model_fsdp|model)\.(bin|safetensors)$', 'other', r'.*', VALUES),
    (r'peft.*', r'adapter_model\.\w+$', 'other', r'.*', VALUES),
    (r'hf_trainer_fsdp1.*', r'^model\.safetensors$', 'removed', r'verify|doctor.*', 'a second copy: the Trainer resumes from pytorch_model_fsdp.bin'),
    (r'.*', r'(rng_state|random_states|scheduler|extra_state)\S*\.(pth|pkl|pt|bin)$', 'other', r'.*',
     'random states are no counters, and a schedule counts as its author steps it'),
    (r'.*', r'(rng_state|random_states|scheduler|trainer_state|training_args)\S*$', '.*', r'info', 'it lists what is there; verify and doctor tell what is missing or cut'),
    (r'(accel|k_acc).*', r'random_states_\d+\.pkl$', 'removed', r'verify|doctor.*', 'the last rank\'s: no file says how many there were, and accelerate goes on without'),
    (r'.*', r'training_args\.bin$|fsdp_config\.json$', 'removed', r'verify|doctor.*', 'a record that nothing reads when a run goes on; with FSDP the Trainer writes none'),
    (r'.*', r'tokenizer\S*$|vocab\.\w+$|merges\.txt$|generation_config\.json$', 'removed', r'verify|doctor.*|convert --to hf|info', 'many models are saved without'),
    (r'(old_)?hf_.*|.*/hf', r'config\.json$', 'removed', r'verify|doctor.*|convert --to hf|info', 'what is left is the folder of a model of one\'s own, which has no configuration'),
    (r'z1_bf16_w2_tags.*', r'^(?!global_step2/)', '.*', r'verify|doctor.*', 'of another tag: the run resumes from the one that latest names, and doctor\'s table says which are whole'),
    (r'z0_fp32.*', r'mp_rank_\d+_model_states\.pt$', 'other', r'.*', 'one file holds everything: the other save is a whole checkpoint'),
    (r'k_never_z3.*|z3_fp32_w2_sgd.*|z3_fp32_w1/.*', r'(optim|model)_states\.pt$', 'other', r'.*', 'float32 without 16-bit copies; the optimizer counts no steps, or there is no second rank to hold it against'),
    (r'k_zenflow.*', r'mp_rank_\d+_model_states\.pt$', 'other', r'.*', 'with ZenFlow the 16-bit weights run ahead of the masters, so the two are not compared'),
    (r'.*', r'(tokenizer\.model|vocab\.txt|merges\.txt)$', 'cut', r'verify|convert --to hf', 'lines, and pieces of a vocabulary, have no end mark'),
    (r'.*', r'(random_states\S*|scheduler\.bin)$', 'removed', r'doctor.*', 'beside DeepSpeed\'s tags: the optimizer\'s shards hold the mark of a schedule, which verify reads'),
    (r'old_dcp_torch23_dtensor.*', r'model_world_size_4_rank_\d\.pt$', '.*', r'verify|doctor.*|report.*', 'the folder holds a second checkpoint, of FSDP\'s ranks; the first is read'),
    (r'.*', r'^((adapter_)?config\.json|\.metadata)$', 'removed', r'info|report.*', 'it lists what is there; verify tells what is missing'),
    (r'.*', r'^config\.json$', 'cut', r'diff', 'the tensors are compared'),
    (r'.*', r'(_world_size_\d+_rank_\d+|_states|optim_rng|distrib_optim|step)\.pt$', 'other', r'report --stats', READ),
    (r'.*', r'(^|/)(((generation_|fsdp_|adapter_)?config|params|trainer_state)\.json|tokenizer\S*|vocab\.\w+|merges\.txt)$|(rng_state|random_states|scheduler|training_args|meta)\S*\.(pth|pkl|pt|bin)$',
     '.*', r'report.*', 'it shows tensors, and which checkpoints are whole; verify and doctor tell of the files beside them'),
    (r'hf_trainer_.*', r'^model\.safetensors$', '.*', r'report.*', 'a second copy: the page shows the first'),
    (r'trained fsdp-ranks', r'model_world_size_\d+_rank_\d+\.pt$', 'other', 'zerotrain', VALUES),
)


def flip(raw):
    """Other values of the same kind: the sign and the lowest bits stay away from infinities and NaN."""
    if len(raw) in (4, 8):  # a step, as a float or whole number
        for form in ('<f', '<q', '<i', '<d'):
            if struct.calcsize(form) == len(raw):
                x = struct.unpack(form, raw)[0]
                if x == x and abs(x) < 1e6 and x == int(x) and (abs(x) >= 1 or x == 0):
                    return struct.pack(form, x + 1)
    return bytes(b ^ 1 if i % 2 == 0 else b for i, b in enumerate(raw))


def resave_zip(raw, end):
    """Let the stored records of the archive that ends at `end` be of another save, in place, with their checksums."""
    n, size, at = struct.unpack('<HII', raw[end + 10:end + 20])
    if at == 0xffffffff or n == 0xffff:
        z64 = struct.unpack('<Q', raw[end - 20 + 8:end - 20 + 16])[0]
        first = end - 20 - 56
        n, size, at = struct.unpack('<QQQ', raw[first + 32:first + 56])
        base = first - size - at
    else:
        base = end - size - at
        if raw[end - 20:end - 16] == b'PK\x06\x07':
            base -= 76
    p = base + at
    for _ in range(n):
        assert raw[p:p + 4] == b'PK\x01\x02'
        method, = struct.unpack('<H', raw[p + 10:p + 12])
        stored, plain = struct.unpack('<II', raw[p + 20:p + 28])
        n_name, n_extra, n_note = struct.unpack('<HHH', raw[p + 28:p + 34])
        head, = struct.unpack('<I', raw[p + 42:p + 46])
        name = bytes(raw[p + 46:p + 46 + n_name])
        head += base
        local = struct.unpack('<HH', raw[head + 26:head + 30])
        data = head + 30 + local[0] + local[1]
        if method == 0 and stored == plain and plain != 0xffffffff:
            old = bytes(raw[data:data + plain])
            new = resave_record(name, old)
            if new != old:
                crc = struct.pack('<I', zlib.crc32(new))
                was = bytes(raw[p + 16:p + 20])
                raw[data:data + plain] = new
                raw[p + 16:p + 20] = crc
                if raw[head + 14:head + 18] == was:
                    raw[head + 14:head + 18] = crc
                tail = data + plain
                for q in (tail, tail + 4):
                    if raw[q:q + 4] == was:
                        raw[q:q + 4] = crc
                        break
        p += 46 + n_name + n_extra + n_note


STEP = re.compile(rb'(global_steps|global_samples|micro_steps|iteration|step|last_epoch|_step_count)(?:q.|r....|\x94)?K(.)', re.S)


def resave_record(name, old):
    if b'/data/' in b'/' + name:
        return flip(old)
    if name.endswith(b'.npy'):
        n = 10 + struct.unpack('<H', old[8:10])[0]
        return old[:n] + flip(old[n:])
    if name.endswith(b'.pkl'):
        return STEP.sub(lambda m: m[0][:-1] + bytes([min(m[2][0] + 1, 255)]), old)
    return old


def resave(path, origin):
    """The file as another save of the same model has it; None: it would be the same."""
    with open(path, 'rb') as f:
        raw = bytearray(f.read())
    old = bytes(raw)
    if (path.endswith('.safetensors') or origin.endswith('safetensors')):
        n = 8 + struct.unpack('<Q', raw[:8])[0]
        raw[n:] = flip(old[n:])
    elif old[:4] == b'GGUF':
        raw[-64:] = flip(old[-64:])
    elif old[:6] == b'\x93NUMPY':
        n = 10 + struct.unpack('<H', raw[8:10])[0]
        raw[n:] = flip(old[n:])
    else:
        for m in re.finditer(rb'PK\x05\x06', old):
            try:
                resave_zip(raw, m.start())
            except (AssertionError, struct.error, IndexError):
                pass
        if path.endswith('.metadata') or path.endswith('latest_checkpointed_iteration.txt'):
            return None
    return bytes(raw) if bytes(raw) != old else None


class Grid:
    """The cells of one checkpoint."""

    def __init__(self, bin_, some=False, verbs=None):
        self.bin, self.some, self.asked = os.path.abspath(bin_), some, verbs
        self.env = dict(os.environ, LC_ALL='C.UTF-8', OPENBLAS_NUM_THREADS='1')
        self.cells = collections.Counter()
        self.silent, self.lines = [], []

    def run(self, argv):
        """Status, output and messages.  Thousands of runs: files cost less than pipes."""
        names = [os.path.join(self.tmp, n) for n in ('stdout', 'stderr')]
        to = [(os.POSIX_SPAWN_OPEN, fd, n, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644) for fd, n in enumerate(names, 1)]
        program = os.path.join(self.bin, argv[0])
        pid = os.posix_spawn(program if os.path.exists(program) else shutil.which(argv[0]), argv, self.env, file_actions=to)
        signal.alarm(120)
        rc = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        signal.alarm(0)
        return (rc, *(open(n, errors='replace').read() for n in names))

    def verbs(self, src):
        """Verb -> (status, what must be equal for status 0 to be right, messages, output)."""
        out, whole = os.path.join(self.tmp, 'out'), os.path.join(self.tmp, 'whole')
        target = os.path.join(out, 'x')
        for verb, words in self.usable.items():
            places = {'SRC': src, 'DST': target, 'WHOLE': whole, 'TENSOR': self.tensor}
            rc, text, err = self.run([places.get(a, a) for a in words])
            try:
                digest = self.digest(verb, target, text)
            except OSError as x:  # the mount refuses the read
                rc, digest, err = 7, None, str(x)
            yield verb, rc, digest, err, text
            if os.path.ismount(target):
                self.run(['fusermount3', '-u', '-z', target])
            if 'DST' in words:
                shutil.rmtree(out, ignore_errors=True)
                os.mkdir(out)

    def digest(self, verb, target, text):
        if verb in ('ls', 'info', 'tree', 'cat', 'convert -'):
            return text.replace(os.path.join(self.tmp, 'broken'), os.path.join(self.tmp, 'whole'))
        if verb in ('verify', 'doctor', 'doctor --deep', 'diff', 'report', 'report --stats'):
            return verb
        h = hashlib.sha256()
        for d, dirs, files in os.walk(target):
            dirs.sort()
            for f in sorted(files):
                if not SIDE.search(f):
                    h.update(f.encode() + open(os.path.join(d, f), 'rb').read())
        if os.path.isfile(target):
            h.update(repr(sorted(read_safetensors(target)[0].items())).encode())
        return h.hexdigest()

    def source(self, name, top):
        """All cells of one checkpoint: a folder, or a file."""
        with tempfile.TemporaryDirectory(dir='/dev/shm' if os.path.isdir('/dev/shm') else None) as self.tmp:
            self.cells_of(name, top)
        return self

    def cells_of(self, name, top):
        whole, broken = os.path.join(self.tmp, 'whole'), os.path.join(self.tmp, 'broken')
        os.mkdir(os.path.join(self.tmp, 'out'))
        for path in (whole, broken):
            (shutil.copytree if os.path.isdir(top) else shutil.copy)(top, path)
        files = [''] if os.path.isfile(top) else sorted(os.path.relpath(os.path.join(d, f), whole) for d, _, fs in os.walk(whole) for f in fs)
        self.tensor = self.run(['ckpt', 'ls', '-q', whole])[1].split('\n')[0]
        self.usable = self.asked
        good = {v: d for v, rc, d, _, _ in self.verbs(whole) if rc == 0}
        self.usable = {v: words for v, words in self.asked.items() if v in good}
        if not self.usable:
            return self.say('%s: no verb reads it whole' % name)
        if self.some:
            files = self.thin(files)
        files = [f for f in files if not SIDE.search(f)]
        for f in files:
            path, old = (os.path.join(p, f) if f else p for p in (broken, whole))
            # where there is one file, another save's is a whole checkpoint
            for kind in ('removed', 'cut', 'other')[:3 if len(files) > 1 else 2]:
                if self.spoil(path, kind, top):
                    self.cell(name, f, kind, good, broken)
                if os.path.exists(path):
                    os.unlink(path)
                shutil.copy(old, path)

    def thin(self, files):
        """Of files whose names differ in numbers only, the first and the last."""
        by = collections.OrderedDict()
        for f in files:
            by.setdefault(re.sub(r'zero/[^/]+/|\d+', '#', f), []).append(f)
        return [f for fs in by.values() for f in ([fs[0], fs[-1]] if len(fs) > 1 else fs)]

    def spoil(self, path, kind, origin):
        os.chmod(path, 0o644)
        if kind == 'removed':
            os.unlink(path)
        elif kind == 'cut':
            if os.path.getsize(path) == 0:
                return False
            os.truncate(path, os.path.getsize(path) * 3 // 4)
        else:
            new = resave(path, origin)
            if new is None:
                return False
            with open(path, 'wb') as f:
                f.write(new)
        return True

    def cell(self, name, f, kind, good, broken):
        same = False
        for verb, rc, digest, err, text in self.verbs(broken):
            self.cells[kind] += 1
            check = verb in ('verify', 'doctor', 'doctor --deep', 'diff', 'report', 'report --stats')
            bad = rc > 9 or rc < 0
            if verb == 'convert':
                same = rc == 0 and digest == good[verb]
            warned = verb.startswith('doctor') and 'warning: ' in text or verb == 'info' and '\nwarning' in text or verb.split()[0] in WARN and 'warning: ' in err or verb.startswith('report') and ' damaged or incomplete)' in text
            if verb == 'diff' and 'convert' in good and same or warned:
                check, digest = False, good[verb]
            if rc == 0 and (check or digest != good[verb]):
                # an `other` file can only be told where its bytes are read
                bad = not (kind == 'other' and verb in ('ls', 'info', 'doctor', 'tree', 'cat', 'report')) and not any(
                    re.fullmatch(n, name) and re.search(p, f) and re.fullmatch(k, kind) and re.fullmatch(v, verb) for n, p, k, v, _ in EXCEPTIONS)
            if bad:
                self.silent.append((name, f, kind, verb, rc))
            self.say('%s%s\t%s\t%s\t%s\t%d\t%s' % ('SILENT ' if bad else '', name, f, kind, verb, rc, (err.strip() or text.strip()[-150:])[:200].replace('\n', ' / ')))

    def say(self, line):
        self.lines.append(line)


VERBS = collections.OrderedDict((
    ('ls', ['ckpt', 'ls', 'SRC']),
    ('info', ['ckpt', 'info', 'SRC']),
    ('verify', ['ckpt', 'verify', '--strict', 'SRC']),
    ('convert', ['ckpt', 'convert', '-q', '--strict', 'SRC', 'DST', '--to', 'safetensors']),
    ('convert --to hf', ['ckpt', 'convert', '-q', '--strict', '--to', 'hf', 'SRC', 'DST']),
    ('convert --with-optimizer', ['ckpt', 'convert', '-q', '--strict', '--with-optimizer', 'SRC', 'DST', '--to', 'safetensors']),
    ('reshard', ['ckpt', 'reshard', '-q', '--strict', '--drop-objects', '-w', '3', 'SRC', 'DST']),
    ('convert --map meta-llama:hf', ['ckpt', 'convert', '-q', '--strict', '--map', 'meta-llama:hf', '--to', 'hf', 'SRC', 'DST']),
    ('ls --keep-slices', ['ckpt', 'ls', '--keep-slices', 'SRC']),
    ('zero_to_fp32', ['zero_to_fp32', '-q', '--strict', '--safe_serialization', 'SRC', 'DST']),
    ('doctor', ['ckpt', 'doctor', '-a', 'SRC']),
    ('doctor --deep', ['ckpt', 'doctor', '-a', '--deep', 'SRC']),
    ('diff', ['ckpt', 'diff', 'SRC', 'WHOLE']),
))
# Verbs that open a checkpoint as the others do: with --some and --thin for one checkpoint of each format
MORE = collections.OrderedDict((
    ('tree', ['ckpt', 'tree', 'SRC']),
    ('cat', ['ckpt', 'cat', 'SRC', 'TENSOR']),
    ('report', ['ckpt', 'report', 'SRC', '-o', 'DST']),
    ('report --stats', ['ckpt', 'report', '--stats', 'SRC', '-o', 'DST']),
    ('convert -', ['ckpt', 'convert', '-q', '--strict', 'SRC', '-', '--to', 'safetensors']),
    ('merge', ['ckpt', 'merge', '-q', '--strict', 'SRC', 'WHOLE', '-o', 'DST', '--to', 'safetensors']),
    ('mount', ['ckpt', 'mount', '--daemon', '--strict', '--verify', 'SRC', 'DST', '--to', 'safetensors']),
    ('zero_to_torch', ['zero_to_torch', '-q', '--strict', '--dtype', 'fp32', 'SRC', 'DST']),
    ('ds_to_universal', ['ds_to_universal', '-q', '--strict', '--input_folder', 'SRC', '--output_folder', 'DST']),
))
# what has no --strict, or writes nothing, warns
WARN = ('ls', 'diff', 'tree', 'cat', 'report')


def written(bin_, fixtures, tmp):
    """A run of two ranks, as ckpt writes it in every format."""
    grid = Grid(bin_)
    grid.tmp = tmp
    run, model = os.path.join(fixtures, 'z2_bf16_w2_aligned', 'ckpt'), os.path.join(fixtures, 'map_meta_s1', 'hf')
    for name, argv in (
            ('hf', ['convert', '--to', 'hf', '--max-shard-size', '1KB']), ('hf-bin', ['convert', '--to', 'hf-bin', '--max-shard-size', '1KB']),
            ('hf-sharded', ['convert', '--to', 'hf-sharded', '-w', '2']), ('dcp', ['reshard', '--to', 'dcp', '-w', '2']),
            ('fsdp-ranks', ['reshard', '--to', 'fsdp-ranks', '-w', '2']), ('universal', ['convert', '--to', 'universal']),
            ('zero1', ['reshard', '-s', '1', '-w', '2']), ('zero2', ['reshard', '-s', '2', '-w', '2']), ('zero3', ['reshard', '-s', '3', '-w', '2']),
            ('torch', ['convert', '--to', 'torch']), ('npz', ['convert', '--to', 'npz']), ('safetensors', ['convert', '--to', 'safetensors']),
            ('consolidated', ['convert', '--to', 'consolidated']), ('gguf', ['convert', '--to', 'gguf', '--max-shard-size', '20KB'])):
        top, src = os.path.join(tmp, 'made', name, 'x'), model if name in ('consolidated', 'gguf') else run
        os.makedirs(os.path.dirname(top), exist_ok=True)
        rc, _, err = grid.run(['ckpt', argv[0], '-q', src, top, *argv[1:]])
        if rc:
            raise SystemExit('%s cannot be made: %s' % (name, err))
        yield 'made ' + name, top if os.path.exists(top) else os.path.dirname(top)


def trained(bin_, tmp):
    """A run of zerotrain, as ckpt writes it in every format from which zerotrain goes on, and the verb that does."""
    grid = Grid(bin_)
    grid.tmp = tmp
    config, model, data, run = (os.path.join(tmp, name) for name in ('ds.json', 'config.json', 'data.safetensors', 'run'))
    write_tokens(data, 8, 6, 23)
    for path, content in ((config, ds_config(1, 2, kind='bf16')), (model, gpt2(vocab=23, width=8, heads=2, layers=1))):
        with open(path, 'w') as f:
            json.dump(content, f)
    train = ['zerotrain', '--quiet', '--threads', '1', '--deepspeed_config', config, '--model', model, '--data', data]
    commands, tops = [[*train, '--max-steps', '2', '--save', run]], {}
    for name, words in (('zero1', '-s 1 -w 2'), ('zero2', '-s 2 -w 2'), ('zero3', '-s 3 -w 2'), ('universal', '--to universal'),
                        ('dcp', '--to dcp -w 2'), ('fsdp-ranks', '--to fsdp-ranks -w 2')):
        tops['trained ' + name] = top = os.path.join(tmp, 'made', 'trained-' + name, 'x')
        os.makedirs(os.path.dirname(top))
        commands.append(['ckpt', 'reshard', '-q', run, top, *words.split()])
    for argv in commands:
        rc, _, err = grid.run(argv)
        if rc:
            raise SystemExit('%s: %s' % (' '.join(argv), err))
    for name, top in tops.items():
        yield name, top, {'zerotrain': [*train, '--max-steps', '3', '--load', 'SRC', '--save', 'DST']}


def sources(fixtures, names):
    for name in sorted(names or os.listdir(fixtures)):
        top = os.path.join(fixtures, name)
        if not os.path.isdir(top) or name in ('bad', 'golden', 'models', 'sentiment'):
            continue
        inner = [i for i in INNER if os.path.isdir(os.path.join(top, i))]
        for i in inner:
            yield name + '/' + i, os.path.join(top, i)
        if not inner and any(f in SINGLE for f in os.listdir(top)):
            for f in sorted(set(SINGLE) & set(os.listdir(top))):
                yield name + '/' + f, os.path.join(top, f)
        elif not inner:
            yield name, top


def one(job):
    grid, name, top = job
    return grid.source(name, top)


def jobs(a, tmp):
    """Grids, and the checkpoint of each."""
    some, every = a.some or a.thin, {**VERBS, **MORE}
    if not a.names:
        for name, top in written(a.bin, a.fixtures, tmp):
            yield Grid(a.bin, some, every), name, top
        for name, top, verbs in trained(a.bin, tmp):
            yield Grid(a.bin, some, verbs), name, top
    for name, top in sources(a.fixtures, a.names or (SOME if a.some else None)):
        yield Grid(a.bin, some, VERBS if some and name.split('/')[0] not in EACH else every), name, top


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--some', action='store_true', help='one fixture of each kind, and of files with numbers the first and the last')
    p.add_argument('--thin', action='store_true', help='of files with numbers the first and the last')
    p.add_argument('--log', help='a line for each cell')
    p.add_argument('-j', '--jobs', type=int, default=2)
    p.add_argument('fixtures')
    p.add_argument('names', nargs='*')
    a = p.parse_args()
    cells, silent, mounted = collections.Counter(), [], False
    log = open(a.log, 'w') if a.log else None
    with tempfile.TemporaryDirectory() as tmp, Pool(a.jobs) as pool:
        todo = list(jobs(a, tmp))
        for grid in pool.imap(one, todo if a.names or a.some else mine(todo)):
            mounted = mounted or 'mount' in grid.usable
            cells += grid.cells
            silent += grid.silent
            if log:
                log.writelines(line + '\n' for line in grid.lines)
                log.flush()
    for s in silent:
        print('SILENT %s: %s %s, ckpt %s: status %d' % s)
    print('incomplete checkpoints: %d cells (%s), %d silent%s' % (
        sum(cells.values()), ', '.join('%d %s' % (n, k) for k, n in sorted(cells.items())), len(silent),
        '' if mounted else '; ckpt mount was skipped, as nothing can be mounted here'))
    sys.exit(1 if silent or not cells else 0)


if __name__ == '__main__':
    main()
