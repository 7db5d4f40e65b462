/* SPDX-License-Identifier: Apache-2.0 */
/*
 * live.c: describes a run's memory as a checkpoint map: partitions, working weights, and which
 * parts other ranks hold.
 */
#include "engine/save/live.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/map/map.h"
#include "libckpt/map/zero_param.h"

/* ---- an image ---- */

/* Allocate a buffer that lives as long as the image; NULL: out of memory. */
static void *lv_alloc(zt_image *m, uint64_t n_bytes)
{
    if (m->n_own == m->room) {
        size_t room = m->room ? 2 * m->room : 16;
        void **own = ckpt_resize(m->own, room * sizeof *own);
        if (!own)
            return NULL;
        m->own = own;
        m->room = room;
    }
    void *p = n_bytes < SIZE_MAX ? ckpt_alloc(n_bytes ? (size_t)n_bytes : 1) : NULL;
    if (p)
        m->own[m->n_own++] = p;
    return p;
}

static uint64_t lv_bytes(const zt_image *m, uint64_t n)
{
    return n * (ckpt_dtype_get(m->zero->config->dtype)->bits / 8);
}

/* Hold the masters and states of one partition until the image is dropped, or copy them. */
static int lv_take_part(zt_image *m, uint32_t i, bool copy, ckpt_err *err)
{
    const zt_partition *p = &m->zero->part[i];
    zt_device *home = zt_zero_home(m->zero);
    const float *from[3];
    int rc = zt_zero_hold(m->zero, i, err);

    if (rc != CKPT_OK)
        return rc;
    assert(copy || m->n_held == i); // partitions are let go in reverse order
    m->n_held = i + 1;
    from[0] = p->master;
    from[1] = p->state[0];
    from[2] = p->state[1];
    for (unsigned k = 0; copy && k < 3; k++) {
        float *own = from[k] ? lv_alloc(m, p->n_elems * sizeof *own) : NULL;
        if (from[k] && !own)
            return ckpt_fail_memory(err);
        if (own)
            home->ops->get(home, own, from[k], p->n_elems * sizeof *own);
        from[k] = own;
    }
    m->master[i] = from[0];
    m->state[0][i] = from[1];
    m->state[1][i] = from[2];
    rc = zt_device_check(home, err);
    if (!copy || rc != CKPT_OK)
        return rc;
    m->n_held = i;
    return zt_zero_let_go(m->zero, i, false, err);
}

static void lv_let_go(zt_image *m)
{
    while (m->n_held > 0)
        (void)zt_zero_let_go(m->zero, --m->n_held, false, NULL);
}

/* Take the tables and partitions of this rank. */
static int lv_take_parts(zt_image *m, bool copy, ckpt_err *err)
{
    size_t n = (size_t)m->zero->n_parts + 1;
    int rc = CKPT_OK;

    m->home = copy ? NULL : zt_zero_home(m->zero);
    m->master = ckpt_alloc(n * sizeof *m->master);
    m->state[0] = ckpt_alloc(n * sizeof *m->master);
    m->state[1] = ckpt_alloc(n * sizeof *m->master);
    m->low = ckpt_alloc((m->zero->model->params.n + 1) * sizeof *m->low);
    m->whole = ckpt_alloc((m->zero->model->params.n + 1) * sizeof *m->whole);
    if (!m->master || !m->state[0] || !m->state[1] || !m->low || !m->whole)
        return ckpt_fail_memory(err);
    for (uint32_t i = 0; rc == CKPT_OK && i < m->zero->n_parts; i++)
        rc = lv_take_part(m, i, copy, err);
    return rc;
}

