/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merge.c: opens models and pairs their tensors by name for a merge.
 *
 * The map of the base, or of the first model without a base, adopts the files and sources of the
 * others. The output therefore has that model's configuration and tokenizer too.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/number.h"
#include "libckpt/base/opts.h"
#include "libckpt/map/adopt.h"
#include "libckpt/transform/merge/recipe.h"
#include "libckpt/transform/same_config.h"

/* An opened model. */
typedef struct mg_model {
    const char *path, *tag;
    ckpt_map *map;
    /* its tensors, indexed like the main map's; for the main map hidden copies of its original
     * tensors */
    const ckpt_tensor **tensor;
} mg_model;

CKPT_VEC(mg_models, mg_model);

typedef struct merging {
    ckpt_recipe recipe;
    const ckpt_merge *opts;
    mg_models opened; /* all opened models, the main one first */
    size_t *of;       /* per model of the recipe: index in `opened` */
    ckpt_map *map;    /* map of the main model */
    uint64_t n_layers;
    uint64_t n_merged, n_same;
    ckpt_err *err;
} merging;

/* ---- opening ---- */

static bool mg_is(const mg_model *m, const char *path, const char *tag)
{
    return strcmp(m->path, path) == 0 && (m->tag == tag || (m->tag && tag && !strcmp(m->tag, tag)));
}

/* True for a factor of an adapter in a file, under the names of peft, GGUF, kohya and ComfyUI. */
static bool mg_is_factor(const char *name)
{
    static const char *const ends[] = {".lora_A.weight",
                                       ".lora_B.weight",
                                       ".lora_embedding_A",
                                       ".lora_embedding_B",
                                       ".lora_a",
                                       ".lora_b",
                                       ".lora_down.weight",
                                       ".lora_up.weight",
                                       ".lora.down.weight",
                                       ".lora.up.weight",
                                       ".hada_w1_a",
                                       ".hada_w1_b",
                                       ".hada_w2_a",
                                       ".hada_w2_b",
                                       ".lokr_w1",
                                       ".lokr_w2",
                                       ".lokr_w1_a",
                                       ".lokr_w1_b",
                                       ".lokr_w2_a",
                                       ".lokr_w2_b",
                                       ".ia3_l",
                                       ".vera_lambda_b",
                                       ".vera_lambda_d",
                                       ".oft_R.weight",
                                       NULL};
    const size_t n = strlen(name);
    bool is = false;

    for (size_t i = 0; !is && ends[i]; i++) {
        const size_t m = strlen(ends[i]);

        is = n > m && strcmp(name + n - m, ends[i]) == 0;
    }
    return is;
}

/* Refuse an adapter: the mean of A times the mean of B is not the mean of the updates. */
static int mg_model_only(const ckpt_map *map, ckpt_err *err)
{
    const char *key, *text;

    for (size_t i = 0; ckpt_map_fact_at(map, i, &key, &text, NULL); i++) {
        if (strcmp(key, "adapter") == 0)
            return ckpt_fail(err, CKPT_EUNSUPPORTED,
                             "%s: is an adapter (%.60s), whose factors are not merged like the "
                             "weights of models: give folders of LoRA adapters only, or merge each "
                             "adapter into its base (ckpt convert --adapter)",
                             map->path, text);
    }
    for (size_t i = 0; i < map->tensors.n; i++) {
        if (mg_is_factor(map->tensors.at[i]->name))
            return ckpt_fail(err, CKPT_EUNSUPPORTED,
                             "%s: %.200s is a factor of an adapter, and factors are not merged "
                             "like the weights of models: merge each adapter into its base (ckpt "
                             "convert --adapter), or combine PEFT folders "
                             "(adapter_model.safetensors beside adapter_config.json)",
                             map->path, map->tensors.at[i]->name);
    }
    return CKPT_OK;
}

/* Open a model, unless it is open already: the base may be one of the models. */
static int mg_open(merging *g, const char *path, const char *tag, size_t *at)
{
    ckpt_open_opts opts = {0};
    mg_model *m;
    int rc;

    if (g->opts->open)
        opts = *g->opts->open;
    opts.tag = tag ? tag : opts.tag;
    opts.with_optimizer = false;
    for (*at = 0; *at < g->opened.n; ++*at) {
        if (mg_is(&g->opened.at[*at], path, tag))
            return CKPT_OK;
    }
    m = ckpt_vec_push(&g->opened);
    if (!m)
        return ckpt_fail_memory(g->err);
    *m = (mg_model){.path = path, .tag = tag};
    rc = ckpt_open(&m->map, path, &opts, g->err);
    if (rc == CKPT_OK)
        rc = mg_model_only(m->map, g->err);
    if (rc == CKPT_OK)
        rc = ckpt_map_keep_model(m->map, &(ckpt_model_opts){.keep_names = g->opts->keep_names},
                                 g->err);
    if (rc == CKPT_OK)
        rc = ckpt_map_dequantize(m->map, true, g->err);
    return rc;
}

