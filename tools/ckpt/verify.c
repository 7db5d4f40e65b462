/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify.c: implements ckpt verify, which runs all checks on a checkpoint, and prints one line per
 * finding.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ckpt/attest.h"
#include "tools/ckpt/effects.h"
#include "tools/ckpt/made_from.h"
#include "tools/ckpt/manifest.h"
#include "tools/ckpt/report.h"
#include "tools/ckpt/signature.h"
#include "tools/ckpt/verbs.h"
#include "tools/cli/options.h"
#include "tools/cli/progress.h"

/* The fields of this command. */
typedef struct verify_args {
    prepare_args prepare; /* first: the parser fills the whole; for --made-from */
    merge_how merge;
    cli_list made_from;   /* the sources of a conversion or merge */
    const char *manifest; /* NULL: the one beside the checkpoint */
    double tolerance;
    signature_args signature; /* key or cert: check it before anything else */
    bool ignore_metadata;
    ckpt_attested *attested; /* the statement of --attest */
} verify_args;

/* The options that are not those of the conversion, for made_command_given. */
static const char verify_own[] = " made-from tol ignore-metadata strict memory jobs json quiet "
                                 "local no-sandbox require-crc as-file key cert signature "
                                 "follow-links attest manifest ";

/* Counts so far. */
typedef struct verify_tally {
    const cli_args *a;
    json_out j;
    uint64_t n_errors, n_warnings;
    bool proving;                  /* --made-from follows */
    const char *made;              /* its path */
    const ckpt_attested *attested; /* the statement of --attest */
    bool all_signed;               /* a signature that matches covers all files */
    const char *manifest;
    ckpt_map *map; /* of the checkpoint; NULL: it is damaged */
    manifest_vouch vouch;
} verify_tally;

/* Callback of the library for each finding. */
static int verify_finding(void *ctx, int severity, int code, const char *text)
{
    static const char *const names[] = {"note", "warning", "error"};
    const char *name = names[severity > 1 ? 2 : severity == 1];
    verify_tally *v = ctx;

    v->n_errors += severity > 1;
    v->n_warnings += severity == 1;
    // quiet means errors only
    if (severity <= 1 && v->a->quiet)
        return out_broken();
    if (v->a->json) {
        json_open(&v->j, NULL, '{');
        json_text(&v->j, "severity", name);
        json_int(&v->j, "status", ckpt_err_status(code));
        json_text(&v->j, "text", text);
        json_close(&v->j, '}');
    } else {
        out_printf("%s: ", name);
        out_text(text);
        out_printf("\n");
    }
    return out_broken();
}

/* Callback after the structure has been checked: warn about options without effect. */
static void verify_opened(void *ctx, const ckpt_map *map)
{
    const verify_tally *v = ctx;

    if (!v->proving)
        effects_of_source(v->a, map);
}

/* How many of the values the files' checksums cover. */
static const char *verify_vouched(const ckpt_run_report *r)
{
    return r->n_unvouched == 0 ? "all" : r->n_unvouched < r->n_payload ? "some" : "none";
}

/* Print the checksums or hashes that vouch for the values, or that there are none. */
static void verify_close_vouched(const verify_tally *v, const ckpt_run_report *r)
{
    char bytes[HUMAN_ROOM], n[COUNT_ROOM];

    if (v->vouch.n_files)
        out_printf("; %s equal to the manifest", count_text(n, v->vouch.n_files, "file"));
    if (v->vouch.n_hub)
        out_printf("; %s with the hub's SHA-256", count_text(n, v->vouch.n_hub, "file"));
    if (v->all_signed || v->vouch.n_files || v->vouch.n_hub || v->vouch.skipped || !r->n_unvouched)
        return;
    if (r->n_unvouched < r->n_payload)
        out_printf("; %s of values not checked: neither a checksum nor a manifest covers them",
                   human_bytes(bytes, r->n_unvouched));
    else
        out_printf("; values not checked: these files have neither checksums nor a manifest");
}

