# SPDX-License-Identifier: Apache-2.0
# JSON that a parser takes.
f=$(find "$FIXTURES"/z2_bf16_w2_emptyparam/ckpt -name '*pp_rank_0_*optim_states.pt')
ckpt tree --json "$f" >t.json
python3 -c 'import json; d = json.load(open("t.json")); print(d["schema"], sorted(d), sorted(d["tree"]))'
