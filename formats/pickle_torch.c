/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle_torch.c: owns what names, calls, persistent ids and states in a pickle become.
 *
 * Nothing is resolved: a name is looked up in a list of known names (pickle_names.c), and a call of
 * one of them is replaced by the node that it stands for.  Calls of unknown classes become OBJECTs.
 */
#include "formats/pickle_torch.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "formats/pickle_keys.h"
#include "libckpt/base/dtype.h"
#include "libckpt/map/map.h"

#define PK_NAME_MAX 1024u /* bytes of a module's or class's name */
#define PK_SCAN_MAX 8u    /* pairs of a dict that are compared one by one before an index is made */

int ckpt_pk_fail(const ckpt_pk *p, int code, const char *fmt, ...)
{
    char text[400]; // ckpt_fail cuts to a little more than that
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return ckpt_fail(p->err, code, "%s: byte %" PRIu64 ": %s",
                     p->opts->name != NULL ? p->opts->name : "pickle", p->at, text);
}

/* Cut a text for a message. */
static int pk_cut(ckpt_text s)
{
    return s.n > 80 ? 80 : (int)s.n;
}

/* The failure of every allocation here. */
static int pk_no_memory(const ckpt_pk *p)
{
    return ckpt_pk_fail(p, CKPT_ELIMIT, "out of memory, or over the limit for one pickle");
}

ckpt_value *ckpt_pk_node(const ckpt_pk *p, ckpt_value_kind kind)
{
    ckpt_value *v =
        ckpt_arena_used(p->arena) > p->arena_cap ? NULL : ckpt_value_new(p->arena, kind);

    if (v == NULL) {
        (void)pk_no_memory(p);
        return NULL;
    }
    if (ckpt_value_has_children(v)) { // leaves stay unmarked
        v->mark = CKPT_PK_FRESH;
    }
    return v;
}

int ckpt_pk_charge(ckpt_pk *p, uint64_t n)
{
    if (n > p->n_copies_left) {
        return ckpt_pk_fail(p, CKPT_ELIMIT, "calls copy more than a file of this size can need");
    }
    p->n_copies_left -= n;
    return CKPT_OK;
}

/* ---- names ---- */

/* For the index of names. */
static bool pk_same_name(const void *ctx, uint32_t number, const void *key)
{
    const ckpt_pk *p = ctx;
    const ckpt_global *a = &p->names.at[number].global->as.global, *b = key;

    return a->module.n == b->module.n && a->name.n == b->name.n &&
           memcmp(a->module.at, b->module.at, (size_t)a->module.n) == 0 &&
           memcmp(a->name.at, b->name.at, (size_t)a->name.n) == 0;
}

/* A name met for the first time: judge it, make its node, list it. */
static int pk_new_name(ckpt_pk *p, ckpt_value **out, const ckpt_global *g, uint32_t hash)
{
    const char *why = NULL;
    ckpt_name_id id = ckpt_name_find(g, &why);
    ckpt_pk_name entry = {.id = id};
    ckpt_pk_name *slot;
    ckpt_value **listed;

    if (id == CKPT_NAME_UNSAFE) {
        return ckpt_pk_fail(p, CKPT_EUNSAFE, "names %.*s.%.*s, %s; refused", pk_cut(g->module),
                            g->module.at, pk_cut(g->name), g->name.at, why);
    }
    if (ckpt_name_is_sharded(g)) {
        return ckpt_pk_fail(p, CKPT_EUNSUPPORTED,
                            "holds a ShardedTensor of torch.distributed, as FSDP's "
                            "SHARDED_STATE_DICT and LOCAL_STATE_DICT make it: each rank's file has "
                            "that rank's shards alone, and they are not joined here; load all of "
                            "them in a run of as many ranks and save whole tensors "
                            "(StateDictType.FULL_STATE_DICT)");
    }
    entry.global = ckpt_pk_node(p, CKPT_V_GLOBAL);
    entry.node = entry.global;
    if (entry.global == NULL) {
        return CKPT_ELIMIT;
    }
    entry.global->as.global = *g;
    entry.global->as.global.module.at = ckpt_arena_string(p->arena, g->module.at, g->module.n);
    entry.global->as.global.name.at = ckpt_arena_string(p->arena, g->name.at, g->name.n);
    entry.global->mark = (uint32_t)p->names.n + 1;
    if (id == CKPT_NAME_DTYPE) {
        entry.node = ckpt_pk_node(p, CKPT_V_DTYPE);
        if (entry.node == NULL) {
            return CKPT_ELIMIT;
        }
        entry.node->as.dtype = ckpt_dtype_from_torch(g->name.at, (size_t)g->name.n);
    }
    slot = p->names.n >= CKPT_PK_NUMBER ? NULL : ckpt_vec_push(&p->names);
    listed = slot == NULL ? NULL : ckpt_vec_push(&p->out->globals);
    if (listed == NULL || entry.global->as.global.module.at == NULL ||
        entry.global->as.global.name.at == NULL) {
        p->names.n -= slot != NULL;
        return pk_no_memory(p);
    }
    *slot = entry;
    *listed = entry.global;
    *out = entry.node;
    return ckpt_index_add(&p->name_index, hash, (uint32_t)(p->names.n - 1)) ? CKPT_OK
                                                                            : pk_no_memory(p);
}

