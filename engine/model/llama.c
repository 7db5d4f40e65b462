/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llama.c: implements the blocks of Llama (Touvron et al. 2023) and its family: RMS norm before
 * each branch, rotary positions, grouped heads, SwiGLU.
 *
 *     r = x + o(attention(rope(q n1), rope(k n1), v n1)), n1 = norm(x)
 *     y = r + down(silu(gate n2) * up n2), n2 = norm(r)
 *
 * Qwen2 (arXiv 2407.10671) has biases in q, k and v.  Qwen3 (arXiv 2505.09388) has an RMS norm over
 * each head of q and k before rotation.  Mistral's layers (arXiv 2310.06825), and Qwen's upper
 * layers if config.json enables it, have a window of keys.
 *
 * OLMo-2 (arXiv 2501.00656) has norms of the branches' outputs instead of their inputs, and norms
 * of q and k over all heads together.
 *
 *     r = x + norm(o(attention(x)));  y = r + norm(down(silu(gate r) * up r))
 *
 * Gemma 2 (arXiv 2408.00118) has both kinds of norms, which multiply by 1 + w, GELU for SiLU, caps
 * of scores and logits, and windows in every other layer.
 *
 * Gemma 3 (arXiv 2503.19786) is Gemma 2 with norms of each head of q and k, other positions in
 * layers with a window, and no caps.
 *
 * Phi-3 (arXiv 2404.14219) has one map for q, k and v, one for gate and up, whose rows are dealt
 * out, and dropout of the branches.
 *
 * q, k, v lie side by side in rows of (heads + 2 kv_heads) * head_width.  With norms of q and k,
 * all rows of q come first, then those of k and v, so heads are the rows of a norm.
 */
#include <inttypes.h>
#include <math.h>

#include "engine/model/layers.h"

enum { LL_Q, LL_K, LL_V, LL_O, LL_GATE, LL_UP, LL_DOWN };

/*
 * Norms of a block: of the inputs of attention and of the inner layer, of their outputs (_AFTER),
 * and with qk_norm of q, and of k at LL_NORM_Q + LL_K.
 */
enum { LL_NORM_1, LL_NORM_2, LL_AFTER_1, LL_AFTER_2, LL_NORM_Q };

/* Values that a block stores for its backward pass. */
typedef struct ll_kept {
    void *h1, *h2; /* inputs of the branches if they have norms, else NULL */
    void *qkv, *o, *r, *gate, *up, *act;
    void *raw;      /* q and k before their norms; NULL: no norms */
    void *after[2]; /* outputs of the branches if they have norms, else NULL */
    float *rstd1, *rstd2, *rstd_after[2], *lse;
    float *rstd[2]; /* for the norms of the heads of q, k */
    void *low[ZT_MAPS];
    uint64_t n_bytes;
} ll_kept;

/* Elements of a row of q, k and v together. */
static uint64_t ll_packed(const zt_model *m)
{
    return (m->config.heads + 2 * m->config.kv_heads) * m->config.head_width;
}

/* The last map of q, k and v, which may be one. */
static int ll_last(const zt_model *m)
{
    return m->config.fused ? LL_Q : LL_V;
}

/* Number of heads of q, k or v. */
static uint64_t ll_heads(const zt_model *m, int map)
{
    return map == LL_Q ? m->config.heads : m->config.kv_heads;
}

/* Rows of the norm of q or k for each token. */
static uint64_t ll_norm_rows(const zt_model *m, int map)
{
    return m->config.qk_whole ? 1 : ll_heads(m, map);
}

static uint64_t ll_norm_width(const zt_model *m, int map)
{
    return m->config.head_width * ll_heads(m, map) / ll_norm_rows(m, map);
}

/* Offset of q, k or v in the buffer of all three, and the stride of its rows; in elements. */
typedef struct ll_part {
    uint64_t at, ld;
} ll_part;

