/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest_json.c: writes a manifest as JSON, with a list for sha256sum beside it, and reads it.
 *
 * ckpt-manifest(5) describes the schema. A reader ignores members that it does not know.
 */
#include "libckpt/inspect/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/digest.h"
#include "libckpt/base/dtype.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/commit/latest.h"
#include "libckpt/io/dir.h"
#include "libckpt/io/io.h"
#include "libckpt/io/listing.h"
#include "libckpt/io/manifest_name.h"

#define MANJ_MAX                                                                                   \
    (UINT64_C(256) << 20) /* bytes of a manifest: 500 for each of half a million tensors */

/* ---- writing ---- */

static bool manj_string(ckpt_bytes *out, const char *key, const char *text)
{
    return ckpt_bytes_printf(out, "\"%s\": ", key) &&
           ckpt_json_string(out, text, strlen(text), false);
}

static bool manj_file(ckpt_bytes *out, const ckpt_hashed *f)
{
    return manj_string(out, "path", f->name) &&
           ckpt_bytes_printf(out, ", \"bytes\": %" PRIu64 ", \"sha256\": \"%s\"}", f->n_bytes,
                             f->sha256);
}

static bool manj_tensor(ckpt_bytes *out, const ckpt_hashed *t)
{
    bool ok =
        manj_string(out, "name", t->name) &&
        ckpt_bytes_printf(out, ", \"dtype\": \"%s\", \"shape\": [", ckpt_dtype_name(t->dtype));

    for (uint32_t k = 0; ok && k < t->ndim; k++)
        ok = ckpt_bytes_printf(out, "%s%" PRIu64, k > 0 ? ", " : "", t->shape[k]);
    return ok && ckpt_bytes_printf(out, "], \"sha256\": \"%s\"}", t->sha256);
}

/* Append a list, one item a line. */
static bool manj_list(ckpt_bytes *out, const char *key, const ckpt_hashed_vec *items,
                      bool (*put)(ckpt_bytes *, const ckpt_hashed *))
{
    bool ok = ckpt_bytes_printf(out, ",\n  \"%s\": [", key);

    for (size_t i = 0; ok && i < items->n; i++)
        ok = ckpt_bytes_printf(out, "%s\n    {", i > 0 ? "," : "") && put(out, &items->at[i]);
    return ok && ckpt_bytes_printf(out, "%s]", items->n > 0 ? "\n  " : "");
}

/* The text of a manifest, with a terminator. */
static int manj_text(ckpt_bytes *out, const ckpt_manifest *m, ckpt_err *err)
{
    bool ok = ckpt_bytes_printf(out, "{\n  \"schema\": \"" CKPT_MANIFEST_SCHEMA "\",\n  ") &&
              manj_string(out, "made_by", "ckpt " CKPT_VERSION);

    if (ok && m->format)
        ok = ckpt_bytes_printf(out, ",\n  ") && manj_string(out, "format", m->format);
    if (ok && m->slices)
        ok = ckpt_bytes_printf(out, ",\n  \"slices\": true");
    ok = ok && manj_list(out, "files", &m->files, manj_file) &&
         manj_list(out, "tensors", &m->tensors, manj_tensor) &&
         ckpt_bytes_add(out, "\n}\n", sizeof "\n}\n");
    return ok ? CKPT_OK : ckpt_fail_memory(err);
}

/*
 * The list for sha256sum -c. It begins a line with a backslash if the name has characters that it
 * escapes.
 */
static int manj_sums(ckpt_bytes *out, const ckpt_manifest *m, ckpt_err *err)
{
    bool ok = true;

    for (size_t i = 0; ok && i < m->files.n; i++) {
        const ckpt_hashed *f = &m->files.at[i];

        ok = ckpt_bytes_printf(out, "%s%s  ", strpbrk(f->name, "\\\n\r") ? "\\" : "", f->sha256);
        for (const char *c = f->name; ok && *c; c++) {
            const char *escape = *c == '\\'   ? "\\\\"
                                 : *c == '\n' ? "\\n"
                                 : *c == '\r' ? "\\r"
                                              : NULL;

            ok = ckpt_bytes_add(out, escape ? escape : c, escape ? 2 : 1);
        }
        ok = ok && ckpt_bytes_add(out, "\n", 1);
    }
    return ok && ckpt_bytes_add(out, "", 1) ? CKPT_OK : ckpt_fail_memory(err);
}

