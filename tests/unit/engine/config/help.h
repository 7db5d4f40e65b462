/* SPDX-License-Identifier: Apache-2.0 */
/*
 * help.h: configurations from text, accepted or refused with the right words.
 */
#ifndef TESTS_UNIT_ENGINE_CONFIG_HELP_H
#define TESTS_UNIT_ENGINE_CONFIG_HELP_H

#include "engine/config/fields.h"
#include "tests/unit/unit.h"

/* What a test allocates from: made before each, freed after it. */
static ckpt_arena *arena;

static inline int new_arena(void **state)
{
    (void)state;
    arena = ckpt_arena_new(0);
    return !arena;
}

static inline int free_arena(void **state)
{
    (void)state;
    ckpt_arena_free(arena);
    return 0;
}

static inline ckpt_value *json_of(const char *text)
{
    ckpt_value *v = NULL;

    assert_int_equal(zt_hjson_parse(&v, arena, text, strlen(text), "text", NULL), CKPT_OK);
    return v;
}

static inline ckpt_value *file(const char *path)
{
    ckpt_value *v = NULL;
    ckpt_err err = {0};

    if (zt_hjson_read(&v, arena, path, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    return v;
}

static inline zt_config accepted(const char *text, const zt_arguments *args, int world)
{
    zt_config c;
    ckpt_err err = {0};

    if (zt_config_parse(&c, arena, json_of(text), args, world, &err) != CKPT_OK)
        fail_msg("%s: %s", text, err.text);
    return c;
}

/* Refused with this code, and a message that says all of `says`, parts of which '|' separates. */
static inline void refused_args(const char *text, const zt_arguments *args, int code,
                                const char *says)
{
    char part[128];
    zt_config c;
    ckpt_err err = {0};
    int rc = zt_config_parse(&c, arena, json_of(text), args, 2, &err);

    if (rc != code)
        fail_msg("%s: %d %s", text, rc, err.text);
    while (*says != '\0') {
        size_t n = strcspn(says, "|");

        (void)snprintf(part, sizeof part, "%.*s", (int)n, says);
        if (!strstr(err.text, part))
            fail_msg("%s: '%s' does not say '%s'", text, err.text, part);
        says += n + (says[n] == '|');
    }
}

static inline void refused(const char *text, int code, const char *says)
{
    refused_args(text, NULL, code, says);
}

static inline bool noted(const zt_config *c, const char *says)
{
    for (size_t i = 0; c->notes[i] != NULL; i++) {
        if (strstr(c->notes[i], says))
            return true;
    }
    return false;
}

static inline const ckpt_value *get(const ckpt_value *v, const char *path)
{
    const ckpt_value *found = ds_find(v, path);

    if (!found)
        fail_msg("the fixture has no %s", path);
    return found;
}

static inline double real(const ckpt_value *v)
{
    return v->kind == CKPT_V_FLOAT ? v->as.f : (double)v->as.i;
}

static inline bool flag(const ckpt_value *v, const char *path)
{
    return get(v, path)->as.i != 0;
}

/* Equal trees, where 1 and 1.0 are equal as in Python. */
static inline bool same(const ckpt_value *a, const ckpt_value *b)
{
    ckpt_seq s = ckpt_value_seq(a), t = ckpt_value_seq(b);
    ckpt_dict m = ckpt_value_map(a), n = ckpt_value_map(b);

    if (a->kind == CKPT_V_STR)
        return ckpt_value_is(b, a->as.text.at);
    if (a->kind == CKPT_V_LIST || a->kind == CKPT_V_DICT) {
        bool equal = a->kind == b->kind && s.n == t.n && m.n == n.n;

        for (uint64_t i = 0; equal && i < s.n; i++)
            equal = same(s.at[i], t.at[i]);
        for (uint64_t i = 0; equal && i < m.n; i++) {
            const ckpt_value *other = ckpt_value_get(b, m.at[i].key->as.text.at);

            equal = other && same(m.at[i].value, other);
        }
        return equal;
    }
    return (a->kind == CKPT_V_BOOL) == (b->kind == CKPT_V_BOOL) &&
           (a->kind == CKPT_V_NONE) == (b->kind == CKPT_V_NONE) && b->kind < CKPT_V_STR &&
           real(a) == real(b);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, new_arena, free_arena)

#endif
