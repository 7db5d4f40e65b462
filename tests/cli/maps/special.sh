# SPDX-License-Identifier: Apache-2.0
# A map names special tokens by their texts.  The tokenizer's files have priority, and no text is written in place of a number.
model=$FIXTURES/gguf_llama_deep/hf
ckpt maps hf-gguf-llama.map | sed '/tokenizer.ggml.pre string/a\
    tokenizer.ggml.bos_token_id string = "<|nobody|>"\
    tokenizer.ggml.eot_token_id string = "<|endoftext|>"\
    tokenizer.ggml.eom_token_id string = "<|nobody|>"' >own.map
ckpt convert -q "$model" m.gguf --map own.map
ckpt tree m.gguf | grep _token_id
ckpt convert -q "$model" plain.gguf --map own.map --no-side-files
ckpt tree plain.gguf | grep tokenizer
