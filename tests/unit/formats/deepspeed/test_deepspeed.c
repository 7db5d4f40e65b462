/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_deepspeed.c: DeepSpeed folders: what is understood, what is refused and in which words.
 *
 * Folders are made of links to the shards of small real checkpoints ($CKPT_FIXTURES, or the larger
 * set in $CKPT_SHARED/fixtures); without any the tests are skipped.  Values are compared by
 * tests/golden.
 */
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt_extra.h"
#include "libckpt/base/mem.h"
#include "libckpt/format.h"
#include "tests/unit/unit.h"

enum { MAX_MADE = 128, LONG_PATH = 600 };

extern const ckpt_directory ckpt_directory_deepspeed;

/* What a test has made, removed in reverse order. */
typedef struct scratch {
    char root[LONG_PATH];
    char made[MAX_MADE][LONG_PATH];
    unsigned n;
} scratch;

static char fixtures[PATH_MAX];

/* ---- scratch folders ---- */

static const char *note(scratch *s, const char *name)
{
    assert_true(s->n < MAX_MADE);
    // A copy: the compiler cannot see that the two fields are apart.
    char *path = s->made[s->n++], root[LONG_PATH];
    memcpy(root, s->root, sizeof root);
    assert_true(snprintf(path, LONG_PATH, "%.250s/%.300s", root, name) < LONG_PATH);
    return path;
}

