# SPDX-License-Identifier: Apache-2.0
# A layer that is registered twice: stage 3 shows both names as placeholders of one storage, and lists no tie.
for case in twice twice_one; do
    python3 "$FIXTURES"/../cli/ds_tiny.py $case $case
    echo "== $case"
    for stage in 1 3; do
        ckpt reshard -w 2 -s $stage $case $case.$stage 2>&1 | sed 's/.*model_states.pt: //; s/ in [0-9.]* m*s ([^)]*)//'
        ckpt diff $case $case.$stage 2>/dev/null
    done
    ckpt tree $case.1 model_states.module
    # by way of our own placeholders
    ckpt reshard -q -w 1 -s 2 $case.3 $case.32 2>/dev/null
    ckpt tree $case.32 model_states.module
done
# by way of a universal checkpoint, whose own module nobody loads
for from in twice twice.1 twice_one; do
    echo "== $from, universal"
    ds_to_universal --quiet --input_folder $from/global_step4 --output_folder $from.uni 2>&1 | sed 's/.*model_states.pt: //'
    ckpt reshard -q -w 1 -s 2 $from.uni $from.back 2>&1 | sed 's/.*model_states.pt: //'
    ckpt tree $from.back model_states.module
done
