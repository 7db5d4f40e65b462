/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensors.c: reads inputs from a safetensors file, under their names in transformers.
 *
 *     input_ids [sample, token], attention_mask, token_type_ids, labels   samples to draw from
 *     in/input_ids [micro step, rank, sample, token], in/labels ...       a record to replay
 *
 * T5's labels are targets, and their rows may have another length than those of input_ids.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ckpt.h"
#include "engine/data/source.h"

enum { TE_IDS, TE_MASK, TE_TYPES, TE_LABELS, TE_COUNT };

typedef struct te_source {
    zt_source base;
    const char *path;
    ckpt_map *map;
    ckpt_reader *reader;
    const ckpt_tensor *tensor[TE_COUNT];
    uint64_t width[TE_COUNT]; /* elements of a sample */
    uint64_t limit[TE_COUNT]; /* upper limit (exclusive) of values */
    bool floating;            /* labels are targets */
    int64_t *row;
} te_source;

/* Read one sample's integers into out. */
static int te_ints(te_source *s, int which, uint64_t sample, int32_t *out, ckpt_err *err)
{
    const ckpt_tensor *t = s->tensor[which];
    uint64_t n = s->width[which];
    int rc = ckpt_reader_read(s->reader, t, sample * n, n, t->dtype, s->row, err);

    for (uint64_t i = 0; rc == CKPT_OK && i < n; i++) {
        int64_t v = t->dtype == CKPT_I64   ? s->row[i]
                    : t->dtype == CKPT_I32 ? ((const int32_t *)s->row)[i]
                                           : ((const uint8_t *)s->row)[i];
        bool ignore = which == TE_LABELS && v == ZT_IGNORE;
        if (!ignore && (v < 0 || (uint64_t)v >= s->limit[which]))
            rc = ckpt_fail(err, CKPT_EFORMAT,
                           "%s: %s of sample %" PRIu64 " holds %" PRId64 " at %" PRIu64
                           ", expected 0 to %" PRIu64,
                           s->path, t->name, sample, v, i, s->limit[which] - 1);
        out[i] = (int32_t)v;
    }
    return rc;
}

static int te_get(zt_source *base, uint64_t sample, uint64_t row, const zt_inputs *in,
                  uint64_t *length, ckpt_err *err)
{
    te_source *s = (te_source *)base;
    int32_t *to[TE_COUNT] = {in->input_ids, in->attention_mask, in->token_type_ids, in->labels};
    int rc = CKPT_OK;

    for (int k = 0; rc == CKPT_OK && k < TE_COUNT; k++) {
        uint64_t n = s->width[k];
        if (!s->tensor[k])
            continue;
        if (k == TE_LABELS && s->floating)
            rc = ckpt_reader_read(s->reader, s->tensor[k], sample * n, n, CKPT_F32,
                                  in->targets + row * n, err);
        else
            rc = te_ints(s, k, sample, to[k] + row * n, err);
    }
    *length = s->base.seq;
    return rc;
}

static void te_free(zt_source *base)
{
    te_source *s = (te_source *)base;

    ckpt_reader_free(s->reader);
    ckpt_map_free(s->map);
    ckpt_free(s->row);
    ckpt_free(s);
}

static const zt_source_ops te_ops = {.get = te_get, .free = te_free};

/* Check that a tensor's leading axes equal those of input_ids, and set its elements per sample. */
static int te_axes(te_source *s, int which, ckpt_err *err)
{
    const ckpt_tensor *t = s->tensor[which], *ids = s->tensor[TE_IDS];
    uint32_t lead = s->base.replay ? 3 : 1;
    bool same = t->ndim >= lead && t->ndim <= lead + 1;

    for (uint32_t i = 0; same && i < lead; i++)
        same = t->shape[i] == ids->shape[i];
    s->width[which] = same && t->ndim > lead ? t->shape[lead] : 1;
    if (same && which != TE_LABELS)
        same = t->ndim == lead + 1 && s->width[which] == s->base.seq;
    if (!same)
        return ckpt_fail(err, CKPT_EMISMATCH,
                         "%s: the shape of %s does not match that of input_ids", s->path, t->name);
    return CKPT_OK;
}

static int te_labels(te_source *s, const zt_model_config *m, ckpt_err *err)
{
    const ckpt_tensor *t = s->tensor[TE_LABELS];
    uint64_t n = s->width[TE_LABELS];
    uint32_t lead = s->base.replay ? 3 : 1;

    s->floating = t->dtype == CKPT_F32 || t->dtype == CKPT_F64 || t->dtype == CKPT_F16 ||
                  t->dtype == CKPT_BF16;
    s->base.has.targets = s->floating;
    s->base.has.labels = !s->floating;
    if (s->floating)
        return n == m->labels
                   ? CKPT_OK
                   : ckpt_fail(err, CKPT_EMISMATCH,
                               "%s: %s has %" PRIu64
                               " values for each sample, but the model has %" PRIu64 " labels",
                               s->path, t->name, n, m->labels);
    s->base.has.label_per_token = t->ndim == lead + 1;
    if (s->base.has.label_per_token && m->arch == ZT_T5)
        s->base.target = n;
    else if (s->base.has.label_per_token && n != s->base.seq)
        return ckpt_fail(err, CKPT_EMISMATCH,
                         "%s: %s has rows of %" PRIu64
                         " elements, but input_ids has rows of %" PRIu64,
                         s->path, t->name, n, s->base.seq);
    s->limit[TE_LABELS] = s->base.has.label_per_token ? m->vocab : m->labels;
    return CKPT_OK;
}

