/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dequant_words.c: decodes matrices of integers of a few bits, packed into words of 32 bits.
 *
 * Columns of a row form groups with a scale and a zero point: x = (q - zero) * scale, computed and
 * rounded in the scales' dtype. A word has its first number in its lowest bits. With R rows
 * (outputs), C columns (inputs) and G groups:
 *
 *    GPTQ    qweight [C * bits / 32, R], packed down; qzeros [G, R * bits / 32]; scales [G, R];
 *            g_idx [C]: the group of each column. Format "gptq" stores zero - 1, "gptq_v2" the zero
 *            itself (GPTQModel: nn_modules/qlinear, dequantize_weight; utils/model.py,
 *            convert_gptq_v1_to_v2_format_module)
 *    AWQ     qweight [C, R / 8], packed across, in the order 0 2 4 6 1 3 5 7; qzeros [G, R / 8] the
 *            same; scales [G, R] (AutoAWQ: utils/packing_utils.py, dequantize_gemm)
 *            Of version "gemv": qweight [R, C / 8], packed across in order; qzeros [R, Z] the same,
 *            with Z words for G numbers and padding; scales [R, Z * 8] (modules/linear/gemv.py)
 *    compressed-tensors' pack-quantized
 *            weight_packed [R, C * bits / 32], packed across; weight_scale [R, G];
 *            weight_zero_point [R * bits / 32, G], packed down; weight_g_idx [C]; numbers without
 *            zero points have half of their range as zero (compressors/pack_quantized, 0.20)
 *
 * The result is [R, C], or [C, R] (dequant_inputs.c). Each thread keeps a tile of whole rows,
 * turned so that a row's words follow each other.
 */
#include <inttypes.h>
#include <string.h>

#include "libckpt/map/nest.h"
#include "libckpt/transform/dequant_words.h"
#include "libckpt/transform/dequantize.h"

enum {
    DQW_BAND = 32,       /* rows of a tile are a multiple; so many numbers fill whole words */
    DQW_TILE = 1 << 19,  /* bytes of a tile that are aimed at */
    DQW_MOST = 64 << 20, /* most bytes of a tile: a band of very long rows */
    /* stored lines that are turned together: 16 words are a line of the processor's cache */
    DQW_LINES = 16,
    /* words of the longest line that is read whole, because a read costs as much as copying it */
    DQW_SHORT = 2048
};

/* The rows of a matrix that a thread keeps. */
typedef struct dqw_tile {
    uint64_t number; /* + 1; 0: nothing is read */
    uint64_t rows;
    bool in_order;       /* groups follow each other */
    uint32_t *word;      /* lines of n_words */
    uint32_t *of;        /* group of each column */
    float *scale, *zero; /* [rows, groups] */
    uint32_t bytes[];
} dqw_tile;

/* ---- reading a tile ---- */

/* Lines of a tile of so many rows. */
static uint64_t dqw_lines(const ckpt_words *m, uint64_t rows)
{
    return m->layout == CKPT_WORDS_ACROSS ? (rows + 7) / 8 : rows;
}

/* Read n elements as they are stored. */
static int dqw_read(ckpt_inputs *in, const ckpt_tensor *t, uint64_t first, uint64_t n, void *to,
                    ckpt_err *err)
{
    return in->read(in, t, &(const ckpt_axis){first, n, 0}, CKPT_DTYPE_NONE, to, err);
}

/* Words of a stored line that are read for n of them. */
static uint64_t dqw_stride(const ckpt_words *m, uint64_t n)
{
    return m->words->shape[1] <= DQW_SHORT ? m->words->shape[1] : n;
}

/* Read n words of each stored line and turn them: [lines, n] to [n, n_words]. */
static int dqw_turn(const ckpt_words *m, ckpt_inputs *in, dqw_tile *tile, uint64_t row,
                    uint32_t *buf, ckpt_err *err)
{
    uint64_t lines = m->words->shape[0], width = m->words->shape[1];
    uint64_t first = m->layout == CKPT_WORDS_ACROSS ? row / 8 : row, n = dqw_lines(m, tile->rows);
    uint64_t stride = dqw_stride(m, n);
    const uint32_t *from = stride == width ? buf + first : buf;
    int rc = CKPT_OK;

    for (uint64_t at = 0; rc == CKPT_OK && at < lines; at += DQW_LINES) {
        uint64_t some = lines - at < DQW_LINES ? lines - at : DQW_LINES;

        if (stride == width)
            rc = dqw_read(in, m->words, at * width, some * width, buf, err);
        for (uint64_t k = 0; stride != width && rc == CKPT_OK && k < some; k++)
            rc = dqw_read(in, m->words, (at + k) * width + first, n, buf + k * n, err);
        for (uint64_t r = 0; rc == CKPT_OK && r < n; r++) {
            for (uint64_t k = 0; k < some; k++)
                tile->word[r * m->n_words + at + k] = from[k * stride + r];
        }
    }
    return rc;
}

