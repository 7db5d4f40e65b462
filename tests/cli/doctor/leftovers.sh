# SPDX-License-Identifier: Apache-2.0
# What interrupted runs of ours left.
cp -r "$FIXTURES"/z3_bf16_w5_odd/ckpt run
chmod -R u+w run
mkdir run/.global_step8.ckpt-partial
: >run/.latest.ckpt-abc123.tmp
ckpt doctor run
