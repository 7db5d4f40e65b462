/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t5_ends.c: implements the bridge between T5's encoder and decoder, and its head (t5.c).
 */
#include <math.h>

#include "engine/model/layers.h"

/* A site of dropout besides those of layers.h. */
enum { TZ_SITE_ENCODED = 64 };

/* Rows of the source and of the target. */
static uint64_t tz_source(const zt_batch *b)
{
    return b->batch * b->seq;
}

static uint64_t tz_target(const zt_batch *b)
{
    return b->batch * b->decoder_seq;
}

/* ---- the bridge ---- */

/* Its tape: rstd of the encoder's final norm. */
static uint64_t tz_bridge_tape(const zt_model *m, const zt_layer *l, const zt_batch *b)
{
    (void)m;
    (void)l;
    return tz_source(b) * sizeof(float);
}

static uint64_t tz_bridge_scratch(const zt_model *m, const zt_layer *l, const zt_batch *b)
{
    zt_room room = {0};

    (void)l;
    zt_room_elems(&room, m, zt_batch_state(b) * m->config.hidden);
    return room.used;
}

static void tz_bridge_fw(zt_model *m, const zt_layer *l, zt_pass *p, void *tape, const void *x,
                         void *y)
{
    zt_own *own = zt_own_of(m);
    const zt_call c = {m, p, l->number, tz_source(&p->in)};
    const uint64_t target = tz_target(&p->in) * m->config.hidden;
    void *encoded = zt_at(m, y, target);
    zt_norm n = {.x = x, .y = encoded, .rstd = tape};
    zt_embed e = {.rows = tz_target(&p->in),
                  .seq = p->in.decoder_seq,
                  .width = m->config.hidden,
                  .vocab = m->config.vocab,
                  .token = p->in.decoder_input_ids,
                  .word = zt_weight(m, own->word),
                  .y = y};

    if (c.rows > 0) // a later pass of generation has no source
        zt_affine_forward(&c, &own->transform_norm, &n);
    zt_drop(&c, TZ_SITE_ENCODED, m->config.dropout_hidden,
            &(zt_dropout){.n = c.rows * m->config.hidden, .x = encoded, .y = encoded});
    m->device->ops->embed(m->device, m->dtype, &e);
    zt_drop(&c, ZT_SITE_EMBED, m->config.dropout_embed, &(zt_dropout){.n = target, .x = y, .y = y});
}

/* LIMIT: the parameters are those of zt_layer_ops. */
static void tz_bridge_bw(zt_model *m, const zt_layer *l, zt_pass *p, void *tape, const void *x,
                         const void *dy, void *dx)
{
    zt_own *own = zt_own_of(m);
    const zt_call c = {m, p, l->number, tz_source(&p->in)};
    const uint64_t target = tz_target(&p->in) * m->config.hidden;
    const uint64_t source = c.rows * m->config.hidden;
    void *d_embedded = p->scratch, *d_encoded = zt_at(m, p->scratch, target);
    zt_norm_grad n = {.x = x, .dy = d_encoded, .rstd = tape, .dx = dx};
    zt_embed_grad e = {.rows = tz_target(&p->in),
                       .seq = p->in.decoder_seq,
                       .width = m->config.hidden,
                       .vocab = m->config.vocab,
                       .padding = -1,
                       .token = p->in.decoder_input_ids,
                       .dy = d_embedded};

    // dx may be dy, and its rows are others, so the gradients move to the scratch first
    zt_drop(&c, ZT_SITE_EMBED, m->config.dropout_embed,
            &(zt_dropout){.n = target, .x = dy, .y = d_embedded});
    zt_drop(&c, TZ_SITE_ENCODED, m->config.dropout_hidden,
            &(zt_dropout){.n = source, .x = zt_at_const(m, dy, target), .y = d_encoded});
    e.dword = zt_grad(m, own->word, &e.word_add);
    if (e.dword)
        m->device->ops->embed_grad(m->device, m->dtype, &e);
    if (zt_wants_backward(m, l))
        zt_affine_backward(&c, &own->transform_norm, &n);
}

/* ---- the head: logits = scale * drop(norm(x)) w' ---- */

static uint64_t tz_final_kept(const zt_model *m, uint64_t n)
{
    (void)m;
    return n * sizeof(float);
}

static void tz_final_scale(const zt_call *c, void *x)
{
    const uint64_t n = c->m->config.hidden;
    const float factor = (float)(1.0 / sqrt((double)n));

    if (c->m->config.scale_outputs)
        c->m->device->ops->scale(c->m->device, c->m->dtype, c->rows * n, x, factor);
}

static void tz_final_fw(const zt_call *c, void *kept, const void *x, void *h)
{
    zt_norm a = {.x = x, .y = h, .rstd = kept};

    zt_affine_forward(c, &zt_own_of(c->m)->norm, &a);
    zt_drop(c, ZT_SITE_HIDDEN_1, c->m->config.dropout_hidden,
            &(zt_dropout){.n = c->rows * c->m->config.hidden, .x = h, .y = h});
    tz_final_scale(c, h);
}

static void tz_final_bw(const zt_call *c, void *kept, const void *x, const void *dh, void *dx)
{
    zt_norm_grad a = {.x = x, .dy = dx, .rstd = kept, .dx = dx};

    zt_drop(c, ZT_SITE_HIDDEN_1, c->m->config.dropout_hidden,
            &(zt_dropout){.n = c->rows * c->m->config.hidden, .x = dh, .y = dx});
    tz_final_scale(c, dx);
    zt_affine_backward(c, &zt_own_of(c->m)->norm, &a);
}

const zt_lm_body zt_t5_final = {tz_final_kept, tz_final_fw, tz_final_bw, false, true};

static uint64_t tz_head_scratch(const zt_model *m, const zt_layer *l, const zt_batch *b)
{
    return zt_lm_ops.scratch(m, l, b);
}

static void tz_head_fw(zt_model *m, const zt_layer *l, zt_pass *p, void *tape, const void *x,
                       void *y)
{
    zt_lm_ops.fw(m, l, p, tape, x, y);
}

/*
 * The head of language models reads the decoder's rows, which come first; nothing of the loss
 * reaches the encoder's output here.
 *
 * LIMIT: the parameters are those of zt_layer_ops.
 */
static void tz_head_bw(zt_model *m, const zt_layer *l, zt_pass *p, void *tape, const void *x,
                       const void *dy, void *dx)
{
    const uint64_t n = m->config.hidden;

    zt_lm_ops.bw(m, l, p, tape, x, dy, dx);
    m->device->ops->zero(m->device, zt_at(m, dx, tz_target(&p->in) * n),
                         tz_source(&p->in) * n * zt_elem(m));
}

const zt_layer_ops zt_t5_bridge_ops = {tz_bridge_tape, tz_bridge_scratch, tz_bridge_fw,
                                       tz_bridge_bw};
const zt_layer_ops zt_t5_head_ops = {NULL, tz_head_scratch, tz_head_fw, tz_head_bw};
