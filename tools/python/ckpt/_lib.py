# SPDX-License-Identifier: Apache-2.0
"""_lib.py: libckpt.so through ctypes: its structures and the prototypes of the functions that this package calls.

The library is searched in $CKPT_LIBRARY, beside this package (a wheel), in the build folder of the source tree, and in the
paths of the system's loader.  It is loaded at the first use.  tests/python/abi.py compares this file with the headers.
"""
from __future__ import annotations

import ctypes as c
import os
import threading
from typing import Any, List, Optional

from .errors import CkptError, error_of

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(HERE, '..', '..', '..', 'build')
SONAME = 'libckpt.so.0'
VERSION = '0.1'  # version of the headers that define the structures below

USED_STATE = 1 << 1
CONJ = 1 << 2


class Err(c.Structure):
    """ckpt_err"""
    _fields_ = [('code', c.c_int), ('sys', c.c_int), ('text', c.c_char * 504)]


class Axis(c.Structure):
    """ckpt_axis"""
    _fields_ = [('start', c.c_uint64), ('count', c.c_uint64), ('stride', c.c_int64)]


class Extent(c.Structure):
    """ckpt_extent"""
    _fields_ = [('source', c.c_uint32), ('ndim', c.c_uint32), ('at', c.c_uint64), ('axis', c.POINTER(Axis))]


class Box(c.Structure):
    """ckpt_box"""
    _fields_ = [('extent', Extent), ('axis', Axis)]


class Tensor(c.Structure):
    """ckpt_tensor"""


Tensor._fields_ = [
    ('name', c.c_char_p), ('dtype', c.c_int), ('export_dtype', c.c_int), ('ndim', c.c_uint32), ('shape', c.POINTER(c.c_uint64)),
    ('n_elems', c.c_uint64), ('role', c.c_uint32), ('flags', c.c_uint32), ('n_extents', c.c_uint32), ('file', c.c_uint32),
    ('owner', c.POINTER(Tensor)), ('origin', c.c_char_p)]
TensorP = c.POINTER(Tensor)


class Slice(c.Structure):
    """ckpt_slice"""
    _fields_ = [('start', c.c_uint64), ('count', c.c_uint64), ('step', c.c_uint64)]


class TrainingInfo(c.Structure):
    """ckpt_training_info"""
    _fields_ = [('size', c.c_size_t), ('training', c.c_bool), ('stage', c.c_int), ('world', c.c_uint32), ('step', c.c_int64),
                ('tag', c.c_char_p), ('version', c.c_char_p), ('model_type', c.c_char_p), ('architecture', c.c_char_p),
                ('quantized', c.c_char_p)]


ProgressFn = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_uint64, c.c_uint64)


class RunOpts(c.Structure):
    """ckpt_run_opts"""
    _fields_ = [('size', c.c_size_t), ('memory', c.c_uint64), ('jobs', c.c_uint), ('force', c.c_bool), ('skip_fsync', c.c_bool),
                ('progress', ProgressFn), ('progress_ctx', c.c_void_p), ('allow_overflow', c.c_bool), ('strict', c.c_bool)]


class RunReport(c.Structure):
    """ckpt_run_report"""
    _fields_ = [('size', c.c_size_t)] + [(n, c.c_double if n == 'seconds' else c.c_uint64) for n in (
        'n_tensors', 'n_elems', 'n_read', 'n_written', 'n_records_checked', 'n_records_no_crc', 'n_compared', 'n_nan', 'n_inf',
        'n_files', 'seconds', 'n_unlike', 'n_files_kept', 'n_state_carried', 'n_state_rewritten', 'n_state_left_out',
        'n_source_nan', 'n_source_inf', 'n_over', 'n_zero')] + [('let_go', c.c_bool), ('n_payload', c.c_uint64), ('n_unvouched', c.c_uint64)]