/* Split the path of a manifest into its folder and its names; in an arena. */
static int manj_names(ckpt_arena *a, const char *file, const char **folder, const char **json,
                      const char **list, ckpt_err *err)
{
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;
    size_t n = strlen(name), m = strlen(CKPT_MANIFEST_JSON);

    if (n <= m || strcmp(name + n - m, CKPT_MANIFEST_JSON) != 0)
        return ckpt_fail(err, CKPT_EUSAGE, "%s: the name of a manifest ends in .json", file);
    *folder =
        slash ? ckpt_arena_string(a, file, slash == file ? 1 : (uint64_t)(slash - file)) : ".";
    *json = name;
    *list = ckpt_arena_printf(a, "%.*s" CKPT_MANIFEST_LIST, (int)(n - m), name);
    return *folder && *list ? CKPT_OK : ckpt_fail_memory(err);
}

static bool manj_is_manifest(const char *file)
{
    ckpt_manifest *m = NULL;
    bool is = ckpt_manifest_read(&m, file, NULL) == CKPT_OK;

    ckpt_manifest_free(m);
    return is;
}

/* A list is one if its manifest lies beside it. */
static bool manj_is_list(const char *file)
{
    size_t n = strlen(file) - strlen(CKPT_MANIFEST_LIST);
    char *json = ckpt_alloc(n + sizeof CKPT_MANIFEST_JSON);
    bool is;

    if (json)
        (void)snprintf(json, n + sizeof CKPT_MANIFEST_JSON, "%.*s" CKPT_MANIFEST_JSON, (int)n,
                       file);
    is = json && manj_is_manifest(json);
    ckpt_free(json);
    return is;
}

/* Check both files; old[0], old[1]: manifest and list are there. */
static int manj_check_place(ckpt_arena *a, bool old[2], const char *folder, const char *json,
                            const char *list, ckpt_err *err)
{
    const char *file = ckpt_path_join(a, folder, json), *sums = ckpt_path_join(a, folder, list);
    int rc = file && sums ? CKPT_OK : ckpt_fail_memory(err);

    if (rc == CKPT_OK)
        rc = ckpt_latest_check(&old[0], file, true, "a manifest", manj_is_manifest, err);
    if (rc == CKPT_OK)
        rc = ckpt_latest_check(&old[1], sums, true, "the list of a manifest beside it",
                               manj_is_list, err);
    return rc;
}

int ckpt_manifest_check_place(const char *path, const char *file, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_arena *a = ckpt_arena_new(0);
    const char *folder = NULL, *json = NULL, *list = NULL;
    ckpt_manifest_place place = {.file = file};
    bool old[2];
    int rc = a ? CKPT_OK : ckpt_fail_memory(err);

    if (rc == CKPT_OK && !file && (!path || !*path))
        rc = ckpt_fail(err, CKPT_EUSAGE, "no place of a manifest to check");
    if (rc == CKPT_OK && !file)
        rc = ckpt_manifest_place_of(&place, a, path, NULL, NULL, err);
    if (rc == CKPT_OK)
        rc = manj_names(a, place.file, &folder, &json, &list, err);
    if (rc == CKPT_OK)
        rc = manj_check_place(a, old, folder, json, list, err);
    ckpt_arena_free(a);
    return rc;
}

/* Write one file to its place. */
static int manj_put(bool old, const char *folder, const char *name, const ckpt_bytes *text,
                    ckpt_err *err)
{
    return (old ? ckpt_latest_replace : ckpt_latest_create)(folder, name, (const char *)text->at,
                                                            err);
}

int ckpt_manifest_write(const ckpt_manifest *m, const char *file, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_arena *a = ckpt_arena_new(0);
    ckpt_bytes text = {0}, sums = {0};
    const char *folder = NULL, *json = NULL, *list = NULL;
    bool old[2] = {0};
    int rc = a ? CKPT_OK : ckpt_fail_memory(err);

    if (rc == CKPT_OK && !m)
        rc = ckpt_fail(err, CKPT_EUSAGE, "no manifest to write");
    if (rc == CKPT_OK)
        rc = manj_names(a, file ? file : m->path, &folder, &json, &list, err);
    if (rc == CKPT_OK)
        rc = manj_text(&text, m, err);
    if (rc == CKPT_OK)
        rc = manj_sums(&sums, m, err);
    if (rc == CKPT_OK)
        rc = manj_check_place(a, old, folder, json, list, err);
    // the manifest comes last: where it is, its list is too
    if (rc == CKPT_OK)
        rc = manj_put(old[1], folder, list, &sums, err);
    if (rc == CKPT_OK)
        rc = manj_put(old[0], folder, json, &text, err);
    ckpt_vec_free(&text);
    ckpt_vec_free(&sums);
    ckpt_arena_free(a);
    return rc;
}

