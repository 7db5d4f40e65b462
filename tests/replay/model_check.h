/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_check.h: build a model from an entry of models.json, give it the recorded weights and
 * inputs, run it, and compare with the recorded loss, logits, hidden states and gradients.  Shared
 * by the unit test and the program beside it.
 */
#ifndef TESTS_ENGINE_MODEL_CHECK_H
#define TESTS_ENGINE_MODEL_CHECK_H

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/config/config.h"
#include "engine/model/model.h"
#include "libckpt/base/cast.h"
#include "libckpt/include/ckpt.h"

/* Everything about one model under test; all memory that is not the model's lives in the arena or
 * in host lists. */
typedef struct mc_case {
    const char *name;
    const ckpt_value *entry; /* of models.json */
    ckpt_map *map;           /* the golden safetensors file */
    ckpt_reader *reader;
    ckpt_arena *arena;
    zt_device *device;
    zt_model *model;
    zt_batch host;  /* inputs in host memory */
    zt_batch batch; /* and on the device */
    void **weight, **grad;
    void **x; /* output of each layer but the head */
    void **tape;
    void *scratch, *dx, *logits;
    ckpt_err err;
} mc_case;

/* What a comparison found: differences as parts of what is allowed would be, so that all have one
 * scale. */
typedef struct mc_result {
    double loss, want_loss;
    double norm, want_norm;
    double worst_grad; /* of max(|tensor max|, 1e-3 |global max|) */
    const char *worst_name;
    double worst_logit, worst_hidden; /* absolute */
} mc_result;

/* ---- files ---- */

/* Print a tree of plain values as JSON. */
static inline void mc_print(FILE *f, const ckpt_value *v)
{
    ckpt_dict map = ckpt_value_map(v);
    ckpt_seq seq = ckpt_value_seq(v);

    if (v->kind == CKPT_V_NONE) {
        fprintf(f, "null");
    } else if (v->kind == CKPT_V_BOOL) {
        fprintf(f, "%s", v->as.i ? "true" : "false");
    } else if (v->kind == CKPT_V_INT) {
        fprintf(f, "%" PRId64, v->as.i);
    } else if (v->kind == CKPT_V_FLOAT) {
        fprintf(f, "%.17g", v->as.f);
    } else if (v->kind == CKPT_V_STR) {
        fprintf(f, "\"%s\"", v->as.text.at);
    } else if (v->kind == CKPT_V_DICT) {
        fprintf(f, "{");
        for (uint64_t i = 0; i < map.n; i++) {
            fprintf(f, "%s\"%s\": ", i > 0 ? ", " : "", map.at[i].key->as.text.at);
            mc_print(f, map.at[i].value);
        }
        fprintf(f, "}");
    } else {
        fprintf(f, "[");
        for (uint64_t i = 0; i < seq.n; i++) {
            fprintf(f, "%s", i > 0 ? ", " : "");
            mc_print(f, seq.at[i]);
        }
        fprintf(f, "]");
    }
}

/* The config of an entry, with its class filled in, read as a config.json. */
static inline int mc_config(zt_model_config *out, ckpt_arena *arena, const ckpt_value *entry,
                            ckpt_err *err)
{
    char folder[] = "/tmp/zt_model_XXXXXX";
    char path[sizeof folder + 16] = "";
    FILE *f = NULL;
    ckpt_dict map = ckpt_value_map(ckpt_value_get(entry, "config"));
    int rc;

    if (mkdtemp(folder)) {
        snprintf(path, sizeof path, "%s/config.json", folder);
        f = fopen(path, "w");
    }
    if (!f)
        return ckpt_fail(err, CKPT_EIO, "no temporary file");
    fprintf(f, "{\"architectures\": [\"%s\"]", ckpt_value_get(entry, "cls")->as.text.at);
    for (uint64_t i = 0; i < map.n; i++) {
        if (strcmp(map.at[i].key->as.text.at, "architectures") != 0) {
            fprintf(f, ", \"%s\": ", map.at[i].key->as.text.at);
            mc_print(f, map.at[i].value);
        }
    }
    fprintf(f, "}\n");
    fclose(f);
    rc = zt_model_config_read(out, arena, path, err);
    unlink(path);
    rmdir(folder);
    return rc;
}

static inline const ckpt_value *mc_entry(const ckpt_value *all, const char *name)
{
    ckpt_seq models = ckpt_value_seq(ckpt_value_get(all, "models"));

    for (uint64_t i = 0; i < models.n; i++) {
        if (ckpt_value_is(ckpt_value_get(models.at[i], "name"), name))
            return models.at[i];
    }
    return NULL;
}

