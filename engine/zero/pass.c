/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pass.c: runs forward and backward over the chain of layers.
 *
 * Every layer's output and tape are kept for the backward pass.  With activation checkpointing
 * (Chen et al. 2016) only the outputs are kept; there is a single tape, and each layer's forward
 * pass fills it again right before the layer's backward pass.
 */
#include "engine/zero/own.h"

#include <assert.h>
#include <inttypes.h>

/* Grow a buffer to at least n bytes; the old content is lost. */
static int ch_grow(zt_zero *z, void **p, uint64_t *have, uint64_t n, ckpt_err *err)
{
    const zt_device_ops *ops = z->device->ops;

    if (n <= *have && *p)
        return CKPT_OK;
    ops->release(z->device, *p);
    zr_of(z)->memory.activations -= *have;
    *have = 0;
    *p = ops->alloc(z->device, n < 64 ? 64 : n);
    if (!*p) {
        (void)zt_device_check(z->device, err);
        return ckpt_fail_memory(err);
    }
    *have = n;
    zr_of(z)->memory.activations += n;
    return CKPT_OK;
}

/* Round up to a cache line, because buffers begin on cache lines. */
static uint64_t ch_round(uint64_t n)
{
    return (n + 63) & ~UINT64_C(63);
}

/* Set the offsets of tapes (all 0 if there is a single one); returns their bytes. */
static uint64_t ch_tapes(zt_zero *z, const zt_batch *b, bool train)
{
    zr_own *o = zr_of(z);
    bool one = !train || o->opts.keep_activations_not;
    uint64_t at = 0, most = 0;

    for (uint32_t l = 0; l < z->model->layers.n; l++) {
        const zt_layer *layer = &z->model->layers.at[l];
        uint64_t n = layer->ops->tape ? ch_round(layer->ops->tape(z->model, layer, b)) : 0;

        o->chain.tape_at[l] = one ? 0 : at;
        at += n;
        most = n > most ? n : most;
    }
    return one ? most : at;
}

/* Reserve buffers for one micro batch of this shape. */
static int ch_reserve(zt_zero *z, const zt_batch *b, bool train, ckpt_err *err)
{
    zr_chain *c = &zr_of(z)->chain;
    uint64_t n_layers = z->model->layers.n, n_rows, n_elems, n_bytes;
    int rc;

    if (!ckpt_add(b->seq, b->decoder_seq, &n_rows) || !ckpt_mul(b->batch, n_rows, &n_rows) ||
        !ckpt_mul(n_rows, z->model->config.hidden, &n_elems) ||
        n_elems > UINT64_MAX / 64 / (n_layers + 1))
        return ckpt_fail(err, CKPT_ELIMIT,
                         "the sizes of buffers for a micro batch of %" PRIu64 " x %" PRIu64
                         " overflow",
                         b->batch, b->seq + b->decoder_seq);
    c->row_bytes = ch_round(zr_bytes(z->model->dtype, n_elems));
    n_bytes = c->row_bytes * (train ? n_layers : 2);
    rc = ch_grow(z, &c->x, &c->x_bytes, n_bytes, err);
    if (rc == CKPT_OK)
        rc = ch_grow(z, &c->tape, &c->tape_bytes, ch_tapes(z, b, train), err);
    if (rc == CKPT_OK)
        rc = ch_grow(z, &c->scratch, &c->scratch_bytes, zt_model_scratch(z->model, b), err);
    if (rc == CKPT_OK && train)
        rc = ch_grow(z, &c->grad, &c->grad_bytes, c->row_bytes, err);
    return rc;
}

int zr_chain_new(zt_zero *z, ckpt_err *err)
{
    const zr_own *o = zr_of(z);
    zr_chain *c = &zr_of(z)->chain;
    zt_batch b = {
        .batch = o->opts.max_batch, .seq = o->opts.max_seq, .decoder_seq = o->opts.max_decoder_seq};

    c->tape_at = ckpt_alloc((z->model->layers.n + 1) * sizeof *c->tape_at);
    if (!c->tape_at)
        return ckpt_fail_memory(err);
    return b.batch > 0 && b.seq > 0 ? ch_reserve(z, &b, true, err) : CKPT_OK;
}

