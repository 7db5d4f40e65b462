/* SPDX-License-Identifier: Apache-2.0 */
/* attest.c: writes statements about conversions, and takes the options of a conversion from one. */
#include "tools/ckpt/attest.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ckpt_extra.h"
#include "libckpt/base/vec.h"
#include "tools/cli/progress.h"

/* Options of a run, which say nothing about its result. */
static const char run_only[] = " output force jobs memory quiet json no-fsync strict require-crc "
                               "no-sandbox local local-target hostfile attest manifest dry-run ";

/* Options about files, not tensors: a proof that does not have them needs none of them. */
static const char of_files[] = " to dtype world to-tag max-shard-size compress no-side-files "
                               "allow-overflow deepspeed-version join ";

CKPT_VEC(attest_options, ckpt_option);

/* True if a list has the name. */
static bool attest_listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    const char *at = n ? strstr(list, name) : NULL;

    while (at && (at[-1] != ' ' || at[n] != ' '))
        at = strstr(at + 1, name);
    return at != NULL;
}

/* ---- writing ---- */

/* True if the folder of a file exists, or is in the target, which the conversion makes. */
static bool attest_has_folder(const char *path, const char *target)
{
    size_t n = strlen(target);

    if (strncmp(path, target, n) == 0 && (path[n] == '/' || (n && path[n - 1] == '/')))
        return true;
    const char *slash = strrchr(path, '/');
    char *folder = slash > path ? strndup(path, (size_t)(slash - path)) : NULL;
    struct stat st;
    bool has = !folder || (stat(folder, &st) == 0 && S_ISDIR(st.st_mode));

    free(folder);
    return has;
}

int attest_check(const convert_job *job, const write_args *a, ckpt_err *err)
{
    struct stat st;

    if (!a->attest)
        return CKPT_OK;
    if (args_to_stdout(&a->cli))
        return fail(err, CKPT_EUSAGE, "--attest hashes files, and stdout is none: name the output");
    if (ckpt_team_size() > 1)
        return fail(err, CKPT_EUSAGE, "--attest does not support several processes");
    for (size_t i = 0; i < ckpt_map_file_count(job->from); i++) {
        if (ckpt_path_is_remote(ckpt_map_file_path(job->from, i)))
            return fail(err, CKPT_EUNSUPPORTED,
                        "%s: --attest hashes files on this machine: download the source",
                        ckpt_map_file_path(job->from, i));
    }
    if (!attest_has_folder(a->attest, job->target.path))
        return fail(err, CKPT_EMISSING, "%s: its folder does not exist", a->attest);
    if (stat(a->attest, &st) != 0 || (S_ISREG(st.st_mode) && a->cli.run.force))
        return CKPT_OK;
    return fail(err, CKPT_EUSAGE,
                S_ISREG(st.st_mode) ? "%s: exists already; use --force to replace it"
                                    : "%s: exists, and is not a file; choose another name",
                a->attest);
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
        rc = ckpt_attest_write(a->attest, &opts, err);
        progress_end(&p);
    }
    ckpt_vec_free(&options);
    return rc;
}

/* ---- reading ---- */

/* Set one option of the statement. */
static int attest_set(cli_line *line, const char *file, const ckpt_option *from, const bool *before,
                      ckpt_err *err)
{
    const cli_option *o = cli_option_named(line->verb, from->name);

    if (attest_listed(run_only, from->name) || (!o && attest_listed(of_files, from->name)))
        return CKPT_OK;
    if (!o || !from->value != (o->kind == CLI_FLAG))
        return fail(err, CKPT_EUNSUPPORTED,
                    "%s: the conversion had --%.40s, with which %s cannot repeat it", file,
                    from->name, line->verb->command);
    if (before[o - line->verb->options])
        return fail(err, CKPT_EUSAGE, "--%s is one of the options in %s: do not give it as well",
                    o->name, file);
    return cli_take(line, o, from->value, err);
}

int attest_read(ckpt_attested **out, cli_line *line, const char *file, ckpt_err *err)
{
    bool before[CLI_MAX_OPTIONS];
    const ckpt_option *o;
    int rc = ckpt_attest_read(out, file, err);

    memcpy(before, line->given, sizeof before);
    // lists have room for as many words as the command line has
    for (size_t i = 0; rc == CKPT_OK && ckpt_attest_option_at(*out, i); i++)
        line->argc++;
    for (size_t i = 0; rc == CKPT_OK && (o = ckpt_attest_option_at(*out, i)); i++)
        rc = attest_set(line, file, o, before, err);
    return rc;
}
