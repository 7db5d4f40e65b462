/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage0.c: writes stage 0: the complete optimizer inside the model file, in DeepSpeed's three
 * forms.
 *
 *     plain    fp32: the optimizer's own dict, by parameter number
 *     listed   16 bits: fp32_groups, lists of masters shaped like their parameters
 *              (FP16_UnfusedOptimizer)
 *     flat     16 bits with FusedAdam: fp32_groups_flat, one tensor per group (FP16_Optimizer)
 *
 * The keys of the template show the form; formats/deepspeed/stage0/ reads them.
 */
#include <string.h>

#include "formats/deepspeed/write/write.h"
#include "libckpt/base/dtype.h"

/* ---- one parameter, or one group ---- */

/* Make a value of a parameter's state: a tensor of the map, or a copy of a single value. */
static ckpt_value *dwf_value(ckpt_dsw_file *f, const ckpt_dsw_part *p, size_t i, const ckpt_pair *e)
{
    const ckpt_state *state = f->job->state;
    const ckpt_tensor *param = p->param[i], *moment = NULL;
    bool step = ckpt_value_is(e->key, "step");

    if (e->key->kind == CKPT_V_STR)
        moment = ckpt_state_moment(f->job->from, state, e->key->as.text.at, param);
    if (!step && moment && (state->own || moment->n_elems == param->n_elems))
        return ckpt_tt_whole(&f->t, moment, moment->dtype);
    if (step && !state->own && state->last_step && i + 1 < p->n && e->value->kind == CKPT_V_INT)
        return ckpt_tt_int(&f->t, 0);
    return ckpt_tt_copy(&f->t, e->value);
}

/* The optimizer's entry for one parameter: its own, or its group's. */
static const ckpt_value *dwf_old(const ckpt_train_job *job, const ckpt_dsw_part *p, size_t i)
{
    const ckpt_state *state = job->state;
    const ckpt_group *group = &state->group.at[p->group];
    size_t at = group->first + p->origin[i], end = group->first + group->n;

    if (!state->own)
        return group->entry;
    // a writer may have sorted the group: search for the parameter
    if (state->param.at[at] != p->param[i])
        at = group->first;
    while (at < end && state->param.at[at] != p->param[i])
        at++;
    return at < end ? state->own[at] : NULL;
}

/* Make the state of one parameter; NULL: the optimizer has none. */
static ckpt_value *dwf_param(ckpt_dsw_file *f, const ckpt_dsw_part *p, size_t i)
{
    const ckpt_value *old = dwf_old(f->job, p, i);
    ckpt_dict from = ckpt_value_map(old);
    ckpt_value *dict;

    if (!old || f->how->fresh)
        return NULL;
    // Parameters must not share a step tensor, because torch increments it in place.
    f->t.copied.n = 0;
    dict = ckpt_tt_new(&f->t, CKPT_V_DICT);
    for (uint64_t k = 0; f->t.rc == CKPT_OK && k < from.n; k++)
        ckpt_tt_put_at(&f->t, dict, ckpt_tt_copy(&f->t, from.at[k].key),
                       dwf_value(f, p, i, &from.at[k]));
    return dict;
}

/* Make the tensor for a column of a group; ckpt_dsw_fill fills it. */
static ckpt_value *dwf_column(ckpt_dsw_file *f, const ckpt_dsw_part *p, size_t column)
{
    const ckpt_dsw_column *c = &f->layout->column.at[p->column + column];
    ckpt_storage *s = ckpt_tt_storage(&f->t, c->dtype, p->flat.total);

    if (s)
        *ckpt_dsw_record(f->records, 0, p, column, 0) = s->source;
    return ckpt_tt_flat(&f->t, s, 0, p->flat.total);
}

/* Make the state of a group with flat masters. */
static ckpt_value *dwf_group(ckpt_dsw_file *f, const ckpt_dsw_part *p)
{
    const ckpt_value *old = f->job->state->group.at[p->group].entry;
    ckpt_dict from = ckpt_value_map(old);
    ckpt_value *dict, *v;

    if (!old || f->how->fresh)
        return NULL;
    f->t.copied.n = 0;
    dict = ckpt_tt_new(&f->t, CKPT_V_DICT);
    for (uint64_t k = 0; f->t.rc == CKPT_OK && k < from.n; k++) {
        v = NULL;
        for (size_t c = 1; c < p->n_columns && !v && f->t.rc == CKPT_OK; c++) {
            if (ckpt_value_is(from.at[k].key, f->layout->column.at[p->column + c].key))
                v = dwf_column(f, p, c);
        }
        ckpt_tt_put_at(&f->t, dict, ckpt_tt_copy(&f->t, from.at[k].key),
                       v ? v : ckpt_tt_copy(&f->t, from.at[k].value));
    }
    return dict;
}

/* ---- the optimizer's dict ---- */

/* Make {number: state} of parameters or groups. */
static ckpt_value *dwf_states(ckpt_dsw_file *f, bool flat)
{
    ckpt_value *dict = ckpt_tt_new(&f->t, CKPT_V_DICT), *entry;
    int64_t number = 0;

    for (size_t k = 0; k < f->layout->part.n; k++) {
        const ckpt_dsw_part *p = &f->layout->part.at[k];
        size_t n = flat ? 1 : p->n;
        for (size_t i = 0; f->t.rc == CKPT_OK && i < n; i++, number++) {
            entry = flat ? dwf_group(f, p) : dwf_param(f, p, i);
            if (entry)
                ckpt_tt_put_at(&f->t, dict, ckpt_tt_int(&f->t, number), entry);
        }
    }
    return dict;
}

