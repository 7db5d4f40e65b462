/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bnb.c: writes bitsandbytes' 8-bit moments for another number of ranks, with unchanged codes and
 * scales.
 *
 * Each block of 256 elements of a rank's flat tensor, counted from its beginning, has one scale.
 * The moments can be split exactly if each block of the target takes its elements from one block of
 * the source.  Otherwise ckpt refuses the target, because it would have to quantize the moments
 * again.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/deepspeed/layout/bnb.h"
#include "formats/deepspeed/write/write.h"
#include "libckpt/base/dtype.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/moments8.h"

/* Elements, or blocks, that are adjacent both in a source and in a rank's record. */
typedef struct dwq_run {
    const ckpt_moments8 *of;
    uint64_t first, at, n; /* start in the source, start in the record, number */
} dwq_run;

/* One rank's slice; it is filled from the first element to the last. */
typedef struct dwq_rank {
    dwq_run code, scale;       /* runs that later pieces may still extend; n 0: none */
    uint64_t end;              /* number of filled elements */
    uint64_t blocks;           /* number of blocks with a scale */
    const ckpt_moments8 *last; /* the last scale is that of block number `block` of these moments */
    uint64_t block;
} dwq_rank;

typedef struct dwq_work {
    const ckpt_train_job *job;
    const ckpt_dsw_how *how;
    const ckpt_dsw_layout *layout;
    const ckpt_dsw_records *records;
    const ckpt_dsw_part *p;
    size_t column;            /* the column of the codes; the next column has the scales */
    const ckpt_source *table; /* code table of the first moments; all must have the same */
    const ckpt_tensor *param; /* the current parameter, for messages */
    dwq_rank *rank;           /* one per rank of the part */
} dwq_work;

/* ---- checking that moments can be cut ---- */

static int dwq_refuse(const ckpt_train_job *job, const ckpt_dsw_how *how, const ckpt_tensor *param,
                      const char *why)
{
    return ckpt_fail(
        job->err, CKPT_EUNSUPPORTED,
        "%s: 8-bit moments of bitsandbytes cannot be partitioned for %" PRIu32
        " rank%s of stage %d: %s (%.150s); use --moments fp32 to write them as Adam's, "
        "or a number of ranks whose partitions begin at blocks, such as the source's "
        "(%" PRIu32 " of stage %d)",
        job->from->path, how->world, how->world == 1 ? "" : "s", how->stage, why,
        param ? param->name : "a group", job->state->world, how->from_stage);
}

/* Bits of a parameter's moments, from their sources: 8 or 32; 0: some have 8, others 32. */
static uint32_t dwq_bits_of(const ckpt_map *from, const ckpt_tensor *m)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < m->n_extents; i++)
        n += ckpt_m8_of(&from->sources.at[ckpt_extent_source(m, i)]) != NULL;
    return n == m->n_extents ? 8 : n ? 0 : 32;
}

int ckpt_dsw_bnb_plain(const ckpt_train_job *job)
{
    return ckpt_fail(job->err, CKPT_EUNSUPPORTED,
                     "%s: the optimizer has 32-bit moments of bitsandbytes for each parameter "
                     "(state1, state2), which cannot be written as ZeRO: ckpt reads such moments "
                     "only from DeepSpeed's files; --drop-optimizer begins a new run at step 0 "
                     "with the weights",
                     job->from->path);
}

