/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npz.c: reads numpy files: the arrays of a zip archive, or a single array.
 *
 * Arrays of Python objects are pickles, and ckpt never runs a pickle.  These arrays and those
 * without numbers (strings, dates, records) are reported and left out of an archive; a file that
 * holds nothing else is refused.
 */
#include "formats/npz/npz.h"

#include <inttypes.h>
#include <string.h>

#include "libckpt/base/digest.h"
#include "libckpt/base/dtype.h"
#include "libckpt/codec/zip/zip.h"
#include "libckpt/io/inflate.h"

enum { NPZ_CHUNK = 4096 }; /* bytes per read when a header is inflated */

static const char npz_end[] = ".npy";

typedef struct npz_file {
    ckpt_map *map;
    ckpt_io *io;
    uint32_t file;
    ckpt_err *err;
    ckpt_err first; /* the error of the first array that was left out */
    uint8_t head[CKPT_NPY_HEADER];
} npz_file;

/* ---- probing ---- */

static int npz_probe(const uint8_t *head, size_t n, uint64_t size)
{
    size_t len = n >= 30 ? (size_t)head[26] | (size_t)head[27] << 8 : 0;

    (void)size;
    if (n >= 6 && memcmp(head, "\x93NUMPY", 6) == 0)
        return 100;
    // the name of the first member; torch's archives do not use names that end in .npy
    if (len < 4 || len > n - 30 || memcmp(head, "PK\3\4", 4) != 0)
        return 0;
    return memcmp(head + 30 + len - 4, npz_end, 4) == 0 ? 100 : 0;
}

/* ---- members ---- */

static ckpt_source npz_source(const npz_file *f, const ckpt_zip_record *r)
{
    return (ckpt_source){.kind = CKPT_SOURCE_FILE,
                         .coding = r->method == CKPT_ZIP_DEFLATED ? CKPT_DEFLATE : CKPT_RAW,
                         .has_crc = r->has_crc,
                         .crc = r->crc,
                         .file = f->file,
                         .at = r->at,
                         .n_stored = r->n_stored,
                         .n_bytes = r->n_bytes,
                         .name = r->name};
}

/* Inflate the first n bytes of a member into f->head; *got is the number available. */
static int npz_inflate(npz_file *f, const ckpt_source *s, size_t n, size_t *got)
{
    ckpt_inflater *z = NULL;
    uint8_t chunk[NPZ_CHUNK], *out = f->head;
    uint64_t at = 0;
    size_t room = n;
    int rc = ckpt_inflater_new(&z, f->err);

    while (rc == CKPT_OK && room > 0 && !ckpt_inflater_ended(z) && at < s->n_stored) {
        uint64_t left = s->n_stored - at;
        size_t part = left < sizeof chunk ? (size_t)left : sizeof chunk;
        const uint8_t *in = chunk;
        rc = ckpt_io_read(f->io, chunk, part, s->at + at, f->err);
        at += part;
        if (rc == CKPT_OK)
            rc = ckpt_inflater_run(z, &in, &part, &out, &room, f->err);
    }
    ckpt_inflater_free(z);
    *got = n - room;
    return rc;
}

/* Read the first n bytes of a member into f->head, or all if it is shorter. */
static int npz_peek(npz_file *f, const ckpt_source *s, size_t n, size_t *got)
{
    *got = s->n_bytes < n ? (size_t)s->n_bytes : n;
    if (s->coding == CKPT_DEFLATE)
        return npz_inflate(f, s, *got, got);
    return *got ? ckpt_io_read(f->io, f->head, *got, s->at, f->err) : CKPT_OK;
}

static int npz_header(npz_file *f, const ckpt_source *s, ckpt_npy *out)
{
    const char *name =
        s->name ? ckpt_arena_printf(f->map->arena, "%s: %s", f->io->name, s->name) : f->io->name;
    uint64_t n = 0;
    size_t got = 0;
    int rc = name ? npz_peek(f, s, CKPT_NPY_LEAD, &got) : ckpt_fail_memory(f->err);

    if (rc == CKPT_OK)
        rc = ckpt_npy_length(&n, f->head, got, name, f->err);
    if (rc == CKPT_OK)
        rc = npz_peek(f, s, (size_t)n, &got);
    return rc == CKPT_OK ? ckpt_npy_parse(out, f->head, got, name, f->err) : rc;
}

