# SPDX-License-Identifier: Apache-2.0
# Weights alone become a DCP folder or FSDP's files without a word on the order of parameters: both have them by name.
src=$FIXTURES/dcp_hf_sharded_w2/ckpt
mkdir bare
ckpt convert -q "$FIXTURES/hf_bert_sharded" bare/model.safetensors
for to in dcp fsdp-ranks; do
    ckpt convert "$src" sharded.$to --to $to --world 2
    ckpt diff "$src" sharded.$to
    ckpt convert -q bare bare.$to --to $to --world 3 && ckpt diff bare bare.$to
    ckpt reshard -q sharded.$to again.$to --to dcp --world 2 && ckpt diff "$src" again.$to
done
ckpt convert "$src" other --to dcp --order stored || echo "status $?"
ls
