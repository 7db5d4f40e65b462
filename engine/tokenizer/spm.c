/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spm.c: reads a SentencePiece model (tokenizer.model), for folders without tokenizer.json.
 *
 * Message fields (sentencepiece_model.proto): 1 piece {1 text, 2 score, 3 type}; 2 trainer {3 kind,
 * 35 byte fallback, 40 unknown, 41 begin, 42 end}; 3 normalizer {2 table of characters, 3 blank at
 * the beginning, 4 remove extra blanks}.
 *
 * Text becomes what transformers makes of such a model: special pieces are found in text, a blank
 * is put before each part (with "legacy": false before the first alone), blanks become U+2581.  BPE
 * merges the pair whose joined piece has the best score, the leftmost of equal ones.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tokenizer/inside.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/codec/proto/proto.h"
#include "libckpt/io/io.h"
#include "libckpt/map/map.h"

#define SPI_BYTES (UINT64_C(256) << 20)
#define SPI_SPACE "\xe2\x96\x81"

enum { SPI_LONGEST = 512 /* bytes of a piece */ };
enum { SPI_NORMAL = 1, SPI_UNKNOWN, SPI_CONTROL, SPI_USER, SPI_UNUSED, SPI_BYTE };

/* The content of the file. */
typedef struct spi_model {
    zt_tokenizer *t;
    uint64_t kind; /* 1 unigram, 2 BPE */
    int64_t unknown, begin, end;
    bool byte_fallback, prefix, trim;
    ckpt_proto charsmap;
    ckpt_bytes types; /* of the pieces */
} spi_model;

static int spi_damaged(ckpt_err *err)
{
    return ckpt_fail(err, CKPT_EFORMAT, "not a SentencePiece model, or damaged");
}

static int spi_piece(spi_model *m, ckpt_proto s, ckpt_err *err)
{
    tz_token token = {.id = (int32_t)m->types.n};
    ckpt_proto text = {NULL, NULL};
    uint8_t type = SPI_NORMAL;
    ckpt_proto_field f;
    size_t n;

    while (s.at < s.end) {
        if (!ckpt_proto_next(&s, &f))
            return spi_damaged(err);
        if (f.tag == CKPT_PROTO_TAG(1, CKPT_PROTO_BYTES))
            text = f.body;
        else if (f.tag == CKPT_PROTO_TAG(2, CKPT_PROTO_32))
            token.score = (double)ckpt_proto_float(&f);
        else if (f.tag == CKPT_PROTO_TAG(3, CKPT_PROTO_VARINT))
            type = f.value >= SPI_NORMAL && f.value <= SPI_BYTE ? (uint8_t)f.value : 0;
    }
    n = text.at ? (size_t)(text.end - text.at) : 0;
    if (n == 0 || n > SPI_LONGEST || !type || !ckpt_utf8_ok((const char *)text.at, n) ||
        memchr(text.at, 0, n) || !(token.score > -1e30 && token.score < 1e30))
        return ckpt_fail(err, CKPT_EFORMAT, "piece %zu is damaged", (size_t)m->types.n);
    token.n = (uint32_t)n;
    token.text = ckpt_arena_string(m->t->arena, (const char *)text.at, n);
    if (!token.text || !ckpt_bytes_add(&m->types, &type, 1))
        return ckpt_fail_memory(err);
    if (tz_vocab_find(&m->t->vocab, token.text, n))
        return ckpt_fail(err, CKPT_EFORMAT, "piece '%.40s' is there twice", token.text);
    return tz_vocab_add(&m->t->vocab, &token, err);
}

