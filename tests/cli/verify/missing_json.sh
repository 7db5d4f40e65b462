# SPDX-License-Identifier: Apache-2.0
# The document is complete even so.
ckpt verify --json nowhere >v.json; echo $?
python3 -c 'import json; d = json.load(open("v.json")); print(d["ok"], d["status"])'
