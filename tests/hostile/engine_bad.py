#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Wrong input to zerotrain on two ranks: one clear error before anything is trained, and no hang; and a rank that dies.

    engine_bad.py --bin build/bin [--some] [--shared ../shared] [-v] [NAME...]

Each case must end (a hang is one of LIMIT) with an exit status of 2 to 7, one line of zerotrain on stderr that names what is wrong, no
line of metrics and no checkpoint.  --some: every fourth case.
"""
import argparse
import concurrent.futures
import copy
import glob
import json
import os
import random
import re
import shutil
import signal
import struct
import sys
import time
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'replay'))
from training import Work, ds_config, gpt2, kill, ranks_of, read_lines, wait_for_step, write_safetensors, write_tokens

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT = 300   # seconds: a hang, also on a machine that has much else to do
BERT = {'architectures': ['BertForSequenceClassification'], 'model_type': 'bert', 'vocab_size': 61, 'hidden_size': 24,
        'num_hidden_layers': 1, 'num_attention_heads': 3, 'intermediate_size': 44, 'max_position_embeddings': 16,
        'type_vocab_size': 2, 'hidden_act': 'gelu', 'layer_norm_eps': 1e-12, 'num_labels': 3}
LLAMA = {'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'vocab_size': 89, 'hidden_size': 24, 'intermediate_size': 40,
         'num_hidden_layers': 1, 'num_attention_heads': 4, 'num_key_value_heads': 2, 'head_dim': 6, 'max_position_embeddings': 32,
         'rms_norm_eps': 1e-6, 'hidden_act': 'silu', 'tie_word_embeddings': False}


class Bad:
    def __init__(self, bin_, shared):
        self.w, self.shared = Work(bin_), shared
        self.model = self.w.write('gpt2.json', gpt2())
        self.data = self.w.path('tokens.safetensors')
        write_tokens(self.data, 64, 12, 97)
        self.good = {'--deepspeed_config': self.w.write('ds.json', ds_config(2, 2)), '--model': self.model, '--data': self.data,
                     '--max-steps': 4}

    def arguments(self, changes):
        every = {**self.good, **changes}
        return [x for k, v in every.items() if v is not None for x in ((k,) if v is True else (k, v))]

    def refused(self, changes, world=2, words=(), last=None):
        """What is wrong with how it was refused.  last: changes for the last rank alone."""
        metrics, save = self.w.fresh('metrics'), self.w.fresh('save')
        start = time.time()
        given = {'--metrics': metrics, '--save': save, **changes}
        other = None if last is None else self.arguments({**given, **last})
        status, out, err = self.w.run(world, self.arguments(given), LIMIT, other)
        lines = [x for x in err.splitlines() if re.match(r'zerotrain: |rank \d+ on \S+: ', x)]
        if status is None:
            return ['no end after %d s: %s' % (LIMIT, err[-200:])]
        if status == 0:
            return ['accepted']
        problems = []
        if not 2 <= status <= 7:
            problems.append('exit %d: %s' % (status, err[-300:]))
        if len(lines) != 1:
            problems.append('%d lines of errors: %s' % (len(lines), ' | '.join(lines or [err[-300:]])[:600]))
        elif len(lines[0]) < 25 or not all(x in lines[0] for x in words):
            problems.append('says "%s", expected %s' % (lines[0], words))
        if read_lines(metrics):
            problems.append('trained %d updates' % len(read_lines(metrics)))
        if os.path.exists(save) and os.listdir(save):
            problems.append('left %s' % os.listdir(save))
        self.last = (time.time() - start, lines[0] if lines else '')
        return problems

    # ---- ds_config ----

    def configs(self):
        with open(os.path.join(HERE, '..', 'fixtures', 'golden', 'config_cases.json')) as f:
            cases = json.load(f)
        # what "auto" and an absent batch size mean is said on the command line here
        told = ({}, {'train_batch_size': 'auto'})
        for i, case in enumerate(x for x in cases['cases'] if 'error' in x and x['world_size'] <= 2 and x['ds_config'] not in told):
            yield 'config case %d %s' % (i, json.dumps(case['ds_config'])[:60]), self.of(config=case['ds_config'])
        for case in cases['file_syntax']:
            if not case['ok']:
                yield 'config syntax ' + case['name'], self.of(config=case['text'])
        text = json.dumps(ds_config(3, 2, kind='bf16', zero={'offload_optimizer': {'device': 'cpu'}}), indent=1)
        for name, content in {
                'cut': text[:len(text) // 2], 'cut at the end': text[:-2], 'null': 'null', 'list': '[1, 2]',
                'number': '17', 'zero bytes': '\0' * 64, 'after the end': text + '}', 'two commas': text.replace(',', ',,', 1),
                'unclosed comment': '/* ' + text, 'deep': '{"a":' * 5000, 'not UTF-8': b'{"\xff\xfe": \xff}',
                'random': bytes(random.Random(3).randrange(256) for _ in range(4000)),
        }.items():
            yield 'config ' + name, self.of(config=content)
        yield 'config absent', lambda: self.refused({'--deepspeed_config': self.w.path('none.json')}, words=('none.json',))
        yield 'config a folder', lambda: self.refused({'--deepspeed_config': self.w.dir.name})
        for name, change in {
                'optimizer unknown': {'optimizer': {'type': 'Adamax', 'params': {}}},
                'optimizer a list': {'optimizer': [1]},
                'optimizer of text': {'optimizer': {'type': 'AdamW', 'params': {'lr': 'fast'}}},
                'betas of one': {'optimizer': {'type': 'AdamW', 'params': {'lr': 1e-3, 'betas': [0.9]}}},
                'beta above 1': {'optimizer': {'type': 'AdamW', 'params': {'lr': 1e-3, 'betas': [0.9, 1.5]}}},
                'max_grad_norm': {'optimizer': {'type': 'AdamW', 'params': {'lr': 1e-3, 'max_grad_norm': 1.0}}},
                'scheduler unknown': {'scheduler': {'type': 'Cosine', 'params': {}}},
                'scheduler lacks a parameter': {'scheduler': {'type': 'WarmupDecayLR', 'params': {}}},
                'steps of text': {'scheduler': {'type': 'WarmupLR', 'params': {'warmup_num_steps': 'many'}}},
                'clipping auto alone': {'gradient_clipping': 'much'},
                'both precisions': {'fp16': {'enabled': True}, 'bf16': {'enabled': True}},
                'no path of nvme': {'zero_optimization': {'stage': 3, 'offload_optimizer': {'device': 'nvme'}}},
                'path of nvme absent': {'zero_optimization': {'stage': 3, 'offload_optimizer': {
                    'device': 'nvme', 'nvme_path': '/proc/none/there'}}},
                'sgd untested': {'optimizer': {'type': 'SGD', 'params': {'lr': 0.1}}},
                'stage of text': {'zero_optimization': {'stage': 'two'}},
                'huge numbers': {'train_micro_batch_size_per_gpu': 10 ** 30},
                'more than memory': {'train_micro_batch_size_per_gpu': 2 ** 40},
        }.items():
            yield 'config ' + name, self.of(config={**ds_config(2, 2), **change})

    def of(self, config):
        return lambda: self.refused({'--deepspeed_config': self.w.write('bad.json', config)})

    # ---- models and weights ----

    def models(self):
        def model(base, words=(), **change):
            c = {k: v for k, v in {**base, **change}.items() if v is not None}
            return lambda: self.refused({'--model': self.w.write('model.json', c)}, words=words)
        g = gpt2()
        text = json.dumps(g)
        for name, content in {'empty': '', 'cut': text[:90], 'list': '[]', 'garbage': os.urandom(500), 'zeros': b'\0' * 100}.items():
            yield 'model ' + name, lambda x=content: self.refused({'--model': self.w.write('model.json', x)})
        yield 'model absent', lambda: self.refused({'--model': self.w.path('none')}, words=('none',))
        yield 'model folder without a config', lambda: self.refused({'--model': '/proc/self/fd'})
        yield 'model of another kind', model(g, model_type='t5', architectures=['T5Model'])
        yield 'model without a kind', model(g, model_type=None, architectures=None)
        for key, value in (('n_embd', -20), ('n_embd', 0), ('n_embd', 21), ('n_embd', '20'), ('n_embd', 2.5), ('n_head', 0),
                           ('n_layer', -1), ('n_layer', 10 ** 12), ('vocab_size', 10 ** 15), ('vocab_size', 0), ('n_embd', 2 ** 62),
                           ('n_positions', 4), ('activation_function', 'swoosh'), ('layer_norm_epsilon', 'small'), ('n_inner', -5)):
            yield 'model %s %s' % (key, value), model(g, **{key: value})
        yield 'llama heads', model(LLAMA, num_key_value_heads=3)
        yield 'llama odd head', model(LLAMA, head_dim=5)
        yield 'llama scaling', model(LLAMA, rope_scaling={'rope_type': 'yarn', 'factor': 4.0})
        yield 'bert with token labels', model(BERT, vocab_size=97)
        yield 'vocabulary below the tokens', model(g, vocab_size=50, words=(os.path.basename(self.data),))

    def weights(self):
        """--init and --load."""
        folder = self.w.path('good')
        status, _, err = self.w.run(2, self.arguments({'--save': folder, '--save-weights': self.w.path('good.safetensors')}))
        if status:
            raise RuntimeError('the good run: %s' % err)
        with open(self.w.path('good.safetensors'), 'rb') as f:
            good = f.read()
        n = struct.unpack('<Q', good[:8])[0]
        header = json.loads(good[8:8 + n])
        lacking = copy.deepcopy(header)
        del lacking['transformer.ln_f.bias']
        other = copy.deepcopy(header)
        other['transformer.wpe.weight']['shape'].reverse()
        beyond = copy.deepcopy(header)
        beyond['transformer.wpe.weight']['data_offsets'][1] += 10 ** 9
        nan = bytearray(good)
        more = copy.deepcopy(header)
        more['transformer.h.7.ln_1.bias'] = more['transformer.ln_f.bias']

        def init(content):
            return lambda: self.refused({'--init': self.w.write('w.safetensors', content)})

        def again(h):
            text = json.dumps(h).encode()
            return struct.pack('<Q', len(text)) + text + bytes(nan[8 + n:])
        for name, content in {'empty': b'', 'cut header': good[:50], 'cut data': good[:-100], 'garbage': os.urandom(3000), 'lacking one': again(
                lacking), 'another shape': again(other), 'beyond the end': again(beyond), 'overlapping': again(more)}.items():
            yield 'init ' + name, init(content)
        yield 'init absent', lambda: self.refused({'--init': self.w.path('none.safetensors')}, words=('none',))
        yield 'init of another model', lambda: self.refused({
            '--init': self.w.path('good.safetensors'), '--model': self.w.write('m.json', gpt2(width=24))})
        yield 'load absent', lambda: self.refused({'--load': self.w.path('none')}, words=('none',))
        yield 'load of another tag', lambda: self.refused({'--load': folder, '--load-tag': 'global_step9'}, words=('global_step9',))
        yield 'load into another model', lambda: self.refused({'--load': folder, '--model': self.w.write('m.json', gpt2(width=24))})
        yield 'load into more layers', lambda: self.refused({'--load': folder, '--model': self.w.write('m.json', gpt2(layers=3))})
        yield 'load into fewer layers', lambda: self.refused({'--load': folder, '--model': self.w.write('m.json', gpt2(layers=1))})
        yield 'load into another optimizer', lambda: self.refused({'--load': folder, '--deepspeed_config': self.w.write('o.json', {
            **ds_config(2, 2), 'optimizer': {'type': 'SGD', 'params': {'lr': 0.1, 'momentum': 0.9}}, 'zero_allow_untested_optimizer': True})})
        yield 'load of Adam into Adagrad', lambda: self.refused({'--load': folder, '--deepspeed_config': self.w.write('o.json', {
            **ds_config(2, 2), 'optimizer': {'type': 'Adagrad', 'params': {'lr': 0.1}}})})
        tag = 'global_step4'
        files = sorted(os.listdir(os.path.join(folder, tag)))
        for name in files:
            # the 16-bit weights of a model file are not what a resume reads
            if name == '.zerotrain':
                continue  # without it nobody knows whose the checkpoint is: it is read all the same
            for how in ('absent', 'empty', 'cut', 'garbage') + (('flipped',) if 'optim' in name else ()):
                yield 'load %s %s' % (how, name), lambda n=name, h=how: self.load_damaged(folder, os.path.join(tag, n), h)
        later = self.w.path('later')
        status, _, err = self.w.run(2, self.arguments({'--load': folder, '--save': later, '--max-steps': 6}))
        if status:
            raise RuntimeError('the run that goes on: %s' % err)
        for name in files:
            if name != '.zerotrain':
                yield 'load %s of a later save' % name, lambda n=name: self.load_mixed(folder, later, n)
        yield 'load with other counters', lambda: self.load_counted(folder)
        for how in ('absent', 'empty', 'garbage', 'up'):
            yield 'load latest %s' % how, lambda h=how: self.load_damaged(folder, 'latest', h)

    def scales(self):
        """A loss scale in the checkpoint that would be divided by, or overflow when it is counted on."""
        half = self.w.write('half.json', {**ds_config(2, 2), 'fp16': {'enabled': True, 'initial_scale_power': 4}})
        folder = self.w.path('half')
        status, _, err = self.w.run(2, self.arguments({'--save': folder, '--deepspeed_config': half}))
        if status:
            raise RuntimeError('the good run in fp16: %s' % err)
        least, most = b'\x8a\x08' + struct.pack('<q', -2 ** 63), b'\x8a\x08' + struct.pack('<q', 2 ** 63 - 1)
        for field, value in (('scale_window', b'K\x00'), ('scale_window', least), ('cur_iter', most), ('last_overflow_iter', least),
                             ('scale_factor', b'G' + struct.pack('>d', 0)), ('cur_scale', b'G' + struct.pack('>d', float('inf'))),
                             ('cur_hysteresis', least), ('min_scale', b'K\x00')):
            yield 'load with a %s of %s' % (field, value.hex()), lambda f=field, v=value: self.load_scaled(folder, half, f, v)

    def load_scaled(self, folder, config, field, value):
        copied = self.w.fresh('scaled')
        shutil.copytree(folder, copied)
        place = re.compile(field.encode() + rb'(?:q.|r.{4}|\x94)?(M..|K.|J.{4}|\x8a(?:\x00|\x01.|\x02..)|G.{8})', re.S)
        n = 0
        for path in glob.glob(os.path.join(copied, 'global_step4', '*optim_states.pt')):
            with zipfile.ZipFile(path) as z:
                records = [(name, z.read(name)) for name in z.namelist()]
            with zipfile.ZipFile(path, 'w') as z:
                for name, data in records:
                    found = place.search(data) if name.endswith('/data.pkl') else None
                    if found:
                        n += 1
                        data = data[:found.start(1)] + value + data[found.end(1):]
                    z.writestr(name, data)
        if n != 2:
            return ['%s is in %d files, expected 2' % (field, n)]
        return self.refused({'--load': copied, '--deepspeed_config': config, '--max-steps': 6}, words=('loss scale',))

    def load_mixed(self, folder, later, name):
        copied = self.w.fresh('mixed')
        shutil.copytree(folder, copied)
        shutil.copy(os.path.join(later, 'global_step6', name), os.path.join(copied, 'global_step4', name))
        return self.refused({'--load': copied, '--max-steps': 8})

    def load_counted(self, folder):
        """A run that once began with weights alone has counters that differ, too: it is warned of, not refused."""
        copied = self.w.fresh('counted')
        shutil.copytree(folder, copied)
        path, n = os.path.join(copied, 'global_step4', 'mp_rank_00_model_states.pt'), 0
        with zipfile.ZipFile(path) as z:
            records = [(name, z.read(name)) for name in z.namelist()]
        with zipfile.ZipFile(path, 'w') as z:
            for name, data in records:
                if name.endswith('/data.pkl'):
                    data, n = re.subn(rb'(global_steps(?:q.|r.{4}|\x94)?K)\x04', lambda m: m.group(1) + b'\x06', data, flags=re.S)
                z.writestr(name, data)
        status, _, err = self.w.run(2, self.arguments({'--load': copied, '--max-steps': 8}))
        warned = 'the optimizer has made 4 updates, but the model file counts 6' in err
        return [] if n == 1 and status == 0 and warned else ['%d counters, status %s: %s' % (n, status, err[-300:])]

    def load_damaged(self, folder, name, how):
        copied = self.w.fresh('damaged')
        shutil.copytree(folder, copied)
        path = os.path.join(copied, name)
        with open(path, 'rb') as f:
            data = bytearray(f.read())
        if how == 'absent':
            os.remove(path)
        else:
            middle = len(data) // 2
            for i in range(middle, middle + 8):
                data[i % max(len(data), 1)] ^= 0x55
            content = {'empty': b'', 'cut': data[:middle], 'garbage': b'\x80\x02}q\x00X' + bytes(200), 'up': b'../global_step4',
                       'flipped': data}[how]
            with open(path, 'wb') as f:
                f.write(content)
        return self.refused({'--load': copied, '--max-steps': 6})

    def corpus(self):
        """Damaged checkpoints of other models, which it must not even begin with."""
        for top in (os.path.join(HERE, '..', 'fixtures', 'bad'), os.path.join(self.shared, 'bad')):
            folder = os.path.join(top, 'ds')
            for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
                yield 'load bad/%s' % name, lambda p=os.path.abspath(os.path.join(folder, name)): self.refused({'--load': p})
            if os.path.isdir(folder):
                return

    # ---- data, hosts, arguments ----

    def datas(self):
        ints = struct.pack('<48q', *range(48))
        row = {'input_ids': ('I64', [4, 12], ints), 'labels': ('I64', [4, 12], ints)}

        def data(words=(), **tensors):
            path = self.w.fresh('data.safetensors')
            write_safetensors(path, {k: v for k, v in {**row, **tensors}.items() if v})
            return lambda: self.refused({'--data': path}, words=words)
        unlabelled = self.w.fresh('data.safetensors')
        write_safetensors(unlabelled, {'input_ids': row['input_ids']})
        yield 'data without ids', data(input_ids=None)
        yield 'data without classes', lambda: self.refused({'--model': self.w.write('bert.json', BERT), '--data': unlabelled})
        yield 'data of another shape', data(labels=('I64', [12, 4], ints))
        yield 'data of floats', data(input_ids=('F32', [4, 24], ints))
        yield 'data of no samples', data(input_ids=('I64', [0, 12], b''), labels=('I64', [0, 12], b''))
        yield 'data of no tokens', data(input_ids=('I64', [4, 0], b''), labels=('I64', [4, 0], b''))
        yield 'data of one axis', data(input_ids=('I64', [48], ints), labels=('I64', [48], ints))
        yield 'data beyond the positions', data(input_ids=('I64', [1, 48], ints), labels=('I64', [1, 48], ints))
        for name, content in {'x.bin': b'', 'odd.bin': b'123', 'x.npy': b'\x93NUMPY\x01\x00\xff\xff', 'y.npy': b'', 'x.safetensors': b'\xff' * 64,
                              'x.txt': b'hello', 'x.tsv': b'\0\0\0', 'x.csv': b'', 'x.jsonl': b'{"text": ', 'y.jsonl': b'[]\n'}.items():
            yield 'data %s' % name, lambda n=name, c=content: self.refused({'--data': self.w.write(n, c), '--seq': 8})
        for value in (97, -1, 2 ** 40, -100):
            ids = bytearray(ints * 8)
            struct.pack_into('<q', ids, 8 * 7, value)
            path = self.w.fresh('token.safetensors')
            write_safetensors(path, {'input_ids': ('I64', [32, 12], bytes(ids)), 'labels': ('I64', [32, 12], bytes(ints * 8))})
            yield 'data token %d' % value, lambda p=path: self.refused({'--data': p, '--no-shuffle': True}, words=('input_ids',))
        yield 'data absent', lambda: self.refused({'--data': self.w.path('none.bin')}, words=('none.bin',))
        yield 'data not given', lambda: self.refused({'--data': None}, words=('--data',))
        yield 'record for one rank', lambda: self.record([6, 1, 2, 12])
        yield 'record of another micro batch', lambda: self.record([2, 2, 3, 12])

    def record(self, shape):
        n = shape[0] * shape[1] * shape[2] * shape[3]
        x = ('I64', shape, struct.pack('<%dq' % n, *(i % 90 for i in range(n))))
        path = self.w.fresh('record.safetensors')
        write_safetensors(path, {'in/input_ids': x, 'in/labels': x})
        return self.refused({'--data': path})

    def others(self):
        for name, text in {'empty': '', 'no slots': 'a\n', 'twice': 'localhost slots=1\nlocalhost slots=1\n', 'text': 'a slots=b\n',
                           'negative': 'a slots=-1\n', 'zeros': '\0\0\0', 'huge': 'a slots=%d\n' % 10 ** 30}.items():
            yield 'hostfile ' + name, lambda t=text: self.refused({'--hostfile': self.w.write('hosts', t)}, world=1)
        hosts = self.w.write('hosts', 'h1 slots=2\nh2 slots=2\n')
        for name, more in {'include and exclude': {'--include': 'h1', '--exclude': 'h2'}, 'unknown host': {'--include': 'h3'},
                           'unknown slot': {'--include': 'h1:5'}, 'all left out': {'--exclude': 'h1@h2'},
                           'nodes and hosts': {'--num_nodes': 1, '--include': 'h1'}}.items():
            yield 'hosts ' + name, lambda m=more: self.refused({'--hostfile': hosts, **m}, world=1)
        for more in ({'--no-such-option': True}, {'--max-steps': 'many'}, {'--model': None}, {'--deepspeed_config': None}, {'--device': 'tpu'},
                     {'--param-groups': 'three'}, {'--freeze': 'nothing.*'}, {'--freeze': '*'}, {'--lora-rank': 2, '--lora-targets': 'none'},
                     {'--predict': '-'}, {'--args': '/proc/none'}, {'--keep': -1}, {'--metrics': '/proc/none/m'}, {'--eval-data': '/proc/none'},
                     {'--save': '/proc/none'}, {'--save-model': '/proc/none'}, {'--save-weights': '/proc/none/w'}, {'--local_rank': 'x'}):
            yield 'arguments %s' % ' '.join('%s %s' % x for x in more.items()), lambda m=more: self.refused(m)

    # ---- one rank was told other things ----

    def apart(self):
        """Rank 1 of two, or 2 of three, has other options, or other files under the same options."""
        def other(name, words, world=2, changes=None, **last):
            last = {'--' + k.replace('_', '-'): v for k, v in last.items()}
            return 'apart: ' + name, lambda: self.refused(changes or {}, world=world, words=('rank %d' % (world - 1), *words), last=last)
        config = ds_config(2, 2)
        for name, change, word in (
                ('weight decay', {'optimizer': {**config['optimizer'], 'params': {**config['optimizer']['params'], 'weight_decay': 0.5}}},
                 'optimizer.params.weight_decay'),
                ('warmup', {'scheduler': {**config['scheduler'], 'params': {**config['scheduler']['params'], 'warmup_num_steps': 7}}},
                 'scheduler.params.warmup_num_steps'), ('precision', {'bf16': {'enabled': True}}, 'bf16')):
            yield other('config, ' + name, (word,), **{'deepspeed_config': self.w.write('other.json', {**config, **change})})
        for key, value in (('seed', 7), ('save_every', 2), ('save', None)):
            yield other('--%s %s' % (key, value), ('--' + key.replace('_', '-'),), **{key: value})
        yield other('three ranks', ('ranks that differ: 2',), world=3, seed=8)
        yield other('model', ('activation of the model',), model=self.w.write('m.json', {**gpt2(), 'activation_function': 'gelu'}))
        with open(self.data, 'rb') as f:
            data = bytearray(f.read())
        data[-8] ^= 1
        yield other('data', ('file of --data',), data=self.w.write('tokens.safetensors', bytes(data)))
        weights = [self.w.path('w%d.safetensors' % i) for i in (1, 2)]
        for i, path in enumerate(weights):
            status, _, err = self.w.run(1, self.arguments({'--save-weights': path, '--save': self.w.path('s%d' % i), '--seed': i}))
            if status:
                raise RuntimeError('the good run: %s' % err)
        yield other('first weights', ('digest',), changes={'--init': weights[0]}, init=weights[1])
        loads = [self.w.path('s%d' % i) for i in (0, 1)]
        yield other('resume', ('digest',), changes={'--load': loads[0], '--max-steps': 9}, load=loads[1])
        yield other('--save', ('must be one folder',), save=self.w.fresh('elsewhere'))

    # ---- a rank dies ----

    def dies(self, world, rank, stage):
        metrics = self.w.fresh('metrics')
        p, path = self.w.start(world, self.arguments({'--metrics': metrics, '--max-steps': 10 ** 6, '--deepspeed_config': self.w.write(
            'ds.json', ds_config(stage, 2))}))
        if not wait_for_step(p, metrics, 5):
            return ['it does not run: %s' % open(path).read()[-300:]]
        pids = ranks_of(p.pid)
        start = time.time()
        kill(pids[rank], signal.SIGKILL)
        try:
            status = p.wait(LIMIT)
        except Exception:
            for pid in pids + [p.pid]:
                kill(pid, signal.SIGKILL)
            p.wait()
            return ['still there after %d s' % LIMIT]
        err = open(path).read()
        problems = ['exit status 0'] if status == 0 else []
        if 'rank %d' % rank not in err:
            problems.append('rank %d is not named: %s' % (rank, err[-400:]))
        while any(os.path.exists('/proc/%d' % x) for x in pids) and time.time() < start + LIMIT:
            time.sleep(0.05)
        left = [x for x in pids if os.path.exists('/proc/%d' % x)]
        return problems + (['processes are left'] if left else [])

    def stops(self, world, rank, shared):
        """A rank that is stopped, not ended, is named while it is waited for; --wait-limit ends the wait, and the run."""
        metrics = self.w.fresh('metrics')
        p, path = self.w.start(world, self.arguments({'--metrics': metrics, '--max-steps': 10 ** 6, '--wait-limit': 8}),
                               {'ZT_COMM_SHARED': shared})
        if not wait_for_step(p, metrics, 5):
            return ['it does not run: %s' % open(path).read()[-300:]]
        pids = ranks_of(p.pid)
        kill(pids[rank], signal.SIGSTOP)
        try:
            status = p.wait(2 * LIMIT)
        except Exception:
            status = 0
        for pid in pids + [p.pid]:
            kill(pid, signal.SIGKILL)
        p.wait()
        err = open(path).read()
        words = ('has waited for rank %d on ' % rank, 'stopped by a signal', ': rank %d on ' % rank, '(--wait-limit)')
        return (['exit status 0, or no end'] if status == 0 else []) + ['no "%s": %s' % (x, err[-600:]) for x in words if x not in err]


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--shared', default='../shared')
    p.add_argument('--jobs', type=int, default=4)
    p.add_argument('--some', action='store_true')
    p.add_argument('-v', '--verbose', action='store_true')
    p.add_argument('only', nargs='*', help='parts of names')
    a = p.parse_intermixed_args()
    b = Bad(a.bin, a.shared)
    passed = failed = 0
    todo = [x for part in (b.configs, b.models, b.weights, b.scales, b.corpus, b.datas, b.others, b.apart) for x in part()]
    todo = todo[::4] if a.some else todo
    todo += [('killed rank %d of %d, stage %d' % x, lambda x=x: b.dies(x[1], x[0], x[2])) for x in ((1, 2, 2), (0, 2, 3), (2, 3, 1))[a.some * 2:]]
    todo += [('stopped rank %d of %d, ZT_COMM_SHARED=%s' % x, lambda x=x: b.stops(x[1], x[0], x[2])) for x in ((1, 2, '1'), (0, 3, '0'))[a.some:]]
    todo = [x for x in todo if not a.only or any(o in x[0] for o in a.only)]

    def one(case):
        start = time.time()
        try:
            return case[0], case[1](), time.time() - start
        except Exception as x:  # a failure of any kind is a failed check
            return case[0], ['%s: %s' % (type(x).__name__, x)], 0
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        for name, problems, seconds in pool.map(one, todo):
            passed += not problems
            failed += bool(problems)
            if problems:
                print('FAIL %s: %s' % (name, '; '.join(problems)[:700]), flush=True)
            elif a.verbose:
                print('ok   %s (%.1f s)' % (name, seconds), flush=True)
    print('engine bad input: %d passed, %d failed' % (passed, failed))
    sys.exit(1 if failed or not passed else 0)


if __name__ == '__main__':
    main()
