# SPDX-License-Identifier: Apache-2.0
# Training state as it is: the same ranks, the same stage.
ckpt convert -q --to zero --to-tag again "$FIXTURES"/z2_bf16_w2_aligned/ckpt run
cat run/latest
echo
ls run/again
ckpt diff --with-optimizer "$FIXTURES"/z2_bf16_w2_aligned/ckpt run
