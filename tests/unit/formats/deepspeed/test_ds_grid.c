/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_ds_grid.c: tensor-parallel, pipeline and expert-parallel folders: what is understood, what
 * is refused and in which words, and the training state of each.
 *
 * Folders are made of links to the files of small real checkpoints ($CKPT_FIXTURES); without them
 * the tests are skipped.  Values are compared by tests/golden/compare_grid.py.
 */
#include <dirent.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt_extra.h"
#include "libckpt/base/mem.h"
#include "libckpt/format.h"
#include "libckpt/map/map.h"
#include "libckpt/map/state.h"
#include "tests/unit/unit.h"

enum { LONG_PATH = 600 };

static const char tp[] = "tp2_z1_w4/ckpt/global_step4", pipe0[] = "pipe2_z0_w2/ckpt/global_step4",
                  pipe1[] = "pipe2_z1_w4_tied/ckpt/global_step3",
                  both[] = "tp2_pp2_z1_w4/ckpt/global_step3",
                  moe2[] = "moe_ep2_z2_w2/ckpt/global_step4",
                  moe0[] = "moe_ep2_z0_w2/ckpt/global_step4",
                  moe4[] = "moe_ep2_z1_w4/ckpt/global_step3";

/* A folder of links, removed at the end. */
typedef struct scratch {
    char root[LONG_PATH];
} scratch;

static char fixtures[PATH_MAX];

/* ---- scratch folders ---- */

static int begin(void **state)
{
    const char *tmp = getenv("TMPDIR");
    scratch *s = calloc(1, sizeof *s);

    if (!s)
        return -1;
    snprintf(s->root, sizeof s->root, "%.200s/ckpt-grid-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    *state = s;
    return mkdtemp(s->root) ? 0 : -1;
}

/* Links are removed, not what they lead to. */
static int remove_tree(const char *path)
{
    struct dirent *e;
    DIR *d = opendir(path);

    while (d && (e = readdir(d))) {
        char below[PATH_MAX];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        snprintf(below, sizeof below, "%.600s/%.256s", path, e->d_name);
        if (unlink(below) != 0)
            remove_tree(below);
    }
    if (d)
        closedir(d);
    return rmdir(path);
}

static int end(void **state)
{
    scratch *s = *state;

    int rc = remove_tree(s->root);
    free(s);
    return rc;
}

static void make_link(const scratch *s, const char *name, const char *target)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%.600s/%.300s", s->root, name);
    assert_int_equal(access(target, R_OK), 0);
    assert_int_equal(symlink(target, path), 0);
}

static void link_as(scratch *s, const char *name, const char *tag, const char *file)
{
    char target[PATH_MAX + LONG_PATH];

    snprintf(target, sizeof target, "%s/%s/%s", fixtures, tag, file);
    make_link(s, name, target);
}

/* All files of a tag folder but those whose name contains `without`. */
static void link_tag(scratch *s, const char *tag, const char *without)
{
    char folder[PATH_MAX + LONG_PATH];
    struct dirent *e;
    DIR *d;

    snprintf(folder, sizeof folder, "%s/%s", fixtures, tag);
    d = opendir(folder);
    assert_non_null(d);
    while ((e = readdir(d))) {
        if (strstr(e->d_name, ".pt") && (!without || !strstr(e->d_name, without)))
            link_as(s, e->d_name, tag, e->d_name);
    }
    closedir(d);
}

/* ---- opening ---- */

static ckpt_map *open_fine(const char *path, const ckpt_open_opts *opts)
{
    ckpt_err err = {0};
    ckpt_map *map = NULL;
    int rc = ckpt_open(&map, path, opts, &err);

    if (rc != CKPT_OK)
        print_error("%s\n", err.text);
    assert_int_equal(rc, CKPT_OK);
    assert_string_equal(ckpt_map_format(map), "deepspeed");
    assert_int_equal(ckpt_map_check(map, &err), CKPT_OK);
    return map;
}

static ckpt_map *open_tag(const char *tag, const ckpt_open_opts *opts)
{
    char path[PATH_MAX + LONG_PATH];

    snprintf(path, sizeof path, "%s/%s", fixtures, tag);
    return open_fine(path, opts);
}

