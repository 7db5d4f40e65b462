/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_partition.c: splits of plans: each job once, even bytes, whole files, and the machines that
 * have them.
 */
#include "ckpt.h"
#include "libckpt/base/dtype.h"
#include "libckpt/copy/job.h"
#include "libckpt/dist/run/partition.h"
#include "libckpt/map/nest.h"
#include "tests/unit/copy/help.h"
#include "tests/unit/unit.h"

enum { MAX_RANKS = 16, MAX_FILES = 64 };

static uint64_t seed = 11;

static uint64_t draw(uint64_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (seed >> 33) % below;
}

/* A checkpoint and what becomes of it; files are names only. */
typedef struct two {
    ckpt_map *from, *to;
    ckpt_plan *plan;
    uint64_t used_from[MAX_FILES], used_to[MAX_FILES]; /* bytes of the files */
    unsigned n_tensors;
} two;

static void two_new(two *t, unsigned n_from, unsigned n_to)
{
    char name[32];

    *t = (two){.from = help_map(), .to = help_map()};
    for (unsigned i = 0; i < n_from; i++) {
        (void)snprintf(name, sizeof name, "in%u", i);
        (void)help_source(t->from, help_output(t->from, name, UINT64_C(1) << 40), 0,
                          UINT64_C(1) << 40);
    }
    for (unsigned i = 0; i < n_to; i++) {
        (void)snprintf(name, sizeof name, "out%u", i);
        (void)help_source(t->to, help_output(t->to, name, UINT64_C(1) << 40), 0, UINT64_C(1) << 40);
    }
}

static void two_free(two *t)
{
    ckpt_plan_free(t->plan);
    ckpt_map_free(t->to);
    ckpt_map_free(t->from);
}

/* A tensor of n elements in file `in` that goes to file `out`. */
static ckpt_tensor *two_add(two *t, uint32_t in, uint32_t out, uint64_t n, ckpt_dtype from_dtype,
                            ckpt_dtype to_dtype)
{
    char name[32];
    ckpt_tensor *a, *b;

    (void)snprintf(name, sizeof name, "t%u", t->n_tensors++);
    a = help_tensor(t->from, name, from_dtype, 1, &n);
    b = help_tensor(t->to, name, to_dtype, 1, &n);
    help_whole(t->from, a, in, t->used_from[in]);
    help_whole(t->to, b, out, t->used_to[out]);
    t->used_from[in] += ckpt_job_bytes(from_dtype, n);
    t->used_to[out] += ckpt_job_bytes(to_dtype, n);
    return a;
}

static void two_plan(two *t, uint64_t block)
{
    ckpt_err err = {0};

    assert_int_equal(ckpt_plan_make(&t->plan, t->from, t->to, block, &err), CKPT_OK);
}

/* n_ranks ranks, `per` on each node. */
static ckpt_places even_places(unsigned n_ranks, unsigned per)
{
    static uint32_t node[MAX_RANKS];

    for (unsigned r = 0; r < n_ranks; r++)
        node[r] = r / per;
    return (ckpt_places){
        .n_ranks = n_ranks, .node_of_rank = node, .n_nodes = (n_ranks + per - 1) / per};
}

static uint64_t job_cost(const ckpt_plan *plan, const ckpt_job *job)
{
    const ckpt_tensor *t = plan->to->tensors.at[job->tensor];
    uint64_t n = ckpt_job_bytes(t->dtype, job->count);

    for (const ckpt_tensor *a = plan->origin[job->tensor]; a; a = a->addend) {
        for (const ckpt_tensor *twin = a; twin; twin = twin->twin)
            n += ckpt_job_bytes(twin->dtype, job->count);
    }
    return n;
}

static uint32_t file_of(const ckpt_plan *plan, const ckpt_job *job)
{
    const ckpt_tensor *t = plan->to->tensors.at[job->tensor];

    return plan->to->sources.at[t->extent[job->extent].source].file;
}