void zr_chain_free(zt_zero *z)
{
    zr_chain *c = &zr_of(z)->chain;

    z->device->ops->release(z->device, c->x);
    z->device->ops->release(z->device, c->tape);
    z->device->ops->release(z->device, c->grad);
    z->device->ops->release(z->device, c->scratch);
    z->device->ops->release(z->device, c->inputs);
    ckpt_free(c->tape_at);
    *c = (zr_chain){0};
}

enum { CH_INPUTS = 6 };

/* Bytes of a batch's inputs, and the offsets of their copies on the device. */
typedef struct ch_inputs {
    const void *host[CH_INPUTS];
    uint64_t n_bytes[CH_INPUTS], at[CH_INPUTS], all;
} ch_inputs;

/* There is one label per token (of the target), or one per sample for classifiers. */
static ch_inputs ch_inputs_of(const zt_zero *z, const zt_batch *b)
{
    const zt_model_config *m = &z->model->config;
    bool classes = m->arch == ZT_BERT_CLASSIFIER;
    uint64_t ids = b->batch * b->seq * sizeof(int32_t);
    uint64_t target = b->batch * b->decoder_seq * sizeof(int32_t);
    ch_inputs in = {.host = {b->input_ids, b->attention_mask, b->token_type_ids, b->labels,
                             b->targets, b->decoder_input_ids},
                    .n_bytes = {ids, ids, ids,
                                classes      ? b->batch * sizeof(int32_t)
                                : target > 0 ? target
                                             : ids,
                                b->batch * m->labels * sizeof(float), target}};

    for (unsigned i = 0; i < CH_INPUTS; i++) {
        in.n_bytes[i] = in.host[i] ? in.n_bytes[i] : 0;
        in.at[i] = in.all;
        in.all += ch_round(in.n_bytes[i]);
    }
    return in;
}

/* Make the batch readable for the device, with a copy if necessary. */
static int ch_bring(zt_zero *z, const zt_batch *b, zt_batch *out, ckpt_err *err)
{
    zr_chain *c = &zr_of(z)->chain;
    ch_inputs in;
    const void *at[CH_INPUTS];
    int rc;

    *out = *b;
    if (z->device->host)
        return CKPT_OK;
    in = ch_inputs_of(z, b);
    rc = ch_grow(z, &c->inputs, &c->inputs_bytes, in.all, err);
    for (unsigned i = 0; i < CH_INPUTS && rc == CKPT_OK; i++) {
        at[i] = in.n_bytes[i] > 0 ? (char *)c->inputs + in.at[i] : NULL;
        if (at[i])
            z->device->ops->put(z->device, (char *)c->inputs + in.at[i], in.host[i], in.n_bytes[i]);
    }
    if (rc == CKPT_OK) {
        out->input_ids = at[0];
        out->attention_mask = at[1];
        out->token_type_ids = at[2];
        out->labels = at[3];
        out->targets = at[4];
        out->decoder_input_ids = at[5];
    }
    return rc;
}

/* Layer l's output; evaluation needs only two buffers, in turn. */
static void *ch_out(const zt_zero *z, uint32_t l)
{
    const zr_chain *c = &zr_of(z)->chain;

    assert(c->row_bytes * (zr_of(z)->training ? l + 1 : 2) <= c->x_bytes);
    return (char *)c->x + c->row_bytes * (zr_of(z)->training ? l : l % 2);
}

/* Run a layer forward; recomputation too: the same seed gives the same dropout. */
static void ch_forward_layer(zt_zero *z, zt_pass *p, uint32_t l)
{
    const zr_chain *c = &zr_of(z)->chain;
    const zt_layer *layer = &z->model->layers.at[l];
    bool head = l + 1 == z->model->layers.n;

    assert(l < z->model->layers.n);
    layer->ops->fw(z->model, layer, p, (char *)c->tape + c->tape_at[l],
                   l == 0 ? NULL : ch_out(z, l - 1), head ? NULL : ch_out(z, l));
}

/* Run the layers from `first` in order.  The head stores the loss (evaluation) or its tape
 * (training). */