/* Findings of a severity whose text holds a word. */
static size_t findings(const ckpt_map *map, int severity, const char *word)
{
    const char *text;
    int got, code;
    size_t n = 0;

    for (size_t i = 0; ckpt_map_finding_at(map, i, &got, &code, &text); i++)
        n += got == severity && strstr(text, word);
    return n;
}

/* Opening the scratch folder fails so; collecting, it is a finding instead. */
static void fails(const scratch *s, int code, const char *word)
{
    const ckpt_open_opts collect = {.collect = true, .with_optimizer = true};
    ckpt_err err = {0};
    ckpt_map *map = NULL;
    int rc = ckpt_open(&map, s->root, NULL, &err);

    if (rc != code || !strstr(err.text, word))
        print_error("code %d: %s\n", rc, err.text);
    assert_int_equal(rc, code);
    assert_non_null(strstr(err.text, word));
    assert_null(map);
    err = (ckpt_err){0};
    assert_int_equal(ckpt_open(&map, s->root, &collect, &err), CKPT_OK);
    assert_true(findings(map, CKPT_ERROR, word) > 0);
    assert_int_equal(ckpt_map_tensor_count(map), 0);
    ckpt_map_free(map);
}

static const char *fact(const ckpt_map *map, const char *key)
{
    const char *k, *text;
    bool is_number;

    for (size_t i = 0; ckpt_map_fact_at(map, i, &k, &text, &is_number); i++) {
        if (strcmp(k, key) == 0)
            return text;
    }
    return "";
}

/* ---- tensor parallel ---- */

static void test_joined(void **state)
{
    const ckpt_open_opts opts = {.with_optimizer = true};
    ckpt_map *map = open_tag(tp, &opts);
    const ckpt_tensor *emb = ckpt_map_find(map, "emb.weight"),
                      *ln = ckpt_map_find(map, "ln.weight");

    (void)state;
    assert_string_equal(fact(map, "tensor parallel"), "2");
    assert_string_equal(fact(map, "pipeline parallel"), "");
    assert_string_equal(fact(map, "world size"), "2");
    assert_int_equal(emb->shape[0], 29); // the vocabulary's padding to 32 is gone
    assert_int_equal(ckpt_map_find(map, "proj.weight")->shape[1], 12);
    assert_int_equal(ckpt_map_find(map, "exp_avg/gu.weight")->shape[0], 20);
    // Replicated: the other rank's masters, then both 16-bit copies.
    assert_int_equal(ln->twin->dtype, CKPT_F32);
    assert_int_equal(ln->twin->twin->dtype, CKPT_F16);
    assert_int_equal(ln->twin->twin->twin->dtype, CKPT_F16);
    assert_null(ln->twin->twin->twin->twin);
    assert_int_equal(map->states.n, 1);
    const ckpt_state *s = map->states.at[0];
    assert_string_equal(s->prefix, "");
    assert_int_equal(s->param.n, 9);
    assert_int_equal(s->group.n, 2);
    assert_int_equal(s->group.at[0].n, 5);
    assert_int_equal(s->group.at[1].first, 5);
    assert_ptr_equal(s->param.at[0], emb);
    assert_non_null(s->group.at[1].fields);
    assert_non_null(ckpt_state_moment(map, s, "exp_avg_sq", ln));
    assert_string_equal(s->version, "0.19.8");
    assert_int_equal(s->dtype, CKPT_F16);
    assert_non_null(ckpt_value_get(ckpt_value_get(map->values, "mp_rank_01"), "optim_states"));
    ckpt_map_free(map);
}

static void test_kept(void **state)
{
    const ckpt_open_opts opts = {.with_optimizer = true, .keep_slices = true};
    ckpt_map *map = open_tag(tp, &opts);
    const ckpt_tensor *t = ckpt_map_find(map, "mp_rank_01/fc.weight");

    (void)state;
    assert_non_null(t);
    assert_int_equal(t->shape[0], 6);
    assert_non_null(ckpt_map_find(map, "mp_rank_00/exp_avg/fc.weight"));
    assert_null(ckpt_map_find(map, "fc.weight"));
    assert_int_equal(map->states.n, 2);
    const ckpt_state *s = map->states.at[1];
    assert_string_equal(s->prefix, "mp_rank_01/");
    assert_int_equal(s->mp, 1);
    assert_ptr_equal(s->param.at[1], t);
    assert_ptr_equal(ckpt_state_moment(map, s, "exp_avg", t),
                     ckpt_map_find(map, "mp_rank_01/exp_avg/fc.weight"));
    ckpt_map_free(map);
}

