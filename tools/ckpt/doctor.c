/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor.c: implements ckpt doctor, which prints a table of a run's tags and their health, and
 * whether `latest` names a usable tag.
 *
 * The library reports run by run.  All reports are kept until the end, so the columns of the table
 * line up.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/vec.h"
#include "tools/ckpt/report.h"
#include "tools/ckpt/verbs.h"
#include "tools/cli/options.h"
#include "tools/cli/progress.h"

/* A problem of a tag, or, if tag is SIZE_MAX, of run `run`. */
typedef struct doctor_problem {
    size_t tag, run;
    int code;
    char *text;
} doctor_problem;

CKPT_VEC(doctor_problems, doctor_problem);

typedef struct doctor_tag {
    ckpt_tag is; /* its strings are copies */
    size_t run;
} doctor_tag;

CKPT_VEC(doctor_tags, doctor_tag);

typedef struct doctor_run {
    ckpt_run_health is; /* its strings are copies; NULL becomes "" */
} doctor_run;

CKPT_VEC(doctor_runs, doctor_run);

/* The fields of this command. */
typedef struct doctor_args {
    cli_args cli; /* first: the parser fills the whole */
    bool deep, fix_latest;
    bool all; /* print all problems of each tag */
} doctor_args;

typedef struct doctor_all {
    const doctor_args *a;
    int (*step)(void *ctx, uint64_t done,
                uint64_t total); /* the progress callback of the command line */
    void *step_ctx;
    doctor_tags tag;
    doctor_problems problem;
    doctor_runs run;
    bool lost; /* out of memory */
} doctor_all;

static const char *const health_names[] = {"whole", "partial", "rotten", "mixed", "unknown"};

/* ---- storing ---- */

/* A copy of a string, "" for NULL. */
static char *doctor_copy(doctor_all *all, const char *text)
{
    char *copy = strdup(text ? text : "");

    all->lost = all->lost || !copy;
    return copy;
}

static int doctor_keep_tag(void *ctx, const ckpt_tag *tag)
{
    doctor_all *all = ctx;
    doctor_tag *t = ckpt_vec_push(&all->tag);

    all->lost = all->lost || !t;
    if (t) {
        *t = (doctor_tag){.is = *tag, .run = all->run.n};
        t->is.name = doctor_copy(all, tag->name);
        t->is.reason = doctor_copy(all, tag->reason);
    }
    return all->lost;
}

static int doctor_keep_problem(void *ctx, const char *tag, int code, const char *text)
{
    doctor_all *all = ctx;
    doctor_problem *p = ckpt_vec_push(&all->problem);

    all->lost = all->lost || !p;
    if (p)
        *p = (doctor_problem){.tag = tag ? all->tag.n - 1 : SIZE_MAX,
                              .run = all->run.n,
                              .code = code,
                              .text = doctor_copy(all, text)};
    return all->lost;
}

static int doctor_keep_run(void *ctx, const ckpt_run_health *run)
{
    doctor_all *all = ctx;
    doctor_run *r = ckpt_vec_push(&all->run);

    all->lost = all->lost || !r;
    if (r) {
        r->is.name = doctor_copy(all, run->name);
        r->is.pointer = doctor_copy(all, run->pointer);
        r->is.latest = doctor_copy(all, run->latest);
        r->is.newest = doctor_copy(all, run->newest);
        r->is.fixed = doctor_copy(all, run->fixed);
        r->is.reason = doctor_copy(all, run->reason);
        r->is.code = run->code;
    }
    return all->lost;
}

/* Free a copied string; the library's structs declare them const. */
static void doctor_drop(const char *text)
{
    union {
        const char *borrowed;
        char *own;
    } u = {.borrowed = text};

    free(u.own);
}

static void doctor_free(doctor_all *all)
{
    for (size_t i = 0; i < all->tag.n; i++) {
        doctor_drop(all->tag.at[i].is.name);
        doctor_drop(all->tag.at[i].is.reason);
    }
    for (size_t i = 0; i < all->problem.n; i++)
        free(all->problem.at[i].text);
    for (size_t i = 0; i < all->run.n; i++) {
        doctor_drop(all->run.at[i].is.name);
        doctor_drop(all->run.at[i].is.pointer);
        doctor_drop(all->run.at[i].is.latest);
        doctor_drop(all->run.at[i].is.newest);
        doctor_drop(all->run.at[i].is.fixed);
        doctor_drop(all->run.at[i].is.reason);
    }
    ckpt_vec_free(&all->tag);
    ckpt_vec_free(&all->problem);
    ckpt_vec_free(&all->run);
}

