/* SPDX-License-Identifier: Apache-2.0 */
/* manifest.h: declares the use of manifests (ckpt-manifest(5)) by commands. */
#ifndef TOOLS_CKPT_MANIFEST_H
#define TOOLS_CKPT_MANIFEST_H

#include "tools/ckpt/job.h"
#include "tools/cli/json_out.h"
#include "tools/cli/write_args.h"

/*
 * Prepare --manifest before the run: it takes hashes of the bytes that it writes.
 *
 * Errors   CKPT_EUSAGE: the output is stdout, or several processes write it
 */
int manifest_begin(convert_job *j, const write_args *a, ckpt_err *err);

/* After job_prepare: check that the manifest will replace no file but an older manifest. */
int manifest_check_place(convert_job *j, const write_args *a, ckpt_err *err);

/*
 * After the run: write the manifest, or without --manifest remove the one of a replaced output,
 * which would be wrong now.
 */
int manifest_finish(convert_job *j, const write_args *a, ckpt_err *err);

/* Hashes that vouch for a checkpoint's values besides checksums. */
typedef struct manifest_vouch {
    const char *file;           /* of --manifest; NULL: the one beside the checkpoint */
    const ckpt_open_opts *open; /* how the checkpoint was opened */
    const ckpt_map *map;        /* of it; NULL: it is damaged */
    ckpt_finding_fn finding;    /* receives the differences */
    void *ctx;
    /* the rest are results */
    char path[1024];  /* of the manifest; "": there is none */
    uint64_t n_files; /* in it */
    uint64_t n_hub;   /* files that the hub has given hashes */
    bool skipped;     /* several processes: it was not used */
} manifest_vouch;

/*
 * Compare a checkpoint with its manifest, and with the hashes of the hub.
 *
 * Errors   CKPT_EDIGEST; CKPT_EFORMAT, CKPT_EMISSING ...: v->file cannot be read
 */
int manifest_verify(manifest_vouch *v, const cli_args *a, const char *path, ckpt_err *err);

/* diff --manifest: compare the manifests of the two operands, each a manifest or a checkpoint. */
int manifest_diff(const cli_args *a, const char *tag_a, const char *tag_b, ckpt_err *err);

#endif
