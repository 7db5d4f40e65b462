/* SPDX-License-Identifier: Apache-2.0 */
/* dequant_part.c: implements the functions that decoders of quantized weights share. */
#include "libckpt/transform/dequant_part.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/map/nest.h"

enum {
    DQP_ROUNDED = 4096, /* elements that are rounded twice at a time */
    DQP_STEP = 1 << 16  /* elements that a decoder computes at a time, as F32 in its scratch */
};

void ckpt_dequant_finish(const ckpt_dequant_round *round, void *to, const float *x, uint64_t n)
{
    uint16_t own[DQP_ROUNDED];
    uint64_t wide = ckpt_dtype_get(round->dtype)->bytes;
    uint8_t *at = to;

    if (!round->own && round->narrow)
        round->narrow(to, x, (size_t)n);
    else if (!round->own && to != x)
        memcpy(to, x, (size_t)n * sizeof *x);
    for (uint64_t i = 0, some; round->own && i < n; i += some) {
        some = n - i < DQP_ROUNDED ? n - i : DQP_ROUNDED;
        round->own(own, x + i, (size_t)some);
        round->narrow(at + i * wide, own, (size_t)some);
    }
}

uint32_t ckpt_dequant_number(const uint32_t *word, unsigned bits, uint64_t i)
{
    uint64_t at = i * bits;
    unsigned shift = at % 32;
    uint32_t x = word[at / 32] >> shift;

    if (shift > 0 && shift + bits > 32)
        x |= word[at / 32 + 1] << (32 - shift);
    return x & ((1u << bits) - 1);
}

void ckpt_dequant_unpack(const uint32_t *word, unsigned bits, uint64_t blocks, float *to)
{
    switch (bits) {
    case 4:
        for (uint64_t i = 0; i < blocks * 4; i++) {
            for (unsigned k = 0; k < 8; k++)
                to[i * 8 + k] = (float)(int)(word[i] >> 4 * k & 15);
        }
        return;
    case 8:
        for (uint64_t i = 0; i < blocks * 8; i++) {
            for (unsigned k = 0; k < 4; k++)
                to[i * 4 + k] = (float)(int)(word[i] >> 8 * k & 255);
        }
        return;
    default:
        for (uint64_t b = 0; b < blocks; b++) {
            for (unsigned k = 0; k < 32; k++)
                to[b * 32 + k] = (float)(int)ckpt_dequant_number(word + b * bits, bits, k);
        }
    }
}

/* The shape of a tensor: "[4096, 128]". */
static const char *dqp_shape(char text[120], const ckpt_tensor *t)
{
    size_t n = (size_t)snprintf(text, 120, "[");

    for (uint32_t i = 0; i < t->ndim && n < 90; i++)
        n += (size_t)snprintf(text + n, 120 - n, "%s%" PRIu64, i ? ", " : "", t->shape[i]);
    (void)snprintf(text + n, 120 - n, "]");
    return text;
}

const char *ckpt_dequant_path(const ckpt_dequantizing *w)
{
    return w->map->path ? w->map->path : "memory";
}

const char *ckpt_dequant_how(const ckpt_dequantizing *w)
{
    return w->map->known.quantized ? w->map->known.quantized
                                   : "no config.json says how the weights are quantized";
}

int ckpt_dequant_misfit(const ckpt_dequantizing *w, const ckpt_tensor *t, const ckpt_tensor *scale)
{
    char a[120], b[120];

    return ckpt_fail(w->err, CKPT_EMISMATCH,
                     "%.200s is %s of %s, and '%.150s', its scales, are %s of %s: these are no "
                     "scales for it (%.200s)",
                     t->name, dqp_shape(a, t), ckpt_dtype_name(t->dtype), scale->name,
                     dqp_shape(b, scale), ckpt_dtype_name(scale->dtype), ckpt_dequant_how(w));
}

int ckpt_dequant_unfit(const ckpt_dequantizing *w, const ckpt_dequant_parts *p,
                       const ckpt_tensor *part)
{
    char a[120], b[120];

    return ckpt_fail(w->err, CKPT_EMISMATCH,
                     "%s: %.150s is %s of %s, and %.150s is %s of %s: they do not fit together "
                     "(%.100s)",
                     ckpt_dequant_path(w), p->weight->name, dqp_shape(a, p->weight),
                     ckpt_dtype_name(p->weight->dtype), part->name, dqp_shape(b, part),
                     ckpt_dtype_name(part->dtype), ckpt_dequant_how(w));
}

int ckpt_dequant_turned(const ckpt_dequantizing *w, const ckpt_dequant_parts *p)
{
    return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                     "%s: %.200s: models of this type store weights as [in, out], and ckpt makes "
                     "[out, in] of packed ones",
                     ckpt_dequant_path(w), p->weight->name);
}

void ckpt_dequant_rounding(const ckpt_dequantizing *w, ckpt_dequant_round *round, ckpt_dtype own)
{
    round->dtype = w->rounded ? w->model : own;
    round->own = own != CKPT_F32 && own != round->dtype ? ckpt_cast_find(own, CKPT_F32) : NULL;
    if (round->dtype != CKPT_F32)
        round->narrow = ckpt_cast_find(round->dtype, round->own ? own : CKPT_F32);
    else if (round->own)
        round->narrow = ckpt_cast_find(CKPT_F32, own);
}

int ckpt_dequant_small(ckpt_dequantizing *w, const ckpt_tensor *t, ckpt_dtype dtype, void *buf)
{
    int rc = w->reader ? CKPT_OK : ckpt_reader_new(&w->reader, w->map, w->err);

    return rc == CKPT_OK ? ckpt_reader_read(w->reader, t, 0, t->n_elems, dtype, buf, w->err) : rc;
}

int ckpt_dequant_put(ckpt_dequantizing *w, const ckpt_dequant_parts *p, ckpt_make *make,
                     ckpt_dtype dtype, const uint64_t *shape, uint32_t ndim)
{
    ckpt_tensor *t = p->weight;
    uint32_t source = 0;
    int rc;

    t->name = p->name;
    if (shape) {
        t->ndim = ndim;
        t->shape = shape;
        t->n_elems = 1;
        for (uint32_t i = 0; i < t->ndim; i++) {
            if (!ckpt_mul(t->n_elems, shape[i], &t->n_elems))
                return ckpt_fail(w->err, CKPT_EFORMAT, "%.200s: its size overflows", p->name);
        }
    }
    make->name = p->name;
    make->dtype = dtype;
    make->step = DQP_STEP;
    rc = ckpt_map_add_made(w->map, make, t->n_elems, &source, w->err);
    t->dtype = dtype;
    t->export_dtype = w->own ? dtype : w->model;
    t->twin = t->addend = NULL;
    t->flags &= CKPT_TENSOR_GRAD | CKPT_TENSOR_PARAMETER;
    w->n_made++;
    return rc == CKPT_OK ? ckpt_map_back_whole(w->map, t, source, 0, w->err) : rc;
}
