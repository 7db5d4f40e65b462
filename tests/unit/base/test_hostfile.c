/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_hostfile.c: hostfiles and filters against DeepSpeed's launcher, and what is refused.
 */
#include <unistd.h>

#include "engine/config/config.h"
#include "libckpt/base/hostfile.h"
#include "tests/unit/unit.h"

static const char *text_of(const ckpt_value *c, const char *key)
{
    return ckpt_value_get(c, key)->as.text.at;
}

/* The hosts that a recorded case has left. */
static void check_hosts(const ckpt_hosts *h, const ckpt_value *active)
{
    ckpt_dict map = ckpt_value_map(active);

    assert_int_equal(h->n, map.n);
    for (size_t i = 0; i < h->n; i++) {
        ckpt_seq slots = ckpt_value_seq(map.at[i].value);

        assert_string_equal(h->at[i].name, map.at[i].key->as.text.at);
        assert_int_equal(h->at[i].n_slots, slots.n);
        for (uint64_t j = 0; j < slots.n; j++)
            assert_int_equal(h->at[i].slot[j], slots.at[j]->as.i);
    }
}

/* Hosts in order and slots in order give the recorded table of ranks. */
static void check_ranks(const ckpt_hosts *h, const ckpt_value *ranks)
{
    ckpt_seq r = ckpt_value_seq(ranks);
    uint64_t rank = 0;

    for (size_t i = 0; i < h->n; i++) {
        for (uint32_t j = 0; j < h->at[i].n_slots; j++, rank++) {
            assert_true(rank < r.n);
            assert_int_equal(ckpt_value_get(r.at[rank], "rank")->as.i, rank);
            assert_int_equal(ckpt_value_get(r.at[rank], "local_rank")->as.i, j);
            assert_int_equal(ckpt_value_get(r.at[rank], "node_rank")->as.i, i);
            assert_string_equal(text_of(r.at[rank], "host"), h->at[i].name);
            assert_int_equal(ckpt_value_get(r.at[rank], "slot")->as.i, h->at[i].slot[j]);
        }
    }
    assert_int_equal(rank, r.n);
}

static void check_case(ckpt_arena *arena, const ckpt_value *c)
{
    const ckpt_text *text = &ckpt_value_get(c, "hostfile")->as.text;
    ckpt_host_filter f = {.include = text_of(c, "include"),
                          .exclude = text_of(c, "exclude"),
                          .num_nodes = ckpt_value_get(c, "num_nodes")->as.i,
                          .num_slots = ckpt_value_get(c, "num_gpus")->as.i};
    ckpt_hosts all, left;
    ckpt_err err = {0};
    int rc = ckpt_hosts_parse(&all, arena, text->at, (size_t)text->n, "hostfile", &err);

    if (rc == CKPT_OK)
        rc = ckpt_hosts_filter(&left, arena, &all, &f, &err);
    assert_int_equal(rc, err.code);
    if (ckpt_value_get(c, "error")) {
        assert_true(rc == CKPT_EFORMAT || rc == CKPT_EUSAGE);
        return;
    }
    assert_int_equal(rc, CKPT_OK);
    check_hosts(&left, ckpt_value_get(c, "active"));
    check_ranks(&left, ckpt_value_get(c, "ranks"));
}

static void as_deepspeed_does(void **state)
{
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_value *json;
    ckpt_err err = {0};
    ckpt_seq cases;

    (void)state;
    assert_int_equal(zt_hjson_read(&json, arena, "tests/fixtures/golden/launcher.json", &err), 0);
    cases = ckpt_value_seq(ckpt_value_get(json, "cases"));
    assert_int_equal(cases.n, 19);
    for (uint64_t i = 0; i < cases.n; i++)
        check_case(arena, cases.at[i]);
    ckpt_arena_free(arena);
}

typedef struct hf_case {
    const char *text;
    int code;
    const char *says; /* part of the message */
} hf_case;

