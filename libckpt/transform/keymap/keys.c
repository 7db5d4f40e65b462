/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.c: makes the typed pairs at the start of a target's file.
 */
#include <math.h>
#include <string.h>

#include "libckpt/transform/keymap/expr.h"

enum { RKEY_LISTED = 16 /* names in a message */ };

/* True if an integer type can hold a value. */
static bool rkey_holds_int(uint8_t type, int64_t i)
{
    switch (type) {
    case CKPT_KEY_U8:
        return i >= 0 && i <= UINT8_MAX;
    case CKPT_KEY_I8:
        return i >= INT8_MIN && i <= INT8_MAX;
    case CKPT_KEY_U16:
        return i >= 0 && i <= UINT16_MAX;
    case CKPT_KEY_I16:
        return i >= INT16_MIN && i <= INT16_MAX;
    case CKPT_KEY_U32:
        return i >= 0 && i <= (int64_t)UINT32_MAX;
    case CKPT_KEY_I32:
        return i >= INT32_MIN && i <= INT32_MAX;
    case CKPT_KEY_U64:
        return i >= 0;
    default:
        return true;
    }
}

/* True if the type can hold a value. */
static bool rkey_holds(uint8_t type, const ckpt_value *v)
{
    switch (type) {
    case CKPT_KEY_STRING:
        return v->kind == CKPT_V_STR;
    case CKPT_KEY_BOOL:
        return v->kind == CKPT_V_BOOL;
    case CKPT_KEY_F32:
    case CKPT_KEY_F64:
        return v->kind == CKPT_V_INT || (v->kind == CKPT_V_FLOAT && isfinite(v->as.f));
    default:
        return v->kind == CKPT_V_INT && rkey_holds_int(type, v->as.i);
    }
}

static bool rkey_fits(const ckpt_rm_line *line, const ckpt_value *v)
{
    const ckpt_seq seq = ckpt_value_seq(v);

    if (!line->list)
        return rkey_holds(line->type, v);
    for (uint64_t i = 0; i < seq.n; i++) {
        if (!rkey_holds(line->type, seq.at[i]))
            return false;
    }
    return v->kind == CKPT_V_LIST;
}

const char *ckpt_rm_key_name(const ckpt_keys *keys, const ckpt_rm_facts *f, const char *name)
{
    const char *open = strchr(name, '{'), *close = open ? strchr(open, '}') : NULL;

    for (size_t i = 0; close && i < keys->n; i++) {
        const ckpt_key *k = &keys->at[i];
        size_t n = (size_t)(close - open) - 1;
        if (strlen(k->name) == n && memcmp(k->name, open + 1, n) == 0 &&
            k->type == CKPT_KEY_STRING && !k->list)
            return ckpt_arena_printf(f->arena, "%.*s%s%s", (int)(open - name), name,
                                     k->value->as.text.at, close + 1);
    }
    return ckpt_arena_string(f->arena, name, strlen(name));
}

static int rkey_add(ckpt_keys *keys, const ckpt_rm_facts *f, const ckpt_rm_line *line,
                    ckpt_err *err)
{
    const ckpt_value *v = NULL;
    const char *missing = NULL;
    bool known;

    if (line->when && !ckpt_rm_holds(f, &f->r->only.at[line->when - 1], &known))
        return CKPT_OK;
    int rc = ckpt_rm_expr(&v, f, line, &missing, err);

    if (rc != CKPT_OK || (!v && line->optional))
        return rc;
    if (!v && missing && strncmp(missing, "preprocessor_config.", 20) == 0)
        return ckpt_fail(err, CKPT_EMISSING,
                         "%s:%u: %s: %s is unknown: copy the model's preprocessor_config.json into "
                         "its folder",
                         f->r->name, line->line, line->key, missing);
    if (!v && missing)
        return ckpt_fail(
            err, CKPT_EMISSING,
            "%s:%u: %s: %s is unknown; set it with --size %s=VALUE, or give --config FILE",
            f->r->name, line->line, line->key, missing, missing);
    if (!v)
        return ckpt_fail(err, CKPT_EMISSING,
                         "%s:%u: %s: the model's configuration gives no value for '%.200s': a name "
                         "in it is missing there, or has a value that the map does not support; "
                         "correct the configuration, or give another with --config FILE",
                         f->r->name, line->line, line->key, line->text);
    if (!rkey_fits(line, v))
        return ckpt_fail(err, CKPT_EUSAGE, "%s:%u: %s: its type cannot hold the value of '%.80s'",
                         f->r->name, line->line, line->key, line->text);
    const char *name = ckpt_rm_key_name(keys, f, line->key);
    ckpt_key *key = name ? ckpt_vec_push(keys) : NULL;
    if (!key || !name)
        return ckpt_fail_memory(err);
    *key = (ckpt_key){.name = name, .type = line->type, .list = line->list, .value = v};
    return CKPT_OK;
}

int ckpt_rm_keys(ckpt_map *map, const ckpt_rm_facts *f, ckpt_err *err)
{
    ckpt_keys keys = {0};
    int rc = CKPT_OK;

    // an adapter has its own keys, and of the model's only the architecture
    for (size_t i = 0; rc == CKPT_OK && i < f->r->keys.n; i++) {
        if (!f->lora || strcmp(f->r->keys.at[i].key, "general.architecture") == 0)
            rc = rkey_add(&keys, f, &f->r->keys.at[i], err);
    }
    for (size_t i = 0; rc == CKPT_OK && f->lora && i < map->keys.n; i++) {
        ckpt_key *key = ckpt_vec_push(&keys);
        if (key)
            *key = map->keys.at[i];
        rc = key ? CKPT_OK : ckpt_fail_memory(err);
    }
    ckpt_vec_free(&map->keys); // the target gets its own keys: drop those of the source
    if (rc == CKPT_OK)
        map->keys = keys;
    else
        ckpt_vec_free(&keys);
    return rc;
}

int ckpt_rm_drop_keys(ckpt_map *map, const ckpt_rm_facts *f, ckpt_err *err)
{
    const char *left = NULL;
    size_t n = 0;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < map->keys.n; i++) {
        if (ckpt_remap_has_size(f->r, map->keys.at[i].name) || n++ >= RKEY_LISTED)
            continue;
        left = ckpt_arena_printf(f->arena, "%s%s%.100s", left ? left : "", left ? ", " : "",
                                 map->keys.at[i].name);
        rc = left ? CKPT_OK : ckpt_fail_memory(err);
    }
    ckpt_vec_free(&map->keys);
    if (rc == CKPT_OK && map->config.lost)
        rc = ckpt_map_note(map, CKPT_WARNING, err,
                           "%s: keys of the source that change what the model computes have no "
                           "place in %s: %s",
                           f->r->name, map->config.file, map->config.lost);
    if (rc == CKPT_OK && n > 0)
        rc = ckpt_map_note(map, CKPT_INFO, err,
                           "%s: left out keys of the source that the target does not have: %s%s",
                           f->r->name, left, n > RKEY_LISTED ? " ..." : "");
    return rc;
}