/* List the tensors that are no inputs; a label of another name must not go unseen. */
static void te_list_unknown(te_source *s)
{
    const size_t count = ckpt_map_tensor_count(s->map);

    for (size_t i = 0; i < count; i++) {
        const ckpt_tensor *t = ckpt_map_tensor_at(s->map, i);
        bool known = false;

        for (int k = 0; !known && k < TE_COUNT; k++)
            known = s->tensor[k] == t;
        if (!known)
            zt_unused_add(&s->base, "tensors", t->name);
    }
}

static int te_find(te_source *s, const zt_data_opts *o, ckpt_err *err)
{
    static const char *const name[TE_COUNT] = {"input_ids", "attention_mask", "token_type_ids",
                                               "labels"};
    // inputs of models in transformers that would change results
    static const char *const other[] = {"decoder_input_ids", "decoder_attention_mask",
                                        "position_ids"};
    char full[32];

    for (int k = 0; k < TE_COUNT; k++) {
        snprintf(full, sizeof full, "in/%s", name[k]);
        s->tensor[k] = ckpt_map_find(s->map, s->base.replay || k == 0 ? full : name[k]);
        s->base.replay = s->base.replay || (k == 0 && s->tensor[0]);
        if (k == 0 && !s->tensor[0])
            s->tensor[0] = ckpt_map_find(s->map, name[0]);
    }
    if (!s->tensor[TE_IDS])
        return ckpt_fail(err, CKPT_EMISSING, "%s: has neither input_ids nor in/input_ids", o->path);
    for (size_t i = 0; !s->base.replay && i < sizeof other / sizeof *other; i++) {
        if (ckpt_map_find(s->map, other[i]))
            return ckpt_fail(err, CKPT_EUNSUPPORTED,
                             "%s: %s is not supported; remove it if the model's own is meant",
                             o->path, other[i]);
    }
    if (s->tensor[TE_IDS]->ndim != (s->base.replay ? 4U : 2U))
        return ckpt_fail(err, CKPT_EFORMAT, "%s: input_ids has %u axes, expected %s", o->path,
                         s->tensor[TE_IDS]->ndim,
                         s->base.replay ? "[micro step, rank, sample, token]" : "[sample, token]");
    if (!s->base.replay)
        te_list_unknown(s);
    return CKPT_OK;
}

static int te_shape(te_source *s, const zt_data_opts *o, ckpt_err *err)
{
    const ckpt_tensor *ids = s->tensor[TE_IDS];
    const uint64_t *shape = ids->shape;
    uint64_t longest;
    int rc = CKPT_OK;

    s->base.seq = shape[ids->ndim - 1];
    s->base.count = s->base.replay ? shape[0] * shape[1] * shape[2] : shape[0];
    s->base.steps = s->base.replay ? shape[0] : 0;
    s->base.ranks = s->base.replay ? shape[1] : 0;
    s->base.batch = s->base.replay ? shape[2] : 0;
    s->base.has =
        (zt_has){.attention_mask = s->tensor[TE_MASK], .token_type_ids = s->tensor[TE_TYPES]};
    s->limit[TE_IDS] = o->model->vocab;
    s->limit[TE_MASK] = 2;
    s->limit[TE_TYPES] = o->model->types ? o->model->types : 2;
    for (int k = 0; rc == CKPT_OK && k < TE_COUNT; k++) {
        const ckpt_tensor *t = s->tensor[k];
        if (!t)
            continue;
        rc = te_axes(s, k, err);
        if (rc == CKPT_OK && k == TE_LABELS)
            rc = te_labels(s, o->model, err);
        if (rc == CKPT_OK && !(k == TE_LABELS && s->floating) && t->dtype != CKPT_I64 &&
            t->dtype != CKPT_I32 && t->dtype != CKPT_U8 && t->dtype != CKPT_BOOL)
            rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: %s is %s, expected whole numbers", s->path,
                           t->name, ckpt_dtype_name(t->dtype));
    }
    longest = s->base.target > s->base.seq ? s->base.target : s->base.seq;
    if (rc == CKPT_OK && longest > UINT32_MAX)
        rc = ckpt_fail(err, CKPT_ELIMIT, "%s: samples have %" PRIu64 " tokens, which is too many",
                       s->path, longest);
    if (rc == CKPT_OK && !(s->row = ckpt_alloc((size_t)(longest + 1) * sizeof *s->row)))
        rc = ckpt_fail_memory(err);
    return rc;
}

int zt_tensors_open(zt_source **out, const zt_data_opts *o, ckpt_err *err)
{
    te_source *s = ckpt_alloc(sizeof *s);
    int rc;

    if (!s)
        return ckpt_fail_memory(err);
    *s = (te_source){.base.ops = &te_ops, .path = o->path};
    rc = ckpt_open(&s->map, o->path, NULL, err);
    if (rc == CKPT_OK)
        rc = ckpt_reader_new(&s->reader, s->map, err);
    if (rc == CKPT_OK)
        rc = te_find(s, o, err);
    if (rc == CKPT_OK)
        rc = te_shape(s, o, err);
    if (rc == CKPT_OK)
        *out = &s->base;
    else
        te_free(&s->base);
    return rc;
}
