/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_ds_autoep.c: AutoEP's experts: which expert-parallel sizes fit, how experts are dealt out to
 * ranks, which parameters those of a rank are, and where they lie in stage 3.
 */
#include "formats/deepspeed/layout/autoep.h"
#include "formats/deepspeed/write/write.h"
#include "formats/training/ds_config.h"
#include "tests/unit/unit.h"

enum { EXPERTS = 8, ROWS = 3, COLUMNS = 5, NAME = 64 };

static const char prefix[] = "model.layers.0.mlp.experts";

/* An entry of ds_autoep_layers. */
static ckpt_value *layer(ckpt_arena *arena, const char *name, int64_t n, int64_t ep)
{
    ckpt_value *v = ckpt_value_new(arena, CKPT_V_DICT);

    assert_true(
        ckpt_dict_add_cstr(arena, &v->as.map, "expert_key_prefix", ckpt_value_cstr(arena, name)) &&
        ckpt_dict_add_cstr(arena, &v->as.map, "num_experts", ckpt_value_int(arena, n)) &&
        ckpt_dict_add_cstr(arena, &v->as.map, "ep_size", ckpt_value_int(arena, ep)));
    return v;
}

/* A state whose one group holds w1 and w2 of a layer, cut over ep ranks. */
static ckpt_map *make(uint32_t ep)
{
    ckpt_map *map = NULL;
    ckpt_state *s = NULL;
    ckpt_value *list;
    const uint64_t shape[] = {ROWS, COLUMNS};

    assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
    map->path = "run";
    assert_int_equal(ckpt_state_new(&s, map, "", NULL), CKPT_OK);
    s->model = ckpt_value_new(map->arena, CKPT_V_DICT);
    list = ckpt_value_new(map->arena, CKPT_V_LIST);
    assert_true(ckpt_seq_add(map->arena, &list->as.seq, layer(map->arena, prefix, EXPERTS, ep)));
    assert_true(ckpt_dict_add_cstr(map->arena, &s->model->as.map, "ds_autoep_layers", list));
    for (uint32_t e = 0; e < ep; e++) {
        for (int w = 1; w <= 2; w++) {
            for (uint32_t k = e * EXPERTS / ep; k < (e + 1) * EXPERTS / ep; k++) {
                const ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 2, .shape = shape};
                ckpt_tensor *t = NULL;
                char name[NAME];

                (void)snprintf(name, sizeof name, "%s.w%d.%u", prefix, w, (unsigned)k);
                assert_int_equal(ckpt_map_add(map, name, strlen(name), &like, &t, NULL), CKPT_OK);
                *ckpt_vec_push(&s->param) = t;
            }
        }
    }
    *ckpt_vec_push(&s->group) = (ckpt_group){.n = 2 * EXPERTS / ep, .n_lanes = ep};
    return map;
}

/* Place i of a lane of ep: w1 of the lane's experts, then w2 of them. */
static void expect(const ckpt_tensor *t, uint32_t ep, uint32_t lane, uint32_t i)
{
    const uint32_t each = EXPERTS / ep;
    char name[NAME];

    (void)snprintf(name, sizeof name, "%s.w%u.%u", prefix, 1 + (unsigned)(i / each),
                   (unsigned)(lane * each + i % each));
    assert_string_equal(t->name, name);
}

/* From every size to every size, and back: each expert once, where a rank of that size has it. */
static void lanes(void **state)
{
    (void)state;
    for (uint32_t from = 1; from <= EXPERTS; from *= 2) {
        ckpt_map *map = make(from);
        ckpt_state *s = map->states.at[0];

        for (uint32_t ep = 1; ep <= EXPERTS; ep *= 2) {
            ckpt_tensor *dealt[2 * EXPERTS] = {0}, *back[2 * EXPERTS] = {0};
            ckpt_group to, again;
            ckpt_state half = *s;

            ckpt_dsw_autoep_lanes(s, &s->group.at[0], ep, &to, dealt);
            assert_int_equal(to.n_lanes, ep);
            assert_int_equal(to.n * ep, 2 * EXPERTS);
            for (uint32_t i = 0; i < 2 * EXPERTS; i++)
                expect(dealt[i], ep, i / (uint32_t)to.n, i % (uint32_t)to.n);
            half.param.at = dealt;
            ckpt_dsw_autoep_lanes(&half, &to, from, &again, back);
            assert_int_equal(again.n, s->group.at[0].n);
            assert_memory_equal(back, s->param.at, sizeof back);
        }
        ckpt_map_free(map);
    }
}

/* World and experts of every layer are multiples. */
static void sizes(void **state)
{
    ckpt_map *map = make(2);
    ckpt_state *s = map->states.at[0];
    ckpt_value *list = ckpt_value_get(s->model, "ds_autoep_layers");

    (void)state;
    assert_true(ckpt_train_autoep(s) == 2);
    for (uint32_t ep = 1; ep <= 16; ep *= 2)
        assert_int_equal(ckpt_dsw_autoep_fits(s, 16, ep), ep <= EXPERTS);
    assert_false(ckpt_dsw_autoep_fits(s, 16, 0));
    assert_false(ckpt_dsw_autoep_fits(s, 12, 3)); // 8 experts
    assert_false(ckpt_dsw_autoep_fits(s, 3, 2));  // the world
    assert_true(ckpt_dsw_autoep_fits(s, 3, 1));
    assert_true(ckpt_seq_add(map->arena, &list->as.seq, layer(map->arena, "other", 6, 2)));
    assert_true(ckpt_dsw_autoep_fits(s, 4, 2));
    assert_false(ckpt_dsw_autoep_fits(s, 4, 4)); // 6 experts
    ckpt_map_free(map);
}

