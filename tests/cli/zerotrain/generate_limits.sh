# SPDX-License-Identifier: Apache-2.0
# What --generate refuses before it generates: texts that are too long, tokens that cannot become text.
. "$FIXTURES"/../cli/zerotrain_help.inc
PYTHONPATH=$FIXTURES/../replay python3 -c "
import generate
for name in ('llama_gqa', 'bloom', 'phi3', 'gpt2_masked'):
    generate.write_folder(name, name, None)"
go() {
    model=$1
    shift
    zerotrain --deepspeed_config ds.json --model "$model" --data "$model"/prompts.jsonl --threads 1 --quiet --generate - --json "$@" >out
    echo "exit status $?, $(wc -l <out) lines"
}
grep -o '"max_position_embeddings": [0-9]*' llama_gqa/config.json
go llama_gqa --max-new-tokens 60
go llama_gqa --max-new-tokens 90
go bloom --max-new-tokens 90
go bloom --max-new-tokens 2000000000
go phi3 --max-new-tokens 8
go phi3 --max-new-tokens 9
echo "--- a decoder that is not supported"
python3 - "$FIXTURES"/tokenizers/gpt2.json <<'END'
import json
import sys
t = json.load(open(sys.argv[1]))
t['decoder'] = {'type': 'CTC', 'pad_token': '', 'word_delimiter_token': '|', 'cleanup': True}
json.dump(t, open('gpt2_masked/tokenizer.json', 'w'))
END
go gpt2_masked --max-new-tokens 2
grep -c text out
zerotrain --deepspeed_config ds.json --model gpt2_masked --data gpt2_masked/prompts.jsonl --generate text --quiet --max-new-tokens 2
test -e text || echo "no output"
echo "--- the output"
echo old >old
rm gpt2_masked/model.safetensors
zerotrain --deepspeed_config ds.json --model gpt2_masked --data gpt2_masked/prompts.jsonl --generate old --json --max-new-tokens 2
zerotrain --deepspeed_config ds.json --model llama_gqa --data llama_gqa/prompts.jsonl --generate - --json --quiet --max-new-tokens 2 >/dev/full
echo victim >victim
ln -s victim new.ckpt-generate.tmp
umask 027
go llama_gqa --max-new-tokens 2 --generate new
cat victim
stat -c %a new
find . -name '.new*'
