/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optim.c: makes the tree of an optimizer file: this rank's slices of masters and moments, and the
 * other values of the optimizer.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/deepspeed/layout/bnb.h"
#include "formats/deepspeed/write/write.h"
#include "formats/training/default_settings.h"
#include "libckpt/base/dtype.h"

/* ---- flat tensors ---- */

/* A slice of a part: the rank's index in the part, and the interval (legacy stage 1). */
typedef struct dwo_at {
    uint32_t index, interval;
} dwo_at;

/*
 * Make the record of a column on this rank, and a view of its first n elements, or of all elements
 * if the state is not partitioned.
 */
static ckpt_value *dwo_flat(ckpt_dsw_file *f, const ckpt_dsw_part *p, size_t column, dwo_at at,
                            uint64_t n)
{
    const ckpt_dsw_column *c = &f->layout->column.at[p->column + column];
    uint64_t size = ckpt_dsw_size(f->layout, p, column, at.index);
    ckpt_storage *s = ckpt_tt_storage(&f->t, c->dtype, size);
    ckpt_value *v = ckpt_tt_flat(&f->t, s, 0, c->whole ? size : n);

    if (s)
        *ckpt_dsw_record(f->records, f->rank, p, column, at.interval) = s->source;
    return v;
}

/* The next part, from *at on, that this rank holds; NULL: no more. */
static const ckpt_dsw_part *dwo_next(const ckpt_dsw_file *f, size_t *at, uint32_t *index)
{
    while (*at < f->layout->part.n) {
        const ckpt_dsw_part *p = &f->layout->part.at[(*at)++];
        if (ckpt_dsw_holds(p, &f->job->state->group.at[p->group], f->rank, index))
            return p;
    }
    return NULL;
}

/* Make ds_id: DeepSpeed's numbers of a sub-group's first and last parameter, which its tensors have
 * since 0.13.0. */
static ckpt_value *dwo_ds_id(ckpt_dsw_file *f, const ckpt_dsw_part *p)
{
    ckpt_value *state = ckpt_tt_new(&f->t, CKPT_V_DICT);
    int64_t id[2] = {-1, -1};

    for (int i = 0; i < 2 && p->n; i++) {
        const char *name = p->param[i ? p->n - 1 : 0]->name;
        size_t at = ckpt_map_index(f->job->from, name, strlen(name));
        id[i] = at == SIZE_MAX ? -1 : f->layout->ds_id[at];
    }
    if (id[0] < 0 || id[1] < 0)
        return NULL;
    const char *text = ckpt_arena_printf(f->t.scratch, "%" PRId64 "_%" PRId64, id[0], id[1]);
    ckpt_tt_put(&f->t, state, "ds_id", text ? ckpt_tt_str(&f->t, text) : NULL);
    return state;
}

/* Make the masters of a part and interval; the saved view excludes padding. */
static ckpt_value *dwo_master(ckpt_dsw_file *f, const ckpt_dsw_part *p, uint32_t index,
                              uint32_t interval)
{
    uint32_t virtual = interval * p->world + index;
    uint64_t n = f->how->stage == 3 ? p->slice : ckpt_dsw_saved(f->how, p, virtual);
    ckpt_value *v = dwo_flat(f, p, 0, (dwo_at){index, interval}, n);

    if (!v)
        return NULL;
    v->as.tensor->flags = CKPT_TENSOR_GRAD;
    if (f->how->stage == 3 && f->how->release >= CKPT_DS_RELEASE(0, 13, 0)) {
        v->as.tensor->state = dwo_ds_id(f, p);
        if (v->as.tensor->state)
            v->as.tensor->type = ckpt_tt_global(&f->t, "torch", "Tensor");
    }
    return v;
}

/* Make the list of masters: a tensor per part, or a list per part with one per interval
 * (legacy). */
static ckpt_value *dwo_masters(ckpt_dsw_file *f, const ckpt_value *old)
{
    ckpt_value *list = ckpt_tt_new(&f->t, CKPT_V_LIST), *inner;
    const ckpt_dsw_part *p;
    uint32_t index;

    (void)old;
    for (size_t at = 0; f->t.rc == CKPT_OK && (p = dwo_next(f, &at, &index));) {
        inner = f->how->legacy ? ckpt_tt_new(&f->t, CKPT_V_LIST) : list;
        for (uint32_t i = 0; i < p->intervals; i++)
            ckpt_tt_add(&f->t, inner, dwo_master(f, p, index, i));
        if (f->how->legacy)
            ckpt_tt_add(&f->t, list, inner);
    }
    return list;
}

