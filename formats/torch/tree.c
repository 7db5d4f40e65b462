/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.c: makes the nodes, storages and views of an output file's tree.
 */
#include "formats/torch/tree.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "formats/torch/torch.h"
#include "libckpt/base/dtype.h"
#include "libckpt/map/extent.h"

enum { TT_KIND = 64 }; /* limit of the kind in a tensor's name */

/* Record the first failure. */
static void *tt_failed(ckpt_torch_tree *t, int rc)
{
    if (t->rc == CKPT_OK)
        t->rc = rc;
    return NULL;
}

static void *tt_memory(ckpt_torch_tree *t)
{
    return tt_failed(t, ckpt_fail_memory(t->err));
}

int ckpt_tt_more(ckpt_torch_tree *t, ckpt_map *to, const ckpt_map *from, uint32_t file,
                 ckpt_err *err)
{
    assert(t && to);
    *t = (ckpt_torch_tree){.to = to, .from = from, .file = file, .err = err};
    t->scratch = ckpt_arena_new(0);
    if (!t->scratch)
        tt_memory(t);
    return t->rc;
}

int ckpt_tt_begin(ckpt_torch_tree *t, ckpt_map *to, const ckpt_map *from, const char *name,
                  ckpt_err *err)
{
    assert(t && to && name);
    ckpt_map_file file = {.path = name, .format = &ckpt_format_torch, .rank = UINT32_MAX};
    uint32_t index = UINT32_MAX;
    int rc = ckpt_map_add_file(to, &file, &index, err), more;

    more = ckpt_tt_more(t, to, from, index, err);
    t->rc = rc != CKPT_OK ? rc : more;
    return t->rc;
}

int ckpt_tt_end(ckpt_torch_tree *t, ckpt_value *root)
{
    assert(t->file < t->to->files.n || t->rc != CKPT_OK);
    ckpt_map_file *file = t->file < t->to->files.n ? &t->to->files.at[t->file] : NULL;

    if (t->rc == CKPT_OK && !root)
        tt_memory(t);
    if (t->rc == CKPT_OK) {
        file->tree = root;
        t->rc = file->format->place(t->to, t->file, t->err);
        file->placed = true;
    }
    // The pickle is made, so the tree and its storages are no longer needed.
    if (file) {
        file->tree = NULL;
        ckpt_vec_free(&file->storages);
    }
    ckpt_vec_free(&t->copied);
    ckpt_arena_free(t->scratch);
    t->scratch = NULL;
    return t->rc;
}

/* ---- nodes ---- */

ckpt_value *ckpt_tt_new(ckpt_torch_tree *t, ckpt_value_kind kind)
{
    ckpt_value *v = t->rc == CKPT_OK ? ckpt_value_new(t->scratch, kind) : NULL;

    return v ? v : tt_memory(t);
}

ckpt_value *ckpt_tt_int(ckpt_torch_tree *t, int64_t i)
{
    ckpt_value *v = ckpt_tt_new(t, CKPT_V_INT);

    if (v)
        v->as.i = i;
    return v;
}

ckpt_value *ckpt_tt_float(ckpt_torch_tree *t, double f)
{
    ckpt_value *v = ckpt_tt_new(t, CKPT_V_FLOAT);

    if (v)
        v->as.f = f;
    return v;
}

ckpt_value *ckpt_tt_bool(ckpt_torch_tree *t, bool b)
{
    ckpt_value *v = ckpt_tt_new(t, CKPT_V_BOOL);

    if (v)
        v->as.i = b;
    return v;
}

ckpt_value *ckpt_tt_str(ckpt_torch_tree *t, const char *s)
{
    ckpt_value *v = t->rc == CKPT_OK ? ckpt_value_cstr(t->scratch, s) : NULL;

    return v ? v : tt_memory(t);
}

ckpt_value *ckpt_tt_global(ckpt_torch_tree *t, const char *module, const char *name)
{
    ckpt_value *v = ckpt_tt_new(t, CKPT_V_GLOBAL);

    if (v) {
        v->as.global.module = (ckpt_text){module, strlen(module)};
        v->as.global.name = (ckpt_text){name, strlen(name)};
    }
    return v;
}

ckpt_value *ckpt_tt_object(ckpt_torch_tree *t, const char *module, const char *name,
                           ckpt_object_form form, ckpt_value *args, ckpt_value *state)
{
    assert(module && name && (!args || args->kind == CKPT_V_TUPLE));
    ckpt_value *v = ckpt_tt_new(t, CKPT_V_OBJECT), *cls = ckpt_tt_global(t, module, name);
    ckpt_object *o = cls ? ckpt_arena_alloc(t->scratch, sizeof *o) : NULL;

    if (!v || !o || !args)
        return tt_memory(t);
    *o = (ckpt_object){.form = form, .cls = cls, .args = args, .state = state};
    v->as.object = o;
    return v;
}

