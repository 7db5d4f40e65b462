# SPDX-License-Identifier: Apache-2.0
# Sharded safetensors without a file: of a rank that has others, it is missing; a last rank of which nothing is there may be.
whole=$FIXTURES/dcp_hf_sharded_w2/ckpt
try() {
    rm -rf some
    cp -r "$whole" some
    chmod -R u+w some
    echo "== without $1"
    (cd some && rm -f $1)
    ckpt verify some
    echo "verify: $?"
    for verb in ls 'convert -q --to hf' 'convert -q --strict --to hf'; do
        rm -rf out
        set -- $verb
        ckpt "$@" some $([ $1 = ls ] || echo out) >out.txt 2>&1
        echo "$verb: $?"
    done
}
try nothing
try shard-00002-model-00002-of-00002.safetensors
try shard-00002-model-00001-of-00002.safetensors
try 'shard-00002-*'
try 'shard-00001-model-00001-*'
# of four ranks and of equal pieces
ckpt convert -q "$whole" four --to hf-sharded -w 4 --max-shard-size 4KB
whole=$PWD/four
try 'shard-00004-model-00003-*'
try 'shard-00003-*-00004-of-00004*'
try 'shard-0000[34]-*-00004-of-00004*'
try 'shard-00004-*'
python3 - <<'END'
import json, os, struct
os.mkdir("even")
for rank in (1, 2):
    at = (rank - 1) * 4
    head = {"__metadata__": {"DCP_SHARDING_INFO": json.dumps({"w": {"saved_offsets": [at, 0]}})},
            "w": {"dtype": "F32", "shape": [4, 2], "data_offsets": [0, 32]}}
    text = json.dumps(head).encode()
    open("even/shard-0000%d-model-00001-of-00001.safetensors" % rank, "wb").write(struct.pack("<Q", len(text)) + text + bytes(32))
END
whole=$PWD/even
try nothing
