# SPDX-License-Identifier: Apache-2.0
# Stage 2 keeps a frozen parameter twice: in frozen_param_fragments and in the module, which DeepSpeed loads.
for case in frozen_copy frozen_values frozen_shape; do
    python3 "$FIXTURES"/../cli/ds_tiny.py $case $case
    ckpt verify $case
    echo "$case: status $?"
done
ckpt convert -q frozen_values out.safetensors
echo "status $?"
ckpt convert -q --ignore-copies frozen_values out.safetensors
ckpt cat -q out.safetensors out.weight
