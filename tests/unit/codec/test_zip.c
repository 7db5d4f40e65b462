/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_zip.c: which containers are read and which refused, and the bytes of those that are written,
 * beyond 4 GiB as well.
 */
#include "libckpt/base/digest.h"
#include "libckpt/codec/zip/zip.h"
#include "tests/unit/unit.h"

/* ---- archives ---- */

enum { MAX_ITEMS = 8 };

/* An archive in memory, and where its parts begin. */
typedef struct archive {
    ckpt_bytes bytes;
    ckpt_zip_item item[MAX_ITEMS];
    size_t n;
    uint64_t directory_at, end64_at, locator_at, end_at;
} archive;

/* Write records of the given names; record i holds "payload <i>", except "!": nothing. */
static void build(archive *a, const char *const *name, size_t n)
{
    uint64_t at = 0;

    memset(a, 0, sizeof *a);
    a->n = n;
    for (size_t i = 0; i < n; i++) {
        char payload[32];
        int n_bytes = snprintf(payload, sizeof payload, "payload %zu", i);
        ckpt_zip_item *item = &a->item[i];

        if (name[i][strlen(name[i]) - 1] == '/')
            n_bytes = 0;
        *item = (ckpt_zip_item){
            .name = name[i], .n_name = strlen(name[i]), .n_bytes = (uint64_t)n_bytes};
        item->crc = ckpt_crc32(0, payload, (size_t)n_bytes);
        assert_int_equal(ckpt_zip_place(item, &at, NULL), CKPT_OK);
        assert_true(ckpt_zip_put_header(&a->bytes, item));
        assert_int_equal(a->bytes.n, item->at);
        assert_true(ckpt_bytes_add(&a->bytes, payload, (size_t)n_bytes));
        assert_true(ckpt_zip_put_descriptor(&a->bytes, item));
        assert_int_equal(a->bytes.n, at);
    }
    a->directory_at = at;
    assert_true(ckpt_zip_put_directory(&a->bytes, a->item, n, at));
    a->end_at = a->bytes.n - 22;
    a->locator_at = a->end_at - 20;
    a->end64_at = a->locator_at - 56;
    assert_int_equal(a->end64_at + CKPT_ZIP_END_SIZE, a->bytes.n);
}

static const char *const usual[] = {"top/data.pkl", "top/byteorder", "top/data/0", "top/version"};

static void build_usual(archive *a)
{
    build(a, usual, 4);
}

/* Offset of an entry of the directory. */
static uint64_t entry_at(const archive *a, size_t i)
{
    uint64_t at = a->directory_at;

    for (size_t k = 0; k < i; k++)
        at += ckpt_zip_entry_size(&a->item[k]);
    return at;
}

static void put(archive *a, uint64_t at, uint64_t value, unsigned width)
{
    for (unsigned k = 0; k < width; k++)
        a->bytes.at[at + k] = (uint8_t)(value >> 8 * k);
}

/* Open bytes; on success *zip is the caller's, to be closed. */
static int open_bytes(ckpt_zip *zip, ckpt_arena *arena, ckpt_io **io, const ckpt_bytes *b,
                      ckpt_err *err)
{
    assert_int_equal(ckpt_io_memory(io, "t.pt", b->at, b->n, NULL), CKPT_OK);
    return ckpt_zip_open(zip, arena, *io, err);
}

/* Expect a code, and with it a message that names the file and holds some text. */
static void expect(const ckpt_bytes *b, int code, const char *text)
{
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_zip zip;
    ckpt_io *io = NULL;
    ckpt_err err = {0};
    int rc = open_bytes(&zip, arena, &io, b, &err);
    uint64_t n_top;

    if (rc == CKPT_OK)
        rc = ckpt_zip_top(&zip, &n_top, &err);
    if (rc != code || (code != CKPT_OK && !strstr(err.text, text)))
        fail_msg("expected %d \"%s\", got %d \"%s\"", code, text, rc, err.text);
    if (code != CKPT_OK)
        assert_non_null(strstr(err.text, "t.pt"));
    ckpt_zip_close(&zip);
    ckpt_io_close(io);
    ckpt_arena_free(arena);
}

/* ---- reading ---- */

