# Two are needed.
ckpt diff a
