/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_dcp_outline.c: a checkpoint that is opened as an outline lists the same tensors, is checked
 * as well, and cannot be read.
 */
#include "ckpt_extra.h"
#include "libckpt/map/map.h"
#include "tests/unit/libckpt/help.h"
#include "tests/unit/unit.h"

/* Open a fixture's folder "ckpt"; skips without fixtures. */
static ckpt_map *open_fixture(const char *name, bool outline)
{
    const char *fixtures = getenv("CKPT_FIXTURES");
    const ckpt_open_opts opts = {.outline = outline, .with_optimizer = true};
    char path[1024];
    ckpt_map *map = NULL;
    ckpt_err err = {0};

    if (!fixtures)
        skip();
    snprintf(path, sizeof path, "%s/%s/ckpt", fixtures, name);
    if (ckpt_open(&map, path, &opts, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    return map;
}

static void lists_the_same(void **state)
{
    static const char *const names[] = {"dcp_mesh2d_w4", "dcp_plain_w2", "fsdp2_mp_w2"};
    size_t n_outlined = 0;

    (void)state;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        ckpt_map *a = open_fixture(names[k], false), *b = open_fixture(names[k], true);

        assert_int_equal(a->tensors.n, b->tensors.n);
        assert_int_equal(a->findings.n, b->findings.n);
        for (size_t i = 0; i < a->tensors.n; i++) {
            const ckpt_tensor *s = a->tensors.at[i], *t = b->tensors.at[i];

            assert_string_equal(s->name, t->name);
            assert_true(s->dtype == t->dtype && s->ndim == t->ndim && s->role == t->role);
            assert_memory_equal(s->shape, t->shape, s->ndim * sizeof *s->shape);
            n_outlined += (t->flags & CKPT_TENSOR_OUTLINE) != 0;
            assert_true(s->n_extents == t->n_extents || (t->flags & CKPT_TENSOR_OUTLINE));
        }
        assert_true(b->sources.n <= a->sources.n);
        assert_int_equal(ckpt_map_check(b, NULL), CKPT_OK);
        ckpt_map_free(a);
        ckpt_map_free(b);
    }
    assert_true(n_outlined > 0);
}

/* An outline is refused by whatever would read its tensors. */
static void is_not_read(void **state)
{
    ckpt_map *map = open_fixture("dcp_plain_w2", true), *to = NULL;
    const ckpt_target target = {.format = "safetensors", .path = "out.safetensors"};
    ckpt_reader *reader = NULL;
    ckpt_plan *plan = NULL;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(ckpt_reader_new(&reader, map, &err), CKPT_EUSAGE);
    assert_non_null(strstr(err.text, "outline"));
    assert_null(reader);
    assert_int_equal(ckpt_layout(&to, map, &target, &err), CKPT_EUSAGE);
    assert_null(to);
    ckpt_map_free(map);
    map = open_fixture("dcp_plain_w2", false);
    if (ckpt_layout(&to, map, &target, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    map->outline = true;
    assert_int_equal(ckpt_plan_new(&plan, map, to, NULL, &err), CKPT_EUSAGE);
    assert_null(plan);
    ckpt_map_free(to);
    ckpt_map_free(map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_the_same),
        cmocka_unit_test(is_not_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
