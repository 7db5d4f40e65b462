# SPDX-License-Identifier: Apache-2.0
"""_ops.py: verify, diff and doctor are libckpt's public functions; convert, reshard, merge and prove are the bundled `ckpt` program.

The program, not the library, contains the decisions of these four (the layout map to the target, the order of a new run's
parameters, the side files, doubtful values).  Calling the program avoids a second implementation, and makes every option of
`ckpt convert --help` available here.  It runs in its sandbox, with --json; the functions return the document that it prints.
"""
from __future__ import annotations

import os
from math import isnan
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import _lib
from ._checkpoint import Checkpoint, open, open_opts
from ._lib import c, check, lib, text_of
from ._run import Job, Progress, Report, report_of, run_program
from .errors import CanceledError, UnsafeError, UnsupportedError, UsageError, error_of

Path = Union[str, 'os.PathLike[str]']
HEALTH = ('whole', 'partial', 'rotten', 'mixed', 'unknown')
SEVERITY = ('note', 'warning', 'error')


class Finding(NamedTuple):
    """A finding of verify."""
    severity: str
    code: int
    text: str


class Difference(NamedTuple):
    """A difference: "only in A", "only in B", "shape", "dtype" or "values"."""
    name: str
    what: str
    n_different: int
    first: int
    max_abs: Optional[float]  # None: the values were compared by their bits


class GroupStats(NamedTuple):
    """Sums over compared tensors whose names differ only in numbers; elements that are NaN or infinite are left out of the distances."""
    name: str  # "model.layers.*.mlp.up_proj.weight"
    tensors: int
    tensors_different: int
    elements: int
    elements_different: int
    nan_a: int
    nan_b: int
    infinite_a: int
    infinite_b: int
    relative_error: Optional[float]  # ||a - b|| / ||a||; None, here and below: not defined
    cosine: Optional[float]
    max_abs: Optional[float]
class Hashed(NamedTuple):
    """A file or a tensor of a manifest; a file has no dtype and no shape."""
    name: str
    n_bytes: int
    sha256: str
    dtype: Optional[str]
    shape: Optional[Tuple[int, ...]]


class Manifest(NamedTuple):
    """The SHA-256 of the files and tensors of a checkpoint, by name."""
    path: str  # the file with it
    files: Dict[str, Hashed]
    tensors: Dict[str, Hashed]


class TagHealth(NamedTuple):
    """A tag of a run, and its state."""
    name: str
    health: str  # "whole", "partial", "rotten", "mixed", "unknown"
    reason: str
    step: Optional[int]
    stage: Optional[int]
    world: Optional[int]
    n_bytes: int
    is_latest: bool
    is_universal: bool


class Run(NamedTuple):
    """The state of one run's pointer, `latest`."""
    name: str
    pointer: str
    latest: Optional[str]
    newest: Optional[str]
    fixed: Optional[str]
    ok: bool
    reason: str


class Health(NamedTuple):
    """The result of doctor; ok: a resume would load a whole tag."""
    ok: bool
    reason: str
    tags: List[TagHealth]
    runs: List[Run]
    problems: List[Tuple[Optional[str], int, str]]  # tag, code (0: a remark), text


def _json_safe(path: Any) -> str:
    """A path for the program, which accepts a leading dash only after "--"."""
    found = os.fspath(path)
    if not isinstance(found, str):
        raise UsageError('a path must be a string or os.PathLike, not %r' % (path,))
    return found


# ---- functions of the program ----

