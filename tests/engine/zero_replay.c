/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero_replay.c: trains on recorded inputs and prints what DeepSpeed recorded too: one line per
 * update.
 *
 *     mpirun -n 2 zero_replay model.json data.safetensors ds_config.json steps [grouping
 * [weights.bin [checkpointing]]]
 *
 * Line: step, grad_norm, lr, scale, skipped, then the loss of every rank and micro step, rank by
 * rank.  weights.bin gets the final fp32 weights: name, newline, uint64 count, floats.  The
 * engine's environment variable REPLAY_QUIRK=1 leaves out the loss scale at stage 0 as 0.19.8 does.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/zero/zero.h"
#include "libckpt/ckpt.h"

typedef struct rp_run {
    ckpt_arena *arena;
    zt_comm *comm;
    zt_device *device;
    zt_config config;
    zt_model_config model_config;
    zt_model *model;
    zt_zero *zero;
    ckpt_map *data;
    ckpt_reader *reader;
} rp_run;

/* Initial values: tensors "w0/<name>". */
static int rp_value(void *ctx, uint32_t param, uint64_t first, uint64_t count, float *out,
                    ckpt_err *err)
{
    rp_run *r = ctx;
    char name[512];
    const ckpt_tensor *t;

    snprintf(name, sizeof name, "w0/%s", r->model->params.at[param].name);
    t = ckpt_map_find(r->data, name);
    if (!t)
        return ckpt_fail(err, CKPT_EMISSING, "no tensor %s", name);
    return ckpt_reader_read(r->reader, t, first, count, CKPT_F32, out, err);
}

/* in/<name> of micro step i, this rank's part; NULL when there is none. */
static int rp_input(rp_run *r, const char *name, uint64_t i, const int32_t **out, uint64_t *shape,
                    ckpt_err *err)
{
    const ckpt_tensor *t = ckpt_map_find(r->data, name);
    uint64_t n = 1;
    int64_t *wide;
    int32_t *v;
    int rc;

    *out = NULL;
    if (!t)
        return CKPT_OK;
    for (uint32_t k = 2; k < t->ndim; k++)
        n *= t->shape[k];
    if (t->ndim > 3) {
        shape[0] = t->shape[2];
        shape[1] = t->shape[3];
    }
    wide = ckpt_alloc(n * sizeof *wide);
    v = r->device->ops->alloc(r->device, n * sizeof *v);
    rc = ckpt_reader_read(r->reader, t, (i * t->shape[1] + (uint64_t)r->comm->rank) * n, n,
                          CKPT_DTYPE_NONE, wide, err);
    for (uint64_t k = 0; k < n; k++)
        v[k] = (int32_t)wide[k];
    ckpt_free(wide);
    *out = v;
    return rc;
}

static int rp_batch(rp_run *r, uint64_t i, zt_batch *b, ckpt_err *err)
{
    uint64_t shape[2] = {0, 0};
    int rc = rp_input(r, "in/input_ids", i, &b->input_ids, shape, err);

    if (rc == CKPT_OK)
        rc = rp_input(r, "in/attention_mask", i, &b->attention_mask, shape, err);
    if (rc == CKPT_OK)
        rc = rp_input(r, "in/token_type_ids", i, &b->token_type_ids, shape, err);
    if (rc == CKPT_OK)
        rc = rp_input(r, "in/labels", i, &b->labels, shape, err);
    b->batch = shape[0];
    b->seq = shape[1];
    return rc;
}

static void rp_drop(rp_run *r, const zt_batch *b)
{
    const int32_t *v[4] = {b->input_ids, b->attention_mask, b->token_type_ids, b->labels};

    for (unsigned k = 0; k < 4; k++) {
        void *p;

        memcpy(&p, &v[k], sizeof p);
        r->device->ops->release(r->device, p);
    }
}

static int rp_update(rp_run *r, uint64_t s, double *loss, zt_step *step, ckpt_err *err)
{
    uint64_t gas = (uint64_t)r->config.accumulation;
    int rc = CKPT_OK;

    for (uint64_t j = 0; j < gas && rc == CKPT_OK; j++) {
        zt_batch b = {0};

        rc = rp_batch(r, s * gas + j, &b, err);
        if (rc == CKPT_OK)
            rc = zt_zero_micro(r->zero, &b, &loss[j], err);
        if (rc == CKPT_OK)
            rc = zt_zero_step(r->zero, step, err);
        rp_drop(r, &b);
    }
    return rc;
}

