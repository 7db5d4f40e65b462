/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_help.h: what targets share: promises, and files for readers that take paths, in a folder of
 * this process that is removed when it ends.
 */
#ifndef FUZZ_HELP_H
#define FUZZ_HELP_H

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Abort when the promise does not hold: the fuzzer then keeps the input. */
static inline void fuzz_broken(const char *file, int line, const char *promise)
{
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, promise);
    abort();
}
#define fuzz_require(held) ((held) ? (void)0 : fuzz_broken(__FILE__, __LINE__, #held))

static char fuzz_root[256];

static inline int fuzz_unlink(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

static inline void fuzz_leave(void)
{
    (void)nftw(fuzz_root, fuzz_unlink, 8, FTW_DEPTH | FTW_PHYS);
}

/* The folder, made at the first call. */
static inline const char *fuzz_folder(void)
{
    const char *tmp = getenv("TMPDIR");

    if (fuzz_root[0] == '\0') {
        snprintf(fuzz_root, sizeof fuzz_root, "%s/fuzz-XXXXXX", tmp ? tmp : "/tmp");
        fuzz_require(mkdtemp(fuzz_root) && atexit(fuzz_leave) == 0);
    }
    return fuzz_root;
}

/* Write a file of that name into the folder, and give its path (a static buffer). */
static inline const char *fuzz_file(const char *name, const uint8_t *bytes, size_t n)
{
    static char path[512];
    size_t done = 0;
    int fd;

    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    fuzz_require(fd >= 0);
    while (done < n) {
        ssize_t put = write(fd, bytes + done, n - done);

        fuzz_require(put > 0);
        done += (size_t)put;
    }
    fuzz_require(close(fd) == 0);
    return path;
}

/* The part of an input up to the next NUL or its end, as a text in buffer; the rest stays. */
static inline const char *fuzz_text(char *buffer, size_t room, const uint8_t **data, size_t *size)
{
    const uint8_t *stop = memchr(*data, 0, *size);
    size_t n = stop ? (size_t)(stop - *data) : *size, kept = n < room ? n : room - 1;

    memcpy(buffer, *data, kept);
    buffer[kept] = '\0';
    *data += stop ? n + 1 : n;
    *size -= stop ? n + 1 : n;
    return buffer;
}

#endif