static void reads_what_it_wrote(void **state)
{
    archive a;
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_zip zip;
    ckpt_io *io;
    uint64_t n_top = 0;

    (void)state;
    build_usual(&a);
    assert_int_equal(open_bytes(&zip, arena, &io, &a.bytes, NULL), CKPT_OK);
    assert_int_equal(zip.records.n, 4);
    assert_int_equal(ckpt_zip_top(&zip, &n_top, NULL), CKPT_OK);
    assert_int_equal(n_top, 3);
    for (size_t i = 0; i < 4; i++) {
        const ckpt_zip_record *r = ckpt_zip_find(&zip, usual[i], strlen(usual[i]));
        uint8_t *bytes = NULL;
        char want[32];

        snprintf(want, sizeof want, "payload %zu", i);
        assert_ptr_equal(r, &zip.records.at[i]);
        assert_int_equal(r->at % 64, 0);
        assert_int_equal(r->at, a.item[i].at);
        assert_int_equal(r->header_at, a.item[i].header_at);
        assert_true(r->has_crc);
        assert_int_equal(ckpt_zip_read(&bytes, &zip, r, 9, NULL), CKPT_OK);
        assert_string_equal((char *)bytes, want);
        ckpt_free(bytes);
        assert_int_equal(ckpt_zip_read(&bytes, &zip, r, 8, NULL), CKPT_ELIMIT);
    }
    assert_null(ckpt_zip_find(&zip, "top/data/1", 10));
    assert_null(ckpt_zip_find(&zip, "TOP/data/0", 10));
    assert_null(ckpt_zip_find(&zip, "top/data/", 9));
    ckpt_zip_close(&zip);
    ckpt_io_close(io);
    ckpt_arena_free(arena);
    ckpt_vec_free(&a.bytes);
}

/* Many records: names are found whatever their order, and the time stays linear. */
static void many_records(void **state)
{
    enum { N = 20000 };
    ckpt_zip_item *item = calloc(N, sizeof *item);
    char(*name)[24] = calloc(N, sizeof *name);
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_bytes b = {0};
    ckpt_zip zip;
    ckpt_io *io;
    uint64_t at = 0;

    (void)state;
    for (unsigned i = 0; i < N; i++) {
        snprintf(name[i], sizeof name[i], "a/data/%u", i * 7919u % N);
        item[i] = (ckpt_zip_item){.name = name[i], .n_name = strlen(name[i])};
        assert_int_equal(ckpt_zip_place(&item[i], &at, NULL), CKPT_OK);
        assert_true(ckpt_zip_put_header(&b, &item[i]));
    }
    assert_true(ckpt_zip_put_directory(&b, item, N, at));
    assert_int_equal(open_bytes(&zip, arena, &io, &b, NULL), CKPT_OK);
    for (unsigned i = 0; i < N; i++)
        assert_ptr_equal(ckpt_zip_find(&zip, name[i], strlen(name[i])), &zip.records.at[i]);
    ckpt_zip_close(&zip);
    ckpt_io_close(io);
    ckpt_arena_free(arena);
    ckpt_vec_free(&b);
    free(item);
    free(name);
}

/* ---- one field changed ---- */

typedef enum part { LOCAL, CENTRAL, END, END64, LOCATOR } part;

typedef struct lie {
    part part;
    unsigned record; /* LOCAL, CENTRAL */
    unsigned field;  /* offset in the part */
    unsigned width;
    uint64_t value;
    int code;
    const char *text;
} lie;

