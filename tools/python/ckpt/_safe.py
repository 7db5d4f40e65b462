# SPDX-License-Identifier: Apache-2.0
"""_safe.py: safe_open with safetensors' arguments and methods, for any checkpoint that ckpt can open."""
from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Union

from ._checkpoint import open
from ._tensor import Tensor
from .errors import UsageError


class Slice:
    """A tensor for reading in parts: get_shape(), get_dtype(), and [...], which reads."""

    def __init__(self, owner: 'safe_open', tensor: Tensor) -> None:
        self._owner, self._tensor = owner, tensor

    def get_shape(self) -> List[int]:
        """The sizes of its axes."""
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        """The name of the dtype: "F32"."""
        return self._tensor.dtype

    def __getitem__(self, index: Any) -> Any:
        return self._owner._made(self._tensor[index])


class safe_open:  # noqa: N801  safetensors' name
    """safetensors' safe_open over any checkpoint: `with ckpt.safe_open(path, framework="pt") as f: f.get_tensor(name)`.

    framework   "pt" (torch) or "np" (numpy), or their longer names
    device      a torch device, or the number of a GPU
    options     arguments of ckpt.open
    """

    def __init__(self, filename: 'Union[str, os.PathLike[str]]', framework: str = 'pt', device: Any = 'cpu', **options: Any) -> None:
        kind = {'pt': 'pt', 'torch': 'pt', 'pytorch': 'pt', 'np': 'np', 'numpy': 'np'}.get(framework)
        if kind is None:
            raise UsageError("framework=%r: expected 'pt' or 'np'" % (framework,))
        if kind == 'np' and device not in ('cpu', None):
            raise UsageError('device=%r: numpy supports only the device cpu' % (device,))
        self._kind, self._device = kind, 'cuda:%d' % device if isinstance(device, int) else device
        self._checkpoint = open(filename, **options)

    def __enter__(self) -> 'safe_open':
        return self

    def __exit__(self, *_: Any) -> None:
        self._checkpoint.close()

    def _made(self, t: Tensor) -> Any:
        if self._kind == 'np':
            return t.numpy()
        return t.torch(device=None if self._device in ('cpu', None) else self._device)

    def keys(self) -> List[str]:
        """The names in alphabetical order, without tied names, as in safetensors."""
        return sorted(self.offset_keys())

    def offset_keys(self) -> List[str]:
        """The same names, in the order of the checkpoint."""
        return [name for name in self._checkpoint.names() if self._checkpoint[name].owner is None]

    def metadata(self) -> Optional[Dict[str, str]]:
        """Pairs of text beside the tensors, or None."""
        return self._checkpoint.metadata or None

    def get_tensor(self, name: str) -> Any:
        """Read a whole tensor."""
        return self._made(self._checkpoint[name])

    def get_slice(self, name: str) -> Slice:
        """Return a tensor for reading in parts: f.get_slice(name)[2:5]."""
        return Slice(self, self._checkpoint[name])