/* Read the words of a tile's rows. */
static int dqw_words(const ckpt_words *m, ckpt_inputs *in, dqw_tile *tile, uint64_t row,
                     uint32_t *buf, ckpt_err *err)
{
    uint64_t width = m->words->shape[1];
    int rc = CKPT_OK;

    if (m->layout != CKPT_WORDS_ROWS)
        return dqw_turn(m, in, tile, row, buf, err);
    for (uint64_t r = 0; rc == CKPT_OK && r < tile->rows; r++)
        rc = dqw_read(in, m->words, (row + r) * width, width, tile->word + r * m->n_words, err);
    return rc;
}

/* Read zeros that are packed as the rows of numbers are. */
static int dqw_zero_rows(const ckpt_words *m, ckpt_inputs *in, dqw_tile *tile, uint64_t row,
                         uint32_t *buf, ckpt_err *err)
{
    uint64_t width = m->zero->shape[1];
    int rc = dqw_read(in, m->zero, row * width, tile->rows * width, buf, err);

    for (uint64_t r = 0; rc == CKPT_OK && r < tile->rows; r++) {
        for (uint64_t g = 0; g < m->groups; g++)
            tile->zero[r * m->groups + g] =
                (float)(int)ckpt_dequant_number(buf + r * width, m->bits, g);
    }
    return rc;
}

/* Read the zeros of a tile's rows, or set them to the middle of the range. */
static int dqw_zeros(const ckpt_words *m, ckpt_inputs *in, dqw_tile *tile, uint64_t row,
                     uint32_t *buf, ckpt_err *err)
{
    uint64_t n = (tile->rows * m->bits + 31) / 32, first = row * m->bits / 32, groups = m->groups;
    uint32_t *column = m->layout == CKPT_WORDS_ROWS ? buf + n * groups : buf;
    int rc = CKPT_OK;

    if (m->zero_rows)
        return dqw_zero_rows(m, in, tile, row, buf, err);
    for (uint64_t i = 0; !m->zero && i < tile->rows * groups; i++)
        tile->zero[i] = m->middle;
    if (m->zero && m->layout == CKPT_WORDS_ROWS)
        rc = dqw_read(in, m->zero, first * groups, n * groups, buf, err);
    for (uint64_t g = 0; m->zero && rc == CKPT_OK && g < groups; g++) {
        if (m->layout != CKPT_WORDS_ROWS)
            rc = dqw_read(in, m->zero, g * m->zero->shape[1] + first, n, column, err);
        for (uint64_t i = 0; m->layout == CKPT_WORDS_ROWS && i < n; i++)
            column[i] = buf[i * groups + g];
        if (rc == CKPT_OK && m->less_one)
            ckpt_words_add_one(m, column, n);
        for (uint64_t r = 0; rc == CKPT_OK && r < tile->rows; r++)
            tile->zero[r * groups + g] = ckpt_words_zero(m, column, r);
    }
    return rc;
}

/* Read the scales of a tile's rows. */
static int dqw_scales(const ckpt_words *m, ckpt_inputs *in, dqw_tile *tile, uint64_t row,
                      uint32_t *buf, ckpt_err *err)
{
    uint64_t groups = m->groups, n = tile->rows;
    int rc = CKPT_OK;

    if (m->layout == CKPT_WORDS_ROWS) {
        // a single scale serves all rows
        bool one = m->scale->n_elems == 1;

        rc = dqw_read(in, m->scale, one ? 0 : row * groups, one ? 1 : n * groups, buf, err);
        if (rc == CKPT_OK)
            m->widen(tile->scale, buf, one ? 1 : (size_t)(n * groups));
        for (uint64_t i = 1; rc == CKPT_OK && one && i < n; i++)
            tile->scale[i] = tile->scale[0];
        return rc;
    }
    for (uint64_t g = 0; rc == CKPT_OK && g < groups; g++) {
        float *x = (float *)(void *)(buf + n);

        rc = dqw_read(in, m->scale, g * m->rows + row, n, buf, err);
        if (rc == CKPT_OK)
            m->widen(x, buf, (size_t)n);
        for (uint64_t r = 0; rc == CKPT_OK && r < n; r++)
            tile->scale[r * groups + g] = x[r];
    }
    return rc;
}