int ckpt_pk_name_node(ckpt_pk *p, ckpt_value **out, ckpt_text module, ckpt_text name)
{
    ckpt_global g = {.module = module, .name = name};
    uint32_t hash, at;

    if (module.n == 0 || name.n == 0) {
        return ckpt_pk_fail(p, CKPT_EFORMAT, "an empty name of a module or class");
    }
    if (module.n > PK_NAME_MAX || name.n > PK_NAME_MAX) {
        return ckpt_pk_fail(p, CKPT_ELIMIT, "a name of more than 1024 bytes");
    }
    ckpt_name_to_python3(&g);
    hash = ckpt_hash_bytes(g.name.at, (size_t)g.name.n, (uint32_t)g.module.n);
    at = ckpt_index_find(&p->name_index, hash, pk_same_name, p, &g);
    if (at != CKPT_INDEX_NONE) {
        *out = p->names.at[at].node;
        return CKPT_OK;
    }
    return pk_new_name(p, out, &g, hash);
}

ckpt_name_id ckpt_pk_id(const ckpt_pk *p, const ckpt_value *v)
{
    uint32_t number = v->mark & CKPT_PK_NUMBER;

    if (v->kind != CKPT_V_GLOBAL || number == 0) {
        return CKPT_NAME_UNSAFE;
    }
    return p->names.at[number - 1].id;
}

int ckpt_pk_check_item(const ckpt_pk *p, const ckpt_value *v)
{
    if (v->kind == CKPT_V_GLOBAL && ckpt_pk_id(p, v) == CKPT_NAME_GETATTR) {
        return ckpt_pk_fail(p, CKPT_EUNSAFE, "hands the function getattr around; refused");
    }
    return CKPT_OK;
}

/* ---- dicts ---- */

/* For the indexes of dicts. */
static bool pk_same_key(const void *ctx, uint32_t number, const void *key)
{
    const ckpt_dict *map = ctx;

    return ckpt_key_same(map->at[number].key, key);
}

int ckpt_pk_hash(ckpt_pk *p, const ckpt_value *key, uint32_t *out)
{
    const char *why = NULL;
    uint64_t cost = 0;
    int rc = ckpt_key_hash(key, out, &cost, &why);

    return rc != CKPT_OK ? ckpt_pk_fail(p, rc, "%s", why) : ckpt_pk_charge(p, cost);
}

/* Make the index of a dict that grew beyond a linear scan. */
static int pk_index_dict(ckpt_pk *p, ckpt_value *v, const ckpt_dict *map)
{
    ckpt_index *ix = p->dicts.n >= CKPT_PK_NUMBER ? NULL : ckpt_vec_push(&p->dicts);
    const char *why;
    uint64_t cost = 0;
    uint32_t hash;

    if (ix == NULL) {
        return pk_no_memory(p);
    }
    v->mark = (v->mark & ~CKPT_PK_NUMBER) | (uint32_t)p->dicts.n;
    for (uint64_t i = 0; i < map->n; i++) {
        int rc = ckpt_key_hash(map->at[i].key, &hash, &cost, &why); // it was hashed before

        if (rc != CKPT_OK || !ckpt_index_add(ix, hash, (uint32_t)i)) {
            return pk_no_memory(p);
        }
    }
    return CKPT_OK;
}

