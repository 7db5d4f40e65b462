# An option that does not exist.
ckpt ls --colour x