def convert(source: Path, target: Path, *, to: Optional[str] = None, dtype: Optional[str] = None, force: bool = False,
            dry_run: bool = False, strict: bool = False, max_shard_size: Union[int, str, None] = None, tag: Optional[str] = None,
            include: Union[str, Sequence[str], None] = None, exclude: Union[str, Sequence[str], None] = None,
            progress: Progress = None, **options: Any) -> Report:
    """`ckpt convert SOURCE TARGET`: write a checkpoint in another format or precision; see ckpt-convert(1).

    to        format: "hf", "safetensors", "torch", "gguf", "npz", "dcp" ...; default: from the target's suffix
    dtype     of floating tensors: "bf16", "q4_k_m", "f32:*norm*,bf16"
    options   further options of the program: map="hf:megatron", layout="native", adapter=["lora:0.5"], with_optimizer=True ...
    Returns   the program's --json document: `files`, `outputs`, `report`, `findings`; `messages` has its lines on stderr
    """
    options.update(to=to, dtype=dtype, force=force, dry_run=dry_run, strict=strict, max_shard_size=max_shard_size, tag=tag,
                   include=include, exclude=exclude)
    return run_program('convert', options, [_json_safe(source), _json_safe(target)], progress)


def reshard(source: Path, target: Path, *, world: Optional[int] = None, stage: Optional[int] = None, to: Optional[str] = None,
            dtype: Optional[str] = None, tag: Optional[str] = None, to_tag: Optional[str] = None, force: bool = False,
            dry_run: bool = False, strict: bool = False, progress: Progress = None, **options: Any) -> Report:
    """`ckpt reshard SOURCE TARGET`: write training state for another world size, stage or framework; see ckpt-reshard(1)."""
    options.update(world=world, stage=stage, to=to, dtype=dtype, tag=tag, to_tag=to_tag, force=force, dry_run=dry_run, strict=strict)
    return run_program('reshard', options, [_json_safe(source), _json_safe(target)], progress)


def merge(models: Union[Mapping[Any, float], Sequence[Path]], target: Path, *, method: Optional[str] = None,
          base: Optional[Path] = None, to: Optional[str] = None, dtype: Optional[str] = None, force: bool = False,
          dry_run: bool = False, progress: Progress = None, **options: Any) -> Report:
    """`ckpt merge`: merge models as mergekit defines it; see ckpt-merge(1).

    models    paths, or a dict from paths to weights; of last=5 the run folder; none with config="merge.yml"
    """
    given = _weighted(models)
    options.update(output=_json_safe(target), method=method, base=base, to=to, dtype=dtype, force=force, dry_run=dry_run)
    return run_program('merge', options, given, progress)


def _weighted(models: Union[Path, Mapping[Any, float], Sequence[Path]]) -> List[str]:
    """Paths as words of the program, with their weights."""
    if isinstance(models, Mapping):
        return ['%s:%r' % (_json_safe(p), float(w)) for p, w in models.items()]
    return [_json_safe(p) for p in ([models] if isinstance(models, (str, os.PathLike)) else models)]


def prove(path: Path, source: Union[Path, Mapping[Any, float], Sequence[Path]], *, tolerance: Optional[float] = None,
          ignore_metadata: bool = False, progress: Progress = None, **options: Any) -> Report:
    """`ckpt verify PATH --made-from SOURCE`: is a checkpoint what ckpt makes from another one?  See ckpt-verify(1).

    source     a path; of a merge paths, a dict from paths to weights, or mergekit's configuration
    tolerance  values may differ by it; None: bits are equal, or in merges within one rounding
    options    those of the conversion that the checkpoint does not tell: adapter=["lora"], map="hf:megatron", method="ties" ...
    Returns    `proved`, `command` (the words that make it), `differences`, `metadata`, `tensors` ...
    Raises     if the checkpoint is damaged, or the source cannot be converted
    """
    options.update(made_from=_weighted(source), tol=tolerance, ignore_metadata=ignore_metadata)
    document = run_program('verify', options, [_json_safe(path)], progress)
    proof = Report(document.get('made_from', {}))
    proof['messages'] = document.get('messages', [])
    return proof


# ---- functions of the library ----