/* Tell whether a key is in a dict. */
static bool pk_has_key(const ckpt_pk *p, const ckpt_value *v, const ckpt_dict *map, uint32_t hash,
                       const ckpt_value *key)
{
    uint32_t number = v->mark & CKPT_PK_NUMBER;

    if (number != 0) {
        return ckpt_index_find(&p->dicts.at[number - 1], hash, pk_same_key, map, key) !=
               CKPT_INDEX_NONE;
    }
    for (uint64_t i = 0; i < map->n; i++) {
        if (ckpt_key_same(map->at[i].key, key)) {
            return true;
        }
    }
    return false;
}

/* The pairs of what takes items by key, or NULL. */
static ckpt_dict *pk_pairs(const ckpt_pk *p, ckpt_value *v)
{
    if (v->kind == CKPT_V_DICT || v->kind == CKPT_V_ODICT) {
        return &v->as.map;
    }
    if (v->kind == CKPT_V_OBJECT && v->as.object->cls != NULL) {
        ckpt_name_id id = ckpt_pk_id(p, v->as.object->cls);

        return id == CKPT_NAME_OPAQUE || id == CKPT_NAME_DATA_MAP ? &v->as.object->pairs : NULL;
    }
    return NULL;
}

int ckpt_pk_set_item(ckpt_pk *p, ckpt_value *dict, ckpt_value *key, ckpt_value *value)
{
    ckpt_dict *map = pk_pairs(p, dict);
    uint32_t hash;
    int rc;

    if (map == NULL) {
        return ckpt_pk_fail(p, CKPT_EFORMAT, "sets an item of something that is not a dict");
    }
    rc = ckpt_pk_check_item(p, key);
    if (rc == CKPT_OK) {
        rc = ckpt_pk_check_item(p, value);
    }
    if (rc != CKPT_OK) {
        return rc;
    }
    rc = ckpt_pk_hash(p, key, &hash);
    if (rc != CKPT_OK) {
        return rc;
    }
    if (map->n == PK_SCAN_MAX) {
        rc = pk_index_dict(p, dict, map);
        if (rc != CKPT_OK) {
            return rc;
        }
    }
    if (pk_has_key(p, dict, map, hash, key)) {
        return key->kind == CKPT_V_STR
                   ? ckpt_pk_fail(p, CKPT_EFORMAT, "the key \"%.*s\" is set twice in one dict",
                                  pk_cut(key->as.text), key->as.text.at)
                   : ckpt_pk_fail(p, CKPT_EFORMAT, "a key is set twice in one dict");
    }
    if (map->n >= PK_SCAN_MAX &&
        !ckpt_index_add(&p->dicts.at[(dict->mark & CKPT_PK_NUMBER) - 1], hash, (uint32_t)map->n)) {
        return pk_no_memory(p);
    }
    return ckpt_dict_add(p->arena, map, key, value) ? CKPT_OK : pk_no_memory(p);
}

/* ---- calls of builtins ---- */

int ckpt_pk_object(ckpt_pk *p, ckpt_value **out, ckpt_object_form form, ckpt_value *cls,
                   ckpt_value *args)
{
    ckpt_value *v = ckpt_pk_node(p, CKPT_V_OBJECT);

    if (v == NULL) {
        return CKPT_ELIMIT;
    }
    v->as.object = ckpt_arena_alloc(p->arena, sizeof *v->as.object);
    if (v->as.object == NULL) {
        return pk_no_memory(p);
    }
    v->as.object->form = form;
    v->as.object->cls = cls;
    v->as.object->args = args;
    p->out->n_objects += ckpt_pk_id(p, cls) == CKPT_NAME_OPAQUE;
    *out = v;
    return CKPT_OK;
}

/* OrderedDict() and OrderedDict([(key, value), ...]). */
static int pk_call_odict(ckpt_pk *p, ckpt_value **out, const ckpt_seq *args)
{
    ckpt_value *v = ckpt_pk_node(p, CKPT_V_ODICT);
    ckpt_seq items;
    int rc;

    if (v == NULL) {
        return CKPT_ELIMIT;
    }
    *out = v;
    if (args->n == 0) {
        return CKPT_OK;
    }
    items = ckpt_value_seq(args->at[0]);
    if (args->n != 1 || (args->at[0]->kind != CKPT_V_LIST && args->at[0]->kind != CKPT_V_TUPLE)) {
        return ckpt_pk_fail(p, CKPT_EFORMAT, "OrderedDict takes one list of pairs");
    }
    rc = ckpt_pk_charge(p, items.n);
    for (uint64_t i = 0; rc == CKPT_OK && i < items.n; i++) {
        ckpt_seq pair = ckpt_value_seq(items.at[i]);

        rc = pair.n == 2 ? ckpt_pk_set_item(p, v, pair.at[0], pair.at[1])
                         : ckpt_pk_fail(p, CKPT_EFORMAT, "OrderedDict from what is not a pair");
    }
    return rc;
}

