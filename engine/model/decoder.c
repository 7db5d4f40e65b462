/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decoder.c: implements the blocks of decoders with layer norms, biases and an inner layer of two
 * linear maps: OPT, GPT-NeoX and BLOOM.  opt.c, neox.c and bloom.c give them their names.
 *
 * Norms before the branches:
 *
 *     r = x + o(attention(norm_0 x));  y = r + down(act(up(norm_1 r)))
 *
 * Norms after the branches (OPT 350M):
 *
 *     h = norm_0(x + o(attention x));  y = norm_1(h + down(act(up h)))
 *
 * Parallel branches (GPT-NeoX):
 *
 *     y = down(act(up(norm_1 x))) + o(attention(norm_0 x)) + x
 *
 * OPT has three maps for q, k, v, which lie side by side in rows of 3 C.  GPT-NeoX and BLOOM have
 * one, whose rows have q, k and v of one head after the other.  Its output is dealt out, so that
 * all rows of q come first, then those of k and of v.
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

/* Workspace of the backward pass; the forward pass uses `raw` and `spare`. */
typedef struct dc_work {
    void *d_inner, *d_qkv; /* share memory, because d_inner is not used after d_qkv begins */
    void *d_h, *masked, *spare;
    void *raw;   /* q, k, v as one map has them, or their gradients */
    void *d_sum; /* gradient of the sum with a residual, where dx cannot hold it */
    uint64_t n_bytes;
} dc_work;

static dc_work dc_working(const zt_model *m, const zt_block *k, const zt_batch *b, void *scratch)
{
    const zt_model_config *f = &m->config;
    uint64_t rows = zt_batch_rows(b);
    uint64_t wide = f->inner > 3 * f->hidden ? f->inner : 3 * f->hidden;
    zt_room room = {.base = scratch};
    dc_work w;

    w.d_inner = zt_room_elems(&room, m, rows * wide);
    w.d_qkv = w.d_inner;
    w.d_h = zt_room_elems(&room, m, rows * f->hidden);
    w.d_sum = zt_room_elems(&room, m, f->norm_first && !f->parallel ? 0 : rows * f->hidden);
    w.raw = zt_room_elems(&room, m, f->fused ? 3 * rows * f->hidden : 0);
    w.masked = zt_room_elems(&room, m, f->dropout_hidden > 0.0F ? rows * f->hidden : 0);
    w.spare = zt_room_take(&room, zt_block_spare(m, k, ZT_MAPS, rows));
    w.n_bytes = room.used;
    return w;
}

static uint64_t dc_tape(const zt_model *m, const zt_layer *l, const zt_batch *b)
{
    return dc_keep(m, zt_block_of(m, l), b, NULL).n_bytes;
}

static uint64_t dc_scratch(const zt_model *m, const zt_layer *l, const zt_batch *b)
{
    return dc_working(m, zt_block_of(m, l), b, NULL).n_bytes;
}

/* Offset of q, k or v in the buffer of all three, and the stride of its rows; in elements. */
typedef struct dc_part {
    uint64_t at, ld;
} dc_part;

static dc_part dc_where(const zt_call *c, unsigned map)
{
    uint64_t n = c->m->config.hidden;

    return c->m->config.fused ? (dc_part){map * c->rows * n, n} : (dc_part){map * n, 3 * n};
}

/* Deal the rows of one map out to q, k and v; back: collect their gradients. */
static void dc_deal(const zt_call *c, void *raw, void *qkv, bool back)
{
    zt_model *m = c->m;
    uint64_t width = m->config.head_width;

    for (unsigned i = ZT_DECODER_Q; i <= ZT_DECODER_V; i++) {
        void *one = zt_at(m, raw, i * width), *part = zt_at(m, qkv, dc_where(c, i).at);
        zt_rows r = {.rows = c->rows * m->config.heads, .width = width};

        r.ld_from = back ? width : 3 * width;
        r.ld_to = back ? 3 * width : width;
        r.from = back ? part : one;
        r.to = back ? one : part;
        m->device->ops->rows(m->device, m->dtype, &r);
    }
}

