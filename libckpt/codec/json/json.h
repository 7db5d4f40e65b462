/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h: JSON text <-> tree of values: safetensors headers, index files, config.json.
 *
 * Reading is strict.  A gate of ours sees the whole text first; only what it passes reaches
 * cJSON 1.7, which accepts duplicate keys, bad UTF-8, text after the value, cuts strings at \u0000,
 * and rounds integers above 2^53: their digits come from the gate.
 */
#ifndef CKPT_CODEC_JSON_H
#define CKPT_CODEC_JSON_H

#include "libckpt/base/vec.h"
#include "libckpt/map/value.h"

/* Limits of one text, whatever its size. */
#define CKPT_JSON_DEPTH  64u        /* containers inside each other */
#define CKPT_JSON_VALUES (4u << 20) /* values: a tensor of a safetensors header has 6 to 10 */
#define CKPT_JSON_DIGITS 60u        /* bytes of one number */

/* A text to be read, and how to speak of it. */
typedef struct ckpt_json_text {
    const char *name; /* for messages: the file */
    uint64_t base;    /* byte offset of the text in that file, added to offsets in messages */
    const char *at;   /* n bytes; need not be terminated */
    uint64_t n;
    uint64_t max; /* bytes the text may have at most */
    bool narrow; /* integers beyond +-2^53 are errors: readers that know doubles alone round them */
} ckpt_json_text;

/*
 * The gate alone: is this one JSON value that every reader understands in the same way?
 *
 * kinds    gets one byte for each number of the text, in order: 1 integer, 0 anything else (a
 *          fraction, an exponent, or -0), 2 an integer beyond +-2^53, whose digits and a NUL
 *          follow; may be NULL
 * Errors   CKPT_EFORMAT: not JSON (RFC 8259), not UTF-8, a key twice in one object, \u0000, a lone
 *          surrogate escape, text->narrow and an integer beyond +-2^53, a number no double can
 *          hold;
 *          CKPT_ELIMIT: over text->max or one of the limits above, or out of memory
 */
int ckpt_json_gate(const ckpt_json_text *text, ckpt_bytes *kinds, ckpt_err *err);

/*
 * Gate and parse into DICT, LIST, STR, INT, LONG, FLOAT, BOOL and NONE values in the arena; keys
 * keep the order of the text.  Integers are exact, so that one which nobody uses
 * (model_max_length of a tokenizer without a limit) harms nobody.  Errors as of the gate.
 */
int ckpt_json_parse(ckpt_value **out, ckpt_arena *a, const ckpt_json_text *text, ckpt_err *err);

/*
 * The same of a whole file of at most `max` bytes.
 *
 * Errors   those of the gate; CKPT_EMISSING, CKPT_EIO
 */
int ckpt_json_read(ckpt_value **out, ckpt_arena *a, const char *path, uint64_t max, ckpt_err *err);

typedef struct ckpt_json_style {
    unsigned indent; /* spaces for each level; 0: one line without blanks */
    bool sort_keys;  /* by code point, as Python's sort_keys */
    bool flat_lists; /* a list stands on one line, whatever the indent */
    bool ascii; /* escape all but printable ASCII, as Python does; else only what JSON demands */
} ckpt_json_style;

/*
 * Append a tree as text; no newline at the end.
 *
 * v        kinds as ckpt_json_parse makes them, TUPLE and ODICT too; floats finite
 * Errors   CKPT_EUNSUPPORTED: another kind, a key that is no STR, NaN or infinity, bad UTF-8;
 *          CKPT_ELIMIT: deeper than CKPT_JSON_DEPTH (cycles), or out of memory
 */
int ckpt_json_write(ckpt_bytes *out, const ckpt_value *v, const ckpt_json_style *style,
                    ckpt_err *err);

/* Append one string with its quotes; s is n bytes of UTF-8.  False when memory is exhausted. */
bool ckpt_json_string(ckpt_bytes *out, const char *s, uint64_t n, bool ascii);

#endif
