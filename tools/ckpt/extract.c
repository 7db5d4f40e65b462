/* SPDX-License-Identifier: Apache-2.0 */
/* extract.c: implements ckpt extract-lora, which makes a LoRA adapter of a model and its base. */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/base/vec.h"
#include "tools/ckpt/effects.h"
#include "tools/ckpt/hub_names.h"
#include "tools/ckpt/job.h"
#include "tools/ckpt/plan.h"
#include "tools/ckpt/report.h"
#include "tools/ckpt/verbs.h"
#include "tools/cli/options.h"

/* A matrix that has been approximated. */
typedef struct extract_matrix {
    char *module;
    uint64_t rows, cols;
    double norm, rest;
} extract_matrix;

CKPT_VEC(extract_list, extract_matrix);

/* The fields of this command. */
typedef struct extract_args {
    write_args write; /* first: the parser fills the whole */
    unsigned rank;
    bool save_rest, drop_rest;
    extract_list done;
} extract_args;

/* The part of a difference that is left; 0 for a difference of zero. */
static double extract_part(double rest, double norm)
{
    return norm > 0 ? rest / norm : 0;
}

/* The same for all matrices together. */
static double extract_all(const extract_list *done)
{
    double rest = 0, norm = 0;

    for (size_t i = 0; i < done->n; i++) {
        rest += done->at[i].rest * done->at[i].rest;
        norm += done->at[i].norm * done->at[i].norm;
    }
    return extract_part(sqrt(rest), sqrt(norm));
}

/* Callback of the library after each matrix: print it, and keep it for the report. */
static int extract_one(void *ctx, const ckpt_extracted *x)
{
    extract_args *a = ctx;
    extract_matrix *m = ckpt_vec_push(&a->done);

    if (m)
        *m = (extract_matrix){strdup(x->module), x->rows, x->cols, x->norm, x->rest};
    if (!m || !m->module)
        return 1;
    if (!a->write.cli.json && !a->write.cli.quiet) {
        out_text(x->module);
        out_printf(": [%" PRIu64 ", %" PRIu64 "], relative error %.3g\n", x->rows, x->cols,
                   extract_part(x->rest, x->norm));
    }
    return out_broken();
}

static void extract_json(struct json_out *j, const void *ctx)
{
    const extract_args *a = ctx;

    json_uint(j, "rank", a->rank);
    json_real(j, "relative_error", extract_all(&a->done));
    json_open(j, "matrices", '[');
    for (size_t i = 0; i < a->done.n; i++) {
        const extract_matrix *m = &a->done.at[i];

        json_open_flat(j, NULL, '{');
        json_text(j, "module", m->module);
        json_uint(j, "rows", m->rows);
        json_uint(j, "cols", m->cols);
        json_real(j, "difference", m->norm);
        json_real(j, "relative_error", extract_part(m->rest, m->norm));
        json_close(j, '}');
    }
    json_close(j, ']');
}

/* Refuse to replace an adapter before hours of work, not after. */
static int extract_exists(const extract_args *a, ckpt_err *err)
{
    static const char *const files[] = {"adapter_config.json", "adapter_model.safetensors",
                                        "adapter_model.bin", NULL};
    char path[PATH_MAX];
    struct stat st;

    for (size_t i = 0; !a->write.cli.run.force && files[i]; i++) {
        const int n = snprintf(path, sizeof path, "%s/%s", a->write.target.path, files[i]);

        if (n > 0 && (size_t)n < sizeof path && stat(path, &st) == 0)
            return fail(err, CKPT_EUSAGE, "%s: exists already; use --force to replace it", path);
    }
    return CKPT_OK;
}

/* Check options and target before any file is read. */
static int extract_target(extract_args *a, ckpt_err *err)
{
    ckpt_target *target = &a->write.target;

    target->path = a->write.cli.operand[2];
    if (!target->format)
        target->format = "hf";
    if (a->rank == 0)
        return fail(err, CKPT_EUSAGE, "the rank of the adapter is missing: use --rank R");
    if (a->save_rest && a->drop_rest)
        return fail(err, CKPT_EUSAGE, "--save-rest and --drop-rest exclude each other");
    if (strcmp(target->format, "hf") != 0 && strcmp(target->format, "hf-bin") != 0)
        return fail(err, CKPT_EUSAGE,
                    "format %s has no place for adapter_config.json: write the folder of an "
                    "adapter (--to hf, hf-bin)",
                    target->format);
    int rc = effects_of_target(&a->write, err);
    if (rc == CKPT_OK)
        rc = extract_exists(a, err);
    if (rc != CKPT_OK)
        return rc;
    // the model's own configuration would make a model of the folder
    target->skip_side_files = true;
    job_settle(target);
    return ckpt_target_check(target, err);
}

