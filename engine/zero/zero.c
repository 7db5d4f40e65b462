/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero.c: creates and frees the runtime, and runs the part of an update that all stages share:
 * norm, overflow, clipping, update, counters.
 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "engine/zero/own.h"

/* ---- creating and freeing ---- */

static int zr_refuse(ckpt_err *err, const char *what)
{
    return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s", what);
}

/* Refuse combinations that DeepSpeed refuses too, or that this engine does not support. */
static int zr_check(const zt_zero *z, ckpt_err *err)
{
    const zt_config *c = z->config;
    bool scaled = c->prescale || c->predivide < 1 || c->predivide > 1;

    if (c->stage < 0 || c->stage > 3 || c->accumulation < 1)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "zero_optimization.stage %d or gradient_accumulation_steps %" PRId64
                         " is out of range",
                         c->stage, c->accumulation);
    if (z->comm->world > 1 && (z->wire->device ? z->wire->device != z->device : !z->device->host))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "the communicator \"%s\" cannot access the memory of device %s",
                         z->wire->ops->name, z->device->ops->name);
    if (c->dtype != z->model->dtype)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "the dtype of the model is %s, but the configuration sets %s",
                         ckpt_dtype_name(z->model->dtype), ckpt_dtype_name(c->dtype));
    if (c->stage == 0 && c->accum_dtype != c->dtype)
        return zr_refuse(err, "at stage 0, data_types.grad_accum_dtype must be the model's dtype: "
                              "change it, or use stage 1, 2 or 3");
    if (c->stage == 2 && scaled)
        return zr_refuse(
            err, "stage 2 does not support prescale_gradients and gradient_predivide_factor: "
                 "remove them, gradients are divided before the sum anyway");
    if (c->stage == 3 && c->sum_gradients)
        return zr_refuse(err,
                         "stage 3 does not support gradient_allreduce_op \"sum\": use \"mean\"");
    if (c->stage > 0 && c->optim.type == ZT_OPT_ONEBIT_ADAM)
        return zr_refuse(err, "OneBitAdam does not support ZeRO: its compressed exchange replaces "
                              "the sharded one; set zero_optimization.stage to 0");
    if (c->stage == 0 && c->dtype != CKPT_F32 && c->optim.type == ZT_OPT_MUON)
        return zr_refuse(err, "Muon does not support 16-bit training at stage 0, whose flat copies "
                              "have no matrices: use stage 1, 2 or 3");
    if (c->stage > 0 && c->stage < 3 && c->aligned)
        return zr_refuse(
            err, "zero_optimization.parameter_alignment is not supported in stages 1 and 2");
    if (c->stage != 3 && c->offload_param.place != ZT_ON_DEVICE)
        return zr_refuse(err, "offload_param needs stage 3");
    if (!z->device->host && c->offload_param.place != ZT_ON_DEVICE)
        return zr_refuse(err, "offload_param is not supported on a GPU, where unused weights stay "
                              "sharded in GPU memory: remove it (offload_optimizer works)");
    if (c->stage == 0 && c->offload_optimizer.place != ZT_ON_DEVICE)
        return zr_refuse(err, "offload_optimizer needs stage 1, 2 or 3");
    return CKPT_OK;
}

/*
 * Choose the DeepSpeed optimizer wrapper that would run, because wrappers differ in norm, clipping
 * and skipping.
 */
static zr_wrapper zr_which(const zt_config *c)
{
    if (c->stage == 0)
        return c->dtype == CKPT_F32 ? ZR_BARE : ZR_FP16;
    if (c->stage == 1 && c->dtype == CKPT_BF16 && c->accum_dtype == CKPT_F32 &&
        c->offload_optimizer.place == ZT_ON_DEVICE)
        return ZR_BF16;
    return c->stage == 3 ? ZR_ZERO3 : ZR_ZERO12;
}

