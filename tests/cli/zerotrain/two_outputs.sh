# SPDX-License-Identifier: Apache-2.0
# One file for two outputs is refused before training, with --force too: the later output would replace the earlier.
. "$FIXTURES"/../cli/zerotrain_help.inc
run() {
    zerotrain --deepspeed_config ds.json --model "$S" --data "$S"/train.tsv --threads 1 --quiet --max-steps 1 "$@"
    echo "exit status $?"
}
run --save-model out --save-weights out/model.safetensors
run --force --save-model ./out/ --save-weights out//./model.safetensors
run --lora-rank 2 --save-model out --save-weights out/adapter_model.safetensors
run --metrics log --plot ./log
run --save-model out --save-weights out/masters.safetensors && ls out
