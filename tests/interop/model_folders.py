#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Model folders as transformers and peft load them: replaced under kills, adapters, code beside weights, packed experts.

  model_folders.py --bin build/bin --shim build/ioshim.so

A folder of shards is replaced by another model while the program is killed at every rename: transformers loads the old model or
the new one, bit for bit; where the configuration changes it may also find none.
"""
import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

os.environ['HF_HUB_OFFLINE'] = '1'
import torch
import transformers
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
passed, failed = 0, 0


def verdict(label, problem):
    global passed, failed
    if problem:
        failed += 1
        print('FAIL %s: %s' % (label, problem))
    else:
        passed += 1


def ckpt(a, *args, env=None):
    p = subprocess.run([os.path.join(a.bin, 'ckpt')] + list(args), capture_output=True, text=True, env=dict(os.environ, **(env or {})))
    return p.returncode, p.stderr.strip()


def state(model):
    return {k: v.clone() for k, v in model.state_dict().items()}


def equal(a, b):
    return set(a) == set(b) and all(torch.equal(a[k], b[k]) and a[k].dtype == b[k].dtype for k in a)


def llama(tmp, name, seed, theta=10000.0):
    torch.manual_seed(seed)
    config = LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
                         num_key_value_heads=2, max_position_embeddings=32, rope_theta=theta)
    model = LlamaForCausalLM(config)
    path = os.path.join(tmp, name)
    model.save_pretrained(path)
    return path, (state(model), theta)


def load(path):
    """What transformers makes of a folder; None: it says that there is no model."""
    try:
        model, info = AutoModelForCausalLM.from_pretrained(path, output_loading_info=True)
    except OSError as e:
        return None if 'no file named' in str(e) else repr(e)
    if any(info[k] for k in ('missing_keys', 'unexpected_keys', 'mismatched_keys')):
        return 'keys: %s' % info
    config = model.config.to_dict()
    return state(model), (config.get('rope_parameters') or config)['rope_theta']


def same(a, b):
    return isinstance(a, tuple) and equal(a[0], b[0]) and a[1] == b[1]


def replaced(a, tmp):
    old, old_state = llama(tmp, 'old', 1)
    for name, theta in (('new', 10000.0), ('other', 500000.0)):
        new, new_state = llama(tmp, name, 2, theta)
        for fmt in ('hf', 'hf-bin'):
            base, out = os.path.join(tmp, 'base'), os.path.join(tmp, 'out')
            shutil.rmtree(base, ignore_errors=True)
            opts = ['--to', fmt, '--max-shard-size', '8KB', '-q', '--no-fsync']
            rc, err = ckpt(a, 'convert', old, base, *opts)
            verdict('%s: written' % fmt, err if rc else None if same(load(base), old_state) else 'not the old model')
            seen, n = [0, 0, 0], 0
            while True:
                n += 1
                shutil.rmtree(out, ignore_errors=True)
                shutil.copytree(base, out)
                rc, err = ckpt(a, 'convert', '-f', new, out, *opts,
                               env={'LD_PRELOAD': a.shim, 'IOSHIM_OP': 'rename', 'IOSHIM_NTH': str(n), 'IOSHIM_KIND': 'kill',
                                    'IOSHIM_PATH': tmp})
                got = load(out)
                which = 0 if same(got, old_state) else 1 if same(got, new_state) else 2 if got is None and name == 'other' else 3
                label = '%s over shards, %s, killed at rename %d' % (name, fmt, n)
                verdict(label, 'transformers: %s' % (got if isinstance(got, str) else 'a mixture') if which == 3 else
                        'exit %d: %s' % (rc, err) if rc not in (0, -signal.SIGKILL) else None)
                if which < 3:
                    seen[which] += 1
                if rc == 0:
                    verdict(label, None if which == 1 else 'not the new model')
                    break
            verdict('%s, %s: both were seen' % (name, fmt), None if seen[0] and seen[1] and n > 8 else str(seen))


def beside(a, tmp):
    """Shards written over one file: transformers takes what was written."""
    old, _ = llama(tmp, 'b_old', 3)
    new, new_state = llama(tmp, 'b_new', 4)
    for opts in (['--to', 'hf', '--max-shard-size', '8KB'], ['--to', 'hf-bin'], ['--to', 'hf-bin', '--max-shard-size', '8KB']):
        out = os.path.join(tmp, 'b_out')
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(old, out)
        rc, err = ckpt(a, 'convert', '-q', '-f', new, out, *opts)
        verdict(' '.join(opts) + ' over one file', err if rc else None if same(load(out), new_state) else 'the old model')


def adapter(a, tmp):
    from peft import LoraConfig, PeftModel, get_peft_model
    base, _ = llama(tmp, 'p_base', 5)
    model = get_peft_model(LlamaForCausalLM.from_pretrained(base), LoraConfig(r=4, target_modules=['q_proj', 'v_proj'], task_type='CAUSAL_LM'))
    for p in model.parameters():
        if p.requires_grad:
            torch.nn.init.normal_(p)
    want = state(model)
    src, out = os.path.join(tmp, 'p_src'), os.path.join(tmp, 'p_out')
    model.save_pretrained(src)
    for fmt in ('hf', 'hf-bin'):
        shutil.rmtree(out, ignore_errors=True)
        rc, err = ckpt(a, 'convert', '-q', src, out, '--to', fmt)
        if rc:
            verdict('adapter to ' + fmt, err)
            continue
        got = state(PeftModel.from_pretrained(LlamaForCausalLM.from_pretrained(base), out))
        verdict('adapter to ' + fmt, None if equal(got, want) else 'other values')


CODE = '''from transformers import LlamaConfig, LlamaForCausalLM
from .helper_mine import SCALE


class MineConfig(LlamaConfig):
    model_type = "mine_of_a_test"


class MineForCausalLM(LlamaForCausalLM):
    config_class = MineConfig
    scale = SCALE
'''


def code(a, tmp):
    src, want = llama(tmp, 'c_src', 6)
    with open(os.path.join(src, 'modeling_mine.py'), 'w') as f:
        f.write(CODE)
    with open(os.path.join(src, 'helper_mine.py'), 'w') as f:
        f.write('SCALE = 3\n')
    path = os.path.join(src, 'config.json')
    with open(path) as f:
        config = json.load(f)
    config.update(model_type='mine_of_a_test', auto_map={'AutoConfig': 'modeling_mine.MineConfig',
                                                         'AutoModelForCausalLM': 'modeling_mine.MineForCausalLM'})
    with open(path, 'w') as f:
        json.dump(config, f)
    out = os.path.join(tmp, 'c_out')
    rc, err = ckpt(a, 'convert', '-q', src, out, '--to', 'hf', '--max-shard-size', '8KB')
    if rc:
        return verdict('code', err)
    model = AutoModelForCausalLM.from_pretrained(out, trust_remote_code=True)
    verdict('code', None if model.scale == 3 and equal(state(model), want[0]) else 'other values')


def experts(a, tmp):
    from safetensors.torch import save_file
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM
    torch.manual_seed(7)
    config = Qwen3MoeConfig(vocab_size=64, hidden_size=16, intermediate_size=32, moe_intermediate_size=8, num_experts=4,
                            num_experts_per_tok=2, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, head_dim=8,
                            max_position_embeddings=32, tie_word_embeddings=False)
    want = state(Qwen3MoeForCausalLM(config))
    if not any(k.endswith('.experts.gate_up_proj') for k in want):
        return print('model_folders: skipped packed experts (this transformers keeps them apart)')
    src, out = os.path.join(tmp, 'm_src'), os.path.join(tmp, 'm_out')
    config.save_pretrained(src)
    save_file(want, os.path.join(src, 'model.safetensors'), metadata={'format': 'pt'})
    rc, err = ckpt(a, 'convert', '-q', src, out, '--to', 'hf')
    verdict('packed experts', None if rc == 0 and 'packed' in err and equal(load_state(out), want) else err or 'other values')


def configurations(a, tmp):
    """config.json made by layout maps: from Meta's files, from GGUF, and from both in turn, the model computes the same."""
    from transformers import GPT2Config, MixtralConfig, Qwen2Config, Qwen3Config
    common = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                  max_position_embeddings=64, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2)
    kinds = {'llama': LlamaConfig(rope_theta=500000.0, **common), 'tied': LlamaConfig(**{**common, 'tie_word_embeddings': True}), 'qwen2': Qwen2Config(**common), 'qwen3': Qwen3Config(head_dim=8, **common),
             'mixtral': MixtralConfig(num_local_experts=4, **common),
             'gpt2': GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64)}
    for name, config in kinds.items():
        torch.manual_seed(11)
        src, file, out = (os.path.join(tmp, 'c_' + name + end) for end in ('', '.gguf', '.back'))
        model = AutoModelForCausalLM.from_config(config).eval()
        model.save_pretrained(src)
        ways = [[(src, file), (file, out, '--to', 'hf')]]
        if name in ('llama', 'tied'):
            meta, again = os.path.join(tmp, 'c_meta_' + name), os.path.join(tmp, 'c_again_' + name)
            ways += [[(src, meta, '--to', 'consolidated'), (meta, again, '--to', 'hf', '--size', 'max_position_embeddings=64')]]
        for way in ways:
            for step in way:
                rc, err = ckpt(a, 'convert', '-q', *step)
                if rc:
                    verdict('%s: %s' % (name, step[2:]), err)
            x = torch.arange(20).reshape(2, 10)
            with torch.no_grad():
                back, info = AutoModelForCausalLM.from_pretrained(way[-1][1], output_loading_info=True)
                far = (back.eval()(x).logits - model(x).logits).abs().max().item()
            keys = [k for k in ('missing_keys', 'unexpected_keys', 'mismatched_keys') if info[k]]
            verdict('%s by %s' % (name, os.path.basename(way[0][1])), 'keys: %s' % info if keys else None if far < 1e-6 else 'logits: %g' % far)
    # a run of Megatron-Core, whose own arguments lack nothing but this
    run = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'fixtures', 'mcore_llama_distopt_dp2', 'ckpt')
    rc, err = ckpt(a, 'convert', '-q', run, os.path.join(tmp, 'c_megatron'), '--to', 'hf', '--size', 'args.norm_epsilon=1e-5')
    got = load(os.path.join(tmp, 'c_megatron')) if rc == 0 else err
    verdict('a run of Megatron-Core', None if isinstance(got, tuple) and got[1] == 10000 else str(got))


def load_state(path):
    return state(AutoModelForCausalLM.from_pretrained(path))


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--shim', default='build/ioshim.so')
    a = p.parse_args()
    a.bin, a.shim = os.path.abspath(a.bin), os.path.abspath(a.shim)
    tmp = os.path.realpath(tempfile.mkdtemp())
    os.environ['HF_HOME'] = os.path.join(tmp, 'hf_home')  # code of models is copied there
    try:
        for test in (replaced, beside, adapter, code, experts, configurations):
            test(a, tmp)
    finally:
        shutil.rmtree(tmp)
    print('model folders: %d passed, %d failed' % (passed, failed))
    sys.exit(1 if failed or not passed else 0)


if __name__ == '__main__':
    main()