/* List this rank's runs of each trained parameter, from the stage's view of its weights. */
static int zr_list_owned(zt_zero *z, ckpt_err *err)
{
    zr_own *o = zr_of(z);

    o->owned = ckpt_alloc((z->n_order + 1) * sizeof *o->owned);
    if (!o->owned)
        return ckpt_fail_memory(err);
    for (uint32_t i = 0; i < z->n_order; i++) {
        uint32_t p = z->order[i];
        const zr_place *at = &o->place[p];
        zt_owned own = {.param = p, .partition = at->part};
        uint64_t slice = z->part[at->part].n_elems;
        uint64_t begin = z->config->stage % 3 == 0 ? 0 : (uint64_t)z->comm->rank * slice;

        assert(at->group < z->n_groups && at->part < z->n_parts);
        o->stage->low(z, p, &own.first, &own.count);
        if (own.count > 0) {
            own.at = at->at + (z->config->stage == 3 ? 0 : own.first) - begin;
            assert(own.at + own.count <= slice); // the run is inside the partition
            o->owned[o->n_owned++] = own;
        }
    }
    return CKPT_OK;
}

/* Allocate the error feedback of 1-bit Adam for each group; other optimizers have none. */
static int zr_onebit_setup(zt_zero *z, ckpt_err *err)
{
    zr_own *o = zr_of(z);
    int rc = CKPT_OK;

    if (z->config->optim.type != ZT_OPT_ONEBIT_ADAM)
        return CKPT_OK;
    o->onebit = ckpt_alloc((z->n_groups + 1) * sizeof *o->onebit);
    if (!o->onebit)
        return ckpt_fail_memory(err);
    for (uint32_t i = 0; rc == CKPT_OK && i < z->n_groups; i++)
        rc = zt_onebit_new(&o->onebit[i], z->comm, z->device, z->part[i].n_elems, err);
    return rc;
}

/* Set up all parts, in an order that is the same on all ranks. */
static int zr_setup(zt_zero *z, ckpt_err *err)
{
    zr_own *o = zr_of(z);
    int rc = zr_check(z, err);

    if (rc == CKPT_OK)
        rc = zr_groups_new(z, err);
    if (rc == CKPT_OK)
        rc = zt_schedule_check(&z->schedule, z->n_groups, err);
    o->wrapper = zr_which(z->config);
    o->grad_dtype = z->config->accum_dtype;
    if (rc == CKPT_OK)
        rc = zr_home_new(z, err);
    o->alias = z->model->dtype == CKPT_F32 && !zr_is_home(z) &&
               z->config->offload_optimizer.place != ZT_ON_NVME;
    o->stage = z->config->stage == 3 ? &zr_sharded_stage : &zr_flat_stage;
    // the following steps allocate shared memory, so either all ranks continue or none does
    rc = zt_comm_agree(z->comm, rc, err);
    if (rc != CKPT_OK)
        return rc;
    zr_average_plan(z);
    rc = zt_comm_agree(z->comm, zr_files_new(z, err), err);
    if (rc == CKPT_OK)
        rc = o->stage->setup(z, err);
    if (rc == CKPT_OK)
        rc = zr_files_ready(z, err);
    if (rc == CKPT_OK && !o->failed)
        rc = zr_home_ready(z, err);
    if (rc == CKPT_OK && o->failed)
        rc = ckpt_fail(err, CKPT_ELIMIT, "no memory for weights, gradients and optimizer state");
    if (rc == CKPT_OK)
        rc = zr_list_owned(z, err);
    if (rc == CKPT_OK)
        rc = zr_chain_new(z, err);
    rc = zt_comm_agree(z->comm, rc, err);
    return rc == CKPT_OK ? zr_onebit_setup(z, err) : rc;
}

int zt_zero_new(zt_zero **out, zt_model *model, const zt_config *config, zt_comm *comm,
                const zt_zero_opts *opts, ckpt_err *err)
{
    zt_zero *z = ckpt_alloc(sizeof *z);
    zr_own *o = ckpt_alloc(sizeof *o);
    int rc;

    assert(model && config && comm && opts && comm->rank >= 0 && comm->rank < comm->world);
    *out = NULL;
    if (!z || !o) {
        ckpt_free(z);
        ckpt_free(o);
        return zt_comm_agree(comm, ckpt_fail_memory(err), err);
    }
    o->opts = *opts;
    if (!o->opts.grouping)
        o->opts.grouping = "single";
    *z = (zt_zero){.model = model,
                   .config = config,
                   .comm = comm,
                   .wire = opts->wire ? opts->wire : comm,
                   .device = model->device,
                   .schedule = config->schedule,
                   .scaler = config->scaler,
                   .own = o};
    rc = zr_setup(z, err);
    if (rc == CKPT_OK)
        rc = zt_device_check(z->device, err);
    rc = zt_comm_agree(comm, rc, err);
    if (rc != CKPT_OK) {
        zt_zero_free(z);
        return rc;
    }
    *out = z;
    return CKPT_OK;
}

