# SPDX-License-Identifier: Apache-2.0
# How tokens are to be drawn goes along as keys; what no key can hold is named.
keys() { grep -ao 'general\.sampling\.[a-z_]*' "$1"; }
cp -r "$FIXTURES/gguf_llama_deep/hf" model
echo '{"temperature": 0.6, "top_k": 20, "top_p": 0.9, "repetition_penalty": 1.05, "min_p": null}' > model/generation_config.json
ckpt convert -q model x.gguf && keys x.gguf
# 0.6 in F32, 20 in I32
LC_ALL=C grep -aqP 'sampling\.temp\x06\x00\x00\x00\x9a\x99\x19\x3f' x.gguf && echo 0.6
LC_ALL=C grep -aqP 'sampling\.top_k\x05\x00\x00\x00\x14\x00\x00\x00' x.gguf && echo 20
echo '{"temperature": "hot", "top_k": 2.5, "top_p": 1, "penalty_repeat": 1.5, "repetition_penalty": 2}' > model/generation_config.json
ckpt convert -q model y.gguf && keys y.gguf
LC_ALL=C grep -aqP 'sampling\.top_p\x06\x00\x00\x00\x00\x00\x80\x3f' y.gguf && echo 1.0
LC_ALL=C grep -aqP 'sampling\.penalty_repeat\x06\x00\x00\x00\x00\x00\xc0\x3f' y.gguf && echo 1.5
echo '{"temperature": ' > model/generation_config.json
ckpt convert -q model z.gguf
ls
