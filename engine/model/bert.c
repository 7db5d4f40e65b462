/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bert.c: implements BERT (Devlin et al. 2019): embedding, blocks with the norm after each branch,
 * and two heads: classification of the first token (also regression and several labels) and the
 * masked LM.
 *
 *     x1 = LN(x + Wo attention(x));  y = LN(x1 + W2 act(W1 x1))
 *
 * q, k and v are three maps; k and v lie side by side in rows of 2 H.
 *
 * A classifier uses only the first row of each sample of the last block.  So this block computes
 * queries, and everything after attention, for these rows alone, and outputs [batch, hidden]; it
 * computes k and v for all rows.  Gradients do not change, because those of the other rows are
 * zero.
 */
#include <inttypes.h>
#include <math.h>

#include "engine/model/layers.h"

enum { BT_Q, BT_K, BT_V, BT_O, BT_UP, BT_DOWN, BT_MAPS };

/* True if a block outputs only first rows. */
static bool bt_few(const zt_model *m, const zt_layer *l)
{
    return m->config.arch == ZT_BERT_CLASSIFIER && l->block + 1 == m->config.layers;
}

/* Rows that a block outputs. */
static uint64_t bt_rows(const zt_model *m, const zt_layer *l, const zt_batch *b)
{
    return bt_few(m, l) ? b->batch : zt_batch_rows(b);
}

/* Rows of a matrix product's input: k and v need all rows, others may need fewer. */
static uint64_t bt_map_rows(const zt_model *m, const zt_layer *l, const zt_batch *b, int map)
{
    return map == BT_K || map == BT_V ? zt_batch_rows(b) : bt_rows(m, l, b);
}

/* Values that a block stores for its backward pass.  first: the input rows that it outputs; NULL:
 * all of them. */
typedef struct bt_kept {
    void *first, *q, *kv, *o, *s1, *x1, *pre, *act, *s2;
    float *mean1, *rstd1, *mean2, *rstd2, *lse;
    void *low[BT_MAPS];
    uint64_t n_bytes;
} bt_kept;

static bt_kept bt_keep(const zt_model *m, const zt_layer *l, const zt_batch *b, void *tape)
{
    const zt_block *k = zt_block_of(m, l);
    uint64_t all = zt_batch_rows(b), rows = bt_rows(m, l, b);
    uint64_t n = rows * m->config.hidden;
    zt_room room = {.base = tape};
    bt_kept t;

    t.first = bt_few(m, l) ? zt_room_elems(&room, m, n) : NULL;
    t.q = zt_room_elems(&room, m, n);
    t.kv = zt_room_elems(&room, m, all * 2 * m->config.hidden);
    t.o = zt_room_elems(&room, m, n);
    t.s1 = zt_room_elems(&room, m, n);
    t.x1 = zt_room_elems(&room, m, n);
    t.pre = zt_room_elems(&room, m, rows * m->config.inner);
    t.act = zt_room_elems(&room, m, rows * m->config.inner);
    t.s2 = zt_room_elems(&room, m, n);
    t.mean1 = zt_room_floats(&room, rows);
    t.rstd1 = zt_room_floats(&room, rows);
    t.mean2 = zt_room_floats(&room, rows);
    t.rstd2 = zt_room_floats(&room, rows);
    t.lse = zt_room_floats(&room, rows * m->config.heads);
    for (int i = 0; i < BT_MAPS; i++)
        t.low[i] = zt_room_take(&room, zt_map_low(m, &k->map[i], bt_map_rows(m, l, b, i)));
    t.n_bytes = room.used;
    return t;
}

/* Workspace of the backward pass; the forward pass uses `spare` alone. */
typedef struct bt_work {
    void *d_act, *d_q, *d_kv; /* share memory, because d_act is not used after the others begin */
    void *ds, *d_o, *d_first, *masked, *spare;
    uint64_t n_bytes;
} bt_work;

