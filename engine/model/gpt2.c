/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt2.c: implements GPT-2 with its LM head (Radford et al. 2019): embedding, blocks with the norm
 * before each branch, head.
 *
 *     r = x + proj(attention(ln_1 x));  y = r + proj(act(fc(ln_2 r)))
 *
 * Weights are [in, out] (Conv1D).  q, k, v lie side by side in rows of 3 C and are used in place.
 */
#include <inttypes.h>
#include <math.h>

#include "engine/model/layers.h"

enum { GP_QKV, GP_O, GP_UP, GP_DOWN, GP_MAPS };

/* Values that a block stores for its backward pass. */
typedef struct gp_kept {
    void *h1, *qkv, *o, *r, *h2, *pre, *act;
    float *mean1, *rstd1, *mean2, *rstd2, *lse;
    void *low[GP_MAPS];
    uint64_t n_bytes;
} gp_kept;

static gp_kept gp_keep(const zt_model *m, const zt_block *k, const zt_batch *b, void *tape)
{
    uint64_t rows = zt_batch_rows(b);
    uint64_t n = rows * m->config.hidden;
    uint64_t inner = rows * m->config.inner;
    zt_room room = {.base = tape};
    gp_kept t;

    t.h1 = zt_room_elems(&room, m, n);
    t.qkv = zt_room_elems(&room, m, 3 * n);
    t.o = zt_room_elems(&room, m, n);
    t.r = zt_room_elems(&room, m, n);
    t.h2 = zt_room_elems(&room, m, n);
    t.pre = zt_room_elems(&room, m, inner);
    t.act = zt_room_elems(&room, m, inner);
    t.mean1 = zt_room_floats(&room, rows);
    t.rstd1 = zt_room_floats(&room, rows);
    t.mean2 = zt_room_floats(&room, rows);
    t.rstd2 = zt_room_floats(&room, rows);
    t.lse = zt_room_floats(&room, rows * m->config.heads);
    for (int i = 0; i < GP_MAPS; i++)
        t.low[i] = zt_room_take(&room, zt_map_low(m, &k->map[i], rows));
    t.n_bytes = room.used;
    return t;
}

/* Workspace of the backward pass; the forward pass uses `spare` alone. */
typedef struct gp_work {
    void *d_inner, *d_qkv; /* share memory, because d_inner is not used after d_qkv begins */
    void *d_h, *masked, *spare;
    uint64_t n_bytes;
} gp_work;

static gp_work gp_working(const zt_model *m, const zt_block *k, const zt_batch *b, void *scratch)
{
    const zt_model_config *f = &m->config;
    uint64_t rows = zt_batch_rows(b);
    zt_room room = {.base = scratch};
    gp_work w;

    w.d_inner =
        zt_room_elems(&room, m, rows * (f->inner > 3 * f->hidden ? f->inner : 3 * f->hidden));
    w.d_qkv = w.d_inner;
    w.d_h = zt_room_elems(&room, m, rows * f->hidden);
    w.masked = zt_room_elems(&room, m, f->dropout_hidden > 0.0F ? rows * f->hidden : 0);
    w.spare = zt_room_take(&room, zt_block_spare(m, k, GP_MAPS, rows));
    w.n_bytes = room.used;
    return w;
}

static uint64_t gp_tape(const zt_model *m, const zt_layer *l, const zt_batch *b)
{
    return gp_keep(m, zt_block_of(m, l), b, NULL).n_bytes;
}

static uint64_t gp_scratch(const zt_model *m, const zt_layer *l, const zt_batch *b)
{
    return gp_working(m, zt_block_of(m, l), b, NULL).n_bytes;
}

static zt_attention gp_attention(const zt_call *c, const zt_layer *l, const gp_kept *t)
{
    const zt_model_config *f = &c->m->config;
    uint64_t n = f->hidden;
    zt_attention a = {.batch = c->p->in.batch,
                      .seq = c->p->in.seq,
                      .heads = f->heads,
                      .kv_heads = f->heads,
                      .width = f->head_width,
                      .ldq = 3 * n,
                      .ldk = 3 * n,
                      .ldv = 3 * n,
                      .ldo = n,
                      .causal = true,
                      .mask = c->p->in.attention_mask,
                      .p = c->p->train ? f->dropout_attention : 0.0F,
                      .seed = zt_seed(c, ZT_SITE_ATTENTION),
                      .q = t->qkv,
                      .k = zt_at_const(c->m, t->qkv, n),
                      .v = zt_at_const(c->m, t->qkv, 2 * n),
                      .o = t->o,
                      .lse = t->lse};
    double scale = f->scale_attention ? 1.0 / sqrt((double)f->head_width) : 1.0;

    a.scale = (float)(f->scale_by_layer ? scale / ((double)l->block + 1.0) : scale);
    return a;
}

