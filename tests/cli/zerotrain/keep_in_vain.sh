# SPDX-License-Identifier: Apache-2.0
# An old checkpoint that cannot be removed is said, and ends nothing: the others go, the run goes on.
. "$FIXTURES"/../cli/zerotrain_help.inc
train --quiet --max-steps 3 --save-every 1 --save run
touch run/.global_step2.ckpt-partial # in the way of its removal, for root too
train --quiet --max-steps 5 --save-every 1 --keep 1 --load run --save run
echo "exit status $?"
ls -A run run/global_step2
cat run/latest
