# SPDX-License-Identifier: Apache-2.0
# A new run never harms an old one: whose checkpoints a folder holds, what --keep may remove, and the ways on that are named.
. "$FIXTURES"/../cli/zerotrain_help.inc
go() {
    train --quiet "$@"
    status=$?
    [ $status -eq 0 ] || echo "exit status $status"
}
go --max-steps 4 --save-every 2 --save old
sum() { cat old/*/*.pt old/latest | cksum; }
sum >before
same() { sum | cmp - before && echo "the old run is as it was"; }
echo "--- a run that does not go on with it"
go --max-steps 1 --save old --keep 1
go --max-steps 1 --save old --tag best
go --max-steps 1 --save old --load old --module-only
go --max-steps 1 --save old --init old
rm -r old/global_step4/.zerotrain # whoever wrote it
go --max-steps 1 --save old --keep 1
echo global_step9 >alone && mkdir dangling && mv alone dangling/latest
go --max-steps 1 --save dangling
same
echo "--- the ways out"
go --max-steps 1 --save new --init old && ls new
go --max-steps 5 --load old --save elsewhere && ls elsewhere
go --max-steps 5 --load old --save elsewhere
same
go --max-steps 6 --load elsewhere --save elsewhere --keep 1 && ls elsewhere
same
echo "--- resumed: what is its own goes, what is not stays"
go --max-steps 2 --save-every 1 --save run
train --max-steps 3 --load run --save run --keep 1 2>&1 | grep -e removed -e resumed
ls run
mkdir run/global_step0 && echo "mine" >run/global_step0/mp_rank_00_model_states.pt
go --max-steps 4 --load run --save run --keep 1 && ls run
echo "--- a branch from an earlier one"
go --max-steps 4 --save-every 2 --save tree
go --max-steps 3 --load tree --load-tag global_step2 --save tree
go --max-steps 3 --load tree/global_step2 --save tree
go --max-steps 3 --load tree --load-tag global_step2 --save branch && ls branch
go --max-steps 5 --load tree --load-tag global_step4 --save tree && cat tree/latest && echo
echo global_step2 >tree/latest
go --max-steps 3 --load tree --save tree --keep 1 && ls tree
echo "--- the same command line again, as launchers have it"
go --max-steps 2 --save-every 1 --save again
for i in 3 4; do go --max-steps $i --save-every 1 --load again --save again --keep 2; done
ls again
echo "--- asked for"
go --max-steps 1 --save old --force --keep 1 && ls old && cat old/latest && echo
