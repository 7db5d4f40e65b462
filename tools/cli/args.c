/* SPDX-License-Identifier: Apache-2.0 */
/* args.c: fills the fields of ckpt's commands: defaults, files of options, the first operand. */
#include "tools/cli/args.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt_extra.h"
#include "tools/cli/out.h"
#include "tools/cli/text.h"

/* The default that help texts and plans mention. */
#define ARGS_MEMORY_BYTES (UINT64_C(256) << 20)

/* Read CKPT_CACHE from the environment: the treatment of pages in the page cache. */
static int args_cache(ckpt_cache *out, ckpt_err *err)
{
    const char *said = getenv("CKPT_CACHE");

    if (!said || !*said || strcmp(said, "auto") == 0)
        *out = CKPT_CACHE_AUTO;
    else if (strcmp(said, "keep") == 0)
        *out = CKPT_CACHE_KEEP;
    else if (strcmp(said, "let-go") == 0)
        *out = CKPT_CACHE_DROP;
    else
        return fail(err, CKPT_EUSAGE,
                    "CKPT_CACHE=%.100s in the environment: expected auto, keep or let-go", said);
    return CKPT_OK;
}

int args_parse(cli_args *a, const cli_verb *verb, int argc, char **argv, ckpt_err *err)
{
    a->run.memory = ARGS_MEMORY_BYTES;
    int rc = args_cache(&a->run.cache, err);
    if (rc == CKPT_OK)
        rc = cli_parse(&a->line, verb, a, argc, argv, err);
    a->operand = a->line.operand;
    a->n_operands = a->line.n_operands;
    return rc;
}

void args_free(cli_args *a)
{
    // before the line forgets its verb
    if (a->line.verb && a->line.verb->release)
        a->line.verb->release(a);
    cli_free(&a->line);
    free(a->rules_text);
    a->rules_text = NULL;
    a->open.slice_rules = NULL;
}

int args_open(ckpt_map **out, cli_args *a, ckpt_err *err)
{
    int rc = ckpt_open(out, a->operand[0], &a->open, err);

    if (rc == CKPT_OK && a->model_folder)
        rc = ckpt_map_set_model_folder(*out, a->model_folder, err);
    return rc;
}

int args_rules(cli_args *a, ckpt_err *err)
{
    int rc =
        a->slice_rules ? text_read(&a->rules_text, a->slice_rules, "slice rules", err) : CKPT_OK;

    a->open.slice_rules = a->rules_text;
    return rc == CKPT_OK && a->line.verb->read ? a->line.verb->read(a, err) : rc;
}

bool args_filter(ckpt_filter *out, const cli_args *a)
{
    *out = (ckpt_filter){
        .include = a->include.n ? a->include.at : NULL,
        .exclude = a->exclude.n ? a->exclude.at : NULL,
    };
    return a->include.n || a->exclude.n;
}

bool args_to_stdout(const cli_args *a)
{
    return a->line.verb->streams && a->n_operands > 1 && strcmp(a->operand[1], "-") == 0;
}
