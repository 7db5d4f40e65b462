# SPDX-License-Identifier: Apache-2.0
# One bit of a shard.
cp -r "$FIXTURES"/z2_bf16_w2_aligned/ckpt run
chmod -R u+w run
f=$(find run -name '*pp_rank_1_*optim_states.pt')
printf 'Z' | dd of="$f" bs=1 seek=4000 conv=notrunc 2>/dev/null
ckpt verify run
ckpt verify --json run >v.json; echo $?
python3 -c 'import json; d = json.load(open("v.json")); print(d["ok"], d["status"], d["errors"])'
