/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_torch.c: what torch archives are read or refused, and that what is written is laid out as
 * torch does it and reads back the same.
 */
#include <inttypes.h>

#include "ckpt_extra.h"
#include "libckpt/base/digest.h"
#include "libckpt/base/dtype.h"
#include "libckpt/codec/zip/zip.h"
#include "libckpt/format.h"
#include "tests/unit/unit.h"

extern const ckpt_format ckpt_format_torch;

/* ---- reading bytes ---- */

static int read_archive(ckpt_map **out, ckpt_io **io, const ckpt_bytes *b, ckpt_err *err)
{
    ckpt_map_file file = {.path = "t.pt", .format = &ckpt_format_torch, .size = b->n};
    uint32_t index = 0;
    int rc = ckpt_map_create(out, 0, err);

    *io = NULL;
    if (rc == CKPT_OK)
        rc = ckpt_io_memory(io, "t.pt", b->at, b->n, err);
    if (rc == CKPT_OK)
        rc = ckpt_map_add_file(*out, &file, &index, err);
    if (rc == CKPT_OK)
        rc = ckpt_format_torch.read(*out, *io, index, err);
    return rc;
}

static void done(ckpt_map *map, ckpt_io *io)
{
    ckpt_map_free(map);
    ckpt_io_close(io);
}

static void expect(const ckpt_bytes *b, int code, const char *text)
{
    ckpt_map *map = NULL;
    ckpt_io *io = NULL;
    ckpt_err err = {0};
    int rc = read_archive(&map, &io, b, &err);

    if (rc != code || (text && !strstr(err.text, text)))
        fail_msg("expected %d \"%s\", got %d \"%s\"", code, text, rc, err.text);
    done(map, io);
}

static const ckpt_tensor *tensor(const ckpt_map *map, const char *name)
{
    size_t i = ckpt_map_index(map, name, strlen(name));

    if (i == SIZE_MAX)
        fail_msg("no tensor \"%s\"", name);
    return map->tensors.at[i];
}

static const char *fact(const ckpt_map *map, const char *key)
{
    for (size_t i = 0; i < map->facts.n; i++) {
        if (strcmp(map->facts.at[i].key, key) == 0)
            return map->facts.at[i].text;
    }
    return "";
}

static bool noted(const ckpt_map *map, ckpt_severity severity, const char *text)
{
    for (size_t i = 0; i < map->findings.n; i++) {
        if (map->findings.at[i].severity == severity && strstr(map->findings.at[i].text, text))
            return true;
    }
    return false;
}

/* ---- archives by hand ---- */

typedef struct record {
    const char *name;
    const void *bytes;
    size_t n;
} record;

/* Records until a NULL name, all in the folder "top". */
static void pack(ckpt_bytes *out, const record *r)
{
    ckpt_zip_item item[16];
    char name[16][64];
    uint64_t at = 0;
    size_t n;

    memset(out, 0, sizeof *out);
    for (n = 0; r[n].name != NULL; n++) {
        snprintf(name[n], sizeof name[n], "top/%s", r[n].name);
        item[n] = (ckpt_zip_item){.name = name[n], .n_name = strlen(name[n]), .n_bytes = r[n].n};
        item[n].crc = ckpt_crc32(0, r[n].bytes, r[n].n);
        assert_int_equal(ckpt_zip_place(&item[n], &at, NULL), CKPT_OK);
        assert_true(ckpt_zip_put_header(out, &item[n]));
        assert_true(ckpt_bytes_add(out, r[n].bytes, r[n].n));
        assert_true(ckpt_zip_put_descriptor(out, &item[n]));
    }
    assert_true(ckpt_zip_put_directory(out, item, n, at));
}

/* {"w": float tensor of 3 elements in storage "0"}, protocol 2. */
static const char one_float[] =
    "\x80\x02}X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\n"
    "X\1\0\0\0000X\3\0\0\0cpuK\3tQK\0K\3\x85K\1\x85\x89"
    "ccollections\nOrderedDict\n)RtRs.";

