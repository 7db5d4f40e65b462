/* SPDX-License-Identifier: Apache-2.0 */
/*
 * imatrix.c: reads importance matrices in both forms.
 *
 * Importance is a mean, computed in F32 as llama.cpp does: sum / count of each matrix, or 1 for
 * each column of a matrix without a count; in the older form, value / calls.
 */
#include "libckpt/imatrix.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ckpt_extra.h"
#include "libckpt/base/vec.h"
#include "libckpt/base/weigh.h"
#include "libckpt/io/io.h"

enum {
    IMP_NAME = 1024, /* limit of a name in bytes, in the older form */
    IMP_TEXT = 127   /* llama.cpp stores as many bytes of a text */
};

#define IMP_ROOM      (UINT64_C(64) << 20) /* of a map without values */
#define IMP_COUNT_MAX 0x1p62f

/*
 * Largest importance: quantizers square sums of 32 weights with it in F32, and an infinite one
 * makes blocks of zeros. Squares of activations are far below it.
 */
#define IMP_MAX 1e14f

#define IMP_SUMS   ".in_sum2"
#define IMP_COUNTS ".counts"

/* ---- entries ---- */

/* Add an entry of n values, which the caller fills. */
static int imp_add(ckpt_map *map, const char *name, uint64_t n_name, uint64_t n, float **values,
                   ckpt_err *err)
{
    const ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 1, .shape = &n};
    ckpt_importance *by = NULL;
    ckpt_tensor *t = NULL;

    if (ckpt_map_index(map, name, n_name) != SIZE_MAX)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: %.200s has two entries: damaged", map->path, name);
    by = ckpt_arena_alloc(map->arena, sizeof *by);

    *values = ckpt_arena_array(map->arena, n, sizeof **values);
    int rc =
        by && *values ? ckpt_map_add(map, name, n_name, &like, &t, err) : ckpt_fail_memory(err);

    if (rc == CKPT_OK) {
        *by = (ckpt_importance){*values, n, 1};
        t->importance = by;
    }
    return rc;
}

/* Refuse values that no mean of squares has, and zeros alone: all weights would become zero. */
static int imp_check(const ckpt_map *map, const char *name, const float *values, uint64_t n,
                     ckpt_err *err)
{
    bool any = false;

    for (uint64_t i = 0; i < n; i++) {
        if (!(values[i] >= 0 && values[i] <= IMP_MAX))
            return ckpt_fail(err, CKPT_EFORMAT,
                             "%s: importance %" PRIu64 " of %.200s is %g, expected a mean of "
                             "squares, from 0 to %g: compute the matrix again",
                             map->path, i, name, (double)values[i], (double)IMP_MAX);
        any = any || values[i] > 0;
    }
    if (!any)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: all %" PRIu64 " values of %.200s are zero, so its weights would "
                         "become zero: compute the matrix again",
                         map->path, n, name);
    return CKPT_OK;
}

static int imp_key(ckpt_map *map, const char *name, uint8_t type, ckpt_value *value, ckpt_err *err)
{
    ckpt_key *key = value ? ckpt_vec_push(&map->keys) : NULL;

    if (!key)
        return ckpt_fail_memory(err);
    *key = (ckpt_key){.name = name, .type = type, .value = value};
    return CKPT_OK;
}

/* At most as many bytes of a text as llama.cpp stores, without a part of a character. */
static ckpt_value *imp_text(ckpt_map *map, const char *text)
{
    size_t n = strlen(text);

    if (n > IMP_TEXT) {
        n = IMP_TEXT;
        while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80)
            n--;
    }
    const char *kept = ckpt_arena_string(map->arena, text, n);
    return kept ? ckpt_value_cstr(map->arena, kept) : NULL;
}

/* Add the keys of files that the matrix quantizes. dataset: NULL: not known. */
static int imp_keys(ckpt_map *map, const char *dataset, uint64_t chunks, ckpt_err *err)
{
    ckpt_arena *a = map->arena;
    int rc = imp_key(map, "quantize.imatrix.file", CKPT_KEY_STRING, imp_text(map, map->path), err);

    if (rc == CKPT_OK && dataset)
        rc = imp_key(map, "quantize.imatrix.dataset", CKPT_KEY_STRING, imp_text(map, dataset), err);
    if (rc == CKPT_OK)
        rc = imp_key(map, "quantize.imatrix.entries_count", CKPT_KEY_U32,
                     ckpt_value_int(a, (int64_t)map->tensors.n), err);
    if (rc == CKPT_OK && chunks > 0 && chunks <= INT32_MAX)
        rc = imp_key(map, "quantize.imatrix.chunks_count", CKPT_KEY_U32,
                     ckpt_value_int(a, (int64_t)chunks), err);
    return rc;
}

