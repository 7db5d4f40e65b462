# SPDX-License-Identifier: Apache-2.0
# A model folder has what the model's has, says the dtype that it holds, and replaces nothing unasked.
. "$FIXTURES"/../cli/zerotrain_help.inc
mkdir base
cp "$S"/vocab.txt base
python3 - "$S"/config.json <<'EOP'
import json
import sys
config = json.load(open(sys.argv[1]))
config.pop('torch_dtype', None)
json.dump({**config, 'dtype': 'float16'}, open('base/config.json', 'w'), indent=1)
json.dump({'do_lower_case': True}, open('base/tokenizer_config.json', 'w'))
json.dump({'top_p': 0.5}, open('base/generation_config.json', 'w'))
EOP
run() {
    zerotrain --deepspeed_config ds.json --data "$S"/train.tsv --threads 1 --quiet --max-steps 1 "$@"
    status=$?
    [ $status -eq 0 ] || echo "exit status $status"
}
dtype() {
    python3 -c 'import json, sys
print(sys.argv[1], json.load(open(sys.argv[1] + "/config.json"))["dtype"])' "$1"
    ckpt ls "$1" 2>/dev/null | grep -o -w -e BF16 -e 'F[0-9][0-9]*' | sort -u
}
sed 's/"zero_opt/"bf16": {"enabled": true}, "zero_opt/' ds.json >bf16.json
run --model base --save-model plain
ls plain
cmp base/vocab.txt plain/vocab.txt && cmp base/generation_config.json plain/generation_config.json
dtype plain
run --model base --deepspeed_config bf16.json --save-model half
dtype half
echo "--- what is there stays"
cksum plain/* >before
run --model base --save-model plain
run --model plain --save-model plain
mkdir new && echo mine >new/vocab.txt
run --model base --save-model new
cksum plain/* | cmp - before && ls new
run --model base --save-model plain --force --seed 7
cksum plain/model.safetensors | cmp -s - before || echo replaced
run --model base/config.json --vocab base/vocab.txt --save-model from_file && ls from_file
cp base/config.json other.json
run --model other.json --vocab base/vocab.txt --save-model from_other && ls from_other
echo "--- adapters name their base"
lora() {
    run --lora-rank 2 "$@"
    python3 -c 'import json; print(json.load(open("adapter/adapter_config.json"))["base_model_name_or_path"])'
    ls adapter
    rm -r adapter
}
lora --model plain --save-model adapter --save tuned
lora --model base --init plain --save-model adapter
lora --model base --save-model adapter
lora --model plain --load tuned --max-steps 2 --save-model adapter
