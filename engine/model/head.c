/* SPDX-License-Identifier: Apache-2.0 */
/*
 * head.c: implements the head of language models: the rows that count, logits in chunks of rows,
 * the loss and its gradient.
 *
 * Only rows with a label need logits: GPT-2's last position has none, a masked LM has few.  An
 * embedding look-up in x gathers these rows first, and its gradient scatters their gradients at the
 * end.  In training the backward pass does all the work: for one chunk of rows after the other it
 * computes logits, loss, gradient of the logits, and the products of that with the weight and with
 * h.  So logits never take more than HD_CHUNK bytes, and no product is computed twice.
 *
 * Capped logits (Gemma 2) are cap * tanh(logit / cap), in three steps that each round, as in
 * transformers.
 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>

#include "engine/model/layers.h"
#include "libckpt/base/cast.h"

/* Bytes of logits per chunk, unless the model sets another size; more rows make the products more
 * efficient. */
#define HD_CHUNK (256U << 20)

double zt_round_to(ckpt_dtype dt, double v)
{
    float f = (float)v;
    uint16_t low;

    if (dt == CKPT_F32)
        return (double)f;
    ckpt_cast_find(dt, CKPT_F32)(&low, &f, 1);
    ckpt_cast_find(CKPT_F32, dt)(&f, &low, 1);
    return (double)f;
}

/*
 * d (loss / accumulation * scale) / d loss, computed from the outside in: the scale is rounded to
 * the loss' dtype and then divided.
 */
float zt_loss_factor(const zt_call *c, bool loss_in_dt)
{
    const zt_pass *p = c->p;
    ckpt_dtype dt = loss_in_dt ? c->m->dtype : CKPT_F32;

    if (p->accumulation == 0)
        return p->loss_factor;
    return (float)zt_round_to(dt, zt_round_to(dt, p->scale) / (double)p->accumulation);
}

/* ---- the rows that count ---- */

/* Host memory: indices and labels of the rows with a label, and the label of every row. */
typedef struct hd_rows {
    int32_t *row, *label, *all;
    uint64_t n;
    int32_t *memory;
} hd_rows;

static void hd_pick(hd_rows *r, const int32_t *given, const zt_batch *b, bool shifted)
{
    assert(b->seq > 0 && r->n == 0);
    for (uint64_t i = 0; i < zt_batch_answers(b); i++) {
        bool last = shifted && i % b->seq == b->seq - 1;

        r->all[i] = last ? ZT_IGNORE : given[shifted ? i + 1 : i];
        if (r->all[i] != ZT_IGNORE) {
            r->row[r->n] = (int32_t)i;
            r->label[r->n] = r->all[i];
            r->n++;
        }
    }
}

/*
 * False if there are no rows to compute: there are no labels, all are ignored, or there is no
 * memory (an error that the device keeps).
 */
static bool hd_rows_new(hd_rows *r, const zt_call *c, bool shifted)
{
    zt_device *d = c->m->device;
    uint64_t n = c->rows;

    *r = (hd_rows){0};
    if (!c->p->in.labels)
        return false;
    r->memory = ckpt_alloc(4 * n * sizeof *r->memory);
    if (!r->memory) {
        zt_device_fail(d, CKPT_ELIMIT, "out of memory for the labels of a micro batch");
        return false;
    }
    r->row = r->memory + n;
    r->label = r->row + n;
    r->all = r->label + n;
    d->ops->get(d, r->memory, c->p->in.labels, n * sizeof *r->memory);
    if (zt_device_check(d, NULL) == CKPT_OK)
        hd_pick(r, r->memory, &c->p->in, shifted);
    return r->n > 0;
}

/* ---- workspace ---- */

