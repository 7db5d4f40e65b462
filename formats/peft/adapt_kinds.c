/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapt_kinds.c: finds the weight that a module of an adapter other than LoRA changes, and checks
 * the shapes of its tensors (peft 0.21, tuners/KIND/layer.py: create_adapter_parameters).
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/peft/adapting.h"
#include "formats/peft/update.h"

/* The module that is checked now. */
typedef struct ak_job {
    ckpt_adapting *a;
    const ckpt_adapt_module *m;
    ckpt_update o;
    ckpt_tensor *t; /* the base's weight */
} ak_job;

static bool ak_is(const ckpt_tensor *t, uint64_t rows, uint64_t cols)
{
    return t->ndim == 2 && t->shape[0] == rows && t->shape[1] == cols;
}

static int ak_misfit(const ak_job *j, const ckpt_tensor *of)
{
    char base[120], mine[120];

    return ckpt_fail(j->a->err, CKPT_EMISMATCH,
                     "%s: %.200s %s does not fit the base's %.200s %s: the adapter may belong to "
                     "another base, or %s to another adapter",
                     j->a->opts.path, of->name, ckpt_adapt_shape(mine, of), j->t->name,
                     ckpt_adapt_shape(base, j->t), j->a->config.path);
}

static int ak_missing(const ak_job *j, const char *what)
{
    return ckpt_fail(j->a->err, CKPT_EMISSING,
                     "%s: %.200s has no %s: the file is cut, or is only a part of an adapter",
                     j->a->opts.path, j->m->name, what);
}

/* Refuse a module with transposed matrices, for which peft has no layer of this kind. */
static int ak_not_turned(const ak_job *j)
{
    if (!ckpt_adapt_is_conv1d(j->a, j->m->name))
        return CKPT_OK;
    return ckpt_fail(j->a->err, CKPT_EUNSUPPORTED,
                     "%s: %.200s is a Conv1D of transformers in the base, which peft does not "
                     "adapt with %s: the adapter may belong to another base (see "
                     "base_model_name_or_path in adapter_config.json)",
                     j->a->opts.path, j->m->name, ckpt_peft_kind_name(j->a->config.kind));
}

/* Get the scale, and check the rank that the tensors show, if not 0, against the configuration. */
static int ak_scale(ak_job *j, uint64_t rank)
{
    uint64_t expected = 0;
    int rc = ckpt_peft_scale(&j->a->config, j->m->name, &expected, &j->o.scale, j->a->err);

    if (rc == CKPT_OK && rank > 0 && rank != expected)
        rc = ckpt_fail(j->a->err, CKPT_EMISMATCH,
                       "%s: %.200s has rank %" PRIu64 ", but rank %" PRIu64 " in %s",
                       j->a->opts.path, j->m->name, rank, expected, j->a->config.path);
    j->o.scale *= j->a->opts.weight;
    return rc;
}

/* Find the weight of the module; a convolution is read as the matrix [out, in * kernel]. */
static int ak_find(ak_job *j)
{
    const char *name = ckpt_adapt_name(j->a, j->m->name, "weight");
    ckpt_tensor *t = name ? ckpt_adapt_find(j->a, name) : NULL;

    if (!name)
        return ckpt_fail_memory(j->a->err);
    if (!t)
        return ckpt_fail(
            j->a->err, CKPT_EMISSING, "%s: the base has no %.200s: %s", j->a->opts.path, name,
            strstr(name, "lm_head") ? "its head is tied; --untie writes a separate one"
                                    : "the adapter may belong to another base (see "
                                      "base_model_name_or_path in adapter_config.json)");
    if (t->ndim < 2 || t->n_elems == 0)
        return ckpt_fail(j->a->err, CKPT_EUNSUPPORTED,
                         "%s: the base's %.200s is not a matrix, and an adapter of type %s changes "
                         "linear layers, convolutions and embeddings",
                         j->a->opts.path, name, ckpt_peft_kind_name(j->a->config.kind));
    j->t = t;
    j->o.rows = t->shape[0];
    j->o.cols = t->n_elems / t->shape[0];
    j->o.kernel = j->o.cols / t->shape[1];
    j->o.groups = 1;
    return CKPT_OK;
}