/* Rules of the user have the last word; what they do not fit is an error. */
static void test_rules(void **state)
{
    const ckpt_open_opts all = {.slice_rules = "{\"universal_checkpoint_version\": 0.2}"};
    const ckpt_open_opts wrong = {.slice_rules =
                                      "{\"parameter_with_row_parallelism_patterns\": [\"ln\"]}"};
    char path[PATH_MAX + LONG_PATH];
    ckpt_map *map = open_tag(tp, &all);
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(ckpt_map_find(map, "emb.weight")->shape[0], 32);
    assert_int_equal(ckpt_map_find(map, "ln.weight")->shape[0], 16);
    ckpt_map_free(map);
    snprintf(path, sizeof path, "%s/%s", fixtures, tp);
    assert_int_equal(ckpt_open(&map, path, &wrong, &err), CKPT_EMISMATCH);
    assert_non_null(strstr(err.text, "ln.weight"));
}

static void test_missing_mp(void **state)
{
    link_tag(*state, tp, "mp_rank_01");
    fails(*state, CKPT_EMISSING, "the run had 2 model-parallel");
}

static void test_gap(void **state)
{
    scratch *s = *state;

    link_tag(s, tp, NULL);
    link_as(s, "mp_rank_03_model_states.pt", tp, "mp_rank_01_model_states.pt");
    fails(s, CKPT_EMISSING, "no file of model-parallel rank 02");
}

static void test_surplus_mp(void **state)
{
    scratch *s = *state;

    link_tag(s, tp, NULL);
    link_as(s, "mp_rank_02_model_states.pt", tp, "mp_rank_01_model_states.pt");
    link_as(s, "zero_pp_rank_0_mp_rank_02_optim_states.pt", tp,
            "zero_pp_rank_0_mp_rank_01_optim_states.pt");
    fails(s, CKPT_EMISMATCH, "there are files of 3");
}

/* The last data-parallel rank of one model-parallel rank did not save. */
static void test_short_mp(void **state)
{
    link_tag(*state, tp, "rank_1_mp_rank_01");
    fails(*state, CKPT_EMISSING, "zero_pp_rank_1_mp_rank_01_optim_states.pt");
}

static void test_no_model(void **state)
{
    link_tag(*state, tp, "mp_rank_01_model");
    fails(*state, CKPT_EMISSING, "mp_rank_01_model_states.pt");
}

/* A rank's files are another run's: names or shapes do not fit. */
static void test_foreign(void **state)
{
    scratch *s = *state;

    link_tag(s, tp, "mp_rank_01_model");
    link_as(s, "mp_rank_01_model_states.pt", pipe0, "mp_rank_01_model_states.pt");
    fails(s, CKPT_EMISSING, "module is None");
}

/* ---- pipelines ---- */

static void test_stages(void **state)
{
    const ckpt_open_opts opts = {.with_optimizer = true};
    ckpt_map *map = open_tag(pipe0, &opts);
    const ckpt_tensor *tied = ckpt_map_find(map, "0.weight");

    (void)state;
    assert_string_equal(fact(map, "pipeline parallel"), "2");
    assert_string_equal(fact(map, "tensor parallel"), "");
    // The first stage's masters, the second's, and the layer's file as both have it.
    assert_int_equal(tied->dtype, CKPT_F32);
    assert_int_equal(tied->twin->dtype, CKPT_F32);
    assert_int_equal(tied->twin->twin->dtype, CKPT_F16);
    assert_null(ckpt_map_find(map, "0.weight (part 1)"));
    assert_int_equal(map->states.n, 1);
    assert_int_equal(map->states.at[0]->group.n, 1);
    assert_int_equal(map->states.at[0]->param.n, 21); // the tied one once
    assert_non_null(ckpt_value_get(ckpt_value_get(map->values, "mp_rank_01"), "model_states"));
    ckpt_map_free(map);
}