/* ---- the optimizer's state ---- */

/* Make a step count of zero, of the source's kind. */
static ckpt_value *dwo_restart(ckpt_dsw_file *f, const ckpt_value *old)
{
    if (old->kind == CKPT_V_INT)
        return ckpt_tt_int(&f->t, 0);
    if (old->kind == CKPT_V_FLOAT)
        return ckpt_tt_float(&f->t, 0);
    if (old->kind == CKPT_V_TENSOR)
        return ckpt_tt_zeros(&f->t, old->as.tensor->dtype, old->as.tensor->shape,
                             old->as.tensor->ndim);
    return ckpt_tt_copy(&f->t, old);
}

/* Index of the column with this name (8-bit moments: that of their codes); 0: there is none. */
static size_t dwo_column_of(const ckpt_dsw_layout *layout, const ckpt_dsw_part *p, const char *name)
{
    for (size_t c = 1; c < p->n_columns; c++) {
        if (strcmp(layout->column.at[p->column + c].key, name) == 0)
            return c;
    }
    return 0;
}

static size_t dwo_column(const ckpt_dsw_layout *layout, const ckpt_dsw_part *p,
                         const ckpt_value *key)
{
    return key->kind == CKPT_V_STR ? dwo_column_of(layout, p, key->as.text.at) : 0;
}

/*
 * Make one tensor of bitsandbytes' state: this rank's slice of codes or scales, or the code table,
 * which is the same on all ranks. NULL without a failure: 32-bit moments have no scales and no
 * table.
 */
static ckpt_value *dwo_stored_tensor(ckpt_dsw_file *f, const ckpt_dsw_part *p, uint32_t index,
                                     const ckpt_ds_bnb *b, const ckpt_pair *e)
{
    const char *key = e->key->as.text.at;
    uint32_t moment = key[e->key->as.text.n - 1] == '2';
    size_t c = moment < b->n ? dwo_column_of(f->layout, p, ckpt_ds_bnb_name(b, moment)) : 0;
    bool coded = c && f->layout->column.at[p->column + c].of == CKPT_DSW_CODES;

    if (c && strncmp(key, "state", 5) == 0)
        return dwo_flat(f, p, c, (dwo_at){index, 0}, p->slice);
    if (coded && strncmp(key, "qmap", 4) == 0)
        return ckpt_tt_copy(&f->t, e->value);
    if (coded)
        return dwo_flat(f, p, c + 1, (dwo_at){index, 0}, ckpt_dsw_size(f->layout, p, c + 1, index));
    return NULL;
}

/*
 * Make a part's state in bitsandbytes' form. `from` is the group's saved state, or the dict inside
 * it that holds the tensors.
 */
static ckpt_value *dwo_stored(ckpt_dsw_file *f, const ckpt_dsw_part *p, uint32_t index,
                              const ckpt_ds_bnb *b, const ckpt_value *from)
{
    ckpt_value *dict = ckpt_tt_new(&f->t, CKPT_V_DICT);
    ckpt_dict all = ckpt_value_map(from);

    for (uint64_t i = 0; f->t.rc == CKPT_OK && i < all.n; i++) {
        const ckpt_pair *e = &all.at[i];
        bool own = from == b->dict && e->key->kind == CKPT_V_STR && !ckpt_value_is(e->key, "step");
        ckpt_value *v = own                   ? dwo_stored_tensor(f, p, index, b, e)
                        : e->value == b->dict ? dwo_stored(f, p, index, b, e->value)
                                              : ckpt_tt_copy(&f->t, e->value);
        if (v)
            ckpt_tt_put_at(&f->t, dict, ckpt_tt_copy(&f->t, e->key), v);
    }
    return dict;
}

/*
 * This rank's value of an entry if values differ by rank, else the group's; NULL: the rank lacks
 * the entry.
 */
static const ckpt_value *dwo_of_rank(const ckpt_dsw_file *f, const ckpt_group *g,
                                     const ckpt_pair *e, bool in_entry)
{
    const ckpt_ranked *r = f->how->ranked ? ckpt_ranked_get(g, e->key, in_entry) : NULL;

    return r && r->at ? r->at[f->rank] : e->value;
}

