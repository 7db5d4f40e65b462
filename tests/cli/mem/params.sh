# SPDX-License-Identifier: Apache-2.0
# Tables of both stages for a model known by its size, several GPUs and nodes.
ckpt mem --params 2783959040 --largest-layer 65798144 --num-gpus 8 --num-nodes 2
