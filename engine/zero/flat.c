/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flat.c: implements stages 0, 1, 2, in which every rank has all working weights, in one buffer per
 * parameter group.
 *
 * There are two modes for gradients.  Resident: they accumulate over micro steps in a buffer like
 * that of the weights, which is reduced before the update (stages 0, 1; stage 2 on one rank).
 * Passing: each layer writes into a bucket.  When the bucket is full, stage 2 reduces it and adds
 * the part that this rank owns to its partition; stage 1 adds it to accumulators of another dtype.
 * Then the bucket is reused.
 */
#include <assert.h>
#include <string.h>

#include "engine/zero/own.h"
#include "libckpt/map/zero_flat.h"

/* The bucket has at most 1/FL_SHARE of the model's elements, unless one layer needs more. */
#define FL_SHARE 16

typedef struct fl_group {
    ckpt_zero_flat lay;
    void *w;   /* [total] working weights */
    void *g;   /* gradients if they are resident, model's dtype; NULL: they are passing */
    void *acc; /* accumulators of passing gradients at stage 1: [total] in the accumulation dtype */
} fl_group;

/* A parameter's gradient in the bucket. */
typedef struct fl_piece {
    uint32_t param;
    uint64_t at; /* index of its first element in the bucket */
} fl_piece;

typedef struct zr_flat {
    fl_group *group;
    void *frozen; /* weights of frozen parameters */
    uint64_t *frozen_at;
    void **tied;  /* passing: per parameter, its own gradient buffer if several layers use it */
    void *bucket; /* model's dtype */
    uint64_t room, limit, fill;
    fl_piece *piece;
    uint32_t n_pieces;
    bool resident;
} zr_flat;

static zr_flat *fl_of(const zt_zero *z)
{
    return zr_of(z)->flat;
}

/* ---- setting up ---- */

/* Compute the group's layout, and the location of each parameter. */
static int fl_layout(zt_zero *z, uint32_t i, ckpt_err *err)
{
    const zt_group *g = &z->group[i];
    uint32_t world = z->config->stage == 0 ? 1 : (uint32_t)z->comm->world;
    uint64_t *numel = ckpt_alloc(g->n * sizeof *numel);
    ckpt_zero_flat *lay = &fl_of(z)->group[i].lay;
    int rc;

    if (!numel)
        return ckpt_fail_memory(err);
    assert(g->n > 0 && g->first + g->n <= z->n_order);
    for (uint32_t k = 0; k < g->n; k++)
        numel[k] = z->model->params.at[z->order[g->first + k]].n_elems;
    rc = ckpt_zero_flat_new(lay, &(ckpt_zero_sizes){numel, NULL, g->n}, world,
                            z->config->stage == 0 ? 1 : ckpt_zero_flat_align(world, false), err);
    ckpt_free(numel);
    assert(rc != CKPT_OK || lay->slice * world == lay->total);
    for (uint32_t k = 0; rc == CKPT_OK && k < g->n; k++) {
        zr_place *p = &zr_of(z)->place[z->order[g->first + k]];

        p->part = i;
        p->at = lay->start[k];
    }
    return rc;
}

/* Allocate the buffers of group i and this rank's partition of it. */
static void fl_buffers(zt_zero *z, uint32_t i)
{
    zr_own *o = zr_of(z);
    fl_group *g = &o->flat->group[i];
    zt_partition *p = &z->part[i];
    ckpt_dtype dt = z->model->dtype, gd = o->grad_dtype;
    uint64_t mine = z->config->stage == 0 ? 0 : (uint64_t)z->comm->rank * g->lay.slice;

    *p = (zt_partition){
        .group = i, .first = z->group[i].first, .n = z->group[i].n, .n_elems = g->lay.slice};
    assert(mine + g->lay.slice <= g->lay.total);
    g->w = zr_alloc(z, zr_bytes(dt, g->lay.total), &o->memory.weights, true);
    if (o->flat->resident) {
        g->g = zr_alloc(z, zr_bytes(dt, g->lay.total), &o->memory.gradients, true);
        p->grad = !g->g ? NULL : zr_at(g->g, dt, mine);
    } else if (z->config->stage == 1) {
        g->acc = zr_alloc(z, zr_bytes(gd, g->lay.total), &o->memory.gradients, true);
        p->grad = !g->acc ? NULL : zr_at(g->acc, gd, mine);
    } else {
        p->grad = zr_alloc(z, zr_bytes(gd, g->lay.slice), &o->memory.gradients, false);
    }
    if (o->swapped || o->failed) {
        return; // masters and state are in files, so they have no fixed memory
    }
    p->master = o->alias ? zr_at(g->w, CKPT_F32, mine)
                         : zr_alloc_home(z, 4 * p->n_elems, &o->memory.masters);
    for (unsigned s = 0; s < z->config->optim.n_state; s++)
        p->state[s] = zr_alloc_home(z, 4 * p->n_elems, &o->memory.state);
}