/* ---- members left out ---- */

/* A running CRC-32 over a member's decoded bytes; `most`: their number by the zip directory. */
typedef struct npz_sums {
    ckpt_inflater *z; /* NULL for a stored member */
    uint32_t crc;
    uint64_t n, most;
} npz_sums;

/* Inflate a chunk and add its bytes to the sum. */
static int npz_sum_chunk(npz_sums *sum, const uint8_t *in, size_t n_in, ckpt_err *err)
{
    uint8_t plain[NPZ_CHUNK];
    size_t room = 0;
    int rc = CKPT_OK;

    // the chunk is used up once the inflater leaves room in its output
    while (rc == CKPT_OK && !ckpt_inflater_ended(sum->z) && room == 0 && sum->n <= sum->most) {
        uint8_t *out = plain;
        room = sizeof plain;
        rc = ckpt_inflater_run(sum->z, &in, &n_in, &out, &room, err);
        sum->crc = ckpt_crc32(sum->crc, plain, sizeof plain - room);
        sum->n += sizeof plain - room;
    }
    return rc;
}

/* The CRC-32 of a member's decoded bytes. */
static int npz_sum(npz_file *f, const ckpt_source *s, uint32_t *crc)
{
    npz_sums sum = {.most = s->n_bytes};
    uint8_t chunk[NPZ_CHUNK];
    int rc = s->coding == CKPT_DEFLATE ? ckpt_inflater_new(&sum.z, f->err) : CKPT_OK;

    for (uint64_t at = 0; rc == CKPT_OK && at < s->n_stored && sum.n <= sum.most;) {
        size_t part = s->n_stored - at < sizeof chunk ? (size_t)(s->n_stored - at) : sizeof chunk;

        rc = ckpt_io_read(f->io, chunk, part, s->at + at, f->err);
        at += part;
        if (rc == CKPT_OK && sum.z)
            rc = npz_sum_chunk(&sum, chunk, part, f->err);
        else if (rc == CKPT_OK)
            sum.crc = ckpt_crc32(sum.crc, chunk, part);
    }
    ckpt_inflater_free(sum.z);
    *crc = sum.crc;
    return rc;
}

/*
 * Check the CRC of a member whose header was rejected: ckpt never copies its data, so nothing else
 * would notice damage.
 */
static int npz_held(npz_file *f, const ckpt_source *s)
{
    uint32_t crc = 0;
    int rc = s->has_crc ? npz_sum(f, s, &crc) : CKPT_OK;

    if (rc == CKPT_OK && s->has_crc && crc != s->crc)
        return ckpt_fail(f->err, CKPT_EFORMAT,
                         "%s: record '%.200s': CRC-32 is %08" PRIx32 ", expected %08" PRIx32
                         ": one or more bits changed since it was written; restore the file",
                         f->io->name, s->name, crc, s->crc);
    return rc;
}

/*
 * Leave out a member.  Its CRC is checked first, because a changed bit in its header may be the
 * reason for the rejection.  The member is still added as a source, so that verify covers it.
 */
static int npz_leave_out(npz_file *f, const ckpt_source *s, const char *why)
{
    uint32_t index = 0;
    int rc = why ? npz_held(f, s) : ckpt_fail_memory(f->err);

    if (rc == CKPT_OK)
        rc = ckpt_map_add_source(f->map, s, &index, f->err);
    return rc == CKPT_OK ? ckpt_map_note(f->map, CKPT_WARNING, f->err, "%s", why) : rc;
}

/* ---- arrays ---- */

