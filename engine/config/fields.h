/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fields.h: how the room of the configuration describes its keys: tables, a draft they fill, notes.
 *
 * A table says per key its type, its range, and what becomes of it: used, accepted without effect,
 * accepted only while switched off, or refused.  Only files of this folder include this header.
 */
#ifndef ZT_CONFIG_FIELDS_H
#define ZT_CONFIG_FIELDS_H

#include "engine/config/config.h"

/* A batch size that the file does not give. */
#define DS_MISSING INT64_MIN

/* What one reading of a configuration needs everywhere. */
typedef struct ds_context {
    ckpt_arena *arena;
    ckpt_err *err;
    const char *name;         /* of the file, for messages */
    const zt_arguments *args; /* or NULL */
    int world;
    const char **note; /* room for DS_NOTES and the NULL after them */
    bool *loud;        /* of each note: it is a warning */
    size_t n_notes;
} ds_context;

enum { DS_NOTES = 200 };

/* Values between the tables and the configuration: what needs a second look. */
typedef struct ds_draft {
    zt_config c;
    int64_t stage;
    int comm_dtype, accum_dtype, param_dtype; /* index in ds_dtype_names, -1: not given */
    int allreduce_op, tag_validation, place_optimizer, place_param;
    bool bf16, bf16_overflow;
    bool old_offload, old_offload_param, old_pin, old_gather; /* spellings of before */
    const ckpt_value *optimizer, *scheduler;                  /* blocks, or NULL */
} ds_draft;

typedef enum ds_kind {
    DS_BOOL,   /* bool */
    DS_INT,    /* int64_t */
    DS_SIZE,   /* uint64_t */
    DS_REAL,   /* double */
    DS_TEXT,   /* const char * */
    DS_CHOICE, /* int: index in choice */
    DS_TREE,   /* const ckpt_value *: an object, read elsewhere */
    DS_ANY,    /* of any kind; never stored */
    DS_SWITCH, /* an object whose one member `other` switches it on; never stored */
    DS_BLOCK   /* an object with a table of its own */
} ds_kind;

typedef enum ds_fate {
    DS_USED, /* stored; with a reason, noted too: stored but without effect */
    DS_IDLE, /* checked and not stored; a note says why it has no effect */
    DS_OFF,  /* accepted while false, null, empty, or at most max; else refused with the reason */
    DS_GONE  /* refused wherever it appears */
} ds_fate;

typedef struct ds_block ds_block;

typedef struct ds_key {
    const char *name, *other; /* a second accepted spelling, or NULL */
    ds_kind kind;
    ds_fate fate;
    bool nullable; /* null leaves the default; all keys of blocks that are not typed take it */
    bool fold;     /* DS_CHOICE: upper and lower case are the same */
    /* in ds_draft; unused unless DS_USED.  A DS_BLOCK with it takes true and false */
    size_t at;
    double min, max;
    const char *const *choice; /* NULL-terminated */
    const char *why;           /* for notes and refusals */
    const ds_block *block;
} ds_key;

struct ds_block {
    const char *name; /* "zero_optimization", "" for the file itself */
    const ds_key *key;
    size_t n;
    bool typed; /* unknown members are errors, "auto" stands for the default */
};

/* The table of the whole file, and the spellings of dtypes (ds_dtypes gives what they mean). */
extern const ds_block ds_file;
extern const char *const ds_dtype_names[];
extern const ckpt_dtype ds_dtypes[];

/* Defaults of DeepSpeed 0.19.8. */
void ds_draft_default(ds_draft *d);

/*
 * Read an object by a table.
 *
 * Errors  CKPT_EUSAGE: a value; CKPT_EUNSUPPORTED: a key that is refused, or unknown in a typed
 *         block
 */
int ds_read(ds_context *x, const ds_block *b, const ckpt_value *object, ds_draft *d);

/* Add a line for the user.  Beyond DS_NOTES they are dropped. */
int ds_note(ds_context *x, const char *fmt, ...) CKPT_PRINTF(2, 3);

/* A value as text, for messages: cut to fit. */
enum { DS_SHOWN = 64 };
const char *ds_show(const ckpt_value *v, char out[DS_SHOWN]);

/* True if v is the string "auto". */
bool ds_is_auto(const ckpt_value *v);

/*
 * A value below nested objects: "zero_optimization.stage"; NULL if something on the way is not
 * there.
 */
ckpt_value *ds_find(const ckpt_value *root, const char *path);

/* batch.c: the three sizes, of which DS_MISSING ones are computed. */
int ds_batch(ds_context *x, zt_config *c);

/* auto.c: fill "auto" values from x->args; all disagreements with given arguments are one error. */
int ds_fill(ds_context *x, ckpt_value *json);

/* Arguments that were given where the file has no such key; after the tables. */
void ds_fill_missing(const ds_context *x, const ckpt_value *json, ds_draft *d);

/*
 * base64.c: the *n bytes that base64 text stands for, url-safe or standard, in the arena.
 * NULL: not base64, or out of memory.
 */
char *ds_unbase64(ckpt_arena *arena, const char *text, size_t *n);

#endif
