/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optim.c: writes zero/optimizer_state.pt: the loss scale, and the parameter groups once for stages
 * 1 and 2 and once for stage 3, which look for them under different keys.
 */
#include <assert.h>
#include <string.h>

#include "formats/training/default_settings.h"
#include "formats/universal/universal.h"

/* Entries of a rank's optimizer file that are left out: tensors, because zero/ holds them, and
 * values that depend on the partitioning. */
static const char *const uo_cut[] = {
    "base_optimizer_state",
    "base_optimizer_state_step",
    "single_partition_of_fp32_groups",
    "local_sub_partitions_of_fp32_groups",
    "num_comm_intervals_per_group",
    "param_slice_mappings",
    "fp32_flat_groups",
    "ds_zero_partition_groups",
    "optimizer_state_dict",
    "param_groups",
    "fp32_groups",
    "fp32_groups_flat",
    "state",
};

static bool uo_is_cut(const ckpt_value *key)
{
    for (size_t i = 0; i < sizeof uo_cut / sizeof *uo_cut; i++) {
        if (ckpt_value_is(key, uo_cut[i]))
            return true;
    }
    return false;
}

/* ---- groups ---- */

/* param_groups with `params` numbered as universal checkpoints number them. */
static ckpt_value *uo_groups(ckpt_uni_write *w, ckpt_torch_tree *t)
{
    ckpt_value *list = ckpt_tt_new(t, CKPT_V_LIST);

    for (size_t g = 0; g < w->job.state->group.n && t->rc == CKPT_OK; g++) {
        ckpt_value *fields = w->job.state->group.at[g].fields;
        if (!fields && w->job.state->optim)
            t->rc = ckpt_train_configured(&fields, w->job.to, w->job.state,
                                          &w->job.state->group.at[g], w->job.err);
        ckpt_value *entry = ckpt_tt_new(t, CKPT_V_DICT), *params = ckpt_tt_new(t, CKPT_V_LIST);
        ckpt_dict from = ckpt_value_map(fields);
        for (uint64_t i = 0; i < from.n && t->rc == CKPT_OK; i++) {
            const ckpt_pair *p = &from.at[i];
            bool step = w->how.fresh && ckpt_value_is(p->key, "step");
            // the resumed run names its AutoEP groups itself ("ep_size_2")
            bool named = ckpt_train_autoep(w->job.state) && ckpt_value_get(fields, "moe") &&
                         ckpt_value_is(p->key, "name");
            if (named && t->rc == CKPT_OK)
                t->rc = ckpt_train_left_out(
                    &w->job, CKPT_INFO, "param_groups[%zu].name: a resumed run sets its own", g);
            if (!ckpt_value_is(p->key, "params") && !named)
                ckpt_tt_put_at(t, entry, ckpt_tt_copy(t, p->key),
                               step ? ckpt_tt_int(t, 0) : ckpt_tt_copy(t, p->value));
        }
        ckpt_tt_add(t, params, ckpt_tt_int(t, (int64_t)g));
        ckpt_tt_put(t, entry, "params", params);
        ckpt_tt_add(t, list, entry);
    }
    return list;
}

/* True if all groups have the same value for a hyper-parameter; *rc: memory may run out. */
static bool uo_common(const ckpt_uni_write *w, const ckpt_value *key, int *rc)
{
    bool same = true;

    const ckpt_groups *group = &w->job.state->group;
    const ckpt_value *first;

    if (key->kind != CKPT_V_STR)
        return true;
    first = ckpt_value_get(group->at[0].fields, key->as.text.at);
    for (size_t g = 1; *rc == CKPT_OK && same && g < group->n; g++) {
        const ckpt_value *v = ckpt_value_get(group->at[g].fields, key->as.text.at);
        same = v && first;
        if (same)
            *rc = ckpt_value_compare(&same, first, v, 4096, w->job.err);
    }
    return same;
}

/*
 * The groups for stage 3, which applies group 0's hyper-parameters to all groups.  Hyper-parameters
 * that differ between groups (above all weight decay) are left out, so that the run's own
 * configuration decides.  The learning rate stays, because it follows the schedule.
 */
