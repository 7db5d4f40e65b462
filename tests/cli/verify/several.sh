# SPDX-License-Identifier: Apache-2.0
# Several paths: each is checked, and the first one with an error decides; warnings are errors with --strict alone.
ckpt verify "$FIXTURES"/numpy_npz/plain.npz nowhere "$FIXTURES"/map_meta_s1/meta
echo "verify: $?"
ckpt verify -q "$FIXTURES"/numpy_npz/plain.npz "$FIXTURES"/map_meta_s1/meta
echo "verify -q: $?"
ckpt verify --json "$FIXTURES"/numpy_npz/plain.npz nowhere >v.json
echo "verify --json: $?"
python3 -c 'import json; d = json.load(open("v.json")); print(d["ok"], d["status"], [(p["path"][-9:], p["status"], p["ok"]) for p in d["paths"]])'
cp -r "$FIXTURES"/dcp_hf_sharded_w2/ckpt run
chmod -R u+w run
rm run/shard-00002-*
ckpt verify run | tail -1
ckpt verify --strict run
echo "verify --strict: $?"
ckpt verify --strict --json run >v.json
echo "verify --strict --json: $?"
python3 -c 'import json; d = json.load(open("v.json")); print(d["ok"], d["status"], d["warnings"])'
ckpt verify --strict "$FIXTURES"/numpy_npz/plain.npz
