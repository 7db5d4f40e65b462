# No such model.
ckpt mem nowhere
