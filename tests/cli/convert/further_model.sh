# SPDX-License-Identifier: Apache-2.0
# Further models of accelerate are named as left out; a run with one is refused.
d=$FIXTURES/whole_dicts
mkdir full weights
cp "$d/trained.pt" full/pytorch_model_fsdp.bin && cp "$d/trained.pt" full/pytorch_model_fsdp_1.bin && cp "$d/tutorial.pt" full/optimizer.bin
ckpt convert -q --no-fsync "$d/trained.pt" weights/model.safetensors && cp weights/model.safetensors weights/model_1.safetensors
ckpt reshard -q --no-fsync --stage 2 --world 1 full refused
echo "status $?"
ckpt convert -q --no-fsync full first.safetensors
echo "status $?"
ckpt convert -q --no-fsync weights one.safetensors
echo "status $?"
ckpt convert -q --no-fsync --strict weights strict.safetensors
echo "status $?"
ckpt convert -q --no-fsync weights/model_1.safetensors second.safetensors
echo "status $?"
