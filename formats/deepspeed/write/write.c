/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.c: writes ZeRO checkpoints of stage 1, 2 or 3 for any world size, from any map with a
 * training state.
 *
 * A run folder gets `latest` and a tag folder, which has model and optimizer files of every
 * data-parallel rank for each model-parallel rank.  Files of model-parallel runs that do not depend
 * on the data-parallel ranks (layers, experts) are copied.  Checked by loading with DeepSpeed
 * 0.19.8, and by converting there and back from 0.3.16 to 0.19.8.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/deepspeed/write/write.h"
#include "formats/training/buffers.h"
#include "formats/training/deepspeed_names.h"
#include "libckpt/map/order.h"

enum {
    DW_MAX_WORLD = 1 << 20,    /* ranks; the reader has the same limit */
    DW_SUB_GROUP = 1000000000, /* DeepSpeed's default of sub_group_size, in elements */
    DW_INTERVAL = 500000000    /* its default of reduce_bucket_size */
};

/* ---- settings ---- */

/* True if some state is not partitioned; no release loads that from an elastic checkpoint. */
static bool dw_has_whole(const ckpt_train_job *job, const ckpt_dsw_how *how)
{
    bool any = false;

    for (size_t g = 0; g < job->state->group.n; g++)
        any = any || ckpt_dsw_is_whole(job, how, &job->state->group.at[g], "momentum_buffer");
    return any;
}

/*
 * True for an elastic checkpoint (state without padding): like the source, or if the source cannot
 * show it, like ds_config.  Releases 0.3.3 to 0.5.9 load nothing else, so it is their default.
 */
static bool dw_lean(const ckpt_train_job *job, const ckpt_dsw_how *how)
{
    const ckpt_value *asked =
        ckpt_train_config_get(job->state, "zero_optimization", "elastic_checkpoint");

    if (how->stage == 3 || how->bf16_optimizer || how->legacy || dw_has_whole(job, how))
        return false;
    if (job->state->stage == 1 || job->state->stage == 2)
        return job->state->lean || job->state->legacy;
    if (!asked && job->state->stage == 3)
        return how->release < CKPT_DS_RELEASE(0, 5, 10);
    return ckpt_train_config_flag(job->state, "zero_optimization", "elastic_checkpoint");
}

/* Choose the form of stage 1: the source's, or for a source of another stage the form that
 * DeepSpeed writes with this ds_config. */
static void dw_stage1_form(const ckpt_train_job *job, ckpt_dsw_how *how)
{
    const ckpt_state *s = job->state;
    const ckpt_value *accum = ckpt_train_config_get(s, "data_types", "grad_accum_dtype");

    if (how->stage != 1)
        return;
    how->legacy =
        how->release < CKPT_DS_RELEASE(0, 4, 0) && (s->stage == 1 ? s->legacy : s->stage > 0);
    how->bf16_optimizer = s->stage == 1
                              ? s->bf16_optimizer
                              : how->dtype == CKPT_BF16 && accum && ckpt_value_is(accum, "fp32");
}

/* The source's stage.  Before 0.7.0 stage 1 is stored as 2, because it shares stage 2's code. */
static int dw_from_stage(const ckpt_state *s)
{
    bool shared = s->stage == 2 && ckpt_dsw_release(s->version) < CKPT_DS_RELEASE(0, 7, 0);

    return shared && ckpt_train_config_number(s, "zero_optimization", "stage", 2) == 1 ? 1
                                                                                       : s->stage;
}

/* The error code: a wrong argument of the user, or an unsupported source. */
static int dw_wrong(bool asked)
{
    return asked ? CKPT_EUSAGE : CKPT_EUNSUPPORTED;
}