/* Add the values that this rank has and rank 0 lacks. */
static void dwo_rank_alone(ckpt_dsw_file *f, const ckpt_group *g, ckpt_value *dict, bool in_entry)
{
    const ckpt_value *old = in_entry ? g->entry : g->fields;

    for (const ckpt_ranked *r = f->how->ranked ? g->ranked : NULL; r; r = r->next) {
        if (r->at && r->at[f->rank] && r->in_entry == in_entry &&
            !ckpt_value_get(old, r->key->as.text.at))
            ckpt_tt_put_at(&f->t, dict, ckpt_tt_copy(&f->t, r->key),
                           ckpt_tt_copy(&f->t, r->at[f->rank]));
    }
}

/* Make the state of a part: the group's entry with this rank's slices; NULL if the optimizer keeps
 * none. */
static ckpt_value *dwo_entry(ckpt_dsw_file *f, const ckpt_dsw_part *p, uint32_t index,
                             uint32_t interval)
{
    const ckpt_group *g = &f->job->state->group.at[p->group];
    const ckpt_value *old = g->entry;
    ckpt_dict from = ckpt_value_map(old);
    ckpt_value *dict;

    if (!old || (f->how->fresh && ckpt_dsw_begins_whole(&f->job->state->group.at[p->group])))
        return NULL;
    // Sub-groups must not share a step tensor, because torch increments it in place.
    f->t.copied.n = 0;
    const ckpt_ds_bnb b = ckpt_ds_bnb_look(f->job->state->group.at[p->group].stored);
    if (b.bits)
        return dwo_stored(f, p, index, &b, f->job->state->group.at[p->group].stored);
    dict = ckpt_tt_new(&f->t, CKPT_V_DICT);
    for (uint64_t i = 0; f->t.rc == CKPT_OK && i < from.n; i++) {
        const ckpt_pair *e = &from.at[i];
        size_t c = dwo_column(f->layout, p, e->key);
        uint64_t n = f->how->lean || f->how->legacy
                         ? ckpt_dsw_saved(f->how, p, interval * p->world + index)
                         : p->slice;
        // DeepSpeed has no buffer for a rank without elements of the group.
        if (c && f->layout->column.at[p->column + c].whole &&
            ckpt_dsw_size(f->layout, p, c, index) == 0)
            continue;
        const ckpt_value *own = dwo_of_rank(f, g, e, true);
        if (!c && !own)
            continue;
        ckpt_value *v = c               ? dwo_flat(f, p, c, (dwo_at){index, interval}, n)
                        : f->how->fresh ? dwo_restart(f, e->value)
                                        : ckpt_tt_copy(&f->t, own);
        ckpt_tt_put_at(&f->t, dict, ckpt_tt_copy(&f->t, e->key), v);
    }
    dwo_rank_alone(f, g, dict, true);
    // Legacy stage 1 saves no groups, so their step moves into the state.
    const ckpt_value *step = ckpt_value_get(g->fields, "step");
    if (f->how->legacy && step && !ckpt_value_get(old, "step"))
        ckpt_tt_put(&f->t, dict, "step",
                    f->how->fresh ? dwo_restart(f, step) : ckpt_tt_copy(&f->t, step));
    return dict && from.n > 0 && dict->as.map.n == 0 ? NULL : dict;
}

/* Make the state without padding, as lists: for elastic checkpoints, and with a list per interval
 * for legacy stage 1. */
static ckpt_value *dwo_lean(ckpt_dsw_file *f)
{
    ckpt_value *list = ckpt_tt_new(&f->t, CKPT_V_LIST), *inner, *entry;
    const ckpt_dsw_part *p;
    uint32_t index;

    for (size_t at = 0; f->t.rc == CKPT_OK && (p = dwo_next(f, &at, &index));) {
        inner = f->how->legacy ? ckpt_tt_new(&f->t, CKPT_V_LIST) : list;
        for (uint32_t i = 0; i < p->intervals; i++) {
            entry = dwo_entry(f, p, index, i);
            ckpt_tt_add(&f->t, inner, entry ? entry : ckpt_tt_new(&f->t, CKPT_V_DICT));
        }
        if (f->how->legacy)
            ckpt_tt_add(&f->t, list, inner);
    }
    return list;
}

/* Make {number of the part: its state}. */
static ckpt_value *dwo_states(ckpt_dsw_file *f)
{
    ckpt_value *dict = ckpt_tt_new(&f->t, CKPT_V_DICT), *entry;
    const ckpt_dsw_part *p;
    uint32_t index;
    int64_t number = 0;

    for (size_t at = 0; f->t.rc == CKPT_OK && (p = dwo_next(f, &at, &index)); number++) {
        entry = dwo_entry(f, p, index, 0);
        if (entry)
            ckpt_tt_put_at(&f->t, dict, ckpt_tt_int(&f->t, number), entry);
    }
    return dict;
}

