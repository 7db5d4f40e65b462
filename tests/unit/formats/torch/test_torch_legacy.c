/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_torch_legacy.c: streams of pickles and storages: what is read, what is refused and why, and
 * the two other things that begin alike: tar files and plain pickles.
 */
#include "ckpt_extra.h"
#include "libckpt/base/digest.h"
#include "libckpt/format.h"
#include "tests/unit/unit.h"

extern const ckpt_format ckpt_format_torch_legacy;

/* A string literal with NULs inside, and its length. */
#define TEXT(s) s, sizeof(s) - 1

#define MAGIC   "\x80\2\x8A\x0A\x6C\xFC\x9C\x46\xF9\x20\x6A\xA8\x50\x19."
#define VERSION "\x80\2M\xE9\3."
#define LITTLE  "\x80\2}(X\x10\0\0\0protocol_versionM\xE9\3X\x0D\0\0\0little_endian\x88u."
#define BIG     "\x80\2}(X\x10\0\0\0protocol_versionM\xE9\3X\x0D\0\0\0little_endian\x89u."

/* One tensor of n elements in a storage with a key of one letter. */
#define STORAGE(key, n)                                                                            \
    "((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0" key "X\3\0\0\0cpuK" n "NtQ"
#define TENSOR(key, n)                                                                             \
    "ctorch._utils\n_rebuild_tensor_v2\n" STORAGE(key, n) "K\0K" n "\x85K\1\x85\x89"               \
                                                          "ccollections\nOrderedDict\n)RtR"
#define OBJECT "\x80\2}(X\1\0\0\0w" TENSOR("7", "\2") "X\1\0\0\0b" TENSOR("3", "\1") "u."
#define KEYS   "\x80\2](X\1\0\0\0003X\1\0\0\0007e."
#define DATA_3                                                                                     \
    "\1\0\0\0\0\0\0\0"                                                                             \
    "abcd"
#define DATA_7                                                                                     \
    "\2\0\0\0\0\0\0\0"                                                                             \
    "efghijkl"
#define DATA_3B                                                                                    \
    "\0\0\0\0\0\0\0\1"                                                                             \
    "abcd"
#define DATA_7B                                                                                    \
    "\0\0\0\0\0\0\0\2"                                                                             \
    "efghijkl"
#define WHOLE MAGIC VERSION LITTLE OBJECT KEYS DATA_3 DATA_7

static int read_bytes(ckpt_map **out, ckpt_io **io, const char *bytes, size_t n, ckpt_err *err)
{
    ckpt_map_file file = {.path = "t.pt", .format = &ckpt_format_torch_legacy, .size = n};
    uint32_t index = 0;
    int rc = ckpt_map_create(out, 0, err);

    *io = NULL;
    if (rc == CKPT_OK)
        rc = ckpt_io_memory(io, "t.pt", bytes, n, err);
    if (rc == CKPT_OK)
        rc = ckpt_map_add_file(*out, &file, &index, err);
    if (rc == CKPT_OK)
        rc = ckpt_format_torch_legacy.read(*out, *io, index, err);
    return rc;
}

static void done(ckpt_map *map, ckpt_io *io)
{
    ckpt_map_free(map);
    ckpt_io_close(io);
}

static void expect(const char *bytes, size_t n, int code, const char *text)
{
    ckpt_map *map = NULL;
    ckpt_io *io = NULL;
    ckpt_err err = {0};
    int rc = read_bytes(&map, &io, bytes, n, &err);

    if (rc != code || (text && !strstr(err.text, text)))
        fail_msg("expected %d \"%s\", got %d \"%s\"", code, text, rc, err.text);
    if (code != CKPT_OK)
        assert_non_null(strstr(err.text, "t.pt"));
    done(map, io);
}

static int probe(const char *bytes, size_t n)
{
    return ckpt_format_torch_legacy.probe((const uint8_t *)bytes, n, n);
}

static void whole_stream(void **state)
{
    static const char bytes[] = WHOLE;
    ckpt_map *map;
    ckpt_io *io;

    (void)state;
    assert_int_equal(probe(TEXT(WHOLE)), 100);
    assert_int_equal(read_bytes(&map, &io, TEXT(WHOLE), NULL), CKPT_OK);
    assert_int_equal(map->tensors.n, 2);
    for (size_t i = 0; i < 2; i++) {
        const ckpt_tensor *t = map->tensors.at[i];
        const ckpt_source *s = &map->sources.at[t->extent[0].source];

        assert_string_equal(t->name, i == 0 ? "w" : "b");
        assert_int_equal(t->dtype, CKPT_F32);
        assert_int_equal(t->n_elems, i == 0 ? 2 : 1);
        assert_memory_equal(bytes + s->at, i == 0 ? "efghijkl" : "abcd", (size_t)s->n_bytes);
        assert_int_equal(s->n_bytes, 4 * t->n_elems);
        assert_false(s->has_crc);
        assert_int_equal(s->swap, 0);
    }
    assert_int_equal(ckpt_map_check(map, NULL), CKPT_OK);
    assert_string_equal(map->facts.at[0].text, "legacy stream");
    assert_int_equal(map->values->kind, CKPT_V_DICT);
    done(map, io);
}

