/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_safetensors.c: which headers are read and which refused, and the bytes that are laid out.
 */
#include <time.h>

#include "ckpt_extra.h"
#include "formats/safetensors/safetensors.h"
#include "libckpt/codec/json/json.h"
#include "tests/unit/unit.h"

/* A file: the header's length, the header, and n_data bytes of data that nobody looks at. */
typedef struct st_case {
    const char *header;
    uint64_t n_data;
    int code;
    const char *text; /* part of the message, or NULL */
} st_case;

static int read_bytes(ckpt_map **out, const void *bytes, uint64_t n, ckpt_err *err)
{
    ckpt_map_file file = {.path = "t.safetensors", .format = &ckpt_format_safetensors};
    ckpt_io *io = NULL;
    uint32_t index = 0;
    int rc = ckpt_map_create(out, 0, err);

    if (rc == CKPT_OK)
        rc = ckpt_io_memory(&io, file.path, bytes, n, err);
    file.size = n;
    if (rc == CKPT_OK)
        rc = ckpt_map_add_file(*out, &file, &index, err);
    if (rc == CKPT_OK)
        rc = ckpt_format_safetensors.read(*out, io, index, err);
    ckpt_io_close(io);
    if (rc != CKPT_OK) {
        ckpt_map_free(*out);
        *out = NULL;
    }
    return rc;
}

/* The bytes of a case; the length's claim can differ from the truth. */
static void make(ckpt_bytes *b, const char *header, uint64_t claim, uint64_t n_data)
{
    for (unsigned k = 0; k < 8; k++) {
        uint8_t byte = (uint8_t)(claim >> (8 * k));
        assert_true(ckpt_bytes_add(b, &byte, 1));
    }
    assert_true(ckpt_bytes_add(b, header, strlen(header)));
    assert_true(ckpt_bytes_add(b, NULL, (size_t)n_data));
}

static int read_header(ckpt_map **out, const char *header, uint64_t n_data, ckpt_err *err)
{
    ckpt_bytes b = {0};

    make(&b, header, strlen(header), n_data);
    int rc = read_bytes(out, b.at, b.n, err);
    ckpt_vec_free(&b);
    return rc;
}

static void check(const st_case *c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ckpt_err err = {0};
        ckpt_map *map = NULL;
        int rc = read_header(&map, c[i].header, c[i].n_data, &err);
        if (rc != c[i].code || rc != err.code)
            fail_msg("%s: %d (%s), expected %d", c[i].header, rc, err.text, c[i].code);
        if (c[i].text && !strstr(err.text, c[i].text))
            fail_msg("%s: message \"%s\" lacks \"%s\"", c[i].header, err.text, c[i].text);
        if (rc == CKPT_OK)
            assert_int_equal(ckpt_map_check(map, &err), CKPT_OK);
        ckpt_map_free(map);
    }
}

#define T(name, dtype, shape, from, to)                                                            \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" #from "," #to \
    "]}"

static void accepts(void **state)
{
    static const st_case cases[] = {
        {"{}", 0, 0, NULL},
        {"{}      ", 0, 0, NULL},
        {"{" T("a", "F32", "2,3", 0, 24) "}", 24, 0, NULL},
        {"{" T("b", "F32", "2", 4, 12) "," T("a", "U8", "4", 0, 4) "}", 12, 0, NULL},
        {"{" T("", "U8", "1", 0, 1) "}", 1, 0, NULL},
        {"{" T("s", "F64", "", 0, 8) "}", 8, 0, NULL},
        {"{" T("z", "F32", "0,5", 0, 0) "}", 0, 0, NULL},
        {"{" T("z", "F32", "0", 4, 4) "," T("a", "U8", "4", 0, 4) "," T("b", "U8", "4", 4, 8) "}",
         8, 0, NULL},
        {"{" T("a", "U8", "4", 0, 4) "," T("z", "F32", "0", 4, 4) "}", 4, 0, NULL},
        {"{" T("q", "F4", "2,3", 0, 3) "}", 3, 0, NULL},
        {"{" T("q", "F6_E2M3", "4", 0, 3) "}", 3, 0, NULL},
        {"{\"__metadata__\":null," T("a", "U8", "1", 0, 1) "}", 1, 0, NULL},
        {"{\"__metadata__\":{}," T("a", "BOOL", "1", 0, 1) "}", 1, 0, NULL},
        {"{\"a\":{\"more\":[1.5],\"data_offsets\":[0,2],\"shape\":[1],\"dtype\":\"BF16\"}}", 2, 0,
         NULL},
    };

    (void)state;
    check(cases, sizeof cases / sizeof *cases);
}

