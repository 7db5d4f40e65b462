/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bloom.c: implements BLOOM (arXiv 2211.05100): its first layer, which is an embedding with a layer
 * norm, and the names of its parameters.  decoder.c has the blocks, with ALiBi, and ends.c the last
 * layer.
 */
#include <inttypes.h>

#include "engine/model/layers.h"

/* ---- first layer ---- */

typedef struct bm_kept {
    void *words; /* [rows, hidden]: input of the norm */
    float *mean, *rstd;
    uint64_t n_bytes;
} bm_kept;

static bm_kept bm_keep(const zt_model *m, const zt_batch *b, void *tape)
{
    uint64_t rows = zt_batch_rows(b);
    zt_room room = {.base = tape};
    bm_kept t;

    t.words = zt_room_elems(&room, m, rows * m->config.hidden);
    t.mean = zt_room_floats(&room, rows);
    t.rstd = zt_room_floats(&room, rows);
    t.n_bytes = room.used;
    return t;
}

static uint64_t bm_tape(const zt_model *m, const zt_layer *l, const zt_batch *b)
{
    (void)l;
    return bm_keep(m, b, NULL).n_bytes;
}

/* The backward pass needs a buffer for the gradient of the embeddings. */
static uint64_t bm_scratch(const zt_model *m, const zt_layer *l, const zt_batch *b)
{
    (void)l;
    return zt_batch_rows(b) * m->config.hidden * zt_elem(m);
}

static void bm_fw(zt_model *m, const zt_layer *l, zt_pass *p, void *tape, const void *x, void *y)
{
    const zt_own *own = zt_own_of(m);
    zt_call c = {m, p, l->number, zt_batch_rows(&p->in)};
    bm_kept t = bm_keep(m, &p->in, tape);
    zt_embed e = {.rows = c.rows,
                  .seq = p->in.seq,
                  .width = m->config.hidden,
                  .vocab = m->config.vocab,
                  .token = p->in.input_ids,
                  .word = zt_weight(m, own->word),
                  .y = t.words};
    zt_norm norm = {.x = t.words, .y = y, .mean = t.mean, .rstd = t.rstd};

    (void)x;
    m->device->ops->embed(m->device, m->dtype, &e);
    zt_affine_forward(&c, &own->embed_norm, &norm);
}

/* LIMIT: the parameters are those of zt_layer_ops. */
static void bm_bw(zt_model *m, const zt_layer *l, zt_pass *p, void *tape, const void *x,
                  const void *dy, void *dx)
{
    const zt_own *own = zt_own_of(m);
    zt_call c = {m, p, l->number, zt_batch_rows(&p->in)};
    bm_kept t = bm_keep(m, &p->in, tape);
    zt_norm_grad norm = {.x = t.words, .dy = dy, .mean = t.mean, .rstd = t.rstd, .dx = p->scratch};
    zt_embed_grad e = {.rows = c.rows,
                       .seq = p->in.seq,
                       .width = m->config.hidden,
                       .vocab = m->config.vocab,
                       .padding = -1,
                       .token = p->in.input_ids,
                       .dy = p->scratch};

    (void)x;
    (void)dx;
    if (!zt_wants_backward(m, l))
        return;
    zt_affine_backward(&c, &own->embed_norm, &norm);
    e.dword = zt_grad(m, own->word, &e.word_add);
    if (e.dword)
        m->device->ops->embed_grad(m->device, m->dtype, &e);
}

static const zt_layer_ops bm_stem_ops = {bm_tape, bm_scratch, bm_fw, bm_bw};

/* ---- building ---- */

static void bm_build_block(zt_build *b, uint64_t i)
{
    const zt_model_config *f = &b->m->config;
    uint64_t n = f->hidden;
    float std = f->init_range;
    zt_block *k = &b->own->block[i];
    const char *name = ckpt_arena_printf(b->m->arena, "transformer.h.%" PRIu64, i);
    const zt_map_shape qkv = {n, 3 * n, true, false, std};
    const zt_map_shape o = {n, n, true, false, std};
    const zt_map_shape up = {n, f->inner, true, false, std};
    const zt_map_shape down = {f->inner, n, true, false, std};

    zt_build_layer(b, &zt_decoder_ops, true, name);
    for (int j = 0; j < ZT_MAPS; j++)
        k->map[j] = zt_no_map;
    k->norm[0] = zt_build_norm(b, zt_build_name(b, name, ".input_layernorm"), true);
    k->map[ZT_DECODER_Q] =
        zt_build_map(b, zt_build_name(b, name, ".self_attention.query_key_value"), &qkv);
    k->map[ZT_DECODER_O] = zt_build_map(b, zt_build_name(b, name, ".self_attention.dense"), &o);
    k->norm[1] = zt_build_norm(b, zt_build_name(b, name, ".post_attention_layernorm"), true);
    k->map[ZT_DECODER_UP] = zt_build_map(b, zt_build_name(b, name, ".mlp.dense_h_to_4h"), &up);
    k->map[ZT_DECODER_DOWN] = zt_build_map(b, zt_build_name(b, name, ".mlp.dense_4h_to_h"), &down);
}

int zt_bloom_build(zt_build *b)
{
    const zt_model_config *f = &b->m->config;
    zt_own *own = b->own;

    zt_build_layer(b, &bm_stem_ops, false, "transformer.word_embeddings");
    own->word = zt_build_matrix(b, "transformer.word_embeddings.weight", f->vocab, f->hidden,
                                f->init_range);
    own->embed_norm = zt_build_norm(b, "transformer.word_embeddings_layernorm", true);
    for (uint64_t i = 0; i < f->layers; i++)
        bm_build_block(b, i);
    zt_build_layer(b, &zt_lm_ops, false, "lm_head");
    own->lm = &zt_final_norm;
    own->norm = zt_build_norm(b, "transformer.ln_f", true);
    zt_build_lm_out(b, "lm_head.weight");
    zt_build_close(b);
    return b->rc;
}
