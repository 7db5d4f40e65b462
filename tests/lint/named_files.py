#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Comments name only files that exist here, so that a renamed file does not leave its old name behind.

    named_files.py      run in any folder; prints FILE: NAME for each that is gone, and fails
"""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*', re.S)
NAME = re.compile(r'(?<![\w.])[\w/]+\.(?:c|h|hpp|cu|cuh)\b(?![.\w])')
# files of other projects, to which comments refer: ggml's, llm.c, curl's and headers of systems, examples
OTHERS = {'ggml.h', 'common.h', 'quants.c', 'llm.c', 'train_gpt2.c', 'llama.h', 'omp.h', 'cblas.h', 'mpi.h', 'nccl.h', 'cudnn.h',
          'cudnn_frontend.h'}


def main():
    listed = subprocess.run(['git', 'ls-files'], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    here = {os.path.basename(f) for f in listed}
    gone = []
    for f in listed:
        if not f.endswith(('.c', '.h', '.hpp', '.cu', '.cuh')) or f.startswith('tests/fixtures/'):
            continue
        with open(os.path.join(ROOT, f), encoding='utf-8', errors='replace') as text:
            for name in NAME.findall(' '.join(COMMENT.findall(text.read()))):
                base = os.path.basename(name)
                if base not in here and base not in OTHERS and len(base) > 3:   # a.c stands for any
                    gone.append('%s: %s' % (f, name))
    if gone:
        print('\n'.join(gone))
    return 1 if gone else 0


if __name__ == '__main__':
    sys.exit(main())