/* Open a model under the names that it has in memory, which adapters have. */
static int extract_open(ckpt_map **map, const extract_args *a, const char *path, ckpt_err *err)
{
    const hub_source from = hub_source_of(&a->write);
    bool did = false;
    int rc = ckpt_open(map, path, &a->write.cli.open, err);

    if (rc == CKPT_OK)
        rc = write_model(*map, &a->write, true, false, err);
    if (rc == CKPT_OK)
        rc = hub_rename(*map, &from, HUB_TO_MEMORY, &did, err);
    if (rc == CKPT_OK)
        map_say_findings(*map, !a->write.cli.quiet);
    return rc;
}

static int extract_prepare(ckpt_map **tuned, ckpt_map **base, extract_args *a, ckpt_err *err)
{
    cli_args *cli = &a->write.cli;
    const ckpt_extract opts = {.size = sizeof opts,
                               .rank = a->rank,
                               .dtype = a->write.target.dtype,
                               .rest = a->save_rest   ? CKPT_EXTRACT_SAVE
                                       : a->drop_rest ? CKPT_EXTRACT_DROP
                                                      : CKPT_EXTRACT_REFUSE,
                               .jobs = cli->run.jobs,
                               .base_name = cli->operand[0],
                               .config_text = a->write.config_text,
                               .config_name = a->write.config,
                               .fn = extract_one,
                               .ctx = a};

    cli->open.whole_checkpoint = true;
    cli->open.require_crc = cli->open.require_crc || cli->strict;
    job_refuse(&cli->run, false, cli->strict);
    int rc = extract_open(base, a, cli->operand[0], err);
    if (rc == CKPT_OK)
        rc = extract_open(tuned, a, cli->operand[1], err);
    if (rc == CKPT_OK)
        rc = ckpt_map_extract_lora(*tuned, *base, &opts, err);
    if (rc == CKPT_OK)
        map_say_findings(*tuned, !cli->quiet);
    return rc;
}

static int extract_run(cli_args *cli, ckpt_err *err)
{
    extract_args *a = (extract_args *)cli;
    ckpt_map *tuned = NULL, *base = NULL;
    int rc = extract_target(a, err);

    if (rc == CKPT_OK)
        rc = extract_prepare(&tuned, &base, a, err);
    if (rc == CKPT_OK && !cli->json && !cli->quiet)
        out_printf(a->done.n == 1 ? "%zu matrix: relative error %.3g\n"
                                  : "all %zu matrices: relative error %.3g\n",
                   a->done.n, extract_all(&a->done));
    convert_job job = {.from = tuned,
                       .target = a->write.target,
                       .run = cli->run,
                       .quiet = cli->quiet,
                       .doing = "extracting",
                       .more = extract_json,
                       .more_ctx = a};
    if (rc == CKPT_OK)
        rc = plan_carry_out(&job, &a->write, err);
    ckpt_map_free(tuned);
    ckpt_map_free(base);
    return rc;
}

/* Open the temporary file of large factors before the sandbox hides its folder. */
static int extract_read(cli_args *cli, ckpt_err *err)
{
    int rc = write_read(cli, err);

    // small factors need no file, so a folder that cannot be written is no failure yet
    if (rc == CKPT_OK)
        (void)ckpt_prepare(CKPT_PREPARE_READ, NULL);
    return rc;
}

static void extract_release(cli_args *cli)
{
    extract_args *a = (extract_args *)cli;

    for (size_t i = 0; i < a->done.n; i++)
        free(a->done.at[i].module);
    ckpt_vec_free(&a->done);
    write_release(cli);
}

#define AT(field) offsetof(extract_args, field)
static const cli_option extract_options[] = {
    {"rank", 'r', CLI_COUNT, AT(rank), "R", "rank of the adapter"},
    {"save-rest", 0, CLI_FLAG, AT(save_rest), NULL,
     "save changed norms, embeddings and biases as whole tensors (modules_to_save)"},
    {"drop-rest", 0, CLI_FLAG, AT(drop_rest), NULL,
     "leave changed norms, embeddings and biases out"},
    OPTION_TO,
    {"dtype", 0, CLI_DTYPE, AT(write.target.dtype), "D", "dtype of the adapter (default: fp32)"},
    OPTION_CONFIG,
    OPTION_REQUIRE_CRC,
    OPTION_STRICT,
    OPTION_JOBS,
    OPTION_FORCE,
    OPTION_NO_FSYNC,
    OPTION_JSON,
    OPTION_QUIET,
    CLI_NO_SANDBOX,
    CLI_END,
};

const cli_verb verb_extract = {
    .name = "extract-lora",
    .command = "ckpt extract-lora",
    .operands = "BASE TUNED DST",
    .summary = "Make a LoRA adapter of a model and the base that it was trained from.",
    .options = extract_options,
    .min = 3,
    .max = 3,
    .uses = "rro",
    .run = extract_run,
    .room = sizeof(extract_args),
    .writes = true,
    .read = extract_read,
    .release = extract_release,
};