static void refuses_ranges(void **state)
{
    static const st_case cases[] = {
        {"{}", 1, CKPT_EFORMAT, "the file is cut or has extra data"},
        {"{" T("a", "U8", "4", 0, 4) "}", 3, CKPT_EFORMAT, "\"a\""},
        {"{" T("a", "U8", "4", 0, 4) "}", 5, CKPT_EFORMAT, "the file is cut or has extra data"},
        {"{" T("a", "U8", "4", 1, 5) "}", 5, CKPT_EFORMAT, "hole"},
        {"{" T("a", "U8", "4", 0, 4) "," T("b", "U8", "2", 5, 7) "}", 7, CKPT_EFORMAT, "hole"},
        {"{" T("a", "U8", "4", 0, 4) "," T("b", "U8", "4", 2, 6) "}", 6, CKPT_EFORMAT, "overlap"},
        {"{" T("a", "U8", "4", 0, 4) "," T("b", "U8", "4", 0, 4) "}", 4, CKPT_EFORMAT, "overlap"},
        {"{" T("a", "U8", "4", 4, 0) "}", 4, CKPT_EFORMAT, "bytes 4 to 0"},
        {"{" T("a", "F32", "2", 0, 4) "}", 4, CKPT_EFORMAT, "need 8 bytes"},
        {"{" T("a", "F32", "4611686018427387904", 0, 0) "}", 0, CKPT_EFORMAT, "2^53"},
        {"{" T("a", "F32", "4294967296,1073741824,2", 0, 0) "}", 0, CKPT_EFORMAT, "too many"},
        {"{" T("a", "F32", "4294967296,4294967296,2", 0, 0) "}", 0, CKPT_EFORMAT, "overflows"},
        {"{" T("a", "F32", "0,4294967296,4294967296,2", 0, 0) "}", 0, CKPT_EFORMAT, "overflows"},
        {"{" T("q", "F4", "3", 0, 2) "}", 2, CKPT_EFORMAT, "whole bytes"},
        {"{" T("q", "F6_E3M2", "2", 0, 2) "}", 2, CKPT_EFORMAT, "whole bytes"},
        {"{" T("z", "F32", "0", 2, 2) "," T("a", "U8", "4", 0, 4) "}", 4, CKPT_EFORMAT, NULL},
        {"{" T("z", "F32", "0", 5, 5) "," T("a", "U8", "4", 0, 4) "}", 4, CKPT_EFORMAT, "\"z\""},
    };

    (void)state;
    check(cases, sizeof cases / sizeof *cases);
}

static void refuses_entries(void **state)
{
    static const st_case cases[] = {
        {"[]", 0, CKPT_EFORMAT, "'{'"},
        {" {}", 0, CKPT_EFORMAT, "'{'"},
        {"{}\n", 0, CKPT_EFORMAT, "only spaces"},
        {"{}\t ", 0, CKPT_EFORMAT, "only spaces"},
        {"{}{}", 0, CKPT_EFORMAT, "after the end"},
        {"{", 0, CKPT_EFORMAT, NULL},
        {"{\"a\":1}", 0, CKPT_EFORMAT, "not an object"},
        {"{\"a\":{}}", 0, CKPT_EFORMAT, "dtype"},
        {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, CKPT_EFORMAT, "shape"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, CKPT_EFORMAT, "data_offsets"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,1]}}", 1, CKPT_EFORMAT,
         "data_offsets"},
        {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, CKPT_EFORMAT, "dtype"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}", 1, CKPT_EFORMAT, "shape"},
        {"{" T("a", "u8", "1", 0, 1) "}", 1, CKPT_EFORMAT, "\"u8\""},
        {"{" T("a", "C128", "1", 0, 16) "}", 16, CKPT_EFORMAT, "\"C128\""},
        {"{" T("a", "U8", "-1", 0, 1) "}", 1, CKPT_EFORMAT, "shape"},
        {"{" T("a", "U8", "1.0", 0, 1) "}", 1, CKPT_EFORMAT, "shape"},
        {"{" T("a", "U8", "1e0", 0, 1) "}", 1, CKPT_EFORMAT, "shape"},
        {"{" T("a", "U8", "-0", 0, 0) "}", 0, CKPT_EFORMAT, "shape"},
        {"{" T("a", "U8", "true", 0, 1) "}", 1, CKPT_EFORMAT, "shape"},
        {"{" T("a", "U8", "1", 0, 1.0) "}", 1, CKPT_EFORMAT, "data_offsets"},
        {"{" T("a", "U8", "1", 0, 1) "," T("a", "U8", "1", 1, 2) "}", 2, CKPT_EFORMAT, "twice"},
        {"{" T("\\u0000", "U8", "1", 0, 1) "}", 1, CKPT_EFORMAT, "u0000"},
        {"{" T("\xff", "U8", "1", 0, 1) "}", 1, CKPT_EFORMAT, "UTF-8"},
        {"{\"__metadata__\":[]}", 0, CKPT_EFORMAT, "__metadata__"},
        {"{\"__metadata__\":{\"a\":1}}", 0, CKPT_EFORMAT, "__metadata__"},
        {"{\"__metadata__\":{\"a\":null}}", 0, CKPT_EFORMAT, "__metadata__"},
        {"{" T(
             "a", "U8",
             "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
             "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1",
             0, 1) "}",
         1, CKPT_EFORMAT, "64"},
    };

    (void)state;
    check(cases, sizeof cases / sizeof *cases);
}

