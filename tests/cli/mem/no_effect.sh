# SPDX-License-Identifier: Apache-2.0
# Options without effect, and what cannot be, are refused.
for words in "--node-link 10 --gpus 2" "--link 10" "--link 10 --nodes 2" "--nodes 2 --gpus 2 --link 10" \
    "--nodes 2 --gpus 2 --node-link 10" "--gpus 2 --link 0" "--gpus 2 --link -1" "--gpus 2 --num-gpus 2" "--nodes 2 --num-nodes 2" \
    "--accumulation 4" "--comm-dtype fp32" "--gpus 2 --comm-dtype i32" "--dtype fp64" "--gpus 2 --dtype fp32 --stage 2" \
    "--gpus 16777217" "--gpus 16777216 --nodes 16777216 --accumulation 4294967295 --json"; do
    ckpt mem --params 7B $words
    echo $?
done
