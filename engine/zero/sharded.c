/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sharded.c: implements stage 3, in which every rank has a part of each parameter, and complete
 * parameters exist only while they are used.
 *
 * Weights: before a layer runs, its parameters are gathered into a pool, and the gather of the next
 * layer's begins.  After the layer they are dropped unless the next layer uses them too.  Small
 * ones (persistent) stay gathered.  Gradients: a layer writes complete gradients into a second
 * pool.  When the last layer that uses a parameter is done, they are reduce-scattered into this
 * rank's partition while the next layer computes.
 *
 * One rank gathers nothing: its layers work on the partitions themselves.
 */
#include <assert.h>
#include <string.h>

#include "engine/zero/own.h"
#include "engine/zero/pool.h"
#include "libckpt/map/zero_param.h"

#define SH_AWAY UINT64_MAX

typedef enum sh_where { SH_GONE, SH_COMING, SH_HERE } sh_where;

/* A collective under way. */
typedef struct sh_flight {
    uint32_t param;
    bool reduce; /* true: a reduction; false: a gather */
    bool direct; /* reduction: its result goes directly into the partition */
    uint64_t at; /* reduction: offset in the pool of gradients */
} sh_flight;

typedef struct zr_sharded {
    sh_where *where;       /* per parameter */
    uint64_t *w_at, *g_at; /* offsets in the pools; SH_AWAY: none */
    void **persistent;     /* complete weights of persistent parameters */
    void *frozen;          /* this rank's parts of frozen parameters */
    zr_pool w_pool, g_pool;
    char *w, *g;
    sh_flight flight[ZT_COMM_PENDING];
    uint32_t head, n_flights;
    uint64_t live;   /* elements of gathered parameters in the pool */
    bool frozen_out; /* the persistent frozen parameters are gathered */
    bool dry;        /* planning: compute offsets only */
    bool direct;     /* there is one rank, and gradients accumulate in the model's dtype */
} zr_sharded;

static zr_sharded *sh_of(const zt_zero *z)
{
    return zr_of(z)->sharded;
}

static const zr_place *sh_place(const zt_zero *z, uint32_t param)
{
    return &zr_of(z)->place[param];
}

/* Elements of a complete parameter, padded to equal chunks. */
static uint64_t sh_padded(const zt_zero *z, uint32_t param)
{
    return sh_place(z, param)->chunk * (uint64_t)z->comm->world;
}

/* This rank's part of the working weights. */
static void *sh_mine(const zt_zero *z, uint32_t param)
{
    const zr_place *p = sh_place(z, param);

    return zr_at(p->part == ZR_NONE ? sh_of(z)->frozen : z->part[p->part].low, z->model->dtype,
                 p->at);
}

/* True in the first micro step, in which gradients overwrite the partition instead of adding. */
static bool sh_first_micro(const zt_zero *z)
{
    return z->micro_steps % z->config->accumulation == 0;
}

/* ---- collectives under way ---- */

/* Add a parameter's reduced gradient from the pool to the partition. */
static void sh_add(zt_zero *z, const sh_flight *f)
{
    zr_own *o = zr_of(z);
    const zr_place *p = sh_place(z, f->param);
    ckpt_dtype c = z->config->comm_dtype;
    void *mine = zr_at(sh_of(z)->g + f->at, c, (uint64_t)z->comm->rank * p->chunk);
    zt_accumulate a = {.n = p->chunk,
                       .acc = zr_at(z->part[p->part].grad, o->grad_dtype, p->at),
                       .acc_dtype = o->grad_dtype,
                       .x = mine,
                       .x_dtype = c,
                       .factor = 1,
                       .add = !sh_first_micro(z)};

    assert(f->reduce && !f->direct && p->part < z->n_parts);
    zr_scale(z, c, p->chunk, mine, o->average.after);
    z->device->ops->accumulate(z->device, &a);
}