void ckpt_tt_add(ckpt_torch_tree *t, ckpt_value *seq, ckpt_value *item)
{
    if (t->rc == CKPT_OK && (!seq || !item || !ckpt_seq_add(t->scratch, &seq->as.seq, item)))
        tt_memory(t);
}

void ckpt_tt_put_at(ckpt_torch_tree *t, ckpt_value *dict, ckpt_value *key, ckpt_value *value)
{
    assert(!dict || dict->kind == CKPT_V_DICT || dict->kind == CKPT_V_ODICT);
    if (t->rc == CKPT_OK &&
        (!dict || !key || !value || !ckpt_dict_add(t->scratch, &dict->as.map, key, value)))
        tt_memory(t);
}

void ckpt_tt_put(ckpt_torch_tree *t, ckpt_value *dict, const char *key, ckpt_value *value)
{
    for (uint64_t i = 0; t->rc == CKPT_OK && dict && value && i < dict->as.map.n; i++) {
        if (ckpt_value_is(dict->as.map.at[i].key, key)) {
            dict->as.map.at[i].value = value;
            return;
        }
    }
    ckpt_tt_put_at(t, dict, ckpt_tt_str(t, key), value);
}

/* ---- tensors ---- */

/* Make a storage node and its source; offsets are set when the file is placed. */
static ckpt_storage *tt_storage(ckpt_torch_tree *t, const ckpt_storage *like)
{
    ckpt_source source = {.kind = CKPT_SOURCE_FILE, .file = t->file};
    ckpt_storage *s = t->rc == CKPT_OK ? ckpt_arena_copy(t->scratch, like, sizeof *like) : NULL;
    ckpt_storage **slot = s ? ckpt_vec_push(&t->to->files.at[t->file].storages) : NULL;

    if (!slot)
        return tt_memory(t);
    *slot = s;
    source.n_bytes = source.n_stored = s->n_bytes;
    t->rc = ckpt_map_add_source(t->to, &source, &s->source, t->err);
    return t->rc == CKPT_OK ? s : NULL;
}

ckpt_storage *ckpt_tt_storage(ckpt_torch_tree *t, ckpt_dtype dtype, uint64_t n)
{
    assert(dtype != CKPT_DTYPE_NONE);
    ckpt_storage s = {.location = {"cpu", 3}, .dtype = dtype, .n_elems = n};

    if (t->rc == CKPT_OK && !ckpt_dtype_bytes(dtype, n, &s.n_bytes))
        return tt_failed(t, ckpt_fail(t->err, CKPT_ELIMIT, "%s: a record of more than 2^64 bytes",
                                      t->to->files.at[t->file].path));
    // Newer dtypes have no storage class, so their storages count bytes.
    if (!ckpt_dtype_get(dtype)->torch_storage) {
        s.dtype = CKPT_DTYPE_NONE;
        s.n_elems = s.n_bytes;
    }
    return tt_storage(t, &s);
}

ckpt_value *ckpt_tt_view(ckpt_torch_tree *t, ckpt_storage *s, uint64_t offset,
                         const uint64_t *shape, uint32_t ndim)
{
    assert(ndim <= CKPT_MAX_DIM && (shape || ndim == 0));
    ckpt_value *v = ckpt_tt_new(t, CKPT_V_TENSOR);
    ckpt_tensor_value *n = v && s ? ckpt_arena_alloc(t->scratch, sizeof *n) : NULL;
    uint64_t *own = n ? ckpt_arena_array(t->scratch, 2 * (uint64_t)ndim, sizeof *own) : NULL,
             by = 1;

    if (!own)
        return tt_memory(t);
    for (uint32_t i = ndim; i-- > 0; by *= shape[i] ? shape[i] : 1) {
        own[i] = shape[i];
        own[ndim + i] = by;
    }
    *n = (ckpt_tensor_value){.storage = s,
                             .dtype = s->dtype,
                             .ndim = ndim,
                             .shape = own,
                             .stride = own + ndim,
                             .offset = offset};
    v->as.tensor = n;
    return v;
}

ckpt_value *ckpt_tt_flat(ckpt_torch_tree *t, ckpt_storage *s, uint64_t offset, uint64_t n)
{
    return ckpt_tt_view(t, s, offset, &n, 1);
}

ckpt_value *ckpt_tt_zeros(ckpt_torch_tree *t, ckpt_dtype dtype, const uint64_t *shape,
                          uint32_t ndim)
{
    uint64_t n = 1;

    for (uint32_t i = 0; i < ndim; i++)
        n *= shape[i];
    ckpt_value *v = ckpt_tt_view(t, ckpt_tt_storage(t, dtype, n), 0, shape, ndim);
    if (v)
        v->as.tensor->dtype = dtype;
    return v;
}

