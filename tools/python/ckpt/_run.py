# SPDX-License-Identifier: Apache-2.0
"""_run.py: long calls: progress, cancelling by KeyboardInterrupt or by a callback, and the bundled programs.

The library runs in a thread of its own while the caller's thread waits, so that Ctrl-C takes effect at once: the run stops,
removes its unfinished files, and the caller gets KeyboardInterrupt.  An exception in a callback has the same effect.
"""
from __future__ import annotations

import os
import threading
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from . import _lib
from ._lib import c, check, lib
from .errors import CkptError, MissingError, error_of

#: A callback gets the bytes done and the total (for programs: per cent and 100); its exception cancels the call.
#: True: show a tqdm progress bar, if tqdm is installed.
Progress = Union[None, bool, Callable[[int, int], Any]]


class Report(Dict[str, Any]):
    """The work and the proofs of a run: a dict with its members as attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Bar:
    """Progress as a callback: the caller's, tqdm's, or none."""

    def __init__(self, progress: Progress, unit: str, title: str) -> None:
        self._bar: Any = None
        self._call: Optional[Callable[[int, int], Any]] = progress if callable(progress) else None
        self._at = (0, 100 if unit == '%' else 1)
        if progress is True:
            try:
                from tqdm.auto import tqdm
            except ImportError:
                return
            self._bar = tqdm(desc=title, unit=unit, unit_scale=unit == 'B')

    def __call__(self, done: int, total: int) -> None:
        if self._call:
            self._at = (done, total)
            self._call(done, total)
        elif self._bar is not None:
            self._bar.total = total
            self._bar.update(done - self._bar.n)

    def end(self, done: bool) -> None:
        """End the progress; done: the run succeeded, so report the full amount."""
        if self._bar is not None:
            if done and self._bar.total:
                self._bar.update(self._bar.total - self._bar.n)
            self._bar.close()
        elif done and self._call and self._at[0] != self._at[1]:
            self._call(self._at[1], self._at[1])


class Job:
    """One call of the library that a callback can stop."""

    def __init__(self, progress: Progress, title: str, memory: int, jobs: int) -> None:
        self._stop = False
        self._raised: Optional[BaseException] = None
        self._bar = Bar(progress, 'B', title)
        self._keep: List[Any] = [_lib.ProgressFn(self._progress)]
        self.opts = _lib.sized(_lib.RunOpts, memory=memory, jobs=jobs, progress=self._keep[0])

    def _progress(self, _ctx: Any, done: int, total: int) -> int:
        return self.guard(lambda: self._bar(done, total))

    def guard(self, call: Callable[[], Any]) -> int:
        """Call a callback; keep its exception and stop the run."""
        if not self._stop:
            try:
                call()
            except BaseException as x:  # noqa: B902  no exception may pass through C
                self._raised = x
        return int(self._stop or self._raised is not None)

    def callback(self, kind: Any, function: Any) -> Any:
        """Make a guarded C callback that lives as long as the job."""
        made = kind(lambda _ctx, *args: self.guard(lambda: function(*args)))
        self._keep.append(made)
        return made

    def run(self, call: Callable[[], int]) -> int:
        """Run the call in a thread and wait; return its code, or raise the exception that stopped it."""
        out: List[int] = []
        thread = threading.Thread(target=lambda: out.append(call()), name='ckpt', daemon=True)
        interrupted: Optional[KeyboardInterrupt] = None
        thread.start()
        while thread.is_alive():
            try:
                thread.join(0.2)
            except KeyboardInterrupt as x:
                interrupted, self._stop = x, True
        self._bar.end(bool(out) and out[0] == 0 and not self._raised and not interrupted)
        if interrupted:
            raise interrupted
        if self._raised:
            raise self._raised
        return out[0]


# ---- programs ----

def program() -> str:
    """Find the `ckpt` program: $CKPT_PROGRAM, beside this package, in the build folder, or on PATH."""
    named = os.environ.get('CKPT_PROGRAM')
    if named:
        return named
    for place in _lib.places('ckpt', 'bin'):
        if os.path.exists(place):
            return place
    import shutil
    found = shutil.which('ckpt')
    if not found:
        raise CkptError('the ckpt program was not found; set CKPT_PROGRAM to its path')
    return found


SIZES = ('max_shard_size', 'memory')


def size_word(size: Any) -> str:
    """Convert a size to the program's form: a number is one of bytes, for which the program wants the unit."""
    return '%dB' % size if isinstance(size, int) and size else str(size)


def arguments(options: Dict[str, Any]) -> List[str]:
    """Convert options to the program's form: max_shard_size='2GB' is --max-shard-size=2GB, lists repeat the option."""
    out: List[str] = []
    for name, value in options.items():
        option = '--' + name.rstrip('_').replace('_', '-')
        for v in value if isinstance(value, (list, tuple)) else [value]:
            if v is True:
                out.append(option)
            elif v is not None and v is not False:
                v = size_word(v) if name in SIZES else v
                out += ['%s=%s' % (option, os.fspath(v) if isinstance(v, os.PathLike) else v)]
    return out