/* Wait for the oldest collective. */
static int sh_land(zt_zero *z, ckpt_err *err)
{
    zr_sharded *s = sh_of(z);
    sh_flight f = s->flight[s->head];
    int rc = s->dry || z->comm->world == 1 ? CKPT_OK : z->wire->ops->wait(z->wire, err);

    assert(s->n_flights > 0 && s->head < ZT_COMM_PENDING && f.param < z->model->params.n);
    s->head = (s->head + 1) % ZT_COMM_PENDING;
    s->n_flights--;
    if (!f.reduce) {
        s->where[f.param] = SH_HERE;
        return rc;
    }
    if (!s->dry && !f.direct)
        sh_add(z, &f);
    zr_pool_give(&s->g_pool, f.at);
    return rc;
}

/* Wait for all collectives. */
static int sh_land_all(zt_zero *z, ckpt_err *err)
{
    int rc = CKPT_OK;

    while (sh_of(z)->n_flights > 0 && rc == CKPT_OK)
        rc = sh_land(z, err);
    return rc;
}

/* Begin a collective; what NULL: dry run. */
static int sh_start(zt_zero *z, const sh_flight *f, const zt_collective *what, ckpt_err *err)
{
    zr_sharded *s = sh_of(z);
    int rc = CKPT_OK;

    if (s->n_flights == ZT_COMM_PENDING)
        rc = sh_land(z, err);
    assert(s->n_flights < ZT_COMM_PENDING && f->param < z->model->params.n);
    s->flight[(s->head + s->n_flights) % ZT_COMM_PENDING] = *f;
    s->n_flights++;
    if (rc == CKPT_OK && what && z->comm->world > 1) {
        zr_ready(z);
        rc = z->wire->ops->start(z->wire, what, err);
    }
    return rc;
}

/* ---- weights ---- */

/* Begin to gather a parameter into a buffer. */
static int sh_gather_to(zt_zero *z, uint32_t param, void *to, ckpt_err *err)
{
    sh_flight f = {.param = param};
    zt_collective c = {.kind = ZT_ALL_GATHER,
                       .to = to,
                       .from = sh_mine(z, param),
                       .n = sh_place(z, param)->chunk,
                       .dt = z->model->dtype};

    assert(to || sh_of(z)->dry);
    return sh_start(z, &f, sh_of(z)->dry ? NULL : &c, err);
}

/*
 * Begin to gather a parameter, unless that is done already or under way.  *room false: the pool is
 * full.
 */
static int sh_fetch(zt_zero *z, uint32_t param, bool *room, ckpt_err *err)
{
    zr_sharded *s = sh_of(z);

    *room = true;
    if (s->where[param] != SH_GONE)
        return CKPT_OK;
    uint64_t at = zr_pool_take(&s->w_pool, zr_bytes(z->model->dtype, sh_padded(z, param)));

    if (at == UINT64_MAX) {
        *room = false;
        return CKPT_OK;
    }
    s->w_at[param] = at;
    s->where[param] = SH_COMING;
    s->live += sh_padded(z, param);
    return sh_gather_to(z, param, s->dry ? NULL : s->w + at, err);
}

/* Drop a gathered parameter from the pool; persistent ones are not in it. */
static void sh_drop(zt_zero *z, uint32_t param)
{
    zr_sharded *s = sh_of(z);

    if (s->where[param] != SH_GONE && s->w_at[param] != SH_AWAY) {
        assert(s->where[param] == SH_HERE && s->live >= sh_padded(z, param));
        zr_pool_give(&s->w_pool, s->w_at[param]);
        s->w_at[param] = SH_AWAY;
        s->where[param] = SH_GONE;
        s->live -= sh_padded(z, param);
        z->model->params.at[param].w = NULL;
    }
}

/* The layer that runs after this one; false: none. */
static bool sh_next(const zt_zero *z, uint32_t l, bool backward, uint32_t *next)
{
    assert(l < z->model->layers.n);
    if (backward) {
        *next = l - 1;
        return l > 0;
    }
    if (l + 1 < z->model->layers.n) {
        *next = l + 1;
        return true;
    }
    *next = l;
    return zr_of(z)->training;
}

/* A linear search, which is cheaper than a table because layers use few parameters. */
static bool sh_uses(const zt_layer *layer, uint32_t param)
{
    for (uint32_t k = 0; k < layer->n_params; k++) {
        if (layer->param[k] == param)
            return true;
    }
    return false;
}

