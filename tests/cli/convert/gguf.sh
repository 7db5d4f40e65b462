# SPDX-License-Identifier: Apache-2.0
# A model to GGUF: types by llama.cpp's rules, several files, back again; what is refused.
model=$FIXTURES/gguf_llama_deep/hf
ckpt convert -q "$model" q4.gguf --dtype q4_k_m
ckpt ls q4.gguf --include 'blk.0.*' --include 'output*'
ckpt info q4.gguf | head -3
ckpt convert -q "$model" split.gguf --dtype q4_k_m --max-shard-size 40KB
ls
ckpt convert -q split-00001-of-00003.gguf joined.gguf
cmp q4.gguf joined.gguf && echo the same
mkdir folder && mv split-* folder
ckpt convert -q folder again.gguf && cmp q4.gguf again.gguf && echo the same
mv folder/split-00002-of-00003.gguf away
ckpt ls folder
mv away folder/split-00002-of-00003.gguf && cp folder/split-00002-of-00003.gguf folder/split-00003-of-00003.gguf
ckpt ls folder
# quantized once
ckpt convert -q q4.gguf q8.gguf --dtype q8_0
ckpt convert -q q4.gguf out.safetensors
ckpt convert -q q4.gguf out.safetensors --dtype bf16 && ckpt ls out.safetensors --include blk.0.attn_q.weight
# a type for each pattern
ckpt convert -q "$model" mine.gguf --dtype 'q8_0:*attn_[kqvo]*weight,f16:*' && ckpt ls mine.gguf --include 'blk.0.*'
ckpt convert -q "$model" x.safetensors --dtype q4_k_m
ckpt convert -q "$model" x.safetensors --dtype q4_0
ckpt convert -q "$model" x.gguf --dtype q9_k
# names as they are
ckpt convert -q "$model" raw.gguf --map none && ckpt ls raw.gguf --include '*norm*' | tail -1