/* Print the closing line. */
static void verify_close(const verify_tally *v, int rc, const ckpt_run_report *r)
{
    char proof[PROOF_ROOM], bytes[HUMAN_ROOM], e[COUNT_ROOM], w[COUNT_ROOM];

    if (rc == CKPT_OK) {
        out_printf("ok: %s read: %s", human_bytes(bytes, r->n_read), proof_text(proof, r, "read"));
        if (v->n_warnings)
            out_printf("; %s", count_text(w, v->n_warnings, "warning"));
        verify_close_vouched(v, r);
        out_printf("\n");
    } else {
        out_printf("%s, %s\n", count_text(e, v->n_errors, "error"),
                   count_text(w, v->n_warnings, "warning"));
    }
}

/* Print the members after the findings; the document is complete even after a failure. */
static void verify_close_json(verify_tally *v, int rc, const ckpt_run_report *r,
                              const ckpt_err *err)
{
    json_close(&v->j, ']');
    json_bool(&v->j, "ok", rc == CKPT_OK);
    json_int(&v->j, "status", ckpt_err_status(rc));
    json_uint(&v->j, "errors", v->n_errors);
    json_uint(&v->j, "warnings", v->n_warnings);
    // failures that are not the checkpoint's: memory, I/O, an interrupt
    if (rc != CKPT_OK && v->n_errors == 0)
        json_text(&v->j, "failure", err->text);
    if (r->n_payload) {
        json_text(&v->j, "checksums", verify_vouched(r));
        json_uint(&v->j, "bytes_without_checksum", r->n_unvouched);
    }
    json_text(&v->j, "manifest", v->vouch.path[0] ? v->vouch.path : NULL);
    json_uint(&v->j, "files_in_manifest", v->vouch.n_files);
    json_uint(&v->j, "files_with_hub_hash", v->vouch.n_hub);
    json_report(&v->j, "report", r);
}

/* With --strict, turn warnings into a failure, if there is no other one. */
static int verify_strict(const verify_tally *v, const cli_args *a, ckpt_err *err)
{
    if (!a->strict || v->n_warnings == 0)
        return effects_strict(a, err);
    return fail(err, CKPT_EDOUBT, "--strict: refused because of %s above",
                v->n_warnings == 1 ? "the warning" : "the warnings");
}

/*
 * Compare with the manifest and the hub's hashes.  A hash that does not match outweighs other
 * damage, which it explains, but not a file that asks to run code.
 */
static int verify_hashes(verify_tally *v, const cli_args *a, const ckpt_open_opts *open,
                         const char *path, int rc, ckpt_err *err)
{
    const uint64_t n_errors = v->n_errors;
    ckpt_err why = {0};
    int found;

    v->vouch = (manifest_vouch){
        .file = v->manifest, .open = open, .map = v->map, .finding = verify_finding, .ctx = v};
    if (rc == CKPT_ECANCELED)
        return rc;
    found = manifest_verify(&v->vouch, a, path, &why);
    if (v->vouch.skipped)
        (void)verify_finding(v, 1, CKPT_OK,
                             "several processes do not use the manifest: verify as one process");
    if (found == CKPT_OK || (found == CKPT_EDIGEST && rc == CKPT_EUNSAFE))
        return rc;
    // a damaged checkpoint: the findings above say so already
    if (found == rc && n_errors > 0 && rc != CKPT_EDIGEST)
        return rc;
    // memory or a limit: damage may be the reason
    if (rc != CKPT_OK && n_errors == 0)
        (void)verify_finding(v, 2, rc, err->text);
    if (found != CKPT_EDIGEST && found != CKPT_ECANCELED)
        (void)verify_finding(v, 2, found, why.text);
    *err = why;
    return found;
}

