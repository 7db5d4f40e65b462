/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source_reader.c: reads, decodes and checksums sources.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/digest.h"
#include "libckpt/copy/source_reader.h"
#include "libckpt/io/inflate.h"
#include "libckpt/map/nest.h"

enum {
    FEED_CHUNK = 256 * 1024,   /* default bytes per read or decoding step */
    FEED_DEFLATE_RATIO = 1032, /* deflate's limit: 258 bytes from 2 bits */
    FEED_LABEL = 300
};

int ckpt_feed_open(ckpt_feed *out, const ckpt_map *map, const char *folder, uint64_t memory,
                   ckpt_err *err)
{
    assert(out && map);
    int rc;

    *out = (ckpt_feed){.map = map};
    rc = ckpt_nest_check(map, err);
    if (rc == CKPT_OK)
        rc = ckpt_io_pool_new(&out->pool, map, 0, err);
    if (rc == CKPT_OK)
        rc = ckpt_spool_new(&out->spool, map->sources.n, folder, memory, err);
    if (rc != CKPT_OK)
        ckpt_feed_close(out);
    return rc;
}

void ckpt_feed_close(ckpt_feed *s)
{
    ckpt_spool_free(s->spool);
    ckpt_io_pool_free(s->pool);
    *s = (ckpt_feed){0};
}

/* Format "file: record 'name'" for messages, in at most n bytes. */
static void feed_label(const ckpt_map *map, uint32_t source, char *text, size_t n)
{
    assert(source < map->sources.n && n > 0);
    const ckpt_source *s = &map->sources.at[source];
    const char *path = s->kind == CKPT_SOURCE_FILE && s->file < map->files.n
                           ? map->files.at[s->file].path
                           : "memory";

    if (s->name)
        (void)snprintf(text, n, "%s: record '%s'", path, s->name);
    else
        (void)snprintf(text, n, "%s: bytes from %" PRIu64, path, s->at);
}

int ckpt_feed_bad_crc(ckpt_map *into, const ckpt_map *map, uint32_t source, uint32_t found,
                      ckpt_err *err)
{
    static const char text[] = "%s: CRC-32 is %08" PRIx32 ", expected %08" PRIx32
                               ": one or more bits changed since it was written; restore the file";
    uint32_t expected = map->sources.at[source].crc;
    char label[FEED_LABEL];

    feed_label(map, source, label, sizeof label);
    return into ? ckpt_map_problem(into, CKPT_EFORMAT, err, text, label, found, expected)
                : ckpt_fail(err, CKPT_EFORMAT, text, label, found, expected);
}

/* Receives decoded bytes in order. */
typedef int (*feed_take_fn)(void *ctx, const uint8_t *p, uint64_t n, uint64_t at, ckpt_err *err);

typedef struct feed_inflate {
    ckpt_feed *feed;
    uint32_t index;
    const ckpt_source *src;
    ckpt_inflater *z;
    uint8_t *in, *out; /* FEED_CHUNK bytes each */
    uint64_t n_read;   /* stored bytes consumed so far */
    uint64_t n_made;   /* decoded bytes so far */
    feed_take_fn take;
    void *ctx;
} feed_inflate;

/* Report a deflated record with another size than the archive declares. */
static int feed_bad_stream(const feed_inflate *f, const char *what, ckpt_err *err)
{
    char label[FEED_LABEL];

    feed_label(f->feed->map, f->index, label, sizeof label);
    return ckpt_fail(err, CKPT_EFORMAT, "%s: %s the %" PRIu64 " bytes that it should decode to",
                     label, what, f->src->n_bytes);
}

/* Add the record to the inflater's message, because the inflater does not know it. */
static int feed_bad_deflate(const feed_inflate *f, int code, const ckpt_err *inner, ckpt_err *err)
{
    char label[FEED_LABEL];

    feed_label(f->feed->map, f->index, label, sizeof label);
    return ckpt_fail(err, code, "%s: %.160s", label, inner->text);
}

/* Decode one chunk of input; the output may have many chunks. */
static int feed_inflate_some(feed_inflate *f, const uint8_t *in, size_t n_in, ckpt_err *err)
{
    for (;;) {
        uint8_t *out = f->out;
        size_t room = FEED_CHUNK, made;
        ckpt_err inner = {0};
        int rc = ckpt_inflater_run(f->z, &in, &n_in, &out, &room, &inner);

        if (rc != CKPT_OK)
            return feed_bad_deflate(f, rc, &inner, err);
        made = FEED_CHUNK - room;
        if (made > f->src->n_bytes - f->n_made)
            return feed_bad_stream(f, "holds more than", err);
        if (made > 0)
            rc = f->take(f->ctx, f->out, made, f->n_made, err);
        f->n_made += made;
        if (rc != CKPT_OK)
            return rc;
        if (ckpt_inflater_ended(f->z) && n_in > 0)
            return feed_bad_stream(f, "has bytes left over after", err);
        // Space left in the output means that all input was used.
        if (ckpt_inflater_ended(f->z) || room > 0)
            return CKPT_OK;
    }
}

