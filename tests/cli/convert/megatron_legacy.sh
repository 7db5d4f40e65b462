# SPDX-License-Identifier: Apache-2.0
# Hugging Face folders become a file for each model-parallel rank of Megatron-LM, and these the same folders again.
F=$FIXTURES
to='--to megatron-legacy --make-vocab-size-divisible-by 8'
tp=--tensor-model-parallel-size
pp=--pipeline-model-parallel-size
ep=--expert-model-parallel-size
hf=$F/map_mcore_mixtral/hf
ckpt convert -q "$hf" grid $to $tp 2 $pp 2 $ep 3 && find grid -type f | sort
cat grid/latest_checkpointed_iteration.txt; echo
ckpt ls grid
# the second stage of the first ranks: its slices, and the arguments
ckpt tree grid | sed -n '/mp_rank_00_001_000/,/mp_rank_01_001_000/p'
ckpt verify -q grid && ckpt doctor grid
ckpt convert -q grid back --to hf && ckpt diff "$hf" back
ckpt diff "$hf" grid
# the names of Megatron-Core's own layers
ckpt convert -q "$hf" own $to $tp 2 --layout local && ckpt ls -q own --include '*layers.0*'
ckpt convert -q own own.hf --to hf && ckpt diff "$hf" own.hf
# dense layers before experts; latent attention keeps its small matrices whole on every rank
deep=$F/map_mcore_deepseek3/hf
ckpt convert -q "$deep" deep $to $tp 2 && ckpt convert -q deep deep.hf --to hf && ckpt diff "$deep" deep.hf
ckpt tree deep | sed -n '/mp_rank_01/,$p' | grep 'layers.[01].*\(down_proj\|norm\)'
# a tied head is in the last stage, too
ckpt convert -q "$F/map_mcore_gpt2/hf" tied $to $pp 2 && ckpt tree tied | grep -c 'output_layer.weight'
ckpt convert -q tied tied.hf --to hf && ckpt diff "$F/map_mcore_gpt2/hf" tied.hf
# every rank has its part of the gates, of a bias too
python3 - <<'END'
import json, struct
shapes = {'embedding.word_embeddings.weight': [8, 4], 'decoder.layers.0.mlp.linear_fc1.weight': [12, 4], 'decoder.layers.0.mlp.linear_fc1.bias': [12],
          'decoder.layers.0.mlp.linear_fc2.weight': [4, 6], 'decoder.final_layernorm.weight': [4]}
head, n = {}, 0
for name, shape in shapes.items():
    size = 4
    for x in shape:
        size *= x
    head[name] = {'dtype': 'F32', 'shape': shape, 'data_offsets': [n, n + size]}
    n += size
text = json.dumps(head).encode()
with open('gated.safetensors', 'wb') as f:
    f.write(struct.pack('<Q', len(text)) + text + struct.pack('<%df' % (n // 4), *range(n // 4)))
END
ckpt convert -q gated.safetensors gated --to megatron-legacy --map none $tp 2 2>/dev/null && ckpt diff gated.safetensors gated
for rank in 0 1; do
    ckpt cat -a gated/release/mp_rank_0$rank/model_optim_rng.pt model.decoder.layers.0.mlp.linear_fc1.bias
done
# other ranks, from files of ranks and from torch_dist; the arguments of the run stay
ckpt convert -q "$F/mlegacy_gpt2_tp2_pp2/ckpt" one $to 2>/dev/null && ckpt tree one | grep -A 3 'args'
ckpt convert -q "$F/mcore_llama_distopt_dp2/ckpt" cut $to $tp 2 2>/dev/null && ckpt ls -q cut --include '*.0.*fc*'
# files under other paths, without writing them
ckpt convert -n "$hf" no $to $tp 2 | head -3
# what cannot be divided is refused by name
for bad in "$tp 4" "$pp 3" "$ep 2" '--map none' '--layout torch' '--to-tag iter_0000005' '--world 2' '--dtype bf16:x*' '--vocab-size 30'; do
    ckpt convert -q "$hf" no $to $bad 2>&1 | grep -v Try
done
ckpt convert -q "$F/map_mcore_gptoss/hf" no $to $tp 2
for without in 'model.layers.0.*' 'model.layers.1.*' '*layers.1.*experts.1.w2*'; do
    ckpt convert -q "$hf" no $to --exclude "$without"
done
ckpt convert -q "$deep" no $to $tp 2 --layout local
ckpt convert -q "$hf" no --to dcp $pp 2
ckpt verify --made-from "$hf" grid || echo "status $?"
ls no
