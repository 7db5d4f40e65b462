/* SPDX-License-Identifier: Apache-2.0 */
/*
 * records.c: parses lines of .jsonl, and encodes instructions and conversations with the answers
 * marked.
 *
 * Instructions use the prompt of Stanford Alpaca (train.py), and end with the end token.
 * Conversations use the folder's chat template.  The tokens are always those of the whole text.  An
 * answer begins with the first token that the text before it does not have.
 */
#include "engine/data/records.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/tokenizer/chat.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/io/io.h"

enum { REC_PATH = 4096 };
#define REC_BYTES (UINT64_C(64) << 20) /* limit of a file of settings */

#define REC_TASK(rest)  "Below is an instruction that describes a task" rest
#define REC_APPROPRIATE "Write a response that appropriately completes the request.\n\n"

struct zt_records {
    zt_tokenizer *tokenizer;
    ckpt_arena *arena;        /* settings */
    ckpt_arena *line;         /* the last record */
    const ckpt_value *config; /* tokenizer_config.json, or NULL */
    ckpt_text template;       /* n 0: none */
    const zt_chat *chat;      /* NULL: not looked up yet */
    ckpt_text bos, eos;
    int32_t end; /* -1: none */
    ckpt_bytes text;
    zt_spans answers;
    zt_ids part;
};

/* ---- settings of the folder ---- */

/* The path of a file beside the tokenizer; NULL: it does not exist. */
static const char *rec_beside(char *to, const char *tokenizer, const char *name)
{
    const char *slash = strrchr(tokenizer, '/');
    int n =
        snprintf(to, REC_PATH, "%.*s%s", slash ? (int)(slash - tokenizer) + 1 : 0, tokenizer, name);

    return n < REC_PATH && access(to, R_OK) == 0 ? to : NULL;
}

/* The text of a special token: a text, or an object with its "content". */
static ckpt_text rec_token(const zt_records *r, const char *key)
{
    const ckpt_value *v = ckpt_value_get(r->config, key);

    if (v && v->kind == CKPT_V_DICT)
        v = ckpt_value_get(v, "content");
    return v && v->kind == CKPT_V_STR ? v->as.text : (ckpt_text){"", 0};
}

/* The template in tokenizer_config.json: a text, or a list of which "default" counts. */
static void rec_template(zt_records *r)
{
    const ckpt_value *v = ckpt_value_get(r->config, "chat_template");
    const ckpt_seq list = ckpt_value_seq(v);

    for (uint64_t i = 0; i < list.n; i++) {
        const ckpt_value *name = ckpt_value_get(list.at[i], "name");
        if (name && ckpt_value_is(name, "default"))
            v = ckpt_value_get(list.at[i], "template");
    }
    if (v && v->kind == CKPT_V_STR)
        r->template = v->as.text;
}

/* Read chat_template.jinja, which replaces the template of tokenizer_config.json. */
static int rec_jinja(zt_records *r, const char *path, ckpt_err *err)
{
    char *bytes = NULL;
    uint64_t n = 0;
    int rc = ckpt_io_slurp(&bytes, &n, path, REC_BYTES, err);

    if (rc == CKPT_OK) {
        r->template = (ckpt_text){ckpt_arena_string(r->arena, bytes, n), n};
        rc = r->template.at ? CKPT_OK : ckpt_fail_memory(err);
    }
    ckpt_free(bytes);
    return rc;
}

/* The end token: eos_token of the folder, else eos_token_id of the model. */
static void rec_end(zt_records *r, const zt_model_config *m)
{
    const ckpt_value *id = ckpt_value_get(m->json, "eos_token_id");
    int64_t number = -1;

    r->end = r->eos.n ? zt_tokenizer_find(r->tokenizer, r->eos.at) : -1;
    if (ckpt_value_seq(id).n > 0)
        id = ckpt_value_seq(id).at[0];
    if (r->end < 0 && ckpt_value_as_int(id, &number) && number >= 0 && number < INT32_MAX)
        r->end = (int32_t)number;
}