/* Map a column-major array with one extent, in which the first axis has the smallest stride. */
static int npz_back_columns(npz_file *f, ckpt_tensor *t, uint32_t source, const ckpt_npy *a)
{
    int64_t stride = ckpt_dtype_get(a->dtype)->bits / 8;
    ckpt_axis axis[CKPT_MAX_DIM];
    ckpt_extent e = {.source = source, .ndim = a->ndim, .at = a->n_header, .axis = axis};

    for (uint32_t k = 0; k < a->ndim; k++) {
        axis[k] = (ckpt_axis){.start = 0, .count = a->shape[k], .stride = stride};
        stride *= (int64_t)a->shape[k]; // no overflow, because all elements fit the file
    }
    return ckpt_map_back(f->map, t, &e, 1, f->err);
}

static int npz_back(npz_file *f, ckpt_tensor *t, ckpt_source s, const ckpt_npy *a)
{
    uint64_t n = 0, all = 0;
    uint32_t index = 0;

    if (!ckpt_dtype_bytes(a->dtype, t->n_elems, &n) || !ckpt_add(n, a->n_header, &all) ||
        all != s.n_bytes)
        return ckpt_fail(f->err, CKPT_EFORMAT,
                         "%s: array %.200s: shape and type need %" PRIu64
                         " bytes of data, but there are %" PRIu64
                         ": the file is cut or has extra data",
                         f->io->name, t->name, n, s.n_bytes - a->n_header);
    s.swap = a->swap ? ckpt_dtype_get(a->dtype)->swap : 0;
    int rc = ckpt_map_add_source(f->map, &s, &index, f->err);
    if (rc == CKPT_OK && n == 0)
        return npz_held(f, &s);
    if (rc != CKPT_OK)
        return rc;
    if (a->fortran && a->ndim > 1)
        return npz_back_columns(f, t, index, a);
    return ckpt_map_back_whole(f->map, t, index, a->n_header, f->err);
}

/* Add the array of a member under the first n bytes of `name`. */
static int npz_array(npz_file *f, const ckpt_source *s, const char *name, uint64_t n)
{
    ckpt_err own = {0}, *err = f->err;
    ckpt_npy a;
    ckpt_tensor *t = NULL;

    f->err = &own;
    int rc = npz_header(f, s, &a);
    f->err = err;
    if (rc == CKPT_OK && a.dtype == CKPT_DTYPE_NONE)
        rc = ckpt_fail(&own, CKPT_EUNSAFE,
                       "%s: %.*s holds Python objects as a pickle, which ckpt does not read",
                       f->io->name, (int)n, name);
    // The other members of an archive can be read without this one.
    if ((rc == CKPT_EUNSUPPORTED || rc == CKPT_EUNSAFE) && s->name) {
        const char *why = ckpt_arena_printf(f->map->arena, "left out: %s", own.text);
        f->first = f->first.code ? f->first : own;
        return npz_leave_out(f, s, why);
    }
    if (rc != CKPT_OK)
        return ckpt_fail(err, rc, "%s", own.text);
    ckpt_tensor like = {.dtype = a.dtype, .ndim = a.ndim, .shape = a.shape};
    rc = ckpt_map_add(f->map, name, n, &like, &t, f->err);
    if (rc == CKPT_OK)
        rc = npz_back(f, t, *s, &a);
    if (rc == CKPT_OK && a.raw)
        rc = ckpt_map_note(f->map, CKPT_INFO, f->err,
                           "%s: %s: bytes without a type ('|V%u'), which numpy writes for types "
                           "that it does not know, such as bfloat16",
                           f->io->name, t->name, ckpt_dtype_get(a.dtype)->bits / 8u);
    return rc;
}

/* ---- files ---- */

/* Add a zip member; its array is named like the member without ".npy". */
static int npz_member(npz_file *f, const ckpt_zip_record *r)
{
    const uint64_t end = sizeof npz_end - 1;
    ckpt_source s = npz_source(f, r);

    if (r->is_folder)
        return CKPT_OK;
    if (r->n_name <= end || memcmp(r->name + r->n_name - end, npz_end, (size_t)end) != 0)
        return npz_leave_out(f, &s,
                             ckpt_arena_printf(f->map->arena,
                                               "%s: member %.200s is left out: its name does not "
                                               "end in .npy",
                                               f->io->name, r->name));
    return npz_array(f, &s, r->name, r->n_name - end);
}

