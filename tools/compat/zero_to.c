/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero_to.c: implements the drop-ins zero_to_fp32 and zero_to_torch, with the arguments, output
 * names and messages of DeepSpeed's scripts.
 *
 * stdout has the lines that users search for in logs; our own lines go to stderr.  The scripts'
 * errors are corrected: outputs are replaced only by complete ones, damage ends the run, tied
 * weights are written once.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ckpt_extra.h"
#include "tools/ckpt/effects.h"
#include "tools/ckpt/job.h"
#include "tools/ckpt/report.h"
#include "tools/ckpt/verbs.h"
#include "tools/cli/options.h"

/* The fields of this command. */
typedef struct zero_args {
    write_args write; /* first: the parser fills the whole */
    bool debug, safe;
} zero_args;

enum { ZERO_PATH = 4200 };

/* Count the parameters of a role that have their own storage, as the script does. */
static void zero_count(const ckpt_map *map, uint32_t role, uint64_t *n_params, uint64_t *n_elems)
{
    *n_params = *n_elems = 0;
    for (size_t i = 0; i < ckpt_map_tensor_count(map); i++) {
        const ckpt_tensor *t = ckpt_map_tensor_at(map, i);
        if (t->role != role || t->owner)
            continue;
        *n_params += 1;
        *n_elems += t->n_elems;
    }
}

/* Print the script's line about a role; for frozen parameters only if there are some. */
static void zero_say_count(const ckpt_map *map, uint32_t role, const char *which)
{
    uint64_t n_params, n_elems;

    zero_count(map, role, &n_params, &n_elems);
    if (n_params || role == CKPT_ROLE_WEIGHT)
        out_printf("Reconstructed %sfp32 state dict with %" PRIu64 " params %" PRIu64 " elements\n",
                   which, n_params, n_elems);
}

/* Print the script's lines about the source, from the facts of the map. */
static void zero_say(const ckpt_map *map, const zero_args *a)
{
    const char *stage = map_fact(map, "stage"), *world = map_fact(map, "world size");
    const char *version = map_fact(map, "DeepSpeed version"), *folder = map_fact(map, "tag folder");
    char shape[SHAPE_ROOM];

    // the script prints these four lines before it saves
    out_printf("Processing zero checkpoint '");
    out_text(folder ? folder : ckpt_map_path(map));
    out_printf("'\nParsing checkpoint created by deepspeed==");
    out_text(version ? version : "unknown");
    out_printf("\nDetected checkpoint of type zero stage %s, world_size: %s\n", stage ? stage : "?",
               world ? world : "?");
    for (size_t i = 0; a->debug && i < ckpt_map_tensor_count(map); i++) {
        const ckpt_tensor *t = ckpt_map_tensor_at(map, i);
        out_text(t->name);
        out_printf(" full shape: %s unpartitioned numel %" PRIu64 "\n", shape_text(shape, t),
                   t->n_elems);
    }
    zero_say_count(map, CKPT_ROLE_FROZEN, "Frozen ");
    zero_say_count(map, CKPT_ROLE_WEIGHT, stage && strcmp(stage, "3") == 0 ? "Trainable " : "");
}

/*
 * The target is a folder, as in the script since 0.15.3, or a file if the name has a file's suffix,
 * as before.
 */
static int zero_target(zero_args *a, ckpt_err *err)
{
    a->write.target.path = a->write.cli.operand[1];
    a->write.target.format = ckpt_format_from_path(a->write.target.path);
    if (!a->write.target.format)
        a->write.target.format = a->safe ? "hf" : "hf-bin";
    a->write.target.keep_other_weights = true;
    // the script writes only weights
    a->write.target.skip_side_files =
        (ckpt_format_caps(a->write.target.format) & CKPT_TAKES_SIDE_FILES) != 0;
    if (a->safe && strcmp(a->write.target.format, "torch") == 0)
        return fail(err, CKPT_EUSAGE,
                    "--safe_serialization: %s is the name of a torch file; name a folder, or a "
                    "file ending in .safetensors",
                    a->write.target.path);
    return effects_of_target(&a->write, err);
}

/* ---- replacing an old output ---- */

