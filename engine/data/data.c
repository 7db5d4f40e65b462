/* SPDX-License-Identifier: Apache-2.0 */
/* data.c: makes micro batches from a source of samples: the order of samples, padding, checks. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "engine/data/source.h"
#include "libckpt/base/digest.h"

#define DT_SUM ((UINT64_C(1) << 48) - 1) /* so that many ranks can add their parts */

struct zt_data {
    zt_source *source;
    zt_data_opts opts;
    uint64_t batch; /* maximum samples of a micro batch */
    zt_inputs in;
    int32_t *shifted;   /* the decoder's input, for sources with targets */
    int32_t *packed[4]; /* copies of `in`, with rows cut to the longest sample of a batch */
    uint64_t sum;       /* zt_data_sum */
};

/* ---- opening ---- */

static bool dt_ends(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);

    return n >= m && strcmp(path + n - m, end) == 0;
}

static int dt_source(zt_source **out, const zt_data_opts *o, ckpt_err *err)
{
    if (dt_ends(o->path, ".safetensors"))
        return zt_tensors_open(out, o, err);
    if (dt_ends(o->path, ".bin") || dt_ends(o->path, ".npy"))
        return zt_tokens_open(out, o, err);
    if (dt_ends(o->path, ".txt") ||
        (dt_ends(o->path, ".jsonl") && o->model->arch != ZT_BERT_CLASSIFIER))
        return zt_corpus_open(out, o, err);
    if (dt_ends(o->path, ".tsv") || dt_ends(o->path, ".csv") || dt_ends(o->path, ".jsonl"))
        return zt_text_open(out, o, err);
    return ckpt_fail(
        err, CKPT_EUNSUPPORTED,
        "%s: expected a name that ends in .safetensors, .bin, .npy, .txt, .tsv, .csv or "
        ".jsonl",
        o->path);
}

/* Check that the source has the inputs and labels that this model needs. */
static int dt_suits(const zt_data *d, ckpt_err *err)
{
    const zt_source *s = d->source;
    zt_arch arch = d->opts.model->arch;
    const char *path = d->opts.path;

    if (arch == ZT_BERT_CLASSIFIER && s->has.label_per_token)
        return ckpt_fail(err, CKPT_EMISMATCH,
                         "%s: expected one label for each sample (the model is a classifier), "
                         "found one for each token",
                         path);
    if (arch != ZT_BERT_CLASSIFIER && s->has.labels && !s->has.label_per_token)
        return ckpt_fail(err, CKPT_EMISMATCH,
                         "%s: expected a label for each token (the model is a language model), "
                         "found one for each sample",
                         path);
    if (arch == ZT_BERT_CLASSIFIER && s->has.labels &&
        (d->opts.model->labels == 1 || d->opts.model->multi_label))
        return ckpt_fail(err, CKPT_EMISMATCH,
                         "%s: the labels are classes, but regression and multi-label models need "
                         "floating-point labels [sample, %" PRIu64 "] in a .safetensors file",
                         path, d->opts.model->labels);
    if (!zt_data_labelled(d) && !d->opts.evaluate)
        return ckpt_fail(err, CKPT_EMISSING, "%s: has no labels, which %s needs", path,
                         d->opts.model->class_name);
    if (s->replay && !d->opts.evaluate && s->batch != d->opts.micro_batch)
        return ckpt_fail(err, CKPT_EMISMATCH,
                         "%s: recorded with micro batches of %" PRIu64
                         ", but the configuration has %" PRIu64,
                         path, s->batch, d->opts.micro_batch);
    if (s->replay && s->ranks < (uint64_t)d->opts.world)
        return ckpt_fail(err, CKPT_EMISMATCH,
                         "%s: recorded for %" PRIu64 " ranks, but this run has %d", path, s->ranks,
                         d->opts.world);
    return CKPT_OK;
}

