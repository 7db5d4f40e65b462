# SPDX-License-Identifier: Apache-2.0
# Checkpoints of FSDP's files of each rank: one that is whole, ranks that are missing, one whose files are of two saves.
cp -r "$FIXTURES/rl_verl_fsdp1_w2/ckpt" step_2
cp -r "$FIXTURES/rl_verl_fsdp1_w2/ckpt" step_4
cp -r "$FIXTURES/rl_verl_fsdp1_w2/ckpt" step_6
chmod -R u+w step_*
ckpt doctor step_2
echo "whole: $?"
rm step_4/optim_world_size_2_rank_1.pt
rm step_6/model_world_size_2_rank_1.pt
ckpt doctor step_4
echo "optimizer: $?"
ckpt doctor step_6
echo "model: $?"
ckpt doctor .
echo "run: $?"
cp step_2/model_world_size_2_rank_0.pt step_2/model_world_size_3_rank_0.pt
ckpt doctor step_2
echo "two saves: $?"
