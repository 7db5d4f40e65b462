/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_npy.c: headers of numpy arrays, which are read, refused and written.
 *
 * The oracle assembles a header from numpy's description of the format (numpy.lib.format).
 */
#include "formats/npz/npz.h"
#include "libckpt/base/dtype.h"
#include "tests/unit/unit.h"

enum { ROOM = 2048 };

typedef struct header {
    uint8_t at[ROOM];
    size_t n;
} header;

/* A header of n bytes of text, which may contain a NUL, in format version `major`.0. */
static header header_of(unsigned major, const char *text, size_t n)
{
    header h = {{0x93, 'N', 'U', 'M', 'P', 'Y', (uint8_t)major, 0}, 0};

    assert_true(n + 12 <= ROOM);
    h.at[8] = (uint8_t)n;
    h.at[9] = (uint8_t)(n >> 8);
    h.n = major == 1 ? 10 : 12;
    memcpy(h.at + h.n, text, n);
    h.n += n;
    return h;
}

static int parse(ckpt_npy *out, const char *text, size_t n, ckpt_err *err)
{
    header h = header_of(1, text, n);

    return ckpt_npy_parse(out, h.at, h.n, "x.npy", err);
}

#define DICT(descr, order, shape)                                                                  \
    "{'descr': '" descr "', 'fortran_order': " order ", 'shape': " shape ", }"

static void reads_types(void **state)
{
    static const struct {
        const char *descr;
        ckpt_dtype dtype;
        bool swap, raw;
    } cases[] = {
        {"<f8", CKPT_F64, false, false},       {">f8", CKPT_F64, true, false},
        {"<f4", CKPT_F32, false, false},       {"=f4", CKPT_F32, false, false},
        {">f2", CKPT_F16, true, false},        {"<i8", CKPT_I64, false, false},
        {"|i1", CKPT_I8, false, false},        {"|u1", CKPT_U8, false, false},
        {">u2", CKPT_U16, true, false},        {"|b1", CKPT_BOOL, false, false},
        {"<c8", CKPT_C64, false, false},       {">c16", CKPT_C128, true, false},
        {"|V1", CKPT_BITS8, false, true},      {"|V2", CKPT_BITS16, false, true},
        {"|O", CKPT_DTYPE_NONE, false, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200];
        ckpt_err err = {0};
        ckpt_npy is;
        int n =
            snprintf(text, sizeof text,
                     "{'descr': '%s', 'fortran_order': False, 'shape': (2, 3), }", cases[i].descr);

        if (parse(&is, text, (size_t)n, &err) != CKPT_OK)
            fail_msg("%s: %s", cases[i].descr, err.text);
        if (is.dtype != cases[i].dtype || is.swap != cases[i].swap || is.raw != cases[i].raw)
            fail_msg("%s: read as %s", cases[i].descr, ckpt_dtype_name(is.dtype));
        assert_int_equal(is.n_header, n + 10);
        assert_false(is.fortran);
    }
}

