# SPDX-License-Identifier: Apache-2.0
"""_dcp.py: any checkpoint as a StorageReader of torch.distributed.checkpoint.

DCP requests boxes of tensors by their names in a state dict; each rank reads its own boxes, in the dtype of their destinations.
A state dict's names begin with the keys above them ("model.layer.weight", "optim.state.layer.weight.exp_avg"), which the
checkpoint does not have.  If a name is not in the checkpoint, the usual keys are removed from its left.
"""
from __future__ import annotations

import io
import os
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Union

import torch
from torch.distributed.checkpoint import StorageReader
from torch.distributed.checkpoint.metadata import (BytesStorageMetadata, ChunkStorageMetadata, Metadata, TensorProperties,
                                                   TensorStorageMetadata)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner
from torch.futures import Future

from . import _dtype
from ._checkpoint import Checkpoint, open
from ._lib import lib
from ._tensor import Tensor
from .errors import DtypeError, MismatchError, UsageError

WRAPPERS = ('app', 'state_dict', 'model', 'module', 'model_state_dict', '_orig_mod', 'net', 'optim', 'optimizer', 'optimizer_state_dict',
            'opt', 'train_state')
# settings that torch's optimizers keep in a group, and DeepSpeed's do not; they do not change results
SWITCHES = {'maximize': False, 'foreach': None, 'capturable': False, 'differentiable': False, 'fused': None}


class _Value(NamedTuple):
    """A value that is no tensor."""
    value: Any