/* Read the group of each column, and find out whether groups follow each other. */
static int dqw_index(const ckpt_words *m, ckpt_inputs *in, dqw_tile *tile, ckpt_err *err)
{
    bool unset = false;
    int rc = CKPT_OK;

    tile->in_order = true;
    if (m->index)
        rc = dqw_read(in, m->index, 0, m->cols, tile->of, err);
    // compressed-tensors: -1 stands for an index that was not set
    for (uint64_t c = 0; rc == CKPT_OK && m->may_be_plain && m->index && c < m->cols; c++)
        unset = unset || tile->of[c] == UINT32_MAX;
    for (uint64_t c = 0; rc == CKPT_OK && m->index && !unset && c < m->cols; c++) {
        if (tile->of[c] >= m->groups)
            return ckpt_fail(err, CKPT_EFORMAT,
                             "%s: %.200s: column %" PRIu64 " is in group %" PRId32 " of %" PRIu64,
                             m->path, m->index->name, c, (int32_t)tile->of[c], m->groups);
        tile->in_order = tile->in_order && tile->of[c] == c / m->group;
    }
    return rc;
}

/* Bytes of a tile of so many rows, without its header. */
static uint64_t dqw_bytes(const ckpt_words *m, uint64_t rows)
{
    return (dqw_lines(m, rows) * m->n_words + m->cols + 2 * rows * m->groups) * sizeof(uint32_t);
}

/* Words of the buffer that reading a tile needs. */
static uint64_t dqw_buffer(const ckpt_words *m)
{
    uint64_t lines = dqw_stride(m, m->tile) * DQW_LINES;

    if (m->layout == CKPT_WORDS_ROWS)
        return m->tile * (m->groups + 1);
    // zeros and scales need two numbers for each row
    return lines > 2 * m->tile ? lines : 2 * m->tile;
}

/* Get the tile with a row; this thread keeps it. */
static int dqw_tile_of(const ckpt_words *m, ckpt_inputs *in, uint64_t row, uint32_t *buf,
                       dqw_tile **out, ckpt_err *err)
{
    uint64_t number = row / m->tile, first = number * m->tile;
    bool fresh = false;
    dqw_tile *tile = in->keep(in, m, sizeof *tile + dqw_bytes(m, m->tile), &fresh);
    int rc = tile ? CKPT_OK : ckpt_fail_memory(err);

    *out = tile;
    if (rc != CKPT_OK || (!fresh && tile->number == number + 1))
        return rc;
    *tile = (dqw_tile){.rows = m->rows - first < m->tile ? m->rows - first : m->tile};
    tile->word = tile->bytes;
    tile->of = tile->word + dqw_lines(m, m->tile) * m->n_words;
    tile->scale = (float *)(void *)(tile->of + m->cols);
    tile->zero = tile->scale + m->tile * m->groups;
    rc = dqw_index(m, in, tile, err);
    if (rc == CKPT_OK)
        rc = dqw_words(m, in, tile, first, buf, err);
    if (rc == CKPT_OK)
        rc = dqw_scales(m, in, tile, first, buf, err);
    if (rc == CKPT_OK)
        rc = dqw_zeros(m, in, tile, first, buf, err);
    if (rc == CKPT_OK)
        tile->number = number + 1;
    return rc;
}

/* ---- the arithmetic ---- */

