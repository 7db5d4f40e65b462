# SPDX-License-Identifier: Apache-2.0
# Samples without a label, tensors that are no inputs, and updates that are all skipped are named.
. "$FIXTURES"/../cli/zerotrain_help.inc
cat >model.json <<'EOF'
{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 50, "n_positions": 8, "n_embd": 16, "n_layer": 1, "n_head": 2}
EOF
python3 - <<'EOF'
import json
import struct

def write(name, silent, *others):
    """24 samples of 8 tokens, of which the first `silent` have no label."""
    ids = [[(i * j + 3) % 50 for j in range(8)] for i in range(24)]
    # the label of the first token is one that a causal model cannot use
    labels = [[row[0]] + [-100] * 7 if i < silent else row for i, row in enumerate(ids)]
    header, at = {}, 0
    for key in ('input_ids', 'labels', *others):
        header[key] = {'dtype': 'I64', 'shape': [24, 8], 'data_offsets': [at, at + 24 * 64]}
        at += 24 * 64
    text = json.dumps(header).encode()
    with open(name, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text)
        for rows in (ids, labels, *[ids for _ in others]):
            f.write(struct.pack('<192q', *[x for row in rows for x in row]))

write('some.safetensors', 6)
write('all.safetensors', 24)
write('more.safetensors', 0, 'label', 'idx')
write('hostile.safetensors', 0, '\x1b[31m\nzerotrain: ' + 300 * 'x')
EOF
go() {
    zerotrain --deepspeed_config ds.json --model model.json --init none --threads 1 --quiet --max-steps 3 "$@"
    echo "exit status $?"
}
sed -i 's/16/6/' ds.json
go --data some.safetensors
mpirun -q --oversubscribe -n 2 zerotrain --deepspeed_config ds.json --model model.json --init none --threads 1 --quiet --max-steps 1 --data some.safetensors
go --data all.safetensors
go --data more.safetensors --eval-data all.safetensors --eval-every 1
go --data more.safetensors
go --data hostile.safetensors
echo "--- weights far away from the beginning"
sed -i 's/1e-3/1e30/' ds.json
go --data more.safetensors --max-steps 6
echo "--- texts that are cut in evaluations and predictions"
echo '{"train_batch_size": 6, "optimizer": {"type": "AdamW"}}' >ds.json
train --quiet --init none --max-steps 1 --save-model folder
train --init folder --evaluate --seq 8 2>&1 | grep note
train --init folder --predict classes.jsonl --seq 8 2>&1 | grep note
