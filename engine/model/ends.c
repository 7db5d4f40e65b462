/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ends.c: implements the first and the last layer of GPT-2 and Llama: an embedding (with or without
 * learned positions), and the final norm with the map to the vocabulary.  T5 has the same first
 * layer.
 */
#include <math.h>

#include "engine/model/layers.h"

/* ---- embedding ---- */

static uint64_t en_embed_scratch(const zt_model *m, const zt_layer *l, const zt_batch *b)
{
    (void)l;
    return m->config.dropout_embed > 0.0F || m->config.embed_scaled
               ? zt_batch_rows(b) * m->config.hidden * zt_elem(m)
               : 0;
}

/* Multiply n embeddings, or their gradients, by the root of the hidden size, rounded to the model's
 * dtype as in transformers. */
static void en_scale(const zt_model *m, uint64_t n, void *x)
{
    const float root = (float)zt_round_to(m->dtype, sqrt((double)m->config.hidden));

    if (m->config.embed_scaled)
        m->device->ops->scale(m->device, m->dtype, n, x, root);
}

static void en_embed_fw(zt_model *m, const zt_layer *l, zt_pass *p, void *tape, const void *x,
                        void *y)
{
    zt_own *own = zt_own_of(m);
    zt_call c = {m, p, l->number, zt_batch_rows(&p->in)};
    zt_embed e = {.rows = c.rows,
                  .seq = p->in.seq,
                  .width = m->config.hidden,
                  .vocab = m->config.vocab,
                  .token = p->in.input_ids,
                  .word = zt_weight(m, own->word),
                  .position = zt_weight(m, own->position),
                  .y = y};

    (void)tape;
    (void)x;
    if (p->in.cache && e.position) {
        e.kind = zt_cache_positions(p->in.cache);
        e.type = e.position;
        e.n_types = m->config.positions;
        e.position = NULL;
    }
    m->device->ops->embed(m->device, m->dtype, &e);
    en_scale(m, c.rows * m->config.hidden, y);
    zt_drop(&c, ZT_SITE_EMBED, m->config.dropout_embed,
            &(zt_dropout){.n = c.rows * m->config.hidden, .x = y, .y = y});
}

/* LIMIT: the parameters are those of zt_layer_ops. */
static void en_embed_bw(zt_model *m, const zt_layer *l, zt_pass *p, void *tape, const void *x,
                        const void *dy, void *dx)
{
    zt_own *own = zt_own_of(m);
    zt_call c = {m, p, l->number, zt_batch_rows(&p->in)};
    zt_embed_grad e = {.rows = c.rows,
                       .seq = p->in.seq,
                       .n_positions = m->config.positions,
                       .width = m->config.hidden,
                       .vocab = m->config.vocab,
                       .padding = m->config.arch == ZT_GPT2 ? -1 : m->config.padding,
                       .token = p->in.input_ids,
                       .dy = dy};

    (void)tape;
    (void)x;
    (void)dx;
    e.dword = zt_grad(m, own->word, &e.word_add);
    e.dposition = zt_grad(m, own->position, &e.position_add);
    if (!e.dword && !e.dposition)
        return;
    if (p->train && m->config.dropout_embed > 0.0F) {
        zt_drop(&c, ZT_SITE_EMBED, m->config.dropout_embed,
                &(zt_dropout){.n = c.rows * m->config.hidden, .x = dy, .y = p->scratch});
        e.dy = p->scratch;
    }
    if (m->config.embed_scaled) {
        if (e.dy != p->scratch)
            m->device->ops->copy(m->device, p->scratch, dy, c.rows * m->config.hidden * zt_elem(m));
        en_scale(m, c.rows * m->config.hidden, p->scratch);
        e.dy = p->scratch;
    }
    m->device->ops->embed_grad(m->device, m->dtype, &e);
}

/* ---- head: logits = norm(x) w'; its parameters decide the kind of norm ---- */

typedef struct en_final {
    float *mean, *rstd;
    uint64_t n_bytes;
} en_final;

static en_final en_final_at(void *kept, uint64_t n)
{
    zt_room room = {.base = kept};
    en_final t;

    t.mean = zt_room_floats(&room, n);
    t.rstd = zt_room_floats(&room, n);
    t.n_bytes = room.used;
    return t;
}

static uint64_t en_final_kept(const zt_model *m, uint64_t n)
{
    (void)m;
    return en_final_at(NULL, n).n_bytes;
}

static void en_final_fw(const zt_call *c, void *kept, const void *x, void *h)
{
    en_final t = en_final_at(kept, c->rows);
    zt_norm a = {.x = x, .y = h, .mean = t.mean, .rstd = t.rstd};

    zt_affine_forward(c, &zt_own_of(c->m)->norm, &a);
}

static void en_final_bw(const zt_call *c, void *kept, const void *x, const void *dh, void *dx)
{
    en_final t = en_final_at(kept, c->rows);
    zt_norm_grad a = {.x = x, .dy = dh, .mean = t.mean, .rstd = t.rstd, .dx = dx};

    zt_affine_backward(c, &zt_own_of(c->m)->norm, &a);
}

const zt_lm_body zt_final_norm = {en_final_kept, en_final_fw, en_final_bw, true, false};

const zt_layer_ops zt_stem_ops = {NULL, en_embed_scratch, en_embed_fw, en_embed_bw};

/* Build the map to the vocabulary: the embedding itself if tied, else a matrix at the end of the
 * list. */
void zt_build_lm_out(zt_build *b, const char *name)
{
    const zt_model_config *f = &b->m->config;
    zt_own *own = b->own;

    own->out = (zt_map){.in = f->embed_width, .out = f->vocab, .b = ZT_NO_PARAM};
    own->out.lora_a = ZT_NO_PARAM;
    own->out.lora_b = ZT_NO_PARAM;
    if (f->tied) {
        own->out.w = own->word;
        zt_build_use(b, own->word);
        zt_build_alias(b, name, own->word);
    } else {
        own->out.w = zt_build_matrix(b, name, f->vocab, f->embed_width, f->init_range);
    }
}