int ckpt_dsw_bnb_bits(const ckpt_train_job *job, const ckpt_dsw_how *how, const ckpt_dsw_part *p,
                      uint32_t *bits)
{
    assert(p && bits && p->group < job->state->group.n);
    const ckpt_group *g = &job->state->group.at[p->group];
    ckpt_ds_bnb b = ckpt_ds_bnb_look(g->stored);
    const char *name = ckpt_ds_bnb_name(&b, 0);

    *bits = 0;
    for (size_t i = 0; i < p->n; i++) {
        const ckpt_tensor *m = ckpt_state_moment(job->from, job->state, name, p->param[i]);
        uint32_t own = m && m->n_extents ? dwq_bits_of(job->from, m) : 0;
        if (p->param[i]->n_elems == 0)
            continue;
        if (own == 0 || (*bits && own != *bits))
            return dwq_refuse(job, how, p->param[i], "a slice would hold moments of two kinds");
        *bits = own;
    }
    if (*bits == 8 && (how->lean || how->legacy || how->ep))
        return dwq_refuse(job, how, NULL, "this form of checkpoint cannot store them");
    if (*bits == 8 && !ckpt_value_get(b.dict, "qmap1"))
        return dwq_refuse(job, how, NULL, "the first sub-group has no quantization table (qmap1)");
    return CKPT_OK;
}

/* ---- one record ---- */

/*
 * Make a hidden tensor of the target with a run's elements of the source tensor `of`. repeat: every
 * element equals the run's first one.
 */
static const ckpt_tensor *dwq_donor(dwq_work *w, const ckpt_tensor *of, const dwq_run *run,
                                    bool repeat)
{
    ckpt_arena *arena = w->job->to->arena;
    const ckpt_tensor like = {.dtype = of->dtype, .ndim = 1, .shape = &run->n};
    uint64_t item = ckpt_dtype_get(of->dtype)->bits / 8;
    const ckpt_axis axis = {0, run->n, repeat ? 0 : (int64_t)item};
    ckpt_box room;
    const ckpt_extent *from = ckpt_extent_of(of, 0, &room);
    ckpt_extent e = {.source = from->source, .ndim = 1, .at = from->at + run->first * item};
    ckpt_tensor *donor = NULL;

    e.axis = ckpt_arena_copy(arena, &axis, sizeof axis);
    ckpt_extent *own = e.axis ? ckpt_arena_copy(arena, &e, sizeof e) : NULL;
    if (!own || ckpt_map_add_hidden(w->job->to, of->name, strlen(of->name), &like, &donor,
                                    w->job->err) != CKPT_OK)
        return NULL;
    donor->extent = own;
    donor->n_extents = 1;
    return donor;
}

/* Fill run->n elements of a rank's record, from run->at on, with elements of `of`. */
static int dwq_fill(dwq_work *w, uint32_t rank, size_t column, const ckpt_tensor *of,
                    const dwq_run *run, bool repeat)
{
    const ckpt_group *g = &w->job->state->group.at[w->p->group];
    uint32_t file = w->p->lane + rank * (g->n_lanes ? g->n_lanes : 1);
    uint64_t item = ckpt_dtype_get(of->dtype)->bits / 8;
    const ckpt_axis axis = {0, run->n, (int64_t)item};
    const ckpt_extent e = {.source = *ckpt_dsw_record(w->records, file, w->p, column, 0),
                           .ndim = 1,
                           .at = run->at * item,
                           .axis = &axis};

    if (of->n_extents != 1)
        return dwq_refuse(w->job, w->how, w->param, "a record of the source is split");
    const ckpt_tensor *donor = dwq_donor(w, of, run, repeat);
    return donor ? ckpt_tt_fill(w->job->to, &(ckpt_torch_fill){"bnb", donor, of->dtype}, &e, 1,
                                w->job->err)
                 : ckpt_fail_memory(w->job->err);
}

/* Fill the record with a pending run, because the next piece does not extend it. */
static int dwq_flush(dwq_work *w, uint32_t rank, dwq_run *run)
{
    bool code = run == &w->rank[rank].code;
    uint64_t n = run->n;

    if (n == 0)
        return CKPT_OK;
    int rc = dwq_fill(w, rank, code ? w->column : w->column + 1,
                      code ? run->of->codes : run->of->scale, run, false);
    run->n = 0;
    return rc;
}

