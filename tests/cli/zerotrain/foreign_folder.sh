# SPDX-License-Identifier: Apache-2.0
# A folder with the name of a checkpoint that holds none is never replaced, not even with --force.
. "$FIXTURES"/../cli/zerotrain_help.inc
mkdir -p d/global_step2 d/mine
echo x >d/global_step2/notes.txt
echo x >d/mine/notes.txt
for o in "" --force "--force --tag mine"; do
    train --quiet --max-steps 2 --save d $o
    echo "exit status $?"
done
find d | sort
mv d/global_step2 d/global_step1
echo "--- a run that goes on after it"
train --quiet --max-steps 2 --save e --tag global_step2 && mv e/* d
train --quiet --max-steps 3 --save d --load d
echo "exit status $?"
find d -name notes.txt | sort