ckpt_value *ckpt_tt_whole(ckpt_torch_tree *t, const ckpt_tensor *donor, ckpt_dtype dtype)
{
    assert(donor && dtype != CKPT_DTYPE_NONE);
    ckpt_value *v = ckpt_tt_zeros(t, dtype, donor->shape, donor->ndim);
    ckpt_axis axis = {0, donor->n_elems, ckpt_dtype_get(dtype)->bits / 8};

    if (v && donor->n_elems) {
        ckpt_extent e = {.source = v->as.tensor->storage->source, .ndim = 1, .axis = &axis};
        t->rc = ckpt_tt_fill(t->to, &(ckpt_torch_fill){"whole", donor, dtype}, &e, 1, t->err);
    }
    return v;
}

/* Add a target tensor that gets the donor's values; it has no extents yet. */
static int tt_taker(ckpt_map *to, const ckpt_torch_fill *fill, ckpt_tensor **out, ckpt_err *err)
{
    const ckpt_tensor *donor = fill->donor;
    ckpt_tensor like = {
        .dtype = fill->dtype, .ndim = donor->ndim, .shape = donor->shape, .donor = donor};
    // A parameter goes into many files and records, so each copy needs its own name.
    const char *name =
        ckpt_arena_printf(to->arena, "%zu/%s/%.200s", to->tensors.n, fill->kind, donor->name);

    return name ? ckpt_map_add(to, name, strlen(name), &like, out, err) : ckpt_fail_memory(err);
}

int ckpt_tt_fill(ckpt_map *to, const ckpt_torch_fill *fill, const ckpt_extent *extent, uint32_t n,
                 ckpt_err *err)
{
    assert(to && fill->donor && fill->kind);
    ckpt_tensor *made = NULL;
    int rc = tt_taker(to, fill, &made, err);

    return rc == CKPT_OK ? ckpt_map_back(to, made, extent, n, err) : rc;
}

int ckpt_tt_fill_cut(ckpt_map *to, const ckpt_torch_fill *fill, const ckpt_cut *cut, ckpt_err *err)
{
    ckpt_tensor *made = NULL;
    int rc = tt_taker(to, fill, &made, err);

    return rc == CKPT_OK ? ckpt_map_cut(to, made, cut, err) : rc;
}

/* ---- another file like a placed one ---- */

/* Add a copy of a target tensor with its source numbers increased by `shift`. */
static int tt_fill_again(ckpt_map *to, const ckpt_tensor *t, uint32_t shift, ckpt_err *err)
{
    // the form of the name: "17/exp_avg/name"
    const char *kind = strchr(t->name, '/') + 1;
    size_t n = strcspn(kind, "/");
    char own[TT_KIND];
    ckpt_extent *e = ckpt_extent_list(t, shift);
    int rc = CKPT_OK;

    assert(t->donor && n < sizeof own);
    memcpy(own, kind, n);
    own[n] = 0;
    rc = e ? ckpt_tt_fill(to, &(ckpt_torch_fill){own, t->donor, t->dtype}, e, t->n_extents, err)
           : ckpt_fail_memory(err);
    ckpt_free(e);
    return rc;
}

int ckpt_tt_again(ckpt_map *to, const ckpt_torch_made *made, const char *name,
                  ckpt_torch_made *again, ckpt_err *err)
{
    assert(made->file < to->files.n && made->source + made->n_sources <= to->sources.n);
    ckpt_map_file file = {.path = name, .format = &ckpt_format_torch, .rank = UINT32_MAX};
    uint32_t shift = (uint32_t)(to->sources.n - made->source), index;

    *again = (ckpt_torch_made){0, to->sources.n, made->n_sources, to->tensors.n, made->n_tensors};
    int rc = ckpt_map_add_file(to, &file, &again->file, err);
    for (size_t i = 0; rc == CKPT_OK && i < made->n_sources; i++) {
        ckpt_source source = to->sources.at[made->source + i];

        source.file = again->file;
        source.name = NULL;
        rc = ckpt_map_add_source(to, &source, &index, err);
    }
    if (rc == CKPT_OK)
        rc = ckpt_torch_place_like(to, again->file, made->file, shift, err);
    for (size_t i = 0; rc == CKPT_OK && i < made->n_tensors; i++)
        rc = tt_fill_again(to, to->tensors.at[made->tensor + i], shift, err);
    if (rc == CKPT_OK)
        to->files.at[again->file].placed = true;
    return rc;
}