/* Each job is one rank's; runs ascend and do not touch; bytes are those of the jobs. */
static void expect_split(const ckpt_plan *plan, const ckpt_share *s)
{
    unsigned *hits = ckpt_alloc((plan->jobs.n + 1) * sizeof *hits);
    uint64_t total = 0;

    assert_non_null(hits);
    for (unsigned r = 0; r < s->n_ranks; r++) {
        uint64_t bytes = 0;

        for (uint32_t k = s->at[r]; k < s->at[r + 1]; k++) {
            assert_true(s->run[k].first < s->run[k].end && s->run[k].end <= plan->jobs.n);
            assert_true(k == s->at[r] || s->run[k - 1].end < s->run[k].first);
            for (uint32_t j = s->run[k].first; j < s->run[k].end; j++) {
                hits[j]++;
                bytes += job_cost(plan, &plan->jobs.at[j]);
            }
        }
        assert_int_equal(bytes, s->n_bytes[r]);
        total += bytes;
    }
    for (size_t j = 0; j < plan->jobs.n; j++)
        assert_int_equal(hits[j], 1);
    assert_int_equal(total, plan->n_read + plan->n_write);
    ckpt_free(hits);
}

/* Homes have most bytes, and writers are counted. */
static void expect_homes(const ckpt_plan *plan, const ckpt_share *s)
{
    for (uint32_t f = 0; f < plan->to->files.n; f++) {
        uint64_t bytes[MAX_RANKS] = {0};
        unsigned writers = 0;

        for (unsigned r = 0; r < s->n_ranks; r++) {
            for (uint32_t k = s->at[r]; k < s->at[r + 1]; k++) {
                for (uint32_t j = s->run[k].first; j < s->run[k].end; j++) {
                    const ckpt_job *job = &plan->jobs.at[j];

                    if (file_of(plan, job) == f)
                        bytes[r] +=
                            ckpt_job_bytes(plan->to->tensors.at[job->tensor]->dtype, job->count);
                }
            }
            writers += bytes[r] > 0;
        }
        assert_int_equal(s->n_writers[f], writers);
        assert_true(s->home[f] < s->n_ranks);
        for (unsigned r = 0; r < s->n_ranks; r++) {
            assert_true(bytes[r] <= bytes[s->home[f]]);
            assert_true(r >= s->home[f] || writers == 0 || bytes[r] < bytes[s->home[f]]);
        }
    }
}

/* Ranks first..end-1 differ from their mean by at most 5 % and a job. */
static void expect_balance(const ckpt_plan *plan, const ckpt_share *s, unsigned first, unsigned end)
{
    uint64_t total = 0, most = 0;

    for (size_t j = 0; j < plan->jobs.n; j++) {
        uint64_t cost = job_cost(plan, &plan->jobs.at[j]);

        most = cost > most ? cost : most;
    }
    for (unsigned r = first; r < end; r++)
        total += s->n_bytes[r];
    for (unsigned r = first; r < end; r++) {
        double mean = (double)total / (end - first), off = (double)s->n_bytes[r] - mean;

        assert_true(off <= mean * 0.05 + (double)most && -off <= mean * 0.05 + (double)most);
    }
}

static unsigned shared_files(const ckpt_plan *plan, const ckpt_share *s)
{
    unsigned n = 0;

    for (size_t f = 0; f < plan->to->files.n; f++)
        n += s->n_writers[f] > 1;
    return n;
}

static void split(ckpt_share *s, const two *t, const ckpt_places *places)
{
    ckpt_err err = {0};

    assert_int_equal(ckpt_share_make(s, t->plan, places, &err), CKPT_OK);
    expect_split(t->plan, s);
    expect_homes(t->plan, s);
}

/* ---- without places ---- */