/* Make the settings of a group that has none in the source. */
static ckpt_value *dwo_fields_of_config(ckpt_dsw_file *f, const ckpt_group *g)
{
    ckpt_value *fields = NULL;

    if (f->t.rc == CKPT_OK)
        f->t.rc = ckpt_train_configured(&fields, f->job->to, f->job->state, g, f->job->err);
    return f->t.rc == CKPT_OK ? ckpt_tt_copy(&f->t, fields) : NULL;
}

/* Make base_optimizer_state_step, where elastic checkpoints keep the groups' step. */
static ckpt_value *dwo_lean_step(ckpt_dsw_file *f, const ckpt_value *old)
{
    const ckpt_state *state = f->job->state;
    const ckpt_value *step =
        state->group.n ? ckpt_value_get(state->group.at[0].fields, "step") : NULL;

    // 0.19.8 requires it even if the optimizer's state has the step
    if (!step && state->group.n)
        step = ckpt_value_get(state->group.at[0].entry, "step");
    if (old && !f->how->fresh)
        return ckpt_tt_copy(&f->t, old);
    if (!f->how->lean || !(step || old))
        return NULL;
    return f->how->fresh ? ckpt_tt_int(&f->t, 0) : ckpt_tt_copy(&f->t, step);
}

/* Make the settings of a group for this rank. */
static ckpt_value *dwo_fields(ckpt_dsw_file *f, const ckpt_group *g)
{
    ckpt_dict from = ckpt_value_map(g->fields);
    ckpt_value *dict;

    if (!g->fields)
        return dwo_fields_of_config(f, g);
    if (!f->how->ranked || !g->ranked)
        return ckpt_tt_copy(&f->t, g->fields);
    dict = ckpt_tt_new(&f->t, CKPT_V_DICT);
    for (uint64_t i = 0; f->t.rc == CKPT_OK && i < from.n; i++) {
        const ckpt_value *v = dwo_of_rank(f, g, &from.at[i], false);

        if (v)
            ckpt_tt_put_at(&f->t, dict, ckpt_tt_copy(&f->t, from.at[i].key),
                           ckpt_tt_copy(&f->t, v));
    }
    dwo_rank_alone(f, g, dict, false);
    return dict;
}

/* Make param_groups; each lists the numbers of its parts. */
static ckpt_value *dwo_param_groups(ckpt_dsw_file *f)
{
    ckpt_value *list = ckpt_tt_new(&f->t, CKPT_V_LIST);
    const ckpt_state *state = f->job->state;
    const ckpt_dsw_part *p;
    uint32_t index;

    for (size_t g = 0; f->t.rc == CKPT_OK && g < state->group.n; g++) {
        ckpt_value *group = dwo_fields(f, &state->group.at[g]),
                   *params = ckpt_tt_new(&f->t, CKPT_V_LIST);
        int64_t number = 0;
        // another framework's Adam gets the settings of every Adam of DeepSpeed, because the device
        // decides
        if (f->t.rc == CKPT_OK && (state->foreign || state->group.at[g].became_adam) &&
            ckpt_state_is_adam(&state->group.at[g]) && !ckpt_train_adam(f->t.scratch, group, NULL))
            f->t.rc = ckpt_fail_memory(f->job->err);
        for (size_t at = 0; f->t.rc == CKPT_OK && (p = dwo_next(f, &at, &index)); number++) {
            if (p->group == g)
                ckpt_tt_add(&f->t, params, ckpt_tt_int(&f->t, number));
        }
        if (f->how->fresh && ckpt_value_get(group, "step"))
            ckpt_tt_put(&f->t, group, "step", ckpt_tt_int(&f->t, 0));
        ckpt_tt_put(&f->t, group, "params", params);
        ckpt_tt_add(&f->t, list, group);
    }
    return list;
}

/* Report the loss of settings: elastic and legacy files have no param_groups. */
static int dwo_left_fields(const ckpt_dsw_file *f)
{
    const ckpt_state *state = f->job->state;

    for (size_t g = 0; g < state->group.n; g++) {
        if (state->group.at[g].fields)
            return ckpt_train_left_out(
                f->job, CKPT_WARNING,
                "param_groups: elastic checkpoints keep no hyper-parameters: "
                "a resumed run uses those of its configuration");
    }
    return CKPT_OK;
}

