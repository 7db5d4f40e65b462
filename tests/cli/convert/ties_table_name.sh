# SPDX-License-Identifier: Apache-2.0
# A tied matrix is stored under the embedding's name, also if the module lists its head first (XLM-RoBERTa).
mkdir in && echo '{"model_type": "xlm-roberta", "architectures": ["XLMRobertaForMaskedLM"], "vocab_size": 4}' > in/config.json
python3 - <<'PY'
import json
import struct

# safetensors with the pair that names a second name of a tensor
head = {'__metadata__': {'format': 'pt', 'roberta.embeddings.word_embeddings.weight': 'lm_head.decoder.weight'},
        'lm_head.decoder.weight': {'dtype': 'F32', 'shape': [4, 2], 'data_offsets': [0, 32]},
        'lm_head.dense.weight': {'dtype': 'F32', 'shape': [2, 2], 'data_offsets': [32, 48]}}
text = json.dumps(head).encode()
with open('in/model.safetensors', 'wb') as f:
    f.write(struct.pack('<Q', len(text)) + text + struct.pack('<12f', *range(12)))
PY
ckpt ls in
ckpt convert -q in out --to hf && ckpt ls out
ckpt cat out roberta.embeddings.word_embeddings.weight
ckpt convert -q in both --to hf --untie && ckpt ls both
