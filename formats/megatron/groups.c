/* SPDX-License-Identifier: Apache-2.0 */
/*
 * groups.c: assigns parameters to the groups of an optimizer.
 *
 * param_groups are saved without the names of their parameters, so Megatron-LM's rules are applied:
 * parameters with one axis and those named ".bias" have no weight decay (wd_mult 0); experts that
 * are spread over ranks have their own groups, and so have embedding and output layer with their
 * own learning rate (is_decoupled_lr, or the run's decoupled_lr).  Norms of queries and keys have
 * weight decay if the run sets apply_wd_to_qk_layernorm.  Megatron-FSDP saves names, so its groups
 * list them.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "formats/megatron/megatron.h"

static bool mgg_true(const ckpt_value *settings, const char *key)
{
    const ckpt_value *v = ckpt_value_get(settings, key);

    return v && v->kind == CKPT_V_BOOL && v->as.i;
}

static bool mgg_number(const ckpt_value *v, double *out)
{
    if (!v || (v->kind != CKPT_V_FLOAT && v->kind != CKPT_V_INT))
        return false;
    *out = v->kind == CKPT_V_FLOAT ? v->as.f : (double)v->as.i;
    return true;
}

int ckpt_meg_groups_add(ckpt_meg_groups *out, const ckpt_meg_job *job, const ckpt_value *list,
                        const double *step)
{
    ckpt_seq s = ckpt_value_seq(list);

    if (!list || list->kind != CKPT_V_LIST)
        return ckpt_fail(job->err, CKPT_EFORMAT, "%s: the optimizer's param_groups are not a list",
                         job->map->path);
    for (uint64_t i = 0; i < s.n; i++) {
        double mult = 1, count = step ? *step : -1, lr = -1, own = -2;
        ckpt_meg_group *g = ckpt_vec_push(out);
        if (!g)
            return ckpt_fail_memory(job->err);
        if (s.at[i]->kind != CKPT_V_DICT)
            return ckpt_fail(job->err, CKPT_EFORMAT, "%s: a parameter group is not a dict",
                             job->map->path);
        (void)mgg_number(ckpt_value_get(s.at[i], "wd_mult"), &mult);
        (void)mgg_number(ckpt_value_get(s.at[i], "step"), &count);
        (void)mgg_number(ckpt_value_get(s.at[i], "max_lr"), &lr);
        (void)mgg_number(ckpt_meg_value(job, "decoupled_lr"), &own);
        *g = (ckpt_meg_group){.settings = s.at[i],
                              .decays = mult > 0,
                              .expert = mgg_true(s.at[i], "is_expert_parallel"),
                              .decoupled = mgg_true(s.at[i], "is_decoupled_lr") || lr == own,
                              .norms_decay = ckpt_meg_flag(job, "apply_wd_to_qk_layernorm"),
                              .has_step = count >= 0 && count < 1e15};
        g->step = g->has_step ? (int64_t)count : 0;
    }
    return CKPT_OK;
}

static bool mgg_ends(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);

    return n >= k && strcmp(name + n - k, end) == 0;
}

/* True for embedding and output layer, which may have their own learning rate. */
static bool mgg_decoupled(const char *name)
{
    return mgg_ends(name, "word_embeddings.weight") || mgg_ends(name, "output_layer.weight");
}

bool ckpt_meg_decays(const char *name, uint32_t ndim)
{
    assert(name);
    return ndim > ckpt_meg_stacked(name) + 1 && !mgg_ends(name, ".bias");
}

static int mgg_compare(const void *key, const void *name)
{
    return strcmp(key, *(const char *const *)name);
}

/* The number of the group that lists a parameter. */
static size_t mgg_listed(const ckpt_meg_groups *groups, const char *name)
{
    for (size_t i = 0; i < groups->n; i++) {
        const ckpt_meg_group *g = &groups->at[i];
        if (bsearch(name, g->name, g->n_names, sizeof *g->name, mgg_compare))
            return i;
    }
    return groups->n;
}

size_t ckpt_meg_group_of(const ckpt_meg_groups *groups, const char *name, uint32_t ndim)
{
    assert(groups && name);
    bool decays = ckpt_meg_decays(name, ndim);
    bool norm = strstr(name, "q_layernorm.") || strstr(name, "k_layernorm.");
    bool experts = false, decoupled = false;
    size_t found = groups->n;

    if (groups->n > 0 && groups->at[0].name)
        return mgg_listed(groups, name);
    for (size_t i = 0; i < groups->n; i++) {
        experts = experts || groups->at[i].expert;
        decoupled = decoupled || groups->at[i].decoupled;
    }
    for (size_t i = 0; i < groups->n; i++) {
        const ckpt_meg_group *g = &groups->at[i];
        if (g->decays != (decays || (norm && g->norms_decay)) ||
            (experts && g->expert != ckpt_meg_is_expert(name)) ||
            (decoupled && g->decoupled != mgg_decoupled(name)))
            continue;
        if (found < groups->n)
            return groups->n;
        found = i;
    }
    return found;
}