/* Allocate the weights of frozen parameters. */
static int fl_frozen(zt_zero *z, ckpt_err *err)
{
    zr_flat *f = fl_of(z);
    const zt_params *ps = &z->model->params;
    uint64_t n = 0;

    for (uint32_t i = 0; i < ps->n; i++) {
        if (!zr_is_trained(z, i)) {
            f->frozen_at[i] = n;
            if (!ckpt_add(n, (ps->at[i].n_elems + 31) & ~UINT64_C(31), &n))
                return ckpt_fail(err, CKPT_ELIMIT, "frozen parameters have too many elements");
        }
    }
    if (n > 0)
        f->frozen = zr_alloc(z, zr_bytes(z->model->dtype, n), &zr_of(z)->memory.weights, false);
    return CKPT_OK;
}

/* Elements of a layer's gradients in the bucket: without parameters that other layers use too. */
static uint64_t fl_layer_elems(const zt_zero *z, uint32_t l)
{
    const zt_layer *layer = &z->model->layers.at[l];
    uint64_t n = 0;

    for (uint32_t k = 0; k < layer->n_params; k++) {
        const zr_place *p = &zr_of(z)->place[layer->param[k]];

        n += p->group != ZR_NONE && p->first == p->last
                 ? z->model->params.at[layer->param[k]].n_elems
                 : 0;
    }
    return n;
}

/* Allocate the bucket: at most reduce_bucket_size elements and a share of the model, at least one
 * layer. */
static int fl_bucket(zt_zero *z, ckpt_err *err)
{
    zr_own *o = zr_of(z);
    zr_flat *f = o->flat;
    uint64_t share = zt_model_count(z->model, true) / FL_SHARE;
    uint64_t dt_bytes = zr_bytes(z->model->dtype, 1);

    f->limit = z->config->reduce_bucket < share ? z->config->reduce_bucket : share;
    f->room = f->limit;
    for (uint32_t l = 0; l < z->model->layers.n; l++) {
        uint64_t n = fl_layer_elems(z, l);

        f->room = n > f->room ? n : f->room;
    }
    f->piece = ckpt_alloc((z->n_order + 1) * sizeof *f->piece);
    f->tied = ckpt_alloc((z->model->params.n + 1) * sizeof *f->tied);
    if (!f->piece || !f->tied)
        return ckpt_fail_memory(err);
    f->bucket = zr_alloc(z, f->room * dt_bytes, &o->memory.buffers, true);
    for (uint32_t i = 0; i < z->n_order; i++) {
        const zr_place *p = &o->place[z->order[i]];

        if (p->first != p->last) {
            uint64_t n = z->model->params.at[z->order[i]].n_elems;

            f->tied[z->order[i]] = zr_alloc(z, n * dt_bytes, &o->memory.buffers, true);
        }
    }
    return CKPT_OK;
}

/* Point the model's parameters into the buffers. */
static void fl_point(zt_zero *z)
{
    zr_flat *f = fl_of(z);
    ckpt_dtype dt = z->model->dtype;

    for (uint32_t i = 0; i < z->model->params.n; i++) {
        zt_param *p = &z->model->params.at[i];
        const zr_place *at = &zr_of(z)->place[i];

        p->g = NULL;
        p->g_add = false;
        if (at->group == ZR_NONE) {
            p->w = zr_at(f->frozen, dt, f->frozen_at[i]);
            continue;
        }
        p->w = zr_at(f->group[at->group].w, dt, at->at);
        if (f->resident)
            p->g = zr_at(f->group[at->group].g, dt, at->at);
    }
}

