/*
 * verb_convert.c: ckpt convert: weights from any format that is read to any that is written.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/job.h"
#include "tools/report.h"
#include "tools/verbs.h"

enum { RENAME_MAX_BYTES = 16 << 20 };

/* The rules of --rename: the whole file, terminated.  The caller frees it. */
static int convert_rules(char **out, const char *path, ckpt_err *err)
{
    FILE *file = fopen(path, "rb");
    char *text = file ? malloc(RENAME_MAX_BYTES + 1) : NULL;

    if (!file)
        return fail(err, CKPT_EIO, "%s: %s", path, strerror(errno));
    size_t n = text ? fread(text, 1, RENAME_MAX_BYTES + 1, file) : 0;
    bool failed = ferror(file) != 0;
    (void)fclose(file);
    // one byte more was asked for than is allowed, to see whether there is more
    if (text && !failed && n <= RENAME_MAX_BYTES) {
        text[n] = 0;
        *out = text;
        return CKPT_OK;
    }
    free(text);
    if (failed)
        return fail(err, CKPT_EIO, "%s: cannot be read", path);
    return fail(err, CKPT_ELIMIT, n ? "%s: rename rules take at most 16 MiB" : "%s: out of memory",
                path);
}

/* Apply --include, --exclude and --rename to the map, if any was given. */
static int convert_select(ckpt_map *map, const cli_args *a, ckpt_err *err)
{
    char *rules = NULL;
    ckpt_filter filter;
    int rc = CKPT_OK;

    if (!cli_filter(&filter, a))
        return CKPT_OK;
    if (a->rename)
        rc = convert_rules(&rules, a->rename, err);
    filter.rename_text = rules;
    if (rc == CKPT_OK)
        rc = ckpt_map_select(map, &filter, err);
    free(rules);
    return rc;
}

/* ---- the plan, for --dry-run ---- */

/* The files of the target with their exact sizes, known before anything is written. */
static void convert_files_json(json_out *j, const ckpt_map *to)
{
    json_open(j, "files", '[');
    for (size_t i = 0; i < ckpt_map_n_files(to); i++) {
        json_open(j, NULL, '{');
        json_text(j, "path", ckpt_map_file_path(to, i));
        json_uint(j, "bytes", ckpt_map_file_size(to, i));
        json_close(j, '}');
    }
    json_close(j, ']');
}

/* The plan as one document. */
static void convert_plan_json(const convert_job *job, uint64_t n_read, uint64_t n_write)
{
    json_out j;

    json_begin(&j);
    json_text(&j, "source", ckpt_map_path(job->from));
    json_text(&j, "target", job->target.path);
    json_text(&j, "format", job->target.format);
    json_bool(&j, "dry_run", true);
    json_uint(&j, "tensors", ckpt_map_count(job->to));
    json_uint(&j, "bytes_to_read", n_read);
    json_uint(&j, "bytes_to_write", n_write);
    json_uint(&j, "memory", job->run.memory);
    convert_files_json(&j, job->to);
    json_end(&j);
}

/* The plan: a line per file, and one with the sums. */
static void convert_plan_text(const convert_job *job, uint64_t n_read, uint64_t n_write)
{
    char a[HUMAN_ROOM], b[HUMAN_ROOM], c[HUMAN_ROOM], n[COUNT_ROOM];

    for (size_t i = 0; i < ckpt_map_n_files(job->to); i++) {
        out_text(job->target.path);
        if (job_into_folder(&job->target)) {
            out_printf("/");
            out_text(ckpt_map_file_path(job->to, i));
        }
        out_printf("  %s\n", human_bytes(a, ckpt_map_file_size(job->to, i)));
    }
    out_printf("plan: %s, ", count_text(n, ckpt_map_count(job->to), "tensor"));
    out_printf("%s, read %s, write %s, with %s of buffers; nothing was written\n",
               count_text(n, ckpt_map_n_files(job->to), "file"), human_bytes(a, n_read),
               human_bytes(b, n_write), human_bytes(c, job->run.memory));
}

/* Sizes come from the plan, which has touched no tensor byte. */
static void convert_show_plan(const convert_job *job, bool json)
{
    uint64_t n_read = 0, n_write = 0, n_jobs = 0;

    ckpt_plan_sizes(job->plan, &n_read, &n_write, &n_jobs);
    if (json)
        convert_plan_json(job, n_read, n_write);
    else
        convert_plan_text(job, n_read, n_write);
}

/* ---- the outcome ---- */

/* The closing line, or the report as JSON. */
static void convert_show_report(const convert_job *job, const cli_args *a)
{
    char closing[CLOSING_ROOM];
    json_out j;

    if (!a->json) {
        if (!a->quiet)
            out_printf("%s\n", job_closing(closing, job));
        return;
    }
    json_begin(&j);
    json_text(&j, "source", ckpt_map_path(job->from));
    json_text(&j, "target", job->target.path);
    json_text(&j, "format", job->target.format);
    json_bool(&j, "dry_run", false);
    convert_files_json(&j, job->to);
    json_report(&j, "report", &job->report);
    json_findings(&j, "findings", job->from);
    json_end(&j);
}