/* Records: 0 data.pkl, 1 byteorder, 2 data/0, 3 version; each payload has 9 bytes. */
static const lie lies[] = {
    {CENTRAL, 0, 8, 2, 0x0809, CKPT_EUNSAFE, "encrypted"},
    {CENTRAL, 2, 8, 2, 0x0809, CKPT_EFORMAT, "encrypted"},
    {CENTRAL, 2, 8, 2, 0x2808, CKPT_EFORMAT, "encrypted"},
    {CENTRAL, 2, 8, 2, 0x0848, CKPT_EFORMAT, "encrypted"},
    {CENTRAL, 2, 8, 2, 0x0006, CKPT_OK, ""},
    {LOCAL, 0, 6, 2, 0x0809, CKPT_EUNSAFE, "local header has flags"},
    {LOCAL, 2, 6, 2, 0x0801, CKPT_EFORMAT, "local header has flags"},
    {CENTRAL, 2, 10, 2, 99, CKPT_EFORMAT, "method 99; only stored and deflated records are read"},
    {CENTRAL, 2, 10, 2, 8, CKPT_EFORMAT, "disagree"},
    {LOCAL, 2, 8, 2, 8, CKPT_EFORMAT, "disagree"},
    {LOCAL, 2, 14, 4, 1, CKPT_EFORMAT, "disagree"},
    {LOCAL, 2, 18, 4, 8, CKPT_EFORMAT, "disagree"},
    {LOCAL, 2, 22, 4, 9, CKPT_OK, ""},
    {LOCAL, 2, 22, 4, 10, CKPT_EFORMAT, "disagree"},
    {LOCAL, 2, 22, 4, UINT32_MAX, CKPT_EFORMAT, "disagree"}, // saturated, but no zip64 field
    {LOCAL, 2, 6, 2, 0x0800, CKPT_EFORMAT, "disagree"},      // zeros are only for descriptors
    {CENTRAL, 2, 20, 4, 8, CKPT_EFORMAT, "not compressed, but"},
    {CENTRAL, 2, 24, 4, 0x7FFFFFFF, CKPT_EFORMAT, "not compressed, but"},
    {CENTRAL, 2, 24, 4, UINT32_MAX, CKPT_EFORMAT, "zip64 field"},
    {CENTRAL, 2, 42, 4, UINT32_MAX, CKPT_EFORMAT, "zip64 field"},
    {CENTRAL, 2, 42, 4, 0, CKPT_EFORMAT, "overlap"},
    {CENTRAL, 2, 42, 4, 1, CKPT_EFORMAT, "overlap"},
    {CENTRAL, 2, 42, 4, 0x7FFFFFFF, CKPT_EFORMAT, "overlap"},
    {CENTRAL, 0, 42, 4, 64, CKPT_EFORMAT, "no record for the first 64 bytes"},
    {CENTRAL, 2, 34, 2, 1, CKPT_EFORMAT, "another part"},
    {CENTRAL, 2, 38, 4, 0xA1FF0000, CKPT_EUNSAFE, "symbolic link"},
    {CENTRAL, 2, 38, 4, 0x81A40000, CKPT_OK, ""},
    {CENTRAL, 2, 0, 1, 'X', CKPT_EFORMAT, "entry 2 of 4"},
    {CENTRAL, 1, 28, 2, 9, CKPT_EFORMAT, "damaged"}, // a shorter name shifts what follows
    {CENTRAL, 2, 28, 2, 60000, CKPT_EFORMAT, "damaged"},
    {CENTRAL, 2, 30, 2, 1, CKPT_EFORMAT, "extra field"},
    {CENTRAL, 3, 32, 2, 1, CKPT_EFORMAT, "damaged"}, // a comment that is not there
    {CENTRAL, 2, 46 + 9, 1, '1', CKPT_EFORMAT, "another name"},
    {CENTRAL, 0, 46 + 4, 1, 'D', CKPT_EUNSAFE, "another name"},
    {LOCAL, 2, 0, 1, 'X', CKPT_EFORMAT, "local header is missing"},
    {LOCAL, 2, 26, 2, 9, CKPT_EFORMAT, "local header is missing"},
    {LOCAL, 0, 26, 2, 9, CKPT_EUNSAFE, "local header is missing"},
    {LOCAL, 2, 28, 2, 60000, CKPT_EFORMAT, "overlap"},
    {LOCAL, 0, 0, 1, 'X', CKPT_EFORMAT, "does not begin"},
    {END, 0, 4, 2, 1, CKPT_EFORMAT, "several parts"},
    {END, 0, 6, 2, 1, CKPT_EFORMAT, "several parts"},
    {END, 0, 8, 2, 3, CKPT_EFORMAT, "several parts"},
    {END, 0, 8, 4, 0x00030003, CKPT_EFORMAT, "disagree"},
    {END, 0, 8, 4, 0xFFFFFFFF, CKPT_OK, ""}, // saturated: the zip64 record counts
    {END, 0, 12, 4, 1, CKPT_EFORMAT, "disagree"},
    {END, 0, 12, 4, 0xFFFFFFFF, CKPT_OK, ""},
    {END, 0, 16, 4, 1, CKPT_EFORMAT, "disagree"},
    {END, 0, 16, 4, 0xFFFFFFFF, CKPT_OK, ""},
    {END, 0, 20, 2, 1, CKPT_EFORMAT, "no zip end record"},
    {END64, 0, 0, 1, 'X', CKPT_EFORMAT, "expected a zip64 end record"},
    {END64, 0, 4, 8, 45, CKPT_EFORMAT, "expected a zip64 end record"},
    {END64, 0, 16, 4, 1, CKPT_EFORMAT, "disagree"},
    {END64, 0, 24, 8, 5, CKPT_EFORMAT, "disagree"},
    {END64, 0, 32, 8, 5, CKPT_EFORMAT, "disagree"},
    {END64, 0, 40, 8, UINT64_MAX - 15, CKPT_EFORMAT, "disagree"},
    {END64, 0, 48, 8, UINT64_MAX - 15, CKPT_EFORMAT, "disagree"},
    {LOCATOR, 0, 4, 4, 1, CKPT_EFORMAT, "several parts"},
    {LOCATOR, 0, 8, 8, UINT64_C(1) << 63, CKPT_EFORMAT, "refers to an end record at"},
    {LOCATOR, 0, 8, 8, 0, CKPT_EFORMAT, "expected a zip64 end record"},
    {LOCATOR, 0, 16, 4, 2, CKPT_EFORMAT, "several parts"},
};