def run_program(verb: str, options: Dict[str, Any], paths: List[Any], progress: Progress = None) -> Report:
    """Run `ckpt VERB --json OPTIONS -- PATHS`; return its document, or raise the error that it reports."""
    command = ['ckpt', verb, '--json', *arguments(options), '--', *(os.fspath(p) for p in paths)]
    status, out, said = _child(command, Bar(progress, '%', verb))
    return _document(verb, status, out, said, [os.fspath(x) for x in paths])


def run_drop_in(name: str, args: List[str], path: str) -> None:
    """Run the program under a drop-in's name; raise its error."""
    status, _, said = _child([name, '--quiet', *args], Bar(None, '%', name))
    if status == -2:
        raise KeyboardInterrupt
    if status:
        text = '\n'.join(said) or '%s ended with status %d' % (name, status)
        raise error_of(_code_of_status(status), text[len(name) + 2:] if text.startswith(name + ': ') else text, path=path)


def _child(command: List[str], bar: Bar) -> Tuple[int, bytes, List[str]]:
    """Run the program as command[0]; return its status, its stdout, and its stderr without progress."""
    import signal
    import subprocess
    path = program()
    # one process, even if an MPI launcher started this one
    env = {k: v for k, v in os.environ.items() if not k.startswith(('OMPI_', 'PMIX_', 'PMI_'))}
    try:
        p = subprocess.Popen(command, executable=path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    except OSError as x:
        raise MissingError('%s: %s; set CKPT_PROGRAM to the path of the ckpt program' % (path, x.strerror), path=path) from x
    pieces: List[bytes] = []
    reading = threading.Thread(target=lambda: pieces.append(p.stdout.read() if p.stdout else b''), daemon=True)
    reading.start()
    said: List[str] = []
    stopped = False
    try:
        for line in p.stderr or ():
            text = line.decode('utf-8', 'surrogateescape').rstrip('\n')
            percent = _percent(text)
            if percent is None:
                said.append(text)
            else:
                bar(percent, 100)
    except BaseException:
        stopped = True
        p.send_signal(signal.SIGINT)  # the program removes its unfinished files
        raise
    finally:
        _wait(p, stopped)
        reading.join()
        for pipe in p.stdout, p.stderr:
            if pipe:
                pipe.close()
        bar.end(p.returncode == 0 and not stopped)
    return p.returncode, pieces[0] if pieces else b'', said


def _wait(p: Any, stopped: bool) -> None:
    """Wait for the program's end; kill it if it does not end within a minute after a request to stop."""
    import signal
    import subprocess
    while p.poll() is None:
        try:
            p.wait(60 if stopped else None)
        except subprocess.TimeoutExpired:
            p.kill()
        except KeyboardInterrupt:
            p.send_signal(signal.SIGINT)
            stopped = True


def _percent(text: str) -> Optional[int]:
    """The percentage of a progress line: 45 for "converting  45% 1.2 GB of ..."."""
    words = text.split(None, 2)
    if len(words) == 3 and words[1].endswith('%') and words[1][:-1].isdigit() and ' of ' in words[2]:
        return int(words[1][:-1])
    return None


def _document(verb: str, status: int, out: bytes, said: List[str], paths: List[str]) -> Report:
    import json
    try:
        report = Report(json.loads(out.decode('utf-8', 'surrogateescape')) if out.strip() else {})
    except ValueError:
        report = Report()
    report['messages'] = said
    error = report.get('error')
    if error:
        raise error_of(_code(error.get('code', '')), _lib.in_python(error.get('text', '')), path=paths[0] if paths else None)
    if status == -2:
        raise KeyboardInterrupt
    if status not in (0, 1) or not out.strip():
        text = '\n'.join(said) or 'ckpt %s ended with status %d' % (verb, status)
        raise error_of(_code_of_status(status), text, path=paths[0] if paths else None)
    return report


def _code(name: str) -> int:
    """The number of an error name such as "EFORMAT"."""
    names: Dict[str, int] = {n: -1 - i for i, n in enumerate((
        'EDIFFERS', 'EUSAGE', 'EFORMAT', 'EUNSUPPORTED', 'EUNSAFE', 'EMISSING', 'EMISMATCH', 'ELIMIT', 'EIO', 'ECANCELED', 'EDOUBT',
        'EDIGEST'))}
    return names.get(name, 0)


def _code_of_status(status: int) -> int:
    for code in range(-2, -13, -1):
        if int(lib().ckpt_err_status(code)) == status:
            return code
    return 0


def report_of(r: Any) -> Report:
    """Convert ckpt_run_report to the names of --json."""
    names: Tuple[Tuple[str, str], ...] = (
        ('tensors', 'n_tensors'), ('elements', 'n_elems'), ('bytes_read', 'n_read'), ('bytes_written', 'n_written'), ('files', 'n_files'),
        ('records_checked', 'n_records_checked'), ('records_without_crc', 'n_records_no_crc'), ('elements_compared', 'n_compared'),
        ('elements_unlike', 'n_unlike'), ('state_carried', 'n_state_carried'), ('nan', 'n_nan'), ('inf', 'n_inf'), ('seconds', 'seconds'))
    return Report((k, getattr(r, v)) for k, v in names)


__all__ = ['Bar', 'Job', 'Progress', 'Report', 'c', 'check', 'program', 'report_of', 'run_drop_in', 'run_program']