/*
 * With ZeRO a tied layer has a name of its own, which the first stage's file of the layer lacks;
 * and a layer without parameters (dropout) has a file without entries.
 */
static void test_tied_stages(void **state)
{
    const ckpt_open_opts opts = {.with_optimizer = true};
    ckpt_map *map = open_tag(pipe1, &opts);
    const ckpt_tensor *tied = ckpt_map_find(map, "tied_modules.embed.weight");

    (void)state;
    assert_int_equal(findings(map, CKPT_WARNING, ""), 0);
    assert_int_equal(tied->role, CKPT_ROLE_WEIGHT);
    assert_int_equal(tied->twin->dtype, CKPT_F32);
    assert_int_equal(tied->twin->twin->dtype, CKPT_BF16);
    assert_null(tied->twin->twin->twin);
    assert_int_equal(ckpt_map_find(map, "tied_modules.embed.buf")->role, CKPT_ROLE_BUFFER);
    assert_null(ckpt_map_find(map, "0.weight"));
    assert_non_null(ckpt_map_find(map, "exp_avg/tied_modules.embed.weight")->twin);
    assert_int_equal(map->states.at[0]->param.n, 11);
    ckpt_map_free(map);
}

/*
 * A run without ZeRO rewritten with it: param_shapes of the second stage then name the tied layer
 * by its number, which is the first stage's.
 */
static void test_rewritten(void **state)
{
    const ckpt_open_opts opts = {.with_optimizer = true, .keep_slices = true};
    const scratch *s = *state;
    const ckpt_target target = {.format = "zero", .path = s->root, .world = 3};
    ckpt_map *map = open_tag(pipe0, &opts);
    ckpt_run_report report = {0};
    ckpt_err err = {0};

    int rc = ckpt_convert(map, &target, NULL, &report, &err);
    if (rc != CKPT_OK)
        print_error("%s\n", err.text);
    assert_int_equal(rc, CKPT_OK);
    ckpt_map_free(map);
    map = open_fine(s->root, NULL);
    assert_string_equal(fact(map, "world size"), "3");
    assert_int_equal(ckpt_map_find(map, "0.weight")->twin->dtype, CKPT_F32);
    assert_int_equal(ckpt_map_find(map, "0.weight")->role, CKPT_ROLE_WEIGHT);
    ckpt_map_free(map);
    assert_int_equal(ckpt_verify(s->root, NULL, &report, &err), CKPT_OK);
}

/* Rank 2 of four is the first slice of the second stage; means are of the slices of one stage. */
static void test_stages_of_slices(void **state)
{
    const ckpt_open_opts joined = {.with_optimizer = true}, kept = {.keep_slices = true};
    ckpt_map *map = open_tag(both, &joined);
    const ckpt_tensor *t = ckpt_map_find(map, "2.b.weight");

    (void)state;
    assert_string_equal(fact(map, "tensor parallel"), "2");
    assert_string_equal(fact(map, "pipeline parallel"), "2");
    assert_int_equal(t->shape[1], 28);
    for (uint32_t i = 0; i < t->n_extents; i++) {
        const ckpt_source *source = &map->sources.at[t->extent[i].source];
        const char *path = ckpt_map_file_path(map, source->file);
        assert_true(strstr(path, "mp_rank_02_optim") || strstr(path, "mp_rank_03_optim"));
    }
    assert_non_null(ckpt_map_find(map, "1.b.bias")->addend);
    assert_non_null(ckpt_map_find(map, "exp_avg/1.b.bias")->addend);
    assert_int_equal(map->states.n, 1);
    assert_int_equal(map->states.at[0]->param.n, 11);
    assert_string_equal(map->states.at[0]->param.at[10]->name, "3.bias");
    ckpt_map_free(map);
    map = open_tag(both, &kept);
    assert_int_equal(ckpt_map_find(map, "mp_rank_02/2.b.weight")->shape[1], 14);
    assert_null(ckpt_map_find(map, "mp_rank_01/2.b.weight"));
    ckpt_map_free(map);
}