/* Add a piece: extend the pending run if the piece follows it, else start a new run. */
static int dwq_add(dwq_work *w, uint32_t rank, dwq_run *run, const dwq_run *more)
{
    if (run->n && run->of == more->of && run->first + run->n == more->first &&
        run->at + run->n == more->at) {
        run->n += more->n;
        return CKPT_OK;
    }
    int rc = dwq_flush(w, rank, run);
    *run = *more;
    return rc;
}

/* Fill padding with the code of 0, because that is 0 under any scale of its block. */
static int dwq_pad(dwq_work *w, uint32_t rank, const ckpt_moments8 *of, uint64_t to)
{
    dwq_rank *r = &w->rank[rank];
    const dwq_run run = {.at = r->end, .n = to - r->end};

    r->end = to;
    return run.n ? dwq_fill(w, rank, w->column, of->zero, &run, true) : CKPT_OK;
}

/* Give block number `to` of the record the scale of a block of the source. */
static int dwq_scale(dwq_work *w, uint32_t rank, const ckpt_moments8 *of, uint64_t block,
                     uint64_t to)
{
    dwq_rank *r = &w->rank[rank];
    bool again = to < r->blocks;

    if (again && (r->last != of || r->block != block))
        return dwq_refuse(w->job, w->how, w->param,
                          "a block would have elements of two source blocks");
    r->last = of;
    r->block = block;
    r->blocks = to + 1;
    return again ? CKPT_OK : dwq_add(w, rank, &r->scale, &(dwq_run){of, block, to, 1});
}

/* Check that the code table is the same for all ranks, because the output has only one. */
static int dwq_table(dwq_work *w, const ckpt_moments8 *of)
{
    const ckpt_source *s = &w->job->from->sources.at[ckpt_extent_source(of->table, 0)];

    if (!w->table)
        w->table = s;
    if (w->table->has_crc && s->has_crc && w->table->crc != s->crc &&
        s->n_bytes == CKPT_M8_CODES * sizeof(float) && w->table->n_bytes == s->n_bytes)
        return ckpt_fail(w->job->err, CKPT_EMISMATCH,
                         "%s: %s differs between ranks: the shards are from different runs",
                         w->job->from->path, of->table->name);
    return CKPT_OK;
}

/* Put run->n elements of a source, from run->first on, into a rank's record from run->at on. */
static int dwq_put(dwq_work *w, uint32_t rank, const dwq_run *run)
{
    uint64_t first = run->first / CKPT_M8_BLOCK, last = (run->first + run->n - 1) / CKPT_M8_BLOCK,
             to = run->at / CKPT_M8_BLOCK, end = (run->at + run->n - 1) / CKPT_M8_BLOCK;
    bool even = run->first % CKPT_M8_BLOCK == run->at % CKPT_M8_BLOCK;
    int rc = dwq_table(w, run->of);

    if (rc == CKPT_OK && !even && first != last)
        rc = dwq_refuse(w->job, w->how, w->param,
                        "a block would have elements of two source blocks");
    if (rc == CKPT_OK && run->at > w->rank[rank].end)
        rc = dwq_pad(w, rank, run->of, run->at);
    for (uint64_t i = to; rc == CKPT_OK && i <= end; i++)
        rc = dwq_scale(w, rank, run->of, even ? first + (i - to) : first, i);
    w->rank[rank].end = run->at + run->n;
    return rc == CKPT_OK ? dwq_add(w, rank, &w->rank[rank].code, run) : rc;
}

/*
 * Fill the padding at the end of a rank's slice.  A slice that equals one of the source keeps the
 * source's padding, whose codes need not mean 0, because DeepSpeed loads them back.
 */
static int dwq_tail(dwq_work *w, uint32_t rank)
{
    dwq_rank *r = &w->rank[rank];
    const dwq_run *code = &r->code;

    if (code->n && code->of == r->last && code->first == code->at &&
        code->of->codes->n_elems == w->p->slice)
        return dwq_put(w, rank, &(dwq_run){code->of, r->end, r->end, w->p->slice - r->end});
    return dwq_pad(w, rank, r->last, w->p->slice);
}