static int spi_trainer(spi_model *m, ckpt_proto s, ckpt_err *err)
{
    ckpt_proto_field f;

    while (s.at < s.end) {
        if (!ckpt_proto_next(&s, &f))
            return spi_damaged(err);
        if (f.tag == CKPT_PROTO_TAG(3, CKPT_PROTO_VARINT))
            m->kind = f.value;
        else if (f.tag == CKPT_PROTO_TAG(35, CKPT_PROTO_VARINT))
            m->byte_fallback = f.value != 0;
        else if (f.tag == CKPT_PROTO_TAG(40, CKPT_PROTO_VARINT))
            m->unknown = (int32_t)f.value;
        else if (f.tag == CKPT_PROTO_TAG(41, CKPT_PROTO_VARINT))
            m->begin = (int32_t)f.value;
        else if (f.tag == CKPT_PROTO_TAG(42, CKPT_PROTO_VARINT))
            m->end = (int32_t)f.value;
        else if (f.tag == CKPT_PROTO_TAG(24, CKPT_PROTO_VARINT) && f.value)
            return ckpt_fail(err, CKPT_EUNSUPPORTED, "white space as a suffix is not supported");
    }
    return CKPT_OK;
}

static int spi_normalizer(spi_model *m, ckpt_proto s, ckpt_err *err)
{
    ckpt_proto_field f;

    while (s.at < s.end) {
        if (!ckpt_proto_next(&s, &f))
            return spi_damaged(err);
        if (f.tag == CKPT_PROTO_TAG(2, CKPT_PROTO_BYTES))
            m->charsmap = f.body;
        else if (f.tag == CKPT_PROTO_TAG(3, CKPT_PROTO_VARINT))
            m->prefix = f.value != 0;
        else if (f.tag == CKPT_PROTO_TAG(4, CKPT_PROTO_VARINT))
            m->trim = f.value != 0;
        else if (f.tag == CKPT_PROTO_TAG(5, CKPT_PROTO_VARINT) && !f.value)
            return ckpt_fail(err, CKPT_EUNSUPPORTED, "plain blanks in pieces are not supported");
    }
    return CKPT_OK;
}

static int spi_parse(spi_model *m, ckpt_text bytes, ckpt_err *err)
{
    const uint8_t *begin = (const uint8_t *)bytes.at;
    ckpt_proto s = {begin, begin + bytes.n};
    ckpt_proto_field f;
    int rc = CKPT_OK;

    while (rc == CKPT_OK && s.at < s.end) {
        if (!ckpt_proto_next(&s, &f))
            return spi_damaged(err);
        if (f.tag == CKPT_PROTO_TAG(1, CKPT_PROTO_BYTES))
            rc = spi_piece(m, f.body, err);
        else if (f.tag == CKPT_PROTO_TAG(2, CKPT_PROTO_BYTES))
            rc = spi_trainer(m, f.body, err);
        else if (f.tag == CKPT_PROTO_TAG(3, CKPT_PROTO_BYTES))
            rc = spi_normalizer(m, f.body, err);
    }
    if (rc == CKPT_OK && m->types.n == 0)
        return spi_damaged(err);
    if (rc == CKPT_OK && m->kind != 1 && m->kind != 2)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "a SentencePiece model of kind %" PRIu64
                         " is not supported: expected unigram or BPE",
                         m->kind);
    return rc;
}

/* ---- normalizers ---- */

static int spi_add_normal(spi_model *m, const tz_normal *n, ckpt_err *err)
{
    tz_normal *to = ckpt_vec_push(&m->t->normalizer);

    if (!to)
        return ckpt_fail_memory(err);
    *to = *n;
    return CKPT_OK;
}

