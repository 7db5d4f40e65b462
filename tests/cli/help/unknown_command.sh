# A command that is none.
ckpt consolidate x
