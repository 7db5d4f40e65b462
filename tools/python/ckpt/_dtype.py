# SPDX-License-Identifier: Apache-2.0
"""_dtype.py: element types: the library's names, numpy's and torch's types for them, and errors for those without one.

Neither numpy nor torch is imported before a caller asks for one of their types.
"""
from __future__ import annotations

import functools
from typing import Any, Tuple

from ._lib import c, lib, text_of
from .errors import DtypeError, UsageError

NUMPY = {'F64': 'float64', 'F32': 'float32', 'F16': 'float16', 'I64': 'int64', 'I32': 'int32', 'I16': 'int16', 'I8': 'int8',
         'U64': 'uint64', 'U32': 'uint32', 'U16': 'uint16', 'U8': 'uint8', 'BOOL': 'bool', 'C128': 'complex128', 'C64': 'complex64'}
ML_DTYPES = {'BF16': 'bfloat16', 'F8_E4M3': 'float8_e4m3fn', 'F8_E5M2': 'float8_e5m2', 'F8_E4M3FNUZ': 'float8_e4m3fnuz',
             'F8_E5M2FNUZ': 'float8_e5m2fnuz', 'F8_E8M0': 'float8_e8m0fnu'}
TORCH = {**NUMPY, **ML_DTYPES, 'C32': 'complex32', 'BITS8': 'bits8', 'BITS16': 'bits16'}
# names that --dtype, numpy and torch have in common
ALIASES = {'double': 'F64', 'float': 'F32', 'half': 'F16', 'complex32': 'C32', 'chalf': 'C32', 'long': 'I64', 'int': 'I32', 'short': 'I16',
           **{v: k for k, v in TORCH.items()}}


@functools.lru_cache(maxsize=None)
def name_of(code: int) -> str:
    """The name of a dtype: "F32"."""
    return text_of(lib().ckpt_dtype_name(code))


@functools.lru_cache(maxsize=None)
def bits_of(code: int) -> int:
    """Bits of one element; 0 for block types."""
    return int(lib().ckpt_dtype_bits(code))


@functools.lru_cache(maxsize=None)
def block_of(code: int) -> Tuple[int, int]:
    """Elements and bytes of a block; for types without blocks, 1 and the bytes of an element."""
    n_bytes = c.c_uint(0)
    return int(lib().ckpt_dtype_block(code, c.byref(n_bytes))), int(n_bytes.value)


def is_packed(code: int) -> bool:
    """True if elements share bytes: F4, F6, ggml's types."""
    return bits_of(code) % 8 != 0 or bits_of(code) == 0


def n_bytes(code: int, n: int) -> int:
    """Bytes of n elements."""
    block, size = block_of(code)
    return n // block * size if block > 1 else (n * bits_of(code) + 7) // 8


def parse(dtype: Any) -> int:
    """The library's number of a dtype given as text ("f32", "BF16"), numpy's or torch's; None gives 0, the tensor's own."""
    if dtype is None:
        return 0
    text = dtype if isinstance(dtype, str) else getattr(dtype, 'name', None) or getattr(dtype, '__name__', None) or str(dtype)
    text = text.split('.')[-1]
    found = int(lib().ckpt_dtype_parse(ALIASES.get(text.lower(), text).encode()))
    if found == 0:
        raise UsageError('%r is not a known dtype' % (dtype,))
    return found


def numpy_dtype(code: int, tensor: str) -> Any:
    """numpy's type for a dtype, or ml_dtypes' if numpy has none."""
    import numpy
    name = name_of(code)
    if name in NUMPY:
        return numpy.dtype(NUMPY[name])
    if name in ML_DTYPES:
        try:
            import ml_dtypes
            return numpy.dtype(getattr(ml_dtypes, ML_DTYPES[name]))
        except (ImportError, AttributeError):
            raise DtypeError("tensor '%s' is %s, which numpy does not support: install ml_dtypes, or use .numpy('f32'), .torch(), or "
                             "the bits with .bits()" % (tensor, name), tensor=tensor) from None
    ways = ".numpy('f32') or " if lib().ckpt_dtype_converts(lib().ckpt_dtype_parse(b'F32'), code) else ''
    raise DtypeError("tensor '%s' is %s, which numpy does not support: use %sthe bits with .bits()" % (tensor, name, ways), tensor=tensor)


def torch_dtype(code: int, tensor: str) -> Any:
    """torch's type for a dtype."""
    import torch
    name = name_of(code)
    found = getattr(torch, TORCH.get(name, '-'), None)
    if found is None:
        raise DtypeError("tensor '%s' is %s, which torch %s does not support: use .torch('f32') or the bytes with .bits()" %
                         (tensor, name, torch.__version__), tensor=tensor)
    return found


def torch_code(dtype: Any) -> int:
    """The library's number of a torch dtype."""
    return parse(str(dtype))
