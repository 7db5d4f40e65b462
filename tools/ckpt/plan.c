/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.c: prints the files that a conversion would write, or has written.
 *
 * A few files are listed one by one.  The hundreds of files of a training checkpoint are summed up,
 * one line per kind.
 */
#include "tools/ckpt/plan.h"
#include "tools/ckpt/pipe.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "ckpt_extra.h"
#include "tools/ckpt/attest.h"
#include "tools/ckpt/effects.h"
#include "tools/ckpt/manifest.h"
#include "tools/ckpt/report.h"

enum {
    PLAN_FILES = 12, /* more files than these are summed up by kind */
    PLAN_KINDS = 16  /* kinds in the summary; files of further kinds are "other files" */
};

/* ---- the disk ---- */

/*
 * Maximum bytes of a target's files, headers included.  A deflated file exists in both forms for a
 * while.
 */
static uint64_t plan_bytes(const convert_job *job)
{
    uint64_t n = 0;

    for (size_t i = 0; i < ckpt_map_file_count(job->to); i++)
        n += ckpt_map_file_size(job->to, i);
    return job->target.deflate ? 2 * n : n;
}

/* Free bytes at a future path, from the first existing folder above it. */
static bool plan_free(const char *path, uint64_t *out)
{
    char *at = strdup(path);
    struct statvfs fs;
    int rc = at ? statvfs(at, &fs) : -1;

    while (at && rc != 0) {
        char *slash = strrchr(at, '/');
        if (!slash) {
            rc = statvfs(".", &fs);
            break;
        }
        slash[slash == at ? 1 : 0] = 0;
        rc = statvfs(at, &fs);
        // `at` was the root, which has no parent
        if (slash == at)
            break;
    }
    free(at);
    if (rc == 0)
        *out = (uint64_t)fs.f_bavail * (uint64_t)fs.f_frsize;
    return rc == 0;
}

/* ---- kinds of files ---- */

typedef struct plan_kind {
    const char *name; /* n_name bytes of a path */
    size_t n_name;
    uint64_t n, bytes;
} plan_kind;

/*
 * The kind of a file: for names with ranks, the words between the last rank and the suffix, else
 * its own name.
 */
static const char *plan_kind_of(const char *path, size_t *n)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.'), *kind = NULL;

    for (const char *s = name; *s && s != dot; s++) {
        if (*s >= '0' && *s <= '9')
            kind = s[1] == '_' || s[1] == '-' ? s + 2 : NULL;
    }
    *n = kind && dot ? (size_t)(dot - kind) : strlen(name);
    return kind && dot ? kind : name;
}

/* Count every file by its kind, in the order of first appearance; returns the number of kinds. */
static size_t plan_kinds(plan_kind kinds[PLAN_KINDS], const ckpt_map *to)
{
    size_t n_kinds = 0;

    for (size_t i = 0; i < ckpt_map_file_count(to); i++) {
        plan_kind kind = {.name = NULL};
        size_t k = 0;
        kind.name = plan_kind_of(ckpt_map_file_path(to, i), &kind.n_name);
        while (k < n_kinds && (kinds[k].n_name != kind.n_name ||
                               strncmp(kinds[k].name, kind.name, kind.n_name) != 0))
            k++;
        if (k >= PLAN_KINDS) {
            k = PLAN_KINDS - 1;
            kinds[k].name = "other files";
            kinds[k].n_name = strlen(kinds[k].name);
        } else if (k == n_kinds) {
            kinds[n_kinds++] = kind;
        }
        kinds[k].n++;
        kinds[k].bytes += ckpt_map_file_size(to, i);
    }
    return n_kinds;
}

/* Print a line per kind: "4 x optim_states  1.07 GB". */
static void plan_kinds_text(const ckpt_map *to)
{
    plan_kind kinds[PLAN_KINDS];
    size_t n = plan_kinds(kinds, to);
    char bytes[HUMAN_ROOM];

    for (size_t k = 0; k < n; k++)
        out_printf("%" PRIu64 " x %.*s  %s\n", kinds[k].n, (int)kinds[k].n_name, kinds[k].name,
                   human_bytes(bytes, kinds[k].bytes));
}

/* Print the path of a target's file as users see it. */
static void plan_path(const convert_job *job, const char *path)
{
    const char *folder = ckpt_map_output_folder(job->to);

    out_text(job->target.path);
    if (folder) {
        out_printf("/");
        out_text(folder);
    }
    if (path && write_into_folder(&job->target)) {
        out_printf("/");
        out_text(path);
    }
}

