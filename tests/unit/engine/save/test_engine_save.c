/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saving and loading runs: every stage and precision, at one world size and back at another; what a
 * failure leaves; what stays of old checkpoints.
 */
#include <time.h>

#include "ckpt.h"
#include "engine/save/same.h"
#include "engine/save/together.h"
#include "libckpt/map/map.h"
#include "libckpt/map/state.h"
#include "tests/unit/engine/save/help.h"
#include "tests/unit/unit.h"

/* ---- values that tell where they are ---- */

/* Element i of column c (0: masters) of a parameter: exact in fp32, not in 16 bits. */
static float value_of(uint32_t param, uint64_t i, unsigned c)
{
    uint32_t x = (uint32_t)(param * 2654435761u + i * 40503u + c * 97u) % 1000003u;

    return c == 2 ? (float)(x + 1) / 1048576.0f : (float)x / 262144.0f - 1.5f;
}

static int first_value(void *ctx, uint32_t param, uint64_t first, uint64_t count, float *out,
                       ckpt_err *err)
{
    (void)ctx;
    (void)err;
    for (uint64_t i = 0; i < count; i++)
        out[i] = value_of(param, first + i, 7);
    return CKPT_OK;
}

/* Every run of every partition: set it, or compare it. */
static int visit(zt_zero *z, bool set, ckpt_err *err)
{
    size_t n = 0, bad = 0;
    const zt_owned *o = zt_zero_owned(z, &n);
    int rc = CKPT_OK;

    for (uint32_t p = 0; rc == CKPT_OK && p < z->n_parts; p++) {
        rc = zt_zero_hold(z, p, err);
        for (size_t k = 0; rc == CKPT_OK && k < n; k++) {
            bool muon = z->group[z->part[p].group].muon;
            for (unsigned c = 0; o[k].partition == p && c <= z->config->optim.n_state; c++) {
                if (c && !zt_optim_state(&z->config->optim, muon, c - 1))
                    continue;
                float *at = (c ? z->part[p].state[c - 1] : z->part[p].master) + o[k].at;
                for (uint64_t i = 0; i < o[k].count; i++) {
                    float v = value_of(o[k].param, o[k].first + i, c);
                    if (set)
                        at[i] = v;
                    bad += memcmp(&at[i], &v, sizeof v) != 0;
                }
            }
        }
        if (rc == CKPT_OK)
            rc = zt_zero_let_go(z, p, set, err);
    }
    return rc == CKPT_OK && bad ? ckpt_fail(err, CKPT_EDIFFERS, "%zu values differ", bad) : rc;
}

/* A run in the middle of its life. */
static int live(zt_zero *z, ckpt_err *err)
{
    int rc = zt_zero_fill(z, first_value, NULL, err);

    if (rc == CKPT_OK)
        rc = visit(z, true, err);
    z->updates = 7;
    z->global_steps = 9;
    z->micro_steps = 9 * z->config->accumulation;
    z->skipped = 2;
    z->global_samples = 1001;
    z->schedule.last = 6;
    for (uint32_t g = 0; g < z->n_groups; g++) {
        z->group[g].hyper.lr = 0.25 + g;
        z->group[g].hyper.beta1 = 0.75;
    }
    if (z->scaler.dynamic) {
        z->scaler.scale = 512;
        z->scaler.iter = 9;
        z->scaler.last_overflow = 8;
        z->scaler.touched = true;
    }
    return rc == CKPT_OK ? zt_zero_refresh(z, err) : rc;
}

static int same(zt_zero *z, ckpt_err *err)
{
    bool bare = z->config->optim.type == ZT_OPT_SGD || z->config->optim.type == ZT_OPT_ADAGRAD;
    int rc = visit(z, false, err);

    if (rc == CKPT_OK && (z->updates != 7 || z->global_steps != 9 || z->skipped != 2))
        rc = ckpt_fail(err, CKPT_EDIFFERS, "%d updates, %d steps, %d skipped", (int)z->updates,
                       (int)z->global_steps, (int)z->skipped);
    if (rc == CKPT_OK && (z->schedule.last != 6 || z->global_samples != 1001))
        rc = ckpt_fail(err, CKPT_EDIFFERS, "schedule at %d", (int)z->schedule.last);
    for (uint32_t g = 0; rc == CKPT_OK && g < z->n_groups; g++) {
        bool betas = !bare && !z->group[g].muon;
        if (z->group[g].hyper.lr != 0.25 + g || (betas && z->group[g].hyper.beta1 != 0.75))
            rc = ckpt_fail(err, CKPT_EDIFFERS, "lr %g, beta %g", z->group[g].hyper.lr,
                           z->group[g].hyper.beta1);
    }
    if (rc == CKPT_OK && z->scaler.dynamic &&
        (z->scaler.scale != 512 || z->scaler.iter != 9 || z->scaler.last_overflow != 8))
        rc = ckpt_fail(err, CKPT_EDIFFERS, "scale %g", z->scaler.scale);
    return rc;
}

