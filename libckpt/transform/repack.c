/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repack.c: moves quantized weights into the blocks of another format, without decoding them.
 *
 *    X_blocks, X_scales   gpt-oss' MXFP4, [experts, out, blocks, 16] and [experts, out, blocks]:
 *                         byte k has element 2k in its low bits and element 2k + 1 in its high
 *                         ones. ggml's block is the exponent and 16 bytes, of which byte k has
 *                         element k in its low bits and element k + 16 in its high ones.
 *
 * Both formats number the values of four bits in the same order, and an exponent has the same
 * meaning. ggml decodes code 8, which is -0 in gpt-oss, as +0; the code stays as it is, as in the
 * files that llama.cpp's converter writes.
 *
 * Source: ggml-common.h (block_mxfp4), ggml-quants.c (dequantize_row_mxfp4); checked against
 * llama.cpp's converter of 2026.
 */
#include <string.h>

#include "libckpt/map/nest.h"
#include "libckpt/transform/dequantize.h"

enum {
    RPK_ELEMS = 32, /* elements of a block */
    RPK_CODES = 16, /* bytes of its codes */
    RPK_BLOCK = 17  /* bytes of ggml's block: its exponent and its codes */
};

typedef struct rpk_make {
    ckpt_make make;              /* first */
    const ckpt_tensor *input[2]; /* codes, exponents */
} rpk_make;

/* Put one block together: 16 bytes of gpt-oss' codes, and their exponent. */
static void rpk_block(uint8_t *to, const uint8_t *codes, uint8_t exponent)
{
    const uint8_t *half = codes + RPK_CODES / 2;

    *to++ = exponent;
    for (unsigned k = 0; k < RPK_CODES / 2; k++) {
        to[2 * k] = (uint8_t)((codes[k] & 15) | half[k] << 4);
        to[2 * k + 1] = (uint8_t)(codes[k] >> 4 | (half[k] & 0xf0));
    }
}

/* n and at are whole blocks, because the dtype of the results has blocks. */
static int rpk_run(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                   ckpt_err *err)
{
    const rpk_make *m = (const rpk_make *)(const void *)make;
    const uint64_t first = at / RPK_ELEMS, blocks = n / RPK_ELEMS;
    const ckpt_axis part[2] = {{first * RPK_CODES, blocks * RPK_CODES, 0}, {first, blocks, 0}};
    uint8_t *codes = in->scratch(in, blocks * RPK_BLOCK), *out = to;
    uint8_t *exponents = codes ? codes + blocks * RPK_CODES : NULL;
    int rc = codes ? CKPT_OK : ckpt_fail_memory(err);

    if (rc == CKPT_OK)
        rc = in->read(in, m->input[0], &part[0], CKPT_DTYPE_NONE, codes, err);
    if (rc == CKPT_OK)
        rc = in->read(in, m->input[1], &part[1], CKPT_DTYPE_NONE, exponents, err);
    for (uint64_t i = 0; rc == CKPT_OK && i < blocks; i++)
        rpk_block(out + i * RPK_BLOCK, codes + i * RPK_CODES, exponents[i]);
    return rc;
}

/* Combine [experts, out, blocks, 16] and [experts, out, blocks] to [experts, out, in]. */
int ckpt_repack_mxfp4(ckpt_dequantizing *w, const ckpt_dequant_parts *p)
{
    ckpt_tensor *t = p->weight;
    const ckpt_tensor *s = p->scale;
    uint64_t *shape = ckpt_arena_array(w->map->arena, 3, sizeof *shape);
    rpk_make *m = ckpt_arena_alloc(w->map->arena, sizeof *m);
    int rc = shape && m ? ckpt_dequant_mxfp4_check(w, p) : ckpt_fail_memory(w->err);

    if (rc == CKPT_OK)
        rc = ckpt_map_hide(w->map, t, &m->input[0], w->err);
    if (rc == CKPT_OK)
        rc = ckpt_map_hide(w->map, s, &m->input[1], w->err);
    if (rc != CKPT_OK)
        return rc;
    m->make = (ckpt_make){.n_inputs = 2, .input = m->input, .make = rpk_run};
    shape[0] = t->shape[0];
    shape[1] = t->shape[1];
    if (!ckpt_mul(t->shape[2], RPK_ELEMS, &shape[2]))
        return ckpt_fail(w->err, CKPT_EFORMAT, "%.200s: its size overflows", p->name);
    rc = ckpt_dequant_put(w, p, &m->make, CKPT_MXFP4, shape, 3);
    t->export_dtype = CKPT_DTYPE_NONE;
    w->n_kept++;
    return rc;
}