static int begin(void **state)
{
    const char *tmp = getenv("TMPDIR");
    scratch *s = calloc(1, sizeof *s);

    if (!s)
        return -1;
    snprintf(s->root, sizeof s->root, "%.200s/ckpt-ds-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    *state = s;
    return mkdtemp(s->root) ? 0 : -1;
}

static int end(void **state)
{
    scratch *s = *state;

    while (s->n > 0) {
        s->n--;
        if (unlink(s->made[s->n]) != 0)
            rmdir(s->made[s->n]);
    }
    int rc = rmdir(s->root);
    free(s);
    return rc;
}

static void make_folder(scratch *s, const char *name)
{
    assert_int_equal(mkdir(note(s, name), 0700), 0);
}

static void make_file(scratch *s, const char *name, const char *text)
{
    FILE *f = fopen(note(s, name), "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

/* A link in the scratch folder to a fixture's file or folder. */
static void make_link(scratch *s, const char *name, const char *fixture)
{
    char target[PATH_MAX + LONG_PATH];

    snprintf(target, sizeof target, "%s/%s", fixtures, fixture);
    assert_int_equal(access(target, R_OK), 0);
    assert_int_equal(symlink(target, note(s, name)), 0);
}

/* A tag folder "t" with the shards of a stage-1 run of two ranks. */
static void make_stage1(scratch *s, bool rank1)
{
    make_folder(s, "t");
    make_file(s, "latest", "t\n");
    make_link(s, "t/mp_rank_00_model_states.pt",
              "z1_bf16_w2_fp32acc/ckpt/global_step4/mp_rank_00_model_states.pt");
    make_link(
        s, "t/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
        "z1_bf16_w2_fp32acc/ckpt/global_step4/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt");
    if (rank1)
        make_link(s, "t/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt",
                  "z1_bf16_w2_fp32acc/ckpt/global_step4/"
                  "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt");
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

static ckpt_map *open_fixture(const char *name, const ckpt_open_opts *opts)
{
    char path[PATH_MAX + LONG_PATH];

    snprintf(path, sizeof path, "%s/%s", fixtures, name);
    return open_fine(path, opts);
}

/* Opening fails with this code, and says both words. */
static void open_fails(const char *path, const ckpt_open_opts *opts, int code, const char *word,
                       const char *other)
{
    ckpt_err err = {0};
    ckpt_map *map = NULL;
    int rc = ckpt_open(&map, path, opts, &err);

    if (rc != code || !strstr(err.text, word) || !strstr(err.text, other))
        print_error("code %d: %s\n", rc, err.text);
    assert_int_equal(rc, code);
    assert_null(map);
    assert_non_null(strstr(err.text, word));
    assert_non_null(strstr(err.text, other));
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

/* Findings of a severity. */
static size_t findings(const ckpt_map *map, int severity)
{
    const char *text;
    int got, code;
    size_t n = 0;

    for (size_t i = 0; ckpt_map_finding_at(map, i, &got, &code, &text); i++)
        n += got == severity;
    return n;
}

/* ---- what is understood ---- */

static void test_facts(void **state)
{
    (void)state;
    ckpt_map *map = open_fixture("z3_bf16_w5_odd/ckpt", NULL);

    assert_string_equal(fact(map, "layout"), "ZeRO stage 3");
    assert_string_equal(fact(map, "tag"), "global_step4");
    assert_string_equal(fact(map, "stage"), "3");
    assert_string_equal(fact(map, "world size"), "5");
    assert_string_equal(fact(map, "DeepSpeed version"), "0.19.8");
    assert_string_equal(fact(map, "dtype"), "BF16");
    assert_string_equal(fact(map, "parameter groups"), "1");
    assert_string_equal(fact(map, "step"), "4");
    assert_string_equal(fact(map, "skipped steps"), "0");
    assert_string_equal(fact(map, "optimizer steps"), "4");
    assert_non_null(strstr(ckpt_map_path(map), "/global_step4"));
    assert_int_equal(findings(map, 0) + findings(map, 1) + findings(map, 2), 0);
    ckpt_map_free(map);
}

/* Buffers, then parameters in layout order, then tied names; parts and copies where they should be.
 */
static void test_tensors(void **state)
{
    (void)state;
    ckpt_map *map = open_fixture("z2_bf16_w2_emptyparam/ckpt", NULL);
    const ckpt_tensor *steps = ckpt_map_find(map, "steps"), *empty = ckpt_map_find(map, "void");
    const ckpt_tensor *weight = ckpt_map_find(map, "emb.weight"),
                      *tied = ckpt_map_find(map, "out.weight");

    assert_int_equal(ckpt_map_tensor_count(map), 20);
    assert_ptr_equal(ckpt_map_tensor_at(map, 0), steps);
    assert_int_equal(steps->role, CKPT_ROLE_BUFFER);
    assert_int_equal(steps->dtype, CKPT_I64);
    assert_int_equal(steps->export_dtype, CKPT_DTYPE_NONE);
    assert_int_equal(empty->role, CKPT_ROLE_FROZEN);
    assert_int_equal(empty->n_elems, 0);
    assert_int_equal(empty->n_extents, 0);
    assert_int_equal(weight->role, CKPT_ROLE_WEIGHT);
    assert_int_equal(weight->dtype, CKPT_F32);
    assert_non_null(weight->twin);
    assert_int_equal(weight->twin->dtype, CKPT_BF16);
    assert_ptr_equal(ckpt_map_tensor_at(map, 19), tied);
    assert_ptr_equal(tied->owner, weight);
    assert_int_equal(tied->n_extents, 0);
    ckpt_map_free(map);
}

static void test_no_frozen(void **state)
{
    ckpt_open_opts opts = {.skip_frozen = true};

    (void)state;
    ckpt_map *map = open_fixture("z2_bf16_w2_emptyparam/ckpt", &opts);
    assert_null(ckpt_map_find(map, "void"));
    assert_non_null(ckpt_map_find(map, "emb.weight"));
    assert_int_equal(ckpt_map_tensor_count(map), 19);
    ckpt_map_free(map);
}

/* Extents of stage 3: one per rank that owns elements, ascending, never more than the tensor. */
static void test_partitions(void **state)
{
    (void)state;
    ckpt_map *map = open_fixture("z3_bf16_w5_odd/ckpt", NULL);
    const ckpt_tensor *t = ckpt_map_find(map, "emb.weight"), *one = ckpt_map_find(map, "gate");

    assert_int_equal(t->n_elems, 161);
    assert_int_equal(t->n_extents, 5);
    for (uint32_t i = 0; i < 5; i++) {
        ckpt_box room;
        const ckpt_extent *e = ckpt_extent_of(t, i, &room);
        assert_int_equal(e->ndim, 1);
        assert_int_equal(e->axis[0].start, 33 * i);
        assert_int_equal(e->axis[0].count, i < 4 ? 33 : 29);
        assert_int_equal(e->axis[0].stride, 4);
    }
    assert_null(t->twin);
    assert_int_equal(one->n_extents, 1);
    ckpt_map_free(map);
}

static void test_state(void **state)
{
    ckpt_open_opts opts = {.with_optimizer = true};

    (void)state;
    ckpt_map *plain = open_fixture("z1_bf16_w3_groups/ckpt", NULL);
    ckpt_map *map = open_fixture("z1_bf16_w3_groups/ckpt", &opts);
    const ckpt_tensor *t = ckpt_map_find(map, "exp_avg_sq/wte.weight");
    const ckpt_tensor *of = ckpt_map_find(map, "wte.weight");

    assert_null(ckpt_map_find(plain, "exp_avg_sq/wte.weight"));
    assert_non_null(t);
    assert_int_equal(t->role, CKPT_ROLE_STATE);
    assert_int_equal(t->n_elems, of->n_elems);
    assert_int_equal(ckpt_map_find(map, "step/wte.weight")->n_elems, 1);
    assert_string_equal(fact(map, "parameter groups"), "2");
    // Masters of 28 parameters, two moments and a step count each, one buffer, one tied name.
    assert_int_equal(ckpt_map_tensor_count(map), 28 * 4 + 2);
    ckpt_map_free(map);
    ckpt_map_free(plain);
}

static void test_values(void **state)
{
    (void)state;
    ckpt_map *map = open_fixture("z3_bf16_w5_odd/ckpt", NULL);
    const ckpt_value *model = ckpt_value_get(map->values, "model_states");
    const ckpt_value *optim =
        ckpt_value_get(ckpt_value_get(map->values, "optim_states"), "optimizer_state_dict");
    const ckpt_value *table = ckpt_value_get(ckpt_value_get(model, "module"), "table");
    int64_t n = 0;

    assert_true(ckpt_value_as_int(ckpt_value_get(model, "global_steps"), &n));
    assert_int_equal(n, 4);
    assert_true(ckpt_value_as_int(ckpt_value_get(optim, "partition_count"), &n));
    assert_int_equal(n, 5);
    assert_int_equal(table->kind, CKPT_V_TENSOR);
    // Its storage names a source of this map, of the right size.
    assert_true(table->as.tensor->storage->source < map->sources.n);
    assert_int_equal(map->sources.at[table->as.tensor->storage->source].n_bytes, 36);
    ckpt_map_free(map);
}

/* ---- which folder ---- */

static void test_tags(void **state)
{
    ckpt_open_opts first = {.tag = "first"}, spaces = {.tag = "étape 4 – 最終"},
                   none = {.tag = "last"};
    ckpt_open_opts up = {.tag = "../first"};
    char path[PATH_MAX + LONG_PATH];

    (void)state;
    ckpt_map *map = open_fixture("z1_bf16_w2_tags/ckpt", NULL);
    assert_string_equal(fact(map, "tag"), "global_step2"); // what `latest` says
    ckpt_map_free(map);
    map = open_fixture("z1_bf16_w2_tags/ckpt", &first);
    assert_string_equal(fact(map, "tag"), "first");
    ckpt_map_free(map);
    map = open_fixture("z1_bf16_w2_tags/ckpt", &spaces);
    assert_string_equal(fact(map, "tag"), spaces.tag);
    ckpt_map_free(map);
    map = open_fixture("z1_bf16_w2_tags/ckpt/first/", NULL);
    assert_string_equal(fact(map, "tag"), "first");
    ckpt_map_free(map);
    snprintf(path, sizeof path, "%s/z1_bf16_w2_tags/ckpt", fixtures);
    open_fails(path, &none, CKPT_EMISSING, "first, global_step2", "--tag");
    open_fails(path, &up, CKPT_EUNSAFE, "../first", "plain name");
}

/* A shard stands for its checkpoint when the caller wants the whole. */
static void test_shard(void **state)
{
    ckpt_open_opts whole = {.whole_checkpoint = true};
    char path[PATH_MAX + LONG_PATH];
    ckpt_map *map = NULL;

    (void)state;
    snprintf(path, sizeof path,
             "%s/z1_bf16_w2_tags/ckpt/first/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt",
             fixtures);
    map = open_fine(path, &whole);
    assert_string_equal(fact(map, "tag"), "first");
    ckpt_map_free(map);
    assert_int_equal(ckpt_open(&map, path, NULL, NULL), CKPT_OK);
    assert_string_equal(ckpt_map_format(map), "torch");
    ckpt_map_free(map);
}

static void test_runs(void **state)
{
    scratch *s = *state;

    make_folder(s, "checkpoint-20");
    make_link(s, "checkpoint-20/latest", "z1_bf16_w2_tags/ckpt/latest");
    make_link(s, "checkpoint-20/global_step2", "z1_bf16_w2_tags/ckpt/global_step2");
    make_folder(s, "checkpoint-3");
    make_link(s, "checkpoint-3/latest", "z1_bf16_w2_tags/ckpt/latest");
    make_folder(s, "checkpoint-100"); // did not come to write `latest`
    ckpt_map *map = open_fine(s->root, NULL);
    assert_string_equal(fact(map, "tag"), "global_step2");
    assert_non_null(strstr(ckpt_map_path(map), "checkpoint-20/"));
    assert_int_equal(findings(map, 1), 1);
    ckpt_map_free(map);
}

static void test_latest(void **state)
{
    scratch *s = *state;
    char latest[PATH_MAX + LONG_PATH], big[5000];

    make_folder(s, "t");
    make_link(s, "t/mp_rank_00_model_states.pt",
              "z1_bf16_w2_tags/ckpt/first/mp_rank_00_model_states.pt");
    open_fails(s->root, NULL, CKPT_EMISSING, "tags here: t", "--tag");
    make_file(s, "latest", "");
    open_fails(s->root, NULL, CKPT_EFORMAT, "latest", "empty");
    snprintf(latest, sizeof latest, "%s/latest", s->root);
    memset(big, 'x', sizeof big);
    const char *const text[] = {" \n", "..", "a/t", "/tmp", "gone", NULL};
    const int code[] = {CKPT_EFORMAT, CKPT_EUNSAFE, CKPT_EUNSAFE, CKPT_EUNSAFE, CKPT_EMISSING};
    for (size_t i = 0; text[i]; i++) {
        FILE *f = fopen(latest, "wb");
        assert_non_null(f);
        fputs(text[i], f);
        assert_int_equal(fclose(f), 0);
        open_fails(s->root, NULL, code[i], "latest", "");
    }
    FILE *f = fopen(latest, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(big, 1, sizeof big, f), sizeof big);
    assert_int_equal(fclose(f), 0);
    open_fails(s->root, NULL, CKPT_EFORMAT, "latest", "5000 bytes");
}

/* ---- which layouts are refused ---- */

static void refuse(scratch *s, const char *name, bool is_dir, const char *word)
{
    if (is_dir)
        make_folder(s, name);
    else
        make_file(s, name, "");
    open_fails(s->root, NULL, CKPT_EUNSUPPORTED, word, "give this folder itself");
    s->n--;
    if (unlink(s->made[s->n]) != 0)
        assert_int_equal(rmdir(s->made[s->n]), 0);
}

static void test_refused(void **state)
{
    scratch *s = *state;

    make_stage1(s, true);
    refuse(s, "t/zero", true, "universal");
    ckpt_map *map = open_fine(s->root, NULL);
    assert_int_equal(ckpt_map_tensor_count(map), 4);
    assert_string_equal(fact(map, "layout"), "ZeRO stage 1 (BF16_Optimizer)");
    ckpt_map_free(map);
}

/* ---- ranks ---- */

static void test_missing_rank(void **state)
{
    scratch *s = *state;
    ckpt_open_opts collect = {.collect = true};

    make_stage1(s, false);
    open_fails(s->root, NULL, CKPT_EMISSING, "files of 2 ranks", "only ranks 0 to 0");
    make_link(
        s, "t/bf16_zero_pp_rank_3_mp_rank_00_optim_states.pt",
        "z1_bf16_w2_fp32acc/ckpt/global_step4/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt");
    open_fails(s->root, NULL, CKPT_EMISSING, "missing: the optimizer file of rank 1, 2",
               "did not save");
    ckpt_map *map = open_fine(s->root, &collect);
    assert_int_equal(findings(map, 2), 1);
    assert_int_equal(ckpt_map_tensor_count(map), 0);
    ckpt_map_free(map);
}

static void test_surplus_rank(void **state)
{
    scratch *s = *state;

    make_stage1(s, true);
    make_link(
        s, "t/bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt",
        "z1_bf16_w2_fp32acc/ckpt/global_step4/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt");
    open_fails(s->root, NULL, CKPT_EMISMATCH, "run of 2 ranks", "earlier, larger run");
}

static void test_prefixes(void **state)
{
    scratch *s = *state;

    make_stage1(s, false);
    make_link(
        s, "t/zero_pp_rank_1_mp_rank_00_optim_states.pt",
        "z1_bf16_w2_fp32acc/ckpt/global_step4/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt");
    open_fails(s->root, NULL, CKPT_EMISMATCH, "prefix bf16_", "different runs");
    make_link(
        s, "t/zero_pp_rank_0_mp_rank_00_optim_states.pt",
        "z1_bf16_w2_fp32acc/ckpt/global_step4/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt");
    open_fails(s->root, NULL, CKPT_EMISMATCH, "rank 0 has two", "left behind");
}

/* Rank 1's file under rank 0's name, and the reverse. */
static void test_swapped(void **state)
{
    scratch *s = *state;
    ckpt_open_opts collect = {.collect = true};

    make_folder(s, "t");
    make_file(s, "latest", "t");
    make_link(s, "t/mp_rank_00_model_states.pt",
              "z1_bf16_w2_fp32acc/ckpt/global_step4/mp_rank_00_model_states.pt");
    make_link(
        s, "t/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt",
        "z1_bf16_w2_fp32acc/ckpt/global_step4/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt");
    make_link(
        s, "t/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
        "z1_bf16_w2_fp32acc/ckpt/global_step4/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt");
    open_fails(s->root, NULL, CKPT_EMISMATCH, "param_slice_mappings", "not the shard of rank 0");
    ckpt_map *map = open_fine(s->root, &collect);
    assert_true(findings(map, 2) >= 1);
    assert_int_equal(ckpt_map_tensor_count(map), 0);
    ckpt_map_free(map);
}

/* The same of stage 3, where only the tied names that rank 0 lists show it. */
static void test_swapped_models(void **state)
{
    static const unsigned from[] = {1, 0, 2, 3, 4};
    char made[LONG_PATH], fixture[LONG_PATH];
    scratch *s = *state;

    make_folder(s, "t");
    for (unsigned i = 0; i < sizeof from / sizeof *from; i++) {
        snprintf(made, sizeof made, "t/bf16_zero_pp_rank_%u_mp_rank_00_optim_states.pt", i);
        snprintf(fixture, sizeof fixture, "z3_bf16_w5_odd/ckpt/global_step4/%.100s", made + 2);
        make_link(s, made, fixture);
        snprintf(made, sizeof made, "t/zero_pp_rank_%u_mp_rank_00_model_states.pt", i);
        snprintf(fixture, sizeof fixture,
                 "z3_bf16_w5_odd/ckpt/global_step4/zero_pp_rank_%u_mp_rank_00_model_states.pt",
                 from[i]);
        make_link(s, made, fixture);
    }
    open_fails(s->made[0], NULL, CKPT_EMISMATCH, "shared_params", "not the file of rank 1");
}

static void test_no_model(void **state)
{
    scratch *s = *state;

    make_folder(s, "t");
    make_link(
        s, "t/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
        "z1_bf16_w2_fp32acc/ckpt/global_step4/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt");
    open_fails(s->made[0], NULL, CKPT_EMISSING, "model", "");
}

static void test_no_optim(void **state)
{
    scratch *s = *state;

    make_folder(s, "t");
    make_link(s, "t/mp_rank_00_model_states.pt",
              "z1_bf16_w2_fp32acc/ckpt/global_step4/mp_rank_00_model_states.pt");
    open_fails(s->made[0], NULL, CKPT_EMISSING, "optim_states.pt", "did not save");
}

/* A damaged shard: its own code and name; a collecting reader looks at the others too. */
static void test_damaged(void **state)
{
    scratch *s = *state;
    ckpt_open_opts collect = {.collect = true};

    make_stage1(s, false);
    make_file(s, "t/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt", "PK");
    open_fails(s->root, NULL, CKPT_EFORMAT, "rank_1", "");
    ckpt_map *map = open_fine(s->root, &collect);
    assert_int_equal(findings(map, 2), 1);
    assert_int_equal(ckpt_map_tensor_count(map), 0);
    assert_string_equal(fact(map, "world size"), "2");
    ckpt_map_free(map);
}

/* ---- memory ---- */

/* Every allocation fails once: an error, no crash, nothing leaked (run under a sanitizer). */
static void fail_allocations(const char *name)
{
    ckpt_open_opts opts = {.with_optimizer = true};
    char path[PATH_MAX + LONG_PATH];
    ckpt_map *map = NULL;
    ckpt_err err = {0};
    uint64_t n = 0;
    int rc = CKPT_ELIMIT;

    snprintf(path, sizeof path, "%s/%s", fixtures, name);
    for (; rc != CKPT_OK && n < 100000; n++) {
        err = (ckpt_err){0};
        ckpt_alloc_fail_at(n);
        rc = ckpt_open(&map, path, &opts, &err);
        ckpt_alloc_fail_at(UINT64_MAX);
        if (rc != CKPT_OK) {
            assert_int_equal(rc, CKPT_ELIMIT);
            assert_null(map);
        }
    }
    assert_int_equal(rc, CKPT_OK);
    assert_true(n > 10);
    ckpt_map_free(map);
}

static void test_allocations(void **state)
{
    (void)state;
    fail_allocations("z1_bf16_w2_fp32acc/ckpt");
    fail_allocations("z3_bf16_w5_odd/ckpt");
    fail_allocations("z0_fp16_w2_fused/ckpt");
    fail_allocations("old0316_z1_fp16_w2/ckpt");
}

/* ---- probing ---- */

static void test_probe(void **state)
{
    const ckpt_entry run[] = {{"latest", false, 12}, {"global_step4", true, 0}};
    const ckpt_entry tag[] = {{"mp_rank_00_model_states.pt", false, 9}};
    const ckpt_entry runs[] = {{"checkpoint-5", true, 0}};
    const ckpt_entry hf[] = {{"config.json", false, 5}, {"model.safetensors", false, 5}};
    ckpt_map *map = NULL;

    (void)state;
    assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
    const ckpt_listing lists[] = {{.folder = "x", .entry = run, .n = 2, .map = map},
                                  {.folder = "x", .entry = tag, .n = 1, .map = map},
                                  {.folder = "x", .entry = runs, .n = 1, .map = map},
                                  {.folder = "x", .entry = hf, .n = 2, .map = map},
                                  {.folder = "x", .map = map}};

    assert_true(ckpt_directory_deepspeed.probe(&lists[0]) >= 90);
    assert_true(ckpt_directory_deepspeed.probe(&lists[1]) >= 90);
    assert_int_equal(ckpt_directory_deepspeed.probe(&lists[2]), 40);
    assert_int_equal(ckpt_directory_deepspeed.probe(&lists[3]), 0);
    assert_int_equal(ckpt_directory_deepspeed.probe(&lists[4]), 0);
    assert_int_equal(ckpt_directory_deepspeed.part("latest"), 2);
    assert_int_equal(ckpt_directory_deepspeed.part("mp_rank_00_model_states.pt"), 1);
    assert_int_equal(ckpt_directory_deepspeed.part("model.safetensors"), 0);
    ckpt_map_free(map);
}

/* Where the small checkpoints are; false: nowhere. */
static bool find_fixtures(void)
{
    const char *own = getenv("CKPT_FIXTURES"), *shared = getenv("CKPT_SHARED");
    char probe[PATH_MAX + 64], here[LONG_PATH];

    // Absolute, because tests make links to it.
    const char *at = own && *own ? own : "tests/fixtures";
    if (at[0] == '/' || !getcwd(here, sizeof here))
        here[0] = '\0';
    snprintf(fixtures, sizeof fixtures, "%.300s%s%.300s", here, here[0] ? "/" : "", at);
    snprintf(probe, sizeof probe, "%s/z1_bf16_w2_fp32acc/ckpt/latest", fixtures);
    if (access(probe, R_OK) == 0)
        return true;
    snprintf(fixtures, sizeof fixtures, "%.500s/fixtures", shared ? shared : "");
    snprintf(probe, sizeof probe, "%s/z1_bf16_w2_fp32acc/ckpt/latest", fixtures);
    return access(probe, R_OK) == 0;
}

int main(void)
{
    const struct CMUnitTest without[] = {cmocka_unit_test(test_probe)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_probe),
        cmocka_unit_test(test_facts),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_no_frozen),
        cmocka_unit_test(test_partitions),
        cmocka_unit_test(test_state),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_tags),
        cmocka_unit_test(test_shard),
        cmocka_unit_test_setup_teardown(test_runs, begin, end),
        cmocka_unit_test_setup_teardown(test_latest, begin, end),
        cmocka_unit_test_setup_teardown(test_refused, begin, end),
        cmocka_unit_test_setup_teardown(test_missing_rank, begin, end),
        cmocka_unit_test_setup_teardown(test_surplus_rank, begin, end),
        cmocka_unit_test_setup_teardown(test_prefixes, begin, end),
        cmocka_unit_test_setup_teardown(test_swapped, begin, end),
        cmocka_unit_test_setup_teardown(test_swapped_models, begin, end),
        cmocka_unit_test_setup_teardown(test_no_model, begin, end),
        cmocka_unit_test_setup_teardown(test_no_optim, begin, end),
        cmocka_unit_test_setup_teardown(test_damaged, begin, end),
        cmocka_unit_test(test_allocations),
    };

    if (!find_fixtures())
        return cmocka_run_group_tests(without, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
