# SPDX-License-Identifier: Apache-2.0
# An output that is a link to nothing, or would replace a link, is refused; metrics go to the file that a link names.
. "$FIXTURES"/../cli/zerotrain_help.inc
ln -s gone link
for option in metrics plot save-weights save save-model; do
    train --quiet --max-steps 1 --force --$option link
    echo "exit status $?"
done
train --quiet --predict link --init none --force
echo "exit status $?"
echo "--- a link to a file"
touch file
ln -s file there
for option in plot save-weights; do
    train --quiet --max-steps 1 --force --$option there
    echo "exit status $?"
done
train --quiet --max-steps 1 --force --metrics there
echo "exit status $?"
ls -l | sed -n 's/.* \(.* -> \)/\1/p'
