/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_gguf_read.c: header, keys and tensors of GGUF files made byte by byte, and those refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "formats/gguf/gguf.h"
#include "libckpt/base/dtype.h"

/* ---- a file ---- */

typedef struct image {
    ckpt_bytes b;
    bool big; /* big-endian */
} image;

static void put(image *f, uint64_t v, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        uint8_t byte = (uint8_t)(v >> 8 * (f->big ? n - 1 - i : i));

        assert_true(ckpt_bytes_add(&f->b, &byte, 1));
    }
}

static void put_text(image *f, const char *s)
{
    put(f, strlen(s), 8);
    assert_true(ckpt_bytes_add(&f->b, s, strlen(s)));
}

static image begin(uint32_t version, uint64_t n_tensors, uint64_t n_keys)
{
    image f = {{0}, false};

    assert_true(ckpt_bytes_add(&f.b, "GGUF", 4));
    put(&f, version, 4);
    put(&f, n_tensors, 8);
    put(&f, n_keys, 8);
    return f;
}

static void put_key(image *f, const char *name, uint32_t type)
{
    put_text(f, name);
    put(f, type, 4);
}

/* A tensor of up to two axes, the fastest first as in the file; UINT64_MAX ends them. */
static void put_tensor(image *f, const char *name, uint64_t fast, uint64_t slow, uint32_t type,
                       uint64_t offset)
{
    uint32_t n = fast == UINT64_MAX ? 0 : slow == UINT64_MAX ? 1 : 2;

    put_text(f, name);
    put(f, n, 4);
    if (n > 0)
        put(f, fast, 8);
    if (n > 1)
        put(f, slow, 8);
    put(f, type, 4);
    put(f, offset, 8);
}

static void pad(image *f, size_t to)
{
    while (f->b.n % to)
        put(f, 0, 1);
}

static int read_image(ckpt_map **out, image *f, ckpt_err *err)
{
    ckpt_map_file file = {.path = "x.gguf", .format = &ckpt_format_gguf, .size = f->b.n};
    ckpt_io *io = NULL;
    uint32_t index = 0;

    *err = (ckpt_err){0};
    assert_int_equal(ckpt_map_create(out, 0, err), CKPT_OK);
    assert_int_equal(ckpt_io_memory(&io, file.path, f->b.at, f->b.n, err), CKPT_OK);
    assert_int_equal(ckpt_map_add_file(*out, &file, &index, err), CKPT_OK);
    int rc = ckpt_format_gguf.read(*out, io, index, err);
    ckpt_io_close(io);
    if (rc == CKPT_OK)
        rc = ckpt_map_check(*out, err);
    return rc;
}

/* Read the file and free all; the message must name the file. */
static int outcome(image *f)
{
    ckpt_map *map = NULL;
    ckpt_err err;
    int rc = read_image(&map, f, &err);

    if (rc != CKPT_OK)
        assert_non_null(strstr(err.text, "x.gguf"));
    ckpt_map_free(map);
    ckpt_vec_free(&f->b);
    return rc;
}

/* ---- keys ---- */

/* One key of each type, with a value at the end of its range. */
static void write_keys(image *f)
{
    put_key(f, "u8", CKPT_KEY_U8), put(f, 0xff, 1);
    put_key(f, "i8", CKPT_KEY_I8), put(f, 0x80, 1);
    put_key(f, "u16", CKPT_KEY_U16), put(f, 0xffff, 2);
    put_key(f, "i16", CKPT_KEY_I16), put(f, 0x8000, 2);
    put_key(f, "u32", CKPT_KEY_U32), put(f, 0xffffffff, 4);
    put_key(f, "i32", CKPT_KEY_I32), put(f, 0x80000000, 4);
    put_key(f, "f32", CKPT_KEY_F32), put(f, 0x3fc00000, 4);
    put_key(f, "bool", CKPT_KEY_BOOL), put(f, 1, 1);
    put_key(f, "text", CKPT_KEY_STRING), put_text(f, "llama");
    put_key(f, "list", CKPT_GGUF_ARRAY), put(f, CKPT_KEY_U16, 4), put(f, 2, 8);
    put(f, 7, 2), put(f, 8, 2);
    put_key(f, "u64", CKPT_KEY_U64), put(f, INT64_MAX, 8);
    put_key(f, "i64", CKPT_KEY_I64), put(f, UINT64_C(1) << 63, 8);
    put_key(f, "f64", CKPT_KEY_F64), put(f, UINT64_C(0xc004000000000000), 8);
    put_key(f, "long", CKPT_KEY_U64), put(f, UINT64_MAX, 8);
}