/* The run of a parameter's working weights that this rank must write. */
static zt_low lv_wanted(const zt_image *m, const zt_param *p, bool model)
{
    const zt_comm *c = m->zero->comm;
    zt_low low = {.count = p->n_elems};

    if (m->zero->config->stage == 3) {
        // stage 3 files have placeholders for trained parameters; frozen ones are divided over the
        // ranks
        uint64_t n = ckpt_zero_partition(p->n_elems, (uint32_t)c->world);
        low.first = n * (uint64_t)c->rank < p->n_elems ? n * (uint64_t)c->rank : p->n_elems;
        low.count = p->frozen ? p->n_elems - low.first : 0;
        low.count = low.count < n ? low.count : n;
    } else if (!model || (m->zero->config->stage == 0 && !p->frozen)) {
        low.count = 0; // at stage 0 every rank has all masters, which round to the weights
    }
    return low;
}

/*
 * True if a parameter's weights are copied.  At stage 3 all ranks must take part in it, because
 * they gather.
 */
static bool lv_gathered(const zt_image *m, size_t i)
{
    const zt_low *low = &m->low[i];

    return m->zero->config->stage == 3 ? m->zero->model->params.at[i].frozen
                                       : low->at && !low->device;
}

/* Allocate memory for copied working weights, and for one complete parameter. */
static int lv_make_room(zt_image *m, bool model, bool copy, void **whole, ckpt_err *err)
{
    const zt_params *params = &m->zero->model->params;
    uint64_t longest = 0;

    for (size_t i = 0; i < params->n; i++) {
        zt_low *low = &m->low[i];
        uint64_t n = params->at[i].n_elems;
        *low = lv_wanted(m, &params->at[i], model);
        if (low->count && !copy && m->zero->config->stage < 3) {
            low->at = (void *)(uintptr_t)params->at[i].w; // only read
            low->device = m->zero->device;
        } else if (low->count) {
            low->at = lv_alloc(m, lv_bytes(m, low->count));
        }
        if (low->count && !low->at)
            return ckpt_fail_memory(err);
        if (lv_gathered(m, i) && low->count < n)
            longest = n > longest ? n : longest;
    }
    *whole = longest ? lv_alloc(m, lv_bytes(m, longest)) : NULL;
    return longest && !*whole ? ckpt_fail_memory(err) : CKPT_OK;
}

static int lv_gather(zt_image *m, void *whole, ckpt_err *err)
{
    const zt_params *params = &m->zero->model->params;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < params->n; i++) {
        const zt_low *low = &m->low[i];
        bool cut = low->count < params->at[i].n_elems;
        if (!lv_gathered(m, i))
            continue;
        rc = zt_zero_gather(m->zero, (uint32_t)i, cut ? whole : low->at, err);
        if (rc == CKPT_OK && cut && low->at)
            memcpy(low->at, (const uint8_t *)whole + lv_bytes(m, low->first),
                   (size_t)lv_bytes(m, low->count));
    }
    return rc;
}

/* ---- momentum of matrices that span several ranks ---- */

/*
 * True if files store momentum without dividing it, because DeepSpeed keeps a copy on each rank
 * (libckpt/map/zero_flat.h).
 */
static bool lv_has_wholes(const zt_zero *z)
{
    const zt_config *c = z->config;

    return c->optim.type == ZT_OPT_MUON && (c->stage == 1 || c->stage == 2) && z->comm->world > 1 &&
           !zt_config_is_bf16_optimizer(c) && c->offload_optimizer.place == ZT_ON_DEVICE;
}

/* This rank's run of a parameter; NULL: it has none. */
static const zt_owned *lv_owned(const zt_zero *z, uint32_t param)
{
    size_t n = 0;
    const zt_owned *o = zt_zero_owned(z, &n);

    for (size_t i = 0; i < n; i++) {
        if (o[i].param == param)
            return &o[i];
    }
    return NULL;
}

