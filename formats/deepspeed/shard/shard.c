/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard.c: reads one .pt file of a tag folder: its tree, sources, flat tensors and step counts.
 *
 * The reader copies the needed parts of a shard's own map to the output map and closes the shard,
 * so that a folder of a thousand ranks never has more than a few trees in memory. The first file of
 * the other ranks remains open until the last is read, because most ranks write the same pickle
 * with other tensor bytes and can share its tree (ckpt_read_beside).
 *
 * The shard's map lists every tensor of the file, although layouts use only the tree. The list is
 * needed because it checks each tensor against its record, bounds expanded tensors, and sets the
 * unit of byte reversal for big-endian sources: otherwise a damaged tensor that no layout uses
 * would remain undetected. It takes no measurable part of the time (5000 parameters on 4 ranks).
 *
 * Sources are copied one by one when a layout first uses them (s->source), not all at once as in
 * map/merge.h, because most records of a shard are copies that no output map needs, and `verify`
 * counts the sources of a map.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/deepspeed/shard/shard.h"
#include "libckpt/base/cast.h"
#include "libckpt/base/dtype.h"
#include "libckpt/io/thread_pool.h"
#include "libckpt/map/adopt.h"
#include "libckpt/map/view.h"
#include "libckpt/run/run.h"

/* Files read ahead per thread. */
enum { DSS_AHEAD = 4, DSS_AHEAD_SMALL = 16 };

/*
 * Returns whether a failure concerns one file only, so a reader that collects findings may continue
 * with the next.
 */
static bool dss_about_file(int code)
{
    return code == CKPT_EFORMAT || code == CKPT_EUNSAFE || code == CKPT_EUNSUPPORTED ||
           code == CKPT_EMISSING;
}

/* Returns whether the files have one value each instead of a shard's dict. */
static bool dss_small(ckpt_ds_content kind)
{
    return kind == CKPT_DS_VALUES || kind == CKPT_DS_STEPS;
}

/* One file read ahead of its turn. */
typedef struct dss_read_file {
    ckpt_map *map;
    bool has_step;
    double step;
    int rc;
    ckpt_err err;
} dss_read_file;

/* Takes the map of a file that a thread has read, or its failure, which becomes a finding when the
 * caller collects. */
static int dss_take(ckpt_ds_job *job, ckpt_ds_shard *s, dss_read_file *f, ckpt_ds_content kind)
{
    const bool small = dss_small(kind);

    s->map = f->map;
    s->has_step = f->has_step;
    s->step = f->step;
    f->map = NULL;
    if (f->rc != CKPT_OK && job->map->collect && dss_about_file(f->rc))
        return ckpt_ds_problem(job, f->rc, "%s", f->err.text);
    if (f->rc != CKPT_OK) {
        if (job->err && job->err->code == CKPT_OK)
            *job->err = f->err;
        return f->rc;
    }
    s->root = s->map->values;
    // The file of a layer without parameters has no entries, so an empty dict is valid.
    if (s->map->files.n == 1 && s->root &&
        (small || s->root->kind == CKPT_V_DICT || s->root->kind == CKPT_V_ODICT))
        return CKPT_OK;
    ckpt_ds_shard_close(s);
    return ckpt_ds_problem(job, CKPT_EFORMAT,
                           small ? "%s: not a torch file"
                                 : "%s: not a DeepSpeed shard: the file holds no dict",
                           s->path);
}

/* Opens a shard from a file that a thread has read. */
static int dss_enter(ckpt_ds_job *job, ckpt_ds_shard *s, dss_read_file *f, ckpt_ds_content kind)
{
    int rc = dss_take(job, s, f, kind);

    if (rc != CKPT_OK || !s->map)
        return rc;
    s->file = ckpt_alloc(sizeof *s->file);
    s->source = ckpt_alloc((s->map->sources.n + 1) * sizeof *s->source);
    rc = s->file && s->source ? ckpt_map_add_file(job->map, &s->map->files.at[0], s->file, job->err)
                              : ckpt_fail_memory(job->err);
    if (rc != CKPT_OK) {
        ckpt_ds_shard_close(s);
        return rc;
    }
    memset(s->source, 0xff, (s->map->sources.n + 1) * sizeof *s->source);
    return CKPT_OK;
}

