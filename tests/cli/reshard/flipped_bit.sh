# SPDX-License-Identifier: Apache-2.0
# A flipped bit in one shard: nothing appears.
cp -r "$FIXTURES"/z1_bf16_w3_groups/ckpt run
f=run/global_step4/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt
n=$(ckpt ls -l --json run | sed -n "/rank_1/{n;n;s/.*\"offset\": \([0-9]*\).*/\1/p}" | head -n 1)
printf "\377" | dd of="$f" bs=1 seek="$((n + 3))" conv=notrunc 2>/dev/null
ckpt reshard -q -w 2 run out 2>&1 | sed "s/CRC-32 is .*, expected/CRC-32 is X, expected/"
ls
