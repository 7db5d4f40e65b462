# SPDX-License-Identifier: Apache-2.0
# A copy that is not its master rounded: an error, but for ZenFlow, which updates the copies first; or nobody looks.
for case in copies zenflow; do
    python3 "$FIXTURES"/../cli/ds_tiny.py $case $case
    echo "== $case"
    ckpt verify $case
    echo "verify: $?"
    ckpt verify -q --ignore-copies $case
    echo "verify --ignore-copies: $?"
    zero_to_fp32 -q $case $case.out --safe_serialization
    echo "zero_to_fp32: $?"
    zero_to_fp32 -q --ignore_copies $case $case.all --safe_serialization
    echo "zero_to_fp32 --ignore_copies: $?"
    ckpt reshard -q -w 2 -s 3 $case $case.3
    echo "reshard: $?"
    ckpt cat -q $case emb.weight -r 0:3
    echo "cat: $?"
    ckpt cat -q --ignore-copies $case emb.weight -r 0:3
    ckpt report -q --stats $case -o $case.html
    echo "report: $?"
    ckpt report -qf --stats --ignore-copies $case -o $case.html
    echo "report --ignore-copies: $?"
    ckpt cat -q $case.all emb.weight -r 0:3
done