/* ---- reading ---- */

typedef struct manj_reader {
    ckpt_manifest *m;
    const char *name; /* for messages */
    ckpt_err *err;
} manj_reader;

static int manj_bad(const manj_reader *r, const char *list, size_t i, const char *what)
{
    return ckpt_fail(r->err, CKPT_EFORMAT, "%s: %s %zu of the manifest %s", r->name, list, i + 1,
                     what);
}

/* The text of a member without NULs, or NULL. */
static const char *manj_member(const ckpt_value *v, const char *key)
{
    const ckpt_value *text = ckpt_value_get(v, key);

    return text && text->kind == CKPT_V_STR && strlen(text->as.text.at) == text->as.text.n
               ? text->as.text.at
               : NULL;
}

/* The hash of an item; false: it is not 64 hexadecimal digits. */
static bool manj_hash(ckpt_hashed *h, const ckpt_value *v)
{
    const char *hex = manj_member(v, "sha256");
    uint8_t digest[32];

    if (!hex || !ckpt_sha256_parse(digest, hex))
        return false;
    ckpt_sha256_hex(digest, h->sha256);
    return true;
}

static int manj_read_file(const manj_reader *r, const ckpt_value *v, size_t i, ckpt_hashed *h)
{
    const ckpt_value *bytes = ckpt_value_get(v, "bytes");

    h->name = manj_member(v, "path");
    if (!h->name || !*h->name)
        return manj_bad(r, "file", i, "has no path");
    if (!ckpt_dir_parts_ok(h->name))
        return ckpt_fail(r->err, CKPT_EUNSAFE,
                         "%s: the manifest names a file outside of its folder: %s", r->name,
                         h->name);
    if (!bytes || bytes->kind != CKPT_V_INT || bytes->as.i < 0)
        return manj_bad(r, "file", i, "has no number of bytes");
    h->n_bytes = (uint64_t)bytes->as.i;
    return manj_hash(h, v) ? CKPT_OK : manj_bad(r, "file", i, "has no SHA-256");
}

static int manj_read_shape(const manj_reader *r, const ckpt_value *v, size_t i, ckpt_hashed *h)
{
    const ckpt_value *shape = ckpt_value_get(v, "shape");
    uint64_t *to, n = 1;

    if (!shape || shape->kind != CKPT_V_LIST || shape->as.seq.n > CKPT_MAX_DIM)
        return manj_bad(r, "tensor", i, "has no shape");
    h->ndim = (uint32_t)shape->as.seq.n;
    h->shape = to = ckpt_arena_array(r->m->arena, h->ndim, sizeof *to);
    if (!to)
        return ckpt_fail_memory(r->err);
    for (uint32_t k = 0; k < h->ndim; k++) {
        const ckpt_value *size = shape->as.seq.at[k];

        if (size->kind != CKPT_V_INT || size->as.i < 0 || !ckpt_mul(n, (uint64_t)size->as.i, &n))
            return manj_bad(r, "tensor", i, "has an impossible shape");
        to[k] = (uint64_t)size->as.i;
    }
    // only a number for messages: blocks that are not whole have none
    if (!ckpt_dtype_bytes(h->dtype, n, &h->n_bytes))
        h->n_bytes = 0;
    return CKPT_OK;
}

static int manj_read_tensor(const manj_reader *r, const ckpt_value *v, size_t i, ckpt_hashed *h)
{
    const char *dtype = manj_member(v, "dtype");

    h->name = manj_member(v, "name");
    h->dtype = dtype ? ckpt_dtype_parse(dtype) : CKPT_DTYPE_NONE;
    if (!h->name)
        return manj_bad(r, "tensor", i, "has no name");
    if (h->dtype == CKPT_DTYPE_NONE)
        return manj_bad(r, "tensor", i, "has no known dtype");
    if (manj_read_shape(r, v, i, h) != CKPT_OK)
        return r->err->code;
    return manj_hash(h, v) ? CKPT_OK : manj_bad(r, "tensor", i, "has no SHA-256");
}