/* set(), set([...]), frozenset likewise.  The items stay those of the list. */
static int pk_call_set(ckpt_pk *p, ckpt_value **out, ckpt_value_kind kind, const ckpt_seq *args)
{
    ckpt_value *v = ckpt_pk_node(p, kind);
    uint32_t hash;
    int rc;

    if (v == NULL) {
        return CKPT_ELIMIT;
    }
    *out = v;
    if (args->n == 0) {
        return CKPT_OK;
    }
    if (args->n != 1 ||
        (args->at[0]->kind != CKPT_V_LIST && args->at[0]->kind != CKPT_V_TUPLE &&
         args->at[0]->kind != CKPT_V_SET && args->at[0]->kind != CKPT_V_FROZENSET)) {
        return ckpt_pk_fail(p, CKPT_EFORMAT, "a set takes one list of items");
    }
    v->as.seq = ckpt_value_seq(args->at[0]);
    v->mark |= CKPT_PK_FIXED;
    rc = ckpt_pk_charge(p, v->as.seq.n);
    for (uint64_t i = 0; rc == CKPT_OK && i < v->as.seq.n; i++) {
        rc = ckpt_pk_hash(p, v->as.seq.at[i], &hash);
    }
    return rc;
}

/* Latin-1 bytes of a UTF-8 text; false if it holds a character beyond. */
static bool pk_latin1(ckpt_text s, char *out, uint64_t *n_out)
{
    uint64_t n = 0;

    for (uint64_t i = 0; i < s.n; i++) {
        unsigned c = (unsigned char)s.at[i];

        if (c >= 0x80) {
            // the text is valid UTF-8: C2 and C3 lead exactly the characters 80 to FF
            if (c != 0xC2 && c != 0xC3) {
                return false;
            }
            c = (c & 3) << 6 | ((unsigned char)s.at[++i] & 0x3Fu);
        }
        out[n++] = (char)c;
    }
    *n_out = n;
    return true;
}

/* True if v is a text of a NULL-terminated list. */
static bool pk_is_one_of(const ckpt_value *v, const char *const *list)
{
    for (; *list != NULL; list++) {
        if (ckpt_value_is(v, *list)) {
            return true;
        }
    }
    return false;
}

/* True for text whose Latin-1 and UTF-8 forms are the same bytes. */
static bool pk_is_ascii(ckpt_text s)
{
    for (uint64_t i = 0; i < s.n; i++) {
        if ((unsigned char)s.at[i] >= 0x80) {
            return false;
        }
    }
    return true;
}

/* text.encode(encoding): how protocols 0 to 2 carry bytes. */
static int pk_encode(ckpt_pk *p, ckpt_text *out, const ckpt_value *text, const ckpt_value *coding)
{
    static const char *const latin[] = {"latin1", "latin-1", "iso-8859-1", "iso8859-1", NULL};
    static const char *const plain[] = {"utf-8", "utf8", "ascii", "us-ascii", NULL};
    bool as_latin = pk_is_one_of(coding, latin);
    char *bytes;
    int rc;

    if (!as_latin && !pk_is_one_of(coding, plain)) {
        return ckpt_pk_fail(p, CKPT_EUNSAFE, "asks for a codec other than Latin-1 or UTF-8");
    }
    if (text->kind != CKPT_V_STR) {
        return ckpt_pk_fail(p, CKPT_EFORMAT, "encodes something that is not text");
    }
    rc = ckpt_pk_charge(p, text->as.text.n);
    if (rc != CKPT_OK) {
        return rc;
    }
    if (pk_is_ascii(text->as.text) || ckpt_value_is(coding, "utf-8") ||
        ckpt_value_is(coding, "utf8")) {
        *out = text->as.text; // the same bytes: no copy
        return CKPT_OK;
    }
    bytes = as_latin ? ckpt_arena_alloc(p->arena, text->as.text.n + 1) : NULL;
    if (as_latin && bytes == NULL) {
        return pk_no_memory(p);
    }
    if (!as_latin || !pk_latin1(text->as.text, bytes, &out->n)) {
        return ckpt_pk_fail(p, CKPT_EFORMAT, "text that its encoding cannot express");
    }
    out->at = bytes;
    return CKPT_OK;
}

