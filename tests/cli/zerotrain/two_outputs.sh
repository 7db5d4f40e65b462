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
# other spellings of one path: through a link, absolute, and through a folder above
mkdir real && ln -s real link
run --metrics real/log --plot link/log
run --force --save-model link --save-weights real/model.safetensors
run --force --save-model "$PWD"/new --save-weights real/../new/model.safetensors
run --save-model out --save-weights out/masters.safetensors && ls out
# many slashes are one
run --metrics "$(printf '%05000d' 0 | tr 0 /)"log --plot /log
