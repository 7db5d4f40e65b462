# A depth is a number.
ckpt tree --depth none x