/* Refuse settings that DeepSpeed does not have. */
static int dw_refuse(const ckpt_train_job *job, const ckpt_dsw_how *how)
{
    const ckpt_state *s = job->state;
    const ckpt_target *t = job->target;

    if (how->stage == 0 && s->stage != 0)
        return ckpt_fail(job->err, CKPT_EUNSUPPORTED,
                         "%s: a ZeRO checkpoint cannot be written without ZeRO", job->from->path);
    if (how->stage < 0 || how->stage > 3)
        return ckpt_fail(job->err, dw_wrong(t->stage != 0),
                         "stage %d is not valid: ZeRO directories have stage 1, 2 or 3",
                         how->stage);
    if (how->world > DW_MAX_WORLD)
        return ckpt_fail(job->err, dw_wrong(t->world > 0),
                         "a world of %" PRIu32 " ranks is too large: at most %d are supported",
                         how->world, DW_MAX_WORLD);
    if (how->release < 0)
        return ckpt_fail(job->err, dw_wrong(t->version != NULL),
                         "'%.80s' is not a release of DeepSpeed, such as 0.15.4: choose the "
                         "release to write for with --deepspeed-version",
                         t->version ? t->version : s->version);
    if (how->dtype != CKPT_F32 && how->dtype != CKPT_F16 && how->dtype != CKPT_BF16)
        return ckpt_fail(job->err, dw_wrong(t->dtype != CKPT_DTYPE_NONE),
                         "DeepSpeed trains in fp32, fp16 or bf16, not in %s",
                         ckpt_dtype_name(how->dtype));
    return CKPT_OK;
}

/* Choose all settings from the target and the source. */
static int dw_settings(const ckpt_train_job *job, ckpt_dsw_how *how)
{
    const ckpt_state *s = job->state;
    const ckpt_target *t = job->target;
    int rc;

    how->from_stage = dw_from_stage(s);
    how->stage = t->stage == CKPT_STAGE_NONE ? 0
                 : t->stage                  ? t->stage
                 : how->from_stage           ? how->from_stage
                                             : 1;
    how->world = t->world ? t->world : s->world ? s->world : 1;
    how->from_release = s->model && !s->foreign ? ckpt_dsw_release(s->version) : CKPT_DS_NEWEST;
    how->release = t->version ? ckpt_dsw_release(t->version) : how->from_release;
    how->dtype = t->dtype != CKPT_DTYPE_NONE   ? t->dtype
                 : s->dtype != CKPT_DTYPE_NONE ? s->dtype
                                               : CKPT_F32;
    how->new_dtype = how->dtype != s->dtype;
    how->fresh = t->fresh_optimizer;
    rc = dw_refuse(job, how);
    if (rc != CKPT_OK)
        return rc;
    // Stage 3 files of these releases have all parameters in one list, and nothing shows their
    // groups.
    if (how->stage == 3 && s->group.n > 1 && how->release < CKPT_DS_RELEASE(0, 4, 3))
        return ckpt_fail(job->err, CKPT_EUNSUPPORTED,
                         "%s: releases before 0.4.3 cannot keep %zu parameter groups in stage 3; "
                         "choose another stage, or a later release with --deepspeed-version",
                         job->from->path, s->group.n);
    dw_stage1_form(job, how);
    how->lean = dw_lean(job, how);
    // Stage 1 ignored the option before 0.13.0, and BF16_Optimizer always does.
    how->round_robin =
        !how->bf16_optimizer &&
        (how->stage == 2 || (how->stage == 1 && how->release >= CKPT_DS_RELEASE(0, 13, 0))) &&
        (s->round_robin || ckpt_train_config_flag(s, "zero_optimization", "round_robin_gradients"));
    how->aligned =
        how->stage > 0 && how->stage < 3 && how->release >= CKPT_DS_RELEASE(0, 19, 7) &&
        (s->aligned || ckpt_train_config_flag(s, "zero_optimization", "parameter_alignment"));
    how->sub_group_size =
        t->sub_group_size ? t->sub_group_size
        : s->sub_group_size
            ? s->sub_group_size
            : ckpt_train_config_number(s, "zero_optimization", "sub_group_size", DW_SUB_GROUP);
    how->interval = s->interval ? s->interval
                                : ckpt_train_config_number(s, "zero_optimization",
                                                           "reduce_bucket_size", DW_INTERVAL);
    return CKPT_OK;
}

/* 0.19.8 added is_optimized_parameter to deepspeed/runtime/utils.py */
int ckpt_dsw_put_aside(ckpt_train_job *job, const ckpt_dsw_how *how)
{
    const ckpt_state *all = job->state;
    int rc = CKPT_OK;

    if (how->release >= CKPT_DS_RELEASE(0, 19, 8))
        rc = ckpt_state_not_empty(&job->state, all, job->to->arena, job->err);
    if (rc != CKPT_OK || job->state == all)
        return rc;
    job->to->claim.no_empty = true;
    return ckpt_map_note(job->to, CKPT_INFO, job->err,
                         "left out: optimizer state of %zu trained parameters without elements, "
                         "which ZeRO counts as frozen from release 0.19.8 on",
                         all->param.n - job->state->param.n);
}