/* Set up layouts and buffers, and choose between resident and passing gradients. */
static int fl_setup(zt_zero *z, ckpt_err *err)
{
    zr_own *o = zr_of(z);
    const zt_config *c = z->config;
    zr_flat *f = ckpt_alloc(sizeof *f);
    int rc = CKPT_OK;

    o->flat = f;
    z->part = ckpt_alloc((z->n_groups + 1) * sizeof *z->part);
    if (!f || !z->part)
        return ckpt_fail_memory(err);
    f->group = ckpt_alloc((z->n_groups + 1) * sizeof *f->group);
    f->frozen_at = ckpt_alloc((z->model->params.n + 1) * sizeof *f->frozen_at);
    if (!f->group || !f->frozen_at)
        return ckpt_fail_memory(err);
    f->resident = o->grad_dtype == z->model->dtype && (c->stage < 2 || z->comm->world == 1);
    z->n_parts = z->n_groups;
    for (uint32_t i = 0; rc == CKPT_OK && i < z->n_groups; i++) {
        rc = fl_layout(z, i, err);
        if (rc == CKPT_OK)
            fl_buffers(z, i);
    }
    if (rc == CKPT_OK)
        rc = fl_frozen(z, err);
    if (rc == CKPT_OK && !f->resident)
        rc = fl_bucket(z, err);
    if (rc == CKPT_OK && !o->failed)
        fl_point(z);
    return rc;
}

static void fl_free(zt_zero *z)
{
    zr_flat *f = fl_of(z);

    if (!f)
        return;
    for (uint32_t i = 0; f->group && i < z->n_groups; i++)
        ckpt_zero_flat_free(&f->group[i].lay);
    ckpt_free(f->group);
    ckpt_free(f->frozen_at);
    ckpt_free(f->piece);
    ckpt_free(f->tied);
    ckpt_free(f);
    zr_of(z)->flat = NULL;
}

/* ---- a micro step ---- */

/*
 * True in the first micro step of an update, which overwrites gradients instead of adding to them.
 */
static bool fl_first_micro(const zt_zero *z)
{
    return z->micro_steps % z->config->accumulation == 0;
}

static int fl_begin(zt_zero *z, ckpt_err *err)
{
    (void)err;
    // The first micro step overwrites the last update's gradients, so they need not be zeroed.
    for (uint32_t i = 0; fl_of(z)->resident && i < z->n_order; i++) {
        zt_param *p = &z->model->params.at[z->order[i]];

        p->g_add = p->g_add && !fl_first_micro(z);
    }
    return CKPT_OK;
}

/* Add this rank's part of a parameter's gradient x (dtype dt) to its partition or accumulator. */
static void fl_keep(zt_zero *z, uint32_t param, const void *x, ckpt_dtype dt)
{
    zr_own *o = zr_of(z);
    const zr_place *at = &o->place[param];
    const fl_group *g = &o->flat->group[at->group];
    uint64_t n = z->model->params.at[param].n_elems;
    uint64_t begin = 0, end = g->lay.total;
    zt_accumulate a = {
        .acc_dtype = o->grad_dtype, .x_dtype = dt, .factor = 1, .add = !fl_first_micro(z)};

    if (!g->acc) {
        begin = (uint64_t)z->comm->rank * g->lay.slice;
        end = begin + g->lay.slice;
    }
    assert(at->group < z->n_groups && at->part < z->n_parts);
    uint64_t from = at->at > begin ? at->at : begin;
    uint64_t to = at->at + n < end ? at->at + n : end;

    if (from >= to) {
        return; // this rank owns none of these elements
    }
    a.n = to - from;
    a.x = (const char *)x + zr_bytes(dt, from - at->at);
    a.acc = g->acc ? zr_at(g->acc, o->grad_dtype, from)
                   : zr_at(z->part[at->part].grad, o->grad_dtype, from - begin);
    z->device->ops->accumulate(z->device, &a);
}

/*
 * Stage 2 computes the mean of a gradient on the ranks that own its elements.  A run is a range of
 * the bucket that belongs to one rank, so few collectives are needed.
 */
typedef struct fl_run {
    void *x; /* NULL: nothing collected */
    uint64_t n;
    int root;
} fl_run;

static int fl_reduce_run(zt_zero *z, fl_run *run, ckpt_err *err)
{
    int rc = run->x ? zr_sum(z, run->x, z->model->dtype, run->n, run->root, err) : CKPT_OK;

    *run = (fl_run){0};
    return rc;
}

