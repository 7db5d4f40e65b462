# SPDX-License-Identifier: Apache-2.0
"""ckpt: open, convert, compare and verify checkpoints of large models, from Python.

    import ckpt
    with ckpt.open('run/checkpoint-500') as model:
        for name, tensor in model.items():
            print(name, tensor.dtype, tensor.shape)
        rows = model['lm_head.weight'][10:20].numpy()   # reads these rows, nothing else

It opens every format that the `ckpt` program reads: DeepSpeed ZeRO, DCP, FSDP, Megatron, Hugging Face, torch, safetensors, GGUF, numpy.
No content of a file is ever executed.  numpy and torch are optional: they are used only if installed and requested.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Sequence

from ._checkpoint import Checkpoint, TrainingInfo, open
from ._tensor import Extent, Tensor
from .errors import (CanceledError, CkptError, ClosedError, DiffersError, DigestError, DoubtError, DtypeError, FormatError,
                     InputOutputError, LimitError, MismatchError, MissingError, MissingTensorError, UnsafeError, UnsupportedError, UsageError)

if TYPE_CHECKING:
    from ._dcp import CkptReader
    from ._ops import (Difference, Differences, Finding, GroupStats, Hashed, Health, Manifest, Run, TagHealth, convert, diff, doctor,
                       manifest, merge, prove, reshard, verify)
    from ._run import Report
    from ._safe import safe_open
    from ._save import save
    from ._sign import sign, verify_signature
    from ._view import Counts, View, ViewFile, view

__version__ = '0.1.0'
__all__ = ['Checkpoint', 'Counts', 'Difference', 'Differences', 'Extent', 'Finding', 'GroupStats', 'Hashed', 'Health', 'Manifest',
           'TrainingInfo', 'Report', 'Run', 'TagHealth',
           'Tensor', 'View', 'ViewFile',
           'convert', 'dcp_reader', 'diff', 'doctor', 'manifest', 'merge', 'open', 'prove', 'reshard', 'safe_open', 'save', 'sign', 'verify',
           'verify_signature', 'view',
           'CanceledError', 'CkptError', 'ClosedError', 'DiffersError', 'DigestError', 'DoubtError', 'DtypeError', 'FormatError',
           'InputOutputError', 'LimitError', 'MismatchError', 'MissingError', 'MissingTensorError', 'UnsafeError', 'UnsupportedError', 'UsageError']

# modules that are loaded at the first use, so that importing this package takes no time
_LATER = {**dict.fromkeys(('Difference', 'Differences', 'Finding', 'GroupStats', 'Hashed', 'Health', 'Manifest', 'Run', 'TagHealth',
                           'convert', 'diff', 'doctor', 'manifest', 'merge', 'prove', 'reshard', 'verify'), '_ops'),
          'Report': '_run', 'safe_open': '_safe', 'save': '_save', 'sign': '_sign', 'verify_signature': '_sign',
          **dict.fromkeys(('Counts', 'View', 'ViewFile', 'view'), '_view')}


def __getattr__(name: str) -> Any:
    from importlib import import_module
    if name == 'deepspeed':
        return import_module('.deepspeed', __name__)
    if name not in _LATER:
        raise AttributeError("module 'ckpt' has no attribute %r" % name)
    found = getattr(import_module('.' + _LATER[name], __name__), name)
    globals()[name] = found
    return found


def __dir__() -> List[str]:
    return sorted({*globals(), *_LATER, 'deepspeed'})


def dcp_reader(path: Any, *, prefixes: Sequence[str] = (), optimizer: bool = True, **options: Any) -> 'CkptReader':
    """A StorageReader of torch.distributed.checkpoint over any checkpoint that `open` opens.

        dcp.load(state_dict, storage_reader=ckpt.dcp_reader('run/checkpoint-500'))

    loads weights into models of any world size (FSDP2, tensor parallel), and moments, step counts and groups if the checkpoint has them.

    prefixes    keys of the state dict above the model's or the optimizer's names, in addition to the usual ones ("model", "optim" ...)
    optimizer   load the optimizer's state too
    options     further arguments of ckpt.open
    """
    from ._dcp import WRAPPERS, CkptReader
    return CkptReader(path, (*WRAPPERS, *prefixes), dict(options, optimizer=optimizer))
