#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Let a torch file be of another save, one step later: other_step.py FILE KEY; KEY is what counts the steps."""
import re
import sys
import zipfile

path, key = sys.argv[1:]
count = re.compile(re.escape(key.encode()) + rb'(?:q.|r....|\x94)?K(.)', re.S)
n = 0
with zipfile.ZipFile(path) as z:
    records = [(i.filename, z.read(i)) for i in z.infolist()]
with zipfile.ZipFile(path, 'w', zipfile.ZIP_STORED) as z:
    for name, data in records:
        if name.endswith('.pkl'):
            data, n = count.subn(lambda m: m[0][:-1] + bytes([m[1][0] + 1]), data)
            assert n == 1, (path, key, n)
        z.writestr(name, data)
