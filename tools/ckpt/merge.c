/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merge.c: implements ckpt merge, which makes one model from several, or from the last tags of a
 * run.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/base/vec.h"
#include "tools/ckpt/effects.h"
#include "tools/ckpt/hub_names.h"
#include "tools/ckpt/job.h"
#include "tools/ckpt/merge.h"
#include "tools/ckpt/plan.h"
#include "tools/ckpt/report.h"
#include "tools/ckpt/training.h"
#include "tools/ckpt/verbs.h"
#include "tools/cli/options.h"
#include "tools/cli/text.h"
#include "tools/cli/words.h"

/* The fields of this command. */
typedef struct merge_args {
    write_args write; /* first: the parser fills the whole */
    merge_how how;
    const char *output;
} merge_args;

CKPT_VEC(merge_list, ckpt_merge_model);
CKPT_VEC(merge_steps, int64_t);

/* The models of the command line. */
typedef struct merge_models {
    merge_list all;
    merge_steps step; /* each tag's step; -1: unknown, or no tag */
    bool failed;      /* out of memory */
    size_t n_broken;  /* number of skipped tags that are not complete */
} merge_models;

static void merge_add(merge_models *m, const char *path, double weight, int64_t step)
{
    int64_t *its_step = ckpt_vec_push(&m->step);
    ckpt_merge_model *model = its_step ? ckpt_vec_push(&m->all) : NULL;

    if (!model) {
        m->failed = true;
        return;
    }
    *its_step = step;
    *model = (ckpt_merge_model){.path = strdup(path), .weight = weight};
    m->failed = m->failed || !model->path;
}

/* Drop the first n models. */
static void merge_drop(merge_models *m, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free((char *)(uintptr_t)m->all.at[i].path);
    if (n > 0)
        memmove(m->all.at, m->all.at + n, (m->all.n - n) * sizeof *m->all.at);
    if (n > 0)
        memmove(m->step.at, m->step.at + n, (m->all.n - n) * sizeof *m->step.at);
    m->all.n -= n;
    m->step.n = m->all.n;
}

/* ---- the last tags of a run ---- */

typedef struct merge_run {
    const char *path;
    merge_models *models;
} merge_run;

/* Callback for each tag of the run, oldest first; skips tags that are not complete. */
static int merge_tag(void *ctx, const ckpt_tag *tag)
{
    const merge_run *r = ctx;
    char path[PATH_MAX];

    if (tag->health != CKPT_TAG_WHOLE || tag->is_universal) {
        r->models->n_broken += tag->health != CKPT_TAG_WHOLE;
        return 0;
    }
    if (snprintf(path, sizeof path, "%s/%s", r->path, tag->name) < (int)sizeof path)
        merge_add(r->models, path, 1, tag->step);
    return r->models->failed;
}

/* True for accelerate's pytorch_model, pytorch_model_1: such tags belong to different models. */
static bool merge_of_model(const char *path)
{
    static const char first[] = "pytorch_model";
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

    return strncmp(name, first, sizeof first - 1) == 0;
}

/* Check that tags belong to one model: two tags with the same step belong to different models. */
static int merge_one_model(const merge_models *m, ckpt_err *err)
{
    for (size_t i = 0; i < m->all.n; i++) {
        for (size_t k = 0; k < i; k++) {
            bool same = m->step.at[i] >= 0 && m->step.at[i] == m->step.at[k];
            if (same || (merge_of_model(m->all.at[i].path) && merge_of_model(m->all.at[k].path)))
                return fail(err, CKPT_EMISMATCH,
                            "%s and %s %s: --last averages tags of one model; give the paths of "
                            "the tags to merge (ckpt merge A B)",
                            m->all.at[k].path, m->all.at[i].path,
                            same ? "have the same step, so they are of two models or two saves"
                                 : "are two models of one save");
        }
    }
    return CKPT_OK;
}