/* One tensor-parallel rank has no file of a layer. */
static void test_missing_slice(void **state)
{
    link_tag(*state, both, "layer_02-model_01");
    fails(*state, CKPT_EMISSING, "no file of a layer holds 2.a.weight");
}

static void test_missing_trained_layer(void **state)
{
    link_tag(*state, pipe1, "layer_03");
    fails(*state, CKPT_EMISSING, "no file of a layer holds 3.a.weight");
}

static void test_missing_layer(void **state)
{
    const ckpt_open_opts opts = {.with_optimizer = true};
    scratch *s = *state;

    // Without ZeRO nothing names the layers: one that is gone shows in the number of masters.
    link_tag(s, pipe0, "layer_03");
    ckpt_map *map = open_fine(s->root, &opts);
    assert_int_equal(findings(map, CKPT_WARNING, "a layer_*-model_states.pt is missing"), 1);
    assert_null(ckpt_map_find(map, "exp_avg/0.weight"));
    assert_int_equal(ckpt_map_find(map, "0.weight")->dtype, CKPT_F16);
    ckpt_map_free(map);
}

static void test_no_layers(void **state)
{
    link_tag(*state, pipe0, "layer_");
    fails(*state, CKPT_EMISSING, "no layer_*-model_states.pt");
}

static void test_missing_stage(void **state)
{
    link_tag(*state, pipe0, "mp_rank_01");
    fails(*state, CKPT_EMISSING, "the run had 2 model-parallel");
}

/* Files of layers beside a model file that holds everything. */
static void test_stale_layer(void **state)
{
    scratch *s = *state;

    link_tag(s, tp, NULL);
    link_as(s, "layer_00-model_states.pt", pipe0, "layer_00-model_states.pt");
    fails(s, CKPT_EMISMATCH, "files of pipeline layers");
}

/* ---- experts ---- */

static void test_experts(void **state)
{
    static const char last[] = "moe.0.deepspeed_moe.experts.deepspeed_experts.3.down.bias";
    const ckpt_open_opts opts = {.with_optimizer = true};
    ckpt_map *map = open_tag(moe2, &opts);
    const ckpt_state *s = map->states.at[0];

    (void)state;
    assert_string_equal(fact(map, "expert parallel"), "2");
    assert_int_equal(map->states.n, 1);
    assert_int_equal(s->group.n, 2);
    assert_int_equal(s->group.at[0].n_lanes, 1);
    assert_int_equal(s->group.at[1].n_lanes, 2);
    assert_int_equal(s->group.at[1].n, 8);
    assert_int_equal(s->param.n, 5 + 16);
    assert_string_equal(s->param.at[20]->name, last);
    assert_int_equal(ckpt_map_find(map, last)->twin->dtype, CKPT_BF16);
    ckpt_map_free(map);
}

/* Two ranks share each expert, and several layers have experts. */
static void test_experts_shared(void **state)
{
    static const char last[] = "m.1.deepspeed_moe.experts.deepspeed_experts.3.b.bias";
    ckpt_map *map = open_tag(moe4, NULL);
    const ckpt_tensor *t =
        ckpt_map_find(map, "m.0.deepspeed_moe.experts.deepspeed_experts.2.a.weight");

    (void)state;
    assert_string_equal(fact(map, "expert parallel"), "2");
    assert_non_null(ckpt_map_find(map, last));
    // Lane 1 is ranks 1 and 3: its first expert begins in rank 1's file.
    const ckpt_source *source = &map->sources.at[t->extent[0].source];
    assert_non_null(strstr(ckpt_map_file_path(map, source->file), "zero_pp_rank_1_"));
    source = &map->sources.at[ckpt_map_find(map, last)->extent[0].source];
    assert_non_null(strstr(ckpt_map_file_path(map, source->file), "zero_pp_rank_3_"));
    ckpt_map_free(map);
}

/* A file that two expert-parallel parts have read is listed once. */
static void test_files_once(void **state)
{
    ckpt_map *map = open_tag(moe0, NULL);

    (void)state;
    assert_int_equal(ckpt_map_file_count(map), 5);
    ckpt_map_free(map);
}

