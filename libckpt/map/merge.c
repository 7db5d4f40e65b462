/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merge.c: copies files, sources, tensors and notes from the map of a file into that of its folder.
 */
#include <assert.h>

#include "libckpt/map/extent.h"
#include "libckpt/map/merge.h"

#include <stdlib.h>
#include <string.h>

int ckpt_map_merge_files(ckpt_map *into, const ckpt_map *from, uint32_t *file_base,
                         uint32_t *source_base, ckpt_err *err)
{
    assert(into && from && into != from && file_base && source_base);
    uint32_t index = 0;
    int rc = CKPT_OK;

    *file_base = (uint32_t)into->files.n;
    *source_base = (uint32_t)into->sources.n;
    // sources inside nested archives come with the function that finds their bytes
    assert(!into->settle || !from->settle || into->settle == from->settle);
    if (!into->settle)
        into->settle = from->settle;
    into->wrapped = into->wrapped || from->wrapped;
    for (size_t i = 0; rc == CKPT_OK && i < from->files.n; i++) {
        ckpt_map_file file = from->files.at[i];
        file.state = NULL; // its driver data is in the other map's arena
        rc = ckpt_map_add_file(into, &file, &index, err);
    }
    for (size_t i = 0; rc == CKPT_OK && i < from->sources.n; i++) {
        ckpt_source source = from->sources.at[i];
        if (source.kind == CKPT_SOURCE_FILE)
            source.file += *file_base;
        rc = ckpt_map_add_source(into, &source, &index, err);
    }
    return rc;
}

/* Copy the extents of t to made, with sources counted from source_base. */
static int merge_extents(ckpt_map *into, ckpt_tensor *made, const ckpt_tensor *t,
                         uint32_t source_base, ckpt_err *err)
{
    ckpt_extent *moved;

    if (t->n_extents == 0)
        return CKPT_OK;
    moved = ckpt_extent_list(t, source_base);
    if (!moved)
        return ckpt_fail_memory(err);
    int rc = ckpt_map_back(into, made, moved, t->n_extents, err);
    ckpt_free(moved);
    return rc;
}

/* Give `made` the extents and the twin of t, or of its owner that is not in `into`. */
static int merge_backing(ckpt_map *into, ckpt_tensor *made, const ckpt_tensor *t,
                         uint32_t source_base, ckpt_err *err)
{
    int rc = merge_extents(into, made, t, source_base, err);

    if (rc == CKPT_OK && t->twin) {
        ckpt_tensor like = *t->twin, *twin = NULL;
        like.owner = like.twin = NULL;
        rc = ckpt_map_add_hidden(into, like.name, strlen(like.name), &like, &twin, err);
        if (rc == CKPT_OK)
            rc = merge_extents(into, twin, t->twin, source_base, err);
        made->twin = twin;
    }
    return rc;
}

int ckpt_map_merge_tensor(ckpt_map *into, const char *name, const ckpt_tensor *t,
                          uint32_t source_base, ckpt_tensor **out, ckpt_err *err)
{
    assert(into && name && t);
    ckpt_tensor like = *t, *made = NULL;
    const ckpt_tensor *owner = t->owner;
    size_t at = owner ? ckpt_map_index(into, owner->name, strlen(owner->name)) : SIZE_MAX;

    *out = NULL;
    like.owner = like.twin = NULL;
    like.origin = NULL; // a name in another arena would dangle
    if (at != SIZE_MAX)
        like.owner = into->tensors.at[at];
    int rc = ckpt_map_add(into, name, strlen(name), &like, &made, err);
    if (rc == CKPT_OK && !like.owner)
        rc = merge_backing(into, made, owner ? owner : t, source_base, err);
    if (rc == CKPT_OK)
        *out = made;
    return rc;
}

/* Order of pairs by key. */
static int merge_pair_order(const void *pa, const void *pb)
{
    const ckpt_text a = ((const ckpt_pair *)pa)->key->as.text,
                    b = ((const ckpt_pair *)pb)->key->as.text;
    int order = memcmp(a.at, b.at, (size_t)(a.n < b.n ? a.n : b.n));

    return order ? order : (a.n > b.n) - (a.n < b.n);
}

/*
 * Append the string pairs of `from` whose keys are not in `into`. Sorted look-ups, because files
 * can hold many pairs.
 */
static int merge_metadata(ckpt_map *into, const ckpt_map *from, ckpt_err *err)
{
    size_t n = (size_t)into->metadata.n; // only the earlier pairs, because `from` has no key twice
    ckpt_pair *sorted = ckpt_alloc(n * sizeof *sorted);
    int rc = sorted ? CKPT_OK : ckpt_fail_memory(err);

    if (sorted && n > 0) {
        memcpy(sorted, into->metadata.at, n * sizeof *sorted);
        qsort(sorted, n, sizeof *sorted, merge_pair_order);
    }
    for (uint64_t i = 0; rc == CKPT_OK && i < from->metadata.n; i++) {
        const ckpt_pair *p = &from->metadata.at[i];
        if (n > 0 && bsearch(p, sorted, n, sizeof *sorted, merge_pair_order))
            continue;
        ckpt_value *key = ckpt_value_str(into->arena, p->key->as.text.at, p->key->as.text.n);
        ckpt_value *text = ckpt_value_str(into->arena, p->value->as.text.at, p->value->as.text.n);
        if (!key || !text || !ckpt_dict_add(into->arena, &into->metadata, key, text))
            rc = ckpt_fail_memory(err);
    }
    ckpt_free(sorted);
    return rc;
}

/* Texts became safe to print when they were noted; "%s" keeps a '%' in a file name harmless. */
int ckpt_map_merge_notes(ckpt_map *into, const ckpt_map *from, ckpt_err *err)
{
    assert(into && from && into != from);
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < from->findings.n; i++) {
        const ckpt_finding *f = &from->findings.at[i];
        rc = ckpt_map_note(into, f->severity, err, "%s", f->text);
        if (rc == CKPT_OK) {
            into->findings.at[into->findings.n - 1].code = f->code;
            into->findings.at[into->findings.n - 1].argument = f->argument;
        }
    }
    return rc == CKPT_OK ? merge_metadata(into, from, err) : rc;
}
