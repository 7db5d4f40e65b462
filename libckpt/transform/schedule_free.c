/* SPDX-License-Identifier: Apache-2.0 */
/*
 * schedule_free.c: computes the weights of evaluation from the state of schedule-free optimizers.
 */
#include <assert.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "libckpt/copy/mean.h"
#include "libckpt/map/nest.h"
#include "libckpt/transform/schedule_free.h"

/* ---- the arithmetic ---- */

typedef struct sfr_make {
    ckpt_make make;              /* first */
    const ckpt_tensor *input[2]; /* y, z */
    double weight;               /* 1 - 1 / beta, at most 0 */
} sfr_make;

/*
 * y + weight (z - y), in the form that torch.lerp has on a processor (in ATen): one
 * fused multiply and add, from the nearer end.
 */
static void sfr_lerp32(float *y, const float *z, float weight, uint64_t n)
{
    bool near = fabsf(weight) < 0.5f;
    float factor = near ? weight : weight - 1;

    for (uint64_t i = 0; i < n; i++)
        y[i] = fmaf(factor, z[i] - y[i], near ? y[i] : z[i]);
}

static void sfr_lerp64(double *y, const double *z, double weight, uint64_t n)
{
    bool near = fabs(weight) < 0.5;
    double factor = near ? weight : weight - 1;

    for (uint64_t i = 0; i < n; i++)
        y[i] = fma(factor, z[i] - y[i], near ? y[i] : z[i]);
}

/* Compute in F32 (F64 for F64), and round once. */
static int sfr_run(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                   ckpt_err *err)
{
    const sfr_make *m = (const sfr_make *)(const void *)make;
    const ckpt_axis part = {at, n, 0};
    bool wide = ckpt_mean_dtype(make->dtype) == CKPT_F64;
    uint64_t bytes = n * (wide ? sizeof(double) : sizeof(float));
    uint8_t *both = in->scratch(in, 2 * bytes);
    int rc = both ? CKPT_OK : ckpt_fail_memory(err);

    for (unsigned i = 0; rc == CKPT_OK && i < 2; i++)
        rc = in->read(in, m->input[i], &part, wide ? CKPT_F64 : CKPT_F32, both + i * bytes, err);
    if (rc != CKPT_OK)
        return rc;
    if (wide)
        sfr_lerp64((double *)(void *)both, (const double *)(void *)(both + bytes), m->weight, n);
    else
        sfr_lerp32((float *)(void *)both, (const float *)(void *)(both + bytes), (float)m->weight,
                   n);
    ckpt_mean_end(make->dtype, to, both, 1, n);
    return CKPT_OK;
}

/* ---- the state ---- */

enum { SFR_KINDS = 32 }; /* maximum kinds of state that an optimizer keeps */

typedef struct sfr_work {
    ckpt_map *map;
    const char *kind[SFR_KINDS]; /* kinds of state of the current state's parameters, but for z */
    size_t n_kinds;
    bool trains;                               /* a group was in training mode */
    uint64_t n_computed, n_already, n_without; /* parameters */
    ckpt_err *err;
} sfr_work;

/* The tensor that holds a parameter's values. */
static ckpt_tensor *sfr_owner(ckpt_tensor *t)
{
    // a map's own tensors, which only callers must not change
    return t->owner ? (ckpt_tensor *)(uintptr_t)t->owner : t;
}

