/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_zip_libzip.c: libzip's opinion of an archive: the same as ours, or a finding; and archives
 * that it deflates.
 *
 * No archive is known that both accept and read differently.  So the file changes between the two:
 * what libzip gets to see has one field altered.
 */
#include "libckpt/base/digest.h"
#include "libckpt/codec/zip/zip.h"
#include "tests/unit/unit.h"

/* An input that gives `first` for so many reads, and `then` after them. */
typedef struct turncoat {
    ckpt_io io;
    const uint8_t *first, *then;
    size_t n_reads, turn;
} turncoat;

static int turncoat_read(ckpt_io *io, void *buf, uint64_t n, uint64_t at, ckpt_err *err)
{
    turncoat *t = (turncoat *)io;

    (void)err;
    memcpy(buf, (t->n_reads++ < t->turn ? t->first : t->then) + at, n);
    return CKPT_OK;
}

static turncoat turncoat_of(const ckpt_bytes *first, const uint8_t *then, size_t turn)
{
    return (turncoat){.io = {.name = "t.pt", .size = first->n, .read_at = turncoat_read},
                      .first = first->at,
                      .then = then,
                      .turn = turn};
}

static const ckpt_zip_item two[2] = {{.name = "top/a", .n_name = 5, .n_bytes = 3},
                                     {.name = "top/b", .n_name = 5, .n_bytes = 3}};

/* Two records; item: receives both; *directory_at: where the directory begins. */
static void build_items(ckpt_bytes *out, ckpt_zip_item *item, uint64_t *directory_at)
{
    uint64_t at = 0;

    memcpy(item, two, sizeof two);
    for (size_t i = 0; i < 2; i++) {
        item[i].crc = ckpt_crc32(0, "xyz", 3);
        assert_int_equal(ckpt_zip_place(&item[i], &at, NULL), CKPT_OK);
        assert_true(ckpt_zip_put_header(out, &item[i]));
        assert_true(ckpt_bytes_add(out, "xyz", 3));
        assert_true(ckpt_zip_put_descriptor(out, &item[i]));
    }
    *directory_at = at;
    assert_true(ckpt_zip_put_directory(out, item, 2, at));
}

static void build(ckpt_bytes *out, uint64_t *directory_at)
{
    ckpt_zip_item item[2];

    build_items(out, item, directory_at);
}

/* Reads that it takes to look at the file and to open it with our reader. */
static size_t reads_of_ours(const ckpt_bytes *b)
{
    turncoat t = turncoat_of(b, b->at, 0);
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_zip zip;

    assert_int_equal(ckpt_zip_open(&zip, arena, &t.io, NULL), CKPT_OK);
    ckpt_zip_close(&zip);
    ckpt_arena_free(arena);
    return t.n_reads + 1;
}

static void agree(void **state)
{
    ckpt_bytes b = {0}, none = {0};
    uint64_t at;

    (void)state;
    build(&b, &at);
    turncoat t = turncoat_of(&b, b.at, 0);
    assert_int_equal(ckpt_zip_second(&t.io, NULL), CKPT_OK);
    // libzip has looked too
    assert_true(t.n_reads > reads_of_ours(&b));
    // no archive: nothing to say
    t.io.size = 3;
    assert_int_equal(ckpt_zip_second(&t.io, NULL), CKPT_OK);
    assert_true(ckpt_bytes_add(&none, "no archive", 10));
    turncoat other = turncoat_of(&none, none.at, 0);
    assert_int_equal(ckpt_zip_second(&other.io, NULL), CKPT_OK);
    ckpt_vec_free(&b);
    ckpt_vec_free(&none);
}

/* libzip sees this byte of the first entry of the directory (and of its header) altered. */
static void disagree(void **state)
{
    static const struct {
        size_t in_entry, in_header; /* 0: only the entry */
        const char *text;
    } field[] = {
        {10, 8, "archive"},  /* method */
        {16, 0, "checksum"}, /* CRC; the header of a streamed record has none */
        {24, 0, "size"},     /* size */
        {20, 0, "size"},     /* stored size */
        {50, 34, "name"},    /* the last letter */
        {0, 0, "archive"},   /* no entry at all */
    };
    ckpt_bytes b = {0};
    uint64_t at;

    (void)state;
    build(&b, &at);
    for (size_t i = 0; i < sizeof field / sizeof *field; i++) {
        uint8_t *then = ckpt_alloc(b.n);
        ckpt_err err = {0};
        assert_non_null(then);
        memcpy(then, b.at, b.n);
        then[at + field[i].in_entry] ^= 1;
        if (field[i].in_header)
            then[field[i].in_header] ^= 1;
        turncoat t = turncoat_of(&b, then, reads_of_ours(&b));
        assert_int_equal(ckpt_zip_second(&t.io, &err), CKPT_EFORMAT);
        if (!strstr(err.text, "libzip") || !strstr(err.text, field[i].text))
            fail_msg("field %zu: '%s'", i, err.text);
        ckpt_free(then);
    }
    ckpt_vec_free(&b);
}

