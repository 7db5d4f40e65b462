/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clean.c: implements ckpt clean, which removes the remains of interrupted runs of ckpt from a
 * folder.
 */
#include <inttypes.h>
#include <stdio.h>

#include "ckpt_extra.h"
#include "tools/ckpt/report.h"
#include "tools/ckpt/verbs.h"
#include "tools/cli/options.h"

/* Counts so far. */
typedef struct clean_tally {
    const cli_args *a;
    json_out j;
    uint64_t n_removed, n_kept, n_bytes;
} clean_tally;

/* Format an age: "23 s", "5 min", "3 h", "2 days". */
static const char *clean_age(char buf[HUMAN_ROOM], int64_t seconds)
{
    if (seconds < 120)
        (void)snprintf(buf, HUMAN_ROOM, "%" PRId64 " s", seconds);
    else if (seconds < 7200)
        (void)snprintf(buf, HUMAN_ROOM, "%" PRId64 " min", seconds / 60);
    else if (seconds < 172800)
        (void)snprintf(buf, HUMAN_ROOM, "%" PRId64 " h", seconds / 3600);
    else
        (void)snprintf(buf, HUMAN_ROOM, "%" PRId64 " days", seconds / 86400);
    return buf;
}

static void clean_json(clean_tally *t, const ckpt_leftover *l)
{
    json_open(&t->j, NULL, '{');
    json_text(&t->j, "name", l->name);
    json_bool(&t->j, "folder", l->is_dir);
    json_uint(&t->j, "bytes", l->n_bytes);
    json_uint(&t->j, "files", l->n_files);
    json_int(&t->j, "age_seconds", l->age);
    json_bool(&t->j, "removed", !l->kept && !t->a->dry_run);
    json_text(&t->j, "kept", l->kept);
    json_close(&t->j, '}');
}

/* Callback of the library for each left-over file or folder, after its removal or check. */
static int clean_one(void *ctx, const ckpt_leftover *l)
{
    char bytes[HUMAN_ROOM], age[HUMAN_ROOM];
    clean_tally *t = ctx;

    if (l->kept) {
        t->n_kept++;
    } else {
        t->n_removed++;
        t->n_bytes += l->n_bytes;
    }
    if (t->a->json) {
        clean_json(t, l);
    } else if (!t->a->quiet || l->kept) {
        out_printf("%s  ", l->kept         ? "kept        "
                           : t->a->dry_run ? "would remove"
                                           : "removed     ");
        out_text(l->name);
        out_printf("  (%s, %s old)", human_bytes(bytes, l->n_bytes), clean_age(age, l->age));
        out_printf("%s", l->kept ? ": " : "");
        out_text(l->kept ? l->kept : "");
        out_printf("\n");
    }
    return out_broken();
}

/* Print the totals. */
static void clean_close(clean_tally *t, int rc)
{
    char bytes[HUMAN_ROOM], n[COUNT_ROOM];

    if (t->a->json) {
        json_close(&t->j, ']');
        json_bool(&t->j, "ok", rc == CKPT_OK);
        json_int(&t->j, "status", ckpt_err_status(rc));
        json_bool(&t->j, "dry_run", t->a->dry_run);
        json_uint(&t->j, "removed", t->a->dry_run ? 0 : t->n_removed);
        json_uint(&t->j, "kept", t->n_kept);
        json_uint(&t->j, "bytes", t->n_bytes);
        json_end(&t->j);
    } else if (!t->a->quiet && rc == CKPT_OK) {
        out_printf("%s %s, %s", count_text(n, t->n_removed, "left-over"),
                   t->a->dry_run ? "to remove" : "removed", human_bytes(bytes, t->n_bytes));
        if (t->n_kept)
            out_printf("; %" PRIu64 " kept", t->n_kept);
        out_printf("\n");
    }
}

static int clean_run(cli_args *a, ckpt_err *err)
{
    clean_tally t = {.a = a};

    if (a->json) {
        json_begin(&t.j);
        json_text(&t.j, "path", a->operand[0]);
        json_open(&t.j, "leftovers", '[');
    }
    const ckpt_clean_opts opts = {
        .dry_run = a->dry_run, .force = a->run.force, .leftover = clean_one, .ctx = &t};
    int rc = ckpt_clean(a->operand[0], &opts, err);
    clean_close(&t, rc);
    return rc;
}

static const cli_option clean_options[] = {
    {"dry-run", 'n', CLI_FLAG, offsetof(cli_args, dry_run), NULL, "list files; remove nothing"},
    {"force", 'f', CLI_FLAG, offsetof(cli_args, run.force), NULL,
     "remove temporary files younger than an hour, too"},
    OPTION_PRINT_JSON,
    {"quiet", 'q', CLI_FLAG, offsetof(cli_args, quiet), NULL, "print kept files only"},
    CLI_NO_SANDBOX,
    CLI_END,
};

static const cli_moot clean_moot[] = {
    {"quiet", "json", NULL},
    {NULL, NULL, NULL},
};

const cli_verb verb_clean = {
    .name = "clean",
    .command = "ckpt clean",
    .operands = "FOLDER",
    .summary = "Delete the temporary files of interrupted ckpt commands.",
    .options = clean_options,
    .moot = clean_moot,
    .min = 1,
    .max = 1,
    .uses = "e",
    .run = clean_run,
};