/* Make the state_dict of the wrapped optimizer, which other stages store under another key. */
static ckpt_value *dwo_base(ckpt_dsw_file *f, const ckpt_value *old)
{
    ckpt_dict from = ckpt_value_map(ckpt_train_wrapped(f->job->state));
    ckpt_value *dict;

    (void)old;
    if ((f->how->lean || f->how->legacy) && f->t.rc == CKPT_OK)
        f->t.rc = dwo_left_fields(f);
    if ((f->how->lean || f->how->legacy) && f->t.rc == CKPT_OK)
        f->t.rc = ckpt_train_wrapped_left(f->job);
    if (f->how->lean || f->how->legacy)
        return dwo_lean(f);
    dict = ckpt_tt_new(&f->t, CKPT_V_DICT);
    ckpt_tt_put(&f->t, dict, "state", dwo_states(f));
    for (uint64_t i = 0; i < from.n; i++) {
        if (ckpt_train_wrapped_own(&from.at[i]))
            ckpt_tt_put_at(&f->t, dict, ckpt_tt_copy(&f->t, from.at[i].key),
                           ckpt_tt_copy(&f->t, from.at[i].value));
    }
    ckpt_tt_put(&f->t, dict, "param_groups", dwo_param_groups(f));
    return dict;
}

/* ---- entries about the layout ---- */

static ckpt_value *dwo_stage(ckpt_dsw_file *f, const ckpt_value *old)
{
    ckpt_value *args;
    int64_t stage = f->how->stage;

    if (old && stage == f->how->from_stage && f->how->release == f->how->from_release)
        return ckpt_tt_copy(&f->t, old);
    // Before 0.7.0 stage 1 has the number of stage 2, because it shares its code; legacy stage 1
    // does not.
    if (f->how->release < CKPT_DS_RELEASE(0, 7, 0))
        return ckpt_tt_int(&f->t, stage == 1 && !f->how->legacy ? 2 : stage);
    args = ckpt_tt_new(&f->t, CKPT_V_TUPLE);
    ckpt_tt_add(&f->t, args, ckpt_tt_int(&f->t, stage));
    return ckpt_tt_object(&f->t, "deepspeed.runtime.zero.config", "ZeroStageEnum", CKPT_BY_REDUCE,
                          args, NULL);
}

/* Make partition_count: one int for all groups in stage 3 and before 0.4.0, else one per group. */
static ckpt_value *dwo_partition_count(ckpt_dsw_file *f, const ckpt_value *old)
{
    ckpt_value *list;
    const ckpt_dsw_part *p;
    uint32_t index;

    (void)old;
    if (f->how->stage == 3 || f->how->release < CKPT_DS_RELEASE(0, 4, 0))
        return ckpt_tt_int(&f->t, f->how->world);
    list = ckpt_tt_new(&f->t, CKPT_V_LIST);
    for (size_t at = 0; (p = dwo_next(f, &at, &index));)
        ckpt_tt_add(&f->t, list, ckpt_tt_int(&f->t, p->world));
    return list;
}

static ckpt_value *dwo_group_paddings(ckpt_dsw_file *f, const ckpt_value *old)
{
    ckpt_value *list = ckpt_tt_new(&f->t, CKPT_V_LIST);
    const ckpt_dsw_part *p;
    uint32_t index;

    (void)old;
    for (size_t at = 0; (p = dwo_next(f, &at, &index));)
        ckpt_tt_add(&f->t, list, ckpt_tt_int(&f->t, (int64_t)ckpt_dsw_padding(f->how, p, index)));
    return list;
}

static ckpt_value *dwo_alignments(ckpt_dsw_file *f, const ckpt_value *old)
{
    ckpt_value *list = ckpt_tt_new(&f->t, CKPT_V_LIST), *one;
    const ckpt_dsw_part *p;
    uint32_t index;

    (void)old;
    for (size_t at = 0; (p = dwo_next(f, &at, &index));) {
        one = ckpt_tt_new(&f->t, CKPT_V_LIST);
        // of fused parameters only the last has a pad after it
        for (size_t i = 0; i < p->n; i++) {
            if (i + 1 == p->n || ckpt_dsw_one(p, i + 1))
                ckpt_tt_add(&f->t, one, ckpt_tt_int(&f->t, (int64_t)p->pad[i]));
        }
        ckpt_tt_add(&f->t, list, one);
    }
    return list;
}