/* ---- GGUF ---- */

/* A matrix as GGUF. */
typedef struct imp_gguf {
    ckpt_map *map, *file;
    ckpt_reader *reader;
    ckpt_err *err;
} imp_gguf;

/* Divide the sums of n values by the counts of their matrices. */
static int imp_divide(const imp_gguf *g, const char *name, float *values, uint64_t n,
                      const ckpt_tensor *counts)
{
    const uint64_t matrices = counts->n_elems, columns = n / matrices;
    float *count = ckpt_alloc((size_t)matrices * sizeof *count);
    int rc = count ? ckpt_reader_read(g->reader, counts, 0, matrices, CKPT_F32, count, g->err)
                   : ckpt_fail_memory(g->err);

    for (uint64_t k = 0; rc == CKPT_OK && k < matrices; k++) {
        const float by = roundf(count[k]);

        if (!(by >= 0 && by <= IMP_COUNT_MAX))
            rc =
                ckpt_fail(g->err, CKPT_EFORMAT,
                          "%s: tensor %.200s: count %" PRIu64 " is %g, expected a number of tokens",
                          g->map->path, counts->name, k, (double)count[k]);
        for (uint64_t i = k * columns; rc == CKPT_OK && i < (k + 1) * columns; i++)
            values[i] = by > 0 ? values[i] / by : 1;
    }
    ckpt_free(count);
    return rc == CKPT_OK ? imp_check(g->map, name, values, n, g->err) : rc;
}

/* Read the entry with the sums in tensor t. */
static int imp_gguf_entry(const imp_gguf *g, const ckpt_tensor *t, size_t n_name)
{
    const char *name = ckpt_arena_string(g->map->arena, t->name, n_name);
    const char *other = name ? ckpt_arena_printf(g->map->arena, "%s" IMP_COUNTS, name) : NULL;
    const size_t at = other ? ckpt_map_index(g->file, other, strlen(other)) : SIZE_MAX;
    const ckpt_tensor *counts = at == SIZE_MAX ? NULL : g->file->tensors.at[at];
    float *values = NULL;
    int rc;

    if (!other)
        return ckpt_fail_memory(g->err);
    if (!counts || t->dtype != CKPT_F32 || counts->dtype != CKPT_F32 || counts->n_elems == 0 ||
        t->n_elems == 0 || t->n_elems % counts->n_elems != 0)
        return ckpt_fail(g->err, CKPT_EFORMAT,
                         "%s: tensor %.200s needs %.200s, both of f32, with one count for each of "
                         "its matrices: found %s of %" PRIu64 " and %s of %" PRIu64 " elements",
                         g->map->path, t->name, other, ckpt_dtype_name(t->dtype), t->n_elems,
                         counts ? ckpt_dtype_name(counts->dtype) : "none",
                         counts ? counts->n_elems : 0);
    rc = imp_add(g->map, name, n_name, t->n_elems, &values, g->err);
    if (rc == CKPT_OK)
        rc = ckpt_reader_read(g->reader, t, 0, t->n_elems, CKPT_F32, values, g->err);
    return rc == CKPT_OK ? imp_divide(g, name, values, t->n_elems, counts) : rc;
}

/* Find a key of a type; NULL: there is none. */
static const ckpt_key *imp_find(const ckpt_map *map, const char *name, uint8_t type, bool list)
{
    for (size_t i = 0; i < map->keys.n; i++) {
        const ckpt_key *k = &map->keys.at[i];

        if (strcmp(k->name, name) == 0 && k->type == type && k->list == list)
            return k;
    }
    return NULL;
}

