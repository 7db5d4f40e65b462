/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rope.c: rotates heads of q and k by their positions (Su et al. 2021), with tables of cosines and
 * sines on the device.
 */
#include <math.h>

#include "engine/model/layers.h"

/* Elements of a head that are rotated. */
static uint64_t rt_width(const zt_model_config *f)
{
    return f->rotated != 0 ? f->rotated : f->head_width;
}

/*
 * llama3 stretches the low frequencies and interpolates in between (Llama 3.1, arXiv 2407.21783;
 * formula as in config.json's rope_scaling).
 */
static float rt_llama3(const zt_model_config *f, float inv)
{
    double length = 2.0 * 3.14159265358979323846 / (double)inv;
    double smooth;

    if (length < f->rope_old / f->rope_high)
        return inv;
    if (length > f->rope_old / f->rope_low)
        return (float)((double)inv / f->rope_factor);
    smooth = (f->rope_old / length - f->rope_low) / (f->rope_high - f->rope_low);
    return (float)((1.0 - smooth) * (double)inv / f->rope_factor + smooth * (double)inv);
}

/*
 * Rotation angle per position of pair j: theta^(-2j / width), with the width of a head's rotated
 * part, and scaled, in fp32 as in transformers.
 */
static float rt_frequency(const zt_model_config *f, const zt_rope_table *t, uint64_t j)
{
    const float power = (float)(2 * j) / (float)rt_width(f);
    const double theta = t->local ? f->rope_local : f->rope_theta;
    const float length = (float)pow(theta, (double)power);

    switch (t->local ? ZT_ROPE_DEFAULT : f->rope_kind) {
    case ZT_ROPE_LINEAR:
        return 1.0F / length / (float)f->rope_factor;
    case ZT_ROPE_LLAMA3:
        return rt_llama3(f, 1.0F / length);
    case ZT_ROPE_LONG: // Ding et al. 2024, arXiv 2402.13753
        return 1.0F / ((float)(t->far ? f->rope_long : f->rope_short)[j] * length);
    case ZT_ROPE_DEFAULT:
    default:
        return 1.0F / length;
    }
}

static void rt_fill(const zt_model *m, const zt_rope_table *t, uint64_t rows, float *cos_table,
                    float *sin_table)
{
    const zt_model_config *f = &m->config;
    const uint64_t half = rt_width(f) / 2;
    const ckpt_dtype dt = f->rope_exact ? CKPT_F32 : m->dtype;
    const float by = f->rope_kind == ZT_ROPE_LONG ? (float)f->rope_factor : 1.0F;

    for (uint64_t j = 0; j < half; j++) {
        float inv = rt_frequency(f, t, j);

        for (uint64_t i = 0; i < rows; i++) {
            double angle = (double)((float)i * inv);

            cos_table[i * half + j] = (float)zt_round_to(dt, (double)((float)cos(angle) * by));
            sin_table[i * half + j] = (float)zt_round_to(dt, (double)((float)sin(angle) * by));
        }
    }
}

/*
 * Make tables for at least seq positions on the device; false: out of memory, an error that the
 * device remembers.
 */
static bool rt_tables(zt_model *m, zt_rope_table *t, uint64_t seq)
{
    const zt_model_config *f = &m->config;
    zt_device *d = m->device;
    const bool far = f->rope_kind == ZT_ROPE_LONG && (double)seq > f->rope_old;
    const uint64_t n = seq * (rt_width(f) / 2);
    float *host;

    if (t->rows >= seq && t->far == far)
        return true;
    d->ops->release(d, t->cos);
    d->ops->release(d, t->sin);
    t->rows = 0;
    t->far = far;
    t->cos = d->ops->alloc(d, n * sizeof *host);
    t->sin = d->ops->alloc(d, n * sizeof *host);
    host = ckpt_alloc(2 * n * sizeof *host);
    if (!t->cos || !t->sin || !host) {
        ckpt_free(host);
        zt_device_fail(d, CKPT_ELIMIT, "out of memory for the table of rotary positions");
        return false;
    }
    rt_fill(m, t, seq, host, host + n);
    d->ops->put(d, t->cos, host, n * sizeof *host);
    d->ops->put(d, t->sin, host + n, n * sizeof *host);
    t->rows = seq;
    ckpt_free(host);
    return true;
}

void zt_rotate(const zt_call *c, zt_rope *a)
{
    zt_model *m = c->m;
    const uint32_t block = m->layers.at[c->layer].block;
    const bool local = m->config.rope_local > 0 && m->config.slides && m->config.slides[block];
    zt_rope_table *t = &zt_own_of(m)->rope[local ? 1 : 0];
    zt_cache *cache = c->p->in.cache;

    t->local = local;
    a->rows = c->rows;
    a->seq = c->p->in.seq;
    a->width = m->config.head_width;
    a->turned = rt_width(&m->config);
    if (!rt_tables(m, t, cache ? zt_cache_room(cache) : a->seq))
        return;
    a->cos = t->cos;
    a->sin = t->sin;
    if (cache) {
        const zt_rows cosines = {.rows = t->rows, .width = a->turned / 2, .from = a->cos};
        zt_rows sines = cosines;

        sines.from = a->sin;
        a->seq = c->rows;
        a->cos = zt_cache_turns(cache, 0, &cosines, c->rows);
        a->sin = zt_cache_turns(cache, 1, &sines, c->rows);
    }
    m->device->ops->rope(m->device, m->dtype, a);
}