/* bytes(), bytes(b), bytes(text, encoding); bytearray and _codecs.encode likewise. */
static int pk_call_bytes(ckpt_pk *p, ckpt_value **out, ckpt_value_kind kind, const ckpt_seq *args)
{
    ckpt_value *v = ckpt_pk_node(p, kind);

    if (v == NULL) {
        return CKPT_ELIMIT;
    }
    *out = v;
    v->as.text.at = "";
    if (args->n == 0) {
        return CKPT_OK;
    }
    if (args->n == 2) {
        return pk_encode(p, &v->as.text, args->at[0], args->at[1]);
    }
    if (args->n != 1 ||
        (args->at[0]->kind != CKPT_V_BYTES && args->at[0]->kind != CKPT_V_BYTEARRAY)) {
        return ckpt_pk_fail(p, CKPT_EFORMAT, "bytes from something that is not bytes");
    }
    v->as.text = args->at[0]->as.text; // never changed in place: may be shared
    return CKPT_OK;
}

/* torch.Size((2, 3)). */
static int pk_call_size(ckpt_pk *p, ckpt_value **out, const ckpt_seq *args)
{
    ckpt_value *v = ckpt_pk_node(p, CKPT_V_SIZE);
    ckpt_seq items = args->n == 1 ? ckpt_value_seq(args->at[0]) : (ckpt_seq){0};
    int rc = ckpt_pk_charge(p, items.n);

    if (v == NULL || rc != CKPT_OK) {
        return CKPT_ELIMIT;
    }
    if (args->n != 1 || (args->at[0]->kind != CKPT_V_TUPLE && args->at[0]->kind != CKPT_V_LIST &&
                         args->at[0]->kind != CKPT_V_SIZE)) {
        return ckpt_pk_fail(p, CKPT_EFORMAT, "torch.Size takes one tuple");
    }
    for (uint64_t i = 0; i < items.n; i++) {
        if (items.at[i]->kind != CKPT_V_INT || items.at[i]->as.i < 0) {
            return ckpt_pk_fail(p, CKPT_EFORMAT, "torch.Size holds something else than a size");
        }
    }
    v->as.seq = items; // a list may grow later, but these items stay where they are
    *out = v;
    return CKPT_OK;
}

