/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_ds_state.c: the state of a run as writers take it: groups, order, what the optimizer keeps,
 * sub-group sizes, and step counts as tensors.
 *
 * Facts of small real checkpoints in $CKPT_FIXTURES, of more in $CKPT_SHARED/fixtures when that is
 * set; layouts that no real run has are made by hand.
 */
#include <limits.h>

#include "ckpt_extra.h"
#include "formats/deepspeed/module/state.h"
#include "libckpt/map/zero_param.h"
#include "libckpt/run/run.h"
#include "tests/unit/unit.h"

/* ---- opening ---- */

/* Opens a fixture with its optimizer; skips the test where the set it is in is not at hand. */
static ckpt_map *open_fixture(const char *name, bool shared)
{
    const char *top = getenv(shared ? "CKPT_SHARED" : "CKPT_FIXTURES");
    const ckpt_open_opts opts = {.with_optimizer = true};
    ckpt_err err = {0};
    ckpt_map *map = NULL;
    char path[PATH_MAX];

    if (!top) {
        print_message("%s is not set\n", shared ? "CKPT_SHARED" : "CKPT_FIXTURES");
        skip();
    }
    snprintf(path, sizeof path, "%s%s/%s/ckpt", top, shared ? "/fixtures" : "", name);
    if (ckpt_open(&map, path, &opts, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    assert_int_equal(ckpt_map_check(map, &err), CKPT_OK);
    return map;
}

/* What holds for every state: groups share out the parameters, which are the map's own tensors. */
static const ckpt_state *the_state(const ckpt_map *map)
{
    assert_int_equal(map->states.n, 1);
    const ckpt_state *s = map->states.at[0];
    size_t at = 0;

    assert_string_equal(s->prefix, "");
    for (size_t g = 0; g < s->group.n; g++) {
        assert_int_equal(s->group.at[g].first, at);
        assert_int_equal(s->group.at[g].n_lanes, 1);
        at += s->group.at[g].n;
    }
    assert_int_equal(at, s->param.n);
    for (size_t i = 0; i < s->param.n; i++) {
        const ckpt_tensor *t = s->param.at[i];
        assert_ptr_equal(map->tensors.at[ckpt_map_index(map, t->name, strlen(t->name))], t);
        assert_int_equal(t->role, CKPT_ROLE_WEIGHT);
        assert_null(t->owner);
    }
    assert_ptr_equal(s->model, ckpt_value_get(map->values, "model_states"));
    assert_ptr_equal(s->optim, ckpt_value_get(map->values, "optim_states"));
    assert_non_null(s->model);
    return s;
}

/* The names of a group's parameters, separated by blanks. */
static void assert_names(const ckpt_state *s, size_t group, const char *want)
{
    char names[4096] = "";
    size_t at = 0;

    assert_true(group < s->group.n);
    for (size_t i = 0; i < s->group.at[group].n; i++) {
        const ckpt_tensor *t = s->param.at[s->group.at[group].first + i];
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i ? " " : "", t->name);
        assert_true(at < sizeof names);
    }
    assert_string_equal(names, want);
}

/* The keys of a dict, separated by commas. */
static void assert_keys(const ckpt_value *v, const char *want)
{
    ckpt_dict map = ckpt_value_map(v);
    char keys[1024] = "";
    size_t at = 0;

    assert_non_null(v);
    for (uint64_t i = 0; i < map.n; i++)
        at += (size_t)snprintf(keys + at, sizeof keys - at, "%s%s", i ? "," : "",
                               map.at[i].key->as.text.at);
    assert_string_equal(keys, want);
}

/* The step of a parameter; -1: it has none. */
static double step_of(const ckpt_map *map, const char *param)
{
    char name[256];
    float value = -1;
    ckpt_err err = {0};
    ckpt_reader *reader = NULL;

    snprintf(name, sizeof name, "step/%s", param);
    size_t at = ckpt_map_index(map, name, strlen(name));
    if (at == SIZE_MAX)
        return -1;
    const ckpt_tensor *t = map->tensors.at[at];
    assert_int_equal(t->dtype, CKPT_F32);
    assert_int_equal(t->ndim, 0);
    assert_int_equal(t->role, CKPT_ROLE_STATE);
    assert_int_equal(ckpt_reader_new(&reader, map, &err), CKPT_OK);
    assert_int_equal(ckpt_reader_read(reader, t, 0, 1, CKPT_F32, &value, &err), CKPT_OK);
    ckpt_reader_free(reader);
    return (double)value;
}

/* Every parameter has this step, or, with -1, none has any. */
static void assert_steps(const ckpt_map *map, const ckpt_state *s, double want)
{
    for (size_t i = 0; i < s->param.n; i++)
        assert_true(step_of(map, s->param.at[i]->name) == want);
}

/* The kind of the source behind a step: in a file, or in memory. */
static int step_kind(const ckpt_map *map, const char *param)
{
    char name[256];

    snprintf(name, sizeof name, "step/%s", param);
    size_t at = ckpt_map_index(map, name, strlen(name));
    assert_true(at != SIZE_MAX);
    return map->sources.at[map->tensors.at[at]->extent[0].source].kind;
}

/*
 * The state's sub_group_size, applied to its groups, gives the flat tensors of rank 0's file: as
 * many, of the same lengths.
 */
static void assert_sub_groups(const ckpt_state *s)
{
    ckpt_seq flat = ckpt_value_seq(
        ckpt_value_get(ckpt_value_get(s->optim, "optimizer_state_dict"), "fp32_flat_groups"));
    uint64_t sum[64] = {0}, numel[128];
    uint32_t group[128], next = 0;

    assert_true(flat.n > 0 && flat.n <= 64);
    assert_true(s->sub_group_size > 0);
    for (size_t g = 0; g < s->group.n; g++) {
        size_t n = s->group.at[g].n, first = s->group.at[g].first;
        assert_true(n <= 128);
        for (size_t i = 0; i < n; i++)
            numel[i] = s->param.at[first + i]->n_elems;
        ckpt_zero_sub_groups(numel, n, s->world, s->sub_group_size, group, &next);
        assert_true(next <= 64);
        for (size_t i = 0; i < n; i++)
            sum[group[i]] += ckpt_zero_partition(numel[i], s->world);
    }
    assert_int_equal(next, flat.n);
    for (uint32_t i = 0; i < next; i++)
        assert_int_equal(flat.at[i]->as.tensor->shape[0], sum[i]);
}

/* ---- stages 1 and 2 ---- */

static void stage1_groups(void **unused)
{
    (void)unused;
    ckpt_map *map = open_fixture("z1_bf16_w3_groups", false);
    const ckpt_state *s = the_state(map);

    assert_int_equal(s->stage, 1);
    assert_int_equal(s->world, 3);
    assert_int_equal(s->dtype, CKPT_BF16);
    assert_string_equal(s->version, "0.19.8");
    assert_false(s->round_robin || s->aligned || s->lean || s->legacy || s->bf16_optimizer);
    assert_int_equal(s->group.n, 2);
    assert_names(s, 0,
                 "wte.weight wpe.weight h.0.attn.c_attn.weight h.0.attn.c_proj.weight "
                 "h.0.mlp.c_fc.weight h.0.mlp.c_proj.weight h.1.attn.c_attn.weight "
                 "h.1.attn.c_proj.weight h.1.mlp.c_fc.weight h.1.mlp.c_proj.weight");
    assert_int_equal(s->group.at[1].n, 18);
    for (size_t g = 0; g < 2; g++) {
        assert_keys(s->group.at[g].entry, "step,exp_avg,exp_avg_sq");
        const ckpt_value *decay = ckpt_value_get(s->group.at[g].fields, "weight_decay");
        assert_true(decay && decay->kind == CKPT_V_FLOAT && (decay->as.f > 0) == (g == 0));
        // Nodes of the tree that the state itself points to.
        const ckpt_value *base = ckpt_value_get(ckpt_value_get(s->optim, "optimizer_state_dict"),
                                                "base_optimizer_state");
        assert_ptr_equal(ckpt_value_seq(ckpt_value_get(base, "param_groups")).at[g],
                         s->group.at[g].fields);
    }
    assert_steps(map, s, 4);
    assert_int_equal(step_kind(map, "wte.weight"), CKPT_SOURCE_FILE);
    ckpt_map_free(map);
}

static void stage1_legacy(void **unused)
{
    (void)unused;
    ckpt_map *map = open_fixture("old0316_z1_fp16_w2", false);
    const ckpt_state *s = the_state(map);

    assert_true(s->legacy && s->lean && !s->bf16_optimizer);
    assert_int_equal(s->interval, 500); // reduce_bucket_size of its configuration
    assert_null(s->version);
    assert_int_equal(s->dtype, CKPT_F16);
    assert_int_equal(s->group.n, 2);
    assert_names(s, 0, "emb.weight fc1.weight out.weight");
    assert_names(s, 1, "fc1.bias");
    assert_null(s->group.at[0].fields);
    assert_keys(s->group.at[1].entry, "step,exp_avg,exp_avg_sq");
    assert_steps(map, s, 7);
    assert_int_equal(step_kind(map, "fc1.bias"), CKPT_SOURCE_MEMORY);
    ckpt_map_free(map);
}

static void stage1_bf16_optimizer(void **unused)
{
    (void)unused;
    ckpt_map *map = open_fixture("z1_bf16_w2_fp32acc", false);
    const ckpt_state *s = the_state(map);

    assert_int_equal(s->stage, 1);
    assert_true(s->bf16_optimizer);
    assert_names(s, 0, "emb.weight fc1.weight fc1.bias out.weight");
    assert_steps(map, s, 4);
    ckpt_map_free(map);
}

static void stage2_aligned(void **unused)
{
    (void)unused;
    ckpt_map *map = open_fixture("z2_bf16_w2_aligned", false);
    const ckpt_state *s = the_state(map);

    assert_int_equal(s->stage, 2);
    assert_true(s->aligned);
    assert_int_equal(s->group.n, 1);
    assert_int_equal(s->param.n, 12);
    assert_non_null(ckpt_state_moment(map, s, "exp_avg_sq", s->param.at[3]));
    ckpt_map_free(map);
}

/* A parameter without elements is kept with the frozen ones: the optimizer's list lacks it. */
static void stage2_empty_param(void **unused)
{
    (void)unused;
    ckpt_map *map = open_fixture("z2_bf16_w2_emptyparam", false);
    const ckpt_state *s = the_state(map);

    assert_names(s, 0,
                 "gate emb.weight conv.weight conv.bias bn.weight bn.bias scales.0 scales.1 "
                 "scales.2 heads.a_b.weight heads.a_b.bias heads.z-9.weight");
    ckpt_map_free(map);
}

static void stage2_round_robin(void **unused)
{
    (void)unused;
    ckpt_map *map = open_fixture("z2_bf16_w4_roundrobin", true);
    const ckpt_state *s = the_state(map);

    assert_true(s->round_robin);
    assert_names(s, 0,
                 "wte.weight wpe.weight h.0.ln_1.weight h.0.ln_1.bias h.0.attn.c_attn.weight "
                 "h.0.attn.c_attn.bias h.0.attn.c_proj.weight h.0.attn.c_proj.bias "
                 "h.0.ln_2.weight h.0.ln_2.bias h.0.mlp.c_fc.weight h.0.mlp.c_fc.bias "
                 "h.0.mlp.c_proj.weight h.0.mlp.c_proj.bias h.1.ln_1.weight h.1.ln_1.bias "
                 "h.1.attn.c_attn.weight h.1.attn.c_attn.bias h.1.attn.c_proj.weight "
                 "h.1.attn.c_proj.bias h.1.ln_2.weight h.1.ln_2.bias h.1.mlp.c_fc.weight "
                 "h.1.mlp.c_fc.bias h.1.mlp.c_proj.weight h.1.mlp.c_proj.bias ln_f.weight "
                 "ln_f.bias");
    ckpt_map_free(map);
}

static void stage1_elastic(void **unused)
{
    (void)unused;
    ckpt_map *map = open_fixture("z1_fp16_w3_elastic", true);
    const ckpt_state *s = the_state(map);

    assert_true(s->lean && !s->legacy);
    assert_int_equal(s->group.n, 2);
    assert_null(s->group.at[0].fields);
    assert_keys(s->group.at[0].entry, "step,exp_avg,exp_avg_sq");
    // base_optimizer_state_step says 0, which FusedAdam never raises: the state's own count wins.
    assert_steps(map, s, 4);
    ckpt_map_free(map);
}

/* Momentum of whole matrices, which two ranks both have of the first; the other group is as usual.
 */
static void stage2_muon(void **unused)
{
    (void)unused;
    ckpt_map *map = open_fixture("z2_bf16_w2_muon", false);
    const ckpt_state *s = the_state(map);
    const uint64_t at[] = {0, 1073, 1073 + 481}; // in the records of ranks 0, 1, 1

    assert_keys(s->group.at[0].entry, "momentum_buffer");
    assert_names(s, 0, "out.weight emb.weight fc1.weight");
    for (size_t i = 0; i < 3; i++) {
        const ckpt_tensor *m = ckpt_state_moment(map, s, "momentum_buffer", s->param.at[i]);
        assert_non_null(m);
        assert_int_equal(m->dtype, CKPT_BF16);
        assert_int_equal(m->n_elems, s->param.at[i]->n_elems);
        assert_int_equal(m->n_extents, 1);
        assert_int_equal(m->extent[0].at, 2 * at[i]);
        assert_null(ckpt_state_moment(map, s, "exp_avg", s->param.at[i]));
    }
    assert_true(step_of(map, s->param.at[0]->name) < 0);
    assert_names(s, 1, "fc1.bias");
    assert_true(step_of(map, "fc1.bias") == 4);
    assert_non_null(ckpt_state_moment(map, s, "exp_avg", s->param.at[3]));
    assert_null(ckpt_state_moment(map, s, "momentum_buffer", s->param.at[3]));
    ckpt_map_free(map);
}

/* Moments in 16 bits are exported in full precision. */
static void stage2_16_bit_states(void **unused)
{
    (void)unused;
    ckpt_map *map = open_fixture("z2_bf16_w2_lpmaster", true);
    const ckpt_state *s = the_state(map);
    const ckpt_tensor *m = ckpt_state_moment(map, s, "exp_avg", s->param.at[0]);

    assert_non_null(m);
    assert_int_equal(m->dtype, CKPT_BF16);
    assert_int_equal(m->export_dtype, CKPT_F32);
    ckpt_map_free(map);
}

/* ---- stage 3 ---- */

static void stage3_plain(void **unused)
{
    (void)unused;
    ckpt_map *map = open_fixture("z3_bf16_w5_odd", false);
    const ckpt_state *s = the_state(map);

    assert_int_equal(s->stage, 3);
    assert_int_equal(s->world, 5);
    assert_int_equal(s->dtype, CKPT_BF16);
    assert_int_equal(s->sub_group_size, 1000000000);
    assert_int_equal(s->group.n, 1);
    assert_int_equal(s->param.n, 12);
    assert_sub_groups(s);
    assert_steps(map, s, 4);
    ckpt_map_free(map);
}

static void stage3_sub_groups(void **unused)
{
    (void)unused;
    ckpt_map *map = open_fixture("z3_fp16_w3_subgroups", true);
    const ckpt_state *s = the_state(map);

    // Four sub-groups, the first three of the first group.
    assert_int_equal(s->group.n, 2);
    assert_int_equal(s->group.at[0].n, 10);
    assert_int_equal(s->group.at[1].n, 18);
    assert_int_equal(s->sub_group_size, 300);
    assert_sub_groups(s);
    const ckpt_value *state = ckpt_value_get(
        ckpt_value_get(ckpt_value_get(s->optim, "optimizer_state_dict"), "optimizer_state_dict"),
        "state");
    assert_ptr_equal(s->group.at[0].entry, ckpt_value_map(state).at[0].value);
    assert_ptr_equal(s->group.at[1].entry, ckpt_value_map(state).at[3].value);
    assert_int_equal(ckpt_value_seq(ckpt_value_get(s->group.at[0].fields, "params")).n, 3);
    assert_steps(map, s, 3);
    ckpt_map_free(map);
}

static void stage3_old(void **unused)
{
    (void)unused;
    ckpt_map *map = open_fixture("old065_z3_fp16_w3", true);
    const ckpt_state *s = the_state(map);

    assert_int_equal(s->group.n, 1);
    assert_int_equal(s->sub_group_size, 400);
    assert_sub_groups(s);
    assert_keys(s->group.at[0].entry, "exp_avg,exp_avg_sq");
    assert_steps(map, s, 18); // of param_groups, raised once per sub-group
    ckpt_map_free(map);

    map = open_fixture("old0510_z3_bf16_w3", true);
    s = the_state(map);
    assert_int_equal(s->dtype, CKPT_BF16); // though its placeholders are F32
    assert_sub_groups(s);
    ckpt_map_free(map);
}

static void stage3_without_steps(void **unused)
{
    (void)unused;
    ckpt_map *map = open_fixture("z3_fp32_w2_sgd", true);
    const ckpt_state *s = the_state(map);

    assert_keys(s->group.at[0].entry, "momentum_buffer");
    assert_non_null(ckpt_state_moment(map, s, "momentum_buffer", s->param.at[0]));
    assert_steps(map, s, -1);
    ckpt_map_free(map);
}

/* ---- stage 0 ---- */

static void stage0_fused(void **unused)
{
    (void)unused;
    ckpt_map *map = open_fixture("z0_fp16_w2_fused", false);
    const ckpt_state *s = the_state(map);

    assert_int_equal(s->stage, 0);
    assert_int_equal(s->world, 2);
    assert_int_equal(s->dtype, CKPT_F16);
    assert_null(s->optim);
    assert_names(s, 0, "emb.weight fc1.weight fc1.bias out.weight");
    assert_keys(s->group.at[0].entry, "step,exp_avg,exp_avg_sq");
    assert_non_null(ckpt_value_get(s->group.at[0].fields, "lr"));
    assert_steps(map, s, 6);
    ckpt_map_free(map);
}

static void stage0_plain(void **unused)
{
    (void)unused;
    ckpt_map *map = open_fixture("z0_fp32_w2_adam", true);
    const ckpt_state *s = the_state(map);
    const ckpt_value *m = ckpt_value_get(s->group.at[0].entry, "exp_avg");
    const ckpt_value *step = ckpt_value_get(s->group.at[0].entry, "step");

    assert_int_equal(s->param.n, 12);
    // Moments stand in it as flat tensors, so that a step count is told from a moment of one
    // element.
    assert_true(m && m->kind == CKPT_V_TENSOR && m->as.tensor->ndim == 1);
    assert_int_equal(m->as.tensor->shape[0], s->param.at[0]->n_elems);
    assert_true(step && step->kind == CKPT_V_TENSOR && step->as.tensor->ndim == 0);
    assert_steps(map, s, 4);
    ckpt_map_free(map);
}

static void stage0_groups(void **unused)
{
    (void)unused;
    ckpt_map *map = open_fixture("old077_z0_fp16_w2", true);
    const ckpt_state *s = the_state(map);

    assert_int_equal(s->group.n, 2);
    assert_names(s, 0, "emb.weight fc1.weight out.weight");
    assert_names(s, 1, "fc1.bias");
    assert_steps(map, s, 7);
    ckpt_map_free(map);
}

/* ---- layouts made by hand ---- */

enum { MADE_PARAMS = 6 };

static const ckpt_ds_module no_module;

/* A stage-3 run of one rank as the reader knows it after its files were read. */
typedef struct made_run {
    ckpt_ds_job job;
    ckpt_ds_head head;
    ckpt_ds_layout layout;
    ckpt_err err;
    ckpt_ds_flat flat[MADE_PARAMS];
} made_run;

/* One sub-group. */
static void made_sub_group(made_run *r, uint32_t of, uint64_t n)
{
    ckpt_ds_group *g = ckpt_vec_push(&r->layout.group);

    assert_non_null(g);
    g->of = of;
    g->part = r->layout.group.n - 1;
    g->n_parts = g->intervals = 1;
    r->flat[g->part] = (ckpt_ds_flat){.n = n, .dtype = CKPT_F32};
}

/* A parameter in the last sub-group, which it makes longer; in the map, too. */
static void made_param(made_run *r, const char *name, const uint64_t *numel)
{
    const ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 1, .shape = numel};
    ckpt_ds_param *p = ckpt_vec_push(&r->layout.params);
    ckpt_tensor *t = NULL;
    size_t g = r->layout.group.n - 1;

    assert_non_null(p);
    *p = (ckpt_ds_param){.name = name,
                         .n_name = strlen(name),
                         .shape = numel,
                         .ndim = 1,
                         .group = (uint32_t)g,
                         .numel = *numel,
                         .at = r->flat[g].n};
    r->flat[g].n += *numel;
    assert_int_equal(ckpt_map_add(r->job.map, name, strlen(name), &like, &t, &r->err), CKPT_OK);
}