int ckpt_ds_shard_open(ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_ds_part *part)
{
    assert(job && s && part);
    dss_read_file f = {0};

    memset(s, 0, sizeof *s);
    s->path = part->path;
    s->rank = part->rank;
    f.rc = job->read(&f.map, part->path, NULL, &f.err);
    return dss_enter(job, s, &f, CKPT_DS_SHARDS);
}

/* ---- many files ---- */

/* A batch of files read by several threads. */
typedef struct dss_batch {
    ckpt_read_file *read;
    ckpt_ds_content kind;
    unsigned jobs; /* threads */
    ckpt_read_beside beside;
    const ckpt_ds_part *part;
    dss_read_file *file;
} dss_batch;

/* Reads the step count of a file, which is a value of its tree or a one-element tensor. */
static int dss_read_step(dss_read_file *f, const char *path)
{
    const ckpt_ds_job alone = {.err = &f->err};
    ckpt_ds_shard s = {.map = f->map, .path = path};
    int rc = ckpt_ds_shard_step(&alone, &s, f->map->values, &f->has_step, &f->step);

    ckpt_reader_free(s.reader);
    return rc;
}

/* Reads one file (runs in a thread). */
static int dss_read_item(void *ctx, unsigned worker, uint64_t item, ckpt_err *err)
{
    dss_batch *b = ctx;
    dss_read_file *f = &b->file[item];

    (void)worker;
    (void)err;
    memset(f, 0, sizeof *f);
    // The failure stays with its file, because the reported one must not depend on thread order.
    f->rc = b->read(&f->map, b->part[item].path, &b->beside, &f->err);
    if (f->rc == CKPT_OK && b->kind == CKPT_DS_STEPS)
        f->rc = dss_read_step(f, b->part[item].path);
    return CKPT_OK;
}

/*
 * Reads a batch and passes its files on in order; files after a failure are dropped. With keep, the
 * first readable file remains open as the template for the others.
 */
static int dss_batch_run(ckpt_ds_job *job, dss_batch *b, size_t n, ckpt_ds_shard_fn fn, void *ctx)
{
    unsigned jobs = n < b->jobs ? (unsigned)n : b->jobs;

    for (size_t i = 0; i < n; i++)
        b->file[i] = (dss_read_file){.rc = CKPT_ELIMIT};
    int rc = ckpt_crew_run(jobs, n, dss_read_item, b, job->err);
    for (size_t i = 0; i < n; i++) {
        ckpt_ds_shard s = {.path = b->part[i].path, .rank = b->part[i].rank};
        if (rc == CKPT_OK)
            rc = dss_enter(job, &s, &b->file[i], b->kind);
        if (rc == CKPT_OK && s.map)
            rc = fn(ctx, &s);
        if (rc == CKPT_OK && s.map && b->beside.keep) {
            b->beside = (ckpt_read_beside){.like = s.map};
            s.map = NULL;
        }
        ckpt_ds_shard_close(&s);
        ckpt_map_free(b->file[i].map);
    }
    return rc;
}

int ckpt_ds_shard_each(ckpt_ds_job *job, const ckpt_ds_parts *parts, size_t first,
                       ckpt_ds_content kind, ckpt_ds_shard_fn fn, void *ctx)
{
    assert(parts && first <= parts->n && fn);
    dss_batch b = {.read = job->read,
                   .kind = kind,
                   .jobs = ckpt_run_jobs(0),
                   .beside = {.keep = kind == CKPT_DS_RANKS}};
    size_t most = (size_t)b.jobs * (dss_small(kind) ? DSS_AHEAD_SMALL : DSS_AHEAD);
    int rc = CKPT_OK;

    b.file = ckpt_alloc(most * sizeof *b.file);
    if (!b.file)
        return ckpt_fail_memory(job->err);
    for (size_t i = first, n; rc == CKPT_OK && i < parts->n; i += n) {
        n = b.beside.keep ? 1 : most;
        n = parts->n - i < n ? parts->n - i : n;
        b.part = &parts->at[i];
        rc = dss_batch_run(job, &b, n, fn, ctx);
    }
    ckpt_map_free((ckpt_map *)(uintptr_t)b.beside.like);
    ckpt_free(b.file);
    return rc;
}