static int npz_zip(npz_file *f)
{
    ckpt_zip zip = {0};
    int rc = ckpt_zip_open(&zip, f->map->arena, f->io, f->err);

    if (rc == CKPT_OK)
        rc = ckpt_map_fact(f->map, f->err, "container", "zip");
    for (size_t i = 0; rc == CKPT_OK && i < zip.records.n; i++)
        rc = npz_member(f, &zip.records.at[i]);
    ckpt_zip_close(&zip);
    if (rc == CKPT_OK && f->map->tensors.n == 0 && f->first.code)
        return ckpt_fail(f->err, f->first.code, "%s", f->first.text);
    return rc;
}

/* Add a single .npy file; its array is named like the file. */
static int npz_single(npz_file *f)
{
    const char *slash = strrchr(f->io->name, '/'), *name = slash ? slash + 1 : f->io->name;
    size_t n = strlen(name);
    ckpt_source s = {
        .kind = CKPT_SOURCE_FILE, .file = f->file, .n_stored = f->io->size, .n_bytes = f->io->size};

    if (n > 4 && memcmp(name + n - 4, npz_end, 4) == 0)
        n -= 4;
    return npz_array(f, &s, name, n);
}

static int npz_begin(npz_file **out, ckpt_map *map, ckpt_io *io, uint32_t file, ckpt_err *err)
{
    npz_file *f = ckpt_alloc(sizeof *f);

    *out = f;
    if (!f)
        return ckpt_fail_memory(err);
    f->map = map;
    f->io = io;
    f->file = file;
    f->err = err;
    return CKPT_OK;
}

static bool npz_is_zip(const npz_file *f)
{
    return f->head[0] == 'P';
}

static int npz_read(ckpt_map *map, ckpt_io *io, uint32_t file, ckpt_err *err)
{
    npz_file *f = NULL;
    int rc = npz_begin(&f, map, io, file, err);

    if (rc == CKPT_OK)
        rc = ckpt_io_read(io, f->head, 1, 0, err);
    if (rc == CKPT_OK)
        rc = npz_is_zip(f) ? npz_zip(f) : npz_single(f);
    ckpt_free(f);
    return rc;
}

/* Add every member as a source, also members that hold no array. */
static int npz_records(ckpt_map *map, ckpt_io *io, uint32_t file, ckpt_err *err)
{
    npz_file *f = NULL;
    ckpt_zip zip = {0};
    uint32_t index;
    int rc = npz_begin(&f, map, io, file, err);

    if (rc == CKPT_OK)
        rc = ckpt_io_read(io, f->head, 1, 0, err);
    if (rc == CKPT_OK && npz_is_zip(f))
        rc = ckpt_zip_open(&zip, map->arena, io, err);
    for (size_t i = 0; rc == CKPT_OK && i < zip.records.n; i++) {
        ckpt_source s = npz_source(f, &zip.records.at[i]);
        if (!zip.records.at[i].is_folder)
            rc = ckpt_map_add_source(map, &s, &index, err);
    }
    ckpt_zip_close(&zip);
    ckpt_free(f);
    return rc;
}

const ckpt_format ckpt_format_npz = {
    .is =
        {
            .name = "npz",
            .aliases = "numpy",
            .suffixes = ".npz",
            .note = "numpy.savez, also compressed, and .npy; arrays of numbers",
            .caps = CKPT_CAN_READ | CKPT_CAN_WRITE | CKPT_TAKES_DEFLATE,
        },
    .probe = npz_probe,
    .read = npz_read,
    .records = npz_records,
    .place = ckpt_npz_place,
    .seal = ckpt_npz_seal,
    .pack = ckpt_npz_pack,
};
