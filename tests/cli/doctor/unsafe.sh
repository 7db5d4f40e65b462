# SPDX-License-Identifier: Apache-2.0
# A shard that asks to run code; a pointer that leads away.
ckpt doctor "$FIXTURES"/bad/ds/ds_x_optim; echo $?
ckpt doctor "$FIXTURES"/bad/ds/ds_latest_up/run; echo $?
