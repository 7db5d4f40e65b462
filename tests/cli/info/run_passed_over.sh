# SPDX-License-Identifier: Apache-2.0
# Of several checkpoints of a Trainer the highest is taken; one that lost its `latest` is not passed over in silence.
mkdir run
cp -r "$FIXTURES"/hf_trainer_llama_z3_bf16_w2/ckpt run/checkpoint-4
cp -r "$FIXTURES"/hf_trainer_llama_z3_bf16_w2/ckpt run/checkpoint-12
ckpt convert run a.pt >/dev/null
rm run/checkpoint-12/latest
ckpt convert -q run b.pt
