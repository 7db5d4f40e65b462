# SPDX-License-Identifier: Apache-2.0
# A run of distributed checkpoints that no file names one of: unfinished, without a file, cut short, of another save.
mkdir -p run/checkpoint
cp -r "$FIXTURES"/dcp_plain_w2/ckpt run/checkpoint/step-9
chmod -R u+w run
cp -r run/checkpoint/step-9 run/checkpoint/step-10
cp -r run/checkpoint/step-9 run/checkpoint/step-11
rm run/checkpoint/step-11/.metadata
ckpt doctor run
ckpt ls run | tail -n 1
ckpt info --tag 9 run/checkpoint | head -n 3
ckpt ls --tag 11 run
ckpt ls --tag step-12 run
cd run/checkpoint
rm step-10/__1_0.distcp
ckpt doctor --fix-latest .
ckpt ls .
cp step-9/__0_0.distcp step-10/__1_0.distcp
ckpt doctor step-10
cp step-9/__1_0.distcp step-10/__1_0.distcp
cp step-9/__0_0.distcp step-10/__4_0.distcp
ckpt ls step-10 | tail -n 1
rm step-9/.metadata step-10/.metadata
ckpt doctor .
ckpt ls .
