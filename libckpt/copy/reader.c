/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reader.c: reads values of tensors into the caller's memory, with the CRC checks of a conversion.
 */
#include <string.h>

#include "ckpt_extra.h"
#include "libckpt/base/cast.h"
#include "libckpt/base/dtype.h"
#include "libckpt/copy/job.h"
#include "libckpt/copy/mean.h"
#include "libckpt/copy/nested.h"
#include "libckpt/copy/values.h"
#include "libckpt/copy/work.h"

enum {
    READER_BLOCK = 1024 * 1024, /* bytes converted at a time */
    READER_WINDOW = 64 * 1024,  /* bytes of a slice with gaps per read */
    /* largest distance between pieces in bytes that is read together with them */
    READER_GAP = 4 * 1024,
    READER_SPOOL = 32 * 1024 * 1024 /* bytes of decoded records kept in memory */
};

struct ckpt_reader {
    const ckpt_map *map;
    ckpt_feed feed;
    ckpt_values values; /* compares copies only after ckpt_reader_compare */
    uint8_t *block;     /* values in the tensor's own dtype, before conversion */
    uint8_t *checked;   /* per source: its CRC is correct */
    bool trusts;        /* no CRC is checked */
};

/* Before the first use of a record: decode it, or read it once for its CRC. */
static int reader_touch(void *ctx, uint32_t source, ckpt_err *err)
{
    ckpt_reader *r = ctx;
    const ckpt_source *s = &r->map->sources.at[source];
    uint32_t crc = 0;
    int rc;

    if (r->checked[source] || s->kind != CKPT_SOURCE_FILE)
        return CKPT_OK;
    rc = ckpt_feed_decode(&r->feed, source, err);
    // Decoding has checked the CRC of a deflated record.
    if (rc == CKPT_OK && s->coding == CKPT_RAW && s->has_crc && !r->trusts) {
        rc = ckpt_feed_crc(&r->feed, source, 0, s->n_bytes, &crc, err);
        if (rc == CKPT_OK && crc != s->crc)
            rc = ckpt_feed_bad_crc(NULL, r->map, source, crc, err);
    }
    r->checked[source] = rc == CKPT_OK;
    return rc;
}

int ckpt_reader_new(ckpt_reader **out, const ckpt_map *map, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_reader *r;
    int rc;

    if (out)
        *out = NULL;
    if (!out || !map)
        return ckpt_fail(err, CKPT_EUSAGE, "no map to read, or no place for its reader");
    rc = ckpt_map_readable(map, err);
    if (rc != CKPT_OK)
        return rc;
    r = ckpt_alloc(sizeof *r);
    if (!r)
        return ckpt_fail_memory(err);
    r->map = map;
    r->values.gather.feed = &r->feed;
    r->values.gather.touch = reader_touch;
    r->values.gather.touch_ctx = r;
    r->values.room = READER_BLOCK;
    r->checked = ckpt_alloc(map->sources.n + 1);
    rc = !r->checked ? ckpt_fail_memory(err)
                     : ckpt_feed_open(&r->feed, map, NULL, READER_SPOOL, err);
    if (rc == CKPT_OK)
        *out = r;
    else
        ckpt_reader_free(r);
    return rc;
}

void ckpt_reader_skip_crc(ckpt_reader *r)
{
    if (r)
        r->trusts = true;
}

static int reader_unlike(void *ctx, const ckpt_unlike *u, ckpt_err *err)
{
    const ckpt_reader *r = ctx;

    return ckpt_unlike_fail(r->map, u, err);
}

void ckpt_reader_compare(ckpt_reader *r)
{
    if (!r)
        return;
    r->values.unlike = reader_unlike;
    r->values.ctx = r;
}

void ckpt_reader_free(ckpt_reader *r)
{
    if (!r)
        return;
    ckpt_values_free(&r->values);
    ckpt_feed_close(&r->feed);
    ckpt_free(r->block);
    ckpt_free(r->checked);
    ckpt_free(r);
}

