# SPDX-License-Identifier: Apache-2.0
"""ckpt.deepspeed beside DeepSpeed's own functions: the same state dicts, files and errors; install() and back."""
import inspect
import json
import os
import shutil

from help import Case, expected, fixture, needs_deepspeed

RUNS = ('z1_bf16_w3_groups', 'z2_bf16_w2_emptyparam', 'z2_bf16_w2_aligned', 'z3_bf16_w5_odd', 'hf_trainer_llama_z3_bf16_w2', 'k_lora_z3',
        'z1_bf16_w2_tags')


@needs_deepspeed
class DeepSpeed(Case):
    @classmethod
    def setUpClass(cls):
        os.environ.setdefault('DS_ACCELERATOR', 'cpu')
        import ckpt.deepspeed
        import deepspeed.utils.zero_to_fp32 as theirs
        cls.ours, cls.theirs = ckpt.deepspeed, theirs

    def same(self, got, want, what):
        import torch
        self.assertEqual(list(got), list(want), what)
        for name, t in want.items():
            self.assertEqual((got[name].dtype, got[name].shape), (t.dtype, t.shape), (what, name))
            self.assertTrue(torch.equal(got[name].contiguous(), t.contiguous()) or t.isnan().any(), (what, name))

    def test_signatures(self):
        for name, f in self.ours.FUNCTIONS.items():
            want = inspect.signature(getattr(self.theirs, name))
            got = inspect.signature(f)
            self.assertEqual(list(got.parameters), list(want.parameters), name)
            for k, p in got.parameters.items():
                if k != 'dtype':
                    self.assertEqual(p.default, want.parameters[k].default, (name, k))

    def test_state_dicts(self):
        for run in RUNS:
            for options in ({}, {'exclude_frozen_parameters': True}, {'lazy_mode': True}):
                try:
                    want = self.theirs.get_fp32_state_dict_from_zero_checkpoint(fixture(run, 'ckpt'), **options)
                except Exception as x:
                    self.fail('DeepSpeed cannot read %s: %s' % (run, x))
                got = self.ours.get_fp32_state_dict_from_zero_checkpoint(fixture(run, 'ckpt'), **options)
                self.same(got, want, (run, options))
                if not options:
                    for alias, owner in (expected(run).get('tied') or {}).items():
                        self.assertIs(got[alias], got[owner])
                if options.get('lazy_mode'):
                    self.same(self.theirs.to_torch_tensor(got), self.theirs.to_torch_tensor(want), run)

    def test_tags_and_errors(self):
        run = fixture('z1_bf16_w2_tags', 'ckpt')
        for tag in ('first', None):
            self.same(self.ours.get_fp32_state_dict_from_zero_checkpoint(run, tag),
                      self.theirs.get_fp32_state_dict_from_zero_checkpoint(run, tag), tag)
        empty = self.scratch()
        for f in (self.ours, self.theirs):
            with self.assertRaises(ValueError):
                f.get_fp32_state_dict_from_zero_checkpoint(empty)
            with self.assertRaises(FileNotFoundError):
                f.get_fp32_state_dict_from_zero_checkpoint(run, 'no such tag')
            with self.assertRaises(ValueError):
                f.convert_zero_checkpoint_to_state_dict(run, empty, dtype='int8')

    def files(self, folder):
        import torch
        from safetensors.torch import load_file
        out = {}
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            if name.endswith('.json'):
                with open(path, encoding='utf-8') as f:
                    out[name] = json.load(f)['weight_map']
            else:
                out[name] = load_file(path) if name.endswith('.safetensors') else torch.load(path, weights_only=True)
        return out

    def test_files(self):
        import torch
        run = fixture('z1_bf16_w3_groups', 'ckpt')
        for options in ({}, {'safe_serialization': True}, {'max_shard_size': '20KB'}, {'max_shard_size': None}, {'max_shard_size': 20000},
                        {'max_shard_size': '20KB', 'safe_serialization': True, 'exclude_frozen_parameters': True}):
            folder = self.scratch()
            theirs, mine = os.path.join(folder, 'theirs'), os.path.join(folder, 'ours.bin')  # a folder, whatever its name
            tied = expected('z1_bf16_w3_groups').get('tied')
            if not (tied and options.get('safe_serialization')):
                self.theirs.convert_zero_checkpoint_to_fp32_state_dict(run, theirs, **options)
            self.ours.convert_zero_checkpoint_to_fp32_state_dict(run, mine, **options)
            self.assertTrue(os.path.isdir(mine))
            if os.path.isdir(theirs):
                got, want = self.files(mine), self.files(theirs)
                self.assertEqual(sorted(got), sorted(want), options)
                for name in want:
                    if name.endswith('.json'):
                        self.assertEqual(got[name], want[name])
                    else:
                        self.same({k: got[name][k] for k in want[name]}, want[name], (options, name))
        folder = self.scratch()
        self.ours.convert_zero_checkpoint_to_state_dict(run, folder, dtype=torch.bfloat16)
        self.theirs.convert_zero_checkpoint_to_state_dict(run, folder + '/theirs', dtype='bf16')
        self.same(self.files(folder + '/theirs')['pytorch_model.bin'],
                  torch.load(folder + '/pytorch_model.bin', weights_only=True), 'bf16')
        shutil.rmtree(folder + '/theirs')

    def test_install(self):
        import deepspeed.runtime.engine as engine
        import torch
        name = 'get_fp32_state_dict_from_zero_checkpoint'
        was = getattr(self.theirs, name)
        self.ours.install()
        self.ours.install()
        try:
            self.assertIs(getattr(self.theirs, name), getattr(self.ours, name))
            self.assertIs(getattr(engine, name), getattr(self.ours, name))
            run = fixture('hf_trainer_llama_z3_bf16_w2', 'ckpt')
            model = torch.nn.Module()
            model.lm_head = torch.nn.Linear(12, 49, bias=False)
            self.theirs.load_state_dict_from_zero_checkpoint(model, run)
            want = was(run)['lm_head.weight']
            self.assertTrue(torch.equal(model.lm_head.weight.detach(), want))
        finally:
            self.ours.uninstall()
        self.assertIs(getattr(self.theirs, name), was)
        self.assertIs(getattr(engine, name), was)
