/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opt.c: implements OPT (Zhang et al. 2022, arXiv 2205.01068): its first and last layer and the
 * names of its parameters.  decoder.c has the blocks.
 *
 * Positions are learned and count the tokens that attention_mask keeps, so the number of a position
 * differs from its place in a padded sample.  Row 2 of the table belongs to the first token, row 1
 * to masked tokens.  Word embeddings may have another width than the blocks (350M): a linear map
 * without bias then widens them, and another one narrows the last hidden state.
 */
#include <inttypes.h>

#include "engine/model/layers.h"

/* Rows of the table of positions before that of the first token. */
enum { OT_OFFSET = 2 };

static bool ot_projects(const zt_model *m)
{
    return m->config.embed_width != m->config.hidden;
}

/* ---- first layer ---- */

/* Workspace. */
typedef struct ot_work {
    int32_t *index;     /* [rows]: rows of the table of positions */
    void *word, *dword; /* [rows, embed_width], only with a projection */
    void *place;        /* [rows, hidden], likewise */
    void *spare;
    uint64_t n_bytes;
} ot_work;

static ot_work ot_working(const zt_model *m, const zt_batch *b, void *scratch)
{
    uint64_t rows = zt_batch_rows(b);
    zt_room room = {.base = scratch};
    ot_work w = {0};

    w.index = zt_room_take(&room, rows * sizeof *w.index);
    if (ot_projects(m)) {
        w.word = zt_room_elems(&room, m, rows * m->config.embed_width);
        w.dword = zt_room_elems(&room, m, rows * m->config.embed_width);
        w.place = zt_room_elems(&room, m, rows * m->config.hidden);
        w.spare = zt_room_take(&room, zt_map_spare(m, &zt_own_of(m)->project_in, rows));
    }
    w.n_bytes = room.used;
    return w;
}

static uint64_t ot_stem_scratch(const zt_model *m, const zt_layer *l, const zt_batch *b)
{
    (void)l;
    return ot_working(m, b, NULL).n_bytes;
}

/* The tape holds the adapter's inner values of project_in. */
static uint64_t ot_stem_tape(const zt_model *m, const zt_layer *l, const zt_batch *b)
{
    (void)l;
    return ot_projects(m) ? zt_map_low(m, &zt_own_of(m)->project_in, zt_batch_rows(b)) : 0;
}

/* Replace a mask by rows of the table of positions. */
static void ot_count(int32_t *at, uint64_t batch, uint64_t seq)
{
    for (uint64_t i = 0; i < batch; i++) {
        int32_t seen = 0;

        for (uint64_t j = 0; j < seq; j++, at++) {
            const bool kept = *at != 0;

            seen += kept ? 1 : 0;
            *at = (kept ? seen : 0) - 1 + OT_OFFSET;
        }
    }
}

/* Fill w->index on the device. */
static void ot_positions(const zt_call *c, const ot_work *w)
{
    zt_device *d = c->m->device;
    const zt_batch *in = &c->p->in;
    int32_t *host = ckpt_alloc(c->rows * sizeof *host);

    if (!host) {
        zt_device_fail(d, CKPT_ELIMIT, "out of memory for the positions of a micro batch");
        return;
    }
    for (uint64_t i = 0; i < c->rows; i++)
        host[i] = 1;
    if (in->attention_mask)
        d->ops->get(d, host, in->attention_mask, c->rows * sizeof *host);
    ot_count(host, in->batch, in->seq);
    for (uint64_t i = 0; in->cache && i < c->rows; i++)
        host[i] = zt_cache_place(in->cache, i) + OT_OFFSET;
    d->ops->put(d, w->index, host, c->rows * sizeof *host);
    ckpt_free(host);
}

/* Look rows of a table up; width: of the table. */
static zt_embed ot_look_up(const zt_call *c, const int32_t *token, uint64_t n, uint64_t width)
{
    return (zt_embed){
        .rows = c->rows, .seq = c->p->in.seq, .width = width, .vocab = n, .token = token};
}

static uint64_t ot_places(const zt_model *m)
{
    return m->config.positions + OT_OFFSET;
}

/* Word embeddings as the table has them; y [rows, embed_width]. */
static zt_embed ot_words(const zt_call *c, void *y)
{
    zt_embed e = ot_look_up(c, c->p->in.input_ids, c->m->config.vocab, c->m->config.embed_width);

    e.word = zt_weight(c->m, zt_own_of(c->m)->word);
    e.y = y;
    return e;
}

/* Widen the words, then add the positions: two roundings, as in torch. */
static void ot_fw_projected(const zt_call *c, const ot_work *w, void *tape, void *y)
{
    zt_model *m = c->m;
    const zt_device_ops *ops = m->device->ops;
    const zt_own *own = zt_own_of(m);
    zt_embed word = ot_words(c, w->word);
    zt_embed place = ot_look_up(c, w->index, ot_places(m), m->config.hidden);
    zt_map_fw in = {.x = w->word, .y = y, .low = tape, .spare = w->spare};

    ops->embed(m->device, m->dtype, &word);
    zt_map_forward(c, &own->project_in, &in);
    place.word = zt_weight(m, own->position);
    place.y = w->place;
    ops->embed(m->device, m->dtype, &place);
    ops->add(m->device, m->dtype, c->rows * m->config.hidden, y, w->place);
}