def verify(path: Path, *, tag: Optional[str] = None, as_file: bool = False, keep_slices: bool = False,
           slice_rules: Optional[str] = None, ignore_copies: bool = False, require_crc: bool = False, memory: int = 0, jobs: int = 0,
           progress: Progress = None) -> Report:
    """Run all checks on a checkpoint: structure, every CRC, copies against masters, NaN and infinities.

    Returns   a report of bytes read and checks made, with `findings`: notes and warnings
    Raises    the most serious problem as an error, whose `findings` list all problems
    """
    job = Job(progress, 'verify', memory, jobs)
    found: List[Finding] = []

    def finding(severity: int, code: int, text: bytes) -> None:
        found.append(Finding(SEVERITY[min(severity, 2)], code, text_of(text)))

    opening = open_opts(tag, True, True, as_file, keep_slices, slice_rules, ignore_copies, require_crc)
    callback = job.callback(_lib.FindingFn, finding)
    map_ = c.c_void_p()
    opts = _lib.sized(_lib.VerifyOpts, open=c.pointer(opening), run=c.pointer(job.opts), finding=callback, map=c.pointer(map_))
    report, err, raw = _lib.sized(_lib.RunReport), _lib.Err(), _lib.path_bytes(path)
    try:
        rc = job.run(lambda: lib().ckpt_verify(raw, c.byref(opts), c.byref(report), c.byref(err)))
        if rc != CanceledError.code:
            hashes = _lib.sized(_lib.ManifestOpts, open=c.pointer(opening), run=c.pointer(job.opts), map=map_)
            why = _lib.Err()
            wrong = job.run(lambda: _check_hashes(raw, hashes, callback, why))
            if wrong != 0 and (rc == 0 or UnsafeError.code != rc):
                rc, err = wrong, why
    finally:
        lib().ckpt_map_free(map_)
    if rc != 0:
        error = error_of(rc, text_of(err.text), path=os.fsdecode(raw), errno=err.sys)
        error.findings = found
        same = [f for f in found if f.severity == 'error' and f.code == rc]
        if same:  # the returned text only counts the problems; the first one has the place
            error.path = error_of(rc, same[0].text, path=error.path).path
        raise error
    out = report_of(report)
    out['findings'] = found
    return out


def _check_hashes(path: bytes, opts: Any, finding: Any, err: Any) -> int:
    """Compare a checkpoint with its manifest, if there is one, and with the hub's hashes; return the library's code."""
    m = c.c_void_p()
    rc: int = lib().ckpt_manifest_find(c.byref(m), path, c.byref(opts), c.byref(err))
    if rc == 0 and m:
        rc = lib().ckpt_manifest_check(m, path, c.byref(opts), finding, None, c.byref(err))
    lib().ckpt_manifest_free(m)
    return rc if rc != 0 else int(lib().ckpt_hub_check(path, c.byref(opts), finding, None, None, c.byref(err)))


def manifest(path: Path, *, output: Optional[Path] = None, write: bool = True, tag: Optional[str] = None, keep_slices: bool = False,
             slice_rules: Optional[str] = None, jobs: int = 0, progress: Progress = None) -> Manifest:
    """Hash a checkpoint, and write its manifest, which verify uses from then on: see ckpt-manifest(5).

    output    the file to write; by default ckpt-manifest.json in the folder, or FILE.manifest.json
    write     False: only return the hashes
    """
    job = Job(progress, 'manifest', 0, jobs)
    opening = open_opts(tag, True, True, False, keep_slices, slice_rules, False, False)
    opts = _lib.sized(_lib.ManifestOpts, open=c.pointer(opening), run=c.pointer(job.opts))
    m, err, raw = c.c_void_p(), _lib.Err(), _lib.path_bytes(path)
    to = None if output is None else _lib.path_bytes(output)
    check(job.run(lambda: lib().ckpt_manifest_make(c.byref(m), raw, c.byref(opts), c.byref(err))), err, path=os.fsdecode(raw))
    try:
        if write:
            check(lib().ckpt_manifest_write(m, to, c.byref(err)), err, path=os.fsdecode(to or raw))
        place = os.fsdecode(to or lib().ckpt_manifest_path(m))
        return Manifest(place, _hashed(m, 'file'), _hashed(m, 'tensor'))
    finally:
        lib().ckpt_manifest_free(m)


