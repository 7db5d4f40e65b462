#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The names of other programs: man/zerotrain.1 must list them as `zerotrain --trainer-names` prints them.

    trainer_names.py [--update] --bin build/bin

--update writes the list into the page instead.
"""
import argparse
import os
import subprocess
import sys

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'man', 'zerotrain.1')
BEGIN, END = '.\\" begin of the names', '.\\" end of the names'


def listed(program):
    """The list of the page, from the lines of the program."""
    out = ['.Bl -tag -width Ds -compact']
    said = subprocess.run([program, '--trainer-names'], check=True, capture_output=True, text=True).stdout
    for line in said.splitlines():
        name, how = line.split('\t')
        how = how[0].upper() + how[1:]
        out += ['.It Ql ' + name, how.replace('\\', '\\e') + '.']
    return out + ['.El']


def main():
    args = argparse.ArgumentParser()
    args.add_argument('--bin', required=True)
    args.add_argument('--update', action='store_true')
    args = args.parse_args()
    with open(PAGE, encoding='utf-8') as f:
        page = f.read().split('\n')
    first = next(i for i, line in enumerate(page) if line.startswith(BEGIN)) + 1
    last = next(i for i, line in enumerate(page) if line.startswith(END))
    want = listed(os.path.join(args.bin, 'zerotrain'))
    if args.update:
        page[first:last] = want
        with open(PAGE, 'w', encoding='utf-8') as f:
            f.write('\n'.join(page))
    elif page[first:last] != want:
        print('man/zerotrain.1 lists other names than zerotrain --trainer-names: run tests/cli/trainer_names.py --update')
        return 1
    print(f'trainer names: {(len(want) - 2) // 2} are as the manual lists them')
    return 0


if __name__ == '__main__':
    sys.exit(main())
