/* SPDX-License-Identifier: Apache-2.0 */
/*
 * expr.h: evaluates the expressions of sizes and keys: look-ups in the checkpoint and its
 * configuration, and arithmetic.
 *
 *     head_dim or hidden_size / heads
 *     "yarn" if rope_scaling.rope_type == "yarn" or "none"
 *     count("layers.{i}.attention_norm.weight")
 *     shape("tok_embeddings.weight", 0)
 *     1 / pow(rope_theta, 2 * index / d)
 *
 * An unknown name has no value, and an expression that uses it has none either; `or` goes on to the
 * next. A division of integers without a remainder is an integer.
 */
#ifndef CKPT_TRANSFORM_KEYMAP_EXPR_H
#define CKPT_TRANSFORM_KEYMAP_EXPR_H

#include "libckpt/transform/keymap/rule.h"

/* The sources in which names are looked up. */
typedef struct ckpt_rm_facts {
    ckpt_remap *r;
    const ckpt_map *map;
    const ckpt_remap_how *how;
    ckpt_arena *arena;  /* arena of new values */
    const char *folder; /* of the model's files, with its slash; "" for the current one */
    /* config.json and params.json in the source's folder, and in that of how->like; or NULL */
    const ckpt_value *beside[4];
    /*
     * how the model's images are prepared: image_processor of processor_config.json, then
     * preprocessor_config.json; read if the layout map looks up "preprocessor_config.KEY"; or NULL
     */
    const ckpt_value *images[2];
    /* entries of how->sizes that are not sizes of the layout map; NULL: none */
    ckpt_value *given;
    bool lora; /* the tensors are those of a LoRA adapter (lora.c) */
} ckpt_rm_facts;

/*
 * Read the configurations in the source's folder, and forget the sizes of an earlier map. The
 * facts' pointers live as long as r, map and how.
 *
 * Errors   CKPT_EFORMAT: a configuration that is not JSON; CKPT_EIO; CKPT_EUSAGE: a bad entry of
 *          how->sizes; CKPT_ELIMIT
 */
int ckpt_rm_facts_open(ckpt_rm_facts *out, ckpt_remap *r, ckpt_map *map, const ckpt_remap_how *how,
                       ckpt_err *err);

/*
 * Read a file of JSON in the source's folder, if it exists.
 *
 * out     in the map's arena; NULL: there is no such file
 * Errors  CKPT_EFORMAT: no JSON; CKPT_EIO; CKPT_ELIMIT
 */
int ckpt_rm_beside(const ckpt_value **out, ckpt_map *map, const char *name, ckpt_err *err);

/*
 * The value under a path of keys ("rope_scaling.factor") in: how->sizes, the caller's
 * configuration, the result of an earlier layout map, the configurations in the source's folder,
 * the checkpoint's keys, its values and its metadata, and the configuration of how->like, in this
 * order; NULL: in none of them.
 */
const ckpt_value *ckpt_rm_fact(const ckpt_rm_facts *f, const char *path);

/* The value under a path in one configuration; NULL: it is missing, or config is NULL. */
const ckpt_value *ckpt_rm_in(const ckpt_value *config, const char *path);

/*
 * The number of a special token, by the tokenizer's files in the source's folder.
 *
 * out     NULL: these have no such token
 * Errors  CKPT_EMISMATCH: the files differ; CKPT_EFORMAT: a file is not JSON; CKPT_EIO; CKPT_ELIMIT
 */
int ckpt_rm_token(const ckpt_value **out, const ckpt_rm_facts *f, const char *text, ckpt_err *err);

/* The value of the size of that name, or of ckpt_rm_fact. */
const ckpt_value *ckpt_rm_named(const ckpt_rm_facts *f, const char *name);

/* The size of a name, or UNKNOWN. Errors: CKPT_EUSAGE: a cycle, or a value that is not a size. */
int ckpt_rm_size_of(const ckpt_rm_facts *f, uint32_t name, uint64_t *out, ckpt_err *err);

/*
 * The value of a line's expression; NULL in *out: it has none, and *missing (unless NULL) gets the
 * unknown name.
 */
