/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuse.c: splits a module of Flux into the modules that diffusers has in its place, and joins them.
 *
 * Flux computes query, key and value with one matrix, of which each takes some rows; single blocks
 * add the rows of the MLP.  An adapter of the one matrix becomes adapters of the parts in one of
 * two ways, and the reverse way gives the same bytes:
 *
 *     the parts share lora_down, and each has its rows of lora_up;
 *     or lora_up is block-diagonal, as in adapters that were trained part by part: each part has
 *     its own rows of lora_down, too, and parts with zeros only have no adapter.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/peft/diffusion/lora.h"
#include "libckpt/base/dtype.h"
#include "libckpt/map/nest.h"

enum {
    DF_CHUNK = 1 << 18, /* bytes that are read at a time */
    DF_MLP = 4,         /* Flux: outputs of the MLP per hidden unit */
    DF_PIECES = 3 * CKPT_DL_PARTS
};

/* A block of a matrix that is made. */
typedef struct df_piece {
    const ckpt_tensor *from; /* a matrix; NULL: zeros */
    uint64_t from_row, from_col;
    uint64_t row, col, rows, cols; /* place and size in the new matrix */
} df_piece;

/* A matrix to make. */
typedef struct df_matrix {
    const char *name;
    uint64_t rows, cols;
    df_piece piece[DF_PIECES];
    uint32_t n;
} df_matrix;

static void df_add(df_matrix *m, df_piece piece)
{
    assert(m->n < DF_PIECES);
    if (piece.rows > 0 && piece.cols > 0)
        m->piece[m->n++] = piece;
}

static int df_zeros(ckpt_dl_work *w)
{
    const ckpt_source zeros = {.kind = CKPT_SOURCE_ZERO, .name = "zeros"};

    return w->zeros != UINT32_MAX ? CKPT_OK
                                  : ckpt_map_add_source(w->map, &zeros, &w->zeros, w->err);
}

/* Make a matrix of the dtype of `like`, outside of the list until the work is done. */
static int df_make(ckpt_dl_work *w, const df_matrix *m, const ckpt_tensor *like)
{
    const int64_t size = ckpt_dtype_bits(like->dtype) / 8;
    const uint64_t shape[2] = {m->rows, m->cols};
    const ckpt_tensor of = {.dtype = like->dtype,
                            .export_dtype = like->export_dtype,
                            .ndim = 2,
                            .shape = shape,
                            .file = like->file};
    ckpt_axis axis[DF_PIECES][2];
    ckpt_extent extent[DF_PIECES];
    ckpt_tensor *made = NULL, **slot;
    int rc = m->name ? df_zeros(w) : ckpt_fail_memory(w->err);

    if (rc == CKPT_OK)
        rc = ckpt_map_add_hidden(w->map, m->name, strlen(m->name), &of, &made, w->err);
    for (uint32_t i = 0; rc == CKPT_OK && i < m->n; i++) {
        const df_piece *p = &m->piece[i];
        const int64_t across = p->from ? size : 0;
        const uint64_t cols = p->from ? p->from->shape[1] : 0;

        axis[i][0] = (ckpt_axis){p->row, p->rows, (int64_t)cols * across};
        axis[i][1] = (ckpt_axis){p->col, p->cols, across};
        extent[i] = (ckpt_extent){.source = w->zeros,
                                  .ndim = 2,
                                  .at = (p->from_row * cols + p->from_col) * (uint64_t)size,
                                  .axis = axis[i]};
        if (!p->from)
            continue;
        const ckpt_tensor *hidden = ckpt_nest_hide(w->map, p->from, w->err);
        rc = hidden ? ckpt_map_add_nested(w->map, hidden, &extent[i].source, w->err) : CKPT_ELIMIT;
    }
    if (rc == CKPT_OK)
        rc = ckpt_map_back(w->map, made, extent, m->n, w->err);
    slot = rc == CKPT_OK ? ckpt_vec_push(&w->made) : NULL;
    if (slot)
        *slot = made;
    return rc != CKPT_OK ? rc : slot ? CKPT_OK : ckpt_fail_memory(w->err);
}