/* A tensor of the golden file as fp32 (or int64 as it is); NULL: it is not there. */
static inline void *mc_read(mc_case *c, const char *prefix, const char *name, ckpt_dtype dtype,
                            uint64_t *n)
{
    const ckpt_tensor *t;
    void *p;

    t = ckpt_map_find(c->map, ckpt_arena_printf(c->arena, "%s%s", prefix, name));
    if (!t)
        return NULL;
    *n = 1;
    for (uint32_t i = 0; i < t->ndim; i++)
        *n *= t->shape[i];
    p = ckpt_arena_alloc(c->arena, *n * 8);
    if (p && ckpt_reader_read(c->reader, t, 0, *n, dtype, p, &c->err) != CKPT_OK)
        return NULL;
    return p;
}

/* Integers of the golden file, narrowed. */
static inline int32_t *mc_ints(mc_case *c, const char *name)
{
    uint64_t n = 0;
    int64_t *wide = mc_read(c, "in/", name, CKPT_I64, &n);
    int32_t *out = (int32_t *)wide;

    for (uint64_t i = 0; wide && i < n; i++) {
        int64_t v = wide[i];

        out[i] = (int32_t)v;
    }
    return out;
}

/* ---- device memory ---- */

static inline uint64_t mc_size(const mc_case *c)
{
    return c->model->dtype == CKPT_F32 ? 4 : 2;
}

static inline void *mc_put(mc_case *c, const void *host, uint64_t n_bytes)
{
    void *p = host ? c->device->ops->alloc(c->device, n_bytes) : NULL;

    if (p)
        c->device->ops->put(c->device, p, host, n_bytes);
    return p;
}

/* fp32 values rounded to the model's dtype, on the device. */
static inline void *mc_put_values(mc_case *c, const float *v, uint64_t n)
{
    void *low = ckpt_arena_alloc(c->arena, n * 4);

    ckpt_cast_find(c->model->dtype, CKPT_F32)(low, v, n);
    return mc_put(c, low, n * mc_size(c));
}

static inline float *mc_get_values(mc_case *c, const void *p, uint64_t n)
{
    void *low = ckpt_arena_alloc(c->arena, n * 4);
    float *v = ckpt_arena_alloc(c->arena, n * 4);

    c->device->ops->get(c->device, low, p, n * mc_size(c));
    ckpt_cast_find(CKPT_F32, c->model->dtype)(v, low, n);
    return v;
}

static inline int mc_inputs(mc_case *c)
{
    const ckpt_tensor *ids = ckpt_map_find(c->map, "in/input_ids");
    const ckpt_tensor *labels = ckpt_map_find(c->map, "in/labels");
    uint64_t n = 0, rows;

    if (!ids || ids->ndim != 2 || !labels)
        return ckpt_fail(&c->err, CKPT_EFORMAT, "no in/input_ids or in/labels");
    c->host = (zt_batch){.batch = ids->shape[0], .seq = ids->shape[1]};
    c->host.input_ids = mc_ints(c, "input_ids");
    c->host.attention_mask = mc_ints(c, "attention_mask");
    c->host.token_type_ids = mc_ints(c, "token_type_ids");
    if (labels->dtype == CKPT_I64)
        c->host.labels = mc_ints(c, "labels");
    else
        c->host.targets = mc_read(c, "in/", "labels", CKPT_F32, &n);
    if (c->model->config.arch == ZT_T5) {
        int32_t *shifted = ckpt_arena_array(c->arena, labels->shape[0] * labels->shape[1], 4);

        c->host.decoder_seq = labels->shape[1];
        zt_model_shift(&c->model->config, c->host.labels, c->host.batch, c->host.decoder_seq,
                       shifted);
        c->host.decoder_input_ids = shifted;
    }
    rows = c->host.batch * c->host.seq;
    c->batch = c->host;
    c->batch.decoder_input_ids =
        mc_put(c, c->host.decoder_input_ids, zt_batch_answers(&c->host) * 4);
    c->batch.input_ids = mc_put(c, c->host.input_ids, rows * 4);
    c->batch.attention_mask = mc_put(c, c->host.attention_mask, rows * 4);
    c->batch.token_type_ids = mc_put(c, c->host.token_type_ids, rows * 4);
    c->batch.labels = mc_put(c, c->host.labels,
                             (labels->ndim > 1 ? zt_batch_answers(&c->host) : c->host.batch) * 4);
    c->batch.targets = mc_put(c, c->host.targets, n * 4);
    return zt_model_check_batch(c->model, &c->host, &c->err);
}

