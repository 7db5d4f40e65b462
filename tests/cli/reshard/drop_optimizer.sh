# SPDX-License-Identifier: Apache-2.0
# The weights go on, the optimizer begins anew.
ckpt reshard -q -w 2 --drop-optimizer "$FIXTURES"/z2_bf16_w2_aligned/ckpt run
ckpt diff "$FIXTURES"/z2_bf16_w2_aligned/ckpt run
ckpt ls -qa run --include "exp_avg/*" | while read -r t; do ckpt cat --stats run "$t" 2>/dev/null; done | grep -c "^min 0  max 0 "
ckpt info run | grep "optimizer steps"