/* Each allocation of ours fails once. */
static void no_memory(void **state)
{
    ckpt_bytes b = {0};
    uint64_t at;
    int rc = CKPT_ELIMIT;

    (void)state;
    build(&b, &at);
    for (uint64_t n = 0; rc != CKPT_OK && n < 100; n++) {
        turncoat t = turncoat_of(&b, b.at, 0);
        ckpt_alloc_fail_at(n);
        rc = ckpt_zip_second(&t.io, NULL);
        ckpt_alloc_fail_at(UINT64_MAX);
        assert_true(rc == CKPT_OK || rc == CKPT_ELIMIT);
    }
    assert_int_equal(rc, CKPT_OK);
    ckpt_vec_free(&b);
}

/* What libzip writes; the write that is numbered so fails. */
typedef struct output {
    ckpt_bytes bytes;
    size_t n_writes, bad;
} output;

static int output_write(void *ctx, const void *bytes, uint64_t n, uint64_t at, ckpt_err *err)
{
    static const uint8_t zero[64];
    output *o = ctx;

    if (o->n_writes++ == o->bad)
        return ckpt_fail(err, CKPT_EIO, "the disk is full");
    while (o->bytes.n < at + n)
        assert_true(ckpt_bytes_add(&o->bytes, zero, 1));
    memcpy(o->bytes.at + at, bytes, n);
    return CKPT_OK;
}

static int deflate(const ckpt_bytes *b, const ckpt_zip_item *item, output *o, ckpt_err *err)
{
    turncoat t = turncoat_of(b, b->at, 0);
    const ckpt_zip_deflate_job job = {
        .from = &t.io, .item = item, .n = 2, .write = output_write, .ctx = o};

    return ckpt_zip_deflate(&job, err);
}

static void deflates(void **state)
{
    ckpt_bytes b = {0};
    ckpt_zip_item item[2];
    output o = {.bad = SIZE_MAX}, again = o;
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_zip zip;
    uint64_t at;
    uint8_t *text;

    (void)state;
    build_items(&b, item, &at);
    assert_int_equal(deflate(&b, item, &o, NULL), CKPT_OK);
    turncoat t = turncoat_of(&o.bytes, o.bytes.at, 0);
    assert_int_equal(ckpt_zip_second(&t.io, NULL), CKPT_OK);
    assert_int_equal(ckpt_zip_open(&zip, arena, &t.io, NULL), CKPT_OK);
    assert_int_equal(zip.records.n, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(zip.records.at[i].name, item[i].name);
        assert_int_equal(zip.records.at[i].method, CKPT_ZIP_DEFLATED);
        assert_int_equal(zip.records.at[i].crc, item[i].crc);
        assert_int_equal(ckpt_zip_read(&text, &zip, &zip.records.at[i], 3, NULL), CKPT_OK);
        assert_memory_equal(text, "xyz", 3);
        ckpt_free(text);
    }
    // the same bytes each time
    assert_int_equal(deflate(&b, item, &again, NULL), CKPT_OK);
    assert_int_equal(again.bytes.n, o.bytes.n);
    assert_memory_equal(again.bytes.at, o.bytes.at, o.bytes.n);
    ckpt_zip_close(&zip);
    ckpt_arena_free(arena);
    ckpt_vec_free(&again.bytes);
    ckpt_vec_free(&o.bytes);
    ckpt_vec_free(&b);
}

/* Whichever write fails, the caller gets its own words; so for a member that cannot be read. */
static void deflate_stops(void **state)
{
    ckpt_bytes b = {0};
    ckpt_zip_item item[2];
    output o = {.bad = SIZE_MAX};
    ckpt_err err = {0};
    uint64_t at;

    (void)state;
    build_items(&b, item, &at);
    assert_int_equal(deflate(&b, item, &o, NULL), CKPT_OK);
    assert_true(o.n_writes > 4);
    for (size_t n = o.n_writes, k = 0; k < n; k++) {
        o.n_writes = 0;
        o.bad = k;
        assert_int_equal(deflate(&b, item, &o, &err), CKPT_EIO);
        assert_string_equal(err.text, "the disk is full");
    }
    o = (output){.bytes = o.bytes, .bad = SIZE_MAX};
    err = (ckpt_err){0};
    item[1].at = b.n; // outside the archive
    if (deflate(&b, item, &o, &err) != CKPT_EFORMAT)
        fail_msg("%s", err.text);
    ckpt_vec_free(&o.bytes);
    ckpt_vec_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deflates), cmocka_unit_test(deflate_stops), cmocka_unit_test(agree),
        cmocka_unit_test(disagree), cmocka_unit_test(no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