static void ot_stem_fw(zt_model *m, const zt_layer *l, zt_pass *p, void *tape, const void *x,
                       void *y)
{
    zt_call c = {m, p, l->number, zt_batch_rows(&p->in)};
    ot_work w = ot_working(m, &p->in, p->scratch);
    zt_embed e = ot_words(&c, y);

    (void)x;
    ot_positions(&c, &w);
    if (ot_projects(m)) {
        ot_fw_projected(&c, &w, tape, y);
        return;
    }
    e.n_types = ot_places(m);
    e.kind = w.index;
    e.type = zt_weight(m, zt_own_of(m)->position);
    m->device->ops->embed(m->device, m->dtype, &e);
}

/* Gradient of a table from those of the rows looked up. */
static void ot_bw_table(const zt_call *c, uint32_t param, zt_embed_grad *e)
{
    zt_model *m = c->m;

    e->rows = c->rows;
    e->seq = c->p->in.seq;
    e->dword = zt_grad(m, param, &e->word_add);
    if (e->dword)
        m->device->ops->embed_grad(m->device, m->dtype, e);
}

/* LIMIT: the parameters are those of zt_layer_ops. */
static void ot_stem_bw(zt_model *m, const zt_layer *l, zt_pass *p, void *tape, const void *x,
                       const void *dy, void *dx)
{
    const zt_model_config *f = &m->config;
    const zt_own *own = zt_own_of(m);
    zt_call c = {m, p, l->number, zt_batch_rows(&p->in)};
    ot_work w = ot_working(m, &p->in, p->scratch);
    zt_embed_grad place = {.width = f->hidden, .padding = -1, .token = w.index, .dy = dy};
    zt_embed_grad word = {.width = f->embed_width, .vocab = f->vocab, .padding = f->padding};
    zt_map_bw in = {.x = w.word, .dy = dy, .dx = w.dword, .low = tape, .spare = w.spare};

    (void)x;
    (void)dx;
    if (!zt_wants_backward(m, l))
        return;
    ot_positions(&c, &w);
    place.vocab = ot_places(m);
    ot_bw_table(&c, own->position, &place);
    word.token = p->in.input_ids;
    word.dy = dy;
    if (ot_projects(m)) {
        zt_embed e = ot_words(&c, w.word);

        m->device->ops->embed(m->device, m->dtype, &e);
        zt_map_backward(&c, &own->project_in, &in);
        word.dy = w.dword;
    }
    ot_bw_table(&c, own->word, &word);
}

static const zt_layer_ops ot_stem_ops = {ot_stem_tape, ot_stem_scratch, ot_stem_fw, ot_stem_bw};

/* ---- head: logits = project_out(norm(x)) w' ---- */

typedef struct ot_head {
    float *mean, *rstd;
    void *h, *dh; /* [n, hidden], between norm and projection */
    void *low, *spare;
    uint64_t n_bytes;
} ot_head;

static ot_head ot_head_at(const zt_model *m, uint64_t n, void *kept)
{
    const zt_map *out = &zt_own_of(m)->project_out;
    zt_room room = {.base = kept};
    ot_head t = {0};

    t.mean = zt_room_floats(&room, n);
    t.rstd = zt_room_floats(&room, n);
    if (ot_projects(m)) {
        t.h = zt_room_elems(&room, m, n * m->config.hidden);
        t.dh = zt_room_elems(&room, m, n * m->config.hidden);
        t.low = zt_room_take(&room, zt_map_low(m, out, n));
        t.spare = zt_room_take(&room, zt_map_spare(m, out, n));
    }
    t.n_bytes = room.used;
    return t;
}

static uint64_t ot_head_kept(const zt_model *m, uint64_t n)
{
    return ot_head_at(m, n, NULL).n_bytes;
}

/* y = norm(x), or a copy of x if the model has no final norm. */
static void ot_head_norm(const zt_call *c, const ot_head *t, const void *x, void *y)
{
    zt_model *m = c->m;
    zt_norm a = {.x = x, .y = y, .mean = t->mean, .rstd = t->rstd};

    if (m->config.final_norm)
        zt_affine_forward(c, &zt_own_of(m)->norm, &a);
    else
        m->device->ops->copy(m->device, y, x, c->rows * m->config.hidden * zt_elem(m));
}

static void ot_head_fw(const zt_call *c, void *kept, const void *x, void *h)
{
    ot_head t = ot_head_at(c->m, c->rows, kept);
    zt_map_fw out = {.x = t.h, .y = h, .low = t.low, .spare = t.spare};

    ot_head_norm(c, &t, x, ot_projects(c->m) ? t.h : h);
    if (ot_projects(c->m))
        zt_map_forward(c, &zt_own_of(c->m)->project_out, &out);
}

