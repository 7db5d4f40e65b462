/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokens.c: reads one long sequence of tokens from a file and divides it into samples: .bin (uint16
 * or uint32, no header) and .npy.
 *
 * .npy: "\x93NUMPY", version, length of a header that is a Python dict of descr, fortran_order and
 * shape (numpy/lib/format.py, versions 1 to 3).  One axis is cut into samples; two are [sample,
 * token].
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/data/source.h"
#include "libckpt/base/number.h"

typedef struct tk_source {
    zt_source base;
    const char *path;
    int fd;
    unsigned width;  /* bytes of a token */
    uint64_t at;     /* offset of the first token in bytes */
    uint64_t tokens; /* number of tokens in the file */
    uint64_t vocab;
    const char *other; /* another width that may be right, or NULL */
    uint8_t *row;
} tk_source;

static int tk_read(const tk_source *s, void *to, size_t n, uint64_t at, ckpt_err *err)
{
    uint8_t *p = to;

    while (n > 0) {
        ssize_t got = pread(s->fd, p, n, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot be read", s->path);
        if (got == 0)
            return ckpt_fail(err, CKPT_EFORMAT,
                             "%s: the file was shortened to %" PRIu64 " bytes while it was read",
                             s->path, at);
        p += got;
        at += (uint64_t)got;
        n -= (size_t)got;
    }
    return CKPT_OK;
}

static uint64_t tk_token(const tk_source *s, const uint8_t *at)
{
    uint64_t token = 0;

    for (unsigned k = 0; k < s->width; k++)
        token |= (uint64_t)at[k] << (8 * k);
    return token;
}

static int tk_get(zt_source *base, uint64_t sample, uint64_t row, const zt_inputs *in,
                  uint64_t *length, ckpt_err *err)
{
    tk_source *s = (tk_source *)base;
    uint64_t seq = s->base.seq, first = sample * seq;
    int32_t *out = in->input_ids + row * seq;
    int rc = tk_read(s, s->row, (size_t)seq * s->width, s->at + first * s->width, err);

    for (uint64_t i = 0; rc == CKPT_OK && i < seq; i++) {
        uint64_t token = tk_token(s, s->row + i * s->width);
        if (token >= s->vocab)
            rc = ckpt_fail(err, CKPT_EFORMAT,
                           "%s: token %" PRIu64 " is %" PRIu64 ", but the vocabulary has %" PRIu64
                           " tokens: made with another tokenizer%s%s",
                           s->path, first + i, token, s->vocab, s->other ? ", or with " : "",
                           s->other ? s->other : "");
        out[i] = (int32_t)token;
    }
    *length = seq;
    return rc;
}

static void tk_free(zt_source *base)
{
    tk_source *s = (tk_source *)base;

    if (s->fd >= 0)
        close(s->fd);
    ckpt_free(s->row);
    ckpt_free(s);
}

static const zt_source_ops tk_ops = {.get = tk_get, .free = tk_free};

/* ---- headers ---- */

/* The value after 'key': in a header; NULL if it is missing. */
static const char *tk_field(const char *header, const char *key)
{
    const char *p = strstr(header, key);

    if (!p)
        return NULL;
    p += strlen(key);
    return p + strspn(p, "': ");
}

/* Parse the shape (n,) or (n, m); *two: m, or 0. */
static bool tk_shape(const char *p, uint64_t *one, uint64_t *two)
{
    *two = 0;
    p = p && *p == '(' ? ckpt_scan_u64(p + 1, one) : NULL;
    if (p)
        p += strspn(p, ", ");
    if (p && *p >= '0' && *p <= '9') {
        p = ckpt_scan_u64(p, two);
        if (p)
            p += strspn(p, ", ");
    }
    return p && *p == ')';
}

static int tk_npy(tk_source *s, uint64_t size, uint64_t *row, ckpt_err *err)
{
    uint8_t head[12];
    char text[4096];
    uint64_t n, one = 0, two = 0, bytes;
    const char *descr, *fortran;
    int rc = size < 16 ? ckpt_fail(err, CKPT_EFORMAT, "%s: too short for a .npy file", s->path)
                       : tk_read(s, head, sizeof head, 0, err);

    if (rc != CKPT_OK)
        return rc;
    if (memcmp(head, "\x93NUMPY", 6) != 0 || head[6] < 1 || head[6] > 3)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: is not a .npy file of version 1 to 3", s->path);
    s->at = head[6] == 1 ? 10 : 12;
    n = (uint64_t)head[8] | (uint64_t)head[9] << 8;
    n |= head[6] == 1 ? 0 : (uint64_t)head[10] << 16 | (uint64_t)head[11] << 24;
    if (n >= sizeof text || !ckpt_within(s->at, n, size))
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: the header of %" PRIu64 " bytes exceeds the file or the limit",
                         s->path, n);
    rc = tk_read(s, text, (size_t)n, s->at, err);
    if (rc != CKPT_OK)
        return rc;
    text[n] = 0;
    s->at += n;
    descr = tk_field(text, "'descr'");
    fortran = tk_field(text, "'fortran_order'");
    if (!descr || !fortran || !tk_shape(tk_field(text, "'shape'"), &one, &two))
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: expected descr, fortran_order and a shape of one or two axes",
                         s->path);
    // in this order, because each strspn stops at the terminator
    if (!strspn(descr, "<|") || !strspn(descr + 1, "ui") || !strspn(descr + 2, "1248"))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: expected little-endian integers, found %.4s",
                         s->path, descr);
    if (two && strncmp(fortran, "True", 4) == 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: expected an array in C order, found Fortran order", s->path);
    s->width = (unsigned)(descr[2] - '0');
    if (!ckpt_mul(one, two ? two : 1, &s->tokens) || !ckpt_mul(s->tokens, s->width, &bytes) ||
        !ckpt_within(s->at, bytes, size))
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: %" PRIu64 " x %" PRIu64 " tokens do not fit in %" PRIu64 " bytes",
                         s->path, one, two ? two : 1, size);
    *row = two;
    return CKPT_OK;
}

