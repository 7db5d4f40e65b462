/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.c: reads rows of a label and a text: .tsv (no quoting), .csv (RFC 4180), .jsonl (an object
 * per line).
 *
 * The first line names the columns if it contains a name for the text ("text", "sentence",
 * "review", "content") or the label ("label", "labels", "class"); the keys of .jsonl have the same
 * names.  Without names, two columns are label and text, three are an identifier, text and label.
 * Classes are whole numbers, used unchanged, or names: numbered by label2id of the model's
 * config.json, else in the order of their bytes.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "engine/config/config.h"
#include "engine/data/source.h"
#include "libckpt/base/digest.h"
#include "libckpt/base/number.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/map/map.h"

typedef struct tx_row {
    const char *text, *label; /* label NULL: the row has none */
    size_t n_text;
    int32_t class;
} tx_row;
CKPT_VEC(tx_rows, tx_row);
CKPT_VEC(tx_names, const char *);

typedef struct tx_source {
    zt_source base;
    ckpt_arena *arena;
    const char *path;
    zt_wordpiece *pieces;
    tx_rows rows;
    tx_names names; /* names of classes */
} tx_source;

enum { TX_TSV, TX_CSV, TX_JSONL };
#define TX_COLUMNS 64
enum { TX_LOOK = 50000 /* texts that are tokenized before training, in less than a second */ };

/* ---- reading ---- */

/*
 * Read one field of a CSV line at *p, unquoted in place; *p moves past its separator.  False after
 * the line's last field.
 *
 * open   becomes true if the file ends within quotes
 */
static bool tx_csv_field(char **p, char **field, bool *open)
{
    char *to = *p, *s = *p;
    bool quoted = *s == '"', more;

    *field = to;
    s += quoted;
    while (*s && (quoted || (*s != ',' && *s != '\n'))) {
        if (quoted && *s == '"') {
            quoted = s[1] == '"';
            s++;
            if (!quoted)
                continue;
        }
        *to++ = *s++;
    }
    more = *s == ',';
    *open = quoted;
    if (*s)
        s++;
    if (to > *field && to[-1] == '\r' && !more)
        to--;
    *to = 0;
    *p = s;
    return more;
}

static bool tx_tsv_field(char **p, char **field)
{
    char *s = *p, end;

    *field = s;
    s += strcspn(s, "\t\n");
    end = *s;
    if (end != '\t' && s > *field && s[-1] == '\r')
        s[-1] = 0;
    *s = 0;
    *p = s + (end != 0);
    return end == '\t';
}

/* Split one line into fields; returns their number, or 0: the file ends within quotes. */
static unsigned tx_line(int kind, char **p, char **field)
{
    unsigned n = 0;
    bool more = true, open = false;
    char *spare;

    while (more) {
        char **to = n < TX_COLUMNS ? &field[n] : &spare;
        more = kind == TX_CSV ? tx_csv_field(p, to, &open) : tx_tsv_field(p, to);
        n += n < TX_COLUMNS;
    }
    return open ? 0 : n;
}

static bool tx_named(const char *name, bool text)
{
    static const char *const texts[] = {"text", "sentence", "review", "content", NULL};
    static const char *const labels[] = {"label", "labels", "class", NULL};

    for (const char *const *k = text ? texts : labels; *k; k++) {
        if (strcasecmp(*k, name) == 0)
            return true;
    }
    return false;
}

/*
 * Find the columns of text and label, from the first line's names or the number of columns; true:
 * the line holds names. *text is n if the names do not tell which of several columns it is.
 */
static bool tx_columns(char **field, unsigned n, unsigned *text, unsigned *label)
{
    *text = *label = n;
    for (unsigned i = 0; i < n; i++) {
        if (tx_named(field[i], true))
            *text = i;
        else if (tx_named(field[i], false))
            *label = i;
    }
    if (*text < n || *label < n) {
        // beside a label, one other column can only be the text
        *text = *text == n && n == 2 ? 1 - *label : *text;
        return true;
    }
    *text = n == 1 ? 0 : 1;
    *label = n == 1 ? n : n == 2 ? 0 : 2;
    return false;
}

