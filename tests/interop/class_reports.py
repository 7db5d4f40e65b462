#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scikit-learn's classification reports, recorded for tests/unit/tools/test_table.c.

    class_reports.py [--update] [--bin build/bin]

Without --update the recorded reports are compared with those of the installed scikit-learn.
"""
import argparse
import json
import os
import sys

import numpy
from sklearn.metrics import classification_report

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'fixtures', 'golden', 'class_reports.json')


def case(classes, samples, share, seed, names=None, empty=()):
    """A report over random labels; `share` of the predictions are right; `empty` are never predicted or labelled."""
    rng = numpy.random.default_rng(seed)
    allowed = [c for c in range(classes) if c not in empty]
    labels = rng.choice(allowed, samples)
    predicted = numpy.where(rng.random(samples) < share, labels, rng.choice(allowed, samples))
    known = list(range(classes))
    told = {'labels': known, 'target_names': names or [str(c) for c in known], 'zero_division': 0}
    counts = [[int(((labels == c) & (predicted == c)).sum()), int((predicted == c).sum()), int((labels == c).sum())] for c in known]
    return {'names': names, 'counts': counts, 'text': classification_report(labels, predicted, **told),
            'report': classification_report(labels, predicted, output_dict=True, **told)}


def main():
    args = argparse.ArgumentParser()
    args.add_argument('--update', action='store_true')
    args.add_argument('--bin')
    args = args.parse_args()
    six = ['体育', '娱乐', 'finance', 'a rather long class name', 'x', 'Ünï']
    cases = [case(2, 8, 0.5, 1), case(6, 96, 0.6, 2, six), case(6, 40, 0.3, 3, six, (1, 4)), case(10, 333, 0.2, 4),
             case(77, 3000, 0.7, 5), case(300, 900, 0.4, 6), case(3, 5, 0.1, 7)]
    cases += [case(2 + seed % 7, 16, 0.5, seed) for seed in range(10, 30)]
    text = '{"cases": [\n' + ',\n'.join(json.dumps(c) for c in cases) + '\n]}\n'
    if args.update:
        with open(PATH, 'w', encoding='utf-8') as f:
            f.write(text)
    else:
        with open(PATH, encoding='utf-8') as f:
            if f.read() != text:
                print('scikit-learn makes other reports than recorded: class_reports.py --update')
                return 1
    print(f'{len(cases)} classification reports of scikit-learn: as recorded')
    return 0


if __name__ == '__main__':
    sys.exit(main())
