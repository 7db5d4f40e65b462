/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.c: writes a universal checkpoint: a folder per parameter, one or two model files, and
 * optimizer_state.pt.
 *
 * From 0.19.3 on DeepSpeed's stage 3 also reads the dicts of stages 1 and 2, so one folder serves
 * all three stages: full shapes, both model files, and an optimizer_state.pt with the keys of both.
 * Earlier releases get the form of one stage.  The layout follows from names and shapes alone; the
 * source's param_slice_mappings is never used, because it is wrong for round_robin_gradients.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/universal/universal.h"
#include "libckpt/base/cast.h"
#include "libckpt/base/dtype.h"

enum { UW_MAX_LISTED = 5 }; /* limit of names in a message */

/* ---- the request ---- */

/* Take the source's only state. */
static int uw_state(ckpt_uni_write *w)
{
    const ckpt_map *from = w->job.from;

    if (from->states.n == 0)
        return ckpt_state_none(from, w->job.err);
    if (from->states.n > 1)
        return ckpt_fail(w->job.err, CKPT_EUNSUPPORTED,
                         "%s: %zu model-parallel ranks are kept apart, but a universal checkpoint "
                         "holds whole parameters; let ckpt join them",
                         from->path, from->states.n);
    w->job.state = from->states.at[0];
    for (size_t g = 0; !w->job.target->fresh_optimizer && g < w->job.state->group.n; g++) {
        int rc = ckpt_state_refuse_8bit(from, &w->job.state->group.at[g],
                                        "ckpt convert writes the weights alone", w->job.err);
        if (rc != CKPT_OK)
            return rc;
    }
    if (ckpt_train_autoep(w->job.state) && w->job.state->round_robin)
        return ckpt_fail(w->job.err, CKPT_EUNSUPPORTED,
                         "%s: ckpt does not write universal checkpoints of runs with AutoEP and "
                         "round_robin_gradients, and DeepSpeed (0.19.8) misplaces their values; "
                         "reshard to a stage and world",
                         from->path);
    if (ckpt_train_autoep(w->job.state))
        return ckpt_dsw_autoep_whole(&w->job);
    for (size_t g = 0; g < w->job.state->group.n; g++) {
        if (w->job.state->group.at[g].n_lanes > 1)
            return ckpt_fail(w->job.err, CKPT_EUNSUPPORTED,
                             "%s: group %zu holds experts of %" PRIu32
                             " expert-parallel ranks, which "
                             "universal checkpoints of DeepSpeed do not hold",
                             from->path, g, w->job.state->group.at[g].n_lanes);
    }
    return CKPT_OK;
}

/* Choose the target release, and with it the form. */
static int uw_form(ckpt_uni_write *w)
{
    const ckpt_target *target = w->job.target;
    const char *version = target->version ? target->version : w->job.state->version;
    int stage = target->stage ? target->stage : w->job.state->stage;

    w->how.release = version ? ckpt_dsw_release(version) : CKPT_DS_NEWEST;
    w->how.stage = stage;
    if (target->version && w->how.release < 0)
        return ckpt_fail(w->job.err, CKPT_EUSAGE, "'%s' is not a release of DeepSpeed",
                         target->version);
    if (w->how.release < 0)
        w->how.release = CKPT_DS_NEWEST;
    w->whole = w->parts = true;
    if (w->how.release >= CKPT_DS_RELEASE(0, 19, 3))
        return CKPT_OK;
    if (ckpt_train_autoep(w->job.state))
        return ckpt_fail(w->job.err, target->version ? CKPT_EUSAGE : CKPT_EUNSUPPORTED,
                         "universal checkpoints of DeepSpeed before 0.19.3 do not hold AutoEP's "
                         "experts");
    w->flat = w->parts = stage == 3;
    w->whole = stage != 3;
    return ckpt_map_note(w->job.to, CKPT_INFO, w->job.err,
                         "written for %s of DeepSpeed %s; from release 0.19.3 on one universal "
                         "checkpoint serves stages 1, 2 and 3 alike",
                         stage == 3 ? "stage 3" : "stages 1 and 2", version);
}

/* Warn if no group counts steps: the run skipped every step, or its optimizer has no state. */
static int uw_no_state(ckpt_uni_write *w)
{
    const ckpt_state *state = w->job.state;

    for (size_t g = 0; g < state->group.n; g++) {
        if (ckpt_uni_write_steps(w, &state->group.at[g]))
            return CKPT_OK;
    }
    // load_hp_checkpoint_state_from_checkpoint_dir_stage3 of deepspeed/runtime/zero/stage3.py
    return ckpt_map_note(w->job.to, CKPT_WARNING, w->job.err,
                         "the run's optimizer counts no steps yet, or keeps nothing: stage 3 of "
                         "DeepSpeed (0.19.8 too) fails to load such a universal checkpoint, stages "
                         "1 and 2 and ckpt reshard read it");
}