/* Replace a parameter's values by the computed ones. */
static int sfr_replace(sfr_work *w, ckpt_tensor *t, const ckpt_tensor *z, double beta)
{
    ckpt_map *map = w->map;
    sfr_make *m = ckpt_arena_alloc(map->arena, sizeof *m);
    ckpt_tensor *y = m ? ckpt_nest_hide(map, t, w->err) : NULL;
    uint32_t source = 0;

    if (!y)
        return ckpt_fail_memory(w->err);
    m->weight = 1 - 1 / beta;
    m->input[0] = y;
    m->input[1] = z->owner ? z->owner : z;
    m->make = (ckpt_make){.name = t->name,
                          .dtype = t->dtype,
                          .n_inputs = 2,
                          .input = m->input,
                          .terms = ckpt_arena_printf(map->arena, "schedule-free %.17g", beta),
                          .make = sfr_run};
    if (!m->make.terms)
        return ckpt_fail_memory(w->err);
    int rc = ckpt_map_add_made(map, &m->make, t->n_elems, &source, w->err);
    t->twin = t->addend = NULL;
    w->n_computed++;
    return rc == CKPT_OK ? ckpt_map_back_whole(map, t, source, 0, w->err) : rc;
}

/* List the kinds of state: the first parts of the names of moments, "exp_avg/w". */
static int sfr_kinds(sfr_work *w, const ckpt_state *s)
{
    size_t skip = strlen(s->prefix);

    w->n_kinds = 0;
    for (size_t i = 0; i < w->map->tensors.n; i++) {
        const ckpt_tensor *t = w->map->tensors.at[i];
        const char *name = t->name;
        size_t n, k = 0;

        if (t->role != CKPT_ROLE_STATE || strncmp(name, s->prefix, skip) != 0)
            continue;
        name += skip;
        n = strcspn(name, "/");
        while (k < w->n_kinds && (strncmp(w->kind[k], name, n) != 0 || w->kind[k][n]))
            k++;
        if (k < w->n_kinds || !name[n] || (n == 1 && *name == 'z'))
            continue;
        if (w->n_kinds == SFR_KINDS)
            return ckpt_fail(w->err, CKPT_ELIMIT,
                             "%s: the optimizer keeps more than %d tensors "
                             "for each parameter",
                             w->map->path, SFR_KINDS);
        w->kind[w->n_kinds] = ckpt_arena_string(w->map->arena, name, n);
        if (!w->kind[w->n_kinds++])
            return ckpt_fail_memory(w->err);
    }
    return CKPT_OK;
}

/* A kind of state that a parameter has beside z; NULL: none. */
static const char *sfr_other(const sfr_work *w, const ckpt_state *s, const ckpt_tensor *param)
{
    for (size_t k = 0; k < w->n_kinds; k++) {
        if (ckpt_state_moment(w->map, s, w->kind[k], param))
            return w->kind[k];
    }
    return NULL;
}

/* Check a parameter's z, and compute the parameter from it. */
static int sfr_param(sfr_work *w, const ckpt_state *s, ckpt_tensor *param, double beta)
{
    const ckpt_tensor *z = ckpt_state_moment(w->map, s, "z", param);
    ckpt_tensor *t = sfr_owner(param);

    if (ckpt_state_moment(w->map, s, "x", param))
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                         "%s: the optimizer keeps 'x' of %.200s, as schedulefree's reference "
                         "optimizers do: select it with --with-optimizer --include 'x/*'",
                         w->map->path, param->name);
    const char *other = z ? NULL : sfr_other(w, s, param);
    if (other)
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                         "%s: the optimizer keeps '%.80s' of %.200s, but no 'z', from which a "
                         "schedule-free optimizer computes the weights of evaluation",
                         w->map->path, other, param->name);
    // a parameter that never had a gradient has no state, and its weights are the first ones
    w->n_without += !z;
    if (!z)
        return CKPT_OK;
    if (z->ndim != param->ndim ||
        (z->ndim && memcmp(z->shape, param->shape, z->ndim * sizeof *z->shape) != 0))
        return ckpt_fail(w->err, CKPT_EMISMATCH, "%s: %.200s has another shape than its parameter",
                         w->map->path, z->name);
    if (ckpt_mean_dtype(t->dtype) == CKPT_DTYPE_NONE ||
        ckpt_mean_dtype(z->dtype) == CKPT_DTYPE_NONE)
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED, "%s: %.200s: expected floats, found %s and %s",
                         w->map->path, param->name, ckpt_dtype_name(t->dtype),
                         ckpt_dtype_name(z->dtype));
    return sfr_replace(w, t, z, beta);
}