static int mg_open_all(merging *g)
{
    const ckpt_recipe *r = &g->recipe;
    size_t base;
    int rc = r->base ? mg_open(g, r->base, NULL, &base) : CKPT_OK;

    g->of = ckpt_alloc(r->models.n * sizeof *g->of);
    if (!g->of)
        return ckpt_fail_memory(g->err);
    for (size_t i = 0; rc == CKPT_OK && i < r->models.n; i++)
        rc = mg_open(g, r->models.at[i].path, r->models.at[i].tag, &g->of[i]);
    return rc;
}

/* Let the caller give all models one set of names. */
static int mg_names(merging *g)
{
    ckpt_map **maps = ckpt_alloc(g->opened.n * sizeof *maps);
    int rc;

    if (!maps)
        return ckpt_fail_memory(g->err);
    for (size_t i = 0; i < g->opened.n; i++)
        maps[i] = g->opened.at[i].map;
    rc = g->opts->names(g->opts->names_ctx, maps, g->opened.n, g->err);
    ckpt_free(maps);
    return rc;
}

/* ---- pairing ---- */

/* True for the dtypes that are merged. */
static bool mg_is_float(const ckpt_tensor *t)
{
    return t->dtype == CKPT_F32 || t->dtype == CKPT_F16 || t->dtype == CKPT_BF16;
}

/* Find a model's tensor of the same name, or its owner, and check the shape. */
static int mg_match(merging *g, const mg_model *m, const ckpt_tensor *t, const ckpt_tensor **out)
{
    size_t i = ckpt_map_index(m->map, t->name, strlen(t->name));
    const ckpt_tensor *o;

    if (i == SIZE_MAX)
        return ckpt_fail(g->err, CKPT_EMISSING,
                         "%s has no tensor %.200s, but %s has: the models need the same tensor "
                         "names (ckpt ls lists them; ckpt convert --rename or --map changes them)",
                         m->path, t->name, g->opened.at[0].path);
    o = m->map->tensors.at[i];
    o = o->owner ? o->owner : o;
    if (o->ndim != t->ndim || (t->ndim && memcmp(o->shape, t->shape, t->ndim * sizeof *t->shape)))
        return ckpt_fail(
            g->err, CKPT_EMISMATCH,
            "tensor %.200s has %" PRIu64 " elements on %" PRIu32 " axes in %s, but %" PRIu64
            " on %" PRIu32 " in %s: the models need the same shapes",
            t->name, o->n_elems, o->ndim, m->path, t->n_elems, t->ndim, g->opened.at[0].path);
    if (mg_is_float(o) != mg_is_float(t) || (!mg_is_float(t) && o->dtype != t->dtype))
        return ckpt_fail(g->err, CKPT_EUNSUPPORTED,
                         "tensor %.200s is %s in %s and %s in %s: only F32, F16 and BF16 can be "
                         "merged; convert it first",
                         t->name, ckpt_dtype_name(o->dtype), m->path, ckpt_dtype_name(t->dtype),
                         g->opened.at[0].path);
    *out = o;
    return CKPT_OK;
}

/* Let the run check that a model has equal values under the names that the main model ties. */
static int mg_tied(merging *g, mg_model *m, size_t i)
{
    const ckpt_tensor *t = g->map->tensors.at[i], *own = m->tensor[i];
    const char *table = t->owner->name;
    ckpt_tensor *last =
        (ckpt_tensor *)(uintptr_t)m->tensor[ckpt_map_index(g->map, table, strlen(table))];

    if (own == last)
        return CKPT_OK;
    if (own->dtype != last->dtype)
        return ckpt_fail(g->err, CKPT_EMISMATCH,
                         "%s: tensor %.200s is %s and %.200s is %s, but they are tied in %s",
                         m->path, t->name, ckpt_dtype_name(own->dtype), table,
                         ckpt_dtype_name(last->dtype), g->opened.at[0].path);
    while (last->twin)
        last = (ckpt_tensor *)(uintptr_t)last->twin;
    last->twin = ckpt_nest_hide(m->map, own, g->err);
    return last->twin ? ckpt_map_fact(g->map, g->err, "tied", "%.200s to %.200s", t->name, table)
                      : CKPT_ELIMIT;
}