/* ---- IA3 ---- */

/* Check a convolution's factors, [1, n, 1...]; the configuration tells inputs from outputs. */
static int ak_ia3_conv(ak_job *j, const ckpt_tensor *l)
{
    const uint64_t n = l->n_elems, n_in = j->t->shape[1];
    int rc = ckpt_peft_feedforward(&j->a->config, j->m->name, &j->o.inputs, j->a->err);

    if (rc != CKPT_OK)
        return rc;
    if (l->ndim != j->t->ndim || l->shape[1] != n)
        return ak_misfit(j, l);
    if (!j->o.inputs)
        return n == j->o.rows ? CKPT_OK : ak_misfit(j, l);
    j->o.groups = n / n_in;
    return n > 0 && n % n_in == 0 && j->o.rows % j->o.groups == 0 ? CKPT_OK : ak_misfit(j, l);
}

/* Set *inputs for a linear module: by the shape, [1, in] or [out, 1], which must agree with the
 * configuration. */
static int ak_ia3_inputs(ak_job *j, const ckpt_tensor *l)
{
    const ckpt_value *given = j->a->config.feedforward;
    bool inputs = false;
    int rc = ckpt_peft_feedforward(&j->a->config, j->m->name, &inputs, j->a->err);

    if (rc != CKPT_OK)
        return rc;
    if (l->ndim != 2 || (l->shape[0] != 1 && l->shape[1] != 1))
        return ak_misfit(j, l);
    j->o.inputs = l->n_elems > 1 ? l->shape[0] == 1 : inputs;
    return !given || given->kind == CKPT_V_NONE || inputs == j->o.inputs ? CKPT_OK
                                                                         : ak_misfit(j, l);
}

static int ak_ia3(ak_job *j)
{
    const ckpt_tensor *l = j->m->part[CKPT_PEFT_IA3];
    bool along_rows;
    int rc;

    if (!l)
        return ak_missing(j, "ia3_l");
    if (j->a->opts.weight != 1)
        return ckpt_fail(j->a->err, CKPT_EUNSUPPORTED,
                         "%s: an adapter of type IA3 multiplies weights, and has no update that a "
                         "weight of the adapter could scale: leave the weight at 1",
                         j->a->opts.path);
    if (j->t->ndim > 2)
        return ak_ia3_conv(j, l);
    rc = ak_ia3_inputs(j, l);
    if (rc != CKPT_OK)
        return rc;
    j->o.turned = ckpt_adapt_is_conv1d(j->a, j->m->name);
    along_rows = j->o.inputs == j->o.turned;
    return l->n_elems == (along_rows ? j->o.rows : j->o.cols) ? CKPT_OK : ak_misfit(j, l);
}

/* Scale the bias of a module with outputs that IA3 scales. */
static int ak_ia3_bias(const ak_job *j)
{
    const char *name = ckpt_adapt_name(j->a, j->m->name, "bias");
    ckpt_tensor *t = name ? ckpt_adapt_find(j->a, name) : NULL;
    const ckpt_tensor *l = j->m->part[CKPT_PEFT_IA3];
    ckpt_update o = {.kind = CKPT_PEFT_KIND_IA3, .kernel = 1, .groups = 1};
    int rc;

    if (!name)
        return ckpt_fail_memory(j->a->err);
    if (j->o.inputs || !t)
        return CKPT_OK;
    if (t->n_elems != l->n_elems || t->ndim != 1)
        return ckpt_fail(j->a->err, CKPT_EMISMATCH,
                         "%s: %.200s has %" PRIu64 " factors, but the base's %.200s has %" PRIu64
                         " elements",
                         j->a->opts.path, l->name, l->n_elems, t->name, t->n_elems);
    o.rows = t->n_elems;
    o.cols = 1;
    o.name = t->name;
    o.part[CKPT_PEFT_IA3] = l;
    rc = ckpt_adapt_hide(&o.base, j->a, t, NULL, false);
    return rc == CKPT_OK ? ckpt_update_put(j->a->map, t, &o, j->a->err) : rc;
}