class OpenOpts(c.Structure):
    """ckpt_open_opts"""
    _fields_ = [('size', c.c_size_t), ('tag', c.c_char_p), ('whole_checkpoint', c.c_bool), ('with_optimizer', c.c_bool),
                ('skip_frozen', c.c_bool), ('collect', c.c_bool), ('require_crc', c.c_bool), ('keep_slices', c.c_bool),
                ('slice_rules', c.c_char_p), ('join_first_axis', c.c_bool), ('ignore_copies', c.c_bool), ('training', c.c_bool),
                ('weights_only', c.c_bool), ('order_text', c.c_char_p)]


class Filter(c.Structure):
    """ckpt_filter"""
    _fields_ = [('size', c.c_size_t), ('include', c.POINTER(c.c_char_p)), ('exclude', c.POINTER(c.c_char_p)),
                ('rename_text', c.c_char_p), ('skip_state', c.c_bool)]


class ModelOpts(c.Structure):
    """ckpt_model_opts"""
    _fields_ = [('size', c.c_size_t), ('keep_names', c.c_bool), ('run', c.c_bool), ('config_text', c.c_char_p),
                ('config_name', c.c_char_p), ('keep_others', c.c_bool)]


WriteFn = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.c_size_t)


class TreeOpts(c.Structure):
    """ckpt_tree_opts"""
    _fields_ = [('size', c.c_size_t), ('format', c.c_int), ('path', c.c_char_p), ('max_depth', c.c_uint), ('max_items', c.c_uint64)]


FindingFn = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_int, c.c_int, c.c_char_p)
OpenedFn = c.CFUNCTYPE(None, c.c_void_p, c.c_void_p)


class VerifyOpts(c.Structure):
    """ckpt_verify_opts"""
    _fields_ = [('size', c.c_size_t), ('open', c.POINTER(OpenOpts)), ('run', c.POINTER(RunOpts)), ('finding', FindingFn),
                ('finding_ctx', c.c_void_p), ('opened', OpenedFn), ('map', c.POINTER(c.c_void_p))]


class ManifestOpts(c.Structure):
    """ckpt_manifest_opts"""
    _fields_ = [('size', c.c_size_t), ('open', c.POINTER(OpenOpts)), ('run', c.POINTER(RunOpts)), ('hashes', c.c_void_p),
                ('map', c.c_void_p)]


class SignOpts(c.Structure):
    """ckpt_sign_opts"""
    _fields_ = [('size', c.c_size_t), ('signature', c.c_char_p), ('key', c.c_char_p), ('key_name', c.c_char_p), ('cert', c.c_char_p),
                ('cert_name', c.c_char_p), ('follow_links', c.c_bool), ('run', c.POINTER(RunOpts)), ('finding', FindingFn),
                ('finding_ctx', c.c_void_p), ('open', c.POINTER(OpenOpts))]


class SignReport(c.Structure):
    """ckpt_sign_report"""
    _fields_ = [('size', c.c_size_t), ('n_files', c.c_uint64), ('n_bytes', c.c_uint64), ('signer', c.c_char * 256)]


class Hashed(c.Structure):
    """ckpt_hashed"""
    _fields_ = [('name', c.c_char_p), ('n_bytes', c.c_uint64), ('dtype', c.c_int), ('ndim', c.c_uint32),
                ('shape', c.POINTER(c.c_uint64)), ('sha256', c.c_char * 65)]


class Difference(c.Structure):
    """ckpt_difference"""
    _fields_ = [('name', c.c_char_p), ('what', c.c_char_p), ('a', TensorP), ('b', TensorP), ('n_different', c.c_uint64),
                ('first', c.c_uint64), ('max_abs', c.c_double), ('first_a', c.c_double), ('first_b', c.c_double)]


DifferenceFn = c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(Difference))


class DiffGroup(c.Structure):
    """ckpt_diff_group"""
    _fields_ = [('name', c.c_char_p)] + [(x, c.c_uint64) for x in (
        'n_tensors', 'n_tensors_different', 'n_elems', 'n_different', 'n_nan_a', 'n_nan_b', 'n_inf_a', 'n_inf_b')] + [
        ('relative_error', c.c_double), ('cosine', c.c_double), ('max_abs', c.c_double)]


