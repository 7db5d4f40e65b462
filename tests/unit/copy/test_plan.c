/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_plan.c: pairing of maps, and jobs that cover every target element exactly once.
 */
#include "ckpt.h"
#include "libckpt/copy/job.h"
#include "tests/unit/copy/help.h"
#include "tests/unit/unit.h"

enum { MAX_ELEMS = 4096 };

static uint64_t seed = 7;

static uint64_t draw(uint64_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (seed >> 33) % below;
}

/* A map whose sources are n zero sources: plans never look at bytes. */
static ckpt_map *zero_map(void)
{
    ckpt_map *map = help_map();
    const ckpt_source s = {.kind = CKPT_SOURCE_ZERO, .n_bytes = UINT64_MAX};
    uint32_t i = 0;
    ckpt_err err = {0};

    assert_int_equal(ckpt_map_add_source(map, &s, &i, &err), CKPT_OK);
    return map;
}

/* Count, for each element of the tensor, the jobs whose region holds it; and check where the job
 * begins in the source. */
static void count_job(const ckpt_plan *plan, const ckpt_job *job, unsigned *hits)
{
    ckpt_job_view v;
    uint64_t n = 1;

    ckpt_job_look(&v, plan, job);
    for (unsigned i = 0; i < v.n_axes; i++)
        n *= v.region[i].count;
    assert_int_equal(n, job->count);
    for (uint64_t k = 0; k < n; k++) {
        uint64_t left = k, at = 0, weight = 1;

        for (unsigned i = v.n_axes; i-- > 0;) {
            at += (v.region[i].start + left % v.region[i].count) * weight;
            left /= v.region[i].count;
            weight *= v.n_axes == 1 ? 1 : v.t->shape[i];
        }
        hits[at]++;
    }
}

static void expect_cover(const ckpt_plan *plan, uint64_t n_elems, uint64_t block)
{
    static unsigned hits[MAX_ELEMS];

    memset(hits, 0, sizeof hits);
    for (size_t i = 0; i < plan->jobs.n; i++) {
        count_job(plan, &plan->jobs.at[i], hits);
        // eight elements are the least a job may hold
        assert_true(plan->jobs.at[i].count * 4 <= block || plan->jobs.at[i].count <= 8);
    }
    for (uint64_t i = 0; i < n_elems; i++)
        assert_int_equal(hits[i], 1);
    assert_int_equal(plan->n_elems, n_elems);
}

/* A random tensor whose target is cut in random flat intervals. */
static void test_flat_targets(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 200; round++) {
        const uint64_t shape[2] = {1 + draw(40), 1 + draw(40)};
        uint64_t n = shape[0] * shape[1], cut = draw(n + 1), block = 4 + draw(700);
        ckpt_map *from = zero_map(), *to = zero_map();
        ckpt_tensor *a = help_tensor(from, "a", CKPT_F32, 2, shape),
                    *b = help_tensor(to, "a", CKPT_F32, 2, shape);
        const ckpt_axis axis[2] = {{0, cut, 4}, {cut, n - cut, 4}};
        const ckpt_extent e[2] = {{0, 1, 0, &axis[0]}, {0, 1, cut * 4, &axis[1]}};
        ckpt_plan *plan = NULL;
        ckpt_err err = {0};

        help_whole(from, a, 0, 0);
        if (cut > 0 && cut < n)
            help_back(to, b, e, 2);
        else
            help_whole(to, b, 0, 0);
        assert_int_equal(ckpt_plan_make(&plan, from, to, block, &err), CKPT_OK);
        expect_cover(plan, n, block);
        ckpt_plan_free(plan);
        ckpt_map_free(to);
        ckpt_map_free(from);
    }
}

