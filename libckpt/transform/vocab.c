/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vocab.c: changes the number of rows of a vocabulary: finds the tensors with these rows, and cuts
 * or adds rows.
 *
 * A model has one embedding and usually one head, with one row per token; neither is in a numbered
 * layer. Rows are cut or added by extents over the old tensor, so vocab.c reads only those cut rows
 * that may matter.
 */
#include <fnmatch.h>
#include <inttypes.h>
#include <string.h>

#include "ckpt_extra.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/opts.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/nest.h"
#include "libckpt/map/savepoint.h"
#include "libckpt/transform/keymap/expr.h"

enum { VC_CHUNK = 1 << 16 /* bytes per read */ };

typedef struct vcb_work {
    ckpt_map *map;
    ckpt_vocab_opts opts;
    ckpt_remap none; /* an empty layout map, because ckpt_rm_facts needs one */
    ckpt_remap_how how;
    ckpt_rm_facts facts;
    uint64_t stated;      /* rows in the configuration; 0: none */
    uint64_t was;         /* rows of the tensors */
    ckpt_tensors tensors; /* tensors with these rows, tied names too */
    uint32_t zeros;       /* a source of zeros; UINT32_MAX: none yet */
    ckpt_err *err;
} vcb_work;

/* ---- finding the tensors ---- */

/* True if a part of the name is a number: the tensor then belongs to one of many layers. */
static bool vcb_numbered(const char *name)
{
    while (*name) {
        size_t n = strcspn(name, "."), digits = strspn(name, "0123456789");
        if (n > 0 && digits == n)
            return true;
        name += n + (name[n] == '.');
    }
    return false;
}

static bool vcb_any(const char *const *globs, const char *name)
{
    for (; globs && *globs; globs++) {
        if (fnmatch(*globs, name, 0) == 0)
            return true;
    }
    return false;
}

/* True if the tensor may have a row per token: a table, or the bias of a head. */
static bool vcb_may(const vcb_work *w, const ckpt_tensor *t)
{
    if (t->role == CKPT_ROLE_STATE || t->ndim == 0)
        return false;
    if (w->opts.tensors)
        return vcb_any(w->opts.tensors, t->name);
    return t->ndim <= 2 && !vcb_numbered(t->name) &&
           ckpt_dtype_get(t->dtype)->kind == CKPT_IS_FLOAT;
}

/* Find a table with at least `at_least` rows, and return its rows; *mixed: tables differ. */
static uint64_t vcb_rows(const vcb_work *w, uint64_t at_least, bool *mixed)
{
    uint64_t rows = 0;

    *mixed = false;
    for (size_t i = 0; i < w->map->tensors.n; i++) {
        const ckpt_tensor *t = w->map->tensors.at[i];
        if (!vcb_may(w, t) || (!w->opts.tensors && t->ndim != 2) || t->shape[0] < at_least)
            continue;
        *mixed = *mixed || (rows > 0 && rows != t->shape[0]);
        rows = t->shape[0];
        // the size in the configuration wins
        if (!w->opts.tensors && rows == at_least) {
            *mixed = false;
            return rows;
        }
    }
    return rows;
}

/* Find another integer in config.json that equals the number of rows; NULL if there is none. */
static const char *vcb_other_size(const vcb_work *w, const ckpt_value *config, unsigned depth)
{
    const ckpt_dict map = ckpt_value_map(config);
    const char *found = NULL;

    for (uint64_t i = 0; !found && i < map.n; i++) {
        const char *key = map.at[i].key->kind == CKPT_V_STR ? map.at[i].key->as.text.at : "";
        size_t n = strlen(key);
        bool is_id = n > 3 && strcmp(key + n - 3, "_id") == 0;
        if (map.at[i].value->kind == CKPT_V_INT && map.at[i].value->as.i == (int64_t)w->was &&
            strcmp(key, "vocab_size") != 0 && !is_id)
            found = key;
        else if (depth == 0 && strcmp(key, "text_config") == 0)
            found = vcb_other_size(w, map.at[i].value, 1);
    }
    return found;
}

/* Check that the caller's globs match tensors of one size. */
static int vcb_given(vcb_work *w)
{
    bool mixed;

    for (const char *const *g = w->opts.tensors; *g; g++) {
        const char *const one[] = {*g, NULL};
        bool met = false;
        for (size_t i = 0; !met && i < w->map->tensors.n; i++)
            met = w->map->tensors.at[i]->role != CKPT_ROLE_STATE &&
                  vcb_any(one, w->map->tensors.at[i]->name);
        if (!met)
            return ckpt_fail(w->err, CKPT_EUSAGE, "vocabulary: '%.200s' matches no tensor", *g);
    }
    w->was = vcb_rows(w, 0, &mixed);
    if (w->was == 0 || mixed)
        return ckpt_fail(
            w->err, CKPT_EUSAGE,
            "vocabulary: the named tensors have %s; tensors of one vocabulary have one "
            "row for each token",
            mixed ? "different numbers of rows" : "no rows");
    return CKPT_OK;
}

