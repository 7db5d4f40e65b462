/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_opts.c: the conventions of ckpt.h: what may be NULL or zeroed, sizes of structs from other
 * releases, one map read by many threads.
 */
#include <pthread.h>

#include "ckpt_extra.h"
#include "libckpt/base/opts.h"
#include "tests/unit/unit.h"

static ckpt_map *map;
static char path[1024];

static int setup(void **state)
{
    const char *fixtures = getenv("CKPT_FIXTURES");
    const ckpt_open_opts opts = {.with_optimizer = true};

    (void)state;
    snprintf(path, sizeof path, "%s/z0_fp16_w2_fused/ckpt", fixtures ? fixtures : "tests/fixtures");
    return ckpt_open(&map, path, &opts, NULL) == CKPT_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    ckpt_map_free(map);
    return 0;
}

static int no_text(void *ctx, const char *text, size_t n)
{
    (void)ctx;
    (void)text;
    return n > SIZE_MAX / 2;
}

/* Nothing that is missing is a crash; what cannot be done without is CKPT_EUSAGE. */
static void missing(void **state)
{
    const ckpt_target no_path = {.format = "hf"}, no_format = {.path = "x"};
    ckpt_map *out = NULL;
    ckpt_plan *plan = NULL;
    ckpt_reader *r = NULL;
    float buf[4];

    (void)state;
    assert_int_equal(ckpt_open(&out, NULL, NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_open(&out, "", NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_open(NULL, path, NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_map_check(NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_tree_print(NULL, NULL, no_text, NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_tree_print(map, NULL, NULL, NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_map_select(NULL, NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_map_warm_start(NULL, NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_map_warm_start(map, NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_layout(&out, map, NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_layout(&out, NULL, &no_path, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_convert(map, NULL, NULL, NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_convert(map, &(ckpt_target){0}, NULL, NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_convert(map, &no_path, NULL, NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_convert(map, &no_format, NULL, NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_plan_new(&plan, map, NULL, NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_plan_run(NULL, NULL, NULL, NULL), CKPT_EUSAGE);
    ckpt_plan_sizes(NULL, NULL, NULL, NULL);
    ckpt_plan_free(NULL);
    assert_int_equal(ckpt_reader_new(&r, NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_reader_new(&r, map, NULL), CKPT_OK);
    assert_int_equal(ckpt_reader_read(r, NULL, 0, 1, CKPT_F32, buf, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_reader_read(NULL, ckpt_map_tensor_at(map, 0), 0, 1, CKPT_F32, buf, NULL),
                     CKPT_EUSAGE);
    ckpt_reader_free(r);
    assert_int_equal(ckpt_diff(map, NULL, NULL, NULL, NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_diff(map, map, NULL, NULL, NULL, NULL), CKPT_OK);
    assert_int_equal(ckpt_verify(NULL, NULL, NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_doctor(NULL, NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_clean(NULL, NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_dtype_parse(NULL), CKPT_DTYPE_NONE);
}

/* A map that is not there has nothing; what is looked up may be wanted in part. */
static void lookups(void **state)
{
    (void)state;
    assert_null(ckpt_map_path(NULL));
    assert_null(ckpt_map_format(NULL));
    assert_int_equal(ckpt_map_tensor_count(NULL), 0);
    assert_null(ckpt_map_tensor_at(NULL, 0));
    assert_null(ckpt_map_find(NULL, "x"));
    assert_null(ckpt_map_find(map, NULL));
    assert_int_equal(ckpt_tensor_bytes(NULL), 0);
    assert_int_equal(ckpt_map_file_count(NULL), 0);
    assert_null(ckpt_map_file_path(NULL, 0));
    assert_int_equal(ckpt_map_file_size(NULL, 0), 0);
    assert_null(ckpt_map_output_folder(NULL));
    assert_null(ckpt_map_output_pointer(NULL));
    assert_int_equal(ckpt_map_fact_count(NULL), 0);
    assert_int_equal(ckpt_map_finding_count(NULL), 0);
    assert_int_equal(ckpt_map_metadata_count(NULL), 0);
    assert_true(ckpt_map_fact_count(map) > 0);
    assert_false(ckpt_map_fact_at(map, ckpt_map_fact_count(map), NULL, NULL, NULL));
    assert_true(ckpt_map_fact_at(map, ckpt_map_fact_count(map) - 1, NULL, NULL, NULL));
    assert_false(ckpt_map_fact_at(NULL, 0, NULL, NULL, NULL));
    assert_true(ckpt_map_fact_at(map, 0, NULL, NULL, NULL));
    ckpt_training_info known = {0};
    ckpt_map_training_info(NULL, &known);
    assert_int_equal(known.stage, -1);
    ckpt_map_training_info(map, NULL);
    ckpt_map_training_info(map, &known);
    assert_true(known.training);
    assert_true(known.world > 0 && known.step >= 0 && known.tag);
    assert_false(ckpt_map_finding_at(NULL, 0, NULL, NULL, NULL));
    assert_false(ckpt_map_metadata_at(NULL, 0, NULL, NULL));
    assert_false(ckpt_map_locate(map, NULL, NULL, NULL, NULL));
    assert_true(ckpt_map_locate(map, ckpt_map_tensor_at(map, 0)->extent, NULL, NULL, NULL));
    assert_non_null(ckpt_format_at(ckpt_format_count() - 1));
    assert_null(ckpt_format_at(ckpt_format_count()));
    assert_null(ckpt_format_at(SIZE_MAX));
}

/* A struct of three releases: one member, two, and a third that we do not know. */
typedef struct one {
    size_t size;
    uint64_t a;
} one;

typedef struct two {
    size_t size;
    uint64_t a, b;
} two;

typedef struct three {
    size_t size;
    uint64_t a, b, c;
} three;

static void sizes(void **state)
{
    one old = {sizeof old, 5};
    two own, now = {sizeof now, 6, 7};
    three later = {sizeof later, 8, 9, 0};
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(ckpt_opts_take(&own, sizeof own, NULL, "two", NULL), CKPT_OK);
    assert_true(own.a == 0 && own.b == 0);
    own.b = 1;
    assert_int_equal(ckpt_opts_take(&own, sizeof own, &old, "two", NULL), CKPT_OK);
    assert_true(own.a == 5 && own.b == 0);
    assert_int_equal(ckpt_opts_take(&own, sizeof own, &now, "two", NULL), CKPT_OK);
    assert_true(own.a == 6 && own.b == 7);
    now.size = 0;
    assert_int_equal(ckpt_opts_take(&own, sizeof own, &now, "two", NULL), CKPT_OK);
    assert_true(own.a == 6 && own.b == 7);
    // what is not set is no matter, what is set must not be passed over
    assert_int_equal(ckpt_opts_take(&own, sizeof own, &later, "two", NULL), CKPT_OK);
    assert_true(own.a == 8 && own.b == 9);
    later.c = 1;
    assert_int_equal(ckpt_opts_take(&own, sizeof own, &later, "two", &err), CKPT_EUSAGE);
    assert_non_null(strstr(err.text, "two"));
    old.size = 3;
    assert_int_equal(ckpt_opts_take(&own, sizeof own, &old, "two", NULL), CKPT_EUSAGE);
    // and out again: no byte behind what the caller has
    old.size = sizeof old;
    own = (two){sizeof own, 20, 30};
    ckpt_opts_give(&old, &own, sizeof own);
    assert_true(old.size == sizeof old && old.a == 20);
    later.c = 4;
    ckpt_opts_give(&later, &own, sizeof own);
    assert_true(later.size == sizeof later && later.b == 30 && later.c == 0);
    ckpt_opts_give(NULL, &own, sizeof own);
}

/* A caller of before has a shorter struct: what lies behind it is not its. */
static void an_older_caller(void **state)
{
    struct {
        ckpt_target target;
        uint64_t wall;
    } at;
    ckpt_map *to = NULL;
    ckpt_err err = {0};

    (void)state;
    memset(&at, 0xFF, sizeof at);
    at.target = (ckpt_target){.size = sizeof at.target, .format = "hf", .path = "nowhere"};
    assert_int_equal(ckpt_layout(&to, map, &at.target, NULL), CKPT_OK);
    ckpt_map_free(to);
    at.target.size = sizeof at;
    assert_int_equal(ckpt_layout(&to, map, &at.target, &err), CKPT_EUSAGE);
    assert_non_null(strstr(err.text, "older than the program"));
}

static void *lay_out(void *ctx)
{
    const char *format = ctx;

    for (int i = 0; i < 30; i++) {
        bool run = strcmp(format, "torch") != 0;
        const ckpt_target target = {.format = format,
                                    .path = "nowhere",
                                    .stage = run ? 2 : 0,
                                    .world = strcmp(format, "zero") == 0 ? 2 : 0,
                                    .keep_objects = run};
        ckpt_map *to = NULL;
        if (ckpt_layout(&to, map, &target, NULL) != CKPT_OK)
            return map;
        ckpt_map_free(to);
    }
    return NULL;
}

/* Laying out writes nothing into the source, in whatever format. */
static void many_threads(void **state)
{
    static char formats[4][16] = {"zero", "universal", "zero", "torch"};
    pthread_t thread[4];
    void *failed;

    (void)state;
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, lay_out, formats[i]), 0);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(thread[i], &failed), 0);
        assert_null(failed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing),         cmocka_unit_test(lookups),      cmocka_unit_test(sizes),
        cmocka_unit_test(an_older_caller), cmocka_unit_test(many_threads),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
