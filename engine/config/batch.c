/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batch.c: owns the three batch sizes: total = micro batch x accumulation steps x ranks.
 *
 * Missing sizes follow from the given ones by integer division, in the order of DeepSpeed
 * (runtime/config.py, _set_batch_related_parameters).  If the product then differs from the total,
 * that is an error.
 */
#include <inttypes.h>

#include "engine/config/fields.h"

/* a * b * c, all above 0; false if it overflows. */
static bool ba_product(int64_t a, int64_t b, int64_t c, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out) && !__builtin_mul_overflow(*out, c, out);
}

/* Compute the missing sizes; false if too few are given, or the product overflows. */
static bool ba_complete(zt_config *c, int64_t world)
{
    bool total = c->train_batch != DS_MISSING, micro = c->micro_batch != DS_MISSING;
    bool steps = c->accumulation != DS_MISSING;

    if (!total && !micro)
        return false;
    if (total && micro) {
        c->accumulation = steps ? c->accumulation : c->train_batch / c->micro_batch / world;
        return true;
    }
    if (!steps)
        c->accumulation = 1;
    if (total) {
        c->micro_batch = c->train_batch / world / c->accumulation;
        return true;
    }
    return ba_product(c->micro_batch, c->accumulation, world, &c->train_batch);
}

int ds_batch(ds_context *x, zt_config *c)
{
    int64_t product = 0;

    if (!ba_complete(c, x->world))
        return ckpt_fail(x->err, CKPT_EUSAGE,
                         "%s: give train_batch_size or train_micro_batch_size_per_gpu (and not "
                         "more than fits 63 bits)",
                         x->name);
    if (c->micro_batch < 1 || c->accumulation < 1 ||
        !ba_product(c->micro_batch, c->accumulation, x->world, &product) ||
        product != c->train_batch)
        return ckpt_fail(x->err, CKPT_EUSAGE,
                         "%s: train_batch_size %" PRId64 " is not train_micro_batch_size_per_gpu "
                         "%" PRId64 " x gradient_accumulation_steps %" PRId64 " x %d ranks; make "
                         "it this product, or leave out one of the three settings",
                         x->name, c->train_batch, c->micro_batch, c->accumulation, x->world);
    return CKPT_OK;
}
