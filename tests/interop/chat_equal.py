#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Conversations as zerotrain writes them against apply_chat_template of transformers, for each template that it knows.

    chat_equal.py --encode PROGRAM [--seed N]
"""
import argparse
import itertools
import json
import random
import subprocess
import sys

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

ALTERNATE = ("{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate "
             "user/assistant/user/assistant/...') }}{% endif %}")
QWEN = ("{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nSYSTEM<|im_end|>\n' }}"
        "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
LLAMA3 = ("{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + "
          "'<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}"
          "{% endif %}{{ content }}{% endfor %}")
MISTRAL = ("{{ bos_token }}{% for message in messages %}" + ALTERNATE + "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + "
           "' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% else %}{{ raise_exception('Only user and "
           "assistant roles are supported!') }}{% endif %}{% endfor %}")
GEMMA = ("{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
         "{% for message in messages %}" + ALTERNATE + "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}"
         "{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}"
         "{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}")
ALPACA = """{% if messages[0]['role'] == 'system' %}
    {% set loop_messages = messages[1:] %}
    {% set system_message = messages[0]['content'].strip() + '\\n\\n' %}
{% else %}
    {% set loop_messages = messages %}
    {% set system_message = '' %}
{% endif %}
{{ bos_token + system_message }}{% for message in loop_messages %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}
    {% if message['role'] == 'user' %}
        {{- '### Instruction:\\n' + message['content'].strip() + '\\n\\n' -}}
    {% elif message['role'] == 'assistant' %}
        {{- '### Response:\\n' + message['content'].strip() + eos_token + '\\n\\n' -}}
    {% endif %}
    {%- if loop.last and message['role'] == 'user' and add_generation_prompt %}
        {{- '### Response:\\n' -}}
    {% endif %}
{% endfor %}"""
TEMPLATES = {
    'chatml': "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
              "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    'chatml in lines': "{%- for message in messages %}\n    {{- \"<|im_start|>\" + message[\"role\"] + \"\\n\" + message['content'] + '<|im_end|>' + '\\n' }}\n"
                       "{%- endfor %}\n{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n",
    'qwen2': QWEN.replace('SYSTEM', 'You are a helpful assistant.'),
    'smollm': QWEN.replace('SYSTEM', 'You are a helpful AI assistant named SmolLM, trained by Hugging Face'),
    'llama3': LLAMA3 + "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    'llama3 first': LLAMA3 + "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}",
    'mistral': MISTRAL,
    'mistral blanks': MISTRAL.replace("eos_token}}", "eos_token + ' ' }}"),
    'gemma': GEMMA,
    'alpaca': ALPACA,
}
# each writes something else than the template it resembles
OTHERS = {
    'space': TEMPLATES['chatml'].replace("{% endfor %}", " {% endfor %}"),
    'text': TEMPLATES['chatml'].replace("'\n'}}", "'\n\n'}}"),
    'line': TEMPLATES['chatml'].replace("'\n'}}", "'\n'}}\n"),
    'comment': '{# x #}' + TEMPLATES['chatml'],
    'nothing': '',
}
BOS, EOS = '<s>', '</s>'


def conversation(r):
    words = ['Hi', ' Hello\n', 'naïve 😀', '你好', '\u00a0x\u2003', '"quoted" \\n', "it's", '', '\tcode\n\n', 'a  b', '<|im_end|>']
    roles = r.choice([['user', 'assistant'], ['system', 'user', 'assistant'], ['user'], ['assistant', 'user'], ['user', 'user']])
    roles = roles + ['user', 'assistant'] * r.randrange(3)
    return [{'role': x, 'content': ' '.join(r.choice(words) for _ in range(r.randrange(4)))} for x in roles]


def ours(program, template, talks, prompt):
    data = b''.join(b'%d\n%s' % (len(x), x) for x in (json.dumps(t).encode() for t in talks))
    p = subprocess.run([program, '--chat', template, BOS, EOS] + ['prompt'] * prompt, input=data, capture_output=True)
    if p.returncode:
        return None
    return [None if x.startswith('!') else json.loads(x) for x in p.stdout.decode().split('\n')[:-1]]


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--encode', required=True)
    p.add_argument('--seed', type=int, default=1)
    a = p.parse_args()
    r = random.Random(a.seed)
    bad = refused = 0
    talks = [conversation(r) for _ in range(200)]
    t = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), bos_token=BOS, eos_token=EOS)
    for (name, template), prompt in itertools.product(TEMPLATES.items(), (False, True)):
        got = ours(a.encode, template, talks, prompt)
        if got is None:
            print('%s: is not recognised' % name)
            bad += 1
            continue
        for talk, g in zip(talks, got):
            try:
                want = t.apply_chat_template(talk, chat_template=template, tokenize=False, add_generation_prompt=prompt)
            except Exception:   # raise_exception of the template
                want = None
                refused += 1
            answers = [m['content'].strip() for m in talk if m['role'] == 'assistant']
            if (want is None) != (g is None) or (g and (g[0] != want or len(g) - 1 != len(answers))) or \
                    (g and any(not x.strip().startswith(y) for x, y in zip(g[1:], answers))):
                print('%s: %r:\n  transformers %r\n  zerotrain    %r' % (name, talk, want, g))
                bad += 1
                break
    for name, template in OTHERS.items():
        if ours(a.encode, template, talks, False) is not None:
            print('%s: is taken for a known template' % name)
            bad += 1
    print('chat templates: %d wrong of %d; %d conversations refused by both' % (bad, len(TEMPLATES) + len(OTHERS), refused))
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
