/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gather.c: reads pieces: contiguous ones directly into place, strided ones through a staging
 * buffer.
 *
 * A strided piece is read in the order of its source, even if the region has another order, so that
 * even a transposed tensor is read forwards. Gaps of up to a page are read together with the bytes
 * around them.
 */
#include <assert.h>
#include <string.h>

#include "libckpt/base/cast.h"
#include "libckpt/base/digest.h"
#include "libckpt/base/dtype.h"
#include "libckpt/copy/gather.h"
#include "libckpt/map/join.h"
#include "libckpt/map/nest.h"

enum {
    GA_GAP = 4096,          /* largest gap between needed bytes that is read with them */
    GA_SEGMENT = 16 * 1024, /* shorter runs of a strided piece get no segment */
    GA_TILE = 16,           /* units of a line that are written together when axes are transposed */
    GA_TILE_LINES = 8       /* number of lines that are written together */
};

typedef struct ga_axis {
    uint64_t count;
    uint64_t from_by; /* stride in the source, in bytes */
    uint64_t to_by;   /* stride in the buffer, in bytes */
} ga_axis;

/* State of a piece. */
typedef struct ga_piece {
    ckpt_gather *g;
    uint32_t source;
    unsigned n;    /* number of axes; the one with the largest stride in the source is first */
    unsigned swap; /* unit of byte reversal, or 0 */
    uint64_t unit; /* bytes that are contiguous on both sides */
    uint64_t at;   /* offset in the source */
    uint8_t *to;   /* address of the first unit */
    ga_axis axis[CKPT_MAX_DIM];
} ga_piece;

/* The region to fill. */
typedef struct ga_region {
    ckpt_gather *g;
    ckpt_dtype dtype;
    uint8_t *buf;
} ga_region;

static const ckpt_source *ga_source(const ga_piece *p)
{
    return &p->g->feed->map->sources.at[p->source];
}

/*
 * True if the CRC of the bytes is needed: deflated records are checked when they are decoded, and
 * memory has no CRC.
 */
static bool ga_wants_crc(const ga_piece *p)
{
    const ckpt_source *s = ga_source(p);

    return p->g->segments && s->has_crc && s->kind == CKPT_SOURCE_FILE && s->coding == CKPT_RAW;
}

/* Mark a record that is read without segments, so that the ledger reads it again. */
static int ga_mark_whole(const ga_piece *p, ckpt_err *err)
{
    return ga_wants_crc(p) ? ckpt_ledger_add(p->g->segments, p->source, 0, 0, 0, err) : CKPT_OK;
}

/* Read n contiguous bytes of any source. */
static int ga_read(const ga_piece *p, uint8_t *to, uint64_t n, uint64_t at, ckpt_err *err)
{
    const ckpt_source *s = ga_source(p);

    if (!ckpt_source_nested(s))
        return ckpt_feed_read(p->g->feed, p->source, to, n, at, err);
    if (!p->g->nested)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s is computed from tensors, but this call reads only stored bytes",
                         s->name ? s->name : "a tensor");
    return p->g->nested(p->g->nested_ctx, s, to, n, at, err);
}

/* Read n contiguous bytes into the buffer, and record a segment with their CRC. */
static int ga_read_run(const ga_piece *p, uint8_t *to, uint64_t n, uint64_t at, ckpt_err *err)
{
    int rc = ga_read(p, to, n, at, err);

    // Reads inside a nested source were counted there.
    if (rc != CKPT_OK || ckpt_source_nested(ga_source(p)))
        return rc;
    p->g->n_read += n;
    if (ga_wants_crc(p))
        rc = ckpt_ledger_add(p->g->segments, p->source, at, n, ckpt_crc32(0, to, (size_t)n), err);
    return rc;
}

/* Read a piece that is contiguous on both sides. */
static int ga_whole(const ga_piece *p, ckpt_err *err)
{
    int rc = ga_read_run(p, p->to, p->unit, p->at, err);

    if (rc == CKPT_OK && p->swap > 1)
        ckpt_swap_bytes(p->to, (size_t)p->unit, p->swap);
    return rc;
}

/* Copy count units between two strides; the usual sizes have loops that compilers can optimise. */
static void ga_line(uint8_t *to, const uint8_t *from, const ga_axis *a, uint64_t unit)
{
    switch (unit) {
    case 2:
        for (uint64_t i = 0; i < a->count; i++, to += a->to_by, from += a->from_by)
            memcpy(to, from, 2);
        break;
    case 4:
        for (uint64_t i = 0; i < a->count; i++, to += a->to_by, from += a->from_by)
            memcpy(to, from, 4);
        break;
    default:
        for (uint64_t i = 0; i < a->count; i++, to += a->to_by, from += a->from_by)
            memcpy(to, from, (size_t)unit);
        break;
    }
}

