/* SPDX-License-Identifier: Apache-2.0 */
/*
 * site.c: the files of one site: listed once, found by name, each with its URL.
 */
#include "libckpt/remote/site.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/map/map.h"

static int sfl_compare(const void *a, const void *b)
{
    return strcmp(((const ckpt_site_file *)a)->name, ((const ckpt_site_file *)b)->name);
}

int ckpt_site_list(ckpt_site *s, ckpt_err *err)
{
    int rc = s->listed ? CKPT_OK : s->kind->list(s, err);

    if (rc != CKPT_OK) {
        s->files.n = 0;
        return rc;
    }
    if (!s->listed && s->files.n > 1)
        qsort(s->files.at, s->files.n, sizeof *s->files.at, sfl_compare);
    s->listed = true;
    return CKPT_OK;
}

size_t ckpt_site_range(const ckpt_site *s, const char *folder, size_t *first)
{
    size_t n = strlen(folder), count = 0;

    *first = 0;
    if (n == 0)
        return s->files.n;
    for (size_t i = 0; i < s->files.n; i++) {
        const char *name = s->files.at[i].name;

        if (strncmp(name, folder, n) == 0 && name[n] == '/') {
            *first = count == 0 ? i : *first;
            count++;
        }
    }
    return count;
}

const ckpt_site_file *ckpt_site_find(const ckpt_site *s, const char *name)
{
    const ckpt_site_file key = {.name = name};

    return s->files.n ? bsearch(&key, s->files.at, s->files.n, sizeof *s->files.at, sfl_compare)
                      : NULL;
}

/* Plain parts divided by single slashes. */
static bool sfl_name_ok(const char *name)
{
    size_t n = strlen(name);

    for (size_t i = 0; i < n; i++) {
        if ((uint8_t)name[i] < 0x20 || name[i] == 0x7f)
            return false;
    }
    if (n == 0 || n > CKPT_SITE_NAME || !ckpt_utf8_ok(name, n))
        return false;
    for (const char *p = name;; p++) {
        size_t part = strcspn(p, "/");

        if (!ckpt_path_part_ok(p, part))
            return false;
        p += part;
        if (*p == 0)
            return true;
    }
}

int ckpt_site_add(ckpt_site *s, const char *name, uint64_t size, ckpt_err *err)
{
    ckpt_site_file *f;

    if (!sfl_name_ok(name))
        return ckpt_fail(err, CKPT_EUNSAFE,
                         "%s: lists a file '%.100s', which is no plain path in its folder", s->root,
                         name);
    if (s->files.n >= CKPT_SITE_FILES)
        return ckpt_fail(err, CKPT_ELIMIT, "%s: more than %d files: name a folder below it",
                         s->root, CKPT_SITE_FILES);
    f = ckpt_vec_push(&s->files);
    if (f) {
        f->name = ckpt_arena_string(s->arena, name, strlen(name));
        f->size = size;
    }
    return f && f->name ? CKPT_OK : ckpt_fail_memory(err);
}

int ckpt_site_get(ckpt_remote_file **out, ckpt_site *s, const char *name, ckpt_err *err)
{
    const char *address = ckpt_arena_printf(s->arena, "%s/%s", s->root, name);
    ckpt_remote_file **slot;
    ckpt_bytes url = {0};
    int rc = address ? CKPT_OK : ckpt_fail_memory(err);

    *out = NULL;
    for (size_t i = 0; rc == CKPT_OK && i < s->opened.n && !*out; i++) {
        if (strcmp(ckpt_remote_file_name(s->opened.at[i]), address) == 0)
            *out = s->opened.at[i];
    }
    if (rc != CKPT_OK || *out)
        return rc;
    if (s->given_name && strcmp(s->given_name, name) == 0)
        rc = ckpt_bytes_add(&url, s->given_url, strlen(s->given_url)) ? CKPT_OK
                                                                      : ckpt_fail_memory(err);
    else
        rc = s->kind->url(s, name, &url, err);
    if (rc == CKPT_OK && (url.n >= CKPT_FETCH_URL || !ckpt_bytes_add(&url, "", 1)))
        rc = ckpt_fail(err, CKPT_ELIMIT, "%s: too long for an address", address);
    slot = rc == CKPT_OK ? ckpt_vec_push(&s->opened) : NULL;
    if (slot)
        rc = ckpt_remote_file_new(slot, address, (const char *)url.at, &s->key, err);
    else if (rc == CKPT_OK)
        rc = ckpt_fail_memory(err);
    if (slot && rc != CKPT_OK)
        s->opened.n--;
    ckpt_vec_free(&url);
    *out = rc == CKPT_OK ? *slot : NULL;
    return rc;
}