class _Groups:
    """The optimizer's groups, with the names of their parameters."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        tree = checkpoint.tree
        self.groups: List[Dict[str, Any]] = _find(tree, 'param_groups', 5) or []
        self.names: List[List[str]] = []
        trained = list(dict.fromkeys(n.split('/', 1)[1] for n, t in checkpoint.items() if t.role == 'state'))
        shapes = _find(tree, 'param_shapes', 3)
        for i, group in enumerate(self.groups):
            params = group.get('params', [])
            if params and all(isinstance(p, str) for p in params):
                self.names.append(list(params))
            elif isinstance(shapes, (list, tuple)) and len(shapes) == len(self.groups):
                self.names.append(list(shapes[i]))
            elif len(self.groups) == 1:
                self.names.append(trained)
            else:
                self.groups = []  # the parameters of each group are unknown
                return
        self.of = {name: i for i, names in enumerate(self.names) for name in names}
        config = _find(tree, 'ds_config', 4, dict) or {}
        kind = config.get('optimizer', {}) if isinstance(config.get('optimizer'), dict) else {}
        # DeepSpeed's Adam decays as AdamW does, unless adam_w_mode is false
        self.decoupled = bool((kind.get('params') or {}).get('adam_w_mode', True)) \
            if str(kind.get('type', '')).lower() in ('adam', 'adamw') else None
        self.amsgrad = any(n.startswith('max_exp_avg_sq/') for n in checkpoint)

    def look(self, key: str) -> Optional[_Value]:
        """The value of "0.lr", "layer.weight.lr", or "0.params"; None: unknown."""
        head, _, member = key.rpartition('.')
        if not head or not self.groups:
            return None
        i = int(head) if head.isdigit() else self.of.get(head, -1)
        if not 0 <= i < len(self.groups):
            return None
        if member == 'params':
            return _Value(list(self.names[i])) if head.isdigit() else _Value([head])
        if member in self.groups[i]:
            return _Value(self.groups[i][member])
        if member == 'amsgrad':
            return _Value(self.amsgrad)
        if member == 'decoupled_weight_decay' and self.decoupled is not None:
            return _Value(self.decoupled)
        return _Value(SWITCHES[member]) if member in SWITCHES else None


def _find(tree: Any, key: str, depth: int, kind: Any = (list, tuple)) -> Any:
    """Find the first value of a key, searching level by level from the top."""
    level = [tree]
    for _ in range(depth):
        below: List[Any] = []
        for x in level:
            if isinstance(x, dict):
                if isinstance(x.get(key), kind):
                    return x[key]
                below += [v for v in x.values() if isinstance(v, dict)]
        level = below
    return None


class Names(Dict[str, Any]):
    """state_dict_metadata, which looks a name up when DCP requests it."""

    def __init__(self, checkpoint: Checkpoint, prefixes: Iterable[str]) -> None:
        super().__init__()
        self.checkpoint, self.prefixes = checkpoint, tuple(prefixes)
        self.found: Dict[str, Union[Tensor, _Value, None]] = {}
        self._groups: Optional[_Groups] = None

    def resolve(self, key: str) -> Union[Tensor, _Value, None]:
        """The tensor or value for a name of the state dict, or None."""
        if key not in self.found:
            found, rest = self._exact(key), key
            while found is None:
                head, dot, rest = rest.partition('.')
                if not dot or head not in self.prefixes:
                    break
                found = self._exact(rest)
            self.found[key] = found
        return self.found[key]

    def _exact(self, key: str) -> Union[Tensor, _Value, None]:
        found = self.checkpoint._find(key)
        if found is not None:
            return found
        kind, _, rest = key.partition('.')
        if kind == 'state':  # optimizer state: "state.<parameter>.<name>"
            parameter, _, name = rest.rpartition('.')
            return self.checkpoint._find('%s/%s' % (name, parameter))
        if kind == 'param_groups':
            if self._groups is None:
                self._groups = _Groups(self.checkpoint)
            return self._groups.look(rest)
        return None

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.resolve(key) is not None

    def __getitem__(self, key: str) -> Any:
        found = self.resolve(key)
        if found is None:
            raise KeyError(key)
        if isinstance(found, _Value):
            return BytesStorageMetadata()
        shape = torch.Size(found.shape)
        return TensorStorageMetadata(properties=TensorProperties(dtype=_torch_dtype(found)), size=shape,
                                     chunks=[ChunkStorageMetadata(offsets=torch.Size([0] * len(shape)), sizes=shape)])

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default


def _torch_dtype(t: Tensor) -> Any:
    try:
        return _dtype.torch_dtype(_dtype.parse(t.dtype), t.name)
    except DtypeError:
        return torch.float32  # packed numbers are read as floats


class CkptReader(StorageReader):
    """The StorageReader that dcp_reader returns."""

    def __init__(self, path: Any, prefixes: Iterable[str], options: Dict[str, Any]) -> None:
        self._path, self._prefixes, self._options = path, tuple(prefixes), options
        self._names: Optional[Names] = None

    def _opened(self) -> Names:
        if self._names is None:
            self._names = Names(open(self._path, **self._options), self._prefixes)
        return self._names

    def reset(self, checkpoint_id: Union[str, 'os.PathLike[str]', None] = None) -> None:
        """Use another path, if dcp.load was called with one."""
        if checkpoint_id and checkpoint_id != self._path:
            self._path, self._names = checkpoint_id, None

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return names, shapes and dtypes."""
        return Metadata(state_dict_metadata=self._opened())

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Do nothing, because read_metadata has opened the checkpoint."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Return the plan unchanged."""
        return plan

    def prepare_global_plan(self, plans: List[LoadPlan]) -> List[LoadPlan]:
        """Return the plans unchanged, because every rank reads for itself."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> 'Future[None]':
        """Read the boxes that this rank requests, and the values."""
        names = self._opened()
        for item in plan.items:
            found = names.resolve(item.storage_index.fqn)
            if item.type == LoadItemType.BYTE_IO:
                if not isinstance(found, _Value):
                    raise UsageError('%s: %s is not a value' % (names.checkpoint.path, item.storage_index.fqn))
                held = io.BytesIO()
                torch.save(found.value, held)
                held.seek(0)
                planner.load_bytes(item, held)
                continue
            if not isinstance(found, Tensor):
                raise UsageError('%s: %s is not a tensor' % (names.checkpoint.path, item.storage_index.fqn))
            target = planner.resolve_tensor(item).detach()
            part = found[tuple(slice(o, o + n) for o, n in zip(item.storage_offsets, item.lengths))]
            _read(part, target)
            planner.commit_tensor(item, target)
        future: 'Future[None]' = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Union[str, 'os.PathLike[str]']) -> bool:
        """Return False, because only an explicit call may choose this reader."""
        return False


def _read(part: Tensor, target: Any) -> None:
    """Read a box into a tensor: directly if it is dense and in host memory, else through a temporary one."""
    if tuple(target.shape) != part.shape:
        raise MismatchError('tensor %s: the selection has shape %s, the target has %s' % (part.name, list(part.shape), list(target.shape)),
                            tensor=part.name, code=-7)
    code, wide = _dtype.torch_code(target.dtype), part._code
    converts = code == wide or bool(lib().ckpt_dtype_converts(code, wide))
    if converts and target.device.type == 'cpu' and target.is_contiguous():
        if target.numel():
            part.read_into(target.data_ptr(), code)
    elif converts:
        target.copy_(part.torch(target.dtype))
    else:
        target.copy_(part.torch())


