/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest.c: implements ckpt manifest, and the parts of other commands that write, check and
 * compare manifests.
 */
#include "tools/ckpt/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ckpt_extra.h"
#include "tools/ckpt/report.h"
#include "tools/ckpt/verbs.h"
#include "tools/cli/options.h"
#include "tools/cli/progress.h"
#include "tools/mpi/ranks.h"

/* ---- conversions ---- */

int manifest_begin(convert_job *j, const write_args *a, ckpt_err *err)
{
    if (!a->manifest)
        return CKPT_OK;
    if (args_to_stdout(&a->cli))
        return fail(err, CKPT_EUSAGE, "--manifest needs an output that is a file or folder");
    if (ranks_shared())
        return fail(err, CKPT_EUSAGE,
                    "--manifest: several processes take no hashes of what they write: run ckpt "
                    "manifest DST afterwards, as one process");
    return ckpt_hashes_new(&j->run.hashes, err);
}

/* The checkpoint that a job has written: a folder, in a run that of the tag; or its first file. */
static int manifest_output(char **out, const convert_job *j, ckpt_err *err)
{
    const char *below = ckpt_map_output_folder(j->to), *top = ckpt_map_output_dir(j->to);
    size_t n;

    if (!below && !write_into_folder(&j->target))
        below = ckpt_map_file_path(j->to, 0);
    n = strlen(top) + (below ? strlen(below) : 0) + 2;
    *out = malloc(n);
    if (!*out)
        return fail(err, CKPT_ELIMIT, "out of memory");
    (void)snprintf(*out, n, "%s%s%s", top, below ? "/" : "", below ? below : "");
    return CKPT_OK;
}

int manifest_check_place(convert_job *j, const write_args *a, ckpt_err *err)
{
    struct stat st;
    char *path = NULL;
    int rc = CKPT_OK;

    if (args_to_stdout(&a->cli) || ranks_shared())
        return CKPT_OK;
    rc = manifest_output(&path, j, err);
    if (rc != CKPT_OK)
        return rc;
    j->replaces = stat(path, &st) == 0;
    // a new folder has no files
    bool folder = ckpt_map_output_folder(j->to) || write_into_folder(&j->target);
    if (a->manifest && (j->replaces || !folder))
        rc = ckpt_manifest_check_place(path, NULL, err);
    free(path);
    return rc;
}

/* Write the manifest of a new output. */
static int manifest_of_output(const convert_job *j, const char *path, ckpt_err *err)
{
    const ckpt_run_opts run = {.size = sizeof run, .jobs = j->run.jobs};
    const ckpt_manifest_opts opts = {.size = sizeof opts, .run = &run, .hashes = j->run.hashes};
    ckpt_manifest *m = NULL;
    ckpt_err why = {0};
    int rc = ckpt_manifest_make(&m, path, &opts, &why);

    if (rc == CKPT_OK)
        rc = ckpt_manifest_write(m, NULL, &why);
    ckpt_manifest_free(m);
    return rc == CKPT_OK
               ? rc
               : fail(err, rc, "%s (the output is complete, but it has no manifest)", why.text);
}

/* Remove the manifest of an output that was replaced. */
static void manifest_drop_old(const char *path)
{
    ckpt_err why = {0};

    // the output is complete, and verify names each file that an old manifest does not fit
    if (ckpt_manifest_remove(path, &why) != CKPT_OK)
        say_warning("%s: remove it, because it is that of the old output", why.text);
}

int manifest_finish(convert_job *j, const write_args *a, ckpt_err *err)
{
    char *path = NULL;
    int rc = CKPT_OK;

    if (!args_to_stdout(&a->cli) && (a->manifest || j->replaces) && !ranks_shared())
        rc = manifest_output(&path, j, err);
    if (path && a->manifest)
        rc = manifest_of_output(j, path, err);
    else if (path)
        manifest_drop_old(path);
    free(path);
    return rc;
}

/* ---- verify ---- */

