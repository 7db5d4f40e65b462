# SPDX-License-Identifier: Apache-2.0
"""Long lists of cases that are alike take turns in CI: with CKPT_TURN=K/N only every Nth case runs, beginning with the Kth.

N successive values of K run them all.  Without CKPT_TURN, as in `make check-rest` and `make check-interop`, each case runs.
"""
import os


def mine(cases):
    """The cases whose turn it is."""
    turn, of = (int(x) for x in os.environ.get('CKPT_TURN', '0/1').split('/'))
    return (case for i, case in enumerate(cases) if i % of == turn % of)
