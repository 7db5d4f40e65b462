/* SPDX-License-Identifier: Apache-2.0 */
/*
 * only.c: extracts the adapter from the checkpoint of a run that trained one.
 *
 * The result has the tensors that peft's save_pretrained writes (utils/save_and_load.py,
 * get_peft_model_state_dict): the adapter's tensors, without the adapter's name in their names,
 * the modules in modules_to_save, and the biases that the configuration lists as trained.  The
 * checkpoint of a run does not hold rank, scale and targets, so adapter_config.json is needed.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "ckpt_shape.h"
#include "formats/peft/peft.h"
#include "libckpt/access/model_folder.h"
#include "libckpt/base/opts.h"
#include "libckpt/io/io.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/savepoint.h"

typedef struct only_job {
    ckpt_map *map;
    ckpt_adapter_only opts;
    ckpt_peft_config config;
    const char *adapter; /* name of the adapter to keep; NULL: not known yet */
    ckpt_err *err;
} only_job;

/*
 * Set *yes if a tensor belongs to the adapter to keep: the one that the user named, or the only
 * one.
 */
static int only_wanted(only_job *j, const char *name, size_t n, bool *yes)
{
    if (!j->adapter)
        j->adapter = ckpt_arena_string(j->map->arena, name, n);
    if (!j->adapter)
        return ckpt_fail_memory(j->err);
    *yes = strlen(j->adapter) == n && memcmp(j->adapter, name, n) == 0;
    if (!*yes && !j->opts.name)
        return ckpt_fail(
            j->err, CKPT_EUSAGE,
            "%s holds several adapters, such as %.60s and %.*s: choose one with --adapter-name",
            j->map->path, j->adapter, n > 60 ? 60 : (int)n, name);
    return CKPT_OK;
}

/* True for a bias that was trained with the adapter, as the configuration's `bias` states. */
static bool only_bias(const only_job *j, const char *name)
{
    size_t n = strlen(name);
    bool of_module = n > 16 && strcmp(name + n - 16, ".base_layer.bias") == 0;

    if (n < 5 || strcmp(name + n - 5, ".bias") != 0)
        return false;
    return strcmp(j->config.bias, "all") == 0 ||
           (of_module && strcmp(j->config.bias, "lora_only") == 0);
}

/* Check that a tensor's rank, or its module in modules_to_save, agrees with the configuration. */
static int only_check(const only_job *j, const ckpt_tensor *t)
{
    ckpt_peft_name name;
    uint64_t rank = 0;
    double scale = 0;
    const char *module;
    int rc;

    if (!ckpt_peft_parse(&name, t->name))
        return ckpt_fail(j->err, CKPT_EUNSUPPORTED,
                         "tensor %.200s: names of PEFT models begin with base_model.model.",
                         t->name);
    if (name.part == CKPT_PEFT_PLAIN && !only_bias(j, t->name) &&
        !ckpt_peft_saves(&j->config, t->name))
        return ckpt_fail(j->err, CKPT_EMISMATCH,
                         "%s: modules_to_save does not name %.200s, which the run has trained",
                         j->config.path, t->name);
    // matrices of stacked experts have more rows than the rank
    if ((name.part != CKPT_PEFT_A && name.part != CKPT_PEFT_TABLE_A) || j->config.parameters)
        return CKPT_OK;
    module = ckpt_arena_string(j->map->arena, name.module, name.n);
    rc = module ? ckpt_peft_scale(&j->config, module, &rank, &scale, j->err)
                : ckpt_fail_memory(j->err);
    if (rc == CKPT_OK && (t->ndim < 2 || t->shape[0] != rank))
        rc = ckpt_fail(j->err, CKPT_EMISMATCH,
                       "%s: %.200s has rank %" PRIu64 " in this configuration, but %" PRIu64
                       " in the checkpoint",
                       j->config.path, module, rank, t->ndim > 0 ? t->shape[0] : 0);
    return rc;
}

/* Rename a tensor to its saved name, or drop it. */
static int only_tensor(only_job *j, ckpt_tensor *t, bool *keep)
{
    char *saved = ckpt_arena_alloc(j->map->arena, strlen(t->name) + 1);
    const char *adapter;
    size_t n;
    int rc = CKPT_OK;

    if (!saved)
        return ckpt_fail_memory(j->err);
    ckpt_peft_saved_name(saved, t->name, &adapter, &n);
    *keep = t->role != CKPT_ROLE_STATE && t->role != CKPT_ROLE_OTHER;
    if (*keep && n > 0)
        rc = only_wanted(j, adapter, n, keep);
    else if (*keep)
        *keep = only_bias(j, saved);
    if (rc != CKPT_OK || !*keep)
        return rc;
    t->name = saved;
    // copy the owner's extents, because the owner may be dropped
    if (t->owner) {
        ckpt_extent_share(t, t->owner);
        t->twin = t->owner->twin;
        t->addend = t->owner->addend;
        t->owner = NULL;
    }
    return only_check(j, t);
}