/* Refuse factors that are no matrices of whole bytes. */
static int df_check(const ckpt_dl_work *w, const ckpt_dl_module *m)
{
    const ckpt_tensor *t[] = {m->down, m->up};

    for (size_t i = 0; i < 2; i++) {
        if (t[i]->ndim != 2 || ckpt_dtype_packed(t[i]->dtype) ||
            ckpt_dtype_bits(t[i]->dtype) % 8 != 0)
            return ckpt_fail(w->err, CKPT_EMISMATCH,
                             "tensor %.200s: expected a matrix of floats, which can be cut",
                             t[i]->name);
    }
    return CKPT_OK;
}

/* ---- splitting ---- */

/* The rows of each part. */
static int df_rows(const ckpt_dl_work *w, const ckpt_dl_module *m, uint64_t *rows)
{
    const uint32_t n = m->row->n_parts;
    const uint64_t hidden = m->down->shape[1], all = m->up->shape[0];
    const bool mlp = n == CKPT_DL_PARTS;

    if (hidden == 0 || all / hidden < 3 || (mlp ? all == 3 * hidden : all != 3 * hidden))
        return ckpt_fail(w->err, CKPT_EMISMATCH,
                         "tensor %.200s has %" PRIu64 " rows, expected %s3 times the %" PRIu64
                         " columns of %.200s",
                         m->up->name, all, mlp ? "more than " : "", hidden, m->down->name);
    for (uint32_t p = 0; p < 3; p++)
        rows[p] = hidden;
    if (mlp)
        rows[3] = all - 3 * hidden;
    return CKPT_OK;
}

/* Set used[p * rank + c] if column c of lora_up is not all zeros in the rows of part p. */
static int df_used(const ckpt_dl_work *w, const ckpt_dl_module *m, const uint64_t *rows,
                   uint8_t *used)
{
    const uint64_t rank = m->up->shape[1], size = ckpt_dtype_bits(m->up->dtype) / 8u;
    const uint64_t room = DF_CHUNK / size;
    uint8_t *buf = ckpt_alloc(DF_CHUNK);
    ckpt_reader *r = NULL;
    uint64_t bound = rows[0];
    uint32_t part = 0;
    int rc = buf ? ckpt_reader_new(&r, w->map, w->err) : ckpt_fail_memory(w->err);

    for (uint64_t at = 0; rc == CKPT_OK && at < m->up->n_elems;) {
        const uint64_t left = m->up->n_elems - at, n = left < room ? left : room;

        rc = ckpt_reader_read(r, m->up, at, n, CKPT_DTYPE_NONE, buf, w->err);
        for (uint64_t i = 0; rc == CKPT_OK && i < n * size; i++) {
            const uint64_t e = at + i / size;

            while (e / rank >= bound)
                bound += rows[++part];
            if (buf[i])
                used[part * rank + e % rank] = 1;
        }
        at += n;
    }
    ckpt_reader_free(r);
    ckpt_free(buf);
    return rc;
}

/*
 * Find the parts with their own columns of a block-diagonal lora_up; 0: it is not block-diagonal,
 * or all zeros.
 */
static uint32_t df_diagonal(const uint8_t *used, uint64_t rank, uint32_t n_parts, bool *has)
{
    uint32_t n = 0, before = 0;

    for (uint32_t p = 0; p < n_parts; p++) {
        has[p] = memchr(used + p * rank, 1, rank) != NULL;
        n += has[p];
    }
    if (n == 0 || rank % n != 0)
        return 0;
    for (uint32_t p = 0; p < n_parts; p++) {
        for (uint64_t c = 0; has[p] && c < rank; c++) {
            if (used[p * rank + c] && c / (rank / n) != before)
                return 0;
        }
        before += has[p];
    }
    return n;
}

/* Make the modules of diffusers; n is that of df_diagonal. */
static int df_split(ckpt_dl_work *w, const ckpt_dl_module *m, const uint64_t *rows, const bool *has,
                    uint32_t n)
{
    const uint64_t rank = m->up->shape[1], own = n > 0 ? rank / n : rank;
    uint64_t row = 0, col = 0;
    int rc = CKPT_OK;

    for (uint32_t p = 0; rc == CKPT_OK && p < m->row->n_parts; p++) {
        const char *name = m->row->part[p];
        df_matrix down = {ckpt_dl_name(w, name, CKPT_DL_DOWN), own, m->down->shape[1], {{0}}, 0};
        df_matrix up = {ckpt_dl_name(w, name, CKPT_DL_UP), rows[p], own, {{0}}, 0};

        df_add(&down, (df_piece){m->down, col, 0, 0, 0, down.rows, down.cols});
        df_add(&up, (df_piece){m->up, row, col, 0, 0, up.rows, up.cols});
        row += rows[p];
        if (n > 0 && !has[p])
            continue;
        col += n > 0 ? own : 0;
        rc = df_make(w, &down, m->down);
        if (rc == CKPT_OK)
            rc = df_make(w, &up, m->up);
        if (rc == CKPT_OK)
            rc = ckpt_dl_target_add(w, name, own, n > 0 ? m->alpha / n : m->alpha);
    }
    return rc;
}

