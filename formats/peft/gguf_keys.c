/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf_keys.c: an adapter's configuration as the keys of a GGUF file, and back.
 *
 * llama.cpp multiplies B A by adapter.lora.alpha over the rank of A, or by 1 if alpha is 0: see
 * llama_adapter_lora_weight::get_scale.  The file has one alpha, so all scales times their ranks
 * must be equal.
 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ckpt_shape.h"
#include "formats/peft/peft.h"
#include "libckpt/base/number.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/map/savepoint.h"

#define AG_TYPE  "general.type"
#define AG_KIND  "adapter.type"
#define AG_ALPHA "adapter.lora.alpha"

/* ---- to GGUF ---- */

/* Refuse an adapter that is more than the products B A. */
static int agk_check(const ckpt_peft_config *c, ckpt_err *err)
{
    const char *why = ckpt_peft_beyond_products(c);

    return !why ? CKPT_OK
                : ckpt_fail(err, CKPT_EUNSUPPORTED,
                            "%s: %s, which an adapter in GGUF cannot express: merge the adapter "
                            "into its base (--adapter) and convert that",
                            c->path, why);
}

/* Find the matrix of a part of a module. */
static const ckpt_tensor *agk_part(const ckpt_map *map, const char *module, const char *end)
{
    const char *name = ckpt_arena_printf(map->arena, "base_model.model.%s%s", module, end);
    size_t at = name ? ckpt_map_index(map, name, strlen(name)) : SIZE_MAX;

    return at == SIZE_MAX ? NULL : map->tensors.at[at];
}

/*
 * Check the pair of a tensor's module, and get its name and its rank.
 *
 * Errors  CKPT_EUNSUPPORTED: another kind of tensor; CKPT_EMISSING, CKPT_EMISMATCH; CKPT_ELIMIT
 */
static int agk_pair(const ckpt_map *map, const ckpt_tensor *t, const char **module, uint64_t *rank,
                    ckpt_err *err)
{
    ckpt_peft_name name;
    const ckpt_tensor *a, *b;

    if (!ckpt_peft_parse(&name, t->name) || (name.part != CKPT_PEFT_A && name.part != CKPT_PEFT_B))
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "tensor %.200s: an adapter in GGUF has only the matrices of linear layers "
                         "(lora_A, lora_B): merge the adapter into its base (--adapter) and "
                         "convert that",
                         t->name);
    *module = ckpt_arena_string(map->arena, name.module, name.n);
    if (!*module)
        return ckpt_fail_memory(err);
    a = agk_part(map, *module, ".lora_A.weight");
    b = agk_part(map, *module, ".lora_B.weight");
    if (!a || !b)
        return ckpt_fail(err, CKPT_EMISSING, "tensor %.200s: %s of this module is missing", t->name,
                         a ? "lora_B" : "lora_A");
    if (a->ndim != 2 || b->ndim != 2 || a->shape[0] != b->shape[1] || a->shape[0] == 0)
        return ckpt_fail(err, CKPT_EMISMATCH,
                         "tensor %.200s: lora_A and lora_B of this module are not matrices of one "
                         "rank",
                         t->name);
    *rank = a->shape[0];
    return CKPT_OK;
}