static uint64_t hd_chunk(const zt_model *m, uint64_t rows)
{
    uint64_t n_bytes = m->max_logits != 0 ? m->max_logits : HD_CHUNK;
    // with a cap two numbers for each logit
    uint64_t each = m->config.logit_cap > 0.0F ? 2 * zt_elem(m) : zt_elem(m);
    uint64_t most = n_bytes / (m->config.vocab * each);
    uint64_t n_chunks;

    most = most == 0 ? 1 : most;
    n_chunks = (rows + most - 1) / most;
    return n_chunks == 0 ? 0 : (rows + n_chunks - 1) / n_chunks;
}

typedef struct hd_work {
    int32_t *row, *label;
    void *x, *h, *dh, *kept, *logits;
    void *raw;      /* logits / cap; NULL: no cap */
    uint64_t chunk; /* rows */
    uint64_t ld;    /* elements from one row of logits to the next */
    uint64_t n_bytes;
} hd_work;

static hd_work hd_working(const zt_model *m, uint64_t rows, const zt_lm_body *body, void *scratch)
{
    zt_room room = {.base = scratch};
    uint64_t n = rows * m->config.hidden;
    uint64_t h = rows * zt_own_of(m)->out.in;
    hd_work w;

    w.chunk = hd_chunk(m, rows);
    // GPT-2 has 50257 words, but products are faster if rows begin at multiples of the registers'
    // size
    w.ld = (m->config.vocab + 63) & ~UINT64_C(63);
    w.row = zt_room_take(&room, rows * sizeof *w.row);
    w.label = zt_room_take(&room, rows * sizeof *w.label);
    w.x = zt_room_elems(&room, m, n);
    w.h = zt_room_elems(&room, m, h);
    w.dh = zt_room_elems(&room, m, h);
    w.kept = zt_room_take(&room, body->kept(m, rows));
    w.logits = zt_room_elems(&room, m, w.chunk * w.ld);
    w.raw = m->config.logit_cap > 0.0F ? zt_room_elems(&room, m, w.chunk * w.ld) : NULL;
    w.n_bytes = room.used;
    return w;
}

static uint64_t hd_scratch(const zt_model *m, const zt_layer *l, const zt_batch *b)
{
    (void)l;
    return hd_working(m, zt_batch_answers(b), zt_own_of(m)->lm, NULL).n_bytes;
}

/* ---- passes ---- */

/* Gather the rows that count: w->x, w->label. */
static void hd_gather(const zt_call *c, const hd_rows *r, const hd_work *w, const void *x)
{
    zt_device *d = c->m->device;
    zt_embed e = {.rows = r->n,
                  .seq = r->n,
                  .width = c->m->config.hidden,
                  .vocab = c->rows,
                  .word = x,
                  .y = w->x};

    assert(r->n > 0 && r->n <= c->rows);
    d->ops->put(d, w->row, r->row, r->n * sizeof *w->row);
    d->ops->put(d, w->label, r->label, r->n * sizeof *w->label);
    e.token = w->row;
    d->ops->embed(d, c->m->dtype, &e);
}

static void hd_scatter(const zt_call *c, uint64_t n, const hd_work *w, const void *from, void *dx)
{
    zt_device *d = c->m->device;
    zt_embed_grad e = {
        .rows = n, .seq = n, .width = c->m->config.hidden, .vocab = c->rows, .padding = -1};

    e.token = w->row;
    e.dy = from;
    e.dword = dx;
    d->ops->embed_grad(d, c->m->dtype, &e);
}

/* Cap n logits: y = cap * tanh(raw), where raw becomes raw / cap. */
static void hd_cap(const zt_model *m, uint64_t n, void *raw, void *y)
{
    zt_device *d = m->device;

    d->ops->scale(d, m->dtype, n, raw, 1.0F / m->config.logit_cap);
    d->ops->act(d, m->dtype, ZT_TANH, n, y, raw);
    d->ops->scale(d, m->dtype, n, y, m->config.logit_cap);
}

/* Loss of rows first..first + c->rows of all `n`, as a part of their mean; in training also the
 * gradients. */