static void ot_head_bw(const zt_call *c, void *kept, const void *x, const void *dh, void *dx)
{
    zt_model *m = c->m;
    ot_head t = ot_head_at(m, c->rows, kept);
    zt_norm_grad a = {.x = x, .dy = dh, .mean = t.mean, .rstd = t.rstd, .dx = dx};
    zt_map_bw out = {.x = t.h, .dy = dh, .dx = t.dh, .low = t.low, .spare = t.spare};

    if (ot_projects(m)) {
        zt_map_backward(c, &zt_own_of(m)->project_out, &out);
        a.dy = t.dh;
    }
    if (m->config.final_norm)
        zt_affine_backward(c, &zt_own_of(m)->norm, &a);
    else
        m->device->ops->copy(m->device, dx, a.dy, c->rows * m->config.hidden * zt_elem(m));
}

static const zt_lm_body ot_body = {ot_head_kept, ot_head_fw, ot_head_bw, true, false};

/* ---- building ---- */

static void ot_build_block(zt_build *b, uint64_t i)
{
    const zt_model_config *f = &b->m->config;
    zt_block *k = &b->own->block[i];
    const char *name = ckpt_arena_printf(b->m->arena, "model.decoder.layers.%" PRIu64, i);
    const zt_map_shape square = {f->hidden, f->hidden, f->attention_bias, false, f->init_range};
    const zt_map_shape up = {f->hidden, f->inner, f->mlp_bias, false, f->init_range};
    const zt_map_shape down = {f->inner, f->hidden, f->mlp_bias, false, f->init_range};

    zt_build_layer(b, &zt_decoder_ops, true, name);
    for (int j = 0; j < ZT_MAPS; j++)
        k->map[j] = zt_no_map;
    k->map[ZT_DECODER_K] = zt_build_map(b, zt_build_name(b, name, ".self_attn.k_proj"), &square);
    k->map[ZT_DECODER_V] = zt_build_map(b, zt_build_name(b, name, ".self_attn.v_proj"), &square);
    k->map[ZT_DECODER_Q] = zt_build_map(b, zt_build_name(b, name, ".self_attn.q_proj"), &square);
    k->map[ZT_DECODER_O] = zt_build_map(b, zt_build_name(b, name, ".self_attn.out_proj"), &square);
    k->norm[0] = zt_build_norm(b, zt_build_name(b, name, ".self_attn_layer_norm"), true);
    k->map[ZT_DECODER_UP] = zt_build_map(b, zt_build_name(b, name, ".fc1"), &up);
    k->map[ZT_DECODER_DOWN] = zt_build_map(b, zt_build_name(b, name, ".fc2"), &down);
    k->norm[1] = zt_build_norm(b, zt_build_name(b, name, ".final_layer_norm"), true);
}

/* Let the open layer use a map's parameters, which an earlier layer has listed. */
static void ot_use_map(zt_build *b, const zt_map *l)
{
    zt_build_use(b, l->w);
    if (l->lora_a != ZT_NO_PARAM) {
        zt_build_use(b, l->lora_a);
        zt_build_use(b, l->lora_b);
    }
}

/*
 * The list of parameters has those of the last layer before the blocks, so the first layer lists
 * them, and the last one uses them.
 */
int zt_opt_build(zt_build *b)
{
    const zt_model_config *f = &b->m->config;
    zt_own *own = b->own;
    const bool projects = ot_projects(b->m);
    const zt_map_shape in = {f->embed_width, f->hidden, false, false, f->init_range};
    const zt_map_shape out = {f->hidden, f->embed_width, false, false, f->init_range};

    zt_build_layer(b, &ot_stem_ops, false, "model.decoder.embed_tokens");
    own->word = zt_build_matrix(b, "model.decoder.embed_tokens.weight", f->vocab, f->embed_width,
                                f->init_range);
    own->position = zt_build_matrix(b, "model.decoder.embed_positions.weight", ot_places(b->m),
                                    f->hidden, f->init_range);
    if (projects) {
        own->project_out = zt_build_map(b, "model.decoder.project_out", &out);
        own->project_in = zt_build_map(b, "model.decoder.project_in", &in);
    }
    if (f->final_norm)
        own->norm = zt_build_norm(b, "model.decoder.final_layer_norm", true);
    for (uint64_t i = 0; i < f->layers; i++)
        ot_build_block(b, i);
    zt_build_layer(b, &zt_lm_ops, false, "lm_head");
    own->lm = &ot_body;
    if (projects)
        ot_use_map(b, &own->project_out);
    if (f->final_norm) {
        zt_build_use(b, own->norm.w);
        zt_build_use(b, own->norm.b);
    }
    zt_build_lm_out(b, "lm_head.weight");
    zt_build_close(b);
    return b->rc;
}
