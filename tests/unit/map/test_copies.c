/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_copies.c: copies of a model's weights among the names of its tensors.
 */
#include "libckpt/map/copies.h"
#include "tests/unit/unit.h"

static const uint64_t square[] = {4, 4}, row[] = {4};

#define W(name)                                                                                    \
    {                                                                                              \
        (name), square, 2, true, false, false                                                      \
    }

static void a_copy_at_the_root(void **state)
{
    ckpt_copies_name at[] = {
        W("a.weight"), W("b.weight"), W("ema.a.weight"), W("ema.module.b.weight"), W("emas.weight"),
    };

    (void)state;
    assert_int_equal(ckpt_copies_mark(at, 5, NULL), CKPT_OK);
    assert_false(at[0].copy || at[1].copy || at[4].copy);
    assert_true(at[2].copy && at[3].copy);
}

static void a_model_with_a_wrapper(void **state)
{
    ckpt_copies_name at[] = {
        W("model.a.weight"),
        W("ema_model.module.a.weight"),
        {"ema_model.n_averaged", NULL, 0, false, false, false},
    };

    (void)state;
    assert_int_equal(ckpt_copies_mark(at, 3, NULL), CKPT_OK);
    assert_false(at[0].copy);
    assert_true(at[1].copy && at[2].copy);
}

/* A module of the model that has the name of a copy is not one. */
static void a_module_of_that_name(void **state)
{
    ckpt_copies_name at[] = {
        W("a.weight"),     W("b.weight"), W("ema.c.weight"), {"ema.a.weight", row, 1, true, 0, 0},
        W("ema.b.weight"),
    };

    (void)state;
    assert_int_equal(ckpt_copies_mark(at, 5, NULL), CKPT_OK);
    for (size_t i = 0; i < 5; i++)
        assert_false(at[i].copy);
}

static void a_trained_module(void **state)
{
    ckpt_copies_name at[] = {W("a.weight"), W("shadow.a.weight")};

    (void)state;
    at[1].trained = true;
    assert_int_equal(ckpt_copies_mark(at, 2, NULL), CKPT_OK);
    assert_false(at[0].copy || at[1].copy);
}

/* A file of averaged weights alone: they are the model. */
static void no_model_outside(void **state)
{
    ckpt_copies_name at[] = {W("ema.a.weight"), W("ema.b.weight")};

    (void)state;
    assert_int_equal(ckpt_copies_mark(at, 2, NULL), CKPT_OK);
    assert_false(at[0].copy || at[1].copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_at_the_root),    cmocka_unit_test(a_model_with_a_wrapper),
        cmocka_unit_test(a_module_of_that_name), cmocka_unit_test(a_trained_module),
        cmocka_unit_test(no_model_outside),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