/* Warn about parameters and options with which DeepSpeed cannot load the output. */
static int uw_warn(ckpt_uni_write *w)
{
    const ckpt_state *state = w->job.state;
    int rc = uw_no_state(w);

    for (size_t i = 0; rc == CKPT_OK && i < state->param.n; i++) {
        if (state->param.at[i]->ndim > 0)
            continue;
        // load_hp_checkpoint_state of deepspeed/checkpoint/universal_checkpoint.py splits tensors
        // in chunks
        rc = ckpt_map_note(w->job.to, CKPT_WARNING, w->job.err,
                           "%.200s has no axes: stages 1 and 2 of DeepSpeed (0.19.8 too) fail to "
                           "load universal checkpoints with such a parameter, stage 3 and ckpt "
                           "reshard read them",
                           state->param.at[i]->name);
        break;
    }
    if (rc != CKPT_OK || !state->round_robin)
        return rc;
    return ckpt_map_note(
        w->job.to, CKPT_WARNING, w->job.err,
        "the run had round_robin_gradients on; with it DeepSpeed (0.19.8 too) puts the "
        "values of a universal checkpoint into wrong places: turn it off to resume");
}

/* Read the source's rules for cutting slices, because a load with tensor parallelism needs them. */
static int uw_rules(ckpt_uni_write *w)
{
    const ckpt_value *optim = ckpt_value_get(w->job.state->optim, "optimizer_state_dict");
    ckpt_dict info;

    w->info = ckpt_value_get(w->job.state->model, "universal_checkpoint_info");
    if (ckpt_value_map(w->info).n == 0)
        w->info = ckpt_value_get(optim, "universal_checkpoint_info");
    info = ckpt_value_map(w->info);
    // Runs without tensor parallelism store only the version; those with AutoEP also their experts.
    if (info.n <= 1 || ckpt_train_autoep(w->job.state))
        return CKPT_OK;
    return ckpt_uni_rules_new(&w->rules, w->info, w->job.err);
}

/* ---- one parameter ---- */

/* A path below zero/.  Names become folders, so an unsafe name must be refused. */
static const char *uw_path(ckpt_uni_write *w, const char *param, const char *kind)
{
    // a folder of this name would collide with the file of the same name
    bool safe = ckpt_path_part_ok(param, strlen(param)) && strcmp(param, "optimizer_state.pt") != 0;
    const char *path = NULL;

    if (!safe || !ckpt_path_part_ok(kind, strlen(kind))) {
        ckpt_fail(w->job.err, CKPT_EUNSAFE,
                  "%s: '%.200s' cannot be the name of a %s in a universal checkpoint: it is not a "
                  "plain file name of 1 to 255 bytes; rename the parameter",
                  w->job.from->path, safe ? kind : param, safe ? "file" : "folder");
        return NULL;
    }
    path = ckpt_arena_printf(w->job.to->arena, "zero/%s/%s.pt", param, kind);
    if (!path)
        ckpt_fail_memory(w->job.err);
    return path;
}

/* Make SubparamShape(patterns, shape, partition_dim) with every size along partition_dim. */
static ckpt_value *uw_sub_shape(ckpt_torch_tree *t, const ckpt_slice_rule *rule,
                                const ckpt_tensor *of)
{
    ckpt_value *state = ckpt_tt_new(t, CKPT_V_DICT), *shape = ckpt_tt_new(t, CKPT_V_TUPLE);
    ckpt_value *sizes = ckpt_tt_new(t, CKPT_V_TUPLE);
    ckpt_seq given = ckpt_value_seq(ckpt_value_get(rule->entry, "shape"));
    uint64_t even =
        rule->axis < of->ndim && rule->n_subs ? of->shape[rule->axis] / rule->n_subs : 0;

    for (uint32_t i = 0; i < rule->n_subs; i++)
        ckpt_tt_add(t, sizes, ckpt_tt_int(t, (int64_t)(rule->sub_size ? rule->sub_size[i] : even)));
    for (uint64_t i = 0; i < given.n; i++)
        ckpt_tt_add(t, shape, i == rule->axis ? sizes : ckpt_tt_copy(t, given.at[i]));
    ckpt_tt_put(t, state, "patterns", ckpt_tt_copy(t, ckpt_value_get(rule->entry, "patterns")));
    ckpt_tt_put(t, state, "shape", shape);
    ckpt_tt_put(t, state, "partition_dim", ckpt_tt_int(t, rule->axis));
    return ckpt_tt_object(t, "deepspeed.checkpoint.universal_checkpoint", "SubparamShape",
                          CKPT_BY_NEWOBJ, ckpt_tt_new(t, CKPT_V_TUPLE), state);
}

