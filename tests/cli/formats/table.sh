# The table of formats.
ckpt formats
