# SPDX-License-Identifier: Apache-2.0
"""dcp_reader: a ZeRO run goes on under FSDP2 on two ranks, and what is asked for by DCP's names is what the checkpoint holds."""
import os
import subprocess
import sys
import tempfile

import ckpt
from help import Case, HERE, fixture, has, newer

LLAMA = fixture('hf_trainer_llama_z3_bf16_w2', 'ckpt')


@newer('torch.distributed.checkpoint.StorageReader', 'torch._utils._rebuild_tensor_v3')
class Dcp(Case):
    def test_names_and_values(self):
        import torch
        import torch.distributed.checkpoint as dcp
        for run in ('hf_trainer_llama_z3_bf16_w2', 'z1_bf16_w3_groups', 'fsdp2_mp_w2'):
            with ckpt.open(fixture(run, 'ckpt'), optimizer=True) as m:
                weights = {n: t for n, t in m.items() if t.role == 'weight'}
                trained = [n for n in weights if 'exp_avg/' + n in m]
                state = {'model': {n: torch.full(t.shape, 7, dtype=torch.bfloat16) for n, t in weights.items()},
                         'optim': {'state': {n: {'exp_avg': torch.full(weights[n].shape, 7.0), 'step': torch.tensor(0.0)} for n in trained},
                                   'param_groups': [{'lr': -1.0, 'betas': (), 'fused': 1, 'decoupled_weight_decay': 5, 'params': []}]}}
                dcp.load(state, storage_reader=ckpt.dcp_reader(fixture(run, 'ckpt')), no_dist=True)
                for n, t in weights.items():
                    self.assertTrue(torch.equal(state['model'][n], t.torch('bf16')), n)
                for n in trained:
                    got = state['optim']['state'][n]
                    self.assertTrue(torch.equal(got['exp_avg'], m['exp_avg/' + n].torch()))
                    self.assertEqual(got['step'], m['step/' + n].item())
                group = state['optim']['param_groups'][0]
                self.assertGreater(group['lr'], 0)
                self.assertEqual((tuple(group['betas'])[1], group['fused']), (0.999, None))
                self.assertLessEqual(set(group['params']), set(trained))
                self.assertIn(group['decoupled_weight_decay'], (True, False))

    def test_weights_alone(self):
        import torch
        import torch.distributed.checkpoint as dcp
        for path in (fixture('hf_bert_sharded'), fixture('safetensors_dtypes', 'model.safetensors'), fixture('torch_dtypes', 'zip.pt'),
                     fixture('tp2_z1_w4', 'ckpt')):
            with ckpt.open(path) as m:
                want = {n: t.torch() for n, t in m.items() if t.dtype not in ('F4', 'C32')}
                state = {'module': {n: torch.zeros_like(t) for n, t in want.items()}}
                dcp.load(state, storage_reader=ckpt.dcp_reader(path), no_dist=True)
                for n, t in want.items():
                    self.assertEqual(bytes(state['module'][n].reshape(-1).view(torch.uint8).numpy()) if t.numel() else b'',
                                     m[n].tobytes(), n)

    def test_refused(self):
        import torch
        import torch.distributed.checkpoint as dcp
        for state, what in (({'lm_head.weight': torch.zeros(3)}, 'Size mismatch'), ({'lm_head.wight': torch.zeros(49, 12)}, 'Missing key'),
                            ({'other.lm_head.weight': torch.zeros(49, 12)}, 'Missing key')):
            with self.assertRaises(BaseException) as got:
                dcp.load(state, storage_reader=ckpt.dcp_reader(LLAMA), no_dist=True)
            self.assertIn(what, str(got.exception))
        state = {'other.lm_head.weight': torch.zeros(49, 12)}
        dcp.load(state, storage_reader=ckpt.dcp_reader(LLAMA, prefixes=['other']), no_dist=True)
        self.assertGreater(state['other.lm_head.weight'].abs().sum(), 0)

    def test_fsdp2_trains_on(self):
        if not has('transformers'):
            self.skipTest('transformers is not here')
        port_file = tempfile.mktemp(dir=self.scratch())
        p = subprocess.run([sys.executable, os.path.join(HERE, 'fsdp2.py'), LLAMA, port_file], capture_output=True, text=True, check=False,
                           timeout=300, env={**os.environ, 'GLOO_SOCKET_IFNAME': 'lo', 'OMP_NUM_THREADS': '1'})
        self.assertEqual(p.returncode, 0, p.stderr[-3000:])
        self.assertIn('trained on', p.stdout)