/* The same with boxes: halves along a random axis, each with its own dense source. */
static void test_box_targets(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 300; round++) {
        const uint64_t shape[3] = {1 + draw(9), 2 + draw(12), 1 + draw(20)};
        uint64_t half = 1 + draw(shape[1] - 1), block = 4 + draw(900);
        ckpt_map *from = zero_map(), *to = zero_map();
        ckpt_tensor *a = help_tensor(from, "a", CKPT_F32, 3, shape),
                    *b = help_tensor(to, "a", CKPT_F32, 3, shape);
        int64_t row = (int64_t)shape[2] * 4;
        const ckpt_axis left[3] = {
            {0, shape[0], row * (int64_t)half}, {0, half, row}, {0, shape[2], 4}};
        const ckpt_axis right[3] = {{0, shape[0], row * (int64_t)(shape[1] - half)},
                                    {half, shape[1] - half, row},
                                    {0, shape[2], 4}};
        const ckpt_extent e[2] = {{0, 3, 0, left}, {0, 3, 100000, right}};
        ckpt_plan *plan = NULL;
        ckpt_err err = {0};

        help_whole(from, a, 0, 0);
        help_back(to, b, e, 2);
        assert_int_equal(ckpt_plan_make(&plan, from, to, block, &err), CKPT_OK);
        expect_cover(plan, a->n_elems, block);
        ckpt_plan_free(plan);
        ckpt_map_free(to);
        ckpt_map_free(from);
    }
}

static void expect_failure(const ckpt_map *from, ckpt_map *to, int code, const char *word)
{
    ckpt_plan *plan = NULL;
    ckpt_err err = {0};

    assert_int_equal(ckpt_plan_make(&plan, from, to, 0, &err), code);
    assert_null(plan);
    assert_non_null(strstr(err.text, word));
}

static void test_pairs_that_do_not_fit(void **state)
{
    const uint64_t shape[2] = {4, 6}, turned[2] = {6, 4};
    const ckpt_axis half = {0, 12, 4};
    const ckpt_extent e = {0, 1, 0, &half};
    ckpt_map *from = zero_map(), *to;

    (void)state;
    help_whole(from, help_tensor(from, "a", CKPT_F32, 2, shape), 0, 0);
    help_whole(from, help_tensor(from, "cplx", CKPT_C64, 2, shape), 0, 0);

    to = zero_map();
    help_whole(to, help_tensor(to, "b", CKPT_F32, 2, shape), 0, 0);
    expect_failure(from, to, CKPT_EMISSING, "tensor b");
    ckpt_map_free(to);

    to = zero_map();
    help_whole(to, help_tensor(to, "a", CKPT_F32, 2, turned), 0, 0);
    expect_failure(from, to, CKPT_EMISMATCH, "tensor a");
    ckpt_map_free(to);

    to = zero_map();
    help_whole(to, help_tensor(to, "cplx", CKPT_F32, 2, shape), 0, 0);
    expect_failure(from, to, CKPT_EUNSUPPORTED, "C64");
    ckpt_map_free(to);

    to = zero_map();
    help_back(to, help_tensor(to, "a", CKPT_F32, 2, shape), &e, 1);
    expect_failure(from, to, CKPT_EMISMATCH, "a");
    ckpt_map_free(to);
    ckpt_map_free(from);
}

static void test_names_and_ties(void **state)
{
    const uint64_t shape[1] = {10}, none[1] = {0};
    ckpt_map *from = zero_map(), *to = zero_map();
    ckpt_tensor *owner = help_tensor(from, "owner", CKPT_F32, 1, shape),
                *tied = help_tensor(from, "tied", CKPT_F32, 1, shape);
    ckpt_tensor *a, *b;
    ckpt_plan *plan = NULL;
    ckpt_err err = {0};
    uint64_t n_read, n_write, n_jobs;

    (void)state;
    help_whole(from, owner, 0, 0);
    tied->owner = owner;
    (void)help_tensor(from, "empty", CKPT_F32, 1, none);
    // a renamed tensor made from a tied one, an alias of it, and one without elements
    a = help_tensor(to, "a", CKPT_BF16, 1, shape);
    a->origin = "tied";
    help_whole(to, a, 0, 0);
    b = help_tensor(to, "b", CKPT_BF16, 1, shape);
    b->owner = a;
    (void)help_tensor(to, "empty", CKPT_BF16, 1, none);
    assert_int_equal(ckpt_plan_make(&plan, from, to, 0, &err), CKPT_OK);
    assert_ptr_equal(plan->origin[0], owner);
    assert_null(plan->origin[1]);
    assert_non_null(plan->origin[2]);
    ckpt_plan_sizes(plan, &n_read, &n_write, &n_jobs);
    assert_int_equal(n_read, 40);
    assert_int_equal(n_write, 20);
    assert_int_equal(n_jobs, 1);
    assert_int_equal(plan->block, 40);
    ckpt_plan_free(plan);
    ckpt_plan_free(NULL);
    ckpt_map_free(to);
    ckpt_map_free(from);
}