static void gp_fw(zt_model *m, const zt_layer *l, zt_pass *p, void *tape, const void *x, void *y)
{
    const zt_block *k = zt_block_of(m, l);
    zt_call c = {m, p, l->number, zt_batch_rows(&p->in)};
    gp_kept t = gp_keep(m, k, &p->in, tape);
    void *spare = gp_working(m, k, &p->in, p->scratch).spare;
    uint64_t n = c.rows * m->config.hidden;
    zt_norm n1 = {.x = x, .y = t.h1, .mean = t.mean1, .rstd = t.rstd1};
    zt_norm n2 = {.x = x, .add = t.r, .sum = t.r, .y = t.h2, .mean = t.mean2, .rstd = t.rstd2};
    zt_map_fw qkv = {.x = t.h1, .y = t.qkv, .low = t.low[GP_QKV], .spare = spare};
    zt_map_fw o = {.x = t.o, .y = t.r, .low = t.low[GP_O], .spare = spare};
    zt_map_fw up = {.act = m->config.act, .x = t.h2, .y = t.act, .pre = t.pre};
    zt_map_fw down = {.x = t.act, .y = y, .low = t.low[GP_DOWN], .spare = spare};
    zt_attention a;

    zt_affine_forward(&c, &k->norm[0], &n1);
    zt_map_forward(&c, &k->map[GP_QKV], &qkv);
    a = gp_attention(&c, l, &t);
    zt_attend(&c, &a);
    zt_map_forward(&c, &k->map[GP_O], &o); // r holds the branch until the norm adds x
    zt_drop(&c, ZT_SITE_HIDDEN_1, m->config.dropout_hidden,
            &(zt_dropout){.n = n, .x = t.r, .y = t.r});
    zt_affine_forward(&c, &k->norm[1], &n2);
    up.low = t.low[GP_UP];
    up.spare = spare;
    zt_map_forward(&c, &k->map[GP_UP], &up);
    zt_map_residual(&c, &k->map[GP_DOWN], &down, t.r, ZT_SITE_HIDDEN_2);
}

/* dx holds dy, the residual's gradient; add the gradient through the inner layer. */
static void gp_bw_inner(const zt_call *c, const zt_block *k, const gp_kept *t, const gp_work *w,
                        void *dx)
{
    zt_model *m = c->m;
    zt_map_bw down = {.x = t->act, .dx = w->d_inner, .low = t->low[GP_DOWN], .spare = w->spare};
    zt_act_grad act = {.act = m->config.act, .n = c->rows * m->config.inner, .pre = t->pre};
    zt_map_bw up = {
        .x = t->h2, .dy = w->d_inner, .dx = w->d_h, .low = t->low[GP_UP], .spare = w->spare};
    zt_norm_grad norm = {
        .dx_add = true, .x = t->r, .dy = w->d_h, .mean = t->mean2, .rstd = t->rstd2, .dx = dx};

    down.dy = zt_branch_grad(c, ZT_SITE_HIDDEN_2, dx, m->config.hidden, w->masked);
    zt_map_backward(c, &k->map[GP_DOWN], &down);
    act.dy = w->d_inner;
    act.dx = w->d_inner;
    m->device->ops->act_grad(m->device, m->dtype, &act);
    zt_map_backward(c, &k->map[GP_UP], &up);
    zt_affine_backward(c, &k->norm[1], &norm);
}

