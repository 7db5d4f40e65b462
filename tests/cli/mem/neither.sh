# Neither a model nor a number.
ckpt mem
