#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every member of transformers' TrainingArguments, and every option of the launcher deepspeed, is a name that zerotrain knows.

    trainer_names.py --bin build/bin
"""
import argparse
import ast
import dataclasses
import os
import subprocess
import sys

import deepspeed.launcher
import transformers


def launcher_options():
    """The long options of the launcher, from its source: its parser is made only while it runs."""
    with open(os.path.join(os.path.dirname(deepspeed.launcher.__file__), 'runner.py'), encoding='utf-8') as f:
        tree = ast.parse(f.read())
    calls = (n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, 'attr', '') == 'add_argument')
    words = (a.value for c in calls for a in c.args if isinstance(a, ast.Constant))
    return {w[2:] for w in words if w.startswith('--')}


def main():
    args = argparse.ArgumentParser()
    args.add_argument('--bin', required=True)
    program = os.path.join(args.parse_args().bin, 'zerotrain')

    def said(option):
        return subprocess.run([program, option], check=True, capture_output=True, text=True).stdout

    known = {line.split('\t')[0][2:] for line in said('--trainer-names').splitlines()}
    for line in said('--help=all').splitlines():
        known.update(w[2:].rstrip(',') for w in line.split()[:2] if w.startswith('--'))
    known = {n.replace('-', '_') for n in known}
    theirs = {f.name for f in dataclasses.fields(transformers.Seq2SeqTrainingArguments)} | launcher_options()
    missing = sorted(theirs - known)
    if missing:
        print('zerotrain does not know: ' + ', '.join(missing))
        return 1
    print(f'{len(theirs)} names of transformers {transformers.__version__} and deepspeed are known')
    return 0


if __name__ == '__main__':
    sys.exit(main())