static void refuses_lengths(void **state)
{
    static const uint64_t claims[] = {0, 3, 1000, UINT64_C(100000001), UINT64_MAX - 3, UINT64_MAX};
    ckpt_map *map = NULL;
    ckpt_err err = {0};

    (void)state;
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        ckpt_bytes b = {0};
        make(&b, "{}", claims[i], 0);
        err = (ckpt_err){0};
        assert_int_equal(read_bytes(&map, b.at, b.n, &err), CKPT_EFORMAT);
        ckpt_vec_free(&b);
    }
    for (uint64_t n = 0; n < 8; n++) {
        err = (ckpt_err){0};
        assert_int_equal(read_bytes(&map, "\2\0\0\0\0\0\0\0", n, &err), CKPT_EFORMAT);
    }
    // a header longer than the format allows, though the file is long enough
    ckpt_bytes big = {0};
    make(&big, "{}", CKPT_ST_HEADER_MAX + 1, CKPT_ST_HEADER_MAX);
    err = (ckpt_err){0};
    assert_int_equal(read_bytes(&map, big.at, big.n, &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "allows"));
    ckpt_vec_free(&big);
}

static void tensors_and_extents(void **state)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"note\":\"b\"}," T("b", "BF16", "2,3", 4, 16) "," T(
            "a", "I32", "1", 0, 4) "," T("z", "F32", "3,0", 16, 16) "}";
    ckpt_map *map = NULL;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(read_header(&map, header, 16, &err), CKPT_OK);
    assert_int_equal(map->tensors.n, 4); // "note" names a tensor: so it is a tied name
    const ckpt_tensor *b = map->tensors.at[0], *z = map->tensors.at[2], *note = map->tensors.at[3];
    assert_string_equal(b->name, "b");
    assert_int_equal(b->dtype, CKPT_BF16);
    assert_int_equal(b->ndim, 2);
    assert_int_equal(b->shape[1], 3);
    assert_int_equal(b->n_extents, 1);
    assert_int_equal(b->extent[0].at, 4);
    const ckpt_source *s = &map->sources.at[b->extent[0].source];
    assert_int_equal(s->kind, CKPT_SOURCE_FILE);
    assert_int_equal(s->at, 8 + sizeof header - 1);
    assert_int_equal(s->n_bytes, 16);
    assert_int_equal(z->n_elems, 0);
    assert_int_equal(z->n_extents, 0);
    assert_ptr_equal(note->owner, b);
    assert_int_equal(map->metadata.n, 1);
    assert_true(ckpt_value_is(map->metadata.at[0].key, "format"));
    assert_int_equal(ckpt_map_check(map, &err), CKPT_OK);
    ckpt_map_free(map);
}