/* A dict {key: value} in a map's arena. */
static ckpt_value *made_dict(ckpt_map *map, const char *key, ckpt_value *value)
{
    ckpt_value *v = ckpt_value_new(map->arena, CKPT_V_DICT);

    assert_non_null(v);
    assert_true(ckpt_dict_add_cstr(map->arena, &v->as.map, key, value));
    return v;
}

/* The two shards: nothing in them but a configured sub_group_size. */
static void made_begin(made_run *r, ckpt_value *(*size)(ckpt_arena *arena))
{
    static const ckpt_open_opts opts = {.with_optimizer = true};

    memset(r, 0, sizeof *r);
    r->job.opts = &opts;
    r->job.err = &r->err;
    r->head.stage = 3;
    r->head.world = 1;
    assert_int_equal(ckpt_map_create(&r->job.map, 0, &r->err), CKPT_OK);
    r->job.map->path = "made";
    assert_int_equal(ckpt_map_create(&r->head.model.map, 0, &r->err), CKPT_OK);
    assert_int_equal(ckpt_map_create(&r->head.optim.map, 0, &r->err), CKPT_OK);
    ckpt_map *m = r->head.model.map, *o = r->head.optim.map;
    r->head.model.root = made_dict(
        m, "ds_config",
        made_dict(m, "zero_optimization", made_dict(m, "sub_group_size", size(m->arena))));
    r->head.optim.root =
        made_dict(o, "optimizer_state_dict", ckpt_value_new(o->arena, CKPT_V_DICT));
    r->head.optim.optim = ckpt_value_get(r->head.optim.root, "optimizer_state_dict");
    ckpt_ds_column *c = ckpt_vec_push(&r->layout.column);
    assert_non_null(c);
    c->at = r->flat;
}