static void test_random_plans(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 300; round++) {
        static const ckpt_dtype dtype[3] = {CKPT_F32, CKPT_BF16, CKPT_F64};
        unsigned n_from = 1 + (unsigned)draw(8), n_to = 1 + (unsigned)draw(20);
        unsigned n_ranks = 1 + (unsigned)draw(MAX_RANKS), n = 1 + (unsigned)draw(60);
        ckpt_places places = even_places(n_ranks, 1 + (unsigned)draw(4));
        two t;
        ckpt_share s;

        two_new(&t, n_from, n_to);
        for (unsigned i = 0; i < n; i++) {
            ckpt_dtype of = dtype[draw(3)];
            uint64_t size = 1 + draw(4000);
            ckpt_tensor *a =
                two_add(&t, (uint32_t)draw(n_from), (uint32_t)draw(n_to), size, of, dtype[draw(3)]);

            if (draw(3) == 0) {
                ckpt_tensor *twin =
                    help_tensor(t.from, i % 2 ? "odd" : "even", CKPT_BF16, 1, &size);
                // only a copy of this one, under a name that is free again
                help_whole(t.from, twin, 0, 0);
                t.from->tensors.n--;
                assert_int_equal(ckpt_map_reindex(t.from, NULL), CKPT_OK);
                a->twin = twin;
            }
        }
        two_plan(&t, 256 + draw(2000));
        split(&s, &t, &places);
        expect_balance(t.plan, &s, 0, n_ranks);
        assert_true(shared_files(t.plan, &s) < n_ranks);
        for (unsigned r = 0; r < n_ranks; r++) {
            assert_int_equal(s.n_far[r], 0);
            assert_true(s.at[r + 1] - s.at[r] <= 1);
        }
        ckpt_share_free(&s);
        two_free(&t);
    }
}

/* As many equal files as ranks, or a multiple: none is shared; jobs of odd sizes do not hinder. */
static void test_whole_files(void **state)
{
    static const unsigned n_files[3] = {8, 24, 64};

    (void)state;
    for (unsigned k = 0; k < 3; k++) {
        ckpt_places places = even_places(8, 4);
        two t;
        ckpt_share s;

        two_new(&t, 3, n_files[k]);
        for (uint32_t f = 0; f < n_files[k]; f++) {
            for (uint64_t i = 0; i < 10; i++)
                two_add(&t, f % 3, f, 10007 + i * 31 + f % 5, CKPT_F32, CKPT_F32);
        }
        two_plan(&t, 4096);
        split(&s, &t, &places);
        expect_balance(t.plan, &s, 0, 8);
        assert_int_equal(shared_files(t.plan, &s), 0);
        ckpt_share_free(&s);
        two_free(&t);
    }
}

/* One file is shared by all ranks, each with one run, fine jobs within 5 %. */
static void test_one_file(void **state)
{
    ckpt_places places = even_places(7, 2);
    two t;
    ckpt_share s;

    (void)state;
    two_new(&t, 1, 1);
    two_add(&t, 0, 0, 1000000, CKPT_F32, CKPT_BF16);
    two_plan(&t, 2000);
    split(&s, &t, &places);
    assert_int_equal(s.n_writers[0], 7);
    for (unsigned r = 0; r < 7; r++) {
        assert_int_equal(s.at[r + 1] - s.at[r], 1);
        assert_true(s.n_bytes[r] * 7 <= 6300000 && s.n_bytes[r] * 7 >= 5700000);
    }
    ckpt_share_free(&s);
    two_free(&t);
}

static void test_few_jobs(void **state)
{
    ckpt_places places = even_places(9, 3);
    two t;
    ckpt_share s;

    (void)state;
    // four jobs for nine ranks: no rank has two
    two_new(&t, 1, 3);
    for (uint32_t i = 0; i < 4; i++)
        two_add(&t, 0, i % 2, 100, CKPT_F32, CKPT_F32);
    two_plan(&t, 0);
    assert_int_equal(t.plan->jobs.n, 4);
    split(&s, &t, &places);
    for (unsigned r = 0; r < 9; r++)
        assert_true(s.n_bytes[r] <= 800);
    ckpt_share_free(&s);

    places = even_places(1, 1);
    split(&s, &t, &places);
    assert_int_equal(s.at[1], 1);
    assert_int_equal(s.run[0].end, 4);
    assert_int_equal(shared_files(t.plan, &s), 0);
    ckpt_share_free(&s);
    two_free(&t);
}

/* No jobs: no runs; files that are only headers are spread. */
static void test_empty_plan(void **state)
{
    ckpt_places places = even_places(4, 2);
    const uint32_t target[5] = {CKPT_SHARE_ANY, 1, 1, CKPT_SHARE_ANY, 0};
    two t;
    ckpt_share s;

    (void)state;
    two_new(&t, 1, 5);
    two_plan(&t, 0);
    split(&s, &t, &places);
    for (uint32_t f = 0; f < 5; f++)
        assert_int_equal(s.home[f], f % 4);
    ckpt_share_free(&s);
    places.target_node = target;
    split(&s, &t, &places);
    assert_int_equal(s.at[4], 0);
    assert_int_equal(s.home[1], 2);
    assert_int_equal(s.home[2], 3);
    assert_int_equal(s.home[4], 0);
    assert_int_not_equal(s.home[0], s.home[3]);
    ckpt_share_free(&s);
    two_free(&t);
}