/* Read consecutive elements in another dtype, a block at a time. */
static int reader_convert(ckpt_reader *r, const ckpt_tensor *t, const ckpt_axis *part,
                          ckpt_dtype dtype, void *buf, ckpt_err *err)
{
    ckpt_cast_fn cast = ckpt_cast_find(dtype, t->dtype);
    uint64_t step = READER_BLOCK / ckpt_job_widest(t, 8) * 8, wide = ckpt_job_bytes(dtype, 1);
    uint8_t *to = buf;
    int rc = CKPT_OK;

    if (ckpt_dtype_packed(t->dtype))
        return ckpt_values_unpack(&r->values, t, part, dtype, buf, err);
    if (!r->block)
        r->block = ckpt_alloc(READER_BLOCK);
    if (!r->block)
        return ckpt_fail_memory(err);
    for (uint64_t done = 0; rc == CKPT_OK && done < part->count; done += step) {
        uint64_t n = part->count - done < step ? part->count - done : step;

        rc = ckpt_values_read(&r->values, t, part->start + done, n, r->block, err);
        if (rc == CKPT_OK)
            cast(to + done * wide, r->block, (size_t)n);
    }
    return rc;
}

/* Check that addends have the tensor's shape and dtype, and that the dtype has a mean. */
static int reader_check_addends(const ckpt_tensor *t, ckpt_err *err)
{
    for (const ckpt_tensor *a = t->addend; a != NULL; a = a->addend) {
        if (ckpt_mean_dtype(t->dtype) == CKPT_DTYPE_NONE || a->dtype != t->dtype ||
            a->n_elems != t->n_elems)
            return ckpt_fail(err, CKPT_EUSAGE,
                             "tensor %s: cannot average %" PRIu64 " elements of %s and %" PRIu64
                             " of %s",
                             t->name, t->n_elems, ckpt_dtype_name(t->dtype), a->n_elems,
                             ckpt_dtype_name(a->dtype));
    }
    return CKPT_OK;
}

/* Read consecutive elements in any dtype. */
static int reader_stretch(ckpt_reader *r, const ckpt_tensor *t, const ckpt_axis *part,
                          ckpt_dtype dtype, void *buf, ckpt_err *err)
{
    return dtype == t->dtype ? ckpt_values_read(&r->values, t, part->start, part->count, buf, err)
                             : reader_convert(r, t, part, dtype, buf, err);
}

/* Check that a tensor can be read: *t becomes its owner, *dtype the dtype of the result. */
static int reader_ready(const ckpt_reader *r, const ckpt_tensor **t, ckpt_dtype *dtype,
                        ckpt_err *err)
{
    int rc;

    for (unsigned i = 0; (*t)->owner && i < 8; i++)
        *t = (*t)->owner;
    if (*dtype == CKPT_DTYPE_NONE)
        *dtype = (*t)->dtype;
    if ((unsigned)*dtype >= CKPT_N_DTYPES)
        return ckpt_fail(err, CKPT_EUSAGE, "tensor %s: %d is not a dtype", (*t)->name, (int)*dtype);
    if (*dtype != (*t)->dtype &&
        (!ckpt_cast_find(*dtype, (*t)->dtype) || ckpt_dtype_packed(*dtype)))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "tensor %s: %s cannot be converted to %s",
                         (*t)->name, ckpt_dtype_name((*t)->dtype), ckpt_dtype_name(*dtype));
    rc = reader_check_addends(*t, err);
    return rc == CKPT_OK ? ckpt_settle(r->map, *t, err) : rc;
}

/* Check the handles and the buffer of a read. */
static int reader_check_call(const ckpt_reader *r, const ckpt_tensor *t, bool room, ckpt_err *err)
{
    if (!r)
        return ckpt_fail(err, CKPT_EUSAGE, "nothing to read: the reader is NULL");
    if (!t)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "nothing to read: the tensor is NULL, as ckpt_map_find returns it for a "
                         "name that %s does not have",
                         r->map->path ? r->map->path : "the map");
    if (!room)
        return ckpt_fail(err, CKPT_EUSAGE, "tensor %s: the buffer is NULL", t->name);
    return CKPT_OK;
}

