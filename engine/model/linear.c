/* SPDX-License-Identifier: Apache-2.0 */
/*
 * linear.c: implements the steps that all architectures share, by device operations: linear maps
 * with or without a LoRA adapter, norms, dropout, and dividing memory.
 */
#include <assert.h>

#include "engine/model/layers.h"

/* Pieces start at multiples of a cache line, as vector loads need. */
enum { LI_ALIGN = 64 };

void *zt_room_take(zt_room *r, uint64_t n_bytes)
{
    void *p = r->base ? r->base + r->used : NULL;

    assert(r->used % LI_ALIGN == 0);
    r->used += (n_bytes + LI_ALIGN - 1) / LI_ALIGN * LI_ALIGN;
    return p;
}

/* One round of splitmix64 (Steele et al. 2014): every bit of x affects the whole result. */
static uint64_t li_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

uint64_t zt_seed(const zt_call *c, uint32_t site)
{
    return li_mix(li_mix(c->p->seed) ^ ((uint64_t)c->layer << 32 | site));
}

static float li_rate(const zt_call *c, float p)
{
    return c->p->train ? p : 0.0F;
}

void zt_drop(const zt_call *c, uint32_t site, float p, const zt_dropout *a)
{
    zt_dropout d = *a;

    d.p = li_rate(c, p);
    d.seed = zt_seed(c, site);
    if (d.p > 0.0F || d.add || d.x != d.y)
        c->m->device->ops->dropout(c->m->device, c->m->dtype, &d);
}

void *zt_grad(zt_model *m, uint32_t param, bool *add)
{
    zt_param *p;

    *add = false;
    if (param == ZT_NO_PARAM)
        return NULL;
    assert(param < m->params.n);
    p = &m->params.at[param];
    if (p->frozen || !p->g)
        return NULL;
    *add = p->g_add;
    zt_param_written(p);
    return p->g;
}

bool zt_wants_backward(const zt_model *m, const zt_layer *l)
{
    for (size_t i = 0; i < m->params.n; i++) {
        if (!m->params.at[i].frozen && m->params.at[i].layer <= l->number)
            return true;
    }
    return false;
}

/* ---- adapters: y += alpha / rank * (dropout(x) a') b' ---- */

static bool li_adapted(const zt_map *l)
{
    return l->lora_a != ZT_NO_PARAM;
}

uint64_t zt_map_low(const zt_model *m, const zt_map *l, uint64_t rows)
{
    return li_adapted(l) ? rows * m->lora.rank * zt_elem(m) : 0;
}

/* Bytes of scratch: the gradient of `low`, the dropped x, and that x's gradient. */
uint64_t zt_map_spare(const zt_model *m, const zt_map *l, uint64_t rows)
{
    zt_room room = {0};

    if (!li_adapted(l))
        return 0;
    zt_room_elems(&room, m, rows * m->lora.rank);
    if (m->lora.dropout > 0.0F) {
        zt_room_elems(&room, m, rows * l->in);
        zt_room_elems(&room, m, rows * l->in);
    }
    return room.used;
}

uint64_t zt_block_spare(const zt_model *m, const zt_block *k, int n_maps, uint64_t rows)
{
    uint64_t most = 0;

    for (int i = 0; i < n_maps; i++) {
        const uint64_t n = zt_map_spare(m, &k->map[i], rows);

        most = n > most ? n : most;
    }
    return most;
}

static float li_scaling(const zt_model *m)
{
    assert(m->lora.rank > 0);
    return (float)(m->lora.alpha / (double)m->lora.rank);
}

/* The adapter's input: x itself, or a copy in `to` with dropout. */
static const void *li_dropped(const zt_call *c, const zt_map *l, const void *x, void *to)
{
    if (li_rate(c, c->m->lora.dropout) <= 0.0F)
        return x;
    zt_drop(c, l->site, c->m->lora.dropout, &(zt_dropout){.n = c->rows * l->in, .x = x, .y = to});
    return to;
}