/* Targets in memory and sources of zeros, as comparisons have them. */
static void test_memory(void **state)
{
    ckpt_places places = even_places(5, 5);
    const uint64_t n = 100000;
    const ckpt_source zero = {.kind = CKPT_SOURCE_ZERO, .n_bytes = UINT64_MAX};
    uint32_t at = 0;
    static float memory[100000];
    two t = {.from = help_map(), .to = help_memory(memory, sizeof memory)};
    ckpt_share s;

    (void)state;
    assert_int_equal(ckpt_map_add_source(t.from, &zero, &at, NULL), CKPT_OK);
    help_whole(t.from, help_tensor(t.from, "a", CKPT_F32, 1, &n), at, 0);
    help_whole(t.to, help_tensor(t.to, "a", CKPT_F32, 1, &n), 0, 0);
    two_plan(&t, 1000);
    split(&s, &t, &places);
    expect_balance(t.plan, &s, 0, 5);
    ckpt_share_free(&s);
    two_free(&t);
}

/* ---- with places ---- */

/* Each node sees its own files: nothing is far, and the ranks of a node share evenly. */
static void test_local_shards(void **state)
{
    ckpt_places places = even_places(8, 2);
    uint8_t sees[8 * 4] = {0};
    two t;
    ckpt_share s;

    (void)state;
    two_new(&t, 8, 1);
    for (uint32_t i = 0; i < 200; i++)
        two_add(&t, (uint32_t)draw(8), 0, 500 + draw(3000), CKPT_F32, CKPT_F32);
    for (unsigned f = 0; f < 8; f++)
        sees[f * 4 + f / 2] = 1;
    places.sees = sees;
    two_plan(&t, 1000);
    split(&s, &t, &places);
    for (unsigned r = 0; r < 8; r++) {
        assert_int_equal(s.n_far[r], 0);
        for (uint32_t k = s.at[r]; k < s.at[r + 1]; k++) {
            for (uint32_t j = s.run[k].first; j < s.run[k].end; j++) {
                const ckpt_tensor *o = t.plan->origin[t.plan->jobs.at[j].tensor];

                assert_int_equal(t.from->sources.at[o->extent[0].source].file / 2, r / 2);
            }
        }
    }
    for (unsigned n = 0; n < 4; n++)
        expect_balance(t.plan, &s, 2 * n, 2 * n + 2);
    ckpt_share_free(&s);
    two_free(&t);
}

/* A file that two machines have is read by the one with less to do. */
static void test_copies_of_files(void **state)
{
    ckpt_places places = even_places(3, 1);
    // in0: node 0; in1: nodes 0 and 2; in2: all
    static const uint8_t sees[9] = {1, 0, 0, 1, 0, 1, 1, 1, 1};
    two t;
    ckpt_share s;

    (void)state;
    two_new(&t, 3, 1);
    two_add(&t, 0, 0, 10000, CKPT_F32, CKPT_F32);
    two_add(&t, 1, 0, 10000, CKPT_F32, CKPT_F32);
    two_add(&t, 2, 0, 10000, CKPT_F32, CKPT_F32);
    places.sees = sees;
    two_plan(&t, 400);
    split(&s, &t, &places);
    for (unsigned r = 0; r < 3; r++) {
        assert_int_equal(s.n_bytes[r], 80000);
        assert_int_equal(s.n_far[r], 0);
    }
    ckpt_share_free(&s);
    two_free(&t);
}

