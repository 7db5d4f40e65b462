# SPDX-License-Identifier: Apache-2.0
# Frozen parameters keep their values.
. "$FIXTURES"/../cli/zerotrain_help.inc
train --max-steps 1 --freeze 'bert.embeddings.*,*.bias' --save-weights one.safetensors 2>&1 | sed -n 's/; ZeRO.*//p'
train --quiet --max-steps 4 --freeze 'bert.embeddings.*,*.bias' --save-weights four.safetensors
ckpt diff --json one.safetensors four.safetensors | grep -c -e embeddings -e bias
ckpt diff --json one.safetensors four.safetensors | grep '"name"' | head -n 3
