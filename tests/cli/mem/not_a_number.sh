# A word for a number.
ckpt mem --params many