def _hashed(m: Any, what: str) -> Dict[str, Hashed]:
    """The files or tensors of a manifest."""
    out: Dict[str, Hashed] = {}
    for i in range(getattr(lib(), 'ckpt_manifest_%s_count' % what)(m)):
        h = getattr(lib(), 'ckpt_manifest_%s_at' % what)(m, i)[0]
        tensor = what == 'tensor'
        out[text_of(h.name)] = Hashed(text_of(h.name), h.n_bytes, h.sha256.decode(),
                                      text_of(lib().ckpt_dtype_name(h.dtype)) if tensor else None,
                                      tuple(h.shape[k] for k in range(h.ndim)) if tensor else None)
    return out


class Differences(List[Difference]):
    """The differences of two checkpoints; empty, and so false, if they are equal.

    tied   the names that only one of them has, because they are tied to a tensor of both, and the names of these tensors
    groups the sums of diff(..., stats=True), otherwise empty
    """

    def __init__(self, found: Sequence[Difference] = ()) -> None:
        super().__init__(found)
        self.tied: Dict[str, str] = {}
        self.groups: List[GroupStats] = []

    @property
    def equal(self) -> bool:
        """True if there is no difference."""
        return not self


def diff(a: Union[Path, Checkpoint], b: Union[Path, Checkpoint], *, tolerance: float = 0, ignore_dtype: bool = False,
         optimizer: bool = False, tag: Optional[str] = None, tag_a: Optional[str] = None, tag_b: Optional[str] = None,
         include: Union[str, Sequence[str], None] = None, exclude: Union[str, Sequence[str], None] = None,
         stats: bool = False, progress: Progress = None) -> Differences:
    """Compare two checkpoints by name and value, across formats.

    tolerance    values with |a - b| up to this count as equal
    optimizer    compare the optimizer's state too
    tag_a, tag_b       the tag of each side (default: tag, or the latest); only with paths
    include, exclude   globs of names; only with paths, not with open checkpoints
    stats        sum up the distances of groups of tensors
    """
    def opened(x: Union[Path, Checkpoint], own: Optional[str]) -> Checkpoint:
        if isinstance(x, Checkpoint):
            if include or exclude or own:
                raise UsageError('tags, include and exclude need paths, not open checkpoints')
            return x
        made = _open_side(x, own or tag, optimizer)
        _select(made, include, exclude)
        return made

    job, found, err = Job(progress, 'diff', 0, 0), Differences(), _lib.Err()

    def differs(d: Any) -> None:
        d = d.contents
        found.append(Difference(text_of(d.name), text_of(d.what), int(d.n_different), int(d.first),
                                None if d.max_abs < 0 else float(d.max_abs)))

    def tied(d: Any) -> None:
        found.tied[text_of(d.contents.name)] = text_of(d.contents.b.contents.name)

    def group(g: Any) -> None:
        g = g.contents
        numbers = [None if isnan(x) else float(x) for x in (g.relative_error, g.cosine, g.max_abs)]
        found.groups.append(GroupStats(text_of(g.name), g.n_tensors, g.n_tensors_different, g.n_elems, g.n_different,
                                       g.n_nan_a, g.n_nan_b, g.n_inf_a, g.n_inf_b, *numbers))

    opts = _lib.sized(_lib.DiffOpts, tolerance=tolerance, ignore_dtype=ignore_dtype, progress=job.opts.progress,
                      tied=job.callback(_lib.DifferenceFn, tied))
    if stats:
        opts.group = job.callback(_lib.DiffGroupFn, group)
    callback = job.callback(_lib.DifferenceFn, differs)
    one, two = opened(a, tag_a), opened(b, tag_b)
    with one._handle.use() as left, two._handle.use() as right:
        rc = job.run(lambda: lib().ckpt_diff(left, right, c.byref(opts), callback, None, c.byref(err)))
    for given, made in ((a, one), (b, two)):
        if given is not made:
            made.close()
    if rc not in (0, -1):
        check(rc, err, path=one.path)
    return found


