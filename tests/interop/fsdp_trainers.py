#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs that trainers own go on under DeepSpeed and FSDP2: transformers' Trainer and Lightning's with FSDP1, the Trainer's with DDP.

    fsdp_trainers.py --bin build/bin [NAME...] [-v]

Two processes (gloo) train a Llama of three layers, each layer an FSDP unit, with all that the trainer does by itself: its groups
with and without weight decay, its clipping, its schedule, its count of labels over the ranks (each row has another number of
labels), its accumulation of gradients.  The trainer saves after two steps and makes three more, whose batches, losses and
learning rates are recorded.  `ckpt reshard` writes the checkpoint for DeepSpeed and FSDP2, and the runs must go on as
fsdp_resume.py wants it.
"""
import functools
import os
import sys

os.environ['DS_ACCELERATOR'] = 'cpu'
try:
    import checks
    import fsdp_resume
    import ranks
    import torch
    import transformers
except ImportError:
    print('interop fsdp trainers: skipped (no torch, DeepSpeed and transformers)')
    sys.exit(0)
try:
    import lightning
    from lightning.pytorch.strategies import FSDPStrategy
except ImportError:
    lightning, FSDPStrategy = None, object

WORLD, SAVED, MORE = 2, 2, fsdp_resume.STEPS
LAYERS, ROWS, LENGTH, VOCAB = 3, 2, 9, 41
RATE, DECAY, CLIP = 5e-3, 0.1, 1.0
IGNORED = -100
# (world, stage) of DeepSpeed, and ranks of FSDP2
TO_ZERO = ((2, 1), (1, 2), (2, 3))
TO_RANKS = 2


# ---- what both trainers train ----

def llama():
    config = transformers.LlamaConfig(vocab_size=VOCAB, hidden_size=24, intermediate_size=28, num_hidden_layers=LAYERS,
                                      num_attention_heads=4, num_key_value_heads=2, initializer_range=0.25,
                                      tie_word_embeddings=False, use_cache=False)
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation='eager')


def rows(count, answers=True):
    """Texts; with answers, the first few tokens of each are a question, and carry no label."""
    g = torch.Generator().manual_seed(11)
    out = []
    for _ in range(count):
        x = torch.randint(VOCAB, (LENGTH,), generator=g)
        labels = x.clone()
        if answers:
            labels[:torch.randint(1, LENGTH - 1, (1,), generator=g)] = IGNORED
        out.append({'input_ids': x, 'labels': labels})
    return out


def next_tokens(labels):
    """The label of each logit."""
    return torch.nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED)


def plain_names(params):
    return [n.replace('_fsdp_wrapped_module.', '') for n in params]


class Record:
    """The batches, losses and learning rates of one rank, a list of each for each step."""

    def __init__(self):
        self.steps, self.norms = [], []

    def micro(self, step, inputs, loss, optimizer):
        if len(self.steps) == step:
            self.steps.append({'x': [], 'y': [], 'loss': 0.0, 'lr': [float(g['lr']) for g in optimizer.param_groups]})
        at = self.steps[step]
        at['x'].append(inputs['input_ids'].clone())
        at['y'].append(next_tokens(inputs['labels']))
        at['loss'] += loss.item()

    def save(self, model, optimizer, out, rank, wrapped=True):
        """Rank 0 writes what all recorded."""
        units = len(torch.distributed.fsdp.FullyShardedDataParallel.fsdp_modules(model))
        assert units == (LAYERS + 1 if wrapped else 0), 'FSDP1 has %d units' % units
        every = [None] * WORLD
        torch.distributed.all_gather_object(every, self.steps)
        names = {id(p): n for n, p in model.named_parameters()}
        groups = [plain_names(names[id(p)] for p in g['params']) for g in optimizer.param_groups]
        data = {k: torch.stack([torch.stack([torch.cat(r[i][k]) for r in every]) for i in range(len(self.steps))]) for k in 'xy'}
        losses = [sum(r[i]['loss'] for r in every) / WORLD for i in range(len(self.steps))]
        if rank == 0:
            torch.save({'data': data, 'losses': losses, 'rates': [s['lr'] for s in self.steps], 'groups': groups,
                        'norms': self.norms}, out)


def as_on_gpus():
    """FSDP1 on the CPU does what it does on GPUs."""
    from accelerate.state import AcceleratorState, PartialState
    from accelerate.utils import DistributedType
    from torch.distributed.fsdp import _optim_utils
    begin, unflatten = AcceleratorState.__init__, _optim_utils._unflatten_orig_param_states

    def begin_with_fsdp(self, *args, fsdp_plugin=None, **kwargs):
        begin(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
        if fsdp_plugin is not None:   # accelerate leaves it out where there is no GPU
            chosen = {'distributed_type': DistributedType.FSDP, 'device': torch.device('cpu')}
            PartialState._shared_state.update(chosen)
            self.__dict__.update(chosen, fsdp_plugin=fsdp_plugin)

    def unflatten_copies(info, states, name, *args):
        # torch gathers each kind of state in one buffer and takes the copy to the CPU for a copy
        for s in states.values():
            s[name] = s[name].clone()
        unflatten(info, states, name, *args)

    AcceleratorState.__init__ = begin_with_fsdp
    _optim_utils._unflatten_orig_param_states = unflatten_copies


# ---- transformers ----

class Recorded(transformers.Trainer):
    """The Trainer, which says what it does."""

    def compute_loss(self, model, inputs, *args, **kwargs):
        loss = super().compute_loss(model, inputs, *args, **kwargs)
        self.record.micro(self.state.global_step, inputs, loss, self.optimizer)
        return loss

    def _clip_grad_norm(self, model):
        norm = super()._clip_grad_norm(model)
        self.record.norms.append(float(norm))
        return norm


def trainer_rank(kind, original, accumulate, folder, out, rank):
    steps = SAVED + MORE
    fsdp = {} if kind is None else {'fsdp': 'full_shard auto_wrap', 'fsdp_config': {
        'version': 1, 'transformer_layer_cls_to_wrap': ['LlamaDecoderLayer'], 'state_dict_type': kind,
        'use_orig_params': original, 'sync_module_states': False}}
    args = transformers.TrainingArguments(
        output_dir=folder, per_device_train_batch_size=ROWS, gradient_accumulation_steps=accumulate, max_steps=steps,
        learning_rate=RATE, weight_decay=DECAY, warmup_steps=2, lr_scheduler_type='linear', max_grad_norm=CLIP,
        optim='adamw_torch', save_steps=SAVED, logging_steps=1, use_cpu=True, report_to=[], disable_tqdm=True, seed=3, **fsdp)
    torch.manual_seed(5)
    trainer = Recorded(model=llama(), args=args, train_dataset=rows(steps * WORLD * ROWS * accumulate))
    trainer.record = Record()
    trainer.train()
    trainer.record.save(trainer.model, trainer.optimizer, out, rank, kind is not None)


def linear(optimizer):
    return transformers.get_scheduler('linear', optimizer, num_warmup_steps=2, num_training_steps=SAVED + MORE)


# ---- Lightning ----

class Net(torch.nn.Module):
    """What a LightningModule has beside the trainer's hooks: the model under a name of its own."""

    def __init__(self):
        super().__init__()
        self.net = llama()

    def forward(self, x, y):
        z = self.net(input_ids=x).logits
        return torch.nn.functional.cross_entropy(z.reshape(-1, VOCAB), y.reshape(-1))


