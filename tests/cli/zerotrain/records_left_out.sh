# SPDX-License-Identifier: Apache-2.0
# Instructions: those without an answer within a row are counted, and an input that is not a text is refused.
. "$FIXTURES"/../cli/zerotrain_help.inc
mkdir model && cp "$FIXTURES"/tokenizers/gpt2.json model/tokenizer.json
cat >model/config.json <<'EOF'
{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 2000, "n_positions": 400, "n_embd": 16, "n_layer": 1, "n_head": 2}
EOF
echo '{"eos_token": "<|endoftext|>"}' >model/tokenizer_config.json
for i in $(seq 20); do
    echo "{\"instruction\": \"Say $i\", \"output\": \"$i\"}"
    echo "{\"instruction\": \"Say $(seq -s ' ' 200)\", \"output\": \"$i\"}"
    echo "{\"instruction\": \"Say $i\", \"output\": \"$(seq -s ' ' 200)\"}"
done >some.jsonl
echo '{"instruction": "Add one", "input": 5, "output": "6"}' >number.jsonl
echo '{"fsdp_config": null, "lr_scheduler_kwargs": null}' >null.json
go() {
    zerotrain --deepspeed_config ds.json --model model --init none --threads 1 --quiet --max-steps 1 "$@"
    echo "exit status $?"
}
go --data some.jsonl --seq 250
go --data some.jsonl --seq 250 --packing
for seq in 64 400; do
    zerotrain --deepspeed_config ds.json --model model --init none --threads 1 --max-steps 1 --data some.jsonl --seq $seq 2>&1 | grep -e note -e warning
done
zerotrain --deepspeed_config ds.json --model model --init none --threads 1 --max-steps 1 --data some.jsonl --seq 250 \
    --max_train_samples 16 2>&1 | grep -e note -e warning
go --data number.jsonl --seq 250
go --data some.jsonl --seq 250 --args null.json
