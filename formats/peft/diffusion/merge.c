/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merge.c: merges an adapter into its base: a diffusion model's LoRA here, others in adapt.c.
 *
 * The result is that of diffusers 0.42 with peft 0.21 on a processor (load_lora_weights, fuse_lora,
 * unload_lora_weights): the factors are rounded to the weight's dtype, their product is made in F32
 * and rounded to it again, and the sum once more.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/peft/adapting.h"
#include "formats/peft/diffusion/lora.h"
#include "formats/peft/lora.h"
#include "libckpt/base/opts.h"
#include "libckpt/map/adopt.h"
#include "libckpt/map/savepoint.h"

/* ---- the base ---- */

/* True if the base is a pipeline, in which names begin with a component: "unet/conv_in.weight". */
static bool dm_is_pipeline(const ckpt_map *base)
{
    return base->tensors.n > 0 && strchr(base->tensors.at[0]->name, '/');
}

/* True if the base has the tensor, in the component or alone. */
static bool dm_has(const ckpt_map *base, const char *component, const char *name)
{
    char text[128];
    const int n = snprintf(text, sizeof text, "%s%s", dm_is_pipeline(base) ? component : "", name);

    return n > 0 && ckpt_map_index(base, text, (uint64_t)n) != SIZE_MAX;
}

/* The model that the base is; CKPT_DL_N_FAMILIES: the adapter's names decide. */
static ckpt_dl_family dm_family(const ckpt_map *base)
{
    if (dm_has(base, "transformer/", "single_transformer_blocks.0.proj_out.weight") ||
        dm_has(base, "transformer/", "transformer_blocks.0.attn.add_q_proj.weight"))
        return CKPT_DL_FLUX;
    if (dm_has(base, "unet/", "add_embedding.linear_1.weight"))
        return CKPT_DL_SDXL;
    return dm_has(base, "unet/", "down_blocks.0.resnets.0.conv1.weight") ? CKPT_DL_SD
                                                                         : CKPT_DL_N_FAMILIES;
}

/*
 * The weight of a module of diffusers, such as "unet.conv_in"; NULL: the base has none.
 */
static ckpt_tensor *dm_weight(const ckpt_adapting *a, const char *module)
{
    static const char wrapped[] = "text_model.";
    const size_t n = strcspn(module, ".");
    const char *rest = module + n + (module[n] == '.');
    const bool text = strncmp(module, "text_encoder", strlen("text_encoder")) == 0;
    const bool has = strncmp(rest, wrapped, sizeof wrapped - 1) == 0;
    const char *bare = has ? rest + sizeof wrapped - 1 : rest;
    // transformers 5 has the module text_model in its files, or not
    const char *const before[] = {has ? wrapped : "", has || !text ? "" : wrapped};
    ckpt_tensor *t = NULL;

    for (size_t i = 0; !t && i < 2; i++) {
        const char *name = ckpt_arena_printf(
            a->map->arena, "%.*s%s%s%s.weight", dm_is_pipeline(a->map) ? (int)n : 0, module,
            dm_is_pipeline(a->map) ? "/" : "", before[i], text ? bare : rest);

        t = name ? ckpt_adapt_at(a, name) : NULL;
    }
    return t;
}

/* Refuse an adapter of several components for a base of one. */
static int dm_check_components(const ckpt_adapting *a, const ckpt_dl_work *w)
{
    const char *first = w->targets.n > 0 ? w->targets.at[0].name : "";
    const size_t n = strcspn(first, ".");

    for (size_t i = 0; i < w->targets.n && !dm_is_pipeline(a->map); i++) {
        const char *other = w->targets.at[i].name;

        if (strcspn(other, ".") != n || strncmp(first, other, n) != 0)
            return ckpt_fail(a->err, CKPT_EUNSUPPORTED,
                             "%s changes several components (%.*s, %.*s), and %s is one: merge it "
                             "into the folder of the pipeline",
                             a->opts.path, (int)n, first, (int)strcspn(other, "."), other,
                             a->map->path ? a->map->path : "the base");
    }
    return CKPT_OK;
}

/* ---- one module ---- */

static const ckpt_tensor *dm_factor(const ckpt_adapting *a, const char *module, const char *end)
{
    const char *name = ckpt_arena_printf(a->map->arena, "%s%s", module, end);
    const size_t at = name ? ckpt_map_index(a->child, name, strlen(name)) : SIZE_MAX;
    const ckpt_tensor *t = at == SIZE_MAX ? NULL : a->child->tensors.at[at];

    return t && t->owner ? t->owner : t;
}

/* True if the factors of a layer or convolution have its inputs, kernel and outputs. */
static bool dm_fits(const ckpt_lora *o, const ckpt_tensor *t)
{
    bool fits = t->ndim >= 2 && t->ndim == o->a->ndim && t->shape[0] == o->b->shape[0] &&
                t->n_elems > 0 && o->b->n_elems / o->b->shape[0] == o->a->shape[0];

    for (uint32_t i = 1; fits && i < t->ndim; i++)
        fits = t->shape[i] == o->a->shape[i];
    return fits;
}