/* Find the number of rows from the configuration: the same, or more if tables are padded. */
static int vcb_find_rows(vcb_work *w)
{
    const char *other;
    bool mixed;

    if (w->opts.tensors)
        return vcb_given(w);
    if (w->stated == 0)
        return ckpt_fail(w->err, CKPT_EMISSING,
                         "%s: the size of the vocabulary is unknown without config.json: name its "
                         "tensors (ckpt convert --vocab-tensor GLOB), or a config.json (--config)",
                         w->map->path);
    w->was = vcb_rows(w, w->stated, &mixed);
    if (w->was == 0 || mixed)
        return ckpt_fail(w->err, CKPT_EMISMATCH,
                         "%s: config.json says a vocabulary of %" PRIu64
                         ", and %s: name its tensors (ckpt convert --vocab-tensor GLOB)",
                         w->map->path, w->stated,
                         mixed ? "embeddings of different sizes have more rows"
                               : "no embedding has as many rows");
    other = vcb_other_size(w, w->facts.how->model ? w->facts.how->model : w->facts.beside[0], 0);
    if (other)
        return ckpt_fail(w->err, CKPT_EMISMATCH,
                         "%s: the vocabulary has %" PRIu64
                         " rows, and %.80s is as large: name the vocabulary's tensors (ckpt "
                         "convert --vocab-tensor GLOB)",
                         w->map->path, w->was, other);
    return CKPT_OK;
}

static bool vcb_has(const vcb_work *w, const ckpt_tensor *t)
{
    for (size_t i = 0; i < w->tensors.n; i++) {
        if (w->tensors.at[i] == t)
            return true;
    }
    return false;
}

static int vcb_add(vcb_work *w, ckpt_tensor *t)
{
    ckpt_tensor **at = vcb_has(w, t) ? NULL : ckpt_vec_push(&w->tensors);

    if (at)
        *at = t;
    return at || vcb_has(w, t) ? CKPT_OK : ckpt_fail_memory(w->err);
}

/* Find the tensors with these rows, and all names tied to them. */
static int vcb_find(vcb_work *w)
{
    int rc = vcb_find_rows(w);

    for (size_t i = 0; rc == CKPT_OK && i < w->map->tensors.n; i++) {
        ckpt_tensor *t = w->map->tensors.at[i];
        if (vcb_may(w, t) && t->shape[0] == w->was)
            rc = vcb_add(w, t);
        if (rc == CKPT_OK && vcb_has(w, t) && t->owner) {
            size_t at = ckpt_map_index(w->map, t->owner->name, strlen(t->owner->name));
            rc = at == SIZE_MAX ? ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                                            "%.200s is tied to %.200s, which is left out", t->name,
                                            t->owner->name)
                                : vcb_add(w, w->map->tensors.at[at]);
        }
    }
    for (size_t i = 0; rc == CKPT_OK && i < w->map->tensors.n; i++) {
        ckpt_tensor *t = w->map->tensors.at[i];
        if (t->owner && vcb_has(w, t->owner))
            rc = vcb_add(w, t);
    }
    return rc;
}

/* Find the moments of these tensors, which have the same rows. */
static int vcb_find_state(vcb_work *w)
{
    size_t n = w->tensors.n;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < w->map->tensors.n; i++) {
        ckpt_tensor *t = w->map->tensors.at[i];
        const char *slash = t->role == CKPT_ROLE_STATE ? strchr(t->name, '/') : NULL;
        const ckpt_tensor *of = NULL;

        for (size_t k = 0; slash && !of && k < n; k++)
            of = strcmp(w->tensors.at[k]->name, slash + 1) == 0 ? w->tensors.at[k] : NULL;
        // a step count has no rows
        if (!of || t->ndim == 0 || t->n_elems == 1)
            continue;
        if (t->ndim != of->ndim || memcmp(t->shape, of->shape, t->ndim * sizeof *t->shape) != 0)
            rc = ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                           "%.200s: its shape differs from its parameter's, so that its rows "
                           "cannot be resized: convert without optimizer state",
                           t->name);
        else
            rc = vcb_add(w, t);
    }
    return rc;
}

/* ---- changing the rows ---- */

