# SPDX-License-Identifier: Apache-2.0
# Several ranks where mpirun is not installed.
PATH=/nonexistent "$CKPT"/zerotrain --num_gpus 2 --model m
