/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sample.c: chooses the next token of a text, with the filters of transformers in their order:
 * temperature, the k most probable tokens, the most probable ones with a sum of at least p.
 */
#include <math.h>
#include <stdlib.h>

#include "engine/device/philox.h"
#include "engine/inside.h"

/* The greatest logit; of equal ones the first.  -1: one is not a number. */
static int32_t smp_best(const float *x, uint64_t n)
{
    uint64_t best = 0;

    for (uint64_t i = 0; i < n; i++) {
        if (isnan(x[i]))
            return -1;
        best = x[i] > x[best] ? i : best;
    }
    return isfinite(x[best]) ? (int32_t)best : -1;
}

static int smp_order(const void *a, const void *b)
{
    const zt_candidate *x = a, *y = b;

    return x->logit != y->logit ? (x->logit < y->logit) - (x->logit > y->logit)
                                : (x->id > y->id) - (x->id < y->id);
}

/* Proportional to the probability. */
static double smp_weight(const zt_sampling *s, const zt_candidate *c, float best)
{
    return exp(((double)c->logit - (double)best) / s->temperature);
}

/* Keep the most probable candidates; returns their number.  Tokens as probable as the last of the
 * first k are kept, too. */
static uint64_t smp_filter(const zt_sampling *s, zt_candidate *c, uint64_t n)
{
    double sum = 0, before = 0;
    uint64_t kept = 0;

    qsort(c, n, sizeof *c, smp_order);
    if (s->top_k > 0 && s->top_k < n) {
        const float last = c[s->top_k - 1].logit;
        uint64_t end = s->top_k;

        while (end < n && c[end].logit >= last)
            end++;
        n = end;
    }
    for (uint64_t i = 0; i < n; i++)
        sum += smp_weight(s, &c[i], c[0].logit);
    for (; kept < n && (kept == 0 || before < s->top_p * sum); kept++)
        before += smp_weight(s, &c[kept], c[0].logit);
    return kept;
}

int32_t zt_sample(const zt_sampling *s, const float *logits, uint64_t n, const uint32_t place[2],
                  zt_candidate *room)
{
    const int32_t best = smp_best(logits, n);
    double sum = 0, at;

    if (best < 0 || !(s->temperature > 0))
        return best;
    for (uint64_t i = 0; i < n; i++)
        room[i] = (zt_candidate){logits[i], (int32_t)i};
    if (s->top_k > 0 || s->top_p < 1)
        n = smp_filter(s, room, n);
    for (uint64_t i = 0; i < n; i++)
        sum += smp_weight(s, &room[i], logits[best]);
    at = sum * zt_philox_uniform(s->seed, (uint64_t)place[0] << 32 | place[1]);
    for (uint64_t i = 0; i < n; i++) {
        at -= smp_weight(s, &room[i], logits[best]);
        if (at < 0)
            return room[i].id;
    }
    return best; // the sum was rounded
}
