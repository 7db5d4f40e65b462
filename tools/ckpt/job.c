/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.c: runs one conversion from its options to its closing line.
 *
 * Layout and plan come first and read no tensor bytes, so a dry run takes the same steps up to the
 * plan.
 */
#include "tools/ckpt/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ckpt_extra.h"
#include "tools/ckpt/report.h"
#include "tools/cli/args.h"
#include "tools/cli/progress.h"

void job_settle(ckpt_target *target)
{
    unsigned caps = ckpt_format_caps(target->format);

    if (!(caps & CKPT_TAKES_SHARD_SIZE))
        target->max_shard_size = 0;
    if (!(caps & CKPT_TAKES_SIDE_FILES))
        target->skip_side_files = false;
}

int job_lay_out(convert_job *j, ckpt_err *err)
{
    job_settle(&j->target);
    return ckpt_layout(&j->to, j->from, &j->target, err);
}

int job_prepare(convert_job *j, ckpt_err *err)
{
    if (strcmp(j->target.path, "-") == 0)
        return fail(err, CKPT_EUSAGE,
                    "'-': this command cannot write to standard output: give the name of a file or "
                    "folder (./- for a file named '-')");
    int rc = job_lay_out(j, err);

    if (rc == CKPT_OK)
        rc = ckpt_plan_new(&j->plan, j->from, j->to, &j->run, err);
    return rc;
}

/* Callback of ckpt_clean: sum up the files that it would remove. */
static int job_add_leftover(void *ctx, const ckpt_leftover *l)
{
    ckpt_leftover *sum = ctx;

    if (!l->kept) {
        sum->n_files++;
        sum->n_bytes += l->n_bytes;
    }
    return 0;
}

/*
 * Mention hidden files that killed runs have left next to our output: users do not see them, but
 * uploads include them.
 */
static void job_say_leftovers(const char *folder)
{
    ckpt_leftover sum = {0};
    const ckpt_clean_opts look = {.dry_run = true, .leftover = job_add_leftover, .ctx = &sum};
    char size[HUMAN_ROOM], count[COUNT_ROOM];

    if (ckpt_clean(folder, &look, NULL) == CKPT_OK && sum.n_files)
        say_note("%s: found %s of interrupted ckpt commands, %s: `ckpt clean` deletes them", folder,
                 count_text(count, sum.n_files, "temporary file"), human_bytes(size, sum.n_bytes));
}

/* Maximum number of printed findings, because after a diverged run every tensor has one. */
enum { JOB_MOST = 16 };

bool job_is_value(const char *text, int severity)
{
    return severity == 0 && (strncmp(text, JOB_REWRITTEN, strlen(JOB_REWRITTEN)) == 0 ||
                             strncmp(text, JOB_LEFT_OUT, strlen(JOB_LEFT_OUT)) == 0);
}

void job_say_findings(convert_job *j, bool notes)
{
    uint64_t n[2] = {0};
    const char *text;
    int severity, code;

    for (; ckpt_map_finding_at(j->to, j->n_said, &severity, &code, &text); j->n_said++) {
        bool warning = severity > 0;

        if (job_is_value(text, severity) || (!warning && !notes) || ++n[warning] > JOB_MOST)
            continue;
        if (warning)
            say_warning("%s", text);
        else
            say_note("%s", text);
    }
    if (n[1] > JOB_MOST)
        say_warning("and %" PRIu64 " more (ckpt verify lists them)", n[1] - JOB_MOST);
    if (n[0] > JOB_MOST)
        say_note("and %" PRIu64 " more (--json lists them)", n[0] - JOB_MOST);
}

void job_refuse(ckpt_run_opts *run, bool allow_overflow, bool strict)
{
    run->allow_overflow = allow_overflow;
    run->strict = strict;
}

void job_warn_values(const convert_job *j)
{
    const ckpt_run_report *r = &j->report;

    if (r->n_source_nan || r->n_source_inf)
        say_warning(
            "the source has NaN or infinite elements: %" PRIu64 " NaN, %" PRIu64 " infinite%s",
            r->n_source_nan, r->n_source_inf,
            j->merged
                ? ", counted after the merge; ckpt verify finds the model or adapter that has "
                  "them"
                : "");
    if (r->n_over)
        say_warning("%" PRIu64 " values were beyond the range of their new dtype", r->n_over);
    if (r->n_records_no_crc && map_has_records(j->from))
        say_warning("%" PRIu64 " record%s no CRC-32: ckpt cannot detect damage there",
                    r->n_records_no_crc, r->n_records_no_crc == 1 ? " has" : "s have");
}

