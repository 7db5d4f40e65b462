# SPDX-License-Identifier: Apache-2.0
# Bytes of every case.
ckpt mem --json --params 1000001 --largest-layer 70001 --num-gpus 4
ckpt mem --json --stage 3 --params 1000001 --largest-layer 70001 | grep -c offload_optimizer
