/* SPDX-License-Identifier: Apache-2.0 */
/*
 * facts.c: looks up facts about a model by name: in its configuration, and in the checkpoint.
 */
#include <float.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/base/number.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/io/address.h"
#include "libckpt/transform/keymap/expr.h"

/* Limit of a configuration's bytes. */
#define FA_BYTES (4u << 20)

/* The folder of the model, or of the opened path, with its slash; "" for a name alone. */
static const char *fa_folder(ckpt_map *map)
{
    const char *path = map->model_folder ? map->model_folder : map->path ? map->path : "";
    ckpt_arena *a = map->arena;
    const char *slash;
    ckpt_listing list;
    struct stat st;

    if (ckpt_address_is(path) ? ckpt_listing_read(&list, map, path, NULL) == CKPT_OK
                              : stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return ckpt_arena_printf(a, "%s/", path);
    slash = strrchr(path, '/');
    return ckpt_arena_string(a, path, slash ? (size_t)(slash - path) + 1 : 0);
}

/* Read a configuration in the source's folder, if it exists. */
static int fa_beside(const ckpt_value **out, ckpt_map *map, const char *folder, const char *name,
                     ckpt_err *err)
{
    const char *path = ckpt_arena_printf(map->arena, "%s%s", folder, name);
    ckpt_value *v = NULL;
    bool there = false;

    if (!path)
        return ckpt_fail_memory(err);
    int rc = ckpt_address_there(path, &there, err);

    if (rc == CKPT_OK && there)
        rc = ckpt_json_read(&v, map->arena, path, FA_BYTES, err);
    *out = v;
    return rc;
}

int ckpt_rm_beside(const ckpt_value **out, ckpt_map *map, const char *name, ckpt_err *err)
{
    const char *folder = fa_folder(map);

    *out = NULL;
    return folder ? fa_beside(out, map, folder, name, err) : ckpt_fail_memory(err);
}

/* As fa_beside; for a tag folder also in the run folder above it, because trainers write there. */
static int fa_above(const ckpt_value **out, ckpt_map *map, const char *folder, const char *name,
                    ckpt_err *err)
{
    bool of_run = map->format && !map->model_folder &&
                  (strcmp(map->format, "deepspeed") == 0 || strcmp(map->format, "universal") == 0);
    int rc = fa_beside(out, map, folder, name, err);

    if (rc != CKPT_OK || *out || !of_run)
        return rc;
    folder = ckpt_arena_printf(map->arena, "%s../", folder);
    return folder ? fa_beside(out, map, folder, name, err) : ckpt_fail_memory(err);
}

/* The name by which layout maps look up how images are prepared. */
static const char fa_images_name[] = "preprocessor_config.";

/* Read the files that say how images are prepared, if the layout map asks for them. */
static int fa_images(ckpt_rm_facts *out, ckpt_map *map, const char *folder, ckpt_err *err)
{
    const ckpt_value *both = NULL;
    bool asked = false;

    for (size_t i = 0; !asked && i < out->r->asked.n; i++)
        asked = strncmp(out->r->asked.at[i], fa_images_name, sizeof fa_images_name - 1) == 0;
    if (!asked)
        return CKPT_OK;
    int rc = fa_above(&both, map, folder, "processor_config.json", err);
    out->images[0] = both ? ckpt_value_get(both, "image_processor") : NULL;
    return rc == CKPT_OK ? fa_above(&out->images[1], map, folder, "preprocessor_config.json", err)
                         : rc;
}

/* Parse the value of an option: a number, true or false, or a text. */
static int fa_scalar(ckpt_value **out, ckpt_arena *a, const char *text, ckpt_err *err)
{
    ckpt_json_text json = {.name = "size", .at = text, .n = strlen(text), .max = 1 << 10};

    if (ckpt_json_parse(out, a, &json, NULL) != CKPT_OK ||
        ((*out)->kind != CKPT_V_INT && (*out)->kind != CKPT_V_FLOAT && (*out)->kind != CKPT_V_BOOL))
        *out = ckpt_value_cstr(a, text);
    return *out ? CKPT_OK : ckpt_fail_memory(err);
}

/*
 * Parse an entry "heads=32" of how->sizes. The name is a size of the layout map, or a fact that the
 * map's expressions look up.
 */
static int fa_given(ckpt_rm_facts *f, const char *text, ckpt_err *err)
{
    ckpt_remap *r = f->r;
    size_t n = strcspn(text, "=");
    const char *name = ckpt_arena_string(f->arena, text, n);
    ckpt_value *v = NULL;

    if (n == 0 || !text[n] || !text[n + 1])
        return ckpt_fail(err, CKPT_EUSAGE, "size '%.80s': expected NAME=VALUE", text);
    int rc = name ? fa_scalar(&v, f->arena, text + n + 1, err) : ckpt_fail_memory(err);
    for (size_t i = 0; rc == CKPT_OK && i < r->sizes.n; i++) {
        if (strcmp(r->names.at[r->sizes.at[i].name], name) != 0)
            continue;
        if (v->kind == CKPT_V_INT && (v->as.i <= 0 || v->as.i > INT64_C(1) << 48))
            return ckpt_fail(err, CKPT_EUSAGE, "size '%.80s': expected a whole number of elements",
                             text);
        r->sizes.at[i].state = 2;
        r->sizes.at[i].value = v;
        return CKPT_OK;
    }
    if (rc == CKPT_OK && !ckpt_remap_has_size(r, name))
        return ckpt_fail(err, CKPT_EUSAGE, "size '%.80s': %s has no size of this name", text,
                         r->name);
    if (rc == CKPT_OK && !f->given)
        f->given = ckpt_value_new(f->arena, CKPT_V_DICT);
    if (rc == CKPT_OK && (!f->given || !ckpt_dict_add_cstr(f->arena, &f->given->as.map, name, v)))
        rc = ckpt_fail_memory(err);
    return rc;
}

int ckpt_rm_facts_open(ckpt_rm_facts *out, ckpt_remap *r, ckpt_map *map, const ckpt_remap_how *how,
                       ckpt_err *err)
{
    const char *folder = fa_folder(map);
    int rc = folder ? CKPT_OK : ckpt_fail_memory(err);

    *out = (ckpt_rm_facts){.r = r,
                           .map = map,
                           .how = how,
                           .arena = map->arena,
                           .lora = ckpt_remap_lora(r, map),
                           .folder = folder ? folder : ""};
    for (size_t i = 0; i < r->sizes.n; i++) {
        r->sizes.at[i].state = 0;
        r->sizes.at[i].value = NULL;
    }
    for (const char *const *s = how->sizes; rc == CKPT_OK && s && *s; s++)
        rc = fa_given(out, *s, err);
    if (rc == CKPT_OK)
        rc = fa_above(&out->beside[0], map, folder, "config.json", err);
    if (rc == CKPT_OK)
        rc = fa_beside(&out->beside[1], map, folder, "params.json", err);
    if (rc == CKPT_OK)
        rc = fa_images(out, map, folder, err);
    if (rc != CKPT_OK || !how->like)
        return rc;
    folder = fa_folder(how->like);
    rc = folder ? fa_above(&out->beside[2], how->like, folder, "config.json", err)
                : ckpt_fail_memory(err);
    return rc == CKPT_OK ? fa_beside(&out->beside[3], how->like, folder, "params.json", err) : rc;
}

/* Return a dict with the members of v: v itself, or the attributes of an object (a Namespace). */
static const ckpt_value *fa_members(const ckpt_value *v)
{
    for (unsigned depth = 0; v && v->kind == CKPT_V_OBJECT && depth < 4; depth++)
        v = v->as.object->state;
    return v;
}

/* The member with a key of n bytes, or the item of that number. */
static const ckpt_value *fa_member(const ckpt_value *v, const char *key, size_t n)
{
    const ckpt_dict map = ckpt_value_map(v);
    const ckpt_seq seq = ckpt_value_seq(v);

    for (uint64_t i = 0; i < map.n; i++) {
        const ckpt_value *k = map.at[i].key;
        if (k->kind == CKPT_V_STR && k->as.text.n == n && memcmp(k->as.text.at, key, n) == 0)
            return map.at[i].value;
    }
    if (seq.n > 0 && n > 0 && n < 6) {
        uint64_t at = 0;
        return ckpt_scan_u64(key, &at) == key + n && at < seq.n ? seq.at[at] : NULL;
    }
    return NULL;
}

/*
 * Follow a path of keys; a key may contain dots itself ("llama.block_count"), so the longest is
 * tried first.
 */
static const ckpt_value *fa_path(const ckpt_value *v, const char *path, unsigned depth)
{
    size_t n = strlen(path);

    v = fa_members(v);
    if (!v || depth > 8)
        return NULL;
    while (n > 0) {
        const ckpt_value *m = fa_member(v, path, n);
        if (m && path[n] == '.')
            m = fa_path(m, path + n + 1, depth + 1);
        if (m)
            return m;
        do
            n--;
        while (n > 0 && path[n] != '.');
    }
    return NULL;
}

/*
 * Look a path up in a model's configuration. Multimodal models store the language model's values
 * in a nested dict, text_config or model, which is searched second.
 */
static const ckpt_value *fa_config(const ckpt_value *v, const char *path)
{
    static const char *const parts[] = {"text_config", "model"};
    const ckpt_value *found = v ? fa_path(v, path, 0) : NULL;

    for (size_t i = 0; v && !found && i < sizeof parts / sizeof *parts; i++) {
        const ckpt_value *part = ckpt_value_get(v, parts[i]);
        if (part && part->kind == CKPT_V_DICT)
            found = fa_path(part, path, 0);
    }
    return found;
}

/*
 * A key's value; for an F32 the shortest decimal number with these bits, because its writer
 * probably started from that.
 */
static const ckpt_value *fa_key(ckpt_arena *a, const ckpt_key *key)
{
    const ckpt_value *v = key->value;
    char text[CKPT_NUMBER_TEXT];
    double d = v->as.f;

    if (key->type != CKPT_KEY_F32 || v->kind != CKPT_V_FLOAT || !isfinite(v->as.f))
        return v;
    // a short text of the largest floats may be above FLT_MAX
    if (!ckpt_parse_f64(ckpt_print_f32(text, (float)v->as.f, 1), &d) || fabs(d) > (double)FLT_MAX)
        d = v->as.f;
    return ckpt_value_float(a, d);
}

/*
 * Find the checkpoint's own values. Several model-parallel ranks have the same ones, so the first
 * rank's are used.
 */
static const ckpt_value *fa_values(const ckpt_value *values, const char *path)
{
    const ckpt_value *v = fa_path(values, path, 0);
    const ckpt_dict all = ckpt_value_map(values);

    for (uint64_t i = 0; !v && i < all.n; i++) {
        const ckpt_value *k = all.at[i].key, *states;
        if (k->kind != CKPT_V_STR || strncmp(k->as.text.at, "mp_rank_", 8) != 0)
            continue;
        v = fa_path(all.at[i].value, path, 0);
        states = v ? NULL : ckpt_value_get(all.at[i].value, "model_states"); // DeepSpeed's
        return states ? fa_path(states, path, 0) : v;
    }
    return v;
}

const ckpt_value *ckpt_rm_in(const ckpt_value *config, const char *path)
{
    return fa_config(config, path);
}

const ckpt_value *ckpt_rm_fact(const ckpt_rm_facts *f, const char *path)
{
    // a vocabulary that was cut or padded differs from the configuration's, so the map's size comes
    // first
    const ckpt_value *v = f->map->vocab_size && strcmp(path, "vocab_size") == 0
                              ? ckpt_value_int(f->arena, (int64_t)f->map->vocab_size)
                          : f->given ? ckpt_value_get(f->given, path)
                                     : NULL;
    size_t n = strlen(path);

    if (!v && strncmp(path, fa_images_name, sizeof fa_images_name - 1) == 0) {
        v = fa_path(f->images[0], path + sizeof fa_images_name - 1, 0);
        return v ? v : fa_path(f->images[1], path + sizeof fa_images_name - 1, 0);
    }
    v = v ? v : fa_config(f->how->model, path);
    v = v ? v : fa_config(f->map->config.value, path);
    for (unsigned i = 0; !v && i < 2; i++)
        v = fa_config(f->beside[i], path);
    for (size_t i = 0; !v && i < f->map->keys.n; i++) {
        if (strcmp(f->map->keys.at[i].name, path) == 0)
            v = fa_key(f->arena, &f->map->keys.at[i]);
    }
    if (!v && f->map->values)
        v = fa_values(f->map->values, path);
    for (uint64_t i = 0; !v && i < f->map->metadata.n; i++) {
        const ckpt_value *k = f->map->metadata.at[i].key;
        if (k->as.text.n == n && memcmp(k->as.text.at, path, n) == 0)
            v = f->map->metadata.at[i].value;
    }
    v = v || !f->how->like ? v : fa_config(f->how->like->config.value, path);
    for (unsigned i = 2; !v && i < 4; i++)
        v = fa_config(f->beside[i], path);
    return v;
}
