/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listed.c: reads and writes the list of a model's files that a signature covers.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/digest.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/io/dir.h"
#include "libckpt/sign/bundle.h"
#include "libckpt/sign/listed.h"

static const char lsd_statement[] = "https://in-toto.io/Statement/v1",
                  lsd_predicate[] = "https://model_signing/signature/v1.0",
                  lsd_predicate_0[] = "https://model_signing/Digests/v0.1";

/* The statement that is being read. */
typedef struct lsd_reader {
    const char *name;
    ckpt_signed_list *out;
    ckpt_err *err;
} lsd_reader;

int ckpt_signed_list_new(ckpt_signed_list *out, ckpt_err *err)
{
    *out = (ckpt_signed_list){.arena = ckpt_arena_new(0)};
    return out->arena ? CKPT_OK : ckpt_fail_memory(err);
}

void ckpt_signed_list_free(ckpt_signed_list *list)
{
    ckpt_vec_free(&list->ignored);
    ckpt_vec_free(&list->all);
    ckpt_arena_free(list->arena);
    *list = (ckpt_signed_list){0};
}

/* ---- order ---- */

// '/' sorts below every other byte, which is the order of lists of parts
int ckpt_signed_item_compare(const void *a, const void *b)
{
    const ckpt_signed_item *x = a, *y = b;
    const unsigned char *s = (const unsigned char *)x->name, *t = (const unsigned char *)y->name;

    while (*s && *s == *t) {
        s++;
        t++;
    }
    int left = *s == '/' ? 1 : *s ? *s + 1 : 0, right = *t == '/' ? 1 : *t ? *t + 1 : 0;
    return left - right;
}

void ckpt_signed_items_sort(ckpt_signed_items *items)
{
    if (items->n)
        qsort(items->at, items->n, sizeof *items->at, ckpt_signed_item_compare);
}

bool ckpt_signed_list_ignores(const ckpt_signed_list *list, const char *path)
{
    for (size_t i = 0; i < list->ignored.n; i++) {
        const char *ignored = list->ignored.at[i];
        size_t n = strlen(ignored);

        if (strncmp(path, ignored, n) == 0 && (path[n] == 0 || path[n] == '/'))
            return true;
    }
    return false;
}

/* SHA-256 of the digests of all items in order. */
static int lsd_root(uint8_t out[32], const ckpt_signed_list *list, ckpt_err *err)
{
    ckpt_sha256 *sha = NULL;
    int rc = ckpt_sha256_new(&sha, err);

    for (size_t i = 0; rc == CKPT_OK && i < list->all.n; i++)
        rc = ckpt_sha256_add(sha, list->all.at[i].digest, 32, err);
    if (rc == CKPT_OK)
        rc = ckpt_sha256_end(sha, out, err);
    ckpt_sha256_free(sha);
    return rc;
}

/* ---- reading ---- */

static int lsd_bad(const lsd_reader *r, const char *what)
{
    return ckpt_fail(r->err, CKPT_EFORMAT, "%s: the signed statement has %s", r->name, what);
}

/* A member that must be a text; NULL after the failure is recorded. */
static const char *lsd_text(const lsd_reader *r, const ckpt_value *in, const char *key)
{
    const ckpt_value *v = ckpt_value_get(in, key);

    if (v && v->kind == CKPT_V_STR)
        return v->as.text.at;
    (void)ckpt_fail(r->err, CKPT_EFORMAT, "%s: the signed statement has no text %s", r->name, key);
    return NULL;
}

/* Read the types of the statement. */
static int lsd_types(const lsd_reader *r, const ckpt_value *root)
{
    const char *type = lsd_text(r, root, "_type");
    const char *predicate = type ? lsd_text(r, root, "predicateType") : NULL;

    if (!predicate)
        return CKPT_EFORMAT;
    if (strcmp(type, lsd_statement) != 0)
        return ckpt_fail(r->err, CKPT_EUNSUPPORTED,
                         "%s: the signed text is a '%.100s': expected %s", r->name, type,
                         lsd_statement);
    if (strcmp(predicate, lsd_predicate_0) == 0)
        return ckpt_fail(
            r->err, CKPT_EUNSUPPORTED,
            "%s: was signed by model-signing before 1.0, whose list does not say which "
            "files it leaves out: sign the model again",
            r->name);
    if (strcmp(predicate, lsd_predicate) != 0)
        return ckpt_fail(r->err, CKPT_EUNSUPPORTED,
                         "%s: the signed statement is about '%.100s': expected %s", r->name,
                         predicate, lsd_predicate);
    return CKPT_OK;
}

/* Add a path that the list leaves out; "./a" and "a/" are "a". */
static int lsd_ignore(const lsd_reader *r, const ckpt_value *v)
{
    if (!v || v->kind != CKPT_V_STR)
        return lsd_bad(r, "an ignored path that is not a text");
    const char *s = v->as.text.at;
    size_t n = strlen(s);

    while (s[0] == '.' && s[1] == '/') {
        s += 2;
        n -= 2;
    }
    while (n > 0 && s[n - 1] == '/')
        n--;
    const char **at = ckpt_vec_push(&r->out->ignored);
    if (at)
        *at = ckpt_arena_string(r->out->arena, s, n);
    return at && *at ? CKPT_OK : ckpt_fail_memory(r->err);
}

