/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signature.h: declares the options with which a model is signed or its signature checked, and the
 * lines about it.
 */
#ifndef TOOLS_SIGNATURE_H
#define TOOLS_SIGNATURE_H

#include "tools/cli/args.h"
#include "tools/cli/json_out.h"

typedef struct signature_args {
    const char *key, *cert, *file; /* paths of the options */
    bool follow_links;
    char *key_text, *cert_text, *place; /* contents of the first two; the bundle's path */
} signature_args;

/*
 * Read key and certificates, and find the bundle: "model.sig" in a folder; beside a file, its name
 * with ".sig".  Call it before the sandbox.  Free with signature_free, also after a failure.
 */
int signature_read(signature_args *s, const char *model, ckpt_err *err);
void signature_free(signature_args *s);

/* The library's options for these. */
ckpt_sign_opts signature_opts(const signature_args *s, const ckpt_run_opts *run);

/* "12 files, 1.4 GB, by certificate CN=release". */
enum { SIGNATURE_ROOM = 400 };
const char *signature_text(char buf[SIGNATURE_ROOM], const ckpt_sign_report *r);

/* The members of a document about a signature. */
void signature_json(json_out *j, const signature_args *s, const ckpt_sign_report *r);

/*
 * Check the signature of a model; finding receives each difference.  With --json it prints the
 * member "signature", else a line unless `quiet`.
 */
int signature_verify(const signature_args *s, cli_args *a, const ckpt_verify_opts *to, json_out *j,
                     ckpt_err *err);

#endif
