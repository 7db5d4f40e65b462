/* SPDX-License-Identifier: Apache-2.0 */
/*
 * facts.c: what is known of a model by name: its configuration, and what the checkpoint says.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/codec/json/json.h"
#include "libckpt/remap/expr.h"

/* What a configuration may have. */
#define FA_BYTES (4u << 20)

/* The folder of the model, or of the path that was opened, with its slash; "" for a name alone. */
static const char *fa_folder(const ckpt_map *map)
{
    const char *path = map->model_folder ? map->model_folder : map->path ? map->path : "";
    ckpt_arena *a = map->arena;
    const char *slash;
    struct stat st;

    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return ckpt_arena_printf(a, "%s/", path);
    slash = strrchr(path, '/');
    return ckpt_arena_string(a, path, slash ? (size_t)(slash - path) + 1 : 0);
}

/* A configuration beside the source, if it is there. */
static int fa_beside(const ckpt_value **out, ckpt_map *map, const char *folder, const char *name,
                     ckpt_err *err)
{
    const char *path = ckpt_arena_printf(map->arena, "%s%s", folder, name);
    ckpt_value *v = NULL;
    struct stat st;

    if (!path)
        return ckpt_fail_memory(err);
    if (stat(path, &st) != 0)
        return CKPT_OK;
    int rc = ckpt_json_read(&v, map->arena, path, FA_BYTES, err);
    *out = v;
    return rc;
}

/* The same, of a run's tag folder: in the folder of the run, where its trainer has put it. */
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

/* An entry "heads=32" of how->sizes. */
static int fa_given(const ckpt_rm_facts *f, const char *text, ckpt_err *err)
{
    ckpt_remap *r = f->r;
    size_t n = strcspn(text, "=");
    char *stop = NULL;
    const char *digits = text[n] ? text + n + 1 : "";
    unsigned long long value = strtoull(digits, &stop, 10);

    if (!strchr("123456789", *digits) || !*digits || *stop || value > 1ULL << 48)
        return ckpt_fail(err, CKPT_EUSAGE, "size '%.80s': expected NAME=NUMBER", text);
    for (size_t i = 0; i < r->sizes.n; i++) {
        const char *name = r->names.at[r->sizes.at[i].name];
        if (strlen(name) == n && memcmp(name, text, n) == 0) {
            r->sizes.at[i].state = 2;
            r->sizes.at[i].value = ckpt_value_int(f->arena, (int64_t)value);
            return r->sizes.at[i].value ? CKPT_OK : ckpt_fail_memory(err);
        }
    }
    return ckpt_fail(err, CKPT_EUSAGE, "size '%.80s': %s has no size of this name", text, r->name);
}

int ckpt_rm_facts_open(ckpt_rm_facts *out, ckpt_remap *r, ckpt_map *map, const ckpt_remap_how *how,
                       ckpt_err *err)
{
    const char *folder = fa_folder(map);
    int rc = folder ? CKPT_OK : ckpt_fail_memory(err);

    *out = (ckpt_rm_facts){.r = r, .map = map, .how = how, .arena = map->arena};
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
    return rc;
}

/* The members of a dict, or the attributes of an object (argparse's Namespace). */
static const ckpt_value *fa_members(const ckpt_value *v)
{
    for (unsigned depth = 0; v && v->kind == CKPT_V_OBJECT && depth < 4; depth++)
        v = v->as.object->state;
    return v;
}

/* The member of n bytes, or the item of that number. */
static const ckpt_value *fa_member(const ckpt_value *v, const char *key, size_t n)
{
    const ckpt_dict map = ckpt_value_map(v);
    const ckpt_seq seq = ckpt_value_seq(v);

    for (uint64_t i = 0; i < map.n; i++) {
        const ckpt_value *k = map.at[i].key;
        if (k->kind == CKPT_V_STR && k->as.text.n == n && memcmp(k->as.text.at, key, n) == 0)
            return map.at[i].value;
    }
    if (seq.n > 0 && n > 0 && n < 6 && strspn(key, "0123456789") >= n) {
        unsigned long at = strtoul(key, NULL, 10);
        return at < seq.n ? seq.at[at] : NULL;
    }
    return NULL;
}

/* A path of keys; keys may have dots themselves ("llama.block_count"): the longest goes first. */
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

/* The configuration of a model, which some keep in a part of the whole. */
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

const ckpt_value *ckpt_rm_fact(const ckpt_rm_facts *f, const char *path)
{
    // a vocabulary that was cut or padded is not the configuration's any more
    const ckpt_value *v = f->map->vocab_size && strcmp(path, "vocab_size") == 0
                              ? ckpt_value_int(f->arena, (int64_t)f->map->vocab_size)
                              : fa_config(f->how->model, path);
    size_t n = strlen(path);

    for (unsigned i = 0; !v && i < 2; i++)
        v = fa_config(f->beside[i], path);
    if (!v && f->map->values)
        v = fa_path(f->map->values, path, 0);
    for (size_t i = 0; !v && i < f->map->keys.n; i++) {
        if (strcmp(f->map->keys.at[i].name, path) == 0)
            v = f->map->keys.at[i].value;
    }
    for (uint64_t i = 0; !v && i < f->map->metadata.n; i++) {
        const ckpt_value *k = f->map->metadata.at[i].key;
        if (k->as.text.n == n && memcmp(k->as.text.at, path, n) == 0)
            v = f->map->metadata.at[i].value;
    }
    return v;
}

bool ckpt_rm_holds(const ckpt_rm_facts *f, const ckpt_rm_when *w, bool *known)
{
    const ckpt_value *v = ckpt_rm_fact(f, w->key);

    *known = v && (v->kind == CKPT_V_STR || v->kind == CKPT_V_BOOL);
    for (const char *const *word = w->word; *known && *word; word++) {
        if (v->kind == CKPT_V_BOOL ? strcmp(*word, v->as.i ? "true" : "false") == 0
                                   : ckpt_value_is(v, *word))
            return true;
    }
    return false;
}

/* Is there a tensor of such a name? */
static bool fa_has(const ckpt_map *map, const ckpt_rm_term *t)
{
    ckpt_rm_capture c;
    bool has = false;

    for (size_t i = 0; !has && i < map->tensors.n; i++)
        has = ckpt_rm_match(t, map->tensors.at[i]->name, &c);
    return has;
}

bool ckpt_remap_fits(const ckpt_remap *r, ckpt_map *map, const ckpt_remap_how *how)
{
    ckpt_rm_facts f = {.map = map, .how = how, .arena = map->arena};
    const char *folder = fa_folder(map);
    ckpt_err ignored = {0};
    bool fits = true, known;

    if (r->whens.n == 0)
        return true;
    // a configuration that cannot be read says nothing here; applying the map says why
    if (folder && fa_above(&f.beside[0], map, folder, "config.json", &ignored) == CKPT_OK)
        (void)fa_beside(&f.beside[1], map, folder, "params.json", &ignored);
    for (size_t i = 0; fits && i < r->whens.n; i++) {
        const ckpt_rm_when *w = &r->whens.at[i];
        if (w->side == how->backwards)
            fits = w->has.text ? fa_has(map, &w->has) : ckpt_rm_holds(&f, w, &known);
    }
    return fits;
}
