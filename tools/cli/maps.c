/* SPDX-License-Identifier: Apache-2.0 */
/* maps.c: finds, reads and chooses layout maps. */
#define _GNU_SOURCE // versionsort
#include "tools/cli/maps.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/base/vec.h"
#include "tools/cli/out.h"
#include "tools/cli/text.h"

enum { MAPS_PATH = 4096, MAPS_MAX = 1024 };

const char *maps_base(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

bool maps_is_path(const char *name)
{
    struct stat st;

    return strchr(name, '/') || (!strchr(name, ':') && stat(name, &st) == 0);
}

/*
 * Read the names of the layouts from the line "map LEFT:RIGHT" of a text that is not parsed.  They
 * stay NULL if there is no such line.
 */
static void maps_take_sides(cli_map_text *t)
{
    static const char word[] = "map ", name[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    const char *line = t->text;

    while (line && strncmp(line, word, sizeof word - 1) != 0) {
        line = strchr(line, '\n');
        line += line != NULL;
    }
    if (!line)
        return;
    line += sizeof word - 1;
    const size_t n = strspn(line, name), m = line[n] == ':' ? strspn(line + n + 1, name) : 0;
    if (n == 0 || m == 0 || line[n + 1 + m] != '\n')
        return;
    t->pair = strndup(line, n + 1 + m);
    if (!t->pair)
        return;
    t->pair[n] = 0;
    t->side[0] = t->pair;
    t->side[1] = t->pair + n + 1;
}

ckpt_remap *maps_use(cli_map_text *t, ckpt_err *err)
{
    if (!t->map && ckpt_remap_new(&t->map, maps_base(t->path), t->text, err) != CKPT_OK)
        return NULL;
    for (unsigned right = 0; right < 2; right++) {
        const char *side = ckpt_remap_side(t->map, right);
        if (t->side[right] && strcmp(t->side[right], side) != 0) {
            (void)fail(err, CKPT_EFORMAT, "%s: found layout %s, parsed %s: report this", t->path,
                       t->side[right], side);
            return NULL;
        }
        t->side[right] = side;
    }
    return t->map;
}

int maps_use_all(const cli_maps *m, ckpt_err *err)
{
    for (size_t i = 0; i < m->n; i++) {
        if (!maps_use(&m->at[i], err))
            return err->code;
    }
    return CKPT_OK;
}

/* Add a text, which is freed with the maps.  NULL: read the file `path`. */
static int maps_add(cli_maps *m, const char *path, char *text, ckpt_err *err)
{
    cli_map_text *t = m->n < MAPS_MAX ? ckpt_vec_push(m) : NULL;
    int rc = CKPT_OK;

    if (!t) {
        free(text);
        return fail(err, CKPT_ELIMIT, "%s: too many layout maps, or out of memory", path);
    }
    *t = (cli_map_text){.path = strdup(path), .text = text};
    if (!t->path)
        return fail(err, CKPT_ELIMIT, "%s: out of memory", path);
    // a text of the user may be wrong
    if (text)
        maps_take_sides(t);
    else
        rc = text_read(&t->text, path, "a layout map", err);
    if (rc == CKPT_OK && !t->side[0] && !maps_use(t, err))
        rc = err->code;
    return rc;
}

static int maps_only(const struct dirent *e)
{
    size_t n = strlen(e->d_name);

    return n > 4 && e->d_name[0] != '.' && strcmp(e->d_name + n - 4, ".map") == 0;
}

/* Add all maps of a folder, ordered by name.  A missing folder is empty. */
static int maps_folder(cli_maps *m, const char *folder, ckpt_err *err)
{
    struct dirent **entry = NULL;
    int n = scandir(folder, &entry, maps_only, alphasort), rc = CKPT_OK;
    char path[MAPS_PATH];

    for (int i = 0; i < n; i++) {
        int k = snprintf(path, sizeof path, "%s/%s", folder, entry[i]->d_name);
        if (rc == CKPT_OK && k > 0 && (size_t)k < sizeof path)
            rc = maps_add(m, path, NULL, err);
        free(entry[i]);
    }
    free(entry);
    return rc;
}

/* Add the maps in the folders of $CKPT_MAPS. */
static int maps_of_user(cli_maps *m, ckpt_err *err)
{
    const char *at = getenv("CKPT_MAPS");
    char folder[MAPS_PATH];
    int rc = CKPT_OK;

    while (rc == CKPT_OK && at && *at) {
        size_t n = strcspn(at, ":");
        if (n > 0 && n < sizeof folder) {
            memcpy(folder, at, n);
            folder[n] = 0;
            rc = maps_folder(m, folder, err);
        }
        at += n;
        at += *at == ':';
    }
    return rc;
}

/* Add the maps that are linked into the program. */
static int maps_of_program(cli_maps *m, ckpt_err *err)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < maps_n_builtin; i++) {
        char *text = strdup(maps_builtin[i].text);
        rc = text ? maps_add(m, maps_builtin[i].name, text, err)
                  : fail(err, CKPT_ELIMIT, "out of memory");
    }
    return rc;
}