static inline int mc_weights(mc_case *c)
{
    zt_model *m = c->model;

    c->weight = ckpt_arena_array(c->arena, m->params.n, sizeof *c->weight);
    c->grad = ckpt_arena_array(c->arena, m->params.n, sizeof *c->grad);
    for (size_t i = 0; i < m->params.n; i++) {
        zt_param *p = &m->params.at[i];
        uint64_t n = 0;
        float *v = mc_read(c, "w/", p->name, CKPT_F32, &n);

        if (!v && strstr(p->name, ".lora_")) { // ours: small numbers that are all different
            n = p->n_elems;
            v = ckpt_arena_alloc(c->arena, n * 4);
            for (uint64_t j = 0; j < n; j++)
                v[j] = 0.1F * sinf((float)(j * 7 + i));
        }
        if (!v || n != p->n_elems)
            return ckpt_fail(&c->err, CKPT_EMISMATCH, "w/%s: missing, or %" PRIu64 " elements",
                             p->name, n);
        c->weight[i] = mc_put_values(c, v, n);
        c->grad[i] = c->device->ops->alloc(c->device, n * mc_size(c));
        p->w = c->weight[i];
        p->g = c->grad[i];
    }
    return CKPT_OK;
}

static inline int mc_buffers(mc_case *c)
{
    zt_model *m = c->model;
    zt_device *d = c->device;
    uint64_t rows = zt_batch_answers(&c->batch);
    uint64_t n_bytes = zt_batch_state(&c->batch) * m->config.hidden * mc_size(c);
    uint64_t classes = m->config.arch == ZT_BERT_CLASSIFIER ? m->config.labels : m->config.vocab;

    c->x = ckpt_arena_array(c->arena, m->layers.n, sizeof *c->x);
    c->tape = ckpt_arena_array(c->arena, m->layers.n, sizeof *c->tape);
    for (size_t i = 0; i < m->layers.n; i++) {
        const zt_layer *l = &m->layers.at[i];

        c->x[i] = d->ops->alloc(d, n_bytes);
        c->tape[i] = d->ops->alloc(d, (l->ops->tape ? l->ops->tape(m, l, &c->batch) : 0) + 64);
    }
    c->scratch = d->ops->alloc(d, zt_model_scratch(m, &c->batch) + 64);
    c->dx = d->ops->alloc(d, n_bytes);
    c->logits = d->ops->alloc(d, rows * classes * mc_size(c));
    return zt_device_check(d, &c->err);
}

static inline void mc_close(mc_case *c)
{
    zt_device *d = c->device;

    for (size_t i = 0; c->model && i < c->model->params.n && c->weight; i++) {
        d->ops->release(d, c->weight[i]);
        d->ops->release(d, c->grad[i]);
    }
    for (size_t i = 0; c->model && i < c->model->layers.n && c->x; i++) {
        d->ops->release(d, c->x[i]);
        d->ops->release(d, c->tape[i]);
    }
    if (d) {
        const void *inputs[] = {c->batch.input_ids,      c->batch.attention_mask,
                                c->batch.token_type_ids, c->batch.labels,
                                c->batch.targets,        c->batch.decoder_input_ids};

        for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
            union {
                const void *in;
                void *out;
            } p = {inputs[i]};

            d->ops->release(d, p.out);
        }
        d->ops->release(d, c->scratch);
        d->ops->release(d, c->dx);
        d->ops->release(d, c->logits);
    }
    zt_model_free(c->model);
    zt_device_free(d);
    ckpt_reader_free(c->reader);
    ckpt_map_free(c->map);
    ckpt_arena_free(c->arena);
    *c = (mc_case){0};
}

typedef struct mc_opts {
    ckpt_dtype dtype;
    const zt_lora *lora;
    void (*edit)(zt_model_config *config); /* changes the recorded config; or NULL */
} mc_opts;

/* Build everything for one model of folder/models.json; on failure c->err tells, and mc_close is
 * still due. */
