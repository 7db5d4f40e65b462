# SPDX-License-Identifier: Apache-2.0
# Settings of generation_config.json: those that change texts are followed or refused.
. "$FIXTURES"/../cli/zerotrain_help.inc
PYTHONPATH=$FIXTURES/../replay python3 -c "
import generate
generate.write_folder('m', 'gpt2_masked', [50])
generate.write_folder('t', 't5', [1])"
go() {
    zerotrain --deepspeed_config ds.json --model "$1" --data "$1"/prompts.jsonl --threads 1 --quiet --max-new-tokens 6 --generate - --json
}
# The status and message with a file of settings.
with() {
    printf '%s: ' "$1"
    echo "$1" >m/generation_config.json
    go m 2>&1 >out | sed 's/^zerotrain: m.//'
    cmp -s out plain && echo "no effect"
}
set_config() {
    python3 -c "
import json, sys
c = {**json.load(open('$1/config.json')), **json.loads(sys.argv[1])}
json.dump(c, open('$1/config.json', 'w'))" "$2"
}
echo '{}' >m/generation_config.json
go m >plain
echo "--- without effect"
with '{"eos_token_id": null, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "do_sample": true, "max_length": 4, "pad_token_id": 0}'
with '{"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "min_length": 0, "num_beams": 1, "suppress_tokens": [], "forced_bos_token_id": null}'
echo "--- refused"
for x in '"repetition_penalty": 1.05' '"repetition_penalty": 0' '"repetition_penalty": "1"' '"no_repeat_ngram_size": 3' '"suppress_tokens": [1]' \
    '"bad_words_ids": [[1]]' '"forced_bos_token_id": 0' '"min_length": 1' '"min_new_tokens": 1' '"num_beams": 4' \
    '"sequence_bias": {"1": 2.0}' '"guidance_scale": 0' '"stop_strings": "a"' '"eos_token_id": true' '"eos_token_id": 1.5' \
    '"eos_token_id": "1"' '"eos_token_id": [1, null]' '"eos_token_id": []' '"eos_token_id": -1' '"eos_token_id": 99999999999999999999'; do
    with "{$x}"
done
with '[1]'
with '{'
rm m/generation_config.json
ln -s nothing m/generation_config.json
go m
echo "--- config.json counts only if there is no generation_config.json"
rm m/generation_config.json
set_config m '{"eos_token_id": 99, "repetition_penalty": 1.3}'
with '{}'
rm m/generation_config.json
go m
set_config m '{"repetition_penalty": 1.0}'
go m
first=$(python3 -c "import json; print(json.loads(open('plain').readline())['ids'][0])")
set_config m "{\"eos_token_id\": $first}"
go m | head -n 1 | tr -d ' ' | grep -c "\[$first\]"
echo "--- the first token of T5"
go t >zero
echo '{"eos_token_id": [1], "decoder_start_token_id": 5}' >t/generation_config.json
go t >five
cmp -s zero five || echo other texts
echo '{"eos_token_id": [1], "bos_token_id": 5}' >t/generation_config.json
go t | cmp - five
set_config t '{"decoder_start_token_id": 5}'
echo '{"eos_token_id": [1]}' >t/generation_config.json
go t | cmp - five
echo '{"decoder_start_token_id": 4096}' >t/generation_config.json
go t