static int tx_add(tx_source *s, const char *text, const char *label, uint64_t line, ckpt_err *err)
{
    // an empty field is a label that is missing, not a class without a name
    tx_row row = {.text = text, .label = label && *label ? label : NULL, .n_text = strlen(text)};

    if (!ckpt_utf8_ok(text, row.n_text))
        return ckpt_fail(err, CKPT_EFORMAT, "%s: line %" PRIu64 " is not UTF-8", s->path, line);
    tx_row *at = ckpt_vec_push(&s->rows);
    if (!at)
        return ckpt_fail_memory(err);
    *at = row;
    return CKPT_OK;
}

/* Refuse names of columns, two of which could be the text, or the label. */
static int tx_twice(const tx_source *s, char **field, unsigned n, ckpt_err *err)
{
    for (unsigned i = 0; i < n; i++) {
        for (unsigned k = 0; k < i; k++) {
            const bool text = tx_named(field[i], true) && tx_named(field[k], true);
            if (text || (tx_named(field[i], false) && tx_named(field[k], false)))
                return ckpt_fail(err, CKPT_EFORMAT,
                                 "%s: the columns '%s' and '%s' could both be the %s; rename one",
                                 s->path, field[k], field[i], text ? "text" : "label");
        }
    }
    return CKPT_OK;
}

static int tx_table(tx_source *s, int kind, char *text, ckpt_err *err)
{
    char *field[TX_COLUMNS], *p = text;
    unsigned at_text = 0, at_label = 0, first = 0;
    bool named = false;
    int rc = CKPT_OK;

    for (uint64_t line = 1; rc == CKPT_OK && *p; line++) {
        unsigned n = tx_line(kind, &p, field);
        if (n == 0)
            return ckpt_fail(err, CKPT_EFORMAT,
                             "%s: record %" PRIu64 " begins a quoted field that has no end",
                             s->path, line);
        first = first ? first : n;
        if (line == 1) {
            rc = tx_twice(s, field, n, err);
            named = tx_columns(field, n, &at_text, &at_label);
            if (rc == CKPT_OK && named && at_text == n)
                rc = ckpt_fail(err, CKPT_EFORMAT,
                               "%s: the first line names a label, but no text; rename its column "
                               "to text",
                               s->path);
            for (unsigned i = 0; named && i < n; i++) {
                if (i != at_text && i != at_label)
                    zt_unused_add(&s->base, "columns", field[i]);
            }
            if (!named && n > 3)
                rc = ckpt_fail(err, CKPT_EFORMAT,
                               "%s: has %u columns; name them in the first line: text, label",
                               s->path, n);
            if (named)
                continue;
        }
        if (n == 1 && !*field[0])
            continue;
        if (n <= at_text)
            return ckpt_fail(err, CKPT_EFORMAT,
                             "%s: record %" PRIu64 " has %u columns, but the text is in column %u",
                             s->path, line, n, at_text + 1);
        if (n > first)
            return ckpt_fail(err, CKPT_EFORMAT,
                             "%s: record %" PRIu64 " has %u columns, but the first has %u%s",
                             s->path, line, n, first,
                             kind == TX_TSV ? "; a text cannot contain tabs"
                                            : "; put texts with commas into quotes");
        rc = tx_add(s, field[at_text], at_label < n ? field[at_label] : NULL, line, err);
    }
    return rc;
}

/*
 * Get the member of an object that is the text or the label, as text; NULL: there is none.
 *
 * Errors   CKPT_EFORMAT: two members could be it; it is no string (a label: no string and no
 *          number)
 */
static int tx_member(tx_source *s, const ckpt_value *object, bool text, uint64_t line,
                     const char **out, ckpt_err *err)
{
    const char *what = text ? "text" : "label";
    const ckpt_value *v = NULL;
    unsigned n = 0;

    for (uint64_t i = 0; object->kind == CKPT_V_DICT && i < object->as.map.n; i++) {
        if (!tx_named(object->as.map.at[i].key->as.text.at, text) ||
            object->as.map.at[i].value->kind == CKPT_V_NONE)
            continue;
        v = object->as.map.at[i].value;
        n++;
    }
    *out = NULL;
    if (n > 1)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: line %" PRIu64 " has %u members that could be the %s; rename one",
                         s->path, line, n, what);
    if (n == 0)
        return CKPT_OK;
    if (v->kind == CKPT_V_STR && strlen(v->as.text.at) == v->as.text.n)
        *out = v->as.text.at;
    else if (!text && v->kind == CKPT_V_INT)
        *out = ckpt_arena_printf(s->arena, "%" PRId64, v->as.i);
    else if (!text && v->kind == CKPT_V_FLOAT)
        *out = ckpt_arena_printf(s->arena, "%.17g", v->as.f);
    else
        return ckpt_fail(err, CKPT_EFORMAT, "%s: line %" PRIu64 ": the %s is not a string%s",
                         s->path, line, what, text ? "" : " or number");
    return *out ? CKPT_OK : ckpt_fail_memory(err);
}

