# SPDX-License-Identifier: Apache-2.0
# Names that are tied in the first model and have their own values in another: equal values are merged once, others are
# not dropped.
ckpt convert -q "$FIXTURES/z1_bf16_w3_groups/ckpt" tied.pt --exclude mask
ckpt convert -q tied.pt equal.pt --untie
ckpt ls tied.pt | grep -e '->'
ckpt merge tied.pt equal.pt -o out.pt
ckpt diff tied.pt out.pt
cp equal.pt other.pt
python3 "$FIXTURES/../cli/other_values.py" other.pt
ckpt merge tied.pt other.pt -o lost.pt
echo "status $?"
ckpt merge -q other.pt tied.pt -o both.pt
ckpt diff -q tied.pt both.pt
ls