static ll_part ll_where(const zt_model *m, int map, uint64_t rows)
{
    uint64_t heads[] = {0, m->config.heads, m->config.heads + m->config.kv_heads};
    uint64_t at = heads[map] * m->config.head_width;

    if (!m->config.qk_norm)
        return (ll_part){at, ll_packed(m)};
    return (ll_part){at * rows, ll_heads(m, map) * m->config.head_width};
}

static ll_kept ll_keep(const zt_model *m, const zt_block *k, const zt_batch *b, void *tape)
{
    const zt_model_config *f = &m->config;
    uint64_t rows = zt_batch_rows(b);
    zt_room room = {.base = tape};
    ll_kept t = {0};

    if (f->norm_first) {
        t.h1 = zt_room_elems(&room, m, rows * f->hidden);
        t.h2 = zt_room_elems(&room, m, rows * f->hidden);
    }
    for (int i = 0; f->norm_branch && i < 2; i++) {
        t.after[i] = zt_room_elems(&room, m, rows * f->hidden);
        t.rstd_after[i] = zt_room_floats(&room, rows);
    }
    t.qkv = zt_room_elems(&room, m, rows * ll_packed(m));
    t.o = zt_room_elems(&room, m, rows * f->heads * f->head_width);
    t.r = zt_room_elems(&room, m, rows * f->hidden);
    t.gate = zt_room_elems(&room, m, rows * f->inner);
    t.up = zt_room_elems(&room, m, rows * f->inner);
    t.act = zt_room_elems(&room, m, rows * f->inner);
    t.rstd1 = zt_room_floats(&room, rows);
    t.rstd2 = zt_room_floats(&room, rows);
    t.lse = zt_room_floats(&room, rows * f->heads);
    t.raw = NULL;
    if (f->qk_norm) {
        t.raw = zt_room_elems(&room, m, rows * (f->heads + f->kv_heads) * f->head_width);
        t.rstd[LL_Q] = zt_room_floats(&room, rows * ll_norm_rows(m, LL_Q));
        t.rstd[LL_K] = zt_room_floats(&room, rows * ll_norm_rows(m, LL_K));
    }
    for (int i = 0; i < ZT_MAPS; i++)
        t.low[i] = zt_room_take(&room, zt_map_low(m, &k->map[i], rows));
    t.n_bytes = room.used;
    return t;
}

/* Workspace of the backward pass; the forward pass uses `spare` and `pair`. */
typedef struct ll_work {
    void *d_act, *d_qkv; /* share memory, because d_act is not used after d_qkv begins */
    void *d_h, *d_o, *spare;
    void *d_after; /* gradient of a branch's output before its norm or dropout */
    void *pair;    /* with one map for both: gate and up of each row, or their gradients */
    uint64_t n_bytes;
} ll_work;

static ll_work ll_working(const zt_model *m, const zt_block *k, const zt_batch *b, void *scratch)
{
    const zt_model_config *f = &m->config;
    uint64_t rows = zt_batch_rows(b);
    uint64_t wide = ll_packed(m) > f->inner ? ll_packed(m) : f->inner;
    zt_room room = {.base = scratch};
    ll_work w;

    w.d_act = zt_room_elems(&room, m, rows * wide);
    w.d_qkv = w.d_act;
    w.d_h = zt_room_elems(&room, m, rows * f->hidden);
    w.d_o = zt_room_elems(&room, m, rows * f->heads * f->head_width);
    w.d_after =
        zt_room_elems(&room, m, f->norm_branch || f->dropout_hidden > 0.0F ? rows * f->hidden : 0);
    w.pair = zt_room_elems(&room, m, f->fused ? 2 * rows * f->inner : 0);
    w.spare = zt_room_take(&room, zt_block_spare(m, k, ZT_MAPS, rows));
    w.n_bytes = room.used;
    return w;
}

static uint64_t ll_tape(const zt_model *m, const zt_layer *l, const zt_batch *b)
{
    return ll_keep(m, zt_block_of(m, l), b, NULL).n_bytes;
}