/* Metadata that only looks like a tied name stays metadata. */
static void metadata_not_tied(void **state)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"a\",\"a\":\"b\",\"x\":\"nowhere\",\"y\":\"t\",\"t\":\"a\"}"
        "," T("a", "U8", "1", 0, 1) "," T("b", "U8", "1", 1, 2) "}";
    ckpt_map *map = NULL;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(read_header(&map, header, 2, &err), CKPT_OK);
    assert_int_equal(map->tensors.n, 3); // a, b, and t tied to a; y names t before t is known
    assert_ptr_equal(ckpt_map_index(map, "t", 1) == 2 ? map->tensors.at[2]->owner : NULL,
                     map->tensors.at[0]);
    assert_int_equal(map->metadata.n, 4);
    ckpt_map_free(map);
}

static void probes(void **state)
{
    static const uint8_t ours[] = "\x08\0\0\0\0\0\0\0{}      ";
    static const uint8_t broken[] = "\xff\0\0\0\0\0\0\0{}      ";
    static const uint8_t array[] = "\x08\0\0\0\0\0\0\0[]      ";
    static const uint8_t zip[] = "PK\3\4\0\0\0\0\0\0\0\0\0\0\0\0";

    (void)state;
    assert_true(ckpt_format_safetensors.probe(ours, 16, 16) >= 90);
    assert_in_range(ckpt_format_safetensors.probe(broken, 16, 16), 1, 40);
    assert_in_range(ckpt_format_safetensors.probe(array, 16, 16), 1, 20);
    assert_int_equal(ckpt_format_safetensors.probe(zip, 16, 1000), 0);
    assert_int_equal(ckpt_format_safetensors.probe(ours, 8, 8), 0);
    assert_int_equal(ckpt_format_safetensors.probe(ours, 0, 0), 0);
}

/* ---- writing ---- */

