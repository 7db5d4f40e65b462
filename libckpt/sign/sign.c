/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sign.c: signs a model, and checks the signature of one.
 */
#define _GNU_SOURCE // realpath
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ckpt_extra.h"
#include "libckpt/base/digest.h"
#include "libckpt/base/opts.h"
#include "libckpt/commit/latest.h"
#include "libckpt/coverage.h"
#include "libckpt/io/dir.h"
#include "libckpt/io/io.h"
#include "libckpt/sign/bundle.h"
#include "libckpt/sign/folder.h"

/* Files of git, which are beside a model but not in its copies; model-signing leaves them out. */
static const char *const sgn_git[] = {".git", ".gitattributes", ".github", ".gitignore"};
enum { SGN_GIT = sizeof sgn_git / sizeof *sgn_git };

/* The options, completed and checked. */
typedef struct sgn_job {
    const char *path;
    ckpt_sign_opts opts;
    ckpt_run_opts run;
    ckpt_key *key;     /* NULL: certificates vouch */
    ckpt_certs *certs; /* signing: the chain; checking: the trusted ones; or NULL */
    ckpt_dir dir;      /* signing: the folder of the bundle, which is made if it is missing */
    char *folder;      /* its real path */
    const char *file;  /* name of the bundle in it */
    const char *own; /* path of the bundle below the model, in the list's arena; NULL: elsewhere */
    ckpt_sign_report report;
} sgn_job;

static void sgn_free(sgn_job *j)
{
    ckpt_key_free(j->key);
    ckpt_certs_free(j->certs);
    ckpt_dir_close(&j->dir);
    free(j->folder);
}

/* Find the folder and the name of the bundle. */
static int sgn_place(sgn_job *j, bool signing, ckpt_err *err)
{
    const char *signature = j->opts.signature;
    const char *slash = signature ? strrchr(signature, '/') : NULL;
    char folder[PATH_MAX];

    if (!signature || !*signature || (slash && !slash[1]))
        return ckpt_fail(err, CKPT_EUSAGE, "no name of a file for the signature");
    j->file = slash ? slash + 1 : signature;
    int n = snprintf(folder, sizeof folder, "%.*s",
                     slash == signature ? 1
                     : slash            ? (int)(slash - signature)
                                        : 1,
                     slash ? signature : ".");
    int rc =
        signing && n > 0 && n < (int)sizeof folder ? ckpt_dir_make(&j->dir, folder, err) : CKPT_OK;
    if (rc != CKPT_OK)
        return rc;
    j->folder = n > 0 && n < (int)sizeof folder ? realpath(folder, NULL) : NULL;
    return j->folder
               ? CKPT_OK
               : ckpt_fail_sys(err, CKPT_EMISSING, n < (int)sizeof folder ? errno : ENAMETOOLONG,
                               "%s: the folder of the signature", signature);
}

/* Take the caller's options, and read key and certificates. */
static int sgn_begin(sgn_job *j, const char *path, const ckpt_sign_opts *opts, bool signing,
                     ckpt_err *err)
{
    *j = (sgn_job){.path = path, .dir = CKPT_DIR_NONE};
    int rc = ckpt_opts_take(&j->opts, sizeof j->opts, opts, "ckpt_sign_opts", err);

    if (rc == CKPT_OK)
        rc = ckpt_opts_take(&j->run, sizeof j->run, j->opts.run, "ckpt_run_opts", err);
    if (rc != CKPT_OK)
        return rc;
    const ckpt_sign_opts *o = &j->opts;
    if (!path || !*path)
        return ckpt_fail(err, CKPT_EUSAGE, "no model to sign or check");
    if (ckpt_path_is_remote(path))
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: signatures are of files on this machine: download the model", path);
    if (signing ? !o->key : !o->key == !o->cert)
        return ckpt_fail(err, CKPT_EUSAGE, "%s",
                         signing ? "no private key" : "expected a key or certificates");
    if (o->key)
        rc = (signing ? ckpt_key_private : ckpt_key_public)(&j->key, o->key_name, o->key, err);
    if (rc == CKPT_OK && o->cert)
        rc = ckpt_certs_read(&j->certs, o->cert_name, o->cert, err);
    return rc == CKPT_OK ? sgn_place(j, signing, err) : rc;
}