static uint64_t ll_scratch(const zt_model *m, const zt_layer *l, const zt_batch *b)
{
    return ll_working(m, zt_block_of(m, l), b, NULL).n_bytes;
}

/* ---- rotation ---- */

/* Rotate q and k, in one call if they are adjacent. */
static void ll_rope(const zt_call *c, void *qkv, bool inverse)
{
    const zt_model_config *f = &c->m->config;
    const ll_part k = ll_where(c->m, LL_K, c->rows);
    zt_rope a = {.heads = f->qk_norm ? f->heads : f->heads + f->kv_heads,
                 .ld = ll_where(c->m, LL_Q, c->rows).ld,
                 .inverse = inverse,
                 .x = qkv};

    zt_rotate(c, &a);
    if (f->qk_norm) {
        a.heads = f->kv_heads;
        a.ld = k.ld;
        a.x = zt_at(c->m, qkv, k.at);
        zt_rotate(c, &a);
    }
}

static zt_attention ll_attention(const zt_call *c, const ll_kept *t)
{
    const zt_model_config *f = &c->m->config;
    const uint32_t block = c->m->layers.at[c->layer].block;
    const ll_part q = ll_where(c->m, LL_Q, c->rows);
    const ll_part k = ll_where(c->m, LL_K, c->rows);
    const ll_part v = ll_where(c->m, LL_V, c->rows);
    const double width = f->score_width > 0 ? (double)f->score_width : (double)f->head_width;

    return (zt_attention){.batch = c->p->in.batch,
                          .seq = c->p->in.seq,
                          .heads = f->heads,
                          .kv_heads = f->kv_heads,
                          .width = f->head_width,
                          .ldq = q.ld,
                          .ldk = k.ld,
                          .ldv = v.ld,
                          .ldo = f->heads * f->head_width,
                          .scale = (float)(1.0 / sqrt(width)),
                          .cap = f->score_cap,
                          .causal = true,
                          .window = f->slides && f->slides[block] ? f->window : 0,
                          .mask = c->p->in.attention_mask,
                          .p = c->p->train ? f->dropout_attention : 0.0F,
                          .seed = zt_seed(c, ZT_SITE_ATTENTION),
                          .q = t->qkv,
                          .k = zt_at_const(c->m, t->qkv, k.at),
                          .v = zt_at_const(c->m, t->qkv, v.at),
                          .o = t->o,
                          .lse = t->lse};
}

/* ---- forward ---- */

/* Normalise q or k. */
static void ll_fw_qk_norm(const zt_call *c, const zt_block *k, const ll_kept *t, int map)
{
    const uint64_t at = ll_where(c->m, map, c->rows).at;
    zt_norm n = {.rows = c->rows * ll_norm_rows(c->m, map),
                 .width = ll_norm_width(c->m, map),
                 .x = zt_at_const(c->m, t->raw, at),
                 .y = zt_at(c->m, t->qkv, at),
                 .rstd = t->rstd[map]};

    zt_affine_forward(c, &k->norm[LL_NORM_Q + map], &n);
}

/* Normalise the output of branch i into y. */
static void ll_fw_after(const zt_call *c, const zt_block *k, const ll_kept *t, int i, void *y)
{
    zt_norm n = {.x = t->after[i], .y = y, .rstd = t->rstd_after[i]};

    zt_affine_forward(c, &k->norm[LL_AFTER_1 + i], &n);
}