void ckpt_ds_shard_close(ckpt_ds_shard *s)
{
    ckpt_reader_free(s->reader);
    ckpt_map_free(s->map);
    ckpt_free(s->source);
    ckpt_free(s->file);
    s->reader = NULL;
    s->map = NULL;
    s->source = NULL;
    s->file = NULL;
    s->root = NULL;
    s->optim = NULL;
}

int ckpt_ds_shard_merge(const ckpt_ds_job *job, ckpt_ds_shard *into, ckpt_ds_shard *from)
{
    assert(into && from && into != from);
    size_t n_files = into->map->files.n, n_sources = into->map->sources.n;
    uint32_t *file = ckpt_resize(into->file, (n_files + from->map->files.n) * sizeof *file);

    into->file = file ? file : into->file;
    uint32_t *source =
        ckpt_resize(into->source, (n_sources + from->map->sources.n + 1) * sizeof *source);
    into->source = source ? source : into->source;
    if (!file || !source)
        return ckpt_fail_memory(job->err);
    // A reader caches the map's old state.
    ckpt_reader_free(into->reader);
    into->reader = NULL;
    memcpy(file + n_files, from->file, from->map->files.n * sizeof *file);
    memcpy(source + n_sources, from->source, from->map->sources.n * sizeof *source);
    int rc = ckpt_map_adopt(into->map, from->map, NULL, job->err);
    if (rc == CKPT_OK)
        from->map = NULL;
    return rc;
}

int ckpt_ds_shard_source(const ckpt_ds_job *job, ckpt_ds_shard *s, uint32_t source, uint32_t *out)
{
    assert(s->map && s->source && out);
    if (source >= s->map->sources.n)
        return ckpt_fail(job->err, CKPT_EFORMAT, "%s: a tensor has no bytes in the file", s->path);
    if (s->source[source] == UINT32_MAX) {
        ckpt_source copy = s->map->sources.at[source];
        if (copy.kind == CKPT_SOURCE_FILE)
            copy.file = s->file[copy.file];
        int rc = ckpt_map_add_source(job->map, &copy, &s->source[source], job->err);
        if (rc != CKPT_OK)
            return rc;
    }
    *out = s->source[source];
    return CKPT_OK;
}

/* Counts the elements of a tensor value; false on overflow. */
static bool dss_elems(const ckpt_tensor_value *t, uint64_t *out)
{
    *out = 1;
    for (uint32_t i = 0; i < t->ndim; i++) {
        if (!ckpt_mul(*out, t->shape[i], out))
            return false;
    }
    return true;
}

int ckpt_ds_shard_flat(const ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_value *v,
                       const char *what, ckpt_ds_flat *out)
{
    assert(s && what && out);
    const ckpt_tensor_value *t = v && v->kind == CKPT_V_TENSOR ? v->as.tensor : NULL;
    uint64_t n_bytes = 0;

    memset(out, 0, sizeof *out);
    if (!t || t->ndim != 1 || (t->shape[0] > 1 && t->stride[0] != 1) ||
        (t->flags & (CKPT_TENSOR_CONJ | CKPT_TENSOR_NEG)))
        return ckpt_fail(job->err, CKPT_EFORMAT, "%s: %s: expected a contiguous tensor of one axis",
                         s->path, what);
    if (!ckpt_dtype_bytes(t->dtype, t->offset, &out->at) ||
        !ckpt_dtype_bytes(t->dtype, t->shape[0], &n_bytes))
        return ckpt_fail(job->err, CKPT_EFORMAT, "%s: %s: size overflows", s->path, what);
    out->n = t->shape[0];
    out->dtype = (uint32_t)t->dtype;
    if (out->n == 0)
        return CKPT_OK;
    if (!t->storage)
        return ckpt_fail(job->err, CKPT_EFORMAT, "%s: %s: a meta tensor, without values", s->path,
                         what);
    int rc = ckpt_ds_shard_source(job, s, t->storage->source, &out->source);
    if (rc == CKPT_OK && !ckpt_within(out->at, n_bytes, job->map->sources.at[out->source].n_bytes))
        rc = ckpt_fail(job->err, CKPT_EFORMAT, "%s: %s: the tensor extends beyond its record",
                       s->path, what);
    return rc;
}