static inline int mc_open(mc_case *c, const char *folder, const char *name, const mc_opts *opts)
{
    zt_model_config config;
    ckpt_value *all = NULL;
    int rc;

    *c = (mc_case){.name = name, .arena = ckpt_arena_new(0)};
    if (!c->arena)
        return ckpt_fail_memory(&c->err);
    rc = zt_hjson_read(&all, c->arena, ckpt_arena_printf(c->arena, "%s/models.json", folder),
                       &c->err);
    c->entry = rc == CKPT_OK ? mc_entry(all, name) : NULL;
    if (rc == CKPT_OK && !c->entry)
        rc = ckpt_fail(&c->err, CKPT_EMISSING, "models.json has no '%s'", name);
    if (rc == CKPT_OK)
        rc = mc_config(&config, c->arena, c->entry, &c->err);
    if (rc == CKPT_OK && opts->edit)
        opts->edit(&config);
    if (rc == CKPT_OK)
        rc =
            ckpt_open(&c->map, ckpt_arena_printf(c->arena, "%s/model_%s.safetensors", folder, name),
                      NULL, &c->err);
    if (rc == CKPT_OK)
        rc = ckpt_reader_new(&c->reader, c->map, &c->err);
    if (rc == CKPT_OK)
        rc = zt_cpu_new(&c->device, 2, &c->err);
    if (rc == CKPT_OK)
        rc = zt_model_new(&c->model, c->device, opts->dtype, &config, opts->lora, &c->err);
    if (rc == CKPT_OK)
        rc = mc_weights(c);
    if (rc == CKPT_OK)
        rc = mc_inputs(c);
    return rc == CKPT_OK ? mc_buffers(c) : rc;
}

/* ---- running ---- */

static inline void mc_forward(mc_case *c, zt_pass *p)
{
    zt_model *m = c->model;

    for (size_t i = 0; i < m->layers.n; i++) {
        const zt_layer *l = &m->layers.at[i];
        bool head = i + 1 == m->layers.n;

        l->ops->fw(m, l, p, c->tape[i], i == 0 ? NULL : c->x[i - 1], head ? NULL : c->x[i]);
    }
}

static inline void mc_backward(mc_case *c, zt_pass *p)
{
    zt_model *m = c->model;

    for (size_t i = m->layers.n; i-- > 0;) {
        const zt_layer *l = &m->layers.at[i];
        bool head = i + 1 == m->layers.n;

        l->ops->bw(m, l, p, c->tape[i], i == 0 ? NULL : c->x[i - 1], head ? NULL : c->dx,
                   i == 0 ? NULL : c->dx);
    }
}

/* Gradients begin anew. */
static inline void mc_clear(mc_case *c)
{
    for (size_t i = 0; i < c->model->params.n; i++)
        c->model->params.at[i].g_add = false;
}

/* One training pass with scale S over `accumulation` steps. */
static inline double mc_train(mc_case *c, uint64_t seed, double scale, int64_t accumulation)
{
    zt_pass p = {.in = c->batch,
                 .train = true,
                 .seed = seed,
                 .scale = scale,
                 .accumulation = accumulation,
                 .scratch = c->scratch};

    mc_forward(c, &p);
    mc_backward(c, &p);
    return p.loss;
}

static inline double mc_evaluate(mc_case *c, void *logits)
{
    zt_pass p = {.in = c->batch, .scratch = c->scratch, .logits = logits};

    mc_forward(c, &p);
    return p.loss;
}

/* ---- comparing ---- */

static inline double mc_largest(const float *v, uint64_t n)
{
    double most = 0;

    for (uint64_t i = 0; i < n; i++)
        most = fabs((double)v[i]) > most ? fabs((double)v[i]) : most;
    return most;
}

/* NaN counts as the largest difference there is. */
static inline double mc_distance(const float *a, const float *b, uint64_t n)
{
    double most = 0;

    for (uint64_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);

        most = d <= most ? most : d;
        if (isnan(d))
            return (double)INFINITY;
    }
    return most;
}

static inline double mc_want(const mc_case *c, const char *dtype, const char *what)
{
    const ckpt_value *low = ckpt_value_get(ckpt_value_get(c->entry, "low_precision"), dtype);
    const ckpt_value *v = ckpt_value_get(low, what);

    return v && v->kind == CKPT_V_FLOAT ? v->as.f : (double)NAN;
}

static inline void mc_compare_grads(mc_case *c, mc_result *r)
{
    zt_model *m = c->model;
    double global = 0, squares = 0;

    for (size_t i = 0; i < m->params.n; i++) {
        uint64_t n = 0;
        const float *want = mc_read(c, "grad/", m->params.at[i].name, CKPT_F32, &n);

        global = want && mc_largest(want, n) > global ? mc_largest(want, n) : global;
    }
    r->worst_name = "";
    for (size_t i = 0; i < m->params.n; i++) {
        uint64_t n = m->params.at[i].n_elems;
        const float *got = mc_get_values(c, c->grad[i], n);
        const float *want = mc_read(c, "grad/", m->params.at[i].name, CKPT_F32, &n);
        double most, d;

        for (uint64_t j = 0; j < n; j++)
            squares += (double)got[j] * (double)got[j];
        most = want ? mc_largest(want, n) : 0;
        most = most > 1e-3 * global ? most : 1e-3 * global;
        d = want ? mc_distance(got, want, n) / most : (double)INFINITY;
        if (d > r->worst_grad) {
            r->worst_grad = d;
            r->worst_name = m->params.at[i].name;
        }
    }
    r->norm = sqrt(squares);
}

