# No data.
zerotrain --deepspeed_config "$FIXTURES"/sentiment/ds_config.json --model "$FIXTURES"/sentiment