static bt_work bt_working(const zt_model *m, const zt_layer *l, const zt_batch *b, void *scratch)
{
    const zt_model_config *f = &m->config;
    uint64_t all = zt_batch_rows(b), rows = bt_rows(m, l, b);
    uint64_t n_act = rows * f->inner, n_qkv = (rows + 2 * all) * f->hidden, spare = 0;
    zt_room room = {.base = scratch};
    bt_work w;

    w.d_act = zt_room_elems(&room, m, n_act > n_qkv ? n_act : n_qkv);
    w.d_kv = w.d_act;
    w.d_q = scratch ? zt_at(m, w.d_kv, 2 * all * f->hidden) : NULL;
    w.ds = zt_room_elems(&room, m, rows * f->hidden);
    w.d_o = w.ds;
    w.d_first = zt_room_elems(&room, m, bt_few(m, l) ? rows * f->hidden : 0);
    w.masked = zt_room_elems(&room, m, f->dropout_hidden > 0.0F ? rows * f->hidden : 0);
    for (int i = 0; i < BT_MAPS; i++) {
        uint64_t n = zt_map_spare(m, &zt_block_of(m, l)->map[i], bt_map_rows(m, l, b, i));

        spare = n > spare ? n : spare;
    }
    w.spare = zt_room_take(&room, spare);
    w.n_bytes = room.used;
    return w;
}

static uint64_t bt_tape(const zt_model *m, const zt_layer *l, const zt_batch *b)
{
    return bt_keep(m, l, b, NULL).n_bytes;
}

static uint64_t bt_scratch(const zt_model *m, const zt_layer *l, const zt_batch *b)
{
    return bt_working(m, l, b, NULL).n_bytes;
}

/* c->rows: the rows that the block outputs. */
static zt_attention bt_attention(const zt_call *c, const bt_kept *t)
{
    const zt_model_config *f = &c->m->config;
    uint64_t n = f->hidden;

    return (zt_attention){.batch = c->p->in.batch,
                          .seq = c->p->in.seq,
                          .queries = c->rows / c->p->in.batch,
                          .heads = f->heads,
                          .kv_heads = f->heads,
                          .width = f->head_width,
                          .ldq = n,
                          .ldk = 2 * n,
                          .ldv = 2 * n,
                          .ldo = n,
                          .scale = (float)(1.0 / sqrt((double)f->head_width)),
                          .mask = c->p->in.attention_mask,
                          .p = c->p->train ? f->dropout_attention : 0.0F,
                          .seed = zt_seed(c, ZT_SITE_ATTENTION),
                          .q = t->q,
                          .k = t->kv,
                          .v = zt_at_const(c->m, t->kv, n),
                          .o = t->o,
                          .lse = t->lse};
}

/* Copy the first row of each sample of x. */
static void bt_pick(const zt_call *c, const void *x, void *first)
{
    zt_model *m = c->m;
    uint64_t n = m->config.hidden;
    zt_rows r = {.rows = c->p->in.batch,
                 .width = n,
                 .ld_to = n,
                 .ld_from = c->p->in.seq * n,
                 .from = x,
                 .to = first};

    m->device->ops->rows(m->device, m->dtype, &r);
}

/* Add gradients of first rows back to dx. */
static void bt_return(const zt_call *c, const void *first, void *dx)
{
    zt_model *m = c->m;
    uint64_t n = m->config.hidden;
    zt_rows r = {.rows = c->p->in.batch,
                 .width = n,
                 .ld_to = c->p->in.seq * n,
                 .ld_from = n,
                 .add = true,
                 .from = first,
                 .to = dx};

    m->device->ops->rows(m->device, m->dtype, &r);
}

/* Compute q of the rows that the block outputs (own: their input), k and v of all rows. */
static void bt_fw_qkv(const zt_call *c, const zt_block *k, const bt_kept *t, const void *x,
                      const void *own, void *spare)
{
    zt_model *m = c->m;
    zt_call all = *c;
    zt_map_fw q = {.x = own, .y = t->q, .low = t->low[BT_Q], .spare = spare};

    all.rows = zt_batch_rows(&c->p->in);
    zt_map_forward(c, &k->map[BT_Q], &q);
    for (int i = BT_K; i <= BT_V; i++) {
        zt_map_fw f = {.ldy = 2 * m->config.hidden, .x = x, .low = t->low[i], .spare = spare};

        f.y = zt_at(m, t->kv, i == BT_K ? 0 : m->config.hidden);
        zt_map_forward(&all, &k->map[i], &f);
    }
}