/* Read the stored bytes in chunks; the stream must end exactly with them. */
static int feed_inflate_loop(feed_inflate *f, ckpt_err *err)
{
    const ckpt_source *src = f->src;
    int rc = CKPT_OK;

    while (rc == CKPT_OK && !ckpt_inflater_ended(f->z) && f->n_read < src->n_stored) {
        uint64_t left = src->n_stored - f->n_read;
        uint64_t n = left < FEED_CHUNK ? left : FEED_CHUNK;

        rc = ckpt_io_pool_read(f->feed->pool, src->file, f->in, n, src->at + f->n_read, err);
        f->n_read += n;
        if (rc == CKPT_OK)
            rc = feed_inflate_some(f, f->in, (size_t)n, err);
    }
    if (rc == CKPT_OK && ckpt_inflater_ended(f->z) && f->n_read < src->n_stored)
        rc = feed_bad_stream(f, "has bytes left over after", err);
    if (rc == CKPT_OK && (!ckpt_inflater_ended(f->z) || f->n_made < src->n_bytes))
        rc = feed_bad_stream(f, "ends before", err);
    return rc;
}

/* Decode a complete record and pass its bytes to take; the size must match exactly. */
static int feed_inflate_run(ckpt_feed *s, uint32_t index, feed_take_fn take, void *ctx,
                            ckpt_err *err)
{
    feed_inflate f = {
        .feed = s, .index = index, .src = &s->map->sources.at[index], .take = take, .ctx = ctx};
    uint64_t end;
    int rc = CKPT_OK;

    if (!ckpt_add(f.src->at, f.src->n_stored, &end) ||
        f.src->n_bytes / FEED_DEFLATE_RATIO > f.src->n_stored)
        return feed_bad_stream(&f, "is too short for", err);
    f.in = ckpt_alloc(FEED_CHUNK);
    f.out = ckpt_alloc(FEED_CHUNK);
    rc = !f.in || !f.out ? ckpt_fail_memory(err) : ckpt_inflater_new(&f.z, err);
    if (rc == CKPT_OK)
        rc = feed_inflate_loop(&f, err);
    ckpt_inflater_free(f.z);
    ckpt_free(f.out);
    ckpt_free(f.in);
    return rc;
}

typedef struct feed_keep {
    ckpt_feed *feed;
    uint32_t index;
    uint32_t crc;
} feed_keep;

/* Write decoded bytes to the spool and update their CRC. */
static int feed_take_keep(void *ctx, const uint8_t *p, uint64_t n, uint64_t at, ckpt_err *err)
{
    feed_keep *k = ctx;

    k->crc = ckpt_crc32(k->crc, p, (size_t)n);
    return ckpt_spool_write(k->feed->spool, k->index, p, n, at, err);
}

/* Callback for decoded bytes: only update the CRC. */
static int feed_take_crc(void *ctx, const uint8_t *p, uint64_t n, uint64_t at, ckpt_err *err)
{
    uint32_t *crc = ctx;

    (void)at;
    (void)err;
    *crc = ckpt_crc32(*crc, p, (size_t)n);
    return CKPT_OK;
}

int ckpt_feed_decode(ckpt_feed *s, uint32_t source, ckpt_err *err)
{
    assert(source < s->map->sources.n);
    const ckpt_source *src = &s->map->sources.at[source];
    feed_keep keep = {s, source, 0};
    int rc;

    if (src->kind != CKPT_SOURCE_FILE || src->coding != CKPT_DEFLATE ||
        ckpt_spool_has(s->spool, source))
        return CKPT_OK;
    // A false size must not reserve memory: refuse a size that deflate cannot reach first.
    if (src->n_bytes / FEED_DEFLATE_RATIO <= src->n_stored) {
        rc = ckpt_spool_begin(s->spool, source, src->n_bytes, err);
        if (rc != CKPT_OK)
            return rc;
    }
    rc = feed_inflate_run(s, source, feed_take_keep, &keep, err);
    if (rc == CKPT_OK && src->has_crc && keep.crc != src->crc)
        rc = ckpt_feed_bad_crc(NULL, s->map, source, keep.crc, err);
    if (rc == CKPT_OK)
        ckpt_spool_end(s->spool, source);
    return rc;
}

/* Convert [at, at+n) of a raw record to an offset in its file. */
static int feed_file_range(const ckpt_feed *s, uint32_t source, uint64_t n, uint64_t at,
                           uint64_t *out, ckpt_err *err)
{
    const ckpt_source *src = &s->map->sources.at[source];
    char label[FEED_LABEL];

    if (ckpt_within(at, n, src->n_bytes) && ckpt_within(at, n, src->n_stored) &&
        ckpt_add(src->at, at, out))
        return CKPT_OK;
    feed_label(s->map, source, label, sizeof label);
    return ckpt_fail(err, CKPT_EFORMAT,
                     "%s: needs %" PRIu64 " bytes at offset %" PRIu64 ", but it has %" PRIu64,
                     label, n, at, src->n_stored);
}

