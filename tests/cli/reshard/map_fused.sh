# SPDX-License-Identifier: Apache-2.0
# torchtitan's optimizer has one parameter for queries, keys and values, which the model is saved without: a layout map parts
# its moments, by sizes that no file has.
src=$FIXTURES/titan_llama3_fused_w3/ckpt/checkpoint
ckpt reshard -q "$src" zero
ckpt reshard -q "$src" zero --map torchtitan:hf
ckpt reshard -q "$src" zero --map torchtitan:hf --size heads=5 --size kv=5
echo '* = other.*' >names.map
ckpt reshard -q "$src" zero --map names.map
ls
ckpt reshard "$src" zero --map torchtitan:hf --size heads=3 --size kv=3 --world 2 --stage 3
ckpt verify zero
ckpt ls zero --include '*_proj*'
ckpt convert -q zero hf.safetensors
ckpt convert -q "$src" weights.safetensors --map torchtitan:hf --size heads=3 --size kv=3
ckpt diff weights.safetensors hf.safetensors
# and with torchtitan's own names: only the moments are parted
own="--map fused-qkv:torchtitan"
ckpt reshard -q "$src" split $own
# sizes that lie: halves of a query head, rows that no head has, heads that are not the weights', heads without pairs
ckpt reshard -q "$src" split $own --size heads=3 --size kv=2
ckpt reshard -q "$src" split $own --size heads=6 --size kv=1
ckpt reshard -q "$src" split $own --size heads=4 --size kv=1
ckpt reshard -q "$src" split $own --size heads=4 --size kv=4
ckpt convert -q "$src" split.safetensors --with-optimizer $own --size heads=4 --size kv=1
ls
ckpt reshard -q "$src" split $own --size heads=3 --size kv=3 --world 2 --stage 3
ckpt ls split --include '*qkv*'
ckpt reshard -q "$src" titan --to dcp --layout torchtitan $own --size heads=3 --size kv=3
ckpt convert -q split a.safetensors --with-optimizer
ckpt convert -q titan b.safetensors --with-optimizer
ckpt diff a.safetensors b.safetensors
# the other way the moments would be of a parameter that no group has
ckpt reshard -q split again --to dcp --layout torchtitan --map torchtitan:fused-qkv --size heads=3 --size kv=3
echo $?
ls