/* Parse one line of JSON; the error names the line of the file. */
static int tx_object(tx_source *s, ckpt_value **out, const char *text, size_t n, uint64_t line,
                     ckpt_err *err)
{
    const ckpt_json_text json = {.name = "in it", .at = text, .n = n, .max = n};
    ckpt_err why = {0};
    int rc = ckpt_json_parse(out, s->arena, &json, &why);

    return rc == CKPT_OK ? rc
                         : ckpt_fail(err, rc, "%s: line %" PRIu64 " is not an object (%s)", s->path,
                                     line, why.text);
}

/* Report an object without a text, such as a conversation. */
static int tx_no_text(const tx_source *s, const ckpt_value *v, uint64_t line, ckpt_err *err)
{
    static const char *const talk[] = {
        "messages", "conversations", "conversation", "instruction", "prompt", "chosen", NULL};

    for (size_t i = 0; v->kind == CKPT_V_DICT && talk[i]; i++) {
        if (ckpt_value_get(v, talk[i]))
            return ckpt_fail(err, CKPT_EUNSUPPORTED,
                             "%s: line %" PRIu64
                             " has \"%s\", but a classifier cannot train on conversations: only a "
                             "language model can",
                             s->path, line, talk[i]);
    }
    return ckpt_fail(err, CKPT_EFORMAT, "%s: line %" PRIu64 " is not an object with a \"text\"",
                     s->path, line);
}

static int tx_objects(tx_source *s, char *text, ckpt_err *err)
{
    int rc = CKPT_OK;

    for (uint64_t line = 1; rc == CKPT_OK && *text; line++) {
        size_t n = strcspn(text, "\n");
        const char *body = NULL, *label = NULL;
        ckpt_value *v = NULL;
        if (strspn(text, " \t\r") < n) {
            rc = tx_object(s, &v, text, n, line, err);
            if (rc == CKPT_OK)
                rc = tx_member(s, v, true, line, &body, err);
            if (rc == CKPT_OK && !body)
                rc = tx_no_text(s, v, line, err);
            if (rc == CKPT_OK)
                rc = tx_member(s, v, false, line, &label, err);
            if (rc == CKPT_OK)
                rc = tx_add(s, body, label, line, err);
            for (uint64_t i = 0; rc == CKPT_OK && i < v->as.map.n; i++) {
                const char *name = v->as.map.at[i].key->as.text.at;
                if (!tx_named(name, true) && !tx_named(name, false))
                    zt_unused_add(&s->base, "members", name);
            }
        }
        text += n + (text[n] == '\n');
    }
    return rc;
}

/* ---- classes ---- */

static int tx_compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Collect all different labels, in order. */
static int tx_distinct(tx_source *s, ckpt_err *err)
{
    size_t n = 0;

    for (size_t i = 0; i < s->rows.n; i++) {
        const char **at = s->rows.at[i].label ? ckpt_vec_push(&s->names) : NULL;
        if (s->rows.at[i].label && !at)
            return ckpt_fail_memory(err);
        if (at)
            *at = s->rows.at[i].label;
    }
    if (s->names.n)
        qsort(s->names.at, s->names.n, sizeof *s->names.at, tx_compare);
    for (size_t i = 0; i < s->names.n; i++) {
        if (i == 0 || strcmp(s->names.at[i], s->names.at[n - 1]) != 0)
            s->names.at[n++] = s->names.at[i];
    }
    s->names.n = n;
    return CKPT_OK;
}

/* Find the number of a label: by label2id, as a number, or its index among the names. */
static bool tx_class(const tx_source *s, const ckpt_value *ids, bool numbers, const char *label,
                     int64_t *out)
{
    const char *const *at;

    if (ids && ckpt_value_as_int(ckpt_value_get(ids, label), out))
        return true;
    if (ckpt_parse_i64(label, out))
        return true;
    if (ids || numbers)
        return false;
    at = bsearch(&label, s->names.at, s->names.n, sizeof *s->names.at, tx_compare);
    *out = at ? at - s->names.at : -1;
    return at != NULL;
}

