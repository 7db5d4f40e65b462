/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coverage.c: compares a list of files with those that a checkpoint is read from.
 */
#include "libckpt/coverage.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "libckpt/map/map.h"

static int cov_by_id(const void *pa, const void *pb)
{
    const ckpt_file_id *a = pa, *b = pb;

    return a->dev != b->dev ? (a->dev < b->dev ? -1 : 1) : (a->ino > b->ino) - (a->ino < b->ino);
}

int ckpt_coverage_add(ckpt_coverage *c, const char *path, ckpt_err *err)
{
    ckpt_file_id *id;
    struct stat st;

    if (stat(path, &st) != 0)
        return CKPT_OK;
    id = ckpt_vec_push(c);
    if (!id)
        return ckpt_fail_memory(err);
    *id = (ckpt_file_id){st.st_dev, st.st_ino};
    return CKPT_OK;
}

static bool cov_has(const ckpt_coverage *c, uint64_t dev, uint64_t ino)
{
    const ckpt_file_id id = {dev, ino};

    return c->n > 0 && bsearch(&id, c->at, c->n, sizeof id, cov_by_id);
}

const char *ckpt_coverage_gap(ckpt_coverage *c, const char *path, const ckpt_map *map, size_t *at)
{
    struct stat st;

    if (*at == 0) {
        ++*at;
        if (c->n > 1)
            qsort(c->at, c->n, sizeof *c->at, cov_by_id);
        if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && !cov_has(c, st.st_dev, st.st_ino))
            return path;
    }
    while (map && *at <= map->files.n) {
        const ckpt_map_file *f = &map->files.at[*at - 1];

        ++*at;
        if (!cov_has(c, f->dev, f->ino))
            return f->path;
    }
    return NULL;
}

int ckpt_coverage_open(ckpt_map **out, const char *path, const ckpt_open_opts *open, ckpt_err *err)
{
    ckpt_open_opts own = {.tag = open ? open->tag : NULL,
                          .whole_checkpoint = !open || open->whole_checkpoint,
                          .with_optimizer = true,
                          .keep_slices = true};
    ckpt_err why = {0}, rest = {0};
    int rc = ckpt_open(out, path, &own, &why);

    if (rc == CKPT_OK)
        return rc;
    own.with_optimizer = false;
    (void)ckpt_open(out, path, &own, &rest);
    return ckpt_fail(err, rc, "%s", why.text);
}
