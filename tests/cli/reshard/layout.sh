# SPDX-License-Identifier: Apache-2.0
# A run of DeepSpeed as programs on top of PyTorch's distributed checkpoints load it.
src=$FIXTURES/z2_bf16_w2_aligned/ckpt
for layout in torch torchtitan accelerate; do
	echo "== $layout"
	ckpt reshard -q --to dcp --layout $layout --world 2 "$src" $layout
	(cd $layout && find . -type f | LC_ALL=C sort)
	ckpt diff -q --with-optimizer "$src" $layout/* && echo same
done
ckpt tree torchtitan/step-* | grep -A2 'train_state\|lr_scheduler'
ckpt reshard -q --to dcp --layout ray "$src" x || echo "status $?"
ckpt reshard -q --layout torch "$src" x || echo "status $?"
