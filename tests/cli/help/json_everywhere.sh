# SPDX-License-Identifier: Apache-2.0
# Every report is one JSON document of schema 1.
run=$FIXTURES/z2_bf16_w2_aligned/ckpt
model=$FIXTURES/hf_bert_sharded
check() {
    "$@" >j 2>messages
    echo "$2: $? $(python3 -c 'import json; d = json.load(open("j")); print(d["schema"], *d)')"
    cat messages
}
check ckpt ls --json --long --all "$run"
check ckpt info --json -a "$run"
check ckpt tree --json "$run"
check ckpt cat --json "$run" emb.weight
check ckpt cat --json --stats "$run" emb.weight
check ckpt convert -q --json "$run" m.pt
check ckpt convert -q --json --dry-run "$run" n.pt
check ckpt reshard -q --json -w 3 "$run" resharded
check ckpt reshard -q --json --dry-run -w 3 "$run" resharded2
check ckpt verify --json "$run"
check ckpt diff --json "$run" m.pt
check ckpt diff --json "$run" "$model"
check ckpt doctor --json "$run"
check ckpt clean --json .
check ckpt formats --json
check ckpt maps --json