static void reads_shapes(void **state)
{
    static const struct {
        const char *text;
        bool fortran;
        uint32_t ndim;
        uint64_t shape[3];
    } cases[] = {
        {DICT("<f4", "False", "()"), false, 0, {0}},
        {DICT("<f4", "False", "(3,)"), false, 1, {3}},
        {DICT("<f4", "True", "(3, 4)"), true, 2, {3, 4}},
        {DICT("<f4", "False", "(3,4,5,)"), false, 3, {3, 4, 5}},
        {DICT("<f4", "False", "(0, 7)"), false, 2, {0, 7}},
        {DICT("<f4", "False", "(5L, 6L)"), false, 2, {5, 6}},
        {DICT("<f4", "False", "(18446744073709551615,)"), false, 1, {UINT64_MAX}},
        // another order of keys, other quotes, a line end, no comma at the end
        {"{\"shape\":(2,),\"fortran_order\":False,\"descr\":\"<f4\"}   \n", false, 1, {2}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_err err = {0};
        ckpt_npy is;

        if (parse(&is, cases[i].text, strlen(cases[i].text), &err) != CKPT_OK)
            fail_msg("%s: %s", cases[i].text, err.text);
        assert_int_equal(is.dtype, CKPT_F32);
        assert_true(is.fortran == cases[i].fortran);
        assert_int_equal(is.ndim, cases[i].ndim);
        for (uint32_t k = 0; k < is.ndim; k++)
            assert_true(is.shape[k] == cases[i].shape[k]);
    }
}

static void refuses(void **state)
{
    static const struct {
        const char *text;
        int code;
    } cases[] = {
        {"", CKPT_EFORMAT},
        {"[]", CKPT_EFORMAT},
        {"{}", CKPT_EFORMAT},
        {"{'descr': '<f4', 'fortran_order': False, }", CKPT_EFORMAT},
        {"{'descr': '<f4', 'shape': (3,), }", CKPT_EFORMAT},
        {"{'fortran_order': False, 'shape': (3,), }", CKPT_EFORMAT},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", CKPT_EFORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'more': 1}", CKPT_EFORMAT},
        {DICT("<f4", "False", "(3,)") " x", CKPT_EFORMAT},
        {DICT("<f4", "False", "(3)"), CKPT_EFORMAT},
        {DICT("<f4", "False", "3"), CKPT_EFORMAT},
        {DICT("<f4", "False", "(-3,)"), CKPT_EFORMAT},
        {DICT("<f4", "False", "(,)"), CKPT_EFORMAT},
        {DICT("<f4", "False", "(3,,4)"), CKPT_EFORMAT},
        {DICT("<f4", "False", "(3, 4"), CKPT_EFORMAT},
        {DICT("<f4", "False", "(3.5,)"), CKPT_EFORMAT},
        {DICT("<f4", "False", "(18446744073709551616,)"), CKPT_EFORMAT},
        {DICT("<f4", "False", "(184467440737095516160,)"), CKPT_EFORMAT},
        {DICT("<f4", "0", "(3,)"), CKPT_EFORMAT},
        {DICT("<f4", "Fals", "(3,)"), CKPT_EFORMAT},
        {DICT("", "False", "(3,)"), CKPT_EFORMAT},
        {DICT("f4", "False", "(3,)"), CKPT_EFORMAT},
        {DICT("<f\\x34", "False", "(3,)"), CKPT_EFORMAT},
        {"{'descr': '<f4", CKPT_EFORMAT},
        {DICT("<f3", "False", "(3,)"), CKPT_EUNSUPPORTED},
        {DICT("<f16", "False", "(3,)"), CKPT_EUNSUPPORTED},
        {DICT("<U5", "False", "(3,)"), CKPT_EUNSUPPORTED},
        {DICT("<M8[ns]", "False", "(3,)"), CKPT_EUNSUPPORTED},
        {DICT("<", "False", "(3,)"), CKPT_EUNSUPPORTED},
        {"{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (3,), }", CKPT_EUNSUPPORTED},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_err err = {0};
        ckpt_npy is;
        int rc = parse(&is, cases[i].text, strlen(cases[i].text), &err);

        if (rc != cases[i].code || !strstr(err.text, "x.npy"))
            fail_msg("%s: %d (%s), expected %d", cases[i].text, rc, err.text, cases[i].code);
    }
}

/* A NUL is no byte order, though strchr finds one in every string. */
static void refuses_nul(void **state)
{
    static const char text[] = DICT("\0f4", "False", "(3,)");
    ckpt_err err = {0};
    ckpt_npy is;

    (void)state;
    assert_int_equal(parse(&is, text, sizeof text - 1, &err), CKPT_EFORMAT);
}

