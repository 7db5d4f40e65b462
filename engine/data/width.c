/* SPDX-License-Identifier: Apache-2.0 */
/*
 * width.c: finds the bytes per token of a .bin file, which has no header for it.
 *
 * A file read with the wrong width still gives tokens: 32-bit tokens read as 16-bit ones are a 0
 * after each token, and a run would learn the zeros.  So zerotrain refuses a file whose bytes
 * contradict the width, and never guesses.
 *
 * Headers: llm.c (dev/data/data_common.py) begins its files with 256 int32, the first 20240520
 * (tokens of 2 bytes) or 20240801 (4).  Megatron-LM (core/datasets/indexed_dataset.py) has an index
 * beside the file: "MMIDIDX\0\0", a version in 8 bytes, then a byte for the dtype.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/data/source.h"
#include "libckpt/io/io.h"

enum { WD_LOOK = 1 << 14 /* bytes at a time */, WD_PATH = 4096, WD_INDEX = 18 };

/* Read n bytes at an offset, fewer if the file ends.  -1: see errno. */
static ssize_t wd_read(int fd, uint8_t *to, size_t n, uint64_t at)
{
    size_t have = 0;

    while (have < n) {
        ssize_t got = pread(fd, to + have, n - have, (off_t)(at + have));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        have += (size_t)got;
    }
    return (ssize_t)have;
}

/* Read the dtype byte of Megatron's index beside the file; 0: no index. */
static unsigned wd_index(const char *path)
{
    char name[WD_PATH];
    uint8_t head[WD_INDEX] = {0};
    size_t n = strlen(path);
    ssize_t got = -1;
    int fd;

    if (n < 4 || n >= sizeof name)
        return 0;
    (void)snprintf(name, sizeof name, "%.*s.idx", (int)(n - 4), path);
    fd = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) {
        got = wd_read(fd, head, sizeof head, 0);
        (void)close(fd);
    }
    return got == WD_INDEX && memcmp(head, "MMIDIDX\0", 9) == 0 ? head[WD_INDEX - 1] : 0;
}

/* Refuse files that begin with a known header instead of tokens. */
static int wd_header(const zt_token_file *f, ckpt_err *err)
{
    static const struct {
        uint32_t magic;
        const char *dtype;
    } llm[] = {{20240520, "uint16"}, {20240801, "uint32"}};
    uint8_t head[8] = {0};
    uint32_t first;

    if (wd_read(f->fd, head, sizeof head, 0) < 0)
        return ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot be read", f->path);
    first = (uint32_t)head[0] | (uint32_t)head[1] << 8 | (uint32_t)head[2] << 16 |
            (uint32_t)head[3] << 24;
    if (memcmp(head, "\x93NUMPY", 6) == 0)
        return ckpt_fail(err, CKPT_EUSAGE, "%s: is a .npy file: rename it to end in .npy", f->path);
    for (size_t i = 0; i < sizeof llm / sizeof *llm; i++) {
        if (first == llm[i].magic)
            return ckpt_fail(err, CKPT_EUSAGE,
                             "%s: begins with the header of llm.c: remove it with tail -c +1025, "
                             "and read the rest with --token-dtype %s",
                             f->path, llm[i].dtype);
    }
    return CKPT_OK;
}

/*
 * Find which of every 8 bytes are ever non-zero, as a bit mask; stops when further bytes cannot
 * change the result.
 */
static int wd_bytes(const zt_token_file *f, unsigned *used, ckpt_err *err)
{
    uint8_t block[WD_LOOK];
    uint64_t at = 0;

    *used = 0;
    // stop once bytes 2 or 3, and 6 or 7, are in use, because the tokens then cannot be wider
    while (at < f->size && !((*used & 0x0Cu) && (*used & 0xC0u))) {
        ssize_t got = wd_read(f->fd, block, sizeof block, at);
        if (got < 0)
            return ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot be read", f->path);
        if (got == 0)
            break;
        for (ssize_t i = 0; i < got; i++)
            *used |= block[i] ? 1u << (i & 7) : 0;
        at += (uint64_t)got;
    }
    return CKPT_OK;
}

/*
 * Refuse a file that looks like tokens of another width: one of 64-bit tokens always, one of 32-bit
 * tokens unless the caller states that they have 16.
 */
static int wd_doubt(const zt_token_file *f, unsigned width, ckpt_err *err)
{
    unsigned used = 0;
    int rc = wd_bytes(f, &used, err);

    if (rc != CKPT_OK || f->size < 16)
        return rc;
    if (f->size % 8 == 0 && (used & 0x0Fu) && !(used & 0xF0u) && (width == 4 || !(used & 0x0Cu)))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s: the last %d of every 8 bytes are 0, as in a file of 64-bit tokens: "
                         "write them as uint16 or uint32, or as .npy, whose header names the dtype",
                         f->path, width == 2 ? 6 : 4);
    if (!f->dtype && width == 2 && f->size % 4 == 0 && (used & 0x33u) && !(used & 0xCCu))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s: every second 16-bit token is 0, as in a file of 32-bit tokens: use "
                         "--token-dtype uint32, or uint16 if these tokens are right",
                         f->path);
    return CKPT_OK;
}

int zt_tokens_width(const zt_token_file *f, unsigned *width, const char **other, ckpt_err *err)
{
    const unsigned code = wd_index(f->path), told = code == 8 ? 2 : code == 4 ? 4 : 0;
    const bool given = f->dtype != NULL;
    int rc;

    if (given && strcmp(f->dtype, "uint16") != 0 && strcmp(f->dtype, "uint32") != 0)
        return ckpt_fail(err, CKPT_EUSAGE, "--token-dtype %s: expected uint16 or uint32", f->dtype);
    *width = given ? (strcmp(f->dtype, "uint16") == 0 ? 2 : 4) : f->vocab <= 65536 ? 2 : 4;
    if (code && (!told || (given && told != *width)))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s: the Megatron index (.idx) of this file declares tokens of another "
                         "dtype (code %u)%s",
                         f->path, code,
                         told == 2   ? ": use --token-dtype uint16"
                         : told == 4 ? ": use --token-dtype uint32"
                                     : ", which is not supported");
    *width = code ? told : *width;
    *other = *width == 2 ? "--token-dtype uint32" : "--token-dtype uint16";
    rc = wd_header(f, err);
    return rc == CKPT_OK && !code ? wd_doubt(f, *width, err) : rc;
}
