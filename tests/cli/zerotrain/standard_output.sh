# SPDX-License-Identifier: Apache-2.0
# '-' is standard output where lines are written, and refused where files are: never a file of that name.
. "$FIXTURES"/../cli/zerotrain_help.inc
for o in --save --save-weights --save-model; do
    train $o -
    echo "exit status $?"
done
train --quiet --max-steps 1 --metrics - --save run 2>/dev/null >lines
train --quiet --evaluate --load run --metrics - 2>score >>lines
sed -i 1q score
python3 -c 'import json; [print(sorted(json.loads(x))[0]) for x in open("lines")]'
cut -d' ' -f1 score
train --quiet --max-steps 1 --metrics ./- && echo "a file of that name: $(wc -l <./-)"
rm ./-
ds_to_universal -q --input_folder x --output_folder -
ls
