/* SPDX-License-Identifier: Apache-2.0 */
/*
 * common.c: writes common.pt: Megatron's arguments, and the values of the run that are not tensors.
 *
 * The arguments describe the model for --use-checkpoint-args and for the way back to other names.
 * They come from a run of Megatron, from the layout map (config right args), and from the tensors.
 */
#include <assert.h>
#include <string.h>

#include "formats/megatron/write.h"
#include "formats/torch/tree.h"
#include "formats/training/kept_values.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/number.h"

/* The state of the making of the file. */
typedef struct mgv_maker {
    const ckpt_train_job *job;
    ckpt_torch_tree t;
    ckpt_value *values; /* the run's values other than model and optimizer; NULL: weights alone */
    ckpt_meg_regroups group;
    const ckpt_meg_sizes *size; /* the ranks by which files are cut; NULL: they are not */
    int64_t samples;            /* number of samples that the run has trained on; 0: unknown */
} mgv_maker;

/* ---- arguments ---- */

int64_t ckpt_meg_iteration(const ckpt_train_job *job)
{
    assert(job);
    const ckpt_value *model = job->state ? job->state->model : NULL;
    const char *tag = job->target->tag;
    int64_t n = 0;

    if ((ckpt_value_as_int(ckpt_value_get(model, "iteration"), &n) ||
         ckpt_value_as_int(ckpt_value_get(model, "global_steps"), &n)) &&
        n > 0)
        return n;
    return tag && ckpt_meg_is_iter(tag) && ckpt_parse_i64(tag + 5, &n) && n > 0 ? n : 0;
}

/* The attributes of the source's arguments (an argparse.Namespace), or NULL. */
static const ckpt_value *mgv_had(const ckpt_train_job *job)
{
    const ckpt_value *root =
        job->state && job->state->model ? job->state->model : job->from->values;
    const ckpt_value *args = ckpt_value_get(root, "args");
    ckpt_dict all = ckpt_value_map(root);

    // files of ranks: all have the arguments of the run
    if (!args && all.n > 0 && all.at[0].key->kind == CKPT_V_STR &&
        strncmp(all.at[0].key->as.text.at, "mp_rank_", 8) == 0)
        args = ckpt_value_get(all.at[0].value, "args");

    return args && args->kind == CKPT_V_OBJECT ? args->as.object->state : args;
}

/* The dtype of the model's weights: that of training, or of the first matrix. */
static ckpt_dtype mgv_dtype(const ckpt_train_job *job)
{
    const ckpt_map *from = job->from;
    ckpt_dtype dtype = job->target->dtype;

    if (dtype == CKPT_DTYPE_NONE && job->state)
        dtype = job->state->dtype;
    for (size_t i = 0; dtype == CKPT_DTYPE_NONE && i < from->tensors.n; i++) {
        if (from->tensors.at[i]->role != CKPT_ROLE_STATE && from->tensors.at[i]->ndim > 1)
            dtype = from->tensors.at[i]->dtype;
    }
    return dtype;
}

/* True if the run's values have states of random numbers, which write.c writes. */
static bool mgv_has_random(const mgv_maker *m)
{
    ckpt_dict all = ckpt_value_map(m->values);
    bool has = false;

    for (uint64_t i = 0; !has && i < all.n; i++)
        has = all.at[i].key->kind == CKPT_V_STR &&
              strncmp(all.at[i].key->as.text.at, "rng_state/", 10) == 0;
    return has;
}

/* Set a value that describes the output, and say so if the source had another one. */
static void mgv_set(mgv_maker *m, ckpt_value *dict, const char *path, const char *key,
                    ckpt_value *v)
{
    const ckpt_value *had = ckpt_value_get(dict, key);

    if (had && v && !ckpt_value_equal(had, v, 1 << 16) && m->t.rc == CKPT_OK)
        m->t.rc =
            ckpt_map_note_once(m->job->to, CKPT_INFO, m->job->err,
                               "rewritten: %s.%s: describes the output's own layout", path, key);
    ckpt_tt_put(&m->t, dict, key, v);
}

