# SPDX-License-Identifier: Apache-2.0
# Hugging Face folders become torch_dist checkpoints of Megatron-Core, and these the same folders again.
F=$FIXTURES
hf=$F/map_mcore_mixtral/hf
ckpt convert -q "$hf" mixtral --to megatron --make-vocab-size-divisible-by 8 --tensor-model-parallel-size 3
find mixtral -type f | sort
cat mixtral/latest_checkpointed_iteration.txt mixtral/release/metadata.json; echo
ckpt ls mixtral
# every module has its extra state, and the arguments describe the model
ckpt tree mixtral | sed -n '/args/,/content_metadata/p'
ckpt tree mixtral | grep -c '_extra_state.*None'
ckpt verify -q mixtral && ckpt doctor mixtral
ckpt convert -q mixtral back --to hf && ckpt diff "$hf" back
grep -c . back/config.json
# tied embeddings are saved once; files by number and by size
ckpt convert -q "$F"/map_mcore_gpt2/hf gpt2 --to megatron --world 3 --to-tag iter_0000007 && ls gpt2/iter_0000007 && cat gpt2/*.txt; echo
ckpt diff "$F"/map_mcore_gpt2/hf gpt2
ckpt convert "$hf" no --to megatron --to-tag global_step3 || echo "status $?"
for tag in iter_5 iter_0000000; do
    ckpt convert "$hf" no --to megatron --to-tag $tag 2>&1 | grep "'iter"
done
ckpt convert "$hf" no --to megatron --map none || echo "status $?"
ckpt convert -n "$hf" no --to megatron | head -5
# layers that differ stay apart: one with experts, and a dense one
ckpt convert -q "$F"/map_qwen3moe_experts/hf uneven --to megatron
ckpt ls -q uneven --include '*.mlp.*linear_fc2.weight'
# the arguments lead back to the same folder, and a field that no argument expresses is named
ckpt convert "$F"/map_neox_tp2/hf neox --to megatron 2>&1 | grep warning
ckpt convert -q neox neox.hf --to hf && ckpt diff "$F"/map_neox_tp2/hf neox.hf
# another version of the backend
chmod -R u+w mixtral && sed -i 's/"sharded_backend_version": 1/"sharded_backend_version": 2/' mixtral/release/metadata.json
ckpt ls mixtral || echo "status $?"