static void files_are_checked(void **state)
{
    static const hf_case cases[] = {
        {"a slots=2", CKPT_OK, ""},
        {"  a\tslots=2x # c\r\n\r\n#b\nb slots=0", CKPT_OK, ""},
        {"a slots=1\rb slots=1", CKPT_OK, ""},
        {"a slots=1\nb slots=\n", CKPT_EFORMAT, "line 2"},
        {"a slots=1\n\n#\nb slot=1\n", CKPT_EFORMAT, "line 4"},
        {"a slots=1\na slots=1\n", CKPT_EFORMAT, "twice"},
        {"a b slots=1\n", CKPT_EFORMAT, "line 1"},
        {"slots=1\n", CKPT_EFORMAT, "line 1"},
        {"-x slots=1\n", CKPT_EFORMAT, "line 1"},
        {"a,b slots=1\n", CKPT_EFORMAT, "line 1"},
        {"a\"b slots=1\n", CKPT_EFORMAT, "line 1"},
        {"\x1b[2J slots=1\n", CKPT_EFORMAT, "line 1"},
        {"# nothing\n", CKPT_EFORMAT, "no host"},
        {"a slots=65537\n", CKPT_ELIMIT, "65536"},
        {"a slots=99999999999999999999\n", CKPT_ELIMIT, "65536"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ckpt_arena *arena = ckpt_arena_new(0);
        ckpt_err err = {0};
        ckpt_hosts h;
        int rc = ckpt_hosts_parse(&h, arena, cases[i].text, strlen(cases[i].text), "hf", &err);

        if (rc != cases[i].code || !strstr(err.text, cases[i].says))
            fail_msg("%s: %d %s", cases[i].text, rc, err.text);
        ckpt_arena_free(arena);
    }
}

/* Many hosts of many slots: the total is bounded before the slots are made. */
static void totals_are_bounded(void **state)
{
    ckpt_arena *arena = ckpt_arena_new(UINT64_C(16) << 20);
    ckpt_err err = {0};
    char text[1024];
    size_t n = 0;
    ckpt_hosts h;

    (void)state;
    for (int i = 0; i < 17; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "h%d slots=65536\n", i);
    assert_int_equal(ckpt_hosts_parse(&h, arena, text, n, "hf", &err), CKPT_ELIMIT);
    assert_non_null(strstr(err.text, "line 17"));
    ckpt_arena_free(arena);
}

typedef struct filter_case {
    const char *include, *exclude;
    int64_t nodes, slots;
    int code;
    const char *hosts; /* as --host gives them, or part of the message */
} filter_case;

static void filters_are_checked(void **state)
{
    static const filter_case cases[] = {
        {NULL, NULL, 0, 0, CKPT_OK, "a:3,b:2"},
        {"b@a:0", NULL, -1, -1, CKPT_OK, "a:1,b:2"},
        {"a:2@a:0", "", 0, 0, CKPT_OK, "a:2"},
        {"a@a:1", "", 0, 0, CKPT_OK, "a:1"}, // listed slots decide, as in DeepSpeed
        {"", "a@a:1", 0, 0, CKPT_OK, "a:2,b:2"},
        {"", "a", 0, 0, CKPT_OK, "b:2"},
        {NULL, NULL, 9, 0, CKPT_OK, "a:3,b:2"},
        {NULL, NULL, 1, 5, CKPT_OK, "a:5"},
        {"a", NULL, 1, 0, CKPT_EUSAGE, "--num_nodes"},
        {NULL, "a", 0, 1, CKPT_EUSAGE, "--num_gpus"},
        {"a", "b", 0, 0, CKPT_EUSAGE, "--exclude"},
        {"c", NULL, 0, 0, CKPT_EUSAGE, "\"c\""},
        {"a@", NULL, 0, 0, CKPT_EUSAGE, "hostfile"},
        {"a:", NULL, 0, 0, CKPT_EUSAGE, "numbers"},
        {"a:1,", NULL, 0, 0, CKPT_EUSAGE, "numbers"},
        {"a:-1", NULL, 0, 0, CKPT_EUSAGE, "numbers"},
        {"a:1:2", NULL, 0, 0, CKPT_EUSAGE, "numbers"},
        {"b:2", NULL, 0, 0, CKPT_EUSAGE, "0 to 1"},
        {"b:4294967296", NULL, 0, 0, CKPT_EUSAGE, "0 to 1"},
        {NULL, "a@b", 0, 0, CKPT_EUSAGE, "excludes all slots"},
        {NULL, NULL, 0, 65537, CKPT_EUSAGE, "65536"},
    };
    static const char text[] = "a slots=3\nb slots=2\n";

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const filter_case *c = &cases[i];
        ckpt_host_filter f = {c->include, c->exclude, c->nodes, c->slots};
        ckpt_arena *arena = ckpt_arena_new(0);
        ckpt_err err = {0};
        ckpt_hosts all, left;

        assert_int_equal(ckpt_hosts_parse(&all, arena, text, sizeof text - 1, "hf", &err), CKPT_OK);
        assert_int_equal(ckpt_hosts_filter(&left, arena, &all, &f, &err), c->code);
        if (c->code == CKPT_OK)
            assert_string_equal(ckpt_hosts_mpirun(arena, &left)[3], c->hosts);
        else if (!strstr(err.text, c->hosts))
            fail_msg("case %zu: %s", i, err.text);
        ckpt_arena_free(arena);
    }
}

