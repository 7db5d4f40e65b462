# SPDX-License-Identifier: Apache-2.0
# config.json states the dtype that was written: transformers creates the model in it.
for d in fp16 bf16 f8_e4m3; do
    ckpt convert -q "$FIXTURES"/hf_bert_sharded $d --to hf --dtype $d
    echo "$d $(diff "$FIXTURES"/hf_bert_sharded/config.json $d/config.json)"
done
# unchanged weights, unchanged words
ckpt convert -q "$FIXTURES"/hf_bert_sharded same --to hf-bin
cmp "$FIXTURES"/hf_bert_sharded/config.json same/config.json
# the weights of a training checkpoint are its fp32 masters
for d in fp32 bf16; do
    ckpt convert -q "$FIXTURES"/hf_trainer_llama_z3_bf16_w2/ckpt masters_$d --to hf $([ $d = fp32 ] || echo --dtype $d)
    grep dtype masters_$d/config.json
done
mkdir src
cp "$FIXTURES"/hf_bert_sharded/model* src
echo '[1]' >src/config.json
ckpt convert src broken --to hf --dtype fp16
cat broken/config.json
