/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.c: lays out npz archives as numpy.savez does, with a stored member NAME.npy per array, and
 * compresses them on request as numpy.savez_compressed does.
 *
 * Headers and data begin at multiples of 64, so that programs can map the arrays.  The format
 * cannot express tied tensors: each name gets its own bytes.
 */
#include "formats/npz/npz.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/cast.h"
#include "libckpt/base/digest.h"
#include "libckpt/base/dtype.h"
#include "libckpt/codec/zip/zip.h"

/* An array that is placed but not sealed yet; lives in the map's arena. */
typedef struct nw_array {
    const char *header;
    uint64_t n_header, n_data;
    uint32_t source; /* index in the map; undefined if n_data is 0 */
} nw_array;

/* The state of an output file that is placed but not sealed yet. */
typedef struct nw_plan {
    ckpt_zip_item *item;
    nw_array *array;
    uint64_t n, directory_at;
    uint64_t n_begun; /* number of arrays with their headers in literals */
    bool sealed;      /* all literals are made */
} nw_plan;

typedef struct nw_writer {
    ckpt_map *to;
    uint32_t file;
    ckpt_err *err;
    nw_plan *plan;
    ckpt_bytes header;      /* scratch */
    uint64_t n_bits;        /* number of arrays of dtypes that numpy lacks */
    const char *first_bits; /* name of the first such array */
} nw_writer;

/* False for a name that would leave the folder in which the archive is unpacked. */
static bool nw_name_ok(const char *name)
{
    for (;;) {
        const char *end = strchr(name, '/');
        if (!ckpt_path_part_ok(name, end ? (uint64_t)(end - name) : strlen(name)))
            return false;
        if (!end)
            return true;
        name = end + 1;
    }
}

/* True for X.npy beside X, whose member has this name: numpy.load looks for members first. */
static bool nw_hidden(const ckpt_map *map, const char *name)
{
    size_t n = strlen(name);

    return n > 4 && strcmp(name + n - 4, ".npy") == 0 &&
           ckpt_map_index(map, name, n - 4) != SIZE_MAX;
}

/* Make the header of an array and compute its sizes. */
static int nw_array_of(nw_writer *w, const ckpt_tensor *t, nw_array *a, ckpt_zip_item *item)
{
    bool as_bits = false;
    const char *descr = ckpt_npy_descr(t->dtype, &as_bits);
    uint64_t n = 0;

    if (!descr)
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED, "tensor %.200s: numpy has no dtype for %s; %s",
                         t->name, ckpt_dtype_name(t->dtype),
                         ckpt_cast_find(CKPT_F32, t->dtype) ? "--dtype f32 converts it"
                                                            : "--exclude leaves it out");
    if (!nw_name_ok(t->name))
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                         "tensor %.200s: its name cannot be the name of an archive member; "
                         "--rename gives it another",
                         t->name);
    if (nw_hidden(w->to, t->name))
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                         "tensor %.200s: numpy.load gives the tensor without .npy for this name; "
                         "--rename gives it another",
                         t->name);
    w->n_bits += as_bits;
    w->first_bits = as_bits && !w->first_bits ? t->name : w->first_bits;
    w->header.n = 0;
    if (!ckpt_npy_put(&w->header, descr, t->shape, t->ndim))
        return ckpt_fail_memory(w->err);
    a->n_header = w->header.n;
    a->header = ckpt_arena_copy(w->to->arena, w->header.at, w->header.n);
    item->name = ckpt_arena_printf(w->to->arena, "%s.npy", t->name);
    if (!a->header || !item->name)
        return ckpt_fail_memory(w->err);
    item->n_name = strlen(item->name);
    if (!ckpt_dtype_bytes(t->dtype, t->n_elems, &a->n_data) ||
        !ckpt_add(a->n_data, a->n_header, &n))
        return ckpt_fail(w->err, CKPT_ELIMIT, "tensor %.200s: its size overflows", t->name);
    item->n_bytes = n;
    return CKPT_OK;
}

