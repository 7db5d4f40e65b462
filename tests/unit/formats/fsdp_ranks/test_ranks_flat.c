/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_ranks_flat.c: parameters cut out of FSDP1's flat parameter, and names of ranks' files.
 *
 * The oracle numbers the elements of the flat parameter one by one.
 */
#include "formats/fsdp_ranks/ranks.h"
#include "tests/unit/unit.h"

enum { MAX_RANKS = 12, MAX_ELEMS = 200 };

static uint64_t seed = 1;

static uint64_t draw(uint64_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (seed >> 33) % below;
}

/* A flat parameter of `group` ranks, repeated by `copies` such groups. */
typedef struct flat {
    uint32_t group, copies;
    uint64_t n, each[MAX_RANKS], at[MAX_RANKS]; /* of each rank of a group: elements, first byte */
    ckpt_ranks_item item;
    ckpt_axis axis[MAX_RANKS][2];
} flat;

static void make(flat *f, uint32_t group, uint32_t copies)
{
    *f = (flat){.group = group, .copies = copies};
    f->item = (ckpt_ranks_item){.name = "flat", .dtype = CKPT_F32, .ndim = 1};
    for (uint32_t r = 0; r < group; r++) {
        f->each[r] = draw(MAX_ELEMS / MAX_RANKS);
        f->at[r] = 4 * draw(100);
        f->n += f->each[r];
    }
    for (uint32_t r = 0; r < group * copies; r++) {
        ckpt_ranks_piece *p = ckpt_vec_push(&f->item.piece);

        assert_non_null(p);
        f->axis[r][0] = (ckpt_axis){0, f->each[r % group], 4};
        *p = (ckpt_ranks_piece){.rank = r,
                                .source = 100 + r,
                                .at = f->at[r % group],
                                .n = f->each[r % group],
                                .axis = f->axis[r]};
    }
}

/* The rank of a group, and the byte in its source, of an element of the flat parameter. */
static uint32_t find(const flat *f, uint64_t element, uint64_t *byte)
{
    uint32_t r = 0;

    while (element >= f->each[r])
        element -= f->each[r++];
    *byte = f->at[r] + 4 * element;
    return r;
}

/* Every element of first..first+n-1 is in one piece of each copy, at its byte. */
static void check(const flat *f, uint64_t first, uint64_t n)
{
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_ranks_item out;
    unsigned seen[MAX_ELEMS] = {0};

    assert_int_equal(
        ckpt_ranks_flat(&out, &f->item, arena, &(ckpt_ranks_range){first, n, f->group}, NULL),
        CKPT_OK);
    assert_int_equal(out.ndim, 1);
    assert_int_equal(out.shape[0], n);
    for (size_t i = 0; i < out.piece.n; i++) {
        const ckpt_ranks_piece *p = &out.piece.at[i];

        assert_int_equal(p->source, 100 + p->rank);
        assert_int_equal(p->axis[0].count, p->n);
        assert_int_equal(p->axis[0].stride, 4);
        assert_true(p->n > 0);
        for (uint64_t k = 0; k < p->n; k++) {
            uint64_t byte = 0, at = p->axis[0].start + k;

            assert_true(at < n);
            seen[at]++;
            assert_int_equal(find(f, first + at, &byte), p->rank % f->group);
            assert_int_equal(p->at + 4 * k, byte);
        }
    }
    for (uint64_t i = 0; i < n; i++)
        assert_int_equal(seen[i], f->copies);
    ckpt_vec_free(&out.piece);
    ckpt_arena_free(arena);
}

static void cuts(void **state)
{
    (void)state;
    for (unsigned turn = 0; turn < 60; turn++) {
        flat f;
        uint32_t group = 1 + (uint32_t)draw(6);

        make(&f, group, 1 + (uint32_t)draw(2));
        assert_int_equal(ckpt_ranks_flat_n(&f.item, f.group), f.n);
        for (uint64_t first = 0; first <= f.n; first++)
            check(&f, first, draw(f.n - first + 1));
        check(&f, 0, f.n);
        ckpt_vec_free(&f.item.piece);
    }
}