/* LIMIT: seven parameters are the public signature. */
int ckpt_reader_read(ckpt_reader *r, const ckpt_tensor *t, uint64_t first, uint64_t count,
                     ckpt_dtype dtype, void *buf, ckpt_err *err)
{
    ckpt_err_clear(err);
    const ckpt_axis part = {first, count, 0};
    uint64_t n_bytes;
    int rc = reader_check_call(r, t, buf || count == 0, err);

    if (rc == CKPT_OK)
        rc = reader_ready(r, &t, &dtype, err);
    if (rc != CKPT_OK)
        return rc;
    if (!ckpt_within(first, count, t->n_elems) || !ckpt_dtype_bytes(dtype, first, &n_bytes) ||
        !ckpt_dtype_bytes(dtype, count, &n_bytes))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "tensor %s: cannot read %" PRIu64 " elements of %s from element %" PRIu64
                         ": it has %" PRIu64,
                         t->name, count, ckpt_dtype_name(dtype), first, t->n_elems);
    if (count == 0)
        return rc;
    rc = reader_stretch(r, t, &part, dtype, buf, err);
    // Check that the files did not change while they were read.
    return rc == CKPT_OK ? ckpt_io_pool_check(r->feed.pool, err) : rc;
}

int ckpt_tensor_read(const ckpt_map *map, const ckpt_tensor *t, ckpt_dtype dtype, void *buf,
                     ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_reader *r = NULL;
    int rc = ckpt_reader_new(&r, map, err);

    if (rc == CKPT_OK)
        rc = ckpt_reader_read(r, t, 0, t ? t->n_elems : 0, dtype, buf, err);
    ckpt_reader_free(r);
    return rc;
}

/* ---- slices and boxes ---- */

/* State while a part is read: rows of one axis, each with whole blocks of the axes after it. */
typedef struct reader_slice {
    ckpt_reader *r;
    const ckpt_tensor *t;
    const ckpt_slice *part;       /* per axis */
    int64_t stride[CKPT_MAX_DIM]; /* bytes in the buffer between elements along an axis */
    ckpt_slice row;               /* slice of axis number `axis`; later axes are read whole */
    uint32_t axis;
    uint32_t dense; /* from this axis on, elements are contiguous in the buffer ... */
    uint64_t piece; /* ... in pieces of this many bytes */
    uint64_t block; /* elements of the axes after `axis` */
    ckpt_dtype dtype;
    uint64_t wide;   /* bytes of an element in the buffer */
    uint8_t *window; /* READER_WINDOW bytes, when rows have gaps */
    ckpt_err *err;
} reader_slice;

/* Read one row with small gaps in a single pass, because that costs less than many reads. */
static int reader_row_over(reader_slice *s, uint64_t at, uint8_t *to)
{
    uint64_t piece = s->block * s->wide, most = READER_WINDOW / (s->row.step * piece);
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < s->row.count; i += most) {
        uint64_t n = s->row.count - i < most ? s->row.count - i : most;
        const ckpt_axis part = {at + (s->row.start + i * s->row.step) * s->block,
                                ((n - 1) * s->row.step + 1) * s->block, 0};
        rc = reader_stretch(s->r, s->t, &part, s->dtype, s->window, s->err);
        for (uint64_t k = 0; rc == CKPT_OK && k < n; k++)
            memcpy(to + (i + k) * piece, s->window + k * s->row.step * piece, (size_t)piece);
    }
    return rc;
}

/*
 * Advance the position by one over the axes `first` to `end` - 1, the last axis fastest, and move
 * *to along. False: that was the last position, and the position and *to are at the start again.
 */
static bool reader_next(const reader_slice *s, uint32_t first, uint32_t end, uint64_t *index,
                        uint8_t **to)
{
    for (uint32_t k = end; k-- > first;) {
        if (++index[k] < s->part[k].count) {
            *to += s->stride[k];
            return true;
        }
        index[k] = 0;
        *to -= (int64_t)(s->part[k].count - 1) * s->stride[k];
    }
    return false;
}

/* Read one row with elements that are not contiguous in the buffer. */
static int reader_row_apart(reader_slice *s, uint64_t at, uint8_t *to)
{
    uint64_t index[CKPT_MAX_DIM] = {0}, n = s->piece / s->wide;
    uint64_t left = s->row.count * s->block, most = READER_WINDOW / s->piece * n;
    ckpt_axis part = {at + s->row.start * s->block, 0, 0};
    int rc = CKPT_OK;

    for (; rc == CKPT_OK && left > 0; left -= part.count) {
        part.start += part.count;
        part.count = left < most ? left : most;
        rc = reader_stretch(s->r, s->t, &part, s->dtype, s->window, s->err);
        for (uint64_t k = 0; rc == CKPT_OK && k < part.count; k += n) {
            memcpy(to, s->window + k * s->wide, (size_t)s->piece);
            (void)reader_next(s, s->axis, s->dense, index, &to);
        }
    }
    return rc;
}

