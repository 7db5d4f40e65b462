# SPDX-License-Identifier: Apache-2.0
# Every problem of a tag.
cp -r "$FIXTURES"/z3_bf16_w5_odd/ckpt run
chmod -R u+w run
: >"$(find run -name '*pp_rank_1_*optim_states.pt')"
: >"$(find run -name '*pp_rank_2_*optim_states.pt')"
ckpt doctor run; echo $?
ckpt doctor --all run; echo $?
ckpt doctor --json run | python3 -c 'import json, sys
d = json.load(sys.stdin)
t = d["runs"][0]["tags"][0]
print(d["status"], t["state"], [p["text"] for p in t["problems"]])'
