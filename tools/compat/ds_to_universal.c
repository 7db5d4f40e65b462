/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ds_to_universal.c: implements the drop-in ds_to_universal, with the arguments and messages of
 * DeepSpeed's script.
 *
 * stdout has the lines for which users search logs; our own lines go to stderr.  The script's
 * errors are corrected: runs without universal_checkpoint_info can be converted, a slash after the
 * output folder changes nothing, the complete folder replaces the old one in one step, and
 * round_robin_gradients is handled correctly.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ckpt/effects.h"
#include "tools/ckpt/job.h"
#include "tools/ckpt/report.h"
#include "tools/ckpt/training.h"
#include "tools/ckpt/verbs.h"
#include "tools/cli/options.h"

/* The fields of this command. */
typedef struct uni_args {
    write_args write; /* first: the parser fills the whole */
    bool keep_temp, no_strict, inject;
    unsigned n_extract, n_merge;
    const char *input, *output;
} uni_args;

enum { UNI_EXTRACT = 4, UNI_MERGE = 2 }; /* the script's defaults */

/* Length of a path without trailing slashes. */
static size_t uni_length(const char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    return n;
}

/*
 * Split an output folder into the run folder and the name below it; the caller frees both.  The
 * script uses the text after the last slash, so "out/" has no name; here it has.
 */
static int uni_split(const char *path, char **folder, char **name, ckpt_err *err)
{
    size_t n = uni_length(path), at = n;

    while (at > 0 && path[at - 1] != '/')
        at--;
    *name = strndup(path + at, n - at);
    *folder = at == 0 ? strdup(".") : strndup(path, at > 1 ? at - 1 : 1);
    if (!*name || !*folder)
        return fail(err, CKPT_ELIMIT, "out of memory");
    if (strcmp(path, "-") == 0)
        return fail(err, CKPT_EUSAGE,
                    "--output_folder -: the output is a folder, not standard output (./- is a "
                    "folder of that name)");
    if (**name == '\0' || strcmp(*name, ".") == 0 || strcmp(*name, "..") == 0)
        return fail(err, CKPT_EUSAGE, "--output_folder: '%s' does not name a folder to make", path);
    return CKPT_OK;
}

/* Check that both folders are given and differ. */
static int uni_check(uni_args *a, ckpt_err *err)
{
    if (!a->input || !a->output)
        return fail(err, CKPT_EUSAGE, "--%s is required",
                    a->input ? "output_folder" : "input_folder");
    if (uni_length(a->input) == uni_length(a->output) &&
        strncmp(a->input, a->output, uni_length(a->input)) == 0)
        return fail(err, CKPT_EUSAGE, "--output_folder must not be the input folder");
    a->n_extract = a->n_extract ? a->n_extract : UNI_EXTRACT;
    a->n_merge = a->n_merge ? a->n_merge : UNI_MERGE;
    a->write.target.format = "universal";
    // the script overwrites the output; ckpt does so only when the new one is complete
    a->write.cli.run.force = true;
    if (a->keep_temp && !a->write.cli.quiet)
        say_note("--keep_temp_folder has no effect: no temporary folder exists");
    return CKPT_OK;
}

/*
 * Check that the output may replace the folder at this path.  The script only adds files to it, but
 * here other files would be lost, so it must be empty or an earlier conversion (even an unfinished
 * one of the script).
 */
static int uni_replaceable(const char *path, ckpt_err *err)
{
    DIR *dir = opendir(path);
    bool empty = true, ours = false;
    struct dirent *e;

    while (dir && (e = readdir(dir))) {
        bool dots = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
        empty = empty && dots;
        ours = ours || strcmp(e->d_name, "zero") == 0 || strcmp(e->d_name, "tmp") == 0;
    }
    if (dir)
        (void)closedir(dir);
    if (empty || ours)
        return CKPT_OK;
    return fail(err, CKPT_EUSAGE,
                "%s: has files that do not belong to a universal checkpoint, and would be replaced "
                "as a whole; choose another output",
                path);
}

/* Print the script's lines before the conversion. */
static void uni_say(const uni_args *a)
{
    out_printf("args = Namespace(input_folder='");
    out_text(a->input);
    out_printf("', output_folder='");
    out_text(a->output);
    out_printf("', num_extract_workers=%u, num_merge_workers=%u, keep_temp_folder=%s, strict=%s, "
               "inject_missing_state=%s)\n",
               a->n_extract, a->n_merge, a->keep_temp ? "True" : "False",
               a->no_strict ? "False" : "True", a->inject ? "True" : "False");
    out_printf("Convert DeepSpeed Checkpoint to Universal Checkpoint\n");
    out_printf("Converting DeepSpeed checkpoint in ");
    out_text(a->input);
    out_printf(" to Universal checkpoint in ");
    out_text(a->output);
    out_printf("\n");
}

