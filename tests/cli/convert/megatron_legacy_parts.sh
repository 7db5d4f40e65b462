# SPDX-License-Identifier: Apache-2.0
# Files of Megatron-LM's ranks are written only of a whole model: no name twice, no part absent, no head torn.
cat >make.py <<'EOF'
import argparse, os
from ds_tiny import filled, save

table, head = 'embedding.word_embeddings.weight', 'output_layer.weight'
dense = {'self_attention.linear_qkv.weight': (12, 4), 'self_attention.linear_proj.weight': (4, 4),
         'self_attention.linear_qkv.layer_norm_weight': (4,), 'mlp.linear_fc1.layer_norm_weight': (4,),
         'mlp.linear_fc1.weight': (12, 4), 'mlp.linear_fc2.weight': (4, 6)}
mixed = {k: v for k, v in dense.items() if not k.startswith('mlp.')}
mixed.update({'pre_mlp_layernorm.weight': (4,), 'mlp.router.weight': (2, 4)})
for e in '01':
    mixed.update({'mlp.experts.local_experts.%s.linear_fc1.weight' % e: (12, 4),
                  'mlp.experts.local_experts.%s.linear_fc2.weight' % e: (4, 6)})


def model(*layers, without=(), add={}):
    shapes = {table: (8, 4)}
    for i, layer in enumerate(layers):
        shapes.update({'decoder.layers.%d.%s' % (i, k): v for k, v in layer.items()})
    shapes.update({'decoder.final_layernorm.weight': (4,), head: (8, 4)})
    shapes.update(add)
    return {k: filled(v, 1.0 + i) for i, (k, v) in enumerate(shapes.items()) if k not in without}


def tied(*names):
    m, one = model(dense), filled((8, 4), 0.5)
    return {**m, **{name: one for name in names}}


in0, in1, own = 'decoder.layers.0.', 'decoder.layers.1.', 'mlp.experts.local_experts.'
for name, value in {
        'whole': model(dense, mixed, mixed),
        'norm_twice': model(dense, add={in0 + 'input_layernorm.weight': (4,)}),
        'layer_twice': model(dense, add={'decoder.layers.00.mlp.linear_fc2.weight': (4, 6)}),
        'expert_twice': model(mixed, add={in0 + 'mlp.experts.linear_fc1.weight1': (12, 4)}),
        'no_fc2': model(dense, dense, without=[in1 + 'mlp.linear_fc2.weight']),
        'no_norm': model(dense, dense, without=[in0 + 'self_attention.linear_qkv.layer_norm_weight']),
        'no_router': model(mixed, dense, mixed, without=['decoder.layers.2.mlp.router.weight']),
        'no_expert': model(mixed, mixed, without=[in1 + own + '0.linear_fc1.weight', in1 + own + '1.linear_fc1.weight']),
        'other_module': model(mixed, without=[in0 + own + '1.linear_fc1.weight'],
                              add={in0 + own + '1.linear_fc3.weight': (12, 4)}),
        'no_last_norm': model(dense, without=['decoder.final_layernorm.weight']),
        'no_layers': model(),
        'extra_state': model(dense, add={in0 + 'mlp.linear_fc1._extra_state': (3,)}),
        'tied': tied(table, head), 'tied_first': tied(head, table),
        'tied_else': tied('embedding.position_embeddings.weight', head)}.items():
    if name == 'tied_first':
        value = {head: value[head], **value}
    save(value, name + '.pt')
for name, value, args in (
        ('headless', model(dense, without=[head]), {'untie_embeddings_and_output_weights': True}),
        ('torn', model(dense), {'num_attention_heads': 8}), ('unknown', model(dense), {}),
        ('heads', model(dense), {'num_attention_heads': 4}),
        # sizes that lie
        ('huge', model(dense), {'num_attention_heads': 2**62}), ('beyond', model(dense), {'num_attention_heads': 2**70}),
        ('negative', model(dense), {'num_attention_heads': -4}), ('layers', model(dense), {'num_layers': 2**40}),
        ('vocab', model(dense), {'num_attention_heads': 4, 'vocab_size': 2**61})):
    args = argparse.Namespace(tensor_model_parallel_size=1, pipeline_model_parallel_size=1, world_size=1, **{'num_layers': 1, **args})
    os.makedirs(name + '/iter_0000002/mp_rank_00')
    save({'args': args, 'checkpoint_version': 3.0, 'iteration': 2, 'model': value}, name + '/iter_0000002/mp_rank_00/model_optim_rng.pt')
    with open(name + '/latest_checkpointed_iteration.txt', 'w') as f:
        f.write('2')
EOF
PYTHONPATH=$FIXTURES/../cli python3 make.py
to='--to megatron-legacy --map none'
# a module of several experts has one extra state
ckpt convert -q whole.pt whole $to && ckpt tree whole | grep -c '_extra_state: None' && ckpt ls -q whole | grep -c .
for bad in norm_twice layer_twice expert_twice no_fc2 no_norm no_router no_expert other_module no_last_norm no_layers extra_state; do
    ckpt convert -q $bad.pt no $to || echo "$bad: status $?"
done
# a head is tied only to the word embedding, whichever of the two names comes first
for tied in tied tied_first tied_else; do
    ckpt convert -q $tied.pt $tied $to && ckpt tree $tied | grep 'untie_\|output_layer.weight'
    ckpt diff -q $tied.pt $tied; echo "$tied: $?"
done
# what the arguments say of the head, and of attention heads
for to in 'megatron --drop-optimizer' megatron-legacy; do
    ckpt convert -q headless no --to $to; echo "headless: status $?"
done
for tp in 1 2; do
    for run in torn unknown heads; do
        ckpt convert -q $run $run.$tp --to megatron-legacy --tensor-model-parallel-size $tp; echo "$run: status $?"
    done
done
ckpt diff -q heads heads.2
for run in huge beyond negative layers vocab; do
    ckpt convert -q $run no --to megatron-legacy --map none --tensor-model-parallel-size 2; echo "$run: status $?"
done
# config.json says that the head is not tied, and it is absent
hf=$FIXTURES/map_mcore_mixtral/hf
ckpt convert -q "$hf" half.pt --exclude lm_head.weight
for to in megatron megatron-legacy; do
    ckpt convert -q half.pt no --to $to --config "$hf/config.json"; echo "lm_head: status $?"
done
ls no