/* The alpha with which llama.cpp scales all updates as PEFT does. */
static int agk_alpha(const ckpt_map *map, const ckpt_peft_config *c, float *alpha, ckpt_err *err)
{
    const char *module, *first = NULL;
    uint64_t has = 0, rank = 0;
    double scale = 0;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < map->tensors.n; i++) {
        rc = agk_pair(map, map->tensors.at[i], &module, &has, err);
        if (rc == CKPT_OK)
            rc = ckpt_peft_scale(c, module, &rank, &scale, err);
        if (rc != CKPT_OK)
            return rc;
        if (has != rank)
            return ckpt_fail(err, CKPT_EMISMATCH,
                             "%s: %.200s has rank %" PRIu64 " in this configuration, but %" PRIu64
                             " in its tensors",
                             c->path, module, rank, has);
        const float own = (float)(scale * (double)rank);
        if (own == 0 || !isfinite(own))
            return ckpt_fail(err, CKPT_EUNSUPPORTED,
                             "%s: %.200s has the scale %g, which an adapter in GGUF cannot "
                             "express",
                             c->path, module, scale);
        if (first && own != *alpha)
            return ckpt_fail(err, CKPT_EUNSUPPORTED,
                             "%s: alpha is %.9g for %.150s and %.9g for %.150s%s, but GGUF has one "
                             "for all: merge the adapter into its base (--adapter) and convert "
                             "that",
                             c->path, (double)*alpha, first, (double)own, module,
                             c->rslora ? " (rsLoRA: alpha times the root of the rank)" : "");
        first = first ? first : module;
        *alpha = own;
    }
    return first ? rc : ckpt_fail(err, CKPT_EMISSING, "%s: holds no tensors", map->path);
}

static int agk_add(ckpt_map *map, const char *name, uint8_t type, const ckpt_value *value,
                   ckpt_err *err)
{
    ckpt_key *key = value ? ckpt_vec_push(&map->keys) : NULL;

    if (!key)
        return ckpt_fail_memory(err);
    *key = (ckpt_key){.name = name, .type = type, .value = value};
    return CKPT_OK;
}

static int agk_keys(ckpt_map *map, const ckpt_peft_config *c, ckpt_err *err)
{
    float alpha = 0;
    int rc = agk_check(c, err);

    if (rc == CKPT_OK)
        rc = agk_alpha(map, c, &alpha, err);
    if (rc == CKPT_OK)
        rc = agk_add(map, AG_TYPE, CKPT_KEY_STRING, ckpt_value_cstr(map->arena, "adapter"), err);
    if (rc == CKPT_OK)
        rc = agk_add(map, AG_KIND, CKPT_KEY_STRING, ckpt_value_cstr(map->arena, "lora"), err);
    if (rc == CKPT_OK)
        rc = agk_add(map, AG_ALPHA, CKPT_KEY_F32, ckpt_value_float(map->arena, (double)alpha), err);
    if (rc == CKPT_OK && c->rslora)
        rc = ckpt_map_note(map, CKPT_INFO, err,
                           "rsLoRA divides alpha by the root of the rank, and llama.cpp by the "
                           "rank: " AG_ALPHA " is %.9g instead of %.9g",
                           (double)alpha, c->alpha);
    return rc;
}

static int agk_to_keys(ckpt_map *map, const char *config, ckpt_err *err)
{
    ckpt_peft_config c = {0};
    const char *path = NULL;
    int rc = ckpt_peft_config_of(&path, map, config, err);

    if (rc == CKPT_OK)
        rc = ckpt_peft_config_read(&c, map->arena, path, err);
    if (rc == CKPT_OK)
        rc = ckpt_peft_only_lora(&c,
                                 "can be written as GGUF; merge the adapter into its base "
                                 "(--adapter) and convert that",
                                 err);
    if (rc == CKPT_OK)
        rc = agk_keys(map, &c, err);
    ckpt_peft_config_free(&c);
    return rc;
}

int ckpt_map_adapter_keys(ckpt_map *map, const char *config, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_savepoint *saved = NULL;

    if (!map)
        return ckpt_fail(err, CKPT_EUSAGE, "ckpt_map_adapter_keys needs a map");
    int rc = ckpt_savepoint_new(&saved, map, err);
    return rc == CKPT_OK ? ckpt_savepoint_end(saved, agk_to_keys(map, config, err)) : rc;
}

/* ---- to PEFT ---- */

static const ckpt_value *agk_key(const ckpt_map *map, const char *name)
{
    for (size_t i = 0; i < map->keys.n; i++) {
        if (strcmp(map->keys.at[i].name, name) == 0)
            return map->keys.at[i].value;
    }
    return NULL;
}

