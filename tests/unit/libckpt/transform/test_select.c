/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_select.c: keeping and renaming tensors of a map, ties included.
 */
#include "ckpt_extra.h"
#include "libckpt/include/ckpt.h"
#include "libckpt/map/map.h"
#include "tests/unit/unit.h"

/* A map of five tensors over one memory source: head is tied to emb, tail to emb too. */
static ckpt_map *make(void)
{
    static char bytes[64];
    const ckpt_source source = {.kind = CKPT_SOURCE_MEMORY, .n_bytes = 64, .memory = bytes};
    static const char *const names[] = {"m.emb", "m.fc.weight", "m.fc.bias", "m.head", "m.tail"};
    const uint64_t shape[] = {4};
    ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 1, .shape = shape}, *t[5];
    ckpt_map *map = NULL;
    uint32_t at;

    assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
    map->path = "test";
    assert_int_equal(ckpt_map_add_source(map, &source, &at, NULL), CKPT_OK);
    for (int i = 0; i < 5; i++) {
        like.owner = i < 3 ? NULL : t[0];
        assert_int_equal(ckpt_map_add(map, names[i], strlen(names[i]), &like, &t[i], NULL),
                         CKPT_OK);
        if (i < 3)
            assert_int_equal(ckpt_map_back_whole(map, t[i], 0, (uint64_t)i * 16, NULL), CKPT_OK);
    }
    return map;
}