/* Verify one path.  Findings are results, so main reports only failures that are not findings. */
static int verify_one(verify_tally *v, cli_args *a, const char *path, ckpt_err *err)
{
    ckpt_open_opts open = {.whole_checkpoint = a->open.whole_checkpoint,
                           .require_crc = a->open.require_crc};
    ckpt_run_report report = {0};
    progress p;

    v->n_errors = v->n_warnings = 0;
    if (a->json) {
        json_text(&v->j, "path", path);
        json_open(&v->j, "findings", '[');
    } else if (a->n_operands > 1 && !a->quiet) {
        out_text(path);
        out_printf(":\n");
    }
    progress_begin(&p, "verifying", a->quiet, &a->run);
    // with --made-from, these say how to read the source
    if (!v->proving) {
        open.tag = a->open.tag;
        open.slice_rules = a->open.slice_rules;
        open.keep_slices = a->open.keep_slices;
        open.ignore_copies = a->open.ignore_copies;
    }
    const ckpt_verify_opts opts = {.open = &open,
                                   .run = &a->run,
                                   .finding = verify_finding,
                                   .finding_ctx = v,
                                   .opened = verify_opened,
                                   .map = &v->map};
    int rc = ckpt_verify(path, &opts, &report, err);
    rc = verify_hashes(v, a, &open, path, rc, err);
    ckpt_map_free(v->map);
    v->map = NULL;
    progress_end(&p);
    if (rc == CKPT_OK)
        rc = verify_strict(v, a, err);
    if (a->json)
        verify_close_json(v, rc, &report, err);
    else if (!a->quiet && (rc == CKPT_OK || v->n_errors))
        verify_close(v, rc, &report);
    // the findings on stdout have already reported it
    if (v->n_errors && rc != CKPT_ECANCELED)
        err->text[0] = 0;
    return rc;
}

/* Verify all paths, even after failures; the first failure sets the status. */
static int verify_each(verify_tally *v, cli_args *a, ckpt_err *err)
{
    int rc = CKPT_OK;

    if (a->json)
        json_open(&v->j, "paths", '[');
    for (int i = 0; i < a->n_operands && rc != CKPT_ECANCELED; i++) {
        ckpt_err one = {0};

        if (a->json)
            json_open(&v->j, NULL, '{');
        int code = verify_one(v, a, a->operand[i], &one);
        if (a->json)
            json_close(&v->j, '}');
        if (code != CKPT_OK && (rc == CKPT_OK || code == CKPT_ECANCELED)) {
            rc = code;
            *err = one;
        } else if (code != CKPT_OK && one.text[0]) {
            say_warning("%s", one.text);
        }
    }
    if (a->json) {
        json_close(&v->j, ']');
        json_bool(&v->j, "ok", rc == CKPT_OK);
        json_int(&v->j, "status", ckpt_err_status(rc));
    }
    return rc;
}

/* Callback of the proof: compare the hashes of the statement with the files. */
static int verify_attested(void *ctx, const ckpt_map *from, ckpt_err *err)
{
    verify_tally *v = ctx;
    const cli_args *cli = v->a;
    ckpt_run_opts run = cli->run;
    const ckpt_verify_opts opts = {.run = &run, .finding = verify_finding, .finding_ctx = v};
    char files[COUNT_ROOM];
    uint64_t n = 0;
    progress p;

    if (cli->json) {
        json_open(&v->j, "attestation", '{');
        json_open(&v->j, "findings", '[');
    }
    progress_begin(&p, "hashing", cli->quiet, &run);
    int rc = ckpt_attest_check(v->attested, v->made, from, &opts, &n, err);
    progress_end(&p);
    if (cli->json) {
        json_close(&v->j, ']');
        json_uint(&v->j, "files", n);
        json_bool(&v->j, "ok", rc == CKPT_OK);
        json_int(&v->j, "status", ckpt_err_status(rc));
        json_close(&v->j, '}');
    } else if (rc == CKPT_OK && !cli->quiet) {
        out_printf("statement ok: the SHA-256 of %s\n", count_text(files, n, "file"));
    }
    // the findings on stdout have already reported it
    if (v->n_errors && rc == CKPT_EDIGEST)
        err->text[0] = 0;
    return rc;
}

/* Prove --made-from, after the checkpoint itself is known to be whole. */
static int verify_made_from(verify_tally *v, verify_args *a, ckpt_err *err)
{
    cli_args *cli = &a->prepare.write.cli;
    const made_from proof = {.prepare = &a->prepare,
                             .merge = &a->merge,
                             .out = cli->operand[0],
                             .tolerance = cli_has(&cli->line, "tol") ? a->tolerance : -1,
                             .ignore_metadata = a->ignore_metadata,
                             .not_of_it = verify_own,
                             .j = cli->json ? &v->j : NULL,
                             .opened = a->attested ? verify_attested : NULL,
                             .ctx = v};

    // as operands, which have the type of main's argv
    cli->operand = (char *const *)(uintptr_t)a->made_from.at;
    cli->n_operands = a->merge.recipe ? 0 : (int)a->made_from.n;
    if (cli->json) {
        json_open(&v->j, "made_from", '{');
        json_open_flat(&v->j, "sources", '[');
        for (size_t i = 0; i < a->made_from.n; i++)
            json_text(&v->j, NULL, a->made_from.at[i]);
        json_close(&v->j, ']');
    }
    int rc = made_from_prove(&proof, err);
    if (cli->json) {
        json_bool(&v->j, "proved", rc == CKPT_OK);
        json_int(&v->j, "status", ckpt_err_status(rc));
        json_close(&v->j, '}');
    }
    return rc;
}

