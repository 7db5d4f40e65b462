# Names.
ckpt formats -q
