/* SPDX-License-Identifier: Apache-2.0 */
/*
 * help.h: what the tests of libckpt/copy share: folders that go away, files, and maps made by
 * hand.
 */
#ifndef TESTS_UNIT_COPY_HELP_H
#define TESTS_UNIT_COPY_HELP_H

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/digest.h"
#include "libckpt/io/io.h"
#include "libckpt/run/run.h"
#include "tests/unit/unit.h"

typedef struct help_dir {
    char path[256];
} help_dir;

static inline void help_dir_make(help_dir *d)
{
    const char *base = getenv("TMPDIR");

    (void)snprintf(d->path, sizeof d->path, "%.200s/ckpt-test-XXXXXX", base ? base : "/tmp");
    assert_non_null(mkdtemp(d->path));
}

/* Remove a folder and all in it; test folders are two levels deep, so recursing is fine. */
static inline void help_remove(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *e;

    while (dir && (e = readdir(dir))) {
        char sub[600];

        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (snprintf(sub, sizeof sub, "%s/%s", path, e->d_name) < (int)sizeof sub &&
            unlink(sub) != 0)
            help_remove(sub);
    }
    if (dir)
        (void)closedir(dir);
    (void)rmdir(path);
}

/* Entries of a folder, "." and ".." aside; -1: there is no such folder. */
static inline int help_count(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *e;
    int n = 0;

    if (!dir)
        return -1;
    while ((e = readdir(dir)))
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    (void)closedir(dir);
    return n;
}

static inline const char *help_join(const help_dir *d, const char *name)
{
    static char path[8][600];
    static unsigned next;
    char *p = path[next++ % 8];

    (void)snprintf(p, sizeof path[0], "%s/%s", d->path, name);
    return p;
}

static inline void help_write(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* A whole file; to be freed with ckpt_free. */
static inline uint8_t *help_read(const char *path, uint64_t *n)
{
    char *p = NULL;
    ckpt_err err = {0};

    assert_int_equal(ckpt_io_slurp(&p, n, path, UINT64_C(1) << 32, &err), CKPT_OK);
    return (uint8_t *)p;
}

/* Bytes that look like nothing in particular; as floats they are finite. */
static inline void help_noise(void *p, size_t n, uint64_t seed)
{
    uint8_t *b = p;

    for (size_t i = 0; i < n; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        // the byte that holds the exponent stays small
        b[i] = (uint8_t)(i % 4 == 3 ? 0x3d + (seed >> 63) : seed >> 56);
    }
}

/* n finite numbers; to be freed with ckpt_free. */
static inline float *help_values(uint64_t n, uint64_t seed)
{
    float *p = ckpt_alloc(n * sizeof *p);

    assert_non_null(p);
    help_noise(p, n * sizeof *p, seed);
    return p;
}

/* Enter an existing file into a map of what is read. */
static inline uint32_t help_input(ckpt_map *map, const char *path)
{
    ckpt_err err = {0};
    ckpt_map_file f = {0};
    ckpt_io *io = NULL;
    uint32_t i = 0;

    assert_int_equal(ckpt_io_open(&io, path, &err), CKPT_OK);
    ckpt_io_identify(io, &f);
    assert_int_equal(ckpt_map_add_file(map, &f, &i, &err), CKPT_OK);
    ckpt_io_close(io);
    return i;
}

/* A file to be written. */
static inline uint32_t help_output(ckpt_map *map, const char *name, uint64_t size)
{
    ckpt_err err = {0};
    const ckpt_map_file f = {.path = name, .size = size};
    uint32_t i = 0;

    assert_int_equal(ckpt_map_add_file(map, &f, &i, &err), CKPT_OK);
    return i;
}

/* n raw bytes of a file from offset at. */
static inline uint32_t help_source(ckpt_map *map, uint32_t file, uint64_t at, uint64_t n)
{
    ckpt_err err = {0};
    const ckpt_source s = {.kind = CKPT_SOURCE_FILE,
                           .file = file,
                           .at = at,
                           .n_stored = n,
                           .n_bytes = n,
                           .name = "rec"};
    uint32_t i = 0;

    assert_int_equal(ckpt_map_add_source(map, &s, &i, &err), CKPT_OK);
    return i;
}

static inline void help_crc(ckpt_map *map, uint32_t source, const void *bytes, size_t n)
{
    map->sources.at[source].has_crc = 1;
    map->sources.at[source].crc = ckpt_crc32(0, bytes, n);
}

static inline ckpt_map *help_map(void)
{
    ckpt_err err = {0};
    ckpt_map *map = NULL;

    assert_int_equal(ckpt_map_create(&map, 0, &err), CKPT_OK);
    return map;
}

static inline ckpt_tensor *help_tensor(ckpt_map *map, const char *name, ckpt_dtype dtype,
                                       unsigned ndim, const uint64_t *shape)
{
    ckpt_err err = {0};
    ckpt_tensor like = {.dtype = dtype, .ndim = ndim, .shape = shape, .n_elems = 1}, *t = NULL;

    for (unsigned i = 0; i < ndim; i++)
        like.n_elems *= shape[i];
    assert_int_equal(ckpt_map_add(map, name, strlen(name), &like, &t, &err), CKPT_OK);
    return t;
}

static inline void help_back(ckpt_map *map, ckpt_tensor *t, const ckpt_extent *e, uint32_t n)
{
    ckpt_err err = {0};

    assert_int_equal(ckpt_map_back(map, t, e, n, &err), CKPT_OK);
}

static inline void help_whole(ckpt_map *map, ckpt_tensor *t, uint32_t source, uint64_t at)
{
    ckpt_err err = {0};

    assert_int_equal(ckpt_map_back_whole(map, t, source, at, &err), CKPT_OK);
}

/* A target of one memory source that receives a whole tensor. */
static inline ckpt_map *help_memory(void *memory, uint64_t n)
{
    ckpt_map *map = help_map();
    const ckpt_source s = {.kind = CKPT_SOURCE_MEMORY, .memory = memory, .n_bytes = n};
    uint32_t i = 0;
    ckpt_err err = {0};

    assert_int_equal(ckpt_map_add_source(map, &s, &i, &err), CKPT_OK);
    return map;
}

/* Plan and run into the folder "out". */
static inline int help_convert(const help_dir *dir, const ckpt_map *from, ckpt_map *to,
                               const ckpt_run_opts *opts, ckpt_run_report *report, ckpt_err *err)
{
    ckpt_plan *plan = NULL;
    int rc = ckpt_plan_make(&plan, from, to, ckpt_run_block(opts->memory, opts->jobs), err);

    if (rc == CKPT_OK)
        rc =
            ckpt_run(plan, to->files.n > 0 ? help_join(dir, "out") : NULL, opts, NULL, report, err);
    ckpt_plan_free(plan);
    return rc;
}

/* A deflate stream of stored blocks: n bytes. */
static inline ckpt_bytes help_deflate(const uint8_t *p, size_t n)
{
    ckpt_bytes b = {0};

    do {
        uint16_t some = n < 60000 ? (uint16_t)n : 60000;
        const uint8_t head[5] = {some == n, (uint8_t)some, (uint8_t)(some >> 8), (uint8_t)~some,
                                 (uint8_t)(~some >> 8)};

        assert_true(ckpt_bytes_add(&b, head, 5) && ckpt_bytes_add(&b, p, some));
        p += some;
        n -= some;
    } while (n > 0);
    return b;
}

#endif