/* ---- a column ---- */

/*
 * Fill a run of the target from the moment's extents; *next: the first extent that may have
 * elements.
 */
static int dwq_take(dwq_work *w, const ckpt_tensor *m, const ckpt_zero_run *run, uint64_t at,
                    uint32_t *next)
{
    uint64_t done = run->first, end = run->first + run->count;
    int rc = CKPT_OK;

    for (; rc == CKPT_OK && done < end && *next < m->n_extents; (*next)++) {
        ckpt_box room;
        const ckpt_extent *e = ckpt_extent_of(m, *next, &room);
        uint64_t from = e->axis[0].start, to = from + e->axis[0].count;
        if (!ckpt_extent_is_flat(m, e) || from > done)
            return dwq_refuse(w->job, w->how, w->param, "its elements are not contiguous");
        if (to <= done)
            continue;
        to = to < end ? to : end;
        rc = dwq_put(w, run->rank,
                     &(dwq_run){ckpt_m8_of(&w->job->from->sources.at[e->source]),
                                e->at / sizeof(float) + (done - from), at + (done - run->first),
                                to - done});
        done = to;
        if (done == end)
            break;
    }
    return rc;
}

static int dwq_param(dwq_work *w, size_t i)
{
    const char *key = w->layout->column.at[w->p->column + w->column].key;
    const ckpt_tensor *m = ckpt_state_moment(w->job->from, w->job->state, key, w->p->param[i]);
    uint64_t n = w->p->param[i]->n_elems, cursor = 0;
    uint32_t next = 0;
    ckpt_zero_run run;
    int rc = CKPT_OK;

    w->param = w->p->param[i];
    if (n == 0)
        return CKPT_OK;
    if (!m || dwq_bits_of(w->job->from, m) != 8)
        return dwq_refuse(w->job, w->how, w->param, "a slice would hold moments of two kinds");
    while (rc == CKPT_OK &&
           (w->how->stage == 3 ? ckpt_zero_param_next(n, w->p->world, &cursor, &run)
                               : ckpt_zero_flat_next(&w->p->flat, i, &cursor, &run)))
        rc = dwq_take(w, m, &run, w->p->at[i] + run.at, &next);
    return rc;
}

int ckpt_dsw_bnb_fill(const ckpt_train_job *job, const ckpt_dsw_how *how,
                      const ckpt_dsw_layout *layout, const ckpt_dsw_records *records,
                      const ckpt_dsw_part *p)
{
    assert(records->record && p->group < job->state->group.n);
    dwq_work w = {.job = job, .how = how, .layout = layout, .records = records, .p = p};
    int rc = CKPT_OK;

    w.rank = ckpt_alloc(p->world * sizeof *w.rank);
    if (!w.rank)
        return ckpt_fail_memory(job->err);
    for (size_t c = 0; rc == CKPT_OK && c < p->n_columns; c++) {
        if (layout->column.at[p->column + c].of != CKPT_DSW_CODES)
            continue;
        w.column = c;
        w.table = NULL;
        memset(w.rank, 0, p->world * sizeof *w.rank);
        for (size_t i = 0; rc == CKPT_OK && i < p->n; i++)
            rc = dwq_param(&w, i);
        for (uint32_t r = 0; rc == CKPT_OK && r < p->world; r++) {
            if (w.rank[r].last && w.rank[r].end < p->slice)
                rc = dwq_tail(&w, r);
            if (rc == CKPT_OK)
                rc = dwq_flush(&w, r, &w.rank[r].code);
            if (rc == CKPT_OK)
                rc = dwq_flush(&w, r, &w.rank[r].scale);
        }
    }
    ckpt_free(w.rank);
    return rc;
}
