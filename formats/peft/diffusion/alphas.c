/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alphas.c: converts between alphas and the metadata of diffusers' adapters.
 *
 * diffusers 0.35 and later store the configuration of PEFT for each component of a pipeline as JSON
 * under "lora_adapter_metadata" (loaders/lora_base.py): {"unet.r": 4, "unet.lora_alpha": 8,
 * "unet.alpha_pattern": {...}}.  Without it alpha equals the rank.
 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "formats/peft/config.h"
#include "formats/peft/diffusion/lora.h"
#include "libckpt/codec/json/json.h"

#define DA_KEY   "lora_adapter_metadata"
#define DA_DTYPE "ckpt.lora_alpha_dtype" /* our own: the dtype that alphas had as tensors */
#define DA_TEXT  "text_model."

enum { DA_MAX = 4 << 20 /* bytes of JSON */ };

/* ---- reading ---- */

static const char *da_find(const ckpt_map *map, const char *key)
{
    for (uint64_t i = 0; i < map->metadata.n; i++) {
        const ckpt_pair *p = &map->metadata.at[i];

        if (ckpt_value_is(p->key, key) && p->value->kind == CKPT_V_STR)
            return p->value->as.text.at;
    }
    return NULL;
}

/* A component's field of the configuration; NULL: absent, or null. */
static const ckpt_value *da_field(const ckpt_dl_work *w, const ckpt_value *root, const char *name,
                                  const char *field)
{
    const int n = (int)strcspn(name, ".");
    const char *key = ckpt_arena_printf(w->map->arena, "%.*s.%s", n, name, field);
    const ckpt_value *v = key ? ckpt_value_get(root, key) : NULL;

    return v && v->kind != CKPT_V_NONE ? v : NULL;
}

static bool da_number(const ckpt_value *v, double *out)
{
    if (v && v->kind == CKPT_V_INT)
        *out = (double)v->as.i;
    else if (v && v->kind == CKPT_V_FLOAT)
        *out = v->as.f;
    else
        return false;
    return isfinite(*out);
}

/* Refuse fields with which the update is another one. */
static int da_plain(const ckpt_dl_work *w, const ckpt_value *root, const char *name)
{
    static const char *const field[] = {"use_dora", "lora_bias", "use_qalora", "modules_to_save",
                                        "target_parameters"};

    for (size_t i = 0; i < sizeof field / sizeof *field; i++) {
        const ckpt_value *v = da_field(w, root, name, field[i]);
        const bool set = v && (v->kind == CKPT_V_BOOL ? v->as.i != 0 : ckpt_value_seq(v).n > 0);

        if (set)
            return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                             "%s: " DA_KEY " has %s for %.*s: ckpt reads only LoRA", w->map->path,
                             field[i], (int)strcspn(name, "."), name);
    }
    return CKPT_OK;
}

/* The field of the component with a wrong kind, and the right one; NULL: none. */
static const char *da_odd(const ckpt_dl_work *w, const ckpt_value *root, const char *name,
                          const char **want)
{
    static const char *const field[] = {"r", "lora_alpha", "rank_pattern", "alpha_pattern",
                                        "use_rslora"};
    double x = 0;

    for (size_t i = 0; i < sizeof field / sizeof *field; i++) {
        const ckpt_value *v = da_field(w, root, name, field[i]);

        *want = i < 2 ? "a number" : i < 4 ? "a dict" : "true or false";
        if (v && !(i < 2   ? da_number(v, &x)
                   : i < 4 ? v->kind == CKPT_V_DICT
                           : v->kind == CKPT_V_BOOL))
            return field[i];
    }
    return NULL;
}

/* True if the metadata have a field of the component of a module. */
static bool da_has(const ckpt_value *root, const char *name)
{
    const size_t n = strcspn(name, ".") + 1;
    bool has = false;

    for (uint64_t i = 0; !has && i < root->as.map.n; i++)
        has = strncmp(root->as.map.at[i].key->as.text.at, name, n) == 0;
    return has;
}

