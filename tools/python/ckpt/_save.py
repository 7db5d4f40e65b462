# SPDX-License-Identifier: Apache-2.0
"""_save.py: arrays in the program's memory, written as a checkpoint of any format.

The library reads arrays of numpy and torch where they are, while it writes; other objects with a buffer, too, unless they are
read-only, and then it reads a copy.
"""
from __future__ import annotations

import contextlib
import os
from typing import Any, Callable, Mapping, NamedTuple, Optional, Tuple, Union

from . import _dtype, _lib
from ._lib import c, check, lib, text_of
from ._run import Job, Progress, Report, report_of
from ._tensor import Tensor
from ._view import target_of
from .errors import DtypeError, UnsupportedError, UsageError

Path = Union[str, 'os.PathLike[str]']
# format characters of the struct module, by kind and size of the items
ITEMS = {**{(k, n): 'I%d' % (8 * n) for k in 'bhilq' for n in (1, 2, 4, 8)}, **{(k, n): 'U%d' % (8 * n) for k in 'BHILQ' for n in (1, 2, 4, 8)},
         ('e', 2): 'F16', ('f', 4): 'F32', ('d', 8): 'F64', ('?', 1): 'BOOL'}


class Bytes(NamedTuple):
    """The elements of an array: row-major, little-endian, without gaps."""
    code: int  # of their dtype
    shape: Tuple[int, ...]
    address: int
    owner: Any  # keeps the bytes alive


def _of_bytes(code: int, shape: Tuple[int, ...], data: bytes) -> Bytes:
    return Bytes(code, shape, c.cast(c.c_char_p(data), c.c_void_p).value or 0, data)


def _of_torch(name: str, value: Any) -> Bytes:
    if hasattr(value, 'to_local'):
        raise UnsupportedError("array '%s': a %s holds the part of one rank; pass its full_tensor()" % (name, type(value).__name__), tensor=name)
    if str(value.layout) != 'torch.strided':
        raise UnsupportedError("array '%s': expected a dense tensor, found %s; pass its to_dense()" % (name, value.layout), tensor=name)
    if value.is_meta:
        raise UnsupportedError("array '%s': a tensor on the device meta has no values" % name, tensor=name)
    t = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if not t.data_ptr() and t.numel():
        raise UnsupportedError("array '%s': a %s has no values in memory" % (name, type(value).__name__), tensor=name)
    return Bytes(_dtype.torch_code(t.dtype), tuple(t.shape), t.data_ptr(), t)


def _of_numpy(value: Any) -> Bytes:
    import numpy
    if isinstance(value, numpy.ma.MaskedArray):
        raise UsageError('a masked array has elements without values; pass its filled()')
    a = numpy.asarray(value, order='C')
    if not a.dtype.isnative:
        a = a.astype(a.dtype.newbyteorder('='))
    return Bytes(_dtype.parse(a.dtype), a.shape, a.ctypes.data, a)


def _of_buffer(value: Any) -> Bytes:
    view = memoryview(value)
    kind = view.format.lstrip('@=<')
    name = ITEMS.get((kind, view.itemsize))
    if name is None:
        raise DtypeError('%r is not the format of a known dtype' % view.format)
    code, shape = _dtype.parse(name), tuple(view.shape or ())
    if view.readonly or not view.c_contiguous or not view.nbytes:
        return _of_bytes(code, shape, view.tobytes())
    room = (c.c_char * view.nbytes).from_buffer(view)
    return Bytes(code, shape, c.addressof(room), room)


def _bytes_of(name: str, value: Any) -> Bytes:
    """Find the elements of an array; an error names it."""
    try:
        if isinstance(value, Tensor):
            return _of_bytes(_dtype.parse(value.dtype), value.shape, value.tobytes())
        if hasattr(value, 'data_ptr'):
            return _of_torch(name, value)
        return _of_numpy(value) if hasattr(value, '__array_interface__') else _of_buffer(value)
    except (DtypeError, UsageError) as x:  # both before TypeError, which is a class of DtypeError
        raise type(x)("array '%s': %s" % (name, x), tensor=name) from None
    except TypeError:
        raise UsageError("array '%s': expected an array of numpy or torch, a ckpt.Tensor or an object with a buffer, found %s" %
                         (name, type(value).__name__), tensor=name) from None