/* Read the bytes of a part, above 0; protobuf writes numbers as doubles: 1000.0. */
static bool lsd_shard(const ckpt_value *v, int64_t *out)
{
    if (v && v->kind == CKPT_V_FLOAT && v->as.f >= 1 && v->as.f < 0x1p53) {
        *out = (int64_t)v->as.f;
        return true;
    }
    return ckpt_value_as_int(v, out) && *out > 0;
}

/* Read how the files were hashed. */
static int lsd_serialization(const lsd_reader *r, const ckpt_value *v)
{
    const ckpt_value *links = ckpt_value_get(v, "allow_symlinks");
    const ckpt_value *ignored = ckpt_value_get(v, "ignore_paths");
    const char *method = lsd_text(r, v, "method");
    const char *hash = method ? lsd_text(r, v, "hash_type") : NULL;
    int64_t shard = 0;
    int rc = CKPT_OK;

    if (!hash)
        return CKPT_EFORMAT;
    if (strcmp(hash, "sha256") != 0)
        return ckpt_fail(r->err, CKPT_EUNSUPPORTED,
                         "%s: the files were hashed by '%.40s': expected sha256", r->name, hash);
    if (strcmp(method, "files") != 0 && strcmp(method, "shards") != 0)
        return ckpt_fail(r->err, CKPT_EUNSUPPORTED,
                         "%s: the files were listed by '%.40s': expected files or shards", r->name,
                         method);
    if (strcmp(method, "shards") == 0 && !lsd_shard(ckpt_value_get(v, "shard_size"), &shard))
        return lsd_bad(r, "no shard_size above 0");
    if (!links || links->kind != CKPT_V_BOOL)
        return lsd_bad(r, "no allow_symlinks that is true or false");
    if (ignored && ignored->kind != CKPT_V_LIST)
        return lsd_bad(r, "ignore_paths that are not a list");
    r->out->shard = (uint64_t)shard;
    r->out->links = links->as.i != 0;
    const ckpt_seq paths = ckpt_value_seq(ignored);
    for (uint64_t i = 0; rc == CKPT_OK && i < paths.n; i++)
        rc = lsd_ignore(r, paths.at[i]);
    return rc;
}

/* Read one file of the list. */
static int lsd_resource(const lsd_reader *r, const ckpt_value *v, const char *algorithm)
{
    const char *name = lsd_text(r, v, "name");
    const char *how = name ? lsd_text(r, v, "algorithm") : NULL;
    const char *digest = how ? lsd_text(r, v, "digest") : NULL;
    ckpt_signed_item *item = digest ? ckpt_vec_push(&r->out->all) : NULL;

    if (!digest)
        return CKPT_EFORMAT;
    if (!item)
        return ckpt_fail_memory(r->err);
    item->name = ckpt_arena_string(r->out->arena, name, strlen(name));
    if (!item->name)
        return ckpt_fail_memory(r->err);
    if (strcmp(how, algorithm) != 0 || !ckpt_sha256_parse(item->digest, digest))
        return ckpt_fail(r->err, CKPT_EFORMAT,
                         "%s: the digest of %.200s in the signed statement is not 64 digits of %s",
                         r->name, name, algorithm);
    if (strcmp(name, ".") != 0 && !ckpt_dir_parts_ok(name))
        return ckpt_fail(
            r->err, CKPT_EFORMAT,
            "%s: the signed statement names '%.200s', which is not a path in the folder", r->name,
            name);
    return CKPT_OK;
}

/* Refuse a name that is twice in the list, because one of the two would not be compared. */
static int lsd_unique(const lsd_reader *r)
{
    ckpt_signed_items sorted = {0};
    int rc = CKPT_OK;

    for (size_t i = 0; i < r->out->all.n; i++) {
        ckpt_signed_item *item = ckpt_vec_push(&sorted);

        if (!item) {
            ckpt_vec_free(&sorted);
            return ckpt_fail_memory(r->err);
        }
        *item = r->out->all.at[i];
    }
    ckpt_signed_items_sort(&sorted);
    for (size_t i = 1; rc == CKPT_OK && i < sorted.n; i++) {
        if (strcmp(sorted.at[i].name, sorted.at[i - 1].name) == 0)
            rc = ckpt_fail(r->err, CKPT_EFORMAT,
                           "%s: the signed statement names %.200s more than once", r->name,
                           sorted.at[i].name);
    }
    ckpt_vec_free(&sorted);
    return rc;
}

