# SPDX-License-Identifier: Apache-2.0
"""Two ranks of FSDP2 load a ZeRO checkpoint by dcp.load with ckpt's reader, and train on; one process without FSDP is the measure.

    fsdp2.py CHECKPOINT RENDEZVOUS_FILE
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

import ckpt


def model_of(folder):
    """The checkpoint's Llama, with weights of no use."""
    from transformers import AutoConfig, AutoModelForCausalLM
    torch.manual_seed(5)
    return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)


def full(t):
    return t.full_tensor() if isinstance(t, DTensor) else t


def train(model, optimizer, vocabulary, steps=3):
    """Losses of a few updates on fixed tokens."""
    tokens = torch.arange(24).reshape(2, 12) % vocabulary
    losses = []
    for _ in range(steps):
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses


def resumed(folder, shard):
    model = model_of(folder)
    vocabulary = model.config.vocab_size
    if shard:
        for layer in model.model.layers:
            fully_shard(layer)
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0)
    state = dict(zip(('model', 'optim'), get_state_dict(model, optimizer)))
    dcp.load(state, storage_reader=ckpt.dcp_reader(folder))
    set_state_dict(model, optimizer, model_state_dict=state['model'], optim_state_dict=state['optim'])
    with ckpt.open(folder, optimizer=True) as m:
        for name, p in model.named_parameters():
            assert torch.equal(full(p.detach()), m[name].torch()), name
            held = optimizer.state[p]
            assert torch.equal(full(held['exp_avg']), m['exp_avg/' + name].torch()), name
            assert float(full(held['step'])) == m['step/' + name].item()
    assert optimizer.param_groups[0]['lr'] < 0.1, optimizer.param_groups[0]['lr']
    return train(model, optimizer, vocabulary)


def tensor_parallel(folder):
    """Columns of a matrix over both ranks, in 16 bits."""
    mesh = init_device_mesh('cpu', (2,))
    with ckpt.open(folder) as m:
        want = m['lm_head.weight'].torch('bf16')
    state = {'model': {'lm_head.weight': distribute_tensor(torch.zeros_like(want), mesh, [Shard(1)])}}
    dcp.load(state, storage_reader=ckpt.dcp_reader(folder))
    assert torch.equal(full(state['model']['lm_head.weight']), want)


def rank(number, folder, meeting):
    dist.init_process_group('gloo', init_method='file://' + meeting, rank=number, world_size=2)
    losses = resumed(folder, True)
    tensor_parallel(folder)
    if number == 0:
        torch.save(losses, meeting + '.losses')
    dist.destroy_process_group()


def main():
    folder, meeting = sys.argv[1:3]
    torch.set_num_threads(1)
    import transformers  # noqa: F401  once, for the ranks too
    mp.start_processes(rank, (folder, meeting), nprocs=2, start_method='fork')
    two, one = torch.load(meeting + '.losses'), resumed(folder, False)
    assert all(abs(a - b) < 1e-4 * abs(a) for a, b in zip(one, two)), (one, two)
    assert one[2] < one[0], one
    print('trained on: losses %s alone, %s on two ranks' % (one, two))


if __name__ == '__main__':
    os.environ.setdefault('TOKENIZERS_PARALLELISM', 'false')
    main()
