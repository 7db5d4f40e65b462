# SPDX-License-Identifier: Apache-2.0
# What a picture would not show.
run=$FIXTURES/z1_bf16_w2_tags/ckpt
ckpt report "$run" --svg map --metrics m.jsonl -o a.svg; echo $?
ckpt report "$run" --svg layers --stats -o a.svg; echo $?
ckpt report "$run" "$run"/first --svg map -o a.svg; echo $?
ckpt report "$run" --svg differences -o a.svg; echo $?
ckpt report "$run" --svg curves --include 'f*' -o a.svg; echo $?
ckpt report "$run" --jobs 2 -o a.html; echo $?
ckpt report "$run" "$run"/first --svg differences -o a.svg | sed 's/: [0-9.]* KB;/: SIZE;/'
ckpt report "$run" "$run"/first --stats -j 2 -o a.html | sed 's/: [0-9.]* KB;/: SIZE;/'
ckpt report "$run" "$FIXTURES"/safetensors_dtypes/none -o b.html; echo $?
ls
