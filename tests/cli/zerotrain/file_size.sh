# SPDX-License-Identifier: Apache-2.0
# A limit on the size of files: an error with its reason, not a death by SIGXFSZ; nothing is left.
. "$FIXTURES"/../cli/zerotrain_help.inc
(
    ulimit -f 100
    train --quiet --max-steps 1 --save run
    echo "checkpoint: exit status $?"
    train --quiet --max-steps 1 --save-weights weights.safetensors
    echo "weights: exit status $?"
    ulimit -f 10
    ckpt convert "$FIXTURES"/hf_trainer_llama_z3_bf16_w2/ckpt all.safetensors 2>ckpt.txt
    echo "ckpt: exit status $?"
) 2>&1 | sed 's/reserve [0-9]* bytes/reserve N bytes/'
grep -c 'File too large' ckpt.txt
rm ckpt.txt
ls -A
