# SPDX-License-Identifier: Apache-2.0
# A checkpoint of a model with the same shapes but other settings, or of a run with other samples, is named when it is loaded.
. "$FIXTURES"/../cli/zerotrain_help.inc
mkdir model && cp "$S"/vocab.txt "$S"/config.json model
grep -o '"num_attention_heads": [0-9]*' model/config.json
go() {
    zerotrain --deepspeed_config ds.json --model model --threads 1 --quiet --init none "$@"
    echo "exit status $?"
}
head -n 600 "$S"/train.tsv >less.tsv
go --data "$S"/train.tsv --max-steps 2 --save run
go --data "$S"/train.tsv --max-steps 3 --load run
sed "400s/。/！/" "$S"/train.tsv >edited.tsv
go --data edited.tsv --max-steps 3 --load run
go --data less.tsv --seq 32 --seed 7 --max-steps 3 --load run
go --data less.tsv --no-shuffle --max-steps 3 --load run
go --data less.tsv --max-steps 3 --load run --module-only
sed -i -e 's|"num_attention_heads": [0-9]*|"num_attention_heads": 1|' -e 's|"hidden_act": "gelu"|"hidden_act": "relu"|' model/config.json
go --data "$S"/train.tsv --max-steps 3 --load run --save run
go --data "$S"/train.tsv --load run --load-tag global_step2 --evaluate >/dev/null
echo "--- which the next one goes on with"
go --data "$S"/train.tsv --max-steps 4 --load run
printf '000000000000001f 7\n- heads, key-value heads and head width of the model\t\033[31m\nno line end' >run/global_step3/.zerotrain
go --data "$S"/train.tsv --max-steps 4 --load run
echo "--- weights beside another config.json"
go --data "$S"/train.tsv --max-steps 1 --save-model folder
sed -i 's|"num_attention_heads": 1|"num_attention_heads": 2|' model/config.json
zerotrain --deepspeed_config ds.json --model model --threads 1 --quiet --init folder --data "$S"/train.tsv --max-steps 1
zerotrain --deepspeed_config ds.json --model model --threads 1 --quiet --load folder/model.safetensors --data "$S"/train.tsv --evaluate >/dev/null
