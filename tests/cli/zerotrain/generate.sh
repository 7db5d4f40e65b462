# SPDX-License-Identifier: Apache-2.0
# Prompts to texts: a file that is complete or absent, records of all kinds, and what is refused.
. "$FIXTURES"/../cli/zerotrain_help.inc
PYTHONPATH=$FIXTURES/../replay python3 -c "import generate; generate.write_folder('m', 'gpt2_masked', [50])"
cp "$FIXTURES"/tokenizers/gpt2.json words.json
go() {
    zerotrain --deepspeed_config ds.json --model m --threads 1 --quiet --max-new-tokens 4 "$@"
    echo "exit status $?"
}
echo "--- tokens"
go --data m/prompts.jsonl --generate out --json
wc -l <out
go --data m/prompts.jsonl --generate out --json
go --data m/prompts.jsonl --generate - --json --force | sed '$d' | cmp - out
ls
echo "--- text"
python3 - <<'END'
import json
m = json.load(open('m/config.json'))
print(json.dumps({**m, 'vocab_size': 420}), file=open('config.json', 'w'))
alpaca = {'instruction': 'Say it.', 'input': 'it'}
rows = [{'prompt': 'The quick'}, {'text': 'The quick'}, alpaca, {**alpaca, 'output': 'yes', 'text': 'Say it. yes'}, {'input_ids': [5]},
        {'messages': [{'role': 'user', 'content': 'Hi'}]}]
open('all.jsonl', 'w').write(''.join(json.dumps(x) + '\n' for x in rows))
template = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
template += "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
json.dump({'chat_template': template, 'eos_token': '<|endoftext|>'}, open('tokenizer_config.json', 'w'))
END
sed -i 's/"n_positions": [0-9]*/"n_positions": 256/; s/"eos_token_id": [0-9]*/"eos_token_id": 0/' config.json
printf 'The quick\r\nThe quick\n' >lines.txt
python3 -c "open('t.bin', 'wb').write(bytes(2 * 256 * 16))"
zerotrain --deepspeed_config ds.json --model config.json --init none --data t.bin --max-steps 1 --quiet --threads 1 --save-model big
cp words.json big/tokenizer.json
cp tokenizer_config.json big
big() {
    zerotrain --deepspeed_config ds.json --model big --threads 1 --quiet --max-new-tokens 4 "$@"
}
big --data lines.txt --generate lines
test "$(sed -n 1p lines)" = "$(sed -n 2p lines)" && wc -l <lines
big --data all.jsonl --generate all --json
python3 - <<'END'
import json
rows = [json.loads(x) for x in open('all')]
print([list(x) for x in rows], rows[0]['ids'] == rows[1]['ids'], rows[2]['ids'] == rows[3]['ids'], [len(x['ids']) for x in rows])
END
echo "--- a byte order mark"
printf '\357\273\277The quick\n' >mark.txt
printf '\357\273\277{"prompt": "The quick"}\n' >mark.jsonl
for file in mark.txt mark.jsonl; do
    big --data $file --generate marked --force
    head -n 1 lines | cmp - marked && echo same
done
echo "--- a mask that hides nothing"
echo '{"input_ids": [5], "attention_mask": [1]}' >mask.jsonl
big --data mask.jsonl --generate mask --json
sed -n 5p all | cut -d, -f2- >unmasked
cut -d, -f2- mask | cmp - unmasked && echo same
echo "--- refused"
echo '{"instruction": "Say it.", "input": ["it"]}' >input.jsonl
big --data input.jsonl --generate - --json
printf 'a\n\nb\n' >empty.txt
printf '\357\273\277' >mark.txt
go --data lines.txt --generate -
go --data lines.txt --generate - --vocab words.json
go --data m/prompts.jsonl --generate -
big --data empty.txt --generate -
big --data mark.txt --generate -
python3 -c "print('{\"input_ids\": [' + '3, ' * 30 + '3]}')" >long.jsonl
go --data long.jsonl --generate - --json
go --data long.jsonl --generate - --json --max-new-tokens 100
for row in '{"input_ids": [97]}' '{"input_ids": []}' '{"input_ids": ["a"]}' '{"x": 1}' '{"text": "a"}' '[' '{"messages": []}' \
    '{"input_ids": [3, 4], "attention_mask": [0, 1]}' '{"input_ids": [3, 4], "attention_mask": [1]}' \
    '{"input_ids": [3, 4], "attention_mask": [true, false]}' '{"input_ids": [3, 4], "attention_mask": 1}'; do
    echo "$row" >row.jsonl
    go --data row.jsonl --generate - --json
done
go --data t.bin --generate - --json
go --generate - --json
go --data m/prompts.jsonl --generate m --json
go --data m/prompts.jsonl --generate m/prompts.jsonl --json --force
go --data m/prompts.jsonl --generate - --evaluate
go --data m/prompts.jsonl --generate - --top-k 3
go --data m/prompts.jsonl --generate - --temperature -1
go --data m/prompts.jsonl --generate - --temperature 1 --top-p 2
go --data m/prompts.jsonl --generate - --max-new-tokens 0
go --data m/prompts.jsonl --generate - --max-new-tokens 3000000000
go --data m/prompts.jsonl --generate ''
for x in "--seq 8" "--eval-data t.bin" "--save saved" "--max-steps 1" "--epochs 2" "--save-model made" "--save-weights made" \
    "--packing" "--no-shuffle" "--output_dir out_dir"; do
    # shellcheck disable=SC2086 # an option and its value
    go --data m/prompts.jsonl --generate - --json $x >/dev/null || echo "exit status $?"
done
go --data m/prompts.jsonl --temperature 1
echo '{"eos_token_id": [1, 97]}' >m/generation_config.json
go --data m/prompts.jsonl --generate - --json
zerotrain --deepspeed_config ds.json --model "$S" --data m/prompts.jsonl --generate - --json --quiet
zerotrain --deepspeed_config ds.json --model config.json --data m/prompts.jsonl --generate - --json --quiet