static double hd_chunk_loss(const zt_call *c, const hd_work *w, uint64_t first, uint64_t n,
                            float factor)
{
    zt_model *m = c->m;
    const zt_map *out = &zt_own_of(m)->out;
    uint64_t at = first * out->in;
    bool grad = c->p->train;
    double loss = (double)NAN;
    double part = (double)c->rows / (double)n;
    zt_map_fw fw = {.ldy = w->ld, .x = zt_at(m, w->h, at), .y = w->raw ? w->raw : w->logits};
    zt_loss a = {.kind = ZT_CROSS_ENTROPY,
                 .rows = c->rows,
                 .classes = m->config.vocab,
                 .ld = w->ld,
                 .loss = &loss};

    assert(c->rows > 0 && first + c->rows <= n && w->ld >= m->config.vocab);
    zt_map_forward(c, out, &fw);
    if (w->raw)
        hd_cap(m, c->rows * w->ld, w->raw, w->logits);
    a.label = w->label + first;
    a.logits = w->logits;
    a.grad = grad;
    // with a single chunk, use the factor without rounding
    a.factor = c->rows == n ? factor : (float)((double)factor * part);
    m->device->ops->loss(m->device, m->dtype, &a);
    if (grad) {
        zt_map_bw bw = {.lddy = w->ld, .x = fw.x, .dy = w->logits, .dx = zt_at(m, w->dh, at)};
        zt_act_grad cap = {.act = ZT_TANH, .n = c->rows * w->ld, .pre = w->raw};

        // the cap's two factors cancel in the gradient
        cap.dy = w->logits;
        cap.dx = w->logits;
        if (w->raw)
            m->device->ops->act_grad(m->device, m->dtype, &cap);
        zt_map_backward(c, out, &bw);
    }
    return c->rows == n ? loss : loss * part;
}

static void hd_loss(const zt_call *c, const hd_work *w, const zt_lm_body *body)
{
    uint64_t n = c->rows;
    uint64_t step = hd_chunk(c->m, n);
    float factor = zt_loss_factor(c, body->loss_in_dt);
    double loss = 0;

    assert(n > 0 && step > 0);
    for (uint64_t first = 0; first < n; first += step) {
        zt_call part = *c;

        part.rows = n - first < step ? n - first : step;
        loss += hd_chunk_loss(&part, w, first, n, factor);
    }
    c->p->loss = zt_round_to(body->loss_in_dt ? c->m->dtype : CKPT_F32, loss);
}

/* Evaluation that stores all logits for the caller. */
static void hd_all_logits(const zt_call *c, const zt_lm_body *body, const hd_rows *r, const void *x)
{
    zt_model *m = c->m;
    zt_device *d = m->device;
    hd_work w = hd_working(m, c->rows, body, c->p->scratch);
    zt_map_fw fw = {.x = w.h, .y = c->p->logits};
    zt_loss a = {
        .kind = ZT_CROSS_ENTROPY, .rows = c->rows, .classes = m->config.vocab, .loss = &c->p->loss};

    body->fw(c, w.kept, x, w.h);
    zt_map_forward(c, &zt_own_of(m)->out, &fw);
    if (m->config.logit_cap > 0.0F)
        hd_cap(m, c->rows * m->config.vocab, c->p->logits, c->p->logits);
    if (r->n == 0)
        return;
    d->ops->put(d, w.label, r->all, c->rows * sizeof *w.label);
    a.label = w.label;
    a.logits = c->p->logits;
    d->ops->loss(d, m->dtype, &a);
    c->p->loss = zt_round_to(body->loss_in_dt ? m->dtype : CKPT_F32, c->p->loss);
}