/* Assemble the momentum of one matrix by summing buffers that are zero outside each rank's run. */
static int lv_whole(zt_image *m, uint32_t param, ckpt_err *err)
{
    zt_zero *z = m->zero;
    const zt_owned *o = lv_owned(z, param);
    uint64_t n = z->model->params.at[param].n_elems;
    float *at = o ? lv_alloc(m, n * sizeof *at) : ckpt_alloc((size_t)n * sizeof *at);
    int rc = zt_comm_agree(z->comm, at ? CKPT_OK : ckpt_fail_memory(err), err);

    if (rc == CKPT_OK)
        memset(at, 0, (size_t)n * sizeof *at);
    if (rc == CKPT_OK && o && m->home && !m->home->host)
        m->home->ops->get(m->home, at + o->first, m->state[0][o->partition] + o->at,
                          o->count * sizeof *at);
    else if (rc == CKPT_OK && o)
        memcpy(at + o->first, m->state[0][o->partition] + o->at, (size_t)o->count * sizeof *at);
    if (rc == CKPT_OK)
        rc = z->comm->ops->all_reduce(z->comm, at, n, CKPT_F32, ZT_SUM, err);
    if (o)
        m->whole[param] = at;
    else
        ckpt_free(at);
    return rc;
}

/* Assemble all matrices that span ranks; all ranks find the same ones. */
static int lv_wholes(zt_image *m, ckpt_err *err)
{
    const zt_zero *z = m->zero;
    int rc = CKPT_OK;

    for (uint32_t g = 0; g < z->n_groups && lv_has_wholes(z); g++) {
        // every rank has one partition per group, of equal length
        uint64_t slice = z->part[g].n_elems, at = 0;
        for (uint32_t i = 0; rc == CKPT_OK && z->group[g].muon && i < z->group[g].n; i++) {
            uint32_t param = z->order[z->group[g].first + i];
            uint64_t n = z->model->params.at[param].n_elems;
            if (at / slice != (at + n - 1) / slice)
                rc = lv_whole(m, param, err);
            at += n;
        }
    }
    return rc;
}

int zt_image_take(zt_image *m, zt_zero *zero, bool model, bool copy, ckpt_err *err)
{
    void *whole = NULL;
    int rc;

    *m = (zt_image){.zero = zero};
    rc = lv_take_parts(m, copy, err);
    if (rc == CKPT_OK)
        rc = lv_make_room(m, model, copy, &whole, err);
    rc = zt_comm_agree(zero->comm, rc, err);
    if (rc == CKPT_OK)
        rc = zt_comm_agree(zero->comm, lv_gather(m, whole, err), err);
    if (rc == CKPT_OK)
        rc = zt_comm_agree(zero->comm, lv_wholes(m, err), err);
    if (rc != CKPT_OK)
        zt_image_drop(m);
    return rc;
}

void zt_image_drop(zt_image *m)
{
    if (m->zero)
        lv_let_go(m);
    for (size_t i = 0; i < m->n_own; i++)
        ckpt_free(m->own[i]);
    ckpt_free(m->own);
    ckpt_free(m->master);
    ckpt_free(m->state[0]);
    ckpt_free(m->state[1]);
    ckpt_free(m->low);
    ckpt_free(m->whole);
    *m = (zt_image){0};
}

/* ---- the map ---- */

CKPT_VEC(lv_extents, ckpt_extent);
CKPT_VEC(lv_axes, ckpt_axis);

typedef struct lv_maker {
    const zt_image *image;
    ckpt_map *map;
    ckpt_err *err;
    zt_owned *owned; /* sorted by parameter and element */
    size_t n_owned;
    uint32_t elsewhere; /* source of elements on other ranks */
    uint32_t *column;   /* sources of masters and two states per partition; UINT32_MAX: none */
    lv_extents extent;
    lv_axes axis;
} lv_maker;

static int lv_by_place(const void *pa, const void *pb)
{
    const zt_owned *a = pa, *b = pb;

    if (a->param != b->param)
        return a->param < b->param ? -1 : 1;
    return (a->first > b->first) - (a->first < b->first);
}

/* A source in the memory of a device that is not the host's; in the map's arena. */
typedef struct lv_far {
    ckpt_far far; /* first, so a ckpt_far * can be cast to lv_far * */
    zt_device *device;
    const char *at;
} lv_far;

