/* SPDX-License-Identifier: Apache-2.0 */
/*
 * corpus.c: reads text for language models: .txt, and .jsonl with one record per line.
 *
 * Text (.txt, records with "text") is joined and cut into samples of --seq tokens, as run_clm.py of
 * transformers does: each line of .txt is tokenized by itself, with its line end, and with the
 * tokens that the file's post-processor adds.  The end token follows each document: each record,
 * and the whole of a .txt.
 *
 * Records with answers (records.c) are one sample each, cut to --seq tokens; only answers have
 * labels.  With packing, the cut records are joined like text.
 *
 * Every rank tokenizes the whole file, into a temporary file, before the first update.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "engine/data/records.h"
#include "engine/data/source.h"

#define CRP_MASKED (UINT32_C(1) << 31) /* a stored token without a label */
enum { CRP_LONGEST = 1024 /* tokens of a sample by default */ };
CKPT_VEC(crp_starts, uint64_t);

typedef struct crp_source {
    zt_source base;
    const zt_data_opts *o;
    zt_tokenizer *tokenizer;
    zt_records *records;
    zt_store *store;
    crp_starts start; /* records with answers: index of the first token of each, and the end */
    zt_answer answer;
    bool answers, texts; /* kinds of records so far */
    bool packing;        /* records with answers are joined, too */
    int32_t end;         /* the end token */
    uint32_t *row;
} crp_source;

/* ---- samples ---- */

static int crp_get(zt_source *base, uint64_t sample, uint64_t row, const zt_inputs *in,
                   uint64_t *length, ckpt_err *err)
{
    crp_source *s = (crp_source *)base;
    const uint64_t seq = s->base.seq, at = row * seq;
    const uint64_t from = s->base.ragged ? s->start.at[sample] : sample * seq;
    const uint64_t n = s->base.ragged ? s->start.at[sample + 1] - from : seq;
    int rc = zt_store_read(s->store, s->row, (size_t)n, from, err);

    for (uint64_t i = 0; rc == CKPT_OK && i < seq; i++) {
        const uint32_t token = i < n ? s->row[i] : CRP_MASKED;

        in->input_ids[at + i] = i < n ? (int32_t)(token & ~CRP_MASKED) : 0;
        in->attention_mask[at + i] = i < n;
        in->token_type_ids[at + i] = 0;
        in->labels[at + i] = token & CRP_MASKED ? ZT_IGNORE : (int32_t)token;
    }
    *length = n;
    return rc;
}

static void crp_free(zt_source *base)
{
    crp_source *s = (crp_source *)base;

    zt_records_free(s->records);
    zt_tokenizer_free(s->tokenizer);
    zt_store_free(s->store);
    ckpt_vec_free(&s->start);
    ckpt_vec_free(&s->answer.ids);
    ckpt_vec_free(&s->answer.trained);
    ckpt_free(s->row);
    ckpt_free(s);
}

static const zt_source_ops crp_ops = {.get = crp_get, .free = crp_free};

/* ---- text ---- */

static int crp_add(crp_source *s, int32_t id, bool masked, ckpt_err *err)
{
    if ((uint64_t)id >= s->o->model->vocab)
        return ckpt_fail(err, CKPT_EMISMATCH,
                         "token %" PRId32 " of %s is outside the vocabulary of the model, which "
                         "has %" PRIu64 " tokens",
                         id, s->o->vocab, s->o->model->vocab);
    return zt_store_add(s->store, (uint32_t)id | (masked ? CRP_MASKED : 0), err);
}

/* Add a text, and the end token where a document ends, unless the tokenizer has added it. */
static int crp_text(crp_source *s, ckpt_text text, bool end, ckpt_err *err)
{
    zt_ids *ids = &s->answer.ids;
    int rc;

    ids->n = 0;
    rc = text.n ? zt_tokenizer_encode(s->tokenizer, text, true, ids, err) : CKPT_OK;
    for (size_t i = 0; rc == CKPT_OK && i < ids->n; i++)
        rc = crp_add(s, ids->at[i], false, err);
    if (rc == CKPT_OK && end && (ids->n == 0 || ids->at[ids->n - 1] != s->end))
        rc = crp_add(s, s->end, false, err);
    return rc;
}