int ckpt_rm_expr(const ckpt_value **out, const ckpt_rm_facts *f, const ckpt_rm_line *line,
                 const char **missing, ckpt_err *err);

/*
 * The same for the expression of one element: `index` is its number in the flattened tensor. *steps
 * decreases with each evaluated size; at 0 the call fails.
 */
int ckpt_rm_expr_at(const ckpt_value **out, const ckpt_rm_facts *f, const ckpt_rm_line *line,
                    uint64_t index, uint64_t *steps, ckpt_err *err);

/* Check the syntax of an expression. Errors: CKPT_EUSAGE, with the line. */
int ckpt_rm_expr_check(ckpt_remap *r, const ckpt_rm_line *line, ckpt_err *err);

/* ---- fits.c ---- */

/* True if a key has one of the values; *known: the key has any value. */
bool ckpt_rm_holds(const ckpt_rm_facts *f, const ckpt_rm_when *w, bool *known);

/* Warn if the configuration states another kind of model than the map's side `to` is for. */
int ckpt_rm_agrees(ckpt_map *map, const ckpt_rm_facts *f, unsigned to, ckpt_err *err);

/* ---- config.c ---- */

/*
 * Make the configuration of the target side, if the layout map describes it, in map->config.
 *
 * Errors   CKPT_EUSAGE: a key that occurs twice, or below another's value, or a value that JSON
 *          cannot express; CKPT_ELIMIT
 */
int ckpt_rm_config(ckpt_map *map, const ckpt_rm_facts *f, ckpt_err *err);

/* ---- lost.c ---- */

/* A list of names with their values, for a message; only the first eight are written. */
typedef struct ckpt_rm_listed {
    const char *text; /* "a = 1, b = 2"; NULL: none */
    size_t n;         /* names added */
} ckpt_rm_listed;

/* True for fields of config.json that change no result of a model with given weights. */
bool ckpt_rm_common_field(const char *name);

/* Add a name with its value. */
int ckpt_rm_list_value(ckpt_rm_listed *l, ckpt_arena *a, const char *name, const ckpt_value *v,
                       ckpt_err *err);

/* True for two values, or lists of them, that a key of this ckpt_key_type does not tell apart. */
bool ckpt_rm_same(uint8_t type, const ckpt_value *a, const ckpt_value *b);

/* True for 0, false, and an empty text or list, with which programs mean "not set". */
bool ckpt_rm_unset(const ckpt_value *v);

/*
 * List the source's keys "llama.NAME" (of its general.architecture) that the new configuration does
 * not express, for messages: "llama.logit_scale = 0.25, ..."; NULL: it expresses all.
 */
int ckpt_rm_lost(const char **out, const ckpt_rm_facts *f, const ckpt_value *config, ckpt_err *err);

/* ---- fields.c ---- */

/*
 * Warn of the fields of the source's configuration that change what the model computes and that the
 * layout map does not read, if the map lists those that change nothing (`neutral`, `only`).
 *
 * Errors   CKPT_EUNSUPPORTED: programs that load the target compute with another value
 */
int ckpt_rm_fields(ckpt_map *map, const ckpt_rm_facts *f, ckpt_err *err);

/* ---- keys.c ---- */

/*
 * Make a key's name: "{general.architecture}" in it is replaced by the value of that key in keys.
 * NULL: out of memory.
 */
const char *ckpt_rm_key_name(const ckpt_keys *keys, const ckpt_rm_facts *f, const char *name);

/*
 * Evaluate the keys of the layout map into map->keys; an adapter keeps its own, and gets the
 * architecture. Errors: CKPT_EMISSING, CKPT_EUSAGE; CKPT_ELIMIT
 */
int ckpt_rm_keys(ckpt_map *map, const ckpt_rm_facts *f, ckpt_err *err);

/* Remove the source's keys from the map, and report those that the layout map never looks up. */
int ckpt_rm_drop_keys(ckpt_map *map, const ckpt_rm_facts *f, ckpt_err *err);

#endif