/* Gather all parameters of layer l, and wait for them. */
static int sh_need(zt_zero *z, uint32_t l, ckpt_err *err)
{
    zr_sharded *s = sh_of(z);
    const zt_layer *layer = &z->model->layers.at[l];
    bool room = true;
    int rc = CKPT_OK;

    for (uint32_t k = 0; k < layer->n_params && rc == CKPT_OK; k++) {
        rc = sh_fetch(z, layer->param[k], &room, err);
        if (rc == CKPT_OK && !room)
            rc = ckpt_fail(err, CKPT_ELIMIT, "%s: the planned pool of weights is too small",
                           layer->name);
    }
    for (uint32_t k = 0; k < layer->n_params && rc == CKPT_OK; k++) {
        uint32_t p = layer->param[k];

        while (s->where[p] != SH_HERE && rc == CKPT_OK)
            rc = sh_land(z, err);
        if (!s->dry && s->w_at[p] != SH_AWAY)
            z->model->params.at[p].w = s->w + s->w_at[p];
    }
    return rc;
}

/* Begin to gather the next layer's parameters, within stage3_prefetch_bucket_size and
 * stage3_max_live_parameters. */
static int sh_prefetch(zt_zero *z, uint32_t l, bool backward, ckpt_err *err)
{
    zr_sharded *s = sh_of(z);
    uint64_t budget = z->config->prefetch_bucket;
    uint32_t next;
    bool room = true;
    int rc = CKPT_OK;

    if (!sh_next(z, l, backward, &next))
        return CKPT_OK;
    const zt_layer *layer = &z->model->layers.at[next];

    for (uint32_t k = 0; k < layer->n_params && rc == CKPT_OK && room; k++) {
        uint64_t n = sh_padded(z, layer->param[k]);

        if (s->where[layer->param[k]] != SH_GONE)
            continue;
        if (n > budget || s->live + n > z->config->max_live)
            break;
        budget -= n;
        rc = sh_fetch(z, layer->param[k], &room, err);
    }
    return rc;
}

/* ---- gradients ---- */

/* Reserve memory for those gradients of a layer that no later layer has begun. */
static int sh_open(zt_zero *z, uint32_t l, ckpt_err *err)
{
    zr_sharded *s = sh_of(z);
    const zt_layer *layer = &z->model->layers.at[l];
    ckpt_dtype dt = z->model->dtype;

    for (uint32_t k = 0; k < layer->n_params; k++) {
        uint32_t i = layer->param[k];
        zt_param *p = &z->model->params.at[i];
        uint64_t padded = sh_padded(z, i);

        if (sh_place(z, i)->group == ZR_NONE || sh_place(z, i)->last != l)
            continue;
        s->g_at[i] = zr_pool_take(&s->g_pool, zr_bytes(dt, padded));
        if (s->g_at[i] == UINT64_MAX)
            return ckpt_fail(err, CKPT_ELIMIT, "%s: the planned pool of gradients is too small",
                             p->name);
        if (!s->dry) {
            p->g = s->g + s->g_at[i];
            p->g_add = false;
            // layers do not write the last rank's padding, which must not add to the norm
            z->device->ops->zero(z->device, zr_at(p->g, dt, p->n_elems),
                                 zr_bytes(dt, padded - p->n_elems));
        }
    }
    return CKPT_OK;
}

/* Copy a gradient to the communication dtype, if that is another one, in memory of its own. */
static int sh_cast(zt_zero *z, uint32_t param, ckpt_err *err)
{
    zr_sharded *s = sh_of(z);
    ckpt_dtype dt = z->model->dtype, c = z->config->comm_dtype;
    uint64_t padded = sh_padded(z, param), at;

    if (c == dt)
        return CKPT_OK;
    at = zr_pool_take(&s->g_pool, zr_bytes(c, padded));
    if (at == UINT64_MAX)
        return ckpt_fail(err, CKPT_ELIMIT, "the planned pool of gradients is too small");
    if (!s->dry)
        z->device->ops->cast(z->device, padded, s->g + at, c, s->g + s->g_at[param], dt);
    zr_pool_give(&s->g_pool, s->g_at[param]);
    s->g_at[param] = at;
    return CKPT_OK;
}

