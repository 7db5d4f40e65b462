/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.c: owns a model as a list of parameters and a chain of layers: creation, look-ups, checks
 * of batches.
 */
#include <fnmatch.h>
#include <inttypes.h>
#include <string.h>

#include "engine/model/layers.h"

/* ---- models ---- */

/*
 * Check the sizes on which the layers rely; the reader of config.json has already reported bad
 * keys.
 */
static int md_check_config(const zt_model_config *f, ckpt_err *err)
{
    bool llama = f->arch == ZT_LLAMA, t5 = f->arch == ZT_T5;
    uint64_t rotated = f->rotated != 0 ? f->rotated : f->head_width;
    uint64_t heads;

    if (f->vocab == 0 || f->hidden == 0 || f->layers == 0 || f->inner == 0 || f->head_width == 0 ||
        f->heads == 0 || f->kv_heads == 0 || f->positions == 0 ||
        (t5 && (f->decoder_layers == 0 || f->buckets < 4)))
        return ckpt_fail(err, CKPT_EFORMAT, "model: one of its sizes is 0");
    if (f->vocab > INT32_MAX || f->layers > UINT16_MAX || f->positions > INT32_MAX)
        return ckpt_fail(err, CKPT_ELIMIT,
                         "model: vocabulary, layers or positions beyond any model's");
    if (!ckpt_mul(f->heads, f->head_width, &heads) || (!llama && !t5 && heads != f->hidden) ||
        f->heads % f->kv_heads != 0 || (!llama && f->kv_heads != f->heads))
        return ckpt_fail(err, CKPT_EFORMAT,
                         "model: %" PRIu64 " heads (%" PRIu64 " of keys) of width %" PRIu64
                         " do not fit a hidden size of %" PRIu64,
                         f->heads, f->kv_heads, f->head_width, f->hidden);
    if ((llama || f->arch == ZT_NEOX) && (rotated % 2 != 0 || rotated > f->head_width))
        return ckpt_fail(err, CKPT_EFORMAT,
                         "model: rotary positions need an even head_dim, found %" PRIu64, rotated);
    if (f->arch == ZT_BERT_CLASSIFIER && f->labels == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "model: a classifier needs at least one label");
    return CKPT_OK;
}

static int md_build(zt_model *m, ckpt_err *err)
{
    zt_build b = {.m = m, .own = m->own, .err = err};
    int rc = CKPT_OK;

    b.own->block = ckpt_arena_array(m->arena, m->config.layers, sizeof *b.own->block);
    if (!b.own->block)
        return ckpt_fail_memory(err);
    switch (m->config.arch) {
    case ZT_BERT_CLASSIFIER:
    case ZT_BERT_MLM:
        rc = zt_bert_build(&b);
        break;
    case ZT_GPT2:
        rc = zt_gpt2_build(&b);
        break;
    case ZT_LLAMA:
        rc = zt_llama_build(&b);
        break;
    case ZT_OPT:
        rc = zt_opt_build(&b);
        break;
    case ZT_NEOX:
        rc = zt_neox_build(&b);
        break;
    case ZT_BLOOM:
        rc = zt_bloom_build(&b);
        break;
    case ZT_T5:
        rc = zt_t5_build(&b);
        break;
    }
    ckpt_free(b.used);
    return rc;
}

static int md_fill(zt_model *m, const zt_model_config *config, const zt_lora *lora, ckpt_err *err)
{
    int rc;

    m->arena = ckpt_arena_new(0);
    if (!m->arena)
        return ckpt_fail_memory(err);
    m->config = *config;
    if (m->config.embed_width == 0)
        m->config.embed_width = m->config.hidden;
    m->own = ckpt_arena_alloc(m->arena, sizeof(zt_own));
    if (!m->own)
        return ckpt_fail_memory(err);
    if (lora && lora->rank > 0) {
        rc = zt_lora_begin(m, lora, err);
        if (rc != CKPT_OK)
            return rc;
    }
    rc = md_build(m, err);
    return rc == CKPT_OK && m->lora.rank > 0 ? zt_lora_finish(m, err) : rc;
}