class OnCpu(FSDPStrategy):
    """Lightning refuses its FSDPStrategy on the CPU by the very class, and names no device; nothing else in it needs a GPU."""

    def _setup_model(self, model):
        from torch.distributed.fsdp import FullyShardedDataParallel
        return FullyShardedDataParallel(model, device_id=torch.device('cpu'), **self.kwargs)


def lightning_module(parted):
    class Module(Net, lightning.LightningModule):
        def training_step(self, batch, _):
            loss = self(batch['input_ids'], next_tokens(batch['labels']))
            self.record.micro(self.global_step, batch, loss.detach(), self.optimizers())
            return loss

        def configure_optimizers(self):
            params = list(self.named_parameters())
            norms, others = ([p for n, p in params if ('norm' in n) == is_norm] for is_norm in (True, False))
            groups = [{'params': norms, 'weight_decay': 0.0}, {'params': others, 'weight_decay': DECAY}]
            groups = groups if parted else list(self.parameters())
            optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95))
            if not parted:
                return optimizer
            return {'optimizer': optimizer, 'lr_scheduler': {'scheduler': stairs(optimizer), 'interval': 'step'}}

        def configure_gradient_clipping(self, *_, **__):
            # as Lightning's manual says it is done with FSDP
            self.record.norms.append(float(self.trainer.strategy.model.clip_grad_norm_(CLIP)))

    module = Module()
    module.record = Record()
    return module


def per_layer(module, recurse, nonwrapped_numel):
    """An auto_wrap_policy of one's own."""
    return recurse or type(module).__name__ == 'LlamaDecoderLayer'


