/* SPDX-License-Identifier: Apache-2.0 */
/*
 * to_fsdp.c: converts a run to FSDP for all of FSDP's file formats: refuses sources and options,
 * decides which values FSDP can store, and chooses the dtype of tensors.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/training/ds_config.h"
#include "formats/training/expert_ranks.h"
#include "formats/training/kept_values.h"
#include "formats/training/to_fsdp.h"
#include "formats/training/write_job.h"
#include "libckpt/base/cast.h"
#include "libckpt/base/number.h"
#include "libckpt/transform/dtypes.h"

uint64_t ckpt_train_fsdp_rows(uint64_t rows, uint32_t ranks, uint32_t rank, uint64_t *start)
{
    assert(ranks > 0 && rank < ranks && start);
    uint64_t each = rows / ranks + (rows % ranks != 0);

    *start = each > 0 && rank <= rows / each ? rank * each : rows; // no overflow: at most rows
    return rows - *start < each ? rows - *start : each;
}

ckpt_dtype ckpt_train_written(const ckpt_target *target, const ckpt_tensor *t)
{
    assert(target && t);
    bool converts = target->dtype != CKPT_DTYPE_NONE &&
                    !ckpt_dtype_stays(t->name, t->dtype, target->dtype) &&
                    (target->dtype == t->dtype || ckpt_cast_find(target->dtype, t->dtype));

    return converts ? target->dtype : t->dtype;
}

/* The program that loads the output. */
static const char *dru_program(const ckpt_train_job *job)
{
    return job->program ? job->program : "FSDP";
}

/*
 * Name the folder, which is published as a whole next to other checkpoints of its run.  Readers
 * take a run with folders "iter_N" for Megatron's.
 */
static int dru_folder(const ckpt_train_job *job)
{
    const char *tag = job->target->tag ? job->target->tag : job->from->known.tag;
    uint64_t step = 0;

    if (!tag)
        tag = "checkpoint";
    else if (!job->target->tag && strncmp(tag, "iter_", 5) == 0 && ckpt_parse_u64(tag + 5, &step))
        tag = ckpt_arena_printf(job->to->arena, "global_step%" PRIu64, step);
    if (!tag)
        return ckpt_fail_memory(job->err);
    if (!ckpt_path_part_ok(tag, strlen(tag)))
        return ckpt_fail(job->err, CKPT_EUSAGE, "'%s' is not the plain name of a folder", tag);
    job->to->folder = ckpt_arena_string(job->to->arena, tag, strlen(tag));
    return job->to->folder ? CKPT_OK : ckpt_fail_memory(job->err);
}

/* Refuse options of training targets that FSDP does not have. */
static int dru_refuse(const ckpt_train_job *job, uint32_t ranks)
{
    const ckpt_target *t = job->target;
    const char *what = t->stage            ? "a ZeRO stage"
                       : t->sub_group_size ? "sub-groups"
                       : t->version        ? "a release of DeepSpeed"
                                           : NULL;

    if (what)
        return ckpt_fail(job->err, CKPT_EUSAGE, "%s does not have %s: leave the option out",
                         dru_program(job), what);
    if (t->fresh_optimizer && job->state)
        return ckpt_fail(job->err, CKPT_EUSAGE,
                         "%s itself starts with moments of zero if a checkpoint has none: write "
                         "the weights alone (ckpt convert)",
                         dru_program(job));
    if (job->from->states.n > 1)
        return ckpt_fail(job->err, CKPT_EUNSUPPORTED,
                         "%s: %zu model-parallel ranks: join them first (ckpt reshard --join)",
                         job->from->path, job->from->states.n);
    for (size_t g = 0; job->state && g < job->state->group.n; g++) {
        int rc = ckpt_state_refuse_8bit(job->from, &job->state->group.at[g],
                                        "ckpt convert writes the weights alone", job->err);
        if (rc != CKPT_OK)
            return rc;
    }
    if (job->state && ckpt_train_autoep(job->state))
        return ckpt_fail(job->err, CKPT_EUNSUPPORTED,
                         "%s: the run used AutoEP, and no %s model has the parameters of "
                         "DeepSpeed's layers of experts; write the weights (ckpt convert --to hf)",
                         job->from->path, dru_program(job));
    if (ranks > CKPT_TRAIN_RANKS)
        return ckpt_fail(job->err, CKPT_EUSAGE,
                         "%" PRIu32 " ranks are too many: at most %d are supported", ranks,
                         CKPT_TRAIN_RANKS);
    return CKPT_OK;
}

static int dru_left_out(const ckpt_train_job *job, const ckpt_pair *p)
{
    if (ckpt_train_is_layout(p))
        return ckpt_train_left_out(job, CKPT_INFO,
                                   "%.200s: belongs to DeepSpeed's layout; %s has its own",
                                   p->key->as.text.at, dru_program(job));
    return ckpt_train_left_out(
        job, CKPT_INFO, "%.200s: only DeepSpeed has a place for it, and it is not plain data",
        p->key->as.text.at);
}

/* Report each member of a DeepSpeed run that FSDP cannot store, because all others must be there
 * when the output is read back. */
static int dru_tell(const ckpt_train_job *job)
{
    ckpt_dict model = ckpt_value_map(job->state->model),
              module = ckpt_value_map(ckpt_value_get(job->state->model, "module")),
              optim = ckpt_value_map(ckpt_value_get(job->state->optim, "optimizer_state_dict"));
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && !job->state->foreign && i < model.n; i++) {
        if (!ckpt_train_fsdp_stores(job->state, &model.at[i]) &&
            model.at[i].key->kind == CKPT_V_STR &&
            !ckpt_train_kept_plain(job->to->arena, &model.at[i]))
            rc = dru_left_out(job, &model.at[i]);
    }
    for (uint64_t i = 0; rc == CKPT_OK && i < optim.n; i++) {
        if (optim.at[i].key->kind == CKPT_V_STR &&
            !ckpt_train_kept_plain(job->to->arena, &optim.at[i]))
            rc = dru_left_out(job, &optim.at[i]);
    }
    for (uint64_t i = 0; rc == CKPT_OK && !job->state->foreign && i < module.n; i++) {
        if (module.at[i].key->kind == CKPT_V_STR && module.at[i].value->kind != CKPT_V_TENSOR &&
            module.at[i].value->kind != CKPT_V_NONE)
            rc = ckpt_train_left_out(job, CKPT_WARNING,
                                     "module.%.200s: it is not a tensor, and %s stores tensors",
                                     module.at[i].key->as.text.at, dru_program(job));
    }
    return rc == CKPT_OK ? ckpt_train_wrapped_left(job) : rc;
}

int ckpt_train_fsdp_begin(ckpt_train_job *job, uint32_t *ranks)
{
    assert(job && ranks);
    const ckpt_state *state = job->from->states.n == 1 ? job->from->states.at[0] : NULL;
    int rc;

    job->state = state;
    *ranks = job->target->world ? job->target->world : state && state->world ? state->world : 1;
    rc = dru_refuse(job, *ranks);
    if (rc == CKPT_OK && state)
        rc = ckpt_train_lanes_join(&job->state, state, job->to->arena, job->err);
    job->to->claim = (ckpt_claim){.made = state != NULL,
                                  .drop_objects = job->target->drop_objects,
                                  .other_release = true,
                                  .stage = -1,
                                  .dtype = CKPT_DTYPE_NONE};
    if (rc == CKPT_OK && state)
        rc = ckpt_train_objects(job, NULL);
    if (rc == CKPT_OK && state)
        rc = dru_tell(job);
    return rc == CKPT_OK ? dru_folder(job) : rc;
}