/* Refuse a name that occurs twice. */
static int manj_once(const manj_reader *r, const ckpt_hashed_vec *items)
{
    const ckpt_hashed **sorted = ckpt_hashed_sort(items);
    int rc = sorted ? CKPT_OK : ckpt_fail_memory(r->err);

    for (size_t i = 1; rc == CKPT_OK && i < items->n; i++) {
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            rc = ckpt_fail(r->err, CKPT_EFORMAT, "%s: the manifest lists '%s' twice", r->name,
                           sorted[i]->name);
    }
    ckpt_free(sorted);
    return rc;
}

/* Read one list of items. */
static int manj_items(const manj_reader *r, const ckpt_value *top, const char *key,
                      ckpt_hashed_vec *out,
                      int (*read)(const manj_reader *, const ckpt_value *, size_t, ckpt_hashed *))
{
    const ckpt_value *list = ckpt_value_get(top, key);

    if (!list || list->kind != CKPT_V_LIST)
        return ckpt_fail(r->err, CKPT_EFORMAT, "%s: the manifest has no list \"%s\"", r->name, key);
    for (size_t i = 0; i < list->as.seq.n; i++) {
        ckpt_hashed *h = ckpt_vec_push(out);
        int rc;

        if (!h)
            return ckpt_fail_memory(r->err);
        *h = (ckpt_hashed){0};
        if (list->as.seq.at[i]->kind != CKPT_V_DICT)
            return manj_bad(r, key, i, "is not an object");
        rc = read(r, list->as.seq.at[i], i, h);
        if (rc != CKPT_OK)
            return rc;
    }
    return manj_once(r, out);
}

/* Read the members of a manifest. */
static int manj_top(const manj_reader *r, const ckpt_value *top)
{
    const char *schema = top->kind == CKPT_V_DICT ? manj_member(top, "schema") : NULL;
    const ckpt_value *slices;
    int rc;

    if (!schema)
        return ckpt_fail(r->err, CKPT_EFORMAT,
                         "%s: is not a manifest: expected an object with "
                         "\"schema\": \"" CKPT_MANIFEST_SCHEMA "\"",
                         r->name);
    if (strcmp(schema, CKPT_MANIFEST_SCHEMA) != 0)
        return ckpt_fail(r->err, CKPT_EUNSUPPORTED,
                         "%s: has the schema '%s'; this version knows " CKPT_MANIFEST_SCHEMA,
                         r->name, schema);
    r->m->format = manj_member(top, "format");
    slices = ckpt_value_get(top, "slices");
    r->m->slices = slices && slices->kind == CKPT_V_BOOL && slices->as.i;
    rc = manj_items(r, top, "files", &r->m->files, manj_read_file);
    return rc == CKPT_OK ? manj_items(r, top, "tensors", &r->m->tensors, manj_read_tensor) : rc;
}

static int manj_parse(ckpt_manifest **out, const char *name, const char *text, uint64_t n,
                      ckpt_err *err)
{
    const ckpt_json_text json = {.name = name, .at = text, .n = n, .max = MANJ_MAX};
    ckpt_value *top = NULL;
    ckpt_err why = {0};
    manj_reader r = {.name = name, .err = &why};
    int rc = ckpt_manifest_new(&r.m, &why);

    *out = NULL;
    if (rc == CKPT_OK)
        rc = ckpt_json_parse(&top, r.m->arena, &json, &why);
    if (rc == CKPT_OK)
        rc = manj_top(&r, top);
    if (rc == CKPT_OK) {
        r.m->path = ckpt_arena_string(r.m->arena, name, strlen(name));
        rc = r.m->path ? CKPT_OK : ckpt_fail_memory(&why);
    }
    if (rc == CKPT_OK)
        *out = r.m;
    else
        ckpt_manifest_free(r.m);
    return rc == CKPT_OK ? rc : ckpt_fail(err, rc, "%s", why.text);
}

int ckpt_manifest_read(ckpt_manifest **out, const char *file, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_manifest *m = NULL;
    char *text = NULL;
    uint64_t n = 0;
    int rc = file && *file ? CKPT_OK : ckpt_fail(err, CKPT_EUSAGE, "no manifest to read");

    if (out)
        *out = NULL;
    if (rc == CKPT_OK)
        rc = ckpt_io_slurp(&text, &n, file, MANJ_MAX, err);
    if (rc == CKPT_OK)
        rc = manj_parse(&m, file, text, n, err);
    ckpt_free(text);
    if (rc == CKPT_OK && out)
        *out = m;
    else
        ckpt_manifest_free(m);
    return rc;
}
