/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inflate.c: wraps zlib's decompressor; no other file uses it.
 */
#include <assert.h>

#include "libckpt/io/inflate.h"

#include <inttypes.h>
#include <limits.h>

#define ZLIB_CONST // makes zlib's input pointer const
#include <zlib.h>

#include "libckpt/base/mem.h"

struct ckpt_inflater {
    z_stream stream;
    bool ended;
};

/* zlib allocates through ckpt_alloc, so that tests can make it fail. */
static voidpf inf_alloc(voidpf ctx, uInt items, uInt size)
{
    uint64_t n;

    (void)ctx;
    return ckpt_mul(items, size, &n) ? ckpt_alloc((size_t)n) : NULL;
}

static void inf_free(voidpf ctx, voidpf p)
{
    (void)ctx;
    ckpt_free(p);
}

int ckpt_inflater_new(ckpt_inflater **out, ckpt_err *err)
{
    ckpt_inflater *z = ckpt_alloc(sizeof *z);

    *out = NULL;
    if (!z)
        return ckpt_fail_memory(err);
    z->stream.zalloc = inf_alloc;
    z->stream.zfree = inf_free;
    // Negative window bits: a raw stream, without zlib's own header and checksum.
    if (inflateInit2(&z->stream, -MAX_WBITS) != Z_OK) {
        ckpt_free(z);
        return ckpt_fail_memory(err);
    }
    *out = z;
    return CKPT_OK;
}

bool ckpt_inflater_ended(const ckpt_inflater *z)
{
    return z->ended;
}

void ckpt_inflater_free(ckpt_inflater *z)
{
    if (z) {
        inflateEnd(&z->stream);
        ckpt_free(z);
    }
}

/* zlib counts in 32 bits: the largest step of n bytes. */
static uInt inf_step(size_t n)
{
    return n > UINT_MAX ? UINT_MAX : (uInt)n;
}

/*
 * LIMIT: seven parameters: both ends of the stream are advanced in place, as zlib's own interface
 * does; a struct for them would only be unpacked again by every caller.
 */
int ckpt_inflater_run(ckpt_inflater *z, const uint8_t **in, size_t *n_in, uint8_t **out,
                      size_t *n_out, ckpt_err *err)
{
    assert(z && in && n_in && out && n_out);
    z_stream *s = &z->stream;
    uint8_t none;
    int rc = Z_OK;

    while (!z->ended && rc == Z_OK) {
        uInt give = inf_step(*n_in), room = inf_step(*n_out);

        s->next_in = *in;
        s->avail_in = give;
        // zlib needs a pointer even if no byte fits, because a stream may end without another byte.
        s->next_out = *n_out > 0 ? *out : &none;
        s->avail_out = room;
        rc = inflate(s, Z_NO_FLUSH);
        *in += give - s->avail_in;
        *n_in -= give - s->avail_in;
        *out += room - s->avail_out;
        *n_out -= room - s->avail_out;
        z->ended = rc == Z_STREAM_END;
    }
    if (z->ended || rc == Z_BUF_ERROR) { // Z_BUF_ERROR only means that no more progress is possible
        return CKPT_OK;
    }
    if (rc == Z_MEM_ERROR)
        return ckpt_fail_memory(err);
    return ckpt_fail(err, CKPT_EFORMAT, "the compressed data is damaged (%s)",
                     s->msg ? s->msg : "not a deflate stream");
}

/* Compare the end of a complete stream with the expected one. */
static int inf_judge(bool ended, size_t in_left, size_t out_left, uint64_t n_out, ckpt_err *err)
{
    if (!ended) {
        if (out_left > 0)
            return ckpt_fail(err, CKPT_EFORMAT,
                             "the compressed data ends after %" PRIu64 " of %" PRIu64 " bytes",
                             n_out - out_left, n_out);
        return ckpt_fail(err, in_left > 0 ? CKPT_ELIMIT : CKPT_EFORMAT,
                         "the compressed data does not end after the expected %" PRIu64 " bytes",
                         n_out);
    }
    if (out_left > 0)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "the compressed data holds %" PRIu64 " bytes, expected %" PRIu64,
                         n_out - out_left, n_out);
    if (in_left > 0)
        return ckpt_fail(err, CKPT_EFORMAT, "%zu bytes follow the end of the compressed data",
                         in_left);
    return CKPT_OK;
}

int ckpt_inflate_all(void *out, uint64_t n_out, const void *in, uint64_t n_in, ckpt_err *err)
{
    assert((out || n_out == 0) && (in || n_in == 0));
    ckpt_inflater *z;
    const uint8_t *from = in;
    uint8_t *to = out;
    size_t in_left = (size_t)n_in, out_left = (size_t)n_out;
    int rc;

    if (n_in > SIZE_MAX || n_out > SIZE_MAX)
        return ckpt_fail_memory(err);
    rc = ckpt_inflater_new(&z, err);
    if (rc != CKPT_OK)
        return rc;
    rc = ckpt_inflater_run(z, &from, &in_left, &to, &out_left, err);
    if (rc == CKPT_OK)
        rc = inf_judge(z->ended, in_left, out_left, n_out, err);
    ckpt_inflater_free(z);
    return rc;
}