/* Add a source for the array's data, and the tensor's extent. */
static int nw_back(nw_writer *w, ckpt_tensor *t, nw_array *a, const ckpt_zip_item *item)
{
    ckpt_source s = {.kind = CKPT_SOURCE_FILE,
                     .file = w->file,
                     .at = item->at + a->n_header,
                     .n_stored = a->n_data,
                     .n_bytes = a->n_data,
                     .name = item->name};
    int rc;

    if (a->n_data == 0)
        return CKPT_OK;
    rc = ckpt_map_add_source(w->to, &s, &a->source, w->err);
    return rc == CKPT_OK ? ckpt_map_back_whole(w->to, t, a->source, 0, w->err) : rc;
}

/* Place the file's arrays in order; offsets follow from names, dtypes and shapes alone. */
static int nw_arrays(nw_writer *w)
{
    nw_plan *p = w->plan;
    uint64_t at = 0, size, k = 0;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < w->to->tensors.n; i++) {
        ckpt_tensor *t = w->to->tensors.at[i];
        if (t->file != w->file)
            continue;
        t->owner = NULL;
        rc = nw_array_of(w, t, &p->array[k], &p->item[k]);
        if (rc == CKPT_OK)
            rc = ckpt_zip_place(&p->item[k], &at, w->err);
        if (rc == CKPT_OK)
            rc = nw_back(w, t, &p->array[k], &p->item[k]);
        k++;
    }
    if (rc != CKPT_OK)
        return rc;
    p->directory_at = at;
    size = at + CKPT_ZIP_END_SIZE;
    for (k = 0; k < p->n; k++)
        size += ckpt_zip_entry_size(&p->item[k]);
    if (size < at || size > INT64_MAX)
        return ckpt_fail(w->err, CKPT_ELIMIT, "%s: a file of more than 2^63 bytes",
                         w->to->files.at[w->file].path);
    w->to->files.at[w->file].size = size;
    w->to->files.at[w->file].state = p;
    return CKPT_OK;
}

static int nw_plan_new(nw_writer *w)
{
    ckpt_arena *arena = w->to->arena;
    nw_plan *p = w->plan = ckpt_arena_alloc(arena, sizeof *p);

    if (!p)
        return ckpt_fail_memory(w->err);
    for (size_t i = 0; i < w->to->tensors.n; i++)
        p->n += w->to->tensors.at[i]->file == w->file;
    p->item = ckpt_arena_array(arena, p->n, sizeof *p->item);
    p->array = ckpt_arena_array(arena, p->n, sizeof *p->array);
    return p->item && p->array ? CKPT_OK : ckpt_fail_memory(w->err);
}

int ckpt_npz_place(ckpt_map *to, uint32_t file, ckpt_err *err)
{
    assert(file < to->files.n);
    nw_writer w = {.to = to, .file = file, .err = err};
    int rc = nw_plan_new(&w);

    if (rc == CKPT_OK)
        rc = nw_arrays(&w);
    if (rc == CKPT_OK && w.n_bits)
        rc = ckpt_map_note(
            to, CKPT_WARNING, err,
            "%" PRIu64
            " arrays have types that numpy lacks (%.200s) and are written as unsigned integers of "
            "the same bits: view them as types of ml_dtypes, or convert with --dtype",
            w.n_bits, w.first_bits);
    ckpt_vec_free(&w.header);
    return rc;
}

/* ---- parts that depend on the data ---- */

/* The end of the data of the arrays begun so far. */
static uint64_t nw_behind(const nw_plan *p)
{
    const ckpt_zip_item *item = p->n_begun > 0 ? &p->item[p->n_begun - 1] : NULL;

    return item ? item->at + item->n_bytes : 0;
}

/* Append the zip descriptor of an array once its data are complete; its CRC covers header and
 * data. */
static bool nw_put_descriptor(const ckpt_map *to, const nw_plan *p, uint64_t k, ckpt_bytes *out)
{
    const nw_array *a = &p->array[k];
    ckpt_zip_item *item = &p->item[k];

    item->crc = ckpt_crc32(0, a->header, (size_t)a->n_header);
    if (a->n_data)
        item->crc = ckpt_crc32_join(item->crc, to->sources.at[a->source].crc, a->n_data);
    return ckpt_zip_put_descriptor(out, item);
}