/* Fill the report's signer. */
static int sgn_signer(sgn_job *j, const ckpt_bundle *b, ckpt_err *err)
{
    char hint[65] = "";
    ckpt_bytes subject = {0};
    int rc =
        b->chain ? ckpt_certs_subject(b->chain, &subject, err) : ckpt_key_hint(j->key, hint, err);

    if (rc == CKPT_OK && !ckpt_bytes_add(&subject, "", 1))
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        (void)snprintf(j->report.signer, sizeof j->report.signer, "%s %s",
                       b->chain ? "certificate" : "key",
                       b->chain ? (const char *)subject.at : hint);
    ckpt_vec_free(&subject);
    return rc;
}

static int sgn_leave_out(ckpt_signed_list *list, const char *path, ckpt_err *err)
{
    const char **at = ckpt_vec_push(&list->ignored);

    return at ? (*at = path, CKPT_OK) : ckpt_fail_memory(err);
}

/* If the bundle is in the model's folder, and no folder, leave it out of the list. */
static int sgn_leave_bundle(sgn_job *j, ckpt_signed_list *list, ckpt_err *err)
{
    char *model = realpath(j->path, NULL);

    if (!model)
        return ckpt_fail_sys(err, ckpt_open_code(errno), errno, "%s: cannot be opened", j->path);
    size_t n = strlen(model);
    const char *rest = strncmp(j->folder, model, n) == 0 ? j->folder + n : NULL;
    int rc = CKPT_OK;
    struct stat st;
    if (rest && (*rest == 0 || *rest == '/') &&
        (stat(j->opts.signature, &st) != 0 || S_ISREG(st.st_mode))) {
        const char *name = j->own = ckpt_arena_printf(list->arena, "%s%s%s", *rest ? rest + 1 : "",
                                                      *rest ? "/" : "", j->file);
        rc = name ? sgn_leave_out(list, name, err) : ckpt_fail_memory(err);
    }
    free(model);
    return rc;
}

/* ---- signing ---- */

/* Check that the certificate belongs to the key, and would be accepted. */
static int sgn_check_own(const sgn_job *j, ckpt_err *err)
{
    ckpt_key *key = NULL;
    int rc = ckpt_certs_match(j->certs, j->key, j->opts.cert_name, err);

    if (rc == CKPT_OK)
        rc = ckpt_certs_check(j->certs, NULL, j->opts.cert_name, &key, err);
    ckpt_key_free(key);
    return rc;
}

/* The name of the model: the last part of its real path. */
static int sgn_name(const sgn_job *j, ckpt_signed_list *list, ckpt_err *err)
{
    char *model = realpath(j->path, NULL);

    if (!model)
        return ckpt_fail_sys(err, ckpt_open_code(errno), errno, "%s: cannot be opened", j->path);
    const char *name = strrchr(model, '/') + 1;
    bool ok = ckpt_utf8_ok(name, strlen(name));
    list->model = ckpt_arena_string(list->arena, name, strlen(name));
    free(model);
    if (!ok)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: the name is not UTF-8", j->path);
    return list->model ? CKPT_OK : ckpt_fail_memory(err);
}

/* Hash the model, and make the statement. */
static int sgn_state(sgn_job *j, ckpt_bytes *out, ckpt_err *err)
{
    ckpt_signed_list list;
    ckpt_signed_counts counts = {0};
    int rc = ckpt_signed_list_new(&list, err);

    if (rc == CKPT_OK)
        rc = sgn_name(j, &list, err);
    if (rc == CKPT_OK)
        rc = sgn_leave_bundle(j, &list, err);
    for (size_t i = 0; rc == CKPT_OK && i < SGN_GIT; i++)
        rc = sgn_leave_out(&list, sgn_git[i], err);
    list.links = j->opts.follow_links;
    list.no_leftover = true;
    if (rc == CKPT_OK)
        rc = ckpt_signed_scan(&list, j->path, &j->run, &counts, err);
    if (rc == CKPT_OK && list.all.n == 0)
        rc = ckpt_fail(err, CKPT_EMISSING, "%s: has no file to sign", j->path);
    if (rc == CKPT_OK)
        rc = ckpt_signed_list_write(out, &list, err);
    j->report.n_files = counts.n_files;
    j->report.n_bytes = counts.n_bytes;
    ckpt_vec_free(&counts.left_out);
    ckpt_signed_list_free(&list);
    return rc;
}

