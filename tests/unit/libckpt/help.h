/* SPDX-License-Identifier: Apache-2.0 */
/*
 * help.h: temporary folders for tests that need real files: made, copied, filled, removed.
 */
#ifndef TESTS_UNIT_LIBCKPT_HELP_H
#define TESTS_UNIT_LIBCKPT_HELP_H

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/unit.h"

enum { FOLDER_PATH = 1024 };

/* "FOLDER/NAME" in out, which is neither of the two. */
static inline void folder_join(char out[FOLDER_PATH], const char *folder, const char *name)
{
    size_t n = strlen(folder), m = strlen(name);

    assert_true(n + m + 2 <= FOLDER_PATH);
    memcpy(out, folder, n);
    out[n] = '/';
    memcpy(out + n + 1, name, m + 1);
}

/* The same in one of a few buffers that are used in turn. */
static inline const char *folder_at(const char *folder, const char *name)
{
    static char buf[8][FOLDER_PATH];
    static unsigned turn;
    char *out = buf[turn++ % 8];

    folder_join(out, folder, name);
    return out;
}

/* A new empty folder below TMPDIR. */
static inline void folder_new(char out[FOLDER_PATH])
{
    const char *tmp = getenv("TMPDIR");

    folder_join(out, tmp ? tmp : "/tmp", "ckpt-test-XXXXXX");
    assert_non_null(mkdtemp(out));
}

static inline void folder_write(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static inline void folder_text(const char *folder, const char *name, const char *text)
{
    folder_write(folder_at(folder, name), text, strlen(text));
}

/* A file's bytes, at most room of them; their number. */
static inline size_t folder_read(const char *path, void *bytes, size_t room)
{
    FILE *f = fopen(path, "rb");

    assert_non_null(f);
    size_t n = fread(bytes, 1, room, f);
    (void)fclose(f);
    return n;
}

static inline void folder_copy_file(const char *from, const char *to)
{
    static char bytes[1 << 20];
    size_t n = folder_read(from, bytes, sizeof bytes);

    assert_true(n < sizeof bytes);
    folder_write(to, bytes, n);
}

static inline bool folder_has(const char *folder, const char *name)
{
    struct stat st;

    return lstat(folder_at(folder, name), &st) == 0;
}

/* Copy a folder of files and of folders of files. */
static inline void folder_copy(const char *from, const char *to)
{
    struct dirent *e;
    struct stat st;
    DIR *dir = opendir(from);

    assert_non_null(dir);
    (void)mkdir(to, 0777);
    while ((e = readdir(dir))) {
        char a[FOLDER_PATH], b[FOLDER_PATH];
        if (e->d_name[0] == '.')
            continue;
        folder_join(a, from, e->d_name);
        folder_join(b, to, e->d_name);
        assert_int_equal(stat(a, &st), 0);
        if (S_ISDIR(st.st_mode))
            folder_copy(a, b);
        else
            folder_copy_file(a, b);
    }
    (void)closedir(dir);
}

/* Remove a folder and what is in it. */
static inline void folder_remove(const char *path)
{
    struct dirent *e;
    struct stat st;
    DIR *dir = opendir(path);

    while (dir && (e = readdir(dir))) {
        char a[FOLDER_PATH];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        folder_join(a, path, e->d_name);
        if (lstat(a, &st) == 0 && S_ISDIR(st.st_mode))
            folder_remove(a);
        else
            (void)unlink(a);
    }
    if (dir)
        (void)closedir(dir);
    (void)rmdir(path);
}

#endif