static void bt_fw(zt_model *m, const zt_layer *l, zt_pass *p, void *tape, const void *x, void *y)
{
    const zt_block *k = zt_block_of(m, l);
    zt_call c = {m, p, l->number, bt_rows(m, l, &p->in)};
    bt_kept t = bt_keep(m, l, &p->in, tape);
    void *spare = bt_working(m, l, &p->in, p->scratch).spare;
    uint64_t n = m->config.hidden;
    float drop = m->config.dropout_hidden;
    zt_attention a = bt_attention(&c, &t);
    const void *own = t.first ? t.first : x;
    zt_map_fw o = {.x = t.o, .y = t.s1, .low = t.low[BT_O], .spare = spare};
    zt_norm n1 = {.x = own, .add = t.s1, .sum = t.s1, .y = t.x1, .mean = t.mean1, .rstd = t.rstd1};
    zt_map_fw up = {.act = m->config.act, .x = t.x1, .y = t.act, .pre = t.pre};
    zt_map_fw down = {.x = t.act, .y = t.s2, .low = t.low[BT_DOWN], .spare = spare};
    zt_norm n2 = {.x = t.x1, .add = t.s2, .sum = t.s2, .y = y, .mean = t.mean2, .rstd = t.rstd2};

    if (t.first)
        bt_pick(&c, x, t.first);
    bt_fw_qkv(&c, k, &t, x, own, spare);
    m->device->ops->attention(m->device, m->dtype, &a);
    zt_map_forward(&c, &k->map[BT_O], &o); // s1, s2: branches, until the norms add their inputs
    zt_drop(&c, ZT_SITE_HIDDEN_1, drop, &(zt_dropout){.n = c.rows * n, .x = t.s1, .y = t.s1});
    zt_affine_forward(&c, &k->norm[0], &n1);
    up.low = t.low[BT_UP];
    up.spare = spare;
    zt_map_forward(&c, &k->map[BT_UP], &up);
    zt_map_forward(&c, &k->map[BT_DOWN], &down);
    zt_drop(&c, ZT_SITE_HIDDEN_2, drop, &(zt_dropout){.n = c.rows * n, .x = t.s2, .y = t.s2});
    zt_affine_forward(&c, &k->norm[1], &n2);
}

/* w->ds holds the gradient of s2: add the gradient of x1 through the inner layer. */
static void bt_bw_inner(const zt_call *c, const zt_block *k, const bt_kept *t, const bt_work *w)
{
    zt_model *m = c->m;
    zt_map_bw down = {.x = t->act, .dx = w->d_act, .low = t->low[BT_DOWN], .spare = w->spare};
    zt_act_grad act = {.act = m->config.act, .n = c->rows * m->config.inner, .pre = t->pre};
    zt_map_bw up = {.dx_add = true, .x = t->x1, .dy = w->d_act, .dx = w->ds, .low = t->low[BT_UP]};

    down.dy = zt_branch_grad(c, ZT_SITE_HIDDEN_2, w->ds, m->config.hidden, w->masked);
    zt_map_backward(c, &k->map[BT_DOWN], &down);
    act.dy = w->d_act;
    act.dx = w->d_act;
    m->device->ops->act_grad(m->device, m->dtype, &act);
    up.spare = w->spare;
    zt_map_backward(c, &k->map[BT_UP], &up);
}

/* d_own holds the gradient of s1: add the gradient of `own` through q, and leave the gradients of k
 * and v in w->d_kv. */
