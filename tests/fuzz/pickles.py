#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Extract the data.pkl of every torch zip below FOLDER into CORPUS: seeds for the pickle fuzzer."""
import os
import sys
import zipfile

corpus, folder = sys.argv[1:3]
n = 0
for d, _, files in os.walk(folder):
    for f in files:
        try:
            with zipfile.ZipFile(os.path.join(d, f)) as z:
                for m in z.namelist():
                    if m.endswith('/data.pkl') and z.getinfo(m).file_size < 65536:
                        with open(os.path.join(corpus, 'pkl%d' % n), 'wb') as o:
                            o.write(z.read(m))
                        n += 1
        except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError, ValueError, EOFError):
            continue
