# A path that does not exist.
ckpt info nowhere
