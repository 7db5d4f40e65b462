# SPDX-License-Identifier: Apache-2.0
# Whoever asks for JSON gets JSON, also of what fails.
ckpt info --json absent; echo $?
ckpt convert --json --no-such-option a b; echo $?
ckpt ls --json; echo $?
echo garbage >x.pt && ckpt ls --json x.pt 2>/dev/null; echo $?
ckpt info absent; echo $?
ckpt ls -- --json; echo $?
