#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GGUF files that ckpt makes of models of many architectures, beside llama.cpp's own converter and quantizer.

  llama_architectures.py --bin build/bin --llama DIR [NAME...]

DIR is the folder that llama.sh has made.  For each model and dtype, ckpt's file has all tensors and keys of llama.cpp's file, bit for
bit, and llama.cpp says the tokens with it that transformers says with the original.  The folder that ckpt makes of the F32 file gives
the logits of the original model in transformers, or ckpt refuses to make one.
"""
import argparse
import json
import os
import shutil
import sys

os.environ['HF_HUB_OFFLINE'] = '1'
import safetensors.torch
import torch
import transformers

from checks import Tally, ckpt, scratch
from llama_cpp import FIXTURES, LLAMA, TYPES, Reader, mine, run

# One process, because importing what the converter needs takes longer than all else.
CONVERT = '''
import json, runpy, sys
llama, jobs = sys.argv[1:]
sys.path[:0] = [llama, llama + '/gguf-py']
import conversion.base
from conversion.base import ModelBase
read = ModelBase.load_hparams


def older(*args, **how):
    """The configuration; transformers 5 has moved a field that the converter of GPT-NeoX reads."""
    config = read(*args, **how)
    if config['model_type'] == 'gpt_neox':
        config['rotary_pct'] = config['rope_parameters']['partial_rotary_factor']
    return config


ModelBase.load_hparams = older
for pre, folder, out in json.loads(jobs):
    conversion.base.TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
    for dtype in 'f32', 'f16', 'bf16':
        sys.argv = ['convert_hf_to_gguf.py', folder, '--outfile', out + dtype, '--outtype', dtype]
        # the converter of Qwen3-Next expects a layer that predicts one more token, unless it is told that there is none
        sys.argv += ['--no-mtp'] if 'qwen3_next' in out else []
        runpy.run_path(llama + '/convert_hf_to_gguf.py', run_name='__main__')
'''
GPT_OSS = dict(LLAMA, head_dim=64, intermediate_size=256, num_local_experts=4, num_experts_per_tok=2, sliding_window=64)
YARN = {'rope_type': 'yarn', 'rope_theta': 150000.0, 'factor': 32.0, 'beta_fast': 32.0, 'beta_slow': 1.0,
        'original_max_position_embeddings': 64}
GEMMA = dict(LLAMA, head_dim=32, query_pre_attn_scalar=32, sliding_window=16)
VISION = {'hidden_size': 32, 'intermediate_size': 64, 'num_hidden_layers': 1, 'num_attention_heads': 2, 'image_size': 28, 'patch_size': 14}
# contexts of llama_run are shorter than the texts that need the other factors
LONG = {'rope_type': 'longrope', 'rope_theta': 10000.0, 'original_max_position_embeddings': 512,
        'short_factor': [1 + i / 9 for i in range(32)], 'long_factor': [2 + i / 7 for i in range(32)]}
GRANITE = dict(LLAMA, attention_multiplier=0.1, embedding_multiplier=3.0, residual_multiplier=0.5, logits_scaling=2.0)
MIXED = dict(GRANITE, num_local_experts=4, num_experts_per_tok=2)
# the file has factors of the rotary embedding as a tensor, so that ckpt needs the original configuration
STATED = 'phi_long', 'llama4_long'
# llama.cpp rounds the bounds of the stretched frequencies, as ckpt warns
ROUNDED = ('gpt_oss_yarn',)
MOE = dict(LLAMA, num_hidden_layers=3, moe_intermediate_size=256, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1,
           first_k_dense_replace=1)
DEEPSEEK = dict(MOE, num_key_value_heads=4, n_shared_experts=2, kv_lora_rank=64, q_lora_rank=96, qk_nope_head_dim=64,
                qk_rope_head_dim=32, v_head_dim=64)
MROPE = {'rope_type': 'default', 'rope_theta': 20000.0, 'mrope_section': [8, 12, 12]}
DEEP = {'depth': 1, 'hidden_size': 64, 'intermediate_size': 64, 'num_heads': 2, 'out_hidden_size': 256, 'deepstack_visual_indexes': [0],
        'num_position_embeddings': 16}
NEXT = dict(LLAMA, num_hidden_layers=5, head_dim=64, moe_intermediate_size=96, shared_expert_intermediate_size=160, num_experts=4,
            num_experts_per_tok=2, linear_key_head_dim=32, linear_value_head_dim=32, linear_num_key_heads=2, linear_num_value_heads=4)
LLAMA4 = dict(LLAMA, num_hidden_layers=5, head_dim=64, intermediate_size=256, intermediate_size_mlp=512, num_local_experts=4,
              num_experts_per_tok=1, interleave_moe_layer_step=2)
GLM = '[gMASK]', '<|user|>', '<|observation|>'
# Name: class, configuration, name of the tokenizer's way to split text (default: SentencePiece), tokens that the tokenizer must have.
MODELS = {
    'gemma2': ('Gemma2', GEMMA, 'default', ()),
    'gemma3': ('Gemma3', dict(GEMMA, num_hidden_layers=7, final_logit_softcapping=30.0), 'default', ()),
    # as the hub has it: the text's configuration is below the whole model's
    'gemma3_vision': ('Gemma3ForConditionalGeneration',
                      {'text_config': dict(GEMMA, num_hidden_layers=6, rope_scaling={'rope_type': 'linear', 'factor': 8.0}),
                       'vision_config': VISION}, 'default', ()),
    # llama.cpp expects tokens of Phi-3 in a file whose name is that
    'phi': ('Phi3', LLAMA, 'default', ()),
    'phi_long': ('Phi3', dict(LLAMA, max_position_embeddings=1024, original_max_position_embeddings=512, rope_parameters=LONG),
                  'default', ()),
    'phi4': ('Phi3', dict(LLAMA, rope_parameters={'rope_type': 'default', 'rope_theta': 250000.0, 'partial_rotary_factor': 0.75},
                          tie_word_embeddings=True), 'dbrx', ()),
    'olmo2': ('Olmo2', dict(LLAMA, rope_parameters=dict(YARN, factor=4.0)), 'dbrx', ()),
    'olmo3': ('Olmo3', dict(LLAMA, num_hidden_layers=5, sliding_window=16, rope_parameters={
        'full_attention': dict(YARN, factor=4.0, attention_factor=1.1386294361119891),
        'sliding_attention': {'rope_type': 'default', 'rope_theta': 150000.0}}), 'dbrx', ()),
    'smollm3': ('SmolLM3', dict(LLAMA, num_hidden_layers=5), 'smaug-bpe', ()),
    'starcoder2': ('Starcoder2', LLAMA, 'starcoder', ()),
    'gpt_neox': ('GPTNeoX', dict(LLAMA, hidden_act='gelu_pytorch_tanh'), 'olmo', ()),
    'granite': ('Granite', GRANITE, 'refact', ()),
    'granite_moe': ('GraniteMoe', dict(MIXED, tie_word_embeddings=True), 'refact', ()),
    'granite_shared': ('GraniteMoeShared', dict(MIXED, shared_intermediate_size=256), 'refact', ()),
    'gpt_oss': ('GptOss', GPT_OSS, 'gpt-4o', ()),
    'gpt_oss_yarn': ('GptOss', dict(GPT_OSS, rope_parameters=dict(YARN, truncate=False)), 'gpt-4o', ()),
    'gpt_oss_mxfp4': ('GptOss', dict(GPT_OSS, hidden_size=288), 'gpt-4o', ()),
    'deepseek_v2': ('DeepseekV2', dict(DEEPSEEK, scoring_func='softmax', n_group=1, topk_group=1), 'deepseek-llm', ()),
    # llama.cpp knows a model without q_lora_rank by its number of layers
    'deepseek_v2_lite': ('DeepseekV2', dict(DEEPSEEK, q_lora_rank=None, num_hidden_layers=27, hidden_size=64, intermediate_size=64,
                                            moe_intermediate_size=32, routed_scaling_factor=1.5), 'deepseek-llm', ()),
    'deepseek_v3': ('DeepseekV3', dict(DEEPSEEK, scoring_func='sigmoid', topk_method='noaux_tc', n_group=2, topk_group=1,
                                       rope_parameters=dict(YARN, mscale=0.707, mscale_all_dim=0.707)), 'deepseek-v3', ()),
    'qwen2_5_vl': ('Qwen2_5_VLForConditionalGeneration', {'text_config': dict(LLAMA, rope_parameters=MROPE), 'vision_config': {
        'depth': 1, 'hidden_size': 64, 'intermediate_size': 64, 'num_heads': 2, 'out_hidden_size': 256}}, 'qwen2', ()),
    'qwen3_vl': ('Qwen3VLForConditionalGeneration', {'text_config': dict(LLAMA, head_dim=64, rope_parameters=MROPE), 'vision_config': DEEP},
                 'qwen2', ()),
    'qwen3_vl_moe': ('Qwen3VLMoeForConditionalGeneration', {'text_config': dict(
        LLAMA, head_dim=64, rope_parameters=MROPE, moe_intermediate_size=96, num_experts=4, num_experts_per_tok=2),
        'vision_config': DEEP}, 'qwen2', ()),
    'qwen2_moe': ('Qwen2Moe', dict(LLAMA, moe_intermediate_size=96, shared_expert_intermediate_size=160, num_experts=4,
                                   num_experts_per_tok=2), 'qwen2', ()),
    'qwen3_next': ('Qwen3Next', NEXT, 'qwen2', ()),
    # the heads of keys are those of values, and the layers are in another order
    'qwen3_next_even': ('Qwen3Next', dict(NEXT, num_hidden_layers=3, linear_num_key_heads=4, partial_rotary_factor=0.5, layer_types=[
        'full_attention', 'linear_attention', 'full_attention']), 'qwen2', ()),
    'qwen3_next_hub': ('Qwen3Next', NEXT, 'qwen2', ()),
    'glm4': ('Glm4', dict(LLAMA, head_dim=64), 'glm4', GLM),
    'glm4_moe': ('Glm4Moe', dict(MOE, head_dim=64, use_qk_norm=True), 'glm4', GLM),
    'glm4_moe_biased': ('Glm4Moe', dict(MOE, attention_bias=True, norm_topk_prob=False, n_group=2), 'glm4', GLM),
    'llama4': ('Llama4', LLAMA4, 'llama4', ()),
    # as Llama 4 Scout: no frequency between the two
    'llama4_long': ('Llama4', dict(LLAMA4, interleave_moe_layer_step=1, num_hidden_layers=4, rope_parameters={
        'rope_type': 'llama3', 'rope_theta': 500000.0, 'factor': 16.0, 'low_freq_factor': 1.0, 'high_freq_factor': 1.0,
        'original_max_position_embeddings': 64}), 'llama4', ()),
}
# as the hub has it, with the experts in blocks of MXFP4, which stay blocks without --dtype
BLOCKS = ('gpt_oss_mxfp4',)
# of a hub's name, with a layer that predicts one more token
MORE = 'deepseek_v3', 'glm4_moe'


def make(name, folder):
    """A model of random weights, large enough that its answers differ, and its tokenizer."""
    kind, config, pre, extra = MODELS[name]
    source = os.path.join(FIXTURES, 'gguf_mixtral' if pre == 'default' else 'gguf_llama_deep', 'hf')
    torch.manual_seed(len(name))
    vocab = transformers.AutoConfig.from_pretrained(source).vocab_size
    model = getattr(transformers, kind if 'For' in kind else kind + 'ForCausalLM')
    config = model.config_class(**config)
    text = config.get_text_config()
    text.vocab_size = vocab + len(extra)
    text.bos_token_id, text.eos_token_id, text.pad_token_id = 1, 2, 2
    model = model(config)
    with torch.no_grad():
        for p in list(model.parameters()) + [b for n, b in model.named_buffers() if n.endswith('bias')]:
            if p.dim() > 1:
                p.normal_(0, 0.08)
            else:
                p.add_(torch.randn_like(p) * 0.02)
    # values that F16 has, too, so that its file is the model
    model.bfloat16().half().bfloat16().save_pretrained(folder)
    if name == 'qwen3_vl_moe':
        across(folder)
    for file in 'tokenizer.model', 'tokenizer.json', 'tokenizer_config.json', 'special_tokens_map.json':
        if os.path.exists(os.path.join(source, file)):
            shutil.copyfile(os.path.join(source, file), os.path.join(folder, file))
    if name in MORE:
        predict(folder)
    if name == 'qwen3_next_hub':
        older_fields(folder)
    if name in BLOCKS:
        to_blocks(folder)
    # of Phi-4 the converter takes another class for a SentencePiece model; add_prefix_space is as the hub has it
    if pre != 'default':
        path = os.path.join(folder, 'tokenizer_config.json')
        with open(path, encoding='utf-8') as f:
            settings = json.load(f)
        with open(path, 'w', encoding='utf-8') as f:
            json.dump(dict(settings, tokenizer_class='GPT2Tokenizer', add_prefix_space=False), f)
    if name == 'phi':
        path = os.path.join(folder, 'tokenizer_config.json')
        with open(path, encoding='utf-8') as f:
            settings = json.load(f)
        tokens = {vocab - 1: {'content': '<|end|>', 'special': False}, vocab - 2: {'content': '<|user|>', 'special': True}}
        with open(path, 'w', encoding='utf-8') as f:
            json.dump(dict(settings, added_tokens_decoder=tokens), f)
    if extra:
        path = os.path.join(folder, 'tokenizer.json')
        with open(path, encoding='utf-8') as f:
            tokenizer = json.load(f)
        tokenizer['added_tokens'] += [dict(tokenizer['added_tokens'][0], id=vocab + i, content=text) for i, text in enumerate(extra)]
        with open(path, 'w', encoding='utf-8') as f:
            json.dump(tokenizer, f)


def across(folder):
    """Transpose the experts, as the hub has them: transformers does so only with models that it has loaded from there."""
    path = os.path.join(folder, 'model.safetensors')
    tensors = safetensors.torch.load_file(path)
    tensors = {n: t.transpose(1, 2).contiguous() if '.experts.' in n else t for n, t in tensors.items()}
    safetensors.torch.save_file(tensors, path, {'format': 'pt'})


def older_fields(folder):
    """The configuration as the hub has it, from before transformers 5, and a layer that predicts one more token."""
    path = os.path.join(folder, 'config.json')
    with open(path, encoding='utf-8') as f:
        config = json.load(f)
    del config['layer_types']
    rope = config.pop('rope_parameters')
    config.update(full_attention_interval=4, rope_scaling=None, rope_theta=rope['rope_theta'],
                  partial_rotary_factor=rope['partial_rotary_factor'])
    with open(path, 'w', encoding='utf-8') as f:
        json.dump(config, f)
    path = os.path.join(folder, 'model.safetensors')
    tensors = safetensors.torch.load_file(path)
    safetensors.torch.save_file({**tensors, 'mtp.norm.weight': torch.ones(config['hidden_size'])}, path, {'format': 'pt'})


def predict(folder):
    """Add a layer that predicts one more token, as the hub's models have it: transformers ignores it."""
    path = os.path.join(folder, 'model.safetensors')
    tensors = safetensors.torch.load_file(path)
    with open(os.path.join(folder, 'config.json'), encoding='utf-8') as f:
        config = json.load(f)
    last, hidden = 'model.layers.%d.' % (config['num_hidden_layers'] - 1), config['hidden_size']
    new = 'model.layers.%d.' % config['num_hidden_layers']
    tensors.update({new + n[len(last):]: t + 1 for n, t in tensors.items() if n.startswith(last)})
    for n, shape in {'eh_proj': (hidden, 2 * hidden), 'enorm': (hidden,), 'hnorm': (hidden,), 'shared_head.norm': (hidden,)}.items():
        tensors[new + n + '.weight'] = torch.randn(shape).bfloat16().float()
    safetensors.torch.save_file(tensors, path, {'format': 'pt'})
    with open(os.path.join(folder, 'config.json'), 'w', encoding='utf-8') as f:
        json.dump(dict(config, num_nextn_predict_layers=1), f)


