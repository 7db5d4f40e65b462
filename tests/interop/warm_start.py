#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A run begun from a model folder: what DeepSpeed makes of our fresh checkpoint trains as if it had begun by itself.

    warm_start.py --bin build/bin [NAME...]

Each small model is saved by transformers and resharded into a ZeRO checkpoint.  Two ranks then train twice: an engine
built from the saved model, and one of other weights that loads the checkpoint first.  The losses must be the same bits,
and so must the weights be before the first step and after the last.  Needs torch, DeepSpeed, transformers.
"""
import argparse
import logging
import os
import subprocess
import sys
import tempfile
import time
import traceback

from checks import mine

os.environ.update(DS_ACCELERATOR='cpu', OMP_NUM_THREADS='1', PYTHONWARNINGS='ignore', HF_HUB_OFFLINE='1')
WORLD, STEPS, LIMIT = 2, 3, 240
SMALL = dict(hidden_size=8, intermediate_size=16, num_hidden_layers=3, num_attention_heads=2, vocab_size=13, max_position_embeddings=16)
GPT2 = dict(n_embd=8, n_layer=11, n_head=2, vocab_size=13, n_positions=16, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0,
            bos_token_id=0, eos_token_id=0)
STILL = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
# name, config class, model class, settings, stage, dtype, --order
MODELS = (
    ('gpt2 tied, 11 layers', 'GPT2Config', 'GPT2LMHeadModel', GPT2, 2, 'fp32', None),
    ('gpt2 bf16', 'GPT2Config', 'GPT2LMHeadModel', GPT2, 1, 'bf16', None),
    ('gpt2 stage 3', 'GPT2Config', 'GPT2LMHeadModel', GPT2, 3, 'bf16', None),
    ('llama', 'LlamaConfig', 'LlamaForCausalLM', dict(SMALL, num_key_value_heads=1), 3, 'fp32', None),
    ('llama tied', 'LlamaConfig', 'LlamaForCausalLM', dict(SMALL, num_key_value_heads=1, tie_word_embeddings=True), 1, 'fp32', None),
    ('qwen2', 'Qwen2Config', 'Qwen2ForCausalLM', dict(SMALL, num_key_value_heads=1), 2, 'bf16', None),
    ('opt', 'OPTConfig', 'OPTForCausalLM', dict(hidden_size=8, ffn_dim=16, num_hidden_layers=2, num_attention_heads=2, vocab_size=13,
                                               max_position_embeddings=16, word_embed_proj_dim=4, dropout=0.0, pad_token_id=0), 2, 'fp32', None),
    ('bert', 'BertConfig', 'BertForMaskedLM', dict(SMALL, **STILL), 2, 'fp32', None),
    ('roberta', 'RobertaConfig', 'RobertaForMaskedLM', dict(SMALL, pad_token_id=0, **STILL), 3, 'fp32', None),
    ('list of two groups', 'GPT2Config', 'GPT2LMHeadModel', GPT2, 2, 'fp32', 'groups'),
)


def make(entry, seed):
    import torch
    import transformers
    torch.manual_seed(seed)
    model = getattr(transformers, entry[2])(getattr(transformers, entry[1])(**entry[3]))
    with torch.no_grad():  # biases and norms too: zeros and ones would hide a swap
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.02)
    return model.to(torch.bfloat16) if entry[5] == 'bf16' else model


def groups(model, entry):
    """As the optimizer gets them: one group, or two as trainers part them."""
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    if not entry[6]:
        return [named]
    return [[x for x in named if x[1].ndim > 1], [x for x in named if x[1].ndim < 2]]


def engine_of(model, entry):
    import deepspeed
    import torch
    optimizer = torch.optim.AdamW([{'params': [p for _, p in g]} for g in groups(model, entry)], lr=1e-3, weight_decay=0.0)
    config = {'train_micro_batch_size_per_gpu': 2, 'zero_allow_untested_optimizer': True, 'bf16': {'enabled': entry[5] == 'bf16'},
              'zero_optimization': {'stage': entry[4], 'stage3_param_persistence_threshold': 0}}
    return deepspeed.initialize(model=model, config=config, optimizer=optimizer)[0]


def weights(engine):
    import deepspeed
    return {n: deepspeed.utils.safe_get_full_fp32_param(p).detach().clone() for n, p in engine.module.named_parameters()}


def train(engine, rank):
    import torch
    data, losses = torch.Generator().manual_seed(rank), []
    for _ in range(STEPS):
        x = torch.randint(1, 13, (2, 8), generator=data)
        loss = engine(input_ids=x, labels=x).loss
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses


def worker(entry, run, rank):
    import torch
    truth = engine_of(make(entry, 1), entry)
    begun = weights(truth)
    wanted = train(truth, rank)
    ended = weights(truth)
    engine = engine_of(make(entry, 2), entry)
    assert any(not torch.equal(a, b) for a, b in zip(weights(engine).values(), begun.values()))
    path, _ = engine.load_checkpoint(run)
    assert path, 'nothing was loaded'
    assert engine.global_steps == 0
    for name, w in weights(engine).items():
        assert torch.equal(w, begun[name]), '%s is not what was saved' % name
    got = train(engine, rank)
    assert got == wanted, 'losses %s, expected %s' % (got, wanted)
    for name, w in weights(engine).items():
        assert torch.equal(w, ended[name]), '%s has other values after %d steps' % (name, STEPS)


def fork_ranks(entry, folder):
    """Run the ranks in processes of their own; the first failure's text, or ''."""
    import torch
    pids = []
    for rank in range(WORLD):
        pid = os.fork()
        if pid:
            pids.append(pid)
            continue
        code = 1
        try:
            log = os.open(os.path.join(folder, 'log%d' % rank), os.O_WRONLY | os.O_CREAT)
            os.dup2(log, 1)
            os.dup2(log, 2)
            torch.set_num_threads(1)
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD), LOCAL_SIZE=str(WORLD),
                              MASTER_ADDR='127.0.0.1', MASTER_PORT='0')
            torch.distributed.init_process_group('gloo', init_method='file://%s/store' % folder, rank=rank, world_size=WORLD)
            worker(entry, os.path.join(folder, 'run'), rank)
            torch.distributed.barrier()
            code = 0
        except BaseException:
            with open(os.path.join(folder, 'failed%d' % rank), 'w', encoding='utf-8') as f:
                f.write(traceback.format_exc())
        finally:
            os._exit(code)
    deadline, failed = time.time() + LIMIT, ''
    while pids and time.time() < deadline and not failed:
        for pid in list(pids):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                pids.remove(pid)
                failed = failed or ('' if status == 0 else 'a rank failed')
        time.sleep(0.05)
    for pid in pids:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    for rank in range(WORLD):
        path = os.path.join(folder, 'failed%d' % rank)
        if os.path.exists(path):
            with open(path, encoding='utf-8') as f:
                return 'rank %d: %s' % (rank, f.read().strip().splitlines()[-1])
    return failed or ('it hangs' if pids else '')