/* Add the entries by which a load with tensor parallelism cuts the tensor; none without rules. */
static int uw_cut(ckpt_uni_write *w, ckpt_torch_tree *t, ckpt_value *dict, const char *name,
                  const ckpt_tensor *of)
{
    ckpt_slice_rule rule = {.kind = CKPT_SLICE_SAME};
    int rc =
        w->rules ? ckpt_uni_rules_find(w->rules, name, strlen(name), &rule, w->job.err) : CKPT_OK;

    if (rc != CKPT_OK)
        return rc;
    if (rule.kind == CKPT_SLICE_CAT || (rule.kind == CKPT_SLICE_SUB && !rule.entry))
        ckpt_tt_put(t, dict, "cat_dim", ckpt_tt_int(t, rule.axis));
    if (rule.kind == CKPT_SLICE_SUB && !rule.entry)
        ckpt_tt_put(t, dict, "param_n_sub_params", ckpt_tt_int(t, rule.n_subs));
    if (rule.kind == CKPT_SLICE_SUB && rule.entry)
        ckpt_tt_put(t, dict, "sub_param_shape", uw_sub_shape(t, &rule, of));
    if (rule.keep_rows)
        ckpt_tt_put(t, dict, "vocab_tensor", ckpt_tt_bool(t, true));
    return CKPT_OK;
}

/* The tensor of a file, as F32 like DeepSpeed's (buffers of integers too); zeros without a
 * donor. */
static ckpt_value *uw_tensor(ckpt_uni_write *w, ckpt_torch_tree *t, const ckpt_tensor *donor,
                             const ckpt_tensor *like)
{
    ckpt_dtype d = CKPT_F32;
    ckpt_value *v;

    if (donor && ckpt_dtype_get(donor->dtype)->kind != CKPT_IS_FLOAT &&
        like->role != CKPT_ROLE_BUFFER)
        d = donor->dtype;
    v = donor ? ckpt_tt_whole(t, donor, d) : ckpt_tt_zeros(t, d, like->shape, like->ndim);
    if (!w->flat || !v)
        return v;
    return ckpt_tt_flat(t, v->as.tensor->storage, 0, like->n_elems);
}

/* Write fp32.pt or a state file of a parameter. */
static int uw_tensor_file(ckpt_uni_write *w, const ckpt_tensor *like, const char *kind,
                          const ckpt_tensor *donor)
{
    const char *name = ckpt_state_name(w->job.state, like), *path = uw_path(w, name, kind);
    ckpt_torch_tree t;
    ckpt_value *root = NULL, *tensor;

    if (!path)
        return w->job.err->code;
    int rc = ckpt_tt_begin(&t, w->job.to, w->job.from, path, w->job.err);
    tensor = rc == CKPT_OK ? uw_tensor(w, &t, donor, like) : NULL;
    root = w->flat ? tensor : ckpt_tt_new(&t, CKPT_V_DICT);
    if (rc == CKPT_OK && !w->flat)
        rc = uw_cut(w, &t, root, name, like);
    if (!w->flat)
        ckpt_tt_put(&t, root, "param", tensor);
    int ended = ckpt_tt_end(&t, root);
    return rc != CKPT_OK ? rc : ended;
}

/* True if an entry of the optimizer is a kind of state: a flat tensor, or None for zero moments. */
static bool uw_is_kind(const ckpt_pair *p)
{
    return p->key->kind == CKPT_V_STR && !ckpt_value_is(p->key, "step") &&
           ((p->value->kind == CKPT_V_TENSOR && p->value->as.tensor->ndim == 1) ||
            p->value->kind == CKPT_V_NONE);
}

/* A moment of the parameter's shape, or NULL. */
static const ckpt_tensor *uw_moment(const ckpt_uni_write *w, const char *kind, const ckpt_tensor *p)
{
    const ckpt_tensor *m =
        w->how.fresh ? NULL : ckpt_state_moment(w->job.from, w->job.state, kind, p);

    if (!m || m->ndim != p->ndim ||
        (p->ndim && memcmp(m->shape, p->shape, p->ndim * sizeof *p->shape) != 0))
        return NULL;
    return m;
}