DiffGroupFn = c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(DiffGroup))


class DiffOpts(c.Structure):
    """ckpt_diff_opts"""
    _fields_ = [('size', c.c_size_t), ('tolerance', c.c_double), ('ignore_dtype', c.c_bool), ('progress', ProgressFn),
                ('progress_ctx', c.c_void_p), ('exact', c.c_bool), ('rounded', c.c_bool), ('tied', DifferenceFn), ('group', DiffGroupFn),
                ('computed', c.c_void_p), ('n_rounded', c.POINTER(c.c_uint64))]


class Tag(c.Structure):
    """ckpt_tag"""
    _fields_ = [('name', c.c_char_p), ('health', c.c_int), ('code', c.c_int), ('reason', c.c_char_p), ('step', c.c_int64),
                ('stage', c.c_int), ('world', c.c_uint32), ('n_bytes', c.c_uint64), ('n_problems', c.c_size_t),
                ('is_latest', c.c_bool), ('is_universal', c.c_bool)]


class RunHealth(c.Structure):
    """ckpt_run_health"""
    _fields_ = [('name', c.c_char_p), ('pointer', c.c_char_p), ('latest', c.c_char_p), ('newest', c.c_char_p), ('fixed', c.c_char_p),
                ('code', c.c_int), ('reason', c.c_char_p)]


TagFn = c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(Tag))
ProblemFn = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_char_p, c.c_int, c.c_char_p)
HealthFn = c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(RunHealth))


class DoctorOpts(c.Structure):
    """ckpt_doctor_opts"""
    _fields_ = [('size', c.c_size_t), ('deep', c.c_bool), ('fix_latest', c.c_bool), ('run', c.POINTER(RunOpts)), ('tag', TagFn),
                ('problem', ProblemFn), ('health', HealthFn), ('ctx', c.c_void_p)]


class Target(c.Structure):
    """ckpt_target"""
    _fields_ = [('size', c.c_size_t), ('format', c.c_char_p), ('path', c.c_char_p), ('dtype', c.c_int), ('max_shard_size', c.c_uint64),
                ('skip_side_files', c.c_bool), ('keep_other_weights', c.c_bool), ('tag', c.c_char_p), ('stage', c.c_int),
                ('world', c.c_uint32), ('sub_group_size', c.c_uint64), ('version', c.c_char_p), ('fresh_optimizer', c.c_bool),
                ('keep_objects', c.c_bool), ('drop_objects', c.c_bool), ('order_text', c.c_char_p), ('deflate', c.c_bool),
                ('layout', c.c_char_p), ('dtypes', c.c_char_p), ('mixture', c.c_char_p), ('ep_size', c.c_uint32),
                ('imatrix', c.c_char_p), ('tp_size', c.c_uint32), ('pp_size', c.c_uint32)]


class Array(c.Structure):
    """ckpt_array"""
    _fields_ = [('size', c.c_size_t), ('name', c.c_char_p), ('dtype', c.c_int), ('ndim', c.c_uint32), ('shape', c.POINTER(c.c_uint64)),
                ('data', c.c_void_p)]


class FormatInfo(c.Structure):
    """ckpt_format_info"""
    _fields_ = [('name', c.c_char_p), ('aliases', c.c_char_p), ('suffixes', c.c_char_p), ('signs', c.c_char_p), ('note', c.c_char_p),
                ('caps', c.c_uint), ('dtypes', c.POINTER(c.c_int)), ('mixtures', c.c_char_p), ('layout', c.c_char_p)]


class ViewOpts(c.Structure):
    """ckpt_view_opts"""
    _fields_ = [('size', c.c_size_t), ('run', c.POINTER(RunOpts)), ('check_first', c.c_bool)]