int maps_read(cli_maps *out, const char *name, ckpt_err *err)
{
    int rc;

    if (name && maps_is_path(name))
        return maps_add(out, name, NULL, err);
    rc = maps_of_user(out, err);
    if (rc == CKPT_OK)
        rc = maps_of_program(out, err);
    return rc;
}

const char *maps_default(const char *format, const char *path)
{
    const ckpt_format_info *f;

    if (!format && path)
        format = ckpt_format_from_path(path);
    f = format ? ckpt_format_find(format) : NULL;
    return f ? f->layout : NULL;
}

void maps_free(cli_maps *m)
{
    for (size_t i = 0; i < m->n; i++) {
        ckpt_remap_free(m->at[i].map);
        free(m->at[i].text);
        free(m->at[i].pair);
        free(m->at[i].path);
    }
    ckpt_vec_free(m);
    *m = (cli_maps){0};
}

/* True if a map connects the two layouts.  *backwards: it must be applied from right to left. */
static bool maps_leads(const cli_map_text *t, const char *from, const char *to, bool *backwards)
{
    *backwards = strcmp(t->side[1], from) == 0;
    if (strcmp(t->side[0], from) == 0 && strcmp(t->side[1], to) == 0) {
        *backwards = false;
        return true;
    }
    return *backwards && strcmp(t->side[0], to) == 0;
}

/* Without memory to parse the map the answer is false, and the command fails when it needs it. */
static bool maps_keeps_slices(cli_map_text *t, bool right)
{
    ckpt_err err = {0};
    const ckpt_remap *r = maps_use(t, &err);

    return r && ckpt_remap_keeps_slices(r, right);
}

bool maps_keep_slices(const cli_maps *maps, const char *name, bool backwards)
{
    size_t n = strcspn(name, ":");

    for (size_t i = 0; i < maps->n; i++) {
        cli_map_text *t = &maps->at[i];
        bool own = strcmp(t->path, name) == 0 || strcmp(maps_base(t->path), name) == 0;
        for (unsigned right = 0; right < 2; right++) {
            const char *side = t->side[right];
            if (((own && backwards == right) ||
                 (name[n] && strlen(side) == n && strncmp(side, name, n) == 0)) &&
                maps_keeps_slices(t, right))
                return true;
        }
    }
    return false;
}

/* The sizes that a map knows; NULL-terminated, to be freed. */
static const char **maps_sizes(const ckpt_remap *r, const char *const *sizes)
{
    size_t n = 0, kept = 0;
    char name[256];

    while (sizes && sizes[n])
        n++;
    const char **out = calloc(n + 1, sizeof *out);
    if (!out)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(sizes[i], "="), sizes[i]);
        if (ckpt_remap_has_size(r, name))
            out[kept++] = sizes[i];
    }
    return out;
}