/* The model outlives the runtime, so it must not point into freed memory. */
static void zr_unpoint(zt_zero *z)
{
    for (uint32_t i = 0; i < z->model->params.n; i++) {
        z->model->params.at[i].w = NULL;
        z->model->params.at[i].g = NULL;
        z->model->params.at[i].g_add = false;
    }
}

void zt_zero_free(zt_zero *z)
{
    if (!z)
        return;
    zr_own *o = zr_of(z);

    zr_unpoint(z);
    for (uint32_t i = 0; o->onebit && i < z->n_groups; i++)
        zt_onebit_free(o->onebit[i]);
    ckpt_free(o->onebit);
    zr_home_stop(z);
    zr_files_free(z);
    zr_chain_free(z);
    if (o->stage)
        o->stage->free(z);
    zr_free_blocks(z);
    zr_home_free(z);
    ckpt_free(o->owned);
    ckpt_free(o->place);
    ckpt_free(o);
    ckpt_free(z->part);
    ckpt_free(z->group);
    ckpt_free(z->order);
    ckpt_free(z->given);
    ckpt_free(z);
}

/* ---- the boundary ---- */

/* Measurements of the gradients before the update. */
typedef struct zr_measure {
    double norm; /* norm of the mean gradient, including the loss scale */
    bool bad;    /* true: not finite, and this wrapper checks for that */
} zr_measure;

/* Sum of squares of this rank's gradients; at stage 0 every rank has all gradients. */
static double zr_local_squares(zt_zero *z)
{
    double sum = 0;

    for (uint32_t i = 0; i < z->n_parts; i++) {
        const zt_partition *p = &z->part[i];

        sum += z->device->ops->sum_squares(z->device, zr_of(z)->grad_dtype, p->n_elems, p->grad);
    }
    return sum;
}

/* Norm over all ranks; padding is zero. */
static int zr_norm(zt_zero *z, double *norm, ckpt_err *err)
{
    const zr_own *o = zr_of(z);
    double sum = zr_local_squares(z);
    int rc = CKPT_OK;

    if (z->config->stage > 0) {
        rc = z->comm->ops->all_reduce(z->comm, &sum, 1, CKPT_F64, ZT_SUM, err);
    } else if (o->onebit) {
        // after the warm-up ranks have different gradients, but must agree on skipping
        rc = z->comm->ops->all_reduce(z->comm, &sum, 1, CKPT_F64, ZT_MAX, err);
    }
    *norm = sqrt(sum) * (double)o->average.fold;
    return rc;
}

/* True if this wrapper checks for gradients that are not finite, and then skips the update. */
static bool zr_looks(const zt_zero *z)
{
    switch (zr_of(z)->wrapper) {
    case ZR_BARE:
        return false;
    case ZR_ZERO12:
        if (z->config->dtype == CKPT_F32)
            return z->config->compute_grad_norm;
        return z->config->dtype == CKPT_F16 || z->config->check_grad_overflow;
    case ZR_FP16:
    case ZR_BF16:
    case ZR_ZERO3:
        break;
    }
    return true;
}

/* Compute the norm that the update uses, and decide whether to skip the update. */
static int zr_measure_grads(zt_zero *z, zr_measure *m, ckpt_err *err)
{
    const zr_own *o = zr_of(z);
    bool muon_first = zr_has_muon(z) && (o->wrapper == ZR_ZERO12 || o->wrapper == ZR_ZERO3);
    int rc = zr_norm(z, &m->norm, err);

    m->bad = !isfinite(m->norm) && zr_looks(z);
    // ZeRO computes Muon's directions before it clips, so the norm is that of the directions
    if (rc == CKPT_OK && muon_first && !m->bad) {
        rc = zr_muon(z, 1, err);
        if (rc == CKPT_OK)
            rc = zr_norm(z, &m->norm, err);
    }
    return rc;
}

/* The factor that unscales and clips gradients, in the wrapper's own formula. */
static double zr_factor(const zt_zero *z, double norm)
{
    double max = z->config->clipping, s = z->scaler.scale, c;

    switch (zr_of(z)->wrapper) {
    case ZR_BARE:
    case ZR_BF16:
        c = max / (norm + 1e-6);
        return max > 0 && c < 1 ? c : 1;
    case ZR_FP16:
    case ZR_ZERO12:
    case ZR_ZERO3:
        break;
    }
    c = max > 0 ? (norm / s + 1e-6) / max : 1;
    return 1 / (c > 1 ? c * s : s);
}

