# SPDX-License-Identifier: Apache-2.0
# What does not fit its new dtype is counted in what is written, named, and refused unless allowed.
# four floats: 1e30, 7e4, 1e-8 and 1
header='{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'
{
    printf '\067\0\0\0\0\0\0\0'
    printf '%s' "$header"
    printf '\312\362\111\161\0\270\210\107\167\314\053\062\0\0\200\077'
} >t.safetensors
for d in fp16 bf16 f8_e4m3 f8_e5m2; do
    ckpt convert -q t.safetensors $d.safetensors --dtype $d
    echo "$d: $?"
    ckpt convert t.safetensors $d.pt --dtype $d --allow-overflow
    ckpt cat -q $d.pt w --dtype fp32
done
ls
ckpt convert -q t.safetensors j.pt --dtype fp16 --allow-overflow --json | sed -n '/"report"/,$p'
# a tensor of which nothing is left: 1e-20, 0, 0, -1e-20
{
    printf '\067\0\0\0\0\0\0\0'
    printf '%s' "$header"
    printf '\010\345\074\036\0\0\0\0\0\0\0\0\010\345\074\236'
} >small.safetensors
ckpt convert -q small.safetensors s.pt --dtype bf16 --strict && ckpt cat -q s.pt w && rm s.pt
ckpt convert -q small.safetensors s.pt --dtype fp16 && rm s.pt
ckpt convert -q small.safetensors s.pt --dtype fp16 --strict
echo "$?"
# strict refuses every warning: of the source, of options, of values
ckpt convert -q t.safetensors s.pt --dtype fp16 --allow-overflow --strict
echo "$?"
ckpt convert -q t.safetensors s.pt --exclude no --strict
echo "$?"
ckpt convert -q fp16.pt s.pt --strict
echo "$?"
ckpt convert -q t.safetensors s.pt --strict
ls s.pt
