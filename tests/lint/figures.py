#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Figures of the tree: lines by folder, functions, comments, documented prototypes, and circles of calls.

    figures.py [--objects build/obj] [--calls] [--limits]

Calls are taken from the objects of a build (nm): file A calls file B if A needs a symbol that B defines, and so for folders.  A
circle is a set of files, or of folders, that reach each other.  --calls prints the pairs of folders, --limits ends with 1 where a
folder is in a circle or a house limit is broken.  Functions are found by their braces in the first column, as clang-format sets
them.
"""
import argparse
import os
import re
import subprocess
import sys

ROOMS = ('libckpt', 'formats', 'engine', 'tools')
SOURCES = ('.c', '.h', '.cu', '.cuh')
FUNCTION_LINES, FILE_LINES = 60, 800


def sources():
    for room in ROOMS:
        for folder, folders, names in os.walk(room):
            folders.sort()
            for name in sorted(names):
                if name.endswith(SOURCES):
                    yield os.path.join(folder, name)


def comment_lines(lines):
    """Lines that are, or hold, a comment."""
    inside, n = False, 0
    for line in lines:
        bare = re.sub(r'"(\\.|[^"\\])*"', '""', line)
        here = inside or '//' in bare or '/*' in bare
        if '/*' in bare:
            inside = '*/' not in bare[bare.rindex('/*'):]
        elif inside and '*/' in bare:
            inside = False
        n += here
    return n


def functions(lines):
    """(name, its number of lines) of each function."""
    start = name = None
    for i, line in enumerate(lines):
        if line == '{' and start is not None:
            body = i
            while body < len(lines) and lines[body] != '}':
                body += 1
            yield name, body - start + 1
            start = None
        elif line and not line[0].isspace() and line[0] not in '#/{}*':
            found = re.search(r'(\w+)\(', line)
            if found and not line.endswith(';'):
                start, name = i, found.group(1)
            elif line.endswith((';', '}')):
                start = None


def prototypes(lines):
    """(name, documented) of each function that a header declares; a comment above a block of them is that of all."""
    documented, deep = False, 0
    for i, line in enumerate(lines):
        if not line:
            documented = False
        elif line.endswith('*/') or line.startswith('//'):
            documented = True
        if deep == 0 and line and not line[0].isspace() and line[0] not in '#/*}' and not line.startswith(('typedef', 'static', 'extern')):
            found = re.match(r'[\w\s\*]*?(\w+)\(', line)
            if found and '=' not in line and not found.group(1).isupper():
                yield found.group(1), documented or '/*' in line or '//' in line
        deep += line.count('{') - line.count('}') if not line.startswith('extern "C"') else 0
        deep = max(deep, 0)


def symbols(path):
    """Names that an object defines for others, and those it needs."""
    defined, needed = set(), set()
    for line in subprocess.run(['nm', '-P', path], capture_output=True, text=True, check=True).stdout.splitlines():
        name, kind = line.split()[:2]
        if kind == 'U':
            needed.add(name)
        elif kind.isupper() and kind != 'N':
            defined.add(name)
    return defined, needed


def calls(objects):
    """{file: {files that it calls}}"""
    where, needs = {}, {}
    for folder, _, names in os.walk(objects):
        for name in names:
            if name.endswith('.o'):
                path = os.path.join(folder, name)
                source = os.path.relpath(path, objects)[:-2]
                defined, needs[source] = symbols(path)
                where.update((symbol, source) for symbol in defined)
    return {a: {where[s] for s in n if s in where and where[s] != a} for a, n in needs.items()}


def circles(graph):
    """Sets of more than one node that reach each other (Tarjan, without recursion), the largest first."""
    index, low, on, stack, found = {}, {}, set(), [], []
    for root in sorted(graph):
        if root in index:
            continue
        work = [(root, iter(sorted(graph[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on.add(root)
        while work:
            node, more = work[-1]
            for to in more:
                if to not in index:
                    index[to] = low[to] = len(index)
                    stack.append(to)
                    on.add(to)
                    work.append((to, iter(sorted(graph.get(to, ())))))
                    break
                if to in on:
                    low[node] = min(low[node], index[to])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    circle = set()
                    while node not in circle:
                        circle.add(stack.pop())
                    on -= circle
                    if len(circle) > 1:
                        found.append(sorted(circle))
    return sorted(found, key=len, reverse=True)


def by_folder(graph):
    folders = {}
    for a, to in graph.items():
        here = folders.setdefault(os.path.dirname(a), set())
        here.update(os.path.dirname(b) for b in to if os.path.dirname(b) != os.path.dirname(a))
    return folders


def share(part, whole):
    return 100.0 * part / whole if whole else 0.0


def measure():
    """(offenders of a limit, folders in order) and prints what does not need a build."""
    folder, lengths, documented, bad, longest = {}, [], [], [], (0, '')
    lines_in_all = comments = 0
    for path in sources():
        lines = open(path, encoding='utf-8').read().split('\n')[:-1]
        folder[os.path.dirname(path)] = folder.get(os.path.dirname(path), 0) + len(lines)
        lines_in_all += len(lines)
        comments += comment_lines(lines)
        longest = max(longest, (len(lines), path))
        for name, n in functions(lines):
            lengths.append(n)
            if n > FUNCTION_LINES:
                bad.append('%s: %s has %d lines, more than %d' % (path, name, n, FUNCTION_LINES))
        if path.endswith('.h'):
            documented += [(path, name, yes) for name, yes in prototypes(lines)]
        if len(lines) > FILE_LINES:
            bad.append('%s has %d lines, more than %d' % (path, len(lines), FILE_LINES))
    lengths.sort()
    for name in sorted(folder):
        print('%7d  %s' % (folder[name], name))
    print('%7d  lines in all, comments in %.0f %% of them' % (lines_in_all, share(comments, lines_in_all)))
    print('%7d  functions: half have at most %d lines, nine of ten %d, the longest %d' %
          (len(lengths), lengths[len(lengths) // 2], lengths[len(lengths) * 9 // 10], lengths[-1]))
    print('%7d  lines in the longest file, %s' % longest)
    for what, some in (('ckpt.h', [x for x in documented if x[0] == 'libckpt/ckpt.h']), ('all headers', documented)):
        print('%7d  functions declared in %s, %.0f %% documented' % (len(some), what, share(sum(x[2] for x in some), len(some))))
    return bad


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--objects', default='build/obj')
    p.add_argument('--calls', action='store_true')
    p.add_argument('--limits', action='store_true')
    a = p.parse_args()
    bad = measure()
    graph = calls(a.objects)
    if not graph:
        print('no objects in %s: calls are not measured' % a.objects)
        return 1
    folders = by_folder(graph)
    for what, found in (('folders', circles(folders)), ('files', circles(graph))):
        print('%7d  circles of %s%s' % (len(found), what, ': of ' + ', '.join(str(len(c)) for c in found) if found else ''))
        for circle in found:
            print('         ' + ' '.join(circle))
        if what == 'folders':
            bad += ['in a circle: ' + ' '.join(c) for c in found]
    if a.calls:
        for name in sorted(folders):
            for to in sorted(folders[name]):
                print('%s -> %s' % (name, to))
    for text in bad if a.limits else []:
        print(text)
    return 1 if bad and a.limits else 0


if __name__ == '__main__':
    sys.exit(main())