static void li_adapter_forward(const zt_call *c, const zt_map *l, const zt_map_fw *f)
{
    zt_model *m = c->m;
    const zt_device_ops *ops = m->device->ops;
    zt_room room = {.base = f->spare};
    const void *x =
        li_dropped(c, l, f->x, f->spare ? zt_room_elems(&room, m, c->rows * l->in) : NULL);
    zt_linear down = {.rows = c->rows, .in = l->in, .out = m->lora.rank, .x = x, .y = f->low};
    zt_linear up = {.rows = c->rows,
                    .in = m->lora.rank,
                    .out = l->out,
                    .ldy = f->ldy,
                    .y_add = true,
                    .x = f->low};

    down.w = zt_weight(m, l->lora_a);
    ops->linear(m->device, m->dtype, &down);
    ops->scale(m->device, m->dtype, c->rows * m->lora.rank, f->low, li_scaling(m));
    up.w = zt_weight(m, l->lora_b);
    up.y = f->act == ZT_ACT_NONE ? f->y : f->pre;
    ops->linear(m->device, m->dtype, &up);
}

static void li_adapter_backward(const zt_call *c, const zt_map *l, const zt_map_bw *g)
{
    zt_model *m = c->m;
    const zt_device_ops *ops = m->device->ops;
    bool drops = li_rate(c, m->lora.dropout) > 0.0F;
    zt_room room = {.base = g->spare};
    void *d_low = zt_room_elems(&room, m, c->rows * m->lora.rank);
    void *dropped = drops ? zt_room_elems(&room, m, c->rows * l->in) : NULL;
    void *d_dropped = drops ? zt_room_elems(&room, m, c->rows * l->in) : NULL;
    zt_linear_grad up = {.rows = c->rows, .in = m->lora.rank, .out = l->out, .lddy = g->lddy};
    zt_linear_grad down = {.rows = c->rows, .in = l->in, .out = m->lora.rank, .dy = d_low};

    up.x = g->low; // low is already scaled
    up.w = zt_weight(m, l->lora_b);
    up.dy = g->dy;
    up.dx = d_low;
    up.dw = zt_grad(m, l->lora_b, &up.w_add);
    ops->linear_grad(m->device, m->dtype, &up);
    ops->scale(m->device, m->dtype, c->rows * m->lora.rank, d_low, li_scaling(m));

    down.x = li_dropped(c, l, g->x, dropped);
    down.w = zt_weight(m, l->lora_a);
    down.dx = g->dx && drops ? d_dropped : g->dx;
    down.dx_add = !drops;
    down.dw = zt_grad(m, l->lora_a, &down.w_add);
    ops->linear_grad(m->device, m->dtype, &down);
    if (drops && g->dx) {
        const zt_dropout d = {.n = c->rows * l->in, .x = d_dropped, .add = g->dx, .y = g->dx};

        zt_drop(c, l->site, m->lora.dropout, &d);
    }
}

/* ---- linear maps ---- */

void zt_map_forward(const zt_call *c, const zt_map *l, const zt_map_fw *f)
{
    zt_model *m = c->m;
    const zt_device_ops *ops = m->device->ops;
    bool split = li_adapted(l) && f->act != ZT_ACT_NONE;
    zt_linear a = {.rows = c->rows,
                   .in = l->in,
                   .out = l->out,
                   .ldx = f->ldx,
                   .ldy = f->ldy,
                   .w_in_out = l->w_in_out,
                   .y_add = f->y_add,
                   .x = f->x,
                   .w = zt_weight(m, l->w),
                   .b = zt_weight(m, l->b)};

    assert(c->rows == 0 || (f->x && f->y));
    assert(!split || f->pre);
    // the adapter adds to the activation's input
    a.act = split ? ZT_ACT_NONE : f->act;
    a.y = split ? f->pre : f->y;
    a.pre = split ? NULL : f->pre;
    ops->linear(m->device, m->dtype, &a);
    if (li_adapted(l))
        li_adapter_forward(c, l, f);
    if (split)
        ops->act(m->device, m->dtype, f->act, c->rows * l->out, f->y, f->pre);
}

