# SPDX-License-Identifier: Apache-2.0
"""CI runs only a part of each long list of similar cases at a time.

CKPT_TURN=K/N runs every Nth case, beginning with case K modulo N (the first is 0), so that N runs with consecutive K run all cases.
Without CKPT_TURN, as in `make check-rest` and `make check-interop`, all cases run.
"""
import os


def mine(cases):
    """The cases whose turn it is."""
    turn, of = (int(x) for x in os.environ.get('CKPT_TURN', '0/1').split('/'))
    return (case for i, case in enumerate(cases) if i % of == turn % of)
