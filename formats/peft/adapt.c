/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapt.c: merges an adapter into the map of its base model.
 *
 * The adapter's file decides which modules are updated; its configuration gives the scales and the
 * tensors that may be replaced.  A tensor of the file that is not used is an error.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt_shape.h"
#include "formats/peft/lora.h"
#include "formats/peft/peft.h"
#include "libckpt/base/opts.h"
#include "libckpt/map/adopt.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/savepoint.h"

/* A tensor of the adapter. */
typedef struct ad_item {
    ckpt_peft_name name;
    const ckpt_tensor *t;
} ad_item;

typedef struct adapting {
    ckpt_map *map;   /* map of the base model */
    ckpt_map *child; /* map of the adapter; owned by the base's map once adopted */
    ckpt_adapter opts;
    ckpt_peft_config config;
    const char *model_type; /* the base's model_type, from its config.json; or NULL */
    bool headed;            /* the base may have an lm_head tied to its embedding */
    ad_item *item;          /* sorted by module */
    size_t n_items;
    const ckpt_tensor *table; /* an embedding that this adapter changes first; or NULL */
    uint64_t n_merged, n_replaced;
    ckpt_err *err;
} adapting;

/* The adapter's tensors of one module. */
typedef struct ad_module {
    char *name;
    const ckpt_tensor *part[CKPT_PEFT_N_PARTS];
} ad_module;

/* ---- finding tensors of the base ---- */

static ckpt_tensor *ad_at(const adapting *a, const char *name)
{
    size_t i = ckpt_map_index(a->map, name, strlen(name));

    return i == SIZE_MAX ? NULL : a->map->tensors.at[i];
}

/*
 * Find the base's tensor of a name.  Files of a bare model lack the first part of names in the
 * adapter ("transformer.h.0..."); other files have an additional first part.
 */
static ckpt_tensor *ad_find(const adapting *a, const char *name)
{
    const char *dot = strchr(name, '.');
    ckpt_tensor *t = ad_at(a, name), *found = NULL;
    size_t n = strlen(name);

    if (!t && dot)
        t = ad_at(a, dot + 1);
    for (size_t i = 0; !t && i < a->map->tensors.n; i++) {
        const char *other = a->map->tensors.at[i]->name;
        size_t m = strlen(other);

        if (m > n && other[m - n - 1] == '.' && strcmp(other + m - n, name) == 0) {
            if (found)
                return NULL;
            found = a->map->tensors.at[i];
        }
    }
    return t ? t : found;
}

static bool ad_shape_is(const ckpt_tensor *t, uint64_t rows, uint64_t cols)
{
    return t->ndim == 2 && t->shape[0] == rows && t->shape[1] == cols;
}

/* A tensor's shape as text. */
static const char *ad_shape(char text[120], const ckpt_tensor *t)
{
    size_t n = 0;

    text[n++] = '[';
    for (uint32_t i = 0; i < t->ndim && n < 90; i++)
        n += (size_t)snprintf(text + n, 120 - n, "%s%" PRIu64, i ? ", " : "", t->shape[i]);
    snprintf(text + n, 120 - n, "]");
    return text;
}

/* ---- whole tensors ---- */

/* Replace the base's tensor by the adapter's; exports keep the base's dtype. */
static int ad_put_whole(adapting *a, ckpt_tensor *t, const ckpt_tensor *by)
{
    char mine[120], theirs[120];

    if (t->n_elems != by->n_elems || t->ndim != by->ndim ||
        memcmp(t->shape, by->shape, t->ndim * sizeof *t->shape) != 0)
        return ckpt_fail(a->err, CKPT_EMISMATCH,
                         "%s: %.200s is %s, but %s in the base: tokens were added, or the adapter "
                         "belongs to another base; resize the base's embeddings first",
                         a->opts.path, by->name, ad_shape(theirs, by), ad_shape(mine, t));
    if (t->export_dtype == CKPT_DTYPE_NONE)
        t->export_dtype = t->dtype;
    t->dtype = by->dtype;
    t->owner = t->addend = NULL;
    t->twin = by->twin;
    ckpt_extent_share(t, by);
    a->n_replaced++;
    return CKPT_OK;
}