class ViewCounts(c.Structure):
    """ckpt_view_counts"""
    _fields_ = [(name, c.c_uint64) for name in ('n_held', 'n_bad', 'n_partly', 'n_no_crc', 'n_elems', 'n_compared', 'n_nan', 'n_inf',
                                                'n_source_nan', 'n_source_inf', 'n_over', 'n_zero')]


ViewWriteFn = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.c_uint64, c.c_void_p)

_ErrP, _TextP = c.POINTER(Err), c.POINTER(c.c_char_p)
PROTOTYPES = {
    'ckpt_version': (c.c_char_p, ()),
    'ckpt_err_text': (c.c_char_p, (c.c_int,)),
    'ckpt_err_status': (c.c_int, (c.c_int,)),
    'ckpt_dtype_name': (c.c_char_p, (c.c_int,)),
    'ckpt_dtype_parse': (c.c_int, (c.c_char_p,)),
    'ckpt_dtype_bits': (c.c_uint, (c.c_int,)),
    'ckpt_dtype_block': (c.c_uint, (c.c_int, c.POINTER(c.c_uint))),
    'ckpt_dtype_converts': (c.c_bool, (c.c_int, c.c_int)),
    'ckpt_open': (c.c_int, (c.POINTER(c.c_void_p), c.c_char_p, c.POINTER(OpenOpts), _ErrP)),
    'ckpt_map_new': (c.c_int, (c.POINTER(c.c_void_p), c.c_char_p, _ErrP)),
    'ckpt_map_put': (c.c_int, (c.c_void_p, c.POINTER(Array), _ErrP)),
    'ckpt_map_put_metadata': (c.c_int, (c.c_void_p, c.c_char_p, c.c_char_p, _ErrP)),
    'ckpt_map_free': (None, (c.c_void_p,)),
    'ckpt_map_path': (c.c_char_p, (c.c_void_p,)),
    'ckpt_map_format': (c.c_char_p, (c.c_void_p,)),
    'ckpt_map_used_options': (c.c_uint, (c.c_void_p,)),
    'ckpt_map_tensor_count': (c.c_size_t, (c.c_void_p,)),
    'ckpt_map_tensor_at': (TensorP, (c.c_void_p, c.c_size_t)),
    'ckpt_map_find': (TensorP, (c.c_void_p, c.c_char_p)),
    'ckpt_tensor_bytes': (c.c_uint64, (TensorP,)),
    'ckpt_map_file_count': (c.c_size_t, (c.c_void_p,)),
    'ckpt_map_file_path': (c.c_char_p, (c.c_void_p, c.c_size_t)),
    'ckpt_map_file_size': (c.c_uint64, (c.c_void_p, c.c_size_t)),
    'ckpt_map_fact_at': (c.c_bool, (c.c_void_p, c.c_size_t, _TextP, _TextP, c.POINTER(c.c_bool))),
    'ckpt_map_finding_at': (c.c_bool, (c.c_void_p, c.c_size_t, c.POINTER(c.c_int), c.POINTER(c.c_int), _TextP)),
    'ckpt_map_metadata_at': (c.c_bool, (c.c_void_p, c.c_size_t, _TextP, _TextP)),
    'ckpt_map_training_info': (None, (c.c_void_p, c.POINTER(TrainingInfo))),
    'ckpt_tensor_extent': (c.POINTER(Extent), (c.POINTER(Tensor), c.c_uint32, c.POINTER(Box))),
    'ckpt_map_locate': (c.c_bool, (c.c_void_p, c.POINTER(Extent), _TextP, _TextP, c.POINTER(c.c_uint64))),
    'ckpt_map_select': (c.c_int, (c.c_void_p, c.POINTER(Filter), _ErrP)),
    'ckpt_map_keep_model': (c.c_int, (c.c_void_p, c.POINTER(ModelOpts), _ErrP)),
    'ckpt_map_values': (c.c_void_p, (c.c_void_p,)),
    'ckpt_tree_print': (c.c_int, (c.c_void_p, c.POINTER(TreeOpts), WriteFn, c.c_void_p, _ErrP)),
    'ckpt_reader_new': (c.c_int, (c.POINTER(c.c_void_p), c.c_void_p, _ErrP)),
    'ckpt_reader_free': (None, (c.c_void_p,)),
    'ckpt_reader_skip_crc': (None, (c.c_void_p,)),
    'ckpt_reader_read': (c.c_int, (c.c_void_p, TensorP, c.c_uint64, c.c_uint64, c.c_int, c.c_void_p, _ErrP)),
    'ckpt_reader_read_slice': (c.c_int, (c.c_void_p, TensorP, c.POINTER(Slice), c.c_int, c.c_void_p, _ErrP)),
    'ckpt_reader_read_box': (c.c_int, (c.c_void_p, TensorP, c.POINTER(c.c_uint64), c.POINTER(c.c_uint64), c.c_int, c.c_void_p,
                                       c.POINTER(c.c_int64), _ErrP)),
    'ckpt_format_from_path': (c.c_char_p, (c.c_char_p,)),
    'ckpt_format_find': (c.POINTER(FormatInfo), (c.c_char_p,)),
    'ckpt_target_check': (c.c_int, (c.POINTER(Target), _ErrP)),
    'ckpt_layout': (c.c_int, (c.POINTER(c.c_void_p), c.c_void_p, c.POINTER(Target), _ErrP)),
    'ckpt_map_warm_start': (c.c_int, (c.c_void_p, c.POINTER(Target), _ErrP)),
    'ckpt_plan_new': (c.c_int, (c.POINTER(c.c_void_p), c.c_void_p, c.c_void_p, c.POINTER(RunOpts), _ErrP)),
    'ckpt_plan_run': (c.c_int, (c.c_void_p, c.POINTER(RunOpts), c.POINTER(RunReport), _ErrP)),
    'ckpt_plan_free': (None, (c.c_void_p,)),
    'ckpt_view_new': (c.c_int, (c.POINTER(c.c_void_p), c.c_void_p, c.c_void_p, c.POINTER(ViewOpts), _ErrP)),
    'ckpt_view_free': (None, (c.c_void_p,)),
    'ckpt_view_file_count': (c.c_size_t, (c.c_void_p,)),
    'ckpt_view_file_path': (c.c_char_p, (c.c_void_p, c.c_size_t)),
    'ckpt_view_file_size': (c.c_uint64, (c.c_void_p, c.c_size_t)),
    'ckpt_view_read': (c.c_int, (c.c_void_p, c.c_size_t, c.c_void_p, c.c_uint64, c.c_uint64, _ErrP)),
    'ckpt_view_stream': (c.c_int, (c.c_void_p, c.c_size_t, ViewWriteFn, c.c_void_p, _ErrP)),
    'ckpt_view_get_counts': (None, (c.c_void_p, c.POINTER(ViewCounts))),
    'ckpt_verify': (c.c_int, (c.c_char_p, c.POINTER(VerifyOpts), c.POINTER(RunReport), _ErrP)),
    'ckpt_manifest_make': (c.c_int, (c.POINTER(c.c_void_p), c.c_char_p, c.POINTER(ManifestOpts), _ErrP)),
    'ckpt_manifest_free': (None, (c.c_void_p,)),
    'ckpt_manifest_find': (c.c_int, (c.POINTER(c.c_void_p), c.c_char_p, c.POINTER(ManifestOpts), _ErrP)),
    'ckpt_manifest_path': (c.c_char_p, (c.c_void_p,)),
    'ckpt_manifest_write': (c.c_int, (c.c_void_p, c.c_char_p, _ErrP)),
    'ckpt_manifest_file_count': (c.c_size_t, (c.c_void_p,)),
    'ckpt_manifest_file_at': (c.POINTER(Hashed), (c.c_void_p, c.c_size_t)),
    'ckpt_manifest_tensor_count': (c.c_size_t, (c.c_void_p,)),
    'ckpt_manifest_tensor_at': (c.POINTER(Hashed), (c.c_void_p, c.c_size_t)),
    'ckpt_manifest_check': (c.c_int, (c.c_void_p, c.c_char_p, c.POINTER(ManifestOpts), FindingFn, c.c_void_p, _ErrP)),
    'ckpt_hub_check': (c.c_int, (c.c_char_p, c.POINTER(ManifestOpts), FindingFn, c.c_void_p, c.POINTER(c.c_uint64), _ErrP)),
    'ckpt_sign': (c.c_int, (c.c_char_p, c.POINTER(SignOpts), c.POINTER(SignReport), _ErrP)),
    'ckpt_signature_check': (c.c_int, (c.c_char_p, c.POINTER(SignOpts), c.POINTER(SignReport), _ErrP)),
    'ckpt_diff': (c.c_int, (c.c_void_p, c.c_void_p, c.POINTER(DiffOpts), DifferenceFn, c.c_void_p, _ErrP)),
    'ckpt_doctor': (c.c_int, (c.c_char_p, c.POINTER(DoctorOpts), _ErrP)),
}