/* Make param_groups; each lists its numbers. */
static ckpt_value *dwf_param_groups(ckpt_dsw_file *f, bool flat)
{
    ckpt_value *list = ckpt_tt_new(&f->t, CKPT_V_LIST);
    int64_t number = 0;

    for (size_t k = 0; f->t.rc == CKPT_OK && k < f->layout->part.n; k++) {
        const ckpt_dsw_part *p = &f->layout->part.at[k];
        const ckpt_value *old = f->job->state->group.at[p->group].fields;
        ckpt_value *group = old ? ckpt_tt_copy(&f->t, old) : ckpt_tt_new(&f->t, CKPT_V_DICT);
        ckpt_value *params = ckpt_tt_new(&f->t, CKPT_V_LIST);
        for (size_t i = 0; i < (flat ? 1 : p->n); i++)
            ckpt_tt_add(&f->t, params, ckpt_tt_int(&f->t, number++));
        ckpt_tt_put(&f->t, group, "params", params);
        ckpt_tt_add(&f->t, list, group);
    }
    return list;
}

static ckpt_value *dwf_base(ckpt_dsw_file *f, bool flat)
{
    ckpt_value *dict = ckpt_tt_new(&f->t, CKPT_V_DICT);

    ckpt_tt_put(&f->t, dict, "state", dwf_states(f, flat));
    ckpt_tt_put(&f->t, dict, "param_groups", dwf_param_groups(f, flat));
    return dict;
}

/* Make the masters: a tensor per group, or a list of tensors per group. */
static ckpt_value *dwf_masters(ckpt_dsw_file *f, bool flat)
{
    ckpt_value *list = ckpt_tt_new(&f->t, CKPT_V_LIST);

    for (size_t k = 0; f->t.rc == CKPT_OK && k < f->layout->part.n; k++) {
        const ckpt_dsw_part *p = &f->layout->part.at[k];
        ckpt_value *inner = flat ? list : ckpt_tt_new(&f->t, CKPT_V_LIST);
        for (size_t i = 0; f->t.rc == CKPT_OK && i < (flat ? 1 : p->n); i++) {
            ckpt_value *v =
                flat ? dwf_column(f, p, 0) : ckpt_tt_whole(&f->t, p->param[i], CKPT_F32);
            if (v)
                v->as.tensor->flags = CKPT_TENSOR_GRAD;
            ckpt_tt_add(&f->t, inner, v);
        }
        if (!flat)
            ckpt_tt_add(&f->t, list, inner);
    }
    return list;
}

ckpt_value *ckpt_dsw_stage0(ckpt_dsw_file *f, const ckpt_value *old)
{
    ckpt_dsw_stage0_form form = ckpt_dsw_form_of(f->job, f->how);
    ckpt_dict from = ckpt_value_map(old);
    bool flat = form == CKPT_DSW_FLAT;
    ckpt_value *dict;

    if (form == CKPT_DSW_ZERO)
        return ckpt_tt_new(&f->t, CKPT_V_NONE);
    if (form == CKPT_DSW_PLAIN)
        return dwf_base(f, false);
    dict = ckpt_tt_new(&f->t, CKPT_V_DICT);
    for (uint64_t i = 0; f->t.rc == CKPT_OK && i < from.n; i++) {
        const ckpt_value *key = from.at[i].key;
        bool base = ckpt_value_is(key, "optimizer_state_dict");
        bool masters = ckpt_value_is(key, flat ? "fp32_groups_flat" : "fp32_groups");
        ckpt_tt_put_at(&f->t, dict, ckpt_tt_copy(&f->t, key),
                       base      ? dwf_base(f, flat)
                       : masters ? dwf_masters(f, flat)
                                 : ckpt_tt_copy(&f->t, from.at[i].value));
    }
    return dict;
}

/* ---- values that other stages cannot store ---- */

int ckpt_dsw_stage0_left_out(const ckpt_train_job *job, const ckpt_dsw_how *how, bool clip)
{
    static const char *const scale[] = {"cur_scale",          "dynamic_loss_scale", "cur_iter",
                                        "last_overflow_iter", "scale_factor",       "scale_window"};
    const ckpt_value *from = ckpt_value_get(job->state->model, "optimizer");
    bool no_scale = how->new_dtype && job->state->dtype == CKPT_F16;
    int64_t moves = 0;
    int rc = CKPT_OK;

    if (job->state->stage != 0)
        return CKPT_OK;
    (void)ckpt_value_as_int(ckpt_value_get(from, "dynamic_loss_scale"), &moves);
    // a fixed loss scale has no further values
    for (size_t i = no_scale ? 0 : 2; rc == CKPT_OK && i < sizeof scale / sizeof *scale; i++) {
        if (ckpt_value_get(from, scale[i]) && (no_scale || !moves))
            rc = ckpt_train_left_out(job, CKPT_INFO, "optimizer.%s: %s", scale[i],
                                     no_scale ? "the output is not in fp16"
                                              : "the loss scale is fixed");
    }
    if (rc == CKPT_OK && !clip && ckpt_value_get(from, "clip_grad"))
        rc =
            ckpt_train_left_out(job, CKPT_INFO,
                                "optimizer.clip_grad: DeepSpeed does not store it there, but reads "
                                "it from its configuration");
    return rc;
}