static int rec_settings(zt_records *r, const zt_data_opts *o, ckpt_err *err)
{
    char name[REC_PATH];
    ckpt_value *config = NULL;
    const char *path = rec_beside(name, o->vocab, "tokenizer_config.json");
    int rc = path ? ckpt_json_read(&config, r->arena, path, REC_BYTES, err) : CKPT_OK;

    r->config = config;
    r->bos = rec_token(r, "bos_token");
    r->eos = rec_token(r, "eos_token");
    rec_template(r);
    path = rec_beside(name, o->vocab, "chat_template.jinja");
    if (rc == CKPT_OK && path)
        rc = rec_jinja(r, path, err);
    rec_end(r, o->model);
    return rc;
}

int zt_records_new(zt_records **out, zt_tokenizer *t, const zt_data_opts *opts, ckpt_err *err)
{
    assert(out && t && opts);
    zt_records *r = ckpt_alloc(sizeof *r);
    int rc;

    *out = r;
    if (!r)
        return ckpt_fail_memory(err);
    r->tokenizer = t;
    r->arena = ckpt_arena_new(0);
    rc = r->arena ? rec_settings(r, opts, err) : ckpt_fail_memory(err);
    return rc;
}

void zt_records_free(zt_records *r)
{
    if (!r)
        return;
    ckpt_arena_free(r->arena);
    ckpt_arena_free(r->line);
    ckpt_vec_free(&r->text);
    ckpt_vec_free(&r->answers);
    ckpt_vec_free(&r->part);
    ckpt_free(r);
}

int zt_records_end(const zt_records *r, int32_t *end, ckpt_err *err)
{
    *end = r->end;
    if (r->end >= 0)
        return CKPT_OK;
    return ckpt_fail(err, CKPT_EMISSING,
                     "the tokenizer's folder does not name the token that ends a text: expected "
                     "eos_token in tokenizer_config.json, or eos_token_id in config.json");
}

/* ---- parsing ---- */

static const ckpt_text *rec_text(const ckpt_value *v, const char *key)
{
    const ckpt_value *text = ckpt_value_get(v, key);

    return text && text->kind == CKPT_V_STR ? &text->as.text : NULL;
}

/* Check that an instruction's "input" is a text, or absent. */
static int rec_input(const ckpt_value *v, ckpt_err *err)
{
    const ckpt_value *input = ckpt_value_get(v, "input");

    return !input || input->kind == CKPT_V_STR || input->kind == CKPT_V_NONE
               ? CKPT_OK
               : ckpt_fail(err, CKPT_EFORMAT, "\"input\" is not a text");
}

/*
 * Refuse members of a record that change the text which other programs train on, unless they are
 * empty: tools, reasoning and settings, which chat templates write, and the system prompt and
 * former turns of LLaMA-Factory's instructions.
 */
static int rec_changing(const ckpt_value *v, ckpt_err *err)
{
    static const char *const names[] = {
        "tools",     "functions", "tool_calls",        "function_call",       "system",
        "documents", "history",   "reasoning_content", "chat_template_kwargs"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const ckpt_value *has = ckpt_value_get(v, names[i]);
        const bool empty = !has || has->kind == CKPT_V_NONE ||
                           (has->kind == CKPT_V_STR && has->as.text.n == 0) ||
                           (has->kind != CKPT_V_STR && ckpt_value_seq(has).n == 0 &&
                            (has->kind != CKPT_V_DICT || has->as.map.n == 0));
        if (!empty)
            return ckpt_fail(err, CKPT_EUNSUPPORTED,
                             "\"%s\" is not supported: write its text into the messages, or remove "
                             "it",
                             names[i]);
    }
    return CKPT_OK;
}

/* True for a message's weight of 1, which is absent, null, or a number that a table made 1.0. */
static bool rec_weighs_one(const ckpt_value *weight)
{
    int64_t n = 0;

    return !weight || weight->kind == CKPT_V_NONE || (ckpt_value_as_int(weight, &n) && n == 1) ||
           (weight->kind == CKPT_V_FLOAT && weight->as.f == 1.0);
}

