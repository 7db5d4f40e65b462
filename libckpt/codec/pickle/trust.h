/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trust.h: classifies the dotted Python names in a pickle: known data, a class of an unknown
 * package, or a name that can only serve to run code.
 */
#ifndef CKPT_CODEC_PICKLE_NAMES_H
#define CKPT_CODEC_PICKLE_NAMES_H

#include "libckpt/codec/pickle/stdlib.h"

typedef enum ckpt_name_id {
    CKPT_NAME_UNSAFE, /* refused wherever it occurs */
    CKPT_NAME_OPAQUE, /* name of an unknown package: kept as a name, never imported */
    /* a known plain class or its builder: a call makes an OBJECT of known kind */
    CKPT_NAME_DATA,
    CKPT_NAME_DATA_MAP,    /* plain data that pickles fill by key: defaultdict, Counter */
    CKPT_NAME_DATA_SEQ,    /* plain data that pickles fill by appending: deque */
    CKPT_NAME_CONSTANT,    /* a known object that is never called: layouts, Ellipsis */
    CKPT_NAME_GETATTR,     /* builtins.getattr: may only be called, on classes and objects */
    CKPT_NAME_PARTIAL,     /* functools.partial: may only be called */
    CKPT_NAME_RECONSTRUCT, /* copyreg._reconstructor: its first argument is a class */
    CKPT_NAME_ODICT,
    CKPT_NAME_SET,
    CKPT_NAME_FROZENSET,
    CKPT_NAME_BYTES,
    CKPT_NAME_BYTEARRAY,
    CKPT_NAME_ENCODE, /* _codecs.encode: bytes in the form of a text */
    CKPT_NAME_SIZE,
    CKPT_NAME_DTYPE,
    CKPT_NAME_STORAGE,  /* typed storage classes */
    CKPT_NAME_UNTYPED,  /* UntypedStorage */
    CKPT_NAME_QSTORAGE, /* storages of quantized tensors */
    CKPT_NAME_TENSOR,   /* tensor classes: types passed to _rebuild_from_type_v2 */
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
 * Classify a name (its Python 3 form).
 *
 * why   for an unsafe name: receives the reason, a static text that completes "names os.system,
 *       ..."; may be NULL
 */
ckpt_name_id ckpt_name_find(const ckpt_global *name, const char **why);

/* Rewrite a Python 2 name to its Python 3 form in place (only names that data uses), and back. */
void ckpt_name_to_python3(ckpt_global *name);
void ckpt_name_to_python2(ckpt_global *name);

/*
 * True for ShardedTensor.ProcessGroupState of torch.distributed, in the module of any release.  It
 * is the only class inside a class in real checkpoints.
 */
bool ckpt_name_is_group(ckpt_text module, ckpt_text name);

/* True for the name of a class: by its first letter, or by the table. */
bool ckpt_name_is_class(const ckpt_global *g);

/*
 * False for functions of the standard library, torch and numpy that a pickle may name and must not
 * call.
 */
bool ckpt_name_called(const ckpt_global *g);

/* True for attributes of Python's frames, generators and functions that lead to code. */
bool ckpt_name_is_frame(ckpt_text s);

/* True for an attribute of torch and numpy that is a module, or a dangerous name from elsewhere. */
bool ckpt_name_leads_out(ckpt_text module, ckpt_text attribute);

/* True for packages in which some functions run code although checkpoints name their classes. */
bool ckpt_name_is_framework(ckpt_text module);

/*
 * True for an attribute that a pickle may get from a class: no dots, and of the names with two
 * underscores only __new__.
 */
bool ckpt_name_attribute(ckpt_text s);

/* True for the class of an OBJECT that ckpt knows to be plain data. */
bool ckpt_name_known(const ckpt_value *cls);

#endif