/* Rotate q and k. */
static void dc_rotate(const zt_call *c, void *qkv, bool inverse)
{
    for (unsigned i = ZT_DECODER_Q; i <= ZT_DECODER_K; i++) {
        const dc_part to = dc_where(c, i);
        zt_rope a = {.heads = c->m->config.heads, .ld = to.ld, .inverse = inverse};

        a.x = zt_at(c->m, qkv, to.at);
        zt_rotate(c, &a);
    }
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
                          .ldq = dc_where(c, ZT_DECODER_Q).ld,
                          .ldk = dc_where(c, ZT_DECODER_K).ld,
                          .ldv = dc_where(c, ZT_DECODER_V).ld,
                          .ldo = n,
                          .scale = (float)(1.0 / sqrt((double)f->head_width)),
                          .causal = true,
                          .alibi = f->alibi,
                          .mask = c->p->in.attention_mask,
                          .p = c->p->train ? f->dropout_attention : 0.0F,
                          .seed = zt_seed(c, ZT_SITE_ATTENTION),
                          .q = t->qkv,
                          .k = zt_at_const(c->m, t->qkv, dc_where(c, ZT_DECODER_K).at),
                          .v = zt_at_const(c->m, t->qkv, dc_where(c, ZT_DECODER_V).at),
                          .o = t->o,
                          .lse = t->lse};
}

/* ---- forward ---- */

static void dc_fw_qkv(const zt_call *c, const zt_block *k, const dc_kept *t, const void *h1)
{
    zt_model *m = c->m;
    const dc_work w = dc_working(m, k, &c->p->in, c->p->scratch);
    const unsigned maps = m->config.fused ? 1 : 3;

    for (unsigned i = 0; i < maps; i++) {
        const dc_part to = dc_where(c, i);
        zt_map_fw f = {.x = h1, .low = t->low[i], .spare = w.spare};

        f.ldy = m->config.fused ? 0 : to.ld;
        f.y = m->config.fused ? w.raw : zt_at(m, t->qkv, to.at);
        zt_map_forward(c, &k->map[i], &f);
    }
    if (m->config.fused)
        dc_deal(c, w.raw, t->qkv, false);
    if (m->config.rotated > 0)
        dc_rotate(c, t->qkv, false);
}

