# SPDX-License-Identifier: Apache-2.0
"""_sign.py: writes and checks signatures of models by libckpt's public functions."""
from __future__ import annotations

import os
from typing import Any, Callable, List, Optional

from . import _lib
from ._checkpoint import open_opts
from ._lib import c, lib, text_of
from ._ops import SEVERITY, Finding, Path
from ._run import Job, Progress, Report
from .errors import error_of


def _pem(path: Optional[Path]) -> Optional[bytes]:
    """The text of a file with a key or certificates; the library refuses other contents."""
    if path is None:
        return None
    with open(path, 'rb') as f:
        return f.read()


def _place(path: Path, signature: Optional[Path]) -> Path:
    """The file of the signature: by default model.sig in a folder, or FILE.sig beside a file."""
    if signature is not None:
        return signature
    name = os.fspath(path)
    return os.path.join(name, 'model.sig') if os.path.isdir(name) else name + '.sig'


def _call(function: Callable[..., int], job: Job, path: Path, found: List[Finding], **members: Any) -> Report:
    """Call ckpt_sign or ckpt_signature_check; members are those of their options, with paths."""
    key, cert, signature = members.pop('key'), members.pop('cert'), _lib.path_bytes(members.pop('signature'))
    names = {n + '_name': _lib.path_bytes(p) for n, p in (('key', key), ('cert', cert)) if p is not None}
    opts = _lib.sized(_lib.SignOpts, signature=signature, key=_pem(key), cert=_pem(cert), run=c.pointer(job.opts), **names, **members)
    report, err, raw = _lib.sized(_lib.SignReport), _lib.Err(), _lib.path_bytes(path)
    rc = job.run(lambda: function(raw, c.byref(opts), c.byref(report), c.byref(err)))
    if rc != 0:
        error = error_of(rc, text_of(err.text), path=os.fsdecode(raw), errno=err.sys)
        error.findings = found
        raise error
    return Report(signature=os.fsdecode(signature), signer=text_of(report.signer), files=report.n_files, bytes=report.n_bytes)


def sign(path: Path, key: Path, *, cert: Optional[Path] = None, signature: Optional[Path] = None, follow_links: bool = False,
         force: bool = False, jobs: int = 0, progress: Progress = None) -> Report:
    """Sign the files of a model, as OpenSSF model signing does: see ckpt-sign(1) and ckpt-signature(5).

    key        the file of the private key (PEM)
    cert       the file of its certificate and then the issuers (PEM)
    signature  the file to write; by default model.sig in the folder, or FILE.sig
    Returns    `signature`, `signer`, `files`, `bytes`
    """
    job = Job(progress, 'sign', 0, jobs)
    job.opts.force = force
    return _call(lib().ckpt_sign, job, path, [], key=key, cert=cert, signature=_place(path, signature), follow_links=follow_links)


def verify_signature(path: Path, *, key: Optional[Path] = None, cert: Optional[Path] = None, signature: Optional[Path] = None,
                     follow_links: bool = False, tag: Optional[str] = None, as_file: bool = False, jobs: int = 0,
                     progress: Progress = None) -> Report:
    """Check a signature, and compare the files with the signed list.  ckpt.verify checks the checkpoint itself.

    key        the file of the signer's public key (PEM); or
    cert       the file of certificates to trust (PEM)
    Returns    `signature`, `signer`, `files`, `bytes`, and `findings`: files that the signer left out
    Raises     DigestError: its `findings` name each file that was changed, removed, added or renamed
    """
    job = Job(progress, 'verify', 0, jobs)
    found: List[Finding] = []

    def finding(severity: int, code: int, text: bytes) -> None:
        found.append(Finding(SEVERITY[min(severity, 2)], code, text_of(text)))

    opening = open_opts(tag, as_file=as_file)
    report = _call(lib().ckpt_signature_check, job, path, found, key=key, cert=cert, signature=_place(path, signature),
                   follow_links=follow_links, finding=job.callback(_lib.FindingFn, finding), open=c.pointer(opening))
    report['findings'] = found
    return report