static int dt_room(zt_data *d, ckpt_err *err)
{
    const uint64_t seq = d->source->seq, target = d->source->target;
    uint64_t n, m;
    size_t each;

    if (!ckpt_mul(d->batch, target > seq ? target : seq, &n) || n > UINT32_MAX ||
        !ckpt_mul(d->batch, d->opts.model->labels + 1, &m) || m > UINT32_MAX)
        return ckpt_fail(err, CKPT_ELIMIT,
                         "%s: a micro batch of %" PRIu64 " x %" PRIu64 " tokens is too large",
                         d->opts.path, d->batch, target > seq ? target : seq);
    each = (size_t)n * sizeof(int32_t);
    d->in = (zt_inputs){ckpt_alloc(each), ckpt_alloc(each), ckpt_alloc(each), ckpt_alloc(each),
                        ckpt_alloc((size_t)m * sizeof(float))};
    for (int i = 0; i < 4; i++)
        d->packed[i] = ckpt_alloc(each);
    d->shifted = ckpt_alloc(each);
    if (!d->shifted || !d->in.input_ids || !d->in.attention_mask || !d->in.token_type_ids ||
        !d->in.labels || !d->in.targets || !d->packed[0] || !d->packed[1] || !d->packed[2] ||
        !d->packed[3])
        return ckpt_fail_memory(err);
    return CKPT_OK;
}

/* True if no token of the sample in row 0 has a label that a loss can use. */
static bool dt_is_silent(const zt_data *d)
{
    const zt_source *s = d->source;
    const uint64_t n = s->target > 0 ? s->target : s->seq;
    bool silent = s->has.labels && s->has.label_per_token && !s->replay;

    // the label of a causal model's first token has nothing before it
    for (uint64_t i = zt_arch_causal(d->opts.model->arch) ? 1 : 0; silent && i < n; i++)
        silent = d->in.labels[i] == ZT_IGNORE;
    return silent;
}

/* CRC-32 of the sample in row 0, which has `length` tokens. */
static uint32_t dt_crc(const zt_data *d, uint64_t length)
{
    const zt_has *has = &d->source->has;
    const uint64_t labels = d->source->target > 0  ? d->source->target
                            : has->label_per_token ? length
                                                   : 1;
    const struct {
        bool has;
        const void *at;
        uint64_t n;
    } part[] = {
        {true, d->in.input_ids, length},
        {has->attention_mask, d->in.attention_mask, length},
        {has->token_type_ids, d->in.token_type_ids, length},
        {has->labels, d->in.labels, labels},
        {has->targets, d->in.targets, d->opts.model->labels},
    };
    uint32_t crc = 0;

    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        if (part[i].has)
            crc = ckpt_crc32(crc, part[i].at, (size_t)part[i].n * 4);
    }
    return crc;
}

/* Mix the place of a sample and its CRC, so the sum over samples depends on their order. */
static uint64_t dt_mix(uint64_t sample, uint32_t crc)
{
    return zt_mix(zt_mix(sample + 1) + crc) & DT_SUM;
}

/*
 * Check every sample before the first update, so zerotrain reports a token beyond the vocabulary at
 * once and not when training reaches it, and add them to the sum.  Ranks share the work.
 */
static int dt_check(zt_data *d, ckpt_err *err)
{
    zt_source *s = d->source;
    uint64_t rank = (uint64_t)d->opts.rank, world = (uint64_t)d->opts.world;
    uint64_t each = s->count / world, rest = s->count % world, length;
    uint64_t first = rank * each + (rank < rest ? rank : rest);
    int rc = CKPT_OK;

    assert(rank < world);
    for (uint64_t i = first; rc == CKPT_OK && i < first + each + (rank < rest); i++) {
        if (s->ops->sum) {
            d->sum += dt_mix(i, s->ops->sum(s, i));
            continue;
        }
        rc = s->ops->get(s, i, 0, &d->in, &length, err);
        if (rc == CKPT_OK) {
            s->unused.silent += dt_is_silent(d);
            d->sum += dt_mix(i, dt_crc(d, length));
        }
    }
    d->sum &= DT_SUM;
    return rc;
}