static int only_all(only_job *j)
{
    ckpt_map *map = j->map;
    size_t n = 0;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < map->tensors.n; i++) {
        bool keep = false;

        rc = only_tensor(j, map->tensors.at[i], &keep);
        if (keep)
            map->tensors.at[n++] = map->tensors.at[i];
    }
    if (rc != CKPT_OK)
        return rc;
    if (!j->adapter || n == 0)
        return ckpt_fail(j->err, CKPT_EMISSING, "%s: holds no tensors of an adapter%s%.60s",
                         map->path, j->opts.name ? " named " : "",
                         j->opts.name ? j->opts.name : "");
    rc = ckpt_map_note(
        map, CKPT_INFO, j->err,
        "adapter '%.60s': %zu tensors are kept; %zu tensors of its base model are left out",
        j->adapter, n, map->tensors.n - n);
    map->tensors.n = n;
    return rc == CKPT_OK ? ckpt_map_reindex(map, j->err) : rc;
}

bool ckpt_peft_is_live(const ckpt_map *map)
{
    bool file = false, wrapped = false;

    for (size_t i = 0; i < map->tensors.n; i++) {
        const char *at = strstr(map->tensors.at[i]->name, ".lora_A.");
        const char *table = strstr(map->tensors.at[i]->name, ".lora_embedding_A");

        ckpt_peft_name name;

        // other kinds have these names in adapter files only
        file = file || (ckpt_peft_parse(&name, map->tensors.at[i]->name) &&
                        (name.part == CKPT_PEFT_TOKENS ||
                         (ckpt_peft_kind_of(name.part) > CKPT_PEFT_KIND_LORA &&
                          ckpt_peft_kind_of(name.part) < CKPT_PEFT_N_KINDS)));
        // PEFT gives this name to a layer in training; adapter files have it for embeddings only
        wrapped = wrapped || strstr(map->tensors.at[i]->name, ".base_layer.weight");
        file = file || at || table;
        at = at ? at : table && table[sizeof ".lora_embedding_A" - 1] == '.' ? table : NULL;
        // adapter files have this name; in training the adapter's name is before "weight"
        if (at && strcmp(at, ".lora_A.weight") != 0)
            return true;
    }
    return wrapped && !file;
}

int ckpt_peft_config_of(const char **out, ckpt_map *map, const char *given, ckpt_err *err)
{
    assert(out && map);
    ckpt_map *scratch = NULL, own = *map;
    ckpt_listing list;
    int rc = given ? CKPT_OK : ckpt_map_create(&scratch, 0, err);

    *out = given;
    // look in the run's folder, because the base model's folder does not have its configuration
    own.model_folder = NULL;
    if (rc == CKPT_OK && !given && ckpt_model_folder_list(&list, scratch, &own, NULL) == CKPT_OK &&
        ckpt_listing_find(&list, "adapter_config.json"))
        *out = ckpt_path_join(map->arena, list.folder, "adapter_config.json");
    ckpt_map_free(scratch);
    if (rc != CKPT_OK || *out)
        return rc;
    return ckpt_fail(err, CKPT_EUSAGE,
                     "%s: the run trained an adapter, but its adapter_config.json, with rank, "
                     "scale and targets, is missing: give it with --adapter-config FILE",
                     map->path);
}

/* Keep the adapter and its configuration; a failure leaves the map half changed. */
static int only_change(only_job *j)
{
    ckpt_map *map = j->map;
    const char *path = NULL;
    char *text = NULL;
    int rc = ckpt_peft_config_of(&path, map, j->opts.config, j->err);

    if (rc == CKPT_OK)
        rc = ckpt_peft_config_read(&j->config, map->arena, path, j->err);
    if (rc == CKPT_OK)
        rc = ckpt_peft_only_lora(
            &j->config, "is taken out of a run; save it with peft's save_pretrained", j->err);
    if (rc == CKPT_OK && j->config.tokens)
        rc = ckpt_fail(j->err, CKPT_EUNSUPPORTED,
                       "%s: trainable_token_indices is set, and ckpt does not take trained tokens "
                       "out of a run; save the adapter with peft's save_pretrained",
                       path);
    if (rc == CKPT_OK)
        rc = only_all(j);
    if (rc == CKPT_OK)
        rc = ckpt_io_slurp(&text, &map->n_adapter_config, path, UINT64_C(4) << 20, j->err);
    if (rc == CKPT_OK) {
        map->adapter_config = ckpt_arena_copy(map->arena, text, map->n_adapter_config);
        rc = map->adapter_config ? CKPT_OK : ckpt_fail_memory(j->err);
    }
    ckpt_free(text);
    return rc;
}

int ckpt_map_keep_adapter(ckpt_map *map, const ckpt_adapter_only *only, ckpt_err *err)
{
    ckpt_err_clear(err);
    only_job j = {.map = map, .err = err};
    ckpt_savepoint *saved = NULL;
    int rc = !map   ? ckpt_fail(err, CKPT_EUSAGE, "no map whose adapter could be kept")
             : only ? ckpt_opts_take(&j.opts, sizeof j.opts, only, "ckpt_adapter_only", err)
                    : CKPT_OK;

    j.adapter = j.opts.name;
    if (rc == CKPT_OK)
        rc = ckpt_savepoint_new(&saved, map, err);
    if (rc == CKPT_OK)
        rc = ckpt_savepoint_end(saved, only_change(&j));
    ckpt_peft_config_free(&j.config);
    return rc;
}
