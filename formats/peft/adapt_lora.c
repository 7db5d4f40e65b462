/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapt_lora.c: finds the weight that a module's LoRA factors update, and checks their shapes.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/peft/adapting.h"
#include "formats/peft/lora.h"

static bool al_shape_is(const ckpt_tensor *t, uint64_t rows, uint64_t cols)
{
    return t->ndim == 2 && t->shape[0] == rows && t->shape[1] == cols;
}

static int al_misfit(ckpt_adapting *a, const ckpt_adapt_module *m, const ckpt_tensor *t)
{
    const ckpt_tensor *pa =
        m->part[CKPT_PEFT_A] ? m->part[CKPT_PEFT_A] : m->part[CKPT_PEFT_TABLE_A];
    const ckpt_tensor *pb =
        m->part[CKPT_PEFT_B] ? m->part[CKPT_PEFT_B] : m->part[CKPT_PEFT_TABLE_B];
    char base[120], na[120], nb[120];

    return ckpt_fail(a->err, CKPT_EMISMATCH,
                     "%s: %.200s: A %s and B %s do not fit the base's %.200s %s: the adapter may "
                     "belong to another base",
                     a->opts.path, m->name, ckpt_adapt_shape(na, pa), ckpt_adapt_shape(nb, pb),
                     t->name, ckpt_adapt_shape(base, t));
}

/* Check the shapes for a stack of experts: B has the experts' columns interleaved, A has one
 * expert's rows after another. */
static bool al_fits_stack(const ckpt_adapting *a, ckpt_lora *o, const ckpt_tensor *t)
{
    bool gpt_oss = a->model_type && strcmp(a->model_type, "gpt_oss") == 0;
    uint64_t n_in, n_out;

    if (t->ndim != 3 || t->shape[0] == 0 || o->a->shape[0] % t->shape[0] != 0 ||
        o->b->shape[1] != o->a->shape[0])
        return false;
    o->n_mats = t->shape[0];
    o->rank = o->a->shape[0] / o->n_mats;
    o->rows = t->shape[1];
    o->cols = t->shape[2];
    n_in = o->a->shape[1];
    n_out = o->b->shape[0];
    o->turned = o->rows == n_in && o->cols == n_out && (n_in != n_out || gpt_oss);
    return o->turned || (o->rows == n_out && o->cols == n_in);
}

/* Derive the update's layout from the shapes; false if they do not fit. */
static bool al_fits(const ckpt_adapting *a, ckpt_lora *o, const char *module, const ckpt_tensor *t)
{
    uint64_t n_in, n_out = o->b->shape[0], wide = o->rank;

    if (o->a->ndim < 2 || o->b->ndim < 2 || o->a->shape[0] == 0 || t->n_elems == 0)
        return false;
    if (t->ndim == 3 && o->a->ndim == 2)
        return al_fits_stack(a, o, t);
    n_in = o->a->n_elems / o->a->shape[0];
    o->n_mats = 1;
    o->rank = o->a->shape[0];
    if (!ckpt_mul(n_out, o->rank, &wide) || wide != o->b->n_elems)
        return false;
    // a convolution: A has its kernel, B's kernel is 1 x 1
    if (t->ndim > 2) {
        o->rows = n_out;
        o->cols = n_in;
        return t->ndim == o->a->ndim && t->shape[0] == n_out && t->n_elems / n_out == n_in;
    }
    o->turned = al_shape_is(t, n_in, n_out) && (n_in != n_out || ckpt_adapt_is_conv1d(a, module));
    o->rows = o->turned ? n_in : n_out;
    o->cols = o->turned ? n_out : n_in;
    return o->turned || al_shape_is(t, n_out, n_in);
}

/* Set the scale, which includes the adapter's weight, and check the rank in the configuration
 * against the file. */