static void bt_bw_attention(const zt_call *c, const zt_block *k, const bt_kept *t, const bt_work *w,
                            const void *own, void *d_own)
{
    zt_model *m = c->m;
    uint64_t n = m->config.hidden;
    zt_map_bw o = {.x = t->o, .dx = w->d_o, .low = t->low[BT_O], .spare = w->spare};
    zt_attention_grad a = {.fw = bt_attention(c, t), .lddo = n, .dout = w->d_o};
    zt_map_bw q = {.dx_add = true, .x = own, .dy = w->d_q, .dx = d_own, .low = t->low[BT_Q]};

    o.dy = zt_branch_grad(c, ZT_SITE_HIDDEN_1, d_own, n, w->masked);
    zt_map_backward(c, &k->map[BT_O], &o);
    a.dq = w->d_q;
    a.dk = w->d_kv;
    a.dv = zt_at(m, w->d_kv, n);
    m->device->ops->attention_grad(m->device, m->dtype, &a);
    q.spare = w->spare;
    zt_map_backward(c, &k->map[BT_Q], &q);
}

/* Compute the gradient of x through k and v. */
static void bt_bw_kv(const zt_call *c, const zt_block *k, const bt_kept *t, const bt_work *w,
                     const void *x, void *dx)
{
    zt_model *m = c->m;
    uint64_t n = m->config.hidden;
    zt_call all = *c;

    all.rows = zt_batch_rows(&c->p->in);
    for (int i = BT_K; i <= BT_V; i++) {
        zt_map_bw g = {.lddy = 2 * n, .x = x, .dx = dx, .low = t->low[i], .spare = w->spare};

        // with all rows, dx holds the gradient of s1; otherwise k's gradient is the first one
        // written to dx
        g.dx_add = i == BT_V || !t->first;
        g.dy = zt_at(m, w->d_kv, i == BT_K ? 0 : n);
        zt_map_backward(&all, &k->map[i], &g);
    }
}

/* LIMIT: the parameters are those of zt_layer_ops. */
static void bt_bw(zt_model *m, const zt_layer *l, zt_pass *p, void *tape, const void *x,
                  const void *dy, void *dx)
{
    const zt_block *k = zt_block_of(m, l);
    zt_call c = {m, p, l->number, bt_rows(m, l, &p->in)};
    bt_kept t = bt_keep(m, l, &p->in, tape);
    bt_work w = bt_working(m, l, &p->in, p->scratch);
    const void *own = t.first ? t.first : x;
    void *d_own = t.first ? w.d_first : dx;
    zt_norm_grad n2 = {.x = t.s2, .dy = dy, .mean = t.mean2, .rstd = t.rstd2, .dx = w.ds};
    zt_norm_grad n1 = {.x = t.s1, .dy = w.ds, .mean = t.mean1, .rstd = t.rstd1, .dx = d_own};

    if (!zt_wants_backward(m, l))
        return;
    zt_affine_backward(&c, &k->norm[1], &n2);
    bt_bw_inner(&c, k, &t, &w);
    zt_affine_backward(&c, &k->norm[0], &n1);
    bt_bw_attention(&c, k, &t, &w, own, d_own);
    bt_bw_kv(&c, k, &t, &w, x, dx);
    if (t.first)
        bt_return(&c, w.d_first, dx);
}

/* ---- embedding: LN(word + position + type) ---- */

typedef struct bt_stem {
    void *sum;
    float *mean, *rstd;
    uint64_t n_bytes;
} bt_stem;

static bt_stem bt_stem_at(const zt_model *m, const zt_batch *b, void *tape)
{
    zt_room room = {.base = tape};
    bt_stem t;

    t.sum = zt_room_elems(&room, m, zt_batch_rows(b) * m->config.hidden);
    t.mean = zt_room_floats(&room, zt_batch_rows(b));
    t.rstd = zt_room_floats(&room, zt_batch_rows(b));
    t.n_bytes = room.used;
    return t;
}

static uint64_t bt_stem_tape(const zt_model *m, const zt_layer *l, const zt_batch *b)
{
    (void)l;
    return bt_stem_at(m, b, NULL).n_bytes;
}

/* Memory for two gradients: below the dropout, and below the norm. */
static uint64_t bt_stem_scratch(const zt_model *m, const zt_layer *l, const zt_batch *b)
{
    zt_room room = {0};
    uint64_t n = zt_batch_rows(b) * m->config.hidden;

    (void)l;
    zt_room_elems(&room, m, n);
    zt_room_elems(&room, m, m->config.dropout_embed > 0.0F ? n : 0);
    return room.used;
}

