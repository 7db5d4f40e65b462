# SPDX-License-Identifier: Apache-2.0
"""Imports once what every rank of DeepSpeed's tests needs; for the server process that the ranks are forked from."""
import importlib
import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import ranks  # noqa: E402

ranks.prepare()
for name in ('deepspeed.checkpoint.ds_to_universal', 'deepspeed.utils.zero_to_fp32', 'unit.simple_model', 'unit.util'):
    try:
        importlib.import_module(name)
    except ImportError:   # a release without it
        pass