/* The same with UntypedStorage of 12 bytes and dtype int16 (6 elements), and a view as uint32 (3).
 */
static const char two_views[] =
    "\x80\x02}(X\1\0\0\0wctorch._utils\n_rebuild_tensor_v3\n((X\7\0\0\0storagectorch."
    "storage\nUntypedStorage\n"
    "X\1\0\0\0000X\3\0\0\0cpuK\x0CtQq\0K\0K\6\x85K\1\x85\x89"
    "ccollections\nOrderedDict\n)Rctorch\nuint16\ntR"
    "X\1\0\0\0vctorch._utils\n_rebuild_tensor_v3\n(h\0K\0K\3\x85K\1\x85\x89"
    "ccollections\nOrderedDict\n)Rctorch\nuint32\ntRu.";

static const float three[3] = {1.0f, 2.0f, 3.0f};

#define PICKLE                                                                                     \
    {                                                                                              \
        "data.pkl", one_float, sizeof one_float - 1                                                \
    }
#define VERSION                                                                                    \
    {                                                                                              \
        "version", "3\n", 2                                                                        \
    }
#define DATA                                                                                       \
    {                                                                                              \
        "data/0", three, sizeof three                                                              \
    }
#define TEXT(name, text)                                                                           \
    {                                                                                              \
        name, text, sizeof(text) - 1                                                               \
    }

static void expect_records(const record *r, int code, const char *text)
{
    ckpt_bytes b;

    pack(&b, r);
    expect(&b, code, text);
    ckpt_vec_free(&b);
}

static void plain_archive(void **state)
{
    const record r[] = {PICKLE, DATA, VERSION, {0}};
    ckpt_bytes b;
    ckpt_map *map;
    ckpt_io *io;
    const ckpt_tensor *t;
    const ckpt_source *s;

    (void)state;
    pack(&b, r);
    assert_true(ckpt_format_torch.probe(b.at, b.n, b.n) >= 90);
    assert_int_equal(read_archive(&map, &io, &b, NULL), CKPT_OK);
    assert_int_equal(map->tensors.n, 1);
    t = tensor(map, "w");
    assert_int_equal(t->dtype, CKPT_F32);
    assert_int_equal(t->ndim, 1);
    assert_int_equal(t->shape[0], 3);
    assert_int_equal(t->n_extents, 1);
    s = &map->sources.at[t->extent[0].source];
    assert_memory_equal(b.at + s->at + t->extent[0].at, three, sizeof three);
    assert_true(s->has_crc);
    assert_int_equal(s->crc, ckpt_crc32(0, three, sizeof three));
    assert_int_equal(s->coding, CKPT_RAW);
    assert_int_equal(s->swap, 0);
    assert_string_equal(s->name, "top/data/0");
    assert_string_equal(fact(map, "format version"), "3");
    assert_string_equal(fact(map, "container"), "zip");
    assert_string_equal(fact(map, "byte order"), "");
    assert_int_equal(map->values->kind, CKPT_V_DICT);
    assert_int_equal(ckpt_map_check(map, NULL), CKPT_OK);
    done(map, io);
    ckpt_vec_free(&b);
}

