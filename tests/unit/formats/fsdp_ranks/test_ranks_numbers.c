/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_ranks_numbers.c: numbers of an optimizer and the model's parameters: the same order, and
 * what is said of others.
 */
#include "formats/fsdp_ranks/ranks.h"
#include "libckpt/base/index.h"
#include "tests/unit/unit.h"

enum { MAX = 8, NAME = 32 };

/* The model's parameters, and those of the optimizer, by their numbers of rows; 0 ends a list. */
typedef struct case_of {
    uint64_t model[MAX], optim[MAX];
    bool several; /* the last number is a group of its own */
} case_of;

static void add(ckpt_ranks_set *set, ckpt_arena *arena, const char *prefix, unsigned i,
                uint64_t rows)
{
    ckpt_ranks_item *item = ckpt_vec_push(&set->item);
    uint64_t shape[] = {rows, 2};

    *item = (ckpt_ranks_item){.name = ckpt_arena_printf(arena, "%s%u", prefix, i),
                              .kind = CKPT_RANKS_DTENSOR,
                              .dtype = CKPT_F32,
                              .ndim = 2,
                              .shape = ckpt_arena_copy(arena, shape, sizeof shape)};
    assert_non_null(item->name);
    assert_non_null(item->shape);
}

static ckpt_value *group(ckpt_arena *arena, unsigned from, unsigned to)
{
    ckpt_value *g = ckpt_value_new(arena, CKPT_V_DICT), *list = ckpt_value_new(arena, CKPT_V_LIST);

    for (unsigned i = from; i < to; i++)
        assert_true(ckpt_seq_add(arena, &list->as.seq, ckpt_value_int(arena, i)));
    assert_true(ckpt_dict_add_cstr(arena, &g->as.map, "params", list));
    return g;
}

/* The reason, or NULL; then which parameter each number is. */
static const char *why(const case_of *c, const char **names)
{
    static char text[400];
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_ranks_set model = {0}, optim = {0};
    ckpt_ranks_numbers n = {.model = &model, .optim = &optim, .group = 1};
    ckpt_value *groups = ckpt_value_new(arena, CKPT_V_LIST);
    static char name[MAX][NAME];
    unsigned k = 0;

    for (unsigned i = 0; c->model[i]; i++)
        add(&model, arena, "p", i, c->model[i]);
    for (; c->optim[k]; k++)
        add(&optim, arena, "exp_avg/", k, c->optim[k]);
    assert_true(ckpt_seq_add(arena, &groups->as.seq, group(arena, 0, k - c->several)));
    if (c->several)
        assert_true(ckpt_seq_add(arena, &groups->as.seq, group(arena, k - 1, k)));
    n.groups = groups;
    assert_int_equal(ckpt_ranks_number(&n, arena, "run", NULL), CKPT_OK);
    for (size_t i = 0; names && i < n.param.n; i++) {
        (void)snprintf(name[i], NAME, "%s", n.param.at[i].name);
        names[i] = name[i];
    }
    (void)snprintf(text, sizeof text, "%s", n.why ? n.why : "");
    bool known = !n.why;
    ckpt_vec_free(&n.param);
    ckpt_vec_free(&model.item);
    ckpt_vec_free(&optim.item);
    ckpt_arena_free(arena);
    return known ? NULL : text;
}

static void in_order(void **state)
{
    const case_of c = {.model = {7, 3, 5, 3}, .optim = {7, 3, 5, 3}};
    const char *names[MAX];

    (void)state;
    assert_null(why(&c, names));
    for (unsigned i = 0; i < 4; i++) {
        char want[NAME];

        (void)snprintf(want, sizeof want, "p%u", i);
        assert_string_equal(names[i], want);
    }
}

/* Each shape is in one group only, and both groups have the model's order. */
static void groups_by_shape(void **state)
{
    const case_of c = {.model = {7, 3, 2, 5, 7}, .optim = {7, 3, 5, 7, 2}, .several = true};
    static const char *const want[] = {"p0", "p1", "p3", "p4", "p2"};
    const char *names[MAX];

    (void)state;
    assert_null(why(&c, names));
    for (unsigned i = 0; i < 5; i++)
        assert_string_equal(names[i], want[i]);
}

/* A parameter without axes has moments without axes; step counts, which have none either, do not
 * count. */
