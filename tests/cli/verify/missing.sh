# A path that does not exist.
ckpt verify nowhere
