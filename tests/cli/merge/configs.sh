# SPDX-License-Identifier: Apache-2.0
# Models with other values in config.json: the output has those of the first model or of the base, which a warning says.
base=$FIXTURES/map_meta_s1/hf
cp -r "$base" tuned && chmod -R u+w tuned
ckpt merge -q --method linear "$base" tuned -o same && echo same
sed -i 's/"rope_theta": 500000.0/"rope_theta": 1000000.0/; s/"rms_norm_eps": 1e-05/"rms_norm_eps": 1e-06/; s/"use_cache": true/"use_cache": false/; s/"pretraining_tp": 1,//' tuned/config.json
ckpt merge -q --method linear "$base" tuned -o merged && grep rope_theta merged/config.json
ckpt convert -q "$base" other --to hf --dtype fp32 && cp other/model.safetensors tuned
python3 - <<'END'
import json, struct

data = bytearray(open('tuned/model.safetensors', 'rb').read())
n = struct.unpack('<Q', data[:8])[0]
at = 8 + n + json.loads(data[8:8 + n])['model.layers.0.self_attn.q_proj.weight']['data_offsets'][0]
data[at:at + 4] = struct.pack('<f', 0.5)
open('tuned/model.safetensors', 'wb').write(data)
END
ckpt extract-lora -q other tuned lora --rank 1 && ls lora