/* ---- acts ---- */

typedef struct act {
    const char *path, *tag;
    const char *tensor; /* of each rank's optimizer file */
    bool async, strict, wait_later;
    int64_t keep;
    size_t n_missing;
} act;

static int act_save(zt_zero *z, void *ctx, ckpt_err *err)
{
    const act *a = ctx;
    const zt_save_opts opts = {.dir = a->path, .tag = a->tag, .keep = a->keep, .async = a->async};
    zt_saver *s = NULL;
    int rc = live(z, err);

    if (rc == CKPT_OK)
        rc = zt_saver_new(&s, z, err);
    if (rc == CKPT_OK)
        rc = zt_save(s, &opts, err);
    // What changes now must not be in the files.
    if (rc == CKPT_OK && a->async) {
        rc = zt_zero_fill(z, first_value, NULL, err);
        z->global_steps = 77;
    }
    if (rc == CKPT_OK)
        rc = zt_save_wait(s, err);
    zt_saver_free(s);
    return rc;
}

static int act_load(zt_zero *z, void *ctx, ckpt_err *err)
{
    const act *a = ctx;
    const zt_load_opts opts = {.path = a->path, .tag = a->tag};
    zt_loaded loaded;
    int rc = zt_load(z, &opts, &loaded, err);

    if (rc == CKPT_OK && (!loaded.with_optimizer || strcmp(loaded.tag, "global_step9") != 0))
        rc = ckpt_fail(err, CKPT_EDIFFERS, "tag %s", loaded.tag);
    return rc == CKPT_OK ? same(z, err) : rc;
}

/* The momentum in this rank's own file, beside what it must be. */
static int act_save_wholes(zt_zero *z, void *ctx, ckpt_err *err)
{
    const act *a = ctx;
    const zt_group *g = &z->group[0];
    uint64_t slice = z->part[0].n_elems, from = (uint64_t)z->comm->rank * slice, at = 0, k = 0;
    char path[FOLDER_PATH];
    ckpt_reader *reader = NULL;
    ckpt_map *map = NULL;
    int rc = act_save(z, ctx, err);

    snprintf(path, sizeof path, "%s/global_step9/zero_pp_rank_%d_mp_rank_00_optim_states.pt",
             a->path, z->comm->rank);
    if (rc == CKPT_OK)
        rc = ckpt_open(&map, path, NULL, err);
    if (rc == CKPT_OK)
        rc = ckpt_reader_new(&reader, map, err);
    const ckpt_tensor *t = rc == CKPT_OK ? ckpt_map_find(map, a->tensor) : NULL;
    float *own = calloc(4096, sizeof *own);
    if (rc == CKPT_OK && (!t || !own || t->n_elems > 4096))
        rc = ckpt_fail(err, CKPT_EMISSING, "no %s", a->tensor);
    if (rc == CKPT_OK)
        rc = ckpt_reader_read(reader, t, 0, t->n_elems, CKPT_F32, own, err);
    for (uint32_t i = 0; rc == CKPT_OK && i < g->n; i++) {
        uint32_t param = z->order[g->first + i];
        uint64_t n = z->model->params.at[param].n_elems;
        bool touches = at + n > from && at < from + slice;
        at += n;
        for (uint64_t e = 0; touches && rc == CKPT_OK && e < n; e++, k++) {
            float want = value_of(param, e, 1);
            if (k >= t->n_elems || memcmp(&own[k], &want, sizeof want) != 0)
                rc = ckpt_fail(err, CKPT_EDIFFERS, "element %llu of parameter %u on rank %d",
                               (unsigned long long)e, param, z->comm->rank);
        }
    }
    if (rc == CKPT_OK && k != t->n_elems)
        rc = ckpt_fail(err, CKPT_EDIFFERS, "%llu elements", (unsigned long long)t->n_elems);
    free(own);
    ckpt_reader_free(reader);
    ckpt_map_free(map);
    return rc;
}

/* ---- configurations ---- */

static const char *config_of(int stage, const char *precision, const char *more)
{
    static char text[4][1024];
    static unsigned turn;
    char *out = text[turn++ % 4];

    snprintf(out, sizeof text[0],
             "train_micro_batch_size_per_gpu: 1, gradient_accumulation_steps: 2, %s"
             "zero_optimization: {stage: %d, sub_group_size: 300%s},"
             "scheduler: {type: \"WarmupLR\", params: {warmup_num_steps: 5, warmup_max_lr: 0.1}}",
             precision, stage, more);
    return out;
}