/* Add one line of .txt; "\r\n" is read as "\n", as Python does. */
static int crp_line(crp_source *s, ckpt_text line, ckpt_err *err)
{
    char *copy;
    int rc;

    if (line.n < 2 || line.at[line.n - 2] != '\r' || line.at[line.n - 1] != '\n')
        return crp_text(s, line, false, err);
    copy = ckpt_alloc(line.n);
    if (!copy)
        return ckpt_fail_memory(err);
    memcpy(copy, line.at, line.n - 2);
    copy[line.n - 2] = '\n';
    rc = crp_text(s, (ckpt_text){copy, line.n - 1}, false, err);
    ckpt_free(copy);
    return rc;
}

/* ---- records ---- */

/* Add a record with answers, cut to --seq tokens; one without a label in them is left out. */
static int crp_answer(crp_source *s, ckpt_err *err)
{
    const zt_answer *a = &s->answer;
    const uint64_t n = a->ids.n < s->base.seq ? a->ids.n : s->base.seq;
    const uint64_t made =
        s->packing ? zt_store_count(s->store) / s->base.seq : (uint64_t)s->start.n - 1;
    const bool full = s->o->limit > 0 && made >= s->o->limit;
    bool labels = false;
    uint64_t *start;
    int rc = CKPT_OK;

    for (uint64_t i = 1; i < n; i++) // the first token has nothing before it
        labels = labels || a->trained.at[i];
    for (uint64_t i = 0; rc == CKPT_OK && labels && i < n; i++)
        rc = crp_add(s, a->ids.at[i], !a->trained.at[i], err);
    if (rc == CKPT_OK && !full) {
        s->base.unused.records += !labels;
        s->base.unused.cut += labels && n < a->ids.n;
    }
    if (rc != CKPT_OK || !labels)
        return rc;
    start = ckpt_vec_push(&s->start);
    if (!start)
        return ckpt_fail_memory(err);
    *start = zt_store_count(s->store);
    return CKPT_OK;
}

static void crp_unused(void *ctx, const char *name)
{
    crp_source *s = ctx;

    zt_unused_add(&s->base, "members", name);
}

static int crp_record(crp_source *s, ckpt_text line, ckpt_err *err)
{
    zt_record record = {0};
    int rc = zt_records_parse(s->records, line, &record, err);

    if (rc != CKPT_OK || record.kind == ZT_RECORD_NONE)
        return rc;
    zt_records_unused(&record, crp_unused, s);
    if (record.kind == ZT_RECORD_TEXT ? s->answers : s->texts)
        return ckpt_fail(err, CKPT_EFORMAT, "records with \"text\" and with answers in one file");
    if (record.kind == ZT_RECORD_TEXT) {
        s->texts = true;
        return crp_text(s, record.text, true, err);
    }
    s->answers = true;
    rc = zt_records_encode(s->records, &record, &s->answer, err);
    return rc == CKPT_OK ? crp_answer(s, err) : rc;
}

/* ---- opening ---- */

static int crp_read(crp_source *s, ckpt_err *err)
{
    const size_t n = strlen(s->o->path);
    const bool plain = strcmp(s->o->path + n - 4, ".txt") == 0;
    zt_lines lines;
    ckpt_text line;
    ckpt_err why = {0};
    int rc = zt_lines_open(&lines, s->o->path, ZT_TEXT_BYTES, err);

    while (rc == CKPT_OK) {
        rc = zt_lines_next(&lines, &line, err);
        if (rc != CKPT_OK || !line.at)
            break;
        rc = plain ? crp_line(s, line, &why) : crp_record(s, line, &why);
        if (rc != CKPT_OK)
            rc = ckpt_fail(err, rc, "%s: line %" PRIu64 ": %s", s->o->path, lines.number, why.text);
    }
    if (rc == CKPT_OK && plain && zt_store_count(s->store) > 0)
        rc = crp_text(s, (ckpt_text){NULL, 0}, true, err);
    zt_lines_close(&lines);
    return rc;
}