/* Settle what the options leave open: format, shard size, memory. */
static int convert_target(cli_args *a, ckpt_err *err)
{
    a->target.path = a->operand[1];
    if (!a->target.format)
        // only the name of a file may decide: a folder's says nothing
        a->target.format = job_format_of(a->target.path);
    if (!a->target.format)
        return fail(err, CKPT_EUSAGE,
                    "%s: say --to torch, safetensors, hf or hf-bin (its suffix names no format)",
                    a->target.path);
    a->target.copy_side_files = !a->no_side_files;
    return CKPT_OK;
}

/* Open, select, lay out, plan; then show the plan or carry it out. */
static int convert_run(cli_args *a, ckpt_err *err)
{
    ckpt_map *map = NULL;
    int rc = convert_target(a, err);

    // one shard of many holds no whole tensor: it is hardly what is meant
    a->open.whole_checkpoint = !a->as_file;
    if (rc == CKPT_OK)
        rc = ckpt_open(&map, a->operand[0], &a->open, err);
    convert_job job = {.from = map, .target = a->target, .run = a->run, .quiet = a->quiet};
    if (rc == CKPT_OK) {
        if (!a->quiet)
            map_say_understood(map);
        map_say_findings(map, !a->quiet);
        rc = convert_select(map, a, err);
    }
    // everything that can fail without writing has been tried when the first byte is written
    if (rc == CKPT_OK)
        rc = job_prepare(&job, err);
    if (rc == CKPT_OK && a->dry_run) {
        convert_show_plan(&job, a->json);
    } else if (rc == CKPT_OK) {
        rc = job_run(&job, err);
        if (rc == CKPT_OK)
            convert_show_report(&job, a);
    }
    job_free(&job);
    ckpt_map_free(map);
    return rc;
}

#define AT(field) offsetof(cli_args, field)
static const cli_option convert_options[] = {
    {"to", 0, CLI_TEXT, AT(target.format), "FORMAT", "torch, safetensors, hf or hf-bin"},
    {"dtype", 0, CLI_DTYPE, AT(target.dtype), "D", "of all floating tensors (masters: fp32)"},
    {"max-shard-size", 0, CLI_SIZE, AT(target.max_shard_size), "SIZE",
     "largest file of a folder (5GB; 0: one file)"},
    {"include", 0, CLI_LIST, AT(include), "GLOB", "only names that match (again: or)"},
    {"exclude", 0, CLI_LIST, AT(exclude), "GLOB", "no names that match"},
    {"rename", 0, CLI_TEXT, AT(rename), "FILE", "rules, one a line: PATTERN REPLACEMENT"},
    {"tag", 't', CLI_TEXT, AT(open.tag), "TAG", "this tag instead of the latest"},
    {"with-optimizer", 0, CLI_FLAG, AT(open.with_optimizer), NULL, "also optimizer state"},
    {"no-frozen", 0, CLI_FLAG, AT(open.no_frozen), NULL, "leave frozen parameters out"},
    {"exclude-frozen", 0, CLI_FLAG, AT(open.no_frozen), NULL, "the same"},
    {"as-file", 0, CLI_FLAG, AT(as_file), NULL, "a shard alone, not its whole checkpoint"},
    {"require-crc", 0, CLI_FLAG, AT(open.require_crc), NULL, "refuse records without CRC-32"},
    {"memory", 0, CLI_SIZE, AT(run.memory), "SIZE", "for buffers, in all (256MiB)"},
    {"jobs", 'j', CLI_COUNT, AT(run.jobs), "N", "threads (one per processor, at most 8)"},
    {"force", 'f', CLI_FLAG, AT(run.force), NULL, "replace existing outputs"},
    {"no-fsync", 0, CLI_FLAG, AT(run.no_fsync), NULL, "do not wait for the disk (scratch use)"},
    {"no-side-files", 0, CLI_FLAG, AT(no_side_files), NULL, "do not copy config and tokenizer"},
    {"dry-run", 'n', CLI_FLAG, AT(dry_run), NULL, "print the plan, write nothing"},
    {"json", 0, CLI_FLAG, AT(json), NULL, "print the plan or the report as JSON"},
    {"quiet", 'q', CLI_FLAG, AT(quiet), NULL, "only warnings and errors"},
    {NULL, 0, CLI_FLAG, 0, NULL, NULL},
};

const cli_verb verb_convert = {
    .name = "convert",
    .command = "ckpt convert",
    .operands = "SRC DST",
    .summary = "Convert the weights of a checkpoint to another format.",
    .options = convert_options,
    .min = 2,
    .max = 2,
    .run = convert_run,
};