static void globs_keep_and_drop(void **state)
{
    const char *const include[] = {"m.fc.*", "*emb", NULL}, *const exclude[] = {"*.bias", NULL};
    const ckpt_filter f = {.include = include, .exclude = exclude};
    ckpt_map *map = make();

    (void)state;
    assert_int_equal(ckpt_map_select(map, &f, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_tensor_count(map), 2);
    assert_non_null(ckpt_map_find(map, "m.emb"));
    assert_non_null(ckpt_map_find(map, "m.fc.weight"));
    assert_null(ckpt_map_find(map, "m.fc.bias"));
    ckpt_map_free(map);
}

/* The map of make, where the program saved "m.emb" and "m.fc.bias" beside the model. */
static ckpt_map *make_beside(void)
{
    ckpt_map *map = make();

    map->tensors.at[0]->role = CKPT_ROLE_OTHER;
    map->tensors.at[2]->role = CKPT_ROLE_OTHER;
    return map;
}

static void tensors_beside_the_model_are_left_out(void **state)
{
    const ckpt_model_opts keep = {.keep_names = true, .keep_others = true},
                          run = {.keep_names = true, .run = true}, drop = {.keep_names = true};
    ckpt_map *map = make_beside();

    (void)state;
    assert_int_equal(ckpt_map_keep_model(map, &keep, NULL), CKPT_OK);
    // a saved run keeps them; weights that begin a run have none
    map->known.training = true;
    assert_int_equal(ckpt_map_keep_model(map, &run, NULL), CKPT_OK);
    map->known.training = false;
    assert_int_equal(ckpt_map_tensor_count(map), 5);
    assert_int_equal(map->findings.n, 0);
    assert_int_equal(ckpt_map_keep_model(map, &drop, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_tensor_count(map), 3);
    assert_null(ckpt_map_find(map, "m.emb"));
    // a tie of a dropped tensor has its values
    assert_null(ckpt_map_find(map, "m.head")->owner);
    assert_int_equal(ckpt_map_find(map, "m.head")->n_extents, 1);
    assert_int_equal(map->findings.n, 1);
    ckpt_map_free(map);
}

static void selected_tensors_beside_the_model_stay(void **state)
{
    const char *const include[] = {"*.emb", NULL};
    const ckpt_model_opts drop = {.keep_names = true};
    ckpt_map *map = make_beside();

    (void)state;
    assert_int_equal(ckpt_map_select(map, &(ckpt_filter){.include = include}, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_keep_model(map, &drop, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_tensor_count(map), 1);
    ckpt_map_free(map);
}

static void a_tie_outlives_its_owner(void **state)
{
    const char *const exclude[] = {"m.emb", NULL};
    const ckpt_filter f = {.exclude = exclude};
    ckpt_map *map = make();

    (void)state;
    assert_int_equal(ckpt_map_select(map, &f, NULL), CKPT_OK);
    const ckpt_tensor *head = ckpt_map_find(map, "m.head"), *tail = ckpt_map_find(map, "m.tail");
    assert_null(head->owner);
    assert_int_equal(head->n_extents, 1);
    assert_ptr_equal(tail->owner, head);
    assert_int_equal(ckpt_map_check(map, NULL), CKPT_OK);
    ckpt_map_free(map);
}

static void rules_rename_by_the_first_that_matches(void **state)
{
    const ckpt_filter f = {.rename_text = "# a comment\n m.fc.* dense.*\r\n\nm.*  *\n"};
    ckpt_map *map = make();

    (void)state;
    assert_int_equal(ckpt_map_select(map, &f, NULL), CKPT_OK);
    assert_non_null(ckpt_map_find(map, "dense.weight"));
    assert_non_null(ckpt_map_find(map, "emb"));
    assert_ptr_equal(ckpt_map_find(map, "head")->owner, ckpt_map_find(map, "emb"));
    assert_null(ckpt_map_find(map, "m.emb"));
    ckpt_map_free(map);
}

static void stars_take_the_shortest_run(void **state)
{
    const ckpt_filter f = {.rename_text = "*.*c.* <*|*|*>"};
    ckpt_map *map = make();

    (void)state;
    assert_int_equal(ckpt_map_select(map, &f, NULL), CKPT_OK);
    assert_non_null(ckpt_map_find(map, "<m|f|weight>"));
    ckpt_map_free(map);
}

static void bad_rules_are_named(void **state)
{
    static const char *const bad[] = {"lonely", "a b c", "a* b**", "m.fc.weight m.emb"};
    static const int code[] = {CKPT_EUSAGE, CKPT_EUSAGE, CKPT_EUSAGE, CKPT_EMISMATCH};

    (void)state;
    for (int i = 0; i < 4; i++) {
        const ckpt_filter f = {.rename_text = bad[i]};
        ckpt_map *map = make();
        ckpt_err err = {0};
        assert_int_equal(ckpt_map_select(map, &f, &err), code[i]);
        assert_true(strlen(err.text) > 10);
        ckpt_map_free(map);
    }
}

static void nothing_left_is_an_error(void **state)
{
    const char *const include[] = {"x*", NULL};
    const ckpt_filter f = {.include = include};
    ckpt_map *map = make();

    (void)state;
    assert_int_equal(ckpt_map_select(map, &f, NULL), CKPT_EMISSING);
    ckpt_map_free(map);
}

static void every_allocation_may_fail(void **state)
{
    const char *const exclude[] = {"m.emb", NULL};
    const ckpt_filter f = {.exclude = exclude, .rename_text = "m.* *\n"};
    int rc = CKPT_ELIMIT;

    (void)state;
    for (uint64_t n = 0; rc != CKPT_OK; n++) {
        ckpt_map *map = make();
        ckpt_alloc_fail_at(n);
        rc = ckpt_map_select(map, &f, NULL);
        ckpt_alloc_fail_at(UINT64_MAX);
        assert_true(rc == CKPT_OK || rc == CKPT_ELIMIT);
        ckpt_map_free(map);
        assert_true(n < 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(globs_keep_and_drop),
        cmocka_unit_test(tensors_beside_the_model_are_left_out),
        cmocka_unit_test(selected_tensors_beside_the_model_stay),
        cmocka_unit_test(a_tie_outlives_its_owner),
        cmocka_unit_test(rules_rename_by_the_first_that_matches),
        cmocka_unit_test(stars_take_the_shortest_run),
        cmocka_unit_test(bad_rules_are_named),
        cmocka_unit_test(nothing_left_is_an_error),
        cmocka_unit_test(every_allocation_may_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