static void made_end(made_run *r)
{
    ckpt_vec_free(&r->layout.column);
    ckpt_vec_free(&r->layout.group);
    ckpt_vec_free(&r->layout.params);
    ckpt_ds_shard_close(&r->head.model);
    ckpt_ds_shard_close(&r->head.optim);
    ckpt_map_free(r->job.map);
}

static ckpt_value *size_1e9(ckpt_arena *a)
{
    return ckpt_value_float(a, 1e9);
}

static ckpt_value *size_35(ckpt_arena *a)
{
    return ckpt_value_int(a, 35);
}

static ckpt_value *size_auto(ckpt_arena *a)
{
    return ckpt_value_cstr(a, "auto");
}

static const uint64_t ten = 10, twenty = 20, forty = 40;

/* Two groups; the first is cut after 10 + 20 and 40 elements. */
static const ckpt_state *made_two_groups(made_run *r)
{
    made_sub_group(r, 0, 0);
    made_param(r, "a", &ten);
    made_param(r, "b", &twenty);
    made_sub_group(r, 0, 0);
    made_param(r, "c", &forty);
    made_sub_group(r, 1, 0);
    made_param(r, "d", &ten);
    r->layout.n_groups = 2;
    if (ckpt_ds_state_make(&r->job, &r->head, &no_module, &r->layout) != CKPT_OK)
        fail_msg("%s", r->err.text);
    assert_int_equal(r->job.map->states.n, 1);
    return r->job.map->states.at[0];
}