/* Check the keys that every matrix has, and add those of files that it quantizes. */
static int imp_gguf_keys(const imp_gguf *g)
{
    const ckpt_key *sets = imp_find(g->file, "imatrix.datasets", CKPT_KEY_STRING, true);
    const ckpt_key *chunks = imp_find(g->file, "imatrix.chunk_count", CKPT_KEY_U32, false);
    const ckpt_value *first = NULL;

    if (!sets || !chunks || !imp_find(g->file, "imatrix.chunk_size", CKPT_KEY_U32, false))
        return ckpt_fail(g->err, CKPT_EFORMAT,
                         "%s: not an importance matrix: its keys lack %s, which llama-imatrix "
                         "writes",
                         g->map->path,
                         !sets     ? "imatrix.datasets"
                         : !chunks ? "imatrix.chunk_count"
                                   : "imatrix.chunk_size");
    if (sets->value->as.seq.n > 0 && sets->value->as.seq.at[0]->kind == CKPT_V_STR)
        first = sets->value->as.seq.at[0];
    return imp_keys(g->map, first ? first->as.text.at : NULL, (uint64_t)chunks->value->as.i,
                    g->err);
}

static int imp_read_gguf(ckpt_map *map, ckpt_err *err)
{
    imp_gguf g = {.map = map, .err = err};
    int rc = ckpt_open(&g.file, map->path, NULL, err);

    if (rc == CKPT_OK)
        rc = ckpt_reader_new(&g.reader, g.file, err);
    for (size_t i = 0; rc == CKPT_OK && i < g.file->tensors.n; i++) {
        const ckpt_tensor *t = g.file->tensors.at[i];
        const size_t n = strlen(t->name), end = strlen(IMP_SUMS);

        if (n > end && strcmp(t->name + n - end, IMP_SUMS) == 0)
            rc = imp_gguf_entry(&g, t, n - end);
    }
    if (rc == CKPT_OK)
        rc = imp_gguf_keys(&g);
    ckpt_reader_free(g.reader);
    ckpt_map_free(g.file);
    return rc;
}

/* ---- the older form ---- */

typedef struct imp_old {
    ckpt_map *map;
    ckpt_io *io;
    ckpt_err *err;
    uint64_t at;
} imp_old;

/* Read n bytes; CKPT_EFORMAT if the file ends before. */
static int imp_bytes(imp_old *r, void *to, uint64_t n, const char *what)
{
    const uint64_t at = r->at;

    if (n > r->io->size - at)
        return ckpt_fail(r->err, CKPT_EFORMAT,
                         "%s: %s at byte %" PRIu64 " would end beyond the file of %" PRIu64
                         " bytes: not an importance matrix, or cut",
                         r->map->path, what, at, r->io->size);
    r->at += n;
    return ckpt_io_read(r->io, to, n, at, r->err);
}

/* Read an integer of low..INT32_MAX. */
static int imp_int(imp_old *r, uint64_t low, uint64_t *out, const char *what)
{
    uint8_t b[4] = {0};
    int rc = imp_bytes(r, b, sizeof b, what);

    *out = (uint64_t)b[0] | (uint64_t)b[1] << 8 | (uint64_t)b[2] << 16 | (uint64_t)b[3] << 24;
    if (rc == CKPT_OK && (*out < low || *out > INT32_MAX))
        rc = ckpt_fail(r->err, CKPT_EFORMAT,
                       "%s: %s at byte %" PRIu64 " is %" PRId32 ", expected at least %" PRIu64
                       ": not an importance matrix, or damaged",
                       r->map->path, what, r->at - sizeof b, (int32_t)(uint32_t)*out, low);
    return rc;
}

/* Read a text of at most IMP_NAME bytes. */
static int imp_string(imp_old *r, char *text, const char *what)
{
    uint64_t n;
    int rc = imp_int(r, 0, &n, what);

    text[0] = 0;
    if (rc == CKPT_OK && n > IMP_NAME)
        return ckpt_fail(r->err, CKPT_EFORMAT,
                         "%s: %s before byte %" PRIu64 " has %" PRIu64 " bytes, expected at most "
                         "%d: not an importance matrix, or damaged",
                         r->map->path, what, r->at, n, (int)IMP_NAME);
    if (rc == CKPT_OK)
        rc = imp_bytes(r, text, n, what);
    if (rc == CKPT_OK)
        text[n] = 0;
    if (rc == CKPT_OK && (strlen(text) != n || !ckpt_utf8_ok(text, n)))
        rc = ckpt_fail(r->err, CKPT_EFORMAT, "%s: %s before byte %" PRIu64 " is not UTF-8",
                       r->map->path, what, r->at);
    return rc;
}