int manifest_verify(manifest_vouch *v, const cli_args *a, const char *path, ckpt_err *err)
{
    const ckpt_run_opts run = {.size = sizeof run,
                               .jobs = a->run.jobs,
                               .progress = a->run.progress,
                               .progress_ctx = a->run.progress_ctx};
    const ckpt_manifest_opts opts = {
        .size = sizeof opts, .open = v->open, .run = &run, .map = v->map};
    ckpt_manifest *m = NULL;
    int rc;

    if (ckpt_path_is_remote(path) && !v->file)
        return CKPT_OK;
    rc = v->file ? ckpt_manifest_read(&m, v->file, err) : ckpt_manifest_find(&m, path, &opts, err);
    if (rc == CKPT_EDIGEST)
        (void)v->finding(v->ctx, 2, rc, err->text);
    if (rc == CKPT_OK && ranks_shared()) {
        v->skipped = m != NULL;
    } else if (rc == CKPT_OK && m) {
        (void)snprintf(v->path, sizeof v->path, "%s", ckpt_manifest_path(m));
        v->n_files = ckpt_manifest_file_count(m);
        rc = ckpt_manifest_check(m, path, &opts, v->finding, v->ctx, err);
    }
    ckpt_manifest_free(m);
    if (rc == CKPT_OK && !ranks_shared())
        rc = ckpt_hub_check(path, &opts, v->finding, v->ctx, &v->n_hub, err);
    return rc;
}

/* ---- diff ---- */

typedef struct manifest_out {
    const cli_args *a;
    json_out j;
    size_t n;
} manifest_out;

/* Print a shape like "[2, 3]". */
static void manifest_shape(const ckpt_hashed *h)
{
    out_printf("%s [", ckpt_dtype_name(h->dtype));
    for (uint32_t k = 0; k < h->ndim; k++)
        out_printf("%s%" PRIu64, k ? ", " : "", h->shape[k]);
    out_printf("]");
}

/* The name of a pair, of which one may be missing. */
static const char *manifest_name(const ckpt_hashed *a, const ckpt_hashed *b)
{
    return a ? a->name : b ? b->name : "";
}

static void manifest_text(const char *what, const ckpt_hashed *a, const ckpt_hashed *b)
{
    out_printf("%s: ", what);
    out_text(manifest_name(a, b));
    if (a && b && strcmp(what, "values") != 0) {
        out_printf(": ");
        manifest_shape(a);
        out_printf(" and ");
        manifest_shape(b);
    }
    out_printf("\n");
}

static int manifest_difference(void *ctx, const char *what, const ckpt_hashed *a,
                               const ckpt_hashed *b)
{
    manifest_out *out = ctx;

    out->n++;
    if (out->a->json) {
        json_open(&out->j, NULL, '{');
        json_text(&out->j, "name", manifest_name(a, b));
        json_text(&out->j, "what", what);
        json_text(&out->j, "sha256_a", a ? a->sha256 : NULL);
        json_text(&out->j, "sha256_b", b ? b->sha256 : NULL);
        json_close(&out->j, '}');
    } else if (out->a->quiet) {
        out_text(manifest_name(a, b));
        out_printf("\n");
    } else {
        manifest_text(what, a, b);
    }
    return out_broken();
}

/* Read the manifest of an operand: the file itself, or the one beside a checkpoint. */
static int manifest_operand(ckpt_manifest **out, const char *path, const char *tag, ckpt_err *err)
{
    const ckpt_open_opts open = {.size = sizeof open, .tag = tag};
    const ckpt_manifest_opts opts = {.size = sizeof opts, .open = &open};
    size_t n = strlen(path);
    int rc;

    // the manifest of a manifest does not exist
    if (n > 5 && strcmp(path + n - 5, ".json") == 0)
        return ckpt_manifest_read(out, path, err);
    rc = ckpt_manifest_find(out, path, &opts, err);
    return rc == CKPT_OK && !*out
               ? fail(err, CKPT_EMISSING, "%s: has no manifest: make one with ckpt manifest", path)
               : rc;
}

static void manifest_close(manifest_out *out, const ckpt_manifest *a, const ckpt_manifest *b,
                           int rc)
{
    char n[COUNT_ROOM];

    if (out->a->json) {
        json_close(&out->j, ']');
        json_uint(&out->j, "tensors_a", ckpt_manifest_tensor_count(a));
        json_uint(&out->j, "tensors_b", ckpt_manifest_tensor_count(b));
        json_uint(&out->j, "tensors_different", out->n);
        json_bool(&out->j, "equal", rc == CKPT_OK);
        json_end(&out->j);
    } else if (!out->a->quiet && rc == CKPT_OK) {
        out_printf("equal: %s, by their manifests\n",
                   count_text(n, ckpt_manifest_tensor_count(a), "tensor"));
    } else if (!out->a->quiet && rc == CKPT_EDIFFERS) {
        out_printf("different: %s, A has %zu, B has %zu, by their manifests\n",
                   count_text(n, out->n, "tensor"), ckpt_manifest_tensor_count(a),
                   ckpt_manifest_tensor_count(b));
    }
}