/* Set the hyper-parameters of all groups after an update. */
static int zr_next_rates(zt_zero *z, bool begin, ckpt_err *err)
{
    zt_hyper *h = ckpt_alloc((z->n_groups + 1) * sizeof *h);
    double *lr = ckpt_alloc((z->n_groups + 1) * sizeof *lr);

    for (uint32_t i = 0; h && lr && i < z->n_groups; i++) {
        h[i] = z->group[i].hyper;
        lr[i] = z->group[i].lr;
    }
    if (!h || !lr) {
        ckpt_free(h);
        ckpt_free(lr);
        return ckpt_fail_memory(err);
    }
    if (begin)
        zt_schedule_begin(&z->schedule, h, lr, z->n_groups);
    else
        zt_schedule_step(&z->schedule, h, lr, z->n_groups);
    for (uint32_t i = 0; i < z->n_groups; i++)
        z->group[i].hyper = h[i];
    ckpt_free(h);
    ckpt_free(lr);
    return CKPT_OK;
}

int zr_rates_begin(zt_zero *z, ckpt_err *err)
{
    return zr_next_rates(z, true, err);
}

static int zr_apply(zt_zero *z, double norm, ckpt_err *err)
{
    const zr_own *o = zr_of(z);
    float factor = (float)(zr_factor(z, norm) * (double)o->average.fold);
    int rc = CKPT_OK;

    if (zr_has_muon(z) && (o->wrapper == ZR_BARE || o->wrapper == ZR_BF16))
        rc = zr_muon(z, factor, err);
    z->updates++;
    if (rc == CKPT_OK)
        rc = zr_update(z, factor, err);
    rc = zt_comm_agree(z->comm, rc, err);
    if (rc == CKPT_OK)
        rc = o->stage->publish(z, err);
    return rc == CKPT_OK ? zr_next_rates(z, false, err) : rc;
}

/* The norm as DeepSpeed reports it; `before`: the loss scale of the gradients. */
static double zr_reported(const zt_zero *z, double norm, double before)
{
    zr_wrapper w = zr_of(z)->wrapper;

    return norm / (w == ZR_ZERO12 ? before : z->scaler.scale);
}

/*
 * One update, in DeepSpeed's order: reduce, check for overflow, norm, scaler, clip and update,
 * publish, count.
 */
static int zr_boundary(zt_zero *z, zt_step *step, ckpt_err *err)
{
    zr_own *o = zr_of(z);
    zr_measure m = {0};
    double before = z->scaler.scale;
    int rc = o->stage->reduce(z, err);

    assert(z->micro_steps >= 0 && step);
    if (rc == CKPT_OK)
        rc = zr_measure_grads(z, &m, err);
    if (rc == CKPT_OK)
        rc = zt_device_check(z->device, err);
    rc = zt_comm_agree(z->comm, rc, err);
    if (rc != CKPT_OK)
        return rc;
    *step = (zt_step){
        .lr = z->n_groups > 0 ? z->group[0].hyper.lr : 0, .loss_scale = before, .skipped = m.bad};
    // The scaler changes before gradients are unscaled, so a doubled scale already divides them
    // (measured in DeepSpeed).
    rc = zt_scaler_update(&z->scaler, m.bad, err);
    if (rc != CKPT_OK)
        return rc;
    step->grad_norm = m.bad ? HUGE_VAL : zr_reported(z, m.norm, before);
    if (!m.bad)
        rc = zr_apply(z, m.norm, err);
    z->skipped += m.bad;
    z->global_steps++;
    z->global_samples += z->config->train_batch;
    if (rc == CKPT_OK)
        rc = zt_device_check(z->device, err);
    return zt_comm_agree(z->comm, rc, err);
}

int zt_zero_step(zt_zero *z, zt_step *step, ckpt_err *err)
{
    int rc = CKPT_OK;

    if ((z->micro_steps + 1) % z->config->accumulation == 0)
        rc = zr_boundary(z, step, err);
    z->micro_steps++;
    return rc;
}

void zt_zero_memory(const zt_zero *z, zt_memory *out)
{
    *out = zr_of(z)->memory;
}
