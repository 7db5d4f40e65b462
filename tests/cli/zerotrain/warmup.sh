# SPDX-License-Identifier: Apache-2.0
# A warm-up that no schedule takes is refused, or a note tells of it.
. "$FIXTURES"/../cli/zerotrain_help.inc
go() {
    train --max_steps 1 "$@" 2>&1 | grep 'warmup\|warm-up'
}
go --warmup_steps 7
go --warmup_ratio 0.5
go --warmup_steps 0
go --warmup_steps 7 --lr_scheduler_type linear
go --warmup_steps 7 --lr_scheduler_type constant
sed -i 's/"zero_opt/"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-3}}, "zero_opt/' ds.json
go --warmup_steps 7
sed -i 's/"warmup_max_lr"/"warmup_num_steps": "auto", "warmup_max_lr"/' ds.json
go --warmup_steps 7
exit 0
