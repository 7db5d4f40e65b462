/* SPDX-License-Identifier: Apache-2.0 */
/* parts.c: converts extents to runs over files that are sorted by rank. */
#define _GNU_SOURCE /* strverscmp */
#include "tools/report/parts.h"

#include <stdlib.h>
#include <string.h>

#include "ckpt_extra.h"
#include "tools/cli/out.h"

/* Order files: those with tensors first, then by name, "rank_2" before "rank_10". */
static int parts_order(const void *a, const void *b)
{
    const part_file *x = a, *y = b;

    if (x->used != y->used)
        return x->used ? -1 : 1;
    return strverscmp(x->path, y->path);
}

static int parts_by_path(const void *a, const void *b)
{
    return strcmp(((const part_file *)a)->path, ((const part_file *)b)->path);
}

/* Grow of_source so that `source` is a valid index. */
static bool parts_room(parts *p, uint32_t source)
{
    size_t n = p->n_sources ? p->n_sources : 64;

    if (source < p->n_sources)
        return true;
    while (n <= source)
        n *= 2;
    uint32_t *of = realloc(p->of_source, n * sizeof *of);
    if (!of)
        return false;
    memset(of + p->n_sources, 0, (n - p->n_sources) * sizeof *of);
    p->of_source = of;
    p->n_sources = n;
    return true;
}

/* Find the file of an extent, once per source; binary search by path if they are sorted. */
static uint32_t parts_look(parts *p, const ckpt_extent *e, bool sorted)
{
    const char *path, *record;
    uint64_t at;

    if (!parts_room(p, e->source))
        return PARTS_NO_FILE;
    if (!p->of_source[e->source] && sorted) {
        part_file key = {0}, *found = NULL;
        if (ckpt_map_locate(p->map, e, &path, &record, &at) && path) {
            key.path = path;
            found = bsearch(&key, p->file, p->n_files, sizeof *p->file, parts_by_path);
        }
        p->of_source[e->source] = found ? (uint32_t)(found - p->file) + 1 : PARTS_NO_FILE;
    }
    uint32_t f = p->of_source[e->source];
    return f == 0 || f == PARTS_NO_FILE ? PARTS_NO_FILE : f - 1;
}

/* Elements of a box. */
static uint64_t parts_count(const ckpt_extent *e)
{
    uint64_t n = 1;

    for (uint32_t k = 0; k < e->ndim; k++)
        n *= e->axis[k].count;
    return n;
}

/* Find the files that hold tensors, and their bytes, in one pass over all extents. */
static void parts_measure(parts *p)
{
    for (size_t i = 0; i < ckpt_map_tensor_count(p->map); i++) {
        const ckpt_tensor *t = ckpt_map_tensor_at(p->map, i);
        double bytes = t->n_elems ? (double)ckpt_tensor_bytes(t) / (double)t->n_elems : 0;
        for (uint32_t k = 0; !t->owner && k < t->n_extents; k++) {
            ckpt_box room;
            const ckpt_extent *e = ckpt_tensor_extent(t, k, &room);
            uint32_t f = parts_look(p, e, true);
            if (f == PARTS_NO_FILE)
                continue;
            p->file[f].used = true;
            p->file[f].held += (uint64_t)((double)parts_count(e) * bytes + 0.5);
        }
    }
}

/* Sort files with numbers in numeric order, and update the sources. */
static int parts_sort(parts *p, ckpt_err *err)
{
    size_t n = p->n_files;
    part_file *was = malloc((n ? n : 1) * sizeof *was);
    uint32_t *to = malloc((n ? n : 1) * sizeof *to);

    if (was && to) {
        if (n)
            memcpy(was, p->file, n * sizeof *was);
        qsort(p->file, n, sizeof *p->file, parts_order);
        for (size_t i = 0; i < n; i++) {
            const part_file *f = bsearch(&p->file[i], was, n, sizeof *was, parts_by_path);
            to[f - was] = (uint32_t)i;
            p->n_used += p->file[i].used;
        }
        for (size_t s = 0; s < p->n_sources; s++) {
            if (p->of_source[s] && p->of_source[s] != PARTS_NO_FILE)
                p->of_source[s] = to[p->of_source[s] - 1] + 1;
        }
    }
    int rc = was && to ? CKPT_OK : fail(err, CKPT_ELIMIT, "out of memory");
    free(was);
    free(to);
    return rc;
}

int parts_make(parts *out, const ckpt_map *map, ckpt_err *err)
{
    size_t n = ckpt_map_file_count(map);

    *out = (parts){.map = map, .n_files = n, .file = calloc(n ? n : 1, sizeof *out->file)};
    if (!out->file)
        return fail(err, CKPT_ELIMIT, "out of memory");
    for (size_t i = 0; i < n; i++)
        out->file[i] =
            (part_file){.path = ckpt_map_file_path(map, i), .n_bytes = ckpt_map_file_size(map, i)};
    qsort(out->file, n, sizeof *out->file, parts_by_path);
    parts_measure(out);
    return parts_sort(out, err);
}

void parts_free(parts *p)
{
    free(p->file);
    free(p->of_source);
    *p = (parts){0};
}

/* True if all extents are flat and follow each other from element 0 on. */
static bool parts_flat(const ckpt_tensor *t)
{
    uint64_t next = 0;

    for (uint32_t k = 0; t->n_extents > 1 && k < t->n_extents; k++) {
        ckpt_box room;
        const ckpt_extent *e = ckpt_tensor_extent(t, k, &room);
        if (e->ndim != 1 || e->axis[0].start != next)
            return false;
        next += e->axis[0].count;
    }
    return true;
}

uint64_t parts_each(parts *p, const ckpt_tensor *t, uint64_t most, part_fn fn, void *ctx)
{
    bool flat = parts_flat(t);
    part_run run = {0};
    uint64_t told = 0, done = 0;

    for (uint32_t k = 0; !t->owner && k < t->n_extents; k++) {
        ckpt_box room;
        const ckpt_extent *e = ckpt_tensor_extent(t, k, &room);
        uint32_t f = parts_look(p, e, false);
        uint64_t n = parts_count(e);
        bool last = done + n == t->n_elems;
        done += n;
        // the next file has as many elements, or the rest
        if (flat && run.n && f != PARTS_NO_FILE && f == run.file + run.n &&
            (n == run.count || (last && n < run.count))) {
            run.n++;
            continue;
        }
        if (run.n || run.box)
            fn(ctx, &run);
        if (told++ == most)
            return t->n_extents - k;
        run = (part_run){.file = f, .count = n, .n = flat, .box = flat ? NULL : e};
        if (!flat) {
            fn(ctx, &run);
            run = (part_run){0};
        }
    }
    if (run.n)
        fn(ctx, &run);
    return 0;
}