static int rp_train(rp_run *r, uint64_t steps, ckpt_err *err)
{
    uint64_t gas = (uint64_t)r->config.accumulation, world = (uint64_t)r->comm->world;
    double *loss = ckpt_alloc(gas * sizeof *loss), *all = ckpt_alloc(gas * world * sizeof *all);
    int rc = CKPT_OK;

    for (uint64_t s = 0; s < steps && rc == CKPT_OK; s++) {
        zt_step step = {0};

        rc = rp_update(r, s, loss, &step, err);
        if (rc == CKPT_OK)
            rc = r->comm->ops->all_gather(r->comm, all, loss, gas * sizeof *all, CKPT_U8, err);
        if (rc == CKPT_OK && r->comm->rank == 0) {
            printf("%" PRIu64 " %.17g %.17g %.17g %d", s, step.grad_norm, step.lr, step.loss_scale,
                   step.skipped);
            for (uint64_t k = 0; k < gas * world; k++)
                printf(" %.17g", all[k]);
            printf("\n");
        }
    }
    ckpt_free(loss);
    ckpt_free(all);
    return rc;
}

/* A parameter's masters: every rank's runs, summed over ranks with zeros elsewhere. */
static int rp_whole(rp_run *r, uint32_t param, float *out, ckpt_err *err)
{
    size_t n;
    const zt_owned *own = zt_zero_owned(r->zero, &n);
    int rc = CKPT_OK;

    memset(out, 0, r->model->params.at[param].n_elems * sizeof *out);
    for (size_t i = 0; i < n && rc == CKPT_OK; i++) {
        if (own[i].param == param) {
            rc = zt_zero_hold(r->zero, own[i].partition, err);
            if (rc == CKPT_OK) {
                memcpy(out + own[i].first, r->zero->part[own[i].partition].master + own[i].at,
                       own[i].count * sizeof *out);
                rc = zt_zero_let_go(r->zero, own[i].partition, false, err);
            }
        }
    }
    if (rc == CKPT_OK && r->config.stage > 0)
        rc = r->comm->ops->all_reduce(r->comm, out, r->model->params.at[param].n_elems, CKPT_F32,
                                      ZT_SUM, err);
    return rc;
}

static int rp_weights(rp_run *r, const char *path, ckpt_err *err)
{
    FILE *f = r->comm->rank == 0 ? fopen(path, "wb") : NULL;
    int rc = CKPT_OK;

    for (uint32_t i = 0; i < r->model->params.n && rc == CKPT_OK; i++) {
        const zt_param *p = &r->model->params.at[i];
        float *w = ckpt_alloc(p->n_elems * sizeof *w);

        rc = rp_whole(r, i, w, err);
        if (f) {
            fprintf(f, "%s\n", p->name);
            fwrite(&p->n_elems, sizeof p->n_elems, 1, f);
            fwrite(w, sizeof *w, p->n_elems, f);
        }
        ckpt_free(w);
    }
    if (f && fclose(f) != 0)
        return ckpt_fail(err, CKPT_EIO, "%s: not written", path);
    return rc;
}

static int rp_open(rp_run *r, char **argv, ckpt_err *err)
{
    int rc;

    r->arena = ckpt_arena_new(0);
    rc = zt_comm_launched() ? zt_comm_mpi(&r->comm, err) : zt_comm_self(&r->comm, err);
    if (rc == CKPT_OK)
        rc = zt_cpu_new(&r->device, 1, err);
    if (rc == CKPT_OK)
        rc = zt_config_read(&r->config, r->arena, argv[3], NULL, r->comm->world, err);
    r->config.fp16_z0_quirk = getenv("REPLAY_QUIRK") != NULL;
    if (rc == CKPT_OK)
        rc = zt_model_config_read(&r->model_config, r->arena, argv[1], err);
    if (rc == CKPT_OK)
        rc = zt_model_new(&r->model, r->device, r->config.dtype, &r->model_config, NULL, err);
    if (rc == CKPT_OK)
        rc = ckpt_open(&r->data, argv[2], NULL, err);
    return rc == CKPT_OK ? ckpt_reader_new(&r->reader, r->data, err) : rc;
}

int main(int argc, char **argv)
{
    rp_run r = {0};
    ckpt_err err = {0};
    int rc;

    if (argc < 5) {
        fprintf(stderr,
                "usage: zero_replay model data config steps [grouping [weights.bin [1]]]\n");
        return 2;
    }
    zt_zero_opts opts = {.grouping = argc > 5 ? argv[5] : "single",
                         .keep_activations_not = argc > 7};

    rc = rp_open(&r, argv, &err);
    if (rc == CKPT_OK)
        rc = zt_zero_new(&r.zero, r.model, &r.config, r.comm, &opts, &err);
    if (rc == CKPT_OK)
        rc = zt_zero_fill(r.zero, rp_value, &r, &err);
    if (rc == CKPT_OK)
        rc = rp_train(&r, strtoull(argv[4], NULL, 10), &err);
    if (rc == CKPT_OK && argc > 6)
        rc = rp_weights(&r, argv[6], &err);
    if (rc != CKPT_OK)
        fprintf(stderr, "rank %d: %s\n", r.comm ? r.comm->rank : -1, err.text);
    zt_zero_free(r.zero);
    zt_model_free(r.model);
    ckpt_reader_free(r.reader);
    ckpt_map_free(r.data);
    zt_device_free(r.device);
    zt_comm_free(r.comm);
    ckpt_arena_free(r.arena);
    return rc == CKPT_OK ? 0 : 1;
}
