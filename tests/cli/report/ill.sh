# SPDX-License-Identifier: Apache-2.0
# A run whose newest checkpoint is ill: the page says so, and the status too.  A picture of what cannot be opened is none.
cp -r "$FIXTURES"/z1_bf16_w2_tags/ckpt run
chmod -R u+w run
rm run/global_step2/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt
ckpt report run -o report.html | sed 's/: [0-9.]* KB;/: SIZE;/'
ckpt report -q run -o report2.html; echo $?
ckpt report run --svg map -o map.svg; echo $?
ckpt report -q run --tag first -o first.html; echo $?
ckpt report run --svg timeline -o time.svg | sed 's/: [0-9.]* KB;/: SIZE;/'
ls
grep -c 'could not be opened' report.html