static void reads_keys(void **state)
{
    static const struct {
        const char *name;
        int64_t value;
    } whole[] = {{"u8", 255},        {"i8", -128},       {"u16", 65535},
                 {"i16", -32768},    {"bool", 1},        {"u32", UINT32_MAX},
                 {"i32", INT32_MIN}, {"u64", INT64_MAX}, {"i64", INT64_MIN}};

    (void)state;
    for (unsigned big = 0; big < 2; big++) {
        image f = {{0}, big};
        ckpt_map *map = NULL;
        ckpt_err err;
        uint64_t n = 0;

        assert_true(ckpt_bytes_add(&f.b, "GGUF", 4));
        put(&f, 3, 4), put(&f, 0, 8), put(&f, 14, 8);
        write_keys(&f);
        if (read_image(&map, &f, &err) != CKPT_OK)
            fail_msg("%s", err.text);
        assert_int_equal(map->keys.n, 14);
        for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
            const ckpt_key *k = ckpt_gguf_key(map, whole[i].name);

            if (k->value->as.i != whole[i].value)
                fail_msg("%s", whole[i].name);
        }
        assert_true(ckpt_gguf_key(map, "f32")->value->as.f == 1.5);
        assert_true(ckpt_gguf_key(map, "f64")->value->as.f == -2.5);
        assert_true(ckpt_value_is(ckpt_gguf_key(map, "text")->value, "llama"));
        const ckpt_key *list = ckpt_gguf_key(map, "list");
        assert_true(list->list && list->type == CKPT_KEY_U16);
        assert_int_equal(ckpt_value_seq(list->value).n, 2);
        assert_int_equal(ckpt_value_seq(list->value).at[1]->as.i, 8);
        assert_int_equal(ckpt_gguf_key(map, "long")->value->kind, CKPT_V_LONG);
        // numbers are whole and not negative
        assert_true(ckpt_gguf_number(map, "u32", &n) && n == UINT32_MAX);
        assert_false(ckpt_gguf_number(map, "i8", &n) || ckpt_gguf_number(map, "f32", &n) ||
                     ckpt_gguf_number(map, "long", &n) || ckpt_gguf_number(map, "list", &n) ||
                     ckpt_gguf_number(map, "text", &n) || ckpt_gguf_number(map, "missing", &n));
        ckpt_map_free(map);
        ckpt_vec_free(&f.b);
    }
}

/* Wherever a file is cut, its message says so. */
static void refuses_cut(void **state)
{
    image whole = begin(3, 1, 14);

    (void)state;
    write_keys(&whole);
    put_tensor(&whole, "w", 4, 2, 0, 0);
    pad(&whole, 32);
    put(&whole, 0, 8), put(&whole, 0, 8), put(&whole, 0, 8), put(&whole, 0, 8);
    for (size_t n = 8; n < whole.b.n; n++) {
        image f = {{0}, false};

        assert_true(ckpt_bytes_add(&f.b, whole.b.at, n));
        if (outcome(&f) != CKPT_EFORMAT)
            fail_msg("the first %zu bytes are read", n);
    }
    assert_int_equal(outcome(&whole), CKPT_OK);
}

