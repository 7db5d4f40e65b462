/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stdlib.h: decides which names of Python's standard library are inert in a pickle.
 */
#ifndef CKPT_CODEC_PICKLE_STDLIB_H
#define CKPT_CODEC_PICKLE_STDLIB_H

#include "libckpt/map/value.h"

/* True if the first letter after underscores is a capital, as in names of classes. */
bool ckpt_name_class_like(ckpt_text name);

/* True for modules that come with Python, Python 2's included. */
bool ckpt_name_is_stdlib(ckpt_text module);

/* True if the name is that of another module, which the module may have imported. */
bool ckpt_name_is_module(ckpt_text module, ckpt_text name);

/* True for a name of the standard library (Python 3's form) that cannot be used to run code. */
bool ckpt_name_stdlib_inert(ckpt_text module, ckpt_text name);

/*
 * True for an inert name of the library that a pickle may call: a class, or a function that pickles
 * of the library's own objects call.
 */
bool ckpt_name_stdlib_called(ckpt_text module, ckpt_text name);

/* True for an attribute that a pickle may get from classes of a module of the library. */
bool ckpt_name_stdlib_attribute(ckpt_text module, ckpt_text name);

/* True for "__new__", which protocol 2 gets from classes to pass named arguments. */
bool ckpt_name_is_new(ckpt_text attribute);

/* True for ZoneInfo._unpickle, the only method of the library that a pickle may call. */
bool ckpt_name_is_unpickle(ckpt_text module, ckpt_text attribute);

/* True for names that real data only calls; an attack passes them to other functions. */
bool ckpt_name_only_called(const ckpt_global *g);

#endif