static void counts_axes(void **state)
{
    (void)state;
    for (unsigned n = 0; n <= CKPT_MAX_DIM + 1; n++) {
        char text[400] = "{'descr': '|i1', 'fortran_order': False, 'shape': (";
        ckpt_err err = {0};
        ckpt_npy is;

        for (unsigned k = 0; k < n; k++)
            strcat(text, "1,");
        strcat(text, ")}");
        assert_int_equal(parse(&is, text, strlen(text), &err),
                         n > CKPT_MAX_DIM ? CKPT_EUNSUPPORTED : CKPT_OK);
        assert_true(n > CKPT_MAX_DIM || is.ndim == n);
    }
}

/* ---- the lead: magic, version, length ---- */

static int length(uint64_t *out, const char *bytes, size_t n)
{
    ckpt_err err = {0};
    int rc = ckpt_npy_length(out, (const uint8_t *)bytes, n, "x.npy", &err);

    assert_int_equal(rc, err.code);
    return rc;
}

static void reads_lengths(void **state)
{
    uint64_t n = 0;

    (void)state;
    assert_int_equal(length(&n, "\x93NUMPY\1\0\x76\0", 10), CKPT_OK);
    assert_int_equal(n, 128);
    assert_int_equal(length(&n, "\x93NUMPY\1\0\0\1zz", 12), CKPT_OK);
    assert_int_equal(n, 10 + 256);
    assert_int_equal(length(&n, "\x93NUMPY\2\0\0\1\0\0", 12), CKPT_OK);
    assert_int_equal(n, 12 + 256);
    assert_int_equal(length(&n, "\x93NUMPY\3\0\x74\0\0\0", 12), CKPT_OK);
    assert_int_equal(n, 128);
    // the largest header that is read, and one byte more
    assert_int_equal(length(&n, "\x93NUMPY\2\0\xf4\xff\0\0", 12), CKPT_OK);
    assert_int_equal(n, CKPT_NPY_HEADER);
    assert_int_equal(length(&n, "\x93NUMPY\2\0\xf5\xff\0\0", 12), CKPT_ELIMIT);
    assert_int_equal(length(&n, "\x93NUMPY\2\0\xff\xff\xff\xff", 12), CKPT_ELIMIT);
}

static void refuses_leads(void **state)
{
    uint64_t n = 0;

    (void)state;
    assert_int_equal(length(&n, "", 0), CKPT_EFORMAT);
    assert_int_equal(length(&n, "\x93NUMPY\1\0\x76", 9), CKPT_EFORMAT);
    assert_int_equal(length(&n, "\x93NUMPX\1\0\x76\0", 10), CKPT_EFORMAT);
    assert_int_equal(length(&n, "\x92NUMPY\1\0\x76\0", 10), CKPT_EFORMAT);
    assert_int_equal(length(&n, "\x93NUMPY\0\0\x76\0", 10), CKPT_EUNSUPPORTED);
    assert_int_equal(length(&n, "\x93NUMPY\4\0\x76\0\0\0", 12), CKPT_EUNSUPPORTED);
    assert_int_equal(length(&n, "\x93NUMPY\1\1\x76\0", 10), CKPT_EUNSUPPORTED);
    assert_int_equal(length(&n, "\x93NUMPY\2\0\x76\0\0", 11), CKPT_EFORMAT);
}

/* A header that is cut anywhere is refused. */
static void refuses_cut(void **state)
{
    static const char text[] = DICT("<f4", "False", "(3, 4)");

    (void)state;
    for (unsigned major = 1; major <= 3; major++) {
        header h = header_of(major, text, sizeof text - 1);
        ckpt_npy is;

        for (size_t n = 0; n < h.n; n++)
            assert_int_equal(ckpt_npy_parse(&is, h.at, n, "x.npy", NULL), CKPT_EFORMAT);
        assert_int_equal(ckpt_npy_parse(&is, h.at, h.n, "x.npy", NULL), CKPT_OK);
    }
}

/* ---- writing ---- */