/* Print a line per file. */
static void plan_files_text(const convert_job *job)
{
    char bytes[HUMAN_ROOM];

    for (size_t i = 0; i < ckpt_map_file_count(job->to); i++) {
        plan_path(job, ckpt_map_file_path(job->to, i));
        out_printf("  %s%s\n", human_bytes(bytes, ckpt_map_file_size(job->to, i)),
                   job->target.deflate ? ", before it is deflated" : "");
    }
}

/* ---- changed values ---- */

/*
 * The i-th finding that begins with `head`, or NULL; *warned: it is a warning, already printed to
 * stderr.
 */
static const char *plan_value(const ckpt_map *to, const char *head, size_t i, bool *warned)
{
    const char *text;
    int severity, code;

    for (size_t k = 0; ckpt_map_finding_at(to, k, &severity, &code, &text); k++) {
        if (strncmp(text, head, strlen(head)) == 0 && i-- == 0) {
            *warned = severity > 0;
            return text + strlen(head);
        }
    }
    return NULL;
}

/* Print the changes of single values, except those already printed as warnings. */
static void plan_values_text(const ckpt_map *to)
{
    static const char *const heads[] = {JOB_REWRITTEN, JOB_LEFT_OUT};
    const char *text;
    bool warned;

    for (size_t h = 0; h < 2; h++) {
        for (size_t i = 0; (text = plan_value(to, heads[h], i, &warned)); i++) {
            if (warned)
                continue;
            out_printf("%s", heads[h]);
            out_text(text);
            out_printf("\n");
        }
    }
}

static void plan_values_json(json_out *j, const char *key, const ckpt_map *to, const char *head)
{
    const char *text;
    bool warned;

    json_open(j, key, '[');
    for (size_t i = 0; (text = plan_value(to, head, i, &warned)); i++)
        json_text(j, NULL, text);
    json_close(j, ']');
}

/* ---- JSON ---- */

/* List the target's files with their exact sizes, which are known before writing (for deflated
 * files, the size before compression). */
static void plan_files_json(json_out *j, const ckpt_map *to)
{
    json_open(j, "files", '[');
    for (size_t i = 0; i < ckpt_map_file_count(to); i++) {
        json_open(j, NULL, '{');
        json_text(j, "path", ckpt_map_file_path(to, i));
        json_uint(j, "bytes", ckpt_map_file_size(to, i));
        json_close(j, '}');
    }
    json_close(j, ']');
}

/* Print the target's tensors by dtype; weights also one by one, with their files. */
static void plan_tensors_json(json_out *j, const ckpt_map *to)
{
    uint64_t n[CKPT_N_DTYPES] = {0};

    for (size_t i = 0; i < ckpt_map_tensor_count(to); i++)
        n[ckpt_map_tensor_at(to, i)->dtype]++;
    json_open_flat(j, "dtypes", '{');
    for (unsigned d = 0; d < CKPT_N_DTYPES; d++) {
        if (n[d] > 0)
            json_uint(j, ckpt_dtype_name((ckpt_dtype)d), n[d]);
    }
    json_close(j, '}');
    // the parts of training state have no names that users know
    if (ckpt_map_output_folder(to))
        return;
    json_open(j, "outputs", '[');
    for (size_t i = 0; i < ckpt_map_tensor_count(to) && !out_broken(); i++) {
        const ckpt_tensor *t = ckpt_map_tensor_at(to, i);

        json_open_flat(j, NULL, '{');
        json_text(j, "name", t->name);
        json_text(j, "dtype", ckpt_dtype_name(t->dtype));
        json_shape(j, "shape", t);
        json_text(j, "file", ckpt_map_file_path(to, t->file));
        json_close(j, '}');
    }
    json_close(j, ']');
}

/* Print the number of tensors per dtype: "BF16 57, I64 1". */
static void plan_dtypes_text(const ckpt_map *to)
{
    uint64_t n[CKPT_N_DTYPES] = {0};
    bool more = false;

    for (size_t i = 0; i < ckpt_map_tensor_count(to); i++)
        n[ckpt_map_tensor_at(to, i)->dtype]++;
    out_printf("dtypes:");
    for (unsigned d = 0; d < CKPT_N_DTYPES; d++) {
        if (n[d] == 0)
            continue;
        out_printf("%s %s %" PRIu64, more ? "," : "", ckpt_dtype_name((ckpt_dtype)d), n[d]);
        more = true;
    }
    out_printf("%s\n", more ? "" : " none");
}