static void kinds_of_archives(void **state)
{
    (void)state;
    expect_records((const record[]){PICKLE, DATA, {0}}, CKPT_EFORMAT, "no record 'version'");
    expect_records((const record[]){VERSION, DATA, {0}}, CKPT_EMISSING, "died half-way");
    expect_records((const record[]){DATA, {0}}, CKPT_EFORMAT, "not one of torch.save");
    expect_records((const record[]){PICKLE, DATA, VERSION, TEXT("constants.pkl", "x"), {0}},
                   CKPT_EUNSUPPORTED, "TorchScript");
    expect_records((const record[]){PICKLE, VERSION, {0}}, CKPT_EFORMAT,
                   "data/0, which is missing");
    expect_records((const record[]){PICKLE, VERSION, {"data/0", three, 11}, {0}}, CKPT_EFORMAT,
                   "holds 11 bytes");
    expect_records((const record[]){PICKLE, VERSION, TEXT("data/0", "1234567890123"), {0}},
                   CKPT_EFORMAT, "need 12");
    expect_records((const record[]){PICKLE, VERSION, {"tensors/0", three, sizeof three}, {0}},
                   CKPT_OK, NULL);
    expect_records((const record[]){TEXT("data.pkl", ""), VERSION, {0}}, CKPT_EFORMAT, "data.pkl");
    expect_records(
        (const record[]){TEXT("data.pkl", "\x80\2cos\nsystem\nX\1\0\0\0x\x85R."), VERSION, {0}},
        CKPT_EUNSAFE, "os.system");
}

static void versions(void **state)
{
    static const struct {
        const char *text;
        bool good;
    } cases[] = {{"1", true},
                 {"3", true},
                 {"10\n", true},
                 {"3\r\n", true},
                 {"0", false},
                 {"11", false},
                 {"999999", false},
                 {"", false},
                 {"\n", false},
                 {"3x", false},
                 {"-3", false},
                 {" 3", false},
                 {"18446744073709551617", false}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const record r[] = {PICKLE, DATA, {"version", cases[i].text, strlen(cases[i].text)}, {0}};

        expect_records(r, cases[i].good ? CKPT_OK : CKPT_EFORMAT, "");
    }
    // torch takes .data/version where there is one
    expect_records((const record[]){PICKLE, DATA, VERSION, TEXT(".data/version", "99"), {0}},
                   CKPT_EFORMAT, "\"99\"");
    expect_records((const record[]){PICKLE, DATA, TEXT(".data/version", "3"), {0}}, CKPT_OK, NULL);
    expect_records((const record[]){PICKLE, DATA, {"version", "3\0", 2}, {0}}, CKPT_EFORMAT,
                   "not text");
}

static void byte_order(void **state)
{
    const record big[] = {PICKLE, DATA, VERSION, TEXT("byteorder", "big"), {0}};
    const record mixed[] = {{"data.pkl", two_views, sizeof two_views - 1},
                            DATA,
                            VERSION,
                            TEXT("byteorder", "big"),
                            {0}};
    ckpt_bytes b;
    ckpt_map *map;
    ckpt_io *io;

    (void)state;
    pack(&b, big);
    assert_int_equal(read_archive(&map, &io, &b, NULL), CKPT_OK);
    assert_int_equal(map->sources.at[tensor(map, "w")->extent[0].source].swap, 4);
    assert_string_equal(fact(map, "byte order"), "big");
    done(map, io);
    ckpt_vec_free(&b);
    // uint16 and uint32 lie in a storage of bytes, which torch does not swap
    pack(&b, mixed);
    assert_int_equal(read_archive(&map, &io, &b, NULL), CKPT_OK);
    assert_int_equal(map->sources.at[tensor(map, "w")->extent[0].source].swap, 0);
    done(map, io);
    ckpt_vec_free(&b);
    expect_records((const record[]){{"data.pkl", two_views, sizeof two_views - 1},
                                    DATA,
                                    VERSION,
                                    TEXT("byteorder", "little"),
                                    {0}},
                   CKPT_OK, NULL);
    expect_records((const record[]){PICKLE, DATA, VERSION, TEXT("byteorder", "middle"), {0}},
                   CKPT_EFORMAT, "\"middle\"");
}

