/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h: converts JSON text (safetensors headers, index files, config.json) to a tree of values
 * and back.
 *
 * Reading is strict. A check of our own (the gate) reads the whole text first, because cJSON 1.7
 * accepts duplicate keys, bad UTF-8 and text after the value, cuts strings at \u0000, and rounds
 * integers above 2^53: the digits of those come from the gate.
 */
#ifndef CKPT_CODEC_JSON_H
#define CKPT_CODEC_JSON_H

#include "libckpt/base/vec.h"
#include "libckpt/map/value.h"

/* Limits of one text, even if its size is allowed. */
#define CKPT_JSON_DEPTH  64u        /* depth of nested containers */
#define CKPT_JSON_VALUES (4u << 20) /* values: a tensor of a safetensors header has 6 to 10 */
#define CKPT_JSON_DIGITS 60u        /* bytes of one number */

/* A text to read, and its name and offset for messages. */
typedef struct ckpt_json_text {
    const char *name; /* name in messages: the file */
    uint64_t base;    /* byte offset of the text in that file, added to offsets in messages */
    const char *at;   /* n bytes; need not be terminated */
    uint64_t n;
    uint64_t max; /* bytes the text may have at most */
    /* integers beyond +-2^53 are errors, because readers that only know doubles round them */
    bool narrow;
} ckpt_json_text;

/*
 * Only check a text: is it one JSON value that every reader understands in the same way?
 *
 * kinds receives one byte for each number of the text, in order: 1 integer, 0 other (a fraction, an
 * exponent, or -0), 2 an integer beyond +-2^53, followed by its digits and a NUL; may be NULL
 * Errors   CKPT_EFORMAT: not JSON (RFC 8259), not UTF-8, a key twice in one object, \u0000, a lone
 *          surrogate escape, text->narrow and an integer beyond +-2^53, a number beyond the range
 *          of a double; CKPT_ELIMIT: over text->max or one of the limits above, or out of memory
 */
int ckpt_json_gate(const ckpt_json_text *text, ckpt_bytes *kinds, ckpt_err *err);

/*
 * Check and parse a text into DICT, LIST, STR, INT, LONG, FLOAT, BOOL and NONE values in the arena;
 * keys keep the order of the text. Integers are exact, so a huge one (model_max_length of a
 * tokenizer without a limit) is not an error. Errors as ckpt_json_gate.
 */
int ckpt_json_parse(ckpt_value **out, ckpt_arena *a, const ckpt_json_text *text, ckpt_err *err);

/*
 * Parse a file of at most `max` bytes.
 *
 * Errors   those of the gate; CKPT_EMISSING, CKPT_EIO
 */
int ckpt_json_read(ckpt_value **out, ckpt_arena *a, const char *path, uint64_t max, ckpt_err *err);

/*
 * True if the text looks like one complete object or list, judged by its brackets and quotes only;
 * false: it is probably truncated. Unlike the gate it accepts NaN and Infinity, because Python
 * writes them although JSON does not have them.
 */
bool ckpt_json_closed(const char *text, uint64_t n);

typedef struct ckpt_json_style {
    unsigned indent; /* spaces for each level; 0: one line without blanks */
    bool sort_keys;  /* by code point, as Python's sort_keys */
    bool flat_lists; /* write each list on one line, even if indent is not 0 */
    /*
     * escape all but printable ASCII, as Python does; otherwise only the characters that JSON
     * requires
     */
    bool ascii;
} ckpt_json_style;

/*
 * Append a tree as text, without a newline at the end.
 *
 * v  kinds as ckpt_json_parse makes them, TUPLE and ODICT too; floats finite
 * Errors   CKPT_EUNSUPPORTED: another kind, a key that is not a STR, NaN or infinity, bad UTF-8;
 *          CKPT_ELIMIT: deeper than CKPT_JSON_DEPTH (cycles), or out of memory
 */
int ckpt_json_write(ckpt_bytes *out, const ckpt_value *v, const ckpt_json_style *style,
                    ckpt_err *err);

/* Append one string with its quotes; s is n bytes of UTF-8.  False when memory is exhausted. */
bool ckpt_json_string(ckpt_bytes *out, const char *s, uint64_t n, bool ascii);

#endif
