# SPDX-License-Identifier: Apache-2.0
# A checkpoint whose steps all overflowed has no optimizer state yet: a run goes on from it with fresh moments, as DeepSpeed does.
. "$FIXTURES"/../cli/zerotrain_help.inc
sed -i -e 's/16/4/' -e 's/"stage": 2/"stage": 1/' ds.json
for case in skipped skipped_half skipped_less; do
    python3 "$FIXTURES"/../cli/ds_tiny.py $case $case
done
go() {
    zerotrain --quiet --deepspeed_config ds.json --model . --data tokens.safetensors --threads 1 --no-shuffle --max-steps 6 \
        --load "$@" --metrics m.$1 && sed -e 's/.*"step": *\([0-9]*\).*"loss": *\([0-9]*\.[0-9]\{3\}\).*/\1 \2/' m.$1
}
echo "== resharded and universal: no state, too"
ckpt reshard -q -w 3 -s 3 skipped s3
ckpt diff --with-optimizer skipped s3
ckpt tree s3 optim_states.optimizer_state_dict.optimizer_state_dict.state
ds_to_universal --quiet --input_folder skipped/global_step4 --output_folder uni
ls uni/zero/transformer.ln_f.bias
echo "== trained"
go skipped --save out
ckpt info out | grep -i step
go s3
go uni
echo "== a rank has state, or a step was done"
go skipped_half
echo "exit status $?"
go skipped_less
echo "exit status $?"
