/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dequant_inputs.c: decodes GPTQ's matrices for modules that store weights as [inputs, outputs].
 *
 * These are embeddings, whose inputs are tokens (GPTQModel's TorchQuantEmbeddings), and
 * transformers' Conv1D, whose weights are quantized as those of a linear layer. A line of qweight
 * has a number of each output, so a row of the result needs no turning. Each thread keeps the lines
 * of 32 inputs, and the scales and zeros of one group.
 */
#include <inttypes.h>
#include <string.h>

#include "libckpt/transform/dequant_words.h"

enum { DQI_BAND = 32 /* inputs whose numbers fill whole words of any number of bits */ };

/* Stored data of 32 inputs, and of a group. */
typedef struct dqi_band {
    uint64_t number, group; /* + 1; 0: nothing is read */
    uint32_t of[DQI_BAND];  /* groups of these inputs */
    float *scale, *zero;    /* [rows] */
    uint32_t *word;         /* [bits, rows] */
    uint32_t bytes[];
} dqi_band;

uint64_t ckpt_words_inputs_bytes(const ckpt_words *m)
{
    return sizeof(dqi_band) + (m->bits + 2) * m->rows * sizeof(uint32_t);
}

/* Read the words and the groups of the inputs of a band. */
static int dqi_words(const ckpt_words *m, ckpt_inputs *in, uint64_t number, dqi_band *b,
                     ckpt_err *err)
{
    uint64_t first = number * DQI_BAND, line = number * m->bits;
    uint64_t n = m->cols - first < DQI_BAND ? m->cols - first : DQI_BAND;
    uint64_t lines = m->words->shape[0] - line < m->bits ? m->words->shape[0] - line : m->bits;
    int rc = in->read(in, m->words, &(const ckpt_axis){line * m->rows, lines * m->rows, 0},
                      CKPT_DTYPE_NONE, b->word, err);

    for (uint64_t i = 0; i < n; i++)
        b->of[i] = (uint32_t)((first + i) / m->group);
    if (rc == CKPT_OK && m->index)
        rc = in->read(in, m->index, &(const ckpt_axis){first, n, 0}, CKPT_DTYPE_NONE, b->of, err);
    for (uint64_t i = 0; rc == CKPT_OK && i < n; i++) {
        if (b->of[i] >= m->groups)
            rc = ckpt_fail(err, CKPT_EFORMAT,
                           "%s: %.200s: input %" PRIu64 " is in group %" PRId32 " of %" PRIu64,
                           m->path, m->index ? m->index->name : m->words->name, first + i,
                           (int32_t)b->of[i], m->groups);
    }
    return rc;
}

/* Read the scales and zeros of a group; buf: room for a line of zeros. */
static int dqi_group(const ckpt_words *m, ckpt_inputs *in, uint64_t group, dqi_band *b,
                     uint32_t *buf, ckpt_err *err)
{
    uint64_t width = m->zero->shape[1];
    int rc = in->read(in, m->scale, &(const ckpt_axis){group * m->rows, m->rows, 0}, CKPT_F32,
                      b->scale, err);

    if (rc == CKPT_OK)
        rc = in->read(in, m->zero, &(const ckpt_axis){group * width, width, 0}, CKPT_DTYPE_NONE,
                      buf, err);
    if (rc == CKPT_OK && m->less_one)
        ckpt_words_add_one(m, buf, width);
    for (uint64_t r = 0; rc == CKPT_OK && r < m->rows; r++)
        b->zero[r] = ckpt_words_zero(m, buf, r);
    return rc;
}

/* Get the band of an input, with the scales of the input's group; this thread keeps it. */
static int dqi_band_of(const ckpt_words *m, ckpt_inputs *in, uint64_t input, uint32_t *buf,
                       dqi_band **out, ckpt_err *err)
{
    uint64_t number = input / DQI_BAND, group;
    bool fresh = false;
    dqi_band *b = in->keep(in, m, ckpt_words_inputs_bytes(m), &fresh);
    int rc = b ? CKPT_OK : ckpt_fail_memory(err);

    *out = b;
    if (rc == CKPT_OK && fresh) {
        *b = (dqi_band){0};
        b->scale = (float *)(void *)b->bytes;
        b->zero = b->scale + m->rows;
        b->word = b->bytes + 2 * m->rows;
    }
    if (rc == CKPT_OK && b->number != number + 1) {
        b->number = 0;
        rc = dqi_words(m, in, number, b, err);
    }
    if (rc != CKPT_OK)
        return rc;
    b->number = number + 1;
    group = b->of[input % DQI_BAND];
    if (b->group == group + 1)
        return CKPT_OK;
    b->group = 0;
    rc = dqi_group(m, in, group, b, buf, err);
    if (rc == CKPT_OK)
        b->group = group + 1;
    return rc;
}

/* Compute outputs out ... out + n - 1 of an input. */
static void dqi_row(const ckpt_words *m, const dqi_band *b, uint64_t input, const ckpt_axis *part,
                    float *x)
{
    uint64_t bit = input % DQI_BAND * m->bits, out = part->start;
    const uint32_t *word = b->word + bit / 32 * m->rows + out;
    const float *scale = b->scale + out, *zero = b->zero + out;
    unsigned shift = bit % 32, mask = (1u << m->bits) - 1;
    // a number of 3 bits may begin in one word and end in the next
    bool cut = shift + m->bits > 32;

    for (uint64_t i = 0; !cut && i < part->count; i++)
        x[i] = ((float)(int)(word[i] >> shift & mask) - zero[i]) * scale[i];
    for (uint64_t i = 0; cut && i < part->count; i++) {
        uint32_t q = word[i] >> shift | word[m->rows + i] << (32 - shift);

        x[i] = ((float)(int)(q & mask) - zero[i]) * scale[i];
    }
}

int ckpt_words_run_inputs(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                          ckpt_err *err)
{
    const ckpt_words *m = (const ckpt_words *)(const void *)make;
    uint64_t n_x = m->round.narrow ? n : 0;
    float *scratch = in->scratch(in, (n_x + m->zero->shape[1]) * sizeof *scratch);
    float *x = n_x ? scratch : to;
    dqi_band *b = NULL;
    int rc = scratch ? CKPT_OK : ckpt_fail_memory(err);

    for (uint64_t i = 0; rc == CKPT_OK && i < n;) {
        uint64_t input = (at + i) / m->rows, out = (at + i) % m->rows;
        uint64_t left = n - i < m->rows - out ? n - i : m->rows - out;

        rc = dqi_band_of(m, in, input, (uint32_t *)(void *)(scratch + n_x), &b, err);
        if (rc == CKPT_OK)
            dqi_row(m, b, input, &(const ckpt_axis){out, left, 0}, x + i);
        i += left;
    }
    if (rc == CKPT_OK)
        ckpt_dequant_finish(&m->round, to, x, n);
    return rc;
}

/* ---- which modules store weights so ---- */

/* True if the module of X.weight has one of these names. */
static bool dqi_is(const char *name, const char *const *list, size_t n)
{
    const char *end = strrchr(name, '.'), *from = end;

    while (from && from > name && from[-1] != '.')
        from--;
    for (size_t i = 0; from && i < n; i++) {
        size_t len = strlen(list[i]);

        if (len == (size_t)(end - from) && memcmp(from, list[i], len) == 0)
            return true;
    }
    return false;
}

int ckpt_words_direction(const ckpt_dequantizing *w, const ckpt_dequant_parts *p, ckpt_words *m)
{
    static const char *const tables[] = {"embed_tokens",
                                         "embed_positions",
                                         "embed_in",
                                         "word_embeddings",
                                         "position_embeddings",
                                         "token_type_embeddings",
                                         "tok_embeddings",
                                         "tokens_embed",
                                         "positions_embed",
                                         "wte",
                                         "wpe",
                                         "shared"};
    static const char *const turned[] = {"c_attn", "c_proj", "c_fc", "q_attn"};
    static const char *const heads[] = {"lm_head", "score"};
    bool known = w->n_vocab > 0 && w->n_hidden > 0 && w->n_vocab != w->n_hidden;
    bool table = dqi_is(p->name, tables, sizeof tables / sizeof *tables) ||
                 (known && m->cols == w->n_vocab && m->rows == w->n_hidden);

    m->inputs = table || (w->transposed && dqi_is(p->name, turned, sizeof turned / sizeof *turned));
    if (table && known && m->rows == w->n_vocab && m->cols == w->n_hidden)
        return ckpt_fail(w->err, CKPT_EMISMATCH,
                         "%s: %.200s is an embedding, and has %" PRIu64 " outputs of %" PRIu64
                         " inputs like an output head; expected %" PRIu64 " inputs, one for each "
                         "token",
                         ckpt_dequant_path(w), p->weight->name, m->rows, m->cols, w->n_vocab);
    if (w->transposed && !m->inputs && !dqi_is(p->name, heads, sizeof heads / sizeof *heads))
        return ckpt_dequant_turned(w, p);
    if (m->inputs && m->layout != CKPT_WORDS_DOWN)
        return ckpt_fail(
            w->err, CKPT_EUNSUPPORTED,
            "%s: %.200s is stored as [in, out] in the model, and ckpt dequantizes such "
            "weights of GPTQ only",
            ckpt_dequant_path(w), p->weight->name);
    return CKPT_OK;
}