/* Pair all tensors in both directions, so that no tensor of either model is left out. */
static int mg_pair(merging *g, mg_model *m)
{
    const ckpt_map *main = g->map;
    int rc = CKPT_OK;

    m->tensor = ckpt_alloc((main->tensors.n + 1) * sizeof *m->tensor);
    if (!m->tensor)
        return ckpt_fail_memory(g->err);
    for (size_t i = 0; rc == CKPT_OK && i < main->tensors.n; i++)
        rc = mg_match(g, m, main->tensors.at[i], &m->tensor[i]);
    for (size_t i = 0; rc == CKPT_OK && i < main->tensors.n; i++)
        rc = main->tensors.at[i]->owner ? mg_tied(g, m, i) : rc;
    for (size_t i = 0; rc == CKPT_OK && i < m->map->tensors.n; i++) {
        const char *name = m->map->tensors.at[i]->name;

        if (ckpt_map_index(main, name, strlen(name)) == SIZE_MAX)
            rc = ckpt_fail(
                g->err, CKPT_EMISSING,
                "%s has a tensor %.200s, but %s has not: the models need the same tensor names",
                m->path, name, g->opened.at[0].path);
    }
    return rc;
}

/*
 * Adopt the other models' files and sources into the main map. Its own tensors get hidden copies
 * first, because the merge changes them.
 */
static int mg_join(merging *g)
{
    mg_model *main = &g->opened.at[0];
    int rc = CKPT_OK;

    for (size_t k = 1; rc == CKPT_OK && k < g->opened.n; k++)
        rc = mg_pair(g, &g->opened.at[k]);
    main->tensor = ckpt_alloc((g->map->tensors.n + 1) * sizeof *main->tensor);
    if (!main->tensor)
        return ckpt_fail_memory(g->err);
    for (size_t k = 1; rc == CKPT_OK && k < g->opened.n; k++) {
        rc = ckpt_map_adopt(g->map, g->opened.at[k].map, NULL, g->err);
        if (rc == CKPT_OK)
            g->opened.at[k].map = NULL;
    }
    for (size_t i = 0; rc == CKPT_OK && i < g->map->tensors.n; i++) {
        main->tensor[i] = ckpt_nest_hide(g->map, g->map->tensors.at[i], g->err);
        rc = main->tensor[i] ? CKPT_OK : CKPT_ELIMIT;
    }
    return rc;
}

/* ---- layers ---- */

/* Find the layer in a tensor's name: its first numeric component. */
static bool mg_layer(const char *name, uint64_t *layer)
{
    for (const char *p = name; p; p = strchr(p, '.')) {
        p += *p == '.';
        const char *end = ckpt_scan_u64(p, layer);
        if (end && *end == '.')
            return *layer < UINT32_MAX;
    }
    return false;
}

/* Relative position of a tensor's layer: 0 the first, 1 the last. */
static double mg_where(const merging *g, const char *name)
{
    uint64_t layer;

    if (!mg_layer(name, &layer))
        return 0;
    if (g->n_layers < 2)
        return 1;
    return (double)layer / (double)(g->n_layers - 1);
}

/* ---- one tensor ---- */

/* Read a flag from the recipe; otherwise it has the method's default. */
static int mg_flag(const merging *g, const ckpt_recipe_for *of, const char *key, bool usual,
                   bool *out)
{
    bool found;
    double x = usual;
    int rc = ckpt_recipe_number(&g->recipe, of, key, &x, &found, g->err);

    *out = x != 0;
    return rc;
}

/* Read one model's weight and density. */
static int mg_term(const merging *g, size_t model, const char *name, double at,
                   ckpt_blend_term *term)
{
    const ckpt_recipe *r = &g->recipe;
    const ckpt_recipe_model *m = &r->models.at[model];
    const ckpt_recipe_for of = {m, name, at};
    bool found, dense;
    int rc;

    term->weight = m->weight;
    term->density = r->density;
    rc = ckpt_recipe_number(r, &of, "weight", &term->weight, &found, g->err);
    if (rc == CKPT_OK)
        rc = ckpt_recipe_number(r, &of, "density", &term->density, &dense, g->err);
    if (rc == CKPT_OK && !found && !r->has_weight && r->method != CKPT_BLEND_SLERP)
        rc = ckpt_fail(g->err, CKPT_EUSAGE, "%s: no weight for tensor %.200s", m->path, name);
    return rc;
}

