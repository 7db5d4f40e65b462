# A sound checkpoint.
ckpt verify "$FIXTURES"/z3_bf16_w5_odd/ckpt