/* Jobs whose bytes lie on two machines go where most of them are; the rest is far. */
static void test_far_bytes(void **state)
{
    ckpt_places places = even_places(2, 1);
    static const uint8_t sees[6] = {1, 0, 0, 1, 0, 0};
    const uint64_t shape[2] = {10, 8};
    // columns 0..2 in file 0, 3..7 in file 1
    const ckpt_axis left[2] = {{0, 10, 12}, {0, 3, 4}}, right[2] = {{0, 10, 20}, {3, 5, 4}};
    const ckpt_extent e[2] = {{0, 2, 0, left}, {1, 2, 0, right}};
    two t;
    ckpt_share s;
    ckpt_err err = {0};

    (void)state;
    two_new(&t, 3, 1);
    help_back(t.from, help_tensor(t.from, "a", CKPT_F32, 2, shape), e, 2);
    help_whole(t.to, help_tensor(t.to, "a", CKPT_F32, 2, shape), 0, 0);
    places.sees = sees;
    two_plan(&t, 64);
    split(&s, &t, &places);
    assert_int_equal(s.n_bytes[0], 0);
    assert_int_equal(s.n_far[0], 0);
    assert_int_equal(s.n_far[1], 10 * 3 * 4);
    ckpt_share_free(&s);
    ckpt_plan_free(t.plan);

    // a file that nobody sees
    two_add(&t, 2, 0, 10, CKPT_F32, CKPT_F32);
    two_plan(&t, 64);
    assert_int_equal(ckpt_share_make(&s, t.plan, &places, &err), CKPT_EMISSING);
    assert_non_null(strstr(err.text, "in2"));
    assert_null(s.at);
    two_free(&t);
}

/*
 * Small tensors that lie on all machines alike are few bytes in many places: each rank gets some,
 * though one has less than the others by more than all of them.
 */
static void test_scattered(void **state)
{
    ckpt_places places = even_places(4, 1);
    uint8_t sees[4 * 4] = {0};
    unsigned jobs[4] = {0};
    two t;
    ckpt_share s;

    (void)state;
    two_new(&t, 4, 1);
    for (uint32_t i = 0; i < 400; i++) {
        const uint64_t n = 16;
        ckpt_axis axis[4];
        ckpt_extent e[4];
        char name[32];

        if (i % 10 == 0)
            two_add(&t, i / 10 % 4, 0, i / 10 % 4 == 3 ? 9000 : 10000, CKPT_F32, CKPT_F32);
        for (uint32_t r = 0; r < 4; r++) {
            axis[r] = (ckpt_axis){4 * r, 4, 4};
            e[r] = (ckpt_extent){r, 1, t.used_from[r], &axis[r]};
            t.used_from[r] += 16;
        }
        (void)snprintf(name, sizeof name, "small%u", i);
        help_back(t.from, help_tensor(t.from, name, CKPT_F32, 1, &n), e, 4);
        help_whole(t.to, help_tensor(t.to, name, CKPT_F32, 1, &n), 0, t.used_to[0]);
        t.used_to[0] += n * 4;
    }
    for (unsigned f = 0; f < 4; f++)
        sees[f * 4 + f] = 1;
    places.sees = sees;
    two_plan(&t, 4000);
    split(&s, &t, &places);
    for (unsigned r = 0; r < 4; r++) {
        for (uint32_t k = s.at[r]; k < s.at[r + 1]; k++) {
            for (uint32_t j = s.run[k].first; j < s.run[k].end; j++)
                jobs[r] += t.plan->jobs.at[j].count == 16;
        }
        assert_int_equal(jobs[r], 100);
    }
    ckpt_share_free(&s);
    two_free(&t);
}

/* A file is made where it lies, wherever its bytes come from. */
static void test_local_targets(void **state)
{
    ckpt_places places = even_places(6, 2);
    static const uint32_t target[6] = {0, 1, 2, 0, 1, 2};
    uint8_t sees[6 * 3] = {0};
    uint64_t far = 0, apart = 0;
    two t;
    ckpt_share s;

    (void)state;
    two_new(&t, 6, 6);
    for (uint32_t i = 0; i < 300; i++) {
        uint32_t in = (uint32_t)draw(6), out = (uint32_t)draw(6);
        uint64_t n = 500 + draw(100);

        two_add(&t, in, out, n, CKPT_F32, CKPT_BF16);
        apart += in % 3 != target[out] ? n * 4 : 0;
    }
    for (unsigned f = 0; f < 6; f++)
        sees[f * 3 + f % 3] = 1;
    places.target_node = target;
    two_plan(&t, 1000);
    for (unsigned k = 0; k < 2; k++) {
        places.sees = k == 0 ? NULL : sees;
        split(&s, &t, &places);
        far = 0;
        for (unsigned r = 0; r < 6; r++) {
            far += s.n_far[r];
            for (uint32_t i = s.at[r]; i < s.at[r + 1]; i++) {
                for (uint32_t j = s.run[i].first; j < s.run[i].end; j++)
                    assert_int_equal(target[file_of(t.plan, &t.plan->jobs.at[j])], r / 2);
            }
        }
        assert_int_equal(far, k == 0 ? 0 : apart);
        for (unsigned n = 0; n < 3; n++)
            expect_balance(t.plan, &s, 2 * n, 2 * n + 2);
        for (unsigned f = 0; f < 6; f++)
            assert_int_equal(s.home[f] / 2, target[f]);
        ckpt_share_free(&s);
    }
    two_free(&t);
}