/* The first existing file of an output, or NULL. */
static const char *zero_older(const write_args *a, char buf[ZERO_PATH])
{
    static const char *const hf[] = {"model.safetensors.index.json", "model.safetensors", NULL};
    static const char *const bin[] = {"pytorch_model.bin.index.json", "pytorch_model.bin", NULL};
    const char *const *name = strcmp(a->target.format, "hf") == 0 ? hf : bin;
    int n = snprintf(buf, ZERO_PATH, "%s", a->target.path);

    if (!write_into_folder(&a->target))
        return n < ZERO_PATH && access(buf, F_OK) == 0 ? buf : NULL;
    for (; *name; name++) {
        n = snprintf(buf, ZERO_PATH, "%s/%s", a->target.path, *name);
        if (n < ZERO_PATH && access(buf, F_OK) == 0)
            return buf;
    }
    return NULL;
}

/* True if `many` has every tensor of `few`, with its shape. */
static bool zero_within(const ckpt_map *few, const ckpt_map *many)
{
    for (size_t i = 0; i < ckpt_map_tensor_count(few); i++) {
        const ckpt_tensor *t = ckpt_map_tensor_at(few, i), *u = ckpt_map_find(many, t->name);
        if (!u || u->ndim != t->ndim ||
            (t->ndim && memcmp(u->shape, t->shape, t->ndim * sizeof *t->shape) != 0))
            return false;
    }
    return ckpt_map_tensor_count(few) > 0;
}

/*
 * The script overwrites any file.  ckpt replaces an older output with the same tensors; one of
 * another model, or an unreadable one, only with --force.
 */
static int zero_replaces(write_args *a, const ckpt_map *map, ckpt_err *err)
{
    const ckpt_open_opts whole = {.whole_checkpoint = true};
    char buf[ZERO_PATH];
    const char *older = zero_older(a, buf);
    ckpt_map *there = NULL;
    ckpt_err local = {0};

    if (older && !a->cli.run.force) {
        bool same = ckpt_open(&there, older, &whole, &local) == CKPT_OK &&
                    (zero_within(there, map) || zero_within(map, there));
        const char *what = there ? "it holds another model" : "it is not a readable checkpoint";
        ckpt_map_free(there);
        if (!same)
            return fail(err, CKPT_EUSAGE, "%s: exists already, and %s; use --force to replace it",
                        older, what);
    }
    if (older && !a->cli.quiet)
        say_note("%s is replaced", older);
    // only when the new output is complete
    a->cli.run.force = true;
    return CKPT_OK;
}

/*
 * Convert like ckpt convert; the closing line goes to stderr, because logs of the script do not
 * have it.
 */
static int zero_convert(write_args *a, const ckpt_map *map, ckpt_err *err)
{
    convert_job job = {.from = map, .target = a->target, .run = a->cli.run, .quiet = a->cli.quiet};
    char closing[CLOSING_ROOM];
    int rc;

    // the scripts let values overflow, so overflow is only a warning, except with --strict
    job_refuse(&job.run, true, a->cli.strict);
    rc = job_prepare(&job, err);
    if (rc == CKPT_OK) {
        job_say_findings(&job, !a->cli.quiet);
        rc = effects_strict(&a->cli, err);
    }
    if (rc == CKPT_OK)
        rc = job_run(&job, err);
    if (rc == CKPT_OK)
        job_say_findings(&job, !a->cli.quiet);
    if (rc == CKPT_OK && !a->cli.quiet)
        say_note("%s", job_closing(closing, &job));
    job_free(&job);
    return rc;
}

/*
 * Run either drop-in.  The source may be any path of a DeepSpeed checkpoint; it is read as a whole.
 */
static int zero_run(zero_args *a, ckpt_err *err)
{
    ckpt_map *map = NULL;

    int rc = zero_target(a, err);
    a->write.cli.open.whole_checkpoint = true;
    a->write.cli.open.require_crc = a->write.cli.strict;
    if (rc == CKPT_OK)
        rc = ckpt_open(&map, a->write.cli.operand[0], &a->write.cli.open, err);
    // the script would not read other formats either
    if (rc == CKPT_OK && strcmp(ckpt_map_format(map), "deepspeed") != 0)
        rc = fail(err, CKPT_EUNSUPPORTED,
                  "%s: expected a DeepSpeed checkpoint, found %s (ckpt convert reads it)",
                  ckpt_map_path(map), ckpt_map_format(map));
    if (rc == CKPT_OK) {
        if (!a->write.cli.quiet)
            zero_say(map, a);
        map_say_findings(map, !a->write.cli.quiet);
        effects_of_source(&a->write.cli, map);
        rc = zero_replaces(&a->write, map, err);
    }
    if (rc == CKPT_OK)
        rc = zero_convert(&a->write, map, err);
    ckpt_map_free(map);
    return rc;
}