/*
 * Get label2id if it has real names of classes, not the LABEL_0 ... that transformers writes by
 * default.
 */
static const ckpt_value *tx_ids(const tx_source *s, const zt_model_config *m)
{
    const ckpt_value *ids = ckpt_value_get(m->json, "label2id");

    for (size_t i = 0; ids && i < s->names.n; i++) {
        if (ckpt_value_get(ids, s->names.at[i]))
            return ids;
    }
    return NULL;
}

static int tx_classes(tx_source *s, const zt_model_config *m, ckpt_err *err)
{
    const ckpt_value *ids;
    bool numbers = true;
    int64_t v;
    int rc = tx_distinct(s, err);

    ids = tx_ids(s, m);
    for (size_t i = 0; i < s->names.n; i++)
        numbers = numbers && ckpt_parse_i64(s->names.at[i], &v);
    // numbering by order is unsafe here: a file with fewer classes would give other numbers
    if (rc == CKPT_OK && !ids && !numbers && s->names.n != m->labels)
        return ckpt_fail(err, CKPT_EMISMATCH,
                         "%s: has %zu classes, but the model has %" PRIu64
                         "; list them as label2id in its config.json",
                         s->path, (size_t)s->names.n, m->labels);
    for (size_t i = 0; rc == CKPT_OK && i < s->rows.n; i++) {
        tx_row *row = &s->rows.at[i];
        if (!row->label && s->names.n)
            return ckpt_fail(err, CKPT_EFORMAT, "%s: record %zu has no label", s->path, i + 1);
        if (!row->label)
            continue;
        if (!tx_class(s, ids, numbers, row->label, &v) || v < 0 || (uint64_t)v >= m->labels)
            return ckpt_fail(
                err, CKPT_EMISMATCH,
                "%s: record %zu has label '%.40s': the model has %" PRIu64 " classes%s", s->path,
                i + 1, row->label, m->labels, ids ? " (label2id of its config.json)" : "");
        row->class = (int32_t)v;
    }
    s->base.has.labels = s->names.n > 0;
    if (numbers || ids)
        s->names.n = 0; // their indices are not their numbers
    return rc;
}

/* ---- samples ---- */

static int tx_get(zt_source *base, uint64_t sample, uint64_t row, const zt_inputs *in,
                  uint64_t *length, ckpt_err *err)
{
    tx_source *s = (tx_source *)base;
    const tx_row *r = &s->rows.at[sample];
    uint64_t seq = s->base.seq, at = row * seq;
    int64_t n = zt_wordpiece_encode(s->pieces, r->text, r->n_text, seq, in->input_ids + at);

    if (n < 0)
        return ckpt_fail_memory(err);
    for (uint64_t i = 0; i < seq; i++) {
        in->attention_mask[at + i] = i < (uint64_t)n;
        in->token_type_ids[at + i] = 0;
        if (i >= (uint64_t)n)
            in->input_ids[at + i] = 0;
    }
    in->labels[row] = r->class;
    *length = (uint64_t)n;
    return CKPT_OK;
}

static const char *tx_name(const zt_source *base, size_t i)
{
    const tx_source *s = (const tx_source *)base;

    return i < s->names.n ? s->names.at[i] : NULL;
}

static uint32_t tx_sum(const zt_source *base, uint64_t sample)
{
    const tx_source *s = (const tx_source *)base;
    const tx_row *r = &s->rows.at[sample];
    const uint32_t crc = ckpt_crc32(zt_wordpiece_sum(s->pieces), &r->class, sizeof r->class);

    return ckpt_crc32(crc, r->text, r->n_text);
}

static void tx_free(zt_source *base)
{
    tx_source *s = (tx_source *)base;

    zt_wordpiece_free(s->pieces);
    ckpt_free(s->rows.at);
    ckpt_free(s->names.at);
    ckpt_arena_free(s->arena);
    ckpt_free(s);
}

static const zt_source_ops tx_ops = {tx_get, tx_name, tx_free, tx_sum};

