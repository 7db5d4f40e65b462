# A device that this build has not.
. "$FIXTURES"/../cli/zerotrain_help.inc
train --max-steps 1 --device cuda