/* Collect the models' terms for tensor i. The base has no term, because the methods take it as
 * their reference. */
static int mg_terms(const merging *g, size_t i, double at, ckpt_blend_term *term, ckpt_blend *b)
{
    const ckpt_recipe *r = &g->recipe;
    double sum = 0;
    int rc = CKPT_OK;

    b->term = term;
    for (size_t k = 0; rc == CKPT_OK && k < r->models.n; k++) {
        if (r->base && g->of[k] == 0)
            continue;
        rc = mg_term(g, k, b->name, at, &term[b->n]);
        term[b->n].t = g->opened.at[g->of[k]].tensor[i];
        sum += term[b->n].weight;
        b->n++;
    }
    if (rc == CKPT_OK && r->method == CKPT_BLEND_LINEAR && b->normalize && sum == 0)
        rc =
            ckpt_fail(g->err, CKPT_EUSAGE,
                      "tensor %.200s: the weights of the models add up to 0, so they have no mean: "
                      "change a weight, or leave the division out (--no-normalize)",
                      b->name);
    return rc;
}

/* Read the parameters of one tensor and merge it. */
static int mg_blend(merging *g, size_t i, ckpt_blend_term *term)
{
    ckpt_tensor *t = g->map->tensors.at[i];
    const ckpt_recipe *r = &g->recipe;
    const ckpt_recipe_for of = {NULL, t->name, mg_where(g, t->name)};
    ckpt_blend b = {.method = r->method,
                    .base = r->base ? g->opened.at[0].tensor[i] : NULL,
                    .lambda = r->lambda,
                    .t = r->t,
                    .seed = r->seed,
                    .name = t->name};
    ckpt_dtype steps = r->steps != CKPT_DTYPE_NONE ? r->steps : t->dtype;
    bool found, said = false;

    if (r->from_config && (steps == CKPT_BF16 || steps == CKPT_F16))
        b.steps = steps;
    int rc = mg_flag(g, &of, "normalize", ckpt_blend_normalizes(r->method) && !r->skip_normalize,
                     &b.normalize);

    if (rc == CKPT_OK)
        rc = mg_flag(g, &of, "rescale", ckpt_blend_rescales(r->method), &b.rescale);
    if (rc == CKPT_OK)
        rc = ckpt_recipe_number(r, &of, "lambda", &b.lambda, &found, g->err);
    if (rc == CKPT_OK)
        rc = ckpt_recipe_number(r, &of, "t", &b.t, &said, g->err);
    if (rc == CKPT_OK && r->method == CKPT_BLEND_SLERP &&
        ((!said && b.t == 0) || !(b.t >= 0 && b.t <= 1)))
        rc = ckpt_fail(g->err, CKPT_EUSAGE,
                       "slerp needs t, from 0 (the first model or base) to 1 (the other)");
    if (rc == CKPT_OK)
        rc = mg_terms(g, i, of.at, term, &b);
    if (rc == CKPT_OK && b.n == 0)
        rc = ckpt_fail(g->err, CKPT_EUSAGE, "the base is the only model");
    if (rc == CKPT_OK && t->n_elems > 0)
        rc = ckpt_blend_put(g->map, t, &b, g->err);
    if (r->dtype != CKPT_DTYPE_NONE)
        t->export_dtype = r->dtype;
    g->n_merged++;
    return rc;
}

/* Integer tensors cannot be averaged, so they must be equal in all models. */
static int mg_same(merging *g, size_t i)
{
    ckpt_tensor *last = g->map->tensors.at[i];

    while (last->twin)
        last = (ckpt_tensor *)(uintptr_t)last->twin;
    for (size_t k = 1; k < g->opened.n; k++) {
        ckpt_tensor *copy = ckpt_nest_hide(g->map, g->opened.at[k].tensor[i], g->err);

        if (!copy)
            return CKPT_ELIMIT;
        last->twin = copy;
        while (last->twin)
            last = (ckpt_tensor *)(uintptr_t)last->twin;
    }
    g->n_same++;
    return CKPT_OK;
}