/* Every copy equals its master bit for bit: experts', layers', and those of other ranks. */
static void test_verified(void **state)
{
    const char *const tag[] = {tp, pipe0, pipe1, both, moe2, moe0, moe4};
    char path[PATH_MAX + LONG_PATH];

    (void)state;
    for (size_t i = 0; i < sizeof tag / sizeof *tag; i++) {
        ckpt_run_report report = {0};
        ckpt_err err = {0};
        snprintf(path, sizeof path, "%s/%s", fixtures, tag[i]);
        int rc = ckpt_verify(path, NULL, &report, &err);
        if (rc != CKPT_OK)
            print_error("%s: %s\n", path, err.text);
        assert_int_equal(rc, CKPT_OK);
        assert_true(report.n_compared > 0);
    }
}

/* Without ZeRO each expert-parallel rank has an optimizer of its own; what is no expert is in all
 * of them. */
static void test_experts_whole(void **state)
{
    static const char other[] = "exp_avg/moe.0.deepspeed_moe.experts.deepspeed_experts.1.up.weight";
    const ckpt_open_opts opts = {.with_optimizer = true};
    ckpt_map *map = open_tag(moe0, &opts);
    const ckpt_state *s = map->states.at[0];

    (void)state;
    assert_string_equal(fact(map, "expert parallel"), "2");
    assert_non_null(ckpt_map_find(map, other));
    assert_null(ckpt_map_find(map, "dense.weight")->twin);
    assert_non_null(ckpt_map_find(map, "exp_avg/dense.weight")->twin);
    assert_int_equal(s->group.n, 2);
    assert_int_equal(s->group.at[0].n_lanes, 1);
    assert_int_equal(s->group.at[1].n_lanes, 2);
    assert_int_equal(s->group.at[1].n, 4);
    assert_non_null(ckpt_value_get(map->values, "model_states"));
    ckpt_map_free(map);
}

static void test_missing_expert(void **state)
{
    link_tag(*state, moe2, "expert_2");
    fails(*state, CKPT_EMISSING, "the file of expert 2");
}

static void test_missing_last_expert(void **state)
{
    link_tag(*state, moe2, "expert_3");
    fails(*state, CKPT_EMISSING, "the file of expert 3");
}

static void test_surplus_expert(void **state)
{
    scratch *s = *state;

    link_tag(s, moe2, NULL);
    link_as(s, "layer_0_expert_4_mp_rank_00_model_states.pt", moe2,
            "layer_0_expert_3_mp_rank_00_model_states.pt");
    fails(s, CKPT_EMISMATCH, "expert 4 of a layer with only 4 experts");
}

static void test_no_experts(void **state)
{
    link_tag(*state, moe2, "_expert_");
    fails(*state, CKPT_EMISSING, "needs the files of its experts");
}

/* An expert under another's number. */
static void test_swapped_expert(void **state)
{
    scratch *s = *state;

    link_tag(s, moe2, "expert_1");
    link_as(s, "layer_0_expert_1_mp_rank_00_model_states.pt", moe2,
            "layer_0_expert_2_mp_rank_00_model_states.pt");
    fails(s, CKPT_EMISMATCH, "not a parameter of expert 1");
}

/* Experts of another run beside one that has none. */
static void test_stale_expert(void **state)
{
    scratch *s = *state;

    link_tag(s, tp, NULL);
    link_as(s, "layer_0_expert_0_mp_rank_00_model_states.pt", moe2,
            "layer_0_expert_0_mp_rank_00_model_states.pt");
    fails(s, CKPT_EMISMATCH, "num_experts");
}

static void test_missing_expp(void **state)
{
    scratch *s = *state;

    link_tag(s, moe0, "expp_rank_0");
    fails(s, CKPT_EMISSING, "expp_rank_0_");
}

static void test_missing_last_expp(void **state)
{
    scratch *s = *state;

    link_tag(s, moe0, "expp_rank_1");
    fails(s, CKPT_EMISSING, "the run had 2 expert-parallel ranks");
}