/* A gradient is complete: begin its mean over ranks. */
static int sh_send(zt_zero *z, uint32_t param, ckpt_err *err)
{
    zr_own *o = zr_of(z);
    zr_sharded *s = o->sharded;
    const zr_place *at = sh_place(z, param);
    zt_param *p = &z->model->params.at[param];
    ckpt_dtype c = z->config->comm_dtype;
    int rc;

    assert(at->part < z->n_parts && s->g_at[param] != SH_AWAY);
    if (!s->dry && !p->g_add) { // no layer has written it
        z->device->ops->zero(z->device, p->g, zr_bytes(z->model->dtype, p->n_elems));
    }
    rc = sh_cast(z, param, err);
    if (rc != CKPT_OK)
        return rc;
    sh_flight f = {.param = param, .reduce = true, .at = s->g_at[param]};

    s->g_at[param] = SH_AWAY;
    if (s->dry)
        return sh_start(z, &f, NULL, err);
    void *whole = s->g + f.at;
    zt_collective what = {.kind = ZT_REDUCE_SCATTER, .from = whole, .n = at->chunk, .dt = c};

    p->g = NULL;
    zr_scale(z, c, sh_padded(z, param), whole, o->average.before[0]);
    zr_scale(z, c, sh_padded(z, param), whole, o->average.before[1]);
    f.direct = z->comm->world > 1 && c == o->grad_dtype && sh_first_micro(z) &&
               !(o->average.after < 1 || o->average.after > 1);
    what.to = f.direct ? zr_at(z->part[at->part].grad, c, at->at)
                       : zr_at(whole, c, (uint64_t)z->comm->rank * at->chunk);
    return sh_start(z, &f, &what, err);
}

/* After a layer's backward pass: wait for the last layer's reductions, begin this layer's. */
static int sh_send_layer(zt_zero *z, uint32_t l, ckpt_err *err)
{
    zr_sharded *s = sh_of(z);
    const zt_layer *layer = &z->model->layers.at[l];
    uint32_t n_reduce = 0;
    int rc = CKPT_OK;

    for (uint32_t i = 0; i < s->n_flights; i++)
        n_reduce += s->flight[(s->head + i) % ZT_COMM_PENDING].reduce;
    while (n_reduce > 0 && rc == CKPT_OK) {
        n_reduce -= s->flight[s->head].reduce;
        rc = sh_land(z, err);
    }
    for (uint32_t k = 0; k < layer->n_params && rc == CKPT_OK; k++) {
        uint32_t i = layer->param[k];

        if (sh_place(z, i)->group != ZR_NONE && sh_place(z, i)->first == l)
            rc = sh_send(z, i, err);
    }
    return rc;
}

/* ---- around a layer ---- */

/* Before a layer: wait for its weights, begin to gather the next layer's, reserve gradients. */
static int sh_hold(zt_zero *z, uint32_t l, bool backward, ckpt_err *err)
{
    zr_sharded *s = sh_of(z);
    int rc = CKPT_OK;

    if (z->comm->world > 1) {
        rc = sh_need(z, l, err);
        rc = rc == CKPT_OK ? sh_prefetch(z, l, backward, err) : rc;
    }
    return rc == CKPT_OK && backward && !s->direct ? sh_open(z, l, err) : rc;
}

/*
 * After a layer: begin to reduce its gradients, and drop weights unless the next layer uses them.
 */
static int sh_leave(zt_zero *z, uint32_t l, bool backward, ckpt_err *err)
{
    zr_sharded *s = sh_of(z);
    const zt_layer *layer = &z->model->layers.at[l];
    uint32_t next = 0;
    bool more = sh_next(z, l, backward, &next);
    int rc = backward && !s->direct ? sh_send_layer(z, l, err) : CKPT_OK;

    for (uint32_t k = 0; k < layer->n_params && z->comm->world > 1; k++) {
        uint32_t i = layer->param[k];

        if (!s->persistent[i] && !(more && sh_uses(&z->model->layers.at[next], i)))
            sh_drop(z, i);
    }
    return rc;
}

/* On one rank gradients go directly into the partitions. */
static int sh_begin(zt_zero *z, ckpt_err *err)
{
    (void)err;
    for (uint32_t i = 0; sh_of(z)->direct && i < z->n_order; i++) {
        zt_param *p = &z->model->params.at[z->order[i]];

        p->g_add = p->g_add && !sh_first_micro(z);
    }
    return CKPT_OK;
}

