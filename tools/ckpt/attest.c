/* SPDX-License-Identifier: Apache-2.0 */
/* attest.c: writes statements about conversions. */
#define _GNU_SOURCE // realpath
#include "tools/ckpt/attest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ckpt_extra.h"
#include "libckpt/base/vec.h"
#include "tools/cli/progress.h"

CKPT_VEC(attest_options, ckpt_option);

/*
 * The real path of a file that need not exist: of the part that exists, then the rest. NULL: out of
 * memory.
 */
static char *attest_real(const char *path)
{
    size_t n = strlen(path), m = 0;
    char *real = NULL;

    for (;;) {
        char *head = n ? strndup(path, n) : strdup(".");

        real = head ? realpath(head, NULL) : NULL;
        free(head);
        if (real || n == 0)
            break;
        while (n > 1 && path[n - 1] == '/')
            n--;
        while (n > 0 && path[n - 1] != '/')
            n--;
    }
    m = real ? strlen(real) : 0;
    char *out = real ? calloc(1, m + strlen(path + n) + 2) : NULL;
    if (out) {
        m = m == 1 ? 0 : m; // the root
        memcpy(out, real, m);
    }
    for (const char *at = path + n; out && *at; at += strcspn(at, "/")) {
        size_t k;

        at += strspn(at, "/");
        k = strcspn(at, "/");
        if (k == 0 || (k == 1 && *at == '.'))
            continue;
        out[m++] = '/';
        memcpy(out + m, at, k);
        m += k;
    }
    free(real);
    return out;
}

/* True if a path is another one, or, if `within`, a folder on the way to it. */
static bool attest_leads(const char *path, const char *to, bool within)
{
    size_t n = strlen(path);

    return strncmp(to, path, n) == 0 && (to[n] == 0 || (within && to[n] == '/'));
}

/* A planned output, compared with the place of the statement. */
typedef struct attest_place {
    char *file, *folder; /* real paths of the statement and of its folder */
    bool taken, made;    /* file is part of the output; the run makes folder */
} attest_place;

/* Compare with one file of the output. */
static bool attest_meet(attest_place *p, const char *dir, const char *below, const char *name)
{
    size_t n = strlen(dir) + (below ? strlen(below) : 0) + strlen(name) + 3;
    char *path = malloc(n), *real = NULL;

    if (path) {
        (void)snprintf(path, n, "%s/%s%s%s", dir, below ? below : "", below ? "/" : "", name);
        real = attest_real(path);
    }
    if (real) {
        p->taken = p->taken || attest_leads(p->file, real, true);
        p->made = p->made || (strcmp(p->folder, real) != 0 && attest_leads(p->folder, real, true));
    }
    free(path);
    free(real);
    return real != NULL;
}

/* Compare the place of the statement with the files of the output. */
static bool attest_meet_all(attest_place *p, const ckpt_map *to, const char *file)
{
    const char *dir = ckpt_map_output_dir(to), *below = ckpt_map_output_folder(to);
    const char *pointer = ckpt_map_output_pointer(to), *slash = strrchr(file, '/');
    char *folder = slash ? strndup(file, slash > file ? (size_t)(slash - file) : 1) : strdup(".");
    bool ok = folder != NULL;

    p->file = attest_real(file);
    p->folder = folder ? attest_real(folder) : NULL;
    free(folder);
    ok = ok && p->file && p->folder;
    if (ok && pointer)
        ok = attest_meet(p, dir, NULL, pointer);
    for (size_t i = 0; ok && i < ckpt_map_file_count(to); i++)
        ok = attest_meet(p, dir, below, ckpt_map_file_path(to, i));
    return ok;
}

/* True for the name of a manifest (ckpt-manifest(5)), or of its list. */
static bool attest_is_manifest(const char *path)
{
    static const char *const ends[] = {"/ckpt-manifest.json", "/ckpt-manifest.sha256",
                                       ".manifest.json", ".manifest.sha256"};
    size_t n = strlen(path);

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t m = strlen(ends[i]);

        if ((n >= m && strcmp(path + n - m, ends[i]) == 0) ||
            (*ends[i] == '/' && strcmp(path, ends[i] + 1) == 0))
            return true;
    }
    return false;
}

