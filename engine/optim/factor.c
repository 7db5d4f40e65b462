/* SPDX-License-Identifier: Apache-2.0 */
/*
 * factor.c: computes the schedules of transformers, which multiply a group's base rate by a factor
 * of the step (torch's LambdaLR).
 *
 * The order of operations is that of transformers 5.23, optimization.py, so values agree to the
 * last bits.  Checked by test_schedule.c against recorded rates (tests/interop/factors.py).
 */
#include <assert.h>
#include <math.h>

#include "engine/optim/optim.h"

#define FACTOR_PI 3.14159265358979323846

static double factor_most(double a, double b)
{
    return a > b ? a : b;
}

/* Completed part of the steps after the warm-up. */
static double factor_progress(const zt_schedule *s, double step)
{
    double total = (double)s->total, warmup = (double)s->warmup;

    return (step - warmup) / factor_most(1, total - warmup);
}

static double factor_linear(const zt_schedule *s, double step)
{
    double total = (double)s->total, warmup = (double)s->warmup;

    return factor_most(0, (total - step) / factor_most(1, total - warmup));
}

/* A cosine wave; `cosine_with_min_lr` compresses it between min_ratio and 1. */
static double factor_cosine(const zt_schedule *s, double step)
{
    double f = 0.5 * (1.0 + cos(FACTOR_PI * s->cycles * 2.0 * factor_progress(s, step)));

    if (s->type == ZT_HF_COSINE_MIN)
        f = f * (1 - s->min_ratio) + s->min_ratio;
    return factor_most(0, f);
}

static double factor_restarts(const zt_schedule *s, double step)
{
    double progress = factor_progress(s, step);

    if (progress >= 1)
        return 0;
    return factor_most(0, 0.5 * (1.0 + cos(FACTOR_PI * fmod(s->cycles * progress, 1.0))));
}

/* From the initial rate to lr_end, divided by the rate that LambdaLR multiplies by. */
static double factor_polynomial(const zt_schedule *s, double step)
{
    double total = (double)s->total, warmup = (double)s->warmup;
    double left;

    // Python divides by zero if the warm-up takes all steps
    if (step > total || total == warmup)
        return s->lr_end / s->lr_init;
    left = 1 - (step - warmup) / (total - warmup);
    return ((s->lr_init - s->lr_end) * pow(left, s->power) + s->lr_end) / s->lr_init;
}

static double factor_inverse_sqrt(const zt_schedule *s, double step)
{
    double scale = (double)s->timescale;

    return 1.0 / sqrt((step + (scale - (double)s->warmup)) / scale);
}

bool zt_schedule_is_factor(const zt_schedule *s)
{
    return s->type >= ZT_HF_CONSTANT;
}

double zt_schedule_factor(const zt_schedule *s, int64_t applied)
{
    double step = (double)applied;

    assert(zt_schedule_is_factor(s));
    if (s->type != ZT_HF_CONSTANT && applied < s->warmup)
        return step / factor_most(1, (double)s->warmup);
    switch ((int)s->type) {
    case ZT_HF_LINEAR:
        return factor_linear(s, step);
    case ZT_HF_COSINE:
    case ZT_HF_COSINE_MIN:
        return factor_cosine(s, step);
    case ZT_HF_RESTARTS:
        return factor_restarts(s, step);
    case ZT_HF_POLYNOMIAL:
        return factor_polynomial(s, step);
    case ZT_HF_INVERSE_SQRT:
        return factor_inverse_sqrt(s, step);
    default:
        return 1;
    }
}