static void sums_overflow(void **state)
{
    flat f;

    (void)state;
    make(&f, 3, 1);
    f.item.piece.at[0].n = UINT64_MAX - 1;
    f.item.piece.at[1].n = 2;
    assert_true(ckpt_ranks_flat_n(&f.item, 3) == UINT64_MAX);
    assert_true(ckpt_ranks_flat_n(&f.item, 1) == UINT64_MAX - 1);
    assert_true(ckpt_ranks_flat_n(&f.item, 0) == 0);
    ckpt_vec_free(&f.item.piece);
}

/* ---- names ---- */

static void reads_names(void **state)
{
    static const struct {
        const char *name;
        ckpt_ranks_file_name is;
    } cases[] = {
        {"model_world_size_8_rank_0.pt", {CKPT_RANKS_MODEL, 8, 0}},
        {"optim_world_size_8_rank_7.pt", {CKPT_RANKS_OPTIM, 8, 7}},
        {"extra_state_world_size_16_rank_10.pt", {CKPT_RANKS_EXTRA, 16, 10}},
        {"model_world_size_65536_rank_65535.pt", {CKPT_RANKS_MODEL, 65536, 65535}},
        {"model_rank_3.pt", {CKPT_RANKS_MODEL, 0, 3}},
        {"extra_state_rank_0.pt", {CKPT_RANKS_EXTRA, 0, 0}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_ranks_file_name is;

        if (!ckpt_ranks_name_parse(cases[i].name, &is))
            fail_msg("%s", cases[i].name);
        assert_int_equal(is.kind, cases[i].is.kind);
        assert_int_equal(is.world, cases[i].is.world);
        assert_int_equal(is.rank, cases[i].is.rank);
    }
}

static void refuses_names(void **state)
{
    static const char *const cases[] = {
        "",
        "model",
        "model.pt",
        "model_rank_.pt",
        "model_rank_-1.pt",
        "model_rank_ 1.pt",
        "model_rank_01.pt",
        "model_rank_1",
        "model_rank_1.pt.tmp",
        "model_rank_1.pth",
        "model_rank_123456.pt",
        "model_world_size_0_rank_0.pt",
        "model_world_size__rank_0.pt",
        "model_world_size_08_rank_0.pt",
        "model_world_size_99999999999999999999_rank_0.pt",
        "model_world_size_8.pt",
        "models_world_size_8_rank_0.pt",
        "xmodel_world_size_8_rank_0.pt",
        "Model_world_size_8_rank_0.pt",
        "extra_world_size_8_rank_0.pt",
    };
    ckpt_ranks_file_name is;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (ckpt_ranks_name_parse(cases[i], &is))
            fail_msg("'%s' is taken for a file of a rank", cases[i]);
    }
}

/* Folders count only with a model's or an optimizer's file; the world size makes them surer. */
static void scores_folders(void **state)
{
    static const ckpt_entry extra[] = {{"extra_state_world_size_2_rank_0.pt", false, 1}},
                            folder[] = {{"model_world_size_2_rank_0.pt", true, 0}},
                            bare[] = {{"config.json", false, 1}, {"model_rank_0.pt", false, 1}},
                            both[] = {{"model_rank_0.pt", false, 1},
                                      {"model_world_size_2_rank_0.pt", false, 1},
                                      {"optim_rank_1.pt", false, 1}};
    ckpt_listing list = {.folder = "x", .entry = extra, .n = 1};

    (void)state;
    assert_int_equal(ckpt_ranks_sure(&list), 0);
    assert_false(ckpt_ranks_is_one(&list));
    list.entry = folder;
    assert_int_equal(ckpt_ranks_sure(&list), 0);
    list = (ckpt_listing){.folder = "x", .entry = bare, .n = 2};
    assert_int_equal(ckpt_ranks_sure(&list), 54);
    assert_true(ckpt_ranks_is_one(&list));
    list = (ckpt_listing){.folder = "x", .entry = both, .n = 3};
    assert_int_equal(ckpt_ranks_sure(&list), 57);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts),           cmocka_unit_test(sums_overflow),
        cmocka_unit_test(reads_names),    cmocka_unit_test(refuses_names),
        cmocka_unit_test(scores_folders),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