/* Swap the byte order of the units that ga_line has copied. */
static void ga_swap_line(uint8_t *to, const ga_axis *a, uint64_t unit, unsigned swap)
{
    for (uint64_t i = 0; i < a->count; i++, to += a->to_by)
        ckpt_swap_bytes(to, (size_t)unit, swap);
}

/* Step an odometer over n axes and update the offsets; false after the last position. */
static bool ga_step(uint64_t *index, const ga_axis *axis, unsigned n, uint64_t *from, uint64_t *to)
{
    while (n > 0) {
        n--;
        if (++index[n] < axis[n].count) {
            *from += axis[n].from_by;
            *to += axis[n].to_by;
            return true;
        }
        *from -= axis[n].from_by * (axis[n].count - 1);
        *to -= axis[n].to_by * (axis[n].count - 1);
        index[n] = 0;
    }
    return false;
}

/*
 * Transpose two axes. A walk along either one alone would touch a cache line per unit, on one side
 * or the other; tiles use each line fully.
 */
static void ga_tiles(uint8_t *to, const uint8_t *from, const ga_axis *outer, const ga_axis *inner,
                     uint64_t unit)
{
    for (uint64_t i = 0; i < inner->count; i += GA_TILE_LINES) {
        uint64_t lines = inner->count - i < GA_TILE_LINES ? inner->count - i : GA_TILE_LINES;

        for (uint64_t o = 0; o < outer->count; o += GA_TILE) {
            uint64_t n = outer->count - o < GA_TILE ? outer->count - o : GA_TILE;

            const ga_axis part = {n, outer->from_by, outer->to_by};

            for (uint64_t k = i; k < i + lines; k++)
                ga_line(to + o * outer->to_by + k * inner->to_by,
                        from + o * outer->from_by + k * inner->from_by, &part, unit);
        }
    }
}

/* The axis with the smallest distance between units in the buffer. */
static unsigned ga_densest(const ga_axis *axis, unsigned n)
{
    unsigned best = n - 1;

    for (unsigned i = 0; i < n - 1; i++) {
        if (axis[i].count > 1 && axis[i].to_by < axis[best].to_by)
            best = i;
    }
    return best;
}

/* Distribute the units in `from` over n axes (at least one). */
static void ga_scatter(const ga_piece *p, uint8_t *to, const uint8_t *from, const ga_axis *axis,
                       unsigned n)
{
    uint64_t index[CKPT_MAX_DIM] = {0};
    uint64_t from_at = 0, to_at = 0;
    unsigned dense = ga_densest(axis, n);

    if (dense != n - 1 && p->swap <= 1) {
        ga_axis others[CKPT_MAX_DIM];
        unsigned n_others = 0;

        for (unsigned i = 0; i < n - 1; i++) {
            if (i != dense)
                others[n_others++] = axis[i];
        }
        do
            ga_tiles(to + to_at, from + from_at, &axis[dense], &axis[n - 1], p->unit);
        while (ga_step(index, others, n_others, &from_at, &to_at));
        return;
    }
    do {
        ga_line(to + to_at, from + from_at, &axis[n - 1], p->unit);
        if (p->swap > 1)
            ga_swap_line(to + to_at, &axis[n - 1], p->unit, p->swap);
    } while (ga_step(index, axis, n - 1, &from_at, &to_at));
}

/* Allocate the staging buffer at the first strided piece. */
static int ga_need_stage(ckpt_gather *g, ckpt_err *err)
{
    if (g->n_stage == 0)
        g->n_stage = CKPT_GATHER_STAGE;
    if (!g->stage)
        g->stage = ckpt_alloc(g->n_stage);
    return !g->stage ? ckpt_fail_memory(err) : CKPT_OK;
}

/*
 * The division of a piece into reads: axes tail..n-1 are read whole in one span, axis tail-1 in
 * steps of `step`, and the axes before it one position at a time. A step with large gaps has one
 * read per position, `pitch` bytes apart in the buffer, and is then distributed at once.
 */
