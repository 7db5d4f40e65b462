/* SPDX-License-Identifier: Apache-2.0 */
/*
 * experts.c: writes the files of a mixture's experts from the parameters of a source without such
 * files.
 *
 *     layer_L_expert_E_mp_rank_00_model_states.pt    {"...deepspeed_experts.E.fc1.weight": tensor}
 *
 * L counts the layers with experts, in the module's order; E is the expert's number in the whole
 * layer (deepspeed/runtime/engine.py, _save_moe_checkpoint).
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/deepspeed/layout/layout.h"
#include "formats/deepspeed/write/write.h"

/* A parameter of an expert. */
typedef struct dwe_param {
    const char *name;
    size_t n_prefix; /* bytes before the expert's number */
    uint64_t number;
    uint32_t layer;
    size_t at; /* index in the map's tensors */
} dwe_param;

CKPT_VEC(dwe_params, dwe_param);

/* Describe a tensor as an expert's parameter; false if it is not one. */
static bool dwe_of(const ckpt_train_job *job, size_t at, dwe_param *p)
{
    const ckpt_tensor *t = job->from->tensors.at[at];
    size_t n;

    *p = (dwe_param){.name = ckpt_state_name(job->state, t), .at = at};
    return t->role != CKPT_ROLE_STATE && t->role != CKPT_ROLE_OTHER &&
           ckpt_train_expert_number(p->name, &p->n_prefix, &n, &p->number);
}

static bool dwe_same_layer(const dwe_param *a, const dwe_param *b)
{
    return a->n_prefix == b->n_prefix && memcmp(a->name, b->name, a->n_prefix) == 0;
}

/* Sort by layer, then expert, then the map's order. */
static int dwe_order(const void *a, const void *b)
{
    const dwe_param *x = a, *y = b;

    if (x->layer != y->layer)
        return x->layer < y->layer ? -1 : 1;
    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

/* Collect the experts' parameters, sorted; layers are numbered in the map's order. */
static int dwe_find(const ckpt_train_job *job, dwe_params *all)
{
    dwe_params layer = {0};
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < job->from->tensors.n; i++) {
        dwe_param p, *slot;
        size_t k = layer.n;
        if (!dwe_of(job, i, &p))
            continue;
        // search from the end, because parameters of a layer are neighbours
        while (k > 0 && !dwe_same_layer(&p, &layer.at[k - 1]))
            k--;
        p.layer = (uint32_t)(k > 0 ? k - 1 : layer.n);
        slot = k > 0 ? NULL : ckpt_vec_push(&layer);
        if (slot)
            *slot = p;
        else if (k == 0)
            rc = ckpt_fail_memory(job->err);
        slot = rc == CKPT_OK ? ckpt_vec_push(all) : NULL;
        if (!slot)
            rc = ckpt_fail_memory(job->err);
        else
            *slot = p;
    }
    ckpt_vec_free(&layer);
    if (all->n > 0)
        qsort(all->at, all->n, sizeof *all->at, dwe_order);
    return rc;
}

bool ckpt_dsw_has_experts(const ckpt_train_job *job)
{
    dwe_param p;
    bool has = false;

    for (size_t i = 0; !has && i < job->from->tensors.n; i++)
        has = dwe_of(job, i, &p);
    return has;
}

/* Write one expert's file with its n parameters. */
static int dwe_file(const ckpt_train_job *job, const ckpt_dsw_how *how,
                    const ckpt_dsw_layout *layout, const dwe_param *p, size_t n)
{
    const char *name = ckpt_arena_printf(job->to->arena,
                                         "layer_%" PRIu32 "_expert_%" PRIu64 "_mp_rank_%02" PRIu32
                                         "_model_states.pt",
                                         p->layer, p->number, job->state->mp);
    ckpt_torch_tree t = {0};
    ckpt_value *root;

    if (!name)
        return ckpt_fail_memory(job->err);
    if (ckpt_tt_begin(&t, job->to, job->from, name, job->err) == CKPT_OK)
        job->to->files.at[t.file].rank = UINT32_MAX;
    root = t.rc == CKPT_OK ? ckpt_tt_new(&t, CKPT_V_DICT) : NULL;
    for (size_t i = 0; t.rc == CKPT_OK && i < n; i++) {
        const ckpt_tensor *tensor = job->from->tensors.at[p[i].at];
        ckpt_dtype d = layout->home[p[i].at] ? how->dtype : tensor->dtype;
        ckpt_tt_put_at(&t, root, ckpt_tt_str(&t, p[i].name),
                       ckpt_tt_whole(&t, ckpt_dsw_donor(tensor, d), d));
    }
    return ckpt_tt_end(&t, root);
}

int ckpt_dsw_expert_files(const ckpt_train_job *job, const ckpt_dsw_how *how,
                          const ckpt_dsw_layout *layout)
{
    dwe_params all = {0};
    int rc = dwe_find(job, &all);

    for (size_t i = 0, end; rc == CKPT_OK && i < all.n; i = end) {
        for (end = i + 1; end < all.n && all.at[end].layer == all.at[i].layer &&
                          all.at[end].number == all.at[i].number;)
            end++;
        rc = dwe_file(job, how, layout, &all.at[i], end - i);
    }
    ckpt_vec_free(&all);
    return rc;
}

ckpt_value *ckpt_dsw_num_experts(ckpt_dsw_file *f)
{
    ckpt_value *list = ckpt_tt_new(&f->t, CKPT_V_LIST);
    dwe_params all = {0};

    if (f->t.rc == CKPT_OK)
        f->t.rc = dwe_find(f->job, &all);
    for (size_t i = 0, end; f->t.rc == CKPT_OK && i < all.n; i = end) {
        for (end = i + 1; end < all.n && all.at[end].layer == all.at[i].layer;)
            end++;
        // numbers begin at 0, so the last one is the highest
        ckpt_tt_add(&f->t, list, ckpt_tt_int(&f->t, (int64_t)all.at[end - 1].number + 1));
    }
    ckpt_vec_free(&all);
    return list;
}