_lock = threading.Lock()
_library: Optional[c.CDLL] = None


def places(name: str, folder: str) -> List[str]:
    """Possible paths of a file of this project: beside the package, or in the build folder of the tree."""
    return [os.path.join(HERE, 'bin', name), os.path.normpath(os.path.join(BUILD, folder, name))]


def _load() -> c.CDLL:
    named = os.environ.get('CKPT_LIBRARY')
    tried = [named] if named else [p for p in places(SONAME, 'lib') if os.path.exists(p)] + [SONAME]
    try:
        lib = c.CDLL(tried[0])
    except OSError as x:
        raise CkptError('libckpt cannot be loaded: %s; set CKPT_LIBRARY to its path' % x) from x
    for name, (result, arguments) in PROTOTYPES.items():
        try:
            function = getattr(lib, name)
        except AttributeError as x:
            raise CkptError('%s does not match this package: it has no function %s' % (tried[0], name)) from x
        function.restype, function.argtypes = result, arguments
    found = lib.ckpt_version().decode()
    if found.rsplit('.', 1)[0] != VERSION:
        raise CkptError('%s is libckpt %s, but this package needs %s' % (tried[0], found, VERSION))
    return lib


def lib() -> Any:
    """The library, loaded once."""
    global _library
    if _library is None:
        with _lock:
            if _library is None:
                _library = _load()
    return _library


