/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_merge.c: maps of files joined into one map; nothing of them is borrowed.
 */
#include "libckpt/map/merge.h"
#include "tests/unit/unit.h"

static void merges_tensors(void **state)
{
    static const uint64_t shape[] = {2, 3};
    static const ckpt_source source = {
        .kind = CKPT_SOURCE_FILE, .n_stored = 24, .n_bytes = 24, .name = "r"};
    static const ckpt_map_file file = {.path = "f", .size = 24};
    ckpt_map *from = NULL, *into = NULL;
    ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 2, .shape = shape, .role = CKPT_ROLE_FROZEN}, *t,
                *made;
    uint32_t file_base, base, index;

    (void)state;
    assert_int_equal(ckpt_map_create(&from, 0, NULL) | ckpt_map_create(&into, 0, NULL), CKPT_OK);
    for (unsigned i = 0; i < 2; i++) {
        ckpt_map *m = i ? from : into;
        assert_int_equal(ckpt_map_add_file(m, &file, &index, NULL), CKPT_OK);
        assert_int_equal(ckpt_map_add_source(m, &source, &index, NULL), CKPT_OK);
    }
    assert_int_equal(ckpt_map_add(from, "w", 1, &like, &t, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_back_whole(from, t, 0, 0, NULL), CKPT_OK);
    ckpt_tensor *twin;
    assert_int_equal(ckpt_map_add_hidden(from, "w16", 3, &like, &twin, NULL), CKPT_OK);
    twin->dtype = CKPT_BF16;
    assert_int_equal(ckpt_map_back_whole(from, twin, 0, 4, NULL), CKPT_OK);
    t->twin = twin;
    ckpt_tensor *tied;
    assert_int_equal(ckpt_map_add(from, "v", 1, &like, &tied, NULL), CKPT_OK);
    tied->owner = t;

    assert_int_equal(ckpt_map_merge_files(into, from, &file_base, &base, NULL), CKPT_OK);
    assert_int_equal(file_base, 1);
    assert_int_equal(base, 1);
    assert_int_equal(into->sources.at[1].file, 1);
    // its owner is not there: it takes the bytes
    assert_int_equal(ckpt_map_merge_tensor(into, "alone", tied, base, &made, NULL), CKPT_OK);
    assert_null(made->owner);
    assert_int_equal(made->extent[0].source, 1);
    assert_int_equal(ckpt_map_merge_tensor(into, "w", t, base, &made, NULL), CKPT_OK);
    assert_int_equal(made->role, CKPT_ROLE_FROZEN);
    assert_int_equal(made->extent[0].source, 1);
    assert_int_equal(made->twin->dtype, CKPT_BF16);
    assert_int_equal(made->twin->extent[0].source, 1);
    assert_int_equal(made->twin->extent[0].at, 4);
    assert_int_equal(ckpt_map_merge_tensor(into, "v", tied, base, &made, NULL), CKPT_OK);
    assert_string_equal(made->owner->name, "w");
    assert_int_equal(made->n_extents, 0);
    assert_int_equal(ckpt_map_merge_tensor(into, "v", t, base, &made, NULL), CKPT_EFORMAT);
    ckpt_map_free(from);
    // nothing of `from` is borrowed
    assert_string_equal(into->tensors.at[1]->name, "w");
    assert_int_equal(into->tensors.at[1]->shape[1], 3);
    assert_int_equal(into->tensors.at[1]->extent[0].axis[0].count, 6);
    assert_string_equal(into->sources.at[1].name, "r");
    ckpt_map_free(into);
}

static void merges_notes(void **state)
{
    ckpt_map *from = NULL, *into = NULL;

    (void)state;
    assert_int_equal(ckpt_map_create(&from, 0, NULL) | ckpt_map_create(&into, 0, NULL), CKPT_OK);
    assert_true(
        ckpt_dict_add_cstr(into->arena, &into->metadata, "k", ckpt_value_cstr(into->arena, "old")));
    assert_true(
        ckpt_dict_add_cstr(from->arena, &from->metadata, "k", ckpt_value_cstr(from->arena, "new")));
    assert_true(
        ckpt_dict_add_cstr(from->arena, &from->metadata, "l", ckpt_value_cstr(from->arena, "x")));
    from->collect = true;
    assert_int_equal(ckpt_map_problem(from, CKPT_EMISMATCH, NULL, "100%% wrong"), CKPT_OK);
    assert_int_equal(ckpt_map_merge_notes(into, from, NULL), CKPT_OK);
    ckpt_map_free(from);
    assert_int_equal(into->metadata.n, 2);
    assert_true(ckpt_value_is(into->metadata.at[0].value, "old"));
    assert_true(ckpt_value_is(into->metadata.at[1].value, "x"));
    assert_int_equal(into->findings.n, 1);
    assert_int_equal(into->findings.at[0].code, CKPT_EMISMATCH);
    assert_string_equal(into->findings.at[0].text, "100% wrong");
    ckpt_map_free(into);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_tensors),
        cmocka_unit_test(merges_notes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
