# SPDX-License-Identifier: Apache-2.0
"""ckpt.deepspeed: DeepSpeed's functions that consolidate ZeRO checkpoints, with its names and arguments (release 0.19.8).

    import ckpt.deepspeed
    ckpt.deepspeed.install()        # Trainer, Lightning, accelerate and DeepSpeed itself now call these

State dicts come from ckpt.open: they need memory only for the returned tensors, and every CRC is compared.  The bundled
zero_to_fp32 and zero_to_torch write files.  This module needs torch; install() needs DeepSpeed too.
"""
from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any, Dict, Iterator, List, Optional, Union

from . import _run
from ._checkpoint import open
from ._tensor import Tensor
from .errors import InputOutputError, UsageError

_DTYPES = {'float32': 'fp32', 'fp32': 'fp32', 'float16': 'fp16', 'fp16': 'fp16', 'bfloat16': 'bf16', 'bf16': 'bf16'}


class LazyTensor:
    """A tensor in lazy_mode: `shape`, `dtype`, and `contiguous()`, which reads it."""

    def __init__(self, tensor: Tensor, dtype: Optional[str]) -> None:
        import torch
        from . import _dtype
        self._tensor, self._as = tensor, dtype
        self.shape = torch.Size(tensor.shape)
        self.dtype = torch.float32 if dtype else _dtype.torch_dtype(_dtype.parse(tensor.dtype), tensor.name)

    def contiguous(self) -> Any:
        """Read the tensor into memory."""
        return self._tensor.torch(self._as)

    def numel(self) -> int:
        """Number of elements."""
        return self._tensor.size

    def __repr__(self) -> str:
        return 'LazyTensor(%s, %s)' % (list(self.shape), self.dtype)


def _tag(checkpoint_dir: Any, tag: Optional[str]) -> str:
    """Find the tag; raise DeepSpeed's errors if there is none."""
    if tag is None:
        latest = os.path.join(checkpoint_dir, 'latest')
        if not os.path.isfile(latest):
            raise ValueError("Unable to find 'latest' file at %s" % latest)
        with io.open(latest, encoding='utf-8') as f:
            tag = f.read().strip()
    folder = os.path.join(checkpoint_dir, tag)
    if not os.path.isdir(folder):
        raise FileNotFoundError("Directory '%s' doesn't exist" % folder)
    return tag


def get_fp32_state_dict_from_zero_checkpoint(checkpoint_dir: Any, tag: Optional[str] = None, exclude_frozen_parameters: bool = False,
                                             lazy_mode: bool = False) -> Dict[str, Any]:
    """Load a ZeRO checkpoint as one state dict: masters and floating buffers in float32; frozen parameters in their saved dtype.

    lazy_mode   the values are `LazyTensor`s: `.contiguous()` reads one
    """
    checkpoint = open(checkpoint_dir, tag=_tag(checkpoint_dir, tag), frozen=not exclude_frozen_parameters)
    lazy: Dict[str, Any] = {}
    for name, t in checkpoint.items():
        owner = t.owner
        if owner in lazy:
            lazy[name] = lazy[owner]
        else:
            floats = t.dtype[0] == 'F' or t.dtype == 'BF16'
            lazy[name] = LazyTensor(t, 'F32' if floats and t.role != 'frozen' else None)
    if lazy_mode:
        return lazy
    made: Dict[int, Any] = {}
    for name, x in lazy.items():
        if id(x) not in made:
            made[id(x)] = x.contiguous()
    checkpoint.close()
    return {name: made[id(x)] for name, x in lazy.items()}


def convert_zero_checkpoint_to_state_dict(checkpoint_dir: Any, output_dir: Any, dtype: Any = 'float32',
                                          max_shard_size: Union[int, str, None] = '5GB', safe_serialization: bool = False,
                                          tag: Optional[str] = None, exclude_frozen_parameters: bool = False) -> None:
    """Write the consolidated weights into a folder, as pytorch_model*.bin or model*.safetensors with an index.

    dtype            dtype of floating tensors: float32, float16 or bfloat16, as text or torch's
    max_shard_size   maximum size of a file, "5GB" or bytes; None: one file
    """
    name = _DTYPES.get(str(dtype).replace('torch.', '').lower())
    if name is None:
        raise ValueError('Unsupported output dtype %r. Choose one of: %s' % (dtype, ', '.join(sorted(_DTYPES))))
    _write('zero_to_torch', ['--dtype', name], checkpoint_dir, output_dir, max_shard_size, safe_serialization, tag, exclude_frozen_parameters)


