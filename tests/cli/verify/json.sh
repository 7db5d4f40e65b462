# JSON.
ckpt verify --json "$FIXTURES"/z2_bf16_w2_aligned/ckpt