static void one_lie(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        const lie *l = &lies[i];
        archive a;
        uint64_t at;

        build_usual(&a);
        at = l->part == LOCAL     ? a.item[l->record].header_at
             : l->part == CENTRAL ? entry_at(&a, l->record)
             : l->part == END     ? a.end_at
             : l->part == END64   ? a.end64_at
                                  : a.locator_at;
        put(&a, at + l->field, l->value, l->width);
        expect(&a.bytes, l->code, l->text);
        ckpt_vec_free(&a.bytes);
    }
}

/*
 * The last record is said to lie beyond the file, which would leave the one before it more room
 * than there is: its extra field must not be looked for behind the end.
 */
static void header_beyond_the_file(void **state)
{
    static const uint64_t beyond[] = {0x7FFFFFFF, 1 << 20};

    (void)state;
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
        archive a;

        build_usual(&a);
        put(&a, entry_at(&a, 3) + 42, beyond[i], 4);
        put(&a, a.item[2].header_at + 22, UINT32_MAX, 4); // the zip64 field counts
        put(&a, a.item[2].header_at + 28, 60000, 2);
        expect(&a.bytes, CKPT_EFORMAT, "\"top/version\": header at offset");
        ckpt_vec_free(&a.bytes);
    }
}

/* Bytes of which one 16-bit number is `later` from the second read of it on. */
typedef struct unsteady {
    ckpt_io io;
    const ckpt_bytes *bytes;
    uint64_t at;
    uint16_t later;
    unsigned reads;
} unsteady;

static int unsteady_read(ckpt_io *io, void *buf, uint64_t n, uint64_t at, ckpt_err *err)
{
    unsteady *u = (unsteady *)(void *)io;

    (void)err;
    memcpy(buf, u->bytes->at + at, n);
    if (at <= u->at && u->at + 2 <= at + n && u->reads++ > 0) {
        ((uint8_t *)buf)[u->at - at] = (uint8_t)u->later;
        ((uint8_t *)buf)[u->at - at + 1] = (uint8_t)(u->later >> 8);
    }
    return CKPT_OK;
}

/*
 * An extra field that is too long to come along with its header is read after it: by then somebody
 * may have made it longer.
 */
static void changes_while_read(void **state)
{
    enum { EXTRA = 65500, LONGER = 65535, HEAD = 30 + 12 };
    static const uint8_t filler[4] = {'F', 'B', (EXTRA - 4) & 255, (EXTRA - 4) >> 8};
    archive a;
    ckpt_bytes b = {0};
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_zip zip = {0};
    ckpt_err err = {0};

    (void)state;
    build(&a, usual, 1);
    put(&a, 22, UINT32_MAX, 4); // the zip64 field counts: all extra fields are gone through
    put(&a, 28, EXTRA, 2);
    assert_true(ckpt_bytes_add(&b, a.bytes.at, HEAD) && ckpt_bytes_add(&b, filler, 4) &&
                ckpt_bytes_add(&b, NULL, LONGER - 4) && ckpt_bytes_add(&b, "payload 0", 9));
    assert_true(ckpt_zip_put_directory(&b, a.item, 1, b.n));
    for (unsigned i = 0; i < 2; i++) {
        unsteady u = {
            .io = {.name = "t.pt", .size = b.n, .read_at = unsteady_read}, .bytes = &b, .at = 28};

        u.later = i == 0 ? EXTRA : LONGER;
        assert_int_equal(ckpt_zip_open(&zip, arena, &u.io, &err), CKPT_EFORMAT);
        assert_non_null(strstr(err.text, i == 0 ? "disagree" : "changed while it was read"));
        assert_int_equal(u.reads, 2);
        err = (ckpt_err){0};
    }
    ckpt_arena_free(arena);
    ckpt_vec_free(&a.bytes);
    ckpt_vec_free(&b);
}