/* Set the sizes by which files are cut: Megatron-LM compares them with its own. */
static void mgv_sizes(mgv_maker *m, ckpt_value *args)
{
    const ckpt_meg_sizes *n = m->size;

    mgv_set(m, args, "args", "tensor_model_parallel_size", ckpt_tt_int(&m->t, n->tp));
    mgv_set(m, args, "args", "pipeline_model_parallel_size", ckpt_tt_int(&m->t, n->pp));
    mgv_set(m, args, "args", "expert_model_parallel_size", ckpt_tt_int(&m->t, n->ep));
    mgv_set(m, args, "args", "virtual_pipeline_model_parallel_size",
            ckpt_tt_new(&m->t, CKPT_V_NONE));
    mgv_set(m, args, "args", "transformer_impl",
            ckpt_tt_str(&m->t, n->local ? "local" : "transformer_engine"));
    mgv_set(m, args, "args", "moe_grouped_gemm", ckpt_tt_bool(&m->t, n->grouped));
    mgv_set(m, args, "args", "untie_embeddings_and_output_weights", ckpt_tt_bool(&m->t, n->untied));
}

/*
 * Add the parallel sizes, without which Megatron-LM 0.12 to 0.16 does not load: it compares them
 * with its own to decide about random states.  torch_dist files are not cut by them.
 */
static void mgv_parallel(mgv_maker *m, ckpt_value *args)
{
    static const char *const names[] = {"tensor_model_parallel_size",
                                        "pipeline_model_parallel_size"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!ckpt_value_get(args, names[i]))
            ckpt_tt_put(&m->t, args, names[i], ckpt_tt_int(&m->t, 1));
    }
}

/* Add the arguments that follow from the tensors and the target. */
static void mgv_known(mgv_maker *m, ckpt_value *args)
{
    static const char table[] = "embedding.word_embeddings.weight";
    const ckpt_train_job *job = m->job;
    size_t at = ckpt_map_index(job->from, table, sizeof table - 1);
    ckpt_dtype dtype = mgv_dtype(job);
    ckpt_value *v = ckpt_tt_new(&m->t, CKPT_V_DTYPE);

    if (at != SIZE_MAX && job->from->tensors.at[at]->ndim > 0)
        mgv_set(m, args, "args", "padded_vocab_size",
                ckpt_tt_int(&m->t, (int64_t)job->from->tensors.at[at]->shape[0]));
    if (v)
        v->as.dtype = dtype;
    mgv_set(m, args, "args", "params_dtype", v);
    mgv_set(m, args, "args", "bf16", ckpt_tt_bool(&m->t, dtype == CKPT_BF16));
    mgv_set(m, args, "args", "fp16", ckpt_tt_bool(&m->t, dtype == CKPT_F16));
    mgv_set(m, args, "args", "ckpt_format", ckpt_tt_str(&m->t, m->size ? "torch" : "torch_dist"));
    mgv_set(m, args, "args", "use_distributed_optimizer", ckpt_tt_bool(&m->t, job->state != NULL));
    mgv_set(m, args, "args", "iteration", ckpt_tt_int(&m->t, ckpt_meg_iteration(job)));
    // without these Megatron-LM looks for the states of the optimizer and of random numbers
    mgv_set(m, args, "args", "no_save_optim", ckpt_tt_bool(&m->t, job->state == NULL));
    mgv_set(m, args, "args", "no_save_rng", ckpt_tt_bool(&m->t, !mgv_has_random(m)));
    if (m->samples > 0)
        mgv_set(m, args, "args", "consumed_train_samples", ckpt_tt_int(&m->t, m->samples));
}

/* Make the arguments, as Megatron-LM saves them. */
static ckpt_value *mgv_args(mgv_maker *m)
{
    const ckpt_map_config *config = &m->job->from->config;
    bool own = config->file && strcmp(config->file, "args") == 0;
    ckpt_dict had = ckpt_value_map(mgv_had(m->job)),
              made = ckpt_value_map(own ? config->value : NULL);
    ckpt_value *args = ckpt_tt_new(&m->t, CKPT_V_DICT);

    for (uint64_t i = 0; i < had.n; i++) {
        if (had.at[i].key->kind == CKPT_V_STR)
            ckpt_tt_put(&m->t, args, had.at[i].key->as.text.at,
                        ckpt_tt_copy(&m->t, had.at[i].value));
    }
    for (uint64_t i = 0; i < made.n; i++) {
        if (!ckpt_value_get(args, made.at[i].key->as.text.at))
            ckpt_tt_put(&m->t, args, made.at[i].key->as.text.at,
                        ckpt_tt_copy(&m->t, made.at[i].value));
    }
    mgv_known(m, args);
    if (m->size)
        mgv_sizes(m, args);
    else
        mgv_parallel(m, args);
    return ckpt_tt_object(&m->t, "argparse", "Namespace", CKPT_BY_NEWOBJ,
                          ckpt_tt_new(&m->t, CKPT_V_TUPLE), args);
}