/* The configuration is contradicted by what was closed: 11 to 30 elements give these sub-groups. */
static void size_from_sub_groups(void **unused)
{
    (void)unused;
    ckpt_value *(*const wrong[])(ckpt_arena *) = {size_1e9, size_35, size_auto};

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        made_run r;
        made_begin(&r, wrong[i]);
        const ckpt_state *s = made_two_groups(&r);
        const uint64_t numel[] = {10, 20, 40};
        uint32_t group[3], next = 0;

        assert_int_equal(s->sub_group_size, 30);
        ckpt_zero_sub_groups(numel, 3, 1, s->sub_group_size, group, &next);
        assert_int_equal(group[1], 0);
        assert_int_equal(group[2], 1);
        assert_int_equal(r.job.map->findings.n, 0);
        assert_int_equal(s->group.n, 2);
        assert_names(s, 0, "a b c");
        assert_names(s, 1, "d");
        assert_null(s->group.at[0].fields);
        assert_null(s->group.at[0].entry);
        made_end(&r);
    }
}

/* A sub-group of 30 was closed, one was not at 40: no size does that. */
static void size_of_no_sub_groups(void **unused)
{
    (void)unused;
    made_run r;

    made_begin(&r, size_35);
    made_sub_group(&r, 0, 0);
    made_param(&r, "a", &ten);
    made_param(&r, "b", &twenty);
    made_sub_group(&r, 0, 0);
    made_param(&r, "c", &forty);
    made_param(&r, "d", &ten);
    r.layout.n_groups = 1;
    assert_int_equal(ckpt_ds_state_make(&r.job, &r.head, &no_module, &r.layout), CKPT_OK);
    assert_int_equal(r.job.map->states.at[0]->sub_group_size, 0);
    assert_int_equal(r.job.map->findings.n, 1);
    assert_int_equal(r.job.map->findings.at[0].severity, CKPT_WARNING);
    assert_non_null(strstr(r.job.map->findings.at[0].text, "sub_group_size"));
    made_end(&r);
}