/* Read one row; its axis begins at element `at` of the flattened tensor. */
static int reader_row(reader_slice *s, uint64_t at, uint8_t *to)
{
    const ckpt_slice *row = &s->row;
    bool near = row->step <= READER_GAP / s->wide / s->block;
    ckpt_axis part = {at + row->start * s->block, row->count * s->block, 0};
    int rc = CKPT_OK;

    if (s->dense == s->axis && (row->step == 1 || row->count == 1))
        return reader_stretch(s->r, s->t, &part, s->dtype, to, s->err);
    if ((s->dense > s->axis || near) && !s->window)
        s->window = ckpt_alloc(READER_WINDOW);
    if ((s->dense > s->axis || near) && !s->window)
        return ckpt_fail_memory(s->err);
    if (s->dense > s->axis)
        return reader_row_apart(s, at, to);
    if (near)
        return reader_row_over(s, at, to);
    part.count = s->block;
    for (uint64_t i = 0; rc == CKPT_OK && i < row->count; i++) {
        rc = reader_stretch(s->r, s->t, &part, s->dtype, to, s->err);
        part.start += row->step * s->block;
        to += s->block * s->wide;
    }
    return rc;
}

/* Read every row of the axes before s->axis. */
static int reader_rows(reader_slice *s, uint8_t *to)
{
    uint64_t index[CKPT_MAX_DIM] = {0};
    int rc;

    do {
        uint64_t at = 0;
        for (uint32_t k = 0; k < s->axis; k++)
            at = at * s->t->shape[k] + s->part[k].start +
                 index[k] * (s->part[k].step ? s->part[k].step : 1);
        rc = reader_row(s, at * s->t->shape[s->axis] * s->block, to);
    } while (rc == CKPT_OK && reader_next(s, 0, s->axis, index, &to));
    return rc;
}

/* Check that each axis of a slice lies inside the tensor; *empty: one of them has no elements. */
static int reader_check_slice(const ckpt_tensor *t, const ckpt_slice *part, bool *empty,
                              ckpt_err *err)
{
    *empty = false;
    for (uint32_t k = 0; k < t->ndim; k++) {
        uint64_t step = part[k].step ? part[k].step : 1, span = 0;
        bool inside = part[k].count == 0
                          ? part[k].start <= t->shape[k]
                          : ckpt_mul(part[k].count - 1, step, &span) &&
                                part[k].start < t->shape[k] && span < t->shape[k] - part[k].start;
        if (!inside)
            return ckpt_fail(err, CKPT_EUSAGE,
                             "tensor %s: axis %u has %" PRIu64 " elements, but %" PRIu64
                             " were requested from element %" PRIu64 " in steps of %" PRIu64,
                             t->name, (unsigned)k, t->shape[k], part[k].count, part[k].start, step);
        *empty = *empty || part[k].count == 0;
    }
    return CKPT_OK;
}

/*
 * Set the strides of all axes: the caller's, or dense ones. An axis of one element needs no stride.
 */
static int reader_strides(reader_slice *s, const int64_t *stride)
{
    const uint64_t wide = s->wide;
    uint64_t next = wide, end = wide, more;

    for (uint32_t k = s->t->ndim; k-- > 0;) {
        uint64_t count = s->part[k].count;
        bool given = stride && count > 1;

        if (given && (stride[k] < 0 || (uint64_t)stride[k] < s->wide))
            return ckpt_fail(s->err, CKPT_EUSAGE,
                             "tensor %s: axis %u cannot have a stride of %" PRId64
                             " bytes: an element of %s has %" PRIu64,
                             s->t->name, (unsigned)k, stride[k], ckpt_dtype_name(s->dtype),
                             s->wide);
        s->stride[k] = given ? stride[k] : (int64_t)next;
        if (!ckpt_mul(count - 1, (uint64_t)s->stride[k], &more) || !ckpt_add(end, more, &end) ||
            !ckpt_mul(count, (uint64_t)s->stride[k], &next) || next > INT64_MAX || end > INT64_MAX)
            return ckpt_fail(s->err, CKPT_EUSAGE,
                             "tensor %s: axis %u is too large for a buffer: %" PRIu64
                             " elements, %" PRId64 " bytes apart",
                             s->t->name, (unsigned)k, count, s->stride[k]);
    }
    return CKPT_OK;
}

