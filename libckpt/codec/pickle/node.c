/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node.c: makes the nodes for names, containers and objects in a pickle.
 *
 * It imports nothing: a name is only looked up in the lists of known names (trust.c).
 */
#include <assert.h>

#include "libckpt/codec/pickle/node.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/codec/pickle/keys.h"
#include "libckpt/map/map.h"

#define NN_NAME_MAX 1024u /* bytes of a module's or class's name */
#define NN_SCAN_MAX 8u    /* pairs of a dict that are compared one by one before it gets an index */

int ckpt_pk_fail(const ckpt_pk *p, int code, const char *fmt, ...)
{
    assert(code != CKPT_OK && fmt);
    char text[400]; // ckpt_fail keeps only a little more than that
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return ckpt_fail(p->err, code, "%s: byte %" PRIu64 ": %s",
                     p->opts->name ? p->opts->name : "pickle", p->at, text);
}

ckpt_value *ckpt_pk_node(const ckpt_pk *p, ckpt_value_kind kind)
{
    ckpt_value *v =
        ckpt_arena_used(p->arena) > p->arena_cap ? NULL : ckpt_value_new(p->arena, kind);

    if (!v) {
        (void)ckpt_pk_no_memory(p);
        return NULL;
    }
    if (ckpt_value_has_children(v)) { // leaves stay unmarked
        v->mark = CKPT_PK_FRESH;
    }
    return v;
}

int ckpt_pk_charge(ckpt_pk *p, uint64_t n)
{
    if (n > p->n_copies_left)
        return ckpt_pk_fail(p, CKPT_ELIMIT, "calls copy more than a file of this size can need");
    p->n_copies_left -= n;
    return CKPT_OK;
}

/* ---- names ---- */

/* Compare names, for the index of names. */
static bool nn_same_name(const void *ctx, uint32_t number, const void *key)
{
    const ckpt_pk *p = ctx;
    const ckpt_global *a = &p->names.at[number].global->as.global, *b = key;

    return a->module.n == b->module.n && a->name.n == b->name.n &&
           memcmp(a->module.at, b->module.at, (size_t)a->module.n) == 0 &&
           memcmp(a->name.at, b->name.at, (size_t)a->name.n) == 0;
}

/*
 * Make the node of a class inside a class (a dotted name): the call getattr(Outer, "Inner"), as
 * protocol 2 writes it.  Both protocols then have one form, which can be written in any protocol.
 */
static int nn_inner(ckpt_pk *p, ckpt_value **out, const ckpt_global *g)
{
    static const ckpt_text builtins = {"builtins", 8}, name = {"getattr", 7};
    uint64_t at = g->name.n;
    ckpt_value *parts[2] = {NULL, NULL}, *args = ckpt_pk_node(p, CKPT_V_TUPLE), *callee = NULL;
    int rc = CKPT_OK;

    while (g->name.at[at - 1] != '.')
        at--;
    parts[1] = ckpt_pk_node(p, CKPT_V_STR);
    if (!args || !parts[1])
        return CKPT_ELIMIT;
    parts[1]->as.text =
        (ckpt_text){ckpt_arena_string(p->arena, g->name.at + at, g->name.n - at), g->name.n - at};
    rc = ckpt_pk_name_node(p, &parts[0], g->module, (ckpt_text){g->name.at, at - 1});
    if (rc == CKPT_OK)
        rc = ckpt_pk_name_node(p, &callee, builtins, name);
    if (rc != CKPT_OK)
        return rc;
    args->as.seq.n = 2;
    args->as.seq.at = ckpt_arena_copy(p->arena, parts, sizeof parts);
    if (!parts[1]->as.text.at || !args->as.seq.at)
        return ckpt_pk_no_memory(p);
    p->out->n_objects += ckpt_pk_id(p, parts[0]) == CKPT_NAME_OPAQUE;
    return ckpt_pk_object(p, out, CKPT_BY_REDUCE, callee, args);
}