/* Lay out, write, and print the closing line. */
static int uni_convert(write_args *a, const ckpt_map *map, ckpt_err *err)
{
    convert_job job = {.from = map, .target = a->target, .run = a->cli.run, .quiet = a->cli.quiet};
    const char *stage = map_fact(map, "stage");
    bool flat = stage && strcmp(stage, "3") == 0;
    char closing[CLOSING_ROOM];
    const char *text;
    int rc = CKPT_OK, severity, code;

    if (!a->cli.quiet)
        out_printf("*** 1. Extracting ZeRO fragments\n");
    job_refuse(&job.run, true, a->cli.strict);
    rc = job_prepare(&job, err);
    if (rc == CKPT_OK) {
        effects_of_layout(a, map, job.to);
        map_say_findings(job.to, !a->cli.quiet);
        while (ckpt_map_finding_at(job.to, job.n_said, &severity, &code, &text))
            job.n_said++;
        rc = effects_strict(&a->cli, err);
    }
    if (rc == CKPT_OK) {
        if (!a->cli.quiet)
            out_printf("*** 2. Merging slices .....\n%s*** 3. Saving common optimizer states\n",
                       flat ? "" : "    No AutoEP layers found, skipping\n");
        rc = job_run(&job, err);
    }
    if (rc == CKPT_OK)
        job_say_findings(&job, !a->cli.quiet);
    if (rc == CKPT_OK && !a->cli.quiet) {
        out_printf("*** Done!\n");
        say_note("%s", job_closing(closing, &job));
    }
    job_free(&job);
    return rc;
}

/* Open a DeepSpeed checkpoint with its optimizer; other formats are refused, as by the script. */
static int uni_open(ckpt_map **map, uni_args *a, ckpt_err *err)
{
    int rc = training_check(&a->write, err);

    // args_open opens the first operand, but the script has an option instead
    a->write.cli.operand = (char *const *)(uintptr_t)&a->input;
    a->write.cli.n_operands = 1;
    a->write.cli.open.with_optimizer = true;
    a->write.cli.open.whole_checkpoint = true;
    a->write.cli.open.join_first_axis = a->inject;
    a->write.cli.open.require_crc = a->write.cli.strict;
    if (rc == CKPT_OK)
        rc = args_open(map, &a->write.cli, err);
    if (rc == CKPT_OK && strcmp(ckpt_map_format(*map), "deepspeed") != 0)
        rc = fail(err, CKPT_EUNSUPPORTED,
                  "%s: expected a DeepSpeed checkpoint, found %s (ckpt convert --to universal "
                  "reads it)",
                  ckpt_map_path(*map), ckpt_map_format(*map));
    return rc;
}

/* Do all the work of the script. */
static int uni_run(cli_args *cli, ckpt_err *err)
{
    uni_args *a = (uni_args *)cli;
    char *folder = NULL, *name = NULL;
    ckpt_map *map = NULL;
    int rc = uni_check(a, err);

    if (rc == CKPT_OK)
        rc = uni_split(a->output, &folder, &name, err);
    if (rc == CKPT_OK)
        rc = uni_replaceable(a->output, err);
    if (rc == CKPT_OK) {
        a->write.target.path = folder;
        a->write.target.tag = name;
        if (!a->write.cli.quiet)
            uni_say(a);
        rc = uni_open(&map, a, err);
    }
    if (rc == CKPT_OK) {
        map_say_findings(map, !a->write.cli.quiet);
        effects_of_source(&a->write.cli, map);
        rc = uni_convert(&a->write, map, err);
    }
    ckpt_map_free(map);
    free(folder);
    free(name);
    return rc;
}

#define AT(field) offsetof(uni_args, field)
static const cli_option uni_options[] = {
    {"input_folder", 0, CLI_SOURCE, AT(input), "FOLDER", "checkpoint to read: RUN/TAG; required"},
    {"output_folder", 0, CLI_OUTPUT, AT(output), "FOLDER", "folder to write: RUN/OUT; required"},
    {"num_extract_workers", 0, CLI_COUNT, AT(n_extract), "N",
     "accepted without effect (default: 4)"},
    {"num_merge_workers", 0, CLI_COUNT, AT(n_merge), "N", "accepted without effect (default: 2)"},
    {"keep_temp_folder", 0, CLI_FLAG, AT(keep_temp), NULL,
     "accepted without effect: no temporary folder exists"},
    {"no_strict", 0, CLI_FLAG, AT(no_strict), NULL,
     "accepted without effect: unmatched patterns only warn"},
    {"inject_missing_state", 0, CLI_FLAG, AT(inject), NULL,
     "without rules: join slices along their first axis"},
    {"slice_rules", 0, CLI_FILE, AT(write.cli.slice_rules), "FILE",
     "read the rules that join slices (JSON)"},
    {"deepspeed_version", 0, CLI_TEXT, AT(write.target.version), "V",
     "write for DeepSpeed V (default: the checkpoint's)"},
    {"keep_objects", 0, CLI_FLAG, AT(write.target.keep_objects), NULL,
     "copy objects of unknown classes"},
    {"drop_objects", 0, CLI_FLAG, AT(write.target.drop_objects), NULL,
     "leave objects of unknown classes out"},
    {"ignore_copies", 0, CLI_FLAG, AT(write.cli.open.ignore_copies), NULL,
     "do not compare masters with 16-bit copies"},
    OPTION_STRICT,
    OPTION_MEMORY,
    OPTION_JOBS,
    OPTION_NO_FSYNC,
    OPTION_QUIET,
    CLI_LOCAL,
    CLI_SPREAD,
    CLI_NO_SANDBOX,
    CLI_END,
};

static const cli_moot uni_moot[] = {
    {"inject_missing_state", "slice_rules", NULL},
    {NULL, NULL, NULL},
};

const cli_verb compat_ds_to_universal = {
    .name = "ds_to_universal",
    .command = "ds_to_universal",
    .operands = "--input_folder RUN/TAG --output_folder RUN/OUT",
    .summary = "Convert a DeepSpeed ZeRO checkpoint to a universal one, for any stage and world.",
    .options = uni_options,
    .moot = uni_moot,
    .min = 0,
    .max = 0,
    .run = uni_run,
    .room = sizeof(uni_args),
    WRITE_HOOKS,
    .compat = true,
};