/* Checksums left out, case games, a storage that is compressed. */
static void odd_records(void **state)
{
    const record r[] = {PICKLE, DATA, VERSION, TEXT("DATA.pkl", "."), {0}};
    const size_t entry = 46 + strlen("top/data.pkl");
    ckpt_bytes b;
    ckpt_map *map;
    ckpt_io *io;
    uint64_t at;

    (void)state;
    pack(&b, r);
    assert_int_equal(read_archive(&map, &io, &b, NULL), CKPT_OK);
    assert_true(noted(map, CKPT_WARNING, "differ by case"));
    assert_false(noted(map, CKPT_WARNING, "no checksum"));
    done(map, io);
    for (at = b.n - CKPT_ZIP_END_SIZE;
         memcmp(b.at + at, "PK\1\2", 4) != 0 || memcmp(b.at + at + 46, "top/data.pkl", 12) != 0;)
        at--;
    memset(b.at + at + entry + 16, 0, 4); // the CRC of data/0
    assert_int_equal(read_archive(&map, &io, &b, NULL), CKPT_OK);
    assert_false(map->sources.at[0].has_crc);
    assert_true(noted(map, CKPT_WARNING, "no checksum in 1 of 1"));
    done(map, io);
    b.at[at + 16] ^= 1; // the CRC of the pickle
    expect(&b, CKPT_EFORMAT, "CRC-32 does not match");
    ckpt_vec_free(&b);
}

