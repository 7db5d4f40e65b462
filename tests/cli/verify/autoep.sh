# SPDX-License-Identifier: Apache-2.0
# Experts that AutoEP has spread over ranks are refused with the reason, under both names of the key.
python3 "$FIXTURES"/../cli/ds_tiny.py run autoep
ckpt verify run
ckpt convert run all.safetensors