/* Stack n experts of AutoEP along a new first axis; kind is "fp32" or the name of a moment. */
static ckpt_value *uw_stack(ckpt_uni_write *w, ckpt_torch_tree *t, ckpt_tensor *const *param,
                            size_t n, const char *kind)
{
    const bool master = strcmp(kind, "fp32") == 0;
    uint64_t shape[CKPT_MAX_DIM + 1] = {n}, one = param[0]->n_elems;
    ckpt_storage *s = ckpt_tt_storage(t, CKPT_F32, one * n);

    memcpy(shape + 1, param[0]->shape, param[0]->ndim * sizeof *shape);
    for (size_t i = 0; t->rc == CKPT_OK && i < n; i++) {
        const ckpt_tensor *donor = master ? param[i] : uw_moment(w, kind, param[i]);
        ckpt_axis axis = {0, one, sizeof(float)};
        ckpt_extent e = {
            .source = s->source, .ndim = 1, .at = one * i * sizeof(float), .axis = &axis};
        if (donor && one)
            t->rc = ckpt_tt_fill(w->job.to, &(ckpt_torch_fill){kind, donor, CKPT_F32}, &e, 1,
                                 w->job.err);
    }
    return ckpt_tt_view(t, s, 0, shape, param[0]->ndim + 1);
}

/* Write the file of stacked experts (deepspeed/checkpoint/autoep_universal.py, 0.19.8). */
static int uw_experts_file(ckpt_uni_write *w, ckpt_tensor *const *param, size_t n, const char *kind)
{
    const char *first = ckpt_state_name(w->job.state, param[0]),
               *name = ckpt_dsw_autoep_name(w->job.to->arena, first),
               *path = name ? uw_path(w, name, kind) : NULL;
    ckpt_torch_tree t;
    ckpt_value *root = NULL;

    if (!path)
        return name ? w->job.err->code : ckpt_fail_memory(w->job.err);
    if (ckpt_tt_begin(&t, w->job.to, w->job.from, path, w->job.err) == CKPT_OK)
        root = ckpt_tt_new(&t, CKPT_V_DICT);
    if (root) {
        ckpt_tt_put(&t, root, "param", uw_stack(w, &t, param, n, kind));
        ckpt_tt_put(&t, root, "cat_dim", ckpt_tt_int(&t, 0));
        ckpt_tt_put(&t, root, "is_expert_param", ckpt_tt_bool(&t, true));
        ckpt_tt_put(&t, root, "ep_num_experts", ckpt_tt_int(&t, (int64_t)n));
    }
    return ckpt_tt_end(&t, root);
}

/* Write one kind of state of a parameter.  Zeros are written, and reported, if only this parameter
 * lacks it. */
static int uw_moment_file(ckpt_uni_write *w, const ckpt_tensor *p, const ckpt_pair *kind)
{
    const char *name = kind->key->as.text.at;
    const ckpt_tensor *moment = uw_moment(w, name, p);
    int rc = CKPT_OK;

    if (!moment && !w->how.fresh && kind->value->kind != CKPT_V_NONE)
        rc = ckpt_map_note(w->job.to, CKPT_WARNING, w->job.err,
                           "rewritten: %.200s of %.200s: the source has none; it begins at zero",
                           name, p->name);
    return rc == CKPT_OK ? uw_tensor_file(w, p, name, moment) : rc;
}

/* True if a parameter of the group has this kind of state, because DeepSpeed then requires it of
 * all. */
static bool uw_group_has(const ckpt_uni_write *w, const ckpt_group *g, const ckpt_pair *kind)
{
    if (w->how.fresh || kind->value->kind == CKPT_V_NONE)
        return true;
    for (size_t i = 0; i < g->n; i++) {
        if (uw_moment(w, kind->key->as.text.at, w->job.state->param.at[g->first + i]))
            return true;
    }
    return false;
}

static int uw_step_file(ckpt_uni_write *w, const char *param, const ckpt_group *g)
{
    const char *path = param ? uw_path(w, param, "step") : NULL;
    ckpt_torch_tree t;

    if (!path)
        return param ? w->job.err->code : ckpt_fail_memory(w->job.err);
    int rc = ckpt_tt_begin(&t, w->job.to, w->job.from, path, w->job.err);
    ckpt_value *root = rc == CKPT_OK ? ckpt_uni_write_step(w, &t, g) : NULL;
    int ended = ckpt_tt_end(&t, root);
    return rc != CKPT_OK ? rc : ended;
}