static ckpt_value *dwo_intervals(ckpt_dsw_file *f, const ckpt_value *old)
{
    ckpt_value *list = ckpt_tt_new(&f->t, CKPT_V_LIST);

    (void)old;
    for (size_t k = 0; k < f->layout->part.n; k++)
        ckpt_tt_add(&f->t, list, ckpt_tt_int(&f->t, f->layout->part.at[k].intervals));
    return list;
}

/* ---- param_slice_mappings ---- */

/* Make fragment_address(numel, start) of deepspeed/utils/tensor_fragment.py. */
static ckpt_value *dwo_address(ckpt_dsw_file *f, uint64_t numel, uint64_t start)
{
    ckpt_value *state = ckpt_tt_new(&f->t, CKPT_V_DICT);

    ckpt_tt_put(&f->t, state, "numel", ckpt_tt_int(&f->t, (int64_t)numel));
    ckpt_tt_put(&f->t, state, "start", ckpt_tt_int(&f->t, (int64_t)start));
    return ckpt_tt_object(&f->t, "deepspeed.utils.tensor_fragment", "fragment_address",
                          CKPT_BY_NEWOBJ, ckpt_tt_new(&f->t, CKPT_V_TUPLE), state);
}

/*
 * Make the mapping of parameters in this rank's slice.  DeepSpeed computes it in the order before
 * round_robin_gradients, which is wrong unless parameter_alignment is on; it is reproduced, because
 * readers expect it.
 */
static ckpt_value *dwo_mapping(ckpt_dsw_file *f, const ckpt_dsw_part *p, uint32_t index)
{
    const ckpt_zero_flat *z = f->how->aligned ? &p->flat : &p->plain;
    ckpt_value *dict = ckpt_tt_new(&f->t, CKPT_V_ODICT);
    uint64_t from = (uint64_t)index * p->slice, to = from + p->slice;
    size_t *place = ckpt_arena_array(f->t.scratch, p->n, sizeof *place); // by position in the group

    for (size_t i = 0; place && i < p->n; i++)
        place[p->origin[i]] = i;
    for (size_t i = 0; place && i < p->n && f->t.rc == CKPT_OK; i++) {
        size_t k = f->how->aligned ? place[i] : i, n = ckpt_dsw_one(p, place[i]);
        uint64_t first = z->start[k] > from ? z->start[k] : from,
                 end = n ? z->start[k + n - 1] + z->numel[k + n - 1] : 0;
        if (end > to)
            end = to;
        if (first < end)
            ckpt_tt_put_at(&f->t, dict,
                           ckpt_tt_str(&f->t, ckpt_dsw_stored_name(f->job, f->layout, p, place[i])),
                           dwo_address(f, end - first, first - from));
    }
    return place ? dict : NULL;
}

static ckpt_value *dwo_mappings(ckpt_dsw_file *f, const ckpt_value *old)
{
    ckpt_value *list = ckpt_tt_new(&f->t, CKPT_V_LIST);
    const ckpt_dsw_part *p;
    uint32_t index;

    (void)old;
    for (size_t at = 0; f->t.rc == CKPT_OK && (p = dwo_next(f, &at, &index));)
        ckpt_tt_add(&f->t, list, dwo_mapping(f, p, index));
    return list;
}

/* ---- other entries ---- */

/* The overflow flag of the last step; false for a new run. */
static ckpt_value *dwo_overflow(ckpt_dsw_file *f, const ckpt_value *old)
{
    return old ? ckpt_tt_copy(&f->t, old) : ckpt_tt_bool(&f->t, false);
}

/*
 * The gradient clipping of the run, or the release's default.  For another framework's run it is
 * unknown, and the key is left out, so that DeepSpeed uses its configuration.
 */
static ckpt_value *dwo_clip(ckpt_dsw_file *f, const ckpt_value *old)
{
    const ckpt_value *v = ckpt_train_config_get(f->job->state, NULL, "gradient_clipping");

    if (f->job->state->foreign)
        return NULL;
    if (old)
        return ckpt_tt_copy(&f->t, old);
    if (v && v->kind == CKPT_V_FLOAT)
        return ckpt_tt_float(&f->t, v->as.f);
    if (v && v->kind == CKPT_V_INT)
        return ckpt_tt_int(&f->t, v->as.i);
    return ckpt_tt_float(&f->t, f->how->release >= CKPT_DS_RELEASE(0, 19, 3) ? 1.0 : 0.0);
}