static void bt_stem_fw(zt_model *m, const zt_layer *l, zt_pass *p, void *tape, const void *x,
                       void *y)
{
    zt_own *own = zt_own_of(m);
    zt_call c = {m, p, l->number, zt_batch_rows(&p->in)};
    bt_stem t = bt_stem_at(m, &p->in, tape);
    uint64_t n = c.rows * m->config.hidden;
    zt_norm norm = {.x = t.sum, .y = y, .mean = t.mean, .rstd = t.rstd};
    zt_embed e = {.rows = c.rows,
                  .seq = p->in.seq,
                  .width = m->config.hidden,
                  .vocab = m->config.vocab,
                  .n_types = m->config.types,
                  .token = p->in.input_ids,
                  .kind = p->in.token_type_ids,
                  .word = zt_weight(m, own->word),
                  .position = zt_weight(m, own->position),
                  .type = zt_weight(m, own->type),
                  .y = t.sum};

    (void)x;
    m->device->ops->embed(m->device, m->dtype, &e);
    zt_affine_forward(&c, &own->norm, &norm);
    zt_drop(&c, ZT_SITE_EMBED, m->config.dropout_embed, &(zt_dropout){.n = n, .x = y, .y = y});
}

/* LIMIT: the parameters are those of zt_layer_ops. */
static void bt_stem_bw(zt_model *m, const zt_layer *l, zt_pass *p, void *tape, const void *x,
                       const void *dy, void *dx)
{
    zt_own *own = zt_own_of(m);
    zt_call c = {m, p, l->number, zt_batch_rows(&p->in)};
    bt_stem t = bt_stem_at(m, &p->in, tape);
    uint64_t n = c.rows * m->config.hidden;
    zt_room room = {.base = p->scratch};
    void *ds = zt_room_elems(&room, m, n);
    zt_norm_grad norm = {.x = t.sum, .dy = dy, .mean = t.mean, .rstd = t.rstd, .dx = ds};
    zt_embed_grad e = {.rows = c.rows,
                       .seq = p->in.seq,
                       .n_positions = m->config.positions,
                       .width = m->config.hidden,
                       .vocab = m->config.vocab,
                       .n_types = m->config.types,
                       .padding = m->config.padding,
                       .token = p->in.input_ids,
                       .kind = p->in.token_type_ids,
                       .dy = ds};

    (void)x;
    (void)dx;
    if (!zt_wants_backward(m, l))
        return;
    if (p->train && m->config.dropout_embed > 0.0F) {
        void *masked = zt_room_elems(&room, m, n);

        zt_drop(&c, ZT_SITE_EMBED, m->config.dropout_embed,
                &(zt_dropout){.n = n, .x = dy, .y = masked});
        norm.dy = masked;
    }
    zt_affine_backward(&c, &own->norm, &norm);
    e.dword = zt_grad(m, own->word, &e.word_add);
    e.dposition = zt_grad(m, own->position, &e.position_add);
    e.dkind = zt_grad(m, own->type, &e.kind_add);
    m->device->ops->embed_grad(m->device, m->dtype, &e);
}

/* ---- masked LM: logits = LN(act(W x + b)) E' + bias ---- */

typedef struct bt_mlm {
    void *pre, *act, *d_act, *low, *spare;
    float *mean, *rstd;
    uint64_t n_bytes;
} bt_mlm;

static bt_mlm bt_mlm_at(const zt_model *m, uint64_t n, void *kept)
{
    const zt_map *map = &zt_own_of(m)->transform;
    zt_room room = {.base = kept};
    bt_mlm t;

    t.pre = zt_room_elems(&room, m, n * m->config.hidden);
    t.act = zt_room_elems(&room, m, n * m->config.hidden);
    t.d_act = zt_room_elems(&room, m, n * m->config.hidden);
    t.low = zt_room_take(&room, zt_map_low(m, map, n));
    t.spare = zt_room_take(&room, zt_map_spare(m, map, n));
    t.mean = zt_room_floats(&room, n);
    t.rstd = zt_room_floats(&room, n);
    t.n_bytes = room.used;
    return t;
}