/* first: put a blank before the first part only, as Metaspace with prepend_scheme "first" */
static int spi_normals(spi_model *m, bool first, ckpt_err *err)
{
    const ckpt_text space = {SPI_SPACE, 3}, blank = {" ", 1};
    const size_t n = m->charsmap.at ? (size_t)(m->charsmap.end - m->charsmap.at) : 0;
    tz_normal many = {.kind = TZ_REPLACE, .text = blank};
    int rc = CKPT_OK;

    if (n > 0) {
        rc = spi_add_normal(m, &(tz_normal){.kind = TZ_CHARSMAP}, err);
        if (rc == CKPT_OK)
            rc = tz_charsmap_new(&m->t->normalizer.at[0].map, (const char *)m->charsmap.at, n, err);
    }
    if (rc == CKPT_OK && m->trim) {
        rc = spi_add_normal(m, &(tz_normal){.kind = TZ_STRIP, .left = true, .right = true}, err);
        if (rc == CKPT_OK)
            rc = tz_regex_new(&many.pattern.regex, (ckpt_text){" {2,}", 5}, err);
        if (rc == CKPT_OK)
            rc = spi_add_normal(m, &many, err);
        if (rc != CKPT_OK)
            tz_regex_free(many.pattern.regex);
    }
    if (rc == CKPT_OK && m->prefix && first) {
        tz_split *to = ckpt_vec_push(&m->t->split);

        if (!to)
            return ckpt_fail_memory(err);
        *to = (tz_split){.kind = TZ_METASPACE, .prefix = TZ_FIRST, .space = space};
        return CKPT_OK;
    }
    if (rc == CKPT_OK && m->prefix)
        rc = spi_add_normal(m, &(tz_normal){.kind = TZ_PREPEND, .text = space}, err);
    if (rc == CKPT_OK)
        rc = spi_add_normal(
            m, &(tz_normal){.kind = TZ_REPLACE, .text = space, .pattern = {.text = blank}}, err);
    return rc;
}

/* ---- models ---- */

static int spi_order(const void *a, const void *b)
{
    const tz_token *x = *(const tz_token *const *)a, *y = *(const tz_token *const *)b;

    return x->score != y->score ? (x->score < y->score) - (x->score > y->score)
                                : (x->id > y->id) - (x->id < y->id);
}

/* Add a merge for each pair of pieces that gives this piece. */
static int spi_pairs(spi_model *m, const tz_token *t, uint32_t rank, tz_merges *out, ckpt_err *err)
{
    for (uint32_t i = 1; i < t->n; i++) {
        const tz_token *left, *right;
        tz_merge *to;

        if (((uint8_t)t->text[i] & 0xc0) == 0x80)
            continue;
        left = tz_vocab_find(&m->t->vocab, t->text, i);
        right = left ? tz_vocab_find(&m->t->vocab, t->text + i, t->n - i) : NULL;
        if (!right)
            continue;
        to = ckpt_vec_push(out);
        if (!to)
            return ckpt_fail_memory(err);
        *to = (tz_merge){left->id, right->id, t->id, rank};
    }
    return CKPT_OK;
}

/* Make merges of scores: pieces of equal scores have equal ranks. */
static int spi_merges(spi_model *m, tz_merges *out, ckpt_err *err)
{
    const tz_tokens *all = &m->t->vocab.token;
    const tz_token **by_score = ckpt_alloc(all->n * sizeof *by_score);
    uint32_t rank = 0;
    int rc = by_score ? CKPT_OK : ckpt_fail_memory(err);

    for (size_t i = 0; rc == CKPT_OK && i < all->n; i++)
        by_score[i] = &all->at[i];
    if (rc == CKPT_OK)
        qsort((void *)by_score, all->n, sizeof *by_score, spi_order);
    for (size_t i = 0; rc == CKPT_OK && i < all->n; i++) {
        rank += i > 0 && by_score[i]->score < by_score[i - 1]->score;
        if (m->types.at[by_score[i]->id] == SPI_NORMAL)
            rc = spi_pairs(m, by_score[i], rank, out, err);
    }
    ckpt_free((void *)by_score);
    return rc;
}

static int spi_make(spi_model *m, ckpt_err *err)
{
    const tz_model_opts o = {.vocab = &m->t->vocab,
                             .unknown = (int32_t)m->unknown,
                             .byte_fallback = m->byte_fallback,
                             .fuse_unknown = true};
    tz_merges merges = {0};
    int rc;

    if (m->unknown < 0 || m->unknown > m->t->vocab.last)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "the number of the unknown piece is not that of a "
                         "piece");
    if (m->kind == 1)
        return tz_unigram_new(&m->t->unigram, &o, err);
    rc = spi_merges(m, &merges, err);
    if (rc == CKPT_OK)
        rc = tz_bpe_new(&m->t->bpe, &o, &merges, err);
    ckpt_vec_free(&merges);
    return rc;
}