def _open_side(path: Path, tag: Optional[str], optimizer: bool) -> Checkpoint:
    """Open one side of diff: only the model, with the model's names, as in `ckpt diff`."""
    try:
        made = open(path, tag=tag, optimizer=optimizer, training=optimizer)
    except UnsupportedError:
        if not optimizer:
            raise
        return open(path, tag=tag, optimizer=True)  # several optimizers: use the names of the file
    err = _lib.Err()
    with made._handle.use() as pointer:
        check(lib().ckpt_map_keep_model(pointer, None, c.byref(err)), err, path=made.path)
    return made


def _select(m: Checkpoint, include: Any, exclude: Any) -> None:
    """Call ckpt_map_select on a map that is not shared yet."""
    def globs(x: Any) -> Any:
        if not x:
            return None
        given = [x] if isinstance(x, str) else list(x)
        return (c.c_char_p * (len(given) + 1))(*(g.encode() for g in given), None)

    if include or exclude:
        err, kept = _lib.Err(), (globs(include), globs(exclude))
        opts = _lib.sized(_lib.Filter, include=kept[0], exclude=kept[1])
        with m._handle.use() as pointer:
            check(lib().ckpt_map_select(pointer, c.byref(opts), c.byref(err)), err, path=m.path)


def doctor(path: Path, *, deep: bool = False, fix_latest: bool = False, memory: int = 0, jobs: int = 0,
           progress: Progress = None) -> Health:
    """Examine every tag of a run: which ones are whole, the problems of the others, and whether `latest` is usable.

    deep          also read every byte
    fix_latest    make `latest` name the newest whole tag, if it names another one or none
    Raises        only if the run cannot be examined; for a damaged run the result has ok=False
    """
    job = Job(progress, 'doctor', memory, jobs)
    tags: List[TagHealth] = []
    runs: List[Run] = []
    problems: List[Tuple[Optional[str], int, str]] = []

    def tag(t: Any) -> None:
        t = t.contents
        tags.append(TagHealth(text_of(t.name), HEALTH[t.health] if t.health < len(HEALTH) else 'unknown', text_of(t.reason),
                              None if t.step < 0 else t.step, None if t.stage < 0 else t.stage, t.world or None, int(t.n_bytes),
                              bool(t.is_latest), bool(t.is_universal)))

    def health(r: Any) -> None:
        r = r.contents
        latest, newest, fixed = (text_of(x) if x else None for x in (r.latest, r.newest, r.fixed))
        runs.append(Run(text_of(r.name), text_of(r.pointer), latest, newest, fixed, r.code == 0, text_of(r.reason)))

    def problem(name: Optional[bytes], code: int, text: bytes) -> None:
        problems.append((text_of(name) if name else None, code, text_of(text)))

    opts = _lib.sized(_lib.DoctorOpts, deep=deep, fix_latest=fix_latest, run=c.pointer(job.opts), tag=job.callback(_lib.TagFn, tag),
                      problem=job.callback(_lib.ProblemFn, problem), health=job.callback(_lib.HealthFn, health))
    err, raw = _lib.Err(), _lib.path_bytes(path)
    rc = job.run(lambda: lib().ckpt_doctor(raw, c.byref(opts), c.byref(err)))
    if rc != 0 and (not tags or rc == CanceledError.code):
        check(rc, err, path=os.fsdecode(raw))
    return Health(rc == 0, text_of(err.text) if rc else '', tags, runs, problems)


OPERATIONS: Dict[str, Any] = {f.__name__: f for f in (convert, reshard, merge, prove, verify, diff, doctor)}