/* Add a tensor that the base lacks: a new head, or one that was tied. */
static int ad_add_whole(adapting *a, const char *name, const ckpt_tensor *by)
{
    ckpt_tensor like = *by, *made = NULL;
    int rc;

    if (a->map->tensors.n > 0)
        like.export_dtype = a->map->tensors.at[0]->export_dtype != CKPT_DTYPE_NONE
                                ? a->map->tensors.at[0]->export_dtype
                                : a->map->tensors.at[0]->dtype;
    rc = ckpt_map_add(a->map, name, strlen(name), &like, &made, a->err);
    if (rc != CKPT_OK)
        return rc;
    ckpt_extent_share(made, by);
    a->n_replaced++;
    if (strstr(name, "lm_head") == name) {
        a->map->untied = true;
        return ckpt_map_note(a->map, CKPT_INFO, a->err,
                             "%.200s comes from the adapter: the output's config.json says that "
                             "the head is not tied",
                             name);
    }
    return CKPT_OK;
}

/* Number of bytes of a name's last two parts ("lm_head.weight"), or of the whole name. */
static size_t ad_last_two(const char *name)
{
    size_t n = strlen(name), i = n;

    for (unsigned dots = 0; i > 0; i--) {
        if (name[i - 1] == '.' && ++dots == 2)
            break;
    }
    return n - i;
}

/* Number of bytes of a name up to the dot after its first number ("model.layers.3."); 0: the name
 * has no number. */
static size_t ad_layer(const char *name)
{
    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
        size_t n = strspn(dot + 1, "0123456789");

        if (n > 0 && dot[1 + n] == '.')
            return (size_t)(dot - name) + n + 2;
    }
    return 0;
}

/* True if a name's module is the head of a language model, under any of its names. */
static bool ad_is_head(const char *name)
{
    static const char *const heads[] = {"lm_head.", "embed_out.", "output_layer.", NULL};
    const char *last = name + strlen(name) - ad_last_two(name);

    for (size_t i = 0; heads[i]; i++) {
        if (strncmp(last, heads[i], strlen(heads[i])) == 0)
            return true;
    }
    return false;
}

/* True if the base's tensor t may be the tensor `name` of the adapter, under another name. */
static bool ad_may_be(const ckpt_tensor *t, const char *name, const ckpt_tensor *by)
{
    size_t n = ad_last_two(name), m = strlen(t->name);

    if (t->owner || t->ndim != by->ndim)
        return false;
    if (ad_is_head(name))
        return ad_is_head(t->name);
    return t->n_elems == by->n_elems && !ad_layer(t->name) == !ad_layer(name) && m >= n &&
           (m == n || t->name[m - n - 1] == '.') &&
           memcmp(t->name + m - n, name + strlen(name) - n, n) == 0;
}

/* Add a tensor whose name the base lacks, unless the base may have it under another name: the
 * output would then have both, and loaders would take the untrained one. */
static int ad_add_new(adapting *a, const char *name, const ckpt_tensor *by)
{
    size_t n = ad_layer(name), bare = n ? (size_t)(strchr(name, '.') + 1 - name) : 0;
    bool inside = false;

    for (size_t i = 0; i < a->map->tensors.n; i++) {
        const ckpt_tensor *t = a->map->tensors.at[i];

        if (ad_may_be(t, name, by))
            return ckpt_fail(a->err, CKPT_EUNSUPPORTED,
                             "%s: the base has no %.200s, but its %.200s may be the same tensor: "
                             "rename it to the adapter's name first (ckpt convert --rename), or "
                             "merge with peft's merge_and_unload",
                             a->opts.path, name, t->name);
        inside =
            inside ||
            (n && (strncmp(t->name, name, n) == 0 || strncmp(t->name, name + bare, n - bare) == 0));
    }
    if (inside)
        return ckpt_fail(a->err, CKPT_EMISSING,
                         "%s: the base has no %.200s, though it has other tensors of that layer: "
                         "the adapter may belong to another base",
                         a->opts.path, name);
    return ad_add_whole(a, name, by);
}

