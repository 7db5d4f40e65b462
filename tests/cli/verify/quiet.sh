# Nothing to say.
ckpt verify -q "$FIXTURES"/z3_bf16_w5_odd/ckpt