/* ---- LoHa ---- */

/* Check one pair of factors, which t may join. */
static int ak_loha_pair(const ak_job *j, const ckpt_tensor *a, const ckpt_tensor *b,
                        const ckpt_tensor *t)
{
    const ckpt_update *o = &j->o;
    const uint64_t r = b && b->ndim == 2 ? b->shape[0] : 0;

    if (!a || !b)
        return ak_missing(j, "pair hada_w1_a, hada_w1_b or hada_w2_a, hada_w2_b");
    if (r == 0 || !(t ? ak_is(a, r, o->rows) : ak_is(a, o->rows, r)))
        return ak_misfit(j, a);
    if (!ak_is(b, r, t ? j->t->shape[1] : o->cols))
        return ak_misfit(j, b);
    if (t && (t->ndim < 3 || t->shape[0] != r || t->shape[1] != r ||
              t->n_elems / (r * r) != o->kernel || j->t->ndim < 3))
        return ak_misfit(j, t);
    return CKPT_OK;
}

static int ak_loha(ak_job *j)
{
    const ckpt_tensor *const *p = j->m->part;
    int rc = ak_not_turned(j);

    if (rc == CKPT_OK && !p[CKPT_PEFT_HADA_T1] != !p[CKPT_PEFT_HADA_T2])
        return ak_missing(j, "pair hada_t1, hada_t2");
    if (rc == CKPT_OK)
        rc = ak_loha_pair(j, p[CKPT_PEFT_HADA_W1_A], p[CKPT_PEFT_HADA_W1_B], p[CKPT_PEFT_HADA_T1]);
    if (rc == CKPT_OK)
        rc = ak_loha_pair(j, p[CKPT_PEFT_HADA_W2_A], p[CKPT_PEFT_HADA_W2_B], p[CKPT_PEFT_HADA_T2]);
    if (rc == CKPT_OK && p[CKPT_PEFT_HADA_W1_B]->shape[0] != p[CKPT_PEFT_HADA_W2_B]->shape[0])
        return ak_misfit(j, p[CKPT_PEFT_HADA_W2_B]);
    return rc == CKPT_OK ? ak_scale(j, p[CKPT_PEFT_HADA_W1_B]->shape[0]) : rc;
}

/* ---- LoKr ---- */

/* Check that two matrices of the right ranks are there; *rank: 0, or the rank that both share. */
static int ak_lokr_pair(const ak_job *j, const ckpt_tensor *a, const ckpt_tensor *b, bool joined,
                        uint64_t *rank)
{
    if (!a || !b)
        return ak_missing(j, "lokr_w1 or lokr_w2, whole or as the pair _a, _b");
    if (a->ndim != 2 || b->ndim != 2 || a->n_elems == 0 || b->n_elems == 0)
        return ak_misfit(j, a);
    if (a->shape[joined ? 0 : 1] != b->shape[0] || (*rank > 0 && *rank != b->shape[0]))
        return ak_misfit(j, b);
    *rank = b->shape[0];
    return CKPT_OK;
}

