# SPDX-License-Identifier: Apache-2.0
# A file with more than a model: notes name all that is not compared, and --include chooses one of several models.
F=$FIXTURES/whole_dicts
ckpt diff "$F"/ema.pt "$F"/ema.pt
ckpt diff -q "$F"/ema.pt "$F"/ema.pt; echo "exit status $?"
ckpt diff "$F"/two.pt "$F"/two.pt; echo "exit status $?"
ckpt diff --include 'student.*' "$F"/two.pt "$F"/two.pt; echo "exit status $?"
ckpt diff --include 'generator.*' "$F"/loose.pt "$F"/loose.pt; echo "exit status $?"