static int mg_all(merging *g)
{
    ckpt_blend_term *term = ckpt_alloc((g->recipe.models.n + 1) * sizeof *term);
    uint64_t layer;
    int rc = term ? CKPT_OK : ckpt_fail_memory(g->err);

    for (size_t i = 0; i < g->map->tensors.n; i++) {
        if (mg_layer(g->map->tensors.at[i]->name, &layer) && layer + 1 > g->n_layers)
            g->n_layers = layer + 1;
    }
    if (rc == CKPT_OK && g->recipe.n_layers > 0 && g->recipe.n_layers != g->n_layers)
        rc = ckpt_fail(g->err, CKPT_EUNSUPPORTED,
                       "layer_range ends at %" PRIu64 ", but the models have %" PRIu64
                       " layers: ckpt merges only whole models",
                       g->recipe.n_layers, g->n_layers);
    for (size_t i = 0; rc == CKPT_OK && i < g->map->tensors.n; i++) {
        const ckpt_tensor *t = g->map->tensors.at[i];

        // A tied name follows its owner.
        if (!t->owner)
            rc = mg_is_float(t) ? mg_blend(g, i, term) : mg_same(g, i);
    }
    ckpt_free(term);
    return rc;
}

static int mg_say(const merging *g)
{
    int rc = CKPT_OK;

    if (g->recipe.ignores_int8_mask)
        rc = ckpt_map_note(g->map, CKPT_INFO, g->err,
                           "int8_mask has no effect: it saves memory that ckpt does not need");
    // a configuration of mergekit may have one model
    const bool alone = g->recipe.method == CKPT_BLEND_LINEAR && g->recipe.models.n == 1 &&
                       !g->recipe.skip_normalize;
    return rc == CKPT_OK ? ckpt_map_note(g->map, alone ? CKPT_WARNING : CKPT_INFO, g->err,
                                         "%s of %zu model%s: %" PRIu64 " tensors merged, %" PRIu64
                                         " the same in all; everything else comes from %s",
                                         ckpt_blend_name(g->recipe.method), g->recipe.models.n,
                                         g->recipe.models.n == 1 ? "" : "s", g->n_merged, g->n_same,
                                         g->opened.at[0].path)
                         : rc;
}

int ckpt_merge_open(ckpt_map **out, const ckpt_merge *merge, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_merge opts;
    merging g = {.opts = &opts, .err = err};
    ckpt_arena *arena = ckpt_arena_new(0);
    int rc = !out || !merge
                 ? ckpt_fail(err, CKPT_EUSAGE, "nothing to merge, or no place for it")
                 : ckpt_opts_take_since(&opts, sizeof opts, offsetof(ckpt_merge, keep_names), merge,
                                        "ckpt_merge", err);

    if (out)
        *out = NULL;
    if (rc == CKPT_OK && !arena)
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = ckpt_recipe_read(&g.recipe, arena, &opts, err);
    if (rc == CKPT_OK)
        rc = mg_open_all(&g);
    g.map = g.opened.n > 0 ? g.opened.at[0].map : NULL;
    for (size_t k = 1; rc == CKPT_OK && k < g.opened.n; k++)
        rc = ckpt_config_compare(g.map, g.opened.at[k].map, g.map, err);
    if (rc == CKPT_OK && opts.names)
        rc = mg_names(&g);
    if (rc == CKPT_OK)
        rc = mg_join(&g);
    if (rc == CKPT_OK)
        rc = mg_all(&g);
    if (rc == CKPT_OK)
        rc = mg_say(&g);
    for (size_t k = 0; k < g.opened.n; k++) {
        ckpt_free(g.opened.at[k].tensor);
        if (rc != CKPT_OK || k > 0)
            ckpt_map_free(g.opened.at[k].map);
    }
    if (rc == CKPT_OK)
        *out = g.map;
    ckpt_vec_free(&g.opened);
    ckpt_recipe_free(&g.recipe);
    ckpt_free(g.of);
    ckpt_arena_free(arena);
    return rc;
}

int ckpt_merge_paths(const ckpt_merge *merge, ckpt_merge_path_fn fn, void *ctx, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_merge opts;
    ckpt_recipe recipe = {0};
    ckpt_arena *arena = ckpt_arena_new(0);
    int rc = !merge || !fn ? ckpt_fail(err, CKPT_EUSAGE, "nothing to merge, or no function")
                           : ckpt_opts_take(&opts, sizeof opts, merge, "ckpt_merge", err);
    bool ended = false;

    if (rc == CKPT_OK && !arena)
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = ckpt_recipe_read(&recipe, arena, &opts, err);
    for (size_t i = 0; rc == CKPT_OK && !ended && i < recipe.models.n; i++)
        ended = fn(ctx, recipe.models.at[i].path) != 0;
    if (rc == CKPT_OK && !ended && recipe.base)
        ended = fn(ctx, recipe.base) != 0;
    ckpt_recipe_free(&recipe);
    ckpt_arena_free(arena);
    return rc == CKPT_OK && ended ? ckpt_fail(err, CKPT_ECANCELED, "ended by its caller") : rc;
}