#define ADAMW               "optimizer: {type: \"AdamW\", params: {lr: 0.01, betas: [0.9, 0.95]}},"
#define UNTESTED(optimizer) (optimizer " zero_allow_untested_optimizer: true,")
#define FP16                "fp16: {enabled: true, initial_scale_power: 10},"
#define BF16                "bf16: {enabled: true},"

typedef struct trip {
    int stage, world;
    const char *precision, *more;
    const char *grouping;
    bool async;
} trip;

static save_case case_of(const trip *t, int (*what)(zt_zero *, void *, ckpt_err *), act *a)
{
    return (save_case){.world = t->world,
                       .config = config_of(t->stage, t->precision, t->more ? t->more : ""),
                       .model = save_top,
                       .grouping = t->grouping ? t->grouping : "single",
                       .act = what,
                       .ctx = a};
}

/* The folder of a save, new each time. */
static const char *new_run(void)
{
    static unsigned count;
    char name[32];

    snprintf(name, sizeof name, "run%u", count++);
    return folder_at(save_top, name);
}

static void verify(const char *path)
{
    ckpt_err err = {0};
    ckpt_run_report report;

    if (ckpt_verify(path, NULL, &report, &err) != CKPT_OK)
        fail_msg("%s", err.text);
}

/* Save as one, load as the other. */
static void there_and_back(const trip *from, const trip *to)
{
    char path[FOLDER_PATH];
    act a = {.path = path, .async = from->async};
    save_case run = case_of(from, act_save, &a);

    strcpy(path, new_run());
    save_run_well(&run);
    verify(path);
    run = case_of(to, act_load, &a);
    save_run_well(&run);
    folder_remove(path);
}

/* ---- tests ---- */

static void every_stage_comes_back_at_its_own_world(void **state)
{
    static const char *const precision[] = {ADAMW, ADAMW FP16, ADAMW BF16};

    (void)state;
    for (int stage = 0; stage < 4; stage++) {
        for (unsigned p = 0; p < 3; p++) {
            trip t = {.stage = stage, .world = 2, .precision = precision[p]};
            there_and_back(&t, &t);
        }
    }
}

