/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drivers.c: finds drivers by name, suffix and number, for the library and its callers.
 */
#include "libckpt/drivers.h"
#include "ckpt_extra.h"

#include <string.h>

/* The next word of a list separated by spaces; false after the last. */
static bool drv_word(const char **list, const char **word, size_t *n)
{
    *word = *list ? *list + strspn(*list, " ") : "";
    *n = strcspn(*word, " ");
    *list = *word + *n;
    return *n > 0;
}

/* True if this is the format's name or one of its aliases. */
static bool drv_is(const ckpt_format_info *f, const char *name)
{
    const char *list = f->aliases, *word;
    size_t n;

    if (strcmp(f->name, name) == 0)
        return true;
    while (drv_word(&list, &word, &n)) {
        if (strlen(name) == n && memcmp(name, word, n) == 0)
            return true;
    }
    return false;
}

const ckpt_format *ckpt_driver_find(const char *name)
{
    for (size_t i = 0; name && ckpt_formats[i]; i++) {
        if (drv_is(&ckpt_formats[i]->is, name))
            return ckpt_formats[i];
    }
    return NULL;
}

const ckpt_directory *ckpt_directory_find(const char *name)
{
    for (size_t i = 0; name && ckpt_directories[i]; i++) {
        if (drv_is(&ckpt_directories[i]->is, name))
            return ckpt_directories[i];
    }
    return NULL;
}

/* ---- public functions ---- */

size_t ckpt_format_count(void)
{
    size_t n = 0, k = 0;

    while (ckpt_formats[n])
        n++;
    while (ckpt_directories[k])
        k++;
    return n + k;
}

const ckpt_format_info *ckpt_format_at(size_t i)
{
    size_t n = 0;

    for (; ckpt_formats[n]; n++) {
        if (n == i)
            return &ckpt_formats[n]->is;
    }
    for (size_t k = 0; ckpt_directories[k]; k++) {
        if (n + k == i)
            return &ckpt_directories[k]->is;
    }
    return NULL;
}

const ckpt_format_info *ckpt_format_find(const char *name)
{
    const ckpt_format *f = ckpt_driver_find(name);
    const ckpt_directory *d = f ? NULL : ckpt_directory_find(name);

    return f ? &f->is : d ? &d->is : NULL;
}

unsigned ckpt_format_caps(const char *name)
{
    const ckpt_format_info *f = ckpt_format_find(name);

    return f ? f->caps : 0;
}

/* True if the path ends in one of the suffixes and is longer than it. */
static bool drv_ends(const char *path, const char *suffixes)
{
    size_t n = strlen(path), m;
    const char *word;

    while (drv_word(&suffixes, &word, &m)) {
        if (n > m && memcmp(path + n - m, word, m) == 0)
            return true;
    }
    return false;
}

const char *ckpt_format_from_path(const char *path)
{
    const ckpt_format_info *f;

    for (size_t i = 0; path && (f = ckpt_format_at(i)); i++) {
        if ((f->caps & CKPT_CAN_WRITE) && !(f->caps & CKPT_IS_FOLDER) &&
            drv_ends(path, f->suffixes))
            return f->name;
    }
    return NULL;
}

bool ckpt_is_dict(const ckpt_map *map)
{
    return map->values && map->format && !(ckpt_format_caps(map->format) & CKPT_IS_FOLDER) &&
           map->states.n == 0 && map->files.n == 1;
}
