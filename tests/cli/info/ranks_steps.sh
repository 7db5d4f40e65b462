# SPDX-License-Identifier: Apache-2.0
# Steps with a file of each rank, and no file that names one: the newest finished one is taken.
for n in 2 10 11; do cp -r "$FIXTURES/rl_verl_fsdp1_w2/ckpt" step-$n; done
chmod -R u+w step-*
rm step-11/model_world_size_2_rank_1.pt
what() { ckpt info "$@" | grep -E '^(path|format|tag) '; }
what .
what . --tag 2
what . --tag step-10
ckpt info . --tag 3 || echo "status $?"
rm step-*/model_world_size_2_rank_1.pt
ckpt info . || echo "status $?"
# a run that was written here
ckpt reshard -q --to fsdp-ranks --world 1 "$FIXTURES/z1_bf16_w3_groups/ckpt" run && what run