/* Replace a whole tensor, if the configuration shows that it was trained. */
static int ad_plain(adapting *a, const char *name, const ckpt_tensor *by)
{
    ckpt_tensor *t = ad_find(a, name);
    const char *last = strrchr(name, '.');
    bool is_bias = last && strcmp(last, ".bias") == 0 && strcmp(a->config.bias, "none") != 0;
    bool saved = ckpt_peft_saves(&a->config, name);
    bool is_table = t && last && strcmp(last, ".weight") == 0;

    if (a->opts.weight != 1)
        return ckpt_fail(a->err, CKPT_EUNSUPPORTED,
                         "%s: %.200s is a whole tensor, which a weight of the adapter cannot "
                         "scale: leave the weight at 1",
                         a->opts.path, by->name);
    if (t && (saved || is_bias || is_table))
        return ad_put_whole(a, t, by);
    if (saved)
        return ad_add_new(a, name, by);
    return ckpt_fail(a->err, t ? CKPT_EUNSUPPORTED : CKPT_EMISSING,
                     "%s: %.200s %s, and %s does not say that it was trained: every tensor of an "
                     "adapter must be used",
                     a->opts.path, by->name, t ? "is one of the base" : "is not in the base",
                     a->config.path);
}

/* ---- updates ---- */

/* True for modules with transposed matrices (transformers' Conv1D). */
static bool ad_is_conv1d(const adapting *a, const char *module)
{
    static const char *const models[] = {"gpt2", "openai-gpt", "imagegpt", "decision_transformer",
                                         "clvp", NULL};
    const char *last = strrchr(module, '.');

    if (!a->model_type)
        return a->config.fan_in_fan_out;
    if (!last || strncmp(last, ".c_", 3) != 0)
        return false;
    for (size_t i = 0; models[i]; i++) {
        if (strcmp(models[i], a->model_type) == 0)
            return true;
    }
    return false;
}

static int ad_misfit(adapting *a, const ad_module *m, const ckpt_tensor *t)
{
    const ckpt_tensor *pa =
        m->part[CKPT_PEFT_A] ? m->part[CKPT_PEFT_A] : m->part[CKPT_PEFT_TABLE_A];
    const ckpt_tensor *pb =
        m->part[CKPT_PEFT_B] ? m->part[CKPT_PEFT_B] : m->part[CKPT_PEFT_TABLE_B];
    char base[120], na[120], nb[120];

    return ckpt_fail(a->err, CKPT_EMISMATCH,
                     "%s: %.200s: A %s and B %s do not fit the base's %.200s %s: the adapter may "
                     "belong to another base",
                     a->opts.path, m->name, ad_shape(na, pa), ad_shape(nb, pb), t->name,
                     ad_shape(base, t));
}

/* Check the shapes for a stack of experts: B has the experts' columns interleaved, A has one
 * expert's rows after another. */
static bool ad_fits_stack(const adapting *a, ckpt_lora *o, const ckpt_tensor *t)
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
static bool ad_fits(const adapting *a, ckpt_lora *o, const char *module, const ckpt_tensor *t)
{
    uint64_t n_in, n_out = o->b->shape[0], wide = o->rank;

    if (o->a->ndim < 2 || o->b->ndim < 2 || o->a->shape[0] == 0 || t->n_elems == 0)
        return false;
    if (t->ndim == 3 && o->a->ndim == 2)
        return ad_fits_stack(a, o, t);
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
    o->turned = ad_shape_is(t, n_in, n_out) && (n_in != n_out || ad_is_conv1d(a, module));
    o->rows = o->turned ? n_in : n_out;
    o->cols = o->turned ? n_out : n_in;
    return o->turned || ad_shape_is(t, n_out, n_in);
}

/* Set the scale, which includes the adapter's weight, and check the rank in the configuration
 * against the file. */
static int ad_scale(adapting *a, ckpt_lora *o, const char *module)
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

/* The computation by which another adapter changed a tensor, or NULL. */
static const ckpt_make *ad_merged(const adapting *a, const ckpt_tensor *t)
{
    const ckpt_source *s = t->n_extents > 0 ? &a->map->sources.at[ckpt_extent_source(t, 0)] : NULL;

    return s && s->kind == CKPT_SOURCE_MADE ? s->memory : NULL;
}

/* Refuse DoRA together with another adapter, because DoRA's norms are those of the unchanged
 * base. */