ckpt_value *ckpt_meg_args(ckpt_torch_tree *t, const ckpt_train_job *job, const ckpt_meg_sizes *size)
{
    assert(t && job);
    mgv_maker m = {.job = job, .t = *t, .size = size};
    ckpt_value *args = mgv_args(&m);

    *t = m.t;
    return args;
}

/* An argument of the output, or NULL. */
static const ckpt_value *mgv_argument(const ckpt_train_job *job, const char *name)
{
    const ckpt_map_config *config = &job->from->config;
    const ckpt_value *v = ckpt_value_get(mgv_had(job), name);

    return v || !config->file || strcmp(config->file, "args") != 0
               ? v
               : ckpt_value_get(config->value, name);
}

int64_t ckpt_meg_argument(const ckpt_train_job *job, const char *name)
{
    assert(job && name);
    int64_t n = 0;

    return ckpt_value_as_int(mgv_argument(job, name), &n) ? n : 0;
}

bool ckpt_meg_argument_is(const ckpt_train_job *job, const char *name, const char *text)
{
    assert(job && name && text);
    const ckpt_value *v = mgv_argument(job, name);

    return v && ckpt_value_is(v, text);
}

bool ckpt_meg_is_grouped(const ckpt_train_job *job)
{
    const ckpt_value *v = mgv_argument(job, "group_query_attention");

    return v ? v->kind == CKPT_V_BOOL && v->as.i : mgv_argument(job, "num_query_groups") != NULL;
}

int ckpt_meg_missing(const ckpt_train_job *job, const char *file)
{
    assert(job && file);
    const ckpt_map_config *config = &job->from->config;

    if (!config->missing || mgv_had(job))
        return CKPT_OK;
    return ckpt_map_note(job->to, CKPT_WARNING, job->err,
                         "%s: arguments that the source's configuration does not give: %s "
                         "(--size NAME=VALUE gives one)",
                         file, config->missing);
}

/* ---- the file ---- */

/* Describe the optimizer's layout, by which Megatron-LM chooses how it loads. */
static ckpt_value *mgv_content(mgv_maker *m)
{
    static const char path[] = "content_metadata";
    const ckpt_train_job *job = m->job;
    const ckpt_value *had = ckpt_value_get(job->state ? job->state->model : NULL, path);
    ckpt_value *d = ckpt_tt_new(&m->t, CKPT_V_DICT);
    ckpt_dict all = ckpt_value_map(had);

    for (uint64_t i = 0; i < all.n; i++) {
        if (all.at[i].key->kind == CKPT_V_STR)
            ckpt_tt_put(&m->t, d, all.at[i].key->as.text.at, ckpt_tt_copy(&m->t, all.at[i].value));
    }
    mgv_set(m, d, path, "singleton_local_shards", ckpt_tt_bool(&m->t, false));
    mgv_set(m, d, path, "chained_optim_avoid_prefix", ckpt_tt_bool(&m->t, true));
    if (job->state)
        mgv_set(m, d, path, "distrib_optim_sharding_type", ckpt_tt_str(&m->t, "fully_reshardable"));
    return d;
}

/* ---- the optimizer ---- */

/* Merge the members of another optimizer of Megatron (grad_scaler), except groups and state. */
static void mgv_beside(mgv_maker *m, ckpt_value *outer, ckpt_value *inner, const ckpt_value *had)
{
    ckpt_dict all = ckpt_value_map(had);

    for (uint64_t i = 0; i < all.n; i++) {
        const ckpt_value *key = all.at[i].key;
        if (ckpt_value_is(key, "optimizer") && all.at[i].value->kind == CKPT_V_DICT)
            mgv_beside(m, inner, inner, all.at[i].value);
        else if (key->kind == CKPT_V_STR)
            ckpt_tt_put(&m->t, outer, key->as.text.at, ckpt_tt_copy(&m->t, all.at[i].value));
    }
}