/* Handle a name at its first use: classify it, make its node, and add it to the list. */
static int nn_new_name(ckpt_pk *p, ckpt_value **out, const ckpt_global *g, uint32_t hash)
{
    const char *why = NULL;
    ckpt_name_id id = ckpt_name_find(g, &why);
    ckpt_pk_name entry = {.id = id};
    ckpt_pk_name *slot;
    ckpt_value **listed, *unlisted;
    bool inner =
        memchr(g->name.at, '.', (size_t)g->name.n) && !ckpt_name_is_group(g->module, g->name);

    if (id == CKPT_NAME_UNSAFE)
        return ckpt_pk_fail(p, CKPT_EUNSAFE, "names %.*s.%.*s, %s; refused", ckpt_pk_cut(g->module),
                            g->module.at, ckpt_pk_cut(g->name), g->name.at, why);
    entry.global = ckpt_pk_node(p, CKPT_V_GLOBAL);
    entry.node = entry.global;
    if (!entry.global)
        return CKPT_ELIMIT;
    entry.global->as.global = *g;
    entry.global->as.global.module.at = ckpt_arena_string(p->arena, g->module.at, g->module.n);
    entry.global->as.global.name.at = ckpt_arena_string(p->arena, g->name.at, g->name.n);
    if (id == CKPT_NAME_DTYPE) {
        entry.node = ckpt_pk_node(p, CKPT_V_DTYPE);
        if (!entry.node)
            return CKPT_ELIMIT;
        entry.node->as.dtype = ckpt_dtype_from_torch(g->name.at, (size_t)g->name.n);
    }
    if (inner) {
        int rc = nn_inner(p, &entry.node, g);

        if (rc != CKPT_OK)
            return rc;
    }
    entry.global->mark = (uint32_t)p->names.n + 1;
    slot = p->names.n >= CKPT_PK_NUMBER ? NULL : ckpt_vec_push(&p->names);
    listed = !slot ? NULL : inner ? &unlisted : ckpt_vec_push(&p->out->globals);
    if (!listed || !entry.global->as.global.module.at || !entry.global->as.global.name.at) {
        p->names.n -= slot != NULL;
        return ckpt_pk_no_memory(p);
    }
    *slot = entry;
    *listed = entry.global;
    *out = entry.node;
    return ckpt_index_add(&p->name_index, hash, (uint32_t)(p->names.n - 1)) ? CKPT_OK
                                                                            : ckpt_pk_no_memory(p);
}

int ckpt_pk_name_node(ckpt_pk *p, ckpt_value **out, ckpt_text module, ckpt_text name)
{
    ckpt_global g = {.module = module, .name = name};
    uint32_t hash, at;

    if (module.n == 0 || name.n == 0)
        return ckpt_pk_fail(p, CKPT_EFORMAT, "the name of a module or class is empty");
    if (module.n > NN_NAME_MAX || name.n > NN_NAME_MAX)
        return ckpt_pk_fail(p, CKPT_ELIMIT,
                            "the name of a module or class has more than 1024 bytes");
    ckpt_name_to_python3(&g);
    hash = ckpt_hash_bytes(g.name.at, (size_t)g.name.n, (uint32_t)g.module.n);
    at = ckpt_index_find(&p->name_index, hash, nn_same_name, p, &g);
    if (at != CKPT_INDEX_NONE) {
        *out = p->names.at[at].node;
        return CKPT_OK;
    }
    return nn_new_name(p, out, &g, hash);
}

ckpt_name_id ckpt_pk_id(const ckpt_pk *p, const ckpt_value *v)
{
    uint32_t number = v->mark & CKPT_PK_NUMBER;

    if (v->kind != CKPT_V_GLOBAL || number == 0)
        return CKPT_NAME_UNSAFE;
    return p->names.at[number - 1].id;
}

int ckpt_pk_check_item(const ckpt_pk *p, const ckpt_value *v)
{
    ckpt_name_id id = v->kind == CKPT_V_GLOBAL ? ckpt_pk_id(p, v) : CKPT_NAME_OPAQUE;

    if (id == CKPT_NAME_GETATTR || id == CKPT_NAME_PARTIAL)
        return ckpt_pk_fail(p, CKPT_EUNSAFE,
                            "the pickle uses %s as a value instead of calling it; refused",
                            id == CKPT_NAME_GETATTR ? "getattr" : "functools.partial");
    if (v->kind == CKPT_V_GLOBAL && ckpt_name_only_called(&v->as.global))
        return ckpt_pk_fail(p, CKPT_EUNSAFE,
                            "the pickle uses %.*s as a value instead of calling it; refused",
                            ckpt_pk_cut(v->as.global.name), v->as.global.name.at);
    return CKPT_OK;
}

/* ---- dicts ---- */

/* Compare keys, for the indexes of dicts. */
static bool nn_same_key(const void *ctx, uint32_t number, const void *key)
{
    const ckpt_dict *map = ctx;

    return ckpt_key_same(map->at[number].key, key);
}

int ckpt_pk_hash(ckpt_pk *p, const ckpt_value *key, uint32_t *out)
{
    assert(key && out);
    const char *why = NULL;
    uint64_t cost = 0;
    int rc = ckpt_key_hash(key, out, &cost, &why);

    return rc != CKPT_OK ? ckpt_pk_fail(p, rc, "%s", why) : ckpt_pk_charge(p, cost);
}

/* Make the index of a dict that is too large for a linear scan. */
static int nn_index_dict(ckpt_pk *p, ckpt_value *v, const ckpt_dict *map)
{
    ckpt_index *ix = p->dicts.n >= CKPT_PK_NUMBER ? NULL : ckpt_vec_push(&p->dicts);
    const char *why;
    uint64_t cost = 0;
    uint32_t hash;

    if (!ix)
        return ckpt_pk_no_memory(p);
    v->mark = (v->mark & ~CKPT_PK_NUMBER) | (uint32_t)p->dicts.n;
    for (uint64_t i = 0; i < map->n; i++) {
        // it was hashed before, so this cannot fail
        int rc = ckpt_key_hash(map->at[i].key, &hash, &cost, &why);

        if (rc != CKPT_OK || !ckpt_index_add(ix, hash, (uint32_t)i))
            return ckpt_pk_no_memory(p);
    }
    return CKPT_OK;
}

