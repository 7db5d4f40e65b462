# SPDX-License-Identifier: Apache-2.0
# A state of one element for each parameter, [1], is no piece of a flat parameter of FSDP.
"${PYTHON:-python3}" "$FIXTURES/../cli/ds_tiny.py" run hybrid || exit 1
state() {
    ckpt tree "$1" | sed -n '/base_optimizer_state/,/param_groups/p' | grep -A 3 ' 0: dict'
}
for world in 1 2 3; do
    rm -rf ranks zero
    ckpt reshard -q run ranks --to fsdp-ranks --world $world && ckpt reshard -q ranks zero --to zero --world 1 --stage 1 &&
        ckpt diff zero run && state zero/global_step4/*_optim_states.pt
done
