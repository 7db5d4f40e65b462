/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapt.c: merges an adapter into the map of its base model.
 *
 * The adapter's file decides which modules are updated; its configuration gives the scales and the
 * tensors that may be replaced.  A tensor of the file that is not used is an error.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/peft/adapting.h"
#include "libckpt/map/adopt.h"
#include "libckpt/map/nest.h"

/* The embedding of a model without its own head, which is tied to it; NULL if there is none. */
static ckpt_tensor *ad_tied_table(const ckpt_adapting *a)
{
    static const char *const ends[] = {"embed_tokens.weight", "wte.weight",
                                       "word_embeddings.weight", "embed_in.weight", NULL};
    static const char *const heads[] = {"lm_head.weight", "embed_out.weight", "output_layer.weight",
                                        NULL};

    for (size_t i = 0; heads[i]; i++) {
        const ckpt_tensor *head = ckpt_adapt_at(a, heads[i]);
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
static int ad_saved(ckpt_adapting *a, const char *name, const ckpt_tensor *by)
{
    const ckpt_tensor *tied = ad_tied_table(a);
    int rc = ckpt_adapt_plain(a, name, by);

    if (rc == CKPT_OK && tied && ckpt_adapt_find(a, name) == tied)
        a->table = tied;
    return rc;
}

/* Refuse parts of another kind of adapter; *any: the module has parts of this one. */
static int ad_parts(ckpt_adapting *a, const ckpt_adapt_module *m, bool *any)
{
    for (unsigned i = 0; i < CKPT_PEFT_N_PARTS; i++) {
        const ckpt_peft_kind kind = ckpt_peft_kind_of((ckpt_peft_part)i);

        if (m->part[i] && kind != CKPT_PEFT_N_KINDS && kind != a->config.kind)
            return ckpt_fail(a->err, CKPT_EMISMATCH,
                             "%s: %.200s is a tensor of %s, but the peft_type in %s is %s",
                             a->opts.path, m->part[i]->name, ckpt_peft_kind_name(kind),
                             a->config.path, ckpt_peft_kind_name(a->config.kind));
        *any = *any || (m->part[i] && kind == a->config.kind);
    }
    return CKPT_OK;
}

/* Merge the tensors of LoRA. */
static int ad_module_lora(ckpt_adapting *a, const ckpt_adapt_module *m)
{
    const bool pair = m->part[CKPT_PEFT_A] || m->part[CKPT_PEFT_B] || m->part[CKPT_PEFT_TABLE_A] ||
                      m->part[CKPT_PEFT_TABLE_B];
    int rc = pair ? ckpt_adapt_lora(a, m) : CKPT_OK;

    if (rc == CKPT_OK && m->part[CKPT_PEFT_B_BIAS])
        rc = ckpt_adapt_lora_bias(a, m);
    if (rc == CKPT_OK && !pair && m->part[CKPT_PEFT_MAGNITUDE])
        rc = ckpt_fail(a->err, CKPT_EMISSING, "%s: %.200s has neither lora_A nor lora_B",
                       a->opts.path, m->name);
    return rc;
}

static int ad_module_whole(ckpt_adapting *a, const ckpt_adapt_module *m)
{
    const ckpt_tensor *bias = m->part[CKPT_PEFT_BASE_BIAS], *plain = m->part[CKPT_PEFT_PLAIN];
    bool any = false;
    int rc = ad_parts(a, m, &any);

    if (rc == CKPT_OK && plain)
        rc = ad_saved(a, m->name, plain);
    if (rc == CKPT_OK && bias) {
        const char *name = ckpt_adapt_name(a, m->name, "bias");

        rc = name ? ckpt_adapt_plain(a, name, bias) : ckpt_fail_memory(a->err);
    }
    if (rc == CKPT_OK && any && m->part[CKPT_PEFT_TOKENS])
        rc = ckpt_fail(a->err, CKPT_EUNSUPPORTED,
                       "%s: %.200s has both trained tokens and an update: merge with peft's "
                       "merge_and_unload",
                       a->opts.path, m->name);
    if (rc == CKPT_OK && m->part[CKPT_PEFT_TOKENS])
        rc = ckpt_adapt_tokens(a, m);
    if (rc == CKPT_OK && any)
        rc = a->config.kind == CKPT_PEFT_KIND_LORA ? ad_module_lora(a, m) : ckpt_adapt_kind(a, m);
    if (rc == CKPT_OK && !any && m->part[CKPT_PEFT_BASE_WEIGHT] && !m->part[CKPT_PEFT_TOKENS])
        rc = ckpt_fail(a->err, CKPT_EMISSING, "%s: %.200s has no tensors of %s", a->opts.path,
                       m->name, ckpt_peft_kind_name(a->config.kind));
    return rc;
}

/* ---- all modules ---- */

static int ad_order(const void *pa, const void *pb)
{
    const ckpt_adapt_item *a = pa, *b = pb;
    size_t n = a->name.n < b->name.n ? a->name.n : b->name.n;
    int order = memcmp(a->name.module, b->name.module, n);

    return order ? order : (a->name.n > b->name.n) - (a->name.n < b->name.n);
}

/* Remove modules_to_save from a name, because peft also saves such a tensor under its training
 * name. */
static bool ad_unwrap(const ckpt_adapting *a, ckpt_peft_name *name)
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

/* Take one of VeRA's matrices that belong to no module; false for other tensors. */
static bool ad_shared(ckpt_adapting *a, const ckpt_tensor *t)
{
    const bool is_a = strcmp(t->name, CKPT_PEFT_VERA_SHARED_A) == 0;

    if (a->config.kind != CKPT_PEFT_KIND_VERA ||
        (!is_a && strcmp(t->name, CKPT_PEFT_VERA_SHARED_B) != 0))
        return false;
    *(is_a ? &a->shared_a : &a->shared_b) = t->owner ? t->owner : t;
    return true;
}

/* List the adapter's tensors, sorted by module. */
static int ad_list(ckpt_adapting *a)
{
    const ckpt_map *c = a->child;

    a->item = ckpt_alloc((c->tensors.n + 1) * sizeof *a->item);
    if (!a->item)
        return ckpt_fail_memory(a->err);
    for (size_t i = 0; i < c->tensors.n; i++) {
        const ckpt_tensor *t = c->tensors.at[i];
        ckpt_adapt_item *item = &a->item[a->n_items];

        if (ad_shared(a, t))
            continue;
        if (!ckpt_peft_parse(&item->name, t->name))
            return ckpt_fail(a->err, CKPT_EFORMAT,
                             "%s: tensor %.200s: names of an adapter begin with base_model.model.",
                             a->opts.path, t->name);
        item->t = t->owner ? t->owner : t;
        if (item->name.part == CKPT_PEFT_PLAIN && !ad_unwrap(a, &item->name))
            return ckpt_fail_memory(a->err);
        a->n_items++;
    }
    qsort(a->item, a->n_items, sizeof *a->item, ad_order);
    return CKPT_OK;
}

/* Merge all modules. */
static int ad_modules(ckpt_adapting *a)
{
    int rc = CKPT_OK;

    for (size_t i = 0, k; rc == CKPT_OK && i < a->n_items; i = k) {
        const ckpt_peft_name *first = &a->item[i].name;
        ckpt_adapt_module m = {.name = ckpt_arena_string(a->map->arena, first->module, first->n)};

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
    return rc == CKPT_OK ? ckpt_adapt_tokens_end(a) : rc;
}

/* ---- notes ---- */

/* Report the result.  Warn if an embedding changes with a tied head, because the adapter was
 * trained with the unchanged head. */
static int ad_say(ckpt_adapting *a)
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
                                         a->opts.path, a->n_merged, a->n_replaced,
                                         a->n_items + (a->shared_a != NULL) + (a->shared_b != NULL))
                         : rc;
}

/* ---- opening ---- */

/* Refuse an adapter whose initialization changed the base; peft repeats that initialization on the
 * base before it merges. */
static int ad_fits_base(const ckpt_adapting *a)
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
static int ad_config_path(const char **out, ckpt_adapting *a)
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

static int ad_open(ckpt_adapting *a)
{
    ckpt_map *map = a->map;
    const char *file = NULL;
    int rc = ad_config_path(&file, a);

    if (rc == CKPT_OK)
        rc = ckpt_peft_config_read(&a->config, map->arena, file, a->err);
    if (rc == CKPT_OK)
        rc = ad_fits_base(a);
    if (rc == CKPT_OK)
        rc = ckpt_peft_others(map, &a->opts, a->err);
    if (rc == CKPT_OK)
        rc = ckpt_peft_gaps(map, a->child, &a->config, a->opts.path, a->err);
    if (rc == CKPT_OK)
        rc = ckpt_peft_chosen(map, a->child, &a->config, a->opts.path, a->err);
    if (rc == CKPT_OK)
        rc = ad_list(a);
    if (rc == CKPT_OK)
        rc = ckpt_map_adopt(map, a->child, NULL, a->err);
    // names of its tensors are borrowed, so it must live as long as the map
    a->adopted = rc == CKPT_OK;
    return rc;
}

int ckpt_adapt_all(ckpt_adapting *a)
{
    assert(a && a->map && a->child);
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
        rc = ad_modules(a);
    return rc == CKPT_OK ? ad_say(a) : rc;
}