typedef struct ga_cut {
    unsigned tail;
    uint64_t span;  /* bytes from the first to the last needed one of the tail */
    uint64_t step;  /* positions of axis tail-1 in one read, or one step */
    uint64_t pitch; /* 0: a step is one read */
    bool dense;     /* a read has no gaps, so its CRC is useful */
} ga_cut;

/*
 * Add axes to the span from the innermost outwards, as long as the gaps are small and the buffer is
 * large enough.
 */
static ga_cut ga_plan(const ga_piece *p)
{
    ga_cut c = {.tail = p->n, .span = p->unit, .step = 1, .dense = true};

    if (p->unit > p->g->n_stage)
        return c;
    while (c.tail > 0) {
        const ga_axis *a = &p->axis[c.tail - 1];
        uint64_t reach, room = p->g->n_stage - c.span;

        if (a->count > 1 && a->from_by > c.span && a->from_by - c.span > GA_GAP) {
            // rows at a distance of a power of two would share one set of the cache
            c.pitch = c.tail < p->n ? c.span + GA_TILE * 4 : 0;
            c.step = c.pitch && c.pitch < p->g->n_stage ? p->g->n_stage / c.pitch : 1;
            break;
        }
        if (!ckpt_mul(a->count - 1, a->from_by, &reach) || reach > room) {
            c.step = room / a->from_by + 1;
            c.dense = c.dense && a->from_by == c.span;
            break;
        }
        c.dense = c.dense && (a->count == 1 || a->from_by == c.span);
        c.span += reach;
        c.tail--;
    }
    return c;
}

/* Read m positions of axis tail-1 with large gaps between them, one read each. */
static int ga_read_rows(ga_piece *p, const ga_cut *c, uint64_t from, uint64_t to, uint64_t m,
                        ckpt_err *err)
{
    const ga_axis was = p->axis[c->tail - 1];
    int rc = CKPT_OK;

    for (uint64_t k = 0; rc == CKPT_OK && k < m; k++) {
        uint8_t *row = p->g->stage + k * c->pitch;
        uint64_t at = from + k * was.from_by;

        rc = c->dense ? ga_read_run(p, row, c->span, at, err) : ga_read(p, row, c->span, at, err);
    }
    if (rc != CKPT_OK)
        return rc;
    p->axis[c->tail - 1] = (ga_axis){m, c->pitch, was.to_by};
    ga_scatter(p, p->to + to, p->g->stage, &p->axis[c->tail - 1], p->n - c->tail + 1);
    p->axis[c->tail - 1] = was;
    return CKPT_OK;
}

/* Make one read of a strided piece: m positions of axis tail-1, and all of the tail. */
static int ga_read_part(ga_piece *p, const ga_cut *c, uint64_t from, uint64_t to, uint64_t m,
                        ckpt_err *err)
{
    unsigned first = c->tail > 0 ? c->tail - 1 : 0;
    uint64_t span = c->span, count = p->axis[first].count;
    int rc;

    if (c->tail > 0)
        span += (m - 1) * p->axis[first].from_by;
    if (c->tail == p->n && m == 1) {
        // A single contiguous run needs no staging.
        rc = c->span >= GA_SEGMENT ? ga_read_run(p, p->to + to, c->span, from, err)
                                   : ga_read(p, p->to + to, c->span, from, err);
        if (rc == CKPT_OK && p->swap > 1)
            ckpt_swap_bytes(p->to + to, (size_t)c->span, p->swap);
        return rc;
    }
    rc = c->dense ? ga_read_run(p, p->g->stage, span, from, err)
                  : ga_read(p, p->g->stage, span, from, err);
    if (rc != CKPT_OK)
        return rc;
    if (c->tail > 0)
        p->axis[first].count = m;
    ga_scatter(p, p->to + to, p->g->stage, &p->axis[first], p->n - first);
    p->axis[first].count = count;
    return CKPT_OK;
}

