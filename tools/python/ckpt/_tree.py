# SPDX-License-Identifier: Apache-2.0
"""_tree.py: the values beside the tensors as plain objects, from the output of `ckpt tree --json`.

A class or function in a file becomes only its name; no module is imported and no function called for it.  A value that occurs
in several places is one object here too.
"""
from __future__ import annotations

from typing import Any, Dict, List, Tuple

from . import _lib
from ._lib import c, check, lib

DEPTH = 150  # maximum levels, because Python's JSON reader is recursive


class Name(str):
    """The name of a class, function or dtype in a file, as text only."""


class Bytes(bytes):
    """Bytes, at most the first 1024; `length` is their number."""
    length: int = 0


class Leaf:
    """A tensor's place in the tree.  Its values are in the checkpoint's tensors."""

    def __init__(self, about: Dict[str, Any]) -> None:
        self.dtype: str = about.get('dtype', '')
        self.shape: Tuple[int, ...] = tuple(about.get('shape', ()))
        self.about = about

    def __repr__(self) -> str:
        return '<tensor %s %s>' % (self.dtype, list(self.shape))


class Object:
    """An object of an unknown class: the name of its class, and its contents."""
    args: Any = None
    kwargs: Any = None
    state: Any = None
    items: Any = None
    pairs: Any = None

    def __init__(self, cls: str) -> None:
        self.cls = cls

    def __repr__(self) -> str:
        return '<object %s>' % self.cls


class Cut:
    """Stands for values deeper than the limit."""

    def __init__(self, why: str) -> None:
        self.why = why

    def __repr__(self) -> str:
        return '<cut: %s>' % self.why


def _key(value: Any) -> Any:
    """Convert a key to a hashable object."""
    try:
        hash(value)
        return value
    except TypeError:
        return repr(value)


class _Reader:
    """Makes objects from the JSON form, with shared values as one object."""

    def __init__(self) -> None:
        self.met: Dict[int, Any] = {}

    def plain(self, x: Any, number: int = 0) -> Any:
        """Make an object; `number` identifies it in references, which its own members may contain."""
        if isinstance(x, list):
            items: List[Any] = []
            self.met[number] = items
            items.extend(self.plain(i) for i in x)
            return items
        if not isinstance(x, dict):
            return x
        mark = next(iter(x), '')
        if mark == '$id':
            self.met[x['$id']] = made = self.plain(x['$value'], x['$id'])
            return made
        if not mark.startswith('$'):
            members: Dict[Any, Any] = {}
            self.met[number] = members
            members.update((k, self.plain(v)) for k, v in x.items() if k != '$more')
            return members
        return self.marked(mark, x, number)

    def marked(self, mark: str, x: Dict[str, Any], number: int) -> Any:
        """Make an object that JSON cannot express, from its marked form."""
        v = x[mark]
        if mark == '$ref':
            return self.met.get(v)
        if mark in ('$int', '$float'):
            return int(v) if mark == '$int' else float(v)
        if mark in ('$tuple', '$size'):
            return tuple(self.plain(i) for i in v)
        if mark in ('$set', '$frozenset'):
            return (set if mark == '$set' else frozenset)(_key(self.plain(i)) for i in v)
        if mark in ('$dict', '$state'):
            members: Dict[Any, Any] = {}
            self.met[number] = members
            pairs = x.get('$odict', []) if mark == '$state' else v
            if isinstance(pairs, dict):  # an OrderedDict with attributes, which are omitted
                members.update((k, self.plain(value)) for k, value in pairs.items())
            else:
                members.update((_key(self.plain(p[0])), self.plain(p[1])) for p in pairs if isinstance(p, list))
            return members
        if mark in ('$bytes', '$bytearray'):
            data = Bytes(bytes.fromhex(v))
            data.length = x.get('$length', len(data))
            return data
        if mark in ('$global', '$dtype'):
            return Name(v)
        if mark == '$tensor':
            return Leaf(v)
        if mark == '$object':
            made = Object(str(v.get('class', '')))
            self.met[number] = made
            for k in ('args', 'kwargs', 'state', 'items', 'pairs'):
                setattr(made, k, self.plain(v.get(k)))
            return made
        return Cut(str(v)) if mark in ('$cut', '$more') else x


def read(handle: Any, path: str = '') -> Any:
    """Read the tree of a map, or the part at a path ("optimizer_state_dict.loss_scaler")."""
    import json
    pieces: List[bytes] = []

    @_lib.WriteFn
    def write(_ctx: Any, text: Any, n: int) -> int:
        pieces.append(c.string_at(text, n))
        return 0

    err = _lib.Err()
    opts = _lib.sized(_lib.TreeOpts, format=1, path=path.encode() if path else None, max_depth=DEPTH)
    check(lib().ckpt_tree_print(handle, c.byref(opts), write, None, c.byref(err)), err)
    return _Reader().plain(json.loads(b''.join(pieces).decode('utf-8', 'replace')))
