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

/* Open, lay out, plan; then print the plan or run it. */
static int reshard_run(cli_args *a, ckpt_err *err)
{
    ckpt_map *map = NULL;
    char list[CLI_HELP_ROOM];

    if (a->target.format && !(ckpt_format_caps(a->target.format) & CKPT_MAKES_TENSORS))
        return fail(err, CKPT_EUSAGE, "ckpt reshard writes only %s; use ckpt convert for '%s'",
                    cli_formats(list, CKPT_MAKES_TENSORS), a->target.format);
    a->target.format = a->target.format ? a->target.format : "zero";
    a->target.path = a->operand[1];
    // keep the slices of model-parallel ranks, because only data-parallel ranks and AutoEP's
    // expert-parallel ranks change
    a->open.keep_slices =
        !a->join && !a->map && (ckpt_format_caps(a->target.format) & CKPT_HAS_RANKS);
    if (a->map && maps_keep_slices(&a->maps, a->map, a->backwards))
        a->open.keep_slices = true;
    a->open.require_crc = a->open.require_crc || a->strict;
    int rc = training_open(&map, a, err);
    job_refuse(&a->run, a->allow_overflow, a->strict);
    convert_job job = {
        .from = map, .target = a->target, .run = a->run, .quiet = a->quiet, .doing = "resharding"};
    if (rc == CKPT_OK) {
        if (!a->quiet)
            map_say_understood(map);
        map_say_findings(map, !a->quiet);
        effects_of_source(a, map);
        rc = plan_carry_out(&job, a, err);
    }
    training_free(a);
    ckpt_map_free(map);
    return rc;
}

#define AT(field) offsetof(cli_args, field)
static const cli_option reshard_options[] = {
    {"to", 0, CLI_STATE, AT(target.format), "FORMAT", "(zero)"},
    {"layout", 0, CLI_TEXT, AT(target.layout), "torch|torchtitan|accelerate",
     "names and folders of dcp (default: torch)"},
    {"world", 'w', CLI_COUNT, AT(target.world), "N",
     "number of data-parallel ranks (default: same as the source)"},
    {"stage", 's', CLI_COUNT, AT(target.stage), "1|2|3",
     "ZeRO stage (default: same as the source)"},
    {"dtype", 0, CLI_DTYPE, AT(target.dtype), "fp16|bf16|fp32",
     "dtype of training (default: the source's)"},
    {"ep-size", 0, CLI_COUNT, AT(target.ep_size), "N",
     "expert-parallel ranks of AutoEP (default: the source's, or what fits)"},
    {"sub-group-size", 0, CLI_COUNT64, AT(target.sub_group_size), "N",
     "stage 3 sub-groups of N elements (default: the source's, or 1e9)"},
    {"tag", 't', CLI_TEXT, AT(open.tag), "TAG", "read this tag (default: the latest)"},
    {"to-tag", 0, CLI_TEXT, AT(target.tag), "NAME", "name of the new tag (default: the source's)"},
    {"deepspeed-version", 0, CLI_TEXT, AT(target.version), "V",
     "write for DeepSpeed V (default: the source's)"},
    {"drop-optimizer", 0, CLI_FLAG, AT(target.fresh_optimizer), NULL,
     "write moments of zero and step 0"},
    {"moments", 0, CLI_DTYPE, AT(moments), "fp32", "write 8-bit moments as Adam's in fp32"},
    {"keep-objects", 0, CLI_FLAG, AT(target.objects_kept), NULL, "copy objects of unknown classes"},
    {"drop-objects", 0, CLI_FLAG, AT(target.objects_dropped), NULL,
     "leave objects of unknown classes out"},
    {"join", 0, CLI_FLAG, AT(join), NULL, "join tensor-parallel slices"},
    {"slice-rules", 0, CLI_FILE, AT(slice_rules), "FILE", "read the rules that join slices (JSON)"},
    {"order", 0, CLI_FILE, AT(order), "FILE",
     "order of the parameters: names in FILE, or 'stored'"},
    {"keep-names", 0, CLI_FLAG, AT(keep_names), NULL,
     "keep wrapper prefixes such as module. in names"},
    {"map", 0, CLI_TEXT, AT(map), "NAME|FILE", "rename by a layout map (see ckpt maps)"},
    {"backwards", 0, CLI_FLAG, AT(backwards), NULL, "apply the map's FILE from right to left"},
    {"config", 0, CLI_SOURCE, AT(config), "PATH",
     "read config.json here instead of beside the source"},
    {"size", 0, CLI_LIST, AT(sizes), "NAME=VALUE",
     "set a value that the map asks for (repeatable)"},
    {"ignore-copies", 0, CLI_FLAG, AT(open.ignore_copies), NULL,
     "do not compare masters with 16-bit copies"},
    {"require-crc", 0, CLI_FLAG, AT(open.require_crc), NULL, "refuse records without CRC-32"},
    {"strict", 0, CLI_FLAG, AT(strict), NULL, "fail on warnings; write nothing"},
    {"allow-overflow", 0, CLI_FLAG, AT(allow_overflow), NULL,
     "accept values beyond the dtype's range"},
    {"memory", 0, CLI_SIZE, AT(run.memory), "SIZE", "size of all buffers (default: 256MiB)"},
    {"jobs", 'j', CLI_COUNT, AT(run.jobs), "N",
     "number of threads (default: one per processor, at most 8)"},
    {"force", 'f', CLI_FLAG, AT(run.force), NULL, "replace a tag of that name"},
    {"no-fsync", 0, CLI_FLAG, AT(run.no_fsync), NULL,
     "do not sync files to disk (scratch data only)"},
    {"dry-run", 'n', CLI_FLAG, AT(dry_run), NULL, "print the plan; write nothing"},
    {"json", 0, CLI_FLAG, AT(json), NULL, "print the plan or the report as JSON"},
    {"quiet", 'q', CLI_FLAG, AT(quiet), NULL, "print warnings and errors only"},
    CLI_LOCAL,
    CLI_SPREAD,
    CLI_NO_SANDBOX,
    CLI_END,
};

static const cli_moot reshard_moot[] = {
    {"backwards", NULL, "map"},
    {"config", NULL, "map"},
    {"size", NULL, "map"},
    {NULL, NULL, NULL},
};

static const cli_heading reshard_headings[] = {
    {"Common options", "to world stage dtype tag to-tag order map force dry-run"},
    {"Source", "join slice-rules ignore-copies require-crc strict no-sandbox local"},
    {"Names and layout", "layout keep-names backwards config size"},
    {"Training state",
     "moments ep-size sub-group-size deepspeed-version drop-optimizer keep-objects "
     "drop-objects allow-overflow"},
    {"Output", "no-fsync json quiet memory jobs local-target hostfile"},
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
};