/* Compute columns col ... col + n - 1 of a row of the tile; q is room for whole blocks of them. */
static void dqw_row(const ckpt_words *m, const dqw_tile *tile, uint64_t r, const ckpt_axis *part,
                    float *q, float *x)
{
    const float *scale = tile->scale + r * m->groups, *zero = tile->zero + r * m->groups;
    uint64_t col = part->start, n = part->count, block = col / DQW_BAND;

    if (m->layout == CKPT_WORDS_ACROSS) {
        const uint32_t *word = tile->word + r / 8 * m->n_words + col;
        unsigned shift = ckpt_words_across(r);

        for (uint64_t i = 0; i < n; i++)
            q[i] = (float)(int)(word[i] >> shift & 15);
    } else {
        const uint32_t *word = tile->word + r * m->n_words + block * m->bits;

        ckpt_dequant_unpack(word, m->bits, (col + n + DQW_BAND - 1) / DQW_BAND - block, q);
        q += col % DQW_BAND;
    }
    for (uint64_t i = 0, end; tile->in_order && i < n; i = end) {
        uint64_t g = (col + i) / m->group;
        float s = scale[g], z = zero[g];

        end = n - i < (g + 1) * m->group - (col + i) ? n : (g + 1) * m->group - col;
        for (; i < end; i++)
            x[i] = (q[i] - z) * s;
    }
    for (uint64_t i = 0; !tile->in_order && i < n; i++)
        x[i] = (q[i] - zero[tile->of[col + i]]) * scale[tile->of[col + i]];
}

static int dqw_run(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                   ckpt_err *err)
{
    const ckpt_words *m = (const ckpt_words *)(const void *)make;
    uint64_t n_x = m->round.narrow ? n : 0, n_q = m->cols + 2 * DQW_BAND;
    float *scratch = in->scratch(in, (n_x + n_q + dqw_buffer(m)) * sizeof *scratch);
    float *q = scratch, *x = n_x ? scratch + n_q : to;
    uint32_t *buf = (uint32_t *)(void *)(scratch + n_q + n_x);
    dqw_tile *tile = NULL;
    int rc = scratch ? CKPT_OK : ckpt_fail_memory(err);

    for (uint64_t i = 0; rc == CKPT_OK && i < n;) {
        uint64_t row = (at + i) / m->cols, col = (at + i) % m->cols;
        uint64_t left = n - i < m->cols - col ? n - i : m->cols - col;

        rc = dqw_tile_of(m, in, row, buf, &tile, err);
        if (rc == CKPT_OK)
            dqw_row(m, tile, row % m->tile, &(const ckpt_axis){col, left, 0}, q, x + i);
        i += left;
    }
    if (rc == CKPT_OK)
        ckpt_dequant_finish(&m->round, to, x, n);
    return rc;
}

/* ---- shapes ---- */

static bool dqw_is(const ckpt_tensor *t, ckpt_dtype d, uint64_t rows, uint64_t cols)
{
    return t->dtype == d && t->ndim == 2 && t->shape[0] == rows && t->shape[1] == cols;
}

/* n * bits / 32, rounded up; false: it overflows. */
static bool dqw_span(uint64_t n, unsigned bits, uint64_t *out)
{
    if (n > (UINT64_MAX - 31) / bits)
        return false;
    *out = (n * bits + 31) / 32;
    return true;
}

/* Start an operation: check the dtypes that all layouts share, and hide the inputs. */
static int dqw_new(const ckpt_dequantizing *w, const ckpt_dequant_parts *p, ckpt_words **out)
{
    const ckpt_tensor *from[] = {p->weight, p->scale, p->other[0], p->other[1]}, *hidden[4] = {0};
    ckpt_words *m = *out = ckpt_arena_alloc(w->map->arena, sizeof *m);
    ckpt_dtype d = p->scale->dtype;
    int rc = m ? CKPT_OK : ckpt_fail_memory(w->err);

    if (rc == CKPT_OK && (p->weight->dtype != CKPT_I32 || p->weight->ndim != 2 ||
                          (d != CKPT_F16 && d != CKPT_BF16 && d != CKPT_F32)))
        rc = ckpt_dequant_unfit(w, p, p->scale);
    for (size_t i = 0; rc == CKPT_OK && i < 4; i++) {
        if (!from[i])
            continue;
        rc = ckpt_map_hide(w->map, from[i], &hidden[i], w->err);
        m->input[m->make.n_inputs++] = hidden[i];
    }
    if (rc != CKPT_OK)
        return rc;
    m->make.input = m->input;
    m->make.make = dqw_run;
    m->path = ckpt_dequant_path(w);
    m->words = hidden[0];
    m->scale = hidden[1];
    m->zero = hidden[2];
    m->index = hidden[3];
    m->widen = ckpt_cast_find(CKPT_F32, d);
    ckpt_dequant_rounding(w, &m->round, d);
    return CKPT_OK;
}

