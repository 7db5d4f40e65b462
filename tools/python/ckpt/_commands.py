# SPDX-License-Identifier: Apache-2.0
"""_commands.py: the entry points of a wheel, each of which executes the bundled program under its own name."""
from __future__ import annotations

import os
import sys

from ._run import program


def _become(name: str) -> None:
    path = program()
    try:
        os.execv(path, [name, *sys.argv[1:]])
    except OSError as x:
        sys.exit('%s: %s: %s' % (name, path, x.strerror))


def ckpt() -> None:
    """ckpt(1)"""
    _become('ckpt')


def zero_to_fp32() -> None:
    """zero_to_fp32(1)"""
    _become('zero_to_fp32')


def zero_to_torch() -> None:
    """zero_to_torch(1)"""
    _become('zero_to_torch')


def ds_to_universal() -> None:
    """ds_to_universal(1)"""
    _become('ds_to_universal')