static void any_world_and_stage_loads_any_other(void **state)
{
    static const trip trips[][2] = {
        {{0, 1, ADAMW, 0, 0, 0}, {3, 3, ADAMW, 0, 0, 0}},
        {{3, 3, ADAMW BF16, 0, 0, 0}, {0, 2, ADAMW BF16, 0, 0, 0}},
        {{1, 4, ADAMW FP16, 0, 0, 0}, {2, 1, ADAMW FP16, 0, 0, 0}},
        {{2, 3, ADAMW BF16, 0, 0, 0}, {3, 2, ADAMW BF16, 0, 0, 0}},
        {{3, 2, ADAMW, 0, "decay", 0}, {1, 3, ADAMW, 0, "decay", 0}},
        {{2, 2, ADAMW, ", round_robin_gradients: true", 0, 0}, {3, 3, ADAMW, 0, 0, 0}},
        {{3, 2, ADAMW, 0, 0, 0}, {2, 3, ADAMW, ", round_robin_gradients: true", 0, 0}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof trips / sizeof *trips; i++)
        there_and_back(&trips[i][0], &trips[i][1]);
}

static void other_optimizers_come_back(void **state)
{
    static const char *const optimizer[] = {
        UNTESTED("optimizer: {type: \"SGD\", params: {lr: 0.01, momentum: 0.9}},"),
        UNTESTED("optimizer: {type: \"Adagrad\", params: {lr: 0.01}},"),
        "optimizer: {type: \"AdamW\", params: {lr: 0.01, torch_adam: true}},",
    };

    (void)state;
    for (size_t i = 0; i < sizeof optimizer / sizeof *optimizer; i++) {
        for (int stage = 0; stage < 4; stage++) {
            trip from = {.stage = stage, .world = 2, .precision = optimizer[i]},
                 to = {.stage = 3 - stage, .world = 3, .precision = optimizer[i]};
            there_and_back(&from, &to);
        }
    }
}

#define MUON_OF(more) "optimizer: {type: \"Muon\", params: {lr: 0.01, betas: [0.9, 0.95]" more "}},"
#define MUON          MUON_OF("")
#define ALL_SUM       ", reduce_scatter: false"
#define ON_HOST       ", offload_optimizer: {device: \"cpu\"}"

static void muon_comes_back_at_any_world_and_stage(void **state)
{
    static const char *const accum = MUON BF16 "data_types: {grad_accum_dtype: \"fp32\"},";
    const trip trips[][2] = {
        {{0, 2, MUON, 0, "decay", 0}, {1, 3, MUON, 0, "decay", 0}},
        {{1, 2, MUON, 0, "decay", 0}, {1, 3, MUON, 0, "decay", 0}},
        {{1, 3, MUON BF16, 0, 0, 0}, {3, 2, MUON BF16, ALL_SUM, 0, 0}},
        {{1, 3, accum, 0, 0, 0}, {2, 2, MUON BF16, 0, 0, 0}},
        {{2, 2, MUON BF16, 0, 0, 0}, {1, 3, accum, 0, 0, 0}},
        {{2, 4, MUON, ", round_robin_gradients: true", "decay", 0}, {2, 1, MUON, 0, "decay", 0}},
        {{2, 3, MUON, ", elastic_checkpoint: true", 0, 1}, {2, 2, MUON, 0, 0, 0}},
        {{2, 2, MUON FP16, ON_HOST, 0, 0}, {2, 3, MUON FP16, 0, 0, 1}},
        {{3, 3, MUON_OF(", torch_adam: true"), ALL_SUM, "decay", 0},
         {2, 2, MUON_OF(", torch_adam: true"), ON_HOST, "decay", 0}},
        {{3, 2, MUON BF16, ALL_SUM, 0, 1}, {0, 2, MUON, 0, 0, 0}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof trips / sizeof *trips; i++)
        there_and_back(&trips[i][0], &trips[i][1]);
}

/* Matrices by size, whole with every rank that has a part of them. */
static void muon_saves_whole_momentum_with_every_rank(void **state)
{
    (void)state;
    for (int stage = 1; stage < 3; stage++) {
        trip t = {.stage = stage, .world = 3, .precision = MUON};
        char path[FOLDER_PATH];
        act a = {.path = path,
                 .tensor = "optimizer_state_dict.base_optimizer_state.state.0.momentum_buffer"};
        save_case run = case_of(&t, act_save_wholes, &a);
        strcpy(path, new_run());
        save_run_well(&run);
        folder_remove(path);
    }
}

/* FusedAdam counts steps in a group's last parameter alone, DeepSpeedCPUAdam in each. */
static void stage_0_saves_the_optimizer_for_the_processor(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        trip t = {.stage = 0, .world = 2, .precision = ADAMW, .more = i ? ON_HOST : 0};
        char path[FOLDER_PATH], file[FOLDER_PATH + 64];
        act a = {.path = path};
        save_case run = case_of(&t, act_save, &a);
        ckpt_map *map = NULL;
        ckpt_err err = {0};
        int64_t step = -1;

        strcpy(path, new_run());
        save_run_well(&run);
        snprintf(file, sizeof file, "%s/global_step9/mp_rank_00_model_states.pt", path);
        assert_int_equal(ckpt_open(&map, file, NULL, &err), CKPT_OK);
        const ckpt_value *optimizer = ckpt_value_get(map->values, "optimizer");
        ckpt_dict states = ckpt_value_map(ckpt_value_get(optimizer, "state"));
        ckpt_seq groups = ckpt_value_seq(ckpt_value_get(optimizer, "param_groups"));
        assert_true(states.n > 1 && groups.n == 1);
        assert_true(ckpt_value_as_int(ckpt_value_get(states.at[0].value, "step"), &step));
        assert_int_equal(step, i ? 7 : 0);
        assert_int_equal(!ckpt_value_get(groups.at[0], "amsgrad"), !i);
        assert_int_equal(!ckpt_value_get(groups.at[0], "step"), i);
        ckpt_map_free(map);
        folder_remove(path);
    }
}

/* Other keys: what one half keeps is not there for the other optimizer. */
static void muon_does_not_go_on_without_its_momentum(void **state)
{
    trip adam = {.stage = 2, .world = 2, .precision = ADAMW},
         muon = {.stage = 2, .world = 2, .precision = MUON};
    const trip *const pair[2][2] = {{&adam, &muon}, {&muon, &adam}};

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        char path[FOLDER_PATH];
        act a = {.path = path};
        save_case run = case_of(pair[i][0], act_save, &a);
        strcpy(path, new_run());
        save_run_well(&run);
        run = case_of(pair[i][1], act_load, &a);
        save_run(&run);
        assert_int_equal(run.rc[0], CKPT_EMISSING);
        assert_non_null(strstr(run.err[0].text, i ? "exp_avg" : "momentum_buffer"));
        folder_remove(path);
    }
}

/*
 * Two blocks alike, one of them frozen: stage 0 does not say whose the states are.  Weights alone
 * are no resume.
 */
static void a_run_whose_state_is_not_known_is_not_resumed(void **state)
{
    trip t = {.stage = 0, .world = 1, .precision = ADAMW};
    char path[FOLDER_PATH];
    act a = {.path = path};
    save_case run = case_of(&t, act_save, &a);

    (void)state;
    strcpy(path, new_run());
    run.freeze = "transformer.h.0.*";
    save_run_well(&run);
    run.act = act_load;
    save_run(&run);
    assert_int_equal(run.rc[0], CKPT_EMISSING);
    assert_non_null(strstr(run.err[0].text, "--module-only"));
    folder_remove(path);
}