/* One sub-group is bigger than the configured size: the default keeps it whole. */
static void size_of_one_sub_group(void **unused)
{
    (void)unused;
    made_run r;

    made_begin(&r, size_35);
    made_sub_group(&r, 0, 0);
    made_param(&r, "a", &forty);
    made_param(&r, "b", &ten);
    r.layout.n_groups = 1;
    assert_int_equal(ckpt_ds_state_make(&r.job, &r.head, &no_module, &r.layout), CKPT_OK);
    assert_int_equal(r.job.map->states.at[0]->sub_group_size, 1000000000);
    made_end(&r);
}

/* A parameter whose group nobody has, and one without a tensor, are failures. */
static void parameters_without_place(void **unused)
{
    (void)unused;
    made_run r;

    made_begin(&r, size_1e9);
    made_sub_group(&r, 1, 0);
    made_param(&r, "a", &ten);
    r.layout.n_groups = 1;
    assert_int_equal(ckpt_ds_state_make(&r.job, &r.head, &no_module, &r.layout), CKPT_EMISMATCH);
    assert_non_null(strstr(r.err.text, "belongs to no group"));
    made_end(&r);

    made_begin(&r, size_1e9);
    made_sub_group(&r, 0, 0);
    made_param(&r, "a", &ten);
    r.layout.params.at[0].name = "z";
    r.layout.n_groups = 1;
    assert_int_equal(ckpt_ds_state_make(&r.job, &r.head, &no_module, &r.layout), CKPT_EFORMAT);
    made_end(&r);
}

