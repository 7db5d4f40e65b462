# SPDX-License-Identifier: Apache-2.0
"""_view.py: the files that a conversion would write, readable without writing them.

A view keeps its source and its target map alive; its open files keep the view alive.
"""
from __future__ import annotations

import contextlib
import io
import os
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple, Union

from . import _dtype, _lib
from ._checkpoint import Checkpoint, open as open_checkpoint
from ._handle import Handle
from ._lib import c, check, lib, text_of
from ._run import Job
from .errors import MissingError, UnsupportedError, UsageError

Path = Union[str, 'os.PathLike[str]']
WRITES_STATE, IS_FOLDER, HAS_RANKS = 4, 32, 512  # CKPT_... of ckpt.h
OBJECTS = ('refuse', 'keep', 'drop')
TEXTS = ('version', 'order_text', 'layout', 'dtypes', 'mixture', 'imatrix')
NUMBERS = ('max_shard_size', 'stage', 'world', 'sub_group_size', 'ep_size', 'tp_size', 'pp_size')
FLAGS = ('skip_side_files', 'fresh_optimizer')


class Counts(NamedTuple):
    """Counts of reads through a view so far; values that were converted twice count twice."""
    held: int  # records with a matching CRC
    bad: int  # records with a wrong CRC
    partly: int  # records read only in part, so not checked
    no_crc: int  # records without a CRC
    over: int  # values beyond the range of the new dtype


class _Held(Handle):
    """A view with its target map, and the source that both need."""

    def __init__(self, pointer: int, target: int, source: contextlib.ExitStack, path: str) -> None:
        super().__init__(pointer, path)
        self._target, self._source = target, source

    def _free(self) -> None:
        with self._lock:
            pointer, self.pointer = self.pointer, None
        if pointer:
            lib().ckpt_view_free(pointer)
            lib().ckpt_map_free(self._target)
            self._source.close()


