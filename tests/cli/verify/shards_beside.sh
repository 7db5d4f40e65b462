# SPDX-License-Identifier: Apache-2.0
# Loaders take model.safetensors and leave shards beside it alone, which may be of another save.
ckpt convert -q "$FIXTURES/hf_bert_sharded" both --to hf --max-shard-size 0
cp "$FIXTURES"/hf_bert_sharded/model*.safetensors "$FIXTURES/hf_bert_sharded/model.safetensors.index.json" both
ckpt verify both
ckpt convert -q --strict both out.pt
echo "status $?"
ckpt convert -q both/model.safetensors.index.json out.pt
