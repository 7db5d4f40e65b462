# SPDX-License-Identifier: Apache-2.0
# Values of every dtype.
for t in float64 float32 bfloat16 float16 float8_e4m3fn float8_e5m2 float8_e8m0fnu float4_e2m1fn_x2 \
    int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool complex64; do
    ckpt cat "$FIXTURES"/safetensors_dtypes/model.safetensors $t
done
