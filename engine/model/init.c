/* SPDX-License-Identifier: Apache-2.0 */
/*
 * init.c: draws the initial values of parameters.  The distributions are those of transformers, but
 * not the random numbers, because ours depend on (seed, name, index) alone.
 */
#include <string.h>

#include "engine/device/philox.h"
#include "engine/model/model.h"

/* FNV-1a, 64 bits (Fowler, Noll, Vo): enough to distinguish names. */
static uint64_t in_hash(const char *name)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (; *name != '\0'; name++)
        h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return h;
}

/*
 * A bijection in which each input bit affects all output bits (the finalizer of SplitMix64, Steele
 * et al. 2014).
 */
static uint64_t in_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static bool in_ends(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);

    return n >= m && strcmp(name + n - m, end) == 0;
}

/* The row of a word embedding that stays zero because it stands for padding; -1: none. */
static int64_t in_padding(const zt_model *m, const zt_param *p)
{
    const bool words =
        in_ends(p->name, "word_embeddings.weight") || in_ends(p->name, "embed_tokens.weight");

    return words && p->ndim == 2 && p->shape[0] == m->config.vocab ? m->config.padding : -1;
}

static void in_normal(const zt_model *m, const zt_param *p, uint64_t seed, uint64_t first,
                      uint64_t count, float *out)
{
    const int64_t padding = in_padding(m, p);

    zt_philox_normal(in_mix(seed ^ in_mix(in_hash(p->name))), (double)p->init_std, first, count,
                     out);
    if (padding >= 0) {
        const uint64_t from = (uint64_t)padding * p->shape[1], to = from + p->shape[1];

        for (uint64_t i = from > first ? from : first; i < to && i < first + count; i++)
            out[i - first] = 0.0F;
    }
}

void zt_model_draw(const zt_model *m, uint32_t param, uint64_t seed, uint64_t first, uint64_t count,
                   float *out)
{
    const zt_param *p = &m->params.at[param];

    if (p->init == ZT_INIT_NORMAL) {
        in_normal(m, p, seed, first, count, out);
        return;
    }
    for (uint64_t i = 0; i < count; i++)
        out[i] = p->init == ZT_INIT_ONE ? 1.0F : 0.0F;
}
