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

/* Parse a text and add it; it is freed with the maps.  NULL: read the file `path`. */
static int maps_add(cli_maps *m, const char *path, char *text, ckpt_err *err)
{
    cli_map_text *t = m->n < MAPS_MAX ? ckpt_vec_push(m) : NULL;

    if (!t) {
        free(text);
        return fail(err, CKPT_ELIMIT, "%s: too many layout maps, or out of memory", path);
    }
    *t = (cli_map_text){.path = strdup(path), .text = text};
    if (!t->path)
        return fail(err, CKPT_ELIMIT, "%s: out of memory", path);
    int rc = text ? CKPT_OK : text_read(&t->text, path, "a layout map", err);
    return rc == CKPT_OK ? ckpt_remap_new(&t->map, maps_base(path), t->text, err) : rc;
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
        free(m->at[i].path);
    }
    ckpt_vec_free(m);
    *m = (cli_maps){0};
}

/* True if a map connects the two layouts.  *backwards: it must be applied from right to left. */
static bool maps_leads(const ckpt_remap *r, const char *from, const char *to, bool *backwards)
{
    *backwards = strcmp(ckpt_remap_side(r, true), from) == 0;
    if (strcmp(ckpt_remap_side(r, false), from) == 0 && strcmp(ckpt_remap_side(r, true), to) == 0) {
        *backwards = false;
        return true;
    }
    return *backwards && strcmp(ckpt_remap_side(r, false), to) == 0;
}

bool maps_keep_slices(const cli_maps *maps, const char *name, bool backwards)
{
    size_t n = strcspn(name, ":");

    for (size_t i = 0; i < maps->n; i++) {
        const ckpt_remap *r = maps->at[i].map;
        bool own =
            strcmp(maps->at[i].path, name) == 0 || strcmp(maps_base(maps->at[i].path), name) == 0;
        for (unsigned right = 0; right < 2; right++) {
            const char *side = ckpt_remap_side(r, right);
            if (ckpt_remap_keeps_slices(r, right) &&
                ((own && backwards == right) ||
                 (name[n] && strlen(side) == n && strncmp(side, name, n) == 0)))
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
        ckpt_remap *r = maps->at[i].map;
        ckpt_remap_opts own = *opts;
        bool fits = false;
        // a map that the user names is applied without a look at the model
        if (strcmp(maps->at[i].path, name) == 0 || strcmp(maps_base(maps->at[i].path), name) == 0)
            return ckpt_remap_keeps_blocks(r, own.backwards);
        if (!to || !maps_leads(r, from, to + 1, &own.backwards))
            continue;
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
            const char *left = strstr(name, ckpt_remap_side(maps->at[i].map, false)),
                       *right = strstr(name, ckpt_remap_side(maps->at[i].map, true));
            known = left && right && ckpt_remap_has_size(maps->at[i].map, size);
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
        if (!maps_leads(maps->at[i].map, from, to, &own.backwards))
            continue;
        const char **sizes = maps_sizes(maps->at[i].map, opts->sizes);
        own.sizes = sizes;
        int rc = sizes ? ckpt_remap_matches(map, maps->at[i].map, &own, &fits, err)
                       : fail(err, CKPT_ELIMIT, "out of memory");
        if (rc == CKPT_OK && fits)
            rc = ckpt_map_remap(map, maps->at[i].map, &own, err);
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
        ckpt_remap *r = maps->at[i % maps->n].map;
        const bool table = strcmp(ckpt_remap_side(r, true), "packed") == 0;
        bool fits = false;

        opts->backwards = true;
        if (table == (i >= maps->n) && strcmp(ckpt_remap_side(r, false), left) == 0 &&
            ckpt_remap_recognizes(r) && ckpt_remap_matches(map, r, opts, &fits, NULL) == CKPT_OK &&
            fits)
            return ckpt_remap_side(r, true);
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
            const char *next = ckpt_remap_side(maps->at[i / 2].map, i % 2);

            if ((far || strcmp(next, to) == 0) &&
                maps_leads(maps->at[i / 2].map, from, next, &backwards) &&
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
        leads = maps_leads(maps->at[i].map, from, to, &backwards);
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
    bool liked = false;
    int rc;

    if (i < maps->n)
        rc = maps_like(map, maps, &(maps_one){.only = maps->at[i].map}, opts, &liked, err);
    else
        rc = maps_chain(map, maps, name, opts, &liked, err);
    opts->like = liked ? opts->like : NULL;
    return rc;
}