int ckpt_ds_shard_back(const ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_tensor_value *v,
                       ckpt_tensor *t)
{
    assert(s->map && v && t);
    uint32_t source = 0;

    if (t->n_elems == 0)
        return CKPT_OK;
    if (!v->storage || v->ndim > CKPT_MAX_DIM || ckpt_dtype_get(v->dtype)->bits < 8)
        return ckpt_fail(job->err, CKPT_EFORMAT, "%s: %s: a tensor without values", s->path,
                         t->name);
    int rc = ckpt_ds_shard_source(job, s, v->storage->source, &source);
    return rc == CKPT_OK ? ckpt_view_back(job->map, t, v, source, s->path, job->err) : rc;
}

/* Converts one element of a numeric dtype to double. */
static bool dss_number(ckpt_dtype d, const void *bytes, double *out)
{
    ckpt_cast_fn cast = ckpt_cast_find(CKPT_F64, d);
    int64_t i64 = 0;
    int32_t i32 = 0;

    if (cast) {
        cast(out, bytes, 1);
    } else if (d == CKPT_I64) {
        memcpy(&i64, bytes, sizeof i64);
        *out = (double)i64;
    } else if (d == CKPT_I32) {
        memcpy(&i32, bytes, sizeof i32);
        *out = (double)i32;
    } else {
        return false;
    }
    return true;
}

/* Reads a one-element tensor. */
static int dss_scalar(const ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_tensor_value *v,
                      bool *has, double *out)
{
    _Alignas(16) uint8_t bytes[16] = {0};
    ckpt_tensor like = {.dtype = v->dtype};
    ckpt_tensor *t = NULL;
    uint64_t at = 0;
    int rc = s->reader ? CKPT_OK : ckpt_reader_new(&s->reader, s->map, job->err);

    if (rc == CKPT_OK && (!v->storage || v->storage->source >= s->map->sources.n ||
                          !ckpt_dtype_bytes(v->dtype, v->offset, &at)))
        rc = ckpt_fail(job->err, CKPT_EFORMAT, "%s: a step count without a value", s->path);
    if (rc == CKPT_OK)
        rc = ckpt_map_add_hidden(s->map, "step", 4, &like, &t, job->err);
    if (rc == CKPT_OK)
        rc = ckpt_map_back_whole(s->map, t, v->storage->source, at, job->err);
    if (rc == CKPT_OK)
        rc = ckpt_reader_read(s->reader, t, 0, 1, CKPT_DTYPE_NONE, bytes, job->err);
    if (rc == CKPT_OK)
        *has = dss_number(v->dtype, bytes, out);
    return rc;
}

int ckpt_ds_shard_step(const ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_value *v, bool *has,
                       double *out)
{
    assert(s && has && out);
    uint64_t n = 0;

    *has = false;
    if (v && (v->kind == CKPT_V_INT || v->kind == CKPT_V_FLOAT)) {
        *has = true;
        *out = v->kind == CKPT_V_INT ? (double)v->as.i : v->as.f;
    } else if (v && v->kind == CKPT_V_TENSOR && dss_elems(v->as.tensor, &n) && n == 1 &&
               ckpt_dtype_get(v->as.tensor->dtype)->bits <= 64) {
        return dss_scalar(job, s, v->as.tensor, has, out);
    }
    return CKPT_OK;
}

bool ckpt_ds_stage(const ckpt_value *v, int *out)
{
    int64_t i = 0;

    if (!ckpt_value_as_int(v, &i) || i < 0 || i > 3)
        return false;
    *out = (int)i;
    return true;
}

const ckpt_value *ckpt_ds_version(const ckpt_ds_shard *s)
{
    const ckpt_value *v = ckpt_value_get(s->optim, "ds_version");

    v = v ? v : ckpt_value_get(s->root, "ds_version");
    return v && v->kind == CKPT_V_STR ? v : NULL;
}

bool ckpt_ds_version_at_least(const ckpt_value *version, int a, int b, int c)
{
    const int want[3] = {a, b, c};

    if (!version)
        return false;
    const char *p = version->as.text.at, *end = p + version->as.text.n;
    for (int i = 0; i < 3; i++) {
        int have = 0;
        for (; p < end && *p >= '0' && *p <= '9' && have < 100000; p++)
            have = have * 10 + (*p - '0');
        if (have != want[i])
            return have > want[i];
        if (p < end && *p == '.')
            p++;
    }
    return true;
}