/* ---- tokens that are found in text ---- */

/* flags: the token's object in tokenizer_config.json, or NULL */
static int spi_find(spi_model *m, ckpt_text t, int64_t id, const ckpt_value *flags, ckpt_err *err)
{
    const char *text = t.at;
    const size_t n = t.n;
    tz_token token = {.n = (uint32_t)n, .id = (int32_t)m->t->added.n};
    tz_added *to;

    if (n == 0 || n > SPI_LONGEST || id < 0 || id >= TZ_TOKENS)
        return ckpt_fail(err, CKPT_EFORMAT, "an added token has no text, or no number");
    if (tz_vocab_find(&m->t->raw, text, n))
        return CKPT_OK;
    token.text = ckpt_arena_string(m->t->arena, text, n);
    to = ckpt_vec_push(&m->t->added);
    if (!token.text || !to)
        return ckpt_fail_memory(err);
    *to = (tz_added){.id = (int32_t)id,
                     .single_word = tz_flag(flags, "single_word", false),
                     .left = tz_flag(flags, "lstrip", false),
                     .right = tz_flag(flags, "rstrip", false)};
    if (flags) {
        const tz_shown shown = {.text = token.text,
                                .n = token.n,
                                .id = (int32_t)id,
                                .added = true,
                                .special = tz_flag(flags, "special", false)};
        int rc = tz_show(m->t, &shown, err);

        if (rc != CKPT_OK)
            return rc;
    }
    return tz_vocab_add(&m->t->raw, &token, err);
}

/* Special pieces, and those that tokenizer_config.json adds. */
static int spi_added(spi_model *m, const ckpt_value *config, ckpt_err *err)
{
    const ckpt_dict more = ckpt_value_map(ckpt_value_get(config, "added_tokens_decoder"));
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < more.n; i++) {
        const ckpt_value *text = ckpt_value_get(more.at[i].value, "content");
        int64_t id = strtoll(more.at[i].key->as.text.at, NULL, 10);

        rc = text && text->kind == CKPT_V_STR
                 ? spi_find(m, text->as.text, id, more.at[i].value, err)
                 : ckpt_fail(err, CKPT_EFORMAT, "an added token has no content");
    }
    // after those of the configuration, which has flags of special pieces, too
    for (size_t i = 0; rc == CKPT_OK && i < m->types.n; i++) {
        const tz_token *t = &m->t->vocab.token.at[i];
        const uint8_t type = m->types.at[i];

        if (type == SPI_UNKNOWN || type == SPI_CONTROL || type == SPI_USER)
            rc = spi_find(m, (ckpt_text){t->text, t->n}, t->id, NULL, err);
    }
    return rc == CKPT_OK ? tz_sorted_make(&m->t->raws, m->t->raw.token.at, m->t->raw.token.n, err)
                         : rc;
}

/* ---- tokens to text ---- */

static int spi_step(spi_model *m, const tz_step *step, ckpt_err *err)
{
    tz_step *to = ckpt_vec_push(&m->t->decoder);

    if (!to)
        return ckpt_fail_memory(err);
    *to = *step;
    return CKPT_OK;
}

