# A target is needed.
ckpt convert a
