# Threads are counted from one.
ckpt verify -j 0 x
