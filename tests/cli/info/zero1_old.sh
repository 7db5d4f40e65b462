# What was understood.
ckpt info "$FIXTURES"/old0316_z1_fp16_w2/ckpt