/* Check the second factor, and get its sizes; wide: the columns with the kernel. */
static int ak_lokr_second(const ak_job *j, uint64_t *rows, uint64_t *wide, uint64_t *rank)
{
    const ckpt_tensor *w = j->m->part[CKPT_PEFT_LOKR_W2], *t = j->m->part[CKPT_PEFT_LOKR_T2];
    const ckpt_tensor *a = j->m->part[CKPT_PEFT_LOKR_W2_A], *b = j->m->part[CKPT_PEFT_LOKR_W2_B];
    int rc;

    if (w) {
        if (a || b || t || w->ndim < 2 || w->n_elems == 0 || w->ndim != j->t->ndim ||
            memcmp(w->shape + 2, j->t->shape + 2, (w->ndim - 2) * sizeof *w->shape) != 0)
            return ak_misfit(j, w);
        *rows = w->shape[0];
        *wide = w->n_elems / w->shape[0];
        return CKPT_OK;
    }
    rc = ak_lokr_pair(j, a, b, t != NULL, rank);
    if (rc != CKPT_OK)
        return rc;
    if (t && j->t->ndim == 3)
        return ckpt_fail(j->a->err, CKPT_EUNSUPPORTED,
                         "%s: %.200s has lokr_t2 for a 1-D convolution, from which peft 0.21 "
                         "itself computes no update",
                         j->a->opts.path, j->m->name);
    if (t && (t->ndim < 3 || t->shape[0] != *rank || t->shape[1] != *rank || j->t->ndim < 3 ||
              t->n_elems / (*rank * *rank) != j->o.kernel))
        return ak_misfit(j, t);
    *rows = t ? a->shape[1] : a->shape[0];
    *wide = b->shape[1];
    return !t || ckpt_mul(*wide, j->o.kernel, wide) ? CKPT_OK : ak_misfit(j, b);
}

static int ak_lokr(ak_job *j)
{
    const ckpt_tensor *w = j->m->part[CKPT_PEFT_LOKR_W1];
    const ckpt_tensor *a = j->m->part[CKPT_PEFT_LOKR_W1_A], *b = j->m->part[CKPT_PEFT_LOKR_W1_B];
    uint64_t rows = 0, wide = 0, rank = 0, n_rows = 0, n_cols = 0;
    int rc = ak_not_turned(j);

    if (rc == CKPT_OK && w && (a || b || w->ndim != 2 || w->n_elems == 0))
        return ak_misfit(j, w);
    if (rc == CKPT_OK && !w)
        rc = ak_lokr_pair(j, a, b, false, &rank);
    if (rc == CKPT_OK)
        rc = ak_lokr_second(j, &rows, &wide, &rank);
    if (rc != CKPT_OK)
        return rc;
    // out = a b, and in * kernel = c d kernel
    if (!ckpt_mul(w ? w->shape[0] : a->shape[0], rows, &n_rows) ||
        !ckpt_mul(w ? w->shape[1] : b->shape[1], wide, &n_cols) || n_rows != j->o.rows ||
        n_cols != j->o.cols || wide % j->o.kernel != 0)
        return ak_misfit(j, w ? w : a);
    return ak_scale(j, rank);
}

/* ---- VeRA ---- */

/* Get A and B, which all modules share. */
static int ak_vera_shared(ak_job *j)
{
    j->o.shared_a = j->a->shared_a;
    j->o.shared_b = j->a->shared_b;
    if (j->o.shared_a && j->o.shared_b)
        return CKPT_OK;
    return ckpt_fail(j->a->err, CKPT_EMISSING,
                     "%s: has no vera_A and vera_B (save_projection is false): torch's random "
                     "numbers would make them again from projection_prng_key, and ckpt does not; "
                     "load the adapter with peft and save it with save_projection",
                     j->a->opts.path);
}

static int ak_vera(ak_job *j)
{
    const ckpt_tensor *b = j->m->part[CKPT_PEFT_VERA_B], *d = j->m->part[CKPT_PEFT_VERA_D];
    ckpt_update *o = &j->o;
    uint64_t n_in;
    int rc = !b || !d ? ak_missing(j, "pair vera_lambda_b, vera_lambda_d") : ak_vera_shared(j);

    if (rc != CKPT_OK)
        return rc;
    if (j->t->ndim != 2 || b->ndim != 1 || b->n_elems == 0)
        return ak_misfit(j, b);
    o->turned =
        o->cols == b->n_elems && (o->rows != b->n_elems || ckpt_adapt_is_conv1d(j->a, j->m->name));
    n_in = o->turned ? o->rows : o->cols;
    if ((o->turned ? o->cols : o->rows) != b->n_elems)
        return ak_misfit(j, b);
    if (d->ndim != 1 || d->n_elems == 0)
        return ak_misfit(j, d);
    if (o->shared_a->ndim != 2 || o->shared_a->shape[0] != d->n_elems ||
        o->shared_a->shape[1] < n_in)
        return ak_misfit(j, o->shared_a);
    if (o->shared_b->ndim != 2 || o->shared_b->shape[1] != d->n_elems ||
        o->shared_b->shape[0] < b->n_elems)
        return ak_misfit(j, o->shared_b);
    rc = ak_scale(j, d->n_elems);
    o->scale = j->a->opts.weight;
    return rc;
}

