# SPDX-License-Identifier: Apache-2.0
"""errors.py: libckpt's error codes as exception classes.

Every error has `code` (the library's, below 0), `status` (the exit status of the programs), `path` and `tensor` if they are
known, and `errno` of a failed system call, or 0.  Its text names the place, found and expected values, and the remedy.
"""
from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Type


class CkptError(Exception):
    """An error that libckpt or one of its programs reported."""

    code: int = 0
    status: int = 3

    def __init__(self, text: str, *, path: Optional[str] = None, tensor: Optional[str] = None, errno: int = 0,
                 code: Optional[int] = None) -> None:
        super().__init__(text)
        self.text = text
        self.path = path
        self.tensor = tensor
        self.errno = errno
        #: from `verify`: all findings, as (severity, code, text)
        self.findings: List[Any] = []
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return self.text

    def __reduce__(self) -> Any:
        return _rebuild, (type(self), self.text, dict(self.__dict__))


def _rebuild(kind: Type[CkptError], text: str, state: Dict[str, Any]) -> CkptError:
    error = kind(text)
    error.__dict__.update(state)
    return error


class DiffersError(CkptError):
    """The compared checkpoints differ."""
    code, status = -1, 1


class UsageError(CkptError, ValueError):
    """A wrong argument."""
    code, status = -2, 2


class FormatError(CkptError):
    """A damaged or malformed file."""
    code, status = -3, 3


class UnsupportedError(CkptError):
    """Well formed, but not supported."""
    code, status = -4, 3


class UnsafeError(CkptError):
    """Refused: the file asks to run code or to leave its folder."""
    code, status = -5, 4


class MissingError(CkptError, LookupError):
    """A file or a tensor is missing."""
    code, status = -6, 5


class MismatchError(CkptError):
    """Ranks or replicas disagree."""
    code, status = -7, 5


class LimitError(CkptError):
    """Out of memory, or over a limit."""
    code, status = -8, 6


class InputOutputError(CkptError):
    """An input/output error: disk full, no permission."""
    code, status = -9, 7


class CanceledError(CkptError):
    """The run was interrupted, by its progress callback; KeyboardInterrupt stays KeyboardInterrupt."""
    code, status = -10, 130


class DoubtError(CkptError):
    """Refused: values would be lost or are doubtful."""
    code, status = -11, 9


class DigestError(CkptError):
    """A hash or a signature does not match."""
    code, status = -12, 8


class MissingTensorError(MissingError, KeyError):
    """The checkpoint has no tensor of this name; also a KeyError, as mappings raise."""


class ClosedError(CkptError, ValueError):
    """The checkpoint is closed, or was opened by the parent process before a fork."""
    code, status = -2, 2


class DtypeError(CkptError, TypeError):
    """numpy or torch lacks this element type; the text names an alternative."""
    code, status = -4, 3


CLASSES: Dict[int, Type[CkptError]] = {
    c.code: c for c in (DiffersError, UsageError, FormatError, UnsupportedError, UnsafeError, MissingError, MismatchError,
                        LimitError, InputOutputError, CanceledError, DoubtError, DigestError)}


def error_of(code: int, text: str, *, path: Optional[str] = None, tensor: Optional[str] = None, errno: int = 0) -> CkptError:
    """Make the exception for a code and its text.  A path or tensor in the text replaces the given one, because it is more exact."""
    first = text.split(': ', 1)[0]
    if '/' in first and (' ' not in first or os.path.exists(first)):
        path = first
    if tensor is None:
        import re
        named = re.search(r"\btensor '([^']+)'|\btensor ([^\s:]+)", text)
        tensor = (named[1] or named[2]) if named else None
    return CLASSES.get(code, CkptError)(text, path=path, tensor=tensor, errno=errno, code=code)
