#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Figures of the tree: lines by folder, functions, comments, documented prototypes, prefixes, asserts, circles and floors of calls,
and pairs of format folders that know each other.

    figures.py [--objects build/obj] [--calls] [--pairs] [--limits]

Calls are taken from the objects of a build (nm): file A calls file B if A needs a symbol that B defines, and so for folders.  A
circle is a set of files, or of folders, that reach each other.  The floors of a folder are the files in its longest chain of
calls.  --calls prints the pairs of folders.  Functions are found by their braces in the first column, as clang-format sets them.

A circle of types is a set of headers that need each other's types: by an include, or by a pointer to a struct for which another
header has the typedef.  The public headers are left out.

A format folder knows another one if it includes its headers.  --pairs prints these pairs.

A walk follows one value from a function of WALKS: through each call that passes it, or a variable that was made from it, in the
order of the source, into each function of the same room once (a room is formats/NAME or tools).  Calls into other rooms count, but
are not entered.  A climb is a call inside the room that follows a call below it, in libckpt: a reader that hands its findings on
climbs seldom, one that mixes its own steps with details of the map climbs often.

--limits names what breaks a house limit, and ends with 1 if anything does: long functions, files and lines; a function of library,
formats or tools with more than six parameters; a prototype without a comment; a prefix of static functions (two or three letters)
in two files; a folder, a file or a type in a circle; a name that only its own file uses, but others could; a driver
that knows another one.
"""
import argparse
import glob
import os
import re
import subprocess
import sys

ROOMS = ('libckpt', 'formats', 'engine', 'tools')
SOURCES = ('.c', '.h', '.cu', '.cuh')
CXX = ('.hpp',)
FUNCTION_LINES, FILE_LINES, COLUMNS = 60, 800, 100
PARAMETERS = 6
PARAMETERS_IN = ('libckpt', 'formats', 'tools')
# The public readers take a place in a tensor, and a place in memory.
MORE_PARAMETERS = {'ckpt_reader_read', 'ckpt_reader_read_box'}
# What tests alone may use: memory that fails at the n-th call, bytes as a file, a configuration from values, a shorter wait.
DOORS = {'main', 'ckpt_alloc_fail_at', 'ckpt_io_memory', 'zt_config_parse', 'zt_together_patience'}

# Folders of formats on which all others may build.
GROUND = ('torch', 'safetensors', 'rules', 'training')
# Other pairs: a Megatron run can be a DCP folder, and a universal one has DeepSpeed's model files.
KNOWN = {('megatron', 'dcp'), ('universal', 'deepspeed')}

# The functions that put a checkpoint together, and the value that they pass on: the map, or the command's options.
WALKS = (('formats/deepspeed/deepspeed.c', 'ds_gather', 'map'), ('formats/universal/read.c', 'ur_gather', 'map'),
         ('formats/dcp/dcp.c', 'dcp_gather', 'map'), ('tools/ckpt/convert.c', 'convert_run', 'a'))
DEFINITION = re.compile(r'^([A-Za-z][\w \t*]*?)(\w+)\(([^;{}]*?)\)\n\{(.*?)^\}', re.M | re.S)

# The fields that several commands have in common.
COMMON = re.compile(r'^[a-zA-Z_][\w *]*\([^;{}]*\bcli_args \*[^;{}]*\)\n\{', re.M)


def sources(endings=SOURCES):
    for room in ROOMS:
        for folder, folders, names in os.walk(room):
            folders.sort()
            for name in sorted(names):
                if name.endswith(endings):
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


def parameters(text):
    """(name, its number of parameters) of each function that a file defines."""
    for found in re.finditer(r'^[A-Za-z][\w \t*]*?(\w+)\(([^;{}]*?)\)\n\{', re.sub(r'/\*.*?\*/', '', text, flags=re.S), re.M):
        inner = found.group(2)
        while re.search(r'\([^()]*\)', inner):
            inner = re.sub(r'\([^()]*\)', '', inner)
        yield found.group(1), inner.count(',') + 1


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


def prefixes(lines):
    """Prefixes of the static functions of a file."""
    found = (re.match(r'static\s[\w\s\*]*?\b([a-z][a-z0-9]{1,2})_\w+\(', line) for line in lines)
    return {m.group(1) for m in found if m}


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


def objects_of(root):
    """{source: (names it defines for others, names it needs)} of a build; an object whose source is gone does not count."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            source = os.path.relpath(path, root)[:-2]
            if name.endswith('.o') and os.path.exists(source + '.c'):
                found[source] = symbols(path)
    return found


