/* SPDX-License-Identifier: Apache-2.0 */
/*
 * expr.h: the expressions of sizes and keys: what the checkpoint and its configuration say, and
 * arithmetic on it.
 *
 *     head_dim or hidden_size / heads
 *     "yarn" if rope_scaling.rope_type == "yarn" or "none"
 *     count("layers.{i}.attention_norm.weight")
 *     shape("tok_embeddings.weight", 0)
 *     1 / pow(rope_theta, 2 * index / d)
 *
 * A name that nothing knows has no value, and what is made of it has none; `or` goes on to the
 * next.  Division of integers that leaves nothing over is an integer.
 */
#ifndef CKPT_REMAP_EXPR_H
#define CKPT_REMAP_EXPR_H

#include "libckpt/remap/rule.h"

/* What names are looked up in. */
typedef struct ckpt_rm_facts {
    ckpt_remap *r;
    const ckpt_map *map;
    const ckpt_remap_how *how;
    ckpt_arena *arena;           /* of what is made while looking */
    const ckpt_value *beside[2]; /* config.json and params.json beside the source, or NULL */
    ckpt_value *given;           /* how->sizes that are no sizes of the text; NULL: none */
} ckpt_rm_facts;

/*
 * Read what stands beside the source, and forget the sizes of an earlier map.  The facts' pointers
 * live as long as r, map and how.
 *
 * Errors   CKPT_EFORMAT: a configuration that is no JSON; CKPT_EIO; CKPT_EUSAGE: a bad entry of
 *          how->sizes; CKPT_ELIMIT
 */
int ckpt_rm_facts_open(ckpt_rm_facts *out, ckpt_remap *r, ckpt_map *map, const ckpt_remap_how *how,
                       ckpt_err *err);

/*
 * What the model's configuration or the checkpoint says under a path of keys
 * ("rope_scaling.factor"): how->sizes, the configuration given, what an earlier map made of it,
 * those beside the source, the checkpoint's keys, its values and its metadata, in this order;
 * NULL: nothing does.
 */
const ckpt_value *ckpt_rm_fact(const ckpt_rm_facts *f, const char *path);

/* What one configuration says under a path, NULL: nothing, or there is none. */
const ckpt_value *ckpt_rm_in(const ckpt_value *config, const char *path);

/* The value of the size of that name, or what ckpt_rm_fact says. */
const ckpt_value *ckpt_rm_named(const ckpt_rm_facts *f, const char *name);

/* The size of a name, or UNKNOWN.  Errors: CKPT_EUSAGE: a circle, or a value that is no size. */
int ckpt_rm_size_of(const ckpt_rm_facts *f, uint32_t name, uint64_t *out, ckpt_err *err);

/*
 * The value of a line's expression; NULL in *out: it has none, and *missing, where it is not NULL,
 * names what is not known.
 */
int ckpt_rm_expr(const ckpt_value **out, const ckpt_rm_facts *f, const ckpt_rm_line *line,
                 const char **missing, ckpt_err *err);

/*
 * The same of the expression of one element: `index` is its number in the flattened tensor.
 * *steps becomes less by the sizes that were worked out; when there are none left it fails.
 */
int ckpt_rm_expr_at(const ckpt_value **out, const ckpt_rm_facts *f, const ckpt_rm_line *line,
                    uint64_t index, uint64_t *steps, ckpt_err *err);

/* Is it an expression?  Errors: CKPT_EUSAGE, with the line. */
int ckpt_rm_expr_check(ckpt_remap *r, const ckpt_rm_line *line, ckpt_err *err);

/* ---- fits.c ---- */

/* Does a value have one of the words?  *known: something says the value. */
bool ckpt_rm_holds(const ckpt_rm_facts *f, const ckpt_rm_when *w, bool *known);

/* ---- config.c ---- */

/*
 * Make the configuration of the side that is written, if the text says how, into map->config.
 *
 * Errors   CKPT_EUSAGE: a key that stands twice, or below another's value, or no value of a
 *          configuration; CKPT_ELIMIT
 */
int ckpt_rm_config(ckpt_map *map, const ckpt_rm_facts *f, ckpt_err *err);

/* ---- keys.c ---- */

/* Evaluate the keys of the text into map->keys.  Errors: CKPT_EMISSING, CKPT_EUSAGE; CKPT_ELIMIT */
int ckpt_rm_keys(ckpt_map *map, const ckpt_rm_facts *f, ckpt_err *err);

/* Take the source's keys off the map, and name those that the text never looks up. */
int ckpt_rm_drop_keys(ckpt_map *map, const ckpt_rm_facts *f, ckpt_err *err);

#endif
