# SPDX-License-Identifier: Apache-2.0
# With --strict nothing becomes visible that there is a warning about, also one that only the run itself can find: weights that
# stay beside new ones, copies that lag.
make=$FIXTURES/../cli/ds_tiny.py
st=$FIXTURES/hf_bert_sharded
mkdir out
touch out/model.fp16.safetensors out/pytorch_model.bin
ckpt convert -q -f --strict "$st" out --to hf
echo "stale: $?"
ls -A out
rm out/*
ckpt convert -q -f --strict "$st" out --to hf --max-shard-size 0
echo "clean: $?"
ls -A out
python3 "$make" zenflow zenflow
ckpt convert -q --strict zenflow z.safetensors
echo "lags: $?"
zero_to_fp32 -q --strict zenflow z.pt
echo "lags: $?"
ckpt reshard -q --strict -w 2 -s 3 zenflow z3
echo "lags: $?"
ls -A
