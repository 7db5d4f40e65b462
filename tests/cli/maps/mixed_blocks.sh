# SPDX-License-Identifier: Apache-2.0
# Quantized tensors of two types, as in llama.cpp's mixtures, become one tensor of floats.
deep=$FIXTURES/gguf_llama_deep/hf
cat >joined.map <<'END'
map apart:joined
others stay
left keeps blocks
sizes
    q = 32
    k = 32
tensors
blk.{i}.attn_q.weight "q in", blk.{i}.attn_k.weight "k in" = blk.{i}.attn_qk.weight "q|k in"
END
join() {
    ckpt convert -q --map none "$2" "$1.f32.gguf" --dtype f32 --force && ckpt convert -q --map joined.map "$1.f32.gguf" "$1.right.safetensors" --force &&
        ckpt convert -q --map joined.map "$2" "$1.safetensors" --dtype f32 --force && ckpt diff "$1.right.safetensors" "$1.safetensors"
    echo "status $?"
}
ckpt convert -q "$deep" two.gguf --dtype 'q8_0:*attn_q.weight,q4_0:*attn_k.weight,f32:*' && join two two.gguf
ckpt convert -q "$deep" one.gguf --dtype 'q8_0:*attn_q.weight,f32:*' && join one one.gguf
ckpt convert -q "$deep" half.gguf --dtype 'q8_0:*attn_q.weight,f16:*attn_k.weight,f32:*' && join half half.gguf
