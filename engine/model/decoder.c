/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decoder.c: implements the blocks of decoders with layer norms, biases and an inner layer of two
 * linear maps (OPT).  opt.c gives them their names.
 *
 * Norms before the branches:
 *
 *     r = x + o(attention(norm_0 x));  y = r + down(act(up(norm_1 r)))
 *
 * Norms after the branches (OPT 350M):
 *
 *     h = norm_0(x + o(attention x));  y = norm_1(h + down(act(up h)))
 *
 * q, k, v lie side by side in rows of 3 C.
 */
#include <math.h>

#include "engine/model/layers.h"

/* Values that a block stores for its backward pass. */
typedef struct dc_kept {
    void *h1; /* input of attention; NULL: the block's input */
    void *qkv, *o, *r;
    void *h2; /* input of the inner layer */
    void *pre, *act;
    void *s; /* input of the last norm, if norms come after the branches */
    float *mean[2], *rstd[2], *lse;
    void *low[ZT_MAPS];
    uint64_t n_bytes;
} dc_kept;

static dc_kept dc_keep(const zt_model *m, const zt_block *k, const zt_batch *b, void *tape)
{
    const zt_model_config *f = &m->config;
    uint64_t rows = zt_batch_rows(b);
    uint64_t n = rows * f->hidden;
    zt_room room = {.base = tape};
    dc_kept t = {0};

    if (f->norm_first)
        t.h1 = zt_room_elems(&room, m, n);
    else
        t.s = zt_room_elems(&room, m, n);
    t.qkv = zt_room_elems(&room, m, 3 * n);
    t.o = zt_room_elems(&room, m, n);
    t.r = zt_room_elems(&room, m, n);
    t.h2 = zt_room_elems(&room, m, n);
    t.pre = zt_room_elems(&room, m, rows * f->inner);
    t.act = zt_room_elems(&room, m, rows * f->inner);
    for (int i = 0; i < 2; i++) {
        t.mean[i] = zt_room_floats(&room, rows);
        t.rstd[i] = zt_room_floats(&room, rows);
    }
    t.lse = zt_room_floats(&room, rows * f->heads);
    for (int i = 0; i < ZT_MAPS; i++)
        t.low[i] = zt_room_take(&room, zt_map_low(m, &k->map[i], rows));
    t.n_bytes = room.used;
    return t;
}

/* Workspace of the backward pass; the forward pass uses `spare` alone. */
typedef struct dc_work {
    void *d_inner, *d_qkv; /* share memory, because d_inner is not used after d_qkv begins */
    void *d_h, *d_sum, *masked, *spare;
    uint64_t n_bytes;
} dc_work;

static dc_work dc_working(const zt_model *m, const zt_block *k, const zt_batch *b, void *scratch)
{
    const zt_model_config *f = &m->config;
    uint64_t rows = zt_batch_rows(b);
    uint64_t wide = f->inner > 3 * f->hidden ? f->inner : 3 * f->hidden;
    uint64_t spare = 0;
    zt_room room = {.base = scratch};
    dc_work w;

    w.d_inner = zt_room_elems(&room, m, rows * wide);
    w.d_qkv = w.d_inner;
    w.d_h = zt_room_elems(&room, m, rows * f->hidden);
    w.d_sum = zt_room_elems(&room, m, f->norm_first ? 0 : rows * f->hidden);
    w.masked = zt_room_elems(&room, m, f->dropout_hidden > 0.0F ? rows * f->hidden : 0);
    for (int i = 0; i < ZT_MAPS; i++) {
        uint64_t n = zt_map_spare(m, &k->map[i], rows);

        spare = n > spare ? n : spare;
    }
    w.spare = zt_room_take(&room, spare);
    w.n_bytes = room.used;
    return w;
}

static const zt_block *dc_block(const zt_model *m, const zt_layer *l)
{
    return &zt_own_of(m)->block[l->block];
}

static uint64_t dc_tape(const zt_model *m, const zt_layer *l, const zt_batch *b)
{
    return dc_keep(m, dc_block(m, l), b, NULL).n_bytes;
}

static uint64_t dc_scratch(const zt_model *m, const zt_layer *l, const zt_batch *b)
{
    return dc_working(m, dc_block(m, l), b, NULL).n_bytes;
}

