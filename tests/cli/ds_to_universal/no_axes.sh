# SPDX-License-Identifier: Apache-2.0
# A parameter without axes is written, and DeepSpeed's loader of stages 1 and 2 fails at it: said before somebody counts on it.
python3 "$FIXTURES"/../cli/ds_tiny.py run no_axes
ds_to_universal --quiet --input_folder run/global_step4 --output_folder uni
ckpt ls -q uni
ckpt reshard -q -w 2 -s 2 uni run2
ckpt diff --with-optimizer run run2