/* The texts of pieces, and the decoders that transformers makes for both kinds. */
static int spi_decoder(spi_model *m, ckpt_err *err)
{
    const ckpt_text space = {SPI_SPACE, 3}, blank = {" ", 1};
    const tz_step metaspace = {.kind = TZ_METASPACES, .text = space, .flag = m->prefix};
    const tz_step bpe[] = {
        {.kind = TZ_REPLACE_TEXT, .text = blank, .pattern = {.text = space}},
        {.kind = TZ_FALLBACK},
        {.kind = TZ_FUSE},
        {.kind = TZ_STRIP_CHAR, .text = blank, .start = 1},
    };
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < m->types.n; i++) {
        const tz_token *t = &m->t->vocab.token.at[i];
        const bool special = m->types.at[i] == SPI_UNKNOWN || m->types.at[i] == SPI_CONTROL;

        rc = tz_show(m->t, &(tz_shown){.text = t->text, .n = t->n, .id = t->id, .special = special},
                     err);
    }
    if (rc == CKPT_OK && m->kind == 1)
        return spi_step(m, &metaspace, err);
    for (size_t i = 0; rc == CKPT_OK && i < (m->prefix ? 4U : 3U); i++)
        rc = spi_step(m, &bpe[i], err);
    return rc;
}

static int spi_end(zt_ids *to, int64_t id, bool wanted, ckpt_err *err)
{
    int32_t *at = wanted && id >= 0 ? ckpt_vec_push(to) : NULL;

    if (at)
        *at = (int32_t)id;
    return wanted && id >= 0 && !at ? ckpt_fail_memory(err) : CKPT_OK;
}

static int spi_build(spi_model *m, const ckpt_value *config, ckpt_err *err)
{
    const ckpt_value *class = ckpt_value_get(config, "tokenizer_class");
    const bool t5 =
        class && (ckpt_value_is(class, "T5Tokenizer") || ckpt_value_is(class, "T5TokenizerFast"));
    int rc = spi_normals(m, m->kind == 2 && !tz_flag(config, "legacy", true), err);

    if (rc == CKPT_OK)
        rc = spi_make(m, err);
    if (rc == CKPT_OK)
        rc = spi_added(m, config, err);
    if (rc == CKPT_OK)
        rc = spi_decoder(m, err);
    // without a word in the file: as the classes of Llama and T5 do
    if (rc == CKPT_OK)
        rc = spi_end(&m->t->before, m->begin, tz_flag(config, "add_bos_token", m->kind == 2), err);
    if (rc == CKPT_OK)
        rc = spi_end(&m->t->after, m->end, tz_flag(config, "add_eos_token", t5), err);
    return rc;
}

/* Read tokenizer_config.json beside the model, if there is one. */
static int spi_config(const char *path, ckpt_arena *arena, ckpt_value **out, ckpt_err *err)
{
    const char *slash = strrchr(path, '/');
    const char *name = ckpt_arena_printf(arena, "%.*stokenizer_config.json",
                                         slash ? (int)(slash - path) + 1 : 0, path);
    ckpt_err why = {0};
    int rc = name ? ckpt_json_read(out, arena, name, SPI_BYTES, &why) : ckpt_fail_memory(&why);

    if (rc == CKPT_OK || rc == CKPT_EMISSING)
        return CKPT_OK;
    return ckpt_fail(err, rc, "%s", why.text);
}

int tz_spm_read(zt_tokenizer *t, const char *path, ckpt_err *err)
{
    spi_model m = {.t = t, .kind = 1, .begin = 1, .end = 2, .prefix = true, .trim = true};
    ckpt_arena *scratch = ckpt_arena_new(0);
    ckpt_value *config = NULL;
    ckpt_err why = {0};
    char *bytes = NULL;
    uint64_t n = 0;
    int rc = scratch ? ckpt_io_slurp(&bytes, &n, path, SPI_BYTES, err) : ckpt_fail_memory(err);

    if (rc == CKPT_OK)
        rc = spi_config(path, scratch, &config, err);
    if (rc == CKPT_OK) {
        rc = spi_parse(&m, (ckpt_text){bytes, n}, &why);
        if (rc == CKPT_OK)
            rc = spi_build(&m, config, &why);
        if (rc != CKPT_OK)
            rc = ckpt_fail(err, rc, "%s: %s", path, why.text);
    }
    ckpt_vec_free(&m.types);
    ckpt_free(bytes);
    ckpt_arena_free(scratch);
    return rc;
}
