# SPDX-License-Identifier: Apache-2.0
# A tied name is its owner: what the module holds under it must not say otherwise; holding nothing says nothing.
for case in tied tied_copy tied_empty tied_values tied_shape tied_kind; do
    python3 "$FIXTURES"/../cli/ds_tiny.py $case $case
    echo "== $case"
    ckpt verify $case
    echo "verify: $?"
    zero_to_fp32 -q $case $case.out --safe_serialization 2>/dev/null
    echo "zero_to_fp32: $?"
    [ ! -d $case.out ] || ckpt ls -q $case.out
done