static void scalars(void **state)
{
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_ranks_set model = {0}, optim = {0};
    ckpt_ranks_numbers n = {.model = &model, .optim = &optim, .group = 1};
    ckpt_value *groups = ckpt_value_new(arena, CKPT_V_LIST);
    static const char *const want[] = {"p0", "p2", "p1", "p3"};

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        add(&optim, arena, "step/", i, 1);
        optim.item.at[optim.item.n - 1].ndim = 0;
        add(&model, arena, "p", i, 7 - i);
        model.item.at[i].ndim = i % 2 ? 0 : 2;
    }
    for (unsigned i = 0; i < 4; i++) {
        add(&optim, arena, "exp_avg/", i, 7 - 2 * i);
        optim.item.at[optim.item.n - 1].ndim = i < 2 ? 2 : 0;
    }
    assert_true(ckpt_seq_add(arena, &groups->as.seq, group(arena, 0, 2)));
    assert_true(ckpt_seq_add(arena, &groups->as.seq, group(arena, 2, 4)));
    n.groups = groups;
    assert_int_equal(ckpt_ranks_number(&n, arena, "run", NULL), CKPT_OK);
    assert_null(n.why);
    assert_int_equal(n.param.n, 4);
    for (unsigned i = 0; i < 4; i++)
        assert_string_equal(n.param.at[i].name, want[i]);
    ckpt_vec_free(&n.param);
    ckpt_vec_free(&model.item);
    ckpt_vec_free(&optim.item);
    ckpt_arena_free(arena);
}

/*
 * FSDP1's rekey_optim_state_dict, and so Lightning, numbers parameters by their places in the model:
 * the groups then have the numbers 1, 3 and 0, 2, and equal shapes leave no doubt.
 */
static void numbers_by_model(void **state)
{
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_ranks_set model = {0}, optim = {0};
    ckpt_ranks_numbers n = {.model = &model, .optim = &optim, .group = 1};
    ckpt_value *groups = ckpt_value_new(arena, CKPT_V_LIST);
    const uint64_t rows[] = {7, 3, 3, 3};

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        add(&model, arena, "p", i, rows[i]);
        add(&optim, arena, "exp_avg/", i, rows[i]);
    }
    for (unsigned odd = 2; odd-- > 0;) {
        ckpt_value *g = group(arena, odd, odd + 1);
        ckpt_value *params = ckpt_value_get(g, "params");

        assert_true(ckpt_seq_add(arena, &params->as.seq, ckpt_value_int(arena, odd + 2)));
        assert_true(ckpt_seq_add(arena, &groups->as.seq, g));
    }
    n.groups = groups;
    assert_int_equal(ckpt_ranks_number(&n, arena, "run", NULL), CKPT_OK);
    assert_null(n.why);
    assert_int_equal(n.param.n, 4);
    for (unsigned i = 0; i < 4; i++) {
        char want[NAME];

        (void)snprintf(want, sizeof want, "p%u", i);
        assert_string_equal(n.param.at[i].name, want);
        assert_int_equal(n.param.at[i].group, i % 2 ? 0 : 1);
    }
    ckpt_vec_free(&n.param);
    // a number twice, and one beyond the last
    ckpt_value_get(groups->as.seq.at[0], "params")->as.seq.at[0] = ckpt_value_int(arena, 0);
    assert_int_equal(ckpt_ranks_number(&n, arena, "run", NULL), CKPT_EFORMAT);
    ckpt_vec_free(&n.param);
    ckpt_value_get(groups->as.seq.at[0], "params")->as.seq.at[0] = ckpt_value_int(arena, 4);
    assert_int_equal(ckpt_ranks_number(&n, arena, "run", NULL), CKPT_EFORMAT);
    ckpt_vec_free(&n.param);
    ckpt_vec_free(&model.item);
    ckpt_vec_free(&optim.item);
    ckpt_arena_free(arena);
}

/* The numbers of frozen parameters are in no group; they count in the model's order. */
static void frozen_numbers(void **state)
{
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_ranks_set model = {0}, optim = {0};
    ckpt_ranks_numbers n = {.model = &model, .optim = &optim, .group = 1};
    ckpt_value *groups = ckpt_value_new(arena, CKPT_V_LIST), *g = group(arena, 0, 1);

    (void)state;
    for (unsigned i = 0; i < 4; i++)
        add(&model, arena, "p", i, 3);
    add(&optim, arena, "exp_avg/", 0, 3);
    add(&optim, arena, "exp_avg/", 3, 3);
    assert_true(
        ckpt_seq_add(arena, &ckpt_value_get(g, "params")->as.seq, ckpt_value_int(arena, 3)));
    assert_true(ckpt_seq_add(arena, &groups->as.seq, g));
    n.groups = groups;
    assert_int_equal(ckpt_ranks_number(&n, arena, "run", NULL), CKPT_OK);
    assert_null(n.why);
    assert_int_equal(n.param.n, 2);
    assert_string_equal(n.param.at[0].name, "p0");
    assert_string_equal(n.param.at[1].name, "p3");
    assert_int_equal(n.param.at[1].number, 3);
    ckpt_vec_free(&n.param);
    // a fifth parameter: the model's list may have one that the optimizer's numbers do not count
    add(&model, arena, "p", 4, 3);
    assert_int_equal(ckpt_ranks_number(&n, arena, "run", NULL), CKPT_OK);
    assert_non_null(n.why);
    ckpt_vec_free(&n.param);
    ckpt_vec_free(&model.item);
    ckpt_vec_free(&optim.item);
    ckpt_arena_free(arena);
}

