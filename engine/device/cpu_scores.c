/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_scores.c: caps and scales rows of the CPU's attention. */
#include "engine/device/cpu_scores.h"

#include "engine/device/vmath.h"

ZT_CLONES static void sc_cap(float *s, uint64_t n, float cap)
{
    for (uint64_t i = 0; i < n; i += ZT_LANES) {
        zt_v x;

        zt_v_load(&x, s + i);
        x = x / cap;
        zt_v_tanh(&x);
        x = x * cap;
        zt_v_store(s + i, &x);
    }
}

ZT_CLONES static void sc_slope(float *slope, const float *y, uint64_t n, float cap)
{
    for (uint64_t i = 0; i < n; i += ZT_LANES) {
        zt_v x;

        zt_v_load(&x, y + i);
        x = x / cap;
        x = 1.0F - x * x;
        zt_v_store(slope + i, &x);
    }
}

ZT_CLONES static void sc_uncap(float *d, const float *slope, uint64_t n)
{
    for (uint64_t i = 0; i < n; i += ZT_LANES) {
        zt_v x, by;

        zt_v_load(&x, d + i);
        zt_v_load(&by, slope + i);
        x = x * by;
        zt_v_store(d + i, &x);
    }
}

ZT_CLONES static void sc_scale(float *x, uint64_t rows, uint64_t width, const float *factor)
{
    for (uint64_t r = 0; r < rows; r++, x += width) {
        uint64_t i = 0;

        for (; i + ZT_LANES <= width; i += ZT_LANES) {
            zt_v v;

            zt_v_load(&v, x + i);
            v = v * factor[r];
            zt_v_store(x + i, &v);
        }
        for (; i < width; i++)
            x[i] *= factor[r];
    }
}

void zt_scores_cap(float *s, uint64_t n, float cap)
{
    sc_cap(s, n, cap);
}

void zt_scores_slope(float *slope, const float *y, uint64_t n, float cap)
{
    sc_slope(slope, y, n, cap);
}

void zt_scores_uncap(float *d, const float *slope, uint64_t n)
{
    sc_uncap(d, slope, n);
}

void zt_scores_scale(float *x, uint64_t rows, uint64_t width, const float *factor)
{
    sc_scale(x, rows, width, factor);
}