def calls(objects):
    """{file: {files that it calls}}"""
    where = {symbol: source for source, (defined, _) in objects.items() for symbol in defined}
    return {a: {where[s] for s in n if s in where and where[s] != a} for a, (_, n) in objects.items()}


def lonely(objects):
    """Names that a file shows to others, and none uses; what libckpt.map lists is for programs."""
    used = set(re.findall(r'\w+', open('libckpt/libckpt.map', encoding='utf-8').read())) | DOORS
    for _, needed in objects.values():
        used |= needed
    for path in sources():
        # not part of this build: the GPU's
        if not path.endswith('.h') and os.path.splitext(path)[0] not in objects:
            used.update(re.findall(r'\w+', open(path, encoding='utf-8').read()))
    return ['%s.c: nothing but tests uses %s outside' % (source, name) for source, (defined, _) in sorted(objects.items())
            for name in sorted(defined - used) if '.' not in name]


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


def floors(graph, folder):
    """The number of files in the longest chain of calls inside a folder; a circle is one floor."""
    inside = {a: {b for b in to if os.path.dirname(b) == folder} for a, to in graph.items() if os.path.dirname(a) == folder}
    node = {a: circle[0] for circle in circles(inside) for a in circle}
    below = {}
    for a, to in inside.items():
        here = below.setdefault(node.get(a, a), set())
        here.update(node.get(b, b) for b in to if node.get(b, b) != node.get(a, a))
    depth = {}

    def deep(a):
        if a not in depth:
            depth[a] = 1 + max((deep(b) for b in below[a]), default=0)
        return depth[a]
    return max(deep(a) for a in below)


def arguments(text):
    """The arguments of a call, or the parameters of a definition, up to the closing parenthesis."""
    found, deep = [''], 0
    for c in text:
        deep += (c in '([{') - (c in ')]}')
        if deep < 0:
            break
        if c == ',' and deep == 0:
            found.append('')
        else:
            found[-1] += c
    return found


def definitions():
    """{function, or (file, static function): (its file, its parameters, its body)}"""
    found = {}
    for path in sources(('.c',)):
        text = re.sub(r'/\*.*?\*/|//[^\n]*|"(\\.|[^"\\\n])*"', '', open(path, encoding='utf-8').read(), flags=re.S)
        for kind, name, parameter, body in DEFINITION.findall(text):
            key = (path, name) if kind.startswith('static') else name
            found[key] = path, [(re.findall(r'\w+', p) or [''])[-1] for p in arguments(parameter)], body
    return found


def types():
    """{header: {headers whose types it needs: those that it includes, and those that declare a struct it names}}"""
    declared, needed = {}, {}
    for path in sources(('.h', '.cuh')):
        if path.startswith('libckpt/include/'):
            continue
        text = re.sub(r'/\*.*?\*/|//[^\n]*', '', open(path, encoding='utf-8').read(), flags=re.S)
        for name in re.findall(r'\bstruct (\w+)\s*\{', text):
            declared.setdefault(name, path)
        declared.update((name, path) for name in re.findall(r'^typedef struct (\w+)', text, re.M))
        needed[path] = re.findall(r'^#include "([^"]+)"', text, re.M), re.findall(r'\bstruct (\w+)', text)
    return {path: ({x for x in to if x in needed} | {declared[x] for x in names if x in declared}) - {path}
            for path, (to, names) in needed.items()}