/* The number of tokens of a sample; run_clm.py has the same default. */
static int crp_seq(crp_source *s, ckpt_err *err)
{
    const uint64_t positions = s->o->model->positions;

    s->base.seq = s->o->seq                                  ? s->o->seq
                  : positions > 0 && positions < CRP_LONGEST ? positions
                                                             : CRP_LONGEST;
    if (s->base.seq < 2 || s->base.seq > 1 << 24)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "--seq %" PRIu64 ": expected 2 to 16777216 tokens for text", s->base.seq);
    s->row = ckpt_alloc((size_t)s->base.seq * sizeof *s->row);
    return s->row ? CKPT_OK : ckpt_fail_memory(err);
}

static int crp_tokenizer(crp_source *s, ckpt_err *err)
{
    const zt_data_opts *o = s->o;
    int rc;

    if (!zt_arch_causal(o->model->arch))
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: only causal language models train on text without labels, not %s",
                         o->path, o->model->class_name);
    if (!o->vocab)
        return ckpt_fail(
            err, CKPT_EUSAGE,
            "%s: text needs a tokenizer, but the model's folder has neither tokenizer.json "
            "nor tokenizer.model; name one with --vocab, or make tokens with python "
            "-m ckpt.tokens",
            o->path);
    rc = zt_tokenizer_open(&s->tokenizer, o->vocab, err);
    if (rc == CKPT_OK)
        rc = zt_records_new(&s->records, s->tokenizer, o, err);
    if (rc == CKPT_OK)
        rc = zt_records_end(s->records, &s->end, err);
    return rc;
}

/* Count the samples; the last tokens of a text that fill none are left out. */
static int crp_count(crp_source *s, ckpt_err *err)
{
    const uint64_t tokens = zt_store_count(s->store);

    s->base.ragged = s->answers && !s->packing;
    s->base.count = s->base.ragged ? s->start.n - 1 : tokens / s->base.seq;
    s->base.unused.tokens = s->base.ragged ? 0 : tokens % s->base.seq;
    s->base.has = (zt_has){
        .attention_mask = s->base.ragged, .labels = s->answers, .label_per_token = s->answers};
    if (s->base.count > 0)
        return CKPT_OK;
    return s->answers && s->start.n == 1
               ? ckpt_fail(err, CKPT_EFORMAT,
                           "%s: no record has an answer within --seq %" PRIu64
                           " tokens: use a larger --seq",
                           s->o->path, s->base.seq)
               : ckpt_fail(err, CKPT_EFORMAT,
                           "%s: its %" PRIu64 " tokens do not fill a sample of %" PRIu64 " (--seq)",
                           s->o->path, tokens, s->base.seq);
}

int zt_corpus_open(zt_source **out, const zt_data_opts *o, ckpt_err *err)
{
    assert(out && o && o->path);
    crp_source *s = ckpt_alloc(sizeof *s);
    uint64_t *first;
    int rc;

    if (!s)
        return ckpt_fail_memory(err);
    *s = (crp_source){.o = o, .packing = o->packing, .base = {.ops = &crp_ops}};
    rc = crp_tokenizer(s, err);
    if (rc == CKPT_OK)
        rc = crp_seq(s, err);
    if (rc == CKPT_OK)
        rc = zt_store_new(&s->store, err);
    first = rc == CKPT_OK ? ckpt_vec_push(&s->start) : NULL;
    if (rc == CKPT_OK && !first)
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = crp_read(s, err);
    if (rc == CKPT_OK)
        rc = crp_count(s, err);
    if (rc == CKPT_OK)
        *out = &s->base;
    else
        crp_free(&s->base);
    return rc;
}