/* ---- OFT ---- */

/* The size of blocks with n values above the diagonal; 0: there is none, or it is above 65536. */
static uint64_t ak_block(uint64_t n)
{
    uint64_t s = 2;

    while (s < 65536 && s * (s - 1) / 2 < n)
        s++;
    return s * (s - 1) / 2 == n ? s : 0;
}

static int ak_oft(ak_job *j)
{
    const ckpt_peft_config *c = &j->a->config;
    ckpt_update *o = &j->o;
    const ckpt_tensor *r = j->m->part[CKPT_PEFT_OFT];
    int rc = ak_not_turned(j);

    if (rc != CKPT_OK)
        return rc;
    o->before = !r;
    r = r ? r : j->m->part[CKPT_PEFT_OFT_TABLE];
    if (!r)
        return ak_missing(j, "oft_R");
    if (j->a->opts.weight != 1)
        return ckpt_fail(j->a->err, CKPT_EUNSUPPORTED,
                         "%s: an adapter of type OFT rotates weights, and has no update that a "
                         "weight of the adapter could scale: leave the weight at 1",
                         j->a->opts.path);
    o->block = r->ndim == 2 ? ak_block(r->shape[1]) : 0;
    if (o->block == 0 || r->shape[0] == 0 || o->cols % o->block != 0 ||
        r->shape[0] != (c->block_share ? 1 : o->cols / o->block))
        return ak_misfit(j, r);
    o->block_share = c->block_share;
    o->coft = c->coft;
    o->eps = c->eps;
    o->cayley_neumann = c->cayley_neumann;
    o->neumann_terms = c->neumann_terms;
    return CKPT_OK;
}

/* ---- all kinds ---- */

/* The dtype of 16 bits to which each step is rounded (ckpt_adapt_round). */
static ckpt_dtype ak_round(const ak_job *j)
{
    const ckpt_tensor *t = j->o.shared_b;

    for (unsigned i = 0; !t && i < CKPT_PEFT_BASE_WEIGHT; i++)
        t = j->o.part[i];
    return ckpt_adapt_round(j->t, t->dtype);
}

int ckpt_adapt_kind(ckpt_adapting *a, const ckpt_adapt_module *m)
{
    assert(a && m && a->config.kind != CKPT_PEFT_KIND_LORA);
    static int (*const check[CKPT_PEFT_N_KINDS])(ak_job *) = {
        [CKPT_PEFT_KIND_IA3] = ak_ia3,   [CKPT_PEFT_KIND_LOHA] = ak_loha,
        [CKPT_PEFT_KIND_LOKR] = ak_lokr, [CKPT_PEFT_KIND_VERA] = ak_vera,
        [CKPT_PEFT_KIND_OFT] = ak_oft,
    };
    ak_job j = {.a = a, .m = m, .o = {.kind = a->config.kind, .scale = 1}};
    int rc = ak_find(&j);

    memcpy(j.o.part, m->part, sizeof j.o.part);
    if (rc == CKPT_OK)
        rc = check[a->config.kind](&j);
    if (rc != CKPT_OK)
        return rc;
    j.o.name = j.t->name;
    j.o.round = ak_round(&j);
    // a tied head changes with its embedding
    if (j.o.before && !ckpt_adapt_merged(a, j.t))
        a->table = j.t;
    rc = ckpt_adapt_hide(&j.o.base, a, j.t, m->part[CKPT_PEFT_BASE_WEIGHT], false);
    if (rc == CKPT_OK)
        rc = ckpt_update_put(a->map, j.t, &j.o, a->err);
    return rc == CKPT_OK && j.o.kind == CKPT_PEFT_KIND_IA3 ? ak_ia3_bias(&j) : rc;
}