static bool mgv_is_expert(const ckpt_meg_regrouped *r)
{
    const ckpt_value *v = ckpt_value_get(r->settings, "is_expert_parallel");

    return v && v->kind == CKPT_V_BOOL && v->as.i;
}

/* Make one optimizer, with the groups of experts or with all others; beside: its further values. */
static ckpt_value *mgv_optimizer(mgv_maker *m, bool all, bool experts, const ckpt_value *beside)
{
    ckpt_value *outer = ckpt_tt_new(&m->t, CKPT_V_DICT), *inner = ckpt_tt_new(&m->t, CKPT_V_DICT),
               *list = ckpt_tt_new(&m->t, CKPT_V_LIST);

    for (size_t i = 0; i < m->group.n; i++) {
        if (all || mgv_is_expert(&m->group.at[i]) == experts)
            ckpt_tt_add(&m->t, list, ckpt_tt_copy(&m->t, m->group.at[i].settings));
    }
    mgv_beside(m, outer, inner, beside);
    ckpt_tt_put(&m->t, inner, "param_groups", list);
    ckpt_tt_put(&m->t, outer, "optimizer", inner);
    ckpt_tt_put(&m->t, outer, "param_state_sharding_type", ckpt_tt_str(&m->t, "fully_reshardable"));
    return outer;
}

/* The values of the i-th of several optimizers. */
static const ckpt_value *mgv_numbered(const ckpt_value *beside, int64_t number)
{
    ckpt_dict all = ckpt_value_map(beside);

    for (uint64_t i = 0; i < all.n; i++) {
        if (all.at[i].key->kind == CKPT_V_INT && all.at[i].key->as.i == number)
            return all.at[i].value;
    }
    return NULL;
}

/* Make the optimizer; experts that are spread over ranks have one of their own. */
static ckpt_value *mgv_optimizers(mgv_maker *m)
{
    const ckpt_value *beside = ckpt_value_get(m->job->state->model, "megatron_optimizer");
    bool experts = false;
    ckpt_value *both;

    for (size_t i = 0; i < m->group.n; i++)
        experts = experts || mgv_is_expert(&m->group.at[i]);
    if (!experts)
        return mgv_optimizer(m, true, false, beside);
    both = ckpt_tt_new(&m->t, CKPT_V_DICT);
    for (int64_t i = 0; i < 2; i++)
        ckpt_tt_put_at(&m->t, both, ckpt_tt_int(&m->t, i),
                       mgv_optimizer(m, false, i == 1, mgv_numbered(beside, i)));
    return both;
}

/* ---- the schedule ---- */

static double mgv_number(const ckpt_value *v)
{
    return v && v->kind == CKPT_V_FLOAT ? v->as.f
           : v && v->kind == CKPT_V_INT ? (double)v->as.i
                                        : 0;
}

/* The settings of the first group with weight decay, or of the first one; NULL: no groups. */
static const ckpt_value *mgv_main(const mgv_maker *m)
{
    for (size_t i = 0; i < m->group.n; i++) {
        if (mgv_number(ckpt_value_get(m->group.at[i].settings, "wd_mult")) > 0)
            return m->group.at[i].settings;
    }
    return m->group.n > 0 ? m->group.at[0].settings : NULL;
}

/*
 * If groups have different learning rates, let each state its own as max_lr and min_lr, by which
 * OptimizerParamScheduler.get_lr replaces those of the schedule.
 */
static bool mgv_rates(mgv_maker *m)
{
    static const char *const names[] = {"max_lr", "min_lr"};
    ckpt_arena *arena = m->job->to->arena;
    const ckpt_value *first = ckpt_value_get(mgv_main(m), "lr");
    bool same = true, ok = true;

    for (size_t i = 0; first && i < m->group.n; i++)
        same =
            same && mgv_number(ckpt_value_get(m->group.at[i].settings, "lr")) == mgv_number(first);
    for (size_t i = 0; ok && !same && i < 2 * m->group.n; i++) {
        ckpt_value *settings = m->group.at[i / 2].settings;
        double lr = i % 2 == 0 ? mgv_number(ckpt_value_get(settings, "lr")) : 0;
        ok =
            ckpt_value_get(settings, names[i % 2]) ||
            ckpt_dict_add_cstr(arena, &settings->as.map, names[i % 2], ckpt_value_float(arena, lr));
    }
    return ok;
}