static ckpt_map *target(void)
{
    ckpt_map *to = NULL;
    ckpt_map_file file = {.path = "out.safetensors", .format = &ckpt_format_safetensors};
    uint32_t index = 0;

    assert_int_equal(ckpt_map_create(&to, 0, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_add_file(to, &file, &index, NULL), CKPT_OK);
    return to;
}

static ckpt_tensor *add(ckpt_map *to, const char *name, ckpt_dtype dtype, uint32_t ndim,
                        const uint64_t *shape)
{
    ckpt_tensor like = {.dtype = dtype, .ndim = ndim, .shape = shape}, *t = NULL;

    assert_int_equal(ckpt_map_add(to, name, strlen(name), &like, &t, NULL), CKPT_OK);
    return t;
}

static void add_metadata(ckpt_map *to, const char *key, const char *text)
{
    assert_true(
        ckpt_dict_add_cstr(to->arena, &to->metadata, key, ckpt_value_cstr(to->arena, text)));
}

/* The header's text, then spaces up to a multiple of 8. */
static void check_header(const ckpt_map *to, const char *expected)
{
    const ckpt_literal *l = &to->files.at[0].literals.at[0];
    const uint8_t *p = l->bytes;
    size_t n = strlen(expected), padded = (n + 7) / 8 * 8;

    assert_int_equal(to->files.at[0].literals.n, 1);
    assert_int_equal(l->at, 0);
    assert_int_equal(l->n, 8 + padded);
    assert_int_equal(p[0] | p[1] << 8, padded);
    assert_memory_equal(p + 8, expected, n);
    for (; n < padded; n++)
        assert_int_equal(p[8 + n], ' ');
}

/* The header is what safetensors 0.8.0 wrote for these tensors. */
static void places_as_the_library(void **state)
{
    static const uint64_t s23[] = {2, 3}, s1[] = {1}, s0[] = {0, 4};
    ckpt_map *to = target();
    ckpt_err err = {0};

    (void)state;
    const ckpt_tensor *w = add(to, "w", CKPT_F32, 2, s23),
                      *h = add(to, "\xc3\xa4\"\\\n", CKPT_BF16, 2, s23);
    const ckpt_tensor *i = add(to, "i", CKPT_I64, 0, NULL), *e = add(to, "e", CKPT_F32, 2, s0);
    const ckpt_tensor *b = add(to, "b", CKPT_BOOL, 1, s1), *a = add(to, "a", CKPT_F32, 1, s1);
    assert_int_equal(ckpt_safetensors_place(to, 0, &err), CKPT_OK);
    check_header(
        to, "{\"__metadata__\":{\"format\":\"pt\"},\"i\":{\"dtype\":\"I64\",\"shape\":[],\"data_"
            "offsets\":[0,8]},"
            "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]},"
            "\"e\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[12,12]},"
            "\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[12,36]},"
            "\"\xc3\xa4\\\"\\\\\\n\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[36,48]},"
            "\"b\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[48,49]}}");
    uint64_t data = to->files.at[0].literals.at[0].n;
    assert_int_equal(to->files.at[0].size, data + 49);
    assert_int_equal(to->sources.n, 5);
    assert_int_equal(to->sources.at[i->extent[0].source].at, data);
    assert_int_equal(to->sources.at[a->extent[0].source].at, data + 8);
    assert_int_equal(to->sources.at[w->extent[0].source].at, data + 12);
    assert_int_equal(to->sources.at[h->extent[0].source].at, data + 36);
    assert_int_equal(to->sources.at[h->extent[0].source].n_bytes, 12);
    assert_int_equal(to->sources.at[b->extent[0].source].at, data + 48);
    assert_int_equal(e->n_extents, 0);
    assert_int_equal(ckpt_map_check(to, &err), CKPT_OK);
    ckpt_map_free(to);
}

static void places_ties_and_metadata(void **state)
{
    static const uint64_t s1[] = {1};
    ckpt_map *to = target();
    ckpt_err err = {0};
    ckpt_tensor *w = add(to, "w", CKPT_U8, 1, s1), *z = add(to, "z", CKPT_U8, 1, s1),
                *y = add(to, "y", CKPT_U8, 1, s1);

    (void)state;
    z->owner = y->owner = w;
    add_metadata(to, "zz", "1");
    add_metadata(to, "format", "tf");
    add_metadata(to, "a", "\"");
    add_metadata(to, "y", "stale");
    assert_int_equal(ckpt_safetensors_place(to, 0, &err), CKPT_OK);
    check_header(
        to,
        "{\"__metadata__\":{\"a\":\"\\\"\",\"format\":\"pt\",\"y\":\"w\",\"z\":\"w\",\"zz\":\"1\"},"
        "\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}");
    assert_int_equal(z->n_extents, 0);
    ckpt_map_free(to);
}

static void places_nothing(void **state)
{
    ckpt_map *to = target();

    (void)state;
    assert_int_equal(ckpt_safetensors_place(to, 0, NULL), CKPT_OK);
    check_header(to, "{\"__metadata__\":{\"format\":\"pt\"}}");
    ckpt_map_free(to);
}

static void place_refuses(void **state)
{
    static const uint64_t s2[] = {2}, s3[] = {3}, huge[] = {UINT64_C(1) << 62};
    static const struct {
        const char *name;
        ckpt_dtype dtype;
        const uint64_t *shape;
        int code;
    } cases[] = {
        {"c", CKPT_C128, s2, CKPT_EUNSUPPORTED},
        {"c", CKPT_C32, s2, CKPT_EUNSUPPORTED},
        {"c", CKPT_BITS8, s2, CKPT_EUNSUPPORTED},
        {"c", CKPT_BITS16, s3, CKPT_EUNSUPPORTED},
        {"__metadata__", CKPT_F32, s2, CKPT_EUNSUPPORTED},
        {"h", CKPT_U8, huge, CKPT_ELIMIT},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_map *to = target();
        ckpt_err err = {0};
        add(to, "a1", CKPT_U8, 1, huge);
        add(to, "a2", CKPT_U8, 1, huge);
        add(to, "a3", CKPT_U8, 1, huge);
        add(to, cases[i].name, cases[i].dtype, 1, cases[i].shape);
        assert_int_equal(ckpt_safetensors_place(to, 0, &err), cases[i].code);
        assert_non_null(strstr(err.text, cases[i].name));
        ckpt_map_free(to);
    }
}

/* Ties that the metadata cannot express. */
static void place_refuses_ties(void **state)
{
    static const uint64_t one[] = {1};
    ckpt_map *to = target();
    ckpt_err err = {0};
    ckpt_tensor *w = add(to, "w", CKPT_U8, 1, one), *format = add(to, "format", CKPT_U8, 1, one);

    (void)state;
    format->owner = w;
    assert_int_equal(ckpt_safetensors_place(to, 0, &err), CKPT_EUNSUPPORTED);
    ckpt_map_free(to);
    to = target();
    w = add(to, "w", CKPT_U8, 1, one);
    ckpt_tensor *v = add(to, "v", CKPT_U8, 1, one);
    v->owner = w;
    w->file = 1;
    err = (ckpt_err){0};
    assert_int_equal(ckpt_safetensors_place(to, 0, &err), CKPT_EMISMATCH);
    ckpt_map_free(to);
}

/* Every dtype of the format: laid out, its header is read back the same. */
static void round_trip(void **state)
{
    static const uint64_t shape[] = {2, 4};
    ckpt_map *to = target(), *back = NULL;
    ckpt_err err = {0};
    ckpt_bytes b = {0};
    size_t n = 0;

    (void)state;
    for (unsigned d = CKPT_F64; d < CKPT_N_DTYPES; d++) {
        if (ckpt_dtype_get((ckpt_dtype)d)->safetensors) {
            add(to, ckpt_dtype_name((ckpt_dtype)d), (ckpt_dtype)d, 2, shape);
            n++;
        }
    }
    assert_int_equal(n, 22);
    assert_int_equal(ckpt_safetensors_place(to, 0, &err), CKPT_OK);
    const ckpt_literal *l = &to->files.at[0].literals.at[0];
    assert_true(ckpt_bytes_add(&b, l->bytes, (size_t)l->n));
    assert_true(ckpt_bytes_add(&b, NULL, (size_t)(to->files.at[0].size - l->n)));
    assert_int_equal(read_bytes(&back, b.at, b.n, &err), CKPT_OK);
    assert_int_equal(back->tensors.n, n);
    for (size_t i = 0; i < n; i++) {
        const ckpt_tensor *t = back->tensors.at[i];
        assert_string_equal(t->name, ckpt_dtype_name(t->dtype));
        assert_int_equal(t->shape[1], 4);
        const ckpt_tensor *o = to->tensors.at[ckpt_map_index(to, t->name, strlen(t->name))];
        assert_int_equal(back->sources.at[0].at + t->extent[0].at,
                         to->sources.at[o->extent[0].source].at);
    }
    // dtypes descend in the library's order
    assert_string_equal(back->tensors.at[0]->name, "U64");
    assert_string_equal(back->tensors.at[n - 1]->name, "BOOL");
    ckpt_vec_free(&b);
    ckpt_map_free(back);
    ckpt_map_free(to);
}

/* 100 000 tensors: linear, there and back. */
static void many_tensors(void **state)
{
    enum { N = 100000 };
    static const uint64_t shape[] = {2, 2};
    ckpt_map *to = target(), *back = NULL;
    ckpt_err err = {0};
    ckpt_bytes b = {0};
    clock_t start = clock();
    char name[64];

    (void)state;
    for (unsigned i = 0; i < N; i++) {
        snprintf(name, sizeof name, "model.layers.%u.mlp.gate_proj.weight", i);
        add(to, name, CKPT_BF16, 2, shape);
    }
    assert_int_equal(ckpt_safetensors_place(to, 0, &err), CKPT_OK);
    const ckpt_literal *l = &to->files.at[0].literals.at[0];
    assert_true(ckpt_bytes_add(&b, l->bytes, (size_t)l->n));
    assert_true(ckpt_bytes_add(&b, NULL, (size_t)(to->files.at[0].size - l->n)));
    assert_int_equal(read_bytes(&back, b.at, b.n, &err), CKPT_OK);
    assert_int_equal(back->tensors.n, N);
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC <
                30); // a second or two without sanitizers
    ckpt_vec_free(&b);
    ckpt_map_free(back);
    ckpt_map_free(to);
}

