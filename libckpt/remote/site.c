/* SPDX-License-Identifier: Apache-2.0 */
/*
 * site.c: keeps the list of files of one site, finds a file by name and makes its URL.
 */
#include "libckpt/remote/site.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/map/map.h"

static int sfl_compare(const void *a, const void *b)
{
    return strcmp(((const ckpt_site_file *)a)->name, ((const ckpt_site_file *)b)->name);
}

void ckpt_site_begin(ckpt_site *s)
{
    s->until = ckpt_fetch_now() + s->left;
}

void ckpt_site_end(ckpt_site *s)
{
    int64_t left = s->until - ckpt_fetch_now();

    s->left = left < s->left ? left : s->left;
}

int ckpt_site_list(ckpt_site *s, ckpt_err *err)
{
    int rc = CKPT_OK;

    if (!s->listed) {
        ckpt_site_begin(s);
        rc = s->kind->list(s, err);
        ckpt_site_end(s);
    }
    if (rc != CKPT_OK) {
        s->files.n = 0;
        return rc;
    }
    if (!s->listed && s->files.n > 1)
        qsort(s->files.at, s->files.n, sizeof *s->files.at, sfl_compare);
    s->listed = true;
    return CKPT_OK;
}

/*
 * Compare a name with "folder/": 0 if it lies below, otherwise its order relative to the names
 * below.
 */
static int sfl_to_folder(const char *name, const char *folder, size_t n)
{
    int order = strncmp(name, folder, n);

    return order != 0 ? order : (uint8_t)name[n] - '/';
}

size_t ckpt_site_range(const ckpt_site *s, const char *folder, size_t *first)
{
    size_t n = strlen(folder), low = 0, high = s->files.n, end;

    *first = 0;
    if (n == 0)
        return s->files.n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (sfl_to_folder(s->files.at[middle].name, folder, n) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *first = low;
    for (end = low; end < s->files.n; end++) {
        if (sfl_to_folder(s->files.at[end].name, folder, n) != 0)
            break;
    }
    return end - low;
}

const ckpt_site_file *ckpt_site_find(const ckpt_site *s, const char *name)
{
    const ckpt_site_file key = {.name = name};

    return s->files.n ? bsearch(&key, s->files.at, s->files.n, sizeof *s->files.at, sfl_compare)
                      : NULL;
}

/*
 * True if the name consists of plain parts separated by single slashes: it cannot leave its folder.
 */
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

int ckpt_site_count(ckpt_site *s, ckpt_err *err)
{
    return ++s->n_entries <= CKPT_SITE_FILES
               ? CKPT_OK
               : ckpt_fail(err, CKPT_ELIMIT, "%s: more than %d files: name a folder below it",
                           s->root, CKPT_SITE_FILES);
}

int ckpt_site_add(ckpt_site *s, const char *name, uint64_t size, ckpt_err *err)
{
    ckpt_site_file *f;

    if (!sfl_name_ok(name))
        return ckpt_fail(err, CKPT_EUNSAFE,
                         "%s: lists a file '%.100s', which is not a plain path in its folder",
                         s->root, name);
    if (ckpt_site_count(s, err) != CKPT_OK)
        return CKPT_ELIMIT;
    f = ckpt_vec_push(&s->files);
    if (f) {
        f->name = ckpt_arena_string(s->arena, name, strlen(name));
        f->size = size;
    }
    return f && f->name ? CKPT_OK : ckpt_fail_memory(err);
}

static bool sfl_same(const void *ctx, uint32_t number, const void *key)
{
    const ckpt_site *s = ctx;

    return strcmp(ckpt_remote_file_name(s->opened.at[number]), key) == 0;
}

int ckpt_site_get(ckpt_remote_file **out, ckpt_site *s, const char *name, ckpt_err *err)
{
    const char *address = ckpt_arena_printf(s->arena, "%s/%s", s->root, name);
    ckpt_remote_file **slot;
    ckpt_bytes url = {0};
    int rc = address ? CKPT_OK : ckpt_fail_memory(err);

    *out = NULL;
    if (rc != CKPT_OK)
        return rc;
    uint32_t hash = ckpt_hash_bytes(address, strlen(address), 0);
    uint32_t at = ckpt_index_find(&s->by_name, hash, sfl_same, s, address);

    if (at != CKPT_INDEX_NONE) {
        *out = s->opened.at[at];
        return CKPT_OK;
    }
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
    if (slot && rc == CKPT_OK && !ckpt_index_add(&s->by_name, hash, (uint32_t)(s->opened.n - 1))) {
        ckpt_remote_file_free(*slot);
        rc = ckpt_fail_memory(err);
    }
    if (slot && rc != CKPT_OK)
        s->opened.n--;
    ckpt_vec_free(&url);
    *out = rc == CKPT_OK ? *slot : NULL;
    return rc;
}