int zt_model_new(zt_model **out, zt_device *device, ckpt_dtype dtype, const zt_model_config *config,
                 const zt_lora *lora, ckpt_err *err)
{
    zt_model *m;
    int rc = md_check_config(config, err);

    *out = NULL;
    if (rc != CKPT_OK)
        return rc;
    if (dtype != CKPT_F32 && dtype != CKPT_F16 && dtype != CKPT_BF16)
        return ckpt_fail(err, CKPT_EUSAGE, "a model computes in F32, F16 or BF16, not in %s",
                         ckpt_dtype_name(dtype));
    m = ckpt_alloc(sizeof *m);
    if (!m)
        return ckpt_fail_memory(err);
    m->device = device;
    m->dtype = dtype;
    rc = md_fill(m, config, lora, err);
    if (rc != CKPT_OK) {
        zt_model_free(m);
        return rc;
    }
    *out = m;
    return CKPT_OK;
}

void zt_model_free(zt_model *m)
{
    if (!m)
        return;
    if (m->own && m->device) {
        for (int i = 0; i < 2; i++) {
            m->device->ops->release(m->device, zt_own_of(m)->rope[i].cos);
            m->device->ops->release(m->device, zt_own_of(m)->rope[i].sin);
        }
        m->device->ops->release(m->device, zt_own_of(m)->bucket[0]);
        m->device->ops->release(m->device, zt_own_of(m)->bucket[1]);
    }
    ckpt_vec_free(&m->params);
    ckpt_vec_free(&m->aliases);
    ckpt_vec_free(&m->layers);
    ckpt_arena_free(m->arena);
    ckpt_free(m);
}

uint64_t zt_model_scratch(const zt_model *m, const zt_batch *b)
{
    uint64_t most = 0;

    for (size_t i = 0; i < m->layers.n; i++) {
        const zt_layer *l = &m->layers.at[i];
        uint64_t n = l->ops->scratch(m, l, b);

        most = n > most ? n : most;
    }
    return most;
}

/* ---- names ---- */

/* Freeze the parameters that match one glob; returns their number. */
static size_t md_freeze(zt_model *m, const char *glob)
{
    size_t n = 0;

    for (size_t i = 0; i < m->params.n; i++) {
        if (fnmatch(glob, m->params.at[i].name, 0) == 0) {
            m->params.at[i].frozen = true;
            n++;
        }
    }
    return n;
}

static size_t md_frozen(const zt_model *m)
{
    size_t n = 0;

    for (size_t i = 0; i < m->params.n; i++)
        n += m->params.at[i].frozen ? 1 : 0;
    return n;
}

int zt_model_freeze(zt_model *m, const char *globs, size_t *n, ckpt_err *err)
{
    size_t before = md_frozen(m);
    size_t length;

    for (const char *at = globs; *at != '\0'; at += length + (at[length] == ',' ? 1 : 0)) {
        char glob[512];

        length = strcspn(at, ",");
        if (length == 0)
            continue;
        if (length >= sizeof glob)
            return ckpt_fail(err, CKPT_EUSAGE,
                             "a pattern of parameters to freeze is longer than %zu bytes",
                             sizeof glob - 1);
        memcpy(glob, at, length);
        glob[length] = '\0';
        if (md_freeze(m, glob) == 0)
            return ckpt_fail(err, CKPT_EUSAGE,
                             "no parameter matches '%s', a pattern of parameters to freeze", glob);
    }
    if (n)
        *n = md_frozen(m) - before;
    return CKPT_OK;
}

uint64_t zt_model_count(const zt_model *m, bool trained)
{
    uint64_t n = 0;

    for (size_t i = 0; i < m->params.n; i++)
        n += trained && m->params.at[i].frozen ? 0 : m->params.at[i].n_elems;
    return n;
}

/* ---- batches ---- */

/* Check that each of n numbers is in 0..limit-1, or ZT_IGNORE for labels. */
static int md_check_range(const char *what, const int32_t *v, uint64_t n, uint64_t limit,
                          ckpt_err *err)
{
    bool may_ignore = what[0] == 'l';

    for (uint64_t i = 0; i < n; i++) {
        if ((v[i] < 0 || (uint64_t)v[i] >= limit) && !(may_ignore && v[i] == ZT_IGNORE))
            return ckpt_fail(err, CKPT_EFORMAT,
                             "%s: element %" PRIu64 " is %" PRId32 "; expected 0 to %" PRIu64, what,
                             i, v[i], limit - 1);
    }
    return CKPT_OK;
}