/* Wait for the last layer's gradients. */
static int sh_end(zt_zero *z, ckpt_err *err)
{
    zr_files_cool(z);
    return sh_land_all(z, err);
}

/* Gradients are reduced already; on one rank zero those that no layer has written. */
static int sh_reduce(zt_zero *z, ckpt_err *err)
{
    (void)err;
    for (uint32_t i = 0; sh_of(z)->direct && i < z->n_order; i++) {
        zt_param *p = &z->model->params.at[z->order[i]];

        if (!p->g_add)
            z->device->ops->zero(z->device, p->g, zr_bytes(z->model->dtype, p->n_elems));
    }
    return CKPT_OK;
}

/* Gather the persistent parameters after an update; the others are gathered when they are used. */
static int sh_publish(zt_zero *z, ckpt_err *err)
{
    zr_sharded *s = sh_of(z);
    int rc = CKPT_OK;

    for (uint32_t i = 0; i < z->model->params.n && rc == CKPT_OK; i++) {
        if (s->persistent[i] && (zr_is_trained(z, i) || !s->frozen_out))
            rc = sh_gather_to(z, i, s->persistent[i], err);
    }
    rc = rc == CKPT_OK ? sh_land_all(z, err) : rc;
    s->frozen_out = true;
    zr_files_cool(z);
    return rc;
}

/* This rank's chunk of a parameter, without padding. */
static void *sh_low(zt_zero *z, uint32_t param, uint64_t *first, uint64_t *count)
{
    const zr_place *p = sh_place(z, param);
    uint64_t n = z->model->params.at[param].n_elems;

    if (p->group == ZR_NONE) {
        sh_of(z)->frozen_out = false; // the caller is about to change its values
    }
    *first = (uint64_t)z->comm->rank * p->chunk;
    *count = *first >= n ? 0 : n - *first < p->chunk ? n - *first : p->chunk;
    return sh_mine(z, param);
}

/* Get a complete parameter for saves and inspection; all ranks must call it. */
static int sh_whole(zt_zero *z, uint32_t param, const void **out, ckpt_err *err)
{
    zr_sharded *s = sh_of(z);
    const zr_place *p = sh_place(z, param);

    *out = z->comm->world == 1 ? sh_mine(z, param) : s->persistent[param];
    if (*out || p->chunk == 0)
        return CKPT_OK;
    *out = s->w; // the pool is empty between steps and has room for any parameter
    zr_ready(z);
    return z->wire->ops->all_gather(z->wire, s->w, sh_mine(z, param), p->chunk, z->model->dtype,
                                    err);
}

/* ---- setting up ---- */

/* Divide a parameter group into sub-groups: partitions, and offsets in them. */
static int sh_sub_groups(zt_zero *z, uint32_t group, uint32_t *next, ckpt_err *err)
{
    const zt_group *g = &z->group[group];
    uint64_t *numel = ckpt_alloc(g->n * sizeof *numel);
    uint32_t *sub = ckpt_alloc(g->n * sizeof *sub);
    uint32_t world = (uint32_t)z->comm->world;

    if (!numel || !sub) {
        ckpt_free(numel);
        ckpt_free(sub);
        return ckpt_fail_memory(err);
    }
    for (uint32_t k = 0; k < g->n; k++)
        numel[k] = z->model->params.at[z->order[g->first + k]].n_elems;
    ckpt_zero_sub_groups(numel, g->n, world, z->config->sub_group_size, sub, next);
    assert(*next <= z->n_order); // no sub-group is empty
    for (uint32_t k = 0; k < g->n; k++) {
        zt_partition *p = &z->part[sub[k]];
        zr_place *at = &zr_of(z)->place[z->order[g->first + k]];

        if (p->n == 0) {
            p->first = g->first + k;
            p->group = group;
        }
        at->part = sub[k];
        at->at = p->n_elems;
        at->chunk = ckpt_zero_partition(numel[k], world);
        p->n_elems += at->chunk;
        p->n++;
    }
    ckpt_free(numel);
    ckpt_free(sub);
    return CKPT_OK;
}

