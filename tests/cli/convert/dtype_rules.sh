# SPDX-License-Identifier: Apache-2.0
# A dtype for each pattern: the first match wins; one that decides nothing is an error.
bert=$FIXTURES/hf_bert_sharded
ckpt convert "$bert" out --to hf --dtype 'f32:*LayerNorm*,fp16:*embeddings*,bf16' | sed 's/wrote.*: //'
ckpt ls --include '*.0.*norm*' --include '*.0.*LayerNorm*' --include '*word_emb*' \
    --include '*.0.*query*' out
grep '"dtype"' out/config.json
ckpt diff --ignore-dtype --tol 0.01 "$bert" out
# what nothing matches stays
ckpt convert -n "$bert" some --to hf --dtype 'bf16:*.query.*' | grep dtypes
# masters of a run stay float32
ckpt convert -n "$FIXTURES"/hf_trainer_llama_z3_bf16_w2/ckpt run --to hf --dtype 'bf16:*proj*' |
    grep dtypes
for bad in 'f32:*nrom*,bf16' 'bf16,f32:*LayerNorm*' 'b16' 'b16:*' 'f32:,bf16' 'f32:*,' \
    'q4_k:*'; do
    echo "-- $bad"
    ckpt convert -q "$bert" bad --to hf --dtype "$bad"
    echo $?
done
z=$FIXTURES/z1_bf16_w3_groups/ckpt
# no floats, and a name that has the bytes of another
ckpt convert -q "$z" bad.pt --dtype f32:mask,bf16
echo $?
ckpt convert -q "$FIXTURES"/old_hf_bert_bin bad.pt --dtype 'f32:*decoder.weight,bf16'
echo $?
ckpt convert -q "$z" run --to zero --dtype 'f32:*norm*,bf16'
echo $?
ls
# blocks for a vector, and for rows that are not whole blocks
echo "-- blocks"
ckpt convert -q "$FIXTURES/gguf_mixtral/Q5_0.gguf" floats.gguf --dtype f32
for rules in 'q8_0:*' 'f32:*norm*,q8_0:*'; do
    ckpt convert -qf floats.gguf blocks.gguf --dtype "$rules"
    echo "$rules: status $?"
done
ckpt ls blocks.gguf | head -n 3
ckpt convert -qf "$FIXTURES/map_meta_s1/hf" blocks.gguf --dtype 'q8_0:*'
echo "status $?"