/* The branch of attention with input x, in t->r. */
static void ll_fw_attention(const zt_call *c, const zt_block *k, const ll_kept *t, const void *x,
                            void *spare)
{
    zt_model *m = c->m;
    zt_map_fw o = {.x = t->o, .y = t->r, .low = t->low[LL_O], .spare = spare};
    zt_attention a = ll_attention(c, t);

    for (int i = LL_Q; i <= ll_last(m); i++) {
        const ll_part to = ll_where(m, i, c->rows);
        zt_map_fw f = {.ldy = to.ld, .x = x, .low = t->low[i], .spare = spare};

        f.y = zt_at(m, t->raw && i != LL_V ? t->raw : t->qkv, to.at);
        zt_map_forward(c, &k->map[i], &f);
    }
    if (t->raw) {
        ll_fw_qk_norm(c, k, t, LL_Q);
        ll_fw_qk_norm(c, k, t, LL_K);
    }
    ll_rope(c, t->qkv, false);
    zt_attend(c, &a);
    o.y = m->config.norm_branch ? t->after[0] : t->r;
    zt_map_forward(c, &k->map[LL_O], &o);
    if (m->config.norm_branch)
        ll_fw_after(c, k, t, 0, t->r);
    zt_drop(c, ZT_SITE_HIDDEN_1, m->config.dropout_hidden,
            &(zt_dropout){.n = c->rows * m->config.hidden, .x = t->r, .y = t->r});
}

/* Deal the rows of one map out to gate and up; back: collect their gradients. */
static void ll_deal(const zt_call *c, void *pair, const ll_kept *t, bool back)
{
    zt_model *m = c->m;
    const uint64_t n = m->config.inner;

    for (unsigned i = 0; i < 2; i++) {
        void *one = i == 0 ? t->gate : t->up, *part = zt_at(m, pair, i * n);
        zt_rows r = {.rows = c->rows, .width = n, .from = back ? one : part};

        r.to = back ? part : one;
        r.ld_from = back ? n : 2 * n;
        r.ld_to = back ? 2 * n : n;
        m->device->ops->rows(m->device, m->dtype, &r);
    }
}

static void ll_fw_gate(const zt_call *c, const zt_block *k, const ll_kept *t, const void *x)
{
    zt_model *m = c->m;
    const ll_work w = ll_working(m, k, &c->p->in, c->p->scratch);
    zt_map_fw gate = {.x = x, .y = t->gate, .low = t->low[LL_GATE], .spare = w.spare};
    zt_map_fw up = {.x = x, .y = t->up, .low = t->low[LL_UP], .spare = w.spare};

    if (m->config.fused) {
        gate.y = w.pair;
        zt_map_forward(c, &k->map[LL_GATE], &gate);
        ll_deal(c, w.pair, t, false);
        return;
    }
    zt_map_forward(c, &k->map[LL_GATE], &gate);
    zt_map_forward(c, &k->map[LL_UP], &up);
}

/* y = t->r + the inner layer of x. */
static void ll_fw_inner(const zt_call *c, const zt_block *k, const ll_kept *t, const void *x,
                        void *y)
{
    zt_model *m = c->m;
    void *spare = ll_working(m, k, &c->p->in, c->p->scratch).spare;
    zt_map_fw down = {.x = t->act, .y = y, .low = t->low[LL_DOWN], .spare = spare};
    zt_swiglu act = {.n = c->rows * m->config.inner, .act = m->config.act};

    act.gate = t->gate;
    act.up = t->up;
    act.y = t->act;
    ll_fw_gate(c, k, t, x);
    m->device->ops->swiglu(m->device, m->dtype, &act);
    if (!m->config.norm_branch) {
        zt_map_residual(c, &k->map[LL_DOWN], &down, t->r, ZT_SITE_HIDDEN_2);
        return;
    }
    down.y = t->after[1];
    zt_map_forward(c, &k->map[LL_DOWN], &down);
    ll_fw_after(c, k, t, 1, y);
    m->device->ops->add(m->device, m->dtype, c->rows * m->config.hidden, y, t->r);
}