/* Packed bytes without end for a record of ten: refused before room is made for them. */
static void packed_too_long(void **state)
{
    static const char payload[100];
    ckpt_zip_item item = {.name = "top/data.pkl", .n_name = 12, .n_bytes = sizeof payload};
    archive a = {.n = 1};
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_zip zip;
    ckpt_io *io = NULL;
    ckpt_err err = {0};
    uint8_t *bytes = NULL;
    uint64_t at = 0;

    (void)state;
    assert_int_equal(ckpt_zip_place(&item, &at, NULL), CKPT_OK);
    assert_true(ckpt_zip_put_header(&a.bytes, &item) &&
                ckpt_bytes_add(&a.bytes, payload, sizeof payload) &&
                ckpt_zip_put_descriptor(&a.bytes, &item));
    assert_int_equal(a.bytes.n, at);
    assert_true(ckpt_zip_put_directory(&a.bytes, &item, 1, at));
    put(&a, 8, CKPT_ZIP_DEFLATED, 2);
    put(&a, at + 10, CKPT_ZIP_DEFLATED, 2);
    put(&a, at + 24, 10, 4);
    assert_int_equal(open_bytes(&zip, arena, &io, &a.bytes, &err), CKPT_OK);
    assert_int_equal(ckpt_zip_read(&bytes, &zip, zip.records.at, 10, &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "100 compressed bytes for 10"));
    ckpt_zip_close(&zip);
    ckpt_io_close(io);
    ckpt_arena_free(arena);
    ckpt_vec_free(&a.bytes);
}

/* Both end records agree on something that is not so. */
static void counts(void **state)
{
    static const uint64_t wrong[] = {3, 5, 500, 0, UINT64_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        archive a;

        build_usual(&a);
        put(&a, a.end_at + 8, UINT32_MAX, 4);
        put(&a, a.end64_at + 24, wrong[i], 8);
        put(&a, a.end64_at + 32, wrong[i], 8);
        expect(&a.bytes, CKPT_EFORMAT, wrong[i] == 0 ? "contains no records" : "zip directory");
        put(&a, a.end64_at + 24, 4, 8);
        put(&a, a.end64_at + 32, 4, 8);
        expect(&a.bytes, CKPT_OK, "");
        put(&a, a.end_at + 12, UINT32_MAX, 4);
        put(&a, a.end64_at + 40, wrong[i], 8);
        expect(&a.bytes, CKPT_EFORMAT, "does not end at offset");
        ckpt_vec_free(&a.bytes);
    }
}

static void around_the_archive(void **state)
{
    archive a;
    ckpt_bytes b = {0};
    size_t n;

    (void)state;
    build_usual(&a);
    n = a.bytes.n;
    for (size_t cut = 0; cut < n; cut++) {
        a.bytes.n = cut;
        expect(&a.bytes, CKPT_EFORMAT, "");
    }
    a.bytes.n = n;
    assert_true(ckpt_bytes_add(&b, NULL, 512) && ckpt_bytes_add(&b, a.bytes.at, n));
    expect(&b, CKPT_EFORMAT, "does not begin");
    b.n = 0;
    assert_true(ckpt_bytes_add(&b, a.bytes.at, n) && ckpt_bytes_add(&b, NULL, 1));
    expect(&b, CKPT_EFORMAT, "no zip end record");
    put(&a, a.end_at + 20, 22, 2); // a comment of 22 bytes
    b.n = 0;
    assert_true(ckpt_bytes_add(&b, a.bytes.at, n) && ckpt_bytes_add(&b, NULL, 22));
    expect(&b, CKPT_OK, "");
    memcpy(b.at + n, a.bytes.at + a.end_at, 22); // that is an end record
    memset(b.at + n + 20, 0, 2);
    expect(&b, CKPT_EFORMAT, "second zip end record");
    memset(b.at + n + 4, 1, 18); // or only begins like one
    expect(&b, CKPT_EFORMAT, "second zip end record");
    ckpt_vec_free(&a.bytes);
    ckpt_vec_free(&b);
}

/* ---- names ---- */

static void expect_names(int code, const char *text, const char *first, const char *second)
{
    const char *const name[] = {first, second};
    archive a;

    build(&a, name, 2);
    expect(&a.bytes, code, text);
    ckpt_vec_free(&a.bytes);
}

static void names(void **state)
{
    (void)state;
    expect_names(CKPT_OK, "", "a/x", "a/y");
    expect_names(CKPT_OK, "", "a/", "a/y"); // the entry of a folder
    expect_names(CKPT_OK, "", "a/x", "a/X");
    expect_names(CKPT_OK, "", "a/\xC3\xBC", "a/.hidden");
    expect_names(CKPT_EUNSAFE, "leave the folder", "a/x", "/tmp/x");
    expect_names(CKPT_EUNSAFE, "leave the folder", "a/x", "a/../x");
    expect_names(CKPT_EUNSAFE, "leave the folder", "a/x", "..");
    expect_names(CKPT_EUNSAFE, "leave the folder", "a/x", "a/./x");
    expect_names(CKPT_EUNSAFE, "leave the folder", "a/x", "a//x");
    expect_names(CKPT_EUNSAFE, "leave the folder", "a/x", "a\\x");
    expect_names(CKPT_EUNSAFE, "leave the folder", "a/x", "a//");
    expect_names(CKPT_EUNSAFE, "leave the folder", "a/x", "/");
    expect_names(CKPT_EFORMAT, "not text", "a/x", "a/\xFF");
    expect_names(CKPT_EFORMAT, "not text", "a/x", "a/\xED\xA0\x80");
    expect_names(CKPT_EFORMAT, "appears twice", "a/x", "a/x");
    expect_names(CKPT_EUNSAFE, "appears twice", "a/data.pkl", "a/data.pkl");
    expect_names(CKPT_EFORMAT, "neither in a folder", "x", "a/x");
    expect_names(CKPT_EFORMAT, "outside the archive's folder", "a/x", "b/x");
    expect_names(CKPT_EFORMAT, "outside the archive's folder", "a/x", "a");
    expect_names(CKPT_EFORMAT, "outside the archive's folder", "a/x", "ab/x");
}

