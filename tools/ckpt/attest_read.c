/* SPDX-License-Identifier: Apache-2.0 */
/* attest_read.c: takes the options of a conversion from a statement about it. */
#include <string.h>

#include "ckpt_extra.h"
#include "tools/ckpt/attest.h"
#include "tools/ckpt/verbs.h"

/* Options of a run, which say nothing about its result. */
static const char run_only[] = " output force jobs memory quiet json no-fsync strict require-crc "
                               "no-sandbox local local-target hostfile attest manifest dry-run ";

/* Options about files, not tensors: a proof that does not have them needs none of them. */
static const char of_files[] = " to dtype world to-tag max-shard-size compress no-side-files "
                               "allow-overflow deepspeed-version join ";

/* Options that change the check too: only the user can give them. */
static const char of_check[] = " as-file ignore-copies ";

/* True if a list has the name. */
static bool ato_listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    const char *at = n ? strstr(list, name) : NULL;

    while (at && (at[-1] != ' ' || at[n] != ' '))
        at = strstr(at + 1, name);
    return at != NULL;
}

/* True for an option of a command that makes checkpoints. */
static bool ato_converts(const char *name)
{
    return cli_option_named(&verb_convert, name) || cli_option_named(&verb_reshard, name) ||
           cli_option_named(&verb_merge, name);
}

/*
 * Set one option of the statement: only options of the conversion, so that the statement cannot
 * weaken the check.
 */
static int ato_set(cli_line *line, const char *file, const ckpt_option *from, const bool *before,
                   ckpt_err *err)
{
    const cli_option *o = cli_option_named(line->verb, from->name);
    const char *name = o ? o->name : from->name;

    if (!ato_converts(name))
        return fail(err, CKPT_EUNSUPPORTED, "%s: --%.40s is not an option of a conversion", file,
                    from->name);
    if (ato_listed(run_only, name) || (!o && ato_listed(of_files, name)))
        return CKPT_OK;
    if (!o || !from->value != (o->kind == CLI_FLAG))
        return fail(err, CKPT_EUNSUPPORTED,
                    "%s: the conversion had --%.40s, with which %s cannot repeat it", file,
                    from->name, line->verb->command);
    bool given = before[o - line->verb->options];
    if (ato_listed(of_check, name))
        return given ? CKPT_OK
                     : fail(err, CKPT_EUSAGE,
                            "%s: the conversion had --%s, but %s would check less with it: "
                            "add --%s to this command if you accept that",
                            file, name, line->verb->command, name);
    if (given)
        return fail(err, CKPT_EUSAGE, "--%s is one of the options in %s: do not give it as well",
                    o->name, file);
    return cli_take(line, o, from->value, err);
}

int attest_read(ckpt_attested **out, cli_line *line, const char *file, bool recipe, ckpt_err *err)
{
    bool before[CLI_MAX_OPTIONS];
    const ckpt_option *o;
    int rc = ckpt_attest_read(out, file, err);

    memcpy(before, line->given, sizeof before);
    // lists have room for as many words as the command line has
    for (size_t i = 0; rc == CKPT_OK && ckpt_attest_option_at(*out, i); i++)
        line->argc++;
    for (size_t i = 0; rc == CKPT_OK && (o = ckpt_attest_option_at(*out, i)); i++) {
        if (!recipe || strcmp(o->name, "config") != 0)
            rc = ato_set(line, file, o, before, err);
    }
    return rc;
}