static void refuses_headers(void **state)
{
    static const struct {
        uint32_t version;
        uint64_t n_tensors, n_keys;
        int code;
    } cases[] = {
        {2, 0, 0, CKPT_OK},
        {3, 0, 0, CKPT_OK},
        {0, 0, 0, CKPT_EFORMAT},
        {1, 0, 0, CKPT_EUNSUPPORTED},
        {4, 0, 0, CKPT_EFORMAT},
        {UINT32_MAX, 0, 0, CKPT_EFORMAT},
        {3, 1, 0, CKPT_EFORMAT},
        {3, 0, 1, CKPT_EFORMAT},
        {3, UINT64_MAX, 0, CKPT_EFORMAT},
        {3, 0, UINT64_MAX, CKPT_EFORMAT},
        {3, UINT64_C(1) << 60, UINT64_C(1) << 60, CKPT_EFORMAT},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        image f = begin(cases[i].version, cases[i].n_tensors, cases[i].n_keys);
        int rc = outcome(&f);

        if (rc != cases[i].code)
            fail_msg("case %zu: %d", i, rc);
    }
}

static int one_key(const char *name, uint32_t type, uint64_t v, unsigned n)
{
    image f = begin(3, 0, 1);

    put_key(&f, name, type);
    put(&f, v, n);
    pad(&f, 64);
    return outcome(&f);
}

static void refuses_keys(void **state)
{
    image f = begin(3, 0, 2);

    (void)state;
    put_key(&f, "twice", CKPT_KEY_U8), put(&f, 1, 1);
    put_key(&f, "twice", CKPT_KEY_U8), put(&f, 1, 1);
    assert_int_equal(outcome(&f), CKPT_EFORMAT);
    assert_int_equal(one_key("x", CKPT_KEY_U8, 1, 1), CKPT_OK);
    assert_int_equal(one_key("", CKPT_KEY_U8, 1, 1), CKPT_EFORMAT);
    assert_int_equal(one_key("\xff", CKPT_KEY_U8, 1, 1), CKPT_EFORMAT);
    assert_int_equal(one_key("x", 13, 1, 8), CKPT_EFORMAT);
    assert_int_equal(one_key("x", UINT32_MAX, 1, 8), CKPT_EFORMAT);
    assert_int_equal(one_key("x", CKPT_KEY_BOOL, 2, 1), CKPT_EFORMAT);
    assert_int_equal(one_key("x", CKPT_KEY_STRING, UINT64_MAX, 8), CKPT_EFORMAT);
    assert_int_equal(one_key("x", CKPT_KEY_STRING, 1 << 20, 8), CKPT_EFORMAT);
}

/* An array of `n` items of a type; 64 bytes follow. */
static int one_array(uint32_t of, uint64_t n)
{
    image f = begin(3, 0, 1);

    put_key(&f, "x", CKPT_GGUF_ARRAY);
    put(&f, of, 4);
    put(&f, n, 8);
    for (unsigned i = 0; i < 8; i++)
        put(&f, 0, 8);
    return outcome(&f);
}

static void refuses_arrays(void **state)
{
    (void)state;
    assert_int_equal(one_array(CKPT_KEY_U8, 0), CKPT_OK);
    assert_int_equal(one_array(CKPT_KEY_U8, 64), CKPT_OK);
    assert_int_equal(one_array(CKPT_KEY_U8, 65), CKPT_EFORMAT);
    assert_int_equal(one_array(CKPT_KEY_U64, 8), CKPT_OK);
    assert_int_equal(one_array(CKPT_KEY_U64, 9), CKPT_EFORMAT);
    assert_int_equal(one_array(CKPT_KEY_STRING, 8), CKPT_OK);
    assert_int_equal(one_array(CKPT_KEY_STRING, 9), CKPT_EFORMAT);
    assert_int_equal(one_array(CKPT_KEY_U64, UINT64_C(1) << 61), CKPT_EFORMAT);
    assert_int_equal(one_array(CKPT_KEY_U64, UINT64_MAX), CKPT_EFORMAT);
    assert_int_equal(one_array(13, 0), CKPT_EFORMAT);
}