/* Check a conversation and its messages for members that change its text. */
static int rec_messages(const ckpt_value *v, ckpt_err *err)
{
    const ckpt_seq list = ckpt_value_seq(ckpt_value_get(v, "messages"));
    int rc = rec_changing(v, err);

    for (uint64_t i = 0; rc == CKPT_OK && i < list.n; i++) {
        rc = rec_changing(list.at[i], err);
        if (rc == CKPT_OK && !rec_weighs_one(ckpt_value_get(list.at[i], "weight")))
            rc = ckpt_fail(err, CKPT_EUNSUPPORTED,
                           "message %" PRIu64
                           " has a \"weight\" other than 1, but zerotrain trains on all answers "
                           "alike; remove it",
                           i + 1);
    }
    return rc;
}

static void rec_others(const ckpt_value *v, const char *const known[4], const char *before,
                       void (*each)(void *ctx, const char *name), void *ctx)
{
    char name[80];

    for (uint64_t i = 0; v && v->kind == CKPT_V_DICT && i < v->as.map.n; i++) {
        const char *key = v->as.map.at[i].key->as.text.at;
        bool is_known = false;

        for (int k = 0; known[k]; k++)
            is_known = is_known || strcmp(key, known[k]) == 0;
        (void)snprintf(name, sizeof name, "%s%s", before, key);
        if (!is_known)
            each(ctx, name);
    }
}

void zt_records_unused(const zt_record *record, void (*each)(void *ctx, const char *name),
                       void *ctx)
{
    static const char *const known[][4] = {
        [ZT_RECORD_TEXT] = {"text"},
        [ZT_RECORD_INSTRUCTION] = {"instruction", "input", "output"},
        [ZT_RECORD_MESSAGES] = {"messages"}};
    static const char *const in_message[4] = {"role", "content"};

    assert(record && each && record->kind != ZT_RECORD_NONE);
    rec_others(record->value, known[record->kind], "", each, ctx);
    if (record->kind == ZT_RECORD_MESSAGES) {
        const ckpt_seq list = ckpt_value_seq(ckpt_value_get(record->value, "messages"));

        for (uint64_t i = 0; i < list.n; i++)
            rec_others(list.at[i], in_message, "messages.", each, ctx);
    }
}

int zt_records_parse(zt_records *r, ckpt_text line, zt_record *out, ckpt_err *err)
{
    assert(r && line.at && out);
    const ckpt_json_text json = {.name = "the record", .at = line.at, .n = line.n, .max = line.n};
    ckpt_value *v = NULL;
    int rc;

    *out = (zt_record){0};
    while (line.n > 0 && strchr(" \t\r\n", line.at[line.n - 1]) && line.at[line.n - 1])
        line.n--;
    if (line.n == 0)
        return CKPT_OK;
    ckpt_arena_free(r->line);
    r->line = ckpt_arena_new(UINT64_C(4) << 30);
    rc = r->line ? ckpt_json_parse(&v, r->line, &json, err) : ckpt_fail_memory(err);
    if (rc != CKPT_OK)
        return rc;
    out->value = v;
    if (ckpt_value_get(v, "messages")) {
        out->kind = ZT_RECORD_MESSAGES;
        return rec_messages(v, err);
    }
    if (rec_text(v, "instruction") && rec_text(v, "output")) {
        out->kind = ZT_RECORD_INSTRUCTION;
        rc = rec_input(v, err);
        return rc == CKPT_OK ? rec_changing(v, err) : rc;
    }
    if (rec_text(v, "text")) {
        out->kind = ZT_RECORD_TEXT;
        out->text = *rec_text(v, "text");
        return CKPT_OK;
    }
    return ckpt_fail(err, CKPT_EFORMAT,
                     "expected an object with \"text\", with \"messages\", or with "
                     "\"instruction\" and \"output\"");
}

/* ---- encoding ---- */

static bool rec_put(zt_records *r, const ckpt_text *text)
{
    return ckpt_bytes_add(&r->text, text->at, text->n);
}

