# SPDX-License-Identifier: Apache-2.0
"""_tensor.py: one tensor of an open checkpoint, or a part of one.  Values are read only when they are requested."""
from __future__ import annotations

import operator
import struct
import sys
from typing import Any, List, NamedTuple, Optional, Tuple

from . import _dtype, _lib
from ._handle import Handle
from ._lib import c, check, lib, text_of
from .errors import DtypeError, UnsupportedError, UsageError

ROLES = ('weight', 'frozen', 'buffer', 'state', 'other')


class Extent(NamedTuple):
    """A piece of a tensor, and the location of its bytes."""
    file: Optional[str]  # None: the values are in memory, such as a step count from the tree of values
    record: Optional[str]  # record of an archive; None: the file itself
    offset: Optional[int]  # offset of the first element in the file; None: compressed
    start: Tuple[int, ...]  # in elements of each axis, or of the tensor flattened row-major
    count: Tuple[int, ...]
    stride: Tuple[int, ...]  # in bytes
    flat: bool


class Axis(NamedTuple):
    """The selection in one axis; an axis that is not kept has one element and is not in the shape."""
    start: int
    count: int
    step: int
    kept: bool = True


def _pick(axis: Axis, index: Any, name: str) -> Axis:
    """Apply an index or a slice to an axis that may be a selection already."""
    if isinstance(index, slice):
        start, stop, step = index.indices(axis.count)
        if step < 0:
            raise UsageError("tensor '%s': expected a slice with a step above 0, found %d" % (name, step), tensor=name)
        n = max(0, (stop - start + step - 1) // step)
        return Axis(axis.start + start * axis.step if n else axis.start, n, axis.step * step if n > 1 else 1)
    try:
        i = operator.index(index)
    except TypeError:
        raise TypeError("tensor '%s': an index must be an integer, a slice or ..., not %s" % (name, type(index).__name__)) from None
    if isinstance(index, bool):
        raise TypeError("tensor '%s': an index must be an integer, a slice or ..., not bool" % name)
    if not -axis.count <= i < axis.count:
        raise IndexError("tensor '%s': index %d is out of range for an axis of %d elements" % (name, i, axis.count))
    return Axis(axis.start + (i % axis.count) * axis.step, 1, 1, False)


class Tensor:
    """A tensor of a checkpoint, or a part of one (`t[2:5, ::2]`, itself a Tensor).

    `name`, `shape`, `dtype` ("F32", "BF16" ...), `role` ("weight", "frozen", "buffer", "state", "other"), `size` in elements,
    `nbytes`, `owner` (for a tied tensor the name with the values, or None).  `numpy()`, `torch()`, `bits()`, `tobytes()` and
    `into()` read it, each call again; numpy.asarray() works too.  It keeps the checkpoint open unless you close that explicitly.
    """
    __slots__ = ('_handle', '_raw', '_axes', '_check', 'name', 'shape', '_code')

    def __init__(self, handle: Handle, raw: Any, check: str, axes: Optional[Tuple[Axis, ...]] = None) -> None:
        t = raw.contents
        self._handle, self._raw, self._check = handle, raw, check
        self._axes = axes if axes is not None else tuple(Axis(0, int(t.shape[k]), 1) for k in range(t.ndim))
        self._code = int(t.dtype)
        self.name: str = text_of(t.name)
        self.shape: Tuple[int, ...] = tuple(a.count for a in self._axes if a.kept)

    def _tensor(self) -> Any:
        """The library's structure; valid only while the handle is in use."""
        return self._raw.contents

    @property
    def dtype(self) -> str:
        """The stored dtype: "BF16"."""
        return _dtype.name_of(self._code)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Elements."""
        n = 1
        for k in self.shape:
            n *= k
        return n

    @property
    def nbytes(self) -> int:
        """Bytes of its elements as stored, without gaps between them."""
        return _dtype.n_bytes(self._code, self.size)

    @property
    def role(self) -> str:
        """Its role in the checkpoint: "weight", "frozen", "buffer", "state" or "other"."""
        with self._handle.use():
            role = int(self._tensor().role)
        return ROLES[role] if role < len(ROLES) else 'other'

    @property
    def owner(self) -> Optional[str]:
        """For a tied tensor, the name with the values."""
        with self._handle.use():
            owner = self._tensor().owner
            return text_of(owner.contents.name) if owner else None

    @property
    def export_dtype(self) -> str:
        """The dtype of an export without a dtype option: for masters, the dtype in which the model was trained."""
        with self._handle.use():
            code = int(self._tensor().export_dtype)
        return _dtype.name_of(code) if code else self.dtype

    def __repr__(self) -> str:
        return '<ckpt.Tensor %s %s %s>' % (self.name, self.dtype, list(self.shape))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("tensor '%s' has no axes" % self.name)
        return self.shape[0]

    # ---- parts ----

    def _whole(self) -> bool:
        t = self._tensor()
        return all(a.count == t.shape[k] for k, a in enumerate(self._axes))

    def __getitem__(self, index: Any) -> 'Tensor':
        indices = list(index) if isinstance(index, tuple) else [index]
        n_missing = self.ndim - sum(i is not Ellipsis for i in indices)
        dots = [k for k, i in enumerate(indices) if i is Ellipsis]
        if len(dots) > 1 or n_missing < 0:
            raise IndexError("tensor '%s': too many indices for %d axes" % (self.name, self.ndim))
        at = dots[0] if dots else len(indices)
        indices[at:at + 1] = [slice(None)] * n_missing
        it = iter(indices)
        with self._handle.use():
            axes = tuple(_pick(a, next(it), self.name) if a.kept else a for a in self._axes)
            return Tensor(self._handle, self._raw, self._check, axes)

    # ---- values ----

    def _trusts(self) -> bool:
        """True if checksums of its records are not compared."""
        with self._handle.use():
            return self._check == 'none' or (self._check == 'whole' and not self._whole())

    def read_into(self, address: int, code: int = 0) -> None:
        """Read the elements, row-major and dense, into memory at an address, in the dtype with the library's number (0: their own)."""
        err = _lib.Err()
        with self._handle.use():
            whole = self._whole()
        with self._handle.reader(self._trusts()) as reader:
            if whole:
                rc = lib().ckpt_reader_read(reader, self._raw, 0, self._tensor().n_elems, code, address, c.byref(err))
            else:
                part = (_lib.Slice * len(self._axes))(*(a[:3] for a in self._axes))
                rc = lib().ckpt_reader_read_slice(reader, self._raw, part, code, address, c.byref(err))
            check(rc, err, path=self._handle.path, tensor=self.name)

    def _code_for(self, dtype: Any) -> int:
        code = _dtype.parse(dtype)
        if code and code != self._code and not lib().ckpt_dtype_converts(code, self._code):
            raise UnsupportedError("tensor '%s': %s cannot be converted to %s" % (self.name, self.dtype, _dtype.name_of(code)),
                                   path=self._handle.path, tensor=self.name)
        return code or self._code

    def numpy(self, dtype: Any = None) -> Any:
        """Read into a new array; with a dtype ("f32", numpy.float32 ...), convert and round once to nearest even.

        BF16 and fp8 need the package ml_dtypes, else DtypeError: use dtype='f32', `torch()` or `bits()` then.
        """
        import numpy
        code = self._code_for(dtype)
        out = numpy.empty(self.shape, _dtype.numpy_dtype(code, self.name))
        self.read_into(out.ctypes.data, code)
        return out

    def into(self, out: Any) -> Any:
        """Read into an existing numpy array of the same shape, in its dtype, with any strides; returns `out`."""
        import numpy
        if not isinstance(out, numpy.ndarray) or out.shape != self.shape or not out.flags.writeable:
            raise UsageError("tensor '%s': %s is not a writable numpy array of shape %s" %
                             (self.name, getattr(out, 'shape', type(out).__name__), list(self.shape)), tensor=self.name)
        code = self._code_for(out.dtype)
        apart = all(s >= out.itemsize for s, n in zip(out.strides, out.shape) if n > 1)
        if not apart or not out.dtype.isnative or any(a.step > 1 for a in self._axes):
            out[...] = self.numpy(_dtype.name_of(code))
            return out
        strides, n = iter(out.strides), len(self._axes)
        start, count = (c.c_uint64 * n)(*(a.start for a in self._axes)), (c.c_uint64 * n)(*(a.count for a in self._axes))
        stride = (c.c_int64 * n)(*(next(strides) if a.kept else 0 for a in self._axes))
        err = _lib.Err()
        with self._handle.reader(self._trusts()) as reader:
            rc = lib().ckpt_reader_read_box(reader, self._raw, start, count, code, out.ctypes.data, stride, c.byref(err))
            check(rc, err, path=self._handle.path, tensor=self.name)
        return out

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any:
        if copy is False:
            raise ValueError('a tensor of a checkpoint cannot become an array without being read')
        found = self.numpy()
        return found if dtype is None else found.astype(dtype, copy=False)

    def torch(self, dtype: Any = None, device: Any = None) -> Any:
        """Read into a new torch.Tensor; with a dtype ("f32", torch.float32 ...), convert and round once to nearest even."""
        import torch
        code = self._code_for(dtype)
        kind, shape = _dtype.torch_dtype(code, self.name) if _dtype.name_of(code) != 'F4' else None, self.shape
        if kind is None:  # two elements per byte along the last axis
            kind, shape = getattr(torch, 'float4_e2m1fn_x2', None), self.shape[:-1] + (self.shape[-1] // 2 if self.shape else 1,)
            if kind is None or not self.shape or self.shape[-1] % 2:
                raise DtypeError("tensor '%s' is F4, which torch does not support: use .torch('f32') or .bits()" % self.name,
                                 tensor=self.name)
        out = torch.empty(shape, dtype=kind)
        self.read_into(out.data_ptr(), code)
        return out.to(device) if device is not None else out

    def tobytes(self, dtype: Any = None) -> bytes:
        """Return the elements as bytes, row-major, little-endian; needs neither numpy nor torch."""
        code = self._code_for(dtype)
        out = bytearray(_dtype.n_bytes(code, self.size))
        if out:
            self.read_into(c.addressof(c.c_char.from_buffer(out)), code)
        return bytes(out)

    def bits(self) -> Any:
        """Return the bits as unsigned numpy integers of the same width: BF16 as uint16; packed types as bytes in one axis."""
        import numpy
        packed = _dtype.is_packed(self._code)
        width = 1 if packed else _dtype.bits_of(self._code) // 8
        shape: Tuple[int, ...] = (self.nbytes,) if packed else self.shape + ((2,) if width == 16 else ())
        out = numpy.empty(shape, '<u%d' % min(width, 8))
        self.read_into(out.ctypes.data)
        return out

    def item(self) -> Any:
        """Return the only element as a Python number."""
        if self.size != 1:
            raise UsageError("tensor '%s' has %d elements, but item() needs one" % (self.name, self.size), tensor=self.name)
        name = self.dtype
        if name.startswith(('I', 'U')) and not name.startswith('IQ'):
            return int.from_bytes(self.tobytes(), 'little', signed=name[0] == 'I')
        if name == 'BOOL':
            return self.tobytes() != b'\0'
        if name[0] == 'C':
            return complex(*struct.unpack({'C128': '<2d', 'C64': '<2f'}.get(name, '<2e'), self.tobytes()))
        return float(memoryview(self.tobytes('f64')).cast('d')[0])

    # ---- location ----

    @property
    def extents(self) -> List[Extent]:
        """The pieces of the whole tensor, which cover each element once; for a tied tensor, those of its owner."""
        with self._handle.use() as pointer:
            t = self._tensor()
            while t.owner:
                t = t.owner.contents
            return [self._extent(pointer, e) for e in _extents(t)]

    def _extent(self, pointer: int, e: Any) -> Extent:
        path, record, at = c.c_char_p(), c.c_char_p(), c.c_uint64()
        lib().ckpt_map_locate(pointer, c.byref(e), c.byref(path), c.byref(record), c.byref(at))
        axes = [e.axis[k] for k in range(e.ndim)]
        return Extent(text_of(path.value) if path.value else None, text_of(record.value) if record.value else None,
                      None if at.value == 2**64 - 1 else int(at.value), tuple(int(a.start) for a in axes),
                      tuple(int(a.count) for a in axes), tuple(int(a.stride) for a in axes),
                      e.ndim != self._tensor().ndim or e.ndim == 1)

    @property
    def where(self) -> List[Tuple[str, Optional[str]]]:
        """The files and records that contain its bytes, each once, in the order of its elements."""
        return list(dict.fromkeys((e.file, e.record) for e in self.extents if e.file is not None))


def _extents(t: Any) -> Any:
    """Iterate over the extents of a structure; each is valid until the next."""
    room = _lib.Box()
    for i in range(t.n_extents):
        yield lib().ckpt_tensor_extent(t, i, room).contents


if sys.byteorder != 'little':
    raise ImportError('ckpt works only on little-endian machines')
