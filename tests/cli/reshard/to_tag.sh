# SPDX-License-Identifier: Apache-2.0
# The new tag beside the old one.
cp -r "$FIXTURES"/z1_bf16_w3_groups/ckpt run
ckpt reshard -q -w 2 --to-tag w2 run run; echo $?
cat run/latest; echo
ls run
ckpt reshard -q -w 4 --to-tag ../w4 run run; echo $?
ls