static int merge_last(merge_models *models, const cli_args *a, unsigned last, ckpt_err *err)
{
    merge_run run = {a->operand[0], models};
    const ckpt_doctor_opts opts = {.size = sizeof opts, .tag = merge_tag, .ctx = &run};
    ckpt_err ignored = {0};

    if (a->n_operands != 1)
        return fail(err, CKPT_EUSAGE, "--last takes one run, found %d", a->n_operands);
    // a wrong `latest` does not matter, because complete tags are counted
    int rc = ckpt_doctor(run.path, &opts, &ignored);

    if (models->all.n == 0 && rc != CKPT_OK)
        return fail(err, rc, "%s", ignored.text);
    if (models->all.n < last)
        return fail(err, CKPT_EMISSING, "%s: found %zu whole tags, expected at least %u (--last)%s",
                    run.path, models->all.n, last,
                    models->n_broken ? "; ckpt doctor shows the problems of the others" : "");
    merge_drop(models, models->all.n - last);
    if (models->n_broken)
        say_warning("%s: skipped tags that are not whole: %zu; ckpt doctor shows their problems",
                    run.path, models->n_broken);
    rc = merge_one_model(models, err);
    for (size_t i = 0; rc == CKPT_OK && !a->quiet && i < models->all.n; i++)
        say_note("averaged: %s", models->all.at[i].path);
    return rc;
}

/* ---- the models to merge ---- */

static int merge_operands(merge_models *models, const cli_args *a, ckpt_err *err)
{
    char path[PATH_MAX];
    double weight;

    for (int i = 0; i < a->n_operands; i++) {
        if (!word_weighted(path, sizeof path, a->operand[i], &weight))
            return fail(err, CKPT_EUSAGE, "'%s' is not PATH:WEIGHT", a->operand[i]);
        merge_add(models, path, weight, -1);
    }
    return CKPT_OK;
}

/* Set format and path of the target before any file is read. */
static int merge_target(merge_args *a, ckpt_err *err)
{
    a->write.target.path = a->output;
    if (!a->output)
        return fail(err, CKPT_EUSAGE, "the output is missing: use -o DST");
    if (!a->write.target.format)
        a->write.target.format =
            ckpt_format_from_path(a->output) ? ckpt_format_from_path(a->output) : "hf";
    if (training_format(a->write.target.format))
        return fail(err, CKPT_EUSAGE,
                    "ckpt merge writes weights, but format %s is for training state",
                    a->write.target.format);
    int rc = effects_of_target(&a->write, err);
    if (rc != CKPT_OK)
        return rc;
    a->write.target.skip_side_files = a->write.skip_side_files;
    job_settle(&a->write.target);
    return ckpt_target_check(&a->write.target, err);
}

bool merge_is(const merge_how *how, int n_models)
{
    return n_models > 1 || how->recipe || how->method || how->last;
}

static int merge_check(const merge_how *how, int n_models, ckpt_err *err)
{
    if (how->recipe && (n_models || how->method || how->base || how->last))
        return fail(err, CKPT_EUSAGE,
                    "%s names the models and the method: do not give models, --method, "
                    "--base or --last as well",
                    how->recipe);
    if (!how->recipe && !n_models)
        return fail(err, CKPT_EUSAGE,
                    "the models are missing: give A[:WEIGHT] B[:WEIGHT] ..., or --config FILE");
    if (how->last && how->method && strcmp(how->method, "linear") != 0)
        return fail(err, CKPT_EUSAGE, "--last averages tags: it cannot be combined with --method");
    return CKPT_OK;
}

/*
 * Give all models the hub's names if one model has them, because a training run has the names in
 * memory instead.
 */
static int merge_names(void *ctx, ckpt_map *const *models, size_t n, ckpt_err *err)
{
    const write_args *a = ctx;
    const hub_source from = hub_source_of(a);
    size_t n_did = 0;
    int rc = a->cli.keep_names ? CKPT_OK : hub_meet(models, n, &from, &n_did, err);

    if (rc == CKPT_OK && n_did > 0 && !a->cli.quiet)
        say_note("%zu of %zu models are renamed to the hub's names of this model", n_did, n);
    return rc;
}

/*
 * If the target is a model folder and all models had the names in memory, rename to the hub's
 * names.
 */
static int merge_hub(ckpt_map *map, const write_args *a, ckpt_err *err)
{
    const hub_source from = hub_source_of(a);
    const char *layout = maps_default(a->target.format, a->target.path);
    bool did = false;

    if (a->cli.keep_names || !layout || strcmp(layout, "hf") != 0)
        return CKPT_OK;
    return hub_rename(map, &from, HUB_TO_FILES, &did, err);
}

/* ---- adapters ---- */

/* True if a folder has this file. */
static bool merge_has(const char *folder, const char *file)
{
    char name[PATH_MAX];
    struct stat st;

    return snprintf(name, sizeof name, "%s/%s", folder, file) < (int)sizeof name &&
           stat(name, &st) == 0;
}

/*
 * True for a PEFT folder without the weights of a model, or a file in one.  Trainers save the
 * base's config.json beside an adapter, too.
 */