/* The share of x in y: betas[0], or the momentum of SGD; 0: neither is known, or both are. */
static double sfr_beta(const ckpt_value *fields)
{
    ckpt_seq betas = ckpt_value_seq(ckpt_value_get(fields, "betas"));
    const ckpt_value *momentum = ckpt_value_get(fields, "momentum");
    const ckpt_value *beta = betas.n == 0 ? momentum : momentum ? NULL : betas.at[0];

    if (beta && beta->kind == CKPT_V_INT)
        return (double)beta->as.i;
    return beta && beta->kind == CKPT_V_FLOAT ? beta->as.f : 0;
}

static bool sfr_trains(const ckpt_value *fields, bool *known)
{
    const ckpt_value *mode = ckpt_value_get(fields, "train_mode");

    *known = mode && mode->kind == CKPT_V_BOOL;
    return *known && mode->as.i != 0;
}

static int sfr_group(sfr_work *w, const ckpt_state *s, size_t number)
{
    const ckpt_group *g = &s->group.at[number];
    double beta = sfr_beta(g->fields);
    bool known, trains = sfr_trains(g->fields, &known);
    uint64_t n = (uint64_t)g->n * g->n_lanes;
    int rc = CKPT_OK;

    if (!known)
        return ckpt_fail(w->err, CKPT_EMISSING,
                         "%s: parameter group %zu has no 'train_mode', by which a schedule-free "
                         "optimizer tells trained from averaged weights: convert without "
                         "--weights",
                         w->map->path, number);
    w->n_already += trains ? 0 : n;
    w->trains = w->trains || trains;
    if (trains && !(beta > 0 && beta <= 1 && 1 / beta < (double)FLT_MAX))
        return ckpt_fail(w->err, CKPT_EFORMAT,
                         "%s: parameter group %zu: expected either betas[0] or momentum, above 0 "
                         "and at most 1, found %g: the weights of evaluation do not follow from it",
                         w->map->path, number, beta);
    for (uint64_t i = 0; trains && rc == CKPT_OK && i < n; i++)
        rc = sfr_param(w, s, s->param.at[g->first + i], beta);
    return rc;
}

int ckpt_schedule_free(ckpt_map *map, ckpt_err *err)
{
    assert(map);
    sfr_work w = {.map = map, .err = err};
    uint64_t n_groups = 0;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < map->states.n; i++) {
        const ckpt_state *s = map->states.at[i];
        if (s->masters)
            rc = ckpt_fail(err, CKPT_EUNSUPPORTED,
                           "%s: the optimizer trains float32 masters (%.80s) beside the weights: "
                           "ckpt computes no weights of evaluation from these",
                           map->path, s->masters);
        if (rc == CKPT_OK)
            rc = sfr_kinds(&w, s);
        for (size_t g = 0; rc == CKPT_OK && g < s->group.n; g++, n_groups++)
            rc = sfr_group(&w, s, g);
    }
    if (rc == CKPT_OK && w.trains && w.n_computed == 0)
        rc =
            ckpt_fail(err, CKPT_EMISSING,
                      "%s: no parameter has 'z', from which a schedule-free optimizer computes the "
                      "weights of evaluation",
                      map->path);
    if (rc == CKPT_OK && n_groups == 0)
        rc = ckpt_fail(err, CKPT_EMISSING,
                       "%s: the weights of evaluation need the optimizer's state: %s", map->path,
                       ckpt_state_why_none(map));
    if (rc != CKPT_OK)
        return rc;
    return ckpt_map_note(map, CKPT_INFO, err,
                         "%s: computed the weights that the optimizer evaluates: %" PRIu64
                         " parameter%s computed, %" PRIu64 " saved in this form already, %" PRIu64
                         " without state and unchanged",
                         map->path, w.n_computed, w.n_computed == 1 ? "" : "s", w.n_already,
                         w.n_without);
}
