# SPDX-License-Identifier: Apache-2.0
# State of a form that no partition has, or whose parameters are not certain, is refused and not guessed.
make=$FIXTURES/../cli/ds_tiny.py
for case in adafactor lbfgs twins flat; do
    python3 "$make" $case $case
    ckpt reshard -q -w 2 -s 2 $case $case.2
    echo "$case: $?"
    ckpt reshard -q -w 2 -s 2 --drop-optimizer $case $case.none 2>/dev/null
    echo "$case without the state: $?"
done
# a release that is none: one has to be named
python3 "$make" fork fork
ckpt reshard -q -w 2 -s 2 fork fork.2
echo "fork: $?"
ckpt reshard -q -w 2 -s 2 --deepspeed-version 0.19.8 fork fork.2
echo "fork, for a release: $?"
ls