/* Reading threads take turns, because only one may use the device at a time. */
static pthread_mutex_t lv_turn = PTHREAD_MUTEX_INITIALIZER;

static int lv_read(const ckpt_far *far, void *to, uint64_t n, uint64_t at, ckpt_err *err)
{
    const lv_far *f = (const lv_far *)(const void *)far;
    int rc;

    pthread_mutex_lock(&lv_turn);
    f->device->ops->get(f->device, to, f->at + at, n);
    rc = zt_device_check(f->device, err);
    pthread_mutex_unlock(&lv_turn);
    return rc;
}

/* Add a source of n_bytes in the memory of a device (NULL: of the host). */
static int lv_source(lv_maker *k, zt_device *of, const void *at, uint64_t n_bytes, uint32_t *index)
{
    ckpt_source s = {.kind = CKPT_SOURCE_MEMORY, .n_bytes = n_bytes, .n_stored = n_bytes};

    s.memory = (void *)(uintptr_t)at;
    s.name = "live memory";
    if (of && !of->host) {
        lv_far *far = ckpt_arena_alloc(k->map->arena, sizeof *far);
        if (!far)
            return ckpt_fail_memory(k->err);
        *far = (lv_far){.far = {.read = lv_read}, .device = of, .at = at};
        s.kind = CKPT_SOURCE_FAR;
        s.memory = far;
    }
    return ckpt_map_add_source(k->map, &s, index, k->err);
}

/* Add sources for all partitions, and one for elements on other ranks. */
static int lv_sources(lv_maker *k)
{
    const zt_image *m = k->image;
    ckpt_source other = {.kind = CKPT_SOURCE_ELSEWHERE, .n_bytes = UINT64_MAX};
    uint32_t n = m->zero->n_parts;
    int rc;

    other.name = "memory of other ranks";
    rc = ckpt_map_add_source(k->map, &other, &k->elsewhere, k->err);
    k->column = ckpt_alloc(((size_t)n * 3 + 1) * sizeof *k->column);
    if (rc == CKPT_OK && !k->column)
        rc = ckpt_fail_memory(k->err);
    for (uint32_t i = 0; rc == CKPT_OK && i < n; i++) {
        const float *at[3] = {m->master[i], m->state[0][i], m->state[1][i]};
        for (unsigned c = 0; rc == CKPT_OK && c < 3; c++) {
            k->column[3 * i + c] = UINT32_MAX;
            if (at[c])
                rc = lv_source(k, m->home, at[c], m->zero->part[i].n_elems * sizeof(float),
                               &k->column[3 * i + c]);
        }
    }
    return rc;
}

/* Add an extent for elements first..first+count of the tensor: in a source, from byte `at` on. */
static int lv_run(lv_maker *k, uint32_t source, uint64_t at, uint64_t first, uint64_t count,
                  uint64_t item)
{
    ckpt_extent *e = ckpt_vec_push(&k->extent);
    ckpt_axis *a = ckpt_vec_push(&k->axis);

    if (!e || !a)
        return ckpt_fail_memory(k->err);
    assert(count > 0 && k->extent.n == k->axis.n);
    *a = (ckpt_axis){first, count, (int64_t)item};
    *e = (ckpt_extent){.source = source, .ndim = 1, .at = at};
    return CKPT_OK;
}

static int lv_back(lv_maker *k, ckpt_tensor *t)
{
    for (size_t i = 0; i < k->extent.n; i++)
        k->extent.at[i].axis = &k->axis.at[i];
    int rc = ckpt_map_back(k->map, t, k->extent.at, (uint32_t)k->extent.n, k->err);
    k->extent.n = k->axis.n = 0;
    return rc;
}

/*
 * Set the extents of a trained parameter's masters (column 0) or of one of its states: this rank's
 * runs are in its arrays, the elements between them in the source for other ranks.
 */
