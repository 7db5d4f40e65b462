/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_dtype.c: the table of dtypes is complete, and every name leads back to its row.
 */
#include <ctype.h>

#include "libckpt/base/dtype.h"
#include "tests/unit/unit.h"

static void every_row_is_filled_and_found(void **state)
{
    (void)state;
    for (int i = CKPT_DTYPE_NONE + 1; i < CKPT_N_DTYPES; i++) {
        ckpt_dtype d = (ckpt_dtype)i;
        const ckpt_dtype_info *info = ckpt_dtype_get(d);
        char low[32] = "";

        assert_non_null(info->name);
        assert_true(info->per == 1 ? info->bits == 8 * info->bytes : info->bytes > 0);
        assert_true(info->bits == 0 || info->bits * info->per == 8 * info->bytes);
        assert_ptr_equal(ckpt_dtype_name(d), info->name);
        assert_int_equal(ckpt_dtype_from_safetensors(info->name, strlen(info->name)),
                         info->safetensors ? d : CKPT_DTYPE_NONE);
        if (info->torch) {
            assert_int_equal(ckpt_dtype_from_torch(info->torch, strlen(info->torch)), d);
            assert_int_equal(ckpt_dtype_parse(info->torch), d);
        }
        if (info->torch_storage)
            assert_int_equal(
                ckpt_dtype_from_torch_storage(info->torch_storage, strlen(info->torch_storage)), d);
        for (size_t k = 0; info->name[k] != '\0'; k++)
            low[k] = (char)tolower((unsigned char)info->name[k]);
        assert_int_equal(ckpt_dtype_parse(info->name), d);
        assert_int_equal(ckpt_dtype_parse(low), d);
        // the group that a big-endian file reverses is a whole part of the element
        assert_int_equal(info->bits >= 8 ? info->bits % (8 * info->swap) : info->swap - 1, 0);
    }
}

static void outside_of_the_enum_is_none(void **state)
{
    (void)state;
    assert_string_equal(ckpt_dtype_name(CKPT_DTYPE_NONE), "NONE");
    assert_int_equal(ckpt_dtype_get(CKPT_DTYPE_NONE)->bits, 0);
    assert_ptr_equal(ckpt_dtype_get((ckpt_dtype)CKPT_N_DTYPES), ckpt_dtype_get(CKPT_DTYPE_NONE));
    assert_ptr_equal(ckpt_dtype_get((ckpt_dtype)-1), ckpt_dtype_get(CKPT_DTYPE_NONE));
}

static void safetensors_order(void **state)
{
    static const char *const order[] = {
        "BOOL",    "F4",          "F6_E2M3",     "F6_E3M2", "U8",  "I8",  "F8_E5M2", "F8_E4M3",
        "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16",     "U16", "F16", "BF16",    "I32",
        "U32",     "F32",         "C64",         "F64",     "I64", "U64",
    };
    size_t n = 0;

    (void)state;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        ckpt_dtype d = ckpt_dtype_from_safetensors(order[i], strlen(order[i]));

        assert_int_not_equal(d, CKPT_DTYPE_NONE);
        assert_int_equal(ckpt_dtype_get(d)->st_order, i);
    }
    for (int d = 0; d < CKPT_N_DTYPES; d++)
        n += ckpt_dtype_get((ckpt_dtype)d)->safetensors;
    assert_int_equal(n, sizeof order / sizeof *order);
}

static void widths(void **state)
{
    static const struct {
        ckpt_dtype d;
        unsigned bits, swap;
        ckpt_kind_of kind;
    } want[] = {
        {CKPT_F64, 64, 8, CKPT_IS_FLOAT},     {CKPT_BF16, 16, 2, CKPT_IS_FLOAT},
        {CKPT_F8_E5M2, 8, 1, CKPT_IS_FLOAT},  {CKPT_F6_E2M3, 6, 1, CKPT_IS_FLOAT},
        {CKPT_F4, 4, 1, CKPT_IS_FLOAT},       {CKPT_I32, 32, 4, CKPT_IS_INT},
        {CKPT_U16, 16, 2, CKPT_IS_UINT},      {CKPT_BOOL, 8, 1, CKPT_IS_BOOL},
        {CKPT_C128, 128, 8, CKPT_IS_COMPLEX}, {CKPT_C64, 64, 4, CKPT_IS_COMPLEX},
        {CKPT_C32, 32, 2, CKPT_IS_COMPLEX},   {CKPT_BITS16, 16, 2, CKPT_IS_BITS},
    };

    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const ckpt_dtype_info *info = ckpt_dtype_get(want[i].d);

        assert_int_equal(info->bits, want[i].bits);
        assert_int_equal(info->swap, want[i].swap);
        assert_int_equal(info->kind, want[i].kind);
    }
}

