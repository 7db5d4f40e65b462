# The beginning of an option is not the option.
zerotrain --deepspeed ds.json
