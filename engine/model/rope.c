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
 * Rotation angle per position of pair j: theta^(-2j / width), with the width of a head's rotated
 * part, in fp32 as in transformers.  llama3 stretches the low frequencies and interpolates in
 * between (Llama 3.1, arXiv 2407.21783; formula as in config.json's rope_scaling).
 */
static float rt_frequency(const zt_model_config *f, uint64_t j)
{
    float power = (float)(2 * j) / (float)rt_width(f);
    float inv = 1.0F / (float)pow(f->rope_theta, (double)power);
    double length = 2.0 * 3.14159265358979323846 / (double)inv;
    double smooth;

    if (!f->rope_llama3 || length < f->rope_old / f->rope_high)
        return inv;
    if (length > f->rope_old / f->rope_low)
        return (float)((double)inv / f->rope_factor);
    smooth = (f->rope_old / length - f->rope_low) / (f->rope_high - f->rope_low);
    return (float)((1.0 - smooth) * (double)inv / f->rope_factor + smooth * (double)inv);
}

static void rt_fill(const zt_model *m, uint64_t rows, float *cos_table, float *sin_table)
{
    uint64_t half = rt_width(&m->config) / 2;
    const ckpt_dtype dt = m->config.rope_exact ? CKPT_F32 : m->dtype;

    for (uint64_t j = 0; j < half; j++) {
        float inv = rt_frequency(&m->config, j);

        for (uint64_t i = 0; i < rows; i++) {
            double angle = (double)((float)i * inv);

            cos_table[i * half + j] = (float)zt_round_to(dt, cos(angle));
            sin_table[i * half + j] = (float)zt_round_to(dt, sin(angle));
        }
    }
}

/*
 * Make tables for at least seq positions on the device; false: out of memory, an error that the
 * device remembers.
 */
static bool rt_tables(zt_model *m, uint64_t seq)
{
    zt_own *own = zt_own_of(m);
    zt_device *d = m->device;
    uint64_t n = seq * (rt_width(&m->config) / 2);
    float *host;

    if (own->rope_rows >= seq)
        return true;
    d->ops->release(d, own->cos_table);
    d->ops->release(d, own->sin_table);
    own->rope_rows = 0;
    own->cos_table = d->ops->alloc(d, n * sizeof *host);
    own->sin_table = d->ops->alloc(d, n * sizeof *host);
    host = ckpt_alloc(2 * n * sizeof *host);
    if (!own->cos_table || !own->sin_table || !host) {
        ckpt_free(host);
        zt_device_fail(d, CKPT_ELIMIT, "out of memory for the table of rotary positions");
        return false;
    }
    rt_fill(m, seq, host, host + n);
    d->ops->put(d, own->cos_table, host, n * sizeof *host);
    d->ops->put(d, own->sin_table, host + n, n * sizeof *host);
    own->rope_rows = seq;
    ckpt_free(host);
    return true;
}

void zt_rotate(const zt_call *c, zt_rope *a)
{
    zt_model *m = c->m;

    zt_cache *cache = c->p->in.cache;

    a->rows = c->rows;
    a->seq = c->p->in.seq;
    a->width = m->config.head_width;
    a->turned = rt_width(&m->config);
    if (!rt_tables(m, cache ? zt_cache_room(cache) : a->seq))
        return;
    a->cos = zt_own_of(m)->cos_table;
    a->sin = zt_own_of(m)->sin_table;
    if (cache) {
        const zt_rows cosines = {
            .rows = zt_own_of(m)->rope_rows, .width = a->turned / 2, .from = a->cos};
        zt_rows sines = cosines;

        sines.from = a->sin;
        a->seq = c->rows;
        a->cos = zt_cache_turns(cache, 0, &cosines, c->rows);
        a->sin = zt_cache_turns(cache, 1, &sines, c->rows);
    }
    m->device->ops->rope(m->device, m->dtype, a);
}