static void odd_names(void **state)
{
    const char *const name[] = {"a/x", "a/data.pkl", "a/Data.pkl"};
    ckpt_arena *arena = ckpt_arena_new(0);
    archive a;
    ckpt_zip zip;
    ckpt_io *io;

    (void)state;
    build(&a, name, 3);
    assert_int_equal(open_bytes(&zip, arena, &io, &a.bytes, NULL), CKPT_OK);
    assert_int_equal(zip.n_case_twins, 1);
    assert_ptr_equal(ckpt_zip_find(&zip, "a/data.pkl", 10), &zip.records.at[1]);
    assert_ptr_equal(ckpt_zip_find(&zip, "a/Data.pkl", 10), &zip.records.at[2]);
    ckpt_zip_close(&zip);
    ckpt_io_close(io);
    put(&a, entry_at(&a, 0) + 46 + 2, 0, 1); // a NUL in both headers
    put(&a, a.item[0].header_at + 30 + 2, 0, 1);
    expect(&a.bytes, CKPT_EFORMAT, "not text");
    ckpt_vec_free(&a.bytes);
    ckpt_arena_free(arena);
}

/* ---- payload ---- */

/* Turn record 2 into a deflated one: a stored block of 4 bytes in its 9 bytes. */
static void deflate(archive *a, uint64_t n_bytes)
{
    static const uint8_t packed[9] = {1, 4, 0, 0xFB, 0xFF, 't', 'e', 'x', 't'};

    memcpy(a->bytes.at + a->item[2].at, packed, sizeof packed);
    put(a, entry_at(a, 2) + 10, 8, 2);
    put(a, entry_at(a, 2) + 16, ckpt_crc32(0, "text", 4), 4);
    put(a, entry_at(a, 2) + 24, n_bytes, 4);
    put(a, a->item[2].header_at + 8, 8, 2);
}

static int read_record(const archive *a, size_t i, char out[64])
{
    ckpt_arena *arena = ckpt_arena_new(0);
    uint8_t *bytes = NULL;
    ckpt_zip zip;
    ckpt_io *io;
    int rc;

    assert_int_equal(open_bytes(&zip, arena, &io, &a->bytes, NULL), CKPT_OK);
    rc = ckpt_zip_read(&bytes, &zip, &zip.records.at[i], 1000, NULL);
    if (rc == CKPT_OK)
        memcpy(out, bytes, (size_t)zip.records.at[i].n_bytes + 1);
    else
        assert_null(bytes);
    ckpt_free(bytes);
    ckpt_zip_close(&zip);
    ckpt_io_close(io);
    ckpt_arena_free(arena);
    return rc;
}

static void payload(void **state)
{
    char text[64] = "";
    archive a;

    (void)state;
    build_usual(&a);
    a.bytes.at[a.item[2].at] ^= 1;
    assert_int_equal(read_record(&a, 2, text), CKPT_EFORMAT);
    put(&a, entry_at(&a, 2) + 16, 0, 4); // no CRC: nothing to compare with
    assert_int_equal(read_record(&a, 2, text), CKPT_OK);
    assert_string_equal(text, "qayload 2");
    deflate(&a, 4);
    assert_int_equal(read_record(&a, 2, text), CKPT_OK);
    assert_string_equal(text, "text");
    deflate(&a, 5);
    assert_int_equal(read_record(&a, 2, text), CKPT_EFORMAT);
    deflate(&a, 3);
    assert_int_equal(read_record(&a, 2, text), CKPT_ELIMIT);
    deflate(&a, 0x70000000);
    assert_int_equal(read_record(&a, 2, text), CKPT_ELIMIT);
    ckpt_vec_free(&a.bytes);
}

