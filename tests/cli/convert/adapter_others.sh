# SPDX-License-Identifier: Apache-2.0
# peft saves a second adapter in a subfolder of the first: --adapter names it as left out. Checkpoints of the Trainer are no others.
T=$FIXTURES/peft_gpt2_conv1d
cp -R "$T/adapter" two && chmod -R u+w two && cp -R "$T/adapter" two/second && mkdir two/runs
ckpt convert -q "$T/base" merged --to hf --adapter two; echo "status $?"
ckpt convert -q --strict "$T/base" strict --to hf --adapter two; echo "status $?"
ckpt convert -q "$T/base" both --to hf --adapter two --adapter two/second; echo "status $?"
ckpt convert -q "$T/base" spelled --to hf --adapter ./two --adapter two/./second; echo "status $?"
mv two/second two/checkpoint-20
ckpt convert -q --strict "$T/base" again --to hf --adapter two; echo "status $?"
