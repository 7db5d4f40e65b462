# SPDX-License-Identifier: Apache-2.0
# No model.
zerotrain --deepspeed_config "$FIXTURES"/sentiment/ds_config.json --data "$FIXTURES"/sentiment/train.tsv
