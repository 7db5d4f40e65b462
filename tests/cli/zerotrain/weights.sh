# SPDX-License-Identifier: Apache-2.0
# Where first weights come from: the folder of the model, whatever form they have there; drawn where it has none, or asked for.
. "$FIXTURES"/../cli/zerotrain_help.inc
train --quiet --max-steps 60 --save run --save-model hf
run() {
    zerotrain --deepspeed_config ds.json --data "$S"/train.tsv --vocab "$S"/vocab.txt --threads 1 "$@"
}
score() {
    run "$@" --evaluate --eval-data "$S"/eval.tsv 2>err | sed -n 's/.*: loss/loss/p'
    grep -e '^weights' -e '^zerotrain' err
}
train --quiet --evaluate --eval-data "$S"/eval.tsv --load run 2>/dev/null | sed -n 's/.*: loss/loss/p' >best
same() {
    score "$@" >got
    grep -v '^loss' got
    grep '^loss' got | cmp - best && echo "the trained score"
}
ckpt convert --quiet --max-shard-size 200KB --to hf hf shards
ckpt convert --quiet --to hf-bin hf bin
mkdir only other
cp hf/config.json only
ls shards bin
same --model hf
same --model shards
same --model bin
same --model only --init hf
printf 'bert.* model._orig_mod.bert.*\nclassifier.* model._orig_mod.classifier.*\n' >rules
mkdir wrapped
cp hf/config.json wrapped
ckpt convert --quiet --to torch --rename rules hf wrapped/pytorch_model.bin
same --model wrapped
same --model hf --load run
same --model hf --init none --load run
echo "--- drawn, and said"
run --model only --max-steps 1 2>&1 | grep -e '^weights' -e 'weights: random'
run --model hf --init none --max-steps 1 2>&1 | grep -e '^weights' -e 'weights: random'
run --model hf/config.json --quiet --max-steps 1
cp hf/model.safetensors only/my.fp16.safetensors
run --model only --quiet --max-steps 1
cp "$S"/config.json other/config.json
echo x >other/train.bin
echo "--- what an update begins with"
loss() {
    run "$@" --quiet --no-shuffle --max-steps 1 --metrics - | sed 's/, "grad.*//'
}
loss --model hf >a
loss --model only --init hf 2>/dev/null | cmp - a
loss --model hf --init none >b
cmp -s a b || echo "others than drawn ones"
mpirun -q -n 2 zerotrain --deepspeed_config ds.json --data "$S"/train.tsv --vocab "$S"/vocab.txt --threads 1 --quiet --no-shuffle --max-steps 1 \
    --model hf --metrics - | sed -e 's/, "grad.*//' -e 's/\(loss": [0-9.]\{7\}\).*/\1/' >c
sed 's/\(loss": [0-9.]\{7\}\).*/\1/' a | cmp - c && echo "the same on two ranks"
sed 's/"stage": 2/"stage": 3/' ds.json >z3.json
mpirun -q -n 2 zerotrain --deepspeed_config z3.json --data "$S"/train.tsv --vocab "$S"/vocab.txt --threads 1 --quiet --no-shuffle --max-steps 1 \
    --model hf --metrics - | sed -e 's/, "grad.*//' -e 's/\(loss": [0-9.]\{7\}\).*/\1/' | cmp - c && echo "and in stage 3"
run --model hf --lora-rank 2 --max-steps 1 2>&1 | grep -e '^weights'
echo "--- refused"
no() {
    run --quiet "$@"
    echo "exit status $?"
}
cp "$S"/eval.tsv .
for out in --metrics --predict --plot --save-weights; do
    no --model hf --max-steps 1 --force --eval-data eval.tsv $out ./eval.tsv
done
cmp eval.tsv "$S"/eval.tsv
rm only/my.fp16.safetensors
no --model only --evaluate
no --model hf --init none --evaluate
no --model only --predict p
no --model hf/config.json --evaluate
no --model only --not-strict --max-steps 1
sed 's/"hidden_size": *[0-9]*/"hidden_size": 32/' hf/config.json >other/config.json
cp hf/model.safetensors other
no --model other --max-steps 1
rm shards/model-00002*
no --model shards  --max-steps 1
ls
