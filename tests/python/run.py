#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the Python package: every test_*.py of this folder.  Prints "python: N passed, N failed", and what was left out.

    run.py [--bin build/bin] [--package FOLDER] [--without NAME] [NAME...]

The package is that of the tree, or the one in FOLDER ("installed": the interpreter's own).  What needs numpy, torch or DeepSpeed
is left out where they are not.
"""
import argparse
import os
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


class Result(unittest.TextTestResult):
    """Says of a failure only what failed."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', default=os.path.join(ROOT, 'build', 'bin'))
    p.add_argument('--package', default=os.path.join(ROOT, 'tools', 'python'))
    p.add_argument('--without', action='append', default=[], help='a test_*.py that another run has')
    p.add_argument('names', nargs='*')
    a = p.parse_args()
    if a.package != 'installed':
        sys.path.insert(0, a.package)
        os.environ.setdefault('CKPT_LIBRARY', os.path.abspath(os.path.join(a.bin, '..', 'lib', 'libckpt.so.0')))
        os.environ.setdefault('CKPT_PROGRAM', os.path.abspath(os.path.join(a.bin, 'ckpt')))
        os.environ['PYTHONPATH'] = os.path.abspath(a.package)
    os.environ['CKPT_TEST_BIN'] = os.path.abspath(a.bin)
    sys.path.insert(1, HERE)
    sys.dont_write_bytecode = True
    start = time.time()
    names = a.names or sorted(n[:-3] for n in os.listdir(HERE) if n.startswith('test_') and n.endswith('.py'))
    names = [n for n in names if n not in a.without]
    suite = unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromName(n) for n in names)
    runner = unittest.TextTestRunner(stream=sys.stdout, resultclass=Result, verbosity=0)
    result = runner.run(suite)
    for why in sorted({why for _, why in result.skipped}):
        print('python: left out %d: %s' % (sum(w == why for _, w in result.skipped), why))
    failed = len(result.failures) + len(result.errors)
    print('python: %d passed, %d failed (%.0f s)' % (result.passed, failed, time.time() - start))
    return 1 if failed or not result.passed else 0


sys.exit(main())