/* A plain attribute name: letters, digits and underscores, none of them first. */
static bool pk_is_attribute(const ckpt_value *v)
{
    if (v->kind != CKPT_V_STR || v->as.text.n == 0 || v->as.text.at[0] == '_') {
        return false;
    }
    for (uint64_t i = 0; i < v->as.text.n; i++) {
        char c = v->as.text.at[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';

        if (!letter && (i == 0 || c < '0' || c > '9')) {
            return false;
        }
    }
    return true;
}

/* getattr(SomeEnum, "member"): how Python 3.11 writes members of Enum classes. */
static int pk_call_getattr(ckpt_pk *p, ckpt_value **out, ckpt_value *callee, ckpt_value *args)
{
    const ckpt_seq *a = &args->as.seq;
    ckpt_name_id id = a->n == 2 ? ckpt_pk_id(p, a->at[0]) : CKPT_NAME_UNSAFE;
    int rc;

    if ((id != CKPT_NAME_OPAQUE && id != CKPT_NAME_DATA) ||
        !ckpt_name_class_like(a->at[0]->as.global.name) || !pk_is_attribute(a->at[1])) {
        return ckpt_pk_fail(p, CKPT_EUNSAFE, "calls getattr on something else than an Enum class");
    }
    rc = ckpt_pk_object(p, out, CKPT_BY_REDUCE, callee, args);
    p->out->n_objects += rc == CKPT_OK && id == CKPT_NAME_OPAQUE;
    return rc;
}

/* copyreg._reconstructor(cls, base, state), numpy's _reconstruct(cls, shape, typecode). */
static int pk_call_reconstruct(ckpt_pk *p, ckpt_value **out, ckpt_value *callee, ckpt_value *args)
{
    const ckpt_seq *a = &args->as.seq;
    ckpt_name_id id = a->n > 0 ? ckpt_pk_id(p, a->at[0]) : CKPT_NAME_UNSAFE;
    int rc;

    if (id == CKPT_NAME_UNSAFE) {
        return ckpt_pk_fail(p, CKPT_EUNSAFE, "reconstructs something that is not a named class");
    }
    rc = ckpt_pk_object(p, out, CKPT_BY_REDUCE, callee, args);
    p->out->n_objects += rc == CKPT_OK && id == CKPT_NAME_OPAQUE;
    return rc;
}

/* ---- calls ---- */

/* Only named things are called, with a tuple. */
static int pk_check_callee(const ckpt_pk *p, const ckpt_value *callee, const ckpt_value *args)
{
    if (args->kind != CKPT_V_TUPLE) {
        return ckpt_pk_fail(p, CKPT_EFORMAT, "a call whose arguments are not a tuple");
    }
    if (ckpt_pk_id(p, callee) == CKPT_NAME_UNSAFE) {
        return ckpt_pk_fail(p, CKPT_EUNSAFE, "calls the result of something else; refused");
    }
    return CKPT_OK;
}

int ckpt_pk_call(ckpt_pk *p, ckpt_value **out, ckpt_value *callee, ckpt_value *args)
{
    int rc = pk_check_callee(p, callee, args);
    ckpt_name_id id = ckpt_pk_id(p, callee);

    if (rc != CKPT_OK) {
        return rc;
    }
    if (ckpt_pk_rebuilds(id)) {
        return ckpt_pk_tensor(p, out, callee, args);
    }
    switch ((int)id) {
    case CKPT_NAME_ODICT:
        return pk_call_odict(p, out, &args->as.seq);
    case CKPT_NAME_SET:
        return pk_call_set(p, out, CKPT_V_SET, &args->as.seq);
    case CKPT_NAME_FROZENSET:
        return pk_call_set(p, out, CKPT_V_FROZENSET, &args->as.seq);
    case CKPT_NAME_BYTES:
        return pk_call_bytes(p, out, CKPT_V_BYTES, &args->as.seq);
    case CKPT_NAME_BYTEARRAY:
        return pk_call_bytes(p, out, CKPT_V_BYTEARRAY, &args->as.seq);
    case CKPT_NAME_ENCODE:
        if (args->as.seq.n != 2) {
            return ckpt_pk_fail(p, CKPT_EFORMAT, "_codecs.encode takes a text and an encoding");
        }
        return pk_call_bytes(p, out, CKPT_V_BYTES, &args->as.seq);
    case CKPT_NAME_SIZE:
        return pk_call_size(p, out, &args->as.seq);
    case CKPT_NAME_GETATTR:
        return pk_call_getattr(p, out, callee, args);
    case CKPT_NAME_RECONSTRUCT:
        return pk_call_reconstruct(p, out, callee, args);
    case CKPT_NAME_OPAQUE:
    case CKPT_NAME_DATA:
    case CKPT_NAME_DATA_MAP:
    case CKPT_NAME_DATA_SEQ:
        return ckpt_pk_object(p, out, CKPT_BY_REDUCE, callee, args);
    default:
        return ckpt_pk_fail(p, CKPT_EFORMAT, "calls %.*s, which is only ever named",
                            pk_cut(callee->as.global.name), callee->as.global.name.at);
    }
}

int ckpt_pk_make(ckpt_pk *p, ckpt_value **out, ckpt_value *cls, ckpt_value *args,
                 ckpt_value *kwargs)
{
    int rc = pk_check_callee(p, cls, args);
    int id = (int)ckpt_pk_id(p, cls);

    if (rc != CKPT_OK) {
        return rc;
    }
    if (id == CKPT_NAME_GETATTR) {
        return ckpt_pk_check_item(p, cls);
    }
    if (kwargs == NULL && (id == CKPT_NAME_ODICT || id == CKPT_NAME_SET || id == CKPT_NAME_SIZE ||
                           id == CKPT_NAME_FROZENSET || id == CKPT_NAME_BYTEARRAY)) {
        return ckpt_pk_call(p, out, cls, args);
    }
    if (id != CKPT_NAME_OPAQUE && id != CKPT_NAME_DATA && id != CKPT_NAME_DATA_MAP &&
        id != CKPT_NAME_DATA_SEQ) {
        return ckpt_pk_fail(p, CKPT_EFORMAT, "makes an object of %.*s, which is no class for that",
                            pk_cut(cls->as.global.name), cls->as.global.name.at);
    }
    if (kwargs != NULL && kwargs->kind != CKPT_V_DICT) {
        return ckpt_pk_fail(p, CKPT_EFORMAT, "named arguments that are not a dict");
    }
    rc = ckpt_pk_object(p, out, kwargs == NULL ? CKPT_BY_NEWOBJ : CKPT_BY_NEWOBJ_EX, cls, args);
    if (rc == CKPT_OK) {
        (*out)->as.object->kwargs = kwargs;
    }
    return rc;
}

int ckpt_pk_build(ckpt_pk *p, ckpt_value *v, ckpt_value *state)
{
    ckpt_value **slot = v->kind == CKPT_V_OBJECT  ? &v->as.object->state
                        : v->kind == CKPT_V_ODICT ? &v->state
                                                  : NULL;

    if (v->kind == CKPT_V_GLOBAL) {
        return ckpt_pk_fail(p, CKPT_EUNSAFE, "changes the class or function %.*s itself",
                            pk_cut(v->as.global.name), v->as.global.name.at);
    }
    if (slot == NULL || *slot != NULL) {
        return ckpt_pk_fail(p, CKPT_EFORMAT, "sets the state of something that takes none");
    }
    *slot = state;
    return ckpt_pk_check_item(p, state);
}

/* ---- persistent ids ---- */

/* For the index of storages. */
static bool pk_same_storage(const void *ctx, uint32_t number, const void *key)
{
    const ckpt_storage *a = ((const ckpt_pk *)ctx)->out->storages.at[number], *b = key;

    // two dtypes may share a key only when both are empty: then they are two storages
    return a->key.n == b->key.n && memcmp(a->key.at, b->key.at, (size_t)a->key.n) == 0 &&
           (a->dtype == b->dtype || a->n_bytes != 0 || b->n_bytes != 0);
}

/* The storage of that key: the one met before, or a new one. */
static int pk_find_storage(ckpt_pk *p, ckpt_storage **out, const ckpt_storage *s)
{
    uint32_t hash = ckpt_hash_bytes(s->key.at, (size_t)s->key.n, 0);
    uint32_t at = ckpt_index_find(&p->storage_index, hash, pk_same_storage, p, s);
    ckpt_storage **slot, *copy;

    if (at != CKPT_INDEX_NONE) {
        *out = p->out->storages.at[at];
        if ((*out)->dtype != s->dtype || (*out)->n_elems != s->n_elems) {
            return ckpt_pk_fail(p, CKPT_EFORMAT, "storage %.*s is used with two dtypes or lengths",
                                pk_cut(s->key), s->key.at);
        }
        return CKPT_OK;
    }
    copy = ckpt_arena_copy(p->arena, s, sizeof *s);
    slot = copy == NULL ? NULL : ckpt_vec_push(&p->out->storages);
    if (slot == NULL ||
        !ckpt_index_add(&p->storage_index, hash, (uint32_t)(p->out->storages.n - 1))) {
        return pk_no_memory(p);
    }
    *slot = copy;
    *out = copy;
    return CKPT_OK;
}

/* The dtype of a storage class; bytes for the untyped one. */
static int pk_storage_class(const ckpt_pk *p, const ckpt_value *cls, ckpt_dtype *out)
{
    ckpt_name_id id = ckpt_pk_id(p, cls);

    if (id == CKPT_NAME_QSTORAGE) {
        return ckpt_pk_fail(p, CKPT_EUNSUPPORTED,
                            "a quantized tensor (storage class %.*s); store "
                            "its dequantized values instead",
                            pk_cut(cls->as.global.name), cls->as.global.name.at);
    }
    if (id != CKPT_NAME_STORAGE && id != CKPT_NAME_UNTYPED) {
        return ckpt_pk_fail(p, CKPT_EFORMAT, "a persistent id without a known storage class");
    }
    *out = id == CKPT_NAME_UNTYPED ? CKPT_DTYPE_NONE
                                   : ckpt_dtype_from_torch_storage(cls->as.global.name.at,
                                                                   (size_t)cls->as.global.name.n);
    return CKPT_OK;
}

/*
 * View metadata of the legacy container: None, or (key of the view, offset, count) of files of
 * 2017, whose storage is that part of the one that is named.  The node keeps it for tensors.
 */
static int pk_storage_view(ckpt_pk *p, ckpt_value *v, ckpt_value *view)
{
    ckpt_seq part = ckpt_value_seq(view);

    if (view->kind == CKPT_V_NONE) {
        return CKPT_OK;
    }
    if (view->kind != CKPT_V_TUPLE || part.n != 3 || part.at[1]->kind != CKPT_V_INT ||
        part.at[2]->kind != CKPT_V_INT || part.at[1]->as.i < 0 || part.at[2]->as.i < 0 ||
        !ckpt_within((uint64_t)part.at[1]->as.i, (uint64_t)part.at[2]->as.i,
                     v->as.storage->n_elems)) {
        return ckpt_pk_fail(p, CKPT_EFORMAT, "storage %.*s is viewed beyond its end",
                            pk_cut(v->as.storage->key), v->as.storage->key.at);
    }
    v->state = view;
    return CKPT_OK;
}

/* ('storage', class, key, location, numel[, view metadata]). */
static int pk_storage_id(ckpt_pk *p, ckpt_value **out, const ckpt_seq *id)
{
    ckpt_storage s = {.source = UINT32_MAX};
    ckpt_value *v;
    int rc;

    if (id->n != (p->opts->legacy_storages ? 6u : 5u) || id->at[2]->kind != CKPT_V_STR ||
        id->at[3]->kind != CKPT_V_STR || id->at[4]->kind != CKPT_V_INT) {
        return ckpt_pk_fail(p, CKPT_EFORMAT,
                            "a persistent id that is not (storage, class, key, location, count)");
    }
    rc = pk_storage_class(p, id->at[1], &s.dtype);
    if (rc != CKPT_OK) {
        return rc;
    }
    s.key = id->at[2]->as.text;
    s.location = id->at[3]->as.text;
    s.n_elems = (uint64_t)id->at[4]->as.i;
    if (!ckpt_path_part_ok(s.key.at, s.key.n)) {
        // a key with separators asks for a file elsewhere; an empty or overlong one is merely wrong
        const bool strays = memchr(s.key.at, '/', s.key.n) || memchr(s.key.at, '\\', s.key.n) ||
                            (s.key.n > 0 && s.key.n <= 2 && s.key.at[0] == '.');
        return ckpt_pk_fail(p, strays ? CKPT_EUNSAFE : CKPT_EFORMAT,
                            "a storage key that is not one part of a path");
    }
    s.n_bytes = s.n_elems;
    if (id->at[4]->as.i < 0 ||
        (s.dtype != CKPT_DTYPE_NONE && !ckpt_dtype_bytes(s.dtype, s.n_elems, &s.n_bytes)) ||
        s.n_bytes > INT64_MAX) {
        return ckpt_pk_fail(p, CKPT_EFORMAT,
                            "storage %.*s has an impossible length of %" PRId64 " elements",
                            pk_cut(s.key), s.key.at, id->at[4]->as.i);
    }
    v = ckpt_pk_node(p, CKPT_V_STORAGE);
    *out = v;
    rc = v == NULL ? CKPT_ELIMIT : pk_find_storage(p, &v->as.storage, &s);
    return rc == CKPT_OK && p->opts->legacy_storages ? pk_storage_view(p, v, id->at[5]) : rc;
}

int ckpt_pk_persistent(ckpt_pk *p, ckpt_value **out, ckpt_value *id)
{
    ckpt_seq a = ckpt_value_seq(id);

    if (id->kind != CKPT_V_TUPLE || a.n < 2) {
        return ckpt_pk_fail(p, CKPT_EFORMAT, "a persistent id that is not a tuple");
    }
    if (ckpt_value_is(a.at[0], "storage")) {
        return pk_storage_id(p, out, &a);
    }
    // ('module', class, file of its source, source): stands for the class; the source is ignored
    if (ckpt_value_is(a.at[0], "module") && p->opts->legacy_storages) {
        if (a.n != 4 || ckpt_pk_id(p, a.at[1]) == CKPT_NAME_UNSAFE) {
            return ckpt_pk_fail(p, CKPT_EFORMAT, "a persistent id that names no class");
        }
        *out = a.at[1];
        return CKPT_OK;
    }
    return ckpt_pk_fail(p, CKPT_EFORMAT, "a persistent id of an unknown kind");
}