static bool sgn_is(const char *file)
{
    ckpt_bundle old = {0};
    char *text = NULL;
    uint64_t n = 0;
    int rc = ckpt_io_slurp(&text, &n, file, CKPT_BUNDLE_MAX, NULL);

    if (rc == CKPT_OK)
        rc = ckpt_bundle_parse(&old, file, text, n, NULL);
    ckpt_bundle_free(&old);
    ckpt_free(text);
    return rc == CKPT_OK;
}

/* Refuse to replace a file that may be something else. */
static int sgn_check_place(const sgn_job *j, bool *old, ckpt_err *err)
{
    const char *file = j->opts.signature;
    struct stat model, st;

    if (stat(j->path, &model) == 0 && lstat(file, &st) == 0 && model.st_dev == st.st_dev &&
        model.st_ino == st.st_ino)
        return ckpt_fail(err, CKPT_EUSAGE, "%s: is the file to sign; choose another name", file);
    return ckpt_latest_check(old, file, j->run.force, "a signature", sgn_is, err);
}

/* Write the bundle, which appears complete. */
static int sgn_write(const sgn_job *j, const ckpt_bundle *b, ckpt_err *err)
{
    ckpt_bytes text = {0};
    bool old = false;
    int rc = ckpt_bundle_write(&text, b, err);

    if (rc == CKPT_OK && !ckpt_bytes_add(&text, "\n", 2)) // and the terminator
        rc = ckpt_fail_memory(err);
    // hashing took time
    if (rc == CKPT_OK)
        rc = sgn_check_place(j, &old, err);
    if (rc == CKPT_OK)
        rc = (old ? ckpt_latest_replace : ckpt_latest_create)(j->folder, j->file,
                                                              (const char *)text.at, err);
    ckpt_vec_free(&text);
    return rc;
}

int ckpt_sign(const char *path, const ckpt_sign_opts *opts, ckpt_sign_report *report, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_bundle bundle = {0};
    bool old = false;
    sgn_job j;
    int rc = sgn_begin(&j, path, opts, true, err);

    if (rc == CKPT_OK)
        rc = sgn_check_place(&j, &old, err);
    if (rc == CKPT_OK && j.certs)
        rc = sgn_check_own(&j, err);
    if (rc == CKPT_OK)
        rc = sgn_state(&j, &bundle.payload, err);
    bundle.chain = j.certs;
    if (rc == CKPT_OK)
        rc = ckpt_bundle_sign(&bundle, j.key, err);
    if (rc == CKPT_OK)
        rc = sgn_signer(&j, &bundle, err);
    if (rc == CKPT_OK)
        rc = sgn_write(&j, &bundle, err);
    if (rc == CKPT_OK)
        rc = ckpt_dir_sync_made(&j.dir, err);
    if (rc == CKPT_OK)
        j.dir.n_made = 0; // they stay
    if (rc == CKPT_OK)
        ckpt_opts_give(report, &j.report, sizeof j.report);
    bundle.chain = NULL;
    ckpt_bundle_free(&bundle);
    sgn_free(&j);
    return rc;
}

/* ---- checking ---- */

/* The comparison of the signed list with the files. */
typedef struct sgn_compare {
    const sgn_job *j;
    ckpt_signed_items *listed, *found; /* sorted by name */
    ckpt_signed_items by_digest;       /* added files, sorted by digest */
    uint64_t n_different;
    bool stopped;
} sgn_compare;

/* Report one finding; the text is cut to fit. */
CKPT_PRINTF(4, 5)
static void sgn_say(sgn_compare *c, int severity, int code, const char *fmt, ...)
{
    char text[1024];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    c->n_different += severity > 1;
    if (c->j->opts.finding && !c->stopped)
        c->stopped = c->j->opts.finding(c->j->opts.finding_ctx, severity, code, text) != 0;
}

static int sgn_by_digest(const void *a, const void *b)
{
    const ckpt_signed_item *x = a, *y = b;

    return memcmp(x->digest, y->digest, sizeof x->digest);
}

/* Compare files of equal names, and mark them on both sides. */
static void sgn_same_names(sgn_compare *c)
{
    char is[65], was[65];
    size_t k = 0;

    for (size_t i = 0; i < c->listed->n; i++) {
        ckpt_signed_item *a = &c->listed->at[i];

        while (k < c->found->n && ckpt_signed_item_compare(&c->found->at[k], a) < 0)
            k++;
        if (k == c->found->n || ckpt_signed_item_compare(&c->found->at[k], a) != 0)
            continue;
        ckpt_signed_item *b = &c->found->at[k];
        a->met = b->met = true;
        if (memcmp(a->digest, b->digest, sizeof a->digest) == 0)
            continue;
        ckpt_sha256_hex(b->digest, is);
        ckpt_sha256_hex(a->digest, was);
        sgn_say(c, 2, CKPT_EDIGEST, "%s was changed: its SHA-256 is %s, the signature has %s",
                a->name, is, was);
    }
}

