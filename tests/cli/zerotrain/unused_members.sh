# SPDX-License-Identifier: Apache-2.0
# Columns and members that no input takes are named; those that change the text of other programs are refused.
. "$FIXTURES"/../cli/zerotrain_help.inc
go() {
    train --max-steps 1 --quiet --data "$@"
    echo "exit status $?"
}
printf 'label\ttext\ttext_b\tid, no\n0\tgood\tbad\t7\n1\tbad\tgood\t8\n' >pair.tsv
go pair.tsv
printf '0\tgood\tbad\t7\n' >four.tsv
go four.tsv
printf '{"text": "good", "label": 1, "sentence2": "bad"}\n' >pair.jsonl
go pair.jsonl
cat >model.json <<'EOF'
{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 300, "n_positions": 32, "n_embd": 16, "n_layer": 1, "n_head": 2}
EOF
mkdir vocab
python3 - <<'EOF'
import json
letters = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
rest = [b for b in range(256) if b not in letters]
vocab = {chr(b): i for i, b in enumerate(letters)}
vocab.update({chr(256 + i): len(letters) + i for i in range(len(rest))})
vocab['<end>'] = 256
json.dump({'version': '1.0', 'added_tokens': [{'id': 256, 'content': '<end>', 'special': True}], 'normalizer': None,
           'pre_tokenizer': {'type': 'ByteLevel', 'add_prefix_space': False, 'use_regex': True}, 'post_processor': None,
           'decoder': {'type': 'ByteLevel'}, 'model': {'type': 'BPE', 'vocab': vocab, 'merges': []}},
          open('vocab/tokenizer.json', 'w'))
json.dump({'eos_token': '<end>', 'chat_template': "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
           "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"},
          open('vocab/tokenizer_config.json', 'w'))
EOF
lm() {
    printf '%s\n' "$1" >one.jsonl
    zerotrain --deepspeed_config ds.json --model model.json --init none --vocab vocab/tokenizer.json --threads 1 --quiet --max-steps 1 --seq 32 --data one.jsonl
    echo "exit status $?"
}
lm '{"text": "a text of more than thirty-two letters", "url": "x", "id": 3}'
lm '{"instruction": "a", "input": "", "output": "b", "text": "all of it", "history": [], "system": ""}' 2>&1 | grep -v answer
lm '{"instruction": "a", "output": "b", "history": [["c", "d"]]}'
lm '{"instruction": "a", "output": "b", "system": "be kind"}'
lm '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "tool_calls": [{"id": 1}]}]}'
lm '{"messages": [{"role": "user", "content": "a"}], "tools": [{"name": "f"}]}'
lm '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 0}]}'
lm '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 0.0}]}'
lm '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": "0"}]}'
lm '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "reasoning_content": "c"}]}'
lm '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 1.0}], "chat_template_kwargs": {"enable_thinking": false}}'