/* Print the changes to the model that options cause. */
static void plan_changes_text(const convert_job *job)
{
    const char *key, *text;

    for (size_t i = 0; job_change_at(job, &i, &key, &text);) {
        out_printf("%s: ", key);
        out_text(text);
        out_printf("\n");
    }
}

/* Add the changes as an object, if there are any. */
static void plan_changes_json(json_out *j, const convert_job *job)
{
    const char *key, *text;
    size_t n = 0;

    for (size_t i = 0; job_change_at(job, &i, &key, &text);) {
        if (n++ == 0)
            json_open_flat(j, "changes", '{');
        json_text(j, key, text);
    }
    if (n > 0)
        json_close(j, '}');
}

/*
 * Add the members that only targets with training state have: tag folder, pointer, changed values.
 */
static void plan_training_json(json_out *j, const ckpt_map *to)
{
    json_text(j, "folder", ckpt_map_output_folder(to));
    json_text(j, "pointer", ckpt_map_output_pointer(to));
    plan_values_json(j, "rewritten", to, JOB_REWRITTEN);
    plan_values_json(j, "left_out", to, JOB_LEFT_OUT);
}

/* Add the list of checks that only a run can make. */
static void plan_unchecked_json(json_out *j, const ckpt_map *to)
{
    json_open_flat(j, "not_checked", '[');
    json_text(j, NULL, "values");
    json_text(j, NULL, "checksums");
    json_text(j, NULL, "existing outputs");
    if (ckpt_map_output_folder(to))
        json_text(j, NULL, "read-back");
    json_close(j, ']');
}

/* Print the plan as one document. */
static void plan_json(const convert_job *job, uint64_t n_read, uint64_t n_write)
{
    uint64_t n_free = 0;
    json_out j;

    json_begin(&j);
    json_text(&j, "source", ckpt_map_path(job->from));
    json_text(&j, "target", job->target.path);
    json_text(&j, "format", job->target.format);
    json_bool(&j, "dry_run", true);
    plan_unchecked_json(&j, job->to);
    json_uint(&j, "tensors", ckpt_map_tensor_count(job->to));
    json_uint(&j, "bytes_to_read", n_read);
    json_uint(&j, "bytes_to_write", n_write);
    json_uint(&j, "memory", job->run.memory);
    if (ckpt_map_output_folder(job->to)) {
        json_uint(&j, "bytes_needed", plan_bytes(job));
        if (plan_free(job->target.path, &n_free))
            json_uint(&j, "bytes_free", n_free);
        else
            json_text(&j, "bytes_free", NULL);
        plan_training_json(&j, job->to);
    }
    if (job->target.deflate)
        json_bool(&j, "deflated", true);
    plan_files_json(&j, job->to);
    plan_changes_json(&j, job);
    plan_tensors_json(&j, job->to);
    json_end(&j);
}

/* ---- the plan ---- */

/* Print the disk space needed and free. */
static void plan_disk_text(const convert_job *job)
{
    char a[HUMAN_ROOM], b[HUMAN_ROOM];
    uint64_t n = plan_bytes(job), n_free = 0;

    if (!plan_free(job->target.path, &n_free))
        return;
    out_printf("disk: %s needed, %s free\n", human_bytes(a, n), human_bytes(b, n_free));
    if (n > n_free)
        say_warning("%s: the disk does not have enough free space", job->target.path);
}

/* Print files or their kinds, changes and totals. */
static void plan_text(const convert_job *job, uint64_t n_read, uint64_t n_write)
{
    char a[HUMAN_ROOM], b[HUMAN_ROOM], c[HUMAN_ROOM], n[COUNT_ROOM];
    const char *pointer = ckpt_map_output_pointer(job->to);

    if (ckpt_map_file_count(job->to) > PLAN_FILES && ckpt_map_output_folder(job->to)) {
        plan_path(job, NULL);
        out_printf("/\n");
        plan_kinds_text(job->to);
    } else {
        plan_files_text(job);
    }
    if (pointer) {
        out_text(job->target.path);
        out_printf("/%s\n", pointer);
    }
    plan_values_text(job->to);
    if (ckpt_map_output_folder(job->to))
        plan_disk_text(job);
    plan_changes_text(job);
    plan_dtypes_text(job->to);
    out_printf("plan: %s, ", count_text(n, ckpt_map_tensor_count(job->to), "tensor"));
    out_printf("%s, read %s, write %s, with %s of buffers; nothing was written\n",
               count_text(n, ckpt_map_file_count(job->to), "file"), human_bytes(a, n_read),
               human_bytes(b, n_write), human_bytes(c, job->run.memory));
    out_printf("not checked by --dry-run: values, checksums, existing outputs%s\n",
               ckpt_map_output_folder(job->to) ? ", reading the output back" : "");
}

