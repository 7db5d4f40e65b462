# SPDX-License-Identifier: Apache-2.0
# Stage 0 keeps optimizer state under numbers: each parameter's is found by its own, and what has no place is named.
make=$FIXTURES/../cli/ds_tiny.py
for case in adam fused order unused frozen steps nadam adafactor hybrid sgd lbfgs twins flat; do
    python3 "$make" $case $case
    echo "== $case"
    ckpt verify $case | sed 's/ok: [0-9.]* K*B/ok: SIZE/'
done