/* Find a cut row that is not zero; UINT64_MAX: there is none. */
static int vcb_read_cut(const vcb_work *w, const ckpt_tensor *t, uint64_t first, uint64_t *row)
{
    uint64_t cols = t->n_elems / w->was, at = first * cols, bits = ckpt_dtype_bits(t->dtype);
    uint64_t room = VC_CHUNK * 8 / bits;
    uint8_t *buf = ckpt_alloc(VC_CHUNK);
    ckpt_reader *reader = NULL;
    int rc = buf ? ckpt_reader_new(&reader, w->map, w->err) : ckpt_fail_memory(w->err);

    *row = UINT64_MAX;
    // the run itself checks the CRCs
    if (rc == CKPT_OK)
        ckpt_reader_skip_crc(reader);
    while (rc == CKPT_OK && *row == UINT64_MAX && at < t->n_elems) {
        uint64_t n = t->n_elems - at < room ? t->n_elems - at : room;
        rc = ckpt_reader_read(reader, t, at, n, CKPT_DTYPE_NONE, buf, w->err);
        for (uint64_t i = 0; rc == CKPT_OK && *row == UINT64_MAX && i < n * bits / 8; i++) {
            if (buf[i])
                *row = (at + i * 8 / bits) / cols;
        }
        at += n;
    }
    ckpt_reader_free(reader);
    ckpt_free(buf);
    return rc;
}

/* Warn about cut rows that are in use, unless the configuration declares them as padding. */
static int vcb_check_cut(const vcb_work *w, const ckpt_tensor *t)
{
    uint64_t row = 0, rows = w->opts.rows;
    int rc;

    if (t->owner || t->role == CKPT_ROLE_STATE || (w->stated > 0 && rows >= w->stated))
        return CKPT_OK;
    rc = vcb_read_cut(w, t, rows, &row);
    if (rc != CKPT_OK || row == UINT64_MAX)
        return rc;
    return ckpt_map_note(w->map, CKPT_WARNING, w->err,
                         "%.200s: row %" PRIu64
                         " is removed and contains values other than zero: if "
                         "a token uses it, the model loses that token; check the tokenizer's size",
                         t->name, row);
}

/* Make a hidden tensor with the values of t, as a source for its new rows. */
static int vcb_hide(const vcb_work *w, const ckpt_tensor *t, uint32_t *source)
{
    const ckpt_tensor *hidden;
    int rc = ckpt_map_hide(w->map, t, &hidden, w->err);

    return rc == CKPT_OK ? ckpt_map_add_nested(w->map, hidden, source, w->err) : rc;
}

/* Set the new tensor's extents: the kept rows, then zeros. */
static int vcb_back(vcb_work *w, ckpt_tensor *t)
{
    uint64_t rows = w->opts.rows, cols = t->n_elems / w->was;
    uint64_t stay = (rows < w->was ? rows : w->was) * cols, n_elems;
    int64_t stride = ckpt_dtype_bits(t->dtype) / 8;
    const ckpt_source zero = {.kind = CKPT_SOURCE_ZERO, .name = "zeros"};
    uint32_t source = 0;
    int rc = vcb_hide(w, t, &source);

    if (rc == CKPT_OK && w->zeros == UINT32_MAX && rows > w->was)
        rc = ckpt_map_add_source(w->map, &zero, &w->zeros, w->err);
    if (rc == CKPT_OK && !ckpt_mul(rows, cols, &n_elems))
        rc = ckpt_fail(w->err, CKPT_ELIMIT, "%.200s: %" PRIu64 " rows are too many", t->name, rows);
    if (rc != CKPT_OK)
        return rc;
    const ckpt_axis axis[] = {{0, stay, stride}, {stay, n_elems - stay, stride}};
    const ckpt_extent extent[] = {{.source = source, .ndim = 1, .axis = &axis[0]},
                                  {.source = w->zeros, .ndim = 1, .axis = &axis[1]}};
    t->n_elems = n_elems;
    t->twin = t->addend = NULL;
    t->flags &= CKPT_TENSOR_GRAD | CKPT_TENSOR_PARAMETER;
    return ckpt_map_back(w->map, t, extent, rows > w->was ? 2 : 1, w->err);
}

static int vcb_resize(vcb_work *w, ckpt_tensor *t)
{
    uint64_t *shape = ckpt_arena_copy(w->map->arena, t->shape, t->ndim * sizeof *shape);
    int rc = shape ? CKPT_OK : ckpt_fail_memory(w->err);

    if (rc == CKPT_OK && (ckpt_dtype_packed(t->dtype) || ckpt_dtype_bits(t->dtype) % 8 != 0))
        rc = ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                       "%.200s is %s, whose rows are packed: convert it to floats first (--dtype)",
                       t->name, ckpt_dtype_name(t->dtype));
    if (rc == CKPT_OK && ckpt_dtype_bits(t->dtype) == 8 && ckpt_map_is_quantized(w->map))
        rc = ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                       "%.200s is %s and has its own scales, which cannot be resized with its "
                       "rows: convert it to floats, too (--dtype)",
                       t->name, ckpt_dtype_name(t->dtype));
    if (rc == CKPT_OK && w->opts.rows < w->was)
        rc = vcb_check_cut(w, t);
    if (rc != CKPT_OK)
        return rc;
    shape[0] = w->opts.rows;
    if (t->owner)
        // no overflow, because its owner's number did not
        t->n_elems = t->n_elems / w->was * w->opts.rows;
    else
        rc = vcb_back(w, t);
    t->shape = shape;
    return rc;
}