/* Choose the tile, and replace the weight. */
static int dqw_put(ckpt_dequantizing *w, const ckpt_dequant_parts *p, ckpt_words *m)
{
    uint64_t *shape = ckpt_arena_array(w->map->arena, 2, sizeof *shape), row, n = DQW_BAND;

    if (!shape)
        return ckpt_fail_memory(w->err);
    if (m->index && (m->index->dtype != CKPT_I32 || m->index->n_elems != m->cols))
        return ckpt_dequant_unfit(w, p, p->other[1]);
    // so many bytes of words, scales and zeros fit memory, because the file has most of them
    if (m->cols > DQW_MOST || m->rows > DQW_MOST || m->groups > m->cols + 32)
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                         "%s: %.200s: its rows of %" PRIu64
                         " numbers are longer than ckpt can turn at once",
                         ckpt_dequant_path(w), p->name, m->cols);
    m->n_words =
        m->layout == CKPT_WORDS_ACROSS ? m->cols : (m->cols + DQW_BAND - 1) / DQW_BAND * m->bits;
    row = m->inputs ? ckpt_words_inputs_bytes(m) : dqw_bytes(m, DQW_BAND);
    if (row > DQW_MOST)
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                         "%s: %.200s: %d of its rows have %" PRIu64
                         " bytes, more than ckpt can turn at once (%d)",
                         ckpt_dequant_path(w), p->name, DQW_BAND, row, DQW_MOST);
    while (!m->inputs && n < m->rows && dqw_bytes(m, n + DQW_BAND) <= DQW_TILE)
        n += DQW_BAND;
    m->tile = n;
    if (m->inputs)
        m->make.make = ckpt_words_run_inputs;
    shape[m->inputs] = m->rows;
    shape[!m->inputs] = m->cols;
    return ckpt_dequant_put(w, p, &m->make, m->round.dtype, shape, 2);
}

/* ---- GPTQ and AWQ ---- */

/* The bits of GPTQ's numbers, from the shapes of the zeros of each row; 0: none fits. */
static unsigned dqw_bits(const ckpt_dequantizing *w, const ckpt_dequant_parts *p)
{
    uint64_t rows = p->weight->shape[1], span;

    for (unsigned bits = 2; bits <= 8; bits++) {
        if ((w->scheme.bits & 1u << bits) && dqw_span(rows, bits, &span) &&
            dqw_is(p->other[0], CKPT_I32, p->scale->shape[0], span))
            return bits;
    }
    return 0;
}

/* True if so many columns form so many groups of the configured size. */
static bool dqw_groups(const ckpt_dequantizing *w, const ckpt_words *m, uint64_t *group)
{
    *group = w->scheme.group ? w->scheme.group : m->cols;
    if (*group == 0)
        return false;
    return m->groups == m->cols / *group + (m->cols % *group != 0);
}

/* Set the size of a matrix; true if its numbers fill the words. */
static bool dqw_size(const ckpt_dequantizing *w, ckpt_words *m, const ckpt_dequant_parts *p)
{
    uint64_t of = m->layout == CKPT_WORDS_DOWN ? 0 : 1, n, span;

    m->groups = p->scale->shape[0];
    m->rows = p->weight->shape[1];
    m->cols = p->weight->shape[0];
    if (!ckpt_mul(p->weight->shape[of], 32, &n))
        return false;
    // the last words of an embedding may be filled in part
    if (!of && m->index && m->index->n_elems == w->n_vocab && w->n_vocab < n / m->bits &&
        dqw_span(w->n_vocab, m->bits, &span) && span == m->cols)
        n = w->n_vocab * m->bits;
    if (n % m->bits)
        return false;
    *(of ? &m->rows : &m->cols) = n / m->bits;
    if (dqw_groups(w, m, &m->group))
        return dqw_is(p->scale, p->scale->dtype, m->groups, m->rows);
    // modules with settings of their own: g_idx has the group of each column
    m->group = m->cols + 1;
    return w->scheme.varies && m->index && m->groups > 0 &&
           dqw_is(p->scale, p->scale->dtype, m->groups, m->rows);
}

