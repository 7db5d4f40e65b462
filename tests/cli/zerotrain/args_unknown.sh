# SPDX-License-Identifier: Apache-2.0
# The file is named where an option of it is wrong.
for text in '{"speed": 1}' '{"quiet": 1}' '{"max_steps": true}' '{"max_steps": [1]}' '{"max_steps": 1.5}' '{"args": "x"}' '[1]' '{'; do
    echo "$text" >args.json
    zerotrain --args args.json
    echo "exit status $?"
done