static int ad_alone(adapting *a, const ckpt_tensor *t, bool dora)
{
    const ckpt_make *made = ad_merged(a, t);

    if (made && (dora || made->prepare))
        return ckpt_fail(a->err, CKPT_EUNSUPPORTED,
                         "%s: %.200s was merged with another adapter already, and DoRA's norms are "
                         "those of the base: convert twice, one adapter each time",
                         a->opts.path, t->name);
    return CKPT_OK;
}

/* Check that updates can be added to the tensor's dtype. */
static int ad_floats(adapting *a, const ckpt_tensor *t)
{
    if (t->dtype == CKPT_F32 || t->dtype == CKPT_F16 || t->dtype == CKPT_BF16)
        return CKPT_OK;
    return ckpt_fail(a->err, CKPT_EUNSUPPORTED,
                     "%s: the base's %.200s is %s: updates are added to F32, F16 and BF16; convert "
                     "the base first",
                     a->opts.path, t->name, ckpt_dtype_name(t->dtype));
}

/* Make t the sum of itself and the update o; `by` replaces t as the base unless NULL. */
static int ad_merge(adapting *a, ckpt_tensor *t, ckpt_lora *o, const ckpt_tensor *by)
{
    ckpt_dtype d = o->b->dtype;
    int rc = ad_floats(a, t);

    // a second adapter adds to the merged tensor, not to an unmodified copy in its file
    if (ad_merged(a, t))
        by = NULL;
    if (rc == CKPT_OK)
        rc = ad_alone(a, t, o->magnitude != NULL);
    if (rc == CKPT_OK && by)
        rc = ad_put_whole(a, t, by);
    if (rc != CKPT_OK)
        return rc;
    a->n_replaced -= by != NULL;
    o->base = ckpt_nest_hide(a->map, t, a->err);
    o->name = t->name;
    if (o->round == CKPT_DTYPE_NONE && (d == CKPT_F16 || d == CKPT_BF16))
        o->round = d;
    t->owner = NULL;
    a->n_merged++;
    return o->base ? ckpt_lora_put(a->map, t, o, a->err) : CKPT_ELIMIT;
}

/* The name of a module's tensor, in the map's arena. */
static const char *ad_name(const adapting *a, const char *module, const char *last)
{
    return ckpt_arena_printf(a->map->arena, "%s%s%s", module, *last ? "." : "", last);
}

/*
 * Find the parameter of a module that target_parameters names and that the update fits; *many:
 * there are several.  peft wraps a module once more for each adapted parameter (".base_layer").
 * o->name: the parameter's name, by which peft looks up rank and alpha.
 */
static ckpt_tensor *ad_parameter(adapting *a, ckpt_lora *o, const char *module, bool *many)
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
        t = ad_find(a, whole);
        if (!t || !ad_fits(a, &try, module, t))
            continue;
        *many = found != NULL && found != t;
        found = t;
        o->name = whole;
    }
    return found;
}

/* Find the tensor that a pair of factors updates. */
static int ad_target(adapting *a, const ad_module *m, ckpt_lora *o, ckpt_tensor **out)
{
    bool many;
    ckpt_tensor *t = ad_parameter(a, o, m->name, &many);
    const char *name = ad_name(a, m->name, "weight");

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
        t = ad_find(a, name);
    *out = t;
    if (!t)
        return ckpt_fail(a->err, CKPT_EMISSING, "%s: the base has no %.200s: %s", a->opts.path,
                         name,
                         strstr(name, "lm_head") ? "its head is tied; --untie writes a separate one"
                                                 : "the adapter may belong to another base");
    return ad_fits(a, o, m->name, t) ? CKPT_OK : ad_misfit(a, m, t);
}