/* More bytes than deflate can make from the record: refused before memory is asked for. */
static void impossible_ratio(void **state)
{
    ckpt_arena *arena = ckpt_arena_new(0);
    archive a;
    uint8_t *bytes;
    ckpt_zip zip;
    ckpt_io *io;

    (void)state;
    build_usual(&a);
    deflate(&a, 0x70000000);
    assert_int_equal(open_bytes(&zip, arena, &io, &a.bytes, NULL), CKPT_OK);
    ckpt_alloc_fail_at(0);
    assert_int_equal(ckpt_zip_read(&bytes, &zip, &zip.records.at[2], UINT64_MAX, NULL),
                     CKPT_EFORMAT);
    ckpt_alloc_fail_at(UINT64_MAX);
    ckpt_zip_close(&zip);
    ckpt_io_close(io);
    ckpt_arena_free(arena);
    ckpt_vec_free(&a.bytes);
}

static void no_memory(void **state)
{
    archive a;
    ckpt_io *io;
    int rc = CKPT_ELIMIT;

    (void)state;
    build_usual(&a);
    assert_int_equal(ckpt_io_memory(&io, "t.pt", a.bytes.at, a.bytes.n, NULL), CKPT_OK);
    for (uint64_t k = 0; rc != CKPT_OK; k++) {
        ckpt_arena *arena = ckpt_arena_new(0);
        ckpt_zip zip;
        ckpt_err err = {0};

        assert_true(k < 100);
        ckpt_alloc_fail_at(k);
        rc = ckpt_zip_open(&zip, arena, io, &err);
        ckpt_alloc_fail_at(UINT64_MAX);
        if (rc != CKPT_OK) {
            assert_int_equal(rc, CKPT_ELIMIT);
            assert_null(zip.records.at);
            assert_null(zip.by_name);
        }
        ckpt_zip_close(&zip);
        ckpt_arena_free(arena);
    }
    ckpt_io_close(io);
    ckpt_vec_free(&a.bytes);
}

/* ---- beyond 4 GiB ---- */

/* A file of which only some stretches are not zero. */
typedef struct sparse {
    ckpt_io io;
    uint64_t at[16];
    ckpt_bytes bytes[16];
    size_t n;
} sparse;

static int sparse_read(ckpt_io *io, void *buf, uint64_t n, uint64_t at, ckpt_err *err)
{
    const sparse *s = (const sparse *)io;

    (void)err;
    memset(buf, 0, (size_t)n);
    for (size_t i = 0; i < s->n; i++) {
        uint64_t from = s->at[i] > at ? s->at[i] : at;
        uint64_t end = s->at[i] + s->bytes[i].n < at + n ? s->at[i] + s->bytes[i].n : at + n;

        if (from < end)
            memcpy((uint8_t *)buf + (from - at), s->bytes[i].at + (from - s->at[i]),
                   (size_t)(end - from));
    }
    return CKPT_OK;
}

static void expect_bytes(const ckpt_bytes *b, size_t at, const char *hex)
{
    for (size_t i = 0; hex[2 * i] != '\0'; i++) {
        unsigned byte = 0;

        assert_true(at + i < b->n);
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        if (b->at[at + i] != byte)
            fail_msg("byte %zu is %02x, expected %02x", at + i, b->at[at + i], byte);
    }
}

/*
 * A small record, one of 5 GiB, a small and an empty one behind it, and the directory, each part of
 * the file as a stretch: 2i is record i's header, 2i + 1 its descriptor, 8 the directory.
 */
static void build_large(sparse *s, ckpt_zip_item item[4])
{
    static const char *const name[4] = {"a/p", "a/0", "a/1", "a/2"};
    static const uint64_t size[4] = {9, UINT64_C(5) << 30, 1, 0};
    uint64_t at = 0;

    *s = (sparse){.io = {.name = "large.pt", .read_at = sparse_read}};
    for (size_t i = 0; i < 4; i++) {
        item[i] = (ckpt_zip_item){.name = name[i], .n_name = 3, .n_bytes = size[i]};
        item[i].crc = size[i] > 0 ? 0x11223344 : 0;
        assert_int_equal(ckpt_zip_place(&item[i], &at, NULL), CKPT_OK);
        assert_int_equal(item[i].at % 64, 0);
        s->at[s->n] = item[i].header_at;
        assert_true(ckpt_zip_put_header(&s->bytes[s->n++], &item[i]));
        s->at[s->n] = item[i].at + size[i];
        assert_true(ckpt_zip_put_descriptor(&s->bytes[s->n++], &item[i]));
    }
    s->at[s->n] = at;
    assert_true(ckpt_zip_put_directory(&s->bytes[s->n], item, 4, at));
    s->io.size = at + s->bytes[s->n++].n;
}