def case(entry, bin_, folder):
    """Save, reshard, train twice; what is wrong, or ''."""
    model = make(entry, 1)
    model.save_pretrained(os.path.join(folder, 'model'))
    command = [os.path.join(bin_, 'ckpt'), 'reshard', '-q', os.path.join(folder, 'model'), os.path.join(folder, 'run'),
               '--world', str(WORLD), '--stage', str(entry[4])]
    if entry[6]:
        order = os.path.join(folder, 'order')
        with open(order, 'w', encoding='utf-8') as f:
            f.write('\n\n'.join('\n'.join(n for n, _ in g) for g in groups(model, entry)) + '\n')
        command += ['--order', order]
    p = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if p.returncode:
        return 'exit %d: %s' % (p.returncode, p.stderr.strip())
    return fork_ranks(entry, folder)


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('names', nargs='*')
    a = p.parse_args()
    import deepspeed  # noqa: once, before any fork
    import transformers
    logging.getLogger('DeepSpeed').setLevel(logging.ERROR)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    assert deepspeed.__version__
    passed = failed = 0
    for entry in MODELS if a.names else mine(MODELS):
        if a.names and entry[0] not in a.names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            wrong = case(entry, a.bin, folder)
        passed += not wrong
        failed += bool(wrong)
        if wrong:
            print('FAIL %s: %s' % (entry[0], wrong[:900]))
    print('warm start: %d passed, %d failed' % (passed, failed))
    return 1 if failed or not passed else 0


if __name__ == '__main__':
    sys.exit(main())