/* Keys of stages 1 and 2: deepspeed/runtime/zero/stage_1_and_2.py, state_dict. */
static const ckpt_dsw_key dwo_flat_keys[] = {
    {"loss_scaler", 0, 0, ckpt_dsw_loss_scaler},
    {"dynamic_loss_scale", 0, 0, ckpt_dsw_dynamic},
    {"overflow", 0, 0, dwo_overflow},
    {"clip_grad", CKPT_DS_RELEASE(0, 6, 0), 0, dwo_clip},
    {"base_optimizer_state", 0, 0, dwo_base},
    {"base_optimizer_state_step", 0, 0, dwo_lean_step},
    {"single_partition_of_fp32_groups", 0, 0, dwo_masters},
    {"zero_stage", 0, 0, dwo_stage},
    {"group_paddings", CKPT_DS_RELEASE(0, 7, 0), 0, dwo_group_paddings},
    {"param_alignment_paddings", CKPT_DS_RELEASE(0, 19, 7), 0, dwo_alignments},
    {"partition_count", 0, 0, dwo_partition_count},
    {"ds_version", CKPT_DS_RELEASE(0, 4, 0), 0, ckpt_dsw_version},
    {"param_slice_mappings", CKPT_DS_RELEASE(0, 7, 4), 0, dwo_mappings},
    {NULL, 0, 0, NULL},
};

/* Keys of stage 1 with fp32 gradient accumulation: deepspeed/runtime/bf16_optimizer.py. */
static const ckpt_dsw_key dwo_bf16_keys[] = {
    {"clip_grad", 0, 0, dwo_clip},
    {"base_optimizer_state", 0, 0, dwo_base},
    {"single_partition_of_fp32_groups", 0, 0, dwo_masters},
    {"groups_padding", 0, CKPT_DS_RELEASE(0, 7, 0), dwo_group_paddings},
    {"group_paddings", CKPT_DS_RELEASE(0, 7, 0), 0, dwo_group_paddings},
    {"partition_count", 0, 0, dwo_partition_count},
    {"ds_version", 0, 0, ckpt_dsw_version},
    {"param_slice_mappings", CKPT_DS_RELEASE(0, 7, 0), 0, dwo_mappings},
    {NULL, 0, 0, NULL},
};

/* Keys of stage 1 of 0.3.x: deepspeed/runtime/zero/stage1.py. */
static const ckpt_dsw_key dwo_legacy_keys[] = {
    {"loss_scaler", 0, 0, ckpt_dsw_loss_scaler},
    {"dynamic_loss_scale", 0, 0, ckpt_dsw_dynamic},
    {"overflow", 0, 0, dwo_overflow},
    {"base_optimizer_state", 0, 0, dwo_base},
    {"zero_stage", 0, 0, dwo_stage},
    {"partition_count", 0, 0, dwo_partition_count},
    {"num_comm_intervals_per_group", 0, 0, dwo_intervals},
    {"local_sub_partitions_of_fp32_groups", 0, 0, dwo_masters},
    {NULL, 0, 0, NULL},
};

/* Keys of stage 3: deepspeed/runtime/zero/stage3.py, _rigid_state_dict. */
static const ckpt_dsw_key dwo_part_keys[] = {
    {"zero_stage", 0, 0, dwo_stage},
    {"loss_scaler", 0, 0, ckpt_dsw_loss_scaler},
    {"dynamic_loss_scale", 0, 0, ckpt_dsw_dynamic},
    {"overflow", 0, 0, dwo_overflow},
    {"partition_count", 0, 0, dwo_partition_count},
    {"ds_zero_partition_groups", CKPT_DS_RELEASE(0, 19, 3), 0, ckpt_dsw_autoep_groups},
    {"optimizer_state_dict", 0, 0, dwo_base},
    {"fp32_flat_groups", 0, 0, dwo_masters},
    {NULL, 0, 0, NULL},
};

static const ckpt_dsw_key *dwo_table(const ckpt_dsw_how *how)
{
    if (how->stage == 3)
        return dwo_part_keys;
    return how->legacy ? dwo_legacy_keys : how->bf16_optimizer ? dwo_bf16_keys : dwo_flat_keys;
}

/* True for a key in the table of any stage; other keys are copied for every stage. */
static bool dwo_is_layout(const ckpt_value *key)
{
    static const ckpt_dsw_key *const table[] = {dwo_flat_keys, dwo_bf16_keys, dwo_legacy_keys,
                                                dwo_part_keys};

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        for (const ckpt_dsw_key *k = table[i]; k->key; k++) {
            if (ckpt_value_is(key, k->key))
                return true;
        }
    }
    return false;
}

