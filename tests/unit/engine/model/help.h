/* SPDX-License-Identifier: Apache-2.0 */
/*
 * help.h: what the tests of models share: cases from the fixtures, gradients as one vector,
 * and their check by differences of the loss.
 */
#ifndef TESTS_UNIT_ENGINE_MODEL_HELP_H
#define TESTS_UNIT_ENGINE_MODEL_HELP_H

#include "tests/replay/model_check.h"
#include "tests/unit/unit.h"

#define GOLDEN "tests/fixtures/golden"
#define KIN    "tests/fixtures/models"

/* Those whose tensors are among the fixtures. */
static const char *const with_tensors[] = {"bert_cls",  "gpt2_masked", "llama_gqa", "opt",
                                           "opt_after", "neox",        "bloom",     "olmo2",
                                           "gemma2",    "phi3",        "gemma3"};

/* The folder of a recorded model. */
static inline const char *home_of(const char *name)
{
    static const char *const golden[] = {"bert", "gpt2", "llama"};

    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        if (strncmp(name, golden[i], strlen(golden[i])) == 0)
            return GOLDEN;
    }
    return KIN;
}

static inline void open_case(mc_case *c, const char *name, const mc_opts *opts)
{
    if (mc_open(c, home_of(name), name, opts) != CKPT_OK)
        fail_msg("%s: %s", name, c->err.text);
}

/* Index of a parameter by its name or an alias; UINT32_MAX: none. */
static inline uint32_t mc_find(const zt_model *m, const char *name)
{
    for (size_t i = 0; i < m->params.n; i++)
        if (strcmp(m->params.at[i].name, name) == 0)
            return (uint32_t)i;
    for (size_t i = 0; i < m->aliases.n; i++)
        if (strcmp(m->aliases.at[i].name, name) == 0)
            return m->aliases.at[i].param;
    return UINT32_MAX;
}

/* All gradients one after the other, fp32; those of frozen parameters are left out. */
static inline float *gradients(mc_case *c, uint64_t *n)
{
    float *all = ckpt_arena_array(c->arena, zt_model_count(c->model, true), sizeof *all);

    *n = 0;
    for (size_t i = 0; i < c->model->params.n; i++) {
        const zt_param *p = &c->model->params.at[i];

        if (!p->frozen) {
            memcpy(all + *n, mc_get_values(c, c->grad[i], p->n_elems), p->n_elems * sizeof *all);
            *n += p->n_elems;
        }
    }
    return all;
}

static inline void shift_weights(mc_case *c, double by)
{
    for (size_t i = 0; i < c->model->params.n; i++) {
        const zt_param *p = &c->model->params.at[i];
        uint64_t n = p->n_elems;
        float *w, *g;

        if (p->frozen)
            continue;
        w = mc_get_values(c, c->weight[i], n);
        g = mc_get_values(c, c->grad[i], n);
        for (uint64_t j = 0; j < n; j++)
            w[j] += (float)(by * (double)g[j]);
        c->device->ops->put(c->device, c->weight[i], w, n * sizeof *w);
    }
}

/* d loss along the gradient is the gradient's square: true only if every part of the backward pass
 * is right. */
static inline void check_by_differences(mc_case *c, uint64_t seed)
{
    uint64_t n;
    const float *g;
    double squares = 0, step, up, down;

    mc_clear(c);
    mc_train(c, seed, 1, 1);
    g = gradients(c, &n);
    for (uint64_t i = 0; i < n; i++)
        squares += (double)g[i] * (double)g[i];
    assert_true(squares > 0);
    step = 4e-3 / squares; // the loss moves by 4e-3 each way
    // the gradients must stay: what the further passes write goes elsewhere
    for (size_t i = 0; i < c->model->params.n; i++)
        c->model->params.at[i].g = NULL;
    shift_weights(c, step);
    up = mc_train(c, seed, 1, 1);
    shift_weights(c, -2 * step);
    down = mc_train(c, seed, 1, 1);
    assert_int_equal(zt_device_check(c->device, &c->err), CKPT_OK);
    if (fabs((up - down) / (2 * step) - squares) > 5e-3 * squares)
        fail_msg("%s: difference %g, gradient's square %g", c->name, (up - down) / (2 * step),
                 squares);
}

#endif