static void what_changes_after_an_asynchronous_save_is_not_in_it(void **state)
{
    (void)state;
    for (int stage = 0; stage < 4; stage++) {
        trip t = {.stage = stage, .world = 2, .precision = ADAMW BF16, .async = true};
        there_and_back(&t, &t);
    }
}

/* A file in the way of the staging folder: the writer fails, and with it all. */
static void a_failed_save_fails_everywhere_and_leaves_nothing(void **state)
{
    trip t = {.stage = 2, .world = 3, .precision = ADAMW};
    char path[FOLDER_PATH];
    act a = {.path = path};
    save_case run = case_of(&t, act_save, &a);

    (void)state;
    strcpy(path, new_run());
    assert_int_equal(mkdir(path, 0777), 0);
    folder_text(path, ".global_step9.ckpt-partial", "in the way");
    save_run(&run);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(run.rc[i], CKPT_EIO);
        assert_string_equal(run.err[i].text, run.err[0].text);
    }
    assert_int_equal(access(folder_at(path, "latest"), F_OK), -1);
    assert_int_equal(access(folder_at(path, "global_step9"), F_OK), -1);
    folder_remove(path);
}

static int act_save_series(zt_zero *z, void *ctx, ckpt_err *err)
{
    const act *a = ctx;
    zt_saver *s = NULL;
    int rc = live(z, err);

    if (rc == CKPT_OK)
        rc = zt_saver_new(&s, z, err);
    for (int i = 0; rc == CKPT_OK && i < 5; i++) {
        const zt_save_opts opts = {.dir = a->path, .keep = a->keep};
        const struct timespec nap = {.tv_nsec = 20000000};
        z->global_steps = 9 + i;
        rc = zt_save(s, &opts, err);
        (void)nanosleep(&nap, NULL);
    }
    zt_saver_free(s);
    return rc;
}

static void only_the_newest_stay_and_other_folders_are_left_alone(void **state)
{
    trip t = {.stage = 1, .world = 2, .precision = ADAMW};
    char path[FOLDER_PATH], text[32] = "";
    act a = {.path = path, .keep = 2};
    save_case run = case_of(&t, act_save_series, &a);
    FILE *f;

    (void)state;
    strcpy(path, new_run());
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(mkdir(folder_at(path, "global_step1"), 0777), 0);
    folder_text(folder_at(path, "global_step1"), "notes.txt", "mine");
    assert_int_equal(mkdir(folder_at(path, "best9"), 0777), 0);
    save_run_well(&run);
    for (int i = 9; i < 14; i++) {
        char tag[64];
        snprintf(tag, sizeof tag, "global_step%d", i);
        assert_int_equal(access(folder_at(path, tag), F_OK), i < 12 ? -1 : 0);
        snprintf(tag, sizeof tag, ".global_step%d.ckpt-partial", i);
        assert_int_equal(access(folder_at(path, tag), F_OK), -1);
    }
    assert_int_equal(access(folder_at(path, "global_step1/notes.txt"), F_OK), 0);
    assert_int_equal(access(folder_at(path, "best9"), F_OK), 0);
    f = fopen(folder_at(path, "latest"), "r");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof text, f));
    fclose(f);
    assert_string_equal(text, "global_step13");
    folder_remove(path);
}

/* ---- strictness ---- */

static void names_that_do_not_fit_are_all_told(void **state)
{
    trip t = {.stage = 1, .world = 2, .precision = ADAMW};
    char path[FOLDER_PATH];
    act a = {.path = path};
    save_case run = case_of(&t, act_save, &a);
    char other[FOLDER_PATH], text[1024];

    (void)state;
    strcpy(path, new_run());
    save_run_well(&run);
    // three blocks instead of two: some are missing
    strcpy(other, new_run());
    assert_int_equal(mkdir(other, 0777), 0);
    snprintf(text, sizeof text, "%s", save_gpt2);
    *(strstr(text, "\"n_layer\": 2") + 11) = '3';
    folder_text(other, "config.json", text);
    run = case_of(&t, act_load, &a);
    run.model = other;
    save_run(&run);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(run.rc[i], CKPT_EMISSING);
        assert_non_null(strstr(run.err[i].text, "12 parameters"));
        assert_non_null(strstr(run.err[i].text, "transformer.h.2.ln_1.weight"));
    }
    *(strstr(text, "\"n_layer\": 3") + 11) = '1';
    folder_text(other, "config.json", text);
    save_run(&run);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(run.rc[i], CKPT_EMISMATCH);
        assert_non_null(strstr(run.err[i].text, "transformer.h.1.ln_1.weight"));
    }
    *(strstr(text, "\"n_embd\": 6") + 10) = '4';
    folder_text(other, "config.json", text);
    save_run(&run);
    assert_int_equal(run.rc[0], CKPT_EMISMATCH);
    assert_non_null(strstr(run.err[0].text, "expects"));
    folder_remove(path);
    folder_remove(other);
}