static void memory_runs_out(void **state)
{
    static const char header[] = "{\"__metadata__\":{\"x\":\"a\",\"k\":\"v\"}," T(
        "a", "U8", "4", 0, 4) "," T("b", "F16", "2,1", 4, 8) "}";
    static const uint64_t shape[] = {3};
    int rc = CKPT_ELIMIT;
    ckpt_bytes b = {0};

    (void)state;
    make(&b, header, sizeof header - 1, 8);
    for (uint64_t n = 0; rc != CKPT_OK; n++) {
        ckpt_map *map = NULL;
        ckpt_err err = {0};
        ckpt_alloc_fail_at(n);
        rc = read_bytes(&map, b.at, b.n, &err);
        ckpt_alloc_fail_at(UINT64_MAX);
        assert_true(rc == CKPT_OK || rc == CKPT_ELIMIT);
        assert_true(n < 1000);
        ckpt_map_free(map);
    }
    rc = CKPT_ELIMIT;
    for (uint64_t n = 0; rc != CKPT_OK; n++) {
        ckpt_map *to = target();
        ckpt_err err = {0};
        ckpt_tensor *w = add(to, "w", CKPT_F32, 1, shape), *v = add(to, "v", CKPT_F32, 1, shape);
        v->owner = w;
        add_metadata(to, "key", "text");
        ckpt_alloc_fail_at(n);
        rc = ckpt_safetensors_place(to, 0, &err);
        ckpt_alloc_fail_at(UINT64_MAX);
        assert_true(rc == CKPT_OK || rc == CKPT_ELIMIT);
        assert_true(n < 1000);
        ckpt_map_free(to);
    }
    ckpt_vec_free(&b);
}