/* The configuration of the component of a module; *has is false if it has none. */
static int da_config(const ckpt_dl_work *w, const ckpt_value *root, const char *name,
                     ckpt_peft_config *c, bool *has)
{
    const ckpt_value *slora = da_field(w, root, name, "use_rslora");
    const char *want = NULL, *odd = da_odd(w, root, name, &want);
    const int n = (int)strcspn(name, ".");
    double r = 0;

    *has = da_has(root, name);
    if (!*has)
        return CKPT_OK;
    if (odd)
        return ckpt_fail(w->err, CKPT_EFORMAT,
                         "%s: " DA_KEY " has a %.*s.%s that is not %s, so ckpt cannot know the "
                         "scale of the LoRA",
                         w->map->path, n, name, odd, want);
    if (!da_number(da_field(w, root, name, "r"), &r))
        return ckpt_fail(w->err, CKPT_EFORMAT,
                         "%s: " DA_KEY " has fields of %.*s but not %.*s.r, so ckpt cannot know "
                         "the scale of the LoRA",
                         w->map->path, n, name, n, name);
    c->path = w->map->path;
    c->r = r >= 1 && r <= 1e9 ? (int64_t)r : 0;
    c->alpha = 8; // PEFT's default
    (void)da_number(da_field(w, root, name, "lora_alpha"), &c->alpha);
    c->rslora = slora && slora->as.i != 0;
    c->ranks = da_field(w, root, name, "rank_pattern");
    c->alphas = da_field(w, root, name, "alpha_pattern");
    return da_plain(w, root, name);
}

/* Refuse metadata other than a dict of components' fields. */
static int da_check(const ckpt_dl_work *w, const ckpt_value *root)
{
    static const char *const known[] = {"unet.", "transformer.", "text_encoder.",
                                        "text_encoder_2."};

    if (root->kind != CKPT_V_DICT)
        return ckpt_fail(w->err, CKPT_EFORMAT, "%s: " DA_KEY " is not a dict", w->map->path);
    for (uint64_t i = 0; i < root->as.map.n; i++) {
        const char *key = root->as.map.at[i].key->as.text.at;
        size_t k = 0;

        while (k < sizeof known / sizeof *known && strncmp(key, known[k], strlen(known[k])) != 0)
            k++;
        if (k == sizeof known / sizeof *known)
            return ckpt_fail(w->err, CKPT_EFORMAT,
                             "%s: " DA_KEY " has '%.100s', which begins with no component, as "
                             "unet.r does, so ckpt cannot know the scale of the LoRA",
                             w->map->path, key);
    }
    return CKPT_OK;
}

/* Refuse an alpha as a tensor that is not the one of the metadata. */
static int da_agrees(const ckpt_dl_work *w, const ckpt_dl_module *m, double alpha)
{
    // the tensor's dtype may have rounded it; one of integers has not
    double stored = m->scalar ? ckpt_dl_stored(m->scalar->dtype, alpha) : 0;

    stored = isnan(stored) ? alpha : stored;
    if (!m->scalar || fabs(stored - m->alpha) <= 1e-6 * fabs(stored))
        return CKPT_OK;
    return ckpt_fail(w->err, CKPT_EMISMATCH,
                     "%s: tensor %.200s is %g, but " DA_KEY " gives this module the alpha %g: "
                     "leave the wrong one out",
                     w->map->path, m->scalar->name, m->alpha, alpha);
}

static int da_module(const ckpt_dl_work *w, const ckpt_value *root, ckpt_uni_patterns *patterns,
                     ckpt_dl_module *m)
{
    const char *name = m->down->name, *path = strchr(name, '.') + 1, *end = strstr(path, ".lora");
    ckpt_peft_config c = {.patterns = patterns};
    uint64_t rank = m->down->shape[0];
    double scale = 0;
    bool has = false;
    const char *module =
        end ? ckpt_arena_string(w->map->arena, path, (uint64_t)(end - path)) : NULL;
    int rc = module ? da_config(w, root, name, &c, &has) : ckpt_fail_memory(w->err);

    if (rc != CKPT_OK || !has)
        return rc;
    rc = ckpt_peft_scale(&c, module, &rank, &scale, w->err);
    if (rc == CKPT_OK && rank != m->down->shape[0])
        rc = ckpt_fail(w->err, CKPT_EMISMATCH,
                       "tensor %.200s has the rank %" PRIu64 ", but " DA_KEY " gives %" PRIu64,
                       name, m->down->shape[0], rank);
    if (rc == CKPT_OK)
        rc = da_agrees(w, m, scale * (double)rank);
    // the tensor's is the exact one
    if (!m->scalar)
        m->alpha = scale * (double)rank;
    return rc;
}

int ckpt_dl_alphas_read(ckpt_dl_work *w)
{
    assert(w);
    const char *text = da_find(w->map, DA_KEY), *dtype = da_find(w->map, DA_DTYPE);
    ckpt_uni_patterns *patterns = NULL;
    ckpt_value *root = NULL;
    int rc = CKPT_OK;

    w->scalar_dtype = dtype ? ckpt_dtype_parse(dtype) : CKPT_DTYPE_NONE;
    if (w->scalar_dtype != CKPT_F64 && w->scalar_dtype != CKPT_F32 && w->scalar_dtype != CKPT_F16 &&
        w->scalar_dtype != CKPT_BF16)
        w->scalar_dtype = CKPT_DTYPE_NONE;
    if (!text)
        return CKPT_OK;
    const ckpt_json_text json = {
        .name = DA_KEY, .at = text, .n = strlen(text), .max = (uint64_t)DA_MAX};
    rc = ckpt_json_parse(&root, w->map->arena, &json, w->err);
    if (rc == CKPT_OK)
        rc = da_check(w, root);
    if (rc == CKPT_OK)
        rc = ckpt_uni_patterns_new(&patterns, w->err);
    for (size_t i = 0; rc == CKPT_OK && i < w->modules.n; i++)
        rc = da_module(w, root, patterns, &w->modules.at[i]);
    ckpt_uni_patterns_free(patterns);
    return rc;
}