static int fl_collect(zt_zero *z, uint32_t param, void *x, fl_run *run, ckpt_err *err)
{
    const zr_place *at = &zr_of(z)->place[param];
    uint64_t slice = fl_of(z)->group[at->group].lay.slice;
    uint64_t n = z->model->params.at[param].n_elems, part;
    ckpt_dtype dt = z->model->dtype;
    int rc = CKPT_OK;

    for (uint64_t i = 0; i < n && rc == CKPT_OK; i += part) {
        int root = (int)((at->at + i) / slice);
        uint64_t left = slice - (at->at + i) % slice;
        void *from = zr_at(x, dt, i);

        assert(root < z->comm->world); // the padding belongs to the last rank
        part = n - i < left ? n - i : left;
        if (run->x && (run->root != root || zr_at(run->x, dt, run->n) != from))
            rc = fl_reduce_run(z, run, err);
        if (!run->x) {
            *run = (fl_run){.x = from, .root = root};
        }
        run->n += part;
    }
    return rc;
}

/* Reduce the bucket and distribute its parts. */
static int fl_flush(zt_zero *z, ckpt_err *err)
{
    zr_flat *f = fl_of(z);
    ckpt_dtype dt = z->model->dtype;
    bool reduce = z->config->stage == 2;
    fl_run run = {0};
    int rc = CKPT_OK;

    for (uint32_t i = 0; reduce && rc == CKPT_OK && i < f->n_pieces; i++)
        rc = fl_collect(z, f->piece[i].param, zr_at(f->bucket, dt, f->piece[i].at), &run, err);
    if (rc == CKPT_OK)
        rc = fl_reduce_run(z, &run, err);
    for (uint32_t i = 0; rc == CKPT_OK && i < f->n_pieces; i++)
        fl_keep(z, f->piece[i].param, zr_at(f->bucket, dt, f->piece[i].at), dt);
    f->fill = 0;
    f->n_pieces = 0;
    return rc;
}

/* Reserve memory for the gradients of a layer before its backward pass. */
static int fl_hold(zt_zero *z, uint32_t l, bool backward, ckpt_err *err)
{
    zr_flat *f = fl_of(z);
    const zt_layer *layer = &z->model->layers.at[l];
    int rc = CKPT_OK;

    if (!backward || f->resident)
        return CKPT_OK;
    if (f->fill > 0 && f->fill + fl_layer_elems(z, l) > f->limit)
        rc = fl_flush(z, err);
    for (uint32_t k = 0; k < layer->n_params; k++) {
        uint32_t i = layer->param[k];
        const zr_place *at = &zr_of(z)->place[i];
        zt_param *p = &z->model->params.at[i];

        if (at->group == ZR_NONE || at->last != l) {
            continue; // the parameter is frozen, or a later layer has begun its gradient
        }
        p->g_add = false;
        p->g = f->tied[i];
        if (!p->g) {
            assert(f->n_pieces < z->n_order && f->fill + p->n_elems <= f->room);
            p->g = zr_at(f->bucket, z->model->dtype, f->fill);
            f->piece[f->n_pieces++] = (fl_piece){.param = i, .at = f->fill};
            f->fill += p->n_elems;
        }
    }
    return rc;
}

/* Reduce the gradient of a parameter that several layers share; it has its own buffer. */
static int fl_reduce_tied(zt_zero *z, uint32_t param, ckpt_err *err)
{
    fl_run run = {0};
    int rc = CKPT_OK;

    if (z->config->stage == 2)
        rc = fl_collect(z, param, z->model->params.at[param].g, &run, err);
    return rc == CKPT_OK ? fl_reduce_run(z, &run, err) : rc;
}

/* After a layer: its gradients are complete, except those to which an earlier layer will add. */
static int fl_leave(zt_zero *z, uint32_t l, bool backward, ckpt_err *err)
{
    zr_flat *f = fl_of(z);
    const zt_layer *layer = &z->model->layers.at[l];
    ckpt_dtype dt = z->model->dtype;
    int rc = CKPT_OK;

    if (!backward || f->resident)
        return CKPT_OK;
    for (uint32_t k = 0; k < layer->n_params; k++) {
        uint32_t i = layer->param[k];
        zt_param *p = &z->model->params.at[i];

        if (zr_of(z)->place[i].group == ZR_NONE || zr_of(z)->place[i].first != l)
            continue;
        assert(p->g); // reserved before the pass of the last layer that uses it
        if (!p->g_add)
            z->device->ops->zero(z->device, p->g, zr_bytes(dt, p->n_elems));
        if (f->tied[i]) {
            rc = rc == CKPT_OK ? fl_reduce_tied(z, i, err) : rc;
            fl_keep(z, i, p->g, dt);
        }
        p->g = NULL;
    }
    return rc == CKPT_OK && z->config->stage == 1 ? fl_flush(z, err) : rc;
}

