#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure training: zerotrain beside PyTorch on one process, and beside DeepSpeed on two ranks.

  engine.py --bin build/bin [--quick] [--only ours,torch,ds,save] [--models gpt2,bert,t5-base] [--rounds 3] [--steps 8] [--work DIR]
            [--bf16] [--processor-time]

Everything is fp32, or with --bf16 DeepSpeed's bf16 (PyTorch alone: autocast), and takes turns in one run: the same config.json, ds_config.json, batches (random tokens, the same for all) and,
where there is a PyTorch to draw them, first weights; so the losses printed are comparable too.  Each turn is a process of its own whose
first steps do not count.  Figures: median and best tokens/s over the steps of all turns, global tokens on several ranks;
peak resident MiB of a process (the largest of the ranks).  Two processors are used by all: two threads, or two ranks of one thread.

With --processor-time, for a machine that others use: one thread each, zerotrain and PyTorch only, and the seconds of a step are
the processor's; of zerotrain a turn gives the mean of its steps.

A peer that this Python cannot import, or mpirun where it is absent, is skipped and said so.  Reasons why a figure is low that
have nothing to do with the program measured: other processes.  The load is printed.
"""
import argparse
import datetime
import importlib.util
import json
import os
import platform
import random
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

THREADS = 2


def t5(width, inner, layers, heads):
    return {'model_type': 't5', 'architectures': ['T5ForConditionalGeneration'], 'vocab_size': 32128, 'd_model': width, 'd_kv': 64,
            'd_ff': inner, 'num_layers': layers, 'num_heads': heads, 'relative_attention_num_buckets': 32, 'layer_norm_epsilon': 1e-6,
            'dropout_rate': 0.0, 'pad_token_id': 0, 'decoder_start_token_id': 0, 'eos_token_id': 1, 'tie_word_embeddings': True}


COMMON = {'attn_pdrop': 0.0, 'embd_pdrop': 0.0, 'resid_pdrop': 0.0, 'attention_probs_dropout_prob': 0.0, 'hidden_dropout_prob': 0.0,
          'dropout': 0.0}
MODELS = {
    # Radford et al. 2019, the small one
    'gpt2': {'title': 'GPT-2 124M (12 layers, 768 wide, 12 heads, vocabulary 50257)', 'class': 'GPT2LMHeadModel', 'batch': 4, 'seq': 64,
             'config': {'model_type': 'gpt2', 'architectures': ['GPT2LMHeadModel'], 'vocab_size': 50257, 'n_positions': 1024,
                        'n_embd': 768, 'n_layer': 12, 'n_head': 12, 'activation_function': 'gelu_new', 'layer_norm_epsilon': 1e-5,
                        'initializer_range': 0.02, 'tie_word_embeddings': True}},
    # sentence-transformers/all-MiniLM-L6-v2 with a head of two classes
    'bert': {'title': 'BERT of MiniLM size (6 layers, 384 wide, 12 heads, inner 1536, vocabulary 30522), 2 classes',
             'class': 'BertForSequenceClassification', 'batch': 8, 'seq': 128,
             'config': {'model_type': 'bert', 'architectures': ['BertForSequenceClassification'], 'vocab_size': 30522,
                        'max_position_embeddings': 512, 'hidden_size': 384, 'num_hidden_layers': 6, 'num_attention_heads': 12,
                        'intermediate_size': 1536, 'hidden_act': 'gelu', 'type_vocab_size': 2, 'layer_norm_eps': 1e-12,
                        'initializer_range': 0.02, 'pad_token_id': 0, 'num_labels': 2,
                        'problem_type': 'single_label_classification'}},
    # google/t5-efficient-tiny
    't5-tiny': {'title': 'T5 of tiny size (4 + 4 layers, 256 wide, 4 heads, vocabulary 32128)', 'class': 'T5ForConditionalGeneration',
                'batch': 8, 'seq': 64, 'target': 64, 'config': t5(256, 1024, 4, 4)},
    't5-base': {'title': 'T5-base (12 + 12 layers, 768 wide, 12 heads, vocabulary 32128)', 'class': 'T5ForConditionalGeneration',
                'batch': 4, 'seq': 64, 'target': 64, 'config': t5(768, 3072, 12, 12)},
    # facebook/opt-125m
    'opt': {'title': 'OPT-125M (12 layers, 768 wide, 12 heads, vocabulary 50272)', 'class': 'OPTForCausalLM', 'batch': 4, 'seq': 64,
            'config': {'model_type': 'opt', 'architectures': ['OPTForCausalLM'], 'vocab_size': 50272, 'max_position_embeddings': 2048,
                       'hidden_size': 768, 'word_embed_proj_dim': 768, 'ffn_dim': 3072, 'num_hidden_layers': 12,
                       'num_attention_heads': 12, 'do_layer_norm_before': True, 'activation_function': 'relu', 'pad_token_id': 1,
                       'bos_token_id': 2, 'eos_token_id': 2, 'init_std': 0.02, 'tie_word_embeddings': True}}}
OPTIMIZER = {'lr': 1e-4, 'betas': [0.9, 0.999], 'eps': 1e-8, 'weight_decay': 0.01}


# ---- what all are given ----

def safetensors(path, tensors):
    """{name: (dtype, shape, bytes)} as a safetensors file."""
    head, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        head[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    text += b' ' * (-len(text) % 8)
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text)
        for _, _, data in tensors.values():
            f.write(data)


def write_data(folder, m, steps, world):
    """A record of [step, rank, sample, token], replayed by all."""
    draw = random.Random(4711)
    vocab, shape = m['config']['vocab_size'], [steps, world, m['batch'], m['seq']]
    ids = [draw.randrange(vocab) for _ in range(steps * world * m['batch'] * m['seq'])]
    labels, among = ids, shape
    if 'target' in m:
        among = shape[:3] + [m['target']]
        labels = [draw.randrange(vocab) for _ in range(steps * world * m['batch'] * m['target'])]
    elif m['class'] == 'BertForSequenceClassification':
        among = shape[:3]
        labels = [draw.randrange(2) for _ in range(steps * world * m['batch'])]
    safetensors(os.path.join(folder, 'data%d.safetensors' % world), {
        'in/input_ids': ('I32', shape, struct.pack('<%di' % len(ids), *ids)),
        'in/labels': ('I32', among, struct.pack('<%di' % len(labels), *labels))})


def ds_config(m, stage, bf16):
    return {**({'bf16': {'enabled': True}} if bf16 else {}), 'train_micro_batch_size_per_gpu': m['batch'], 'gradient_accumulation_steps': 1, 'gradient_clipping': 0.0,
            'steps_per_print': 1000000, 'optimizer': {'type': 'AdamW', 'params': OPTIMIZER}, 'zero_optimization': {'stage': stage}}


def prepare(folder, m, steps, bf16):
    os.makedirs(folder)
    with open(os.path.join(folder, 'config.json'), 'w') as f:
        json.dump({**m['config'], **COMMON}, f)
    for stage in (0, 2, 3):
        with open(os.path.join(folder, 'ds%d.json' % stage), 'w') as f:
            json.dump(ds_config(m, stage, bf16), f)
    for world in (1, 2):
        write_data(folder, m, steps, world)


# ---- the peers, as processes of their own: child KIND FOLDER CLASS STEPS ----

def child_model(folder, cls):
    import torch
    import transformers
    torch.manual_seed(42)
    config = transformers.AutoConfig.from_pretrained(folder)
    model = getattr(transformers, cls)._from_config(config, attn_implementation='sdpa')
    return model.train()


def child_init(folder, cls, steps):
    from safetensors.torch import save_file
    kept, seen = {}, set()
    for name, p in child_model(folder, cls).named_parameters():   # a tied weight has one name here
        if p.data_ptr() not in seen:
            kept[name] = p.detach().contiguous()
            seen.add(p.data_ptr())
    save_file(kept, os.path.join(folder, 'init.safetensors'))
    return {}


def child_batch(folder, world):
    from safetensors.torch import load_file
    data = load_file(os.path.join(folder, 'data%d.safetensors' % world))
    ids, labels = data['in/input_ids'].long(), data['in/labels'].long()
    return lambda step, rank: {'input_ids': ids[step, rank], 'labels': labels[step, rank]}


def child_run(steps, one, clock=time.perf_counter):
    import resource
    seconds, losses = [], []
    for i in range(steps):
        t = clock()
        losses.append(one(i))
        seconds.append(clock() - t)
    return {'seconds': seconds, 'losses': losses, 'mib': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


def child_torch(folder, cls, steps, fused=True, threads=THREADS, clock=time.perf_counter):
    import torch
    torch.set_num_threads(threads)
    model, batch = child_model(folder, cls), child_batch(folder, 1)
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused, **OPTIMIZER)
    with open(os.path.join(folder, 'ds0.json')) as f:
        bf16 = 'bf16' in json.load(f)

    def one(i):
        with torch.autocast('cpu', torch.bfloat16, enabled=bf16):
            loss = model(**batch(i, 0)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()
    return child_run(steps, one, clock)


def child_alone(folder, cls, steps):
    return child_torch(folder, cls, steps, threads=1, clock=time.process_time)


def child_plain(folder, cls, steps):
    return child_torch(folder, cls, steps, fused=None)


def ds_rank(rank, folder, cls, steps, stage):
    """One rank of DeepSpeed; the first one tells."""
    os.environ.update(DS_ACCELERATOR='cpu', OMP_NUM_THREADS='1', RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE='2', LOCAL_SIZE='2')
    import logging
    import torch
    import deepspeed
    logging.getLogger('DeepSpeed').setLevel(logging.CRITICAL)
    torch.set_num_threads(1)
    deepspeed.init_distributed(dist_backend='gloo')
    model, batch = child_model(folder, cls), child_batch(folder, 2)
    engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=os.path.join(folder, 'ds%d.json' % stage))[0]

    def one(i):
        loss = engine(**batch(i, rank)).loss
        engine.backward(loss)
        engine.step()
        return loss.item()
    told = child_run(steps, one)
    both = [None, None]
    torch.distributed.all_gather_object(both, told)
    if rank == 0:
        told['losses'] = [statistics.mean(x) for x in zip(both[0]['losses'], both[1]['losses'])]
        told['seconds'] = [max(x) for x in zip(both[0]['seconds'], both[1]['seconds'])]
        told['mib'] = max(both[0]['mib'], both[1]['mib'])
        with open(os.path.join(folder, 'told.json'), 'w') as f:
            json.dump(told, f)
    torch.distributed.barrier()
    sys.stderr.flush()
    os._exit(0)   # its threads may abort a process that ends in the usual way


def child_ds(folder, cls, steps, stage):
    import socket
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        port = s.getsockname()[1]
    env = dict(os.environ, MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port), DS_ACCELERATOR='cpu', OMP_NUM_THREADS='1')
    ranks = [subprocess.Popen([sys.executable, os.path.abspath(__file__), 'child', 'rank%d%d' % (stage, rank), folder, cls, str(steps)],
                              env=env, stdout=sys.stderr) for rank in (0, 1)]
    try:
        while any(p.poll() is None for p in ranks) and not any(p.returncode for p in ranks):
            time.sleep(0.2)
    finally:
        for p in ranks:   # a rank whose partner failed would wait for it
            if p.poll() is None:
                p.terminate()
            p.wait()
    if any(p.returncode for p in ranks):
        sys.exit('DeepSpeed at stage %d: exit %s' % (stage, [p.returncode for p in ranks]))
    with open(os.path.join(folder, 'told.json')) as f:
        return json.load(f)


def child(kind, folder, cls, steps):
    steps = int(steps)
    if kind.startswith('rank'):
        return ds_rank(int(kind[5]), folder, cls, steps, int(kind[4]))
    if kind.startswith('ds'):
        told = child_ds(folder, cls, steps, int(kind[2]))
    else:
        told = {'init': child_init, 'torch': child_torch, 'plain': child_plain, 'alone': child_alone}[kind](folder, cls, steps)
    print('told ' + json.dumps(told))
    return None


# ---- turns ----

def check(cmd, **more):
    p = subprocess.Popen(cmd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    try:
        out = p.stdout.read()
    except BaseException:   # ended from outside: so are those that it started
        p.terminate()
        p.wait()
        raise
    _, status, usage = os.wait4(p.pid, 0)   # of mpirun: the largest of its ranks
    p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode:
        sys.exit('%s: exit %d: %s' % (' '.join(cmd), p.returncode, out[-3000:]))
    return out, usage.ru_maxrss // 1024


def peer(kind, folder, m, steps):
    env = dict(os.environ, PYTHONWARNINGS='ignore', TRANSFORMERS_VERBOSITY='error', HF_HUB_OFFLINE='1')
    out, _ = check([sys.executable, os.path.abspath(__file__), 'child', kind, folder, m['class'], str(steps)], env=env)
    return json.loads(re.search('^told (.*)$', out, re.M).group(1))


def ours_command(a, folder, stage, world, steps):
    cmd = [os.path.join(a.bin, 'zerotrain'), '--deepspeed_config', os.path.join(folder, 'ds%d.json' % stage), '--model', folder,
           '--data', os.path.join(folder, 'data%d.safetensors' % world), '--max-steps', str(steps), '--threads',
           str(1 if a.processor_time else THREADS // world), '--quiet']
    first = os.path.join(folder, 'init.safetensors')   # PyTorch's, if it takes part
    cmd += ['--init', first if os.path.exists(first) else 'none']
    if world > 1:
        cmd = ['mpirun', '--oversubscribe', '--bind-to', 'none', '-n', str(world)] + cmd
    return cmd


MPI_ENV = {'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'}


def ours(a, folder, stage, world, steps):
    metrics = os.path.join(folder, 'metrics.jsonl')
    _, mib = check(ours_command(a, folder, stage, world, steps) + ['--metrics', metrics, '--force'], env=dict(os.environ, **MPI_ENV))
    with open(metrics) as f:
        lines = [json.loads(x) for x in f]
    return {'seconds': [x['seconds'] for x in lines], 'losses': [x['loss'] for x in lines], 'mib': mib}


def processor_of(pid):
    with open('/proc/%d/stat' % pid) as f:
        return sum(int(x) for x in f.read().rpartition(')')[2].split()[11:13]) / os.sysconf('SC_CLK_TCK')


def ours_alone(a, folder, steps):
    """The processor's seconds between the lines of the updates."""
    p = subprocess.Popen(ours_command(a, folder, 0, 1, steps) + ['--metrics', '-'], stdout=subprocess.PIPE, text=True)
    at, losses = [0.0], []
    for line in p.stdout:
        at.append(processor_of(p.pid))
        losses.append(json.loads(line)['loss'])
    _, status, usage = os.wait4(p.pid, 0)
    p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode:
        sys.exit('zerotrain: exit %d' % p.returncode)
    mean = (at[-1] - at[a.warmup]) / a.steps   # a line may be read late, so single steps are not exact
    return {'seconds': [0] * a.warmup + [mean], 'losses': losses, 'mib': usage.ru_maxrss // 1024}


def jobs(a, folder, m, steps):
    """(name, ranks, the one to compare with, what runs it)"""
    have = importlib.util.find_spec
    out = []
    if a.processor_time:
        return [('zerotrain', 1, 'PyTorch, fused AdamW', lambda: ours_alone(a, folder, steps)),
                ('PyTorch, fused AdamW', 1, None, lambda: peer('alone', folder, m, steps))]
    if 'ours' in a.only:
        out.append(('zerotrain, 2 threads', 1, 'PyTorch, fused AdamW, 2 threads', lambda: ours(a, folder, 0, 1, steps)))
        for stage in (2, 3) if shutil.which('mpirun') else ():
            out.append(('zerotrain, 2 ranks, ZeRO-%d' % stage, 2, 'DeepSpeed, 2 ranks, ZeRO-%d' % stage,
                        lambda stage=stage: ours(a, folder, stage, 2, steps)))
    if 'torch' in a.only and have('torch') and have('transformers'):
        out.append(('PyTorch, fused AdamW, 2 threads', 1, None, lambda: peer('torch', folder, m, steps)))
        if not a.quick:
            out.append(('PyTorch, plain AdamW, 2 threads', 1, None, lambda: peer('plain', folder, m, steps)))
    if 'ds' in a.only and have('deepspeed') and have('transformers'):
        for stage in (2, 3):
            out.append(('DeepSpeed, 2 ranks, ZeRO-%d' % stage, 2, None, lambda stage=stage: peer('ds%d' % stage, folder, m, steps)))
    return out


def row(cells):
    print('| ' + ' | '.join(str(c) for c in cells) + ' |', flush=True)


def speed(a, folder, m):
    steps = a.warmup + a.steps
    todo = jobs(a, folder, m, steps)
    runs = {name: [] for name, _, _, _ in todo}
    for _ in range(a.rounds):
        for name, _, _, go in todo:
            runs[name].append(go())
            print('%s: %s s a step' % (name, ' '.join('%.2f' % s for s in runs[name][-1]['seconds'])), file=sys.stderr, flush=True)
    length = '%d + %d tokens' % (m['seq'], m['target']) if 'target' in m else '%d tokens' % m['seq']
    print('\n### %s, batch %d a rank, %s, %s\n' % (m['title'], m['batch'], length, 'bf16' if a.bf16 else 'fp32'))
    row(['', 'tokens/s, median', 'best', 'ratio', 'of bests', 'peak MiB a process', 'loss, first', 'last'])
    row(['---'] * 8)
    rate = {}
    for name, world, _, _ in todo:
        seconds = [s for r in runs[name] for s in r['seconds'][a.warmup:]]
        tokens = world * m['batch'] * (m['seq'] + m.get('target', 0))
        rate[name] = (tokens / statistics.median(seconds), tokens / min(seconds))
    for name, _, beside, _ in todo:
        r = runs[name]
        ratio = ['%.2f' % (rate[name][i] / rate[beside][i]) if beside in rate else '' for i in (0, 1)]
        row([name, '%.0f' % rate[name][0], '%.0f' % rate[name][1]] + ratio + [max(x['mib'] for x in r), '%.4f' % r[0]['losses'][0],
                                                                             '%.4f' % r[0]['losses'][-1]])


def saving(a, folder, m):
    """A checkpoint with all of the optimizer's state, beside cp and sync of the same files."""
    out, copy = os.path.join(folder, 'out'), os.path.join(folder, 'copy')
    ours_s, cp_s, n = [], [], 0
    for _ in range(1 if a.quick else max(a.rounds, 5)):   # disks swing
        for d in (out, copy):
            shutil.rmtree(d, ignore_errors=True)
        subprocess.run(['sync', '-f', folder])
        text, _ = check(ours_command(a, folder, 2, 1, 1) + ['--save', out, '--profile'])
        ours_s.append(float(re.search(r'^profile: save +([0-9.]+) s', text, re.M).group(1)))
        subprocess.run(['sync', '-f', folder])
        t = time.time()
        check(['sh', '-c', 'cp -r "$1" "$2" && find "$2" -type f -exec sync {} +', 'sh', out, copy])
        cp_s.append(time.time() - t)
        n = sum(os.path.getsize(os.path.join(d, f)) for d, _, fs in os.walk(out) for f in fs)
    for d in (out, copy):
        shutil.rmtree(d, ignore_errors=True)
    print('\n### Saving %s with its optimizer state, ZeRO-2, 1 rank\n' % m['title'])
    row(['GB', 'ours, s', 'cp + sync, s', 'speed / cp'])
    row(['---'] * 4)
    row(['%.2f' % (n / 1e9), '%.2f' % statistics.median(ours_s), '%.2f' % statistics.median(cp_s),
         '%.2f' % (statistics.median(cp_s) / statistics.median(ours_s))])


def skipped(a):
    for word, module in (('torch', 'torch'), ('torch', 'transformers'), ('ds', 'deepspeed')):
        if word in a.only and importlib.util.find_spec(module) is None:
            print('skipped: %s is not installed for %s' % (module, sys.executable))
    if 'ours' in a.only and not shutil.which('mpirun'):
        print('skipped: zerotrain on two ranks, there is no mpirun')


def main():
    p = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--only', default='ours,torch,ds,save', help='what takes part')
    p.add_argument('--models', default='gpt2,bert')
    p.add_argument('--quick', action='store_true', help='one round, few steps, no plain AdamW')
    p.add_argument('--rounds', type=int, help='turns of each (3)')
    p.add_argument('--steps', type=int, help='steps of a turn that count (8)')
    p.add_argument('--warmup', type=int, default=2, help='steps before them')
    p.add_argument('--bf16', action='store_true', help='bf16 instead of fp32; PyTorch alone: under autocast')
    p.add_argument('--processor-time', action='store_true', help="one thread each, and the processor's seconds")
    p.add_argument('--work', help='folder on the disk to use (default: the temporary folder)')
    a = p.parse_args()
    a.only = a.only.split(',')
    a.rounds = a.rounds or (1 if a.quick else 3)
    a.steps = a.steps or (4 if a.quick else 8)
    if a.work:
        os.makedirs(a.work, exist_ok=True)
    work = tempfile.mkdtemp(dir=a.work)
    model = [x.split(':')[1].strip() for x in open('/proc/cpuinfo') if x.startswith('model name')][:1]
    print('%s; %s, %d processors; %s; load %.1f; %d turns of %d steps after %d' % (
        datetime.date.today(), ''.join(model) or platform.machine(), os.cpu_count(), platform.system(), os.getloadavg()[0], a.rounds,
        a.steps, a.warmup))
    skipped(a)
    try:
        for name in a.models.split(','):
            m, folder = MODELS[name], os.path.join(work, name)
            prepare(folder, m, a.warmup + a.steps, a.bf16)
            if importlib.util.find_spec('torch') and importlib.util.find_spec('transformers'):
                peer('init', folder, m, 1)
            speed(a, folder, m)
            if 'save' in a.only and not a.processor_time:
                saving(a, folder, m)
            shutil.rmtree(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print('\nload at the end %.1f' % os.getloadavg()[0])


if __name__ == '__main__':
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))   # so that what was started is ended, too
    if sys.argv[1:2] == ['child']:
        child(*sys.argv[2:])
    else:
        main()