/* Words of AWQ's gemv for the zeros of a row (calculate_zeros_width); 0: no such size. */
static uint64_t dqw_padded(uint64_t cols, uint64_t group)
{
    uint64_t unit = group >= 128 ? 1 : group == 64 ? 2 : group == 32 ? 4 : 0;
    uint64_t words = group == 0 || cols % group ? 0 : (cols / group + 7) / 8;

    return unit ? (words + unit - 1) / unit * unit : 0;
}

/* AWQ's rows of words, and their zeros and scales. */
static int dqw_gemv(ckpt_dequantizing *w, const ckpt_dequant_parts *p)
{
    const ckpt_tensor *words = p->weight, *zero = p->other[0];
    ckpt_words *m = NULL;
    uint64_t pad;
    int rc = dqw_new(w, p, &m);

    if (rc != CKPT_OK)
        return rc;
    if (p->other[1])
        return ckpt_dequant_unfit(w, p, p->other[1]);
    m->layout = CKPT_WORDS_ROWS;
    m->zero_rows = true;
    m->bits = 4;
    m->rows = words->shape[0];
    if (!ckpt_mul(words->shape[1], 8, &m->cols))
        return ckpt_dequant_unfit(w, p, words);
    m->group = w->scheme.group ? w->scheme.group : m->cols;
    pad = dqw_padded(m->cols, m->group);
    if (pad == 0 || !dqw_is(zero, CKPT_I32, m->rows, pad))
        return ckpt_dequant_unfit(w, p, zero);
    m->groups = pad * 8;
    if (!dqw_is(p->scale, p->scale->dtype, m->rows, m->groups))
        return ckpt_dequant_unfit(w, p, p->scale);
    rc = ckpt_words_direction(w, p, m);
    return rc == CKPT_OK ? dqw_put(w, p, m) : rc;
}

int ckpt_dequant_columns(ckpt_dequantizing *w, const ckpt_dequant_parts *p)
{
    bool awq = w->scheme.ways == CKPT_QUANT_AWQ;
    ckpt_words *m = NULL;
    int rc;

    if (!p->other[0])
        return ckpt_fail(w->err, CKPT_EMISSING,
                         "%s: %.200s has no zero points: a tensor .qzeros is missing beside it",
                         ckpt_dequant_path(w), p->weight->name);
    if (w->scheme.ways == CKPT_QUANT_GEMV)
        return dqw_gemv(w, p);
    rc = dqw_new(w, p, &m);
    if (rc != CKPT_OK)
        return rc;
    if (p->scale->ndim != 2)
        return ckpt_dequant_unfit(w, p, p->scale);
    m->layout = awq ? CKPT_WORDS_ACROSS : CKPT_WORDS_DOWN;
    m->less_one = w->scheme.less_one;
    m->bits = awq ? 4 : dqw_bits(w, p);
    if (m->bits == 0 ||
        (awq && !dqw_is(p->other[0], CKPT_I32, p->scale->shape[0], p->weight->shape[1])))
        return ckpt_dequant_unfit(w, p, p->other[0]);
    if (!dqw_size(w, m, p))
        return ckpt_dequant_unfit(w, p, p->scale);
    // without the order of columns all of them would be read, and wrong
    if (!awq && w->scheme.reorders && !m->index && m->groups > 1)
        return ckpt_fail(w->err, CKPT_EMISSING,
                         "%s: %.200s: desc_act is true in config.json, and a tensor .g_idx with "
                         "the group of each column is missing beside it",
                         ckpt_dequant_path(w), p->weight->name);
    rc = ckpt_words_direction(w, p, m);
    return rc == CKPT_OK ? dqw_put(w, p, m) : rc;
}

/* ---- compressed-tensors ---- */

/* The bits of numbers of which so many columns fill the words; 0: none of them, or two. */
static unsigned dqw_packed_bits(const ckpt_dequantizing *w, uint64_t cols, uint64_t words)
{
    unsigned found = 0;
    uint64_t span;

    for (unsigned bits = 1; bits <= 8; bits++) {
        if (!(w->scheme.bits & 1u << bits) || !dqw_span(cols, bits, &span) || span != words)
            continue;
        if (found)
            return 0;
        found = bits;
    }
    return found;
}

