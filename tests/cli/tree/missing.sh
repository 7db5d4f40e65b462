# A path that does not exist.
ckpt tree nowhere