/* Choose the rows: as long as tensor and buffer allow. */
static void reader_shape(reader_slice *s)
{
    uint32_t axis = s->t->ndim - 1;

    while (axis > 0 && s->part[axis].count == s->t->shape[axis])
        axis--;
    s->piece = s->wide;
    for (s->dense = s->t->ndim; s->dense > axis; s->dense--) {
        if ((uint64_t)s->stride[s->dense - 1] != s->piece)
            break;
        s->piece *= s->part[s->dense - 1].count;
    }
    // scattered pieces go through a window, except pieces that are large enough for their own read
    s->axis = s->dense < s->t->ndim && s->piece >= READER_GAP ? s->dense : axis;
    s->block = 1;
    for (uint32_t k = s->axis + 1; k < s->t->ndim; k++)
        s->block *= s->t->shape[k];
    s->row = s->part[s->axis];
    s->row.step += s->row.step == 0;
}

/* Read s->part of a tensor with axes, as ckpt_reader_read_box does. */
static int reader_part(reader_slice *s, const int64_t *stride, void *buf)
{
    bool empty = false;
    int rc = reader_check_slice(s->t, s->part, &empty, s->err);

    if (rc == CKPT_OK && !buf && !empty)
        rc = reader_check_call(s->r, s->t, false, s->err);
    if (rc == CKPT_OK)
        rc = reader_ready(s->r, &s->t, &s->dtype, s->err);
    if (rc == CKPT_OK && ckpt_dtype_packed(s->dtype))
        rc = ckpt_fail(s->err, CKPT_EUNSUPPORTED, "tensor %s: elements of %s are not whole bytes",
                       s->t->name, ckpt_dtype_name(s->t->dtype));
    if (rc != CKPT_OK || empty)
        return rc;
    s->wide = ckpt_job_bytes(s->dtype, 1);
    rc = reader_strides(s, stride);
    if (rc != CKPT_OK)
        return rc;
    reader_shape(s);
    rc = reader_rows(s, buf);
    ckpt_free(s->window);
    return rc == CKPT_OK ? ckpt_io_pool_check(s->r->feed.pool, s->err) : rc;
}

int ckpt_reader_read_slice(ckpt_reader *r, const ckpt_tensor *t, const ckpt_slice *part,
                           ckpt_dtype dtype, void *buf, ckpt_err *err)
{
    ckpt_err_clear(err);
    reader_slice s = {.r = r, .t = t, .part = part, .dtype = dtype, .err = err};

    int rc = reader_check_call(r, t, true, err);

    if (rc != CKPT_OK)
        return rc;
    if (t->ndim > 0 && !part)
        return ckpt_fail(err, CKPT_EUSAGE, "tensor %s: the slice is NULL", t->name);
    if (t->ndim == 0)
        return ckpt_reader_read(r, t, 0, 1, dtype, buf, err);
    return reader_part(&s, NULL, buf);
}

/* LIMIT: eight parameters are the public signature. */
int ckpt_reader_read_box(ckpt_reader *r, const ckpt_tensor *t, const uint64_t *start,
                         const uint64_t *count, ckpt_dtype dtype, void *buf, const int64_t *stride,
                         ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_slice part[CKPT_MAX_DIM];
    reader_slice s = {.r = r, .t = t, .part = part, .dtype = dtype, .err = err};

    int rc = reader_check_call(r, t, true, err);

    if (rc != CKPT_OK)
        return rc;
    if (t->ndim > 0 && (!start || !count))
        return ckpt_fail(err, CKPT_EUSAGE, "tensor %s: start or count is NULL", t->name);
    if (t->ndim == 0)
        return ckpt_reader_read(r, t, 0, 1, dtype, buf, err);
    for (uint32_t k = 0; k < t->ndim; k++)
        part[k] = (ckpt_slice){start[k], count[k], 1};
    return reader_part(&s, stride, buf);
}
