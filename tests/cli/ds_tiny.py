#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make a tiny fp32 checkpoint as DeepSpeed writes it, without torch.

    ds_tiny.py FOLDER CASE

Stage 0, by CASE:
       adam        torch's Adam
       fused       DeepSpeed's FusedAdam: the last parameter's count is the group's
       order       the keys of one parameter's state in another order
       unused      a parameter that never had a gradient, and so has no state
       frozen      the optimizer was not given the first parameter
       empty       a trained parameter without elements
       steps       a parameter that had a gradient in some steps only
       fork        a release that is none
       nadam       one number more for each parameter, equal in all
       adafactor   factors in place of a moment, a number that differs
       hybrid      a state of one element, [1]
       amsgrad     a third moment, which a setting asks for
       no_axes     a parameter of shape ()
       sgd         no state at all
       lbfgs       state that is a list; a state of a number that no group lists
       twins       two groups of the same shapes: which is which cannot be known
       flat        FusedAdam in 16 bits: one flat tensor, as long as the storages of a trained and of a frozen parameter
Stage 1 of one rank, out.weight tied to emb.weight, by CASE:
       tied          the same storage under both names
       tied_copy     a storage of its own with equal values
       tied_empty    the tied name holds nothing
       tied_values, tied_shape, tied_kind    the tied name contradicts its owner
       unlisted      the module has a tensor more, and no list of its buffers
       copies        the module's emb.weight is not what its master says
       zenflow       the same in a run with ZenFlow
       frozen_copy   a frozen parameter, in a storage of its own beside the module's equal one
       frozen_values, frozen_shape    the module's is another
Stage 3 of one rank, by CASE:
       twice         a layer that the module has under two names: placeholders of one storage, no word in shared_params
       twice_one     the same, all placeholders on one storage: nothing says what is tied to what
Stage 1 of two ranks, by CASE:
       values        a number of each rank's own, a step of shape [1], a list
Stage 1 of two ranks, a GPT-2 after 4 steps; its config.json and tokens.safetensors go beside it, by CASE:
       skipped       all of them overflowed, and the optimizer has made no state
       skipped_half  the same, but the second rank's optimizer has
       skipped_less  one of the steps was not skipped, and there is no state all the same
Stage 0 of two tensor-parallel ranks, without a word on how they are joined:
       tp
