# SPDX-License-Identifier: Apache-2.0
# --save-model refuses a model without its config.json, and warns of weights or an adapter that stay in the folder, because loaders read them too, or instead.
. "$FIXTURES"/../cli/zerotrain_help.inc
run() {
    echo "--- $*"
    train --quiet --max-steps 1 "$@"
    echo "exit status $?"
}
mkdir adapter bin sharded full
echo x >adapter/adapter_config.json
echo x >adapter/adapter_model.safetensors
echo x >bin/pytorch_model.bin
echo x >sharded/model.safetensors.index.json
echo x >full/notes.bin
run --save-model adapter
run --save-model bin
run --save-model sharded
run --save-model full
run --save-model full --lora-rank 2 --force
run --save-model full --force
ls full
cp -r "$S" linked && mv linked/config.json other.json && ln -s ../other.json linked/config.json
run --model linked --save-model full --force
run --model linked --save-model new
test -e new || echo nothing
run --model linked --save-model full --lora-rank 2 --force
