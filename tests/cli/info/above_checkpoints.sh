# SPDX-License-Identifier: Apache-2.0
# Above folders of the Trainer without DeepSpeed: the message says which folder to name, and that folder is read.
mkdir out
cp -r "$FIXTURES"/hf_bert_sharded out/checkpoint-20
for verb in info 'convert --to safetensors' reshard; do
    set -- $verb
    ckpt "$@" out $([ $1 = info ] || echo dst)
    echo "status $?"
done
ckpt info -t global_step1 out
echo "status $?"
ckpt info out/checkpoint-20 | head -n 2