/* A file cut anywhere is refused. */
static void cut_everywhere(void **state)
{
    static const char header[] = "{" T("a", "U8", "4", 0, 4) "," T("b", "F16", "2,1", 4, 8) "}";
    ckpt_bytes b = {0};

    (void)state;
    make(&b, header, sizeof header - 1, 8);
    for (size_t n = 0; n < b.n; n++) {
        ckpt_map *map = NULL;
        assert_int_equal(read_bytes(&map, b.at, n, NULL), CKPT_EFORMAT);
    }
    ckpt_vec_free(&b);
}

/* ---- the shared corpus ---- */

/* CKPT_* of a class of the corpus' manifest. */
static int class_code(const ckpt_value *cls)
{
    return ckpt_value_is(cls, "ok")             ? CKPT_OK
           : ckpt_value_is(cls, "malformed")    ? CKPT_EFORMAT
           : ckpt_value_is(cls, "unsafe")       ? CKPT_EUNSAFE
           : ckpt_value_is(cls, "inconsistent") ? CKPT_EMISMATCH
                                                : CKPT_ELIMIT;
}

static void corpus(void **state)
{
    const char *shared = getenv("CKPT_SHARED");
    ckpt_arena *a = NULL;
    ckpt_err err = {0};
    ckpt_value *root = NULL;
    char path[4096], *bytes = NULL;
    uint64_t n = 0, seen = 0;

    (void)state;
    if (!shared)
        skip();
    a = ckpt_arena_new(0);
    snprintf(path, sizeof path, "%s/bad/manifest.json", shared);
    assert_int_equal(ckpt_io_slurp(&bytes, &n, path, 1 << 26, &err), CKPT_OK);
    ckpt_json_text text = {path, 0, bytes, n, 1 << 26, false};
    assert_int_equal(ckpt_json_parse(&root, a, &text, &err), CKPT_OK);
    ckpt_free(bytes);
    const ckpt_seq cases = ckpt_value_seq(ckpt_value_get(root, "cases"));
    for (uint64_t i = 0; i < cases.n; i++) {
        const ckpt_value *c = cases.at[i];
        ckpt_map *map = NULL;
        if (!ckpt_value_is(ckpt_value_get(c, "kind"), "safetensors"))
            continue;
        snprintf(path, sizeof path, "%s/bad/%s", shared, ckpt_value_get(c, "path")->as.text.at);
        assert_int_equal(ckpt_io_slurp(&bytes, &n, path, 1 << 26, &err), CKPT_OK);
        err = (ckpt_err){0};
        int rc = read_bytes(&map, bytes, n, &err);
        if (rc != class_code(ckpt_value_get(c, "cls")))
            fail_msg("%s: %d %s", path, rc, err.text);
        seen++;
        err = (ckpt_err){0};
        ckpt_map_free(map);
        ckpt_free(bytes);
    }
    assert_true(seen >= 26);
    ckpt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts),
        cmocka_unit_test(refuses_ranges),
        cmocka_unit_test(refuses_entries),
        cmocka_unit_test(refuses_lengths),
        cmocka_unit_test(tensors_and_extents),
        cmocka_unit_test(metadata_not_tied),
        cmocka_unit_test(probes),
        cmocka_unit_test(places_as_the_library),
        cmocka_unit_test(places_ties_and_metadata),
        cmocka_unit_test(places_nothing),
        cmocka_unit_test(place_refuses),
        cmocka_unit_test(place_refuses_ties),
        cmocka_unit_test(round_trip),
        cmocka_unit_test(many_tensors),
        cmocka_unit_test(memory_runs_out),
        cmocka_unit_test(cut_everywhere),
        cmocka_unit_test(corpus),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
