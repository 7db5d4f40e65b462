# SPDX-License-Identifier: Apache-2.0
"""_handle.py: the handle of an open libckpt map, which controls its use and frees it.

Lazy tensors keep their handle alive.  close() waits for calls under way.  A forked process must not use a handle, because
threads that the child does not have may hold locks of the library.
"""
from __future__ import annotations

import os
import threading
from typing import Any, Iterator, List, Optional

from contextlib import contextmanager

from . import _lib
from ._lib import c, check, lib
from .errors import ClosedError

IDLE = 8  # maximum of readers of each kind kept for later calls


class Handle:
    """A map and its readers.  Any thread may use it."""

    def __init__(self, pointer: int, path: str) -> None:
        self.pointer: Optional[int] = pointer
        self.path = path
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._users = 0
        self._closed = False
        self._idle: List[List[int]] = [[], []]  # readers that check CRCs, and readers that do not

    @classmethod
    def open(cls, path: Any, opts: Any) -> 'Handle':
        """ckpt_open"""
        raw = _lib.path_bytes(path)
        pointer, err = c.c_void_p(), _lib.Err()
        check(lib().ckpt_open(c.byref(pointer), raw, c.byref(opts), c.byref(err)), err, path=os.fsdecode(raw))
        return cls(pointer.value or 0, os.fsdecode(raw))

    @contextmanager
    def use(self) -> Iterator[int]:
        """Return the map and keep it open until the block ends."""
        if self._pid != os.getpid():
            raise ClosedError('%s: was opened by process %d before a fork: open it again in this process' %
                              (self.path, self._pid), path=self.path)
        with self._lock:
            if self._closed or self.pointer is None:
                raise ClosedError('%s: the checkpoint is closed' % self.path, path=self.path)
            self._users += 1
        try:
            yield self.pointer
        finally:
            with self._lock:
                self._users -= 1
                last = self._closed and self._users == 0
            if last:
                self._free()

    @contextmanager
    def reader(self, trust: bool) -> Iterator[int]:
        """Lend a reader that no other thread has at the same time."""
        with self.use() as pointer:
            with self._lock:
                idle = self._idle[trust]
                reader = idle.pop() if idle else None
            if reader is None:
                made, err = c.c_void_p(), _lib.Err()
                check(lib().ckpt_reader_new(c.byref(made), pointer, c.byref(err)), err, path=self.path)
                reader = made.value or 0
                if trust:
                    lib().ckpt_reader_skip_crc(reader)
            try:
                yield reader
            finally:
                with self._lock:
                    keep = len(idle) < IDLE and not self._closed
                    if keep:
                        idle.append(reader)
                if not keep:
                    lib().ckpt_reader_free(reader)

    def close(self) -> None:
        """Free the map once it is no longer in use.  A second call does nothing."""
        if self._pid != os.getpid():
            return  # after a fork: the lock may be held by a thread of the parent, and the memory may be in an intermediate state
        with self._lock:
            self._closed = True
            free = self._users == 0
        if free:
            self._free()

    @property
    def closed(self) -> bool:
        """True if the map can no longer be read."""
        return self._closed or self._pid != os.getpid()

    def _free(self) -> None:
        with self._lock:
            pointer, self.pointer = self.pointer, None
            idle, self._idle = self._idle, [[], []]
        if pointer:
            for reader in idle[0] + idle[1]:
                lib().ckpt_reader_free(reader)
            lib().ckpt_map_free(pointer)

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # at the interpreter's exit modules may be gone already
            pass
