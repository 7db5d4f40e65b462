/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_run.h: for targets whose input is a run folder, "run", of any files.
 *
 * Input: files one after the other: a byte with the length of the name, the name, three bytes with
 * the length of the file (little-endian), its bytes.
 */
#ifndef TESTS_FUZZ_RUN_H
#define TESTS_FUZZ_RUN_H

#include "ckpt_extra.h"
#include "libckpt/format.h"
#include "tests/fuzz/fuzz_help.h"

enum { MOST_FILES = 64, MOST_VALUES = 1 << 16 };

/* A relative path of plain names, so that nothing outside the folder is written. */
static inline int plain(const char *name)
{
    size_t part = 0;

    for (const char *p = name; *p != '\0'; p++) {
        if (*p == '/' && part == 0)
            return 0;
        if (!((*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9') || (*p >= 'A' && *p <= 'Z') ||
              strchr("_./", *p)))
            return 0;
        part = *p == '/' ? 0 : part + 1;
        if (part == 1 && *p == '.' && strncmp(p, ".metadata", 9) != 0)
            return 0;
    }
    return part > 0;
}

/* Make the folders of a path; false where a file is in the way. */
static inline int make_folders(const char *name)
{
    char path[512];

    for (const char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(path, sizeof path, "%s/run/%.*s", fuzz_folder(), (int)(slash - name), name);
        if (mkdir(path, 0700) != 0 && errno != EEXIST)
            return 0;
    }
    return 1;
}

/* False when a name is that of a folder. */
static inline int put(const char *name, const uint8_t *bytes, size_t n)
{
    char path[512];
    struct stat st;

    snprintf(path, sizeof path, "%s/run/%s", fuzz_folder(), name);
    if (stat(path, &st) == 0 ? S_ISDIR(st.st_mode) : errno != ENOENT)
        return 0;
    snprintf(path, sizeof path, "run/%s", name);
    fuzz_file(path, bytes, n);
    return 1;
}

/* The folder "run", anew. */
static inline void fuzz_run_begin(void)
{
    char path[512];

    snprintf(path, sizeof path, "%s/run", fuzz_folder());
    (void)nftw(path, fuzz_unlink, 8, FTW_DEPTH | FTW_PHYS);
    fuzz_require(mkdir(path, 0700) == 0);
}

/* Its files, as the input has them. */
static inline void unpack(const uint8_t *data, size_t size)
{
    char name[256];

    fuzz_run_begin();
    for (int i = 0; i < MOST_FILES && size > 0; i++) {
        size_t n_name = data[0], n;

        if (size < n_name + 4)
            return;
        memcpy(name, data + 1, n_name);
        name[n_name] = '\0';
        n = (size_t)(data[n_name + 1] | data[n_name + 2] << 8 | data[n_name + 3] << 16);
        data += n_name + 4;
        size -= n_name + 4;
        n = n < size ? n : size;
        if (plain(name) && make_folders(name))
            (void)put(name, data, n);
        data += n;
        size -= n;
    }
}

static inline void read_values(const ckpt_map *map)
{
    ckpt_reader *r = NULL;
    ckpt_err err = {0};
    static uint8_t buf[MOST_VALUES * 16];

    fuzz_require(ckpt_reader_new(&r, map, &err) == CKPT_OK);
    for (size_t i = 0; i < ckpt_map_tensor_count(map); i++) {
        const ckpt_tensor *t = ckpt_map_tensor_at(map, i);
        uint64_t n = t->n_elems < MOST_VALUES ? t->n_elems : MOST_VALUES;

        if (n > 0 && ckpt_reader_read(r, t, 0, n, CKPT_DTYPE_NONE, buf, &err) != CKPT_OK)
            fuzz_require(err.text[0] != '\0');
    }
    ckpt_reader_free(r);
}

/* Open the run with its optimizer state, check it, read its values. */
static inline int fuzz_run_open(bool collect)
{
    const ckpt_open_opts opts = {.with_optimizer = true, .collect = collect};
    char path[512];
    ckpt_map *map = NULL;
    ckpt_err err = {0};
    int rc;

    snprintf(path, sizeof path, "%s/run", fuzz_folder());
    rc = ckpt_open(&map, path, &opts, &err);
    fuzz_require(rc == CKPT_OK || (err.code == rc && err.text[0] != '\0'));
    if (rc == CKPT_OK) {
        if (!opts.collect)
            fuzz_require(ckpt_map_check(map, &err) == CKPT_OK);
        read_values(map);
    }
    ckpt_map_free(map);
    return 0;
}

/* The same of the files in the input. */
static inline int fuzz_run(const uint8_t *data, size_t size)
{
    unpack(data, size);
    return fuzz_run_open(size % 2);
}

#endif
