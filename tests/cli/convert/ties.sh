# SPDX-License-Identifier: Apache-2.0
# A tied head is written in full, and one that equals its table is left out, with config.json.
z=$FIXTURES/hf_trainer_llama_z3_bf16_w2/ckpt
ckpt convert -q "$z" tied --to hf
ckpt convert "$z" untied --to hf --untie | sed 's/ in [^:]*: /: /'
ckpt ls --include '*lm_head*' untied
grep -h tie_word tied/config.json untied/config.json
ckpt cat --range 0:4 untied lm_head.weight
# a folder that leaves the head out
ckpt convert -q tied again --to hf --untie
ckpt diff untied again
ckpt convert untied back --to hf --tie lm_head.weight | sed 's/ in [^:]*: /: /'
ckpt diff tied back
diff tied/config.json back/config.json
ckpt convert -n untied plan --to hf --tie lm_head.weight=model.embed_tokens.weight | tail -3
# config.json ties them: as save_pretrained, unless an element differs
cp -r untied stated
cp tied/config.json stated
ckpt convert stated left --to hf | sed 's/ in [^:]*: /: /'
ckpt diff tied left
ckpt convert -q stated both --to hf --untie
ckpt diff untied both
cmp untied/config.json both/config.json
cp -r "$FIXTURES"/map_meta_s1/hf lies
chmod -R u+w lies
sed -i 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' lies/config.json
ckpt convert -q lies bad --to hf
echo $?
ckpt convert -q lies truth --to hf --untie
ckpt diff lies truth
cmp "$FIXTURES"/map_meta_s1/hf/config.json truth/config.json
# one that does not
m=$FIXTURES/map_meta_s1/hf
ckpt convert -q "$m" other --to hf --tie lm_head.weight
echo $?
for o in '--tie nothing' '--tie lm_head.weight=nothing' '--tie lm_head.weight=model.norm.weight' \
    '--tie lm_head.weight --untie'; do
    ckpt convert -q untied bad --to hf $o
    echo $?
done
ckpt convert -q "$m" bad --to hf --untie
echo $?
# a head of several tensors: a layout map names it
ckpt convert -q "$FIXTURES"/hf_bert_sharded bad --to hf --untie
echo $?
cat >bert.map <<'MAP'
others stay
tie left cls.predictions.decoder.weight = bert.embeddings.word_embeddings.weight
tie left cls.predictions.decoder.bias = cls.predictions.bias
MAP
ckpt convert -q "$FIXTURES"/hf_bert_sharded bert --to hf --untie --map bert.map
echo $?
ckpt ls --include '*decoder*' bert
ckpt convert -q "$z" run --to zero --untie
echo $?
ls
