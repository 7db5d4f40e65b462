# SPDX-License-Identifier: Apache-2.0
# --init with a GGUF file names the conversion that makes it usable.
. "$FIXTURES"/../cli/zerotrain_help.inc
python3 - <<'EOP'
import struct
name, arch = b'token_embd.weight', b'general.architecture'
head = b'GGUF' + struct.pack('<IQQ', 3, 1, 1)
head += struct.pack('<Q', len(arch)) + arch + struct.pack('<IQ', 8, 4) + b'bert'
head += struct.pack('<Q', len(name)) + name + struct.pack('<IQQIQ', 2, 8, 4, 0, 0)
head += bytes(-len(head) % 32)
open('model.gguf', 'wb').write(head + bytes(8 * 4 * 4))
EOP
train --quiet --max-steps 1 --init model.gguf
echo "exit status $?"