static void ll_fw(zt_model *m, const zt_layer *l, zt_pass *p, void *tape, const void *x, void *y)
{
    const zt_block *k = zt_block_of(m, l);
    const bool first = m->config.norm_first;
    zt_call c = {m, p, l->number, zt_batch_rows(&p->in)};
    ll_kept t = ll_keep(m, k, &p->in, tape);
    zt_norm n1 = {.x = x, .y = t.h1, .rstd = t.rstd1};
    zt_norm n2 = {.x = x, .add = t.r, .sum = t.r, .y = t.h2, .rstd = t.rstd2};

    if (first)
        zt_affine_forward(&c, &k->norm[LL_NORM_1], &n1);
    ll_fw_attention(&c, k, &t, first ? t.h1 : x, ll_working(m, k, &p->in, p->scratch).spare);
    if (first)
        zt_affine_forward(&c, &k->norm[LL_NORM_2], &n2); // r becomes the sum with x
    else
        m->device->ops->add(m->device, m->dtype, c.rows * m->config.hidden, t.r, x);
    ll_fw_inner(&c, k, &t, first ? t.h2 : t.r, y);
}

/* ---- backward ---- */

/* Gradient of branch i's output from dy, that of its sum with the residual. */
static const void *ll_bw_after(const zt_call *c, const zt_block *k, const ll_kept *t,
                               const ll_work *w, int i, const void *dy)
{
    const uint32_t site = i == 0 ? ZT_SITE_HIDDEN_1 : ZT_SITE_HIDDEN_2;
    zt_norm_grad n = {.x = t->after[i], .dy = dy, .rstd = t->rstd_after[i], .dx = w->d_after};

    if (!c->m->config.norm_branch)
        return zt_branch_grad(c, site, dy, c->m->config.hidden, w->d_after);
    zt_affine_backward(c, &k->norm[LL_AFTER_1 + i], &n);
    return w->d_after;
}

/* dx holds dy, the residual's gradient; add the gradient through the inner layer. */
static void ll_bw_inner(const zt_call *c, const zt_block *k, const ll_kept *t, const ll_work *w,
                        void *dx)
{
    zt_model *m = c->m;
    const bool first = m->config.norm_first;
    const void *x = first ? t->h2 : t->r;
    void *to = first ? w->d_h : dx;
    zt_map_bw down = {.x = t->act, .dx = w->d_act, .low = t->low[LL_DOWN], .spare = w->spare};
    zt_swiglu act = {.n = c->rows * m->config.inner, .act = m->config.act, .dy = w->d_act};
    zt_map_bw gate = {.dx_add = !first, .x = x, .dx = to, .low = t->low[LL_GATE]};
    zt_map_bw up = {.dx_add = true, .x = x, .dy = t->up, .dx = to, .low = t->low[LL_UP]};
    zt_norm_grad norm = {.dx_add = true, .x = t->r, .dy = w->d_h, .rstd = t->rstd2, .dx = dx};

    down.dy = ll_bw_after(c, k, t, w, 1, dx);
    zt_map_backward(c, &k->map[LL_DOWN], &down);
    act.gate = t->gate;
    act.up = t->up;
    act.dgate = t->gate;
    act.dup = t->up;
    m->device->ops->swiglu_grad(m->device, m->dtype, &act);
    if (m->config.fused)
        ll_deal(c, w->pair, t, true);
    gate.dy = m->config.fused ? w->pair : t->gate;
    gate.spare = w->spare;
    zt_map_backward(c, &k->map[LL_GATE], &gate);
    up.spare = w->spare;
    if (!m->config.fused)
        zt_map_backward(c, &k->map[LL_UP], &up);
    if (first)
        zt_affine_backward(c, &k->norm[LL_NORM_2], &norm);
}

/*
 * Gradient of q (or k) before its norm, from that after the norm in d_qkv.  It overwrites the
 * stored q and k, which are no longer needed.
 */
static void ll_bw_qk_norm(const zt_call *c, const zt_block *k, const ll_kept *t, const ll_work *w,
                          int map)
{
    const uint64_t at = ll_where(c->m, map, c->rows).at;
    zt_norm_grad n = {.rows = c->rows * ll_norm_rows(c->m, map),
                      .width = ll_norm_width(c->m, map),
                      .x = zt_at_const(c->m, t->raw, at),
                      .dy = zt_at_const(c->m, w->d_qkv, at),
                      .rstd = t->rstd[map],
                      .dx = zt_at(c->m, t->qkv, at)};

    zt_affine_backward(c, &k->norm[LL_NORM_Q + map], &n);
}

