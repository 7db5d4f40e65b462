# SPDX-License-Identifier: Apache-2.0
# A model folder becomes a run that has not made a step.
ckpt reshard -w 2 -s 3 "$FIXTURES"/hf_bert_sharded run
ckpt verify run | sed "s/ok: [0-9.]* KB/ok: SIZE/"
ckpt diff "$FIXTURES"/hf_bert_sharded run
ckpt tree run optim_states.optimizer_state_dict.optimizer_state_dict.param_groups
