# SPDX-License-Identifier: Apache-2.0
# Models with a head whose configuration does not mention tie_word_embeddings: a Llama's head is its own, so the GGUF file
# gets it; GPT-2's is the embedding, which suffices.
make() { # NAME: of a folder of the model
    chmod -R u+w "$1"
    sed -i '/tie_word_embeddings/d' "$1/config.json"
    ckpt ls "$1" --include lm_head.weight
    ckpt convert -q "$1" "$1.gguf"
    ckpt ls "$1.gguf" --include 'output.weight' --include token_embd.weight
}
cp -r "$FIXTURES/gguf_llama_deep/hf" llama
make llama
ckpt convert -q "$FIXTURES/peft_gpt2_conv1d/base" gpt2 --to hf --untie
make gpt2