static int al_scale(ckpt_adapting *a, ckpt_lora *o, const char *module)
{
    uint64_t rank = 0;
    double scale = 0;
    const char *key = o->name ? o->name : module;
    int rc = ckpt_peft_scale(&a->config, key, &rank, &scale, a->err);

    if (rc == CKPT_OK && o->a && rank != o->rank)
        return ckpt_fail(a->err, CKPT_EMISMATCH,
                         "%s: %.200s has rank %" PRIu64 ", but rank %" PRIu64 " in %s",
                         a->opts.path, key, o->rank, rank, a->config.path);
    o->scale = scale * a->opts.weight;
    return rc;
}

/* Make t the sum of itself and the update o; `by` replaces t as the base unless NULL. */
static int al_merge(ckpt_adapting *a, ckpt_tensor *t, ckpt_lora *o, const ckpt_tensor *by)
{
    const ckpt_dtype step = ckpt_adapt_round(t, o->b->dtype);
    int rc = ckpt_adapt_hide(&o->base, a, t, by, o->magnitude != NULL);

    o->name = t->name;
    if (o->round == CKPT_DTYPE_NONE)
        o->round = step;
    return rc == CKPT_OK ? ckpt_lora_put(a->map, t, o, a->err) : rc;
}

/*
 * Find the parameter of a module that target_parameters names and that the update fits; *many:
 * there are several.  peft wraps a module once more for each adapted parameter (".base_layer").
 * o->name: the parameter's name, by which peft looks up rank and alpha.
 */
static ckpt_tensor *al_parameter(ckpt_adapting *a, ckpt_lora *o, const char *module, bool *many)
{
    ckpt_seq all = a->config.parameters ? ckpt_value_seq(a->config.parameters) : (ckpt_seq){0};
    ckpt_tensor *found = NULL;
    size_t n = strlen(module);

    *many = false;
    while (n > 11 && memcmp(module + n - 11, ".base_layer", 11) == 0)
        n -= 11;
    for (uint64_t i = 0; i < all.n; i++) {
        const ckpt_value *v = all.at[i];
        const char *last = v->kind == CKPT_V_STR ? strrchr(v->as.text.at, '.') : NULL;
        const char *whole = v->kind == CKPT_V_STR
                                ? ckpt_arena_printf(a->map->arena, "%.*s.%s", (int)n, module,
                                                    last ? last + 1 : v->as.text.at)
                                : NULL;
        size_t m = whole ? strlen(whole) : 0;
        ckpt_lora try = *o;
        ckpt_tensor *t;

        // the entry must be a suffix of the parameter's name
        if (!whole || m < v->as.text.n || strcmp(whole + m - v->as.text.n, v->as.text.at) != 0)
            continue;
        t = ckpt_adapt_find(a, whole);
        if (!t || !al_fits(a, &try, module, t))
            continue;
        *many = found != NULL && found != t;
        found = t;
        o->name = whole;
    }
    return found;
}

/* Find the tensor that a pair of factors updates. */
static int al_target(ckpt_adapting *a, const ckpt_adapt_module *m, ckpt_lora *o, ckpt_tensor **out)
{
    bool many;
    ckpt_tensor *t = al_parameter(a, o, m->name, &many);
    const char *name = ckpt_adapt_name(a, m->name, "weight");

    if (!name)
        return ckpt_fail_memory(a->err);
    if (many)
        return ckpt_fail(a->err, CKPT_EUNSUPPORTED,
                         "%s: %.200s matches several of the parameters in target_parameters, and "
                         "the file does not say which",
                         a->opts.path, m->name);
    // peft rounds a parameter's update to the parameter's dtype
    if (t && (t->dtype == CKPT_F16 || t->dtype == CKPT_BF16))
        o->round = t->dtype;
    if (!t)
        t = ckpt_adapt_find(a, name);
    *out = t;
    if (!t)
        return ckpt_fail(
            a->err, CKPT_EMISSING, "%s: the base has no %.200s: %s", a->opts.path, name,
            strstr(name, "lm_head") ? "its head is tied; --untie writes a separate one"
                                    : "the adapter may belong to another base (see "
                                      "base_model_name_or_path in adapter_config.json)");
    return al_fits(a, o, m->name, t) ? CKPT_OK : al_misfit(a, m, t);
}