/* True if every rank of the target has the partition that the same rank of the source had. */
static bool dw_stays(const ckpt_train_job *job, const ckpt_dsw_how *how)
{
    const ckpt_state *s = job->state;

    return !how->fresh && how->stage > 0 && (how->stage == 3) == (s->stage == 3) && s->stage > 0 &&
           how->world == s->world && how->round_robin == s->round_robin &&
           how->aligned == s->aligned && how->legacy == s->legacy && how->lean == s->lean &&
           ckpt_ranked_stay(s);
}

/* ---- files ---- */

/*
 * Find the next layer or expert file, from source *i on; the reader gives each a source of the
 * whole file.  NULL: no more.
 */
static const char *dw_next_whole(const ckpt_map *from, uint32_t *i, ckpt_ds_kind *kind)
{
    for (; *i < from->sources.n; (*i)++) {
        const ckpt_source *s = &from->sources.at[*i];
        if (!s->whole)
            continue;
        const char *path = from->files.at[s->file].path, *slash = strrchr(path, '/');
        *kind = ckpt_ds_name_parse(slash ? slash + 1 : path).kind;
        return slash ? slash + 1 : path;
    }
    return NULL;
}

/* The name of a model or optimizer file, like "zero_pp_rank_3_mp_rank_00_model_states.pt". */
static const char *dw_name(const ckpt_train_job *job, const ckpt_dsw_how *how, uint32_t rank,
                           bool optim)
{
    const char *bf16 =
        optim && how->dtype == CKPT_BF16 && how->release >= CKPT_DS_RELEASE(0, 6, 2) ? "bf16_" : "";
    const char *bar = how->release >= CKPT_DS_RELEASE(0, 3, 14) ? "_" : "";

    if (!optim && how->stage < 3)
        return ckpt_arena_printf(job->to->arena, "mp_rank_%02" PRIu32 "_model_states.pt",
                                 job->state->mp);
    if (!optim)
        return ckpt_arena_printf(job->to->arena,
                                 "zero_pp_rank_%" PRIu32 "_mp_rank_%02" PRIu32 "_model_states.pt",
                                 rank, job->state->mp);
    return ckpt_arena_printf(job->to->arena,
                             "%szero_pp_rank_%" PRIu32 "_mp_rank_%02" PRIu32 "%soptim_states.pt",
                             bf16, rank, job->state->mp, bar);
}

/* Make all files of one model-parallel rank, then the tensors that fill them. */
static int dw_files(const ckpt_train_job *job, const ckpt_dsw_how *how,
                    const ckpt_dsw_layout *layout, ckpt_dsw_records *records)
{
    uint32_t n_models = how->stage == 3 ? how->world : 1;
    int rc = CKPT_OK;

    for (uint32_t r = 0; rc == CKPT_OK && r < how->world; r++) {
        const char *model = dw_name(job, how, r, false), *optim = dw_name(job, how, r, true);
        if (!model || !optim)
            return ckpt_fail_memory(job->err);
        if (r < n_models)
            rc = ckpt_dsw_model_file(job, how, layout, records, r, model);
        if (rc == CKPT_OK && how->stage > 0)
            rc = ckpt_dsw_optim_file(job, how, layout, records, r, optim);
    }
    return rc == CKPT_OK ? ckpt_dsw_fill(job, how, layout, records) : rc;
}

/* Decide whether ranks keep their own values of model files; check the classes of objects. */
static int dw_client(const ckpt_train_job *job, ckpt_dsw_how *how)
{
    const ckpt_state *state = job->state;
    bool keeps = !state->joined && how->stage == 3 && how->world == state->world;

    for (const ckpt_ranked *r = keeps ? state->client : NULL; r; r = r->next)
        how->client |= r->at != NULL;
    job->to->claim.keeps_client =
        keeps && (state == job->from->states.at[0] || job->to->claim.keeps_client);
    return ckpt_train_objects(job, how->client ? state->client : NULL);
}

/* Stage 3: warn about tensors that DeepSpeed refuses if they are buffers (buffers.h). */
static int dw_doubtful(const ckpt_train_job *job, const ckpt_dsw_how *how)
{
    const char *names = "";

    if (how->stage == 3 && job->state->foreign)
        names = ckpt_train_doubtful(job->to->arena, job->from, job->state);
    if (!names)
        return ckpt_fail_memory(job->err);
    return *names ? ckpt_map_note(job->to, CKPT_WARNING, job->err,
                                  "%s: written as frozen parameters, because the source does not "
                                  "show whether they are buffers: if they are, DeepSpeed refuses "
                                  "the output; --stage 2 stores both alike",
                                  names)
                  : CKPT_OK;
}