static void all_records(void **state)
{
    const record r[] = {PICKLE, DATA, VERSION, TEXT("data/7", "unused"), TEXT("folder/", ""), {0}};
    ckpt_map_file file = {.path = "t.pt"};
    uint32_t index;
    ckpt_bytes b;
    ckpt_map *map;
    ckpt_io *io;

    (void)state;
    pack(&b, r);
    assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
    assert_int_equal(ckpt_io_memory(&io, "t.pt", b.at, b.n, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_add_file(map, &file, &index, NULL), CKPT_OK);
    assert_int_equal(ckpt_format_torch.records(map, io, index, NULL), CKPT_OK);
    assert_int_equal(map->sources.n, 4);
    for (size_t i = 0; i < 4; i++) {
        const ckpt_source *s = &map->sources.at[i];

        assert_int_equal(s->n_bytes, r[i].n);
        assert_memory_equal(b.at + s->at, r[i].bytes, r[i].n);
        assert_int_equal(s->crc, ckpt_crc32(0, r[i].bytes, r[i].n));
        assert_string_equal(s->name + 4, r[i].name);
    }
    done(map, io);
    ckpt_vec_free(&b);
}

static void probing(void **state)
{
    (void)state;
    assert_int_equal(ckpt_format_torch.probe((const uint8_t *)"PK\3\4", 4, 4), 40);
    assert_int_equal(ckpt_format_torch.probe((const uint8_t *)"PK\3", 3, 3), 0);
    assert_int_equal(ckpt_format_torch.probe((const uint8_t *)"\x80\2abc", 5, 5), 0);
}

/* ---- writing ---- */

static void add(ckpt_map *to, const char *name, ckpt_dtype dtype, const uint64_t *shape,
                uint32_t ndim, const char *owner)
{
    ckpt_tensor like = {.dtype = dtype, .ndim = ndim, .shape = shape}, *made;

    like.owner = owner ? tensor(to, owner) : NULL;
    assert_int_equal(ckpt_map_add(to, name, strlen(name), &like, &made, NULL), CKPT_OK);
}

static ckpt_map *target(const char *path)
{
    ckpt_map_file file = {.path = path, .format = &ckpt_format_torch};
    uint32_t index;
    ckpt_map *to;

    assert_int_equal(ckpt_map_create(&to, 0, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_add_file(to, &file, &index, NULL), CKPT_OK);
    return to;
}

/* One tensor of each dtype that torch has, an alias, an empty one, one without axes. */
static ckpt_map *all_dtypes(const char *path)
{
    static const uint64_t shape[2] = {3, 14}, none[3] = {0, 5, 2};
    ckpt_map *to = target(path);

    for (int d = CKPT_F64; d < CKPT_N_DTYPES; d++) {
        const ckpt_dtype_info *info = ckpt_dtype_get((ckpt_dtype)d);

        if (info->torch)
            add(to, info->name, (ckpt_dtype)d, shape, 2, NULL);
    }
    add(to, "tied", CKPT_F32, shape, 2, "F32");
    add(to, "empty", CKPT_F32, none, 3, NULL);
    add(to, "scalar", CKPT_I64, none, 0, NULL);
    add(to, "\xC3\xBC", CKPT_BOOL, shape, 1, NULL);
    return to;
}

/* Write the file into memory: place, fill each source with a pattern, seal. */
static int write_file(ckpt_bytes *out, ckpt_map *to, ckpt_err *err)
{
    const ckpt_map_file *file = &to->files.at[0];
    uint64_t covered = 0;
    int rc = ckpt_format_torch.place(to, 0, err);

    if (rc != CKPT_OK || !ckpt_bytes_add(out, NULL, (size_t)file->size))
        return rc != CKPT_OK ? rc : ckpt_fail_memory(err);
    for (size_t i = 0; i < to->sources.n; i++) {
        ckpt_source *s = &to->sources.at[i];

        assert_true(ckpt_within(s->at, s->n_bytes, out->n));
        for (uint64_t k = 0; k < s->n_bytes; k++)
            out->at[s->at + k] = (uint8_t)((k * 7 + i) % 2);
        s->crc = ckpt_crc32(0, out->at + s->at, (size_t)s->n_bytes);
        covered += s->n_bytes;
    }
    rc = ckpt_format_torch.seal(to, 0, UINT64_MAX, err);
    for (size_t i = 0; rc == CKPT_OK && i < file->literals.n; i++) {
        const ckpt_literal *l = &file->literals.at[i];

        assert_true(ckpt_within(l->at, l->n, out->n));
        memcpy(out->at + l->at, l->bytes, (size_t)l->n);
        covered += l->n;
    }
    if (rc == CKPT_OK)
        assert_int_equal(covered, out->n); // literals and data: every byte, none twice
    return rc;
}

static void round_trip(void **state)
{
    ckpt_map *to = all_dtypes("model.v1.pt"), *back = NULL;
    ckpt_bytes b = {0};
    ckpt_io *io;
    ckpt_err err = {0};

    (void)state;
    if (write_file(&b, to, &err) != CKPT_OK || read_archive(&back, &io, &b, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    assert_int_equal(back->tensors.n, to->tensors.n);
    assert_int_equal(ckpt_map_check(back, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_check(to, NULL), CKPT_OK);
    for (size_t i = 0; i < to->tensors.n; i++) {
        const ckpt_tensor *a = to->tensors.at[i], *c = tensor(back, a->name);

        assert_int_equal(a->dtype, c->dtype);
        assert_int_equal(a->ndim, c->ndim);
        assert_true(a->ndim == 0 || memcmp(a->shape, c->shape, a->ndim * sizeof *a->shape) == 0);
        assert_int_equal(a->owner != NULL, c->owner != NULL);
        if (a->owner || a->n_elems == 0)
            continue;
        assert_int_equal(to->sources.at[a->extent[0].source].at,
                         back->sources.at[c->extent[0].source].at);
        assert_int_equal(to->sources.at[a->extent[0].source].at % 64, 0);
        assert_int_equal(back->sources.at[c->extent[0].source].crc,
                         to->sources.at[a->extent[0].source].crc);
    }
    assert_string_equal(tensor(back, "tied")->owner->name, "F32");
    // one object under two names, not two that share bytes
    assert_ptr_equal(ckpt_value_get(back->values, "tied"), ckpt_value_get(back->values, "F32"));
    assert_ptr_not_equal(ckpt_value_get(back->values, "F16"), ckpt_value_get(back->values, "F32"));
    assert_string_equal(fact(back, "byte order"), "little");
    assert_memory_equal(b.at + 30, "model.v1/data.pkl", 17);
    done(back, io);
    ckpt_map_free(to);
    ckpt_vec_free(&b);
}

/* The records in torch's order; the second half of the id follows from their checksums. */
static void records_as_torch(void **state)
{
    static const uint64_t shape[1] = {3}, none[1] = {0};
    static const char *const order[] = {
        "m/data.pkl",  "m/.format_version", "m/.storage_alignment",
        "m/byteorder", "m/data/0",          "m/data/1",
        "m/data/2",    "m/version",         "m/.data/serialization_id"};
    ckpt_map *to = target("m.pt");
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_bytes b = {0};
    uint64_t sum = 0;
    char text[21];
    ckpt_zip zip;
    ckpt_io *io;

    (void)state;
    add(to, "a", CKPT_F32, shape, 1, NULL);
    add(to, "b", CKPT_F32, none, 1, NULL);
    add(to, "c", CKPT_U8, shape, 1, NULL);
    assert_int_equal(write_file(&b, to, NULL), CKPT_OK);
    assert_int_equal(ckpt_io_memory(&io, "m.pt", b.at, b.n, NULL), CKPT_OK);
    assert_int_equal(ckpt_zip_open(&zip, arena, io, NULL), CKPT_OK);
    assert_int_equal(zip.records.n, 9);
    for (size_t i = 0; i < 9; i++) {
        const ckpt_zip_record *r = &zip.records.at[i];

        assert_string_equal(r->name, order[i]);
        assert_int_equal(r->at % 64, 0);
        assert_int_equal(ckpt_crc32(0, b.at + r->at, (size_t)r->n_bytes), r->crc);
        if (i < 8 && r->n_bytes > 0)
            sum ^= r->crc + UINT64_C(0x9E3779B9) + (sum << 6) + (sum >> 2);
    }
    assert_memory_equal(b.at + zip.records.at[2].at, "64", 2);
    assert_int_equal(zip.records.at[8].n_bytes, 40);
    snprintf(text, sizeof text, "%020" PRIu64, sum);
    assert_memory_equal(b.at + zip.records.at[8].at + 20, text, 20);
    ckpt_zip_close(&zip);
    ckpt_io_close(io);
    ckpt_arena_free(arena);
    ckpt_map_free(to);
    ckpt_vec_free(&b);
}

static void top_folders(void **state)
{
    static const char *const cases[][2] = {
        {"model.pt", "model/"},       {"b.c.pt", "b.c/"},    {"noext", "noext/"},
        {"dir/x.bin", "x/"},          {"dir\\y.bin", "y/"},  {".pt", "archive/"},
        {"m\xC3\xBC.pt", "archive/"}, {"...pt", "archive/"}, {"a\nb.pt", "archive/"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_map *to = target(cases[i][0]);
        ckpt_bytes b = {0};

        assert_int_equal(write_file(&b, to, NULL), CKPT_OK);
        assert_memory_equal(b.at + 30, cases[i][1], strlen(cases[i][1]));
        expect(&b, CKPT_OK, NULL); // without any tensor
        ckpt_map_free(to);
        ckpt_vec_free(&b);
    }
}

static void cannot_be_written(void **state)
{
    static const uint64_t odd[1] = {3}, even[2] = {3, 4};
    ckpt_map_file second = {.path = "second.pt"};
    uint32_t index;
    ckpt_map *to = target("m.pt");
    ckpt_tensor *t;

    (void)state;
    add(to, "x", CKPT_F6_E2M3, even, 2, NULL);
    assert_int_equal(ckpt_format_torch.place(to, 0, NULL), CKPT_EUNSUPPORTED);
    ckpt_map_free(to);
    to = target("m.pt");
    add(to, "x", CKPT_F4, (const uint64_t[]){2, odd[0]}, 2, NULL);
    assert_int_equal(ckpt_format_torch.place(to, 0, NULL), CKPT_EUNSUPPORTED);
    ckpt_map_free(to);
    to = target("m.pt");
    add(to, "x", CKPT_F32, even, 2, NULL);
    add(to, "y", CKPT_F32, even, 2, "x");
    assert_int_equal(ckpt_map_add_file(to, &second, &index, NULL), CKPT_OK);
    t = to->tensors.at[1];
    t->file = index; // an alias cannot share a storage of another file
    assert_int_equal(ckpt_format_torch.place(to, index, NULL), CKPT_EUNSUPPORTED);
    ckpt_map_free(to);
}

/* ---- damage ---- */

/* One number for all that a reader could hand on: names, types, and bytes whose CRC holds. */
static bool digest(const ckpt_bytes *b, uint32_t *out)
{
    ckpt_map *map = NULL;
    ckpt_io *io = NULL;
    bool ok = read_archive(&map, &io, b, NULL) == CKPT_OK;

    *out = 0;
    for (size_t i = 0; ok && i < map->tensors.n; i++) {
        const ckpt_tensor *t = map->tensors.at[i];

        *out = ckpt_crc32(*out, t->name, strlen(t->name));
        *out = ckpt_crc32(*out, &t->dtype, sizeof t->dtype);
        *out = ckpt_crc32(*out, t->shape, t->ndim * sizeof *t->shape);
        if (t->n_extents > 0) {
            const ckpt_source *s = &map->sources.at[t->extent[0].source];

            ok = !s->has_crc || ckpt_crc32(0, b->at + s->at, (size_t)s->n_stored) == s->crc;
            ok = ok && s->coding == CKPT_RAW && s->swap == 0;
            *out = ckpt_crc32(*out, b->at + s->at, (size_t)s->n_stored);
        }
    }
    done(map, io);
    return ok;
}

static void every_bit_and_cut(void **state)
{
    const record r[] = {PICKLE, DATA, TEXT("byteorder", "little"), VERSION, {0}};
    uint32_t whole, other;
    ckpt_bytes b;
    size_t n, refused = 0;

    (void)state;
    pack(&b, r);
    n = b.n;
    assert_true(digest(&b, &whole));
    for (size_t i = 0; i < n; i++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            b.at[i] ^= (uint8_t)(1u << bit);
            if (!digest(&b, &other))
                refused++;
            else
                assert_int_equal(other, whole);
            b.at[i] ^= (uint8_t)(1u << bit);
        }
    }
    assert_true(refused > 4 * n); // the others sit in padding, times and versions
    for (b.n = 0; b.n < n; b.n++)
        assert_false(digest(&b, &other));
    ckpt_vec_free(&b);
}

static void no_memory(void **state)
{
    ckpt_bytes b = {0};
    int rc = CKPT_ELIMIT;
    uint64_t k;

    (void)state;
    for (k = 0; rc != CKPT_OK; k++) {
        ckpt_map *to = all_dtypes("m.pt");

        assert_true(k < 3000);
        ckpt_vec_free(&b);
        ckpt_alloc_fail_at(k);
        rc = write_file(&b, to, NULL);
        ckpt_alloc_fail_at(UINT64_MAX);
        assert_true(rc == CKPT_OK || rc == CKPT_ELIMIT);
        ckpt_map_free(to);
    }
    rc = CKPT_ELIMIT;
    for (k = 0; rc != CKPT_OK; k++) {
        ckpt_map *map = NULL;
        ckpt_io *io = NULL;

        assert_true(k < 3000);
        ckpt_alloc_fail_at(k);
        rc = read_archive(&map, &io, &b, NULL);
        ckpt_alloc_fail_at(UINT64_MAX);
        assert_true(rc == CKPT_OK || rc == CKPT_ELIMIT);
        done(map, io);
    }
    ckpt_vec_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_archive),     cmocka_unit_test(kinds_of_archives),
        cmocka_unit_test(versions),          cmocka_unit_test(byte_order),
        cmocka_unit_test(odd_records),       cmocka_unit_test(all_records),
        cmocka_unit_test(probing),           cmocka_unit_test(round_trip),
        cmocka_unit_test(records_as_torch),  cmocka_unit_test(top_folders),
        cmocka_unit_test(cannot_be_written), cmocka_unit_test(every_bit_and_cut),
        cmocka_unit_test(no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
