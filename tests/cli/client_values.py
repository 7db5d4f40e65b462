#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Add values of a training program to DeepSpeed's model file, as its client_state: client_values.py FILE RANK [odd].

seen is equal on all ranks; rng (a tensor), sampler.at and, on ranks from 3 on, late are each rank's own.  odd: values that are equal
but in another order on each second rank (a dict whose values are of several kinds, a set), the same list 2 ** 40 times over, nested
lists, and a key without text that differs.
"""
import io
import pickle
import sys
import zipfile

from ds_tiny import Storage, Tensor


def main():
    path, rank = sys.argv[1], int(sys.argv[2])
    with zipfile.ZipFile(path) as z:
        records = [(i.filename, z.read(i)) for i in z.infolist()]
    root = records[0][0].split('/')[0]
    made = []

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj):
            if not isinstance(obj, Storage):
                return None
            made.append(obj)
            return 'storage', obj.kind(), 'client%d' % len(made), 'cpu', len(obj.values)

    def dumped(value):
        out = io.BytesIO()
        Pickler(out, 2).dump(value)
        return out.getvalue()[2:-1]  # without PROTO and STOP

    values = {'seen': 40, 'rng': Tensor([rank, 7], (2,)), 'sampler': {'at': 10 * rank, 'epoch': 1}}
    if rank >= 3:
        values['late'] = 'rank %d' % rank
    if sys.argv[3:] == ['odd']:
        pairs = [(0, Tensor([3, 4], (2,))), (1, 5), ((2, 'x'), 'text'), ('y', None)]
        many, nested = [0], []
        for _ in range(40):
            many = [many, many]
        for _ in range(50):
            nested = [nested]
        values = {'mixed': dict(pairs[::-1] if rank % 2 else pairs), 'set': {8, 0} if rank % 2 else {0, 8}, '': rank, 'nested': nested}
        if rank == 4:
            values['many'] = many
    more = b''.join(dumped(key) + dumped(value) + b's' for key, value in values.items())
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_STORED) as z:
        for name, data in records:
            z.writestr(name, data[:-1] + more + b'.' if name == root + '/data.pkl' else data)
        for i, storage in enumerate(made):
            z.writestr('%s/data/client%d' % (root, i + 1), storage.data())


main()