/* Refuse keys that change what the adapter computes, and report those without a place. */
static int agk_check_keys(ckpt_map *map, ckpt_err *err)
{
    static const char *const known[] = {AG_TYPE,        AG_KIND,        AG_ALPHA,
                                        "general.name", "general.arch", "general.quantization_",
                                        "general.file", "general.alig", NULL};
    const ckpt_value *kind = agk_key(map, AG_KIND);
    const char *left = "";

    if (!kind || !ckpt_value_is(kind, "lora"))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: " AG_KIND " is not \"lora\"", map->path);
    for (size_t i = 0; left && i < map->keys.n; i++) {
        const char *name = map->keys.at[i].name;
        size_t k = 0;

        while (known[k] && strncmp(name, known[k], strlen(known[k])) != 0)
            k++;
        if (strncmp(name, "adapter.alora.", 14) == 0)
            return ckpt_fail(err, CKPT_EUNSUPPORTED,
                             "%s: the key %.60s makes this an activated LoRA, which ckpt does not "
                             "write as a PEFT folder",
                             map->path, name);
        if (!known[k] && strlen(left) < 400)
            left = ckpt_arena_printf(map->arena, "%s%s%.100s", left, *left ? ", " : "", name);
    }
    if (!left)
        return ckpt_fail_memory(err);
    return !*left ? CKPT_OK
                  : ckpt_map_note(map, CKPT_INFO, err,
                                  "keys without a place in adapter_config.json are left out: %s",
                                  left);
}

/* A number as its shortest decimal text reads, because the writer started from that. */
static ckpt_value *agk_number(ckpt_arena *a, double x)
{
    char text[CKPT_NUMBER_TEXT];
    double d = x;

    if (x == floor(x) && fabs(x) < 1e15)
        return ckpt_value_int(a, (int64_t)x);
    (void)ckpt_parse_f64(ckpt_print_f32(text, (float)x, 1), &d);
    return ckpt_value_float(a, d);
}

/* The parts of a configuration that depend on the modules. */
typedef struct agk_config {
    ckpt_value *targets, *ranks; /* a list of modules, a dict from module to rank */
    uint64_t rank;               /* of the first module */
    bool uneven;                 /* the ranks differ */
} agk_config;

static int agk_modules(const ckpt_map *map, agk_config *c, ckpt_err *err)
{
    ckpt_arena *a = map->arena;
    int rc = CKPT_OK;

    c->targets = ckpt_value_new(a, CKPT_V_LIST);
    c->ranks = ckpt_value_new(a, CKPT_V_DICT);
    if (!c->targets || !c->ranks)
        return ckpt_fail_memory(err);
    for (size_t i = 0; rc == CKPT_OK && i < map->tensors.n; i++) {
        ckpt_peft_name name;
        const char *module = NULL;
        uint64_t rank = 0;

        rc = agk_pair(map, map->tensors.at[i], &module, &rank, err);
        if (rc != CKPT_OK || !ckpt_peft_parse(&name, map->tensors.at[i]->name) ||
            name.part != CKPT_PEFT_A)
            continue;
        if (!ckpt_seq_add(a, &c->targets->as.seq, ckpt_value_cstr(a, module)) ||
            !ckpt_dict_add_cstr(a, &c->ranks->as.map, module, ckpt_value_int(a, (int64_t)rank)))
            return ckpt_fail_memory(err);
        c->rank = c->rank ? c->rank : rank;
        c->uneven = c->uneven || c->rank != rank;
    }
    return rc;
}