/* Merge the factors of a linear module, a convolution, a stack of experts or an embedding. */
static int ad_update(adapting *a, const ad_module *m)
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
    rc = ad_target(a, m, &o, &t);
    if (rc == CKPT_OK && table) {
        // an embedding is always transposed, even if it is square: [rows, width]
        o.turned = true;
        o.rows = t->shape[0];
        o.cols = t->ndim == 2 ? t->shape[1] : 0;
        if (o.a->shape[1] != o.rows || o.b->shape[0] != o.cols)
            return ad_misfit(a, m, t);
        a->table = ad_merged(a, t) ? a->table : t;
        // peft rounds an embedding's update to the embedding's dtype, unlike a linear module's
        if (!o.magnitude && (t->dtype == CKPT_F16 || t->dtype == CKPT_BF16))
            o.round = t->dtype;
    }
    if (rc == CKPT_OK && o.magnitude && (o.n_mats != 1 || o.magnitude->n_elems != o.b->shape[0]))
        return ad_misfit(a, m, t);
    if (rc == CKPT_OK)
        rc = ad_scale(a, &o, m->name);
    return rc == CKPT_OK ? ad_merge(a, t, &o, m->part[CKPT_PEFT_BASE_WEIGHT]) : rc;
}

/* lora_bias: add the scaled bias of B to the module's bias. */
static int ad_update_bias(adapting *a, const ad_module *m)
{
    const char *name = ad_name(a, m->name, "bias");
    ckpt_tensor *t = name ? ad_find(a, name) : NULL;
    ckpt_lora o = {.b = m->part[CKPT_PEFT_B_BIAS], .n_mats = 1, .rank = 1, .cols = 1};
    int rc;

    if (!t || t->n_elems != o.b->n_elems || t->n_elems == 0)
        return ckpt_fail(a->err, CKPT_EMISSING,
                         "%s: %.200s has a bias for B, but the base has no bias of %" PRIu64
                         " elements",
                         a->opts.path, m->name, o.b->n_elems);
    o.rows = t->n_elems;
    rc = ad_scale(a, &o, m->name);
    return rc == CKPT_OK ? ad_merge(a, t, &o, NULL) : rc;
}

/* The embedding of a model without its own head, which is tied to it; NULL if there is none. */
static ckpt_tensor *ad_tied_table(const adapting *a)
{
    static const char *const ends[] = {"embed_tokens.weight", "wte.weight",
                                       "word_embeddings.weight", "embed_in.weight", NULL};
    static const char *const heads[] = {"lm_head.weight", "embed_out.weight", "output_layer.weight",
                                        NULL};

    for (size_t i = 0; heads[i]; i++) {
        const ckpt_tensor *head = ad_at(a, heads[i]);
        if (head && !head->owner)
            return NULL;
    }
    for (size_t k = 0; ends[k]; k++) {
        for (size_t i = 0; i < a->map->tensors.n; i++) {
            ckpt_tensor *t = a->map->tensors.at[i];
            size_t n = strlen(t->name), m = strlen(ends[k]);

            if (n >= m && strcmp(t->name + n - m, ends[k]) == 0)
                return t;
        }
    }
    return NULL;
}

/* Replace a tensor of which the adapter saved all elements (modules_to_save). */
static int ad_saved(adapting *a, const char *name, const ckpt_tensor *by)
{
    const ckpt_tensor *tied = ad_tied_table(a);
    int rc = ad_plain(a, name, by);

    if (rc == CKPT_OK && tied && ad_find(a, name) == tied)
        a->table = tied;
    return rc;
}

static int ad_module_whole(adapting *a, const ad_module *m)
{
    const ckpt_tensor *bias = m->part[CKPT_PEFT_BASE_BIAS], *plain = m->part[CKPT_PEFT_PLAIN];
    bool pair = m->part[CKPT_PEFT_A] || m->part[CKPT_PEFT_B] || m->part[CKPT_PEFT_TABLE_A] ||
                m->part[CKPT_PEFT_TABLE_B];
    int rc = plain ? ad_saved(a, m->name, plain) : CKPT_OK;

    if (rc == CKPT_OK && bias) {
        const char *name = ad_name(a, m->name, "bias");

        rc = name ? ad_plain(a, name, bias) : ckpt_fail_memory(a->err);
    }
    if (rc == CKPT_OK && pair)
        rc = ad_update(a, m);
    if (rc == CKPT_OK && m->part[CKPT_PEFT_B_BIAS])
        rc = ad_update_bias(a, m);
    if (rc == CKPT_OK && !pair && (m->part[CKPT_PEFT_MAGNITUDE] || m->part[CKPT_PEFT_BASE_WEIGHT]))
        rc = ckpt_fail(a->err, CKPT_EMISSING, "%s: %.200s has neither lora_A nor lora_B",
                       a->opts.path, m->name);
    return rc;
}