/* ---- text ---- */

/* Print a number, or "-" if it is unknown, right-aligned. */
static void doctor_number(int64_t n, bool known, int width)
{
    if (known)
        out_printf("%*" PRId64, width, n);
    else
        out_printf("%*s", width, "-");
}

/* After the state of a whole tag: its number of warnings, and the first of them. */
static void doctor_warnings(const doctor_all *all, size_t i)
{
    const char *first = NULL;
    size_t n = 0;

    for (size_t k = 0; k < all->problem.n; k++) {
        const doctor_problem *p = &all->problem.at[k];
        if (p->tag != i || p->code != CKPT_OK)
            continue;
        first = first ? first : p->text;
        n++;
    }
    if (n == 0)
        return;
    if (n == 1)
        out_printf(", with a warning: ");
    else
        out_printf(", with %zu warnings (--all prints all): ", n);
    out_text(first);
}

/* Print one tag as a row; with --all its problems and remarks below it. */
static void doctor_row(const doctor_all *all, size_t i, size_t width)
{
    const ckpt_tag *t = &all->tag.at[i].is;
    char bytes[HUMAN_ROOM];

    out_printf("%c ", t->is_latest ? '*' : ' ');
    out_padded(t->name, width);
    doctor_number(t->step, t->step >= 0, 10);
    doctor_number(t->stage, t->stage >= 0, 7);
    doctor_number(t->world, t->world > 0, 7);
    out_printf("%10s  %s", human_bytes(bytes, t->n_bytes), health_names[t->health]);
    if (t->is_universal)
        out_printf(", universal");
    if (t->health == CKPT_TAG_WHOLE && !all->a->all)
        doctor_warnings(all, i);
    if (*t->reason && !all->a->all)
        out_printf(": ");
    if (!all->a->all)
        out_text(t->reason);
    if (t->n_problems > 1 && !all->a->all)
        out_printf(" (1 of %zu problems)", t->n_problems);
    out_printf("\n");
    for (size_t k = 0; all->a->all && k < all->problem.n; k++) {
        if (all->problem.at[k].tag != i)
            continue;
        out_printf("      %s: ", all->problem.at[k].code == CKPT_OK ? "warning" : "error");
        out_text(all->problem.at[k].text);
        out_printf("\n");
    }
}

static void doctor_table(const doctor_all *all)
{
    size_t width = text_width("tag");

    for (size_t i = 0; i < all->tag.n; i++) {
        size_t w = text_width(all->tag.at[i].is.name);
        width = w > width ? w : width;
    }
    if (all->tag.n) {
        out_printf("  ");
        out_padded("tag", width);
        out_printf("%10s%7s%7s%10s  state\n", "step", "stage", "world", "size");
    }
    for (size_t i = 0; i < all->tag.n && !out_broken(); i++)
        doctor_row(all, i, width);
}

/* The tag that a run's pointer names, or NULL. */
static const ckpt_tag *doctor_latest(const doctor_all *all, size_t run)
{
    for (size_t i = 0; i < all->tag.n; i++) {
        const ckpt_tag *t = &all->tag.at[i].is;
        bool universal = strcmp(all->run.at[run].is.pointer, "latest_universal") == 0;
        if (all->tag.at[i].run == run && t->is_latest && t->is_universal == universal)
            return t;
    }
    return NULL;
}

/* Print the start of a line about a pointer: "checkpoint-4/latest: ". */
static void doctor_pointer(const ckpt_run_health *r)
{
    out_text(r->name);
    out_printf("%s%s: ", *r->name ? "/" : "", r->pointer);
}