def to_blocks(folder):
    """Replace the experts by random blocks: every code, exponents of small numbers."""
    path = os.path.join(folder, 'model.safetensors')
    tensors = safetensors.torch.load_file(path)
    for name in [n for n in tensors if n.endswith('_proj') and '.experts.' in n]:
        experts, columns, rows = tensors.pop(name).shape
        tensors[name + '_blocks'] = torch.randint(256, (experts, rows, columns // 32, 16), dtype=torch.uint8)
        tensors[name + '_scales'] = torch.randint(119, 124, (experts, rows, columns // 32), dtype=torch.uint8)
    safetensors.torch.save_file(tensors, path, {'format': 'pt'})
    path = os.path.join(folder, 'config.json')
    with open(path, encoding='utf-8') as f:
        config = json.load(f)
    with open(path, 'w', encoding='utf-8') as f:
        json.dump(dict(config, quantization_config={'quant_method': 'mxfp4'}), f)


def differences(ours, theirs):
    """What tells two files apart."""
    ours, theirs = Reader(ours), Reader(theirs)
    out = ['tensor %s' % t for t in theirs.tensors.keys() | ours.tensors.keys() if ours.tensors.get(t) != theirs.tensors.get(t)]
    if ours.keys['general.architecture'][1] == 'gptneox': # llama.cpp's converter forgets this key, which its quantizer adds
        theirs.keys.setdefault('general.file_type', ours.keys['general.file_type'])
    return sorted(out) + sorted('%s = %.60r instead of %.60r' % (k, ours.keys.get(k), theirs.keys.get(k))
                                for k in theirs.keys.keys() | ours.keys.keys() if ours.keys.get(k) != theirs.keys.get(k))


def compare_blocks(a, name, tmp):
    """Tensors and keys of files that keep blocks, as llama.cpp's converter makes of any type, and then its quantizer."""
    folder, theirs = os.path.join(tmp, name), os.path.join(tmp, name + '.their.')
    ours, mixed = made(name, tmp), os.path.join(tmp, name + '.mixed.gguf')
    ckpt(a, 'convert', '-qf', folder, ours)
    ckpt(a, 'convert', '-qf', folder, mixed, '--dtype', 'mxfp4_moe')
    run(os.path.join(a.llama, 'llama_run'), 'quantize', theirs + 'bf16', theirs + 'mixed', '38')
    kinds = {t[0] for n, t in Reader(ours).tensors.items() if n.endswith('_exps.weight')}
    for dtype in 'f32', 'f16', 'bf16':
        ckpt(a, 'verify', '-q', theirs + dtype, '--made-from', folder)
    return differences(ours, theirs + 'bf16') + differences(mixed, theirs + 'mixed') + (['experts are %s' % kinds] if kinds != {'MXFP4'} else [])


def compare(a, name, tmp):
    """Tensors and keys in each dtype."""
    if name in BLOCKS:
        return compare_blocks(a, name, tmp)
    folder, theirs, problems = os.path.join(tmp, name), os.path.join(tmp, name + '.their.'), []
    for dtype in 'f32', 'f16', 'bf16', *TYPES:
        ours = os.path.join(tmp, '%s.%s.gguf' % (name, dtype))
        ckpt(a, 'convert', '-qf', folder, ours, '--dtype', dtype)
        if dtype in TYPES:
            run(os.path.join(a.llama, 'llama_run'), 'quantize', theirs + 'f32', theirs + dtype, str(TYPES[dtype]))
        problems += ['%s: %s' % (dtype, x) for x in differences(ours, theirs + dtype)]
    return problems


def made(name, tmp):
    """Our file with all of the model's values."""
    return os.path.join(tmp, name + ('.gguf' if name in BLOCKS else '.f32.gguf'))


def model_of(folder):
    with open(os.path.join(folder, 'config.json'), encoding='utf-8') as f:
        kind = getattr(transformers, json.load(f)['architectures'][0])
    return kind.from_pretrained(folder, dtype=torch.float32).eval()


def said(a, file, first):
    """What llama.cpp says after some tokens."""
    return run(os.path.join(a.llama, 'llama_run'), 'say', file, '20', *map(str, first)).split()


def says(a, name, tmp):
    """ckpt finds our file complete, and llama.cpp says with it the tokens that transformers says."""
    file = made(name, tmp)
    ckpt(a, 'verify', '-q', file)
    problems, model = [], model_of(os.path.join(tmp, name))
    for first in (1, 5, 9), (7, 3, 11, 40):
        if name in BLOCKS: # llama.cpp multiplies them by activations of 8 bits
            expected = said(a, os.path.join(tmp, name + '.their.bf16'), first)
        else:
            tokens = model.generate(torch.tensor([first]), max_new_tokens=20, do_sample=False, eos_token_id=None, pad_token_id=0)
            expected = [str(t) for t in tokens[0, len(first):].tolist()]
        ours = said(a, file, first)
        if len(ours) != len(expected) or (ours != expected and name not in ROUNDED):
            problems.append('%s instead of %s' % (ours[:8], expected[:8]))
    return problems


def logits(folder):
    with torch.no_grad():
        return model_of(folder)(torch.arange(48).view(2, 24)).logits


def back(a, name, tmp):
    """transformers computes the same logits with a folder made of the F32 file."""
    folder = os.path.join(tmp, name + '.back')
    config = ('--config', os.path.join(tmp, name, 'config.json')) if name in STATED else ()
    ckpt(a, 'convert', '-qf', made(name, tmp), folder, '--to', 'hf', *config)
    off = (logits(folder) - logits(os.path.join(tmp, name))).abs().max().item()
    return ['logits are off by %.2g' % off] if off else []


def main():
    p = argparse.ArgumentParser(description=__doc__.split('\n', 1)[0])
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--llama', required=True)
    p.add_argument('-v', '--verbose', action='store_true')
    p.add_argument('--keep', metavar='DIR', help='write all files to this folder, and leave them there')
    p.add_argument('only', nargs='*')
    a = p.parse_args()
    tally = Tally(a.verbose)
    with scratch() as tmp:
        tmp = a.keep or tmp
        names = a.only or list(mine(MODELS))
        for name in names:
            make(name, os.path.join(tmp, name))
        jobs = [(MODELS[n][2], os.path.join(tmp, n), os.path.join(tmp, n + '.their.')) for n in names]
        run(sys.executable, '-c', CONVERT, a.llama, json.dumps(jobs))
        for name in names:
            if tally.call(name + ': llama.cpp', compare, a, name, tmp):
                tally.call(name + ': tokens', says, a, name, tmp)
                tally.call(name + ': back', back, a, name, tmp)
    return tally.end('architectures')


if __name__ == '__main__':
    sys.exit(main())
