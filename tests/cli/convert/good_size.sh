# SPDX-License-Identifier: Apache-2.0
# Sizes in all their forms reach the plan.
for s in 1048576 1MB 1MiB 1.5GB 0.5gib 64mib 1TB; do
    ckpt convert -q -n --json --memory $s "$FIXTURES"/z3_bf16_w5_odd/ckpt m.pt | grep memory
done