/* The size that ends a type's name, in bytes. */
static unsigned named_bytes(const char *descr)
{
    return (unsigned)strtoul(descr + 2, NULL, 10);
}

/* Each name has the dtype's size, and is read as the dtype itself or as its bits. */
static void names_types(void **state)
{
    unsigned n = 0;

    (void)state;
    for (ckpt_dtype d = CKPT_DTYPE_NONE + 1; d < CKPT_N_DTYPES; d++) {
        bool as_bits = false;
        const char *descr = ckpt_npy_descr(d, &as_bits);
        char text[200];
        ckpt_npy is;

        if (!descr)
            continue;
        n++;
        assert_int_equal(named_bytes(descr) * 8, ckpt_dtype_get(d)->bits);
        // numpy has no byte order for single bytes and for opaque types
        assert_int_equal(descr[0], named_bytes(descr) == 1 || descr[1] == 'V' ? '|' : '<');
        int k = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': ()}",
                         descr);
        assert_int_equal(parse(&is, text, (size_t)k, NULL), CKPT_OK);
        assert_true(as_bits ? is.dtype != d : is.dtype == d);
        assert_int_equal(ckpt_dtype_get(is.dtype)->bits, ckpt_dtype_get(d)->bits);
    }
    assert_true(n >= 20);
}

static void writes(void **state)
{
    uint64_t shape[CKPT_MAX_DIM];

    (void)state;
    for (uint32_t ndim = 0; ndim <= CKPT_MAX_DIM; ndim++) {
        ckpt_bytes b = {0};
        ckpt_npy is;

        for (uint32_t k = 0; k < ndim; k++)
            shape[k] = UINT64_MAX >> (4 * (k % 16)); // up to 20 digits
        assert_true(ckpt_bytes_add(&b, "abc", 3));   // it appends
        assert_true(ckpt_npy_put(&b, "<f4", shape, ndim));
        assert_int_equal((b.n - 3) % 64, 0);
        assert_int_equal(b.at[b.n - 1], '\n');
        assert_int_equal(ckpt_npy_parse(&is, b.at + 3, b.n - 3, "x.npy", NULL), CKPT_OK);
        assert_int_equal(is.n_header, b.n - 3);
        assert_int_equal(is.dtype, CKPT_F32);
        assert_false(is.fortran || is.swap || is.raw);
        assert_int_equal(is.ndim, ndim);
        assert_memory_equal(is.shape, shape, ndim * sizeof *shape);
        ckpt_vec_free(&b);
    }
}

/* The bytes of np.save for np.zeros((3, 4), 'f4') and np.zeros(5, '?'). */
static void writes_as_numpy(void **state)
{
    static const char two[] = "\x93NUMPY\1\0v\0{'descr': '<f4', 'fortran_order': False, "
                              "'shape': (3, 4), }";
    static const char one[] = "\x93NUMPY\1\0v\0{'descr': '|b1', 'fortran_order': False, "
                              "'shape': (5,), }";
    ckpt_bytes b = {0};

    (void)state;
    assert_true(ckpt_npy_put(&b, "<f4", (const uint64_t[]){3, 4}, 2));
    assert_true(ckpt_npy_put(&b, "|b1", (const uint64_t[]){5}, 1));
    assert_int_equal(b.n, 256);
    assert_memory_equal(b.at, two, sizeof two - 1);
    assert_memory_equal(b.at + 128, one, sizeof one - 1);
    ckpt_vec_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_types),     cmocka_unit_test(reads_shapes),
        cmocka_unit_test(refuses),         cmocka_unit_test(refuses_nul),
        cmocka_unit_test(counts_axes),     cmocka_unit_test(reads_lengths),
        cmocka_unit_test(refuses_leads),   cmocka_unit_test(refuses_cut),
        cmocka_unit_test(names_types),     cmocka_unit_test(writes),
        cmocka_unit_test(writes_as_numpy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
