# SPDX-License-Identifier: Apache-2.0
# Tensor-parallel ranks that nothing says how to join: one by one in every command, or as rules say; joined blindly only
# where DeepSpeed's script would.
python3 "$FIXTURES"/../cli/ds_tiny.py run tp
python3 "$FIXTURES"/../cli/ds_tiny.py run2 tp
ckpt diff run run2
echo "diff: $?"
ckpt diff --keep-slices run run2
echo '{"parameter_with_row_parallelism_patterns": ["fc.weight"], "tp_replicated_parameter_patterns": [".*bias", ".*scale"]}' >rules
ckpt diff --slice-rules rules run run2
ckpt verify -q --keep-slices run
ckpt verify -q --slice-rules rules run
ckpt cat -q --keep-slices run mp_rank_01/fc.bias
ckpt cat -q --slice-rules rules run fc.weight
ds_to_universal --quiet --input_folder run/global_step4 --output_folder uni
echo "ds_to_universal: $?"
ds_to_universal --quiet --inject_missing_state --input_folder run/global_step4 --output_folder uni
echo "ds_to_universal --inject_missing_state: $?"
ckpt ls uni