/* ---- the entry point ---- */

/* Report the change. */
static int vcb_say(const vcb_work *w)
{
    uint64_t rows = w->opts.rows, n = w->tensors.n;
    bool cut = rows < w->was, padding = cut && w->stated > 0 && rows >= w->stated;
    const char *names = "";

    for (size_t i = 0; names && i < n && i < 4; i++)
        names = ckpt_arena_printf(w->map->arena, "%s%s%.200s", names, i ? ", " : "",
                                  w->tensors.at[i]->name);
    if (!names)
        return ckpt_fail_memory(w->err);
    int rc = ckpt_map_fact(w->map, w->err, "vocabulary",
                           "%" PRIu64 " -> %" PRIu64 " rows of %" PRIu64 " tensor%s", w->was, rows,
                           n, n == 1 ? "" : "s");
    if (rc != CKPT_OK)
        return rc;
    return ckpt_map_note(
        w->map, CKPT_INFO, w->err, "%s%s: rows %" PRIu64 " to %" PRIu64 " are %s", names,
        n > 4 ? " ..." : "", cut ? rows : w->was, (cut ? w->was : rows) - 1,
        padding ? "cut: padding, beyond the vocab_size of config.json"
        : cut
            ? "cut"
            : "added, filled with zeros: the logit of such a token is 0 until the row is trained");
}

/* Report an unchanged number of rows, with the one in config.json if it differs. */
static int vcb_same(const vcb_work *w)
{
    if (w->stated > 0 && w->stated != w->was)
        return ckpt_map_note(w->map, CKPT_INFO, w->err,
                             "vocabulary: it already has %" PRIu64
                             " rows; config.json says %" PRIu64,
                             w->was, w->stated);
    return ckpt_map_note(w->map, CKPT_WARNING, w->err,
                         "vocabulary: it already has %" PRIu64 " rows: nothing to cut or to add",
                         w->was);
}

static int vcb_open(vcb_work *w)
{
    ckpt_value *model = NULL;
    int64_t stated = 0;
    int rc = CKPT_OK;

    if (w->opts.config_text) {
        ckpt_json_text text = {.name = w->opts.config_name ? w->opts.config_name : "config.json",
                               .at = w->opts.config_text,
                               .n = strlen(w->opts.config_text),
                               .max = 1 << 24};
        rc = ckpt_json_parse(&model, w->map->arena, &text, w->err);
    }
    w->how.model = model;
    if (rc == CKPT_OK)
        rc = ckpt_rm_facts_open(&w->facts, &w->none, w->map, &w->how, w->err);
    if (rc == CKPT_OK && ckpt_value_as_int(ckpt_rm_fact(&w->facts, "vocab_size"), &stated) &&
        stated > 0)
        w->stated = (uint64_t)stated;
    return rc;
}

/* Find the tensors and resize them; a failure leaves the map half changed. */
static int vcb_run(vcb_work *w)
{
    int rc = vcb_open(w);

    if (rc == CKPT_OK)
        rc = vcb_find(w);
    if (rc == CKPT_OK)
        rc = vcb_find_state(w);
    if (rc == CKPT_OK && w->was == w->opts.rows)
        rc = vcb_same(w);
    else if (rc == CKPT_OK)
        rc = vcb_say(w);
    for (size_t i = 0; rc == CKPT_OK && w->was != w->opts.rows && i < w->tensors.n; i++)
        rc = vcb_resize(w, w->tensors.at[i]);
    if (rc == CKPT_OK) {
        w->map->vocab_was = w->stated;
        w->map->vocab_size = w->opts.rows;
    }
    return rc;
}

int ckpt_map_resize_vocab(ckpt_map *map, const ckpt_vocab_opts *opts, ckpt_err *err)
{
    ckpt_err_clear(err);
    vcb_work w = {.map = map, .zeros = UINT32_MAX, .err = err};
    ckpt_savepoint *saved = NULL;
    int rc = ckpt_opts_take(&w.opts, sizeof w.opts, opts, "ckpt_vocab_opts", err);

    if (rc == CKPT_OK && (!map || w.opts.rows == 0 || w.opts.rows > INT32_MAX))
        rc = ckpt_fail(err, CKPT_EUSAGE, "no map, or no number of rows for its vocabulary");
    if (rc == CKPT_OK)
        rc = ckpt_savepoint_new(&saved, map, err);
    if (rc == CKPT_OK)
        rc = ckpt_savepoint_end(saved, vcb_run(&w));
    ckpt_vec_free(&w.tensors);
    return rc;
}