/* ---- all parameters ---- */

/* Report state of a group's optimizer that is dropped, because DeepSpeed reads only moments and
 * steps. */
static int uw_left_out(ckpt_uni_write *w, const ckpt_group *g)
{
    ckpt_dict kinds = ckpt_value_map(g->entry);
    int rc = CKPT_OK;

    for (uint64_t k = 0; rc == CKPT_OK && k < kinds.n; k++) {
        const ckpt_value *key = kinds.at[k].key;
        bool file = uw_is_kind(&kinds.at[k]) && uw_group_has(w, g, &kinds.at[k]);
        if (key->kind != CKPT_V_STR || file || ckpt_value_is(key, "step") ||
            kinds.at[k].value->kind == CKPT_V_NONE)
            continue;
        rc = ckpt_train_left_out(
            &w->job, CKPT_WARNING,
            "param_groups[%zu].state.%.200s: universal checkpoints of DeepSpeed "
            "cannot store it: a resumed run starts it anew",
            (size_t)(g - w->job.state->group.at), key->as.text.at);
    }
    return rc;
}

/* Write the folders of a group's parameters. */
static int uw_group(ckpt_uni_write *w, const ckpt_group *g)
{
    ckpt_dict kinds = ckpt_value_map(g->entry);
    ckpt_tensor *const *param = w->job.state->param.at + g->first;
    int rc = uw_left_out(w, g);

    for (size_t i = 0; rc == CKPT_OK && i < g->n; i++)
        rc = uw_tensor_file(w, param[i], "fp32", param[i]);
    for (uint64_t k = 0; rc == CKPT_OK && k < kinds.n; k++) {
        if (!uw_is_kind(&kinds.at[k]) || !uw_group_has(w, g, &kinds.at[k]))
            continue;
        for (size_t i = 0; rc == CKPT_OK && i < g->n; i++)
            rc = uw_moment_file(w, param[i], &kinds.at[k]);
    }
    for (size_t i = 0; rc == CKPT_OK && ckpt_uni_write_steps(w, g) && i < g->n; i++)
        rc = uw_step_file(w, ckpt_state_name(w->job.state, param[i]), g);
    return rc;
}

/* Write the folders of a group of AutoEP experts, one per layer. */
static int uw_experts(ckpt_uni_write *w, const ckpt_group *g)
{
    ckpt_dict kinds = ckpt_value_map(g->entry);
    ckpt_tensor *const *param = w->job.state->param.at + g->first;
    int rc = uw_left_out(w, g);

    for (size_t i = 0, n; rc == CKPT_OK && i < g->n; i += n) {
        n = ckpt_dsw_autoep_run(w->job.state, g, i);
        rc = uw_experts_file(w, param + i, n, "fp32");
        for (uint64_t k = 0; rc == CKPT_OK && k < kinds.n; k++) {
            if (uw_is_kind(&kinds.at[k]) && uw_group_has(w, g, &kinds.at[k]))
                rc = uw_experts_file(w, param + i, n, kinds.at[k].key->as.text.at);
        }
        if (rc == CKPT_OK && ckpt_uni_write_steps(w, g))
            rc = uw_step_file(
                w, ckpt_dsw_autoep_name(w->job.to->arena, ckpt_state_name(w->job.state, param[i])),
                g);
    }
    return rc;
}

/* True if the parameters of a group are experts of AutoEP. */
static bool uw_has_experts(const ckpt_uni_write *w, const ckpt_group *g)
{
    return ckpt_train_autoep(w->job.state) && g->n &&
           ckpt_dsw_autoep_prefix(w->job.state, w->job.state->param.at[g->first]) > 0;
}

/*
 * True if an untrained tensor of the module gets an fp32.pt.  DeepSpeed's converter (0.19.8) writes
 * one for every frozen parameter, buffer and second name, if the source is of stage 1 or 2.  A run
 * that starts to train a frozen parameter reads its master from there; for the other tensors
 * DeepSpeed only checks that the file exists.
 */