/* ---- all modules ---- */

static int ad_order(const void *pa, const void *pb)
{
    const ad_item *a = pa, *b = pb;
    size_t n = a->name.n < b->name.n ? a->name.n : b->name.n;
    int order = memcmp(a->name.module, b->name.module, n);

    return order ? order : (a->name.n > b->name.n) - (a->name.n < b->name.n);
}

/* Remove modules_to_save from a name, because peft also saves such a tensor under its training
 * name. */
static bool ad_unwrap(const adapting *a, ckpt_peft_name *name)
{
    static const char mark[] = ".modules_to_save.";
    const char *at = strstr(name->module, mark);

    if (!at)
        return true;
    name->module = ckpt_arena_printf(a->map->arena, "%.*s%s", (int)(at - name->module),
                                     name->module, at + sizeof mark - 2);
    name->n = name->module ? strlen(name->module) : 0;
    return name->module != NULL;
}

/* List the adapter's tensors, sorted by module. */
static int ad_list(adapting *a)
{
    const ckpt_map *c = a->child;

    a->item = ckpt_alloc((c->tensors.n + 1) * sizeof *a->item);
    if (!a->item)
        return ckpt_fail_memory(a->err);
    for (size_t i = 0; i < c->tensors.n; i++) {
        const ckpt_tensor *t = c->tensors.at[i];

        if (!ckpt_peft_parse(&a->item[i].name, t->name))
            return ckpt_fail(a->err, CKPT_EFORMAT,
                             "%s: tensor %.200s: names of an adapter begin with base_model.model.",
                             a->opts.path, t->name);
        a->item[i].t = t->owner ? t->owner : t;
        if (a->item[i].name.part == CKPT_PEFT_PLAIN && !ad_unwrap(a, &a->item[i].name))
            return ckpt_fail_memory(a->err);
    }
    a->n_items = c->tensors.n;
    qsort(a->item, a->n_items, sizeof *a->item, ad_order);
    return CKPT_OK;
}

/* Merge all modules. */
static int ad_all(adapting *a)
{
    int rc = CKPT_OK;

    for (size_t i = 0, k; rc == CKPT_OK && i < a->n_items; i = k) {
        const ckpt_peft_name *first = &a->item[i].name;
        ad_module m = {.name = ckpt_arena_string(a->map->arena, first->module, first->n)};

        if (!m.name)
            return ckpt_fail_memory(a->err);
        for (k = i; k < a->n_items && ad_order(&a->item[i], &a->item[k]) == 0; k++) {
            const ckpt_tensor **part = &m.part[a->item[k].name.part];
            ckpt_tensor *copy = *part ? ckpt_nest_hide(a->map, a->item[k].t, a->err) : NULL;

            if (*part && !copy)
                return CKPT_ELIMIT;
            // one tensor is stored under two names: read both, which must be equal
            if (copy)
                copy->twin = *part;
            *part = copy ? copy : a->item[k].t;
        }
        rc = ad_module_whole(a, &m);
    }
    return rc;
}

/* ---- notes ---- */

/* Report the result.  Warn if an embedding changes with a tied head, because the adapter was
 * trained with the unchanged head. */
static int ad_say(adapting *a)
{
    const ckpt_tensor *tied = a->table && a->headed ? ad_tied_table(a) : NULL;
    int rc = CKPT_OK;

    if (tied == a->table && tied && !a->opts.untie)
        rc = ckpt_map_note(
            a->map, CKPT_WARNING, a->err,
            "%.200s changes, and the head that is tied to it changes too, unlike in training; "
            "--untie writes the head as it was",
            tied->name);
    return rc == CKPT_OK ? ckpt_map_note(a->map, CKPT_INFO, a->err,
                                         "%s: %" PRIu64 " weights merged, %" PRIu64
                                         " replaced; all of its %zu tensors are used",
                                         a->opts.path, a->n_merged, a->n_replaced, a->n_items)
                         : rc;
}

/* ---- opening ---- */

/* Refuse an adapter whose initialization changed the base; peft repeats that initialization on the
 * base before it merges. */