/* Gradient of attention's input x, from those of q, k, v in w->d_qkv, in `to`. */
static void ll_bw_qkv(const zt_call *c, const ll_kept *t, const ll_work *w, const void *x, void *to)
{
    zt_model *m = c->m;
    const zt_block *k = zt_block_of(m, &m->layers.at[c->layer]);

    if (t->raw) {
        ll_bw_qk_norm(c, k, t, w, LL_Q);
        ll_bw_qk_norm(c, k, t, w, LL_K);
    }
    for (int i = LL_Q; i <= ll_last(m); i++) {
        const ll_part from = ll_where(m, i, c->rows);
        zt_map_bw g = {.lddy = from.ld, .x = x, .dx = to, .low = t->low[i], .spare = w->spare};

        g.dx_add = i != LL_Q || !m->config.norm_first;
        g.dy = zt_at(m, t->raw && i != LL_V ? t->qkv : w->d_qkv, from.at);
        zt_map_backward(c, &k->map[i], &g);
    }
}

/* dx holds the gradient of r; add the gradient through attention, whose input is x or its norm. */
static void ll_bw_attention(const zt_call *c, const ll_kept *t, const ll_work *w, const void *x,
                            void *dx)
{
    zt_model *m = c->m;
    const zt_block *k = zt_block_of(m, &m->layers.at[c->layer]);
    zt_map_bw o = {.x = t->o, .dx = w->d_o, .low = t->low[LL_O], .spare = w->spare};
    zt_attention_grad a = {.fw = ll_attention(c, t), .dout = w->d_o, .dq = w->d_qkv};
    zt_norm_grad norm = {.dx_add = true, .x = x, .dy = w->d_h, .rstd = t->rstd1, .dx = dx};

    o.dy = ll_bw_after(c, k, t, w, 0, dx);
    zt_map_backward(c, &k->map[LL_O], &o);
    a.lddo = a.fw.ldo;
    a.dk = zt_at(m, w->d_qkv, ll_where(m, LL_K, c->rows).at);
    a.dv = zt_at(m, w->d_qkv, ll_where(m, LL_V, c->rows).at);
    m->device->ops->attention_grad(m->device, m->dtype, &a);
    ll_rope(c, w->d_qkv, true);
    if (!m->config.norm_first) {
        ll_bw_qkv(c, t, w, x, dx);
        return;
    }
    ll_bw_qkv(c, t, w, t->h1, w->d_h);
    zt_affine_backward(c, &k->norm[LL_NORM_1], &norm);
}

/* LIMIT: the parameters are those of zt_layer_ops. */
static void ll_bw(zt_model *m, const zt_layer *l, zt_pass *p, void *tape, const void *x,
                  const void *dy, void *dx)
{
    const zt_block *k = zt_block_of(m, l);
    zt_call c = {m, p, l->number, zt_batch_rows(&p->in)};
    ll_kept t = ll_keep(m, k, &p->in, tape);
    ll_work w = ll_working(m, k, &p->in, p->scratch);

    if (!zt_wants_backward(m, l))
        return;
    if (dx != dy)
        m->device->ops->copy(m->device, dx, dy, c.rows * m->config.hidden * zt_elem(m));
    ll_bw_inner(&c, k, &t, &w, dx);
    ll_bw_attention(&c, &t, &w, x, dx);
}

/* ---- building ---- */

static const zt_layer_ops ll_block_ops = {ll_tape, ll_scratch, ll_fw, ll_bw};

/* The norm of q or k. */
static zt_affine ll_build_qk_norm(zt_build *b, const char *block, int map)
{
    const char *const name = map == LL_Q ? ".self_attn.q_norm.weight" : ".self_attn.k_norm.weight";
    zt_affine a = {.b = ZT_NO_PARAM};

    a.w = zt_build_vector(b, zt_build_name(b, block, name), ll_norm_width(b->m, map),
                          !b->m->config.norm_plus_one);
    return a;
}