/* True if a signature must be checked. */
static bool verify_signed(const verify_args *a)
{
    return a->signature.key || a->signature.cert;
}

/* Check the signature; differences are findings, as those of the checkpoint itself. */
static int verify_signature(verify_tally *v, verify_args *a, ckpt_err *err)
{
    cli_args *cli = &a->prepare.write.cli;
    const ckpt_open_opts open = {.tag = v->proving ? NULL : cli->open.tag,
                                 .whole_checkpoint = cli->open.whole_checkpoint};
    const ckpt_verify_opts to = {.open = &open, .finding = verify_finding, .finding_ctx = v};
    int rc = signature_verify(&a->signature, cli, &to, &v->j, err);

    // a warning names a file that the signer left out
    v->all_signed = rc == CKPT_OK && v->n_warnings == 0;
    if (rc == CKPT_OK)
        rc = verify_strict(v, cli, err);
    // the findings on stdout have already reported it
    if (v->n_errors && rc == CKPT_EDIGEST)
        err->text[0] = 0;
    return rc;
}

static int verify_run(cli_args *a, ckpt_err *err)
{
    verify_args *args = (verify_args *)a;
    verify_tally v = {.a = a,
                      .proving = args->made_from.n > 0,
                      .made = a->operand[0],
                      .attested = args->attested,
                      .manifest = args->manifest};

    // damage in one shard is damage of the checkpoint
    a->open.whole_checkpoint = !args->prepare.as_file;
    if (a->n_operands > 1 && (v.proving || verify_signed(args)))
        return fail(err, CKPT_EUSAGE, "--%s %s one checkpoint, found %d: verify them one by one",
                    v.proving             ? "made-from"
                    : args->signature.key ? "key"
                                          : "cert",
                    v.proving ? "proves" : "checks the signature of", a->n_operands);
    if (args->manifest && a->n_operands > 1)
        return fail(err, CKPT_EUSAGE, "--manifest describes one checkpoint, found %d",
                    a->n_operands);
    if (a->json)
        json_begin(&v.j);
    int rc = verify_signed(args) ? verify_signature(&v, args, err) : CKPT_OK;
    // after a bad signature the files are not read
    if (rc == CKPT_OK)
        rc = a->n_operands > 1 ? verify_each(&v, a, err) : verify_one(&v, a, a->operand[0], err);
    if (rc == CKPT_OK && v.proving)
        rc = verify_made_from(&v, args, err);
    if (a->json)
        json_end(&v.j);
    return rc;
}