/* Print the last lines of a run: whether its pointer is usable, repairs made, repairs possible. */
static void doctor_verdict(const doctor_all *all, size_t i)
{
    const ckpt_run_health *r = &all->run.at[i].is;
    const ckpt_tag *t = doctor_latest(all, i);

    // a single tag folder has no pointer
    if (!*r->pointer)
        return;
    if (*r->fixed) {
        doctor_pointer(r);
        out_printf("now names ");
        out_text(r->fixed);
        out_printf(", which is whole; before, it %s", *r->latest ? "named " : "named no tag");
        out_text(r->latest);
    } else if (r->code == CKPT_OK || (t && t->health != CKPT_TAG_WHOLE && !all->a->fix_latest)) {
        doctor_pointer(r);
        out_text(r->latest);
        out_printf(" is %s", health_names[t ? t->health : CKPT_TAG_WHOLE]);
    } else {
        // the reason names the pointer; the table explains a damaged tag
        out_text(r->name);
        out_printf("%s", *r->name ? ": " : "");
        out_text(r->reason);
    }
    if (*r->newest && !all->a->fix_latest && strcmp(r->newest, r->latest) != 0) {
        out_printf("; %s whole tag is ", r->code == CKPT_OK ? "a newer" : "the newest");
        out_text(r->newest);
        out_printf("%s", strcmp(r->pointer, "latest_universal") != 0 ? " (see --fix-latest)" : "");
    }
    out_printf("\n");
}

static void doctor_text(const doctor_all *all)
{
    doctor_table(all);
    for (size_t i = 0; i < all->problem.n; i++) {
        const doctor_problem *p = &all->problem.at[i];
        if (p->tag != SIZE_MAX)
            continue;
        out_printf("%s: ", p->code == CKPT_OK ? "note" : "warning");
        out_text(p->text);
        out_printf("\n");
    }
    for (size_t i = 0; i < all->run.n && !out_broken(); i++)
        doctor_verdict(all, i);
}

/* With --quiet: print the names of complete tags. */
static void doctor_names(const doctor_all *all)
{
    for (size_t i = 0; i < all->tag.n && !out_broken(); i++) {
        if (all->tag.at[i].is.health != CKPT_TAG_WHOLE)
            continue;
        out_text(all->tag.at[i].is.name);
        out_printf("\n");
    }
}

/* ---- JSON ---- */

/* Print the problems of a tag, or (tag SIZE_MAX) of a run. */
static void doctor_json_problems(json_out *j, const doctor_all *all, size_t tag, size_t run)
{
    json_open(j, tag == SIZE_MAX ? "notes" : "problems", '[');
    for (size_t i = 0; i < all->problem.n; i++) {
        const doctor_problem *p = &all->problem.at[i];
        if (p->tag != tag || p->run != run)
            continue;
        json_open(j, NULL, '{');
        json_int(j, "status", ckpt_err_status(p->code));
        json_text(j, "text", p->text);
        json_close(j, '}');
    }
    json_close(j, ']');
}

/* Print a text, null if it is empty. */
static void doctor_json_text(json_out *j, const char *key, const char *text)
{
    json_text(j, key, *text ? text : NULL);
}

static void doctor_json_number(json_out *j, const char *key, int64_t n, bool known)
{
    if (known)
        json_int(j, key, n);
    else
        json_text(j, key, NULL);
}

static void doctor_json_tag(json_out *j, const doctor_all *all, size_t i)
{
    const ckpt_tag *t = &all->tag.at[i].is;

    json_open(j, NULL, '{');
    json_text(j, "name", t->name);
    json_text(j, "state", health_names[t->health]);
    json_int(j, "status", ckpt_err_status(t->code));
    json_text(j, "reason", t->reason);
    doctor_json_number(j, "step", t->step, t->step >= 0);
    doctor_json_number(j, "stage", t->stage, t->stage >= 0);
    doctor_json_number(j, "world", t->world, t->world > 0);
    json_uint(j, "bytes", t->n_bytes);
    json_bool(j, "latest", t->is_latest);
    json_bool(j, "universal", t->is_universal);
    doctor_json_problems(j, all, i, all->tag.at[i].run);
    json_close(j, '}');
}

static void doctor_json_run(json_out *j, const doctor_all *all, size_t i)
{
    const ckpt_run_health *r = &all->run.at[i].is;

    json_open(j, NULL, '{');
    json_text(j, "name", r->name);
    json_bool(j, "ok", r->code == CKPT_OK);
    json_int(j, "status", ckpt_err_status(r->code));
    json_text(j, "reason", r->reason);
    doctor_json_text(j, "pointer", r->pointer);
    doctor_json_text(j, "latest", r->latest);
    doctor_json_text(j, "newest_whole", r->newest);
    doctor_json_text(j, "fixed", r->fixed);
    json_open(j, "tags", '[');
    for (size_t k = 0; k < all->tag.n; k++) {
        if (all->tag.at[k].run == i)
            doctor_json_tag(j, all, k);
    }
    json_close(j, ']');
    doctor_json_problems(j, all, SIZE_MAX, i);
    json_close(j, '}');
}