class ViewFile(io.RawIOBase):
    """One file of a view: read-only, with seek; use io.BufferedReader for small reads.  It keeps the view alive."""

    def __init__(self, view: 'View', path: str) -> None:
        self._view, self._at, self._size = view, 0, view.files[path]
        self.name = path
        self.mode = 'rb'

    def _check(self) -> None:
        if self.closed:
            raise ValueError('%s: the file is closed' % self.name)

    def readable(self) -> bool:
        """True: the file can be read."""
        return True

    def seekable(self) -> bool:
        """True: seek works at any offset."""
        return True

    def tell(self) -> int:
        """Offset of the next byte."""
        self._check()
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the offset; beyond the end reads return no bytes."""
        self._check()
        if whence not in (os.SEEK_SET, os.SEEK_CUR, os.SEEK_END):
            raise ValueError('whence=%r: expected 0, 1 or 2' % (whence,))
        at = offset + (self._at if whence == os.SEEK_CUR else self._size if whence == os.SEEK_END else 0)
        if at < 0:
            raise ValueError('%s: offset %d is before the first byte' % (self.name, at))
        self._at = at
        return at

    def readinto(self, buffer: Any) -> int:
        """Fill a writable buffer; returns the bytes read, fewer than its size only at the end."""
        self._check()
        n = self._view.read_into(self.name, buffer, self._at)
        self._at += n
        return n

    def readall(self) -> bytes:
        """Read all remaining bytes."""
        self._check()
        out = self._view.read(self.name, self._at)
        self._at += len(out)
        return out

    def __repr__(self) -> str:
        return '<ckpt.ViewFile %s, %d bytes%s>' % (self.name, self._size, ', closed' if self.closed else '')


class View:
    """The files of a target, converted as they are read: `files`, `open(path)`, `read(path, at, n)`, `counts`.

    It is a context manager, and any number of threads may read.  After a fork the child must make it again.
    """

    def __init__(self, handle: _Held, format: str) -> None:
        self._handle = handle
        self._numbers: Dict[str, int] = {}
        self._sizes: Dict[str, int] = {}
        #: the name of the format
        self.format = format
        with handle.use() as pointer:
            for i in range(lib().ckpt_view_file_count(pointer)):
                path = text_of(lib().ckpt_view_file_path(pointer, i))
                self._numbers[path] = i
                self._sizes[path] = int(lib().ckpt_view_file_size(pointer, i))

    def __enter__(self) -> 'View':
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Close the source.  Open files of the view can no longer be read."""
        self._handle.close()

    @property
    def closed(self) -> bool:
        """True if the view can no longer be read."""
        return self._handle.closed

    def __repr__(self) -> str:
        return '<ckpt.View of %s as %s, %d files%s>' % (self._handle.path, self.format, len(self._sizes), ', closed' if self.closed else '')

    @property
    def files(self) -> Dict[str, int]:
        """Paths relative to the target, with their sizes in bytes."""
        return dict(self._sizes)

    @property
    def counts(self) -> Counts:
        """Counts of the records read so far."""
        out = _lib.ViewCounts()
        with self._handle.use() as pointer:
            lib().ckpt_view_get_counts(pointer, c.byref(out))
        return Counts(int(out.n_held), int(out.n_bad), int(out.n_partly), int(out.n_no_crc), int(out.n_over))

    def _file(self, path: Path) -> Tuple[str, int]:
        name = os.fspath(path)
        if name not in self._numbers:
            import difflib
            near = difflib.get_close_matches(str(name), self._numbers, 1)
            raise MissingError("the view has no file '%s'%s" % (name, "; the nearest is '%s'" % near[0] if near else ''), path=str(name),
                               code=-6)
        return name, self._numbers[name]

    def open(self, path: Path) -> ViewFile:
        """Open one of `files` as a binary file: torch.load(view.open(...)), io.BufferedReader(view.open(...))."""
        return ViewFile(self, self._file(path)[0])

    def read(self, path: Path, at: int = 0, n: Optional[int] = None) -> bytes:
        """Read n bytes of a file from offset `at` on, or fewer at its end; None: all the rest."""
        name = self._file(path)[0]
        left = max(0, self._sizes[name] - at)
        out = bytearray(left if n is None else max(0, min(n, left)))
        self.read_into(name, out, at)
        return bytes(out)

    def read_into(self, path: Path, buffer: Any, at: int = 0) -> int:
        """Fill a writable buffer from offset `at` on; returns the bytes read, fewer than its size only at the file's end."""
        name, i = self._file(path)
        if at < 0:
            raise UsageError('%s: offset %d is before the first byte' % (name, at), path=name)
        room, err = memoryview(buffer).cast('B'), _lib.Err()
        n = min(len(room), max(0, self._sizes[name] - at))
        if n > 0:
            into = (c.c_char * n).from_buffer(room)
            with self._handle.use() as pointer:
                check(lib().ckpt_view_read(pointer, i, into, n, at, c.byref(err)), err, path=name)
        return n

    def stream(self, path: Path, write: Callable[[bytes], Any]) -> None:
        """Pass an unread file to a function, in order, with all its checksums; an exception of the function ends it."""
        name, i = self._file(path)
        job, err = Job(None, 'stream', 0, 0), _lib.Err()

        def give(bytes_at: int, n: int, _err: Any) -> None:
            write(c.string_at(bytes_at, n))

        callback = job.callback(_lib.ViewWriteFn, give)
        with self._handle.use() as pointer:
            rc = job.run(lambda: lib().ckpt_view_stream(pointer, i, callback, None, c.byref(err)))
        check(rc, err, path=name)


def target_of(info: Any, name: Optional[Path], dtype: Any, to_tag: Optional[str], objects: str, options: Dict[str, Any]) -> Any:
    """Make ckpt_target from this package's arguments."""
    if objects not in OBJECTS:
        raise UsageError("objects=%r: expected 'refuse', 'keep' or 'drop'" % (objects,))
    for option in options:
        if option not in TEXTS + NUMBERS + FLAGS:
            import difflib
            near = difflib.get_close_matches(option, TEXTS + NUMBERS + FLAGS, 1)
            raise UsageError("no option '%s' of a target%s" % (option, "; did you mean '%s'?" % near[0] if near else ''))
    suffix = text_of(info.suffixes).split(' ')[0] if info.suffixes and not info.caps & IS_FOLDER else ''
    members: Dict[str, Any] = {}
    for option, value in options.items():
        if value is not None:
            members[option] = value.encode('utf-8', 'surrogateescape') if option in TEXTS else value
    if members.get('stage') == 0:
        members['stage'] = -1  # CKPT_STAGE_NONE
    return _lib.sized(_lib.Target, format=info.name, path=_lib.path_bytes(name if name is not None else 'model' + suffix),
                      dtype=_dtype.parse(dtype), tag=to_tag.encode('utf-8', 'surrogateescape') if to_tag is not None else None,
                      keep_objects=objects == 'keep', drop_objects=objects == 'drop', **members)