#define AT(field) offsetof(verify_args, field)
static const cli_option verify_options[] = {
    OPTION_TAG,
    {"as-file", 0, CLI_FLAG, PREPARE_AT(as_file), NULL,
     "read this shard alone, not its checkpoint"},
    {"keep-slices", 0, CLI_FLAG, offsetof(cli_args, open.keep_slices), NULL,
     "check tensor-parallel slices separately"},
    OPTION_SLICE_RULES,
    OPTION_IGNORE_COPIES,
    OPTION_REQUIRE_CRC,
    {"strict", 0, CLI_FLAG, offsetof(cli_args, strict), NULL, "fail on warnings"},
    OPTION_MEMORY,
    OPTION_JOBS,
    {"manifest", 0, CLI_FILE, offsetof(verify_args, manifest), "FILE",
     "compare with this manifest (default: the one beside PATH)"},
    {"key", 'k', CLI_FILE, offsetof(verify_args, signature.key), "PUB",
     "check the signature by the signer's public key (PEM)"},
    {"cert", 0, CLI_FILE, offsetof(verify_args, signature.cert), "CHAIN",
     "check the signature by trusted certificates (PEM)"},
    {"signature", 0, CLI_FILE, offsetof(verify_args, signature.file), "FILE",
     "the signature (default: PATH/model.sig; of a file: PATH.sig)"},
    {"follow-links", 0, CLI_FLAG, offsetof(verify_args, signature.follow_links), NULL,
     "compare the files behind symbolic links"},
    {"made-from", 0, CLI_SOURCES, AT(made_from), "SRC[:WEIGHT]",
     "prove that ckpt makes PATH from SRC (repeatable: a merge)"},
    {"attest", 0, CLI_FILE, PREPARE_AT(write.attest), "FILE",
     "take the options of the conversion from its statement"},
    {"tol", 0, CLI_NUMBER, AT(tolerance), "X",
     "let values differ by X (default: 0, or one rounding in merges)"},
    {"ignore-metadata", 0, CLI_FLAG, AT(ignore_metadata), NULL,
     "list differences of metadata, but accept them"},
    {"dtype", 0, CLI_DTYPES, PREPARE_AT(write.target.dtypes), "D[:GLOB,...]",
     "the --dtype of the conversion (default: found in PATH)"},
    PREPARE_CHANGES,
    OPTION_STAGE,
    OPTION_SUB_GROUP_SIZE,
    OPTION_EP_SIZE,
    OPTION_DEEPSPEED_VERSION,
    OPTION_JOIN,
    OPTION_ALLOW_OVERFLOW,
    OPTION_NO_SIDE_FILES,
    {"method", 0, CLI_TEXT, AT(merge.method), MERGE_METHODS,
     "merge method, as in mergekit (default: linear)"},
    MERGE_OPTIONS(AT(merge)),
    OPTION_PRINT_JSON,
    {"quiet", 'q', CLI_FLAG, offsetof(cli_args, quiet), NULL, "print errors only"},
    CLI_LOCAL,
    CLI_NO_SANDBOX,
    CLI_END,
};

/* True for the path of a mergekit configuration. */
static bool verify_is_recipe(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot && (strcmp(dot, ".yml") == 0 || strcmp(dot, ".yaml") == 0);
}

/* Read the files of the conversion's options before the sandbox hides their folders. */
static int verify_read(cli_args *cli, ckpt_err *err)
{
    verify_args *a = (verify_args *)cli;
    write_args *w = &a->prepare.write;
    if (w->attest && !a->made_from.n)
        return fail(err, CKPT_EUSAGE, "--attest needs --made-from SRC");
    // its options may name the files of the next steps
    const bool recipe = a->made_from.n == 1 && verify_is_recipe(a->made_from.at[0]);
    int rc = w->attest ? attest_read(&a->attested, &cli->line, w->attest, recipe, err) : CKPT_OK;

    if (rc == CKPT_OK && a->made_from.n && w->config)
        rc = write_config(w, err);

    if (rc == CKPT_OK && (a->signature.file || a->signature.follow_links) && !verify_signed(a))
        rc = fail(err, CKPT_EUSAGE, "--%s needs --key PUB or --cert CHAIN",
                  a->signature.file ? "signature" : "follow-links");
    if (rc == CKPT_OK && a->signature.key && a->signature.cert)
        rc = fail(err, CKPT_EUSAGE, "--key and --cert exclude each other");
    if (rc == CKPT_OK && verify_signed(a))
        rc = signature_read(&a->signature, cli->operand[0], err);
    if (recipe)
        a->merge.recipe = a->made_from.at[0];
    if (rc == CKPT_OK)
        rc = merge_read_recipe(&a->merge, err);
    return rc == CKPT_OK && a->made_from.n ? maps_read(&w->maps, w->map, err) : rc;
}

static void verify_release(cli_args *cli)
{
    signature_free(&((verify_args *)cli)->signature);
    ckpt_attest_free(((verify_args *)cli)->attested);
    free(((verify_args *)cli)->merge.recipe_text);
    write_release(cli);
}

static int verify_inputs(const cli_args *cli, int (*fn)(void *ctx, const char *path), void *ctx)
{
    return merge_recipe_paths(&((const verify_args *)cli)->merge, fn, ctx);
}

