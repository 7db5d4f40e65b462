/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storage.c: finds the storages of persistent ids.
 */
#include <assert.h>

#include "libckpt/codec/pickle/node.h"

#include <inttypes.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/map/map.h"

/* Compare storages, for their index. */
static bool so_same_storage(const void *ctx, uint32_t number, const void *key)
{
    const ckpt_storage *a = ((const ckpt_pk *)ctx)->out->storages.at[number], *b = key;

    // two dtypes may share a key only if both storages are empty: then they are two storages
    return a->key.n == b->key.n && memcmp(a->key.at, b->key.at, (size_t)a->key.n) == 0 &&
           (a->dtype == b->dtype || a->n_bytes != 0 || b->n_bytes != 0);
}

/* Find the storage with a key among the known ones, or make a new one. */
static int so_find_storage(ckpt_pk *p, ckpt_storage **out, const ckpt_storage *s)
{
    uint32_t hash = ckpt_hash_bytes(s->key.at, (size_t)s->key.n, 0);
    uint32_t at = ckpt_index_find(&p->storage_index, hash, so_same_storage, p, s);
    ckpt_storage **slot, *copy;

    if (at != CKPT_INDEX_NONE) {
        *out = p->out->storages.at[at];
        if ((*out)->dtype != s->dtype || (*out)->n_elems != s->n_elems)
            return ckpt_pk_fail(p, CKPT_EFORMAT, "storage %.*s is used with two dtypes or lengths",
                                ckpt_pk_cut(s->key), s->key.at);
        return CKPT_OK;
    }
    copy = ckpt_arena_copy(p->arena, s, sizeof *s);
    slot = !copy ? NULL : ckpt_vec_push(&p->out->storages);
    if (!slot || !ckpt_index_add(&p->storage_index, hash, (uint32_t)(p->out->storages.n - 1)))
        return ckpt_pk_no_memory(p);
    *slot = copy;
    *out = copy;
    return CKPT_OK;
}

/* Find the dtype of a storage class; CKPT_DTYPE_NONE for the untyped one. */
static int so_storage_class(const ckpt_pk *p, const ckpt_value *cls, ckpt_dtype *out)
{
    ckpt_name_id id = ckpt_pk_id(p, cls);

    if (id == CKPT_NAME_QSTORAGE)
        return ckpt_pk_fail(p, CKPT_EUNSUPPORTED,
                            "quantized tensors (storage class %.*s) cannot be read; store their "
                            "dequantized values instead",
                            ckpt_pk_cut(cls->as.global.name), cls->as.global.name.at);
    if (id != CKPT_NAME_STORAGE && id != CKPT_NAME_UNTYPED)
        return ckpt_pk_fail(p, CKPT_EFORMAT, "the storage class in a persistent id is unknown");
    *out = id == CKPT_NAME_UNTYPED ? CKPT_DTYPE_NONE
                                   : ckpt_dtype_from_torch_storage(cls->as.global.name.at,
                                                                   (size_t)cls->as.global.name.n);
    return CKPT_OK;
}

/*
 * Read the view metadata of the legacy container: None, or in files of 2017 (key of the view,
 * offset, count).  The storage is then that part of the named one.  The node keeps the metadata for
 * the tensors that use it.
 */
static int so_storage_view(ckpt_pk *p, ckpt_value *v, ckpt_value *view)
{
    ckpt_seq part = ckpt_value_seq(view);

    if (view->kind == CKPT_V_NONE)
        return CKPT_OK;
    if (view->kind != CKPT_V_TUPLE || part.n != 3 || part.at[1]->kind != CKPT_V_INT ||
        part.at[2]->kind != CKPT_V_INT || part.at[1]->as.i < 0 || part.at[2]->as.i < 0 ||
        !ckpt_within((uint64_t)part.at[1]->as.i, (uint64_t)part.at[2]->as.i,
                     v->as.storage->n_elems))
        return ckpt_pk_fail(p, CKPT_EFORMAT,
                            "the view of storage %.*s is malformed, or reaches past its end",
                            ckpt_pk_cut(v->as.storage->key), v->as.storage->key.at);
    v->state = view;
    return CKPT_OK;
}

/* Handle ('storage', class, key, location, numel[, view metadata]). */
static int so_storage_id(ckpt_pk *p, ckpt_value **out, const ckpt_seq *id)
{
    ckpt_storage s = {.source = UINT32_MAX};
    ckpt_value *v;
    int rc;

    if (id->n != (p->opts->legacy_storages ? 6u : 5u) || id->at[2]->kind != CKPT_V_STR ||
        id->at[3]->kind != CKPT_V_STR || id->at[4]->kind != CKPT_V_INT)
        return ckpt_pk_fail(
            p, CKPT_EFORMAT,
            "a persistent id is malformed; expected (storage, class, key, location, count)");
    rc = so_storage_class(p, id->at[1], &s.dtype);
    if (rc != CKPT_OK)
        return rc;
    s.key = id->at[2]->as.text;
    s.location = id->at[3]->as.text;
    s.n_elems = (uint64_t)id->at[4]->as.i;
    if (!ckpt_path_part_ok(s.key.at, s.key.n)) {
        // a key with separators refers to a file elsewhere, so it is unsafe; an empty or overlong
        // one is just malformed
        const bool strays = memchr(s.key.at, '/', s.key.n) || memchr(s.key.at, '\\', s.key.n) ||
                            (s.key.n > 0 && s.key.n <= 2 && s.key.at[0] == '.');
        return ckpt_pk_fail(p, strays ? CKPT_EUNSAFE : CKPT_EFORMAT,
                            "a storage key is not a plain file name");
    }
    s.n_bytes = s.n_elems;
    if (id->at[4]->as.i < 0 ||
        (s.dtype != CKPT_DTYPE_NONE && !ckpt_dtype_bytes(s.dtype, s.n_elems, &s.n_bytes)) ||
        s.n_bytes > INT64_MAX)
        return ckpt_pk_fail(p, CKPT_EFORMAT,
                            "storage %.*s has an impossible length of %" PRId64 " elements",
                            ckpt_pk_cut(s.key), s.key.at, id->at[4]->as.i);
    v = ckpt_pk_node(p, CKPT_V_STORAGE);
    *out = v;
    rc = !v ? CKPT_ELIMIT : so_find_storage(p, &v->as.storage, &s);
    return rc == CKPT_OK && p->opts->legacy_storages ? so_storage_view(p, v, id->at[5]) : rc;
}

int ckpt_pk_persistent(ckpt_pk *p, ckpt_value **out, ckpt_value *id)
{
    assert(out && id);
    ckpt_seq a = ckpt_value_seq(id);

    if (id->kind != CKPT_V_TUPLE || a.n < 2)
        return ckpt_pk_fail(p, CKPT_EFORMAT, "a persistent id is not a tuple of two or more items");
    if (ckpt_value_is(a.at[0], "storage"))
        return so_storage_id(p, out, &a);
    // ('module', class, file of its source, source) refers to the class; the source is ignored
    if (ckpt_value_is(a.at[0], "module") && p->opts->legacy_storages) {
        if (a.n != 4 || ckpt_pk_id(p, a.at[1]) == CKPT_NAME_UNSAFE)
            return ckpt_pk_fail(p, CKPT_EFORMAT,
                                "the persistent id of a module is malformed; expected (module, "
                                "class, file, source)");
        *out = a.at[1];
        return CKPT_OK;
    }
    return ckpt_pk_fail(p, CKPT_EFORMAT,
                        "a persistent id is of an unknown kind; expected a storage");
}
