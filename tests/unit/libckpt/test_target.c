/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_target.c: what can be asked of a target, and that nothing else is passed over.
 */
#include "ckpt_extra.h"
#include "tests/unit/unit.h"

/* Refused, with a text that says this. */
static void refused(const ckpt_target *target, const char *text)
{
    ckpt_err err = {0};

    assert_int_equal(ckpt_target_check(target, &err), CKPT_EUSAGE);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" does not say \"%s\"", err.text, text);
}

static void test_dtypes(void **state)
{
    static const char *const training[] = {"zero", "universal"};
    static const ckpt_dtype can[] = {CKPT_F64,  CKPT_F32,     CKPT_F16,
                                     CKPT_BF16, CKPT_F8_E4M3, CKPT_F8_E5M2};
    ckpt_target t = {.format = "safetensors", .path = "x"};

    (void)state;
    // each dtype is either converted to, or refused: nothing is written as something else
    for (unsigned d = CKPT_DTYPE_NONE + 1; d < CKPT_N_DTYPES; d++) {
        bool listed = false;

        for (size_t i = 0; i < sizeof can / sizeof *can; i++)
            listed = listed || can[i] == d;
        t.dtype = (ckpt_dtype)d;
        assert_int_equal(ckpt_target_check(&t, NULL), listed ? CKPT_OK : CKPT_EUSAGE);
        // what lies in blocks is for files of ggml's alone
        ckpt_target blocks = {.format = "gguf", .path = "x", .dtype = (ckpt_dtype)d};
        if (ckpt_dtype_block((ckpt_dtype)d, NULL) > 4)
            listed = ckpt_target_check(&blocks, NULL) == CKPT_OK;
        assert_int_equal(ckpt_dtype_converts((ckpt_dtype)d, CKPT_F32), listed);
        for (int k = 0; k < 2; k++) {
            ckpt_target run = {.format = training[k], .path = "x", .dtype = (ckpt_dtype)d};
            assert_int_equal(ckpt_target_check(&run, NULL),
                             d == CKPT_F32 || d == CKPT_F16 || d == CKPT_BF16 ? CKPT_OK
                                                                              : CKPT_EUSAGE);
        }
    }
    t.dtype = (ckpt_dtype)999;
    refused(&t, "999 is not a dtype");
    t.dtype = (ckpt_dtype)-1;
    refused(&t, "-1 is not a dtype");
    t.dtype = CKPT_I8;
    refused(&t, "F64, F32, F16, BF16, F8_E4M3, F8_E5M2, not as I8");
    assert_false(ckpt_dtype_converts((ckpt_dtype)999, (ckpt_dtype)999));
    assert_true(ckpt_dtype_converts(CKPT_I8, CKPT_I8));
}

static void test_formats(void **state)
{
    (void)state;
    refused(NULL, "needs a format and a path");
    refused(&(ckpt_target){.path = "x"}, "needs a format and a path");
    refused(&(ckpt_target){.format = "hf"}, "needs a format and a path");
    refused(&(ckpt_target){.format = "nonsense", .path = "x"},
            "torch, safetensors, gguf, mmproj, npz, universal, hf");
    refused(&(ckpt_target){.format = "torch-legacy", .path = "x"}, "cannot be written");
    assert_int_equal(ckpt_format_caps("nonsense"), 0);
    assert_true(ckpt_format_caps("hf") & CKPT_IS_FOLDER);
    assert_false(ckpt_format_caps("torch") & CKPT_IS_FOLDER);
}

static void test_fields(void **state)
{
    (void)state;
    refused(&(ckpt_target){.format = "torch", .path = "x", .max_shard_size = 1},
            "max_shard_size does not apply to format torch, only to gguf, hf, hf-bin");
    refused(&(ckpt_target){.format = "zero", .path = "x", .skip_side_files = true}, "skip_side");
    refused(&(ckpt_target){.format = "hf", .path = "x", .tag = "t"}, "tag");
    refused(&(ckpt_target){.format = "hf", .path = "x", .stage = 1}, "stage");
    refused(&(ckpt_target){.format = "hf", .path = "x", .world = 1}, "world");
    refused(&(ckpt_target){.format = "hf", .path = "x", .order_text = "*"}, "order_text");
    refused(&(ckpt_target){.format = "zero", .path = "x", .stage = 4}, "stage 4");
    refused(&(ckpt_target){.format = "zero", .path = "x", .stage = -2}, "stage -2");
    refused(
        &(ckpt_target){.format = "zero", .path = "x", .keep_objects = true, .drop_objects = true},
        "exclude each other");
    assert_int_equal(ckpt_target_check(&(ckpt_target){.format = "zero",
                                                      .path = "x",
                                                      .stage = CKPT_STAGE_NONE,
                                                      .world = 2,
                                                      .tag = "t",
                                                      .keep_objects = true},
                                       NULL),
                     CKPT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_fields),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
