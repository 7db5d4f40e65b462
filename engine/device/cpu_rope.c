/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_rope.c: computes rotary position embedding on the CPU (Su et al. 2021), rotating halves. */
#include "engine/device/cpu.h"
#include "engine/device/cpu_pool.h"
#include "engine/device/formulas.h"

/* Elements of a head per block: as fp32 they stay in registers and cache. */
#define RO_CHUNK 256u

/* Minimum number of elements for another thread. */
#define RO_WORTH 16384u

typedef struct ro_job {
    ckpt_dtype dt;
    const zt_rope *a;
    uint64_t ld;
    uint64_t half; /* of the rotated elements */
} ro_job;

/* Rotate n pairs of the low and the high half; sign -1: in reverse. */
ZT_CLONES static void ro_rotate(float *low, float *high, const float *c, const float *s, uint64_t n,
                                float sign)
{
    for (uint64_t i = 0; i < n; i += ZT_LANES) {
        zt_v a, b, co, si;

        zt_v_load_part(&a, low + i, n - i);
        zt_v_load_part(&b, high + i, n - i);
        zt_v_load_part(&co, c + i, n - i);
        zt_v_load_part(&si, s + i, n - i);
        si = si * sign;
        zt_f_rotate(&a, &b, &co, &si);
        zt_v_store_part(low + i, &a, n - i);
        zt_v_store_part(high + i, &b, n - i);
    }
}

/* Rotate one head's vector at element `at`; c, s [half]. */
static void ro_head(const ro_job *j, uint64_t at, const float *c, const float *s)
{
    const uint64_t half = j->half;
    const float sign = j->a->inverse ? -1.0F : 1.0F;

    if (j->dt == CKPT_F32) {
        float *x = (float *)j->a->x + at;

        ro_rotate(x, x + half, c, s, half, sign);
        return;
    }
    for (uint64_t i = 0; i < half; i += RO_CHUNK) {
        const uint64_t n = half - i < RO_CHUNK ? half - i : RO_CHUNK;
        float low[RO_CHUNK], high[RO_CHUNK];

        zt_cpu_load(j->dt, low, j->a->x, at + i, n);
        zt_cpu_load(j->dt, high, j->a->x, at + half + i, n);
        ro_rotate(low, high, c + i, s + i, n, sign);
        zt_cpu_store(j->dt, j->a->x, at + i, low, n);
        zt_cpu_store(j->dt, j->a->x, at + half + i, high, n);
    }
}

static void ro_body(void *ctx, uint64_t first, uint64_t last, unsigned worker)
{
    const ro_job *j = (const ro_job *)ctx;
    const zt_rope *a = j->a;
    const uint64_t half = j->half;

    (void)worker;
    for (uint64_t row = first; row < last; row++) {
        const uint64_t at = row % a->seq * half;

        for (uint64_t h = 0; h < a->heads; h++)
            ro_head(j, row * j->ld + h * a->width, a->cos + at, a->sin + at);
    }
}

void zt_cpu_rope(zt_device *d, ckpt_dtype dt, const zt_rope *a)
{
    ro_job j = {.dt = dt, .a = a};

    if (zt_ready(d, dt, zt_ok_rope(a), "rope")) {
        const uint64_t n = a->heads * a->width;

        j.ld = zt_stride(a->ld, n);
        j.half = zt_turned(a) / 2;
        zt_cpu_parallel(d, a->rows, n < RO_WORTH ? RO_WORTH / (n + 1) + 1 : 1, ro_body, &j);
    }
}
