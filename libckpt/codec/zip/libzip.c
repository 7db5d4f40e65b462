/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libzip.c: uses libzip to check an archive a second time, and to write a deflated one.
 *
 * libzip reads and writes through callbacks of ours, so it opens no file itself.
 */
#include <string.h>
#include <zip.h>

#include "libckpt/base/mem.h"
#include "libckpt/codec/zip/zip.h"

/* ---- the second check: directories only, because our reader has compared the checksums ---- */

/* One archive, open in our reader and in libzip. */
typedef struct second_look {
    ckpt_io *io;
    uint64_t at; /* offset of libzip's next read */
    zip_error_t error;
    ckpt_err *err;
} second_look;

/* Read n bytes at libzip's offset, or fewer at the end; -1: the read failed. */
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

/* The callback for libzip's input. */
static zip_int64_t second_source(void *ctx, void *data, zip_uint64_t n, zip_source_cmd_t command)
{
    second_look *s = ctx;

    // commands for writing are refused like unknown ones
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

/* Compare one entry of both directories. */
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
                            "%s: record %.200s has %s according to libzip: readers of this archive "
                            "disagree",
                            s->io->name, r->name, what)
                : CKPT_OK;
}

/* Compare our directory with the one that libzip reads. */
static int second_compare(second_look *s, zip_t *theirs, const ckpt_zip *ours)
{
    zip_int64_t n = zip_get_num_entries(theirs, 0);
    int rc = CKPT_OK;

    if (n < 0 || (uint64_t)n != ours->records.n)
        return ckpt_fail(
            s->err, CKPT_EFORMAT,
            "%s: libzip finds %lld records, but ckpt finds %zu: readers of this archive disagree",
            s->io->name, (long long)n, ours->records.n);
    for (size_t i = 0; rc == CKPT_OK && i < ours->records.n; i++)
        rc = second_entry(s, theirs, i, &ours->records.at[i]);
    return rc;
}

/* Let libzip open the archive that our reader has open, and compare. */
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

/* ---- deflating ---- */

enum {
    DEFLATE_LEVEL = 6, /* zlib's default, which numpy uses too */
    /* of all members, 1980-01-01, so that the same input gives the same bytes */
    DEFLATE_DATE = 1 << 5 | 1
};

/* The state shared by the input and output callbacks of a deflated archive. */
typedef struct deflate_job {
    const ckpt_zip_deflate_job *is;
    uint64_t at;       /* offset of libzip's next write */
    zip_error_t error; /* error, in the form that libzip needs */
    int rc;            /* the first failure of our own callbacks, if any */
    ckpt_err *err;
} deflate_job;

/* One member of the input archive. */
typedef struct deflate_member {
    deflate_job *job;
    const ckpt_zip_item *item;
    uint64_t done;
} deflate_member;

/* Record a failure of our callback: libzip receives its own code, and the caller gets our error. */
static zip_int64_t deflate_failed(deflate_job *j, int rc, int zip_code)
{
    j->rc = j->rc != CKPT_OK ? j->rc : rc;
    zip_error_set(&j->error, zip_code, 0);
    return -1;
}

static zip_int64_t deflate_read(deflate_member *m, void *buf, zip_uint64_t n)
{
    uint64_t left = m->item->n_bytes - m->done;
    int rc;

    n = n < left ? n : left;
    if (n == 0)
        return 0;
    rc = ckpt_io_read(m->job->is->from, buf, n, m->item->at + m->done, m->job->err);
    if (rc != CKPT_OK)
        return deflate_failed(m->job, rc, ZIP_ER_READ);
    m->done += n;
    return (zip_int64_t)n;
}

/* The callback for reading a member. */
static zip_int64_t deflate_source(void *ctx, void *data, zip_uint64_t n, zip_source_cmd_t command)
{
    deflate_member *m = ctx;

    switch ((int)command) {
    case ZIP_SOURCE_OPEN:
        m->done = 0;
        return 0;
    case ZIP_SOURCE_READ:
        return deflate_read(m, data, n);
    case ZIP_SOURCE_STAT: {
        zip_stat_t st;
        zip_stat_init(&st);
        st.size = m->item->n_bytes;
        st.valid = ZIP_STAT_SIZE;
        memcpy(data, &st, sizeof st);
        return sizeof st;
    }
    case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&m->job->error, data, n);
    case ZIP_SOURCE_CLOSE:
    case ZIP_SOURCE_FREE:
        return 0;
    case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE,
                                              ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE,
                                              -1);
    default:
        zip_error_set(&m->job->error, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
}