int attest_check_place(const convert_job *job, const write_args *a, ckpt_err *err)
{
    attest_place p = {0};
    struct stat st;
    int rc = CKPT_OK;

    if (!a->attest)
        return CKPT_OK;
    if (!attest_meet_all(&p, job->to, a->attest))
        rc = fail(err, CKPT_ELIMIT, "out of memory");
    else if (p.taken || attest_is_manifest(a->attest))
        rc = fail(err, CKPT_EUSAGE,
                  p.taken ? "%s: is part of the output; choose another name for the statement"
                          : "%s: is the name of a manifest; choose another one for the statement",
                  a->attest);
    else if (!p.made && (stat(p.folder, &st) != 0 || !S_ISDIR(st.st_mode)))
        rc = fail(err, CKPT_EMISSING, "%s: its folder does not exist", a->attest);
    else
        rc = ckpt_attest_check_place(a->attest, a->cli.run.force, err);
    free(p.file);
    free(p.folder);
    return rc;
}

int attest_check(const convert_job *job, const write_args *a, ckpt_err *err)
{
    if (!a->attest)
        return CKPT_OK;
    if (args_to_stdout(&a->cli))
        return fail(err, CKPT_EUSAGE,
                    "--attest needs an output that is a file or folder, not standard output");
    if (ckpt_team_size() > 1)
        return fail(err, CKPT_EUSAGE, "--attest does not support several processes");
    for (size_t i = 0; i < ckpt_map_file_count(job->from); i++) {
        if (ckpt_path_is_remote(ckpt_map_file_path(job->from, i)))
            return fail(err, CKPT_EUNSUPPORTED,
                        "%s: --attest hashes files on this machine: download the source",
                        ckpt_map_file_path(job->from, i));
    }
    return CKPT_OK;
}

/* List the options of a command line with the values that were written. */
static bool attest_list(attest_options *out, const cli_line *line)
{
    const cli_option *o;
    bool ok = true;

    for (size_t i = 0; ok && (o = &line->verb->options[i])->name; i++) {
        cli_list list = {0};

        if (!line->given[i])
            continue;
        if (o->kind == CLI_LIST || o->kind == CLI_SOURCES)
            memcpy(&list, (const char *)line->values + o->at, sizeof list);
        for (size_t k = 0; ok && (k < list.n || k == 0); k++) {
            ckpt_option *to = ckpt_vec_push(out);

            ok = to != NULL;
            if (ok)
                *to = (ckpt_option){o->name, list.n ? list.at[k] : line->said[i]};
        }
    }
    return ok;
}

int attest_write(const convert_job *job, const write_args *a, ckpt_err *err)
{
    attest_options options = {0};
    ckpt_run_opts run = a->cli.run;
    ckpt_err why = {0};
    progress p;
    int rc = CKPT_OK;

    if (!a->attest)
        return CKPT_OK;
    if (!attest_list(&options, &a->cli.line))
        rc = fail(err, CKPT_ELIMIT, "out of memory");
    const ckpt_attest_opts opts = {.size = sizeof opts,
                                   .command = a->cli.line.verb->name,
                                   .source =
                                       a->cli.line.verb->uses[0] == 'r' ? a->cli.operand[0] : NULL,
                                   .target = job->target.path,
                                   .options = options.at,
                                   .n_options = options.n,
                                   .operands = (const char *const *)a->cli.operand,
                                   .n_operands = (size_t)a->cli.n_operands,
                                   .from = job->from,
                                   .to = job->to,
                                   .report = &job->report,
                                   .run = &run};
    if (rc == CKPT_OK) {
        progress_begin(&p, "hashing", a->cli.quiet, &run);
        rc = ckpt_attest_write(a->attest, &opts, &why);
        progress_end(&p);
        if (rc != CKPT_OK)
            rc = fail(err, rc, "%s (the output is complete, but it has no statement)", why.text);
    }
    ckpt_vec_free(&options);
    return rc;
}