/* Names in the groups decide, also where only one of model and optimizer was wrapped. */
static void names_of_groups(void **state)
{
    static const struct {
        const char *name[3], *is[3]; /* is[0] NULL: refused */
    } cases[] = {
        {{"p2", "p0", "p1"}, {"p2", "p0", "p1"}},
        {{"module.p2", "module.p0", "module.p1"}, {"p2", "p0", "p1"}},
        {{"_orig_mod.p2", "_orig_mod.p0", "_orig_mod.p1"}, {"p2", "p0", "p1"}},
        {{"net.p2", "net.p0", "net.p1"}, {NULL}}, // equal shapes would give the model's order
        {{"p2", "p0", "q"}, {NULL}},
    };

    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        ckpt_arena *arena = ckpt_arena_new(0);
        ckpt_ranks_set model = {0}, optim = {0};
        ckpt_ranks_numbers n = {.model = &model, .optim = &optim, .group = 1};
        ckpt_value *groups = ckpt_value_new(arena, CKPT_V_LIST), *g = group(arena, 0, 3),
                   *names = ckpt_value_new(arena, CKPT_V_LIST);
        for (unsigned i = 0; i < 3; i++) {
            add(&model, arena, "p", i, 3);
            assert_true(
                ckpt_index_add(&model.index, ckpt_hash_bytes(model.item.at[i].name, 2, 0), i));
            add(&optim, arena, "exp_avg/", i, 3);
            assert_true(
                ckpt_seq_add(arena, &names->as.seq, ckpt_value_cstr(arena, cases[c].name[i])));
        }
        assert_true(ckpt_dict_add_cstr(arena, &g->as.map, "param_names", names));
        assert_true(ckpt_seq_add(arena, &groups->as.seq, g));
        n.groups = groups;
        assert_int_equal(ckpt_ranks_number(&n, arena, "run", NULL), CKPT_OK);
        assert_int_equal(n.param.n, cases[c].is[0] ? 3 : 0);
        assert_int_equal(n.why == NULL, cases[c].is[0] != NULL);
        for (size_t i = 0; i < n.param.n; i++)
            assert_string_equal(n.param.at[i].name, cases[c].is[i]);
        ckpt_vec_free(&n.param);
        ckpt_ranks_set_free(&model);
        ckpt_ranks_set_free(&optim);
        ckpt_arena_free(arena);
    }
}

/* What is said is true of the list. */
static void other_orders(void **state)
{
    static const struct {
        case_of is;
        const char *says;
    } cases[] = {
        {{.model = {7, 3, 5, 4}, .optim = {4, 5, 3, 7}}, "in reverse order"},
        {{.model = {7, 3, 5, 4}, .optim = {5, 3, 7}}, "in reverse order"}, // the head is frozen
        {{.model = {7, 3, 5, 4}, .optim = {3, 7, 5, 4}}, "but in another order"},
        {{.model = {7, 3, 5, 3}, .optim = {3, 7, 3, 5}}, "but in another order"},
        {{.model = {7, 3, 5, 4}, .optim = {7, 3, 5, 9}}, "differ from the model's"},
        {{.model = {7, 3, 5}, .optim = {3, 3, 7}}, "differ from the model's"},
        {{.model = {7, 3, 3}, .optim = {7, 3}},
         "shapes do not show which of the model's parameters it has"},
        {{.model = {7, 3, 3}, .optim = {7, 3, 3}, .several = true},
         "which parameters are in which group"},
        // a group sorted by name: each shape is in one group, but equal ones may be exchanged
        {{.model = {7, 3, 5, 7, 2}, .optim = {7, 7, 3, 5, 2}, .several = true},
         "a group are the model's, but in another order"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *text = why(&cases[i].is, NULL);

        assert_non_null(text);
        if (!strstr(text, cases[i].says))
            fail_msg("case %zu: %s", i, text);
        assert_null(strstr(text, "in any order"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_order),        cmocka_unit_test(groups_by_shape),
        cmocka_unit_test(scalars),         cmocka_unit_test(numbers_by_model),
        cmocka_unit_test(other_orders),    cmocka_unit_test(frozen_numbers),
        cmocka_unit_test(names_of_groups),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
