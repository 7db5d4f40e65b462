# SPDX-License-Identifier: Apache-2.0
"""The structures and constants that the package has of its own are those of the headers: a C program prints them."""
import ctypes
import os
import shutil
import subprocess
import unittest

from ckpt import _checkpoint, _dtype, _lib, _ops, _tensor, _view
from help import Case, ROOT

STRUCTS = {'ckpt_err': _lib.Err, 'ckpt_axis': _lib.Axis, 'ckpt_extent': _lib.Extent, 'ckpt_box': _lib.Box,
           'ckpt_tensor': _lib.Tensor, 'ckpt_slice': _lib.Slice, 'ckpt_training_info': _lib.TrainingInfo,
           'ckpt_run_opts': _lib.RunOpts, 'ckpt_run_report': _lib.RunReport, 'ckpt_open_opts': _lib.OpenOpts,
           'ckpt_filter': _lib.Filter, 'ckpt_model_opts': _lib.ModelOpts, 'ckpt_tree_opts': _lib.TreeOpts, 'ckpt_verify_opts': _lib.VerifyOpts,
           'ckpt_manifest_opts': _lib.ManifestOpts, 'ckpt_sign_opts': _lib.SignOpts, 'ckpt_sign_report': _lib.SignReport,
           'ckpt_hashed': _lib.Hashed, 'ckpt_diff_opts': _lib.DiffOpts,
           'ckpt_difference': _lib.Difference, 'ckpt_diff_group': _lib.DiffGroup, 'ckpt_tag': _lib.Tag,
           'ckpt_run_health': _lib.RunHealth, 'ckpt_doctor_opts': _lib.DoctorOpts,
           'ckpt_target': _lib.Target, 'ckpt_array': _lib.Array, 'ckpt_format_info': _lib.FormatInfo, 'ckpt_view_opts': _lib.ViewOpts,
           'ckpt_view_counts': _lib.ViewCounts}
# that lie in arrays, or that the library fills without knowing their size; the others may have grown at their ends
FIXED = ('ckpt_err', 'ckpt_axis', 'ckpt_extent', 'ckpt_box', 'ckpt_slice', 'ckpt_hashed', 'ckpt_view_counts')


class Abi(Case):
    @unittest.skipUnless(shutil.which('cc'), 'cc is not here')
    def test_layouts(self):
        lines, want = [], []
        for name, kind in STRUCTS.items():
            size = ctypes.sizeof(kind)
            lines.append('printf("%%d\\n", sizeof(%s) %s %d);' % (name, '==' if name in FIXED else '>=', size))
            want.append('%s of %d bytes: 1' % (name, size))
            for field, *_ in kind._fields_:
                lines.append('printf("%%zu %%zu\\n", offsetof(%s, %s), sizeof(((%s *)0)->%s));' % (name, field, name, field))
                f = getattr(kind, field)
                want.append('%s.%s: %d %d' % (name, field, f.offset, f.size))
        for text, value in (('CKPT_USED_STATE', _lib.USED_STATE), ('CKPT_TENSOR_CONJ', _lib.CONJ), ('CKPT_TREE_JSON', 1),
                            ('CKPT_ROLE_OTHER', _tensor.ROLES.index('other')), ('CKPT_TAG_UNKNOWN', len(_ops.HEALTH) - 1),
                            ('CKPT_WRITES_STATE', _view.WRITES_STATE),
                            ('CKPT_IS_FOLDER', _view.IS_FOLDER), ('CKPT_HAS_RANKS', _view.HAS_RANKS), ('CKPT_STAGE_NONE', -1)):
            lines.append('printf("%%d\\n", (int)%s);' % text)
            want.append('%s: %d' % (text, value))
        folder = self.scratch()
        source, program = os.path.join(folder, 'abi.c'), os.path.join(folder, 'abi')
        with open(source, 'w') as f:
            f.write('#include <stdio.h>\n#include "ckpt_extra.h"\nint main(void) {\n%s\nreturn 0; }\n' % '\n'.join(lines))
        subprocess.run(['cc', '-I' + os.path.join(ROOT, 'libckpt', 'include'), '-o', program, source],
                       check=True)
        got = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
        self.assertEqual([w.split(': ')[0] + ': ' + g for w, g in zip(want, got)], want)
        self.assertEqual(len(got), len(want))

    def test_dtypes(self):
        lib = _lib.lib()
        for name in {**_dtype.NUMPY, **_dtype.TORCH}:
            self.assertEqual(_dtype.name_of(lib.ckpt_dtype_parse(name.encode())), name)
        for alias, name in _dtype.ALIASES.items():
            self.assertEqual(_dtype.name_of(_dtype.parse(alias)), name)
        self.assertEqual(_checkpoint.CHECKS[0], 'whole')