static bool merge_is_adapter(const char *path)
{
    static const char *const weights[] = {"model.safetensors", "model.safetensors.index.json",
                                          "pytorch_model.bin", "pytorch_model.bin.index.json",
                                          NULL};
    struct stat st;
    const char *slash = strrchr(path, '/'), *last = slash ? slash + 1 : path;

    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return strncmp(last, "adapter_model.", 14) == 0;
    for (size_t i = 0; weights[i]; i++) {
        if (merge_has(path, weights[i]))
            return false;
    }
    return merge_has(path, "adapter_config.json");
}

/* Refuse options that combining adapters does not have. */
static int merge_check_adapters(const write_args *a, const merge_how *how, ckpt_err *err)
{
    const char *option = how->base             ? "--base"
                         : how->density != 0   ? "--density"
                         : how->lambda != 0    ? "--lambda"
                         : how->slerp_t != 0   ? "--t"
                         : how->seed != 0      ? "--seed"
                         : how->skip_normalize ? "--no-normalize"
                         : a->cli.keep_names   ? "--keep-names"
                                               : NULL;
    const char *format = a->target.format;

    if (option)
        return fail(err, CKPT_EUSAGE,
                    "%s has no effect on adapters: their weights are not divided "
                    "by the sum, and only --method is used",
                    option);
    if (!how->method)
        return fail(err, CKPT_EUSAGE,
                    "adapters are combined by --method cat, which is exact and adds their ranks, "
                    "or --method linear, which keeps the rank and is an approximation");
    if (format && strcmp(format, "hf") != 0 && strcmp(format, "hf-bin") != 0)
        return fail(err, CKPT_EUSAGE,
                    "format %s has no place for adapter_config.json: write the folder of an "
                    "adapter (--to hf, hf-bin)",
                    format);
    return CKPT_OK;
}

static int merge_adapters(ckpt_map **map, const write_args *a, const merge_how *how, ckpt_err *err)
{
    merge_models models = {0};
    int rc = merge_check_adapters(a, how, err);

    if (rc == CKPT_OK)
        rc = merge_operands(&models, &a->cli, err);
    if (rc == CKPT_OK && models.failed)
        rc = fail(err, CKPT_ELIMIT, "out of memory");
    const ckpt_adapters set = {.size = sizeof set,
                               .method = how->method,
                               .adapters = models.all.at,
                               .n_adapters = models.all.n,
                               .open = &a->cli.open};
    if (rc == CKPT_OK)
        rc = ckpt_adapters_open(map, &set, err);
    merge_drop(&models, models.all.n);
    ckpt_vec_free(&models.all);
    ckpt_vec_free(&models.step);
    return rc;
}

/* True if the first operand is an adapter. */
static bool merge_of_adapters(const write_args *a, const merge_how *how)
{
    char path[PATH_MAX];
    double weight;

    return !how->recipe && !how->last && a->cli.n_operands > 0 &&
           word_weighted(path, sizeof path, a->cli.operand[0], &weight) && merge_is_adapter(path);
}

/* ---- opening ---- */

static int merge_open(ckpt_map **map, write_args *a, const merge_how *how, ckpt_err *err)
{
    merge_models models = {0};
    int rc = merge_check(how, a->cli.n_operands, err);

    if (rc == CKPT_OK && !how->recipe)
        rc = how->last ? merge_last(&models, &a->cli, how->last, err)
                       : merge_operands(&models, &a->cli, err);
    const ckpt_merge merge = {.size = sizeof merge,
                              .method = how->recipe   ? NULL
                                        : how->method ? how->method
                                                      : "linear",
                              .models = models.all.at,
                              .n_models = models.all.n,
                              .base = how->base,
                              .density = how->density,
                              .lambda = how->lambda,
                              .t = how->slerp_t,
                              .skip_normalize = how->skip_normalize,
                              .seed = how->seed,
                              .config_text = how->recipe_text,
                              .config_name = how->recipe,
                              .open = &a->cli.open,
                              .keep_names = a->cli.keep_names,
                              .names = merge_names,
                              .names_ctx = a};
    if (rc == CKPT_OK && models.failed)
        rc = fail(err, CKPT_ELIMIT, "out of memory");
    if (rc == CKPT_OK)
        rc = ckpt_merge_open(map, &merge, err);
    merge_drop(&models, models.all.n);
    ckpt_vec_free(&models.all);
    ckpt_vec_free(&models.step);
    return rc;
}

