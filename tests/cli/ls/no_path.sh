# A path is needed.
ckpt ls