/* Collect the files that the list does not have, by digest. */
static int sgn_added(sgn_compare *c, ckpt_err *err)
{
    for (size_t i = 0; i < c->found->n; i++) {
        ckpt_signed_item *item = c->found->at[i].met ? NULL : ckpt_vec_push(&c->by_digest);

        if (!item && !c->found->at[i].met)
            return ckpt_fail_memory(err);
        if (item)
            *item = c->found->at[i];
    }
    if (c->by_digest.n)
        qsort(c->by_digest.at, c->by_digest.n, sizeof *c->by_digest.at, sgn_by_digest);
    return CKPT_OK;
}

/* Report files that are only on one side; equal bytes under another name are a renamed file. */
static void sgn_other_names(sgn_compare *c)
{
    for (size_t i = 0; i < c->listed->n; i++) {
        const ckpt_signed_item *a = &c->listed->at[i];
        ckpt_signed_item *b = NULL;

        if (a->met)
            continue;
        if (c->by_digest.n)
            b = bsearch(a, c->by_digest.at, c->by_digest.n, sizeof *c->by_digest.at, sgn_by_digest);
        if (b && !b->met)
            sgn_say(c, 2, CKPT_EDIGEST, "%s was renamed: the signature has it as %s", b->name,
                    a->name);
        else
            sgn_say(c, 2, CKPT_EDIGEST, "%s was removed: the signature has it", a->name);
        if (b)
            b->met = true;
    }
    for (size_t i = 0; i < c->by_digest.n; i++) {
        if (!c->by_digest.at[i].met)
            sgn_say(c, 2, CKPT_EDIGEST, "%s was added: the signature does not have it",
                    c->by_digest.at[i].name);
    }
}

/* True for a path that every signature leaves out: git's files, and the bundle. */
static bool sgn_usual(const sgn_job *j, const char *path)
{
    for (size_t i = 0; i < SGN_GIT; i++) {
        if (strcmp(path, sgn_git[i]) == 0)
            return true;
    }
    return j->own && strcmp(path, j->own) == 0;
}

/* Add the signed files; the name of a part is FILE:FROM:TO. */
static int sgn_look(const sgn_compare *c, bool parts, ckpt_coverage *out, ckpt_err *err)
{
    char path[PATH_MAX];
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < c->found->n; i++) {
        const char *name = c->found->at[i].name;
        size_t n_name = strlen(name);

        for (int k = 0; parts && k < 2; k++) {
            const char *colon = memrchr(name, ':', n_name);
            n_name = colon ? (size_t)(colon - name) : n_name;
        }
        int n = n_name == 1 && *name == '.'
                    ? snprintf(path, sizeof path, "%s", c->j->path)
                    : snprintf(path, sizeof path, "%s/%.*s", c->j->path, (int)n_name, name);
        if (n > 0 && n < (int)sizeof path)
            rc = ckpt_coverage_add(out, path, err);
    }
    return rc;
}

/* Report the files that the checkpoint is read from, and that are not signed. */
static int sgn_cover(sgn_compare *c, bool parts, ckpt_err *err)
{
    ckpt_map *map = NULL;
    ckpt_err why = {0};
    ckpt_coverage all = {0};
    const char *file;
    size_t at = 0;
    int opened = ckpt_coverage_open(&map, c->j->path, c->j->opts.open, &why);
    int rc = sgn_look(c, parts, &all, err);

    // a model of an unknown format can be signed
    if (rc == CKPT_OK && opened != CKPT_OK)
        sgn_say(c, 1, CKPT_OK, "files outside of %s may be used without a signature: %s",
                c->j->path, why.text);
    while (rc == CKPT_OK && (file = ckpt_coverage_gap(&all, c->j->path, map, &at)))
        sgn_say(c, 2, CKPT_EDIGEST, "%s is a file of the checkpoint that is not signed", file);
    ckpt_vec_free(&all);
    ckpt_map_free(map);
    return rc;
}

