# SPDX-License-Identifier: Apache-2.0
# Text for a language model: joined lines, records, instructions, conversations; on two ranks; what is refused.
. "$FIXTURES"/../cli/zerotrain_help.inc
mkdir model
cp "$FIXTURES"/tokenizers/qwen2.json model/tokenizer.json
python3 - <<'EOP'
import json
json.dump({'architectures': ['GPT2LMHeadModel'], 'model_type': 'gpt2', 'vocab_size': 440, 'n_embd': 8, 'n_head': 2, 'n_layer': 1,
           'n_positions': 256, 'activation_function': 'gelu_new', 'layer_norm_epsilon': 1e-5, 'initializer_range': 0.02,
           'attn_pdrop': 0.0, 'embd_pdrop': 0.0, 'resid_pdrop': 0.0}, open('model/config.json', 'w'))
json.dump({**json.load(open('model/config.json')), 'vocab_size': 100}, open('small.json', 'w'))
chatml = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
json.dump({'eos_token': '<|im_end|>', 'chat_template': chatml}, open('model/tokenizer_config.json', 'w'))
open('a.txt', 'w').write(''.join('Line %d of 你好 the text, with 😀.\n' % i for i in range(400)))
def lines(name, rows):
    open(name, 'w').write(''.join(json.dumps(x) + '\n' for x in rows))
lines('text.jsonl', ({'text': 'Document %d.\nIt has lines.' % i} for i in range(400)))
lines('talk.jsonl', ({'messages': [{'role': 'user', 'content': '%d?' % i}, {'role': 'assistant', 'content': 'yes'}]} for i in range(400)))
lines('asked.jsonl', ({'instruction': 'a%d' % i, 'input': 'b', 'output': 'c'} for i in range(40)))
open('bad.txt', 'wb').write(b'good\n\xff\n')
EOP
go() {
    zerotrain --deepspeed_config ds.json --threads 1 --quiet --max-steps 1 "$@"
    echo "exit status $?"
}
for data in a.txt text.jsonl talk.jsonl asked.jsonl; do
    zerotrain --deepspeed_config ds.json --model model --init none --threads 1 --seq 200 --data $data --max-steps 2 2>&1 | numbers
done
OMPI_MCA_rmaps_base_oversubscribe=1 mpirun -q -n 2 zerotrain --deepspeed_config ds.json --model model --threads 1 --quiet --seq 32 --max-steps 1 --data a.txt
echo "exit status $?"
go --model model --data asked.jsonl --seq 200 --packing
go --model model --data asked.jsonl --seq 16
go --model model --data bad.txt --seq 16
go --model small.json --vocab model/tokenizer.json --data a.txt --seq 16
go --model "$S" --data a.txt
echo '{"model": {"type": "WordLevel"}}' >odd.json
go --model model --vocab odd.json --data a.txt
ls