/* Fields as torch writes them: the local zip64 field has a stored size of 0, or only the offset. */
static void fields_beyond_4_gib(void **state)
{
    ckpt_zip_item item[4];
    const ckpt_bytes *b;
    sparse s;

    (void)state;
    build_large(&s, item);
    expect_bytes(&s.bytes[0], 0,
                 "504b030400000808000000000000"
                 "000000000000000000000000"
                 "0300");
    expect_bytes(&s.bytes[2], 33,
                 "01001000"
                 "0000004001000000"
                 "0000000000000000"
                 "4642");
    expect_bytes(&s.bytes[4], 33, "01000800");
    expect_bytes(&s.bytes[6], 6, "0008");
    assert_int_equal(s.bytes[1].n, 16);
    assert_int_equal(s.bytes[3].n, 24);
    assert_int_equal(s.bytes[5].n, 24); // one byte, but far away
    assert_int_equal(s.bytes[7].n, 0);
    expect_bytes(&s.bytes[3], 0,
                 "504b0708"
                 "44332211"
                 "0000004001000000"
                 "0000004001000000");
    // Directory: sizes saturated, then the offset.
    b = &s.bytes[8];
    expect_bytes(b, 49 + 20,
                 "ffffffffffffffff"
                 "0300"
                 "1400");
    expect_bytes(b, 49 + 49,
                 "01001000"
                 "0000004001000000"
                 "0000004001000000");
    expect_bytes(b, 49 + 69 + 42,
                 "ffffffff"
                 "612f31"
                 "01000800");
    for (size_t i = 0; i < s.n; i++)
        ckpt_vec_free(&s.bytes[i]);
}

static void reads_beyond_4_gib(void **state)
{
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_zip_item item[4];
    ckpt_err err = {0};
    ckpt_zip zip;
    sparse s;

    (void)state;
    build_large(&s, item);
    if (ckpt_zip_open(&zip, arena, &s.io, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(zip.records.at[i].at, item[i].at);
        assert_int_equal(zip.records.at[i].header_at, item[i].header_at);
        assert_int_equal(zip.records.at[i].n_bytes, item[i].n_bytes);
        assert_int_equal(zip.records.at[i].n_stored, item[i].n_bytes);
    }
    ckpt_zip_close(&zip);
    for (size_t i = 0; i < s.n; i++)
        ckpt_vec_free(&s.bytes[i]);
    ckpt_arena_free(arena);
}

/* The example of torch 2.15: a name of 19 bytes gives padding 11, the payload at 64; then 1920. */
static void torch_example(void **state)
{
    const char *first = "def_2.15.0/data.pkl", *second = "def_2.15.0/.format_version";
    ckpt_zip_item a = {.name = first, .n_name = 19, .n_bytes = 1732};
    ckpt_zip_item b = {.name = second, .n_name = 26, .n_bytes = 1};
    ckpt_bytes out = {0};
    uint64_t at = 0;

    (void)state;
    assert_int_equal(ckpt_zip_place(&a, &at, NULL), CKPT_OK);
    assert_int_equal(a.at, 64);
    assert_int_equal(at, 1812);
    assert_int_equal(ckpt_zip_place(&b, &at, NULL), CKPT_OK);
    assert_int_equal(b.at, 1920);
    assert_true(ckpt_zip_put_header(&out, &a));
    assert_int_equal(out.n, 64);
    expect_bytes(&out, 26, "13000f00");
    expect_bytes(&out, 49,
                 "46420b00"
                 "5a5a5a5a5a5a5a5a5a5a5a");
    ckpt_vec_free(&out);
    b.n_name = 70000;
    assert_int_equal(ckpt_zip_place(&b, &at, NULL), CKPT_ELIMIT);
    b.n_name = 26;
    at = UINT64_MAX - 100;
    assert_int_equal(ckpt_zip_place(&b, &at, NULL), CKPT_ELIMIT);
    at = 0;
    b.n_bytes = UINT64_MAX - 60;
    assert_int_equal(ckpt_zip_place(&b, &at, NULL), CKPT_ELIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_it_wrote),
        cmocka_unit_test(many_records),
        cmocka_unit_test(one_lie),
        cmocka_unit_test(header_beyond_the_file),
        cmocka_unit_test(changes_while_read),
        cmocka_unit_test(packed_too_long),
        cmocka_unit_test(counts),
        cmocka_unit_test(around_the_archive),
        cmocka_unit_test(names),
        cmocka_unit_test(odd_names),
        cmocka_unit_test(payload),
        cmocka_unit_test(impossible_ratio),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(fields_beyond_4_gib),
        cmocka_unit_test(reads_beyond_4_gib),
        cmocka_unit_test(torch_example),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