/* Write Alpaca's prompt. */
static bool rec_request(zt_records *r, const ckpt_value *v)
{
    const ckpt_text *input = rec_text(v, "input");
    bool ok;

    if (input && input->n == 0)
        input = NULL;
    ok =
        ckpt_bytes_printf(&r->text, "%s" REC_APPROPRIATE "### Instruction:\n",
                          input ? REC_TASK(", paired with an input that provides further context. ")
                                : REC_TASK(". "));
    ok = ok && rec_put(r, rec_text(v, "instruction"));
    if (ok && input)
        ok = ckpt_bytes_printf(&r->text, "\n\n### Input:\n") && rec_put(r, input);
    return ok && ckpt_bytes_printf(&r->text, "\n\n### Response:");
}

/* Write the prompt and the answer, which is the only span. */
static bool rec_instruction(zt_records *r, const ckpt_value *v)
{
    zt_span *span = ckpt_vec_push(&r->answers);
    bool ok = span && rec_request(r, v);

    if (!ok)
        return false;
    span->from = r->text.n;
    ok = rec_put(r, rec_text(v, "output"));
    span->to = r->text.n;
    return ok;
}

static int rec_talk(zt_records *r, const ckpt_value *v, bool prompt, ckpt_err *err)
{
    const zt_talk talk = {ckpt_value_get(v, "messages"), r->bos, r->eos, prompt};

    if (r->template.n == 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "\"messages\" need a chat template, but the tokenizer's folder has none: "
                         "expected chat_template in tokenizer_config.json");
    int rc = r->chat ? CKPT_OK : zt_chat_find(&r->chat, r->template, err);
    return rc == CKPT_OK ? zt_chat_write(r->chat, &talk, &r->text, &r->answers, err) : rc;
}

/* Count the first tokens that are the same when the text ends at `to`. */
static int rec_common(zt_records *r, const zt_ids *all, size_t to, bool special, size_t *n,
                      ckpt_err *err)
{
    int rc;

    *n = all->n;
    if (to == r->text.n)
        return CKPT_OK;
    r->part.n = *n = 0;
    rc = zt_tokenizer_encode(r->tokenizer, (ckpt_text){(const char *)r->text.at, to}, special,
                             &r->part, err);
    while (rc == CKPT_OK && *n < r->part.n && *n < all->n && r->part.at[*n] == all->at[*n])
        ++*n;
    return rc;
}

/* Encode the text, and mark the tokens of its answers. */
static int rec_mark(zt_records *r, bool special, zt_answer *out, ckpt_err *err)
{
    const ckpt_text text = {(const char *)r->text.at, r->text.n};
    int rc = zt_tokenizer_encode(r->tokenizer, text, special, &out->ids, err);

    if (rc == CKPT_OK && !ckpt_bytes_add(&out->trained, NULL, out->ids.n))
        rc = ckpt_fail_memory(err);
    for (size_t i = 0; rc == CKPT_OK && i < r->answers.n; i++) {
        size_t from = 0, to = 0;

        rc = rec_common(r, &out->ids, r->answers.at[i].from, special, &from, err);
        if (rc == CKPT_OK)
            rc = rec_common(r, &out->ids, r->answers.at[i].to, special, &to, err);
        if (rc == CKPT_OK && to > from)
            memset(out->trained.at + from, 1, to - from);
    }
    return rc;
}

int zt_records_encode(zt_records *r, const zt_record *record, zt_answer *out, ckpt_err *err)
{
    assert(r && record && out);
    const bool talk = record->kind == ZT_RECORD_MESSAGES;
    const uint8_t one = 1;
    int32_t *end;
    int rc;

    r->text.n = r->answers.n = out->ids.n = out->trained.n = 0;
    if (talk)
        rc = rec_talk(r, record->value, false, err);
    else
        rc = rec_instruction(r, record->value) ? CKPT_OK : ckpt_fail_memory(err);
    // a template writes the begin token itself
    if (rc == CKPT_OK)
        rc = rec_mark(r, !talk, out, err);
    if (rc != CKPT_OK || talk || (out->ids.n && out->ids.at[out->ids.n - 1] == r->end))
        return rc;
    end = ckpt_vec_push(&out->ids);
    if (!end || !ckpt_bytes_add(&out->trained, &one, 1))
        return ckpt_fail_memory(err);
    *end = r->end;
    return CKPT_OK;
}