/*
 * Make the state of Megatron's scheduler, without which it does not resume: a constant rate,
 * because its schedule counts samples and is an argument of the command.
 */
static ckpt_value *mgv_schedule(mgv_maker *m)
{
    const ckpt_value *settings = mgv_main(m);
    double lr = mgv_number(ckpt_value_get(settings, "lr")),
           decay = mgv_number(ckpt_value_get(settings, "weight_decay"));
    ckpt_value *d = ckpt_tt_new(&m->t, CKPT_V_DICT);
    int64_t steps = m->samples > 0 ? m->samples : 1;

    ckpt_tt_put(&m->t, d, "max_lr", ckpt_tt_float(&m->t, lr));
    ckpt_tt_put(&m->t, d, "lr_warmup_steps", ckpt_tt_int(&m->t, 0));
    ckpt_tt_put(&m->t, d, "num_steps", ckpt_tt_int(&m->t, m->samples));
    ckpt_tt_put(&m->t, d, "lr_decay_style", ckpt_tt_str(&m->t, "constant"));
    ckpt_tt_put(&m->t, d, "lr_decay_steps", ckpt_tt_int(&m->t, steps));
    ckpt_tt_put(&m->t, d, "min_lr", ckpt_tt_float(&m->t, 0));
    ckpt_tt_put(&m->t, d, "start_wd", ckpt_tt_float(&m->t, decay));
    ckpt_tt_put(&m->t, d, "end_wd", ckpt_tt_float(&m->t, decay));
    ckpt_tt_put(&m->t, d, "wd_incr_style", ckpt_tt_str(&m->t, "constant"));
    ckpt_tt_put(&m->t, d, "wd_incr_steps", ckpt_tt_int(&m->t, steps));
    return d;
}

/* ---- the run ---- */

/* True for a value that has another place in the output. */
static bool mgv_elsewhere(const ckpt_value *key)
{
    static const char *const names[] = {"args", "checkpoint_version", "iteration",
                                        "content_metadata", "megatron_optimizer"};
    bool is = key->kind != CKPT_V_STR || strstr(key->as.text.at, "/shard_");

    for (size_t i = 0; !is && i < sizeof names / sizeof *names; i++)
        is = ckpt_value_is(key, names[i]);
    return is;
}

/* Add optimizer, schedule, and the other values of the run. */
static int mgv_run(mgv_maker *m, ckpt_value *root)
{
    ckpt_dict all = ckpt_value_map(m->values);

    if (!ckpt_value_get(m->values, "opt_param_scheduler") && !mgv_rates(m))
        return ckpt_fail_memory(m->job->err);
    ckpt_tt_put(&m->t, root, "optimizer", mgv_optimizers(m));
    for (uint64_t i = 0; i < all.n; i++) {
        const ckpt_value *key = all.at[i].key;
        if (!mgv_elsewhere(key))
            ckpt_tt_put(&m->t, root,
                        ckpt_value_is(key, "lr_scheduler") ? CKPT_MEG_SCHEDULE : key->as.text.at,
                        ckpt_tt_copy(&m->t, all.at[i].value));
    }
    if (ckpt_value_get(root, "opt_param_scheduler"))
        return CKPT_OK;
    ckpt_tt_put(&m->t, root, "opt_param_scheduler", mgv_schedule(m));
    return ckpt_map_note(m->job->to, CKPT_WARNING, m->job->err,
                         "opt_param_scheduler: written with a constant learning rate, because the "
                         "source has no schedule of Megatron: give Megatron its schedule and "
                         "--override-opt_param-scheduler%s",
                         m->samples > 0 ? ""
                                        : "; its num_steps is 0, because the source does not state "
                                          "its batch size, so the schedule begins anew");
}