/* Set the groups from the shape of the scales. */
static bool dqw_packed_grid(const ckpt_dequantizing *w, ckpt_words *m, const ckpt_tensor *s)
{
    uint64_t size[2] = {m->rows, m->cols}, grid[2] = {1, 1}, block[2];

    m->groups = 1;
    m->group = m->cols;
    if (s->n_elems == 1 && s->ndim < 2)
        return w->scheme.plain;
    if (s->ndim != 2 || s->shape[0] != m->rows)
        return false;
    grid[0] = m->rows;
    grid[1] = m->groups = s->shape[1];
    if (ckpt_quant_block_of(&w->scheme, size, grid, block) != CKPT_OK || block[0] != 1)
        return false;
    m->group = block[1];
    return m->group > 0;
}

/* Read the shape of a weight from its own tensor. */
static int dqw_packed_shape(ckpt_dequantizing *w, const ckpt_dequant_parts *p, int64_t shape[2])
{
    const ckpt_tensor *size = p->other[2];
    int rc;

    if (!size)
        return ckpt_fail(w->err, CKPT_EMISSING, "%s: %.200s: a tensor with its shape is missing",
                         ckpt_dequant_path(w), p->weight->name);
    if (size->n_elems != 2 || (size->dtype != CKPT_I64 && size->dtype != CKPT_I32))
        return ckpt_dequant_unfit(w, p, size);
    rc = ckpt_dequant_small(w, size, CKPT_DTYPE_NONE, shape);
    if (rc != CKPT_OK)
        return rc;
    if (size->dtype == CKPT_I32) {
        int32_t small[2];

        memcpy(small, shape, sizeof small);
        shape[0] = small[0];
        shape[1] = small[1];
    }
    if (shape[0] < 1 || shape[1] < 1 || (uint64_t)shape[0] != p->weight->shape[0])
        return ckpt_fail(w->err, CKPT_EMISMATCH,
                         "%s: %.200s has %" PRIu64 " rows, and the shape in '%.150s' is [%" PRId64
                         ", %" PRId64 "]",
                         ckpt_dequant_path(w), p->weight->name, p->weight->shape[0], size->name,
                         shape[0], shape[1]);
    return CKPT_OK;
}

int ckpt_dequant_packed(ckpt_dequantizing *w, const ckpt_dequant_parts *p)
{
    int64_t shape[2] = {0, 0};
    ckpt_words *m = NULL;
    uint64_t span = 0;
    int rc = dqw_new(w, p, &m);

    if (rc == CKPT_OK)
        rc = dqw_packed_shape(w, p, shape);
    if (rc != CKPT_OK)
        return rc;
    m->layout = CKPT_WORDS_ROWS;
    m->may_be_plain = true;
    m->rows = (uint64_t)shape[0];
    m->cols = (uint64_t)shape[1];
    m->bits = dqw_packed_bits(w, m->cols, p->weight->shape[1]);
    if (m->bits == 0 || !(m->zero ? w->scheme.uneven : w->scheme.even))
        return ckpt_fail(w->err, CKPT_EMISMATCH,
                         "%s: %.200s: %" PRIu64 " words for %" PRId64
                         " columns, %s zero points, are "
                         "not what config.json says (%.100s)",
                         ckpt_dequant_path(w), p->weight->name, p->weight->shape[1], shape[1],
                         m->zero ? "with" : "without", ckpt_dequant_how(w));
    if (!dqw_packed_grid(w, m, p->scale))
        return ckpt_dequant_unfit(w, p, p->scale);
    m->middle = (float)(1u << (m->bits - 1));
    // the zero of a whole tensor is not packed
    if (m->zero && m->zero->dtype == CKPT_I8 && m->zero->n_elems == 1 && p->scale->n_elems == 1) {
        int8_t zero = 0;

        rc = ckpt_dequant_small(w, p->other[0], CKPT_DTYPE_NONE, &zero);
        m->middle += (float)zero;
        m->zero = NULL;
    }
    if (rc != CKPT_OK)
        return rc;
    if (m->zero &&
        !(dqw_span(m->rows, m->bits, &span) && dqw_is(m->zero, CKPT_I32, span, m->groups)))
        return ckpt_dequant_unfit(w, p, p->other[0]);
    return dqw_put(w, p, m);
}