static uint64_t bt_mlm_kept(const zt_model *m, uint64_t n)
{
    return bt_mlm_at(m, n, NULL).n_bytes;
}

static void bt_mlm_fw(const zt_call *c, void *kept, const void *x, void *h)
{
    zt_own *own = zt_own_of(c->m);
    bt_mlm t = bt_mlm_at(c->m, c->rows, kept);
    zt_map_fw f = {
        .act = c->m->config.act, .x = x, .y = t.act, .pre = t.pre, .low = t.low, .spare = t.spare};
    zt_norm n = {.x = t.act, .y = h, .mean = t.mean, .rstd = t.rstd};

    zt_map_forward(c, &own->transform, &f);
    zt_affine_forward(c, &own->transform_norm, &n);
}

static void bt_mlm_bw(const zt_call *c, void *kept, const void *x, const void *dh, void *dx)
{
    zt_model *m = c->m;
    zt_own *own = zt_own_of(m);
    bt_mlm t = bt_mlm_at(m, c->rows, kept);
    zt_norm_grad n = {.x = t.act, .dy = dh, .mean = t.mean, .rstd = t.rstd, .dx = t.d_act};
    zt_act_grad act = {.act = m->config.act, .n = c->rows * m->config.hidden, .pre = t.pre};
    zt_map_bw g = {.x = x, .dy = t.d_act, .dx = dx, .low = t.low, .spare = t.spare};

    zt_affine_backward(c, &own->transform_norm, &n);
    act.dy = t.d_act;
    act.dx = t.d_act;
    m->device->ops->act_grad(m->device, m->dtype, &act);
    zt_map_backward(c, &own->transform, &g);
}

static const zt_lm_body bt_mlm_body = {bt_mlm_kept, bt_mlm_fw, bt_mlm_bw, false, true};

/* ---- classification: logits = Wc tanh(W x + b) + bc; x: the first row of each sample ---- */

typedef struct bt_class {
    void *pre, *pooled, *dropped, *logits, *d_pooled, *low, *spare, *rounded;
    float *target;
    uint64_t n_bytes;
} bt_class;

static bt_class bt_class_at(const zt_model *m, const zt_batch *b, void *scratch)
{
    const zt_map *map = &zt_own_of(m)->transform;
    uint64_t n = b->batch * m->config.hidden;
    uint64_t classes = b->batch * m->config.labels;
    zt_room room = {.base = scratch};
    bt_class t;

    t.pre = zt_room_elems(&room, m, n);
    t.pooled = zt_room_elems(&room, m, n);
    t.dropped = zt_room_elems(&room, m, n);
    t.logits = zt_room_elems(&room, m, classes);
    t.d_pooled = zt_room_elems(&room, m, n);
    t.low = zt_room_take(&room, zt_map_low(m, map, b->batch));
    t.spare = zt_room_take(&room, zt_map_spare(m, map, b->batch));
    t.rounded = zt_room_elems(&room, m, classes);
    t.target = zt_room_floats(&room, classes);
    t.n_bytes = room.used;
    return t;
}

static uint64_t bt_class_scratch(const zt_model *m, const zt_layer *l, const zt_batch *b)
{
    (void)l;
    return bt_class_at(m, b, NULL).n_bytes;
}

/* Compute the logits of every sample. */
static void bt_class_logits(const zt_call *c, const bt_class *t, const void *x, void *logits)
{
    zt_model *m = c->m;
    zt_own *own = zt_own_of(m);
    uint64_t n = m->config.hidden;
    zt_map_fw pooler = {.act = ZT_TANH, .x = x, .y = t->pooled, .pre = t->pre, .low = t->low};
    zt_map_fw out = {.x = t->dropped, .y = logits};

    pooler.spare = t->spare;
    zt_map_forward(c, &own->transform, &pooler);
    zt_drop(c, ZT_SITE_POOLED, m->config.dropout_classifier,
            &(zt_dropout){.n = c->rows * n, .x = t->pooled, .y = t->dropped});
    zt_map_forward(c, &own->out, &out);
}

