# A path that does not exist.
ckpt ls no/such/path
