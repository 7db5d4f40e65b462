# SPDX-License-Identifier: Apache-2.0
# Quantizing by an importance matrix: its keys and types; matrices that are damaged, of another model, or without effect.
F=$FIXTURES model=$FIXTURES/gguf_mixtral/hf
cp "$F"/imatrix/mixtral.gguf m.gguf && cp "$F"/imatrix/llama_deep.dat other.dat && chmod u+w *
ckpt info m.gguf
ckpt ls m.gguf --include '*exps*'
ckpt convert "$model" out.gguf --dtype q4_k_m --imatrix m.gguf | sed 's/ in .*//'
ckpt tree out.gguf | grep imatrix
ckpt convert -q "$model" plain.gguf --dtype q4_k_m && ckpt diff -q plain.gguf out.gguf; echo "exit status $?"
# a file of any program: proved with its matrix, and not without
ckpt verify out.gguf --made-from "$model" --imatrix m.gguf | tail -1
ckpt verify -q out.gguf --made-from "$model" | wc -l
ckpt verify -q plain.gguf --made-from "$model" --imatrix m.gguf | wc -l
ckpt verify -q plain.gguf --made-from "$F"/gguf_llama_deep/hf --imatrix m.gguf | wc -l
# from a GGUF file; of a type for each pattern only the quantized ones
ckpt convert -q "$model" f32.gguf --dtype f32 && ckpt convert -q f32.gguf again.gguf --dtype q4_k_m --imatrix m.gguf
ckpt diff again.gguf out.gguf
ckpt convert -q "$model" rules.gguf --dtype 'q5_0:*attn_q.weight,f16:*' --imatrix m.gguf && ckpt verify -q rules.gguf --made-from "$model" --imatrix m.gguf
echo "-- without effect"
ckpt convert -q "$model" q8.gguf --dtype q8_0 --imatrix m.gguf
ckpt convert -q --strict "$model" q8.gguf -f --dtype q8_0 --imatrix m.gguf
ckpt convert -q "$model" x.gguf --dtype f16 --imatrix m.gguf
ckpt convert -q "$model" x.gguf --imatrix m.gguf
ckpt convert -q "$model" x.safetensors --imatrix m.gguf
ckpt convert -q "$model" half.gguf --dtype f16 && ckpt verify -q half.gguf --made-from "$model" --imatrix m.gguf
ckpt verify -q half.gguf --imatrix m.gguf
echo "-- not the model's"
ckpt convert -q "$model" other.gguf --dtype q4_k_m --imatrix other.dat
ckpt convert -q m.gguf x.gguf
ckpt convert -q m.gguf x.safetensors
ckpt convert -q "$model" x.gguf --dtype q4_0 --imatrix plain.gguf
echo "-- damaged, in both forms"
cat >change.py <<'END'
import struct, sys

with open(sys.argv[1], "rb") as f:
    data = bytearray(f.read())
exec(sys.argv[3])
with open(sys.argv[2], "wb") as f:
    f.write(data)
END
try() { # FORM CHANGE
    python3 change.py "$1" bad "$2"
    ckpt convert -q "$model" x.gguf --dtype q4_0 --imatrix bad
    echo "exit status $?"
}
try m.gguf 'at = data.index(b"blk.0.attn_k.weight.counts"); data[at:at + 26] = b"blk.0.attn_k.weight.county"'
try m.gguf 'at = data.index(b"imatrix.chunk_size"); data[at:at + 18] = b"imatrix.chunk_sizf"'
try m.gguf 'data[-64:-60] = struct.pack("<f", -1)'
try m.gguf 'data[-64:-60] = struct.pack("<f", float("nan"))'
try m.gguf 'data = data[:-100]'
python3 - <<'END'
import struct

def old(entries, rest):
    out = struct.pack("<i", len(entries))
    for name, calls, values in entries:
        out += struct.pack("<i", len(name)) + name + struct.pack("<ii", calls, len(values)) + struct.pack("<%df" % len(values), *values)
    return out + rest
rest = struct.pack("<ii", 3, 4) + b"text"
q, up = (b"blk.0.attn_q.weight", 2, [1.0] * 32), (b"blk.0.ffn_up_exps.weight", 2, [0.5] * 96)
for name, data in (("few", old([q, up], rest)), ("short", old([q], b"")), ("size", old([(up[0], 1, [1.0] * 32)], rest)), ("twice", old([q, q], rest)),
                   ("calls", old([(q[0], 0, q[2])], rest)), ("minus", old([(q[0], -1, q[2])], rest)),
                   ("foreign", old([(b"blk.9.attn_q.weight", 1, [1.0] * 32)], rest)), ("inf", old([(q[0], 1, [float("inf")] * 32)], rest)),
                   ("large", old([(q[0], 1, [1e37] * 32)], rest)), ("dead", old([(b"blk.5.ffn_down.weight", 1, [0.0] * 32 + [1.0] * 32)], rest)), ("none", old([], rest)), ("zero", old([(q[0], 2, [0.0] * 32)], rest)), ("empty", b""), ("more", old([q], rest + b"x")),
                   ("name", struct.pack("<ii", 1, 1 << 30)), ("values", struct.pack("<ii", 1, 1) + b"x" + struct.pack("<ii", 1, 0x7fffffff)),
                   ("text", old([q], struct.pack("<ii", 3, 9) + b"text"))):
    with open(name, "wb") as f:
        f.write(data)
END
for bad in size foreign twice minus inf large zero none empty more name values text; do
    ckpt convert -q "$model" x.gguf --dtype q4_0 --imatrix $bad
    echo "exit status $?"
done
ckpt convert -q "$model" x.gguf --dtype q4_0 --imatrix nothing
echo "-- columns of a block without importance: zeros, as llama-quantize writes them"
ckpt convert -q "$F"/gguf_llama_deep/hf dead.gguf --dtype q4_0 --imatrix dead && ckpt verify -q dead.gguf --made-from "$F"/gguf_llama_deep/hf --imatrix dead && echo written
ckpt convert -q --strict "$F"/gguf_llama_deep/hf x.gguf --dtype q4_0 --imatrix dead
echo "exit status $?"
echo "-- entries that are missing"
ckpt convert -q "$model" few.gguf --dtype q4_0 --imatrix few
ckpt tree few.gguf | grep imatrix
ckpt convert -q --strict "$model" x.gguf --dtype q4_0 --imatrix few
ckpt convert -q "$model" short.gguf --dtype q4_0 --imatrix short 2>/dev/null && ckpt tree short.gguf | grep imatrix
ckpt convert -q "$model" calls.gguf --dtype q4_0 --imatrix calls 2>/dev/null && ckpt verify -q calls.gguf --made-from "$model" --imatrix calls
ls
