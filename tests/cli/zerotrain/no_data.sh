# SPDX-License-Identifier: Apache-2.0
# No data.
zerotrain --deepspeed_config "$FIXTURES"/sentiment/ds_config.json --model "$FIXTURES"/sentiment
