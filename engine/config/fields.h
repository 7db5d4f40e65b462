/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fields.h: declares how this folder describes configuration keys: tables, a draft that they fill,
 * notes.
 *
 * A table gives each key's type, range and effect: used, accepted without effect, accepted only
 * while switched off, or refused.  Only files of this folder may include this header.
 */
#ifndef ZT_CONFIG_FIELDS_H
#define ZT_CONFIG_FIELDS_H

#include "engine/config/config.h"

/* A batch size that the file does not give. */
#define DS_MISSING INT64_MIN

/* State of the parser while it reads one configuration. */
typedef struct ds_context {
    ckpt_arena *arena;
    ckpt_err *err;
    const char *name;         /* name of the file, for messages */
    const zt_arguments *args; /* or NULL */
    int world;
    const char **note; /* [DS_NOTES + 1], ends with NULL */
    bool *loud;        /* true: the note is a warning */
    size_t n_notes;
} ds_context;

enum { DS_NOTES = 200 };

/* The values that the tables parse; config.c then checks some of them and converts them into c. */
typedef struct ds_draft {
    zt_config c;
    int64_t stage;
    int comm_dtype, accum_dtype, param_dtype; /* indices in ds_dtype_names; -1: not given */
    int allreduce_op, tag_validation, place_optimizer, place_param;
    bool bf16, bf16_overflow;
    bool old_offload, old_offload_param, old_pin, old_gather; /* deprecated spellings */
    const ckpt_value *optimizer, *scheduler;                  /* blocks, or NULL */
} ds_draft;

typedef enum ds_kind {
    DS_BOOL,   /* bool */
    DS_INT,    /* int64_t */
    DS_SIZE,   /* uint64_t */
    DS_REAL,   /* double */
    DS_TEXT,   /* const char * */
    DS_CHOICE, /* int: index in choice */
    DS_TREE,   /* const ckpt_value *: an object, read by other code */
    DS_ANY,    /* any kind; never stored */
    DS_SWITCH, /* object that its boolean member `other` switches on; never stored */
    DS_BLOCK   /* an object with its own table */
} ds_kind;

typedef enum ds_fate {
    DS_USED, /* stored; with `why`: no effect, and a note gives that reason */
    DS_IDLE, /* checked but not stored; a note gives the reason */
    DS_OFF,  /* accepted while false, null, empty or at most max; else refused with the reason */
    DS_GONE  /* refused wherever it appears */
} ds_fate;

typedef struct ds_block ds_block;

typedef struct ds_key {
    const char *name, *other; /* a second accepted spelling, or NULL */
    ds_kind kind;
    ds_fate fate;
    bool nullable; /* null stands for the default; in blocks that are not typed, for all keys */
    bool fold;     /* DS_CHOICE: case is ignored */
    /*
     * Offset in ds_draft; set only for DS_USED.  A DS_BLOCK with an offset also takes true and
     * false.
     */
    size_t at;
    double min, max;
    const char *const *choice; /* NULL-terminated */
    const char *why;           /* for notes and refusals */
    const ds_block *block;
} ds_key;

struct ds_block {
    const char *name; /* "zero_optimization", "" for the top level */
    const ds_key *key;
    size_t n;
    bool typed; /* unknown members are errors, "auto" means the default */
};

/* Top-level table of the file; names of dtypes in configurations, and their dtypes (ds_dtypes). */
extern const ds_block ds_file;
extern const char *const ds_dtype_names[];
extern const ckpt_dtype ds_dtypes[];

/* Defaults of DeepSpeed 0.19.8. */
void ds_draft_default(ds_draft *d);

/*
 * Read an object by a table.
 *
 * Errors  CKPT_EUSAGE: a wrong value; CKPT_EUNSUPPORTED: a key that is refused, or unknown in a
 *         typed block
 */
int ds_read(ds_context *x, const ds_block *b, const ckpt_value *object, ds_draft *d);

/* Add a note for the user.  Drops it if there are DS_NOTES already. */
int ds_note(ds_context *x, const char *fmt, ...) CKPT_PRINTF(2, 3);

/* Print a value for a message, truncated if it is long. */
enum { DS_SHOWN = 64 };
const char *ds_show(const ckpt_value *v, char out[DS_SHOWN]);

/* True if v is the string "auto". */
bool ds_is_auto(const ckpt_value *v);

/*
 * Find a value below nested objects ("zero_optimization.stage"); NULL if a member of the path is
 * missing.
 */
ckpt_value *ds_find(const ckpt_value *root, const char *path);

/* batch.c: compute the batch sizes that are DS_MISSING. */
int ds_batch(ds_context *x, zt_config *c);

/*
 * auto.c: fill "auto" values from x->args.  One error names all disagreements with given arguments.
 */
int ds_fill(ds_context *x, ckpt_value *json);

/* Apply the given arguments that have no key in the file.  Must run after the tables. */
void ds_fill_missing(const ds_context *x, const ckpt_value *json, ds_draft *d);

/*
 * base64.c: decode base64 text, url-safe or standard, into the arena; *n: number of bytes.  NULL:
 * not base64, or out of memory.
 */
char *ds_unbase64(ckpt_arena *arena, const char *text, size_t *n);

#endif
