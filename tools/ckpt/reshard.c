/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reshard.c: ckpt reshard: a ZeRO checkpoint for another number of ranks, another stage,
 * another precision, optimizer state and all.
 */
#include "tools/ckpt/effects.h"
#include "tools/ckpt/job.h"
#include "tools/ckpt/plan.h"
#include "tools/ckpt/report.h"
#include "tools/ckpt/training.h"
#include "tools/ckpt/verbs.h"

/* Open, lay out, plan; then show the plan or carry it out. */
static int reshard_run(cli_args *a, ckpt_err *err)
{
    ckpt_map *map = NULL;
    char list[CLI_HELP_ROOM];

    if (a->target.format && !(ckpt_format_caps(a->target.format) & CKPT_MAKES_TENSORS))
        return fail(err, CKPT_EUSAGE, "reshard writes %s, not '%s'; ckpt convert writes the rest",
                    cli_formats(list, CKPT_MAKES_TENSORS), a->target.format);
    a->target.format = a->target.format ? a->target.format : "zero";
    a->target.path = a->operand[1];
    // tensor, pipeline and expert ranks stay what they are: only data ranks change
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
     "dcp: whose names and folders (torch)"},
    {"world", 'w', CLI_COUNT, AT(target.world), "N", "data-parallel ranks (the source's)"},
    {"stage", 's', CLI_COUNT, AT(target.stage), "1|2|3", "ZeRO stage (the source's)"},
    {"dtype", 0, CLI_DTYPE, AT(target.dtype), "fp16|bf16|fp32", "to train in (the source's)"},
    {"sub-group-size", 0, CLI_COUNT64, AT(target.sub_group_size), "N",
     "stage 3: elements (the source's, or 1e9)"},
    {"tag", 't', CLI_TEXT, AT(open.tag), "TAG", "read this tag instead of the latest"},
    {"to-tag", 0, CLI_TEXT, AT(target.tag), "NAME", "name of the new tag (the source's)"},
    {"deepspeed-version", 0, CLI_TEXT, AT(target.version), "V", "write for it (the source's)"},
    {"drop-optimizer", 0, CLI_FLAG, AT(target.fresh_optimizer), NULL,
     "moments of zero, step 0; as large"},
    {"keep-objects", 0, CLI_FLAG, AT(target.objects_kept), NULL,
     "objects of unknown classes go along"},
    {"drop-objects", 0, CLI_FLAG, AT(target.objects_dropped), NULL, "leave them out"},
    {"join", 0, CLI_FLAG, AT(join), NULL, "join tensor-parallel slices"},
    {"slice-rules", 0, CLI_FILE, AT(slice_rules), "FILE", "how slices are joined (JSON)"},
    {"order", 0, CLI_FILE, AT(order), "FILE", "names of parameters in order, or 'stored'"},
    {"keep-names", 0, CLI_FLAG, AT(keep_names), NULL, "keep prefixes of wrappers in names"},
    {"map", 0, CLI_TEXT, AT(map), "NAME|FILE", "to the names of another layout (ckpt maps)"},
    {"backwards", 0, CLI_FLAG, AT(backwards), NULL, "a map's FILE is read from right to left"},
    {"config", 0, CLI_SOURCE, AT(config), "PATH",
     "config.json, or its model's folder: not the source's own"},
    {"size", 0, CLI_LIST, AT(sizes), "NAME=VALUE", "a size or value that the map asks for (again)"},
    {"ignore-copies", 0, CLI_FLAG, AT(open.ignore_copies), NULL,
     "do not compare masters with 16-bit copies"},
    {"require-crc", 0, CLI_FLAG, AT(open.require_crc), NULL, "refuse records without CRC-32"},
    {"strict", 0, CLI_FLAG, AT(strict), NULL, "warnings are errors: nothing is written"},
    {"allow-overflow", 0, CLI_FLAG, AT(allow_overflow), NULL,
     "values beyond the dtype's range may be lost"},
    {"memory", 0, CLI_SIZE, AT(run.memory), "SIZE", "for buffers, in all (256MiB)"},
    {"jobs", 'j', CLI_COUNT, AT(run.jobs), "N", "threads (one per processor, at most 8)"},
    {"force", 'f', CLI_FLAG, AT(run.force), NULL, "replace a tag of that name"},
    {"no-fsync", 0, CLI_FLAG, AT(run.no_fsync), NULL, "do not wait for the disk (scratch use)"},
    {"dry-run", 'n', CLI_FLAG, AT(dry_run), NULL, "print the plan, write nothing"},
    {"json", 0, CLI_FLAG, AT(json), NULL, "print the plan or the report as JSON"},
    {"quiet", 'q', CLI_FLAG, AT(quiet), NULL, "only warnings and errors"},
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

const cli_verb verb_reshard = {
    .name = "reshard",
    .command = "ckpt reshard",
    .operands = "SRC DST",
    .summary = "Write a training checkpoint for another number of ranks, ZeRO stage, or framework.",
    .options = reshard_options,
    .moot = reshard_moot,
    .min = 2,
    .max = 2,
    .uses = "rd",
    .run = reshard_run,
};
