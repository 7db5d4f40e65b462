# SPDX-License-Identifier: Apache-2.0
# Text and conversations where tokens are wanted: refused, with what makes tokens of them.
. "$FIXTURES"/../cli/zerotrain_help.inc
echo '{"messages": [{"role": "user", "content": "x"}]}' >talk.jsonl
echo '{"other": 1}' >other.jsonl
echo 'some words' >words.txt
no() {
    zerotrain --deepspeed_config ds.json --threads 1 --max-steps 1 "$@"
    echo "exit status $?"
}
no --model "$FIXTURES"/peft_gpt2_conv1d/base --data talk.jsonl
no --model "$FIXTURES"/peft_gpt2_conv1d/base --data words.txt
no --model "$S" --data talk.jsonl
no --model "$S" --data other.jsonl
