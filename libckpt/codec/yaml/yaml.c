/* SPDX-License-Identifier: Apache-2.0 */
/*
 * yaml.c: converts the events of libyaml to values, with a stack of open containers.
 */
#include "libckpt/codec/yaml/yaml.h"

#include <assert.h>
#include <math.h>
#include <string.h>
#include <yaml.h>

#include "libckpt/base/index.h"
#include "libckpt/base/number.h"

typedef struct yml_frame {
    ckpt_value *at;  /* DICT or LIST */
    ckpt_value *key; /* DICT: the key that waits for its value, or NULL */
    ckpt_index keys; /* DICT: the keys so far */
} yml_frame;

typedef struct yml_reader {
    const char *name;
    ckpt_arena *arena;
    ckpt_value *root;
    yml_frame frame[CKPT_YAML_DEPTH];
    unsigned depth;
    unsigned n_values, n_documents;
    ckpt_err *err;
} yml_reader;

static int yml_bad(const yml_reader *r, int code, const yaml_mark_t *at, const char *what)
{
    return ckpt_fail(r->err, code, "%s: line %zu: %s", r->name, at->line + 1, what);
}

static bool yml_same(const void *ctx, uint32_t number, const void *key)
{
    const ckpt_dict *map = ctx;

    return strcmp(map->at[number].key->as.text.at, key) == 0;
}

/* Set the next key of a mapping, and refuse a second one of the same name. */
static int yml_key(yml_reader *r, yml_frame *f, ckpt_value *key, const yaml_mark_t *at)
{
    const char *s = key->as.text.at;
    uint32_t hash = ckpt_hash_bytes(s, strlen(s), 0);
    const ckpt_dict *map = &f->at->as.map;

    if (ckpt_index_find(&f->keys, hash, yml_same, map, s) != CKPT_INDEX_NONE)
        return yml_bad(r, CKPT_EFORMAT, at, "a key appears twice in one mapping");
    if (!ckpt_index_add(&f->keys, hash, (uint32_t)map->n))
        return ckpt_fail_memory(r->err);
    f->key = key;
    return CKPT_OK;
}

/*
 * Put a value in its place: the root, the next item of a list, a key, or the value of the last key.
 */
static int yml_place(yml_reader *r, ckpt_value *v, const yaml_mark_t *at)
{
    yml_frame *f = r->depth > 0 ? &r->frame[r->depth - 1] : NULL;

    if (!v)
        return ckpt_fail_memory(r->err);
    if (++r->n_values > CKPT_YAML_VALUES)
        return yml_bad(r, CKPT_ELIMIT, at, "too many values");
    if (!f) {
        r->root = v;
        return CKPT_OK;
    }
    if (f->at->kind == CKPT_V_LIST)
        return ckpt_seq_add(r->arena, &f->at->as.seq, v) ? CKPT_OK : ckpt_fail_memory(r->err);
    if (f->key) {
        bool fits = ckpt_dict_add(r->arena, &f->at->as.map, f->key, v);
        f->key = NULL;
        return fits ? CKPT_OK : ckpt_fail_memory(r->err);
    }
    if (v->kind != CKPT_V_STR)
        return yml_bad(r, CKPT_EFORMAT, at, "a key is not text");
    return yml_key(r, f, v, at);
}

/* Convert a plain scalar by the forms that Python's loader recognizes. */
static ckpt_value *yml_plain(const yml_reader *r, const char *s, size_t n)
{
    static const char *const no[] = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const words[] = {"false", "False", "FALSE", "no",  "No",  "off", "Off",
                                        "true",  "True",  "TRUE",  "yes", "Yes", "on",  "On"};
    int64_t whole;
    double x = 0;

    for (size_t i = 0; no[i]; i++) {
        if (strcmp(s, no[i]) == 0)
            return ckpt_value_new(r->arena, CKPT_V_NONE);
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(s, words[i]) == 0)
            return ckpt_value_bool(r->arena, i >= 7);
    }
    if (strchr("+-.0123456789", s[0])) {
        if (ckpt_parse_i64(s, &whole))
            return ckpt_value_int(r->arena, whole);
        // Python reads a number that is too large for a double as infinite
        if (ckpt_parse_f64(s, &x) || isinf(x))
            return ckpt_value_float(r->arena, x);
    }
    return ckpt_value_str(r->arena, s, n);
}

