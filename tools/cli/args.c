/* SPDX-License-Identifier: Apache-2.0 */
/*
 * args.c: the fields of ckpt's commands: defaults, files that options name, the first operand.
 */
#include "tools/cli/args.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a file that an option names may have. */
#define ARGS_FILE_BYTES (16 << 20)

/* Defaults that help texts and plans state. */
#define ARGS_SHARD_BYTES  UINT64_C(5000000000)
#define ARGS_MEMORY_BYTES (UINT64_C(256) << 20)

int args_parse(cli_args *a, const cli_verb *verb, int argc, char **argv, ckpt_err *err)
{
    a->target.max_shard_size = ARGS_SHARD_BYTES;
    a->run.memory = ARGS_MEMORY_BYTES;
    int rc = cli_parse(&a->line, verb, a, argc, argv, err);
    a->operand = a->line.operand;
    a->n_operands = a->line.n_operands;
    return rc;
}

void args_free(cli_args *a)
{
    cli_free(&a->line);
    free(a->rules_text);
    a->rules_text = NULL;
    a->open.slice_rules = NULL;
}

int args_file(char **out, const char *path, const char *what, ckpt_err *err)
{
    FILE *file = fopen(path, "rb");
    char *text = file ? malloc(ARGS_FILE_BYTES + 1) : NULL;

    if (!file)
        return fail(err, CKPT_EIO, "%s: %s", path, strerror(errno));
    size_t n = text ? fread(text, 1, ARGS_FILE_BYTES + 1, file) : 0;
    bool failed = ferror(file) != 0;
    (void)fclose(file);
    // one byte more was asked for than is allowed, to see whether there is more
    if (text && !failed && n <= ARGS_FILE_BYTES && !memchr(text, 0, n)) {
        text[n] = 0;
        *out = text;
        return CKPT_OK;
    }
    free(text);
    if (failed)
        return fail(err, CKPT_EIO, "%s: cannot be read", path);
    if (n > ARGS_FILE_BYTES)
        return fail(err, CKPT_ELIMIT, "%s: %s may take at most 16 MiB", path, what);
    return n ? fail(err, CKPT_EUSAGE, "%s: not a text", path)
             : fail(err, CKPT_ELIMIT, "%s: out of memory", path);
}

int args_open(ckpt_map **out, cli_args *a, ckpt_err *err)
{
    return ckpt_open(out, a->operand[0], &a->open, err);
}

int args_rules(cli_args *a, ckpt_err *err)
{
    int rc =
        a->slice_rules ? args_file(&a->rules_text, a->slice_rules, "slice rules", err) : CKPT_OK;

    a->open.slice_rules = a->rules_text;
    return rc;
}

bool args_filter(ckpt_filter *out, const cli_args *a)
{
    *out = (ckpt_filter){
        .include = a->include.n ? a->include.at : NULL,
        .exclude = a->exclude.n ? a->exclude.at : NULL,
    };
    return a->include.n || a->exclude.n || a->rename;
}

bool args_into_folder(const ckpt_target *target)
{
    return ckpt_format_caps(target->format) & CKPT_IS_FOLDER;
}