/* Use only the first samples. */
static void dt_limit(zt_source *s, uint64_t limit)
{
    s->count = limit;
    s->unused.tokens = 0;
}

int zt_data_open(zt_data **out, const zt_data_opts *opts, ckpt_err *err)
{
    zt_data *d = ckpt_alloc(sizeof *d);
    int rc = d ? CKPT_OK : ckpt_fail_memory(err);

    if (rc == CKPT_OK) {
        d->opts = *opts;
        rc = dt_source(&d->source, opts, err);
    }
    if (rc == CKPT_OK && opts->limit > 0 && d->source->replay)
        rc = ckpt_fail(err, CKPT_EUSAGE,
                       "%s: zerotrain replays this file whole, so --max_%s_samples does not apply",
                       opts->path, opts->evaluate ? "eval" : "train");
    if (rc == CKPT_OK && opts->limit > 0 && opts->limit < d->source->count)
        dt_limit(d->source, opts->limit);
    if (rc == CKPT_OK && (d->source->count == 0 || d->source->seq == 0))
        rc = ckpt_fail(err, CKPT_EFORMAT, "%s: holds no samples", opts->path);
    if (rc == CKPT_OK) {
        d->batch = d->source->replay ? d->source->batch : opts->micro_batch;
        rc = dt_suits(d, err);
    }
    if (rc == CKPT_OK)
        rc = dt_room(d, err);
    if (rc == CKPT_OK)
        rc = dt_check(d, err);
    if (rc == CKPT_OK)
        *out = d;
    else
        zt_data_free(d);
    return rc;
}

void zt_data_free(zt_data *d)
{
    if (!d)
        return;
    if (d->source)
        d->source->ops->free(d->source);
    ckpt_free(d->in.input_ids);
    ckpt_free(d->in.attention_mask);
    ckpt_free(d->in.token_type_ids);
    ckpt_free(d->in.labels);
    ckpt_free(d->in.targets);
    for (int i = 0; i < 4; i++)
        ckpt_free(d->packed[i]);
    ckpt_free(d->shifted);
    ckpt_free(d);
}

/* ---- properties ---- */

zt_data_unused zt_data_get_unused(const zt_data *d)
{
    return d->source->unused;
}

uint64_t zt_data_count(const zt_data *d)
{
    return d->source->count;
}

uint64_t zt_data_sum(const zt_data *d)
{
    return d->sum;
}

uint64_t zt_data_batches(const zt_data *d)
{
    uint64_t all = d->batch * (uint64_t)d->opts.world;

    if (d->source->replay)
        return d->source->steps;
    return d->opts.evaluate ? (d->source->count + all - 1) / all : d->source->count / all;
}

void zt_data_shape(const zt_data *d, uint64_t *batch, uint64_t *seq)
{
    *batch = d->batch;
    *seq = d->source->seq;
}

uint64_t zt_data_target(const zt_data *d)
{
    return d->source->target;
}

bool zt_data_is_replay(const zt_data *d)
{
    return d->source->replay;
}

bool zt_data_labelled(const zt_data *d)
{
    zt_arch arch = d->opts.model->arch;

    return d->source->has.labels || d->source->has.targets || zt_arch_causal(arch);
}

const char *zt_data_class(const zt_data *d, size_t i)
{
    return d->source->ops->class_name ? d->source->ops->class_name(d->source, i) : NULL;
}

/* ---- batches ---- */