int manifest_diff(const cli_args *cli, const char *tag_a, const char *tag_b, ckpt_err *err)
{
    manifest_out out = {.a = cli};
    ckpt_manifest *a = NULL, *b = NULL;
    int rc = manifest_operand(&a, cli->operand[0], tag_a ? tag_a : cli->open.tag, err);

    if (rc == CKPT_OK)
        rc = manifest_operand(&b, cli->operand[1], tag_b ? tag_b : cli->open.tag, err);
    if (rc == CKPT_OK) {
        if (cli->json) {
            json_begin(&out.j);
            json_text(&out.j, "a", ckpt_manifest_path(a));
            json_text(&out.j, "b", ckpt_manifest_path(b));
            json_open(&out.j, "differences", '[');
        }
        rc = ckpt_manifest_diff(a, b, manifest_difference, &out, err);
        manifest_close(&out, a, b, rc);
    }
    if (rc == CKPT_EDIFFERS)
        err->text[0] = 0; // the lines above have reported it
    ckpt_manifest_free(a);
    ckpt_manifest_free(b);
    return rc;
}

/* ---- ckpt manifest ---- */

typedef struct manifest_args {
    cli_args cli; /* first: the parser fills the whole */
    const char *output;
} manifest_args;

/* Print the manifest's place and counts. */
static void manifest_report(const manifest_args *a, const ckpt_manifest *m)
{
    const char *file = a->output ? a->output : ckpt_manifest_path(m);
    char files[COUNT_ROOM], tensors[COUNT_ROOM];
    json_out j;

    if (a->cli.json) {
        json_begin(&j);
        json_text(&j, "manifest", file);
        json_uint(&j, "files", ckpt_manifest_file_count(m));
        json_uint(&j, "tensors", ckpt_manifest_tensor_count(m));
        json_end(&j);
    } else if (!a->cli.quiet) {
        out_text(file);
        out_printf(": %s, %s\n", count_text(files, ckpt_manifest_file_count(m), "file"),
                   count_text(tensors, ckpt_manifest_tensor_count(m), "tensor"));
    }
}

static int manifest_run(cli_args *cli, ckpt_err *err)
{
    manifest_args *a = (manifest_args *)cli;
    ckpt_manifest *m = NULL;
    progress p;

    progress_begin(&p, "hashing", cli->quiet, &cli->run);
    const ckpt_manifest_opts opts = {.size = sizeof opts, .open = &cli->open, .run = &cli->run};
    int rc = a->output ? ckpt_manifest_check_place(NULL, a->output, err) : CKPT_OK;
    if (rc == CKPT_OK)
        rc = ckpt_manifest_make(&m, cli->operand[0], &opts, err);
    progress_end(&p);
    if (rc == CKPT_OK)
        rc = ckpt_manifest_write(m, a->output, err);
    if (rc == CKPT_OK)
        manifest_report(a, m);
    ckpt_manifest_free(m);
    return rc;
}

static const cli_option manifest_options[] = {
    {"output", 'o', CLI_OUTPUT, offsetof(manifest_args, output), "FILE",
     "write this file (default: beside the checkpoint)"},
    OPTION_TAG,
    {"keep-slices", 0, CLI_FLAG, offsetof(cli_args, open.keep_slices), NULL,
     "hash tensor-parallel slices separately"},
    OPTION_SLICE_RULES,
    OPTION_JOBS,
    OPTION_PRINT_JSON,
    {"quiet", 'q', CLI_FLAG, offsetof(cli_args, quiet), NULL, "print errors only"},
    CLI_NO_SANDBOX,
    CLI_END,
};

const cli_verb verb_manifest = {
    .name = "manifest",
    .command = "ckpt manifest",
    .operands = "PATH",
    .summary = "Write the SHA-256 of a checkpoint's files and tensors beside it.",
    .options = manifest_options,
    .min = 1,
    .max = 1,
    .uses = "e",
    .run = manifest_run,
    .room = sizeof(manifest_args),
};
