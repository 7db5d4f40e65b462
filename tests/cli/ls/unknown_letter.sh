# A letter that does not exist.
ckpt ls -z x