/* The branch of attention, with dropout, in t->r. */
static void dc_fw_attention(const zt_call *c, const zt_block *k, const dc_kept *t, const void *h1,
                            void *spare)
{
    zt_model *m = c->m;
    uint64_t n = m->config.hidden;
    zt_map_fw o = {.x = t->o, .y = t->r, .low = t->low[ZT_DECODER_O], .spare = spare};
    zt_attention a = dc_attention(c, t);

    dc_fw_qkv(c, k, t, h1);
    zt_attend(c, &a);
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
    const zt_block *k = zt_block_of(m, l);
    zt_call c = {m, p, l->number, zt_batch_rows(&p->in)};
    dc_kept t = dc_keep(m, k, &p->in, tape);
    const bool first = m->config.norm_first, parallel = m->config.parallel;
    const int between = first ? 1 : 0; // the norm between the branches
    zt_norm n1 = {.x = x, .y = t.h1, .mean = t.mean[0], .rstd = t.rstd[0]};
    zt_norm n2 = {.x = x, .y = t.h2};
    zt_norm last = {.x = t.s, .y = y, .mean = t.mean[1], .rstd = t.rstd[1]};

    n2.mean = t.mean[between];
    n2.rstd = t.rstd[between];
    if (!parallel) {
        n2.add = t.r;
        n2.sum = t.r;
    }
    if (first)
        zt_affine_forward(&c, &k->norm[0], &n1);
    dc_fw_attention(&c, k, &t, first ? t.h1 : x, dc_working(m, k, &p->in, p->scratch).spare);
    zt_affine_forward(&c, &k->norm[between], &n2);
    if (first) {
        dc_fw_inner(&c, k, &t, t.r, y);
        if (parallel)
            m->device->ops->add(m->device, m->dtype, c.rows * m->config.hidden, y, x);
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

/* Gradient of attention's input h1 from those of q, k, v in w->d_qkv. */
static void dc_bw_qkv(const zt_call *c, const dc_kept *t, const dc_work *w, const void *h1,
                      dc_into to)
{
    zt_model *m = c->m;
    const zt_block *k = zt_block_of(m, &m->layers.at[c->layer]);
    const unsigned maps = m->config.fused ? 1 : 3;

    if (m->config.rotated > 0)
        dc_rotate(c, w->d_qkv, true);
    if (m->config.fused)
        dc_deal(c, w->raw, w->d_qkv, true);
    for (unsigned i = 0; i < maps; i++) {
        const dc_part from = dc_where(c, i);
        zt_map_bw g = {.x = h1, .dx = to.dx, .low = t->low[i], .spare = w->spare};

        g.dx_add = to.add || i > 0;
        g.lddy = m->config.fused ? 0 : from.ld;
        g.dy = m->config.fused ? w->raw : zt_at(m, w->d_qkv, from.at);
        zt_map_backward(c, &k->map[i], &g);
    }
}

/* Gradient of attention's input h1 from dy, that of its sum with the residual. */
static void dc_bw_attention(const zt_call *c, const dc_kept *t, const dc_work *w, const void *h1,
                            const void *dy, dc_into to)
{
    zt_model *m = c->m;
    const zt_block *k = zt_block_of(m, &m->layers.at[c->layer]);
    uint64_t n = m->config.hidden;
    zt_map_bw o = {.x = t->o, .dx = w->d_h, .low = t->low[ZT_DECODER_O], .spare = w->spare};
    zt_attention_grad a = {.fw = dc_attention(c, t), .lddo = n, .dout = w->d_h, .dq = w->d_qkv};

    o.dy = zt_branch_grad(c, ZT_SITE_HIDDEN_1, dy, n, w->masked);
    zt_map_backward(c, &k->map[ZT_DECODER_O], &o);
    a.dk = zt_at(m, w->d_qkv, dc_where(c, ZT_DECODER_K).at);
    a.dv = zt_at(m, w->d_qkv, dc_where(c, ZT_DECODER_V).at);
    m->device->ops->attention_grad(m->device, m->dtype, &a);
    dc_bw_qkv(c, t, w, h1, to);
}

/*
 * Norms before the branches.  dx holds dy, and each branch adds its gradient.  Parallel branches
 * both start from dy, so it is copied.
 */
static void dc_bw_before(const zt_call *c, const zt_block *k, const dc_kept *t, const dc_work *w,
                         const void *x, void *dx)
{
    zt_norm_grad n1 = {.dx_add = true, .x = x, .dy = w->d_h, .dx = dx};
    zt_norm_grad n2 = {.dx_add = true, .x = t->r, .dy = w->d_h, .dx = dx};
    const dc_into to = {w->d_h, false};
    zt_model *m = c->m;
    const void *dy = dx;

    n1.mean = t->mean[0];
    n1.rstd = t->rstd[0];
    n2.mean = t->mean[1];
    n2.rstd = t->rstd[1];
    if (m->config.parallel) {
        m->device->ops->copy(m->device, w->d_sum, dx, c->rows * m->config.hidden * zt_elem(m));
        n2.x = x;
        dy = w->d_sum;
    }
    dc_bw_inner(c, k, t, w, dy, to);
    zt_affine_backward(c, &k->norm[1], &n2);
    dc_bw_attention(c, t, w, t->h1, dy, to);
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
    const zt_block *k = zt_block_of(m, l);
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
