/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapt_base.c: finds the tensors of the base that an adapter changes, and replaces or adds whole
 * tensors.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/peft/adapting.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/nest.h"

/* ---- finding tensors of the base ---- */

ckpt_tensor *ckpt_adapt_at(const ckpt_adapting *a, const char *name)
{
    size_t i = ckpt_map_index(a->map, name, strlen(name));

    return i == SIZE_MAX ? NULL : a->map->tensors.at[i];
}

ckpt_tensor *ckpt_adapt_find(const ckpt_adapting *a, const char *name)
{
    const char *dot = strchr(name, '.');
    ckpt_tensor *t = ckpt_adapt_at(a, name), *found = NULL;
    size_t n = strlen(name);

    if (!t && dot)
        t = ckpt_adapt_at(a, dot + 1);
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

const char *ckpt_adapt_shape(char text[120], const ckpt_tensor *t)
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
static int ab_put_whole(ckpt_adapting *a, ckpt_tensor *t, const ckpt_tensor *by)
{
    char mine[120], theirs[120];

    if (t->n_elems != by->n_elems || t->ndim != by->ndim ||
        memcmp(t->shape, by->shape, t->ndim * sizeof *t->shape) != 0)
        return ckpt_fail(a->err, CKPT_EMISMATCH,
                         "%s: %.200s is %s, but %s in the base: tokens were added, or the adapter "
                         "belongs to another base; resize the base's embeddings first",
                         a->opts.path, by->name, ckpt_adapt_shape(theirs, by),
                         ckpt_adapt_shape(mine, t));
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
static int ab_add_whole(ckpt_adapting *a, const char *name, const ckpt_tensor *by)
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
static size_t ab_last_two(const char *name)
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
static size_t ab_layer(const char *name)
{
    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
        size_t n = strspn(dot + 1, "0123456789");

        if (n > 0 && dot[1 + n] == '.')
            return (size_t)(dot - name) + n + 2;
    }
    return 0;
}

/* True if a name's module is the head of a language model, under any of its names. */
static bool ab_is_head(const char *name)
{
    static const char *const heads[] = {"lm_head.", "embed_out.", "output_layer.", NULL};
    const char *last = name + strlen(name) - ab_last_two(name);

    for (size_t i = 0; heads[i]; i++) {
        if (strncmp(last, heads[i], strlen(heads[i])) == 0)
            return true;
    }
    return false;
}

/* True if the base's tensor t may be the tensor `name` of the adapter, under another name. */
static bool ab_may_be(const ckpt_tensor *t, const char *name, const ckpt_tensor *by)
{
    size_t n = ab_last_two(name), m = strlen(t->name);

    if (t->owner || t->ndim != by->ndim)
        return false;
    if (ab_is_head(name))
        return ab_is_head(t->name);
    return t->n_elems == by->n_elems && !ab_layer(t->name) == !ab_layer(name) && m >= n &&
           (m == n || t->name[m - n - 1] == '.') &&
           memcmp(t->name + m - n, name + strlen(name) - n, n) == 0;
}

/* Add a tensor whose name the base lacks, unless the base may have it under another name: the
 * output would then have both, and loaders would take the untrained one. */
static int ab_add_new(ckpt_adapting *a, const char *name, const ckpt_tensor *by)
{
    size_t n = ab_layer(name), bare = n ? (size_t)(strchr(name, '.') + 1 - name) : 0;
    bool inside = false;

    for (size_t i = 0; i < a->map->tensors.n; i++) {
        const ckpt_tensor *t = a->map->tensors.at[i];

        if (ab_may_be(t, name, by))
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
                         "the adapter may belong to another base (see base_model_name_or_path in "
                         "adapter_config.json)",
                         a->opts.path, name);
    return ab_add_whole(a, name, by);
}

int ckpt_adapt_plain(ckpt_adapting *a, const char *name, const ckpt_tensor *by)
{
    ckpt_tensor *t = ckpt_adapt_find(a, name);
    const char *last = strrchr(name, '.');
    bool is_bias = last && strcmp(last, ".bias") == 0 && strcmp(a->config.bias, "none") != 0;
    // peft saves the head with its embedding, without naming it
    bool saved = ckpt_peft_saves(&a->config, name) || (a->config.tying && !t && ab_is_head(name));
    bool is_table = t && last && strcmp(last, ".weight") == 0;

    if (a->opts.weight != 1)
        return ckpt_fail(a->err, CKPT_EUNSUPPORTED,
                         "%s: %.200s is a whole tensor, which a weight of the adapter cannot "
                         "scale: leave the weight at 1",
                         a->opts.path, by->name);
    if (t && (saved || is_bias || is_table))
        return ab_put_whole(a, t, by);
    if (saved)
        return ab_add_new(a, name, by);
    return ckpt_fail(a->err, t ? CKPT_EUNSUPPORTED : CKPT_EMISSING,
                     "%s: %.200s %s, and %s does not say that it was trained: every tensor of an "
                     "adapter must be used",
                     a->opts.path, by->name, t ? "is one of the base" : "is not in the base",
                     a->config.path);
}

bool ckpt_adapt_is_conv1d(const ckpt_adapting *a, const char *module)
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
    // other models have such names too: peft then writes fan_in_fan_out of its last module
    return a->config.fan_in_fan_out;
}