def untested():
    """Folders of formats without a unit test."""
    there = {path.split('/')[1] for path in sources() if path.count('/') > 1 and path.startswith('formats/')}
    return sorted(name for name in there if not glob.glob('tests/unit/formats/%s/test_*.c' % name))


def room(path):
    return '/'.join(path.split('/')[:2 if path.startswith('formats/') else 1])


def walk(found, function, value, seen):
    """The files whose functions get a value, in the order of the calls."""
    home, _, body = found[function]
    seen.add((function, value))
    mine = {value}
    for made, source in re.findall(r'(\w+)(?:\[\w*\])? = ([^;]*);', body):
        if mine & set(re.findall(r'\w+', source)) and (source.startswith('{') or '*%s = ' % made in body):
            mine.add(made)
    for call in re.finditer(r'\b(\w+)\(', body):
        callee = (home, call.group(1)) if (home, call.group(1)) in found else call.group(1)
        path, parameter, _ = found.get(callee, ('', (), ''))
        got = [p for p, a in zip(parameter, arguments(body[call.end():])) if mine & set(re.findall(r'\w+', a))]
        if got:
            yield path
        if got and room(path) == room(home) and (callee, got[0]) not in seen:
            yield from walk(found, callee, got[0], seen)


def climbs(found):
    """(climbs, calls, function, file) of each walk"""
    for path, name, value in WALKS:
        if (path, name) in found:
            to = list(walk(found, (path, name), value, set()))
            yield sum(a.startswith('libckpt/') and room(b) == room(path) for a, b in zip(to, to[1:])), len(to), name, path


def format_pairs():
    """{(format folder, format folder whose headers it includes)}; a folder inside belongs to its format."""
    found = set()
    for path in sources():
        mine = re.match(r'formats/(\w+)/', path)
        theirs = re.findall(r'^#include "formats/(\w+)/', open(path, encoding='utf-8').read(), re.M) if mine else []
        found.update((mine.group(1), to) for to in theirs if to != mine.group(1))
    return found


def common_takers():
    """Functions that take the fields of all commands."""
    return sum(len(COMMON.findall(open(path, encoding='utf-8').read())) for path in sources() if path.endswith('.c'))


def common_fields():
    """Fields of cli_args."""
    text = open('tools/cli/verb.h', encoding='utf-8').read()
    body = text.split('\nstruct cli_args {')[1].split('\n};')[0]
    body = re.sub(r'/\*.*?\*/', '', body, flags=re.S)
    return sum(len(field.split(',')) for field in body.split(';') if field.strip())


def share(part, whole):
    return 100.0 * part / whole if whole else 0.0