/* Make the tree of adapter_config.json; NULL: out of memory. */
static ckpt_value *agk_tree(const ckpt_map *map, const agk_config *c, double alpha)
{
    ckpt_arena *a = map->arena;
    ckpt_value *none = ckpt_value_new(a, CKPT_V_DICT), *root = ckpt_value_new(a, CKPT_V_DICT);
    // without an alpha, llama.cpp's scale is 1
    const struct {
        const char *key;
        ckpt_value *value;
    } member[] = {
        {"alpha_pattern", alpha == 0 && c->uneven ? c->ranks : none},
        {"base_model_name_or_path", ckpt_value_new(a, CKPT_V_NONE)},
        {"bias", ckpt_value_cstr(a, "none")},
        {"fan_in_fan_out", ckpt_value_bool(a, false)},
        {"inference_mode", ckpt_value_bool(a, true)},
        {"init_lora_weights", ckpt_value_bool(a, true)},
        {"lora_alpha", alpha == 0 ? ckpt_value_int(a, (int64_t)c->rank) : agk_number(a, alpha)},
        {"lora_dropout", ckpt_value_float(a, 0)},
        {"modules_to_save", ckpt_value_new(a, CKPT_V_NONE)},
        {"peft_type", ckpt_value_cstr(a, "LORA")},
        {"r", ckpt_value_int(a, (int64_t)c->rank)},
        {"rank_pattern", c->uneven ? c->ranks : none},
        {"target_modules", c->targets},
        {"task_type", ckpt_value_new(a, CKPT_V_NONE)},
        {"use_dora", ckpt_value_bool(a, false)},
        {"use_rslora", ckpt_value_bool(a, false)},
    };
    bool ok = none && root;

    for (size_t i = 0; ok && i < sizeof member / sizeof *member; i++)
        ok =
            member[i].value && ckpt_dict_add_cstr(a, &root->as.map, member[i].key, member[i].value);
    return ok ? root : NULL;
}

static int agk_to_config(ckpt_map *map, ckpt_err *err)
{
    static const ckpt_json_style style = {.indent = 2, .sort_keys = true};
    const ckpt_value *key = agk_key(map, AG_ALPHA), *tree = NULL;
    agk_config c = {0};
    ckpt_bytes text = {0};
    const double alpha = !key                        ? 0
                         : key->kind == CKPT_V_FLOAT ? key->as.f
                         : key->kind == CKPT_V_INT   ? (double)key->as.i
                                                     : (double)NAN;
    int rc = agk_check_keys(map, err);

    if (rc == CKPT_OK && !isfinite(alpha))
        rc = ckpt_fail(err, CKPT_EFORMAT, "%s: " AG_ALPHA " is not a number", map->path);
    if (rc == CKPT_OK)
        rc = agk_modules(map, &c, err);
    if (rc == CKPT_OK) {
        tree = agk_tree(map, &c, alpha);
        rc = tree ? ckpt_json_write(&text, tree, &style, err) : ckpt_fail_memory(err);
    }
    if (rc == CKPT_OK) {
        map->n_adapter_config = text.n;
        map->adapter_config = ckpt_arena_copy(map->arena, text.at, text.n);
        rc = map->adapter_config ? CKPT_OK : ckpt_fail_memory(err);
    }
    ckpt_vec_free(&text);
    if (rc == CKPT_OK)
        ckpt_vec_free(&map->keys);
    return rc;
}

/* True if a layout map has given a GGUF adapter's tensors the names of PEFT. */
static bool agk_is_renamed(const ckpt_map *map)
{
    const ckpt_value *type = agk_key(map, AG_TYPE);
    ckpt_peft_name name;

    return type && ckpt_value_is(type, "adapter") && map->tensors.n > 0 &&
           ckpt_peft_parse(&name, map->tensors.at[0]->name);
}

int ckpt_map_adapter_config(ckpt_map *map, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_savepoint *saved = NULL;

    if (!map)
        return ckpt_fail(err, CKPT_EUSAGE, "ckpt_map_adapter_config needs a map");
    if (!agk_is_renamed(map))
        return CKPT_OK;
    int rc = ckpt_savepoint_new(&saved, map, err);
    return rc == CKPT_OK ? ckpt_savepoint_end(saved, agk_to_config(map, err)) : rc;
}