/* ---- reading ---- */

static const ckpt_ds_moe_layer read_layer = {.prefix = "m.experts", .n_prefix = 9, .n_module = 1};

/* A parameter, and one of a layer of n experts over ep ranks. */
static ckpt_ds_params params(ckpt_ds_moe_layer *l, uint32_t n, uint32_t ep, uint64_t *shape)
{
    ckpt_ds_params p = {0};

    *l = read_layer;
    l->n_experts = n;
    l->ep = ep;
    l->n_local = n / ep;
    shape[0] = l->n_local;
    shape[1] = ROWS;
    shape[2] = COLUMNS;
    *ckpt_vec_push(&p) = (ckpt_ds_param){
        .name = "m.gate", .n_name = 6, .shape = shape + 1, .ndim = 1, .numel = ROWS};
    *ckpt_vec_push(&p) = (ckpt_ds_param){.name = "m.experts.w2",
                                         .n_name = 12,
                                         .shape = shape,
                                         .ndim = 3,
                                         .numel = shape[0] * ROWS * COLUMNS};
    return p;
}

/* One parameter of a rank becomes its experts, or all of the layer's. */
static void expand(void **state)
{
    (void)state;
    for (int all = 0; all < 2; all++) {
        ckpt_ds_moe_layer l;
        uint64_t shape[3];
        ckpt_ds_params p = params(&l, 6, 3, shape);
        ckpt_ds_head head = {.autoep = {.at = &l, .n = 1}};
        ckpt_map *map = NULL;
        ckpt_err err = {0};

        assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
        ckpt_ds_job job = {.map = map, .err = &err};
        assert_int_equal(ckpt_ds_autoep_expand(&job, &head, &p, all), CKPT_OK);
        assert_int_equal(p.n, 1 + (all ? 6 : 2));
        for (size_t i = 1; i < p.n; i++) {
            char name[NAME];

            (void)snprintf(name, sizeof name, "m.experts.w2.%zu", i - 1);
            assert_string_equal(p.at[i].name, name);
            assert_int_equal(p.at[i].numel, ROWS * COLUMNS);
            assert_int_equal(p.at[i].ndim, 2);
            assert_int_equal(p.at[i].fused, p.n - 1);
            assert_int_equal(p.at[i].in, i - 1);
        }
        ckpt_vec_free(&p);
        ckpt_map_free(map);
    }
}

/* A parameter whose first axis is not the experts of a rank. */
static void wrong_axis(void **state)
{
    ckpt_ds_moe_layer l;
    uint64_t shape[3];
    ckpt_ds_params p = params(&l, 6, 3, shape);
    ckpt_ds_head head = {.autoep = {.at = &l, .n = 1}, .model = {.path = "f"}};
    ckpt_map *map = NULL;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
    ckpt_ds_job job = {.map = map, .err = &err};
    shape[0] = 3;
    assert_int_equal(ckpt_ds_autoep_expand(&job, &head, &p, false), CKPT_EMISMATCH);
    ckpt_vec_free(&p);
    ckpt_map_free(map);
}

/* Stage 3 cuts the experts of a rank as one: those of a parameter share an offset. */
static void places(void **state)
{
    enum { EP = 2, WORLD = 4 };
    ckpt_ds_moe_layer l;
    uint64_t shape[3];
    ckpt_ds_params p = params(&l, 4, EP, shape);
    ckpt_ds_head head = {.autoep = {.at = &l, .n = 1}, .world = WORLD};
    ckpt_ds_flat flat[WORLD] = {0};
    ckpt_ds_group group = {.lanes = 1, .n_parts = WORLD / EP};
    ckpt_ds_column column = {.at = flat};
    ckpt_map *map = NULL;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
    ckpt_ds_job job = {.map = map, .err = &err};
    assert_int_equal(ckpt_ds_autoep_expand(&job, &head, &p, false), CKPT_OK);
    group.n = p.n;
    flat[0].n = 2 + 15; // ceil(3 / 2), 2 experts of 15 over 2 ranks
    ckpt_ds_layout layout = {
        .params = p, .group = {.at = &group, .n = 1}, .column = {.at = &column, .n = 1}};
    assert_int_equal(ckpt_ds_autoep_place(&job, &head, &layout), CKPT_OK);
    assert_int_equal(p.at[0].at, 0);
    assert_int_equal(p.at[1].at, 2);
    assert_int_equal(p.at[2].at, 2);
    flat[0].n++;
    assert_int_equal(ckpt_ds_autoep_place(&job, &head, &layout), CKPT_EMISMATCH);
    ckpt_vec_free(&p);
    ckpt_map_free(map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes),      cmocka_unit_test(sizes),  cmocka_unit_test(expand),
        cmocka_unit_test(wrong_axis), cmocka_unit_test(places),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