static zt_attention dc_attention(const zt_call *c, const dc_kept *t)
{
    const zt_model_config *f = &c->m->config;
    uint64_t n = f->hidden;

    return (zt_attention){.batch = c->p->in.batch,
                          .seq = c->p->in.seq,
                          .heads = f->heads,
                          .kv_heads = f->heads,
                          .width = f->head_width,
                          .ldq = 3 * n,
                          .ldk = 3 * n,
                          .ldv = 3 * n,
                          .ldo = n,
                          .scale = (float)(1.0 / sqrt((double)f->head_width)),
                          .causal = true,
                          .mask = c->p->in.attention_mask,
                          .p = c->p->train ? f->dropout_attention : 0.0F,
                          .seed = zt_seed(c, ZT_SITE_ATTENTION),
                          .q = t->qkv,
                          .k = zt_at_const(c->m, t->qkv, n),
                          .v = zt_at_const(c->m, t->qkv, 2 * n),
                          .o = t->o,
                          .lse = t->lse};
}

/* ---- forward ---- */

/* The branch of attention, with dropout, in t->r. */
static void dc_fw_attention(const zt_call *c, const zt_block *k, const dc_kept *t, const void *h1,
                            void *spare)
{
    zt_model *m = c->m;
    uint64_t n = m->config.hidden;
    zt_map_fw o = {.x = t->o, .y = t->r, .low = t->low[ZT_DECODER_O], .spare = spare};
    zt_attention a = dc_attention(c, t);

    for (unsigned i = ZT_DECODER_Q; i <= ZT_DECODER_V; i++) {
        zt_map_fw f = {.ldy = 3 * n, .x = h1, .low = t->low[i], .spare = spare};

        f.y = zt_at(m, t->qkv, i * n);
        zt_map_forward(c, &k->map[i], &f);
    }
    m->device->ops->attention(m->device, m->dtype, &a);
    zt_map_forward(c, &k->map[ZT_DECODER_O], &o);
    zt_drop(c, ZT_SITE_HIDDEN_1, m->config.dropout_hidden,
            &(zt_dropout){.n = c->rows * n, .x = t->r, .y = t->r});
}

/* y = residual + dropout(down(act(up h2))). */
static void dc_fw_inner(const zt_call *c, const zt_block *k, const dc_kept *t, const void *residual,
                        void *y)
{
    zt_model *m = c->m;
    void *spare = dc_working(m, k, &c->p->in, c->p->scratch).spare;
    zt_map_fw up = {.act = m->config.act, .x = t->h2, .y = t->act, .pre = t->pre};
    zt_map_fw down = {.x = t->act, .y = y, .low = t->low[ZT_DECODER_DOWN], .spare = spare};

    up.low = t->low[ZT_DECODER_UP];
    up.spare = spare;
    zt_map_forward(c, &k->map[ZT_DECODER_UP], &up);
    zt_map_residual(c, &k->map[ZT_DECODER_DOWN], &down, residual, ZT_SITE_HIDDEN_2);
}

static void dc_fw(zt_model *m, const zt_layer *l, zt_pass *p, void *tape, const void *x, void *y)
{
    const zt_block *k = dc_block(m, l);
    zt_call c = {m, p, l->number, zt_batch_rows(&p->in)};
    dc_kept t = dc_keep(m, k, &p->in, tape);
    const bool first = m->config.norm_first;
    const int between = first ? 1 : 0; // the norm between the branches
    zt_norm n1 = {.x = x, .y = t.h1, .mean = t.mean[0], .rstd = t.rstd[0]};
    zt_norm n2 = {.x = x, .add = t.r, .sum = t.r, .y = t.h2};
    zt_norm last = {.x = t.s, .y = y, .mean = t.mean[1], .rstd = t.rstd[1]};

    n2.mean = t.mean[between];
    n2.rstd = t.rstd[between];
    if (first)
        zt_affine_forward(&c, &k->norm[0], &n1);
    dc_fw_attention(&c, k, &t, first ? t.h1 : x, dc_working(m, k, &p->in, p->scratch).spare);
    zt_affine_forward(&c, &k->norm[between], &n2);
    if (first) {
        dc_fw_inner(&c, k, &t, t.r, y);
    } else {
        dc_fw_inner(&c, k, &t, t.h2, t.s);
        zt_affine_forward(&c, &k->norm[1], &last);
    }
}

/* ---- backward ---- */

/* Where the gradient of a branch's input goes. */
typedef struct dc_into {
    void *dx;
    bool add;
} dc_into;

/* Gradient of the inner layer's input h2 from dy, that of its sum with the residual. */
static void dc_bw_inner(const zt_call *c, const zt_block *k, const dc_kept *t, const dc_work *w,
                        const void *dy, dc_into to)
{
    zt_model *m = c->m;
    zt_map_bw down = {
        .x = t->act, .dx = w->d_inner, .low = t->low[ZT_DECODER_DOWN], .spare = w->spare};
    zt_act_grad act = {.act = m->config.act, .n = c->rows * m->config.inner, .pre = t->pre};
    zt_map_bw up = {.dx_add = to.add,
                    .x = t->h2,
                    .dy = w->d_inner,
                    .dx = to.dx,
                    .low = t->low[ZT_DECODER_UP],
                    .spare = w->spare};

    down.dy = zt_branch_grad(c, ZT_SITE_HIDDEN_2, dy, m->config.hidden, w->masked);
    zt_map_backward(c, &k->map[ZT_DECODER_DOWN], &down);
    act.dy = w->d_inner;
    act.dx = w->d_inner;
    m->device->ops->act_grad(m->device, m->dtype, &act);
    zt_map_backward(c, &k->map[ZT_DECODER_UP], &up);
}