static void byte_order(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        unsigned swap;
    } cases[] = {
        {TEXT(MAGIC VERSION BIG OBJECT KEYS DATA_3B DATA_7B), 4},
        {TEXT(MAGIC VERSION BIG OBJECT KEYS DATA_3 DATA_7),
         0}, // as newer torch writes on such machines
        {TEXT(MAGIC VERSION "\x80\2}." OBJECT KEYS DATA_3 DATA_7), 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_map *map;
        ckpt_io *io;

        assert_int_equal(read_bytes(&map, &io, cases[i].bytes, cases[i].n, NULL), CKPT_OK);
        assert_int_equal(map->sources.at[0].swap, cases[i].swap);
        assert_int_equal(map->sources.at[1].swap, cases[i].swap);
        done(map, io);
    }
    expect(TEXT(MAGIC VERSION BIG OBJECT KEYS DATA_3B DATA_7), CKPT_EFORMAT, "elements there");
    expect(TEXT(MAGIC VERSION BIG OBJECT KEYS DATA_3 DATA_7B), CKPT_EFORMAT, "elements there");
    expect(TEXT(MAGIC VERSION LITTLE OBJECT KEYS DATA_3B DATA_7B), CKPT_EFORMAT, "elements there");
}

static void wrong_heads(void **state)
{
    (void)state;
    expect(TEXT(MAGIC "\x80\2M\xEA\3." LITTLE OBJECT KEYS DATA_3 DATA_7), CKPT_EFORMAT,
           "version 1002");
    expect(TEXT(MAGIC "\x80\2N." LITTLE OBJECT KEYS DATA_3 DATA_7), CKPT_EFORMAT, "version 0");
    expect(TEXT(MAGIC VERSION "\x80\2]." OBJECT KEYS DATA_3 DATA_7), CKPT_EFORMAT, "third pickle");
    expect(TEXT(MAGIC), CKPT_EFORMAT, NULL);
    expect(TEXT(""), CKPT_EFORMAT, "empty");
    expect(TEXT(MAGIC VERSION LITTLE "\x80\2cos\nsystem\nX\1\0\0\0x\x85R." KEYS), CKPT_EUNSAFE,
           "os.system");
    expect(TEXT(MAGIC VERSION LITTLE OBJECT "\x80\2cos\nsystem\nX\1\0\0\0x\x85R."), CKPT_EUNSAFE,
           "os.system");
    expect(TEXT(MAGIC "\x80\2cos\nsystem\nX\1\0\0\0x\x85R."), CKPT_EUNSAFE, "os.system");
}

static void wrong_storages(void **state)
{
    (void)state;
    expect(TEXT(MAGIC VERSION LITTLE OBJECT KEYS DATA_7 DATA_3), CKPT_EFORMAT,
           "2 elements there, but 1");
    expect(TEXT(MAGIC VERSION LITTLE OBJECT KEYS DATA_3), CKPT_EFORMAT, "ends before storage 7");
    expect(TEXT(MAGIC VERSION LITTLE OBJECT KEYS DATA_3 "\2\0\0\0\0\0\0\0efghijk"), CKPT_EFORMAT,
           "beyond the end");
    expect(TEXT(WHOLE "x"), CKPT_EFORMAT, "1 bytes follow");
    expect(TEXT(MAGIC VERSION LITTLE OBJECT "\x80\2](X\1\0\0\0003X\1\0\0\0003e." DATA_3 DATA_3),
           CKPT_EFORMAT, "twice");
    expect(TEXT(MAGIC VERSION LITTLE OBJECT "\x80\2](X\1\0\0\0003X\1\0\0\0009e." DATA_3 DATA_7),
           CKPT_EFORMAT, "no tensor uses");
    expect(TEXT(MAGIC VERSION LITTLE OBJECT "\x80\2](X\1\0\0\0003K\7e." DATA_3 DATA_7),
           CKPT_EFORMAT, "no tensor uses");
    expect(TEXT(MAGIC VERSION LITTLE OBJECT
                "\x80\2](X\1\0\0\0003X\1\0\0\0007X\1\0\0\0008e." DATA_3 DATA_7),
           CKPT_EFORMAT, "list has 3 storages");
    expect(TEXT(MAGIC VERSION LITTLE OBJECT "\x80\2}." DATA_3 DATA_7), CKPT_EFORMAT, "list has 0");
    expect(TEXT(MAGIC VERSION LITTLE "\x80\2]."
                                     "\x80\2]."),
           CKPT_OK, NULL); // no storages at all
}

