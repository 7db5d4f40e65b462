# SPDX-License-Identifier: Apache-2.0
# A message about tags names the option of zerotrain, not that of ckpt.
. "$FIXTURES"/../cli/zerotrain_help.inc
train --max-steps 1 --save run --quiet
echo global_step9 >run/latest
go() {
    train --max-steps 2 --quiet "$@"
    echo "exit status $?"
}
go --load run
go --load run --load-tag 8
rm run/latest
go --load run
go --init run
go --init run/global_step1