static int ad_fits_base(const adapting *a)
{
    if (!a->config.odd_init)
        return CKPT_OK;
    return ckpt_fail(a->err, CKPT_EUNSUPPORTED,
                     "%s: training began with init_lora_weights %.40s, which changes the base: the "
                     "adapter fits only that changed base; convert it to LoRA with peft "
                     "(save_pretrained with path_initial_model_for_weight_conversion), or, where "
                     "the base given is the changed one, say \"init_lora_weights\": true",
                     a->config.path, a->config.odd_init);
}

/* Find the configuration.  The adapter of a training run is first converted to the form that peft
 * saves. */
static int ad_config_path(const char **out, adapting *a)
{
    const char *file = a->child->files.n > 0 ? a->child->files.at[0].path : a->opts.path;
    const char *slash = strrchr(file, '/');
    int rc;

    if (!ckpt_peft_is_live(a->child)) {
        *out = ckpt_arena_printf(a->map->arena, "%.*sadapter_config.json",
                                 slash ? (int)(slash - file + 1) : 0, file);
        return *out ? CKPT_OK : ckpt_fail_memory(a->err);
    }
    rc = ckpt_peft_config_of(out, a->child, a->opts.config, a->err);
    const ckpt_adapter_only only = {.size = sizeof only, .config = *out, .name = a->opts.name};
    return rc == CKPT_OK ? ckpt_map_keep_adapter(a->child, &only, a->err) : rc;
}

static int ad_open(adapting *a)
{
    ckpt_map *map = a->map;
    const char *file = NULL;
    int rc = ckpt_open(&a->child, a->opts.path, NULL, a->err);

    if (rc != CKPT_OK)
        return rc;
    rc = ad_config_path(&file, a);
    if (rc == CKPT_OK)
        rc = ckpt_peft_config_read(&a->config, map->arena, file, a->err);
    if (rc == CKPT_OK)
        rc = ad_fits_base(a);
    if (rc == CKPT_OK)
        rc = ckpt_peft_others(map, &a->opts, a->err);
    if (rc == CKPT_OK)
        rc = ckpt_peft_gaps(map, a->child, &a->config, a->opts.path, a->err);
    if (rc == CKPT_OK)
        rc = ad_list(a);
    if (rc == CKPT_OK)
        rc = ckpt_map_adopt(map, a->child, NULL, a->err);
    // names of its tensors are borrowed, so it must live as long as the map
    if (rc != CKPT_OK)
        ckpt_map_free(a->child);
    return rc;
}

/* Merge the adapter; a failure leaves the map half changed. */
static int ad_change(adapting *a)
{
    ckpt_training_info known = {0};
    int rc = ckpt_map_dequantize(a->map, true, a->err);

    if (rc != CKPT_OK)
        return rc;
    ckpt_map_training_info(a->map, &known);
    a->model_type = known.model_type;
    a->headed = !known.architecture || strstr(known.architecture, "ForCausalLM") ||
                strstr(known.architecture, "LMHead") ||
                strstr(known.architecture, "ForConditionalGeneration") ||
                strstr(known.architecture, "ForMaskedLM");
    if (a->opts.untie)
        rc = ckpt_map_untie(a->map, a->err);
    if (rc == CKPT_OK)
        rc = ad_open(a);
    if (rc == CKPT_OK)
        rc = ad_all(a);
    return rc == CKPT_OK ? ad_say(a) : rc;
}

int ckpt_map_merge_adapter(ckpt_map *map, const ckpt_adapter *adapter, ckpt_err *err)
{
    ckpt_err_clear(err);
    adapting a = {.map = map, .err = err};
    ckpt_savepoint *saved = NULL;
    int rc = !map || !adapter || !adapter->path
                 ? ckpt_fail(err, CKPT_EUSAGE, "no map, or no adapter to merge into it")
                 : ckpt_opts_take(&a.opts, sizeof a.opts, adapter, "ckpt_adapter", err);

    if (rc == CKPT_OK && a.opts.weight == 0)
        a.opts.weight = 1;
    if (rc == CKPT_OK)
        rc = ckpt_savepoint_new(&saved, map, err);
    if (rc == CKPT_OK)
        rc = ckpt_savepoint_end(saved, ad_change(&a));
    ckpt_peft_config_free(&a.config);
    ckpt_free(a.item);
    return rc;
}