def view(source: Union[Path, Checkpoint], format: str, *, name: Optional[str] = None, dtype: Any = None, tag: Optional[str] = None,
         to_tag: Optional[str] = None, objects: str = 'refuse', check_first: bool = False, allow_overflow: bool = False,
         strict: bool = False, memory: int = 0, jobs: int = 0, **options: Any) -> View:
    """View a checkpoint in another format: its files can be read at any offset without being written.

        with ckpt.view('run/checkpoint-500', 'hf', dtype='bf16') as v:
            config = v.read('config.json')
            with v.open('model.safetensors') as f: ...

    Opening takes as long as a plan, and memory is bounded for any size of model.  Torch archives (DCP's files too) have checksums
    of 0 unless they are streamed; all other bytes equal those of a conversion.  Layout maps are not applied, so a GGUF view needs
    a GGUF source.

    source       a path (its optimizer state is opened too if the format stores it), or a Checkpoint, used unchanged
    format       "hf", "safetensors", "torch", "zero", "dcp" ...: a value of ckpt convert --to
    name         name of the file, for formats with a single file
    dtype        dtype of floating tensors; None: as in an export
    tag, to_tag  DeepSpeed: tag of the source, and of the view
    objects      objects of unknown classes in training state: "refuse", "keep", "drop"
    check_first  compare a record's CRC before returning its first byte; otherwise after all of it has been read
    allow_overflow   write infinity where a value does not fit its dtype; otherwise such a value is an error
    strict     treat every value that is not finite as an error
    memory, jobs   limits in bytes and threads; 0: the defaults
    options      further members of ckpt_target: max_shard_size (bytes), dtypes, mixture, imatrix, layout, stage, world,
                 sub_group_size, ep_size, tp_size, pp_size, version, fresh_optimizer, order_text, skip_side_files (leave config.json and tokenizer out)
    """
    info = lib().ckpt_format_find(format.encode())
    if not info:
        raise UsageError("'%s' is not a known format" % format)
    caps = info.contents.caps
    target, err = target_of(info.contents, name, dtype, to_tag, objects, options), _lib.Err()
    check(lib().ckpt_target_check(c.byref(target), c.byref(err)), err)
    with contextlib.ExitStack() as undo:
        model = source if isinstance(source, Checkpoint) else \
            open_checkpoint(source, tag=tag, optimizer=bool(caps & WRITES_STATE), keep_slices=bool(caps & HAS_RANKS),
                            order_text=options.get('order_text'))
        if isinstance(source, Checkpoint) and tag is not None:
            raise UsageError('tag needs a path, not an open checkpoint')
        keep = undo.enter_context(contextlib.ExitStack())
        if model is not source:
            keep.callback(model.close)
        own = lib().ckpt_format_find(model.format.encode())
        # checkpoints without a layout of their own have the hub's names
        have = (own and own.contents.layout) or b'hf'
        if info.contents.layout and info.contents.layout != have:
            raise UnsupportedError("%s: '%s' needs a layout map, which a view does not support: use ckpt.convert" %
                                   (model.path, format), path=model.path)
        pointer = keep.enter_context(model._handle.use())
        if model is not source and caps & WRITES_STATE:
            check(lib().ckpt_map_warm_start(pointer, c.byref(target), c.byref(err)), err, path=model.path)
        to, made = c.c_void_p(), c.c_void_p()
        check(lib().ckpt_layout(c.byref(to), pointer, c.byref(target), c.byref(err)), err, path=model.path)
        undo.callback(lib().ckpt_map_free, to)
        run = _lib.sized(_lib.RunOpts, memory=memory, jobs=jobs, allow_overflow=allow_overflow, strict=strict)
        opts = _lib.sized(_lib.ViewOpts, run=c.pointer(run), check_first=check_first)
        check(lib().ckpt_view_new(c.byref(made), pointer, to, c.byref(opts), c.byref(err)), err, path=model.path)
        undo.pop_all()
        return View(_Held(made.value or 0, to.value or 0, keep, model.path), text_of(info.contents.name))
