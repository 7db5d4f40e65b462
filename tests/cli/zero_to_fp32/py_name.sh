# SPDX-License-Identifier: Apache-2.0
# Under the name of the script.
ln -s "$CKPT/ckpt" zero_to_fp32.py
./zero_to_fp32.py -q "$FIXTURES"/z2_bf16_w2_emptyparam/ckpt out && ls out
./zero_to_fp32.py
