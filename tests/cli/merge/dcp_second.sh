# SPDX-License-Identifier: Apache-2.0
# A distributed checkpoint after the first model: its values lie in archives inside its files, and are found there.
ckpt convert -q "$FIXTURES/dcp_plain_w2/ckpt" base --to hf
ckpt merge -q base "$FIXTURES/dcp_plain_w2/ckpt" -o mean && ckpt diff mean base
ckpt merge -q "$FIXTURES/dcp_plain_w2/ckpt" base -o other && ckpt diff other base