static void test_packed_elements_stay_together(void **state)
{
    const uint64_t shape[1] = {1000};
    ckpt_map *from = zero_map(), *to = zero_map();
    ckpt_plan *plan = NULL;
    ckpt_err err = {0};
    uint64_t at = 0;

    (void)state;
    help_whole(from, help_tensor(from, "q", CKPT_F4, 1, shape), 0, 0);
    help_whole(to, help_tensor(to, "q", CKPT_F4, 1, shape), 0, 0);
    assert_int_equal(ckpt_plan_make(&plan, from, to, 33, &err), CKPT_OK);
    assert_true(plan->jobs.n > 1);
    for (size_t i = 0; i < plan->jobs.n; i++) {
        ckpt_job_view v;

        ckpt_job_look(&v, plan, &plan->jobs.at[i]);
        assert_int_equal(v.region[0].start % 8, 0);
        assert_int_equal(v.region[0].start, at);
        assert_int_equal(v.to, at / 2);
        at += v.region[0].count;
    }
    assert_int_equal(at, 1000);
    ckpt_plan_free(plan);
    ckpt_map_free(to);
    ckpt_map_free(from);
}

/* A hidden tensor with the shape of t, backed by zeros. */
static ckpt_tensor *hidden(ckpt_map *map, const ckpt_tensor *t, ckpt_dtype dtype)
{
    ckpt_tensor like = *t, *made = NULL;
    ckpt_err err = {0};

    like.dtype = dtype;
    like.twin = like.addend = NULL;
    assert_int_equal(ckpt_map_add_hidden(map, "h", 1, &like, &made, &err), CKPT_OK);
    help_whole(map, made, 0, 0);
    return made;
}

/* Chains of copies and of slices to take the mean of: all are counted, the widest sets the block.
 */
static void test_chains(void **state)
{
    const uint64_t shape[2] = {10, 10};
    ckpt_map *from = zero_map(), *to = zero_map();
    ckpt_tensor *a = help_tensor(from, "a", CKPT_F16, 2, shape), *twin, *addend;
    ckpt_plan *plan = NULL;
    ckpt_err err = {0};

    (void)state;
    help_whole(from, a, 0, 0);
    help_whole(to, help_tensor(to, "a", CKPT_F16, 2, shape), 0, 0);
    a->twin = twin = hidden(from, a, CKPT_F16);
    twin->twin = hidden(from, a, CKPT_BF16);
    assert_int_equal(ckpt_plan_make(&plan, from, to, 0, &err), CKPT_OK);
    assert_int_equal(plan->n_compare, 200);
    assert_int_equal(plan->n_read, 600);
    assert_int_equal(plan->block, 200);
    ckpt_plan_free(plan);
    // means of 16-bit slices are summed in 32
    a->addend = addend = hidden(from, a, CKPT_F16);
    addend->addend = hidden(from, a, CKPT_F16);
    addend->twin = hidden(from, a, CKPT_F16);
    assert_int_equal(ckpt_plan_make(&plan, from, to, 0, &err), CKPT_OK);
    assert_int_equal(plan->n_compare, 300);
    assert_int_equal(plan->n_read, 1200);
    assert_int_equal(plan->n_write, 200);
    assert_int_equal(plan->block, 400);
    ckpt_plan_free(plan);
    ckpt_map_free(to);
    ckpt_map_free(from);
}

