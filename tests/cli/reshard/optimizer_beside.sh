# SPDX-License-Identifier: Apache-2.0
# Weights in a file of their own and an optimizer by numbers beside them: the run does not begin anew without a word.
mkdir run
ckpt convert -q --no-fsync --to hf --config "$FIXTURES/whole_dicts/config.json" "$FIXTURES/whole_dicts/truth.pt" run
cp "$FIXTURES/whole_dicts/tutorial.pt" run/optimizer.pt
ckpt info run | grep optimizer
ckpt reshard -q --no-fsync --stage 1 --world 2 run out
echo "status $?"
# what the message says
ckpt reshard --no-fsync --drop-optimizer --stage 1 --world 2 run out >/dev/null && ls out
mv run/optimizer.pt run/optimizer.bin
ckpt convert -q --no-fsync --to zero --stage 1 --world 1 run other
echo "status $?"
# the weights alone
ckpt reshard -q --no-fsync --stage 1 --world 1 run/model.safetensors weights && ls weights
# formats that hold weights alone by name, too; then what the message says
ckpt convert -q --no-fsync --to hf --max-shard-size 300B run many
cp run/optimizer.bin many
ckpt convert -q --no-fsync --to hf many own
for to in dcp fsdp-ranks; do
    for src in run many; do
        ckpt reshard -q --no-fsync --to $to --world 2 $src none
        echo "status $?"
    done
    ckpt reshard -q --no-fsync --to $to --world 2 run/model.safetensors $to && ckpt diff $to "$FIXTURES/whole_dicts/truth.pt"
    ckpt reshard -q --no-fsync --to $to --world 2 own own-$to && ckpt diff own-$to "$FIXTURES/whole_dicts/truth.pt"
done