static void test_stale_expp(void **state)
{
    scratch *s = *state;

    link_tag(s, moe2, NULL);
    link_as(s, "expp_rank_0_mp_rank_00_optim_states.pt", moe0,
            "expp_rank_0_mp_rank_00_optim_states.pt");
    fails(s, CKPT_EMISMATCH, "beside it are optimizer files of ZeRO");
}

/* ---- memory ---- */

/* Every allocation fails once: no crash, no leak, and the one error. */
static void fail_allocations(const char *tag, const ckpt_open_opts *opts)
{
    char path[PATH_MAX + LONG_PATH];
    int rc = CKPT_ELIMIT;

    snprintf(path, sizeof path, "%s/%s", fixtures, tag);
    // Far into the reading one in a few is enough.
    for (uint64_t n = 0; rc != CKPT_OK; n += n < 64 ? 1 : 7) {
        ckpt_err err = {0};
        ckpt_map *map = NULL;
        ckpt_alloc_fail_at(n);
        rc = ckpt_open(&map, path, opts, &err);
        ckpt_alloc_fail_at(UINT64_MAX);
        if (rc != CKPT_OK && rc != CKPT_ELIMIT)
            print_error("%s: allocation %llu: %s\n", tag, (unsigned long long)n, err.text);
        assert_true(rc == CKPT_OK || rc == CKPT_ELIMIT);
        ckpt_map_free(map);
        assert_true(n < 1000000);
    }
}

static void test_allocations(void **state)
{
    const ckpt_open_opts joined = {.with_optimizer = true},
                         kept = {.with_optimizer = true, .keep_slices = true};

    (void)state;
    fail_allocations(tp, &joined);
    fail_allocations(tp, &kept);
    fail_allocations(pipe0, &joined);
    fail_allocations(pipe1, &joined);
    fail_allocations(moe2, &joined);
    fail_allocations(moe0, &joined);
}

/* Where the small checkpoints are; false: nowhere. */
static bool find_fixtures(void)
{
    const char *own = getenv("CKPT_FIXTURES");
    char probe[PATH_MAX + 64], here[LONG_PATH];
    const char *at = own && *own ? own : "tests/fixtures";

    // Absolute, because tests make links to it.
    if (at[0] == '/' || !getcwd(here, sizeof here))
        here[0] = '\0';
    snprintf(fixtures, sizeof fixtures, "%.300s%s%.300s", here, here[0] ? "/" : "", at);
    snprintf(probe, sizeof probe, "%s/%s", fixtures, tp);
    return access(probe, R_OK) == 0;
}

#define WITH_FOLDER(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_joined),
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_rules),
        WITH_FOLDER(test_missing_mp),
        WITH_FOLDER(test_gap),
        WITH_FOLDER(test_surplus_mp),
        WITH_FOLDER(test_short_mp),
        WITH_FOLDER(test_no_model),
        WITH_FOLDER(test_foreign),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_tied_stages),
        WITH_FOLDER(test_rewritten),
        cmocka_unit_test(test_stages_of_slices),
        WITH_FOLDER(test_missing_slice),
        WITH_FOLDER(test_missing_trained_layer),
        WITH_FOLDER(test_missing_layer),
        WITH_FOLDER(test_no_layers),
        WITH_FOLDER(test_missing_stage),
        WITH_FOLDER(test_stale_layer),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_experts_shared),
        cmocka_unit_test(test_files_once),
        cmocka_unit_test(test_verified),
        cmocka_unit_test(test_experts_whole),
        WITH_FOLDER(test_missing_expert),
        WITH_FOLDER(test_missing_last_expert),
        WITH_FOLDER(test_surplus_expert),
        WITH_FOLDER(test_no_experts),
        WITH_FOLDER(test_swapped_expert),
        WITH_FOLDER(test_stale_expert),
        WITH_FOLDER(test_missing_expp),
        WITH_FOLDER(test_missing_last_expp),
        WITH_FOLDER(test_stale_expp),
        cmocka_unit_test(test_allocations),
    };

    if (!find_fixtures()) {
        fprintf(stderr, "no fixtures: set CKPT_FIXTURES; skipped\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