/* Add the update of a module to its weight. */
static int dm_module(ckpt_adapting *a, const ckpt_dl_target *target)
{
    ckpt_lora o = {.a = dm_factor(a, target->name, ".lora_A.weight"),
                   .b = dm_factor(a, target->name, ".lora_B.weight"),
                   .n_mats = 1,
                   .rank = target->rank};
    ckpt_tensor *t = dm_weight(a, target->name);
    char base[120], na[120], nb[120];
    int rc;

    if (!o.a || !o.b)
        return ckpt_fail_memory(a->err);
    if (!t)
        return ckpt_fail(a->err, CKPT_EMISSING,
                         "%s: the base has no weight of the module %.200s: the adapter may belong "
                         "to another model, or to a pipeline whose folder is to be given",
                         a->opts.path, target->name);
    if (!dm_fits(&o, t))
        return ckpt_fail(a->err, CKPT_EMISMATCH,
                         "%s: %.200s: lora_down %s and lora_up %s do not fit the base's %.200s "
                         "%s: the adapter may belong to another model",
                         a->opts.path, target->name, ckpt_adapt_shape(na, o.a),
                         ckpt_adapt_shape(nb, o.b), t->name, ckpt_adapt_shape(base, t));
    o.all = t->export_dtype != CKPT_DTYPE_NONE ? t->export_dtype : t->dtype;
    if (o.all != CKPT_F16 && o.all != CKPT_BF16)
        o.all = CKPT_DTYPE_NONE;
    o.round = o.all;
    o.rows = t->shape[0];
    o.cols = t->n_elems / t->shape[0];
    o.scale = target->alpha / (double)target->rank * a->opts.weight;
    o.name = t->name;
    rc = ckpt_adapt_hide(&o.base, a, t, NULL, false);
    return rc == CKPT_OK ? ckpt_lora_put(a->map, t, &o, a->err) : rc;
}

/* ---- all modules ---- */

/* True if a file has the names of a diffusion model's LoRA. */
static bool dm_is(const ckpt_map *child)
{
    bool is = !ckpt_peft_is_live(child), any = false;

    for (size_t i = 0; is && i < child->tensors.n; i++) {
        const char *name = child->tensors.at[i]->name;
        const ckpt_dl_style style = ckpt_dl_style_of(name);

        is = style != CKPT_DL_N_STYLES;
        // models of language have tensors below "transformer.", too
        any = any || style != CKPT_DL_DIFFUSERS || strstr(name, ".lora");
    }
    return is && any;
}

/* Give the adapter's tensors the names of diffusers. */
static int dm_rename(const ckpt_adapting *a, ckpt_dl_work *w)
{
    ckpt_err why = {0};
    int rc;

    w->err = &why;
    rc = ckpt_dl_rename(w, dm_family(a->map));
    w->err = a->err;
    return rc == CKPT_OK ? rc : ckpt_fail(a->err, rc, "%s: %.400s", a->opts.path, why.text);
}

/* Merge a diffusion model's LoRA; a failure leaves the map half changed. */
static int dm_all(ckpt_adapting *a)
{
    ckpt_dl_work w = {.map = a->child, .to = CKPT_DL_DIFFUSERS, .zeros = UINT32_MAX};
    const size_t n_tensors = a->child->tensors.n;
    int rc = ckpt_map_dequantize(a->map, true, a->err);

    if (rc == CKPT_OK)
        rc = dm_rename(a, &w);
    if (rc == CKPT_OK)
        rc = dm_check_components(a, &w);
    if (rc == CKPT_OK)
        rc = ckpt_map_adopt(a->map, a->child, NULL, a->err);
    a->adopted = rc == CKPT_OK;
    for (size_t i = 0; rc == CKPT_OK && i < w.targets.n; i++)
        rc = dm_module(a, &w.targets.at[i]);
    if (rc == CKPT_OK)
        rc = ckpt_map_note(a->map, CKPT_INFO, a->err,
                           "%s: LoRA of %s in the names of %s: %" PRIu64
                           " weights merged; all of its %zu tensors are used",
                           a->opts.path, ckpt_dl_family_name(w.family), ckpt_dl_style_name(w.from),
                           a->n_merged, n_tensors);
    ckpt_dl_free(&w);
    return rc;
}

/* Open an adapter; in a folder without another checkpoint it is the LoRA that diffusers saved. */
static int dm_open(ckpt_adapting *a)
{
    char path[4096];
    ckpt_err local = {0};
    const int n = snprintf(path, sizeof path, "%s/pytorch_lora_weights.safetensors", a->opts.path);
    const int rc = ckpt_open(&a->child, a->opts.path, NULL, a->err);

    if (rc != CKPT_EMISSING || n < 0 || (size_t)n >= sizeof path ||
        ckpt_open(&a->child, path, NULL, &local) != CKPT_OK)
        return rc;
    ckpt_err_clear(a->err);
    return CKPT_OK;
}

int ckpt_map_merge_adapter(ckpt_map *map, const ckpt_adapter *adapter, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_adapting a = {.map = map, .err = err};
    ckpt_savepoint *saved = NULL;
    int rc = !map || !adapter || !adapter->path
                 ? ckpt_fail(err, CKPT_EUSAGE, "no map, or no adapter to merge into it")
                 : ckpt_opts_take(&a.opts, sizeof a.opts, adapter, "ckpt_adapter", err);

    if (rc == CKPT_OK && a.opts.weight == 0)
        a.opts.weight = 1;
    if (rc == CKPT_OK)
        rc = dm_open(&a);
    if (rc == CKPT_OK)
        rc = ckpt_savepoint_new(&saved, map, err);
    if (rc == CKPT_OK)
        rc = ckpt_savepoint_end(saved, dm_is(a.child) ? dm_all(&a) : ckpt_adapt_all(&a));
    if (!a.adopted)
        ckpt_map_free(a.child);
    ckpt_peft_config_free(&a.config);
    ckpt_free(a.item);
    return rc;
}