/* Values that are other tensors' are read where those are. */
static void test_nested(void **state)
{
    ckpt_places places = even_places(2, 1);
    static const uint8_t sees[4] = {1, 0, 0, 1};
    const uint64_t n = 4000;
    const ckpt_axis half[2] = {{0, 2000, 4}, {2000, 2000, 4}};
    const ckpt_extent parts[2] = {{0, 1, 0, &half[0]}, {1, 1, 0, &half[1]}};
    ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 1, .shape = &n, .n_elems = n}, *in = NULL;
    uint32_t nested = 0;
    two t;
    ckpt_share s;

    (void)state;
    two_new(&t, 2, 1);
    assert_int_equal(ckpt_map_add_hidden(t.from, "in", 2, &like, &in, NULL), CKPT_OK);
    help_back(t.from, in, parts, 2);
    assert_int_equal(ckpt_map_add_nested(t.from, in, &nested, NULL), CKPT_OK);
    help_whole(t.from, help_tensor(t.from, "a", CKPT_F32, 1, &n), nested, 0);
    help_whole(t.to, help_tensor(t.to, "a", CKPT_F32, 1, &n), 0, 0);
    places.sees = sees;
    two_plan(&t, 320);
    split(&s, &t, &places);
    assert_int_equal(s.n_far[0] + s.n_far[1], 0);
    assert_int_equal(s.n_bytes[0], s.n_bytes[1]);
    assert_int_equal(s.run[s.at[0]].first, 0);
    ckpt_share_free(&s);
    two_free(&t);
}

/* The same on every rank, and no allocation is taken for granted. */
static void test_again(void **state)
{
    ckpt_places places = even_places(6, 2);
    uint8_t sees[6 * 3];
    two t;
    ckpt_share a, b;
    int rc = CKPT_ELIMIT;

    (void)state;
    two_new(&t, 6, 4);
    for (uint32_t i = 0; i < 100; i++)
        two_add(&t, (uint32_t)draw(6), (uint32_t)draw(4), 500 + draw(1000), CKPT_F32, CKPT_BF16);
    for (unsigned i = 0; i < sizeof sees; i++)
        sees[i] = i % 3 == i / 3 % 3 || draw(3) == 0;
    places.sees = sees;
    two_plan(&t, 1000);
    split(&a, &t, &places);
    for (uint64_t n = 0; rc != CKPT_OK; n++) {
        ckpt_alloc_fail_at(n);
        rc = ckpt_share_make(&b, t.plan, &places, NULL);
        ckpt_alloc_fail_at(UINT64_MAX);
        assert_true(rc == CKPT_OK || (rc == CKPT_ELIMIT && n < 1000));
    }
    assert_memory_equal(a.at, b.at, 7 * sizeof *a.at);
    assert_memory_equal(a.run, b.run, a.at[6] * sizeof *a.run);
    assert_memory_equal(a.home, b.home, 4 * sizeof *a.home);
    assert_memory_equal(a.n_far, b.n_far, 6 * sizeof *a.n_far);
    ckpt_share_free(&a);
    ckpt_share_free(&b);
    two_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_plans), cmocka_unit_test(test_whole_files),
        cmocka_unit_test(test_one_file),     cmocka_unit_test(test_few_jobs),
        cmocka_unit_test(test_empty_plan),   cmocka_unit_test(test_memory),
        cmocka_unit_test(test_local_shards), cmocka_unit_test(test_copies_of_files),
        cmocka_unit_test(test_far_bytes),    cmocka_unit_test(test_local_targets),
        cmocka_unit_test(test_nested),       cmocka_unit_test(test_scattered),
        cmocka_unit_test(test_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
