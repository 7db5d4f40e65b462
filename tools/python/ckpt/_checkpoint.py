# SPDX-License-Identifier: Apache-2.0
"""_checkpoint.py: an open checkpoint: a mapping from names to tensors, the tree of other values, and facts about it."""
from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from . import _lib, _tree
from ._handle import Handle
from ._lib import c, lib, text_of
from ._tensor import Tensor
from .errors import MissingTensorError, UsageError

CHECKS = ('whole', 'all', 'none')


class TrainingInfo(NamedTuple):
    """Facts about the training run that saved a checkpoint; None: unknown."""
    training: bool
    stage: Optional[int]
    world: Optional[int]
    step: Optional[int]
    tag: Optional[str]
    version: Optional[str]
    model_type: Optional[str]
    architecture: Optional[str]
    quantized: Optional[str]


class Checkpoint(Mapping):  # type: ignore[type-arg]
    """An open checkpoint: a mapping from names to lazy tensors, in the order of the checkpoint.

    It is a context manager, and any number of threads may read it.  After a fork the child must open it again (ClosedError).
    """

    def __init__(self, handle: Handle, check: str) -> None:
        self._handle, self._check = handle, check
        self._names: Optional[List[str]] = None
        self._tree: Any = self  # not read yet
        with handle.use() as pointer:
            self._count = int(lib().ckpt_map_tensor_count(pointer))
            #: the file or folder that was read, and the name of its format
            self.path: str = text_of(lib().ckpt_map_path(pointer))
            self.format: str = text_of(lib().ckpt_map_format(pointer))

    def __enter__(self) -> 'Checkpoint':
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Close the files.  Tensors taken from the checkpoint can no longer be read."""
        self._handle.close()

    @property
    def closed(self) -> bool:
        """True if the checkpoint can no longer be read."""
        return self._handle.closed

    def __repr__(self) -> str:
        return '<ckpt.Checkpoint %s %s, %d tensors%s>' % (self.path, self.format, self._count, ', closed' if self.closed else '')

    # ---- tensors ----

    def __len__(self) -> int:
        return self._count

    def names(self) -> List[str]:
        """The names, as a list."""
        if self._names is None:
            with self._handle.use() as pointer:
                at = lib().ckpt_map_tensor_at
                self._names = [text_of(at(pointer, i).contents.name) for i in range(self._count)]
        return list(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find(name) is not None

    def _find(self, name: str) -> Optional[Tensor]:
        with self._handle.use() as pointer:
            raw = None if '\0' in name else lib().ckpt_map_find(pointer, name.encode('utf-8', 'surrogateescape'))
            return Tensor(self._handle, raw, self._check) if raw else None

    def __getitem__(self, name: str) -> Tensor:
        found = self._find(name) if isinstance(name, str) else None
        if found is None:
            import difflib
            near = difflib.get_close_matches(str(name), self.names(), 1)
            raise MissingTensorError("%s: no tensor '%s'%s" % (self.path, name, "; the nearest is '%s'" % near[0] if near else ''),
                                     path=self.path, tensor=str(name), code=-6)
        return found

    # ---- everything else ----

    @property
    def tree(self) -> Any:
        """The values beside the tensors: dicts, lists, numbers, texts.  They are read at the first use."""
        if self._tree is self:
            self._tree = self.tree_at('')
        return self._tree

    def tree_at(self, path: str) -> Any:
        """A part of the tree: "optimizer_state_dict.loss_scaler"."""
        with self._handle.use() as pointer:
            return _tree.read(pointer, path) if lib().ckpt_map_values(pointer) else {}

    @property
    def facts(self) -> Dict[str, Any]:
        """Facts about the checkpoint, as in `ckpt info --json`: {"stage": 3, "world_size": 2 ...}."""
        out: Dict[str, Any] = {}
        key, text, number = c.c_char_p(), c.c_char_p(), c.c_bool()
        with self._handle.use() as pointer:
            i = 0
            while lib().ckpt_map_fact_at(pointer, i, c.byref(key), c.byref(text), c.byref(number)):
                name = text_of(key.value).lower().replace(' ', '_').replace('-', '_')
                value = text_of(text.value)
                out[name] = _number(value) if number.value else value
                i += 1
        return out

    @property
    def known(self) -> TrainingInfo:
        """The facts that programs use to make decisions."""
        k = _lib.sized(_lib.TrainingInfo)
        with self._handle.use() as pointer:
            lib().ckpt_map_training_info(pointer, c.byref(k))
            texts = [text_of(t) if t else None for t in (k.tag, k.version, k.model_type, k.architecture, k.quantized)]
        return TrainingInfo(bool(k.training), None if k.stage < 0 else k.stage, k.world or None, None if k.step < 0 else k.step, *texts)

    @property
    def metadata(self) -> Dict[str, str]:
        """Pairs of text that the format stores beside tensors (safetensors' __metadata__)."""
        out: Dict[str, str] = {}
        key, text = c.c_char_p(), c.c_char_p()
        with self._handle.use() as pointer:
            while lib().ckpt_map_metadata_at(pointer, len(out), c.byref(key), c.byref(text)):
                out[text_of(key.value)] = text_of(text.value)
        return out

    @property
    def files(self) -> Dict[str, int]:
        """The files of the checkpoint, with their sizes in bytes."""
        with self._handle.use() as pointer:
            return {text_of(lib().ckpt_map_file_path(pointer, i)): int(lib().ckpt_map_file_size(pointer, i))
                    for i in range(lib().ckpt_map_file_count(pointer))}

    @property
    def findings(self) -> List[Tuple[str, int, str]]:
        """Findings from opening: ("note" | "warning" | "error", code, text)."""
        with self._handle.use() as pointer:
            return _lib.findings_of(pointer)


def _number(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return float(text)


def open_opts(tag: Optional[str] = None, optimizer: bool = False, frozen: bool = True, as_file: bool = False,
              keep_slices: bool = False, slice_rules: Optional[str] = None, ignore_copies: bool = False,
              require_crc: bool = False, training: bool = False, order_text: Optional[str] = None) -> Any:
    """Make ckpt_open_opts from this package's arguments."""
    return _lib.sized(_lib.OpenOpts, tag=tag.encode('utf-8', 'surrogateescape') if tag is not None else None,
                      whole_checkpoint=not as_file, with_optimizer=optimizer, skip_frozen=not frozen, require_crc=require_crc,
                      keep_slices=keep_slices, slice_rules=slice_rules.encode() if slice_rules else None,
                      ignore_copies=ignore_copies, training=training, order_text=order_text.encode() if order_text else None)


def open(path: 'os.PathLike[str] | str', *, tag: Optional[str] = None, optimizer: bool = False, frozen: bool = True,
         check: str = 'whole', as_file: bool = False, keep_slices: bool = False, slice_rules: Optional[str] = None,
         ignore_copies: bool = False, require_crc: bool = False, training: bool = False,
         order_text: Optional[str] = None) -> Checkpoint:
    """Open a checkpoint of any format: a file, a model folder, a run, a tag folder, or one of their shards.  Reads only headers.

    tag            DeepSpeed: this tag instead of the one in `latest`
    optimizer      include the optimizer's state, as tensors named "exp_avg/<parameter>"
    frozen         include frozen parameters
    check          records to check by CRC-32, which requires reading each of them whole: "whole": for tensors that are read whole,
                   not for parts; "all": for parts too; "none"
    as_file        for a shard, open only this file, not the checkpoint to which it belongs
    keep_slices    keep the slices of tensor-parallel ranks separate, as "mp_rank_01/<name>"
    slice_rules    a universal_checkpoint_info (JSON) with the rules for joining slices
    ignore_copies  DeepSpeed: do not compare masters with the module's 16-bit copies
    require_crc    treat records without a checksum as an error
    training       read a torch file with a model and its optimizer as a run
    order_text     names of parameters, one per line, in the order of an optimizer that has only their numbers
    """
    if check not in CHECKS:
        raise UsageError("check=%r: expected 'whole', 'all' or 'none'" % (check,))
    opts = open_opts(tag, optimizer, frozen, as_file, keep_slices, slice_rules, ignore_copies, require_crc, training, order_text)
    return Checkpoint(Handle.open(path, opts), check)