/* ---- writing ---- */

/* The most frequent rank and alpha of a component, as PEFT's defaults. */
static void da_defaults(const ckpt_dl_work *w, const char *component, size_t n, uint64_t *rank,
                        double *alpha)
{
    size_t most_rank = 0, most_alpha = 0;

    for (size_t i = 0; i < w->targets.n; i++) {
        const ckpt_dl_target *t = &w->targets.at[i];
        size_t ranks = 0, alphas = 0;

        if (strncmp(t->name, component, n) != 0)
            continue;
        // equal neighbours were counted before
        if (i > 0 && most_rank > 0 && t[-1].rank == t->rank && t[-1].alpha == t->alpha)
            continue;
        for (size_t k = 0; k < w->targets.n; k++) {
            const ckpt_dl_target *o = &w->targets.at[k];
            const bool same = strncmp(o->name, component, n) == 0;

            ranks += same && o->rank == t->rank;
            alphas += same && o->alpha == t->alpha;
        }
        if (ranks > most_rank) {
            most_rank = ranks;
            *rank = t->rank;
        }
        if (alphas > most_alpha) {
            most_alpha = alphas;
            *alpha = t->alpha;
        }
    }
}

static ckpt_value *da_value(ckpt_arena *a, double x)
{
    return x == floor(x) && fabs(x) < 1e15 ? ckpt_value_int(a, (int64_t)x) : ckpt_value_float(a, x);
}

/* The lists of a component's modules. */
typedef struct da_lists {
    ckpt_value *targets, *ranks, *alphas;
} da_lists;

/*
 * Add a module to the lists.  A text encoder of transformers 5 may lack the first part of its
 * names, so patterns begin after it.  Others begin with "^", because PEFT also compares the ends of
 * names.
 */
static bool da_list(ckpt_arena *a, const da_lists *l, const ckpt_dl_target *t, const char *module,
                    uint64_t rank, double alpha)
{
    const bool text = strncmp(module, DA_TEXT, sizeof DA_TEXT - 1) == 0;
    const char *path = module + (text ? sizeof DA_TEXT - 1 : 0);
    const char *pattern = text ? path : ckpt_arena_printf(a, "^%s", path);

    return pattern && ckpt_seq_add(a, &l->targets->as.seq, ckpt_value_cstr(a, path)) &&
           (t->rank == rank || ckpt_dict_add_cstr(a, &l->ranks->as.map, pattern,
                                                  ckpt_value_int(a, (int64_t)t->rank))) &&
           (t->alpha == alpha ||
            ckpt_dict_add_cstr(a, &l->alphas->as.map, pattern, da_value(a, t->alpha)));
}

/* Add a component's configuration; `component` has n bytes, with the dot. */
static bool da_component(ckpt_dl_work *w, ckpt_value *root, const char *component, size_t n)
{
    ckpt_arena *a = w->map->arena;
    uint64_t rank = 0;
    double alpha = 0;
    const da_lists l = {ckpt_value_new(a, CKPT_V_LIST), ckpt_value_new(a, CKPT_V_DICT),
                        ckpt_value_new(a, CKPT_V_DICT)};
    bool ok = l.targets && l.ranks && l.alphas;

    da_defaults(w, component, n, &rank, &alpha);
    for (size_t i = 0; ok && i < w->targets.n; i++) {
        const ckpt_dl_target *t = &w->targets.at[i];

        if (strncmp(t->name, component, n) == 0)
            ok = da_list(a, &l, t, t->name + n, rank, alpha);
    }
    const struct {
        const char *key;
        ckpt_value *value;
    } member[] = {{"r", ok ? ckpt_value_int(a, (int64_t)rank) : NULL},
                  {"lora_alpha", ok ? da_value(a, alpha) : NULL},
                  {"rank_pattern", l.ranks},
                  {"alpha_pattern", l.alphas},
                  {"target_modules", l.targets},
                  {"use_dora", ok ? ckpt_value_bool(a, false) : NULL},
                  {"lora_bias", ok ? ckpt_value_bool(a, false) : NULL}};
    for (size_t i = 0; ok && i < sizeof member / sizeof *member; i++) {
        const char *key = ckpt_arena_printf(a, "%.*s%s", (int)n, component, member[i].key);

        ok = key && member[i].value && ckpt_dict_add_cstr(a, &root->as.map, key, member[i].value);
    }
    return ok;
}

