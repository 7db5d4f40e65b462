/* SPDX-License-Identifier: Apache-2.0 */
/*
 * help.h: for tests of pickles: reading bytes, files, and the data.pkl of torch archives.
 */
#ifndef TESTS_UNIT_CODEC_HELP_H
#define TESTS_UNIT_CODEC_HELP_H

#include "libckpt/codec/pickle/pickle.h"
#include "tests/unit/unit.h"

/* A pickle as read, with the arena its nodes live in. */
typedef struct help_pickle {
    ckpt_arena *arena;
    ckpt_pickle p;
    ckpt_err err;
    int rc;
} help_pickle;

static help_pickle help_read(const void *bytes, size_t n, bool legacy)
{
    help_pickle h = {.arena = ckpt_arena_new(0)};
    ckpt_pickle_opts opts = {.name = "test", .legacy_storages = legacy};
    // a copy of exactly n bytes, so that the sanitizers see every step beyond
    uint8_t *copy = malloc(n > 0 ? n : 1);

    assert_non_null(h.arena);
    assert_non_null(copy);
    memcpy(copy, bytes, n);
    h.rc = ckpt_pickle_read(&h.p, h.arena, copy, n, &opts, &h.err);
    free(copy);
    assert_int_equal(h.rc, h.err.code);
    if (h.rc != CKPT_OK) {
        assert_null(h.p.root);
        assert_int_equal(h.p.storages.n + h.p.globals.n, 0);
    }
    return h;
}

static void help_free(help_pickle *h)
{
    ckpt_pickle_free(&h->p);
    ckpt_arena_free(h->arena);
}

/* A whole file; NULL if it does not exist. */
static inline uint8_t *help_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    uint8_t *bytes;
    long size;

    if (!f)
        return NULL;
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    size = ftell(f);
    rewind(f);
    bytes = malloc((size_t)size + 1);
    assert_non_null(bytes);
    *n = fread(bytes, 1, (size_t)size, f);
    assert_int_equal(*n, size);
    (void)fclose(f);
    return bytes;
}

static inline uint32_t help_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/*
 * The stored record data.pkl of a small well-formed archive, found through its central directory;
 * NULL if there is none.
 */
static inline const uint8_t *help_data_pkl(const uint8_t *zip, size_t n, size_t *n_pkl)
{
    for (size_t i = 0; i + 46 <= n; i++) {
        size_t n_name = zip[i + 28 < n ? i + 28 : 0];
        const uint8_t *name = zip + i + 46;
        size_t at, from;

        if (help_u32(zip + i) != 0x02014B50 || i + 46 + n_name > n || n_name < 9 ||
            memcmp(name + n_name - 9, "/data.pkl", 9) != 0)
            continue;
        at = help_u32(zip + i + 42);
        *n_pkl = help_u32(zip + i + 24);
        if (at + 30 > n || zip[i + 10] != 0)
            return NULL;
        from = at + 30 + zip[at + 26] + (size_t)(zip[at + 28] | zip[at + 29] << 8);
        return from + *n_pkl <= n ? zip + from : NULL;
    }
    return NULL;
}

/* Folder of the fixtures, or NULL when the tests run without them. */
static inline const char *help_fixtures(void)
{
    static char path[4096];
    const char *shared = getenv("CKPT_SHARED");

    if (!shared)
        return getenv("CKPT_FIXTURES");
    (void)snprintf(path, sizeof path, "%s/fixtures", shared);
    return path;
}

#endif
