/* SPDX-License-Identifier: Apache-2.0 */
/*
 * help.h: golden data in tests: JSON and tensors, from tests/fixtures/golden or, for what is
 * too large for the repository, from $CKPT_SHARED/golden.
 */
#ifndef TESTS_UNIT_ENGINE_HELP_H
#define TESTS_UNIT_ENGINE_HELP_H

#include <math.h>
#include <unistd.h>

#include "ckpt.h"
#include "engine/config/config.h"
#include "tests/unit/unit.h"

/* Where `name` lies; false when neither place has it. */
static inline bool gold_path(char out[512], const char *name)
{
    const char *shared = getenv("CKPT_SHARED");

    (void)snprintf(out, 512, "tests/fixtures/golden/%s", name);
    if (access(out, R_OK) == 0)
        return true;
    if (!shared)
        return false;
    (void)snprintf(out, 512, "%s/golden/%s", shared, name);
    return access(out, R_OK) == 0;
}

static inline const ckpt_value *gold_json(ckpt_arena *arena, const char *name)
{
    char path[512];
    ckpt_value *v = NULL;
    ckpt_err err = {0};

    assert_true(gold_path(path, name));
    if (zt_hjson_read(&v, arena, path, &err) != CKPT_OK)
        fail_msg("%s: %s", path, err.text);
    return v;
}

/* A value from JSON with ' for \" and keys without quotes. */
static inline const ckpt_value *gold_parse(ckpt_arena *arena, const char *text)
{
    char *own = ckpt_arena_string(arena, text, strlen(text));
    ckpt_value *v = NULL;
    ckpt_err err = {0};

    assert_non_null(own);
    for (char *at = strchr(own, '\''); at; at = strchr(at, '\''))
        *at = '"';
    if (zt_hjson_parse(&v, arena, own, strlen(own), "test", &err) != CKPT_OK)
        fail_msg("%s: %s", text, err.text);
    return v;
}

static inline bool gold_has(const ckpt_value *v, const char *key)
{
    const ckpt_value *found = ckpt_value_get(v, key);

    return found && found->kind != CKPT_V_NONE;
}

static inline double gold_value(const ckpt_value *v)
{
    assert_non_null(v);
    assert_true(v->kind == CKPT_V_INT || v->kind == CKPT_V_FLOAT || v->kind == CKPT_V_BOOL);
    return v->kind == CKPT_V_FLOAT ? v->as.f : (double)v->as.i;
}

static inline double gold_number(const ckpt_value *v, const char *key)
{
    const ckpt_value *found = ckpt_value_get(v, key);

    if (!found)
        fail_msg("no key %s", key);
    return gold_value(found);
}

static inline const char *gold_text(const ckpt_value *v, const char *key)
{
    const ckpt_value *found = ckpt_value_get(v, key);

    assert_non_null(found);
    assert_int_equal(found->kind, CKPT_V_STR);
    return found->as.text.at;
}

/* The list under a key. */
static inline ckpt_seq gold_list(const ckpt_value *v, const char *key)
{
    const ckpt_value *found = ckpt_value_get(v, key);

    if (!found || found->kind != CKPT_V_LIST)
        fail_msg("no list %s", key);
    return found->as.seq;
}

/* A file of tensors. */
typedef struct gold_file {
    ckpt_map *map;
    ckpt_reader *reader;
} gold_file;

static inline bool gold_open(gold_file *f, const char *name)
{
    char path[512];
    ckpt_err err = {0};

    if (!gold_path(path, name)) {
        print_message("skipped without CKPT_SHARED: %s\n", name);
        return false;
    }
    if (ckpt_open(&f->map, path, NULL, &err) != CKPT_OK ||
        ckpt_reader_new(&f->reader, f->map, &err) != CKPT_OK)
        fail_msg("%s: %s", path, err.text);
    return true;
}

static inline void gold_close(gold_file *f)
{
    ckpt_reader_free(f->reader);
    ckpt_map_free(f->map);
}

/* Tensor "<a>/<b>" as fp32 (malloc), its length in *n; NULL when the file lacks it. */
static inline float *gold_tensor(const gold_file *f, const char *a, const char *b, uint64_t *n)
{
    char name[128];
    const ckpt_tensor *t;
    ckpt_err err = {0};
    float *out;

    (void)snprintf(name, sizeof name, "%s/%s", a, b);
    t = ckpt_map_find(f->map, name);
    if (!t)
        return NULL;
    *n = t->n_elems;
    out = malloc(t->n_elems * sizeof *out + 1);
    assert_non_null(out);
    if (ckpt_reader_read(f->reader, t, 0, t->n_elems, CKPT_F32, out, &err) != CKPT_OK)
        fail_msg("%s: %s", name, err.text);
    return out;
}

#endif