/* ---- weights alone ---- */

static int act_weights(zt_zero *z, void *ctx, ckpt_err *err)
{
    const act *a = ctx;
    zt_saver *s = NULL;
    int rc = live(z, err);

    if (rc == CKPT_OK)
        rc = zt_saver_new(&s, z, err);
    if (rc == CKPT_OK)
        rc = zt_save_weights(
            s,
            &(zt_weights_opts){
                .path = a->path, .low = a->tag != NULL, .force = true, .folder = save_top},
            err);
    zt_saver_free(s);
    return rc;
}

/* Masters as a start rounds them. */
static int act_initial(zt_zero *z, void *ctx, ckpt_err *err)
{
    act *a = ctx;
    zt_lacking lacking;
    int rc = zt_load_initial(z, a->path, a->strict, &lacking, err);

    a->n_missing = lacking.n_missing;
    size_t n = 0, bad = 0;
    const zt_owned *o = zt_zero_owned(z, &n);

    for (size_t k = 0; rc == CKPT_OK && k < n; k++) {
        rc = zt_zero_hold(z, o[k].partition, err);
        for (uint64_t i = 0; rc == CKPT_OK && i < o[k].count; i++)
            bad += z->part[o[k].partition].master[o[k].at + i] !=
                   value_of(o[k].param, o[k].first + i, 0);
        if (rc == CKPT_OK)
            rc = zt_zero_let_go(z, o[k].partition, false, err);
    }
    return rc == CKPT_OK && bad ? ckpt_fail(err, CKPT_EDIFFERS, "%zu values differ", bad) : rc;
}

static void weights_go_out_as_files_and_folders(void **state)
{
    static const char *const to[] = {"w.safetensors", "hf/"};

    (void)state;
    for (int stage = 0; stage < 4; stage++) {
        for (unsigned i = 0; i < 2; i++) {
            trip t = {.stage = stage, .world = 3, .precision = ADAMW};
            char path[FOLDER_PATH];
            act a = {.path = path, .strict = true};
            save_case run = case_of(&t, act_weights, &a);
            strcpy(path, folder_at(save_top, to[i]));
            save_run_well(&run);
            t.stage = 3 - stage;
            t.world = 2;
            run = case_of(&t, act_initial, &a);
            save_run_well(&run);
            assert_int_equal(a.n_missing, 0);
            if (i == 0)
                assert_int_equal(unlink(path), 0);
        }
    }
    // the folder is a model folder by itself
    {
        trip t = {.stage = 1, .world = 1, .precision = ADAMW};
        act a = {.path = folder_at(save_top, "hf"), .strict = true};
        save_case run = case_of(&t, act_initial, &a);
        char model[FOLDER_PATH];
        strcpy(model, folder_at(save_top, "hf"));
        run.model = model;
        save_run_well(&run);
    }
}

/* ---- frozen parameters ---- */

static void frozen_parameters_come_along(void **state)
{
    (void)state;
    for (int stage = 0; stage < 4; stage++) {
        trip t = {.stage = stage, .world = 2, .precision = ADAMW BF16};
        char path[FOLDER_PATH];
        act a = {.path = path};
        save_case run = case_of(&t, act_save, &a);
        strcpy(path, new_run());
        run.freeze = "transformer.wte*,*.ln_1.*";
        save_run_well(&run);
        run.act = act_load;
        save_run_well(&run);
        folder_remove(path);
    }
}

/* ---- adapters ---- */

static void adapters_go_out_as_peft_folders(void **state)
{
    static const zt_lora lora = {.rank = 2, .alpha = 4, .targets = "c_attn"};

    (void)state;
    for (int stage = 1; stage < 4; stage++) {
        trip t = {.stage = stage, .world = 2, .precision = ADAMW BF16};
        char path[FOLDER_PATH], folder[FOLDER_PATH];
        act a = {.path = path};
        save_case run = case_of(&t, act_save, &a);
        ckpt_map *map = NULL;
        ckpt_err err = {0};
        strcpy(path, new_run());
        run.lora = &lora;
        save_run_well(&run);
        run.act = act_load;
        save_run_well(&run);
        folder_remove(path);
        run.act = act_weights;
        strcpy(folder, path);
        strcat(path, "/");
        save_run_well(&run);
        assert_int_equal(access(folder_at(folder, "adapter_config.json"), F_OK), 0);
        assert_int_equal(access(folder_at(folder, "config.json"), F_OK), -1);
        assert_int_equal(
            ckpt_open(&map, folder_at(folder, "adapter_model.safetensors"), NULL, &err), CKPT_OK);
        assert_int_equal(ckpt_map_tensor_count(map), 4); // two blocks, A and B
        for (size_t i = 0; i < 4; i++) {
            const ckpt_tensor *x = ckpt_map_tensor_at(map, i);
            assert_int_equal(strncmp(x->name, "base_model.model.transformer.h.", 31), 0);
            assert_int_equal(x->dtype, CKPT_F32);
        }
        ckpt_map_free(map);
        folder_remove(folder);
    }
}

