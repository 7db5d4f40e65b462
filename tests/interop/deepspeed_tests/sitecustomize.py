# SPDX-License-Identifier: Apache-2.0
"""Put our programs in the place of DeepSpeed's converters, in every Python process that has this folder on PYTHONPATH.

CKPT_BIN names the folder of the programs; with CKPT_PACKAGE, which names the folder of the Python package, its functions are taken
where it has them.  Each replaced function notes its call in the file CKPT_CALLS, so that a run that
never reached ours is not taken for one that passed.
"""
import fcntl
import importlib.abc
import importlib.machinery
import multiprocessing
import os
import subprocess
import sys
import tempfile


def call(program, *args):
    """Run one of our programs; its message is the exception's.

    Ranks take turns: some tests have every rank convert into one folder at once, and ours refuses a folder that another run
    is writing.
    """
    with open(os.environ['CKPT_CALLS'], 'a', encoding='utf-8') as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        f.write(program + '\n')
        f.flush()
        p = subprocess.run([os.path.join(os.environ['CKPT_BIN'], program), *map(str, args)], capture_output=True, text=True,
                           check=False)
    if p.returncode:
        raise RuntimeError('%s: exit %d: %s' % (program, p.returncode, p.stderr.strip()))


def options(tag, exclude_frozen_parameters):
    return (['-t', tag] if tag else []) + (['--exclude_frozen_parameters'] if exclude_frozen_parameters else [])


def state_dict(checkpoint_dir, tag=None, exclude_frozen_parameters=False, lazy_mode=False):
    """get_fp32_state_dict_from_zero_checkpoint"""
    import torch
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, 'weights.bin')
        call('zero_to_fp32', checkpoint_dir, out, *options(tag, exclude_frozen_parameters))
        return torch.load(out, weights_only=True)


def convert(checkpoint_dir, output_dir, max_shard_size='5GB', safe_serialization=False, tag=None, exclude_frozen_parameters=False):
    """convert_zero_checkpoint_to_fp32_state_dict"""
    call('zero_to_fp32', checkpoint_dir, output_dir, *options(tag, exclude_frozen_parameters),
         *(['--max_shard_size', max_shard_size] if max_shard_size else []), *(['--safe_serialization'] if safe_serialization else []))


def to_universal(args):
    """ds_to_universal.main"""
    call('ds_to_universal', '--input_folder', args.input_folder, '--output_folder', args.output_folder,
         *(['--inject_missing_state'] if getattr(args, 'inject_missing_state', False) else []),
         *([] if getattr(args, 'strict', True) else ['--no_strict']))


OURS = {
    'deepspeed.utils.zero_to_fp32': {'get_fp32_state_dict_from_zero_checkpoint': state_dict,
                                     'convert_zero_checkpoint_to_fp32_state_dict': convert},
    'deepspeed.checkpoint.ds_to_universal': {'main': to_universal},
    'unit.util': {'bf16_required_version_check': lambda *_: True},   # it asks for NCCL; a processor needs none
}


def noted(name):
    """A function of the Python package, whose calls are noted too."""
    def function(*args, **kwargs):
        import ckpt.deepspeed
        with open(os.environ['CKPT_CALLS'], 'a', encoding='utf-8') as f:
            f.write('ckpt.deepspeed.%s\n' % name)
        return ckpt.deepspeed.FUNCTIONS[name](*args, **kwargs)
    return function


if os.environ.get('CKPT_PACKAGE'):
    sys.path.append(os.environ['CKPT_PACKAGE'])
    OURS['deepspeed.utils.zero_to_fp32'] = {n: noted(n) for n in (
        'get_fp32_state_dict_from_zero_checkpoint', 'convert_zero_checkpoint_to_fp32_state_dict', 'load_state_dict_from_zero_checkpoint',
        'convert_zero_checkpoint_to_state_dict')}


class Finder(importlib.abc.MetaPathFinder):
    """Lets these modules load as always, then replaces the functions in them."""

    def find_spec(self, name, path, target=None):
        if name not in OURS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            vars(module).update(OURS[name])
        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder())
# Every rank of every test is forked from one server process: it imports torch and DeepSpeed once, not each rank.
multiprocessing.set_forkserver_preload(['warm'])