bool maps_keep_blocks(ckpt_map *map, const cli_maps *maps, const char *name,
                      const ckpt_remap_opts *opts)
{
    char from[MAPS_NAME];
    const char *to = strchr(name, ':');

    (void)snprintf(from, sizeof from, "%.*s", (int)strcspn(name, ":"), name);
    for (size_t i = 0; i < maps->n; i++) {
        cli_map_text *t = &maps->at[i];
        const bool named = strcmp(t->path, name) == 0 || strcmp(maps_base(t->path), name) == 0;
        ckpt_remap_opts own = *opts;
        bool fits = false;
        if (!named && (!to || !maps_leads(t, from, to + 1, &own.backwards)))
            continue;
        ckpt_err err = {0};
        ckpt_remap *r = maps_use(t, &err);
        // a map that the user names is applied without a look at the model
        if (named || !r)
            return r && ckpt_remap_keeps_blocks(r, own.backwards);
        const char **sizes = maps_sizes(r, opts->sizes);
        own.sizes = sizes;
        fits = sizes && ckpt_remap_matches(map, r, &own, &fits, NULL) == CKPT_OK && fits;
        free(sizes);
        if (fits)
            return ckpt_remap_keeps_blocks(r, own.backwards);
    }
    return false;
}

/* Refuse a size that none of the named maps knows, because it is probably misspelt. */
static int maps_check_sizes(const cli_maps *maps, const char *name, const ckpt_remap_opts *opts,
                            ckpt_err *err)
{
    for (const char *const *s = opts->sizes; s && *s; s++) {
        size_t n = strcspn(*s, "=");
        char size[256];
        bool known = false;
        (void)snprintf(size, sizeof size, "%.*s", (int)n, *s);
        for (size_t i = 0; !known && i < maps->n; i++) {
            cli_map_text *t = &maps->at[i];
            const ckpt_remap *r;
            if (!strstr(name, t->side[0]) || !strstr(name, t->side[1]))
                continue;
            r = maps_use(t, err);
            if (!r)
                return err->code;
            known = ckpt_remap_has_size(r, size);
        }
        if (!known || !(*s)[n])
            return fail(err, CKPT_EUSAGE,
                        known ? "--size '%.80s': expected NAME=VALUE"
                              : "--size '%.80s': the layout map has no size of this name",
                        *s);
    }
    return CKPT_OK;
}

/* Apply the first map between two layouts that fits this architecture. */
static int maps_step(ckpt_map *map, const cli_maps *maps, const char *from, const char *to,
                     ckpt_remap_opts *opts, ckpt_err *err)
{
    bool known = false;

    for (size_t i = 0; i < maps->n; i++) {
        bool fits = false;
        ckpt_remap_opts own = *opts;
        if (!maps_leads(&maps->at[i], from, to, &own.backwards))
            continue;
        ckpt_remap *r = maps_use(&maps->at[i], err);
        if (!r)
            return err->code;
        const char **sizes = maps_sizes(r, opts->sizes);
        own.sizes = sizes;
        int rc = sizes ? ckpt_remap_matches(map, r, &own, &fits, err)
                       : fail(err, CKPT_ELIMIT, "out of memory");
        if (rc == CKPT_OK && fits)
            rc = ckpt_map_remap(map, r, &own, err);
        free(sizes);
        if (rc != CKPT_OK || fits)
            return rc;
        known = true;
    }
    if (!known)
        return fail(err, CKPT_EUSAGE, "unknown layout map %s:%s; `ckpt maps` lists the known ones",
                    from, to);
    return fail(err, CKPT_EUSAGE,
                "%s: no map %s:%s recognizes this model (`ckpt maps` lists them): give the model's "
                "config.json with --config if it is missing, or a map of your own with --map FILE",
                ckpt_map_path(map), from, to);
}

/*
 * The other side of the first map with `left` that recognizes this checkpoint's names; NULL: none.
 * The table of transformers' names comes last, because some of its rules also match names of other
 * layouts ("*.mlp.experts.*", Megatron's too) if a configuration names the model.
 */
