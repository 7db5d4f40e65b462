/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_placement.c: which machine gets which files of a target: by the processes, by hosts, and
 * what does not fit.
 */
#include "libckpt/dist/run/placement.h"
#include "tests/unit/copy/help.h"
#include "tests/unit/unit.h"

static void add(ckpt_map *to, const char *name, uint64_t size, uint32_t rank)
{
    uint32_t file = help_output(to, ckpt_arena_string(to->arena, name, strlen(name)), size);

    to->files.at[file].rank = rank;
}

/* A file of each rank, and two of none, of which the first is the larger. */
static ckpt_map *target(uint32_t ranks)
{
    ckpt_map *to = help_map();
    char name[32];

    to->ranks = ranks;
    for (uint32_t r = 0; r < ranks; r++) {
        (void)snprintf(name, sizeof name, "rank%u", (unsigned)r);
        add(to, name, 100, r);
    }
    add(to, "all0", 1000, UINT32_MAX);
    add(to, "all1", 10, UINT32_MAX);
    return to;
}

/* Processes 0 and 1 on machine 0, 2 and 3 on machine 1; or one each on as many machines. */
static uint32_t pairs[] = {0, 0, 1, 1}, singles[] = {0, 1, 2, 3};
static char name_a[] = "a", name_b[] = "b", name_c[] = "c", name_d[] = "d";
static char *hosts[] = {name_a, name_b, name_c, name_d};

static ckpt_team team(unsigned n, uint32_t *node, unsigned n_nodes)
{
    return (ckpt_team){.n = n, .n_nodes = n_nodes, .node = node, .host = hosts, .spread = true};
}

static void by_processes(void **state)
{
    ckpt_team t = team(4, pairs, 2);
    ckpt_map *to = target(8);
    ckpt_spread s;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(ckpt_spread_make(&s, &t, to, &err), CKPT_OK);
    for (uint32_t r = 0; r < 8; r++) {
        assert_int_equal(s.maker[r], r / 4);
        assert_int_equal(s.copied[r], 0);
        assert_true(ckpt_spread_gets(&s, r / 4, r));
        assert_false(ckpt_spread_gets(&s, 1 - r / 4, r));
    }
    // the large one to either, the small one to the other; both machines have both
    assert_int_equal(s.maker[8] + s.maker[9], 1);
    for (uint32_t k = 0; k < 2; k++) {
        assert_true(ckpt_spread_gets(&s, k, 8));
        assert_true(ckpt_spread_gets(&s, k, 9));
    }
    ckpt_spread_free(&s);
    ckpt_map_free(to);
}

static void by_hosts(void **state)
{
    uint32_t place[] = {2, 2, 2, 0};
    ckpt_team t = team(4, singles, 4);
    ckpt_map *to = target(4);
    ckpt_spread s;
    ckpt_err err = {0};

    (void)state;
    t.place = place;
    t.n_places = 4;
    assert_int_equal(ckpt_spread_make(&s, &t, to, &err), CKPT_OK);
    assert_int_equal(s.n_nodes, 2);
    for (uint32_t r = 0; r < 4; r++)
        assert_int_equal(s.maker[r], place[r]);
    for (uint32_t k = 0; k < 4; k++) {
        assert_int_equal(ckpt_spread_has(&s, k), k == 0 || k == 2);
        assert_int_equal(ckpt_spread_gets(&s, k, 4), k == 0 || k == 2);
    }
    ckpt_spread_free(&s);
    ckpt_map_free(to);
}

/* Two model-parallel ranks to a data-parallel one have files together. */
static void by_hosts_of_inner_ranks(void **state)
{
    uint32_t place[] = {1, 1, 0, 0, 1, 1, 0, 0}, across[] = {1, 0, 0, 1};
    ckpt_team t = team(4, pairs, 2);
    ckpt_map *to = target(4);
    ckpt_spread s;
    ckpt_err err = {0};

    (void)state;
    t.place = place;
    t.n_places = 8;
    assert_int_equal(ckpt_spread_make(&s, &t, to, &err), CKPT_OK);
    for (uint32_t r = 0; r < 4; r++)
        assert_int_equal(s.maker[r], place[2 * r]);
    ckpt_spread_free(&s);
    ckpt_map_free(to);

    to = target(2);
    t.place = across;
    t.n_places = 4;
    assert_int_equal(ckpt_spread_make(&s, &t, to, &err), CKPT_EUSAGE);
    assert_non_null(strstr(err.text, "are on b and a"));
    ckpt_spread_free(&s);
    ckpt_map_free(to);
}

/* Files of no rank go to all machines, or to those that are named. */
static void of_no_rank(void **state)
{
    uint32_t place[] = {1, 3};
    ckpt_team t = team(4, singles, 4);
    ckpt_map *to = target(0);
    ckpt_spread s;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(ckpt_spread_make(&s, &t, to, &err), CKPT_OK);
    assert_int_equal(s.n_nodes, 4);
    assert_true(ckpt_spread_gets(&s, 3, 0));
    ckpt_spread_free(&s);
    t.place = place;
    t.n_places = 2;
    assert_int_equal(ckpt_spread_make(&s, &t, to, &err), CKPT_OK);
    assert_int_equal(s.n_nodes, 2);
    assert_true(ckpt_spread_gets(&s, 3, 0) && ckpt_spread_gets(&s, 1, 0));
    assert_false(ckpt_spread_gets(&s, 0, 0) || ckpt_spread_gets(&s, 2, 0));
    ckpt_spread_free(&s);
    ckpt_map_free(to);
}

static void what_does_not_fit(void **state)
{
    static const struct {
        uint32_t ranks;
        unsigned n;
        size_t n_places;
        const char *text;
    } cases[] = {
        {6, 4, 0, "is not a multiple of 4 processes"},
        {2, 4, 0, "is not a multiple of 4 processes"},
        {4, 4, 3, "the hosts have 3"},
        {4, 4, 6, "the hosts have 6"},
    };
    uint32_t place[8] = {0};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_team t = team(cases[i].n, singles, 4);
        ckpt_map *to = target(cases[i].ranks);
        ckpt_spread s;
        ckpt_err err = {0};

        t.place = cases[i].n_places > 0 ? place : NULL;
        t.n_places = cases[i].n_places;
        assert_int_equal(ckpt_spread_make(&s, &t, to, &err), CKPT_EUSAGE);
        assert_non_null(strstr(err.text, cases[i].text));
        ckpt_spread_free(&s);
        ckpt_map_free(to);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_processes),
        cmocka_unit_test(by_hosts),
        cmocka_unit_test(by_hosts_of_inner_ranks),
        cmocka_unit_test(of_no_rank),
        cmocka_unit_test(what_does_not_fit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
