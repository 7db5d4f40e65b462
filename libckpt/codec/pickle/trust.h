/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trust.h: what a dotted Python name in a pickle is to us: known data, a stranger's class,
 * or something that could only be there to run code.
 */
#ifndef CKPT_CODEC_PICKLE_NAMES_H
#define CKPT_CODEC_PICKLE_NAMES_H

#include "libckpt/codec/pickle/stdlib.h"

typedef enum ckpt_name_id {
    CKPT_NAME_UNSAFE,   /* refused wherever it is met */
    CKPT_NAME_OPAQUE,   /* of a package we do not know: kept as it is, never resolved */
    CKPT_NAME_DATA,     /* a known plain class or its builder: calls make OBJECTs of known kind */
    CKPT_NAME_DATA_MAP, /* the same, filled by key: defaultdict, Counter */
    CKPT_NAME_DATA_SEQ, /* the same, filled by appending: deque */
    CKPT_NAME_CONSTANT, /* a known object that is only named, never called: layouts, Ellipsis */
    CKPT_NAME_GETATTR,  /* builtins.getattr: only ever called, on classes and objects */
    CKPT_NAME_PARTIAL,  /* functools.partial: only ever called */
    CKPT_NAME_RECONSTRUCT, /* copyreg._reconstructor: its first argument is a class */
    CKPT_NAME_ODICT,
    CKPT_NAME_SET,
    CKPT_NAME_FROZENSET,
    CKPT_NAME_BYTES,
    CKPT_NAME_BYTEARRAY,
    CKPT_NAME_ENCODE, /* _codecs.encode: bytes as text */
    CKPT_NAME_SIZE,
    CKPT_NAME_DTYPE,
    CKPT_NAME_STORAGE,  /* typed storage classes */
    CKPT_NAME_UNTYPED,  /* UntypedStorage */
    CKPT_NAME_QSTORAGE, /* storages of quantized tensors */
    CKPT_NAME_TENSOR,   /* tensor classes: types given to _rebuild_from_type_v2 */
    CKPT_NAME_REBUILD_V1,
    CKPT_NAME_REBUILD_V2,
    CKPT_NAME_REBUILD_V3,
    CKPT_NAME_REBUILD_PARAMETER,
    CKPT_NAME_REBUILD_PARAMETER_STATE,
    CKPT_NAME_REBUILD_FROM_TYPE,
    CKPT_NAME_REBUILD_META,
    CKPT_NAME_REBUILD_QTENSOR,
    CKPT_NAME_REBUILD_SPECIAL /* sparse, nested ...: kept as objects */
} ckpt_name_id;

/*
 * Classify a name (its Python 3 form).  why, when the name is unsafe, tells the reason: a static
 * text that completes "names os.system, ..."; may be NULL.
 */
ckpt_name_id ckpt_name_find(const ckpt_global *name, const char **why);

/* Rewrite a Python 2 name to its Python 3 form in place (only what data uses), and back. */
void ckpt_name_to_python3(ckpt_global *name);
void ckpt_name_to_python2(ckpt_global *name);

/*
 * True for ShardedTensor.ProcessGroupState of torch.distributed, whichever module of it a release
 * keeps it in: the one class inside a class that checkpoints have.
 */
bool ckpt_name_is_group(ckpt_text module, ckpt_text name);

/* True for a name that is a class's: by its first letter, or listed as one. */
bool ckpt_name_is_class(const ckpt_global *g);

/* False for functions of the standard library, torch and numpy that are only ever named. */
bool ckpt_name_called(const ckpt_global *g);

/* True for attributes of Python's frames, generators and functions that lead to code. */
bool ckpt_name_is_frame(ckpt_text s);

/* True for an attribute of torch and numpy that is a module, or what they import of others. */
bool ckpt_name_leads_out(ckpt_text module, ckpt_text attribute);

/* True for packages that hold functions which run code beside the classes that checkpoints name. */
bool ckpt_name_is_framework(ckpt_text module);

/* True for an attribute that data asks a class for: no dots, and of Python's own only __new__. */
bool ckpt_name_attribute(ckpt_text s);

/* True for the name of an OBJECT's class that ckpt knows to be plain data. */
bool ckpt_name_known(const ckpt_value *cls);

#endif