static const char *maps_known(ckpt_map *map, const cli_maps *maps, const char *left,
                              ckpt_remap_opts *opts)
{
    for (size_t i = 0; i < 2 * maps->n; i++) {
        cli_map_text *t = &maps->at[i % maps->n];
        const bool table = strcmp(t->side[1], "packed") == 0;
        bool fits = false;
        ckpt_err err = {0};
        ckpt_remap *r;

        opts->backwards = true;
        if (table != (i >= maps->n) || strcmp(t->side[0], left) != 0)
            continue;
        r = maps_use(t, &err);
        if (r && ckpt_remap_recognizes(r) &&
            ckpt_remap_matches(map, r, opts, &fits, NULL) == CKPT_OK && fits)
            return t->side[1];
    }
    return NULL;
}

/* True if a list of layouts, separated by ':', has this one. */
static bool maps_lists(const char *list, const char *layout)
{
    const size_t n = strlen(layout);

    for (const char *at = list; at; at = strchr(at, ':') ? strchr(at, ':') + 1 : NULL) {
        if (strncmp(at, layout, n) == 0 && (at[n] == ':' || !at[n]))
            return true;
    }
    return false;
}

bool maps_route(char name[MAPS_NAME], const cli_maps *maps, const char *from, const char *to)
{
    const size_t n = strlen(name);
    bool backwards;

    if (n + strlen(from) + 2 > MAPS_NAME || maps_lists(name, from))
        return false;
    (void)snprintf(name + n, MAPS_NAME - n, "%s%s", n ? ":" : "", from);
    if (strcmp(from, to) == 0)
        return true;
    // a direct map first
    for (unsigned far = 0; far < 2; far++) {
        for (size_t i = 0; i < 2 * maps->n; i++) {
            const char *next = maps->at[i / 2].side[i % 2];

            if ((far || strcmp(next, to) == 0) &&
                maps_leads(&maps->at[i / 2], from, next, &backwards) &&
                maps_route(name, maps, next, to))
                return true;
        }
    }
    name[n] = 0;
    return false;
}

/* True if a map connects the two layouts. */
static bool maps_direct(const cli_maps *maps, const char *from, const char *to)
{
    bool backwards, leads = false;

    for (size_t i = 0; !leads && i < maps->n; i++)
        leads = maps_leads(&maps->at[i], from, to, &backwards);
    return leads;
}

const char *maps_needed(char name[MAPS_NAME], ckpt_map *map, const cli_maps *maps, const char *to,
                        ckpt_remap_opts *opts)
{
    const ckpt_format_info *from = ckpt_format_find(ckpt_map_format(map));
    // runs may have any names, whatever the format's own programs expect
    const bool own = from && from->layout && !(from->caps & CKPT_HAS_TAGS);
    const char *at[4] = {to}, *layout = own ? from->layout : NULL;
    size_t n = 1, used = 0;

    name[0] = 0;
    if (layout && strcmp(layout, to) == 0)
        return NULL;
    // all conversions go through Hugging Face's names
    if (strcmp(to, "hf") != 0)
        at[n++] = "hf";
    if (layout && strcmp(layout, "hf") != 0)
        at[n++] = layout;
    while (!layout && n < sizeof at / sizeof *at) {
        const char *other = maps_known(map, maps, at[n - 1], opts);
        // GGUF's maps know transformers' stacked experts directly
        if (!other || (n > 1 && strcmp(other, "packed") == 0))
            break;
        at[n++] = other;
    }
    if (n > 2 && strcmp(at[n - 1], to) == 0)
        return NULL;
    if (n > 2 && maps_direct(maps, at[n - 1], to)) {
        (void)snprintf(name, MAPS_NAME, "%s:%s", at[n - 1], to);
        return name;
    }
    // over others, if not all of these lead over Hugging Face's names
    if (n > 2 && maps_route(name, maps, at[n - 1], to) && !maps_lists(name, "hf"))
        return name;
    name[0] = 0;
    while (n > 2 && used < MAPS_NAME) {
        n--;
        used += (size_t)snprintf(name + used, MAPS_NAME - used, "%s%s", used ? ":" : "", at[n]);
    }
    // from Hugging Face's names, over other layouts if there is no direct map
    if (n == 2 && used < MAPS_NAME && !maps_route(name, maps, at[1], to))
        (void)snprintf(name + used, MAPS_NAME - used, "%s%s:%s", used ? ":" : "", at[1], to);
    return n == 2 ? name : NULL;
}