/* Print the document, which is complete even after a failure. */
static void doctor_json(const doctor_all *all, int rc, const ckpt_err *err)
{
    json_out j;

    json_begin(&j);
    json_text(&j, "path", all->a->cli.operand[0]);
    json_bool(&j, "ok", rc == CKPT_OK);
    json_int(&j, "status", ckpt_err_status(rc));
    if (rc != CKPT_OK)
        json_text(&j, "reason", err->text);
    json_open(&j, "runs", '[');
    for (size_t i = 0; i < all->run.n; i++)
        doctor_json_run(&j, all, i);
    json_close(&j, ']');
    json_end(&j);
}

/* ---- the verb ---- */

/* Between tags the library calls only to ask whether to continue, so no progress is shown. */
static int doctor_step(void *ctx, uint64_t done, uint64_t total)
{
    doctor_all *all = ctx;

    return total == 0 ? progress_signal() != 0 : all->step(all->step_ctx, done, total);
}

static int doctor_run_verb(cli_args *cli, ckpt_err *err)
{
    const doctor_args *a = (const doctor_args *)cli;
    doctor_all all = {.a = a};
    progress p;

    progress_begin(&p, "reading", cli->quiet, &cli->run);
    all.step = cli->run.progress;
    all.step_ctx = cli->run.progress_ctx;
    cli->run.progress = doctor_step;
    cli->run.progress_ctx = &all;
    const ckpt_doctor_opts opts = {.deep = a->deep,
                                   .fix_latest = a->fix_latest,
                                   .run = &cli->run,
                                   .tag = doctor_keep_tag,
                                   .problem = doctor_keep_problem,
                                   .health = doctor_keep_run,
                                   .ctx = &all};
    int rc = ckpt_doctor(cli->operand[0], &opts, err);
    progress_end(&p);
    bool told = all.run.n && rc == all.run.at[all.run.n - 1].is.code && !all.lost;
    if (all.lost) {
        *err = (ckpt_err){0};
        rc = fail(err, CKPT_ELIMIT, "out of memory");
    }
    if (cli->json)
        doctor_json(&all, rc, err);
    else if (cli->quiet)
        doctor_names(&all);
    else
        doctor_text(&all);
    // the table or the document has already reported the failure
    if (cli->json ? rc != CKPT_ECANCELED
                  : told && !cli->quiet && *all.run.at[all.run.n - 1].is.pointer)
        err->text[0] = 0;
    doctor_free(&all);
    return rc;
}

static const cli_option doctor_options[] = {
    {"deep", 'd', CLI_FLAG, offsetof(doctor_args, deep), NULL, "check each CRC and each value"},
    {"fix-latest", 0, CLI_FLAG, offsetof(doctor_args, fix_latest), NULL,
     "point `latest` to the newest whole tag"},
    {"all", 'a', CLI_FLAG, offsetof(doctor_args, all), NULL, "print all problems of each tag"},
    {"memory", 0, CLI_SIZE, offsetof(cli_args, run.memory), "SIZE",
     "limit of all buffers of --deep together (default: 256MiB)"},
    {"jobs", 'j', CLI_COUNT, offsetof(cli_args, run.jobs), "N",
     "number of threads of --deep (default: one per processor, at most 8)"},
    OPTION_PRINT_JSON,
    {"quiet", 'q', CLI_FLAG, offsetof(cli_args, quiet), NULL, "print the names of whole tags only"},
    CLI_LOCAL,
    CLI_NO_SANDBOX,
    CLI_END,
};

static const cli_moot doctor_moot[] = {
    {"quiet", "json", NULL}, {"all", "quiet", NULL}, {"memory", NULL, "deep"},
    {"jobs", NULL, "deep"},  {NULL, NULL, NULL},
};

const cli_verb verb_doctor = {
    .name = "doctor",
    .command = "ckpt doctor",
    .operands = "RUN",
    .summary = "Show which checkpoints of a run are whole; repair `latest`.",
    .options = doctor_options,
    .moot = doctor_moot,
    .min = 1,
    .max = 1,
    .uses = "l",
    .run = doctor_run_verb,
    .room = sizeof(doctor_args),
};