static ckpt_value *uo_groups_part(ckpt_uni_write *w, ckpt_torch_tree *t, const ckpt_value *groups)
{
    ckpt_seq from = ckpt_value_seq(groups);
    ckpt_value *list = ckpt_tt_new(t, CKPT_V_LIST);

    for (uint64_t g = 0; g < from.n && t->rc == CKPT_OK; g++) {
        ckpt_value *entry = from.at[g];
        if (g == 0) {
            ckpt_dict all = ckpt_value_map(from.at[0]);
            entry = ckpt_tt_new(t, CKPT_V_DICT);
            for (uint64_t i = 0; i < all.n; i++) {
                bool kept = ckpt_value_is(all.at[i].key, "params") ||
                            ckpt_value_is(all.at[i].key, "lr") ||
                            uo_common(w, all.at[i].key, &t->rc);
                if (kept)
                    ckpt_tt_put_at(t, entry, all.at[i].key, all.at[i].value);
            }
        }
        ckpt_tt_add(t, list, entry);
    }
    return list;
}

/* optimizer_state_dict of stage 3, which reads the step of all groups from state[0]['step']. */
static ckpt_value *uo_inner(ckpt_uni_write *w, ckpt_torch_tree *t, const ckpt_value *groups)
{
    const ckpt_groups *group = &w->job.state->group;
    ckpt_value *inner = ckpt_tt_new(t, CKPT_V_DICT), *state = ckpt_tt_new(t, CKPT_V_DICT);
    const ckpt_group *counts = NULL;

    for (size_t g = 0; g < group->n && !counts; g++) {
        if (ckpt_uni_write_steps(w, &group->at[g]))
            counts = &group->at[g];
    }
    for (size_t g = 0; g < group->n && t->rc == CKPT_OK; g++) {
        const ckpt_group *of = ckpt_uni_write_steps(w, &group->at[g]) ? &group->at[g] : counts;
        ckpt_value *one = ckpt_tt_new(t, CKPT_V_DICT);
        if (of)
            ckpt_tt_put(t, one, "step", ckpt_uni_write_step(w, t, of));
        ckpt_tt_put_at(t, state, ckpt_tt_int(t, (int64_t)g), one);
    }
    ckpt_tt_put(t, inner, "state", state);
    ckpt_tt_put(t, inner, "param_groups", uo_groups_part(w, t, groups));
    return inner;
}

/* ---- the file ---- */

static ckpt_value *uo_tree(ckpt_uni_write *w, ckpt_dsw_file *f)
{
    const ckpt_value *osd = ckpt_value_get(w->job.state->optim, "optimizer_state_dict");
    ckpt_torch_tree *t = &f->t;
    ckpt_dict from = ckpt_value_map(osd);
    ckpt_value *root = ckpt_tt_new(t, CKPT_V_DICT), *groups;
    const ckpt_value *version = ckpt_value_get(osd, "ds_version");

    // DeepSpeed fails at the first step without this object.
    ckpt_tt_put(t, root, "loss_scaler",
                ckpt_dsw_loss_scaler(f, ckpt_value_get(osd, "loss_scaler")));
    ckpt_tt_put(t, root, "dynamic_loss_scale",
                ckpt_dsw_dynamic(f, ckpt_value_get(osd, "dynamic_loss_scale")));
    ckpt_tt_put(t, root, "overflow", ckpt_tt_bool(t, false));
    for (uint64_t i = 0; i < from.n && t->rc == CKPT_OK; i++) {
        const ckpt_value *key = from.at[i].key;
        if (uo_is_cut(key) || ckpt_value_is(key, "loss_scaler") ||
            ckpt_value_is(key, "dynamic_loss_scale") || key->kind != CKPT_V_STR)
            continue;
        ckpt_tt_put(t, root, key->as.text.at, ckpt_tt_copy(t, from.at[i].value));
    }
    version = version ? version : ckpt_value_get(w->job.state->model, "ds_version");
    ckpt_tt_put(t, root, "ds_version", ckpt_dsw_version(f, version));
    groups = uo_groups(w, t);
    ckpt_tt_put(t, root, "param_groups", groups);
    if (w->parts)
        ckpt_tt_put(t, root, "optimizer_state_dict", uo_inner(w, t, groups));
    return root;
}

int ckpt_uni_optim_file(ckpt_uni_write *w, const char *name)
{
    assert(w && name);
    ckpt_dsw_file f = {.job = &w->job, .how = &w->how};
    int rc = ckpt_train_wrapped_left(&w->job);

    if (rc == CKPT_OK)
        rc = ckpt_tt_begin(&f.t, w->job.to, w->job.from, name, w->job.err);
    f.t.drop_objects = w->job.target->drop_objects;
    ckpt_value *root = rc == CKPT_OK ? uo_tree(w, &f) : NULL;
    int ended = ckpt_tt_end(&f.t, root);
    return rc != CKPT_OK ? rc : ended;
}