/* Allocate partition i: weights, gradients, and masters and state unless they are in files. */
static int sh_buffers(zt_zero *z, uint32_t i, ckpt_err *err)
{
    zr_own *o = zr_of(z);
    zt_partition *p = &z->part[i];
    uint64_t n_bytes = zr_bytes(z->model->dtype, p->n_elems);

    p->low = o->mapped ? zr_files_low(z, n_bytes, i, err)
                       : zr_alloc(z, n_bytes, &o->memory.weights, true);
    if (o->mapped && !p->low)
        return zr_code(err);
    p->grad = zr_alloc(z, zr_bytes(o->grad_dtype, p->n_elems), &o->memory.gradients, true);
    if (o->swapped)
        return CKPT_OK;
    p->master = o->alias ? p->low : zr_alloc_home(z, 4 * p->n_elems, &o->memory.masters);
    for (unsigned s = 0; s < z->config->optim.n_state; s++)
        p->state[s] = zr_alloc_home(z, 4 * p->n_elems, &o->memory.state);
    return CKPT_OK;
}

/* Allocate this rank's parts of frozen parameters; they have no masters. */
static void sh_frozen(zt_zero *z)
{
    zr_own *o = zr_of(z);
    uint64_t n = 0;

    for (uint32_t i = 0; i < z->model->params.n; i++) {
        zr_place *p = &o->place[i];

        if (p->group == ZR_NONE) {
            p->chunk =
                ckpt_zero_partition(z->model->params.at[i].n_elems, (uint32_t)z->comm->world);
            p->at = n;
            n += p->chunk;
        }
    }
    if (n > 0)
        o->sharded->frozen = zr_alloc(z, zr_bytes(z->model->dtype, n), &o->memory.weights, true);
}

/*
 * Choose the parameters that stay gathered: at most stage3_param_persistence_threshold elements
 * each.
 */
static void sh_persist(zt_zero *z)
{
    zr_own *o = zr_of(z);
    zr_sharded *s = o->sharded;
    uint64_t left = z->config->model_persistence;

    for (uint32_t i = 0; i < z->model->params.n && z->comm->world > 1; i++) {
        uint64_t n = z->model->params.at[i].n_elems;

        if (n == 0 || n > z->config->persistence || n > left)
            continue;
        left -= n;
        o->place[i].persistent = true;
        s->where[i] = SH_HERE;
        s->persistent[i] =
            zr_alloc(z, zr_bytes(z->model->dtype, sh_padded(z, i)), &o->memory.buffers, true);
    }
}

/* Dry run of a micro step, to find the sizes of the pools. */
static int sh_plan(zt_zero *z, ckpt_err *err)
{
    zr_own *o = zr_of(z);
    zr_sharded *s = o->sharded;
    const uint32_t n = (uint32_t)z->model->layers.n, later = zt_model_later(z->model);
    // a forward pass, one of generation, and one with its backward pass
    const uint32_t from[] = {0, later, 0}, to[] = {n, n, 2 * n};
    int rc = CKPT_OK;

    s->dry = true;
    for (unsigned i = 0; i < 3; i++) {
        o->training = i == 2;
        for (uint32_t k = from[i]; k < to[i] && rc == CKPT_OK; k++) {
            uint32_t l = k < n ? k : 2 * n - 1 - k;

            rc = sh_hold(z, l, k >= n, err);
            rc = rc == CKPT_OK ? sh_leave(z, l, k >= n, err) : rc;
        }
        rc = rc == CKPT_OK ? sh_land_all(z, err) : rc;
    }
    o->training = false;
    s->dry = false;
    return rc;
}

/* Allocate the pools with the planned sizes. */
static int sh_pools(zt_zero *z, ckpt_err *err)
{
    zr_own *o = zr_of(z);
    zr_sharded *s = o->sharded;
    uint64_t most = s->w_pool.peak;

    for (uint32_t i = 0; i < z->model->params.n; i++) {
        uint64_t n = zr_bytes(z->model->dtype, sh_padded(z, i));

        most = !s->persistent[i] && n > most ? n : most;
    }
    if (z->comm->world > 1) {
        s->w = zr_alloc(z, most, &o->memory.buffers, true);
        s->w_pool.limit = most;
    }
    if (!s->direct) {
        s->g_pool.limit = s->g_pool.peak;
        s->g = zr_alloc(z, s->g_pool.peak, &o->memory.buffers, true);
    }
    if (s->w_pool.n + s->g_pool.n > 0)
        return ckpt_fail(err, CKPT_ELIMIT, "the plan of a step leaves gathered parameters behind");
    return CKPT_OK;
}

