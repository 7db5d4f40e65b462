# SPDX-License-Identifier: Apache-2.0
# Where the time went, and what a rank holds.
. "$FIXTURES"/../cli/zerotrain_help.inc
train --max-steps 2 --quiet --profile --peak-tflops 0.5 2>&1 | sed -e 's/ *[0-9.]* s  *[0-9.]* %/ T/' -e 's/[0-9][0-9.e+-]*/N/g'
# a run in bf16 says how it multiplies
sed '1s/{/{"bf16": {"enabled": true}, /' ds.json >bf16.json
DNNL_MAX_CPU_ISA=AVX2 zerotrain --deepspeed_config bf16.json --model "$S" --data "$S"/train.tsv --threads 1 --max-steps 1 --quiet --profile 2>&1 |
    grep multiplied