void zt_map_backward(const zt_call *c, const zt_map *l, const zt_map_bw *g)
{
    zt_model *m = c->m;
    zt_linear_grad a = {.rows = c->rows,
                        .in = l->in,
                        .out = l->out,
                        .ldx = g->ldx,
                        .lddy = g->lddy,
                        .lddx = g->lddx,
                        .w_in_out = l->w_in_out,
                        .dx_add = g->dx_add,
                        .x = g->x,
                        .w = zt_weight(m, l->w),
                        .dy = g->dy,
                        .dx = g->dx};

    assert(c->rows == 0 || g->dy);
    a.dw = zt_grad(m, l->w, &a.w_add);
    a.db = zt_grad(m, l->b, &a.b_add);
    if (a.dx || a.dw || a.db)
        m->device->ops->linear_grad(m->device, m->dtype, &a);
    if (li_adapted(l))
        li_adapter_backward(c, l, g);
}

/*
 * In fp32 the product adds to a copy of x, which saves a pass over memory.  In 16 bits the branch
 * must be rounded before the sum, because torch does so.
 */
void zt_map_residual(const zt_call *c, const zt_map *l, zt_map_fw *f, const void *x, uint32_t site)
{
    zt_model *m = c->m;
    zt_device *d = m->device;
    uint64_t n = c->rows * l->out;
    float p = m->config.dropout_hidden;

    assert(f->act == ZT_ACT_NONE && f->y != x);
    f->y_add = m->dtype == CKPT_F32 && li_rate(c, p) <= 0.0F;
    if (f->y_add) {
        d->ops->copy(d, f->y, x, n * zt_elem(m));
        zt_map_forward(c, l, f);
        return;
    }
    zt_map_forward(c, l, f);
    zt_drop(c, site, p, &(zt_dropout){.n = n, .x = f->y, .add = x, .y = f->y});
}

const void *zt_branch_grad(const zt_call *c, uint32_t site, const void *dy, uint64_t width,
                           void *spare)
{
    float p = c->m->config.dropout_hidden;

    if (li_rate(c, p) <= 0.0F)
        return dy;
    zt_drop(c, site, p, &(zt_dropout){.n = c->rows * width, .x = dy, .y = spare});
    return spare;
}

/* ---- norms ---- */

void zt_affine_forward(const zt_call *c, const zt_affine *n, zt_norm *a)
{
    zt_model *m = c->m;

    a->rows = a->rows != 0 ? a->rows : c->rows;
    a->width = a->width != 0 ? a->width : m->config.hidden;
    a->rms = n->b == ZT_NO_PARAM;
    a->once = m->config.norm_once;
    a->plus_one = m->config.norm_plus_one;
    a->eps = m->config.norm_eps;
    a->w = zt_weight(m, n->w);
    a->b = zt_weight(m, n->b);
    m->device->ops->norm(m->device, m->dtype, a);
}

void zt_affine_backward(const zt_call *c, const zt_affine *n, zt_norm_grad *a)
{
    zt_model *m = c->m;

    a->rows = a->rows != 0 ? a->rows : c->rows;
    a->width = a->width != 0 ? a->width : m->config.hidden;
    a->rms = n->b == ZT_NO_PARAM;
    a->once = m->config.norm_once;
    a->plus_one = m->config.norm_plus_one;
    a->w = zt_weight(m, n->w);
    a->dw = zt_grad(m, n->w, &a->w_add);
    a->db = zt_grad(m, n->b, &a->b_add);
    m->device->ops->norm_grad(m->device, m->dtype, a);
}