int ckpt_dl_split(ckpt_dl_work *w, const ckpt_dl_module *m)
{
    assert(w && m && m->part == CKPT_DL_WHOLE);
    uint64_t rows[CKPT_DL_PARTS] = {0};
    bool has[CKPT_DL_PARTS] = {false};
    int rc = df_check(w, m);
    uint8_t *used = NULL;

    if (rc == CKPT_OK)
        rc = df_rows(w, m, rows);
    // bytes per part and column, so fewer than those of lora_up
    if (rc == CKPT_OK) {
        used = ckpt_alloc((size_t)m->row->n_parts * m->up->shape[1]);
        rc = used ? df_used(w, m, rows, used) : ckpt_fail_memory(w->err);
    }
    if (rc == CKPT_OK)
        rc = df_split(w, m, rows, has, df_diagonal(used, m->up->shape[1], m->row->n_parts, has));
    ckpt_free(used);
    return rc;
}

/* ---- joining ---- */

/* The rows of the MLP in single blocks, from any module that shows them. */
static uint64_t df_mlp_rows(const ckpt_dl_work *w, uint64_t hidden)
{
    for (size_t i = 0; i < w->modules.n; i++) {
        const ckpt_dl_module *m = &w->modules.at[i];

        if (m->row->n_parts == CKPT_DL_PARTS && m->part == 3)
            return m->up->shape[0];
        // the output of a single block takes the attention's and the MLP's values
        if (strstr(m->row->comfyui, ".linear2") && m->down->shape[1] > hidden)
            return m->down->shape[1] - hidden;
    }
    return DF_MLP * hidden;
}

/* Compare lora_down of two modules byte by byte. */
static int df_equal(const ckpt_dl_work *w, const ckpt_tensor *a, const ckpt_tensor *b, bool *equal)
{
    const uint64_t size = ckpt_dtype_bits(a->dtype) / 8u, room = DF_CHUNK / size;
    uint8_t *buf = ckpt_alloc((size_t)2 * DF_CHUNK);
    ckpt_reader *r = NULL;
    int rc = buf ? ckpt_reader_new(&r, w->map, w->err) : ckpt_fail_memory(w->err);

    *equal = a->n_elems == b->n_elems;
    for (uint64_t at = 0; rc == CKPT_OK && *equal && at < a->n_elems; at += room) {
        const uint64_t left = a->n_elems - at, n = left < room ? left : room;

        rc = ckpt_reader_read(r, a, at, n, CKPT_DTYPE_NONE, buf, w->err);
        if (rc == CKPT_OK)
            rc = ckpt_reader_read(r, b, at, n, CKPT_DTYPE_NONE, buf + DF_CHUNK, w->err);
        *equal = rc == CKPT_OK && memcmp(buf, buf + DF_CHUNK, n * size) == 0;
    }
    ckpt_reader_free(r);
    ckpt_free(buf);
    return rc;
}

/* Check that the parts fit each other, and find whether they share lora_down. */
static int df_fit(const ckpt_dl_work *w, const ckpt_dl_module *m, uint32_t n, const uint64_t *rows,
                  bool *shared)
{
    int rc = df_check(w, m);

    *shared = n == m->row->n_parts;
    for (uint32_t i = 0; rc == CKPT_OK && i < n; i++) {
        const double rank = (double)m->down->shape[0], own = (double)m[i].down->shape[0];

        rc = df_check(w, &m[i]);
        if (rc == CKPT_OK &&
            (m[i].down->shape[1] != m->down->shape[1] || m[i].up->shape[0] != rows[m[i].part] ||
             m[i].down->dtype != m->down->dtype || m[i].up->dtype != m->up->dtype))
            rc = ckpt_fail(w->err, CKPT_EMISMATCH,
                           "tensors %.150s and %.150s have shapes or dtypes that cannot become "
                           "those of one module, %.150s",
                           m->up->name, m[i].up->name, m->row->comfyui);
        if (rc == CKPT_OK && m[i].alpha * rank != m->alpha * own)
            rc = ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                           "tensors %.150s and %.150s have the scales %g and %g, but they become "
                           "one module, %.150s, with one alpha",
                           m->up->name, m[i].up->name, m->alpha / rank, m[i].alpha / own,
                           m->row->comfyui);
        if (rc == CKPT_OK && *shared && i > 0)
            rc = df_equal(w, m->down, m[i].down, shared);
    }
    return rc;
}