/* Every allocation fails once: nothing is lost, nothing crashes. */
static void out_of_memory(void **unused)
{
    (void)unused;
    int rc = CKPT_ELIMIT;

    for (uint64_t n = 0; rc != CKPT_OK && n < 1000; n++) {
        made_run r;
        made_begin(&r, size_1e9);
        made_sub_group(&r, 0, 0);
        made_param(&r, "a", &ten);
        r.layout.n_groups = 1;
        ckpt_alloc_fail_at(n);
        rc = ckpt_ds_state_make(&r.job, &r.head, &no_module, &r.layout);
        ckpt_alloc_fail_at(UINT64_MAX);
        assert_true(rc == CKPT_OK || rc == CKPT_ELIMIT);
        made_end(&r);
    }
    assert_int_equal(rc, CKPT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stage1_groups),         cmocka_unit_test(stage1_legacy),
        cmocka_unit_test(stage1_bf16_optimizer), cmocka_unit_test(stage2_aligned),
        cmocka_unit_test(stage2_empty_param),    cmocka_unit_test(stage2_round_robin),
        cmocka_unit_test(stage1_elastic),        cmocka_unit_test(stage2_muon),
        cmocka_unit_test(stage2_16_bit_states),  cmocka_unit_test(stage3_plain),
        cmocka_unit_test(stage3_sub_groups),     cmocka_unit_test(stage3_old),
        cmocka_unit_test(stage3_without_steps),  cmocka_unit_test(stage0_fused),
        cmocka_unit_test(stage0_plain),          cmocka_unit_test(stage0_groups),
        cmocka_unit_test(size_from_sub_groups),  cmocka_unit_test(size_of_no_sub_groups),
        cmocka_unit_test(size_of_one_sub_group), cmocka_unit_test(parameters_without_place),
        cmocka_unit_test(out_of_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