/* T5's states: those of the encoder, then those of the decoder, the last of each normalised.  What
 * the decoder passes on of the encoder is not compared. */
static inline void mc_compare_stacks(mc_case *c, mc_result *r)
{
    const zt_model_config *f = &c->model->config;
    const zt_batch *b = &c->batch;

    for (uint64_t i = 0; i <= f->layers + f->decoder_layers; i++) {
        const bool decoder = i > f->layers, bridged = i == f->layers;
        const char *name = ckpt_arena_printf(c->arena, "%" PRIu64, i);
        const uint64_t rows = b->batch * (decoder ? b->decoder_seq : b->seq);
        const uint64_t at = bridged ? b->batch * b->decoder_seq * f->hidden : 0;
        // the layer after the encoder's blocks makes both the encoder's output and the next state
        void *x = c->x[decoder ? i : bridged ? f->layers + 1 : i];
        uint64_t n = 0;
        const float *want = mc_read(c, "hidden/", name, CKPT_F32, &n);
        double d = want && n == rows * f->hidden
                       ? mc_distance(mc_get_values(c, (char *)x + at * mc_size(c), n), want, n)
                       : (double)INFINITY;

        r->worst_hidden = d > r->worst_hidden ? d : r->worst_hidden;
    }
}

/* Distance of a layer's output from what is recorded; first: it has the first row of each sample
 * alone. */
static inline double mc_hidden(mc_case *c, const void *x, const float *want, bool first)
{
    const zt_batch *b = &c->batch;
    uint64_t width = c->model->config.hidden, n = first ? width : b->seq * width;
    const float *got = mc_get_values(c, x, b->batch * n);
    double worst = 0;

    for (uint64_t i = 0; i < b->batch; i++) {
        double d = mc_distance(got + i * n, want + i * b->seq * width, n);

        worst = d > worst ? d : worst;
    }
    return worst;
}

static inline void mc_compare_hidden(mc_case *c, mc_result *r)
{
    const zt_model *m = c->model;
    bool classifier = m->config.arch == ZT_BERT_CLASSIFIER;
    bool bert = classifier || m->config.arch == ZT_BERT_MLM;
    uint64_t n = c->batch.batch * c->batch.seq * m->config.hidden;

    for (uint64_t i = 0; i <= m->config.layers; i++) {
        char name[32];
        uint64_t n_want = 0;
        const float *want;
        double d;

        if (i == m->config.layers && !bert) {
            return; // recorded after the final norm, which is the head's
        }
        snprintf(name, sizeof name, "%" PRIu64, i);
        want = mc_read(c, "hidden/", name, CKPT_F32, &n_want);
        d = want && n_want == n ? mc_hidden(c, c->x[i], want, classifier && i == m->config.layers)
                                : (double)INFINITY;
        r->worst_hidden = d > r->worst_hidden ? d : r->worst_hidden;
    }
}

/* Run a model and compare everything that is recorded. */
static inline int mc_compare(mc_case *c, mc_result *r)
{
    uint64_t n = 0;
    const float *logits, *loss;
    const double *norm;

    *r = (mc_result){0};
    loss = mc_read(c, "", "loss", CKPT_F32, &n);
    norm = mc_read(c, "", "gradnorm64", CKPT_F64, &n);
    logits = mc_read(c, "", "logits", CKPT_F32, &n);
    if (!loss || !norm || !logits)
        return ckpt_fail(&c->err, CKPT_EFORMAT, "no loss, gradnorm64 or logits");
    r->want_loss = (double)*loss;
    r->want_norm = *norm;
    r->loss = mc_evaluate(c, c->logits);
    r->worst_logit = mc_distance(mc_get_values(c, c->logits, n), logits, n);
    if (c->model->config.arch == ZT_T5)
        mc_compare_stacks(c, r);
    else
        mc_compare_hidden(c, r);
    mc_clear(c);
    r->loss = mc_train(c, 1, 1, 1);
    mc_compare_grads(c, r);
    return zt_device_check(c->device, &c->err);
}

#endif
