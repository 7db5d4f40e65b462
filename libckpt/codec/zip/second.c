/* SPDX-License-Identifier: Apache-2.0 */
/*
 * second.c: an archive as libzip sees it, compared with what our reader saw.
 *
 * libzip reads through our own input: it opens nothing.  Only directories are compared, so that no
 * payload is read a second time: its checksums are those that were computed already.
 */
#include <string.h>
#include <zip.h>

#include "libckpt/base/mem.h"
#include "libckpt/codec/zip/zip.h"

/* One archive, open to both. */
typedef struct second_look {
    ckpt_io *io;
    uint64_t at; /* where libzip reads next */
    zip_error_t error;
    ckpt_err *err;
} second_look;

/* n bytes from where libzip is, or less at the end; -1: they cannot be read. */
static zip_int64_t second_read(second_look *s, void *buf, zip_uint64_t n)
{
    uint64_t left = s->io->size - s->at;
    ckpt_err err = {0};

    n = n < left ? n : left;
    if (n > 0 && ckpt_io_read(s->io, buf, n, s->at, &err) != CKPT_OK) {
        zip_error_set(&s->error, ZIP_ER_READ, 0);
        return -1;
    }
    s->at += n;
    return (zip_int64_t)n;
}

static zip_int64_t second_seek(second_look *s, void *args, zip_uint64_t n)
{
    zip_int64_t at = zip_source_seek_compute_offset(s->at, s->io->size, args, n, &s->error);

    if (at < 0 || (uint64_t)at > s->io->size)
        return -1;
    s->at = (uint64_t)at;
    return 0;
}

/* What libzip asks of its input. */
static zip_int64_t second_source(void *ctx, void *data, zip_uint64_t n, zip_source_cmd_t command)
{
    second_look *s = ctx;

    // what a file to be written is asked is refused as all that is unknown
    switch ((int)command) {
    case ZIP_SOURCE_OPEN:
        s->at = 0;
        return 0;
    case ZIP_SOURCE_READ:
        return second_read(s, data, n);
    case ZIP_SOURCE_SEEK:
        return second_seek(s, data, n);
    case ZIP_SOURCE_TELL:
        return (zip_int64_t)s->at;
    case ZIP_SOURCE_STAT: {
        zip_stat_t st;
        zip_stat_init(&st);
        st.size = s->io->size;
        st.valid = ZIP_STAT_SIZE;
        memcpy(data, &st, sizeof st);
        return sizeof st;
    }
    case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&s->error, data, n);
    case ZIP_SOURCE_CLOSE:
    case ZIP_SOURCE_FREE:
        return 0;
    case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE,
                                              ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE,
                                              ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL, -1);
    default:
        zip_error_set(&s->error, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
}

/* One entry of both directories. */
static int second_entry(second_look *s, zip_t *theirs, zip_uint64_t i, const ckpt_zip_record *r)
{
    const char *name = zip_get_name(theirs, i, ZIP_FL_ENC_RAW), *what = NULL;
    zip_stat_t st;

    zip_stat_init(&st);
    if (!name || zip_stat_index(theirs, i, 0, &st) != 0)
        return ckpt_fail(s->err, CKPT_EFORMAT, "%s: libzip cannot read entry %.200s: %s",
                         s->io->name, r->name, zip_strerror(theirs));
    if (strlen(name) != r->n_name || memcmp(name, r->name, r->n_name) != 0)
        what = "another name";
    else if (!(st.valid & ZIP_STAT_SIZE) || st.size != r->n_bytes)
        what = "another size";
    else if (!(st.valid & ZIP_STAT_COMP_SIZE) || st.comp_size != r->n_stored)
        what = "another stored size";
    else if (!(st.valid & ZIP_STAT_COMP_METHOD) || st.comp_method != r->method)
        what = "another compression";
    else if (!(st.valid & ZIP_STAT_CRC) || st.crc != r->crc)
        what = "another checksum";
    return what ? ckpt_fail(s->err, CKPT_EFORMAT,
                            "%s: record %.200s has %s for libzip: readers of this archive disagree",
                            s->io->name, r->name, what)
                : CKPT_OK;
}

/* The directory as libzip reads it. */
static int second_compare(second_look *s, zip_t *theirs, const ckpt_zip *ours)
{
    zip_int64_t n = zip_get_num_entries(theirs, 0);
    int rc = CKPT_OK;

    if (n < 0 || (uint64_t)n != ours->records.n)
        return ckpt_fail(s->err, CKPT_EFORMAT,
                         "%s: libzip finds %lld records, and there are %zu: readers of this "
                         "archive disagree",
                         s->io->name, (long long)n, ours->records.n);
    for (size_t i = 0; rc == CKPT_OK && i < ours->records.n; i++)
        rc = second_entry(s, theirs, i, &ours->records.at[i]);
    return rc;
}

/* Let libzip open what we have open, and compare. */
static int second_open(second_look *s, const ckpt_zip *ours)
{
    zip_error_t *e = &s->error;
    zip_source_t *source = zip_source_function_create(second_source, s, e);
    zip_t *theirs = source ? zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, e) : NULL;
    int rc;

    if (theirs) {
        rc = second_compare(s, theirs, ours);
        zip_discard(theirs);
        return rc;
    }
    if (zip_error_code_zip(e) == ZIP_ER_MEMORY)
        rc = ckpt_fail_memory(s->err);
    else
        rc = ckpt_fail(s->err, zip_error_code_zip(e) == ZIP_ER_READ ? CKPT_EIO : CKPT_EFORMAT,
                       "%s: libzip does not read this archive: %s", s->io->name,
                       zip_error_strerror(e));
    zip_source_free(source);
    return rc;
}

int ckpt_zip_second(ckpt_io *io, ckpt_err *err)
{
    second_look s = {.io = io, .err = err};
    ckpt_arena *arena = NULL;
    ckpt_zip ours = {0};
    uint8_t head[4] = {0};
    int rc = io->size < sizeof head ? CKPT_OK : ckpt_io_read(io, head, sizeof head, 0, err);

    if (rc != CKPT_OK || memcmp(head, "PK\3\4", sizeof head) != 0)
        return rc;
    arena = ckpt_arena_new(0);
    if (!arena)
        return ckpt_fail_memory(err);
    zip_error_init(&s.error);
    rc = ckpt_zip_open(&ours, arena, io, err);
    if (rc == CKPT_OK)
        rc = second_open(&s, &ours);
    zip_error_fini(&s.error);
    ckpt_zip_close(&ours);
    ckpt_arena_free(arena);
    return rc;
}