/* Read a strided piece in the order of its source, one read at a time. */
static int ga_strided(ga_piece *p, ckpt_err *err)
{
    uint64_t index[CKPT_MAX_DIM] = {0};
    uint64_t from = 0, to = 0, n_split = 1, from_by = 0, to_by = 0;
    unsigned n_outer;
    ga_cut c;
    int rc = ga_need_stage(p->g, err);

    if (rc != CKPT_OK)
        return rc;
    c = ga_plan(p);
    n_outer = c.tail > 0 ? c.tail - 1 : 0;
    if (c.tail > 0) {
        n_split = p->axis[n_outer].count;
        from_by = p->axis[n_outer].from_by;
        to_by = p->axis[n_outer].to_by;
    }
    // There are gaps, or runs too short for a segment each: let the ledger read the record again.
    if (!c.dense || (c.tail == p->n && c.step == 1 && c.span < GA_SEGMENT))
        rc = ga_mark_whole(p, err);
    if (rc != CKPT_OK)
        return rc;
    do {
        for (uint64_t i = 0; rc == CKPT_OK && i < n_split; i += c.step) {
            uint64_t m = n_split - i < c.step ? n_split - i : c.step;

            rc = c.step > 1 && c.pitch
                     ? ga_read_rows(p, &c, p->at + from + i * from_by, to + i * to_by, m, err)
                     : ga_read_part(p, &c, p->at + from + i * from_by, to + i * to_by, m, err);
        }
    } while (rc == CKPT_OK && ga_step(index, p->axis, n_outer, &from, &to));
    return rc;
}

/* Write zeros for the units of a piece. */
static void ga_fill(const ga_piece *p)
{
    uint64_t index[CKPT_MAX_DIM] = {0};
    uint64_t from = 0, to = 0;

    do
        memset(p->to + to, 0, (size_t)p->unit);
    while (ga_step(index, p->axis, p->n, &from, &to));
}

/*
 * Copy the axes, largest source stride first, and merge the innermost into the unit if both sides
 * are contiguous.
 */
static int ga_axes(ga_piece *p, const ckpt_piece *in, uint64_t item, ckpt_err *err)
{
    for (unsigned i = 0; i < in->ndim; i++) {
        ga_axis a = {in->axis[i].count, 0, in->axis[i].to_by * item};
        unsigned k = p->n;

        if (in->axis[i].from_by < 0)
            return ckpt_fail(err, CKPT_EUNSUPPORTED,
                             "a tensor view has a negative stride, which is not supported");
        a.from_by = (uint64_t)in->axis[i].from_by;
        if (a.count == 1)
            continue;
        for (; k > 0 && p->axis[k - 1].from_by < a.from_by; k--)
            p->axis[k] = p->axis[k - 1];
        p->axis[k] = a;
        p->n++;
    }
    p->unit = item;
    while (p->n > 0 && p->axis[p->n - 1].from_by == p->unit && p->axis[p->n - 1].to_by == p->unit)
        p->unit *= p->axis[--p->n].count;
    return CKPT_OK;
}

/* Read one piece of the join in the way that its source needs. */
static int ga_take(void *ctx, const ckpt_piece *in, ckpt_err *err)
{
    const ga_region *r = ctx;
    uint64_t item = ckpt_dtype_get(r->dtype)->bytes; // of an element, or of a packed block
    ga_piece p = {.g = r->g, .source = in->source, .at = in->at};
    const ckpt_source *s;
    int rc = CKPT_OK;

    if (in->source >= r->g->feed->map->sources.n)
        return ckpt_fail(err, CKPT_EUSAGE, "the map has no source %" PRIu32, in->source);
    s = ga_source(&p);
    if (r->g->touch)
        rc = r->g->touch(r->g->touch_ctx, in->source, err);
    if (rc != CKPT_OK)
        return rc;
    p.swap = s->swap;
    p.to = r->buf + in->to * item;
    rc = ga_axes(&p, in, item, err);
    if (rc != CKPT_OK)
        return rc;
    if (s->kind == CKPT_SOURCE_ZERO) {
        ga_fill(&p);
        return CKPT_OK;
    }
    return p.n == 0 ? ga_whole(&p, err) : ga_strided(&p, err);
}

int ckpt_gather_region(ckpt_gather *g, const ckpt_tensor *t, const ckpt_axis *region,
                       unsigned n_axes, void *buf, ckpt_err *err)
{
    assert(g->feed && t && region && (n_axes == 1 || n_axes == t->ndim));
    ga_region r = {g, t->dtype, buf};

    return ckpt_join(t, region, n_axes, ga_take, &r, err);
}

void ckpt_gather_resolve(const ckpt_tensor *t, void *buf, uint64_t n_elems)
{
    assert(buf || n_elems == 0);
    if (t->flags & CKPT_TENSOR_CONJ)
        ckpt_conjugate(t->dtype, buf, (size_t)n_elems);
    if (t->flags & CKPT_TENSOR_NEG)
        ckpt_negate(t->dtype, buf, (size_t)n_elems);
}

void ckpt_gather_free(ckpt_gather *g)
{
    ckpt_free(g->stage);
    g->stage = NULL;
}