/* True if the dict already has the key. */
static bool nn_has_key(const ckpt_pk *p, const ckpt_value *v, const ckpt_dict *map, uint32_t hash,
                       const ckpt_value *key)
{
    uint32_t number = v->mark & CKPT_PK_NUMBER;

    if (number != 0)
        return ckpt_index_find(&p->dicts.at[number - 1], hash, nn_same_key, map, key) !=
               CKPT_INDEX_NONE;
    for (uint64_t i = 0; i < map->n; i++) {
        if (ckpt_key_same(map->at[i].key, key))
            return true;
    }
    return false;
}

/* The pairs of a value that accepts items by key, or NULL. */
static ckpt_dict *nn_pairs(const ckpt_pk *p, ckpt_value *v)
{
    if (v->kind == CKPT_V_DICT || v->kind == CKPT_V_ODICT)
        return &v->as.map;
    if (v->kind == CKPT_V_OBJECT && v->as.object->cls) {
        ckpt_name_id id = ckpt_pk_id(p, v->as.object->cls);

        if (v->as.object->cls->kind == CKPT_V_OBJECT) // of a class that the pickle itself has made
            return &v->as.object->pairs;
        return id == CKPT_NAME_OPAQUE || id == CKPT_NAME_DATA_MAP ? &v->as.object->pairs : NULL;
    }
    return NULL;
}

int ckpt_pk_set_item(ckpt_pk *p, ckpt_value *dict, ckpt_value *key, ckpt_value *value)
{
    assert(dict && key && value);
    ckpt_dict *map = nn_pairs(p, dict);
    uint32_t hash;
    int rc;

    if (!map)
        return ckpt_pk_fail(p, CKPT_EFORMAT, "sets an item of something that is not a dict");
    rc = ckpt_pk_check_item(p, key);
    if (rc == CKPT_OK)
        rc = ckpt_pk_check_item(p, value);
    if (rc != CKPT_OK)
        return rc;
    // the caller of opts.take compares these keys itself, because a table of a million keys would
    // be large
    if (key->kind == CKPT_V_INT && key->state)
        return ckpt_dict_add(p->arena, map, key, value) ? CKPT_OK : ckpt_pk_no_memory(p);
    rc = ckpt_pk_hash(p, key, &hash);
    if (rc != CKPT_OK)
        return rc;
    if (map->n >= NN_SCAN_MAX && (dict->mark & CKPT_PK_NUMBER) == 0) {
        rc = nn_index_dict(p, dict, map);
        if (rc != CKPT_OK)
            return rc;
    }
    if (nn_has_key(p, dict, map, hash, key))
        return key->kind == CKPT_V_STR
                   ? ckpt_pk_fail(p, CKPT_EFORMAT, "the key \"%.*s\" is set twice in one dict",
                                  ckpt_pk_cut(key->as.text), key->as.text.at)
                   : ckpt_pk_fail(p, CKPT_EFORMAT, "a key is set twice in one dict");
    if (map->n >= NN_SCAN_MAX &&
        !ckpt_index_add(&p->dicts.at[(dict->mark & CKPT_PK_NUMBER) - 1], hash, (uint32_t)map->n))
        return ckpt_pk_no_memory(p);
    return ckpt_dict_add(p->arena, map, key, value) ? CKPT_OK : ckpt_pk_no_memory(p);
}

int ckpt_pk_set_items(ckpt_pk *p, ckpt_value *dict, const ckpt_seq *items)
{
    ckpt_dict *map = nn_pairs(p, dict);
    int rc = CKPT_OK;

    // most dicts get all their items at once, so room for more would be wasted
    if (map && map->n == 0 && map->room == 0 && items->n >= 2) {
        map->at = ckpt_arena_array(p->arena, items->n / 2, sizeof *map->at);
        map->room = map->at ? items->n / 2 : 0;
    }
    for (uint64_t i = 0; rc == CKPT_OK && i < items->n; i += 2)
        rc = ckpt_pk_set_item(p, dict, items->at[i], items->at[i + 1]);
    return rc;
}

int ckpt_pk_object(ckpt_pk *p, ckpt_value **out, ckpt_object_form form, ckpt_value *cls,
                   ckpt_value *args)
{
    assert(out && cls);
    ckpt_value *v = ckpt_pk_node(p, CKPT_V_OBJECT);

    if (!v)
        return CKPT_ELIMIT;
    v->as.object = ckpt_arena_alloc(p->arena, sizeof *v->as.object);
    if (!v->as.object)
        return ckpt_pk_no_memory(p);
    v->as.object->form = form;
    v->as.object->cls = cls;
    v->as.object->args = args;
    p->out->n_objects += ckpt_pk_id(p, cls) == CKPT_NAME_OPAQUE;
    *out = v;
    return CKPT_OK;
}