static void gp_bw_attention(const zt_call *c, const zt_layer *l, const gp_kept *t, const gp_work *w,
                            void *dx)
{
    zt_model *m = c->m;
    const zt_block *k = zt_block_of(m, l);
    uint64_t n = m->config.hidden;
    zt_map_bw o = {.x = t->o, .dx = w->d_h, .low = t->low[GP_O], .spare = w->spare};
    zt_attention_grad a = {.fw = gp_attention(c, l, t), .lddo = n, .dout = w->d_h, .dq = w->d_qkv};
    zt_map_bw qkv = {
        .x = t->h1, .dy = w->d_qkv, .dx = w->d_h, .low = t->low[GP_QKV], .spare = w->spare};

    o.dy = zt_branch_grad(c, ZT_SITE_HIDDEN_1, dx, n, w->masked);
    zt_map_backward(c, &k->map[GP_O], &o);
    a.dk = zt_at(m, w->d_qkv, n);
    a.dv = zt_at(m, w->d_qkv, 2 * n);
    m->device->ops->attention_grad(m->device, m->dtype, &a);
    zt_map_backward(c, &k->map[GP_QKV], &qkv);
}

/* LIMIT: the parameters are those of zt_layer_ops. */
static void gp_bw(zt_model *m, const zt_layer *l, zt_pass *p, void *tape, const void *x,
                  const void *dy, void *dx)
{
    const zt_block *k = zt_block_of(m, l);
    zt_call c = {m, p, l->number, zt_batch_rows(&p->in)};
    gp_kept t = gp_keep(m, k, &p->in, tape);
    gp_work w = gp_working(m, k, &p->in, p->scratch);
    zt_norm_grad norm = {
        .dx_add = true, .x = x, .dy = w.d_h, .mean = t.mean1, .rstd = t.rstd1, .dx = dx};

    if (!zt_wants_backward(m, l))
        return;
    if (dx != dy)
        m->device->ops->copy(m->device, dx, dy, c.rows * m->config.hidden * zt_elem(m));
    gp_bw_inner(&c, k, &t, &w, dx);
    gp_bw_attention(&c, l, &t, &w, dx);
    zt_affine_backward(&c, &k->norm[0], &norm);
}

/* ---- building ---- */

static const zt_layer_ops gp_block_ops = {gp_tape, gp_scratch, gp_fw, gp_bw};

static void gp_build_block(zt_build *b, uint64_t i)
{
    const zt_model_config *f = &b->m->config;
    uint64_t n = f->hidden;
    zt_block *k = &b->own->block[i];
    const char *name = ckpt_arena_printf(b->m->arena, "transformer.h.%" PRIu64, i);
    float std = f->init_range;
    // the last map of each branch has smaller initial values: Radford et al. 2019, section 2.3
    float last = (float)((double)std / sqrt(2.0 * (double)f->layers));
    zt_map_shape qkv = {n, 3 * n, true, true, std};
    zt_map_shape o = {n, n, true, true, last};
    zt_map_shape up = {n, f->inner, true, true, std};
    zt_map_shape down = {f->inner, n, true, true, last};

    zt_build_layer(b, &gp_block_ops, true, name);
    k->norm[0] = zt_build_norm(b, zt_build_name(b, name, ".ln_1"), true);
    k->map[GP_QKV] = zt_build_map(b, zt_build_name(b, name, ".attn.c_attn"), &qkv);
    k->map[GP_O] = zt_build_map(b, zt_build_name(b, name, ".attn.c_proj"), &o);
    k->norm[1] = zt_build_norm(b, zt_build_name(b, name, ".ln_2"), true);
    k->map[GP_UP] = zt_build_map(b, zt_build_name(b, name, ".mlp.c_fc"), &up);
    k->map[GP_DOWN] = zt_build_map(b, zt_build_name(b, name, ".mlp.c_proj"), &down);
}

int zt_gpt2_build(zt_build *b)
{
    const zt_model_config *f = &b->m->config;
    zt_own *own = b->own;

    zt_build_layer(b, &zt_stem_ops, false, "transformer.wte");
    own->word = zt_build_matrix(b, "transformer.wte.weight", f->vocab, f->hidden, f->init_range);
    own->position =
        zt_build_matrix(b, "transformer.wpe.weight", f->positions, f->hidden, f->init_range);
    for (uint64_t i = 0; i < f->layers; i++)
        gp_build_block(b, i);
    zt_build_layer(b, &zt_lm_ops, false, "lm_head");
    own->lm = &zt_final_norm;
    own->norm = zt_build_norm(b, "transformer.ln_f", true);
    zt_build_lm_out(b, "lm_head.weight");
    zt_build_close(b);
    return b->rc;
}
