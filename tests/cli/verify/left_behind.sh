# SPDX-License-Identifier: Apache-2.0
# A run without ZeRO has saved over one with it, whose optimizer files it leaves where they are.
for case in adam tied; do
    python3 "$FIXTURES"/../cli/ds_tiny.py $case $case
done
cp tied/global_step4/*_optim_states.pt adam/global_step4
ckpt verify adam