static zip_int64_t deflate_write(deflate_job *j, const void *bytes, zip_uint64_t n)
{
    int rc = j->is->write(j->is->ctx, bytes, n, j->at, j->err);

    if (rc != CKPT_OK)
        return deflate_failed(j, rc, ZIP_ER_WRITE);
    j->at += n;
    return (zip_int64_t)n;
}

/*
 * Move to another offset: libzip writes a member's header after its data, when the sizes are known,
 * so it goes back and then on.
 */
static zip_int64_t deflate_seek(deflate_job *j, void *args, zip_uint64_t n)
{
    zip_int64_t at = zip_source_seek_compute_offset(j->at, INT64_MAX, args, n, &j->error);

    if (at < 0)
        return -1;
    j->at = (uint64_t)at;
    return 0;
}

/* The callback for libzip's output, which is new and empty. */
static zip_int64_t deflate_output(void *ctx, void *data, zip_uint64_t n, zip_source_cmd_t command)
{
    deflate_job *j = ctx;

    switch ((int)command) {
    case ZIP_SOURCE_STAT: {
        zip_stat_t st;
        zip_stat_init(&st);
        st.valid = ZIP_STAT_SIZE;
        memcpy(data, &st, sizeof st);
        return sizeof st;
    }
    case ZIP_SOURCE_WRITE:
        return deflate_write(j, data, n);
    case ZIP_SOURCE_SEEK_WRITE:
        return deflate_seek(j, data, n);
    case ZIP_SOURCE_TELL_WRITE:
        return (zip_int64_t)j->at;
    case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&j->error, data, n);
    case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(
            ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE, ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR,
            ZIP_SOURCE_FREE, ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL, ZIP_SOURCE_BEGIN_WRITE,
            ZIP_SOURCE_COMMIT_WRITE, ZIP_SOURCE_ROLLBACK_WRITE, ZIP_SOURCE_WRITE,
            ZIP_SOURCE_SEEK_WRITE, ZIP_SOURCE_TELL_WRITE, ZIP_SOURCE_REMOVE, -1);
    default: // opening, closing and the like need no action: the caller opens and closes the file
        return 0;
    }
}

/* Report libzip's failure, unless one of our callbacks failed first. */
static int deflate_fail(const deflate_job *j, const zip_error_t *e)
{
    zip_error_t copy = *e;

    if (j->rc != CKPT_OK)
        return j->rc;
    if (zip_error_code_zip(e) == ZIP_ER_MEMORY)
        return ckpt_fail_memory(j->err);
    return ckpt_fail(j->err, CKPT_EIO, "%s: libzip cannot deflate this archive: %s",
                     j->is->from->name, zip_error_strerror(&copy));
}

/* Add every member.  The data flow only later, when the archive is closed. */
static int deflate_add(deflate_job *j, zip_t *z, deflate_member *member)
{
    for (uint64_t i = 0; i < j->is->n; i++) {
        zip_source_t *source;
        zip_int64_t at = -1;

        member[i] = (deflate_member){.job = j, .item = &j->is->item[i]};
        source = zip_source_function(z, deflate_source, &member[i]);
        if (source)
            at = zip_file_add(z, member[i].item->name, source, ZIP_FL_ENC_GUESS);
        if (source && at < 0)
            zip_source_free(source);
        if (at < 0 ||
            zip_set_file_compression(z, (zip_uint64_t)at, ZIP_CM_DEFLATE, DEFLATE_LEVEL) != 0 ||
            zip_file_set_dostime(z, (zip_uint64_t)at, 0, DEFLATE_DATE, 0) != 0)
            return deflate_fail(j, zip_get_error(z));
    }
    return CKPT_OK;
}

int ckpt_zip_deflate(const ckpt_zip_deflate_job *job, ckpt_err *err)
{
    deflate_job j = {.is = job, .err = err};
    deflate_member *member = ckpt_alloc((job->n + 1) * sizeof *member);
    zip_source_t *source = NULL;
    zip_t *z = NULL;
    int rc = member ? CKPT_OK : ckpt_fail_memory(err);

    zip_error_init(&j.error);
    if (rc == CKPT_OK)
        source = zip_source_function_create(deflate_output, &j, &j.error);
    if (source)
        z = zip_open_from_source(source, ZIP_CREATE | ZIP_TRUNCATE, &j.error);
    if (rc == CKPT_OK && !z)
        rc = deflate_fail(&j, &j.error);
    if (source && !z)
        zip_source_free(source);
    if (rc == CKPT_OK)
        rc = deflate_add(&j, z, member);
    if (rc == CKPT_OK && zip_close(z) != 0)
        rc = deflate_fail(&j, zip_get_error(z));
    else if (rc == CKPT_OK)
        z = NULL;
    if (z)
        zip_discard(z);
    zip_error_fini(&j.error);
    ckpt_free(member);
    return rc;
}