/* List the values that Megatron needs and the run of DeepSpeed does not have. */
static bool mgv_added(const mgv_maker *m)
{
    static const char *const names[] = {"args", "checkpoint_version", "iteration",
                                        "content_metadata", "opt_param_scheduler"};
    ckpt_arena *arena = m->job->to->arena;
    ckpt_dict all = ckpt_value_map(m->values);
    ckpt_value *list = ckpt_value_new(arena, CKPT_V_LIST), *kept = NULL;
    bool ok = list != NULL;

    for (uint64_t i = 0; i < all.n; i++) {
        if (all.at[i].key->kind == CKPT_V_STR && ckpt_train_is_kept(&all.at[i]))
            kept = all.at[i].value;
    }
    for (size_t i = 0; ok && i < sizeof names / sizeof *names; i++) {
        ckpt_value *name = ckpt_value_cstr(arena, names[i]);
        ok = name && (ckpt_value_get(m->job->state->model, names[i]) ||
                      ckpt_seq_add(arena, &list->as.seq, name));
    }
    return ok && (!kept || ckpt_dict_add_cstr(arena, &kept->as.map, CKPT_MEG_ADDED, list));
}

/*
 * The number of samples of a step by DeepSpeed's configuration, or 0: train_batch_size, or what
 * DeepSpeed makes of the other two sizes if it is absent or "auto".
 */
static int64_t mgv_batch(const ckpt_value *model)
{
    static const char *const names[] = {"train_micro_batch_size_per_gpu",
                                        "gradient_accumulation_steps", "dp_world_size"};
    const ckpt_value *config = ckpt_value_get(model, "ds_config");
    int64_t batch = 0, n = 1;

    if (ckpt_value_as_int(ckpt_value_get(config, "train_batch_size"), &batch))
        return batch > 0 && batch < INT32_MAX ? batch : 0;
    batch = 1;
    for (size_t i = 0; i < 3; i++) {
        const ckpt_value *v = ckpt_value_get(i < 2 ? config : model, names[i]);
        n = 1;
        if ((!v && i != 1) || (v && !ckpt_value_as_int(v, &n)) || n <= 0 || n >= INT32_MAX / batch)
            return 0;
        batch *= n;
    }
    return batch;
}

/* Collect groups, values, and the number of samples. */
static int mgv_collect(mgv_maker *m)
{
    const ckpt_train_job *job = m->job;
    const ckpt_dcp_layout *layout = NULL;
    int64_t batch = mgv_batch(job->state->model);
    int rc = ckpt_meg_regroup(&m->group, job);

    if (rc == CKPT_OK)
        rc = ckpt_dcp_layout_find(&layout, NULL, job->err);
    if (rc == CKPT_OK)
        rc = ckpt_dcp_program_values(&m->values, job->to, job->from, job->state, layout, job->err);
    if (rc == CKPT_OK && !mgv_added(m))
        rc = ckpt_fail_memory(job->err);
    if (ckpt_meg_iteration(job) < INT32_MAX)
        m->samples = batch * ckpt_meg_iteration(job);
    return rc;
}

static int mgv_write(mgv_maker *m)
{
    const ckpt_train_job *job = m->job;
    int rc = job->state ? mgv_collect(m) : CKPT_OK;
    ckpt_value *root;

    if (rc != CKPT_OK)
        return rc;
    rc = ckpt_tt_begin(&m->t, job->to, job->from, CKPT_MEG_COMMON, job->err);
    m->t.drop_objects = job->target->drop_objects;
    root = rc == CKPT_OK ? ckpt_tt_new(&m->t, CKPT_V_DICT) : NULL;
    ckpt_tt_put(&m->t, root, "args", mgv_args(m));
    ckpt_tt_put(&m->t, root, "checkpoint_version", ckpt_tt_float(&m->t, 3.0));
    ckpt_tt_put(&m->t, root, "iteration", ckpt_tt_int(&m->t, ckpt_meg_iteration(job)));
    ckpt_tt_put(&m->t, root, "content_metadata", mgv_content(m));
    rc = job->state ? mgv_run(m, root) : CKPT_OK;
    int end = ckpt_tt_end(&m->t, root);
    rc = rc == CKPT_OK ? end : rc;
    return rc == CKPT_OK ? ckpt_meg_missing(job, CKPT_MEG_COMMON) : rc;
}

int ckpt_meg_write_common(const ckpt_train_job *job)
{
    assert(job && job->to);
    mgv_maker m = {.job = job};
    int rc = mgv_write(&m);

    ckpt_vec_free(&m.group);
    return rc;
}
