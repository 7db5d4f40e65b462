# What was understood.
ckpt info "$FIXTURES"/z3_bf16_w5_odd/ckpt
