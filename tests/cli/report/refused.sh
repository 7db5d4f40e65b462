# SPDX-License-Identifier: Apache-2.0
# What means nothing, or would have no effect, is refused before anything is read or written.
run=$FIXTURES/z1_bf16_w2_tags/ckpt
ckpt report "$run"; echo $?
ckpt report "$run" --svg nothing -o a.svg; echo $?
ckpt report "$run" --svg time -o a.svg; echo $?
ckpt report "$run" --svg timeline --tag first -o a.svg; echo $?
ckpt report "$run" --svg timeline --include 'f*' -o a.svg; echo $?
ckpt report "$FIXTURES"/safetensors_dtypes --svg timeline -o a.svg; echo $?
ckpt report "$run" --include nothing -o a.html; echo $?
ckpt report "$run" --tag none -o a.html; echo $?
ckpt report "$run" -o "$run"; echo $?
ckpt report -q "$FIXTURES"/safetensors_dtypes --with-optimizer -o b.html; echo $?
ls -A