static void every_cut(void **state)
{
    static const char bytes[] = WHOLE;

    (void)state;
    for (size_t n = 0; n < sizeof bytes - 1; n++)
        expect(bytes, n, CKPT_EFORMAT, NULL);
}

/* Every byte replaced: nothing may go wrong but the verdict, which the sanitizers watch. */
static void every_byte(void **state)
{
    char bytes[] = WHOLE;
    size_t refused = 0;

    (void)state;
    for (size_t i = 0; i < sizeof bytes - 1; i++) {
        char was = bytes[i];

        for (unsigned v = 0; v < 256; v += 5) {
            ckpt_map *map = NULL;
            ckpt_io *io = NULL;

            bytes[i] = (char)v;
            refused += read_bytes(&map, &io, bytes, sizeof bytes - 1, NULL) != CKPT_OK;
            done(map, io);
        }
        bytes[i] = was;
    }
    assert_true(refused > 20 * sizeof bytes);
}

/* ---- where a pickle ends ---- */

/* Every kind of argument, so that a wrong length would end the pickle elsewhere. */
static void all_opcodes(void **state)
{
    static const char bytes[] =
        "\x80\4\x95\x6C\0\0\0\0\0\0\0(K.M..J....G........" // digits that are STOPs
        "U\2..C\2..X\2\0\0\0..T\2\0\0\0..B\2\0\0\0..\x8C\2..\x8D\2\0\0\0\0\0\0\0.."
        "\x8E\2\0\0\0\0\0\0\0.."
        "\x8A\2..\x8B\2\0\0\0..I12\nL3L\nF1.5\nS'.'\nV.\n\x94q.h.r.\0\0\0j.\0\0\0N\x88\x89)]}"
        "\x8Ft.";
    ckpt_map *map;
    ckpt_io *io;
    ckpt_err err = {0};

    (void)state;
    // With no frame: its length would have to be counted by hand.
    char plain[sizeof bytes];

    memcpy(plain, bytes, 2);
    memcpy(plain + 2, bytes + 11, sizeof bytes - 11);
    if (read_bytes(&map, &io, plain, sizeof bytes - 1 - 9, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    assert_int_equal(map->values->kind, CKPT_V_TUPLE);
    assert_int_equal(map->tensors.n, 0);
    done(map, io);
}

static void plain_pickles(void **state)
{
    (void)state;
    expect(TEXT("\x80\2}X\1\0\0\0aK\1s."), CKPT_OK, NULL);
    expect(TEXT("(lp0\nI1\na."), CKPT_OK, NULL);
    expect(TEXT("\x80\2}X\1\0\0\0aK\1s.x"), CKPT_EFORMAT, "1 bytes follow");
    expect(TEXT("\x80\2}X\1\0\0\0aK\1s.\x80\2}."), CKPT_EFORMAT, "without torch's magic number");
    expect(TEXT(OBJECT), CKPT_EFORMAT, "but the file has none");
    expect(TEXT("(S'x'\nios\nsystem\n."), CKPT_EUNSAFE, "os.system");
    expect(TEXT("\x80\2cos\nsystem\nX\1\0\0\0x\x85R\xFF\xFF"), CKPT_EUNSAFE, "os.system");
    expect(TEXT("\x80\2\xFF\xFF."), CKPT_EFORMAT, NULL);
    expect(TEXT("\x80\2X\xFF\xFF\xFF\xFF."), CKPT_EFORMAT, NULL);
    expect(TEXT("\x80\2\x8D\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF."), CKPT_EFORMAT, NULL);
    expect(TEXT("\x80\2cos"), CKPT_EFORMAT, NULL);
    expect(TEXT("\x80"), CKPT_EFORMAT, NULL);
}

/* A file of which all but the start is zero, and which nobody may read to its end. */
typedef struct large {
    ckpt_io io;
    const char *head;
    size_t n_head;
    uint64_t n_read;
} large;

static int large_read(ckpt_io *io, void *buf, uint64_t n, uint64_t at, ckpt_err *err)
{
    large *f = (large *)io;

    (void)err;
    f->n_read += n;
    memset(buf, 0, (size_t)n);
    if (at < f->n_head)
        memcpy(buf, f->head + at, (size_t)(f->n_head - at < n ? f->n_head - at : n));
    return CKPT_OK;
}

static void reads_little(void **state)
{
    static const char good[] = MAGIC VERSION LITTLE
        "\x80\2}X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n"
        "((X\7\0\0\0storagectorch\nByteStorage\nX\1\0\0\0007X\3\0\0\0cpu\x8A\6\0\0\0\0\0\1NtQ"
        "K\0\x8A\6\0\0\0\0\0\1\x85K\1\x85\x89"
        "ccollections\nOrderedDict\n)RtRs."
        "\x80\2]X\1\0\0\0007a."
        "\0\0\0\0\0\1\0\0";
    static const char *const heads[] = {good, "\x80\2X\xFF\xFF\xFF\x7F", "\x80\2(((((("};
    static const size_t sizes[] = {sizeof good - 1, 7, 8};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        large f = {
            {.name = "large.pt", .size = sizes[i] + (UINT64_C(1) << 40), .read_at = large_read},
            heads[i],
            sizes[i],
            0};
        ckpt_map *map;
        ckpt_err err = {0};

        assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
        int rc = ckpt_format_torch_legacy.read(map, &f.io, 0, &err);
        if ((rc == CKPT_OK) != (i == 0))
            fail_msg("%zu: %s", i, err.text);
        if (i == 0)
            assert_int_equal(map->tensors.at[0]->n_elems, UINT64_C(1) << 40);
        if (i != 1) // that one asks for 2 GiB, which are there: refused as too much
            assert_true(f.n_read < 65536);
        assert_true(rc == CKPT_OK || rc == (i == 1 ? CKPT_ELIMIT : CKPT_EFORMAT));
        ckpt_map_free(map);
    }
}

/* ---- tar ---- */

static size_t tar_member(char *out, const char *name, const char *bytes, size_t n)
{
    memset(out, 0, 1024);
    snprintf(out, 100, "%s", name);
    snprintf(out + 124, 12, "%011zo", n);
    memcpy(out + 257, "ustar", 5);
    memcpy(out + 512, bytes, n);
    return 1024;
}

static void tar_files(void **state)
{
    static const char payload[] = "\x80\2K\1.\x80\2cos\nsystem\nX\1\0\0\0x\x85R.";
    char tar[5 * 1024];
    size_t n = 0;

    (void)state;
    n += tar_member(tar + n, "sys_info", TEXT("\x80\2}."));
    n += tar_member(tar + n, "pickle", TEXT("\x80\2]."));
    n += tar_member(tar + n, "storages", TEXT("\x80\2K\1.raw bytes"));
    assert_int_equal(probe(tar, n), 60);
    expect(tar, n, CKPT_EUNSUPPORTED, "tar layout");
    expect(tar, n - 700, CKPT_EUNSUPPORTED, "tar layout");
    n += tar_member(tar + n, "tensors", payload, sizeof payload - 1);
    expect(tar, n, CKPT_EUNSAFE, "os.system");
    memcpy(tar + 124, "zzz", 3); // a size that is none
    expect(tar, n, CKPT_EUNSUPPORTED, "tar layout");
    memcpy(tar + 124, "777777777777", 12);
    expect(tar, n, CKPT_EUNSUPPORTED, "tar layout");
}

static void probing(void **state)
{
    (void)state;
    assert_int_equal(probe(TEXT(MAGIC)), 100);
    assert_int_equal(probe(TEXT("\x80\4")), 30);
    assert_int_equal(probe(TEXT("\x80\6")), 0);
    assert_int_equal(probe(TEXT("(dp0")), 10);
    assert_int_equal(probe(TEXT("PK\3\4")), 0);
    assert_int_equal(probe(TEXT("{\"a\":1}")), 0);
    assert_int_equal(probe(TEXT("\0\0")), 0);
    assert_int_equal(probe(TEXT("")), 0);
}

static void no_memory(void **state)
{
    int rc = CKPT_ELIMIT;

    (void)state;
    for (uint64_t k = 0; rc != CKPT_OK; k++) {
        ckpt_map *map = NULL;
        ckpt_io *io = NULL;

        assert_true(k < 500);
        ckpt_alloc_fail_at(k);
        rc = read_bytes(&map, &io, TEXT(WHOLE), NULL);
        ckpt_alloc_fail_at(UINT64_MAX);
        assert_true(rc == CKPT_OK || rc == CKPT_ELIMIT);
        done(map, io);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_stream), cmocka_unit_test(byte_order),
        cmocka_unit_test(wrong_heads),  cmocka_unit_test(wrong_storages),
        cmocka_unit_test(every_cut),    cmocka_unit_test(every_byte),
        cmocka_unit_test(all_opcodes),  cmocka_unit_test(plain_pickles),
        cmocka_unit_test(reads_little), cmocka_unit_test(tar_files),
        cmocka_unit_test(probing),      cmocka_unit_test(no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