/* The blocks of the joined factors, with zeros outside of the diagonal of lora_up. */
static void df_blocks(df_matrix *down, df_matrix *up, const ckpt_dl_module *m, uint32_t n,
                      const uint64_t *rows, bool shared)
{
    uint64_t row = 0, col = 0;
    uint32_t i = 0;

    for (uint32_t p = 0; p < m->row->n_parts; p++) {
        const bool has = i < n && m[i].part == p;
        const uint64_t own = has ? m[i].down->shape[0] : 0;

        if (has && (!shared || i == 0))
            df_add(down, (df_piece){m[i].down, 0, 0, shared ? 0 : col, 0, own, down->cols});
        if (has)
            df_add(up, (df_piece){m[i].up, 0, 0, row, shared ? 0 : col, rows[p], own});
        row += rows[p];
        col += shared ? 0 : own;
        i += has;
    }
    if (shared)
        return;
    row = col = i = 0;
    for (uint32_t p = 0; p < m->row->n_parts; p++) {
        const bool has = i < n && m[i].part == p;
        const uint64_t own = has ? m[i].down->shape[0] : 0;

        df_add(up, (df_piece){NULL, 0, 0, row, 0, rows[p], col});
        df_add(up, (df_piece){NULL, 0, 0, row, col + own, rows[p], up->cols - col - own});
        row += rows[p];
        col += own;
        i += has;
    }
}

int ckpt_dl_join(ckpt_dl_work *w, const ckpt_dl_module *m, uint32_t n)
{
    assert(w && m && n > 0 && n <= m->row->n_parts);
    const uint64_t hidden = m->down->ndim == 2 ? m->down->shape[1] : 0;
    const uint64_t rows[CKPT_DL_PARTS] = {hidden, hidden, hidden, df_mlp_rows(w, hidden)};
    const char *base = w->to == CKPT_DL_KOHYA ? m->row->kohya : m->row->comfyui;
    df_matrix down = {ckpt_dl_name(w, base, CKPT_DL_DOWN), 0, hidden, {{0}}, 0};
    df_matrix up = {ckpt_dl_name(w, base, CKPT_DL_UP), 0, 0, {{0}}, 0};
    bool shared = false;
    int rc = df_fit(w, m, n, rows, &shared);

    if (rc != CKPT_OK)
        return rc;
    for (uint32_t i = 0; i < (shared ? 1 : n); i++)
        down.rows += m[i].down->shape[0];
    for (uint32_t p = 0; p < m->row->n_parts; p++)
        up.rows += rows[p];
    up.cols = down.rows;
    df_blocks(&down, &up, m, n, rows, shared);
    rc = df_make(w, &down, m->down);
    if (rc == CKPT_OK)
        rc = df_make(w, &up, m->up);
    return rc != CKPT_OK
               ? rc
               : ckpt_dl_scalar(w, base, m->alpha * (double)down.rows / (double)m->down->shape[0],
                                m->down);
}

/* ---- halves ---- */

int ckpt_dl_swap(ckpt_dl_work *w, const ckpt_dl_module *m)
{
    assert(w && m);
    const uint64_t rows = m->up->shape[0], cols = m->up->shape[1];
    df_matrix up = {m->up->name, rows, cols, {{0}}, 0};
    int rc = df_check(w, m);

    if (rc == CKPT_OK && rows % 2 != 0)
        rc =
            ckpt_fail(w->err, CKPT_EMISMATCH,
                      "tensor %.200s has %" PRIu64 " rows, expected two halves", m->up->name, rows);
    df_add(&up, (df_piece){m->up, rows / 2, 0, 0, 0, rows / 2, cols});
    df_add(&up, (df_piece){m->up, 0, 0, rows / 2, 0, rows / 2, cols});
    return rc == CKPT_OK ? df_make(w, &up, m->up) : rc;
}
