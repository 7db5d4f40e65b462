# The largest layer of what?
ckpt mem --largest-layer 10