def _text(text: Any, what: str) -> bytes:
    """A text for the library."""
    if not isinstance(text, str) or '\0' in text:
        raise UsageError('%s must be a text without zero bytes, not %r' % (what, text))
    return text.encode('utf-8', 'surrogateescape')


def _put(pointer: Any, arrays: Mapping[str, Any], metadata: Mapping[str, str], keep: Callable[[Any], Any]) -> None:
    """Put arrays and pairs of texts into a map; `keep` gets the owners of the bytes."""
    err = _lib.Err()
    for name, value in arrays.items():
        found = _bytes_of(name, value) if isinstance(name, str) else None
        raw = _text(name, 'the name of an array')
        assert found
        keep(found.owner)
        shape = (c.c_uint64 * max(1, len(found.shape)))(*found.shape)
        array = _lib.sized(_lib.Array, name=raw, dtype=found.code, ndim=len(found.shape), shape=shape, data=found.address)
        check(lib().ckpt_map_put(pointer, c.byref(array), c.byref(err)), err, tensor=name)
    for key, text in metadata.items():
        check(lib().ckpt_map_put_metadata(pointer, _text(key, 'a key of metadata'), _text(text, 'metadata'), c.byref(err)), err)


def save(arrays: Mapping[str, Any], path: Path, *, to: Optional[str] = None, dtype: Any = None, metadata: Optional[Mapping[str, str]] = None,
         force: bool = False, strict: bool = False, allow_overflow: bool = False, memory: int = 0, jobs: int = 0,
         progress: Progress = None, **options: Any) -> Report:
    """Write arrays in memory as a checkpoint: a file appears complete, or not at all.

        ckpt.save({'w': numpy.zeros((2, 3), 'f4')}, 'w.safetensors', metadata={'step': '7'})

    arrays     by name: arrays of numpy, tensors of torch (on any device), ckpt.Tensors, objects with a buffer.  Do not change them
               before the call returns.  An array under two names is written twice
    to         format: "safetensors", "npz", "torch", "hf" ...; default: from the suffix of path.  Layout maps are not applied
    dtype      of floating arrays; None: that of each array.  A value that does not fit is an error, unless allow_overflow
    metadata   pairs of texts, for formats that store them
    force      replace an existing output
    strict     refuse NaN and infinity
    options    further members of ckpt_target, as of ckpt.view: max_shard_size (bytes), dtypes ...
    Returns    the counts of the run, `files` (paths and bytes) and `findings` (what the output leaves out or changes)
    """
    raw, err = _lib.path_bytes(path), _lib.Err()
    name = to.encode() if to is not None else lib().ckpt_format_from_path(raw)
    if name is None:
        raise UsageError('%s: the suffix does not name a format: use to=' % os.fsdecode(raw), path=os.fsdecode(raw))
    info = lib().ckpt_format_find(name)
    if not info:
        raise UsageError("'%s' is not a known format" % to)
    target = target_of(info.contents, path, dtype, None, 'refuse', options)
    check(lib().ckpt_target_check(c.byref(target), c.byref(err)), err)
    job, report, owners = Job(progress, 'save', memory, jobs), _lib.sized(_lib.RunReport), []
    job.opts.force, job.opts.strict, job.opts.allow_overflow = force, strict, allow_overflow
    with contextlib.ExitStack() as undo:
        pointer, made, plan = c.c_void_p(), c.c_void_p(), c.c_void_p()
        check(lib().ckpt_map_new(c.byref(pointer), b'arrays', c.byref(err)), err)
        undo.callback(lib().ckpt_map_free, pointer)
        _put(pointer, arrays, metadata or {}, owners.append)
        check(lib().ckpt_layout(c.byref(made), pointer, c.byref(target), c.byref(err)), err, path=os.fsdecode(raw))
        undo.callback(lib().ckpt_map_free, made)
        check(lib().ckpt_plan_new(c.byref(plan), pointer, made, c.byref(job.opts), c.byref(err)), err, path=os.fsdecode(raw))
        undo.callback(lib().ckpt_plan_free, plan)
        rc = job.run(lambda: lib().ckpt_plan_run(plan, c.byref(job.opts), c.byref(report), c.byref(err)))
        check(rc, err, path=os.fsdecode(raw))
        out = report_of(report)
        out['files'] = [{'path': text_of(lib().ckpt_map_file_path(made, i)), 'bytes': int(lib().ckpt_map_file_size(made, i))}
                        for i in range(lib().ckpt_map_file_count(made))]
        out['findings'] = _lib.findings_of(made)
    return out