def lightning_rank(kind, policy, parted, folder, out, rank):
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.plugins.environments import LightningEnvironment
    steps = SAVED + MORE
    torch.manual_seed(5)
    module = lightning_module(parted)
    save = ModelCheckpoint(dirpath=folder, filename='saved-{step}', every_n_train_steps=SAVED, save_top_k=-1)
    trainer = lightning.Trainer(accelerator='cpu', devices=WORLD, max_steps=steps, logger=False, callbacks=[save],
                                strategy=OnCpu(auto_wrap_policy=policy, state_dict_type=kind), plugins=[LightningEnvironment()],
                                enable_progress_bar=False, enable_model_summary=False)
    data = torch.utils.data.DataLoader(rows(steps * WORLD * ROWS, answers=False), batch_size=ROWS)
    trainer.fit(module, data)
    module.record.save(trainer.strategy.model, trainer.optimizers[0], out, rank)


def stairs(optimizer):
    return torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)


# ---- cases ----

def lightning_layers():
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer
    return {LlamaDecoderLayer}


def by_trainer(kind, original, accumulate):
    return functools.partial(trainer_rank, kind, original, accumulate), 'checkpoint-%d' % SAVED, llama, linear


def by_lightning(kind, policy, parted, model, *keep):
    return functools.partial(lightning_rank, kind, policy, parted), 'saved-step=%d.ckpt' % SAVED, model, parted and stairs, *keep


# Of each run: what a rank does, where the trainer saves, what builds the model and the schedule, options of `ckpt reshard`.
RUNS = {
    'trainer_full': by_trainer('FULL_STATE_DICT', True, 1),
    'trainer_sharded': by_trainer('SHARDED_STATE_DICT', True, 2),
    # one flat tensor a unit, which the Trainer cannot part by decay: all are in one group, the other is empty
    'trainer_full_flat': by_trainer('FULL_STATE_DICT', False, 1),
    'trainer_sharded_flat': by_trainer('SHARDED_STATE_DICT', False, 2),
    # model.safetensors and optimizer.pt: the order of the parameters that it names by number comes from config.json
    'trainer_plain': by_trainer(None, True, 2),
    'lightning_full': by_lightning('full', per_layer, False, llama),
    'lightning_full_groups': by_lightning('full', per_layer, True, llama),
    'lightning_sharded': by_lightning('sharded', lightning_layers(), True, Net, '--keep-names'),
}
def trained(name, folder):
    """Train; (what fsdp_resume wants to know of the run, its batches, the checkpoint)."""
    body, saved, model, schedule, *_ = RUNS[name]
    got, error = ranks.run_ranks(WORLD, lambda rank, out: body(folder, out, rank), 120)
    if error:
        raise RuntimeError(fsdp_resume.ds_harness.short(error))
    if not any(n > CLIP for n in got['norms']):
        raise RuntimeError('no gradient is clipped: %s' % got['norms'])
    lead = '' if model is Net else 'net.'   # what ckpt takes off is the attribute that holds a model of a known architecture
    groups = [{'params': [n.removeprefix(lead) for n in names]} for names in got['groups']]
    if any(n.endswith('_flat_param') for g in got['groups'] for n in g):
        groups = [{'params': [n for n, _ in model().named_parameters()]}, {'params': []}]
    e = {'model': model, 'lr_scheduler': schedule or None, 'clipping': CLIP,
         'optimizer': {'name': 'AdamW', 'param_groups': groups},
         'next_steps': [{'step': i + 1, 'loss': got['losses'][i], 'lr': got['rates'][i]}
                        for i in range(SAVED, SAVED + MORE)]}
    return e, got['data'], os.path.join(folder, saved)


def main():
    a = checks.arguments()
    tally = checks.Tally(a.verbose)
    ranks.prepare()
    import transformers.models.llama.modeling_llama  # noqa: F401  before any fork
    import transformers.trainer  # noqa: F401
    as_on_gpus()
    for name in RUNS if a.only else checks.mine(RUNS):
        if a.only and name not in a.only:
            continue
        if name.startswith('lightning') and not lightning:
            print('interop fsdp trainers: %s skipped (no lightning)' % name)
            continue
        with checks.scratch() as tmp:
            run = []
            if not tally.call(name + ' trains', lambda: run.extend(trained(name, os.path.join(tmp, 'run')))):
                continue
            e, data, source = run
            keep = RUNS[name][4:]
            for world, stage in TO_ZERO:
                tally.call('%s to %d ranks of stage %d' % (name, world, stage), fsdp_resume.judged, a, tmp, e, source, world,
                           ('-s', str(stage), *keep),
                           lambda dst, out, rank, stage=stage: fsdp_resume.zero_rank(e, data, dst, stage, '', out, rank))
            tally.call('%s to %d ranks of FSDP2 by number' % (name, TO_RANKS), fsdp_resume.judged, a, tmp, e, source, TO_RANKS,
                       ('--to', 'fsdp-ranks', *keep), lambda dst, out, rank: fsdp_resume.ranks_rank(
                           e, data, os.path.join(dst, 'x'), TO_RANKS, out, rank))
    return tally.end('interop fsdp trainers')


if __name__ == '__main__':
    sys.exit(main())