/* Gradient of attention's input h1. */
static void dc_bw_attention(const zt_call *c, const dc_kept *t, const dc_work *w, const void *h1,
                            const void *dy, dc_into to)
{
    zt_model *m = c->m;
    const zt_block *k = dc_block(m, &m->layers.at[c->layer]);
    uint64_t n = m->config.hidden;
    zt_map_bw o = {.x = t->o, .dx = w->d_h, .low = t->low[ZT_DECODER_O], .spare = w->spare};
    zt_attention_grad a = {.fw = dc_attention(c, t), .lddo = n, .dout = w->d_h, .dq = w->d_qkv};

    o.dy = zt_branch_grad(c, ZT_SITE_HIDDEN_1, dy, n, w->masked);
    zt_map_backward(c, &k->map[ZT_DECODER_O], &o);
    a.dk = zt_at(m, w->d_qkv, n);
    a.dv = zt_at(m, w->d_qkv, 2 * n);
    m->device->ops->attention_grad(m->device, m->dtype, &a);
    for (unsigned i = ZT_DECODER_Q; i <= ZT_DECODER_V; i++) {
        zt_map_bw g = {.lddy = 3 * n, .x = h1, .dx = to.dx, .low = t->low[i], .spare = w->spare};

        g.dx_add = to.add || i != ZT_DECODER_Q;
        g.dy = zt_at(m, w->d_qkv, i * n);
        zt_map_backward(c, &k->map[i], &g);
    }
}

/* Norms before the branches.  dx holds dy, and each branch adds its gradient. */
static void dc_bw_before(const zt_call *c, const zt_block *k, const dc_kept *t, const dc_work *w,
                         const void *x, void *dx)
{
    zt_norm_grad n1 = {.dx_add = true, .x = x, .dy = w->d_h, .dx = dx};
    zt_norm_grad n2 = {.dx_add = true, .x = t->r, .dy = w->d_h, .dx = dx};
    const dc_into to = {w->d_h, false};

    n1.mean = t->mean[0];
    n1.rstd = t->rstd[0];
    n2.mean = t->mean[1];
    n2.rstd = t->rstd[1];
    dc_bw_inner(c, k, t, w, dx, to);
    zt_affine_backward(c, &k->norm[1], &n2);
    dc_bw_attention(c, t, w, t->h1, dx, to);
    zt_affine_backward(c, &k->norm[0], &n1);
}

/* Norms after the sums.  dx may be dy. */
static void dc_bw_after(const zt_call *c, const zt_block *k, const dc_kept *t, const dc_work *w,
                        const zt_norm_grad *ends)
{
    zt_norm_grad last = {
        .x = t->s, .dy = ends->dy, .mean = t->mean[1], .rstd = t->rstd[1], .dx = w->d_sum};
    zt_norm_grad between = {
        .x = t->r, .dy = w->d_sum, .mean = t->mean[0], .rstd = t->rstd[0], .dx = ends->dx};

    zt_affine_backward(c, &k->norm[1], &last);
    dc_bw_inner(c, k, t, w, w->d_sum, (dc_into){w->d_sum, true});
    zt_affine_backward(c, &k->norm[0], &between);
    dc_bw_attention(c, t, w, ends->x, ends->dx, (dc_into){ends->dx, true});
}

/* LIMIT: the parameters are those of zt_layer_ops. */
static void dc_bw(zt_model *m, const zt_layer *l, zt_pass *p, void *tape, const void *x,
                  const void *dy, void *dx)
{
    const zt_block *k = dc_block(m, l);
    zt_call c = {m, p, l->number, zt_batch_rows(&p->in)};
    dc_kept t = dc_keep(m, k, &p->in, tape);
    dc_work w = dc_working(m, k, &p->in, p->scratch);

    if (!zt_wants_backward(m, l))
        return;
    if (!m->config.norm_first) {
        dc_bw_after(&c, k, &t, &w, &(zt_norm_grad){.x = x, .dy = dy, .dx = dx});
        return;
    }
    if (dx != dy)
        m->device->ops->copy(m->device, dx, dy, c.rows * m->config.hidden * zt_elem(m));
    dc_bw_before(&c, k, &t, &w, x, dx);
}

const zt_layer_ops zt_decoder_ops = {dc_tape, dc_scratch, dc_fw, dc_bw};