/* ---- nodes without a common disk ---- */

typedef struct nodes {
    char path[2][FOLDER_PATH]; /* of each node */
    bool load;
} nodes;

/* Ranks 0 and 1 are one node, 2 and 3 the other. */
static int act_nodes(zt_zero *z, void *ctx, ckpt_err *err)
{
    const nodes *n = ctx;
    act a = {.path = n->path[z->comm->rank / 2]};

    z->comm->local_rank = z->comm->rank % 2;
    z->comm->local_world = 2;
    z->comm->host = z->comm->rank < 2 ? "here" : "there";
    return act_save(z, &a, err);
}

static void every_node_has_its_files_and_the_models(void **state)
{
    trip t = {.stage = 2,
              .world = 4,
              .precision = ADAMW BF16 "checkpoint: {use_node_local_storage: true},"};
    nodes n = {0};
    save_case run = case_of(&t, act_nodes, NULL);

    (void)state;
    run.ctx = &n;
    strcpy(n.path[0], new_run());
    strcpy(n.path[1], new_run());
    save_run_well(&run);
    for (int i = 0; i < 4; i++) {
        char name[96];
        snprintf(name, sizeof name, "global_step9/bf16_zero_pp_rank_%d_mp_rank_00_optim_states.pt",
                 i);
        assert_int_equal(access(folder_at(n.path[i / 2], name), F_OK), 0);
        assert_int_equal(access(folder_at(n.path[1 - i / 2], name), F_OK), -1);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            access(folder_at(n.path[i], "global_step9/mp_rank_00_model_states.pt"), F_OK), 0);
        assert_int_equal(access(folder_at(n.path[i], "latest"), F_OK), 0);
        folder_remove(n.path[i]);
    }
}

/* ---- ranks that are apart ---- */

/* Each rank has a folder of its own where one is meant. */
static int act_apart(zt_zero *z, void *ctx, ckpt_err *err)
{
    const nodes *n = ctx;
    act a = {.path = n->path[z->comm->rank % 2]};

    return act_save(z, &a, err);
}

/* Before anything is trained. */
static int act_try(zt_zero *z, void *ctx, ckpt_err *err)
{
    const nodes *n = ctx;

    return zt_together_try(z->comm, n->path[z->comm->rank % 2], z->config->node_local, err);
}

/* All ranks fail alike, and say this. */
static void all_say(const save_case *run, int code, const char *words)
{
    for (int i = 0; i < run->world; i++) {
        if (run->rc[i] != code || !strstr(run->err[i].text, words))
            fail_msg("rank %d: %d %s", i, run->rc[i], run->err[i].text);
        assert_string_equal(run->err[i].text, run->err[0].text);
    }
}

static void a_folder_that_is_not_one_for_all_is_found(void **state)
{
    trip t = {.stage = 2, .world = 3, .precision = ADAMW};
    nodes n = {0};
    save_case run = case_of(&t, act_apart, NULL);

    (void)state;
    run.ctx = &n;
    zt_together_patience = 0.02;
    strcpy(n.path[0], new_run());
    strcpy(n.path[1], new_run());
    save_run(&run);
    all_say(&run, CKPT_EMISSING, "shared by all ranks");
    assert_int_equal(access(folder_at(n.path[0], "latest"), F_OK), -1);
    assert_int_equal(access(folder_at(n.path[0], "global_step9"), F_OK), -1);
    folder_remove(n.path[0]);
    folder_remove(n.path[1]);

    run.act = act_try;
    save_run(&run); // neither is there
    all_say(&run, CKPT_EMISMATCH, "rank 1 on here");
    assert_int_equal(access(n.path[0], F_OK), -1);
    assert_int_equal(mkdir(n.path[0], 0777), 0);
    assert_int_equal(mkdir(n.path[1], 0777), 0);
    save_run(&run);
    all_say(&run, CKPT_EMISMATCH, "must be one folder");
    assert_int_equal(rmdir(n.path[0]), 0); // empty
    assert_int_equal(rmdir(n.path[1]), 0);

    strcpy(n.path[1], n.path[0]);
    save_run_well(&run);
    assert_int_equal(access(n.path[0], F_OK), -1); // nothing stays of the trial
    assert_int_equal(mkdir(n.path[0], 0777), 0);
    save_run_well(&run);
    assert_int_equal(rmdir(n.path[0]), 0);
}