static int lv_back_column(lv_maker *k, ckpt_tensor *t, uint32_t param, unsigned column)
{
    const zt_owned key = {.param = param};
    uint64_t at = 0;
    size_t low = 0, n = k->n_owned;
    int rc = CKPT_OK;

    while (low < n) {
        size_t middle = low + (n - low) / 2;
        if (lv_by_place(&k->owned[middle], &key) < 0)
            low = middle + 1;
        else
            n = middle;
    }
    for (; rc == CKPT_OK && low < k->n_owned && k->owned[low].param == param; low++) {
        const zt_owned *o = &k->owned[low];
        uint32_t source = k->column[3 * o->partition + column];
        if (source == UINT32_MAX)
            return ckpt_fail(k->err, CKPT_EUSAGE,
                             "the memory of partition %u is not registered for saving",
                             o->partition);
        assert(o->first >= at && o->first + o->count <= t->n_elems);
        if (o->first > at)
            rc = lv_run(k, k->elsewhere, at * sizeof(float), at, o->first - at, sizeof(float));
        if (rc == CKPT_OK)
            rc = lv_run(k, source, o->at * sizeof(float), o->first, o->count, sizeof(float));
        at = o->first + o->count;
    }
    if (rc == CKPT_OK && at < t->n_elems)
        rc = lv_run(k, k->elsewhere, at * sizeof(float), at, t->n_elems - at, sizeof(float));
    return rc == CKPT_OK ? lv_back(k, t) : rc;
}

/*
 * Set the extents of working weights: this rank's run, and the source for other ranks before and
 * after it.
 */
static int lv_back_low(lv_maker *k, ckpt_tensor *t, const zt_low *low)
{
    uint64_t item = ckpt_dtype_get(t->dtype)->bits / 8, end = low->first + low->count;
    uint32_t source = 0;
    int rc = CKPT_OK;

    assert(low->count == 0 || end <= t->n_elems);
    if (low->at && low->count)
        rc = lv_source(k, low->device, low->at, low->count * item, &source);
    else
        end = low->first;
    if (rc == CKPT_OK && low->first)
        rc = lv_run(k, k->elsewhere, 0, 0, low->first, item);
    if (rc == CKPT_OK && end > low->first)
        rc = lv_run(k, source, 0, low->first, end - low->first, item);
    if (rc == CKPT_OK && end < t->n_elems)
        rc = lv_run(k, k->elsewhere, end * item, end, t->n_elems - end, item);
    return rc == CKPT_OK ? lv_back(k, t) : rc;
}

/* Add a frozen parameter, or a trained parameter's master, with its working weights as t->twin. */
static int lv_param(lv_maker *k, uint32_t i)
{
    const zt_param *p = &k->image->zero->model->params.at[i];
    const zt_low *low = &k->image->low[i];
    ckpt_tensor like = {.dtype = CKPT_F32, .ndim = p->ndim, .shape = p->shape}, *t = NULL,
                *twin = NULL;
    int rc;

    if (p->frozen) {
        like.dtype = k->image->zero->config->dtype;
        like.role = CKPT_ROLE_FROZEN;
    }
    rc = ckpt_map_add(k->map, p->name, strlen(p->name), &like, &t, k->err);
    if (rc != CKPT_OK || p->frozen)
        return rc == CKPT_OK ? lv_back_low(k, t, low) : rc;
    rc = lv_back_column(k, t, i, 0);
    if (rc != CKPT_OK || !low->at)
        return rc;
    like.dtype = k->image->zero->config->dtype;
    rc = ckpt_map_add_hidden(k->map, p->name, strlen(p->name), &like, &twin, k->err);
    if (rc == CKPT_OK)
        rc = lv_back_low(k, twin, low);
    t->twin = twin;
    return rc;
}