/* ---- prompts ---- */

/* Check that a record's "attention_mask" hides none of its n tokens. */
static int rec_mask(const ckpt_value *v, uint64_t n, ckpt_err *err)
{
    const ckpt_seq list = ckpt_value_seq(v);
    int64_t one = 1;

    if (!v || v->kind == CKPT_V_NONE)
        return CKPT_OK;
    if (v->kind != CKPT_V_LIST || list.n != n)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "\"attention_mask\" is not a list of %" PRIu64
                         " values, one for each token of \"input_ids\"",
                         n);
    for (uint64_t i = 0; i < n; i++) {
        if (!ckpt_value_as_int(list.at[i], &one) || one != 1)
            return ckpt_fail(err, CKPT_EUNSUPPORTED,
                             "\"attention_mask\" has a value other than 1 for token %" PRIu64
                             ": a prompt cannot have padding; leave such tokens out",
                             i);
    }
    return CKPT_OK;
}

static int rec_ids(const ckpt_value *record, zt_ids *out, ckpt_err *err)
{
    const ckpt_value *v = ckpt_value_get(record, "input_ids");
    const ckpt_seq list = ckpt_value_seq(v);

    if (v->kind != CKPT_V_LIST)
        return ckpt_fail(err, CKPT_EFORMAT, "\"input_ids\" is not a list of tokens");
    for (uint64_t i = 0; i < list.n; i++) {
        int64_t id = -1;
        int32_t *to = ckpt_vec_push(out);

        if (!to)
            return ckpt_fail_memory(err);
        if (!ckpt_value_as_int(list.at[i], &id) || id < 0 || id > INT32_MAX)
            return ckpt_fail(err, CKPT_EFORMAT, "\"input_ids\" has a value other than a token");
        *to = (int32_t)id;
    }
    return rec_mask(ckpt_value_get(record, "attention_mask"), list.n, err);
}

int zt_records_prompt(zt_records *r, const ckpt_value *v, zt_ids *out, ckpt_err *err)
{
    const bool talk = ckpt_value_get(v, "messages") != NULL;
    const bool asked = rec_text(v, "instruction") != NULL;
    const ckpt_text *text = rec_text(v, "prompt");
    int rc = CKPT_OK;

    // the "text" of Alpaca's records has the answer too
    if (!text && !asked)
        text = rec_text(v, "text");
    if (ckpt_value_get(v, "input_ids"))
        return rec_ids(v, out, err);
    if (!talk && !text && !asked)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "expected an object with \"prompt\", \"text\", \"messages\", "
                         "\"instruction\" or \"input_ids\"");
    if (!r)
        return ckpt_fail(err, CKPT_EMISSING,
                         "text needs a tokenizer: the model's folder has no tokenizer.json and no "
                         "tokenizer.model; give one with --vocab, or tokens as \"input_ids\"");
    r->text.n = r->answers.n = 0;
    if (talk)
        rc = rec_messages(v, err);
    else if (!text)
        rc = rec_changing(v, err);
    if (rc != CKPT_OK)
        return rc;
    if (talk)
        rc = rec_talk(r, v, true, err);
    else if (text)
        rc = rec_put(r, text) ? CKPT_OK : ckpt_fail_memory(err);
    else
        rc = rec_input(v, err);
    if (rc == CKPT_OK && !talk && !text && !rec_request(r, v))
        rc = ckpt_fail_memory(err);
    // a template writes the begin token itself
    return rc == CKPT_OK
               ? zt_tokenizer_encode(r->tokenizer, (ckpt_text){(const char *)r->text.at, r->text.n},
                                     !talk, out, err)
               : rc;
}