/* Read the files, and compare their digest of digests with the subject's. */
static int lsd_files(const lsd_reader *r, const ckpt_value *resources, const char *digest)
{
    char algorithm[64];
    uint8_t said[32], root[32];
    const ckpt_seq files = ckpt_value_seq(resources);
    int rc = CKPT_OK;

    if (!resources || resources->kind != CKPT_V_LIST)
        return lsd_bad(r, "no list resources");
    (void)snprintf(algorithm, sizeof algorithm,
                   r->out->shard ? "sha256-sharded-%" PRIu64 : "sha256", r->out->shard);
    for (uint64_t i = 0; rc == CKPT_OK && i < files.n; i++)
        rc = lsd_resource(r, files.at[i], algorithm);
    if (rc == CKPT_OK)
        rc = lsd_unique(r);
    if (rc == CKPT_OK)
        rc = lsd_root(root, r->out, r->err);
    if (rc != CKPT_OK)
        return rc;
    if (!ckpt_sha256_parse(said, digest) || memcmp(said, root, sizeof root) != 0)
        return ckpt_fail(r->err, CKPT_EDIGEST,
                         "%s: the signed statement does not agree with itself: the digest of its "
                         "subject is not that of its list",
                         r->name);
    return CKPT_OK;
}

/* Read a parsed statement. */
static int lsd_root_value(const lsd_reader *r, const ckpt_value *root)
{
    const ckpt_seq subject = ckpt_value_seq(ckpt_value_get(root, "subject"));
    const ckpt_value *predicate = ckpt_value_get(root, "predicate");
    int rc = lsd_types(r, root);

    if (rc == CKPT_OK && subject.n != 1)
        rc = lsd_bad(r, "not exactly one subject");
    if (rc != CKPT_OK)
        return rc;
    const char *model = lsd_text(r, subject.at[0], "name");
    const char *digest =
        model ? lsd_text(r, ckpt_value_get(subject.at[0], "digest"), "sha256") : NULL;
    if (!digest)
        return CKPT_EFORMAT;
    r->out->model = ckpt_arena_string(r->out->arena, model, strlen(model));
    if (!r->out->model)
        return ckpt_fail_memory(r->err);
    rc = lsd_serialization(r, ckpt_value_get(predicate, "serialization"));
    return rc == CKPT_OK ? lsd_files(r, ckpt_value_get(predicate, "resources"), digest) : rc;
}

int ckpt_signed_list_parse(ckpt_signed_list *out, const char *name, const ckpt_bytes *text,
                           ckpt_err *err)
{
    const lsd_reader r = {name, out, err};
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_value *root = NULL;
    const ckpt_json_text json = {
        .name = name, .at = (const char *)text->at, .n = text->n, .max = CKPT_BUNDLE_MAX};
    int rc = ckpt_signed_list_new(out, err);

    if (rc == CKPT_OK && !arena)
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = ckpt_json_parse(&root, arena, &json, err);
    if (rc == CKPT_OK)
        rc = lsd_root_value(&r, root);
    ckpt_arena_free(arena);
    return rc;
}

/* ---- writing ---- */

static bool lsd_string(ckpt_bytes *out, const char *s)
{
    return ckpt_json_string(out, s, strlen(s), true);
}

int ckpt_signed_list_write(ckpt_bytes *out, const ckpt_signed_list *list, ckpt_err *err)
{
    uint8_t root[32];
    char hex[65];
    int rc = lsd_root(root, list, err);

    if (rc != CKPT_OK)
        return rc;
    ckpt_sha256_hex(root, hex);
    bool ok = ckpt_bytes_printf(
                  out, "{\n  \"_type\": \"%s\",\n  \"subject\": [{\"name\": ", lsd_statement) &&
              lsd_string(out, list->model) &&
              ckpt_bytes_printf(out,
                                ", \"digest\": {\"sha256\": \"%s\"}}],\n"
                                "  \"predicateType\": \"%s\",\n  \"predicate\": {\n"
                                "    \"serialization\": {\"method\": \"files\", \"hash_type\": "
                                "\"sha256\", \"allow_symlinks\": %s, \"ignore_paths\": [",
                                hex, lsd_predicate, list->links ? "true" : "false");
    for (size_t i = 0; ok && i < list->ignored.n; i++)
        ok = ckpt_bytes_printf(out, "%s", i ? ", " : "") && lsd_string(out, list->ignored.at[i]);
    ok = ok && ckpt_bytes_printf(out, "]},\n    \"resources\": [");
    for (size_t i = 0; ok && i < list->all.n; i++) {
        ckpt_sha256_hex(list->all.at[i].digest, hex);
        ok = ckpt_bytes_printf(out, "%s\n      {\"name\": ", i ? "," : "") &&
             lsd_string(out, list->all.at[i].name) &&
             ckpt_bytes_printf(out, ", \"algorithm\": \"sha256\", \"digest\": \"%s\"}", hex);
    }
    ok = ok && ckpt_bytes_printf(out, "\n    ]\n  }\n}\n");
    return ok ? CKPT_OK : ckpt_fail_memory(err);
}