"""
import io
import json
import os
import pickle
import struct
import sys
import types
import zipfile
from collections import OrderedDict

SHAPES = (('emb.weight', (4, 2)), ('fc.weight', (3, 2)), ('fc.bias', (3,)), ('out.scale', (1,)))


def module(name, **names):
    made = types.ModuleType(name)
    for key, value in names.items():
        value.__module__, value.__qualname__ = name, key
        setattr(made, key, value)
    sys.modules[name] = made
    return made


class FloatStorage:
    """Only named, never made."""


class LongStorage:
    """Likewise."""


class IntStorage:
    """Likewise."""


def rebuild(*args):
    """Only named, never called."""


rebuild.__name__ = '_rebuild_tensor_v2'
module('torch', FloatStorage=FloatStorage, LongStorage=LongStorage, IntStorage=IntStorage)
module('torch._utils', _rebuild_tensor_v2=rebuild)


class Storage:
    def __init__(self, values, short=False):
        self.values, self.short = values, short

    def kind(self):
        return (IntStorage if self.short else LongStorage) if self.values and isinstance(self.values[0], int) else FloatStorage

    def data(self):
        code = {LongStorage: 'q', IntStorage: 'i', FloatStorage: 'f'}[self.kind()]
        return struct.pack('<%d%s' % (len(self.values), code), *self.values)


class Tensor:
    def __init__(self, values, shape, short=False):
        self.storage, self.shape = Storage(values, short), tuple(shape)

    def __reduce__(self):
        stride, n = [], 1
        for size in reversed(self.shape):
            stride.insert(0, n)
            n *= size
        return rebuild, (self.storage, 0, self.shape, tuple(stride), False, OrderedDict())


def filled(shape, by):
    n = 1
    for size in shape:
        n *= size
    return Tensor([by * (k + 1) for k in range(n)], shape)


def scalar(value, short=False):
    """An I64 or F32; short: an I32."""
    return Tensor([value], (), short)


def save(tree, path):
    records = []

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj):
            if not isinstance(obj, Storage):
                return None
            if obj not in records:
                records.append(obj)
            return 'storage', obj.kind(), str(records.index(obj)), 'cpu', len(obj.values)

    out = io.BytesIO()
    Pickler(out, 2).dump(tree)
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_STORED) as archive:
        archive.writestr('archive/data.pkl', out.getvalue())
        archive.writestr('archive/byteorder', 'little')
        for i, record in enumerate(records):
            archive.writestr('archive/data/%d' % i, record.data())
        archive.writestr('archive/version', '3\n')


def state_of(case, i, shape):
    """The state of one parameter as its optimizer keeps it."""
    one = {'step': scalar(4.0), 'exp_avg': filled(shape, .1 + i), 'exp_avg_sq': filled(shape, .01 + i)}
    if case == 'fused':
        one['step'] = 4 if i == len(SHAPES) - 1 else 0
    if case == 'order' and i == 1:
        one = dict(reversed(list(one.items())))
    if case == 'steps' and i == 2:
        one['step'] = scalar(3.0)
    if case == 'nadam':
        one['mu_product'] = scalar(0.5)
    if case == 'adafactor':
        one = {'step': 4, 'exp_avg_sq': one['exp_avg_sq'], 'RMS': scalar(0.5 + i)}
        if len(shape) == 2:
            del one['exp_avg_sq']
            one.update(exp_avg_sq_row=filled(shape[:1], .3), exp_avg_sq_col=filled(shape[1:], .2))
    if case == 'hybrid':
        one = {'integer_step': 12, 'tensor_step': Tensor([12.0], (1,))}
    if case == 'amsgrad':
        one['max_exp_avg_sq'] = filled(shape, .02 + i)
    if case == 'lbfgs':
        one['old_dirs'] = [1.0, 2.0]
    return one


def common(module_tree, world, **more):
    """What every model file has."""
    tree = {'module': module_tree, 'buffer_names': [], 'optimizer': None, 'param_shapes': None, 'lr_scheduler': None,
            'frozen_param_shapes': None, 'frozen_param_fragments': None, 'shared_params': None,
            'skipped_steps': 0, 'global_steps': 4, 'global_samples': 32, 'dp_world_size': world, 'mp_world_size': 1,
            'ds_config': {'train_batch_size': 8}, 'ds_version': '0.19.8'}
    tree.update(more)
    return tree


def stage0(case):
    shapes = (('a.weight', (2, 2)), ('b.weight', (2, 2))) if case in ('twins', 'flat') else SHAPES
    if case == 'no_axes':
        shapes = SHAPES + (('gain', ()),)
    if case == 'empty':
        shapes = SHAPES[:1] + (('void', (0, 3)),) + SHAPES[1:]
    trained = [i for i in range(len(shapes)) if not (case == 'frozen' and i == 0)]
    state = {k: state_of(case, i, shapes[i][1]) for k, i in enumerate(trained)
             if not (case == 'unused' and i == 1) and case != 'sgd'}
    if case == 'lbfgs':
        state[9] = {'step': 1}
    numbers = [[0], [1]] if case == 'twins' else [list(range(len(trained)))]
    groups = [{'lr': 1e-3, 'betas': (0.9, 0.999), 'eps': 1e-8, 'weight_decay': 0.0, 'params': n} for n in numbers]
    if case == 'fused':
        groups[0]['step'] = 0
    if case == 'amsgrad':
        groups[0]['amsgrad'] = True
    optimizer = {'state': state, 'param_groups': groups}
    if case == 'flat':
        optimizer = {'optimizer_state_dict': {'state': {0: state_of(case, 0, (4,))}, 'param_groups': [{'lr': 1e-3, 'params': [0]}]},
                     'fp32_groups_flat': [filled((4,), 2.5)], 'clip_grad': 0.0}
    out = common(OrderedDict((name, filled(shape, 1.5)) for name, shape in shapes), 1, optimizer=optimizer)
    if case == 'fork':
        out['ds_version'] = 'fork-7'
    return out


def one_rank(case, folder):
    owner = filled((4, 2), 1.5 if case.startswith(('tied', 'unlisted', 'frozen')) else 1.25)
    alias = {'unlisted': filled((4, 2), 2.5), 'copies': owner, 'zenflow': owner,
             'tied': owner, 'tied_copy': filled((4, 2), 1.5), 'tied_empty': Tensor([], (0,)),
             'tied_values': filled((4, 2), 2.5), 'tied_shape': filled((2, 4), 1.5),
             'tied_kind': Tensor([3] * 8, (4, 2)), 'frozen_copy': filled((4, 2), 2.5),
             'frozen_values': filled((4, 2), 3.5), 'frozen_shape': filled((2, 4), 2.5)}[case]
    state = {0: {'step': scalar(4.0), 'exp_avg': filled((8,), .1), 'exp_avg_sq': filled((8,), .2)}}
    optim = {'zero_stage': 1, 'partition_count': [1], 'group_paddings': [0], 'ds_version': '0.19.8',
             'single_partition_of_fp32_groups': [filled((8,), 1.5)],
             'base_optimizer_state': {'state': state, 'param_groups': [{'lr': 1e-3, 'params': [0]}]}}
    config = {'train_batch_size': 8, 'zero_optimization': {'stage': 1}}
    if case == 'zenflow':
        config['zero_optimization']['zenflow'] = {'topk_ratio': 0.2}
    save({'optimizer_state_dict': optim, 'ds_config': config, 'ds_version': '0.19.8'},
         folder + '/zero_pp_rank_0_mp_rank_00_optim_states.pt')
    lists = {'buffer_names': None} if case == 'unlisted' else {'shared_params': {'out.weight': 'emb.weight'}}
    if case.startswith('frozen'):
        lists = {'frozen_param_shapes': {'out.weight': (4, 2)}, 'frozen_param_fragments': {'out.weight': filled((4, 2), 2.5)}}
    return common(OrderedDict([('emb.weight', owner), ('out.weight', alias)]), 1,
                  param_shapes=[OrderedDict([('emb.weight', (4, 2))])], **lists,
                  ds_config=config)


def parted(case, folder):
    names = ('emb.weight', 'fc.weight')
    state = {0: {'step': scalar(4.0), 'exp_avg': filled((16,), .1), 'exp_avg_sq': filled((16,), .2)}}
    optim = {'zero_stage': 3, 'partition_count': 1, 'fp32_flat_groups': [filled((16,), 1.5)],
             'optimizer_state_dict': {'state': state, 'param_groups': [{'lr': 1e-3, 'params': [0]}]}}
    config = {'train_batch_size': 8, 'zero_optimization': {'stage': 3}}
    save({'optimizer_state_dict': optim, 'ds_config': config, 'ds_version': '0.19.8'},
         folder + '/zero_pp_rank_0_mp_rank_00_optim_states.pt')
    first = Tensor([], (0,))
    hollow = {n: first if case == 'twice_one' else Tensor([], (0,)) for n in names}
    module_tree = OrderedDict([('emb.weight', hollow['emb.weight']), ('fc.weight', hollow['fc.weight']), ('again.weight', hollow['fc.weight'])])
    tree = common(module_tree, 1, param_shapes=[OrderedDict((n, (4, 2)) for n in names)], shared_params={}, ds_config=config)
    save(tree, folder + '/zero_pp_rank_0_mp_rank_00_model_states.pt')


def two_ranks(folder):
    for rank in 0, 1:
        state = {0: {'step': scalar(4.0), 'exp_avg_sq': filled((4,), .2), 'RMS': scalar(.5 + rank),
                     'tensor_step': Tensor([4.0], (1,)), 'old_dirs': [1.0]}}
        flat = Tensor([1.5 * (k + 1) for k in range(4 * rank, 4 * rank + 4)], (4,))
        optim = {'zero_stage': 1, 'partition_count': [2], 'group_paddings': [0], 'ds_version': '0.19.8',
                 'single_partition_of_fp32_groups': [flat],
                 'base_optimizer_state': {'state': state, 'param_groups': [{'lr': 1e-3, 'params': [0]}]}}
        save({'optimizer_state_dict': optim, 'ds_config': {'train_batch_size': 8}, 'ds_version': '0.19.8'},
             folder + '/zero_pp_rank_%d_mp_rank_00_optim_states.pt' % rank)
    return common(OrderedDict([('emb.weight', filled((4, 2), 1.5))]), 2,
                  param_shapes=[OrderedDict([('emb.weight', (4, 2))])])


GPT2 = {'architectures': ['GPT2LMHeadModel'], 'model_type': 'gpt2', 'vocab_size': 11, 'n_embd': 4, 'n_head': 2, 'n_layer': 1,
        'n_positions': 8, 'activation_function': 'gelu_new', 'attn_pdrop': 0.0, 'embd_pdrop': 0.0, 'resid_pdrop': 0.0,
        'tie_word_embeddings': True}


def gpt2_shapes():
    layer = [('ln_1', (4,)), ('attn.c_attn', (4, 12)), ('attn.c_proj', (4, 4)), ('ln_2', (4,)), ('mlp.c_fc', (4, 16)), ('mlp.c_proj', (16, 4))]
    every = [('wte.weight', (11, 4)), ('wpe.weight', (8, 4))]
    for name, shape in [('h.0.' + n, s) for n, s in layer] + [('ln_f', (4,))]:
        every += [(name + '.weight', shape), (name + '.bias', shape[-1:])]
    return OrderedDict(('transformer.' + n, s) for n, s in every)


def skipped(case, folder):
    shapes = gpt2_shapes()
    module_tree, masters = OrderedDict(), []
    for name, shape in shapes.items():
        tensor = filled(shape, 0)
        tensor.storage.values = [((7 * k + len(masters)) % 13 - 6) / 32 + (name.endswith('weight') and 'ln_' in name) for k in range(len(tensor.storage.values))]
        module_tree[name] = tensor
        masters += tensor.storage.values
    module_tree['lm_head.weight'] = module_tree['transformer.wte.weight']
    n = (len(masters) + 3) // 4 * 2
    for rank in 0, 1:
        flat = masters[rank * n:(rank + 1) * n]
        state = {'step': scalar(1.0), 'exp_avg': filled((len(flat),), .1), 'exp_avg_sq': filled((len(flat),), .1)}
        optim = {'zero_stage': 1, 'partition_count': [2], 'group_paddings': [rank * (2 * n - len(masters))], 'ds_version': '0.19.8',
                 'single_partition_of_fp32_groups': [Tensor(flat, (len(flat),))],
                 'base_optimizer_state': {'state': {0: state} if case == 'skipped_half' and rank else {},
                                          'param_groups': [{'lr': 1e-3, 'betas': (0.9, 0.999), 'eps': 1e-8, 'weight_decay': 0.0, 'params': [0]}]}}
        save({'optimizer_state_dict': optim, 'ds_config': {'train_batch_size': 8}, 'ds_version': '0.19.8'},
             folder + '/zero_pp_rank_%d_mp_rank_00_optim_states.pt' % rank)
    with open('config.json', 'w', encoding='ascii') as config:
        json.dump(GPT2, config)
    ids = struct.pack('<64q', *((5 * k * k + k) % 11 for k in range(64)))
    entry = {'dtype': 'I64', 'shape': [16, 4]}
    header = json.dumps({'input_ids': dict(entry, data_offsets=[0, 512]), 'labels': dict(entry, data_offsets=[512, 1024])}).encode()
    with open('tokens.safetensors', 'wb') as tokens:
        tokens.write(struct.pack('<Q', len(header)) + header + ids + ids)
    return common(module_tree, 2, skipped_steps=3 if case == 'skipped_less' else 4, param_shapes=[shapes],
                  shared_params={'lm_head.weight': 'transformer.wte.weight'})


def main():
    run, case = sys.argv[1:]
    folder = run + '/global_step4'
    os.makedirs(folder)
    tree = None
    if case.startswith('twice'):
        parted(case, folder)
    elif case == 'values':
        tree = two_ranks(folder)
    elif case.startswith('skipped'):
        tree = skipped(case, folder)
    else:
        tree = one_rank(case, folder) if case.startswith(('tied', 'unlisted', 'copies', 'zenflow', 'frozen_')) else stage0(case)
    if case == 'tp':
        tree['mp_world_size'] = 2
        save(tree, folder + '/mp_rank_01_model_states.pt')
    if tree:
        save(tree, folder + '/mp_rank_00_model_states.pt')
    with open(run + '/latest', 'w', encoding='ascii') as latest:
        latest.write('global_step4')


if __name__ == '__main__':
    main()