static void ll_build_norms(zt_build *b, zt_block *k, const char *block)
{
    const zt_model_config *f = &b->m->config;
    const struct {
        const char *module;
        int norm;
        bool there;
    } norms[] = {
        {".input_layernorm", LL_NORM_1, f->norm_first},
        {".post_attention_layernorm", f->norm_branch ? LL_AFTER_1 : LL_NORM_2, true},
        {".pre_feedforward_layernorm", LL_NORM_2, f->norm_first && f->norm_branch},
        {".post_feedforward_layernorm", LL_AFTER_2, f->norm_branch},
    };

    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
        if (norms[i].there)
            k->norm[norms[i].norm] =
                zt_build_norm(b, zt_build_name(b, block, norms[i].module), false);
    }
}

static void ll_build_block(zt_build *b, uint64_t i)
{
    const zt_model_config *f = &b->m->config;
    zt_block *k = &b->own->block[i];
    const char *name = ckpt_arena_printf(b->m->arena, "model.layers.%" PRIu64, i);
    uint64_t n = f->hidden;
    uint64_t q = f->heads * f->head_width;
    uint64_t kv = f->kv_heads * f->head_width;
    float std = f->init_range;
    const bool one = f->fused;
    const struct {
        const char *module;
        int map;
        bool there;
        zt_map_shape shape;
    } maps[] = {
        {".self_attn.o_proj", LL_O, one, {q, n, f->output_bias, false, std}},
        {".self_attn.qkv_proj", LL_Q, one, {n, q + 2 * kv, f->attention_bias, false, std}},
        {".self_attn.q_proj", LL_Q, !one, {n, q, f->attention_bias, false, std}},
        {".self_attn.k_proj", LL_K, !one, {n, kv, f->attention_bias, false, std}},
        {".self_attn.v_proj", LL_V, !one, {n, kv, f->attention_bias, false, std}},
        {".self_attn.o_proj", LL_O, !one, {q, n, f->output_bias, false, std}},
        {".mlp.gate_up_proj", LL_GATE, one, {n, 2 * f->inner, f->mlp_bias, false, std}},
        {".mlp.gate_proj", LL_GATE, !one, {n, f->inner, f->mlp_bias, false, std}},
        {".mlp.up_proj", LL_UP, !one, {n, f->inner, f->mlp_bias, false, std}},
        {".mlp.down_proj", LL_DOWN, true, {f->inner, n, f->mlp_bias, false, std}},
    };

    zt_build_layer(b, &ll_block_ops, true, name);
    for (int j = 0; j < ZT_MAPS; j++)
        k->map[j] = zt_no_map;
    for (size_t j = 0; j < sizeof maps / sizeof *maps; j++) {
        const int map = maps[j].map;

        if (maps[j].there)
            k->map[map] = zt_build_map(b, zt_build_name(b, name, maps[j].module), &maps[j].shape);
        if (maps[j].there && map == LL_O && f->qk_norm) {
            k->norm[LL_NORM_Q + LL_Q] = ll_build_qk_norm(b, name, LL_Q);
            k->norm[LL_NORM_Q + LL_K] = ll_build_qk_norm(b, name, LL_K);
        }
    }
    ll_build_norms(b, k, name);
}

int zt_llama_build(zt_build *b)
{
    const zt_model_config *f = &b->m->config;
    zt_own *own = b->own;

    zt_build_layer(b, &zt_stem_ops, false, "model.embed_tokens");
    own->word = zt_build_matrix(b, "model.embed_tokens.weight", f->vocab, f->hidden, f->init_range);
    own->position = ZT_NO_PARAM;
    for (uint64_t i = 0; i < f->layers; i++)
        ll_build_block(b, i);
    zt_build_layer(b, &zt_lm_ops, false, "lm_head");
    own->lm = &zt_final_norm;
    own->norm = zt_build_norm(b, "model.norm", false);
    zt_build_lm_out(b, "lm_head.weight");
    zt_build_close(b);
    return b->rc;
}