def convert_zero_checkpoint_to_fp32_state_dict(checkpoint_dir: Any, output_dir: Any, max_shard_size: Union[int, str, None] = '5GB',
                                               safe_serialization: bool = False, tag: Optional[str] = None,
                                               exclude_frozen_parameters: bool = False) -> None:
    """convert_zero_checkpoint_to_state_dict in float32."""
    _write('zero_to_fp32', [], checkpoint_dir, output_dir, max_shard_size, safe_serialization, tag, exclude_frozen_parameters)


def _write(name: str, options: List[str], checkpoint_dir: Any, output_dir: Any, max_shard_size: Union[int, str, None],
           safe_serialization: bool, tag: Optional[str], exclude_frozen_parameters: bool) -> None:
    options += ['--max_shard_size', _run.size_word(max_shard_size or 0), '--tag', _tag(checkpoint_dir, tag)]
    options += ['--safe_serialization'] * safe_serialization + ['--exclude_frozen_parameters'] * exclude_frozen_parameters
    output = os.fspath(output_dir)
    # a folder even if it is named like a file, as in the script
    os.makedirs(output, exist_ok=True)
    with _turn(output):
        _run.run_drop_in(name, [*options, '--', os.fspath(checkpoint_dir), os.path.join(output, '')], os.fspath(checkpoint_dir))


def _private_folder() -> str:
    """Find a local folder that only this user can open, because a lock held by another user would block for ever."""
    import stat
    import tempfile
    tried = [os.environ.get('XDG_RUNTIME_DIR', ''), os.path.join(tempfile.gettempdir(), 'ckpt-%d' % os.getuid()),
             os.path.join(os.path.expanduser('~'), '.cache', 'ckpt')]
    for folder in filter(os.path.isabs, tried):
        with contextlib.suppress(OSError):
            if folder != tried[0]:
                with contextlib.suppress(FileExistsError):
                    os.makedirs(folder, mode=0o700)
            st = os.lstat(folder)
            if stat.S_ISDIR(st.st_mode) and st.st_uid == os.getuid() and not st.st_mode & 0o077:
                return folder
    raise InputOutputError('the lock of the ranks needs a folder that is private to this user: tried %s; '
                    'set XDG_RUNTIME_DIR to a folder of mode 0700' % ', '.join(filter(None, tried)))


@contextlib.contextmanager
def _turn(output: str) -> Iterator[None]:
    """Make ranks of one machine and one user take turns if they write the same folder."""
    import fcntl
    import hashlib
    name = 'ckpt-%s.lock' % hashlib.sha256(os.fsencode(os.path.realpath(output))).hexdigest()[:24]
    fd = os.open(os.path.join(_private_folder(), name), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def load_state_dict_from_zero_checkpoint(model: Any, checkpoint_dir: Any, tag: Optional[str] = None) -> Any:
    """Move the model to the CPU, load the consolidated weights into it, and return it."""
    state_dict = get_fp32_state_dict_from_zero_checkpoint(checkpoint_dir, tag)
    model = model.cpu()
    model.load_state_dict(state_dict, strict=False)
    return model


FUNCTIONS = {f.__name__: f for f in (get_fp32_state_dict_from_zero_checkpoint, convert_zero_checkpoint_to_state_dict,
                                     convert_zero_checkpoint_to_fp32_state_dict, load_state_dict_from_zero_checkpoint)}
_replaced: List[Any] = []  # (module, name, original function)


def install() -> None:
    """Replace DeepSpeed's functions by these: in deepspeed.utils.zero_to_fp32, and in modules that have already imported them."""
    import deepspeed.utils.zero_to_fp32 as theirs
    if _replaced:
        return
    old = {name: vars(theirs)[name] for name in FUNCTIONS if name in vars(theirs)}
    if 'get_fp32_state_dict_from_zero_checkpoint' not in old:
        raise UsageError('deepspeed.utils.zero_to_fp32 has no get_fp32_state_dict_from_zero_checkpoint: this DeepSpeed is not supported')
    for module in [m for m in list(sys.modules.values()) if m is not None and m.__name__ != __name__]:
        for name, was in old.items():
            if getattr(module, '__dict__', {}).get(name) is was:
                setattr(module, name, FUNCTIONS[name])
                _replaced.append((module, name, was))


def uninstall() -> None:
    """Restore the functions that install() replaced."""
    while _replaced:
        module, name, was = _replaced.pop()
        setattr(module, name, was)
