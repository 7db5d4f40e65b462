# SPDX-License-Identifier: Apache-2.0
# Weights to the sharded safetensors of torch's HuggingFaceStorageWriter: rows as FSDP2 cuts them, nothing of another model beside them.
src=$FIXTURES/dcp_hf_sharded_w2/ckpt
header() { python3 -c 'import json, sys; f = open(sys.argv[1], "rb"); print(f.read(int.from_bytes(f.read(8), "little")).decode().rstrip())' "$1"; }
cat >make.py <<'EOP'
import json, struct
header, data = {}, b''
# packed elements are not cut; rows of "w" end before the last rank
for name, dtype, shape, n in ('w', 'I16', [5, 2], 20), ('f', 'F4', [3, 4], 6), ('s', 'I64', [], 8), ('none', 'I8', [0, 3], 0), ('one', 'F32', [1], 4):
    header[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [len(data), len(data) + n]}
    data += bytes(range(n))
header['__metadata__'] = {'format': 'pt', 'note': 'kept'}
text = json.dumps(header).encode()
open('in.safetensors', 'wb').write(struct.pack('<Q', len(text)) + text + data)
EOP
python3 make.py
ckpt convert in.safetensors odd --to hf-sharded --world 4
for f in odd/*; do
    echo "$f"
    header "$f"
done
ckpt diff in.safetensors odd
ckpt convert -q odd back.safetensors && ckpt diff in.safetensors back.safetensors
echo "-- the source's ranks, and another number"
ckpt convert -q "$src" out --to hf-sharded && ls out && ckpt diff "$src" out
ckpt convert -q "$src" out --to hf-sharded --world 3 --max-shard-size 8KB || echo "status $?"
ckpt convert "$src" out --to hf-sharded --world 3 --max-shard-size 8KB --force && ls out && ckpt diff "$src" out
echo "-- a model beside it"
ckpt convert -q "$src" both --to hf --no-side-files
ckpt convert -q "$src" both --to hf-sharded || echo "status $?"
ckpt convert -q "$src" both --to hf-sharded -f && ls both
ckpt convert -q out out --to hf-sharded -f || echo "status $?"
ckpt convert -q "$src" whole --to hf --max-shard-size 8KB && ckpt convert -q "$src" whole/sharded --to hf-sharded --world 3
ckpt info whole | head -3 && ckpt diff whole/sharded whole
echo "-- of a run the weights"
run=$FIXTURES/hf_trainer_llama_z3_bf16_w2/ckpt
ckpt convert "$run" run --to hf-sharded --world 5 && ckpt diff "$run" run
ckpt convert -q "$run" x --to hf-sharded --with-optimizer || echo "status $?"
echo "-- options"
ckpt convert -q -n "$src" x --to hf-sharded --world 2
ckpt convert -q -n --json "$src" x --to hf-sharded --world 2 | grep -m2 '"name"'
ckpt convert -q "$src" x --to hf --world 2 || echo "status $?"
ckpt convert -q "$src" x --to hf-sharded --layout torch || echo "status $?"
ckpt convert -q "$src" x --to hf-sharded --drop-optimizer || echo "status $?"
ckpt convert -q "$src" x --to hf-sharded --world 70000 || echo "status $?"
ckpt reshard -q "$src" x --to hf-sharded || echo "status $?"
ckpt reshard -q "$run" x --to universal --world 3 || echo "status $?"
ckpt convert -q "$run" zero --to zero --world 3 && ckpt info zero | grep -E '^(stage|world)'
ls -d x 2>/dev/null
ls
