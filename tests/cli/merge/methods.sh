# SPDX-License-Identifier: Apache-2.0
# Models of several formats and dtypes, merged by every method; means are exact, and the number of threads changes nothing.
W=$FIXTURES/hf_bert_sharded
ckpt convert -q "$W" base --to hf
ckpt convert -q "$W" a.npz
ckpt convert -q "$W" a --to hf --dtype fp16
ckpt convert -q "$W" b.pt --dtype bf16
# a model with itself is itself
ckpt merge -o same base:3 a.npz
ckpt diff base same
ckpt merge -q -m slerp --t 0.25 -o same -f base a.npz; ckpt diff --tol 1e-7 base same
ckpt merge -q -o half --no-normalize base:0.5 --dtype f32
ckpt merge -q -m task_arithmetic --base half -o same -f base; ckpt diff base same
# 16-bit copies pull it to them
ckpt merge -q -m linear -o mean --to safetensors.x a b.pt 2>&1 | head -n 1
ckpt merge -m linear -o mean.safetensors base a b.pt
ckpt merge -q -m dare_ties --base b.pt --density 0.5 --seed 7 -j 1 -o one.safetensors base a
ckpt merge -q -m dare_ties --base b.pt --density 0.5 --seed 7 -j 4 -o four.safetensors base a
cmp one.safetensors four.safetensors
mkdir b; cp base/config.json b; ckpt convert -q b.pt b/model.safetensors
cp "$(dirname "$0")/ties.yaml" . 2>/dev/null || cp "$CASES/merge/ties.yaml" .
ckpt merge --config ties.yaml -o ties
ckpt ls ties | head -n 2
# transformers makes the model in the dtype that config.json states
grep dtype ties/config.json
ckpt merge --dry-run -m ties --base base --density 0.3 a b -o dry | tail -n 2
ls
