# SPDX-License-Identifier: Apache-2.0
"""ckpt: open, convert, compare and verify checkpoints of large models, from Python.

    import ckpt
    with ckpt.open('run/checkpoint-500') as model:
        for name, tensor in model.items():
            print(name, tensor.dtype, tensor.shape)
        rows = model['lm_head.weight'][10:20].numpy()   # reads these rows, nothing else

Any format that the `ckpt` program reads: DeepSpeed ZeRO, DCP, FSDP, Megatron, Hugging Face, torch, safetensors, GGUF, numpy.
Nothing that a file contains is ever run.  numpy and torch are used where they are and wanted, and not needed.
"""
from __future__ import annotations

from ._checkpoint import Checkpoint, Known, open
from ._ops import Difference, Differences, Finding, Health, Run, TagHealth, convert, diff, doctor, merge, reshard, verify
from ._run import Report
from ._tensor import Extent, Tensor
from .errors import (CanceledError, CkptError, ClosedError, DiffersError, DoubtError, DtypeError, FormatError, InputOutputError,
                     LimitError, MismatchError, MissingError, MissingTensorError, UnsafeError, UnsupportedError, UsageError)

__version__ = '0.1.0'
__all__ = ['Checkpoint', 'Difference', 'Differences', 'Extent', 'Finding', 'Health', 'Known', 'Report', 'Run', 'TagHealth', 'Tensor',
           'convert', 'diff', 'doctor', 'merge', 'open', 'reshard', 'verify',
           'CanceledError', 'CkptError', 'ClosedError', 'DiffersError', 'DoubtError', 'DtypeError', 'FormatError', 'InputOutputError',
           'LimitError', 'MismatchError', 'MissingError', 'MissingTensorError', 'UnsafeError', 'UnsupportedError', 'UsageError']