/* A map to apply: this one, or the first that fits between two layouts. */
typedef struct maps_one {
    ckpt_remap *only;
    const char *from, *to;
} maps_one;

/* Apply a map.  If it lacks a value, opts->like may give it; *liked: it did. */
static int maps_like(ckpt_map *map, const cli_maps *maps, const maps_one *one,
                     const ckpt_remap_opts *opts, bool *liked, ckpt_err *err)
{
    ckpt_remap_opts own = *opts;
    ckpt_err why[2] = {{0}, {0}};
    int rc[2];

    for (unsigned i = 0; i < 2; i++) {
        own.like = i ? opts->like : NULL;
        rc[i] = one->only ? ckpt_map_remap(map, one->only, &own, &why[i])
                          : maps_step(map, maps, one->from, one->to, &own, &why[i]);
        *liked = *liked || (i && rc[i] == CKPT_OK);
        if (rc[i] == CKPT_OK)
            return CKPT_OK;
        if (!opts->like)
            break;
    }
    return fail(err, rc[0], "%s", why[0].text);
}

/* Apply the maps of a list of layouts, one after the other. */
static int maps_chain(ckpt_map *map, const cli_maps *maps, const char *name,
                      const ckpt_remap_opts *opts, bool *liked, ckpt_err *err)
{
    char *copy = strdup(name), *from = copy, *to = copy ? strchr(copy, ':') : NULL;
    int rc = copy ? CKPT_OK : fail(err, CKPT_ELIMIT, "out of memory");

    if (rc == CKPT_OK && (!to || to == from))
        rc = fail(err, CKPT_EUSAGE, "--map %s: expected FROM:TO or a file; `ckpt maps` lists them",
                  name);
    if (rc == CKPT_OK)
        rc = maps_check_sizes(maps, name, opts, err);
    while (rc == CKPT_OK && to) {
        *to++ = 0;
        char *next = strchr(to, ':');
        if (next)
            *next = 0;
        rc = maps_like(map, maps, &(maps_one){NULL, from, to}, opts, liked, err);
        if (next)
            *next = ':';
        from = to;
        to = next;
    }
    free(copy);
    return rc;
}

/* Find a user's file, which is then the only map read, or an installed one; maps->n: none. */
static size_t maps_find_file(const cli_maps *maps, const char *name)
{
    size_t i = 0;

    while (i < maps->n && strcmp(maps->at[i].path, name) != 0 &&
           strcmp(maps_base(maps->at[i].path), name) != 0)
        i++;
    return i;
}

bool maps_is_file(const cli_maps *maps, const char *name)
{
    return maps_find_file(maps, name) < maps->n;
}

int maps_apply(ckpt_map *map, const cli_maps *maps, const char *name, ckpt_remap_opts *opts,
               ckpt_err *err)
{
    const size_t i = maps_find_file(maps, name);
    const bool one = i < maps->n;
    ckpt_remap *only = one ? maps_use(&maps->at[i], err) : NULL;
    bool liked = false;
    int rc;

    if (one && !only)
        return err->code;
    if (only)
        rc = maps_like(map, maps, &(maps_one){.only = only}, opts, &liked, err);
    else
        rc = maps_chain(map, maps, name, opts, &liked, err);
    opts->like = liked ? opts->like : NULL;
    return rc;
}
