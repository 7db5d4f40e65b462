# SPDX-License-Identifier: Apache-2.0
# Rows of the vocabulary cut or added: tables, the head's bias, tied names, config.json, moments.
bert=$FIXTURES/hf_bert_sharded
ckpt convert "$bert" more --to hf --vocab-size 96 | sed 's/ in [^:]*: /: /'
ckpt ls --include '*word_emb*' --include '*predictions.bias' more
grep vocab_size more/config.json
ckpt cat --range 1342:4 more bert.embeddings.word_embeddings.weight
# back again: what the configuration knows is cut with care, and zeros are no loss
ckpt convert -q more less --to hf --vocab-size 84
ckpt diff "$bert" less
cmp "$bert"/config.json less/config.json
# tokens are lost
ckpt convert -n "$bert" lost --to hf --vocab-size 80 | tail -4
ckpt convert -n -q --json "$bert" lost --to hf --vocab-size 80 | grep changes
ckpt convert -q "$bert" lost --to hf --vocab-size 80 --strict
echo $?
# padding, which config.json says
sed 's/"vocab_size": 96/"vocab_size": 84/' more/config.json >config.json
cp config.json more/config.json
ckpt convert -q "$bert" same --to hf --vocab-size 84
ckpt convert more cut --to hf --vocab-size 84 | sed 's/ in [^:]*: /: /'
ckpt diff "$bert" cut
# the configuration of a run is above its tag; moments have the same rows
z=$FIXTURES/hf_trainer_llama_z3_bf16_w2/ckpt
ckpt convert -q "$z" m.pt --with-optimizer --vocab-size 52
ckpt ls --include '*embed_tokens*' --include '*lm_head*' m.pt
ckpt convert -q m.pt n.pt --vocab-size 64
echo $?
ckpt convert -q m.pt n.pt --vocab-size 64 --vocab-tensor '*embed_tokens*'
ckpt ls --include '*embed_tokens*' --include '*lm_head*' n.pt
# refused
for o in '--vocab-tensor *nomatch*' '--vocab-tensor *.weight'; do
    ckpt convert -q "$bert" bad --to hf --vocab-size 90 $o
    echo $?
done
ckpt convert -q "$z" run --to zero --vocab-size 52
echo $?
ckpt convert -q "$bert" run.pt --vocab-tensor '*x*' --config config.json
rm run.pt
sed 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 84/' \
    "$bert"/config.json >config.json
ckpt convert -q "$bert" bad --to hf --vocab-size 90 --config config.json
echo $?
ls