/* Convert all floating tensors to float32, frozen 16-bit parameters too. */
static int zero_to_fp32_run(cli_args *cli, ckpt_err *err)
{
    zero_args *a = (zero_args *)cli;
    a->write.target.dtype = CKPT_F32;
    return zero_run(a, err);
}

/* Allow only the script's dtypes, so the drop-in does what its users expect. */
static int zero_to_torch_run(cli_args *cli, ckpt_err *err)
{
    zero_args *a = (zero_args *)cli;
    if (a->write.target.dtype == CKPT_DTYPE_NONE)
        return fail(err, CKPT_EUSAGE, "--dtype is required: bf16, fp16 or fp32");
    if (a->write.target.dtype != CKPT_BF16 && a->write.target.dtype != CKPT_F16 &&
        a->write.target.dtype != CKPT_F32)
        return fail(err, CKPT_EUSAGE, "--dtype: %s is not bf16, fp16 or fp32",
                    ckpt_dtype_name(a->write.target.dtype));
    return zero_run(a, err);
}

#define AT(field) offsetof(zero_args, field)
// clang-format off
#define ZERO_OPTIONS \
    {"max_shard_size", 0, CLI_SIZE, AT(write.target.max_shard_size), "SIZE", \
     "largest file (default: 5GB; 0: one file)"}, \
    {"safe_serialization", 0, CLI_FLAG, AT(safe), NULL, "write safetensors, not .bin files"}, \
    OPTION_TAG, \
    {"exclude_frozen_parameters", 0, CLI_FLAG, AT(write.cli.open.skip_frozen), NULL, \
     "leave frozen parameters out"}, \
    {"keep_slices", 0, CLI_FLAG, AT(write.cli.open.keep_slices), NULL, \
     "keep tensor-parallel slices separate"}, \
    {"slice_rules", 0, CLI_FILE, AT(write.cli.slice_rules), "FILE", \
     "read the rules that join slices (JSON)"}, \
    {"weights_only", 0, CLI_FLAG, AT(write.cli.open.weights_only), NULL, \
     "16-bit weights, without optimizer files"}, \
    {"force", 'f', CLI_FLAG, AT(write.cli.run.force), NULL, "replace an existing other model"}, \
    {"ignore_copies", 0, CLI_FLAG, AT(write.cli.open.ignore_copies), NULL, \
     "do not compare masters with 16-bit copies"}, \
    {"debug", 'd', CLI_FLAG, AT(debug), NULL, "print each parameter"}, \
    OPTION_STRICT, \
    OPTION_MEMORY, \
    {"jobs", 'j', CLI_COUNT, AT(write.cli.run.jobs), "N", \
     "number of threads (default: one per processor, at most 8)"}, \
    {"no-fsync", 0, CLI_FLAG, AT(write.cli.run.skip_fsync), NULL, \
     "do not sync files to disk (scratch data only)"}, \
    OPTION_QUIET, \
    CLI_LOCAL, \
    CLI_SPREAD, \
    CLI_NO_SANDBOX, \
    CLI_END
// clang-format on

static const cli_option fp32_options[] = {ZERO_OPTIONS};

static const cli_option torch_options[] = {
    {"dtype", 0, CLI_DTYPE, AT(write.target.dtype), "bf16|fp16|fp32", "output dtype; required"},
    ZERO_OPTIONS,
};

static const cli_moot zero_moot[] = {
    {"debug", "quiet", NULL},
    {"ignore_copies", "weights_only", NULL},
    {NULL, NULL, NULL},
};

const cli_verb compat_zero_to_fp32 = {
    .name = "zero_to_fp32",
    .command = "zero_to_fp32",
    .operands = "CHECKPOINT_DIR OUTPUT",
    .summary = "Consolidate the weights of a DeepSpeed ZeRO checkpoint in float32.",
    .options = fp32_options,
    .moot = zero_moot,
    .min = 2,
    .max = 2,
    .uses = "ro",
    .run = zero_to_fp32_run,
    .room = sizeof(zero_args),
    WRITE_HOOKS,
    .compat = true,
};

const cli_verb compat_zero_to_torch = {
    .name = "zero_to_torch",
    .command = "zero_to_torch",
    .operands = "CHECKPOINT_DIR OUTPUT",
    .summary = "Consolidate the weights of a DeepSpeed ZeRO checkpoint in any of three dtypes.",
    .options = torch_options,
    .moot = zero_moot,
    .min = 2,
    .max = 2,
    .uses = "ro",
    .run = zero_to_torch_run,
    .room = sizeof(zero_args),
    WRITE_HOOKS,
    .compat = true,
};
