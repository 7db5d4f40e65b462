# SPDX-License-Identifier: Apache-2.0
"""What the tests of zerotrain share: small models and data, and running it on some ranks."""
import json
import os
import random
import signal
import struct
import subprocess
import tempfile
import time

ENV = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1', OPENBLAS_NUM_THREADS='1')


def write_safetensors(path, tensors):
    """tensors: name -> (dtype, shape, bytes)."""
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + b''.join(t[2] for t in tensors.values()))


def gpt2(vocab=97, width=20, heads=4, layers=2, positions=16):
    """config.json of a GPT-2."""
    return {'architectures': ['GPT2LMHeadModel'], 'model_type': 'gpt2', 'vocab_size': vocab, 'n_embd': width, 'n_head': heads,
            'n_layer': layers, 'n_positions': positions, 'activation_function': 'gelu_new', 'attn_pdrop': 0.1, 'embd_pdrop': 0.1,
            'resid_pdrop': 0.1, 'layer_norm_epsilon': 1e-5, 'initializer_range': 0.02, 'tie_word_embeddings': True}


def write_tokens(path, samples, length, vocab, seed=1):
    """A record of token ids that are their own labels: [sample, token]."""
    rng = random.Random(seed)
    data = struct.pack('<%dq' % (samples * length), *(int(vocab * rng.random() ** 2) for _ in range(samples * length)))
    write_safetensors(path, {'input_ids': ('I64', [samples, length], data), 'labels': ('I64', [samples, length], data)})


def ds_config(stage, micro, accumulation=1, kind='fp32', zero=None, **more):
    c = {'train_micro_batch_size_per_gpu': micro, 'gradient_accumulation_steps': accumulation, 'gradient_clipping': 0.5,
         'optimizer': {'type': 'AdamW', 'params': {'lr': 0.004, 'betas': [0.9, 0.95], 'eps': 1e-8, 'weight_decay': 0.01}},
         'scheduler': {'type': 'WarmupDecayLR', 'params': {'total_num_steps': 400, 'warmup_min_lr': 0, 'warmup_max_lr': 0.004,
                                                           'warmup_num_steps': 4, 'warmup_type': 'linear'}},
         'zero_optimization': {'stage': stage, **(zero or {})}, **more}
    if kind != 'fp32':
        c[kind] = {'enabled': True}
    return c


class Work:
    """A folder, and zerotrain run in it."""

    def __init__(self, bin_, quiet=True):
        self.program = [os.path.join(os.path.abspath(bin_), 'zerotrain'), '--threads', '1'] + ['--quiet'] * quiet
        self.dir = tempfile.TemporaryDirectory(prefix='ckpt-engine-', dir='/dev/shm' if os.access('/dev/shm', os.W_OK) else None)
        self.n = 0

    def path(self, name):
        return os.path.join(self.dir.name, name)

    def fresh(self, name):
        """A path that nothing has used."""
        self.n += 1
        return self.path('%d_%s' % (self.n, name))

    def write(self, name, content):
        path = self.fresh(name)
        with open(path, 'wb' if isinstance(content, bytes) else 'w') as f:
            f.write(content if isinstance(content, (bytes, str)) else json.dumps(content))
        return path

    def command(self, world, args, last=None):
        """last: other arguments for the last of several ranks."""
        ranks = ['mpirun', '--oversubscribe', '--bind-to', 'none', '-n', str(world - (last is not None))] if world > 1 else []
        more = [':', '-n', '1'] + self.program + [str(x) for x in last] if last is not None else []
        return ranks + self.program + [str(x) for x in args] + more

    def run(self, world, args, timeout=300, last=None):
        """(exit status, stdout, stderr); status None: it did not end."""
        p = subprocess.Popen(self.command(world, args, last), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True, errors='replace', env=ENV, cwd=self.dir.name)
        try:
            out, err = p.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            for pid in ranks_of(p.pid) + [p.pid]:
                kill(pid, signal.SIGKILL)
            out, err = p.communicate()
            return None, out, err
        return p.returncode, out, err

    def start(self, world, args, env=()):
        """The same, left running; what it says goes to files."""
        err = self.fresh('stderr')
        with open(err, 'wb') as f:
            p = subprocess.Popen(self.command(world, args), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=f,
                                 env={**ENV, **dict(env)},
                                 cwd=self.dir.name)
        return p, err


def read_lines(path):
    """Whole lines of a metrics file, as far as it goes."""
    try:
        with open(path) as f:
            return [json.loads(x) for x in f if x.endswith('\n')]
    except FileNotFoundError:
        return []


def kill(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def ranks_of(pid):
    """Processes that mpirun started, by rank; of a process without mpirun, itself."""
    found = []
    for name in os.listdir('/proc'):
        if not name.isdigit():
            continue
        try:
            with open('/proc/%s/stat' % name) as f:
                fields = f.read().rpartition(')')[2].split()
            if int(fields[1]) != pid:
                continue
            with open('/proc/%s/environ' % name, 'rb') as f:
                env = dict(x.split(b'=', 1) for x in f.read().split(b'\0') if b'=' in x)
            found.append((int(env.get(b'OMPI_COMM_WORLD_RANK', 0)), int(name)))
        except (OSError, ValueError):
            continue   # gone meanwhile
    return [x for _, x in sorted(found)] or [pid]


def wait_for_step(p, metrics, step, timeout=300):
    """Wait until a run has told of that update; False: it ended, or time is out."""
    until = time.time() + timeout
    while time.time() < until:
        lines = read_lines(metrics)
        if lines and lines[-1]['step'] >= step:
            return True
        if p.poll() is not None:
            return False
        time.sleep(0.003)
    return False
