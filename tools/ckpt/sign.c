/* SPDX-License-Identifier: Apache-2.0 */
/* sign.c: implements ckpt sign, which writes the signature of a model's files. */
#include "tools/ckpt/signature.h"
#include "tools/ckpt/verbs.h"
#include "tools/cli/options.h"
#include "tools/cli/progress.h"

/* The fields of this command. */
typedef struct sign_args {
    cli_args cli; /* first: the parser fills the whole */
    signature_args signature;
    const char *output;
} sign_args;

static int sign_run(cli_args *a, ckpt_err *err)
{
    const sign_args *args = (const sign_args *)a;
    const signature_args *s = &args->signature;
    char text[SIGNATURE_ROOM];
    ckpt_sign_report report = {0};
    const ckpt_sign_opts opts = signature_opts(s, &a->run);
    json_out j;
    progress p;

    progress_begin(&p, "hashing", a->quiet, &a->run);
    int rc = ckpt_sign(a->operand[0], &opts, &report, err);
    progress_end(&p);
    if (rc != CKPT_OK)
        return rc;
    if (a->json) {
        json_begin(&j);
        signature_json(&j, s, &report);
        json_end(&j);
    } else if (!a->quiet) {
        out_printf("signed ");
        out_text(signature_text(text, &report));
        out_printf(": ");
        out_text(s->place);
        out_printf("\n");
    }
    return rc;
}

/* Read the key and find the output before the sandbox, which then allows its folder. */
static int sign_read(cli_args *a, ckpt_err *err)
{
    sign_args *args = (sign_args *)a;

    if (!args->signature.key)
        return fail(err, CKPT_EUSAGE, "the key is missing: use --key KEY");
    args->signature.file = args->output;
    int rc = signature_read(&args->signature, a->operand[0], err);
    args->output = args->signature.place;
    return rc;
}

static void sign_release(cli_args *a)
{
    signature_free(&((sign_args *)a)->signature);
}

#define AT(field) offsetof(sign_args, field)
static const cli_option sign_options[] = {
    {"key", 'k', CLI_FILE, AT(signature.key), "KEY", "private key (PEM): P-256, P-384 or P-521"},
    {"cert", 0, CLI_FILE, AT(signature.cert), "CHAIN",
     "certificate of the key, then its issuers (PEM)"},
    {"output", 'o', CLI_OUTPUT, AT(output), "FILE",
     "the signature (default: PATH/model.sig; of a file: PATH.sig)"},
    {"follow-links", 0, CLI_FLAG, AT(signature.follow_links), NULL,
     "sign the files behind symbolic links"},
    OPTION_JOBS,
    {"force", 'f', CLI_FLAG, AT(cli.run.force), NULL, "replace an existing signature"},
    OPTION_PRINT_JSON,
    {"quiet", 'q', CLI_FLAG, AT(cli.quiet), NULL, "print errors only"},
    CLI_NO_SANDBOX,
    CLI_END,
};

const cli_verb verb_sign = {
    .name = "sign",
    .command = "ckpt sign",
    .operands = "PATH",
    .summary = "Sign the files of a model, as OpenSSF model signing does.",
    .options = sign_options,
    .min = 1,
    .max = 1,
    .uses = "r",
    .run = sign_run,
    .read = sign_read,
    .release = sign_release,
    .room = sizeof(sign_args),
};