static int dw_state(ckpt_map *to, const ckpt_map *from, const ckpt_state *state,
                    const ckpt_target *target, ckpt_err *err)
{
    ckpt_train_job job = {.from = from, .to = to, .state = state, .target = target, .err = err};
    ckpt_dsw_how how = {0};
    ckpt_dsw_layout layout = {0};
    ckpt_dsw_records records = {0};
    ckpt_ds_kind kind = CKPT_DS_OTHER;
    int rc = dw_settings(&job, &how);

    how.ranked = rc == CKPT_OK && dw_stays(&job, &how);
    if (rc == CKPT_OK)
        rc = dw_client(&job, &how);
    for (uint32_t i = 0; rc == CKPT_OK && dw_next_whole(from, &i, &kind); i++) {
        how.layers = how.layers || (kind == CKPT_DS_LAYER && !state->joined);
        how.experts = how.experts || kind == CKPT_DS_EXPERT;
    }
    if (rc == CKPT_OK && how.stage > 0 && ckpt_train_autoep(state))
        rc = ckpt_dsw_autoep_deal(&job, &how);
    else if (rc == CKPT_OK && target->ep_size)
        rc = ckpt_fail(err, CKPT_EUSAGE,
                       "%s: --ep-size is for experts of AutoEP, and this run has none", from->path);
    // if experts move to other ranks, partitions change
    how.ranked = how.ranked && (!how.ep || how.ep == ckpt_train_autoep(state));
    to->claim.keeps_ranked = how.ranked && (state == from->states.at[0] || to->claim.keeps_ranked);
    how.made = rc == CKPT_OK && !how.experts && !how.ep && ckpt_dsw_has_experts(&job);
    how.experts = how.experts || how.made || how.ep;
    if (rc == CKPT_OK && how.stage > 0)
        rc = ckpt_dsw_stage0_left_out(&job, &how, how.stage < 3);
    to->effects |= how.stage == 3 ? CKPT_USED_SUB_GROUPS : 0;
    // Before 0.7.0 stage 1 is stored as 2, because it shares stage 2's code.
    to->claim.stage =
        how.stage == 1 && !how.legacy && how.release < CKPT_DS_RELEASE(0, 7, 0) ? 2 : how.stage;
    to->claim.world = how.world;
    to->ranks = how.world;
    to->claim.other_release = how.release != how.from_release;
    to->claim.dtype = how.dtype;
    if (rc == CKPT_OK && how.stage > 0)
        rc = ckpt_dsw_put_aside(&job, &how);
    if (rc == CKPT_OK)
        rc = ckpt_dsw_layout_new(&job, &how, &layout);
    if (rc == CKPT_OK)
        rc = ckpt_dsw_records_new(&job, &how, &layout, &records);
    if (rc == CKPT_OK)
        rc = dw_files(&job, &how, &layout, &records);
    if (rc == CKPT_OK && how.made)
        rc = ckpt_dsw_expert_files(&job, &how, &layout);
    if (rc == CKPT_OK)
        rc = ckpt_dsw_clipping(&job, how.release);
    if (rc == CKPT_OK)
        rc = dw_doubtful(&job, &how);
    if (rc == CKPT_OK && how.ep && how.stage < 3)
        rc = ckpt_dsw_autoep_files(&job, &how);
    ckpt_dsw_records_free(&records);
    ckpt_dsw_layout_free(&layout);
    return rc;
}

/* Copy a file that does not depend on the data-parallel ranks. */
static int dw_whole_file(ckpt_map *to, const ckpt_map_file *file, const char *name, uint32_t source,
                         ckpt_err *err)
{
    ckpt_map_file made = {.path = name, .size = file->size, .placed = true, .rank = UINT32_MAX};
    ckpt_source s = {
        .kind = CKPT_SOURCE_FILE, .n_stored = file->size, .n_bytes = file->size, .name = name};
    ckpt_tensor like = {.dtype = CKPT_U8, .ndim = 1, .shape = &file->size}, *donor = NULL;
    ckpt_axis axis = {0, file->size, 1}, *own = ckpt_arena_copy(to->arena, &axis, sizeof axis);
    ckpt_extent e = {.ndim = 1, .axis = &axis},
                *extent = ckpt_arena_alloc(to->arena, sizeof *extent);
    int rc = ckpt_map_add_file(to, &made, &s.file, err);

    if (!own || !extent)
        return ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = ckpt_map_add_source(to, &s, &e.source, err);
    if (rc == CKPT_OK)
        rc = ckpt_map_add_hidden(to, name, strlen(name), &like, &donor, err);
    if (rc != CKPT_OK || file->size == 0)
        return rc;
    *extent = (ckpt_extent){.source = source, .ndim = 1, .axis = own};
    donor->extent = extent;
    donor->n_extents = 1;
    return ckpt_tt_fill(to, &(ckpt_torch_fill){"file", donor, CKPT_U8}, &e, 1, err);
}