void job_take_counts(convert_job *j, const ckpt_view_counts *n)
{
    ckpt_run_report *r = &j->report;

    r->n_files = ckpt_map_file_count(j->to);
    r->n_tensors = ckpt_map_tensor_count(j->to);
    r->n_elems = n->n_elems;
    r->n_compared = n->n_compared;
    r->n_records_checked = n->n_held;
    r->n_records_no_crc = n->n_no_crc;
    r->n_nan = n->n_nan;
    r->n_inf = n->n_inf;
    r->n_source_nan = n->n_source_nan;
    r->n_source_inf = n->n_source_inf;
    r->n_over = n->n_over;
    r->n_zero = n->n_zero;
}

bool job_change_at(const convert_job *j, size_t *i, const char **key, const char **text)
{
    static const char *const keys[] = {"dequantized", "kept in blocks", "quantized to",
                                       "vocabulary",  "untied",         "tied",
                                       "layout map",  "LoRA names"};
    bool number;

    while (ckpt_map_fact_at(j->from, (*i)++, key, text, &number)) {
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            if (strcmp(*key, keys[k]) == 0)
                return true;
        }
    }
    return false;
}

/* True if the output head was tied to the embedding table. */
static bool job_tied(const convert_job *j)
{
    const char *key, *text;
    bool tied = false;

    for (size_t i = 0; !tied && job_change_at(j, &i, &key, &text);)
        tied = strcmp(key, "tied") == 0;
    return tied;
}

void job_explain(convert_job *j, int rc, ckpt_err *err)
{
    size_t n = strlen(err->text);

    if (rc == CKPT_EMISMATCH && job_tied(j))
        (void)snprintf(err->text + n, sizeof err->text - n,
                       " (a tied head equals the embedding; %s)",
                       strcmp(j->doing ? j->doing : "", "merging") == 0
                           ? "name a model with both first, or convert the first with --untie"
                       : j->target.format && strcmp(j->target.format, "gguf") == 0
                           ? "--config FILE with tie_word_embeddings false writes both"
                           : "--untie writes both");
    if (rc != CKPT_EDOUBT)
        return;
    job_say_findings(j, false);
    if (!j->run.allow_overflow && !j->run.strict)
        (void)snprintf(err->text + n, sizeof err->text - n, " (--allow-overflow writes them)");
}

int job_run(convert_job *j, ckpt_err *err)
{
    uint64_t n_read, n_jobs;
    progress p;

    // from here on, a failure may leave files that must be removed
    progress_begin(&p, j->doing ? j->doing : "converting", j->quiet, &j->run);
    ckpt_plan_sizes(j->plan, &n_read, &p.size, &n_jobs);
    int rc = ckpt_plan_run(j->plan, &j->run, &j->report, err);
    progress_end(&p);
    if (rc != CKPT_OK)
        job_explain(j, rc, err);
    if (rc == CKPT_OK) {
        job_warn_values(j);
        if (!j->quiet)
            job_say_leftovers(ckpt_map_output_dir(j->to));
    }
    return rc;
}

void job_free(convert_job *j)
{
    ckpt_plan_free(j->plan);
    ckpt_map_free(j->to);
    ckpt_hashes_free(j->run.hashes);
    j->run.hashes = NULL;
    j->plan = NULL;
    j->to = NULL;
}

/*
 * Append the changes to the model.  For a tied head, n_compared counts the head's elements instead
 * of 16-bit copies, so it is printed here.
 */
static void job_add_changes(char buf[CLOSING_ROOM], const convert_job *j)
{
    const char *key, *text;

    for (size_t i = 0; job_change_at(j, &i, &key, &text);) {
        size_t n = strlen(buf);

        (void)snprintf(buf + n, CLOSING_ROOM - n, "; %s: %.300s", key, text);
        n = strlen(buf);
        if (strcmp(key, "tied") == 0)
            (void)snprintf(buf + n, CLOSING_ROOM - n, ", %" PRIu64 " elements equal their copy",
                           j->report.n_compared);
    }
}

const char *job_closing(char buf[CLOSING_ROOM], const convert_job *j)
{
    ckpt_run_report proved = j->report;
    const ckpt_run_report *r = &proved;
    char bytes[HUMAN_ROOM], speed[HUMAN_ROOM], files[COUNT_ROOM], proof[PROOF_ROOM];
    bool quick = r->seconds < 1;

    if (job_tied(j))
        proved.n_compared = 0;

    // with a clock too coarse for a tiny run, print no speed instead of an infinite one
    (void)human_bytes(speed, r->seconds > 0 ? (uint64_t)((double)r->n_written / r->seconds) : 0);
    (void)snprintf(buf, CLOSING_ROOM, "wrote %s, %s in %.*f %s (%s/s): %s",
                   count_text(files, r->n_files, "file"), human_bytes(bytes, r->n_written),
                   quick ? 0 : 1, quick ? r->seconds * 1000 : r->seconds, quick ? "ms" : "s", speed,
                   proof_text(proof, r, "written"));
    job_add_changes(buf, j);
    return buf;
}