static void mpirun_is_told(void **state)
{
    static const char text[] = "a slots=3\nnone slots=0\nb slots=2\n";
    ckpt_arena *arena = ckpt_arena_new(0);
    const char *const *argv;
    ckpt_hosts all;

    (void)state;
    assert_int_equal(ckpt_hosts_parse(&all, arena, text, sizeof text - 1, "hf", NULL), CKPT_OK);
    argv = ckpt_hosts_mpirun(arena, &all);
    assert_string_equal(argv[0], "-np");
    assert_string_equal(argv[1], "5");
    assert_string_equal(argv[2], "--host");
    assert_string_equal(argv[3], "a:3,b:2");
    assert_null(argv[4]);
    ckpt_arena_free(arena);
}

/* Hosts without slots are passed over; nothing but those is nothing to run on. */
static void some_slot_is_needed(void **state)
{
    static const char text[] = "none slots=0\na slots=1\n";
    const ckpt_host_filter every = {0}, first = {.num_nodes = 1};
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_err err = {0};
    ckpt_hosts all, left;

    (void)state;
    assert_int_equal(ckpt_hosts_parse(&all, arena, text, sizeof text - 1, "hf", NULL), CKPT_OK);
    assert_int_equal(ckpt_hosts_filter(&left, arena, &all, &every, &err), CKPT_OK);
    assert_int_equal(ckpt_hosts_filter(&left, arena, &all, &first, &err), CKPT_EUSAGE);
    assert_non_null(strstr(err.text, "no slot"));
    ckpt_arena_free(arena);
}

static void files_are_read(void **state)
{
    char path[] = "/tmp/zt_hostfile_XXXXXX";
    ckpt_arena *arena = ckpt_arena_new(0);
    int fd = mkstemp(path);
    ckpt_err err = {0};
    ckpt_hosts h;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "n1 slots=4\n", 11), 11);
    assert_int_equal(close(fd), 0);
    assert_int_equal(ckpt_hosts_read(&h, arena, path, &err), CKPT_OK);
    assert_int_equal(h.at[0].n_slots, 4);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(ckpt_hosts_read(&h, arena, path, &err), CKPT_EMISSING);
    err = (ckpt_err){0};
    assert_int_equal(ckpt_hosts_read(&h, arena, "/tmp", &err), CKPT_EIO);
    ckpt_arena_free(arena);
}

static void memory_runs_out(void **state)
{
    static const char text[] = "a slots=3\nb slots=2\n";
    const ckpt_host_filter f = {.include = "a:1@b"};
    uint64_t n = 0;
    int rc = CKPT_ELIMIT;

    (void)state;
    for (; rc != CKPT_OK; n++) {
        ckpt_arena *arena = ckpt_arena_new(0);
        const char *const *args = NULL;
        ckpt_hosts all, left = {0};

        ckpt_alloc_fail_at(n);
        rc = ckpt_hosts_parse(&all, arena, text, sizeof text - 1, "hf", NULL);
        rc = rc == CKPT_OK ? ckpt_hosts_filter(&left, arena, &all, &f, NULL) : rc;
        args = rc == CKPT_OK ? ckpt_hosts_mpirun(arena, &left) : NULL;
        rc = rc == CKPT_OK && !args ? CKPT_ELIMIT : rc;
        ckpt_alloc_fail_at(UINT64_MAX);
        assert_true(rc == CKPT_OK || rc == CKPT_ELIMIT);
        ckpt_arena_free(arena);
        assert_true(n < 50);
    }
    assert_true(n > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_deepspeed_does),  cmocka_unit_test(files_are_checked),
        cmocka_unit_test(totals_are_bounded), cmocka_unit_test(filters_are_checked),
        cmocka_unit_test(mpirun_is_told),     cmocka_unit_test(some_slot_is_needed),
        cmocka_unit_test(files_are_read),     cmocka_unit_test(memory_runs_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