/* Generation: the logits of each sample's last row. */
static void hd_last_logits(const zt_call *c, const zt_lm_body *body, const hd_work *w,
                           const void *x)
{
    zt_model *m = c->m;
    const zt_batch *in = &c->p->in;
    const uint64_t each = c->rows / in->batch;
    int32_t *last = ckpt_alloc(2 * in->batch * sizeof *last);
    const hd_rows r = {.row = last, .label = last ? last + in->batch : NULL, .n = in->batch};
    zt_map_fw fw = {.x = w->h, .y = c->p->logits};
    zt_call few = *c;

    if (!last) {
        zt_device_fail(m->device, CKPT_ELIMIT, "out of memory for the rows of a micro batch");
        return;
    }
    for (uint64_t i = 0; i < in->batch; i++)
        last[i] = (int32_t)((i + 1) * each - 1);
    few.rows = r.n;
    hd_gather(c, &r, w, x);
    body->fw(&few, w->kept, w->x, w->h);
    zt_map_forward(&few, &zt_own_of(m)->out, &fw);
    if (m->config.logit_cap > 0.0F)
        hd_cap(m, few.rows * m->config.vocab, c->p->logits, c->p->logits);
    ckpt_free(last);
}

/*
 * In training the forward pass does nothing, because the backward pass computes loss and dx
 * together.
 */
static void hd_fw(zt_model *m, const zt_layer *l, zt_pass *p, void *tape, const void *x, void *y)
{
    const zt_lm_body *body = zt_own_of(m)->lm;
    const zt_call all = {m, p, l->number, zt_batch_answers(&p->in)}, *c = &all;
    hd_rows r;
    hd_work w = hd_working(m, c->rows, body, p->scratch);
    zt_call few = all;
    bool any;

    (void)tape;
    (void)y;
    if (c->p->train) {
        return; // in training the backward pass does all the work
    }
    c->p->loss = (double)NAN;
    if (c->p->in.cache) {
        hd_last_logits(c, body, &w, x);
        return;
    }
    any = hd_rows_new(&r, c, body->shifted);
    if (c->p->logits) {
        hd_all_logits(c, body, &r, x);
    } else if (any) {
        few.rows = r.n;
        hd_gather(c, &r, &w, x);
        body->fw(&few, w.kept, w.x, w.h);
        hd_loss(&few, &w, body);
    }
    ckpt_free(r.memory);
}

/* If no row counts, torch's loss is 0/0 and the gradients are zero. */
static void hd_nothing(const zt_call *c, void *dx)
{
    zt_model *m = c->m;
    zt_device *d = m->device;
    const zt_layer *l = &m->layers.at[c->layer];

    for (uint32_t i = 0; i < l->n_params; i++) {
        bool add;
        void *g = zt_grad(m, l->param[i], &add);

        if (g && !add)
            d->ops->zero(d, g, m->params.at[l->param[i]].n_elems * zt_elem(m));
    }
    d->ops->zero(d, dx, c->rows * m->config.hidden * zt_elem(m));
}

/* LIMIT: the parameters are those of zt_layer_ops. */
static void hd_bw(zt_model *m, const zt_layer *l, zt_pass *p, void *tape, const void *x,
                  const void *dy, void *dx)
{
    const zt_lm_body *body = zt_own_of(m)->lm;
    const zt_call all = {m, p, l->number, zt_batch_answers(&p->in)}, *c = &all;
    hd_rows r;
    hd_work w = hd_working(m, c->rows, body, p->scratch);
    zt_call few = all;

    (void)tape;
    (void)dy;
    c->p->loss = (double)NAN;
    if (!c->p->in.labels) {
        zt_device_fail(c->m->device, CKPT_EUSAGE,
                       "training needs labels, the micro batch has none");
        return;
    }
    if (!hd_rows_new(&r, c, body->shifted)) {
        hd_nothing(c, dx);
    } else {
        few.rows = r.n;
        hd_gather(c, &r, &w, x);
        body->fw(&few, w.kept, w.x, w.h);
        hd_loss(&few, &w, body);
        body->bw(&few, w.kept, w.x, w.dh, w.h); // h is free for reuse
        hd_scatter(c, r.n, &w, w.h, dx);
    }
    ckpt_free(r.memory);
}

const zt_layer_ops zt_lm_ops = {NULL, hd_scratch, hd_fw, hd_bw};