/* Read raw bytes of a record in a file. */
static int feed_read_file(ckpt_feed *s, uint32_t source, void *buf, uint64_t n, uint64_t at,
                          ckpt_err *err)
{
    const ckpt_source *src = &s->map->sources.at[source];
    uint64_t in_file = 0;
    int rc = feed_file_range(s, source, n, at, &in_file, err);

    return rc != CKPT_OK ? rc : ckpt_io_pool_read(s->pool, src->file, buf, n, in_file, err);
}

/* Report a request that no extent of a checked map makes. */
static int feed_outside(const ckpt_feed *s, uint32_t source, uint64_t n, uint64_t at, ckpt_err *err)
{
    char label[FEED_LABEL];

    if (source >= s->map->sources.n)
        return ckpt_fail(err, CKPT_EUSAGE, "the map has no source %" PRIu32, source);
    feed_label(s->map, source, label, sizeof label);
    return ckpt_fail(err, CKPT_EFORMAT,
                     "%s: needs %" PRIu64 " bytes at offset %" PRIu64 ", but it has %" PRIu64,
                     label, n, at, s->map->sources.at[source].n_bytes);
}

static int feed_read_far(const ckpt_source *src, void *buf, uint64_t n, uint64_t at, ckpt_err *err)
{
    const ckpt_far *far = src->memory;

    return n > 0 ? far->read(far, buf, n, at, err) : CKPT_OK;
}

int ckpt_feed_read(ckpt_feed *s, uint32_t source, void *buf, uint64_t n, uint64_t at, ckpt_err *err)
{
    assert(source < s->map->sources.n);
    assert(buf || n == 0);
    const ckpt_source *src;

    if (source >= s->map->sources.n)
        return feed_outside(s, source, n, at, err);
    src = &s->map->sources.at[source];
    if (src->kind == CKPT_SOURCE_ZERO) {
        memset(buf, 0, (size_t)n);
        return CKPT_OK;
    }
    if (src->kind == CKPT_SOURCE_ELSEWHERE)
        return ckpt_fail(
            err, CKPT_EUSAGE,
            "%s: %" PRIu64 " bytes at offset %" PRIu64
            " belong to the part of another process: the layout does not match this process's part",
            src->name ? src->name : "memory", n, at);
    if (!ckpt_within(at, n, src->n_bytes))
        return feed_outside(s, source, n, at, err);
    if (src->kind == CKPT_SOURCE_MEMORY) {
        const uint8_t *from = src->memory;

        if (n > 0)
            memcpy(buf, from + at, (size_t)n);
        return CKPT_OK;
    }
    if (src->kind == CKPT_SOURCE_FAR)
        return feed_read_far(src, buf, n, at, err);
    if (src->coding == CKPT_RAW)
        return feed_read_file(s, source, buf, n, at, err);
    if (!ckpt_spool_has(s->spool, source))
        return ckpt_fail(err, CKPT_EUSAGE, "a compressed record was not decoded before use");
    return ckpt_spool_read(s->spool, source, buf, n, at, err);
}

/* Read a range and compute its CRC. */
static int feed_crc_read(ckpt_feed *s, uint32_t source, uint64_t at, uint64_t n, uint32_t *crc,
                         ckpt_err *err)
{
    uint64_t room = n < FEED_CHUNK ? n : FEED_CHUNK;
    uint8_t *buf = ckpt_alloc(room > 0 ? (size_t)room : 1);
    int rc = !buf ? ckpt_fail_memory(err) : CKPT_OK;

    while (rc == CKPT_OK && n > 0) {
        uint64_t some = n < room ? n : room;

        rc = ckpt_feed_read(s, source, buf, some, at, err);
        if (rc == CKPT_OK)
            *crc = ckpt_crc32(*crc, buf, (size_t)some);
        at += some;
        n -= some;
    }
    ckpt_free(buf);
    return rc;
}

int ckpt_feed_crc(ckpt_feed *s, uint32_t source, uint64_t at, uint64_t n, uint32_t *crc,
                  ckpt_err *err)
{
    assert(source < s->map->sources.n && crc);
    const ckpt_source *src = &s->map->sources.at[source];

    *crc = 0;
    if (src->kind == CKPT_SOURCE_FILE && src->coding == CKPT_DEFLATE &&
        !ckpt_spool_has(s->spool, source) && at == 0 && n == src->n_bytes)
        return feed_inflate_run(s, source, feed_take_crc, crc, err);
    return feed_crc_read(s, source, at, n, crc, err);
}