/* Copy all such files, except layers that were joined into the module. */
static int dw_whole_files(ckpt_map *to, const ckpt_map *from, const ckpt_target *target,
                          ckpt_err *err)
{
    const ckpt_state *state = from->states.at[0];
    ckpt_ds_kind kind = CKPT_DS_OTHER;
    const char *name;
    int rc = CKPT_OK;

    for (uint32_t i = 0; rc == CKPT_OK && (name = dw_next_whole(from, &i, &kind)); i++) {
        // AutoEP's experts are written anew, because not every stage has files for them
        if ((kind == CKPT_DS_LAYER && state->joined) || ckpt_train_autoep(state))
            continue;
        if (state->joined)
            return ckpt_fail(err, CKPT_EUNSUPPORTED,
                             "%s: experts of several model-parallel ranks cannot be joined into "
                             "files that DeepSpeed reads; leave the ranks as they are",
                             from->path);
        if (target->dtype != CKPT_DTYPE_NONE && target->dtype != state->dtype)
            return ckpt_fail(err, CKPT_EUNSUPPORTED,
                             "%s: is copied as it is, in %s: its dtype cannot be changed", name,
                             ckpt_dtype_name(state->dtype));
        rc = dw_whole_file(to, &from->files.at[from->sources.at[i].file], name, i, err);
    }
    return rc;
}

/* ---- the folder ---- */

/* Choose the name of the tag folder. */
static int dw_tag(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err)
{
    const char *tag = target->tag ? target->tag : from->known.tag;
    int64_t step = 0;

    if (!tag) {
        ckpt_value_as_int(ckpt_value_get(from->states.at[0]->model, "global_steps"), &step);
        tag = ckpt_arena_printf(to->arena, "global_step%" PRId64, step);
    }
    if (!tag)
        return ckpt_fail_memory(err);
    if (!ckpt_path_part_ok(tag, strlen(tag)))
        return ckpt_fail(err, dw_wrong(target->tag != NULL),
                         "tag '%s' is not the plain name of a folder", tag);
    to->folder = ckpt_arena_string(to->arena, tag, strlen(tag));
    to->pointer = "latest";
    to->pointer_text = to->folder;
    return to->folder ? CKPT_OK : ckpt_fail_memory(err);
}

static int dw_scatter(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err)
{
    int rc = CKPT_OK;

    if (from->states.n == 0)
        return ckpt_state_none(from, err);
    rc = dw_tag(to, from, target, err);
    to->claim = (ckpt_claim){
        .made = true, .fresh = target->fresh_optimizer, .drop_objects = target->drop_objects};
    for (size_t i = 0; rc == CKPT_OK && i < from->states.n; i++)
        rc = ckpt_state_ordered(from, from->states.at[i], err);
    for (size_t i = 0; rc == CKPT_OK && i < from->states.n; i++)
        rc = dw_state(to, from, from->states.at[i], target, err);
    return rc == CKPT_OK ? dw_whole_files(to, from, target, err) : rc;
}

/* Accept no folder: the driver "deepspeed" reads what this driver writes. */
static int dw_probe(const ckpt_listing *list)
{
    (void)list;
    return 0;
}

const ckpt_dtype ckpt_ds_dtypes[] = {CKPT_F32, CKPT_F16, CKPT_BF16, CKPT_DTYPE_NONE};

const ckpt_directory ckpt_directory_zero = {
    .is =
        {
            .name = "zero",
            .note = "DeepSpeed ZeRO stages 1 to 3, any world, as 0.3.16 to 0.19.8 write them",
            .caps = CKPT_CAN_WRITE | CKPT_WRITES_STATE | CKPT_HAS_RANKS | CKPT_IS_FOLDER |
                    CKPT_TAKES_WORLD,
            .dtypes = ckpt_ds_dtypes,
        },
    .probe = dw_probe,
    .scatter = dw_scatter,
};
