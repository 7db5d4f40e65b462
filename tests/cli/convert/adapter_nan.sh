# SPDX-License-Identifier: Apache-2.0
# A NaN of an adapter is not said to be the model's own.
T=$FIXTURES/peft_tied_head
cp -r "$T/adapter" lora; chmod -R u+w lora
python3 -c "
import json, struct
data = bytearray(open('lora/adapter_model.safetensors', 'rb').read())
n = struct.unpack('<Q', data[:8])[0]
head = json.loads(data[8:8 + n])
name = next(k for k in head if k.endswith('lora_A.weight'))
at = 8 + n + head[name]['data_offsets'][0]
data[at:at + 4] = b'\\xff' * 4
open('lora/adapter_model.safetensors', 'wb').write(data)"
ckpt convert -q "$T/base" out --to hf --adapter lora; echo "status $?"
ckpt convert -q "$T/base" strict --to hf --adapter lora --untie --strict; echo "status $?"; ls
ckpt merge -q -o twice --method linear lora lora; echo "status $?"