static int imp_old_entry(imp_old *r)
{
    char name[IMP_NAME + 1];
    uint64_t calls = 0, n = 0;
    float *values = NULL;
    int rc = imp_string(r, name, "a name");

    if (rc == CKPT_OK)
        rc = imp_int(r, 0, &calls, "a number of calls");
    if (rc == CKPT_OK)
        rc = imp_int(r, 1, &n, "a number of values");
    if (rc == CKPT_OK && n > (r->io->size - r->at) / sizeof *values)
        rc = ckpt_fail(r->err, CKPT_EFORMAT,
                       "%s: %.200s: %" PRIu64 " values from byte %" PRIu64
                       " would end beyond the file of %" PRIu64 " bytes: cut",
                       r->map->path, name, n, r->at, r->io->size);
    if (rc == CKPT_OK)
        rc = imp_add(r->map, name, strlen(name), n, &values, r->err);
    if (rc == CKPT_OK)
        rc = imp_bytes(r, values, n * sizeof *values, "values");
    for (uint64_t i = 0; rc == CKPT_OK && calls > 0 && i < n; i++)
        values[i] /= (float)calls;
    return rc == CKPT_OK ? imp_check(r->map, name, values, n, r->err) : rc;
}

/* Read the number of chunks and the dataset after the entries; older files lack them. */
static int imp_old_rest(imp_old *r)
{
    char dataset[IMP_NAME + 1] = "";
    uint64_t chunks = 0;
    int rc = CKPT_OK;

    if (r->at < r->io->size)
        rc = imp_int(r, 0, &chunks, "the number of chunks");
    if (rc == CKPT_OK && r->at < r->io->size)
        rc = imp_string(r, dataset, "the dataset");
    if (rc == CKPT_OK && r->at < r->io->size)
        rc = ckpt_fail(r->err, CKPT_EFORMAT, "%s: %" PRIu64 " bytes follow the dataset: damaged",
                       r->map->path, r->io->size - r->at);
    return rc == CKPT_OK ? imp_keys(r->map, dataset[0] ? dataset : NULL, chunks, r->err) : rc;
}

static int imp_read_old(ckpt_map *map, ckpt_io *io, ckpt_err *err)
{
    imp_old r = {.map = map, .io = io, .err = err};
    uint64_t n = 0;
    int rc = imp_int(&r, 1, &n, "the number of entries");

    for (uint64_t i = 0; rc == CKPT_OK && i < n; i++)
        rc = imp_old_entry(&r);
    return rc == CKPT_OK ? imp_old_rest(&r) : rc;
}

/* ---- the matrix ---- */

int ckpt_imatrix_open(ckpt_map **out, const char *path, ckpt_err *err)
{
    assert(out && path);
    uint8_t magic[4] = {0};
    ckpt_io *io = NULL;
    ckpt_map *map = NULL;
    uint64_t room = IMP_ROOM;
    int rc = ckpt_io_open(&io, path, err);

    *out = NULL;
    if (rc == CKPT_OK && io->size >= sizeof magic)
        rc = ckpt_io_read(io, magic, sizeof magic, 0, err);
    if (rc == CKPT_OK && !ckpt_add(io->size, room, &room))
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = ckpt_map_create(&map, room, err);
    if (rc == CKPT_OK) {
        map->path = ckpt_arena_string(map->arena, path, strlen(path));
        rc = map->path ? CKPT_OK : ckpt_fail_memory(err);
    }
    if (rc == CKPT_OK)
        rc = memcmp(magic, "GGUF", sizeof magic) == 0 ? imp_read_gguf(map, err)
                                                      : imp_read_old(map, io, err);
    if (rc == CKPT_OK && map->tensors.n == 0)
        rc = ckpt_fail(err, CKPT_EFORMAT, "%s: the importance matrix has no entries", path);
    ckpt_io_close(io);
    if (rc == CKPT_OK)
        *out = map;
    else
        ckpt_map_free(map);
    return rc;
}
