#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""llama.cpp's second file of models that see images (mmproj), beside its own converter.

  mmproj.py --bin build/bin --llama DIR [NAME...]

DIR is the folder that llama.sh has made.  For each model and dtype, ckpt's file has all tensors and keys of llama.cpp's file, bit for
bit.
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
from llama_architectures import DEEP, GEMMA, LLAMA, MROPE, differences
from llama_cpp import mine, run

# One process, because importing what the converter needs takes longer than all else.
CONVERT = '''
import json, runpy, sys
llama, jobs = sys.argv[1:]
sys.path[:0] = [llama, llama + '/gguf-py']
import conversion.base, conversion.llava
choose = conversion.base.MmprojModel.filter_tensors.__func__


def with_embeddings(cls, item):
    """The converter's filter drops the language model's embeddings, a row of which its file must have for llama.cpp."""
    return item if item[0].endswith('embed_tokens.weight') else choose(cls, item)


conversion.llava.LlavaVisionModel.filter_tensors = classmethod(with_embeddings)
for folder, out in json.loads(jobs):
    for dtype in 'f32', 'f16', 'bf16', 'q8_0':
        sys.argv = ['convert_hf_to_gguf.py', folder, '--mmproj', '--outfile', out + dtype, '--outtype', dtype]
        runpy.run_path(llama + '/convert_hf_to_gguf.py', run_name='__main__')
'''
SIGLIP = {'hidden_size': 64, 'intermediate_size': 96, 'num_hidden_layers': 2, 'num_attention_heads': 2, 'image_size': 56, 'patch_size': 14}
VIT = {'depth': 4, 'hidden_size': 64, 'intermediate_size': 96, 'num_heads': 2, 'out_hidden_size': 256}
PIXTRAL = {'hidden_size': 64, 'intermediate_size': 96, 'num_hidden_layers': 3, 'num_attention_heads': 2, 'image_size': 64, 'patch_size': 16,
           'model_type': 'pixtral'}
MISTRAL = dict(LLAMA, num_hidden_layers=1, head_dim=64, model_type='mistral')
# the number of the token that ends a row of an image, which llama.cpp's file has the embedding of
BREAK = 12
MODELS = {
    'pixtral': ('Llava', {'text_config': MISTRAL, 'vision_config': dict(PIXTRAL, hidden_act='silu'), 'vision_feature_layer': -1,
                          'vision_feature_select_strategy': 'full', 'image_token_index': 10}),
    'mistral3': ('Mistral3', {'text_config': MISTRAL, 'vision_config': PIXTRAL}),
    'gemma3': ('Gemma3', {'mm_tokens_per_image': 4, 'text_config': dict(GEMMA, num_hidden_layers=1), 'vision_config': SIGLIP}),
    # as the hub has it: four patches in each direction become one token
    'gemma3_large': ('Gemma3', {'text_config': dict(GEMMA, num_hidden_layers=1), 'vision_config': dict(SIGLIP, image_size=896)}),
    'qwen2_vl': ('Qwen2VL', {'text_config': dict(LLAMA, rope_parameters=MROPE), 'vision_config': {
        'depth': 3, 'embed_dim': 64, 'hidden_size': 256, 'num_heads': 2, 'mlp_ratio': 2}}),
    'qwen2_5_vl': ('Qwen2_5_VL', {'text_config': dict(LLAMA, rope_parameters=MROPE), 'vision_config': dict(VIT, fullatt_block_indexes=[1, 3])}),
    'qwen3_vl': ('Qwen3VL', {'text_config': dict(LLAMA, head_dim=64, rope_parameters=MROPE), 'vision_config': dict(
        DEEP, depth=4, num_position_embeddings=49, deepstack_visual_indexes=[1, 3])}),
    'qwen3_vl_moe': ('Qwen3VLMoe', {'text_config': dict(
        LLAMA, head_dim=64, rope_parameters=MROPE, moe_intermediate_size=96, num_experts=4, num_experts_per_tok=2), 'vision_config': DEEP}),
}


def hub_of(folder):
    """The second folder of a model; a file is named after the last part."""
    return os.path.join(folder, 'hub', os.path.basename(folder))


def hub(folder):
    """A second folder, as the hub has it: with names of Gemma 3's tower and a flat configuration of Qwen2-VL that transformers 5
    writes no more."""
    other = hub_of(folder)
    shutil.copytree(folder, other)
    path = os.path.join(other, 'model.safetensors')
    tensors = safetensors.torch.load_file(path)
    tower = 'vision_tower.'
    if any('.encoder.layers.' in n for n in tensors): # SigLIP's
        tensors = {tower + 'vision_model.' + n[len(tower):] if n.startswith(tower) else n: t for n, t in tensors.items()}
    safetensors.torch.save_file(tensors, path, {'format': 'pt'})
    path = os.path.join(other, 'config.json')
    with open(path, encoding='utf-8') as f:
        config = json.load(f)
    if config['model_type'].startswith('qwen2'):
        config = {**config.pop('text_config'), **config}
    with open(path, 'w', encoding='utf-8') as f:
        json.dump(config, f)


def make(name, folder):
    """A model of random weights, and how its images are prepared."""
    torch.manual_seed(len(name))
    kind, config = MODELS[name]
    kind = getattr(transformers, kind + 'ForConditionalGeneration')
    config = kind.config_class(**config)
    config.get_text_config().vocab_size = 320
    model = kind(config)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0, 0.1)
    model.bfloat16().save_pretrained(folder)
    hub(folder)
    if name in ('pixtral', 'mistral3'):
        token = {'id': BREAK, 'content': '[IMG_BREAK]', 'special': True}
        with open(os.path.join(folder, 'tokenizer.json'), 'w', encoding='utf-8') as f:
            json.dump({'added_tokens': [token]}, f)
        with open(os.path.join(folder, 'tokenizer_config.json'), 'w', encoding='utf-8') as f:
            json.dump({}, f)
        with open(os.path.join(hub_of(folder), 'tokenizer_config.json'), 'w', encoding='utf-8') as f:
            json.dump({'added_tokens_decoder': {str(BREAK): token}}, f)
    images = {'image_mean': [0.5, 0.25, 0.125], 'image_std': [0.75, 0.5, 0.625], 'image_seq_length': 4 if name == 'gemma3' else 256}
    for each in folder, hub_of(folder):
        with open(os.path.join(each, 'preprocessor_config.json'), 'w', encoding='utf-8') as f:
            json.dump(images, f)


def compare(a, name, tmp):
    """Tensors and keys in each dtype."""
    problems = []
    for dtype in 'f32', 'f16', 'bf16', 'q8_0':
        ours = os.path.join(tmp, '%s.%s.gguf' % (name, dtype))
        folder = os.path.join(tmp, name)
        folder = hub_of(folder) if dtype in ('f32', 'bf16') else folder
        ckpt(a, 'convert', '-qf', folder, ours, '--to', 'mmproj', '--dtype', dtype)
        problems += ['%s: %s' % (dtype, x) for x in differences(ours, os.path.join(tmp, name + '.their.' + dtype))]
        ckpt(a, 'verify', '-q', ours)
    return problems


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
        run(sys.executable, '-c', CONVERT, a.llama, json.dumps([(hub_of(os.path.join(tmp, n)), os.path.join(tmp, n + '.their.')) for n in names]))
        for name in names:
            tally.call(name, compare, a, name, tmp)
    return tally.end('mmproj')


if __name__ == '__main__':
    sys.exit(main())
