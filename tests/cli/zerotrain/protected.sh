# SPDX-License-Identifier: Apache-2.0
# With --force too, no output replaces a file in the folders that the run reads.
. "$FIXTURES"/../cli/zerotrain_help.inc
mkdir base
cp "$S"/vocab.txt "$S"/config.json base
train --quiet --max-steps 1 --save run --save-weights base/model.safetensors
mkdir cache copy
ln base/config.json cache/blob
for f in config.json vocab.txt; do ln -s ../base/$f copy/$f; done
run() {
    zerotrain --deepspeed_config ds.json --data "$S"/train.tsv --vocab "$S"/vocab.txt --threads 1 --quiet --max-steps 2 --force "$@"
    echo "exit status $?"
}
cksum base/* run/latest run/global_step1/* >before
echo "--- refused"
run --model base --metrics base/config.json
run --model base --plot base/model.safetensors
run --model base --save-weights base/model.safetensors
run --model base --predict base/vocab.txt
run --model base --load run --save-weights run/latest
run --model base --load run --save-weights run/global_step1/mp_rank_00_model_states.pt
run --model base --load run/global_step1 --plot run/global_step1/mp_rank_00_model_states.pt
run --model "$S" --init base --metrics base/model.safetensors
run --model base/config.json --init none --metrics base/vocab.txt
echo "--- refused through links"
run --model base --metrics cache/blob
run --model copy --plot base/vocab.txt
run --model base --metrics copy/config.json
echo "--- refused as a folder"
run --model base --save-model base
run --model base --save-model base --lora-rank 2
run --model base --save-model "$PWD"/./base/
run --model copy --init base --save-model base
run --model base/config.json --save-model base
cksum base/* run/latest run/global_step1/* | cmp - before && echo unchanged
echo "--- outputs of earlier runs are replaced"
for f in base/metrics.jsonl base/plot.svg run/metrics.json; do echo old >$f; done
run --model base --load run --metrics run/metrics.json --plot base/plot.svg
run --model base --metrics base/metrics.jsonl
head -c 4 base/plot.svg && grep -l old base/metrics.jsonl run/metrics.json
echo old >tuned.safetensors
run --model base/config.json --init base/model.safetensors --save-weights tuned.safetensors
