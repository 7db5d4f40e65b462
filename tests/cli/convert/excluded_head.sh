# SPDX-License-Identifier: Apache-2.0
# A head that the caller has excluded says nothing about ties: config.json describes the model that the source has.
gguf=$FIXTURES/gguf_llama_deep/Q4_0.gguf
for option in '--exclude output.weight' '--include token_embd* --include blk* --include output_norm*'; do
    # shellcheck disable=SC2086 # the option has words
    set -f && ckpt convert -q "$gguf" out --to hf --dtype f32 $option 2>&1 | grep -v tokenizer
    set +f
    grep tie_word out/config.json && rm -rf out
done
ckpt convert -q "$FIXTURES/gguf_llama_deep/hf" untied.gguf
sed 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' "$FIXTURES/gguf_llama_deep/hf/config.json" > tied.json
ckpt convert -q "$FIXTURES/gguf_llama_deep/hf" tied.gguf --config tied.json --exclude lm_head.weight
ckpt convert -q tied.gguf out --to hf --exclude blk.0.attn_norm.weight 2>&1 | grep -v tokenizer
grep tie_word out/config.json
