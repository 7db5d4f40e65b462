#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Texts stay readable: comments, manual pages, messages and README keep to limits, which only fall.

    prose.py [--list [FOLDER...]]     --list: the places that count

A relative clause in place of a noun ("what is written", "who asks") hides the subject of a sentence.  The words that begin such
clauses are counted: in comments (share of comments with one), in pages (per 1000 words).  In comments the words of a reason are
counted, too: a comment that gives none often repeats the code.  Some hits are right; a text is not bent to please the count.
CONTRIBUTING.md, "Language", has the rules.  When a figure is well below its limit, lower the limit.
"""
import argparse
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CLAUSE = re.compile(r'\b(what|who|whose|whoever|whatever|some(?:body|one)|nobody|told|tells|sa(?:id|ys))\b', re.I)
REASON = re.compile(r'\b(because|so that|so|otherwise|since|would|therefore|instead of|to avoid|although|even (?:if|though)|cannot|must not)\b', re.I)
COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*(?:\n[ \t]*//[^\n]*)*', re.S)
NO = re.compile(r'"[^"\n]*\b(?:is|are) no (?!longer\b)[a-zA-Z]')
CODE = ('libckpt', 'formats', 'engine', 'tools')
# percent of comments, percent of comments, per 1000 words, number, KB, columns
LIMITS = {'comments with a clause': 2.0, 'pages, clauses': 1.5, 'messages "X is no Y"': 2, 'README, KB': 10.0, 'README, columns': 100}
LEAST = {'comments with a reason': 13.0}


def files(*patterns):
    out = subprocess.run(('git', 'ls-files') + patterns, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [f for f in out.split('\n') if f and os.path.exists(os.path.join(ROOT, f))]


def read(name):
    with open(os.path.join(ROOT, name), encoding='utf-8', errors='replace') as f:
        return f.read()


def comments(text):
    """(line, words) of each comment with more than four words; licence lines and rulers are none."""
    for m in COMMENT.finditer(text):
        words = re.sub(r'^[ \t]*(?:\*|//)+', '', m[0].strip('/* \n'), flags=re.M).split()
        if len(words) > 4 and 'SPDX-License-Identifier:' not in words and not words[0].startswith('---'):
            yield text.count('\n', 0, m.start()) + 1, ' '.join(words)


def prose(text):
    """(line, text) of a page without its samples: displays and indented blocks."""
    inside = False
    for number, line in enumerate(text.split('\n'), 1):
        inside = (inside or line.startswith('.Bd')) and not line.startswith('.Ed')
        if not inside and not line.startswith(('    ', '\t', '.\\"', '.Dl')):
            yield number, line


def measure(show):
    """Figures by name; show(file, line, text) gets each place."""
    n = clauses = reasons = words = hits = no = 0
    for f in files(*('%s/*.%s' % (d, e) for d in CODE for e in ('c', 'h', 'cu', 'hpp'))):
        text = read(f)
        for line, comment in comments(text):
            n += 1
            reasons += bool(REASON.search(comment))
            if CLAUSE.search(comment):
                clauses += 1
                show(f, line, comment)
        for m in NO.finditer(COMMENT.sub('', text)):
            no += 1
            show(f, 0, m[0])
    for f in files('man/*', '*.md', 'engine/*.md', 'tools/*.md'):
        for line, text in prose(read(f)):
            words += len(text.split())
            found = len(CLAUSE.findall(text))
            hits += found
            if found:
                show(f, line, text)
    readme = read('README.md')
    return {'comments with a clause': 100 * clauses / n, 'comments with a reason': 100 * reasons / n, 'pages, clauses': 1000 * hits / words,
            'messages "X is no Y"': no, 'README, KB': len(readme.encode()) / 1024, 'README, columns': max(map(len, readme.split('\n')))}


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--list', nargs='*', metavar='FOLDER')
    a = p.parse_args()

    def show(name, line, text):
        if a.list is not None and (not a.list or name.startswith(tuple(a.list))):
            print('%s:%d: %s' % (name, line, text[:160]))

    bad = 0
    for name, figure in measure(show).items():
        over = figure > LIMITS[name] if name in LIMITS else figure < LEAST[name]
        bad += over
        print('%8.1f  %s%s' % (figure, name, ': %s is the limit' % LIMITS.get(name, LEAST.get(name)) if over else ''))
    return 1 if bad else 0


sys.exit(main())