/* Arrays in arrays are read four deep, but are not keys that can be written. */
static void nests_arrays(void **state)
{
    (void)state;
    for (unsigned deep = 1; deep < 7; deep++) {
        image f = begin(3, 0, 1);
        ckpt_map *map = NULL;
        ckpt_err err;

        put_key(&f, "x", CKPT_GGUF_ARRAY);
        for (unsigned i = 1; i < deep; i++)
            put(&f, CKPT_GGUF_ARRAY, 4), put(&f, 1, 8);
        put(&f, CKPT_KEY_U8, 4), put(&f, 1, 8), put(&f, 9, 1);
        pad(&f, 64);
        assert_int_equal(read_image(&map, &f, &err), deep <= 4 ? CKPT_OK : CKPT_ELIMIT);
        if (deep <= 4) {
            assert_int_equal(map->keys.n, deep == 1);
            assert_int_equal(map->findings.n, deep > 1);
        }
        ckpt_map_free(map);
        ckpt_vec_free(&f.b);
    }
}

/* ---- tensors ---- */

static void reads_tensors(void **state)
{
    image f = begin(3, 3, 0);
    ckpt_map *map = NULL;
    ckpt_err err;

    (void)state;
    put_tensor(&f, "a", 4, 2, 0, 0);            // F32, [2, 4] in torch's order: 32 bytes
    put_tensor(&f, "b", 32, UINT64_MAX, 8, 32); // Q8_0: 34 bytes
    put_tensor(&f, "c", UINT64_MAX, 0, 26, 96); // a scalar, I32
    pad(&f, 32);
    size_t data = f.b.n;
    for (unsigned i = 0; i < 100; i++)
        put(&f, i, 1);
    if (read_image(&map, &f, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    assert_int_equal(map->tensors.n, 3);
    const ckpt_tensor *const *t = (const ckpt_tensor *const *)map->tensors.at;
    assert_int_equal(t[0]->shape[0] * 10 + t[0]->shape[1], 24);
    assert_int_equal(t[1]->dtype, CKPT_Q8_0);
    assert_int_equal(t[2]->ndim, 0);
    assert_int_equal(t[2]->dtype, CKPT_I32);
    static const uint64_t at[] = {0, 32, 96};
    for (unsigned i = 0; i < 3; i++) {
        ckpt_box room;
        const ckpt_extent *e = ckpt_extent_of(t[i], 0, &room);

        assert_int_equal(map->sources.at[e->source].at + e->at, data + at[i]);
    }
    ckpt_map_free(map);
    ckpt_vec_free(&f.b);
}

static int one_tensor(const char *name, uint64_t fast, uint64_t slow, uint32_t type,
                      uint64_t offset)
{
    image f = begin(3, 1, 0);

    put_tensor(&f, name, fast, slow, type, offset);
    pad(&f, 32);
    for (unsigned i = 0; i < 64; i++)
        put(&f, 0, 1);
    return outcome(&f);
}

static void refuses_tensors(void **state)
{
    static const struct {
        const char *name;
        uint64_t fast, slow;
        uint32_t type;
        uint64_t offset;
        int code;
    } cases[] = {
        {"a", 4, 4, 0, 0, CKPT_OK},
        {"a", 4, 5, 0, 0, CKPT_EFORMAT}, // beyond the file
        {"", 4, 4, 0, 0, CKPT_EFORMAT},
        {"a", 1, 1, 0, 32, CKPT_EFORMAT}, // not where the data begin
        {"a", 1, 1, 0, 0, CKPT_OK},
        {"a", 4, 4, 0, UINT64_MAX, CKPT_EFORMAT},
        {"a", 4, 4, 4, 0, CKPT_EFORMAT}, // a type that ggml has removed
        {"a", 4, 4, 1000, 0, CKPT_EFORMAT},
        {"a", 4, 4, UINT32_MAX, 0, CKPT_EFORMAT},
        {"a", 4, 4, 8, 0, CKPT_EFORMAT}, // no whole blocks of Q8_0
        {"a", 16, 2, 8, 0, CKPT_EFORMAT},
        {"a", 32, 1, 8, 0, CKPT_OK},
        {"a", 0, 4, 0, 0, CKPT_OK},
        {"a", UINT64_C(1) << 63, 0, 0, 0, CKPT_EFORMAT},
        {"a", UINT64_C(1) << 62, 1, 0, 0, CKPT_EFORMAT},
        {"a", UINT64_C(1) << 32, UINT64_C(1) << 32, 0, 0, CKPT_EFORMAT},
        {"0123456789012345678901234567890123456789012345678901234567890123", 4, 4, 0, 0,
         CKPT_EFORMAT},
        {"012345678901234567890123456789012345678901234567890123456789012", 4, 4, 0, 0, CKPT_OK},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int rc =
            one_tensor(cases[i].name, cases[i].fast, cases[i].slow, cases[i].type, cases[i].offset);

        if (rc != cases[i].code)
            fail_msg("case %zu: %d", i, rc);
    }
}

static void refuses_axes_and_names(void **state)
{
    image f = begin(3, 1, 0), g = begin(3, 2, 0);

    (void)state;
    put_text(&f, "a"), put(&f, 5, 4);
    for (unsigned i = 0; i < 5; i++)
        put(&f, 1, 8);
    put(&f, 0, 4), put(&f, 0, 8);
    pad(&f, 32), put(&f, 0, 8);
    assert_int_equal(outcome(&f), CKPT_EFORMAT);
    put_tensor(&g, "a", 1, UINT64_MAX, 0, 0);
    put_tensor(&g, "a", 1, UINT64_MAX, 0, 32);
    pad(&g, 32);
    for (unsigned i = 0; i < 64; i++)
        put(&g, 0, 1);
    assert_int_equal(outcome(&g), CKPT_EFORMAT);
}

static void aligns(void **state)
{
    static const struct {
        uint32_t type, align;
        int code;
    } cases[] = {
        {CKPT_KEY_U32, 32, CKPT_OK},
        {CKPT_KEY_U32, 8, CKPT_OK},
        {CKPT_KEY_U32, 1, CKPT_OK},
        {CKPT_KEY_U32, 0, CKPT_EFORMAT},
        {CKPT_KEY_U32, 24, CKPT_EFORMAT},
        {CKPT_KEY_U32, UINT32_MAX, CKPT_EFORMAT},
        {CKPT_KEY_U32, 1u << 31, CKPT_EFORMAT}, // the data would begin beyond the file
        {CKPT_KEY_I32, 32, CKPT_EFORMAT},
        {CKPT_KEY_F32, 0x42000000, CKPT_EFORMAT},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t align = cases[i].code == CKPT_OK ? cases[i].align : 32;
        image f = begin(3, 2, 1);

        put_key(&f, CKPT_GGUF_ALIGNMENT, cases[i].type);
        put(&f, cases[i].align, 4);
        put_tensor(&f, "a", 1, UINT64_MAX, 24, 0); // a single byte
        put_tensor(&f, "b", 1, UINT64_MAX, 24, align);
        pad(&f, align);
        for (unsigned k = 0; k < 64; k++)
            put(&f, 0, 1);
        int rc = outcome(&f);
        if (rc != cases[i].code)
            fail_msg("case %zu: %d", i, rc);
    }
}

/* Numbers of types: each dtype has one, and the way back is the same. */
static void types(void **state)
{
    unsigned n = 0;

    (void)state;
    for (uint32_t type = 0; type < 100; type++) {
        ckpt_dtype d = ckpt_gguf_dtype(type);

        if (d == CKPT_DTYPE_NONE)
            continue;
        n++;
        assert_int_equal(ckpt_gguf_type(d), type);
    }
    assert_int_equal(n, 33);
    assert_int_equal(ckpt_gguf_dtype(UINT32_MAX), CKPT_DTYPE_NONE);
    assert_int_equal(ckpt_gguf_type(CKPT_DTYPE_NONE), -1);
    assert_int_equal(ckpt_gguf_type(CKPT_C64), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_keys),
        cmocka_unit_test(refuses_cut),
        cmocka_unit_test(refuses_headers),
        cmocka_unit_test(refuses_keys),
        cmocka_unit_test(refuses_arrays),
        cmocka_unit_test(nests_arrays),
        cmocka_unit_test(reads_tensors),
        cmocka_unit_test(refuses_tensors),
        cmocka_unit_test(refuses_axes_and_names),
        cmocka_unit_test(aligns),
        cmocka_unit_test(types),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