/* A file and a folder have nothing to compare. */
static int sgn_kind(const sgn_job *j, const ckpt_signed_list *listed,
                    const ckpt_signed_items *found, ckpt_err *err)
{
    bool one = listed->all.n == 1 && strcmp(listed->all.at[0].name, ".") == 0;
    bool file = found->n == 1 && strcmp(found->at[0].name, ".") == 0;

    if (one == file)
        return CKPT_OK;
    return ckpt_fail(err, CKPT_EDIGEST, "%s: is a %s, and %s is the signature of a %s, %.200s",
                     j->path, file ? "file" : "folder", j->opts.signature, one ? "file" : "folder",
                     listed->model);
}

/* Compare the two lists. */
static int sgn_compare_all(const sgn_job *j, ckpt_signed_list *listed, ckpt_signed_items *found,
                           const ckpt_signed_paths *left_out, ckpt_err *err)
{
    sgn_compare c = {.j = j, .listed = &listed->all, .found = found};
    int rc = listed->shard ? CKPT_OK : sgn_kind(j, listed, found, err);

    if (rc == CKPT_OK && listed->all.n == 0)
        rc = ckpt_fail(err, CKPT_EDIGEST, "%s: is the signature of no file", j->opts.signature);
    if (rc != CKPT_OK)
        return rc;
    ckpt_signed_items_sort(&listed->all);
    sgn_same_names(&c);
    rc = sgn_added(&c, err);
    if (rc == CKPT_OK)
        sgn_other_names(&c);
    ckpt_vec_free(&c.by_digest);
    for (size_t i = 0; rc == CKPT_OK && i < left_out->n; i++) {
        if (!sgn_usual(j, left_out->at[i]))
            sgn_say(&c, 1, CKPT_OK, "%s is not covered: the signer left it out", left_out->at[i]);
    }
    if (rc == CKPT_OK && c.n_different == 0 && !c.stopped)
        rc = sgn_cover(&c, listed->shard > 0, err);
    if (rc != CKPT_OK)
        return rc;
    if (c.stopped)
        return ckpt_fail(err, CKPT_ECANCELED, "%s: checking was stopped by its caller", j->path);
    return c.n_different ? ckpt_fail(err, CKPT_EDIGEST, "%s: does not match its signature", j->path)
                         : CKPT_OK;
}

/* Hash the model by the rules of the signed list, and compare. */
static int sgn_check_files(sgn_job *j, ckpt_signed_list *listed, ckpt_err *err)
{
    ckpt_signed_counts counts = {0};
    ckpt_signed_list found = {.arena = listed->arena, .shard = listed->shard};
    int rc = sgn_leave_bundle(j, listed, err);

    found.ignored = listed->ignored;
    found.links = listed->links || j->opts.follow_links;
    if (rc == CKPT_OK)
        rc = ckpt_signed_scan(&found, j->path, &j->run, &counts, err);
    if (rc == CKPT_OK)
        rc = sgn_compare_all(j, listed, &found.all, &counts.left_out, err);
    j->report.n_files = counts.n_files;
    j->report.n_bytes = counts.n_bytes;
    ckpt_vec_free(&counts.left_out);
    ckpt_vec_free(&found.all);
    return rc;
}

int ckpt_signature_check(const char *path, const ckpt_sign_opts *opts, ckpt_sign_report *report,
                         ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_bundle bundle = {0};
    ckpt_signed_list listed = {0};
    char *text = NULL;
    uint64_t n = 0;
    sgn_job j;
    int rc = sgn_begin(&j, path, opts, false, err);

    if (rc == CKPT_OK)
        rc = ckpt_io_slurp(&text, &n, j.opts.signature, CKPT_BUNDLE_MAX, err);
    if (rc == CKPT_OK)
        rc = ckpt_bundle_parse(&bundle, j.opts.signature, text, n, err);
    if (rc == CKPT_OK)
        rc = ckpt_bundle_check(&bundle, j.opts.signature, j.key, j.certs, err);
    if (rc == CKPT_OK)
        rc = ckpt_signed_list_parse(&listed, j.opts.signature, &bundle.payload, err);
    if (rc == CKPT_OK)
        rc = sgn_signer(&j, &bundle, err);
    if (rc == CKPT_OK)
        rc = sgn_check_files(&j, &listed, err);
    ckpt_opts_give(report, &j.report, sizeof j.report);
    ckpt_free(text);
    ckpt_signed_list_free(&listed);
    ckpt_bundle_free(&bundle);
    sgn_free(&j);
    return rc;
}