def text_of(raw: Optional[bytes]) -> str:
    """Convert a text of the library; invalid UTF-8 of a path is preserved."""
    return raw.decode('utf-8', 'surrogateescape') if raw else ''


def in_python(text: str) -> str:
    """A message with the two options that messages advise most as keyword arguments."""
    return text.replace('-t/--tag', 'tag=').replace('use --force', 'use force=True')


def check(code: int, err: Err, *, path: Optional[str] = None, tensor: Optional[str] = None) -> None:
    """Raise the error that a call reported."""
    if code != 0:
        text = text_of(err.text) or text_of(lib().ckpt_err_text(code))
        raise error_of(code, in_python(text), path=path, tensor=tensor, errno=err.sys)


def findings_of(pointer: Any) -> List[Tuple[str, int, str]]:
    """The findings of a map: ("note" | "warning" | "error", code, text)."""
    out: List[Tuple[str, int, str]] = []
    severity, code, text = c.c_int(), c.c_int(), c.c_char_p()
    while lib().ckpt_map_finding_at(pointer, len(out), c.byref(severity), c.byref(code), c.byref(text)):
        out.append((('note', 'warning', 'error')[severity.value], code.value, text_of(text.value)))
    return out


def sized(kind: Any, **members: Any) -> Any:
    """Make an option structure with its size set."""
    return kind(size=c.sizeof(kind), **members)


def path_bytes(path: Any) -> bytes:
    """Convert a path to the library's form."""
    raw = os.fsencode(path)
    if b'\0' in raw:
        raise ValueError('a path cannot contain a zero byte: %r' % (path,))
    return raw