/* True if such a key has a value of the run instead of a description of the layout. */
static bool dwo_is_value(const ckpt_value *key)
{
    return ckpt_value_is(key, "clip_grad") || ckpt_value_is(key, "overflow") ||
           ckpt_value_is(key, "loss_scaler") || ckpt_value_is(key, "dynamic_loss_scale");
}

/* Copy the template without those keys of the source's stage that the target's stage lacks. */
static ckpt_value *dwo_common(ckpt_dsw_file *f, const ckpt_value *old, const ckpt_dsw_key *table)
{
    ckpt_dict from = ckpt_value_map(old);
    ckpt_value *dict = ckpt_tt_new(&f->t, CKPT_V_DICT);

    for (uint64_t i = 0; i < from.n; i++) {
        bool kept = !dwo_is_layout(from.at[i].key);
        for (const ckpt_dsw_key *k = table; !kept && k->key; k++)
            kept = ckpt_value_is(from.at[i].key, k->key);
        if (kept)
            ckpt_tt_put_at(&f->t, dict, from.at[i].key, from.at[i].value);
        else if (dwo_is_value(from.at[i].key) && f->t.rc == CKPT_OK)
            f->t.rc = ckpt_train_left_out(
                f->job, CKPT_INFO,
                "%s: DeepSpeed does not store it there, but reads it from its configuration",
                from.at[i].key->as.text.at);
    }
    return dict;
}

/* The form of a stage; stages of one form can share a template. */
static int dwo_form(bool legacy, bool bf16, int stage)
{
    return stage == 3 ? 3 : legacy ? 2 : bf16 ? 1 : stage > 0 ? 0 : -1;
}

/* True for a template of this form; an optimizer_state.pt of a universal checkpoint has no
 * masters. */
static bool dwo_is_template(const ckpt_value *old, const ckpt_dsw_key *table)
{
    for (const ckpt_dsw_key *k = table; k->key; k++) {
        if (k->make == dwo_masters)
            return ckpt_value_get(old, k->key) != NULL;
    }
    return false;
}

static ckpt_value *dwo_state_dict(ckpt_dsw_file *f, const ckpt_value *old)
{
    const ckpt_dsw_key *table = dwo_table(f->how);
    bool same =
        dwo_form(f->how->legacy, f->how->bf16_optimizer, f->how->stage) ==
        dwo_form(f->job->state->legacy, f->job->state->bf16_optimizer, f->job->state->stage);

    if (same && f->how->lean == f->job->state->lean && f->how->release == f->how->from_release &&
        dwo_is_template(old, table))
        return ckpt_dsw_dict(f, old, table, true);
    return ckpt_dsw_dict(f, dwo_common(f, old, table), table, false);
}

/* Keys of the file; before 0.6.0 param_shapes is here. */
static const ckpt_dsw_key dwo_root_keys[] = {
    {"optimizer_state_dict", 0, 0, dwo_state_dict},
    {"param_shapes", CKPT_DS_RELEASE(0, 3, 14), CKPT_DS_RELEASE(0, 6, 0), ckpt_dsw_param_shapes},
    {"ds_config", CKPT_DS_RELEASE(0, 4, 0), 0, ckpt_dsw_config},
    {"ds_version", CKPT_DS_RELEASE(0, 4, 0), 0, ckpt_dsw_version},
    {NULL, 0, 0, NULL},
};

int ckpt_dsw_optim_file(const ckpt_train_job *job, const ckpt_dsw_how *how,
                        const ckpt_dsw_layout *layout, ckpt_dsw_records *records, uint32_t rank,
                        const char *name)
{
    assert(records->record && rank < how->world && name);
    ckpt_dsw_file f = {.job = job, .how = how, .layout = layout, .records = records, .rank = rank};
    ckpt_value *root = NULL;
    int rc = ckpt_tt_begin(&f.t, job->to, job->from, name, job->err);

    if (rc == CKPT_OK)
        job->to->files.at[f.t.file].rank = rank;
    f.t.drop_objects = job->target->drop_objects;
    if (rc == CKPT_OK)
        root = ckpt_dsw_dict(&f, job->state->optim, dwo_root_keys,
                             job->state->optim && ckpt_dsw_follows(job, how));
    return ckpt_tt_end(&f.t, root);
}
