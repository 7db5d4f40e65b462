/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reshard.c: implements ckpt reshard, which writes a ZeRO checkpoint with its optimizer state for
 * another number of ranks, another stage or another precision.
 */
#include "ckpt_extra.h"
#include "tools/ckpt/effects.h"
#include "tools/ckpt/job.h"
#include "tools/ckpt/plan.h"
#include "tools/ckpt/report.h"
#include "tools/ckpt/training.h"
#include "tools/ckpt/verbs.h"
#include "tools/cli/options.h"

/* Warn about options of layout maps if neither the user nor the target asks for a map. */
static void reshard_moot_maps(const write_args *a)
{
    static const char *const names[] = {"config", "size", "make-vocab-size-divisible-by",
                                        "tensor-model-parallel-size"};

    for (size_t i = 0; !a->map && i < sizeof names / sizeof *names; i++) {
        if (cli_has(&a->cli.line, names[i]))
            say_warning("--%s has no effect without --map", names[i]);
    }
}

/* Open, lay out, plan; then print the plan or run it. */
static int reshard_run(cli_args *cli, ckpt_err *err)
{
    write_args *a = (write_args *)cli;
    ckpt_map *map = NULL;
    char list[CLI_HELP_ROOM];

    if (a->target.format && !(ckpt_format_caps(a->target.format) & CKPT_WRITES_STATE))
        return fail(err, CKPT_EUSAGE, "ckpt reshard writes only %s; use ckpt convert for '%s'",
                    cli_formats(list, CKPT_WRITES_STATE), a->target.format);
    a->target.format = a->target.format ? a->target.format : "zero";
    a->target.path = a->cli.operand[1];
    reshard_moot_maps(a);
    // keep the slices of model-parallel ranks, because only data-parallel ranks and AutoEP's
    // expert-parallel ranks change
    a->cli.open.keep_slices =
        !a->join && !a->map && (ckpt_format_caps(a->target.format) & CKPT_HAS_RANKS);
    if (a->map && maps_keep_slices(&a->maps, a->map, a->backwards))
        a->cli.open.keep_slices = true;
    a->cli.open.require_crc = a->cli.open.require_crc || a->cli.strict;
    int rc = training_open(&map, a, err);
    job_refuse(&a->cli.run, a->allow_overflow, a->cli.strict);
    convert_job job = {.from = map,
                       .target = a->target,
                       .run = a->cli.run,
                       .quiet = a->cli.quiet,
                       .doing = "resharding"};
    if (rc == CKPT_OK) {
        if (!a->cli.quiet)
            map_say_understood(map);
        map_say_findings(map, !a->cli.quiet);
        effects_of_source(&a->cli, map);
        rc = plan_carry_out(&job, a, err);
    }
    training_free(a);
    ckpt_map_free(map);
    return rc;
}

#define AT(field) offsetof(write_args, field)
static const cli_option reshard_options[] = {
    {"to", 0, CLI_STATE, AT(target.format), "FORMAT", "(default: zero)"},
    {"layout", 0, CLI_TEXT, AT(target.layout), "torch|torchtitan|accelerate",
     "names and folders of dcp (default: torch)"},
    {"world", 'w', CLI_COUNT, AT(target.world), "N",
     "number of data-parallel ranks (default: same as the source)"},
    OPTION_STAGE,
    {"dtype", 0, CLI_DTYPE, AT(target.dtype), "fp16|bf16|fp32",
     "dtype of training (default: the source's)"},
    OPTION_EP_SIZE,
    OPTION_SUB_GROUP_SIZE,
    OPTION_TAG,
    {"to-tag", 0, CLI_TEXT, AT(target.tag), "NAME", "name of the new tag (default: the source's)"},
    OPTION_DEEPSPEED_VERSION,
    OPTION_DROP_OPTIMIZER,
    OPTION_MOMENTS,
    OPTION_KEEP_OBJECTS,
    OPTION_DROP_OBJECTS,
    OPTION_JOIN,
    OPTION_SLICE_RULES,
    OPTION_ORDER,
    OPTION_KEEP_NAMES,
    {"map", 0, CLI_TEXT, AT(map), "NAME|FILE", "rename by a layout map (see ckpt maps)"},
    OPTION_BACKWARDS,
    OPTION_CONFIG,
    OPTION_SIZE,
    OPTION_VOCAB_UNIT,
    OPTION_TENSOR_PARALLEL,
    OPTION_IGNORE_COPIES,
    OPTION_REQUIRE_CRC,
    OPTION_STRICT,
    OPTION_ALLOW_OVERFLOW,
    OPTION_MEMORY,
    OPTION_JOBS,
    {"force", 'f', CLI_FLAG, AT(cli.run.force), NULL, "replace a tag of that name"},
    OPTION_NO_FSYNC,
    OPTION_ATTEST,
    OPTION_MANIFEST,
    OPTION_DRY_RUN,
    OPTION_JSON,
    OPTION_QUIET,
    CLI_LOCAL,
    CLI_SPREAD,
    CLI_NO_SANDBOX,
    CLI_END,
};

static const cli_moot reshard_moot[] = {
    {"backwards", NULL, "map"},
    {NULL, NULL, NULL},
};

static const cli_heading reshard_headings[] = {
    {"Common options", "to world stage dtype tag to-tag order map force dry-run"},
    {"Source", "join slice-rules ignore-copies require-crc strict no-sandbox local"},
    {"Names and layout", "layout keep-names backwards config size make-vocab-size-divisible-by "
                         "tensor-model-parallel-size"},
    {"Training state",
     "moments ep-size sub-group-size deepspeed-version drop-optimizer keep-objects "
     "drop-objects allow-overflow"},
    {"Output", "manifest attest no-fsync json quiet memory jobs local-target hostfile"},
    {NULL, NULL},
};

const cli_verb verb_reshard = {
    .name = "reshard",
    .command = "ckpt reshard",
    .operands = "SRC DST",
    .summary = "Write a training checkpoint for another number of ranks, ZeRO stage, or framework.",
    .options = reshard_options,
    .moot = reshard_moot,
    .headings = reshard_headings,
    .min = 2,
    .max = 2,
    .uses = "rd",
    .run = reshard_run,
    .room = sizeof(write_args),
    WRITE_HOOKS,
};
