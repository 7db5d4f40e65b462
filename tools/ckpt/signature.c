/* SPDX-License-Identifier: Apache-2.0 */
/* signature.c: reads the options of signatures, and reports about them. */
#define _GNU_SOURCE // explicit_bzero
#include "tools/ckpt/signature.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/ckpt/report.h"
#include "tools/cli/progress.h"
#include "tools/cli/text.h"

/* The path of the bundle if --signature does not name it. */
static char *signature_place(const char *model)
{
    size_t n = strlen(model);
    struct stat st;
    bool folder = stat(model, &st) != 0 || S_ISDIR(st.st_mode);
    char *place = malloc(n + sizeof "/model.sig");

    while (folder && n > 1 && model[n - 1] == '/')
        n--;
    if (place)
        (void)sprintf(place, "%.*s%s", (int)n, model, folder ? "/model.sig" : ".sig");
    return place;
}

int signature_read(signature_args *s, const char *model, ckpt_err *err)
{
    int rc = s->key ? text_read(&s->key_text, s->key, "a key", err) : CKPT_OK;

    if (rc == CKPT_OK && s->cert)
        rc = text_read(&s->cert_text, s->cert, "certificates", err);
    if (rc != CKPT_OK)
        return rc;
    s->place = s->file ? strdup(s->file) : signature_place(model);
    if (!s->place)
        return fail(err, CKPT_ELIMIT, "out of memory");
    // OpenSSL reads its configuration at the first use, which the sandbox would refuse
    return ckpt_prepare(CKPT_PREPARE_WRITE, err);
}

void signature_free(signature_args *s)
{
    // it may be a private key
    if (s->key_text)
        explicit_bzero(s->key_text, strlen(s->key_text));
    free(s->key_text);
    free(s->cert_text);
    free(s->place);
}

ckpt_sign_opts signature_opts(const signature_args *s, const ckpt_run_opts *run)
{
    return (ckpt_sign_opts){.size = sizeof(ckpt_sign_opts),
                            .signature = s->place,
                            .key = s->key_text,
                            .key_name = s->key,
                            .cert = s->cert_text,
                            .cert_name = s->cert,
                            .follow_links = s->follow_links,
                            .run = run};
}

const char *signature_text(char buf[SIGNATURE_ROOM], const ckpt_sign_report *r)
{
    char files[COUNT_ROOM], bytes[HUMAN_ROOM];

    (void)snprintf(buf, SIGNATURE_ROOM, "%s, %s, by %s", count_text(files, r->n_files, "file"),
                   human_bytes(bytes, r->n_bytes), r->signer);
    return buf;
}

void signature_json(json_out *j, const signature_args *s, const ckpt_sign_report *r)
{
    json_text(j, "file", s->place);
    json_text(j, "signer", r->signer);
    json_uint(j, "files", r->n_files);
    json_uint(j, "bytes", r->n_bytes);
}

int signature_verify(const signature_args *s, cli_args *a, const ckpt_verify_opts *to, json_out *j,
                     ckpt_err *err)
{
    char text[SIGNATURE_ROOM];
    ckpt_sign_report report = {0};
    ckpt_sign_opts opts = signature_opts(s, &a->run);
    progress p;

    opts.open = to->open;
    opts.finding = to->finding;
    opts.finding_ctx = to->finding_ctx;
    if (a->json) {
        json_open(j, "signature", '{');
        json_open(j, "findings", '[');
    }
    progress_begin(&p, "checking the signature", a->quiet, &a->run);
    int rc = ckpt_signature_check(a->operand[0], &opts, &report, err);
    progress_end(&p);
    if (a->json) {
        json_close(j, ']');
        signature_json(j, s, &report);
        json_bool(j, "ok", rc == CKPT_OK);
        json_int(j, "status", ckpt_err_status(rc));
        if (rc != CKPT_OK)
            json_text(j, "failure", err->text);
        json_close(j, '}');
    } else if (rc == CKPT_OK && !a->quiet) {
        out_printf("signature ok: ");
        out_text(signature_text(text, &report));
        out_printf("\n");
    }
    return rc;
}
