# SPDX-License-Identifier: Apache-2.0
# What floats are not converted to is refused, before anything is read or written.
for d in int8 i16 i32 int64 u8 uint16 bool c64 complex128 f4 f6_e2m3 f6_e3m2 f8_e8m0 f8_e4m3fnuz bits8; do
    ckpt convert "$FIXTURES"/hf_bert_sharded m.pt --dtype $d
    echo "$d: $?"
done
for to in universal zero; do
    ckpt convert "$FIXTURES"/z1_bf16_w3_groups/ckpt run --to $to --dtype f8_e4m3
    echo "$to: $?"
done
ckpt cat "$FIXTURES"/z1_bf16_w3_groups/ckpt wte.weight --dtype int8
echo "cat: $?"
# floats that nothing converts stay, and that is said
ckpt convert "$FIXTURES"/safetensors_dtypes/model.safetensors m.safetensors --dtype bf16
ckpt ls m.safetensors | grep -v BF16
ls
