# It takes none.
ckpt formats torch