static int yml_scalar(yml_reader *r, const yaml_event_t *e)
{
    const char *s = (const char *)e->data.scalar.value;
    size_t n = e->data.scalar.length;
    const yml_frame *f = r->depth > 0 ? &r->frame[r->depth - 1] : NULL;
    bool is_key = f && f->at->kind == CKPT_V_DICT && !f->key;

    if (e->data.scalar.anchor)
        return yml_bad(r, CKPT_EUNSUPPORTED, &e->start_mark, "anchors are not supported");
    if (strlen(s) != n)
        return yml_bad(r, CKPT_EFORMAT, &e->start_mark, "a text contains a NUL");
    return yml_place(r,
                     is_key || e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE
                         ? ckpt_value_str(r->arena, s, n)
                         : yml_plain(r, s, n),
                     &e->start_mark);
}

static int yml_open(yml_reader *r, const yaml_event_t *e, ckpt_value_kind kind, bool anchored)
{
    ckpt_value *v = ckpt_value_new(r->arena, kind);
    int rc;

    if (anchored)
        return yml_bad(r, CKPT_EUNSUPPORTED, &e->start_mark, "anchors are not supported");
    if (r->depth == CKPT_YAML_DEPTH)
        return yml_bad(r, CKPT_ELIMIT, &e->start_mark, "lists and mappings are nested too deep");
    rc = yml_place(r, v, &e->start_mark);
    if (rc == CKPT_OK)
        r->frame[r->depth++] = (yml_frame){.at = v};
    return rc;
}

static int yml_event(yml_reader *r, const yaml_event_t *e)
{
    switch (e->type) {
    case YAML_DOCUMENT_START_EVENT:
        return ++r->n_documents == 1 ? CKPT_OK
                                     : yml_bad(r, CKPT_EFORMAT, &e->start_mark,
                                               "the file contains a second document");
    case YAML_ALIAS_EVENT:
        return yml_bad(r, CKPT_EUNSUPPORTED, &e->start_mark, "aliases are not supported");
    case YAML_SCALAR_EVENT:
        return yml_scalar(r, e);
    case YAML_SEQUENCE_START_EVENT:
        return yml_open(r, e, CKPT_V_LIST, e->data.sequence_start.anchor != NULL);
    case YAML_MAPPING_START_EVENT:
        return yml_open(r, e, CKPT_V_DICT, e->data.mapping_start.anchor != NULL);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        ckpt_index_free(&r->frame[--r->depth].keys);
        return CKPT_OK;
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
    case YAML_DOCUMENT_END_EVENT:
        break;
    }
    return CKPT_OK;
}

int ckpt_yaml_parse(ckpt_value **out, ckpt_arena *a, const char *name, const char *text, uint64_t n,
                    ckpt_err *err)
{
    assert(out && a && name && (text || n == 0));
    yml_reader r = {.name = name, .arena = a, .err = err};
    yaml_parser_t parser;
    bool ended = false;
    int rc = CKPT_OK;

    if (!yaml_parser_initialize(&parser))
        return ckpt_fail_memory(err);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, (size_t)n);
    while (rc == CKPT_OK && !ended) {
        yaml_event_t e;

        if (!yaml_parser_parse(&parser, &e)) {
            rc = yml_bad(&r, CKPT_EFORMAT, &parser.problem_mark,
                         parser.problem ? parser.problem : "not YAML");
            break;
        }
        ended = e.type == YAML_STREAM_END_EVENT;
        rc = yml_event(&r, &e);
        yaml_event_delete(&e);
    }
    yaml_parser_delete(&parser);
    while (r.depth > 0)
        ckpt_index_free(&r.frame[--r.depth].keys);
    if (rc == CKPT_OK && !r.root)
        rc = ckpt_fail(err, CKPT_EFORMAT, "%s: the file contains no value", name);
    *out = r.root;
    return rc;
}
