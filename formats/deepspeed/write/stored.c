/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stored.c: finds AutoEP's experts of a rank, which are separate parameters in the map but fused
 * into one DeepSpeed parameter.
 */
#include <assert.h>
#include <string.h>

#include "formats/deepspeed/layout/layout.h"
#include "formats/deepspeed/write/write.h"

/* ---- names ---- */

size_t ckpt_dsw_autoep_prefix(const ckpt_state *state, const ckpt_tensor *t)
{
    const char *name = ckpt_state_name(state, t);
    size_t at = 0, n = 0;
    uint64_t number;

    return !strstr(name, CKPT_TRAIN_EXPERTS) && ckpt_train_expert_number(name, &at, &n, &number)
               ? at
               : 0;
}

static bool dwp_same(const ckpt_state *state, const ckpt_tensor *a, const ckpt_tensor *b)
{
    size_t n = ckpt_dsw_autoep_prefix(state, a);

    return n > 0 && n == ckpt_dsw_autoep_prefix(state, b) &&
           memcmp(ckpt_state_name(state, a), ckpt_state_name(state, b), n) == 0;
}

size_t ckpt_dsw_autoep_run(const ckpt_state *state, const ckpt_group *g, size_t i)
{
    assert(g && i <= g->n);
    size_t end = i + 1;

    while (end < g->n &&
           dwp_same(state, state->param.at[g->first + i], state->param.at[g->first + end]))
        end++;
    return end - i;
}

/* ---- parts and orders ---- */

int ckpt_dsw_autoep_part(const ckpt_train_job *job, ckpt_arena *scratch, ckpt_dsw_part *p)
{
    p->one = ckpt_arena_array(scratch, p->n, sizeof *p->one);
    if (!p->one)
        return ckpt_fail_memory(job->err);
    for (size_t i = 0, first = 0; i < p->n; i++) {
        if (i > 0 && dwp_same(job->state, p->param[first], p->param[i])) {
            p->one[first]++;
            p->one[i] = 0;
        } else {
            first = i;
            p->one[i] = 1;
        }
    }
    return CKPT_OK;
}

bool ckpt_dsw_autoep_is(const ckpt_train_job *job, const ckpt_dsw_part *p, size_t i)
{
    assert(i < p->n);
    return p->one && ckpt_dsw_autoep_prefix(job->state, p->param[i]) > 0;
}

int ckpt_dsw_autoep_order(const ckpt_train_job *job, ckpt_arena *scratch, const ckpt_group *g,
                          uint32_t world, uint64_t *order)
{
    size_t n = 0, to = 0;

    for (size_t i = 0; i < g->n; i += ckpt_dsw_autoep_run(job->state, g, i))
        n++;
    uint64_t *stored = ckpt_arena_array(scratch, n, sizeof *stored);
    size_t *first = ckpt_arena_array(scratch, n, sizeof *first);
    if (!stored || !first)
        return ckpt_fail_memory(job->err);
    for (size_t i = 0, k = 0; i < g->n; i += ckpt_dsw_autoep_run(job->state, g, i))
        first[k++] = i;
    ckpt_zero_round_robin(n, world, stored);
    for (size_t k = 0; k < n; k++) {
        size_t from = first[stored[k]], run = ckpt_dsw_autoep_run(job->state, g, from);
        for (size_t i = 0; i < run; i++)
            order[to++] = from + i;
    }
    return CKPT_OK;
}

const char *ckpt_dsw_autoep_name(ckpt_arena *scratch, const char *name)
{
    const char *dot = strrchr(name, '.');

    return ckpt_arena_string(scratch, name, dot ? (size_t)(dot - name) : strlen(name));
}

/* ---- expert-parallel sizes ---- */

bool ckpt_dsw_autoep_fits(const ckpt_state *state, uint32_t world, uint32_t ep)
{
    ckpt_seq layers = ckpt_train_autoep_layers(state);
    bool fits = ep > 0 && world % ep == 0;
    int64_t n = 0;

    for (uint64_t i = 0; fits && i < layers.n; i++)
        fits = ckpt_value_as_int(ckpt_value_get(layers.at[i], "num_experts"), &n) && n % ep == 0;
    return fits;
}

void ckpt_dsw_autoep_lanes(const ckpt_state *s, const ckpt_group *from, uint32_t ep, ckpt_group *to,
                           ckpt_tensor **param)
{
    assert(ep > 0 && to && param);
    size_t n = 0;

    *to = *from;
    to->n_lanes = ep;
    to->n = from->n * from->n_lanes / ep;
    for (uint32_t e = 0; e < ep; e++) {
        for (size_t i = 0, run; i < from->n; i += run) {
            run = ckpt_dsw_autoep_run(s, from, i);
            // expert k of the whole layer is in lane k / run of the source
            size_t each = run * from->n_lanes / ep;
            for (size_t k = e * each; k < (e + 1) * each; k++)
                param[n++] = s->param.at[from->first + k / run * from->n + i + k % run];
        }
    }
}