/* Set the pointers that never change. */
static void sh_point(zt_zero *z)
{
    zr_sharded *s = sh_of(z);

    for (uint32_t i = 0; i < z->model->params.n; i++) {
        zt_param *p = &z->model->params.at[i];
        const zr_place *at = sh_place(z, i);

        p->w = z->comm->world == 1 ? sh_mine(z, i) : s->persistent[i];
        p->g = s->direct && at->group != ZR_NONE
                   ? zr_at(z->part[at->part].grad, z->model->dtype, at->at)
                   : NULL;
        p->g_add = false;
    }
}

/* Allocate the tables by parameter; no parameter is gathered yet. */
static int sh_tables(zt_zero *z, ckpt_err *err)
{
    size_t n = z->model->params.n + 1;
    zr_sharded *s = ckpt_alloc(sizeof *s);

    zr_of(z)->sharded = s;
    z->part = ckpt_alloc(((size_t)z->n_order + 1) * sizeof *z->part);
    if (!s || !z->part)
        return ckpt_fail_memory(err);
    s->where = ckpt_alloc(n * sizeof *s->where);
    s->w_at = ckpt_alloc(n * sizeof *s->w_at);
    s->g_at = ckpt_alloc(n * sizeof *s->g_at);
    s->persistent = ckpt_alloc(n * sizeof *s->persistent);
    if (!s->where || !s->w_at || !s->g_at || !s->persistent)
        return ckpt_fail_memory(err);
    memset(s->w_at, 0xff, n * sizeof *s->w_at);
    memset(s->g_at, 0xff, n * sizeof *s->g_at);
    s->direct = z->comm->world == 1 && zr_of(z)->grad_dtype == z->model->dtype;
    int rc = zr_pool_new(&s->w_pool, (uint32_t)n, err);

    return rc == CKPT_OK ? zr_pool_new(&s->g_pool, (uint32_t)(2 * n), err) : rc;
}

/* Set up partitions first, then persistent parameters, then plan the pools. */
static int sh_setup(zt_zero *z, ckpt_err *err)
{
    zr_own *o = zr_of(z);
    int rc = sh_tables(z, err);

    for (uint32_t i = 0; i < z->n_groups && rc == CKPT_OK; i++)
        rc = sh_sub_groups(z, i, &z->n_parts, err);
    if (rc != CKPT_OK)
        return rc;
    for (uint32_t i = 0; i < z->n_parts && rc == CKPT_OK; i++)
        rc = sh_buffers(z, i, err);
    rc = zt_comm_agree(z->comm, rc, err);
    if (rc != CKPT_OK)
        return rc;
    sh_frozen(z);
    sh_persist(z);
    if (!o->failed) {
        rc = sh_plan(z, err);
        rc = rc == CKPT_OK ? sh_pools(z, err) : rc;
    }
    if (rc == CKPT_OK && !o->failed)
        sh_point(z);
    return rc;
}

static void sh_free(zt_zero *z)
{
    zr_sharded *s = sh_of(z);

    if (!s)
        return;
    ckpt_free(s->where);
    ckpt_free(s->w_at);
    ckpt_free(s->g_at);
    ckpt_free(s->persistent);
    zr_pool_free(&s->w_pool);
    zr_pool_free(&s->g_pool);
    ckpt_free(s);
    zr_of(z)->sharded = NULL;
}

const zr_stage zr_sharded_stage = {.setup = sh_setup,
                                   .free = sh_free,
                                   .hold = sh_hold,
                                   .leave = sh_leave,
                                   .begin = sh_begin,
                                   .end = sh_end,
                                   .reduce = sh_reduce,
                                   .publish = sh_publish,
                                   .low = sh_low,
                                   .whole = sh_whole};