/* Anywhere in a chain, shapes and dtypes must go together. */
static void test_chains_that_do_not_fit(void **state)
{
    const uint64_t shape[2] = {4, 6}, turned[2] = {6, 4};
    ckpt_map *from = zero_map(), *to = zero_map();
    ckpt_tensor *a = help_tensor(from, "a", CKPT_F32, 2, shape),
                *other = help_tensor(from, "other", CKPT_F32, 2, turned), *twin, *addend;

    (void)state;
    help_whole(from, a, 0, 0);
    help_whole(from, other, 0, 0);
    help_whole(to, help_tensor(to, "a", CKPT_F32, 2, shape), 0, 0);
    a->twin = twin = hidden(from, a, CKPT_BF16);
    twin->twin = other;
    expect_failure(from, to, CKPT_EMISMATCH, "its copy has 24");
    twin->twin = hidden(from, a, CKPT_C64);
    expect_failure(from, to, CKPT_EUNSUPPORTED, "C64 copy");
    twin->twin = NULL;
    a->addend = addend = hidden(from, a, CKPT_F32);
    addend->addend = other;
    expect_failure(from, to, CKPT_EMISMATCH, "cannot average slices");
    addend->addend = hidden(from, a, CKPT_F64);
    expect_failure(from, to, CKPT_EMISMATCH, "24 of F64");
    addend->addend = NULL;
    addend->twin = other;
    expect_failure(from, to, CKPT_EMISMATCH, "its copy has 24");
    addend->twin = NULL;
    a->twin = NULL;
    a->dtype = addend->dtype = to->tensors.at[0]->dtype = CKPT_I32;
    expect_failure(from, to, CKPT_EUNSUPPORTED, "a mean of I32");
    ckpt_map_free(to);
    ckpt_map_free(from);
}

/* Tensors listed against the order of their files: jobs come out in the order of the bytes. */
static void test_jobs_follow_the_files(void **state)
{
    const uint64_t shape[1] = {64};
    ckpt_map *from = zero_map(), *to = help_map();
    ckpt_plan *plan = NULL;
    ckpt_err err = {0};
    uint32_t s0, s1;

    (void)state;
    s0 = help_source(to, help_output(to, "f0", 512), 0, 512);
    s1 = help_source(to, help_output(to, "f1", 512), 0, 512);
    help_whole(from, help_tensor(from, "a", CKPT_F32, 1, shape), 0, 0);
    help_whole(from, help_tensor(from, "b", CKPT_F32, 1, shape), 0, 0);
    help_whole(from, help_tensor(from, "c", CKPT_F32, 1, shape), 0, 0);
    help_whole(to, help_tensor(to, "a", CKPT_F32, 1, shape), s1, 0);
    help_whole(to, help_tensor(to, "b", CKPT_F32, 1, shape), s0, 256);
    help_whole(to, help_tensor(to, "c", CKPT_F32, 1, shape), s0, 0);
    assert_int_equal(ckpt_plan_make(&plan, from, to, 128, &err), CKPT_OK);
    assert_int_equal(plan->jobs.n, 6);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(plan->jobs.at[i].tensor, 2 - i / 2);
        assert_int_equal(plan->jobs.at[i].first, i % 2 * 32);
    }
    ckpt_plan_free(plan);
    ckpt_map_free(to);
    ckpt_map_free(from);
}

static void test_memory_failures(void **state)
{
    const uint64_t shape[1] = {64};
    ckpt_map *from = zero_map(), *to = zero_map();
    ckpt_plan *plan = NULL;

    (void)state;
    help_whole(from, help_tensor(from, "a", CKPT_F32, 1, shape), 0, 0);
    help_whole(to, help_tensor(to, "a", CKPT_F32, 1, shape), 0, 0);
    for (unsigned i = 0;; i++) {
        ckpt_err err = {0};
        int rc;

        ckpt_alloc_fail_at(i);
        rc = ckpt_plan_make(&plan, from, to, 32, &err);
        ckpt_alloc_fail_at(UINT64_MAX);
        if (rc == CKPT_OK)
            break;
        assert_int_equal(rc, CKPT_ELIMIT);
        assert_null(plan);
    }
    ckpt_plan_free(plan);
    ckpt_map_free(to);
    ckpt_map_free(from);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flat_targets),
        cmocka_unit_test(test_box_targets),
        cmocka_unit_test(test_pairs_that_do_not_fit),
        cmocka_unit_test(test_names_and_ties),
        cmocka_unit_test(test_packed_elements_stay_together),
        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_chains_that_do_not_fit),
        cmocka_unit_test(test_jobs_follow_the_files),
        cmocka_unit_test(test_memory_failures),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