/* Index of the sample in row k of this rank's micro batch i; false: the evaluation has ended. */
static bool dt_sample(const zt_data *d, uint64_t i, uint64_t k, uint64_t *sample)
{
    const zt_source *s = d->source;
    uint64_t rank = (uint64_t)d->opts.rank, world = (uint64_t)d->opts.world, place;

    if (s->replay) {
        *sample = ((i % s->steps) * s->ranks + rank) * s->batch + k;
        return true;
    }
    assert(rank < world && k < d->batch);
    place = (i * world + rank) * d->batch + k;
    if (d->opts.evaluate) {
        *sample = place;
        return place < s->count;
    }
    // epochs follow without a gap, so the order does not depend on world or accumulation
    *sample =
        zt_sample_at(s->count, place % s->count, d->opts.seed, place / s->count, d->opts.shuffle);
    return true;
}

/* Copy rows cut to `seq` tokens, the longest sample of this batch. */
static void dt_pack(zt_data *d, zt_batch *b, uint64_t seq)
{
    const int32_t *from[4] = {d->in.input_ids, d->in.attention_mask, d->in.token_type_ids,
                              d->in.labels};
    uint64_t room = d->source->seq;

    assert(seq > 0 && seq <= room && b->batch <= d->batch);
    for (int i = 0; i < 4; i++) {
        uint64_t whole = i < 3                             ? 0
                         : d->source->target > 0           ? b->batch * d->source->target
                         : !d->source->has.label_per_token ? b->batch
                                                           : 0;
        for (uint64_t r = 0; whole == 0 && r < b->batch; r++)
            memcpy(d->packed[i] + r * seq, from[i] + r * room, seq * sizeof(int32_t));
        if (whole > 0)
            memcpy(d->packed[i], from[i], whole * sizeof(int32_t));
    }
}

/* If the source has no labels, use the text itself, except padding, as labels. */
static void dt_own_labels(zt_data *d, const zt_batch *b)
{
    for (uint64_t i = 0; i < b->batch * b->seq; i++)
        d->packed[3][i] = d->packed[1][i] ? d->packed[0][i] : ZT_IGNORE;
}

/* Set the batch's arrays; NULL for those that the source lacks. */
static void dt_show(zt_data *d, zt_batch *b)
{
    const zt_has *has = &d->source->has;
    bool causal = zt_arch_causal(d->opts.model->arch);
    bool own = causal && !has->labels;

    b->input_ids = d->packed[0];
    b->attention_mask = has->attention_mask ? d->packed[1] : NULL;
    b->token_type_ids = has->token_type_ids && !causal ? d->packed[2] : NULL;
    if (own && has->attention_mask)
        dt_own_labels(d, b);
    b->labels = has->labels || (own && has->attention_mask) ? d->packed[3]
                : own                                       ? d->packed[0]
                                                            : NULL;
    b->targets = has->targets ? d->in.targets : NULL;
    b->decoder_seq = d->source->target;
    if (b->decoder_seq > 0) {
        zt_model_shift(d->opts.model, b->labels, b->batch, b->decoder_seq, d->shifted);
        b->decoder_input_ids = d->shifted;
    }
}

int zt_data_batch(zt_data *d, uint64_t i, zt_batch *out, ckpt_err *err)
{
    uint64_t longest = 1;
    int rc = CKPT_OK;

    *out = (zt_batch){0};
    for (uint64_t k = 0; rc == CKPT_OK && k < d->batch; k++) {
        uint64_t sample, length = 0;
        if (!dt_sample(d, i, k, &sample)) {
            if (k > 0)
                break;
            out->spare = true; // repeat the first sample, because all ranks must run the pass
            sample = 0;
        }
        rc = d->source->ops->get(d->source, sample, k, &d->in, &length, err);
        longest = length > longest ? length : longest;
        out->batch++;
        if (out->spare)
            break;
    }
    if (rc != CKPT_OK)
        return rc;
    out->seq = d->source->ragged ? longest : d->source->seq;
    dt_pack(d, out, out->seq);
    dt_show(d, out);
    return zt_model_check_batch(&(zt_model){.config = *d->opts.model}, out, err);
}