static int lv_aliases(lv_maker *k)
{
    const zt_model *model = k->image->zero->model;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < model->aliases.n; i++) {
        const zt_alias *a = &model->aliases.at[i];
        const char *name = model->params.at[a->param].name;
        const ckpt_tensor *owner = k->map->tensors.at[ckpt_map_index(k->map, name, strlen(name))];
        ckpt_tensor like = {.dtype = owner->dtype,
                            .ndim = owner->ndim,
                            .shape = owner->shape,
                            .role = owner->role},
                    *t = NULL;
        rc = ckpt_map_add(k->map, a->name, strlen(a->name), &like, &t, k->err);
        if (rc == CKPT_OK)
            t->owner = owner;
    }
    return rc;
}

/* Add state c of a parameter. */
static int lv_moment(lv_maker *k, uint32_t param, unsigned c, const char *kind)
{
    const zt_param *p = &k->image->zero->model->params.at[param];
    const float *whole = c == 0 ? k->image->whole[param] : NULL;
    const char *name = ckpt_arena_printf(k->map->arena, "%s/%s", kind, p->name);
    ckpt_tensor like = {.dtype = CKPT_F32,
                        .ndim = p->ndim,
                        .shape = p->shape,
                        .role = CKPT_ROLE_STATE},
                *t = NULL;
    uint32_t source = 0;
    int rc = name ? ckpt_map_add(k->map, name, strlen(name), &like, &t, k->err)
                  : ckpt_fail_memory(k->err);

    if (rc != CKPT_OK || !whole)
        return rc == CKPT_OK ? lv_back_column(k, t, param, c + 1) : rc;
    rc = lv_source(k, NULL, whole, p->n_elems * sizeof *whole, &source);
    if (rc == CKPT_OK)
        rc = lv_run(k, source, 0, 0, p->n_elems, sizeof *whole);
    return rc == CKPT_OK ? lv_back(k, t) : rc;
}

/* Add the states of all trained parameters, kind by kind. */
static int lv_moments(lv_maker *k)
{
    const zt_zero *z = k->image->zero;
    int rc = CKPT_OK;

    for (unsigned c = 0; c < z->config->optim.n_state; c++) {
        for (uint32_t g = 0; g < z->n_groups; g++) {
            const zt_group *group = &z->group[g];
            const char *kind = zt_optim_state(&z->config->optim, group->muon, c);
            for (uint32_t i = 0; rc == CKPT_OK && kind && i < group->n; i++)
                rc = lv_moment(k, z->order[group->first + i], c, kind);
        }
    }
    return rc;
}

static int lv_make(lv_maker *k)
{
    size_t n = 0;
    const zt_owned *owned = zt_zero_owned(k->image->zero, &n);
    int rc = lv_sources(k);

    k->owned = ckpt_alloc((n + 1) * sizeof *k->owned);
    k->n_owned = n;
    if (rc == CKPT_OK && !k->owned)
        rc = ckpt_fail_memory(k->err);
    if (rc == CKPT_OK && n > 0) {
        memcpy(k->owned, owned, n * sizeof *k->owned);
        qsort(k->owned, n, sizeof *k->owned, lv_by_place);
    }
    for (uint32_t i = 0; rc == CKPT_OK && i < k->image->zero->model->params.n; i++)
        rc = lv_param(k, i);
    if (rc == CKPT_OK)
        rc = lv_aliases(k);
    return rc == CKPT_OK ? lv_moments(k) : rc;
}

int zt_live_map(ckpt_map **out, const zt_image *image, const ckpt_value *client, ckpt_err *err)
{
    lv_maker k = {.image = image, .err = err};
    int rc = ckpt_map_create(&k.map, 0, err);

    *out = NULL;
    if (rc == CKPT_OK) {
        k.map->path = "the run";
        k.map->format = "memory";
        rc = lv_make(&k);
    }
    if (rc == CKPT_OK)
        rc = zt_live_state(k.map, image->zero, client, err);
    ckpt_vec_free(&k.extent);
    ckpt_vec_free(&k.axis);
    ckpt_free(k.owned);
    ckpt_free(k.column);
    if (rc == CKPT_OK)
        *out = k.map;
    else
        ckpt_map_free(k.map);
    return rc;
}
