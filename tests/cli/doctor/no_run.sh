# A run must be named.
ckpt doctor