/* Add the configurations of all components as JSON. */
static int da_add_json(ckpt_dl_work *w, ckpt_dict *to)
{
    static const ckpt_json_style style = {.indent = 2, .sort_keys = true, .ascii = true};
    ckpt_arena *a = w->map->arena;
    ckpt_value *root = ckpt_value_new(a, CKPT_V_DICT), *value;
    const char *component = "";
    ckpt_bytes text = {0};
    bool ok = root != NULL;
    int rc;

    // targets of one component are adjacent
    for (size_t i = 0; ok && i < w->targets.n; i++) {
        const char *name = w->targets.at[i].name;
        const size_t n = strcspn(name, ".") + 1;

        if (strncmp(component, name, n) == 0)
            continue;
        component = name;
        ok = da_component(w, root, component, n);
    }
    rc = ok ? ckpt_json_write(&text, root, &style, w->err) : ckpt_fail_memory(w->err);
    value = rc == CKPT_OK ? ckpt_value_str(a, (const char *)text.at, text.n) : NULL;
    if (rc == CKPT_OK && (!value || !ckpt_dict_add_cstr(a, to, DA_KEY, value)))
        rc = ckpt_fail_memory(w->err);
    ckpt_vec_free(&text);
    return rc;
}

/* Set *dtype to that of the alphas' tensors, if it is not the one they would get again. */
static int da_scalar_dtype(const ckpt_dl_work *w, ckpt_dtype *dtype)
{
    const ckpt_dl_module *first = NULL;
    bool own = true, mixed = false;

    *dtype = CKPT_DTYPE_NONE;
    for (size_t i = 0; i < w->modules.n; i++) {
        const ckpt_dl_module *m = &w->modules.at[i];

        if (!m->scalar)
            continue;
        own = own && m->scalar->dtype == m->down->dtype;
        mixed = mixed || (first && first->scalar->dtype != m->scalar->dtype);
        first = first ? first : m;
    }
    if (own || !first)
        return CKPT_OK;
    if (mixed)
        return ckpt_map_note(w->map, CKPT_WARNING, w->err,
                             "the alphas have several dtypes, which diffusers' metadata cannot "
                             "express: their values are kept");
    *dtype = first->scalar->dtype;
    return CKPT_OK;
}

/* Copy the metadata that stay true. */
static int da_keep(ckpt_dl_work *w, ckpt_dict *to)
{
    // sd-scripts' hashes are those of a file with the old names
    static const char *const stale[] = {DA_KEY, DA_DTYPE, "sshs_model_hash", "sshs_legacy_hash"};
    const ckpt_dict *from = &w->map->metadata;
    bool hashes = false;

    for (uint64_t i = 0; i < from->n; i++) {
        size_t k = 0;

        while (k < 4 && !ckpt_value_is(from->at[i].key, stale[k]))
            k++;
        hashes = hashes || k == 2 || k == 3;
        if (k == 4 && !ckpt_dict_add(w->map->arena, to, from->at[i].key, from->at[i].value))
            return ckpt_fail_memory(w->err);
    }
    return !hashes ? CKPT_OK
                   : ckpt_map_note(w->map, CKPT_INFO, w->err,
                                   "the metadata sshs_model_hash and sshs_legacy_hash are left "
                                   "out: they are hashes of the file with its old names");
}

int ckpt_dl_alphas_write(ckpt_dl_work *w)
{
    assert(w);
    ckpt_arena *a = w->map->arena;
    ckpt_dtype dtype = CKPT_DTYPE_NONE;
    ckpt_dict to = {0};
    int rc = da_keep(w, &to);

    if (rc == CKPT_OK && w->to == CKPT_DL_DIFFUSERS)
        rc = da_add_json(w, &to);
    if (rc == CKPT_OK && w->to == CKPT_DL_DIFFUSERS && w->from == CKPT_DL_DIFFUSERS)
        dtype = w->scalar_dtype;
    else if (rc == CKPT_OK && w->to == CKPT_DL_DIFFUSERS)
        rc = da_scalar_dtype(w, &dtype);
    if (rc == CKPT_OK && dtype != CKPT_DTYPE_NONE &&
        !ckpt_dict_add_cstr(a, &to, DA_DTYPE, ckpt_value_cstr(a, ckpt_dtype_name(dtype))))
        rc = ckpt_fail_memory(w->err);
    w->map->metadata = to;
    return rc;
}
