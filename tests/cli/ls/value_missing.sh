# An option without its value.
ckpt ls x --include