/*
 * Append the bytes between two arrays' data, or after the last: the descriptor of the previous
 * array, and headers up to the next array with data.
 */
static bool nw_put_gap(const ckpt_map *to, nw_plan *p, ckpt_bytes *out)
{
    uint64_t k = p->n_begun;

    if (k > 0 && !nw_put_descriptor(to, p, k - 1, out))
        return false;
    while (k < p->n) {
        const nw_array *a = &p->array[k++];

        if (!ckpt_zip_put_header(out, &p->item[k - 1]) ||
            !ckpt_bytes_add(out, a->header, (size_t)a->n_header))
            return false;
        if (a->n_data) {
            p->n_begun = k;
            return true;
        }
        if (!nw_put_descriptor(to, p, k - 1, out))
            return false;
    }
    p->sealed = true;
    return ckpt_zip_put_directory(out, p->item, p->n, p->directory_at);
}

int ckpt_npz_seal(ckpt_map *to, uint32_t file, uint64_t known, ckpt_err *err)
{
    assert(file < to->files.n && to->files.at[file].state);
    nw_plan *p = to->files.at[file].state;
    ckpt_bytes out = {0};
    int rc = CKPT_OK;

    while (rc == CKPT_OK && !p->sealed && nw_behind(p) <= known) {
        uint64_t at = nw_behind(p);

        out.n = 0;
        rc = nw_put_gap(to, p, &out) ? ckpt_map_add_literal(to, file, at, out.at, out.n, err)
                                     : ckpt_fail_memory(err);
    }
    ckpt_vec_free(&out);
    return rc;
}

/* ---- deflated ---- */

static int nw_packed_write(void *ctx, const void *bytes, uint64_t n, uint64_t at, ckpt_err *err)
{
    return ckpt_packing_write(ctx, bytes, n, at, err);
}

/* Reopen the archive with ckpt's reader and libzip, and compare its members with the plan. */
static int nw_check_packed(const ckpt_map *to, const nw_plan *p, ckpt_io *packed, ckpt_err *err)
{
    ckpt_zip zip = {0};
    int rc = ckpt_zip_second(packed, err);

    if (rc == CKPT_OK)
        rc = ckpt_zip_open(&zip, to->arena, packed, err);
    if (rc == CKPT_OK && zip.records.n != p->n)
        rc = ckpt_fail(err, CKPT_EIO, "%s: %zu members were deflated instead of %" PRIu64,
                       packed->name, zip.records.n, p->n);
    for (uint64_t k = 0; rc == CKPT_OK && k < p->n; k++) {
        const ckpt_zip_record *r = &zip.records.at[k];
        const ckpt_zip_item *item = &p->item[k];

        if (r->n_name != item->n_name || memcmp(r->name, item->name, (size_t)r->n_name) != 0 ||
            r->n_bytes != item->n_bytes || r->crc != item->crc)
            rc = ckpt_fail(err, CKPT_EIO,
                           "%s: member %.200s changed while it was deflated (CRC-32 %08" PRIx32
                           ", was %08" PRIx32 "): run again",
                           packed->name, item->name, r->crc, item->crc);
    }
    ckpt_zip_close(&zip);
    return rc;
}

/* layout.c does not call this for a file without arrays, because libzip would write an empty
 * file. */
int ckpt_npz_pack(ckpt_map *to, uint32_t file, ckpt_packing *packing, ckpt_err *err)
{
    assert(file < to->files.n && packing);
    const nw_plan *p = to->files.at[file].state;
    const ckpt_zip_deflate_job job = {.from = packing->stored,
                                      .item = p->item,
                                      .n = p->n,
                                      .write = nw_packed_write,
                                      .ctx = packing};
    int rc = ckpt_zip_deflate(&job, err);

    return rc == CKPT_OK ? nw_check_packed(to, p, packing->packed, err) : rc;
}