static int ch_forward(zt_zero *z, zt_pass *p, uint32_t first, ckpt_err *err)
{
    const zr_stage *stage = zr_of(z)->stage;
    int rc = CKPT_OK;

    for (uint32_t l = first; l < z->model->layers.n && rc == CKPT_OK; l++) {
        rc = stage->hold(z, l, false, err);
        if (rc == CKPT_OK) {
            ch_forward_layer(z, p, l);
            rc = stage->leave(z, l, false, err);
        }
    }
    return rc;
}

/* Run all layers backward; one buffer holds the gradient of the activations. */
static int ch_backward(zt_zero *z, zt_pass *p, ckpt_err *err)
{
    const zr_own *o = zr_of(z);
    const zr_chain *c = &o->chain;
    uint32_t n = (uint32_t)z->model->layers.n;
    int rc = CKPT_OK;

    for (uint32_t l = n; l-- > 0 && rc == CKPT_OK;) {
        const zt_layer *layer = &z->model->layers.at[l];
        bool head = l + 1 == n;

        rc = o->stage->hold(z, l, true, err);
        if (rc != CKPT_OK)
            break;
        if (o->opts.keep_activations_not && !head) { // the head's tape is still in the single tape
            ch_forward_layer(z, p, l);
        }
        layer->ops->bw(z->model, layer, p, (char *)c->tape + c->tape_at[l],
                       l == 0 ? NULL : ch_out(z, l - 1), head ? NULL : c->grad,
                       l == 0 ? NULL : c->grad);
        rc = o->stage->leave(z, l, true, err);
    }
    return rc;
}

/* A dropout seed that differs for each step, micro step and rank (splitmix64's mixing function). */
static uint64_t ch_seed(const zt_zero *z)
{
    uint64_t x =
        zr_of(z)->opts.seed + UINT64_C(0x9e3779b97f4a7c15) * (uint64_t)(z->micro_steps + 1);

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9) + (uint64_t)z->comm->rank;
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

int zt_zero_micro(zt_zero *z, const zt_batch *batch, double *loss, ckpt_err *err)
{
    zr_own *o = zr_of(z);
    double scale = z->scaler.scale;
    zt_batch in;
    int rc = ch_reserve(z, batch, true, err);

    rc = zt_comm_agree(z->comm, rc == CKPT_OK ? ch_bring(z, batch, &in, err) : rc, err);
    if (rc != CKPT_OK)
        return rc;
    zt_pass p = {.in = in,
                 .train = true,
                 .seed = ch_seed(z),
                 .scale = scale,
                 .accumulation = z->config->accumulation,
                 .loss_factor = (float)(scale / (double)z->config->accumulation),
                 .scratch = o->chain.scratch};

    o->training = true;
    (void)ch_tapes(z, batch, true);
    rc = o->stage->begin(z, err);
    if (rc == CKPT_OK)
        rc = ch_forward(z, &p, 0, err);
    if (rc == CKPT_OK)
        rc = ch_backward(z, &p, err);
    if (rc == CKPT_OK)
        rc = o->stage->end(z, err);
    o->training = false;
    if (rc == CKPT_OK)
        rc = zt_device_check(z->device, err);
    *loss = p.loss;
    return zt_comm_agree(z->comm, rc, err);
}

int zt_zero_evaluate(zt_zero *z, const zt_batch *batch, void *logits, double *loss, ckpt_err *err)
{
    zr_own *o = zr_of(z);
    zt_batch in;
    const uint32_t first = batch->cache ? zt_cache_first_layer(batch->cache) : 0;
    int rc = ch_reserve(z, batch, false, err);

    if (rc == CKPT_OK && batch->cache)
        rc = zt_cache_begin(batch->cache, batch, err);
    rc = zt_comm_agree(z->comm, rc == CKPT_OK ? ch_bring(z, batch, &in, err) : rc, err);
    if (rc != CKPT_OK)
        return rc;
    zt_pass p = {.in = in, .scratch = o->chain.scratch, .logits = logits};

    o->training = false;
    (void)ch_tapes(z, batch, false);
    rc = ch_forward(z, &p, first, err);
    if (rc == CKPT_OK)
        rc = o->stage->end(z, err);
    if (rc == CKPT_OK)
        rc = zt_device_check(z->device, err);
    if (rc == CKPT_OK && batch->cache)
        zt_cache_end(batch->cache, batch);
    *loss = p.loss;
    return zt_comm_agree(z->comm, rc, err);
}