/* Print the plan of a prepared job: files, totals, disk space; nothing has been written. */
static void plan_show(convert_job *job, const write_args *a)
{
    uint64_t n_read = 0, n_write = 0, n_jobs = 0;

    // sizes come from the plan, which has read no tensor byte
    ckpt_plan_sizes(job->plan, &n_read, &n_write, &n_jobs);
    job_say_findings(job, !a->cli.quiet);
    if (a->cli.json)
        plan_json(job, n_read, n_write);
    else
        plan_text(job, n_read, n_write);
}

/* ---- the outcome ---- */

/* Add the other findings about the target, which have no member of their own. */
static void plan_findings_json(json_out *j, const ckpt_map *to)
{
    const char *text;
    int severity, code;

    for (size_t i = 0; ckpt_map_finding_at(to, i, &severity, &code, &text); i++) {
        if (!job_is_value(text, severity))
            json_finding(j, severity, text);
    }
}

/* Print the report as one document. */
static void outcome_json(const convert_job *job)
{
    json_out j;

    json_begin(&j);
    json_text(&j, "source", ckpt_map_path(job->from));
    json_text(&j, "target", job->target.path);
    json_text(&j, "format", job->target.format);
    json_bool(&j, "dry_run", false);
    if (ckpt_map_output_folder(job->to))
        plan_training_json(&j, job->to);
    plan_files_json(&j, job->to);
    plan_changes_json(&j, job);
    plan_tensors_json(&j, job->to);
    if (job->more)
        job->more(&j, job->more_ctx);
    json_report(&j, "report", &job->report);
    json_open(&j, "findings", '[');
    json_findings_of(&j, job->from);
    plan_findings_json(&j, job->to);
    json_close(&j, ']');
    json_end(&j);
}

/* Print the closing line and the changes, or the report as JSON. */
static void outcome_show(convert_job *job, const write_args *a)
{
    char closing[CLOSING_ROOM], kept[COUNT_ROOM];

    job_say_findings(job, !a->cli.quiet);
    if (a->cli.json) {
        outcome_json(job);
    } else if (!a->cli.quiet) {
        out_printf("%s\n", job_closing(closing, job));
        if (job->report.n_files_kept)
            out_printf("resumed: %s had already been written\n",
                       count_text(kept, job->report.n_files_kept, "file"));
        plan_values_text(job->to);
    }
}

/* ---- the complete conversion ---- */

/* Write statement and manifest, which has the statement if both are in the output. */
static int plan_vouch(convert_job *job, const write_args *a, ckpt_err *err)
{
    int rc = attest_write(job, a, err);
    // also without the statement: an old manifest must go
    int of_manifest = manifest_finish(job, a, err);

    return rc == CKPT_OK ? of_manifest : rc;
}

int plan_carry_out(convert_job *job, write_args *a, ckpt_err *err)
{
    // do all steps that can fail before the first byte is written
    int rc = attest_check(job, a, err);

    if (rc == CKPT_OK)
        rc = manifest_begin(job, a, err);

    if (rc == CKPT_OK)
        rc = job_prepare(job, err);
    if (rc == CKPT_OK)
        rc = manifest_check_place(job, a, err);
    if (rc == CKPT_OK)
        rc = attest_check_place(job, a, err);
    if (rc == CKPT_OK) {
        effects_of_layout(a, job->from, job->to);
        job_say_findings(job, !a->cli.quiet);
        rc = effects_strict(&a->cli, err);
    }
    if (rc == CKPT_OK && a->cli.dry_run) {
        plan_show(job, a);
    } else if (rc == CKPT_OK) {
        bool pours = args_to_stdout(&a->cli);

        rc = pours ? pipe_run(job, err) : job_run(job, err);
        if (rc == CKPT_OK)
            rc = plan_vouch(job, a, err);
        if (rc == CKPT_OK && !pours)
            outcome_show(job, a);
    }
    job_free(job);
    return rc;
}
