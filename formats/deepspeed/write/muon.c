/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muon.c: reproduces the parameter order of DeepSpeed's MuonWithAuxAdam, and its momentum, which is
 * not partitioned.
 *
 * Source: deepspeed/runtime/zero/muon/original_muon.py (the order), stage_1_and_2.py
 * (_muon_momentum_buffer, _apply_muon_updates_cpu_offload) and bf16_optimizer.py of 0.19.8.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/deepspeed/write/write.h"

/* True for a group of matrices that Muon updates. */
static bool dwu_is_muon(const ckpt_group *g)
{
    int64_t on = 0;

    return ckpt_value_as_int(ckpt_value_get(g->fields, "use_muon"), &on) && on;
}

/* True if the run offloads its optimizer to the CPU. */
static bool dwu_offloads(const ckpt_train_job *job)
{
    const ckpt_value *offload =
        ckpt_train_config_get(job->state, "zero_optimization", "offload_optimizer");
    const ckpt_value *device = ckpt_value_get(offload, "device");

    return device && !ckpt_value_is(device, "none");
}

bool ckpt_dsw_is_whole(const ckpt_train_job *job, const ckpt_dsw_how *how, const ckpt_group *g,
                       const char *key)
{
    return (how->stage == 1 || how->stage == 2) && !how->legacy && !how->bf16_optimizer &&
           strcmp(key, "momentum_buffer") == 0 && dwu_is_muon(g) && !dwu_offloads(job);
}

/* ---- order ---- */

typedef struct dwu_place {
    const ckpt_tensor *param;
    size_t at; /* index in the state */
} dwu_place;

/* Sort larger shapes first, compared like Python tuples; equal shapes keep their order. */
static int dwu_by_size(const void *pa, const void *pb)
{
    const dwu_place *a = pa, *b = pb;
    uint32_t n = a->param->ndim < b->param->ndim ? a->param->ndim : b->param->ndim;

    for (uint32_t i = 0; i < n; i++) {
        if (a->param->shape[i] != b->param->shape[i])
            return a->param->shape[i] > b->param->shape[i] ? -1 : 1;
    }
    if (a->param->ndim != b->param->ndim)
        return a->param->ndim > b->param->ndim ? -1 : 1;
    return (a->at > b->at) - (a->at < b->at);
}

/* Sort the n parameters of one lane of a group by size. */
static int dwu_sort(const ckpt_train_job *job, ckpt_dsw_layout *layout, size_t first, size_t n)
{
    dwu_place *place = ckpt_alloc((n + 1) * sizeof *place);

    if (!place)
        return ckpt_fail_memory(job->err);
    for (size_t i = 0; i < n; i++)
        place[i] = (dwu_place){job->state->param.at[first + i], first + i};
    qsort(place, n, sizeof *place, dwu_by_size);
    for (size_t i = 0; i < n; i++)
        layout->given[first + i] = place[i].param;
    ckpt_free(place);
    return CKPT_OK;
}

int ckpt_dsw_given(const ckpt_train_job *job, const ckpt_dsw_how *how, ckpt_dsw_layout *layout)
{
    const ckpt_state *s = job->state;
    int rc = CKPT_OK;

    layout->given = ckpt_alloc((s->param.n + 1) * sizeof *layout->given);
    if (!layout->given)
        return ckpt_fail_memory(job->err);
    for (size_t i = 0; i < s->param.n; i++)
        layout->given[i] = s->param.at[i];
    for (size_t k = 0; rc == CKPT_OK && how->stage < 3 && k < s->group.n; k++) {
        const ckpt_group *g = &s->group.at[k];
        for (uint32_t e = 0; rc == CKPT_OK && dwu_is_muon(g) && e < (g->n_lanes ? g->n_lanes : 1);
             e++)
            rc = dwu_sort(job, layout, g->first + e * g->n, g->n);
    }
    return rc;
}
