/* SPDX-License-Identifier: Apache-2.0 */
/* same_prefix.c: removes a prefix that only one side of a comparison has. */
#include "tools/ckpt/same_prefix.h"

#include <stdio.h>
#include <string.h>

/* The number of names from which a prefix is guessed. */
enum { SPX_GUESSES = 64 };

/* True for a prefix that a rename rule takes as it is. */
static bool spx_plain(const char *prefix, size_t n)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";

    return n > 1 && n < PREFIX_ROOM && strspn(prefix, plain) >= n;
}

/*
 * Count the tensors of `map` alone that have a name of `other` alone after the prefix.  0: two
 * tensors would get one name.
 */
static size_t spx_fits(const ckpt_map *map, const ckpt_map *other, const char *prefix, size_t n)
{
    size_t fits = 0;

    for (size_t i = 0; i < ckpt_map_tensor_count(map); i++) {
        const char *name = ckpt_map_tensor_at(map, i)->name;

        if (strncmp(name, prefix, n) != 0)
            continue;
        if (!name[n] || ckpt_map_find(map, name + n))
            return 0;
        fits += !ckpt_map_find(other, name) && ckpt_map_find(other, name + n);
    }
    return fits;
}

/* The bytes before `end` in a name of `map`, if it ends so after a dot; NULL: no name does. */
static const char *spx_before(const ckpt_map *map, const ckpt_map *other, const char *end,
                              size_t *n)
{
    const size_t n_end = strlen(end);

    for (size_t i = 0; i < ckpt_map_tensor_count(map); i++) {
        const char *name = ckpt_map_tensor_at(map, i)->name;
        const size_t n_name = strlen(name);

        *n = n_name > n_end ? n_name - n_end : 0;
        if (*n > 0 && name[*n - 1] == '.' && strcmp(name + *n, end) == 0 && spx_plain(name, *n) &&
            !ckpt_map_find(other, name))
            return name;
    }
    return NULL;
}

int same_prefix(char prefix[PREFIX_ROOM], ckpt_map *map, const ckpt_map *other, ckpt_err *err)
{
    size_t lacks = 0, guesses = 0, n = 0;
    const char *found = NULL;
    char rule[PREFIX_ROOM + 8];

    prefix[0] = 0;
    for (size_t i = 0; i < ckpt_map_tensor_count(other); i++)
        lacks += !ckpt_map_find(map, ckpt_map_tensor_at(other, i)->name);
    for (size_t i = 0; i < ckpt_map_tensor_count(other) && !found && guesses < SPX_GUESSES; i++) {
        const char *name = ckpt_map_tensor_at(other, i)->name;

        if (ckpt_map_find(map, name))
            continue;
        guesses++;
        found = spx_before(map, other, name, &n);
        if (found && 2 * spx_fits(map, other, found, n) <= lacks)
            found = NULL;
    }
    if (!found)
        return CKPT_OK;
    (void)snprintf(prefix, PREFIX_ROOM, "%.*s", (int)n, found);
    (void)snprintf(rule, sizeof rule, "%s* *\n", prefix);
    return ckpt_map_select(map, &(ckpt_filter){.size = sizeof(ckpt_filter), .rename_text = rule},
                           err);
}