/* The options of a conversion need one to prove. */
static const cli_moot verify_moot[] = {
    PREPARE_MOOT,
    {"backwards", NULL, "made-from"},
    {"tol", NULL, "made-from"},
    {"ignore-metadata", NULL, "made-from"},
    {"dtype", NULL, "made-from"},
    {"include", NULL, "made-from"},
    {"exclude", NULL, "made-from"},
    {"rename", NULL, "made-from"},
    {"keep-names", NULL, "made-from"},
    {"map", NULL, "made-from"},
    {"layout", NULL, "made-from"},
    {"config", NULL, "made-from"},
    {"size", NULL, "made-from"},
    {"adapter", NULL, "made-from"},
    {"adapter-only", NULL, "made-from"},
    {"adapter-config", NULL, "made-from"},
    {"adapter-name", NULL, "made-from"},
    {"lora-names", NULL, "made-from"},
    {"vocab-size", NULL, "made-from"},
    {"imatrix", NULL, "made-from"},
    {"vocab-tensor", NULL, "made-from"},
    {"tie", NULL, "made-from"},
    {"untie", NULL, "made-from"},
    {"quantize", NULL, "made-from"},
    {"quantize-skip", NULL, "made-from"},
    {"weights", NULL, "made-from"},
    {"with-optimizer", NULL, "made-from"},
    {"weights-only", NULL, "made-from"},
    {"no-frozen", NULL, "made-from"},
    {"exclude-frozen", NULL, "made-from"},
    {"order", NULL, "made-from"},
    {"world", NULL, "made-from"},
    {"drop-optimizer", NULL, "made-from"},
    {"moments", NULL, "made-from"},
    {"keep-objects", NULL, "made-from"},
    {"drop-objects", NULL, "made-from"},
    {"stage", NULL, "made-from"},
    {"sub-group-size", NULL, "made-from"},
    {"ep-size", NULL, "made-from"},
    {"make-vocab-size-divisible-by", NULL, "made-from"},
    {"tensor-model-parallel-size", NULL, "made-from"},
    {"pipeline-model-parallel-size", NULL, "made-from"},
    {"expert-model-parallel-size", NULL, "made-from"},
    {"deepspeed-version", NULL, "made-from"},
    {"join", NULL, "made-from"},
    {"allow-overflow", NULL, "made-from"},
    {"no-side-files", NULL, "made-from"},
    {"method", NULL, "made-from"},
    {"base", NULL, "made-from"},
    {"density", NULL, "made-from"},
    {"lambda", NULL, "made-from"},
    {"t", NULL, "made-from"},
    {"no-normalize", NULL, "made-from"},
    {"seed", NULL, "made-from"},
    {"last", NULL, "made-from"},
    {NULL, NULL, NULL},
};

static const cli_heading verify_headings[] = {
    {"Common options", "tag strict made-from json quiet"},
    {"Checks", "as-file keep-slices slice-rules ignore-copies require-crc memory jobs local "
               "no-sandbox"},
    {"Signature", "key cert signature follow-links"},
    {"Proof", "attest manifest tol ignore-metadata allow-overflow"},
    {"Conversion to prove: source", "weights with-optimizer weights-only no-frozen exclude-frozen "
                                    "include exclude"},
    {"Conversion: names and layout",
     "rename keep-names map backwards layout config size make-vocab-size-divisible-by "
     "tensor-model-parallel-size pipeline-model-parallel-size expert-model-parallel-size "
     "no-side-files"},
    {"Conversion: precision and shape",
     "dtype imatrix quantize quantize-skip vocab-size vocab-tensor tie untie"},
    {"Conversion: adapters", "adapter adapter-only adapter-config adapter-name lora-names"},
    {"Conversion: training state",
     "world stage order drop-optimizer keep-objects drop-objects moments "
     "sub-group-size ep-size deepspeed-version join"},
    {"Conversion: merge", "method base density lambda t no-normalize seed last"},
    {NULL, NULL},
};

const cli_verb verb_verify = {
    .name = "verify",
    .command = "ckpt verify",
    .operands = "PATH ...",
    .summary = "Check every structure and every byte of a checkpoint.",
    .options = verify_options,
    .moot = verify_moot,
    .headings = verify_headings,
    .min = 1,
    .max = INT_MAX,
    .uses = "R",
    .run = verify_run,
    .read = verify_read,
    .release = verify_release,
    .inputs = verify_inputs,
    .room = sizeof(verify_args),
};
