# JSON.
ckpt formats --json
