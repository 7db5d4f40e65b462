# A flag with a value.
ckpt ls --json=1 x
