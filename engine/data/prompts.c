/* SPDX-License-Identifier: Apache-2.0 */
/* prompts.c: reads prompts for generation, and makes tokens of them. */
#include "engine/data/prompts.h"

#include <inttypes.h>
#include <string.h>

#include "engine/data/records.h"
#include "engine/data/source.h"
#include "libckpt/codec/json/json.h"

#define PMT_LINE (UINT64_C(64) << 20) /* limit of a line, in bytes */

typedef struct pmt_file {
    zt_prompts *to;
    zt_records *records; /* NULL: no tokenizer */
    const zt_model_config *model;
    uint64_t room;
    bool json;
} pmt_file;

/* Encode one line, without its line end. */
static int pmt_encode(const pmt_file *f, ckpt_text line, ckpt_err *err)
{
    const ckpt_json_text json = {.name = "the record", .at = line.at, .n = line.n, .max = line.n};
    ckpt_arena *arena;
    ckpt_value *v = NULL;
    int rc;

    if (!f->json && !f->to->tokenizer)
        return ckpt_fail(err, CKPT_EMISSING,
                         "text needs a tokenizer: the model's folder has no tokenizer.json and no "
                         "tokenizer.model; give one with --vocab");
    if (!f->json)
        return zt_tokenizer_encode(f->to->tokenizer, line, true, &f->to->ids, err);
    arena = ckpt_arena_new(UINT64_C(4) << 30);
    rc = arena ? ckpt_json_parse(&v, arena, &json, err) : ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = zt_records_prompt(f->records, v, &f->to->ids, err);
    ckpt_arena_free(arena);
    return rc;
}

/* Check the tokens of the last prompt. */
static int pmt_check(const pmt_file *f, size_t from, ckpt_err *err)
{
    const zt_ids *ids = &f->to->ids;

    if (ids->n == from)
        return ckpt_fail(err, CKPT_EFORMAT, "the prompt has no tokens");
    if (ids->n - from > f->room)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "the prompt has %zu tokens, but with --max-new-tokens only %" PRIu64
                         " of the model's %" PRIu64 " positions are left for it",
                         ids->n - from, f->room, f->model->positions);
    for (size_t i = from; i < ids->n; i++) {
        if ((uint64_t)ids->at[i] >= f->model->vocab)
            return ckpt_fail(err, CKPT_EFORMAT,
                             "token %" PRId32 " is outside the model's vocabulary of %" PRIu64
                             ": is it the tokenizer of this model?",
                             ids->at[i], f->model->vocab);
    }
    return CKPT_OK;
}

static int pmt_line(const pmt_file *f, ckpt_text line, ckpt_err *err)
{
    const size_t from = f->to->ids.n;
    size_t *to = ckpt_vec_push(&f->to->start);
    int rc;

    if (!to)
        return ckpt_fail_memory(err);
    *to = from;
    while (line.n > 0 && (line.at[line.n - 1] == '\n' || line.at[line.n - 1] == '\r'))
        line.n--;
    if (line.n == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "the line is empty: expected a prompt");
    rc = pmt_encode(f, line, err);
    return rc == CKPT_OK ? pmt_check(f, from, err) : rc;
}

static int pmt_lines(const pmt_file *f, const char *path, ckpt_err *err)
{
    zt_lines lines;
    ckpt_err why = {0};
    ckpt_text line = {NULL, 0};
    size_t *end;
    int rc = zt_lines_open(&lines, path, PMT_LINE, err);

    while (rc == CKPT_OK) {
        rc = zt_lines_next(&lines, &line, err);
        if (rc != CKPT_OK || !line.at)
            break;
        rc = pmt_line(f, line, &why);
        if (rc != CKPT_OK)
            rc = ckpt_fail(err, rc, "%s: line %" PRIu64 ": %.600s", path, lines.number, why.text);
    }
    zt_lines_close(&lines);
    end = rc == CKPT_OK ? ckpt_vec_push(&f->to->start) : NULL;
    if (rc == CKPT_OK && !end)
        return ckpt_fail_memory(err);
    if (end)
        *end = f->to->ids.n;
    if (rc == CKPT_OK && f->to->start.n < 2)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: has no prompts", path);
    return rc;
}

int zt_prompts_read(zt_prompts *out, const char *path, const char *vocab,
                    const zt_model_config *model, uint64_t room, ckpt_err *err)
{
    const size_t n = strlen(path);
    const zt_data_opts o = {.path = path, .vocab = vocab, .model = model};
    pmt_file f = {.to = out, .model = model, .room = room};
    const bool text = n > 4 && strcmp(path + n - 4, ".txt") == 0;
    int rc = CKPT_OK;

    *out = (zt_prompts){0};
    f.json = n > 6 && strcmp(path + n - 6, ".jsonl") == 0;
    if (!f.json && !text)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s: prompts are lines of a .txt, or records of a .jsonl", path);
    if (vocab)
        rc = zt_tokenizer_open(&out->tokenizer, vocab, err);
    if (rc == CKPT_OK && vocab)
        rc = zt_records_new(&f.records, out->tokenizer, &o, err);
    if (rc == CKPT_OK)
        rc = pmt_lines(&f, path, err);
    zt_records_free(f.records);
    return rc;
}

void zt_prompts_free(zt_prompts *p)
{
    zt_tokenizer_free(p->tokenizer);
    ckpt_vec_free(&p->ids);
    ckpt_vec_free(&p->start);
}