def measure():
    """Prints what does not need a build; returns what breaks a limit."""
    folder, lengths, documented, bad, longest, owner = {}, [], [], [], (0, ''), {}
    lines_in_all = comments = 0
    asserts = {room: [0, 0] for room in ROOMS}
    for path in sources():
        lines = open(path, encoding='utf-8').read().split('\n')[:-1]
        folder[os.path.dirname(path)] = folder.get(os.path.dirname(path), 0) + len(lines)
        lines_in_all += len(lines)
        comments += comment_lines(lines)
        asserts[path.split('/')[0]][0] += sum(line.lstrip().startswith('assert(') for line in lines)
        asserts[path.split('/')[0]][1] += len(lines)
        longest = max(longest, (len(lines), path))
        for name, n in functions(lines):
            lengths.append(n)
            if n > FUNCTION_LINES:
                bad.append('%s: %s has %d lines, more than %d' % (path, name, n, FUNCTION_LINES))
        if path.startswith(PARAMETERS_IN):
            bad += ['%s: %s has %d parameters, more than %d' % (path, name, n, PARAMETERS) for name, n in parameters('\n'.join(lines))
                    if n > PARAMETERS and name not in MORE_PARAMETERS]
        if path.endswith('.h'):
            documented += [(path, name, yes) for name, yes in prototypes(lines)]
        if path.endswith('.c'):
            for prefix in prefixes(lines):
                owner.setdefault(prefix, []).append(path)
        bad += ['%s:%d: more than %d columns' % (path, i + 1, COLUMNS) for i, line in enumerate(lines) if len(line) > COLUMNS]
    for path in sources(SOURCES + CXX):
        n = open(path, encoding='utf-8').read().count('\n')
        if n > FILE_LINES:
            bad.append('%s has %d lines, more than %d' % (path, n, FILE_LINES))
    bad += ['%s: %s is not documented' % (path, name) for path, name, yes in documented if not yes]
    shared = {prefix: files for prefix, files in owner.items() if len(files) > 1}
    bad += ['%s_ is the prefix of %s' % (prefix, ' and '.join(files)) for prefix, files in sorted(shared.items())]
    lengths.sort()
    for name in sorted(folder):
        print('%7d  %s' % (folder[name], name))
    print('%7d  lines in all, comments in %.0f %% of them' % (lines_in_all, share(comments, lines_in_all)))
    print('%7d  asserts; in 1000 lines: %s' % (sum(n for n, _ in asserts.values()), ', '.join(
        '%s %.1f' % (name, share(*pair) * 10) for name, pair in asserts.items())))
    print('%7d  functions: half have at most %d lines, nine of ten %d, the longest %d' %
          (len(lengths), lengths[len(lengths) // 2], lengths[len(lengths) * 9 // 10], lengths[-1]))
    print('%7d  lines in the longest file, %s' % longest)
    for what, some in (('ckpt.h', [x for x in documented if x[0] == 'libckpt/include/ckpt.h']), ('all headers', documented)):
        print('%7d  functions declared in %s, %.0f %% documented' % (len(some), what, share(sum(x[2] for x in some), len(some))))
    print('%7d  prefixes of static functions, %d of them in more than one file' % (len(owner), len(shared)))
    return bad


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--objects', default='build/obj')
    p.add_argument('--calls', action='store_true')
    p.add_argument('--pairs', action='store_true')
    p.add_argument('--limits', action='store_true')
    a = p.parse_args()
    bad = measure()
    print('%7d  functions take cli_args, which has %d fields' % (common_takers(), common_fields()))
    for row in climbs(definitions()):
        print('%7d  climbs in %d calls, the walk of %s in %s' % row)
    lacking = untested()
    print('%7d  folders of formats without a unit test%s' % (len(lacking), ''.join(' ' + name for name in lacking)))
    pairs = format_pairs()
    print('%7d  pairs of format folders that know each other, beside %d with %s' %
          (sum(to not in GROUND for _, to in pairs), sum(to in GROUND for _, to in pairs), ', '.join(GROUND)))
    bad += ['formats/%s includes a header of formats/%s; shared code belongs to formats/training' % pair
            for pair in sorted(pairs) if pair[1] not in GROUND and pair not in KNOWN]
    for pair in sorted(pairs) if a.pairs else []:
        print('         %s -> %s' % pair)
    objects = objects_of(a.objects)
    if not objects:
        print('no objects in %s: calls are not measured' % a.objects)
        return 1
    graph = calls(objects)
    folders = by_folder(graph)
    print('%7d  floors in %s, the most of all folders' % max((floors(graph, folder), folder) for folder in folders))
    for what, found in (('folders', circles(folders)), ('files', circles(graph)), ('types', circles(types()))):
        print('%7d  circles of %s%s' % (len(found), what, ': of ' + ', '.join(str(len(c)) for c in found) if found else ''))
        for circle in found:
            print('         ' + ' '.join(circle))
            bad.append('in a circle: ' + ' '.join(circle))
    bad += lonely(objects)
    if a.calls:
        for name in sorted(folders):
            for to in sorted(folders[name]):
                print('%s -> %s' % (name, to))
    for text in bad if a.limits else []:
        print(text)
    return 1 if bad and a.limits else 0


if __name__ == '__main__':
    sys.exit(main())
