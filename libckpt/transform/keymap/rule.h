/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rule.h: defines the parsed form of a layout map.
 *
 * Names are numbers. A name is an axis, a part of a fused axis, or a capture of a pattern; the same
 * name has the same meaning on both sides of a rule. A *term* is a pattern with its axes; each axis
 * is a list of *atoms*, the outermost first; an atom is one name, several parts one after another
 * (q|k|v), a 1, or `...`, which stands for all other axes.
 */
#ifndef CKPT_TRANSFORM_KEYMAP_RULE_H
#define CKPT_TRANSFORM_KEYMAP_RULE_H

#include "libckpt/transform/keymap/keymap.h"

enum {
    /* limits */
    CKPT_RM_ATOMS = 24,   /* atoms of one term; captures of one pattern */
    CKPT_RM_PARTS = 64,   /* parts of one atom */
    CKPT_RM_TERMS = 64,   /* terms on one side of a rule */
    CKPT_RM_NAMES = 2048, /* names in a layout map */
    CKPT_RM_LINE = 8192   /* bytes of one line, with its continuation lines */
};

#define CKPT_RM_NO_NAME UINT32_MAX
#define CKPT_RM_UNKNOWN UINT64_MAX /* an unknown size */

/* A piece of a pattern. */
typedef enum ckpt_rm_kind {
    CKPT_RM_TEXT,
    CKPT_RM_NUMBER, /* {layer}: digits; {layer+2}: layer + 2; {rank:2}: at least two digits */
    CKPT_RM_EXPR,   /* {=layers + 3}: the value of an expression */
    CKPT_RM_WORD,   /* {name*}: one component, without dots */
    CKPT_RM_ANY     /* {rest...} and *: any run, as short as the rest allows */
} ckpt_rm_kind;

typedef struct ckpt_rm_piece {
    ckpt_rm_kind kind;
    uint32_t name;        /* name of the capture, or NO_NAME */
    uint32_t plus, width; /* NUMBER */
    const char *text;     /* TEXT: itself; EXPR: its value (`from` is the expression) */
    const char *from;
    size_t n;
} ckpt_rm_piece;

CKPT_VEC(ckpt_rm_pieces, ckpt_rm_piece);

typedef struct ckpt_rm_atom {
    uint32_t n_parts; /* 0: an axis of one element */
    bool rest;        /* `...` */
    uint32_t axis;    /* index of its axis; in an instance after `...` is expanded */
    const uint32_t *part;
} ckpt_rm_atom;

/* How numbered tensors are joined. */
typedef enum ckpt_rm_joins {
    CKPT_RM_APART,  /* each at its place along the axes of the term */
    CKPT_RM_COPIES, /* all are equal */
    CKPT_RM_SUM,    /* their sum */
    CKPT_RM_MEAN    /* their mean */
} ckpt_rm_joins;

typedef struct ckpt_rm_term {
    const char *text; /* text of the pattern, for messages */
    ckpt_rm_piece *piece;
    uint32_t n_pieces;
    uint32_t n_axes, n_atoms; /* as written; `...` counts as one axis */
    const ckpt_rm_atom *atom;
    ckpt_rm_joins joins;
    bool plain;   /* the term gives no axes: all axes stay unchanged */
    bool follows; /* it is the same tensor as the term before, and gives its next rows */
} ckpt_rm_term;

CKPT_VEC(ckpt_rm_terms, ckpt_rm_term);

typedef enum ckpt_rm_does {
    CKPT_RM_EQUAL, /* side 0 = side 1 */
    CKPT_RM_DROP,  /* drop tensors that only one side has */
    /* the first name may be missing on one side, because the second has its values */
    CKPT_RM_TIE,
    CKPT_RM_FILL /* make tensors that only one side has, from an expression */
} ckpt_rm_does;

/* A line `name = expression` of the sizes, a key of the target's file, or of its configuration. */
typedef struct ckpt_rm_line {
    uint32_t name;   /* sizes */
    const char *key; /* keys, configurations */
    uint8_t type;    /* keys: ckpt_key_type */
    bool list, optional, padding;
    bool only;        /* fields: the target computes with this value always */
    bool fallback;    /* fields: a configuration without the field has this value */
    const char *text; /* the expression; `neutral` may have none: NULL */
    unsigned line;
    uint32_t when; /* as in rules */
    /* sizes, while a map is applied: 0 not evaluated, 1 in evaluation, 2 done */
    uint8_t state;
    const ckpt_value *value; /* the evaluated value; NULL: it cannot be evaluated */
} ckpt_rm_line;

/* A condition for a layout map, a rule or a key. */
typedef struct ckpt_rm_when {
    /* the first of own, has and key that is set is the condition */
    uint8_t side;            /* conditions of a layout map: they apply if this side is read */
    bool own;                /* some rule that is only for this model matches a tensor */
    ckpt_rm_term has;        /* a tensor with this name exists */
    const char *key;         /* the configuration's value of this key is one of `word` */
    const char *const *word; /* NULL-terminated */
} ckpt_rm_when;

