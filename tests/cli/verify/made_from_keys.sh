# SPDX-License-Identifier: Apache-2.0
# Types of GGUF keys: a program refuses a number of another type, also one with the same value.
ckpt convert -q "$FIXTURES/gguf_llama_deep/hf" made.gguf 2>/dev/null
retype() { # KEY TYPE [TYPE OF ITEMS]
    python3 - "$@" <<'END'
import struct, sys
key, types = sys.argv[1].encode(), sys.argv[2:]
data = bytearray(open('made.gguf', 'rb').read())
at = data.index(struct.pack('<Q', len(key)) + key) + 8 + len(key)
for i, t in enumerate(types):
    struct.pack_into('<I', data, at + 4 * i, int(t))
open('out.gguf', 'wb').write(data)
END
    echo "-- $*"
    ckpt verify out.gguf --made-from "$FIXTURES/gguf_llama_deep/hf" 2>/dev/null | grep metadata
}
retype llama.block_count 5
retype llama.context_length 6
retype tokenizer.ggml.token_type 9 4