int merge_prepare(ckpt_map **map, write_args *a, const merge_how *how, ckpt_err *err)
{
    *map = NULL;
    a->cli.open.whole_checkpoint = true;
    a->cli.open.require_crc = a->cli.open.require_crc || a->cli.strict;
    job_refuse(&a->cli.run, a->allow_overflow, a->cli.strict);
    const bool adapters = merge_of_adapters(a, how);
    int rc = adapters ? merge_adapters(map, a, how, err) : merge_open(map, a, how, err);

    if (rc == CKPT_OK && !adapters)
        rc = merge_hub(*map, a, err);
    if (rc == CKPT_OK)
        map_say_findings(*map, !a->cli.quiet);
    return rc;
}

static int merge_run_verb(cli_args *cli, ckpt_err *err)
{
    merge_args *a = (merge_args *)cli;
    ckpt_map *map = NULL;
    int rc = merge_target(a, err);

    if (rc == CKPT_OK)
        rc = merge_prepare(&map, &a->write, &a->how, err);
    convert_job job = {.from = map,
                       .target = a->write.target,
                       .run = a->write.cli.run,
                       .quiet = a->write.cli.quiet,
                       .merged = true,
                       .doing = "merging"};
    if (rc == CKPT_OK)
        rc = plan_carry_out(&job, &a->write, err);
    ckpt_map_free(map);
    return rc;
}

int merge_read_recipe(merge_how *how, ckpt_err *err)
{
    return how->recipe ? text_read(&how->recipe_text, how->recipe, "the configuration", err)
                       : CKPT_OK;
}

static int merge_read(cli_args *cli, ckpt_err *err)
{
    merge_args *a = (merge_args *)cli;
    int rc = write_read(cli, err);

    return rc == CKPT_OK ? merge_read_recipe(&a->how, err) : rc;
}

static void merge_release(cli_args *cli)
{
    free(((merge_args *)cli)->how.recipe_text);
    write_release(cli);
}

/* If the configuration cannot be read, the run reports the error. */
int merge_recipe_paths(const merge_how *how, int (*fn)(void *ctx, const char *path), void *ctx)
{
    const ckpt_merge merge = {
        .size = sizeof merge, .config_text = how->recipe_text, .config_name = how->recipe};

    return how->recipe_text ? ckpt_merge_paths(&merge, fn, ctx, &(ckpt_err){0}) : CKPT_OK;
}

static int merge_inputs(const cli_args *cli, int (*fn)(void *ctx, const char *path), void *ctx)
{
    return merge_recipe_paths(&((const merge_args *)cli)->how, fn, ctx);
}

#define AT(field) offsetof(merge_args, field)
static const cli_option merge_options[] = {
    {"output", 'o', CLI_OUTPUT, AT(output), "DST", "the file or folder to write"},
    {"method", 'm', CLI_TEXT, AT(how.method), MERGE_METHODS,
     "merge method, as in mergekit (default: linear)"},
    MERGE_OPTIONS(AT(how)),
    {"config", 0, CLI_FILE, AT(how.recipe), "FILE", "read a mergekit configuration (YAML)"},
    OPTION_KEEP_NAMES,
    OPTION_TO,
    {"dtype", 0, CLI_DTYPE, AT(write.target.dtype), "D",
     "dtype of floating tensors (default: the first model's)"},
    OPTION_MAX_SHARD_SIZE,
    OPTION_REQUIRE_CRC,
    OPTION_STRICT,
    OPTION_ALLOW_OVERFLOW,
    OPTION_MEMORY,
    OPTION_JOBS,
    OPTION_FORCE,
    OPTION_NO_FSYNC,
    OPTION_MANIFEST,
    OPTION_NO_SIDE_FILES,
    OPTION_ATTEST,
    OPTION_DRY_RUN,
    OPTION_JSON,
    OPTION_QUIET,
    CLI_LOCAL,
    CLI_SPREAD,
    CLI_NO_SANDBOX,
    CLI_END,
};

const cli_verb verb_merge = {
    .name = "merge",
    .command = "ckpt merge",
    .operands = "A[:WEIGHT] B[:WEIGHT] ...",
    .summary = "Merge models of one architecture, or the last tags of a run.",
    .options = merge_options,
    .min = 0,
    .max = INT_MAX,
    .uses = "w",
    .run = merge_run_verb,
    .room = sizeof(merge_args),
    .writes = true,
    .read = merge_read,
    .release = merge_release,
    .inputs = merge_inputs,
};