static bool uw_adds(const ckpt_uni_write *w, const ckpt_tensor *t)
{
    const char *name = ckpt_state_name(w->job.state, t);
    int stage = w->job.state->stage;
    bool more = (stage == 1 || stage == 2) && w->how.release >= CKPT_DS_RELEASE(0, 19, 8);

    if (t->role == CKPT_ROLE_STATE || !ckpt_path_part_ok(name, strlen(name)) ||
        strcmp(name, "optimizer_state.pt") == 0 || !ckpt_cast_find(CKPT_F32, t->dtype))
        return false;
    if (t->owner || t->role == CKPT_ROLE_BUFFER)
        return more;
    return ckpt_dsw_is_frozen(&w->job, t) && ckpt_dtype_get(t->dtype)->kind == CKPT_IS_FLOAT;
}

static int uw_others(ckpt_uni_write *w)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && !w->flat && i < w->job.from->tensors.n; i++) {
        const ckpt_tensor *t = w->job.from->tensors.at[i], *of = t->owner ? t->owner : t;
        if (!uw_adds(w, t))
            continue;
        // The module's value of a second name is rounded, so the master is written instead.
        rc = uw_tensor_file(w, t, "fp32", t->owner && of->twin ? of->twin : of);
    }
    return rc;
}

static int uw_files(ckpt_uni_write *w)
{
    int rc = CKPT_OK;

    if (w->whole)
        rc = ckpt_uni_model_file(w, false, "mp_rank_00_model_states.pt");
    if (rc == CKPT_OK && w->parts)
        rc = ckpt_uni_model_file(w, true, "zero_pp_rank_0_mp_rank_00_model_states.pt");
    if (rc == CKPT_OK)
        rc = ckpt_uni_optim_file(w, "zero/optimizer_state.pt");
    for (size_t g = 0; rc == CKPT_OK && g < w->job.state->group.n; g++)
        rc = uw_has_experts(w, &w->job.state->group.at[g])
                 ? uw_experts(w, &w->job.state->group.at[g])
                 : uw_group(w, &w->job.state->group.at[g]);
    return rc == CKPT_OK ? uw_others(w) : rc;
}

/* ---- the folder ---- */

/* Choose the name of the folder; `latest_universal` will hold it. */
static int uw_tag(ckpt_uni_write *w)
{
    static const char end[] = "_universal";
    const char *tag = w->job.target->tag, *known = w->job.from->known.tag;
    const char *of = known ? known : "global_step0";
    ckpt_map *to = w->job.to;

    // the output of a universal source keeps the source's name
    size_t n = strlen(of), m = sizeof end - 1;
    if (!tag)
        tag = ckpt_arena_printf(to->arena, "%s%s", of,
                                n > m && strcmp(of + n - m, end) == 0 ? "" : end);
    if (!tag)
        return ckpt_fail_memory(w->job.err);
    if (!ckpt_path_part_ok(tag, strlen(tag)))
        return ckpt_fail(w->job.err, CKPT_EUSAGE, "'%s' is not the plain name of a folder", tag);
    to->folder = ckpt_arena_string(to->arena, tag, strlen(tag));
    to->pointer = "latest_universal";
    to->pointer_text = to->folder;
    return to->folder ? CKPT_OK : ckpt_fail_memory(w->job.err);
}

int ckpt_uni_scatter(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err)
{
    assert(to && from && target);
    ckpt_err own = {0};
    ckpt_uni_write w = {.job = {.from = from, .to = to, .target = target}};
    ckpt_dtype d = target->dtype;

    // uw_* functions return err->code, so err must not be NULL
    w.job.err = err ? err : &own;
    int rc = uw_state(&w);
    if (rc == CKPT_OK) {
        w.how.dtype = d != CKPT_DTYPE_NONE ? d : w.job.state->dtype;
        w.how.new_dtype = w.how.dtype != w.job.state->dtype;
        w.how.fresh = target->fresh_optimizer;
        rc = uw_form(&w);
    }
    if (rc == CKPT_OK)
        rc = ckpt_dsw_stage0_left_out(&w.job, &w.how, false);
    if (rc == CKPT_OK)
        rc = uw_warn(&w);
    if (rc == CKPT_OK)
        rc = ckpt_train_objects(&w.job, NULL);
    if (rc == CKPT_OK)
        rc = uw_rules(&w);
    if (rc == CKPT_OK)
        rc = uw_tag(&w);
    to->claim = (ckpt_claim){.made = true,
                             .fresh = w.how.fresh,
                             .drop_objects = target->drop_objects,
                             .stage = -1,
                             .dtype = w.how.dtype};
    if (rc == CKPT_OK)
        rc = ckpt_dsw_put_aside(&w.job, &w.how);
    if (rc == CKPT_OK)
        rc = uw_files(&w);
    ckpt_uni_rules_free(w.rules);
    return rc;
}
