# One path only.
ckpt ls a b