static void names_of_torch(void **state)
{
    static const struct {
        const char *name;
        ckpt_dtype d;
    } dtypes[] =
        {
            {"half", CKPT_F16},
            {"float", CKPT_F32},
            {"double", CKPT_F64},
            {"long", CKPT_I64},
            {"int", CKPT_I32},
            {"short", CKPT_I16},
            {"cfloat", CKPT_C64},
            {"cdouble", CKPT_C128},
            {"chalf", CKPT_C32},
            {"bits1x8", CKPT_BITS8},
            {"bits2x4", CKPT_BITS8},
            {"bits4x2", CKPT_BITS8},
            {"bits8", CKPT_BITS8},
            {"bits16", CKPT_BITS16},
            {"float8_e4m3fn", CKPT_F8_E4M3},
            {"float4_e2m1fn_x2", CKPT_F4},
            {"float8_e8m0fnu", CKPT_F8_E8M0},
            {"bcomplex32", CKPT_DTYPE_NONE},
            {"qint8", CKPT_DTYPE_NONE},
            {"Float32", CKPT_DTYPE_NONE},
            {"float32 ", CKPT_DTYPE_NONE},
            {"", CKPT_DTYPE_NONE},
        },
      storages[] = {
          {"DoubleStorage", CKPT_F64},       {"FloatStorage", CKPT_F32},
          {"HalfStorage", CKPT_F16},         {"BFloat16Storage", CKPT_BF16},
          {"LongStorage", CKPT_I64},         {"IntStorage", CKPT_I32},
          {"ShortStorage", CKPT_I16},        {"CharStorage", CKPT_I8},
          {"ByteStorage", CKPT_U8},          {"BoolStorage", CKPT_BOOL},
          {"ComplexFloatStorage", CKPT_C64}, {"ComplexDoubleStorage", CKPT_C128},
          {"QInt8Storage", CKPT_DTYPE_NONE}, {"UntypedStorage", CKPT_DTYPE_NONE},
          {"Float", CKPT_DTYPE_NONE},
      };

    (void)state;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        assert_int_equal(ckpt_dtype_from_torch(dtypes[i].name, strlen(dtypes[i].name)),
                         dtypes[i].d);
    for (size_t i = 0; i < sizeof storages / sizeof *storages; i++)
        assert_int_equal(ckpt_dtype_from_torch_storage(storages[i].name, strlen(storages[i].name)),
                         storages[i].d);
    // names are counted, not terminated
    assert_int_equal(ckpt_dtype_from_torch("float32xyz", 7), CKPT_F32);
    assert_int_equal(ckpt_dtype_from_torch("float32\0", 8), CKPT_DTYPE_NONE);
    assert_int_equal(ckpt_dtype_from_safetensors("f32", 3), CKPT_DTYPE_NONE);
    assert_int_equal(ckpt_dtype_from_safetensors("C128", 4), CKPT_DTYPE_NONE);
}

static void names_that_users_type(void **state)
{
    static const struct {
        const char *text;
        ckpt_dtype d;
    } want[] = {
        {"bf16", CKPT_BF16},
        {"BFloat16", CKPT_BF16},
        {"fp16", CKPT_F16},
        {"float16", CKPT_F16},
        {"HALF", CKPT_F16},
        {"fp32", CKPT_F32},
        {"float32", CKPT_F32},
        {"float", CKPT_F32},
        {"fp64", CKPT_F64},
        {"double", CKPT_F64},
        {"fp8_e4m3", CKPT_F8_E4M3},
        {"F8_E5M2", CKPT_F8_E5M2},
        {"float8_e5m2", CKPT_F8_E5M2},
        {"e4m3", CKPT_F8_E4M3},
        {"torch.bfloat16", CKPT_BF16},
        {"int64", CKPT_I64},
        {"u8", CKPT_U8},
        {"bool", CKPT_BOOL},
        {"", CKPT_DTYPE_NONE},
        {"none", CKPT_DTYPE_NONE},
        {"f33", CKPT_DTYPE_NONE},
        {"bf1", CKPT_DTYPE_NONE},
        {"bf166", CKPT_DTYPE_NONE},
        {"torch.", CKPT_DTYPE_NONE},
        {"a very long text that names no dtype at all, whatever its case", CKPT_DTYPE_NONE},
    };

    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_int_equal(ckpt_dtype_parse(want[i].text), want[i].d);
}

static void bytes_of_elements(void **state)
{
    uint64_t n;

    (void)state;
    assert_true(ckpt_dtype_bytes(CKPT_F32, 10, &n) && n == 40);
    assert_true(ckpt_dtype_bytes(CKPT_C128, 3, &n) && n == 48);
    assert_true(ckpt_dtype_bytes(CKPT_U8, UINT64_MAX, &n) && n == UINT64_MAX);
    assert_true(ckpt_dtype_bytes(CKPT_F32, 0, &n) && n == 0);
    assert_false(ckpt_dtype_bytes(CKPT_F32, 1ull << 62, &n));
    assert_true(ckpt_dtype_bytes(CKPT_F4, 6, &n) && n == 3);
    assert_false(ckpt_dtype_bytes(CKPT_F4, 7, &n));
    assert_true(ckpt_dtype_bytes(CKPT_F6_E3M2, 4, &n) && n == 3);
    assert_false(ckpt_dtype_bytes(CKPT_F6_E3M2, 5, &n));
    assert_true(ckpt_dtype_bytes(CKPT_Q4_K, 512, &n) && n == 288);
    assert_false(ckpt_dtype_bytes(CKPT_Q4_K, 500, &n));
    assert_false(ckpt_dtype_bytes(CKPT_Q8_0, UINT64_MAX - 31, &n));
    assert_true(ckpt_dtype_packed(CKPT_F4) && ckpt_dtype_packed(CKPT_Q8_0));
    assert_false(ckpt_dtype_packed(CKPT_BF16));
    assert_false(ckpt_dtype_bytes(CKPT_DTYPE_NONE, 5, &n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_filled_and_found),
        cmocka_unit_test(outside_of_the_enum_is_none),
        cmocka_unit_test(safetensors_order),
        cmocka_unit_test(widths),
        cmocka_unit_test(names_of_torch),
        cmocka_unit_test(names_that_users_type),
        cmocka_unit_test(bytes_of_elements),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