typedef struct ckpt_rm_rule {
    ckpt_rm_does does;
    bool optional; /* `?`: no warning without a match */
    uint8_t side;  /* DROP, TIE, FILL: 0 left, 1 right */
    unsigned line;
    ckpt_rm_terms term[2]; /* EQUAL: left and right side; TIE: both names; DROP, FILL: only [0] */
    const char *because;   /* DROP */
    /* EQUAL without axes: left element = right element + plus, or log(-right element) */
    double plus;
    bool log;
    ckpt_rm_line with; /* FILL: the expression of each element */
    uint32_t when;     /* 1 + index of its condition in the text's `only`; 0: none */
    bool met, off;     /* while applying: met: it has matched; off: its condition is false */
    uint64_t n_taken;  /* tensors of the source that it took, in the last application */
} ckpt_rm_rule;

CKPT_VEC(ckpt_rm_rules, ckpt_rm_rule);
CKPT_VEC(ckpt_rm_lines, ckpt_rm_line);
CKPT_VEC(ckpt_rm_whens, ckpt_rm_when);
CKPT_VEC(ckpt_rm_texts, const char *);

struct ckpt_remap {
    ckpt_arena *arena;
    const char *name; /* name of the layout map, for messages */
    const char *side[2], *about;
    ckpt_rm_texts names; /* numbered names */
    ckpt_rm_lines sizes, keys;
    ckpt_rm_lines neutral;      /* keys of a source that its configuration need not express */
    ckpt_rm_lines config[2];    /* per side */
    ckpt_rm_lines fields[2];    /* lines `neutral` and `only` of the configurations */
    const char *config_file[2]; /* "config.json"; NULL: the text does not describe it */
    ckpt_rm_texts asked;        /* names that expressions and conditions look up, except sizes */
    ckpt_rm_rules rules;
    ckpt_rm_whens whens; /* conditions of the complete text */
    ckpt_rm_whens only;  /* conditions of single rules and keys (ckpt_rm_rule.when) */
    ckpt_rm_texts strip; /* meaningless prefixes */
    bool others_stay, keeps_slices[2], keeps_blocks[2];
    ckpt_remap_proof proof; /* counts of the last application */
};

/* A capture, with the number of its name. */
typedef struct ckpt_rm_found {
    uint32_t name;
    const char *at; /* NULL: a number */
    size_t n;
    uint64_t number;
} ckpt_rm_found;

typedef struct ckpt_rm_capture {
    uint32_t n;
    ckpt_rm_found found[CKPT_RM_ATOMS];
} ckpt_rm_capture;

/* Number of a name, which is added if it is new; NO_NAME: too many, or memory is exhausted. */
uint32_t ckpt_rm_name(ckpt_remap *r, const char *s, size_t n);

/* The line of the sizes for a name, or NULL. */
ckpt_rm_line *ckpt_rm_size(const ckpt_remap *r, uint32_t name);

/*
 * Record that an expression or a condition looks this name up. False: there are too many, or memory
 * is exhausted.
 */
bool ckpt_rm_ask(ckpt_remap *r, const char *name);

/* ---- strip.c ---- */

/*
 * Length of the prefix before the parameter's name: optimizer state is named "exp_avg/<parameter>".
 */
size_t ckpt_rm_moment(const ckpt_tensor *t);

/* Remove meaningless prefixes from all names. Errors: CKPT_EFORMAT, CKPT_ELIMIT */
int ckpt_rm_strip(ckpt_map *map, const ckpt_remap *r, ckpt_err *err);

/* ---- pattern.c ---- */

/* Parse a pattern into pieces. Errors: CKPT_EUSAGE, with the line. */
int ckpt_rm_pattern(ckpt_remap *r, ckpt_rm_term *out, const char *text, unsigned line,
                    ckpt_err *err);

/* True for a piece that captures. */
bool ckpt_rm_takes(const ckpt_rm_piece *p);

/* True if a whole name matches; the captures then point into it. */
bool ckpt_rm_match(const ckpt_rm_term *t, const char *name, ckpt_rm_capture *out);

/* Make the name for captures, in b, terminated. False: out of memory, or a capture is missing. */
bool ckpt_rm_make_name(const ckpt_rm_term *t, const ckpt_rm_capture *c, ckpt_bytes *b);

/* True if the pattern captures that name. */
bool ckpt_rm_captures(const ckpt_rm_term *t, uint32_t name);

/* ---- axes.c ---- */

/*
 * Parse the axes of the last term, "(head two d) in". A ';' begins the next rows of its tensor,
 * which are a term of their own. Errors: CKPT_EUSAGE, with the line; CKPT_ELIMIT
 */
int ckpt_rm_axes(ckpt_remap *r, ckpt_rm_terms *terms, const char *text, unsigned line,
                 ckpt_err *err);

/* Position of a part in an atom, or UINT32_MAX. */
uint32_t ckpt_rm_part(const ckpt_rm_atom *a, uint32_t name);

/* Check that each name of a rule occurs on its other side. Errors: CKPT_EUSAGE, with the line. */
int ckpt_rm_check_rule(const ckpt_remap *r, const ckpt_rm_rule *rule, ckpt_err *err);

#endif