/*
 * The loss, in the model's dtype, as in transformers when targets have that dtype too.  With `grad`
 * the logits are replaced by their gradient.  False: the batch has no labels.
 */
static bool bt_class_loss(const zt_call *c, const bt_class *t, void *logits, bool grad)
{
    zt_model *m = c->m;
    zt_device *d = m->device;
    const zt_batch *in = &c->p->in;
    bool classes = m->config.labels > 1 && !m->config.multi_label;
    uint64_t n = c->rows * m->config.labels;
    zt_loss a = {
        .kind = ZT_CROSS_ENTROPY, .rows = c->rows, .classes = m->config.labels, .grad = grad};

    c->p->loss = (double)NAN;
    if (classes ? !in->labels : !in->targets)
        return false;
    a.label = in->labels;
    a.target = in->targets;
    if (!classes)
        a.kind = m->config.multi_label ? ZT_BCE : ZT_MSE;
    if (!classes && m->dtype != CKPT_F32) {
        d->ops->cast(d, n, t->rounded, m->dtype, in->targets, CKPT_F32);
        d->ops->cast(d, n, t->target, CKPT_F32, t->rounded, m->dtype);
        a.target = t->target;
    }
    a.logits = logits;
    a.factor = zt_loss_factor(c, true);
    a.loss = &c->p->loss;
    d->ops->loss(d, m->dtype, &a);
    c->p->loss = zt_round_to(m->dtype, c->p->loss);
    return true;
}

static void bt_class_fw(zt_model *m, const zt_layer *l, zt_pass *p, void *tape, const void *x,
                        void *y)
{
    zt_call c = {m, p, l->number, p->in.batch};
    bt_class t = bt_class_at(m, &p->in, p->scratch);
    void *logits = p->logits ? p->logits : t.logits;

    (void)tape;
    (void)y;
    if (p->train) {
        return; // in training the backward pass does all the work
    }
    bt_class_logits(&c, &t, x, logits);
    (void)bt_class_loss(&c, &t, logits, false);
}

/* LIMIT: the parameters are those of zt_layer_ops. */
static void bt_class_bw(zt_model *m, const zt_layer *l, zt_pass *p, void *tape, const void *x,
                        const void *dy, void *dx)
{
    zt_device *d = m->device;
    zt_own *own = zt_own_of(m);
    zt_call c = {m, p, l->number, p->in.batch};
    bt_class t = bt_class_at(m, &p->in, p->scratch);
    uint64_t n = m->config.hidden;
    zt_map_bw out = {.x = t.dropped, .dy = t.logits, .dx = t.d_pooled};
    zt_act_grad act = {
        .act = ZT_TANH, .n = c.rows * n, .pre = t.pre, .dy = t.d_pooled, .dx = t.d_pooled};
    zt_map_bw pooler = {.x = x, .dy = t.d_pooled, .dx = dx, .low = t.low, .spare = t.spare};

    (void)tape;
    (void)dy;
    bt_class_logits(&c, &t, x, t.logits);
    if (!bt_class_loss(&c, &t, t.logits, true)) {
        zt_device_fail(d, CKPT_EUSAGE, "training needs labels, the micro batch has none");
        return;
    }
    zt_map_backward(&c, &own->out, &out);
    zt_drop(&c, ZT_SITE_POOLED, m->config.dropout_classifier,
            &(zt_dropout){.n = c.rows * n, .x = t.d_pooled, .y = t.d_pooled});
    d->ops->act_grad(d, m->dtype, &act);
    zt_map_backward(&c, &own->transform, &pooler);
}

/* ---- building ---- */

static const zt_layer_ops bt_stem_ops = {bt_stem_tape, bt_stem_scratch, bt_stem_fw, bt_stem_bw};
static const zt_layer_ops bt_block_ops = {bt_tape, bt_scratch, bt_fw, bt_bw};
static const zt_layer_ops bt_class_ops = {NULL, bt_class_scratch, bt_class_fw, bt_class_bw};

