/* SPDX-License-Identifier: Apache-2.0 */
/*
 * help.h: a folder of its own for each test, and files written into it.
 */
#ifndef TESTS_UNIT_FORMATS_HF_HELP_H
#define TESTS_UNIT_FORMATS_HF_HELP_H

#include <unistd.h>

#include "tests/unit/unit.h"

enum { MAX_FILES = 32 };

/* A folder of its own for each test; remove takes back what write_file made. */
typedef struct folder {
    char path[256];
    char file[MAX_FILES][320];
    unsigned n;
} folder;

static inline void folder_make(folder *f)
{
    const char *tmp = getenv("TMPDIR");

    *f = (folder){0};
    snprintf(f->path, sizeof f->path, "%.200s/ckpt-hf-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(f->path));
}

static inline void folder_remove(folder *f)
{
    while (f->n > 0)
        assert_int_equal(unlink(f->file[--f->n]), 0);
    assert_int_equal(rmdir(f->path), 0);
}

static inline void write_file(folder *f, const char *name, const void *bytes, size_t n)
{
    char path[320];

    assert_true(f->n < MAX_FILES);
    snprintf(path, sizeof path, "%.255s/%.60s", f->path, name);
    memcpy(f->file[f->n], path, sizeof path);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
    f->n++;
}

static inline void write_text(folder *f, const char *name, const char *text)
{
    write_file(f, name, text, strlen(text));
}

#endif