static int tk_bin(tk_source *s, const zt_data_opts *o, uint64_t size, ckpt_err *err)
{
    const zt_token_file f = {s->fd, s->path, size, s->vocab, o->token_dtype};
    int rc = zt_tokens_width(&f, &s->width, &s->other, err);

    if (rc != CKPT_OK)
        return rc;
    if (size % s->width)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: %" PRIu64 " bytes are not a whole number of tokens of %u bytes",
                         s->path, size, s->width);
    s->tokens = size / s->width;
    return CKPT_OK;
}

static int tk_layout(tk_source *s, const zt_data_opts *o, ckpt_err *err)
{
    size_t n = strlen(o->path);
    uint64_t row = 0;
    struct stat st;
    int rc;

    if (fstat(s->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return ckpt_fail(err, CKPT_EIO, "%s: is not a regular file", s->path);
    rc = strcmp(o->path + n - 4, ".npy") == 0 ? tk_npy(s, (uint64_t)st.st_size, &row, err)
                                              : tk_bin(s, o, (uint64_t)st.st_size, err);
    if (rc != CKPT_OK)
        return rc;
    if (row && o->seq && o->seq != row)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s: has rows of %" PRIu64 " tokens, but --seq is %" PRIu64, s->path, row,
                         o->seq);
    s->base.seq = row ? row : o->seq ? o->seq : o->model->positions;
    if (s->base.seq == 0 || s->base.seq > UINT32_MAX)
        return ckpt_fail(err, CKPT_EUSAGE, "%s: give the number of tokens in a sample with --seq",
                         s->path);
    s->base.count = s->tokens / s->base.seq;
    s->base.unused.tokens = s->tokens % s->base.seq;
    s->row = ckpt_alloc((size_t)(s->base.seq * s->width));
    return s->row ? CKPT_OK : ckpt_fail_memory(err);
}

int zt_tokens_open(zt_source **out, const zt_data_opts *o, ckpt_err *err)
{
    tk_source *s = ckpt_alloc(sizeof *s);
    int rc;

    if (!s)
        return ckpt_fail_memory(err);
    *s = (tk_source){.base.ops = &tk_ops, .path = o->path, .vocab = o->model->vocab};
    s->fd = open(o->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (s->fd < 0)
        rc = ckpt_fail_sys(err, ckpt_open_code(errno), errno, "%s: cannot be opened", o->path);
    else
        rc = tk_layout(s, o, err);
    if (rc == CKPT_OK)
        *out = &s->base;
    else
        tk_free(&s->base);
    return rc;
}
