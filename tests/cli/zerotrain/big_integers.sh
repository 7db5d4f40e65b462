# SPDX-License-Identifier: Apache-2.0
# A number that save_pretrained writes for a tokenizer without a limit, and that no double holds: nobody uses it.
. "$FIXTURES"/../cli/zerotrain_help.inc
mkdir model
cp "$S"/vocab.txt model
python3 - "$S"/config.json <<'EOP'
import json
import sys
json.dump({**json.load(open(sys.argv[1])), 'max_length': 2 ** 63}, open('model/config.json', 'w'))
json.dump({'do_lower_case': True, 'model_max_length': 1000000000000000019884624838656}, open('model/tokenizer_config.json', 'w'))
EOP
zerotrain --deepspeed_config ds.json --model model --data "$S"/train.tsv --threads 1 --max-steps 1 2>&1 | grep ^step | numbers
# where one is used it is refused as what it is
sed -i 's/"hidden_size": *[0-9]*/"hidden_size": 1000000000000000019884624838656/' model/config.json
zerotrain --deepspeed_config ds.json --model model --data "$S"/train.tsv --threads 1 --max-steps 1
echo "exit status $?"