/* Reduce the rest of the bucket. */
static int fl_end(zt_zero *z, ckpt_err *err)
{
    return fl_of(z)->resident ? CKPT_OK : fl_flush(z, err);
}

/* ---- the optimizer step ---- */

/* Reduce resident gradients and accumulators, once per update; passing ones are already reduced. */
static int fl_reduce(zt_zero *z, ckpt_err *err)
{
    zr_own *o = zr_of(z);
    zr_flat *f = o->flat;
    int rc = CKPT_OK;

    for (uint32_t i = 0; f->resident && i < z->n_order; i++) {
        zt_param *p = &z->model->params.at[z->order[i]];

        if (!p->g_add) { // no layer has written the gradient
            z->device->ops->zero(z->device, p->g, zr_bytes(z->model->dtype, p->n_elems));
        }
    }
    for (uint32_t i = 0; i < z->n_groups && rc == CKPT_OK; i++) {
        fl_group *g = &f->group[i];

        if (z->config->stage == 0) {
            bool warm = z->config->optim.type != ZT_OPT_ONEBIT_ADAM ||
                        zt_onebit_warm(&z->config->optim, z->updates + 1);

            rc = warm ? zr_sum(z, g->g, z->model->dtype, g->lay.total, -1, err) : CKPT_OK;
        } else if (g->g || g->acc) {
            rc = zr_sum_scatter(z, g->g ? g->g : g->acc, o->grad_dtype, g->lay.slice, err);
        }
    }
    return rc;
}

/* Send every rank's updated slice to all others, in place. */
static int fl_publish(zt_zero *z, ckpt_err *err)
{
    ckpt_dtype dt = z->model->dtype;
    int rc = CKPT_OK;

    if (z->config->stage == 0 || z->comm->world == 1)
        return CKPT_OK;
    zr_ready(z);
    for (uint32_t i = 0; i < z->n_groups && rc == CKPT_OK; i++) {
        fl_group *g = &fl_of(z)->group[i];
        const void *mine = zr_at(g->w, dt, (uint64_t)z->comm->rank * g->lay.slice);

        if (g->lay.slice > 0)
            rc = z->wire->ops->all_gather(z->wire, g->w, mine, g->lay.slice, dt, err);
    }
    return rc;
}

/*
 * The run of a parameter inside this rank's slice; all of it at stage 0, because each rank updates
 * all.
 */
static void *fl_low(zt_zero *z, uint32_t param, uint64_t *first, uint64_t *count)
{
    zr_flat *f = fl_of(z);
    const zr_place *at = &zr_of(z)->place[param];
    uint64_t n = z->model->params.at[param].n_elems;
    ckpt_dtype dt = z->model->dtype;
    uint64_t begin = 0, end = UINT64_MAX;

    if (at->group == ZR_NONE) { // a frozen parameter: every rank has all of it
        *first = 0;
        *count = n;
        return zr_at(f->frozen, dt, f->frozen_at[param]);
    }
    const fl_group *g = &f->group[at->group];

    if (z->config->stage > 0) {
        begin = (uint64_t)z->comm->rank * g->lay.slice;
        end = begin + g->lay.slice;
    }
    uint64_t from = at->at > begin ? at->at : begin;
    uint64_t to = at->at + n < end ? at->at + n : end;

    *first = from - at->at;
    *count = from < to ? to - from : 0;
    return zr_at(g->w, dt, from);
}

static int fl_whole(zt_zero *z, uint32_t param, const void **out, ckpt_err *err)
{
    (void)err;
    *out = z->model->params.at[param].w;
    return CKPT_OK;
}

const zr_stage zr_flat_stage = {.setup = fl_setup,
                                .free = fl_free,
                                .hold = fl_hold,
                                .leave = fl_leave,
                                .begin = fl_begin,
                                .end = fl_end,
                                .reduce = fl_reduce,
                                .publish = fl_publish,
                                .low = fl_low,
                                .whole = fl_whole};