static void bt_build_stem(zt_build *b)
{
    const zt_model_config *f = &b->m->config;
    zt_own *own = b->own;
    float std = f->init_range;

    zt_build_layer(b, &bt_stem_ops, false, "bert.embeddings");
    own->word =
        zt_build_matrix(b, "bert.embeddings.word_embeddings.weight", f->vocab, f->hidden, std);
    own->position = zt_build_matrix(b, "bert.embeddings.position_embeddings.weight", f->positions,
                                    f->hidden, std);
    own->type = zt_build_matrix(b, "bert.embeddings.token_type_embeddings.weight", f->types,
                                f->hidden, std);
    own->norm = zt_build_norm(b, "bert.embeddings.LayerNorm", true);
}

static void bt_build_block(zt_build *b, uint64_t i)
{
    const zt_model_config *f = &b->m->config;
    zt_block *k = &b->own->block[i];
    const char *name = ckpt_arena_printf(b->m->arena, "bert.encoder.layer.%" PRIu64, i);
    uint64_t n = f->hidden;
    zt_map_shape square = {n, n, true, false, f->init_range};
    zt_map_shape up = {n, f->inner, true, false, f->init_range};
    zt_map_shape down = {f->inner, n, true, false, f->init_range};

    zt_build_layer(b, &bt_block_ops, true, name);
    k->map[BT_Q] = zt_build_map(b, zt_build_name(b, name, ".attention.self.query"), &square);
    k->map[BT_K] = zt_build_map(b, zt_build_name(b, name, ".attention.self.key"), &square);
    k->map[BT_V] = zt_build_map(b, zt_build_name(b, name, ".attention.self.value"), &square);
    k->map[BT_O] = zt_build_map(b, zt_build_name(b, name, ".attention.output.dense"), &square);
    k->norm[0] = zt_build_norm(b, zt_build_name(b, name, ".attention.output.LayerNorm"), true);
    k->map[BT_UP] = zt_build_map(b, zt_build_name(b, name, ".intermediate.dense"), &up);
    k->map[BT_DOWN] = zt_build_map(b, zt_build_name(b, name, ".output.dense"), &down);
    k->norm[1] = zt_build_norm(b, zt_build_name(b, name, ".output.LayerNorm"), true);
}

static void bt_build_class(zt_build *b)
{
    const zt_model_config *f = &b->m->config;
    zt_map_shape pooler = {f->hidden, f->hidden, true, false, f->init_range};
    zt_map_shape out = {f->hidden, f->labels, true, false, f->init_range};

    zt_build_layer(b, &bt_class_ops, false, "classifier");
    b->own->transform = zt_build_map(b, "bert.pooler.dense", &pooler);
    b->own->out = zt_build_map(b, "classifier", &out);
}

/*
 * The bias comes before the transform, because it is a parameter of the module that contains both.
 */
static void bt_build_mlm(zt_build *b)
{
    const zt_model_config *f = &b->m->config;
    zt_own *own = b->own;
    zt_map_shape square = {f->hidden, f->hidden, true, false, f->init_range};
    uint32_t bias;

    zt_build_layer(b, &zt_lm_ops, false, "cls.predictions");
    own->lm = &bt_mlm_body;
    bias = zt_build_vector(b, "cls.predictions.bias", f->vocab, false);
    own->transform = zt_build_map(b, "cls.predictions.transform.dense", &square);
    own->transform_norm = zt_build_norm(b, "cls.predictions.transform.LayerNorm", true);
    zt_build_lm_out(b, "cls.predictions.decoder.weight");
    own->out.b = bias;
    zt_build_alias(b, "cls.predictions.decoder.bias", bias);
}

int zt_bert_build(zt_build *b)
{
    const zt_model_config *f = &b->m->config;

    if (f->arch == ZT_BERT_MLM && !f->tied)
        return ckpt_fail(
            b->err, CKPT_EUNSUPPORTED,
            "tie_word_embeddings is false: the masked LM head must share the word embeddings");
    bt_build_stem(b);
    for (uint64_t i = 0; i < f->layers; i++)
        bt_build_block(b, i);
    if (f->arch == ZT_BERT_MLM)
        bt_build_mlm(b);
    else
        bt_build_class(b);
    zt_build_close(b);
    return b->rc;
}