/* Rank 0's schedule has gone another way than the others'. */
static int act_other_rate(zt_zero *z, void *ctx, ckpt_err *err)
{
    const zt_save_opts opts = {.dir = ctx};
    zt_saver *s = NULL;
    int rc = live(z, err);

    if (z->comm->rank > 0)
        z->group[0].hyper.lr *= 2;
    if (rc == CKPT_OK)
        rc = zt_saver_new(&s, z, err);
    if (rc == CKPT_OK)
        rc = zt_save(s, &opts, err);
    zt_saver_free(s);
    return rc;
}

static void ranks_of_other_states_do_not_save(void **state)
{
    trip t = {.stage = 1, .world = 3, .precision = ADAMW};
    char path[FOLDER_PATH];
    save_case run = case_of(&t, act_other_rate, NULL);

    (void)state;
    run.ctx = path;
    strcpy(path, new_run());
    save_run(&run);
    all_say(&run, CKPT_EMISMATCH, "learning rate of group 0");
    assert_non_null(strstr(run.err[2].text, "ranks that differ: 1, 2"));
    assert_int_equal(access(path, F_OK), -1);
}

/* The line of a file, in a buffer of the next call. */
static const char *line_of(const char *path, uint64_t whole)
{
    static char text[512];
    ckpt_bytes to = {0};
    ckpt_err err = {0};

    assert_int_equal(zt_same_file(&to, "x", path, whole, &err), CKPT_OK);
    assert_true(ckpt_bytes_add(&to, "", 1));
    (void)snprintf(text, sizeof text, "%s", (char *)to.at);
    ckpt_vec_free(&to);
    return text;
}

/* Flip a bit of a file of 300 000 bytes; true: its line is another one then. */
static bool line_changes(const char *path, long at, uint64_t whole)
{
    char before[512];
    FILE *f = fopen(path, "r+b");
    bool changed;

    (void)snprintf(before, sizeof before, "%s", line_of(path, whole));
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_not_equal(fputc(1, f), EOF);
    assert_int_equal(fclose(f), 0);
    changed = strcmp(before, line_of(path, whole)) != 0;
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(truncate(path, 300000), 0);
    return changed;
}

static void files_are_compared_by_what_is_in_them(void **state)
{
    char path[FOLDER_PATH];
    ckpt_bytes to = {0};
    ckpt_err err = {0};

    (void)state;
    strcpy(path, folder_at(save_top, "text"));
    folder_text(save_top, "text", "");
    assert_non_null(strstr(line_of(path, 1), "x\t0 bytes"));
    assert_int_equal(truncate(path, 300000), 0);
    for (long at = 0; at < 300000; at += 299999 / 7)
        assert_true(line_changes(path, at, 300000));
    // beyond `whole`: both ends
    assert_true(line_changes(path, 0, 1000));
    assert_true(line_changes(path, 299999, 1000));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(zt_same_file(&to, "x", path, 1, &err), CKPT_EMISSING);
    assert_int_equal(mkfifo(path, 0600), 0); // nobody waits for who writes into it
    assert_non_null(strstr(line_of(path, 1), "no plain file"));
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_stage_comes_back_at_its_own_world),
        cmocka_unit_test(any_world_and_stage_loads_any_other),
        cmocka_unit_test(other_optimizers_come_back),
        cmocka_unit_test(muon_comes_back_at_any_world_and_stage),
        cmocka_unit_test(muon_saves_whole_momentum_with_every_rank),
        cmocka_unit_test(stage_0_saves_the_optimizer_for_the_processor),
        cmocka_unit_test(muon_does_not_go_on_without_its_momentum),
        cmocka_unit_test(a_run_whose_state_is_not_known_is_not_resumed),
        cmocka_unit_test(what_changes_after_an_asynchronous_save_is_not_in_it),
        cmocka_unit_test(a_failed_save_fails_everywhere_and_leaves_nothing),
        cmocka_unit_test(only_the_newest_stay_and_other_folders_are_left_alone),
        cmocka_unit_test(names_that_do_not_fit_are_all_told),
        cmocka_unit_test(weights_go_out_as_files_and_folders),
        cmocka_unit_test(frozen_parameters_come_along),
        cmocka_unit_test(adapters_go_out_as_peft_folders),
        cmocka_unit_test(every_node_has_its_files_and_the_models),
        cmocka_unit_test(a_folder_that_is_not_one_for_all_is_found),
        cmocka_unit_test(ranks_of_other_states_do_not_save),
        cmocka_unit_test(files_are_compared_by_what_is_in_them),
    };

    return cmocka_run_group_tests(tests, save_top_make, save_top_remove);
}