ckpt_dtype ckpt_adapt_round(const ckpt_tensor *t, ckpt_dtype adapter)
{
    assert(t);
    const ckpt_dtype base = t->export_dtype != CKPT_DTYPE_NONE ? t->export_dtype : t->dtype;

    return adapter == base && (base == CKPT_F16 || base == CKPT_BF16) ? base : CKPT_DTYPE_NONE;
}

const ckpt_make *ckpt_adapt_merged(const ckpt_adapting *a, const ckpt_tensor *t)
{
    const ckpt_source *s = t->n_extents > 0 ? &a->map->sources.at[ckpt_extent_source(t, 0)] : NULL;

    return s && s->kind == CKPT_SOURCE_MADE ? s->memory : NULL;
}

/* Refuse DoRA together with another adapter, because DoRA's norms are those of the unchanged
 * base. */
static int ab_alone(ckpt_adapting *a, const ckpt_tensor *t, bool dora)
{
    const ckpt_make *made = ckpt_adapt_merged(a, t);

    if (made && (dora || made->prepare))
        return ckpt_fail(a->err, CKPT_EUNSUPPORTED,
                         "%s: %.200s was merged with another adapter already, and DoRA's norms are "
                         "those of the base: convert twice, one adapter each time",
                         a->opts.path, t->name);
    return CKPT_OK;
}

/* Check that updates can be added to the tensor's dtype. */
static int ab_floats(ckpt_adapting *a, const ckpt_tensor *t)
{
    if (t->dtype == CKPT_F32 || t->dtype == CKPT_F16 || t->dtype == CKPT_BF16)
        return CKPT_OK;
    return ckpt_fail(a->err, CKPT_EUNSUPPORTED,
                     "%s: the base's %.200s is %s: updates are added to F32, F16 and BF16; convert "
                     "the base first",
                     a->opts.path, t->name, ckpt_dtype_name(t->dtype));
}

const char *ckpt_adapt_name(const ckpt_adapting *a, const char *module, const char *last)
{
    return ckpt_arena_printf(a->map->arena, "%s%s%s", module, *last ? "." : "", last);
}

int ckpt_adapt_hide(const ckpt_tensor **out, ckpt_adapting *a, ckpt_tensor *t,
                    const ckpt_tensor *by, bool alone)
{
    assert(out && a && t);
    int rc = ab_floats(a, t);

    // a second adapter adds to the merged tensor, not to an unmodified copy in its file
    if (ckpt_adapt_merged(a, t))
        by = NULL;
    if (rc == CKPT_OK)
        rc = ab_alone(a, t, alone);
    if (rc == CKPT_OK && by)
        rc = ab_put_whole(a, t, by);
    if (rc != CKPT_OK)
        return rc;
    a->n_replaced -= by != NULL;
    a->n_merged++;
    *out = ckpt_nest_hide(a->map, t, a->err);
    t->owner = NULL;
    return *out ? CKPT_OK : CKPT_ELIMIT;
}
