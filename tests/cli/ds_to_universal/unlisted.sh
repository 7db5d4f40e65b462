# SPDX-License-Identifier: Apache-2.0
# A tensor of the module that is in no list, as releases before 0.4.2 write their buffers: left out, which is said and counted.
python3 "$FIXTURES"/../cli/ds_tiny.py run unlisted
ckpt reshard -w 2 run run2
ckpt tree run2 model_states.module
ds_to_universal --input_folder run/global_step4 --output_folder uni
ckpt ls -q uni