static int tx_read(tx_source *s, const zt_data_opts *o, ckpt_err *err)
{
    size_t n = 0, m = strlen(o->path);
    char *text = NULL, *kept;
    int kind = o->path[m - 1] == 'l' ? TX_JSONL : o->path[m - 3] == 'c' ? TX_CSV : TX_TSV;
    int rc = zt_data_slurp(&text, &n, o->path, UINT64_C(1) << 30, err);

    if (rc != CKPT_OK)
        return rc;
    if (strlen(text) != n)
        rc = ckpt_fail(err, CKPT_EFORMAT, "%s: holds a NUL, so it is not text", o->path);
    kept = rc == CKPT_OK ? ckpt_arena_copy(s->arena, text, n + 1) : NULL;
    ckpt_free(text);
    if (rc != CKPT_OK)
        return rc;
    if (!kept)
        return ckpt_fail_memory(err);
    kept += zt_data_mark(kept, n);
    rc = kind == TX_JSONL ? tx_objects(s, kept, err) : tx_table(s, kind, kept, err);
    s->base.count = s->rows.n;
    return rc == CKPT_OK ? tx_classes(s, o->model, err) : rc;
}

/* Read the vocabulary, and find the longest sample. */
static int tx_pieces(tx_source *s, const zt_data_opts *o, ckpt_err *err)
{
    uint64_t longest = o->model->positions && o->model->positions < 128 ? o->model->positions : 128;
    int rc;

    if (o->model->arch != ZT_BERT_CLASSIFIER)
        return ckpt_fail(
            err, CKPT_EUNSUPPORTED,
            "%s: rows of a label and a text are for classifiers; %s trains on text without labels "
            "(.txt, .jsonl) or on tokens (.bin, .npy, .safetensors)",
            o->path, o->model->class_name);
    if (!o->vocab)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s: text needs a vocabulary, but the model's folder has no vocab.txt; "
                         "name it with --vocab",
                         o->path);
    rc = zt_wordpiece_read(&s->pieces, o->vocab, o->lower_case, err);
    if (rc == CKPT_OK && zt_wordpiece_size(s->pieces) > o->model->vocab)
        rc = ckpt_fail(err, CKPT_EMISMATCH,
                       "%s: has %" PRIu32 " tokens, but the model's vocabulary has %" PRIu64,
                       o->vocab, zt_wordpiece_size(s->pieces), o->model->vocab);
    s->base.seq = o->seq ? o->seq : longest;
    if (rc == CKPT_OK && (s->base.seq < 2 || s->base.seq > 1 << 20))
        rc = ckpt_fail(err, CKPT_EUSAGE, "--seq %" PRIu64 ": expected 2 to 1048576 tokens for text",
                       s->base.seq);
    return rc;
}

/* Count the texts that tx_get cuts, on rank 0; of a long file, among the first ones. */
static int tx_count_cut(tx_source *s, const zt_data_opts *o, ckpt_err *err)
{
    const uint64_t most = s->base.seq;
    const size_t all = o->limit > 0 && o->limit < s->rows.n ? (size_t)o->limit : s->rows.n;
    const size_t rows = all < TX_LOOK ? all : TX_LOOK;
    int32_t *id = ckpt_alloc((size_t)(most + 1) * sizeof *id);
    int64_t n = 0;

    for (size_t i = 0; id && n >= 0 && o->rank == 0 && i < rows; i++) {
        const tx_row *r = &s->rows.at[i];

        // a text has no more tokens than bytes, and [CLS] and [SEP]
        n = r->n_text + 2 > most ? zt_wordpiece_encode(s->pieces, r->text, r->n_text, most + 1, id)
                                 : 0;
        s->base.unused.cut += n > (int64_t)most;
    }
    s->base.unused.of = rows < all ? rows : 0;
    const bool ok = id && n >= 0;
    ckpt_free(id);
    return ok ? CKPT_OK : ckpt_fail_memory(err);
}

int zt_text_open(zt_source **out, const zt_data_opts *o, ckpt_err *err)
{
    tx_source *s = ckpt_alloc(sizeof *s);
    int rc;

    if (!s)
        return ckpt_fail_memory(err);
    *s = (tx_source){.path = o->path, .arena = ckpt_arena_new(UINT64_C(8) << 30)};
    s->base = (zt_source){
        .ops = &tx_ops, .ragged = true, .has = {.attention_mask = true, .token_type_ids = true}};
    rc = s->arena ? tx_pieces(s, o, err) : ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = tx_read(s, o, err);
    if (rc == CKPT_OK)
        rc = tx_count_cut(s, o, err);
    if (rc == CKPT_OK)
        *out = &s->base;
    else
        tx_free(&s->base);
    return rc;
}