/* Check that a module has a magnitude just if the configuration says DoRA. */
static int al_dora(const ckpt_adapting *a, const ckpt_adapt_module *m)
{
    const bool has = m->part[CKPT_PEFT_MAGNITUDE] != NULL;

    if (has == a->config.dora)
        return CKPT_OK;
    if (!has)
        return ckpt_fail(a->err, CKPT_EMISSING,
                         "%s: %.200s has no lora_magnitude_vector, but %s says DoRA (use_dora): a "
                         "part of the adapter is missing; copy the whole adapter",
                         a->opts.path, m->name, a->config.path);
    return ckpt_fail(a->err, CKPT_EMISMATCH,
                     "%s: %.200s has a lora_magnitude_vector, but use_dora is not set in %s, and "
                     "peft would merge plain LoRA: give the adapter's own configuration",
                     a->opts.path, m->name, a->config.path);
}

int ckpt_adapt_lora(ckpt_adapting *a, const ckpt_adapt_module *m)
{
    bool table = m->part[CKPT_PEFT_TABLE_B] != NULL;
    ckpt_lora o = {.a = m->part[table ? CKPT_PEFT_TABLE_A : CKPT_PEFT_A],
                   .b = m->part[table ? CKPT_PEFT_TABLE_B : CKPT_PEFT_B],
                   .magnitude = m->part[CKPT_PEFT_MAGNITUDE]};
    ckpt_tensor *t = NULL;
    int rc;

    if (!o.a || !o.b)
        return ckpt_fail(a->err, CKPT_EMISSING,
                         "%s: %.200s has only one of lora_A and lora_B: the file is cut, or is "
                         "only a part of an adapter",
                         a->opts.path, m->name);
    rc = al_dora(a, m);
    if (rc == CKPT_OK)
        rc = al_target(a, m, &o, &t);
    if (rc == CKPT_OK && table) {
        // an embedding is always transposed, even if it is square: [rows, width]
        o.turned = true;
        o.rows = t->shape[0];
        o.cols = t->ndim == 2 ? t->shape[1] : 0;
        if (o.a->shape[1] != o.rows || o.b->shape[0] != o.cols)
            return al_misfit(a, m, t);
        a->table = ckpt_adapt_merged(a, t) ? a->table : t;
        // peft rounds an embedding's update to the embedding's dtype, unlike a linear module's
        if (!o.magnitude && (t->dtype == CKPT_F16 || t->dtype == CKPT_BF16))
            o.round = t->dtype;
    }
    if (rc == CKPT_OK && o.magnitude && (o.n_mats != 1 || o.magnitude->n_elems != o.b->shape[0]))
        return al_misfit(a, m, t);
    if (rc == CKPT_OK)
        rc = al_scale(a, &o, m->name);
    return rc == CKPT_OK ? al_merge(a, t, &o, m->part[CKPT_PEFT_BASE_WEIGHT]) : rc;
}

int ckpt_adapt_lora_bias(ckpt_adapting *a, const ckpt_adapt_module *m)
{
    const char *name = ckpt_adapt_name(a, m->name, "bias");
    ckpt_tensor *t = name ? ckpt_adapt_find(a, name) : NULL;
    ckpt_lora o = {.b = m->part[CKPT_PEFT_B_BIAS], .n_mats = 1, .rank = 1, .cols = 1};
    int rc;

    if (!t || t->n_elems != o.b->n_elems || t->n_elems == 0)
        return ckpt_fail(a->err, CKPT_EMISSING,
                         "%s: %.200s has a bias for B, but the base has no bias of %" PRIu64
                         " elements",
                         a->opts.path, m->name, o.b->n_elems);
    o.rows = t->n_elems;
    rc = al_scale(a, &o, m->name);
    return rc == CKPT_OK ? al_merge(a, t, &o, NULL) : rc;
}