static int md_check_labels(const zt_model *m, const zt_batch *b, ckpt_err *err)
{
    const zt_model_config *f = &m->config;
    bool classifier = f->arch == ZT_BERT_CLASSIFIER;

    if (!b->labels || (classifier && (f->labels == 1 || f->multi_label)))
        return CKPT_OK;
    return classifier ? md_check_range("labels", b->labels, b->batch, f->labels, err)
                      : md_check_range("labels", b->labels, zt_batch_answers(b), f->vocab, err);
}

/* Check the decoder's input. */
static int md_check_target(const zt_model *m, const zt_batch *b, ckpt_err *err)
{
    if (m->config.arch != ZT_T5)
        return CKPT_OK;
    if (!b->decoder_input_ids || b->decoder_seq == 0)
        return ckpt_fail(err, CKPT_EMISSING,
                         "the micro batch has no labels, from which %s makes the decoder's input",
                         m->config.class_name);
    return md_check_range("decoder_input_ids", b->decoder_input_ids, zt_batch_answers(b),
                          m->config.vocab, err);
}

static int md_check_size(const zt_model *m, const zt_batch *b, ckpt_err *err)
{
    uint64_t rows, tokens = b->seq;

    if (b->batch == 0 || b->seq == 0 || !ckpt_add(b->seq, b->decoder_seq, &tokens) ||
        !ckpt_mul(b->batch, tokens, &rows) || rows > INT32_MAX)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "a micro batch of %" PRIu64 " samples of %" PRIu64
                         " tokens is empty or too large",
                         b->batch, tokens);
    if (!zt_arch_any_length(m->config.arch) && b->seq > m->config.positions)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "samples have %" PRIu64 " tokens, but the model has only %" PRIu64
                         " positions",
                         b->seq, m->config.positions);
    if (!b->input_ids)
        return ckpt_fail(err, CKPT_EMISSING, "the micro batch has no input_ids");
    return CKPT_OK;
}

/*
 * ALiBi counts keys from the sequence's first one, as transformers does where the mask has no gap;
 * behind a gap transformers counts only the kept keys.
 */
static int md_check_gaps(const zt_batch *b, ckpt_err *err)
{
    for (uint64_t i = 0; i < b->batch; i++) {
        const int32_t *mask = b->attention_mask + i * b->seq;
        unsigned runs = 0;

        for (uint64_t t = 0; t < b->seq; t++)
            runs += mask[t] != 0 && (t == 0 || mask[t - 1] == 0);
        if (runs > 1)
            return ckpt_fail(err, CKPT_EUNSUPPORTED,
                             "attention_mask of sample %" PRIu64
                             " has a gap between tokens, which is not supported for BLOOM",
                             i);
    }
    return CKPT_OK;
}

int zt_model_check_batch(const zt_model *m, const zt_batch *b, ckpt_err *err)
{
    const zt_model_config *f = &m->config;
    bool bert = f->arch == ZT_BERT_CLASSIFIER || f->arch == ZT_BERT_MLM;
    int rc = md_check_size(m, b, err);

    if (rc != CKPT_OK)
        return rc;
    rc = md_check_range("input_ids", b->input_ids, zt_batch_rows(b), f->vocab, err);
    if (rc == CKPT_OK && b->attention_mask)
        rc = md_check_range("attention_mask", b->attention_mask, zt_batch_rows(b), 2, err);
    if (rc == CKPT_OK && b->attention_mask && f->alibi)
        rc = md_check_gaps(b, err);
    if (rc == CKPT_OK && b->token_type_ids) {
        if (!bert)
            return ckpt_fail(err, CKPT_EUNSUPPORTED,
                             "only BERT models take token_type_ids; this model is %s",
                             f->class_name);
        rc = md_check_range("token_type_ids", b->token_type_ids, zt_batch_rows(b), f->types, err);
    }
    if (rc == CKPT_OK)
        rc = md_check_target(m, b, err);
    return rc == CKPT_OK ? md_check_labels(m, b, err) : rc;
}

void zt_model_shift(const zt_model_config *config, const int32_t *labels, uint64_t batch,
                    uint64_t seq, int32_t *out)
{
    for (uint64_t i = 0; i < batch * seq; i++) {
        if (i % seq == 0)
            out[i] = (int32_t)config->decoder_start;
        else
            out[i] = labels[i - 1] == ZT_IGNORE ? (int32_t)config->decoder_pad : labels[i - 1];
    }
}
