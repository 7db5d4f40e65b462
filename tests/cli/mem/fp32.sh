# SPDX-License-Identifier: Apache-2.0
# Training in fp32: weights are their own masters, and DeepSpeed's estimators say nothing.
ckpt mem --params 1M --gpus 4 --dtype fp32
ckpt mem --params 1M --gpus 4 --dtype fp32 --json | grep -e estimates -e _bytes | head -n 12
