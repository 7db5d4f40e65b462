/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attest.c: writes and reads statements about conversions: which files were made of which, and how.
 *
 * A statement vouches for nothing by itself, unless it is signed or comes from a trusted place. So
 * the reader hashes files of the result only below the path that its caller gives, and of sources
 * only the files that its caller has opened.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "ckpt_extra.h"
#include "libckpt/base/digest.h"
#include "libckpt/base/opts.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/commit/latest.h"
#include "libckpt/io/dir.h"
#include "libckpt/io/io_digest.h"
#include "libckpt/io/listing.h"
#include "libckpt/sign/listed.h"

enum { ATT_MAX = 64 << 20 }; /* bytes of a statement */

static const char att_statement[] = "https://in-toto.io/Statement/v1",
                  att_predicate[] = "urn:ckpt:conversion:v1";

CKPT_VEC(att_options, ckpt_option);

struct ckpt_attested {
    ckpt_arena *arena;
    const char *file;
    att_options options;
    ckpt_signed_items result, source; /* names relative to the paths of the conversion */
};

/* ---- hashes ---- */

/* Hash one file; `known` is its identity when it was read, or NULL. */
static int att_hash(uint8_t out[32], const char *path, const ckpt_identity *known,
                    ckpt_progress *progress, ckpt_err *err)
{
    ckpt_io *io = NULL;
    int rc = ckpt_io_open_here(&io, path, err);

    if (rc == CKPT_OK && known && !ckpt_identity_same(known, &io->id))
        rc = ckpt_io_unlike(path, err);
    if (rc == CKPT_OK)
        rc = ckpt_io_sha256(out, io, progress, err);
    ckpt_io_close(io);
    return rc;
}

/* The part of a path after its last slash. */
static const char *att_last(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* The part of a path below a folder; NULL: it is elsewhere, or the folder itself. */
static const char *att_below(const char *path, const char *folder, size_t n)
{
    while (n > 1 && folder[n - 1] == '/')
        n--;
    if (n == 0 || strncmp(path, folder, n) != 0 || (path[n] != '/' && folder[n - 1] != '/'))
        return NULL;
    path += n;
    path += strspn(path, "/");
    return *path ? path : NULL;
}

/* True if a path is a word of the command, perhaps with a weight, or below it. */
static bool att_said(const char *path, const char *word)
{
    const char *colon = word ? strrchr(word, ':') : NULL;
    const size_t n = word ? strlen(word) : 0, m = colon ? (size_t)(colon - word) : n,
                 k = strlen(path);

    return word && *word &&
           (strcmp(path, word) == 0 || att_below(path, word, n) ||
            (k == m && strncmp(path, word, m) == 0) || att_below(path, word, m));
}

/*
 * The name of a source's file: its path below the source, or as the user wrote it. Other absolute
 * paths, of the cache for example, are private: they give their last part.
 */
static const char *att_name(const ckpt_attest_opts *o, const char *path)
{
    const char *slash = o->source ? strrchr(o->source, '/') : NULL;
    const char *below = o->source ? att_below(path, o->source, strlen(o->source)) : NULL;
    bool said = *path != '/';

    if (!below && slash) // the source is a file, which may have others beside it
        below = att_below(path, o->source, slash > o->source ? (size_t)(slash - o->source) : 1);
    for (size_t i = 0; !said && i < o->n_operands; i++)
        said = att_said(path, o->operands[i]);
    for (size_t i = 0; !said && i < o->n_options; i++)
        said = att_said(path, o->options[i].value);
    while (said && path[0] == '.' && path[1] == '/')
        path += 1 + strspn(path + 1, "/");
    return below ? below : said ? path : att_last(path);
}

/* Add a file that was hashed. */
static int att_add(ckpt_signed_items *items, const char *name, const uint8_t digest[32],
                   ckpt_err *err)
{
    ckpt_signed_item *item = ckpt_vec_push(items);

    if (!item)
        return ckpt_fail_memory(err);
    item->name = name;
    memcpy(item->digest, digest, sizeof item->digest);
    return CKPT_OK;
}

/* Hash a file that a source was read from, as it was then. */
static int att_hash_source(uint8_t out[32], const ckpt_map_file *f, ckpt_progress *progress,
                           ckpt_err *err)
{
    const ckpt_identity known = {f->dev, f->ino, f->mtime_s, f->mtime_ns, f->ctime_s, f->ctime_ns};

    if (f->input || ckpt_path_is_remote(f->path))
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: a statement needs the SHA-256 of files on this machine: download "
                         "the source",
                         f->path);
    return att_hash(out, f->path, &known, progress, err);
}

/* Hash the files that the source was read from. */
static int att_source(ckpt_signed_items *out, const ckpt_attest_opts *o, ckpt_progress *progress,
                      ckpt_err *err)
{
    uint8_t digest[32];
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < o->from->files.n; i++) {
        const ckpt_map_file *f = &o->from->files.at[i];

        rc = att_hash_source(digest, f, progress, err);
        if (rc == CKPT_OK)
            rc = att_add(out, att_name(o, f->path), digest, err);
    }
    return rc;
}

/* Hash the files of the result, by their names below its path. */
static int att_result(ckpt_signed_items *out, const ckpt_attest_opts *o, ckpt_arena *arena,
                      ckpt_progress *progress, ckpt_err *err)
{
    const char *folder = ckpt_map_output_folder(o->to);
    uint8_t digest[32];
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < o->to->files.n; i++) {
        const char *name = ckpt_arena_printf(arena, "%s%s%s", folder ? folder : "",
                                             folder ? "/" : "", o->to->files.at[i].path);
        const char *path = name ? ckpt_path_join(arena, ckpt_map_output_dir(o->to), name) : NULL;

        rc = path ? att_hash(digest, path, NULL, progress, err) : ckpt_fail_memory(err);
        if (rc == CKPT_OK)
            rc = att_add(out, name, digest, err);
    }
    return rc;
}

/* ---- writing ---- */

static bool att_string(ckpt_bytes *out, const char *before, const char *s)
{
    return ckpt_bytes_printf(out, "%s", before) && ckpt_json_string(out, s, strlen(s), true);
}

/* Append files as in-toto's resource descriptors. */
static bool att_put_files(ckpt_bytes *out, const ckpt_signed_items *items)
{
    char hex[65];
    bool ok = true;

    for (size_t i = 0; ok && i < items->n; i++) {
        ckpt_sha256_hex(items->at[i].digest, hex);
        ok = att_string(out, i ? ",\n    {\"name\": " : "\n    {\"name\": ", items->at[i].name) &&
             ckpt_bytes_printf(out, ", \"digest\": {\"sha256\": \"%s\"}}", hex);
    }
    return ok;
}

static bool att_put_options(ckpt_bytes *out, const ckpt_attest_opts *o)
{
    bool ok = true;

    for (size_t i = 0; ok && i < o->n_options; i++) {
        ok = att_string(out, i ? ", {\"name\": " : "{\"name\": ", o->options[i].name);
        if (ok && o->options[i].value)
            ok = att_string(out, ", \"value\": ", o->options[i].value);
        ok = ok && ckpt_bytes_printf(out, "}");
    }
    return ok;
}

static bool att_put_operands(ckpt_bytes *out, const ckpt_attest_opts *o)
{
    bool ok = true;

    for (size_t i = 0; ok && i < o->n_operands; i++)
        ok = att_string(out, i ? ", " : "", o->operands[i]);
    return ok;
}

/* Append the counts of the run. */
static bool att_put_report(ckpt_bytes *out, const ckpt_run_report *r)
{
    return ckpt_bytes_printf(
        out,
        "{\"tensors\": %" PRIu64 ", \"elements\": %" PRIu64 ", \"records_checked\": %" PRIu64
        ", \"records_without_crc\": %" PRIu64 ", \"elements_compared\": %" PRIu64
        ",\n      \"nan\": %" PRIu64 ", \"inf\": %" PRIu64 ", \"overflowed\": %" PRIu64
        ", \"rounded_to_zero\": %" PRIu64 ",\n      \"state_carried\": %" PRIu64
        ", \"state_rewritten\": %" PRIu64 ", \"state_left_out\": %" PRIu64 "}",
        r->n_tensors, r->n_elems, r->n_records_checked, r->n_records_no_crc, r->n_compared,
        r->n_nan, r->n_inf, r->n_over, r->n_zero, r->n_state_carried, r->n_state_rewritten,
        r->n_state_left_out);
}

/* Append the statement. */
static int att_put(ckpt_bytes *out, const ckpt_attest_opts *o, const ckpt_signed_items *result,
                   const ckpt_signed_items *source, ckpt_err *err)
{
    bool ok = ckpt_bytes_printf(out, "{\"_type\": \"%s\",\n  \"subject\": [", att_statement) &&
              att_put_files(out, result) &&
              ckpt_bytes_printf(out, "],\n  \"predicateType\": \"%s\",\n  \"predicate\": {\n",
                                att_predicate) &&
              att_string(out, "    \"command\": ", o->command) &&
              att_string(out, ", \"version\": ", ckpt_version());

    ok = ok && ckpt_bytes_printf(out, ",\n    \"operands\": [") && att_put_operands(out, o) &&
         ckpt_bytes_printf(out, "],\n    \"options\": [") && att_put_options(out, o) &&
         ckpt_bytes_printf(out, "],\n    \"materials\": [") && att_put_files(out, source) &&
         ckpt_bytes_printf(out, "],\n    \"proved\": ") && att_put_report(out, o->report) &&
         ckpt_bytes_printf(out, "\n  }\n}\n");
    return ok && ckpt_bytes_add(out, "", 1) ? CKPT_OK : ckpt_fail_memory(err);
}

static bool att_is(const char *file)
{
    ckpt_attested *a = NULL;
    bool is = ckpt_attest_read(&a, file, NULL) == CKPT_OK;

    ckpt_attest_free(a);
    return is;
}

static int att_check_place(bool *old, const char *file, bool force, ckpt_err *err)
{
    return ckpt_latest_check(old, file, force, "a statement about a conversion", att_is, err);
}

int ckpt_attest_check_place(const char *file, bool force, ckpt_err *err)
{
    ckpt_err_clear(err);
    bool old;

    return file ? att_check_place(&old, file, force, err)
                : ckpt_fail(err, CKPT_EUSAGE, "no place of a statement to check");
}

/* Write the text to its place, which appears complete. */
static int att_replace(const char *file, const ckpt_bytes *text, bool force, ckpt_err *err)
{
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;
    ckpt_arena *arena = ckpt_arena_new(0);
    const char *folder = arena ? ckpt_arena_string(arena, slash ? file : ".",
                                                   slash > file ? (uint64_t)(slash - file) : 1)
                               : NULL;
    bool old = false;
    int rc = folder ? att_check_place(&old, file, force, err) : ckpt_fail_memory(err);

    if (rc == CKPT_OK)
        rc = (old ? ckpt_latest_replace : ckpt_latest_create)(folder, name, (const char *)text->at,
                                                              err);
    ckpt_arena_free(arena);
    return rc;
}

/* The bytes to hash. */
static uint64_t att_total(const ckpt_attest_opts *o)
{
    uint64_t n = 0;

    for (size_t i = 0; i < o->from->files.n; i++)
        n += o->from->files.at[i].size;
    for (size_t i = 0; i < o->to->files.n; i++)
        n += o->to->files.at[i].size;
    return n;
}

int ckpt_attest_write(const char *file, const ckpt_attest_opts *opts, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_attest_opts o;
    ckpt_run_opts run;
    ckpt_signed_items result = {0}, source = {0};
    ckpt_progress *progress = NULL;
    ckpt_bytes text = {0};
    int rc = ckpt_opts_take(&o, sizeof o, opts, "ckpt_attest_opts", err);

    if (rc == CKPT_OK)
        rc = ckpt_opts_take(&run, sizeof run, o.run, "ckpt_run_opts", err);
    if (rc == CKPT_OK && (!file || !o.command || !o.target || !o.from || !o.to || !o.report))
        rc = ckpt_fail(err, CKPT_EUSAGE, "a statement needs a file, a command, maps and a report");
    if (rc != CKPT_OK)
        return rc;
    ckpt_arena *arena = ckpt_arena_new(0);
    rc = arena ? ckpt_progress_new(&progress, &run, att_total(&o), err) : ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = att_source(&source, &o, progress, err);
    if (rc == CKPT_OK)
        rc = att_result(&result, &o, arena, progress, err);
    if (rc == CKPT_OK)
        rc = att_put(&text, &o, &result, &source, err);
    if (rc == CKPT_OK)
        rc = att_replace(file, &text, run.force, err);
    ckpt_vec_free(&text);
    ckpt_vec_free(&result);
    ckpt_vec_free(&source);
    ckpt_progress_free(progress);
    ckpt_arena_free(arena);
    return rc;
}

/* ---- reading ---- */

static int att_bad(const ckpt_attested *a, const char *what, ckpt_err *err)
{
    return ckpt_fail(err, CKPT_EFORMAT, "%s: the statement has %s", a->file, what);
}

/* The text of a member; NULL: it has none. */
static const char *att_text(const ckpt_value *v, const char *key)
{
    const ckpt_value *text = ckpt_value_get(v, key);

    return text && text->kind == CKPT_V_STR ? text->as.text.at : NULL;
}

static int att_files(ckpt_attested *a, ckpt_signed_items *out, const ckpt_value *list,
                     ckpt_err *err)
{
    const ckpt_seq files = ckpt_value_seq(list);
    int rc = files.n ? CKPT_OK : att_bad(a, "no files", err);

    for (uint64_t i = 0; rc == CKPT_OK && i < files.n; i++) {
        const char *name = att_text(files.at[i], "name");
        const char *hex = att_text(ckpt_value_get(files.at[i], "digest"), "sha256");
        uint8_t digest[32];

        rc = name && hex && *name && ckpt_sha256_parse(digest, hex)
                 ? att_add(out, name, digest, err)
                 : att_bad(a, "a file without name or SHA-256", err);
    }
    return rc;
}

static bool att_is_list(const ckpt_value *v, const char *key)
{
    const ckpt_value *list = ckpt_value_get(v, key);

    return list && list->kind == CKPT_V_LIST;
}

static int att_options_of(ckpt_attested *a, const ckpt_value *list, ckpt_err *err)
{
    const ckpt_seq options = ckpt_value_seq(list);

    for (uint64_t i = 0; i < options.n; i++) {
        const char *name = att_text(options.at[i], "name");
        const char *value = att_text(options.at[i], "value");
        ckpt_option *o = NULL;

        if (!name || (!value && ckpt_value_get(options.at[i], "value")))
            return att_bad(a, "an option without a name, or with a value that is not text", err);
        o = ckpt_vec_push(&a->options);
        if (!o)
            return ckpt_fail_memory(err);
        *o = (ckpt_option){name, value};
    }
    return CKPT_OK;
}

/* Read a parsed statement, which lives in the arena. */
static int att_take(ckpt_attested *a, const ckpt_value *root, ckpt_err *err)
{
    const ckpt_value *predicate = ckpt_value_get(root, "predicate");

    if (!ckpt_value_is(ckpt_value_get(root, "_type"), att_statement) ||
        !ckpt_value_is(ckpt_value_get(root, "predicateType"), att_predicate))
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: is not a statement about a conversion: expected predicateType %s",
                         a->file, att_predicate);
    if (!att_text(predicate, "command") || !att_text(predicate, "version") ||
        !att_is_list(predicate, "operands") || !att_is_list(predicate, "options"))
        return att_bad(a, "no command, version, operands or options", err);
    int rc = att_files(a, &a->result, ckpt_value_get(root, "subject"), err);
    if (rc == CKPT_OK)
        rc = att_files(a, &a->source, ckpt_value_get(predicate, "materials"), err);
    return rc == CKPT_OK ? att_options_of(a, ckpt_value_get(predicate, "options"), err) : rc;
}

int ckpt_attest_read(ckpt_attested **out, const char *file, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_value *root = NULL;

    if (out)
        *out = NULL;
    if (!out || !file)
        return ckpt_fail(err, CKPT_EUSAGE, "no statement to read");
    ckpt_attested *a = ckpt_alloc(sizeof *a);
    int rc = a ? CKPT_OK : ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        a->arena = ckpt_arena_new(0);
    if (rc == CKPT_OK && a->arena)
        a->file = ckpt_arena_string(a->arena, file, strlen(file));
    if (rc == CKPT_OK && !a->file)
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = ckpt_json_read(&root, a->arena, file, ATT_MAX, err);
    if (rc == CKPT_OK)
        rc = att_take(a, root, err);
    if (rc == CKPT_OK)
        *out = a;
    else
        ckpt_attest_free(a);
    return rc;
}

void ckpt_attest_free(ckpt_attested *a)
{
    if (a) {
        ckpt_vec_free(&a->options);
        ckpt_vec_free(&a->result);
        ckpt_vec_free(&a->source);
        ckpt_arena_free(a->arena);
        ckpt_free(a);
    }
}

const ckpt_option *ckpt_attest_option_at(const ckpt_attested *a, size_t i)
{
    return a && i < a->options.n ? &a->options.at[i] : NULL;
}

/* ---- checking ---- */

/* A comparison of files with a statement. */
typedef struct att_check {
    const ckpt_attested *a;
    const ckpt_verify_opts *opts;
    ckpt_progress *progress;
    uint64_t n_files, n_different;
} att_check;

/* Report a file that differs. */
static int att_differs(att_check *c, const char *path, const char *how, ckpt_err *err)
{
    ckpt_err text = {0};

    c->n_different++;
    (void)ckpt_fail(&text, CKPT_EDIGEST, "%s %s", path, how);
    if (c->opts->finding && c->opts->finding(c->opts->finding_ctx, 2, CKPT_EDIGEST, text.text) != 0)
        return ckpt_fail(err, CKPT_ECANCELED, "%s: checking was stopped by its caller", path);
    return CKPT_OK;
}

/*
 * The folder of the result's files: the target, or, if that is one of several files, its folder.
 * NULL: out of memory.
 */
static const char *att_root(const ckpt_signed_items *items, ckpt_arena *arena, const char *target)
{
    const char *last = att_last(target);
    struct stat st;

    if (items->n == 1 || stat(target, &st) != 0 || !S_ISREG(st.st_mode))
        return target;
    return last == target ? "." : ckpt_arena_string(arena, target, (uint64_t)(last - target));
}

/* Compare the files of the result, which are those below its path. */
static int att_results(att_check *c, const char *target, ckpt_err *err)
{
    const ckpt_signed_items *items = &c->a->result;
    struct stat st;
    const bool one = items->n == 1 && stat(target, &st) == 0 && S_ISREG(st.st_mode);
    ckpt_arena *arena = ckpt_arena_new(0);
    const char *root = arena ? att_root(items, arena, target) : NULL;
    int rc = root ? CKPT_OK : ckpt_fail_memory(err);

    for (size_t i = 0; rc == CKPT_OK && i < items->n; i++) {
        const char *name = items->at[i].name;
        const char *path = one ? root : ckpt_path_join(arena, root, name);
        uint8_t digest[32];
        ckpt_err why = {0};

        if (!ckpt_dir_parts_ok(name)) {
            rc = att_bad(c->a, "a file outside of the result", err);
            break;
        }
        c->n_files++;
        rc = path ? att_hash(digest, path, NULL, c->progress, &why) : ckpt_fail_memory(&why);
        if (rc == CKPT_EMISSING)
            rc = att_differs(c, path, "is missing: the statement has it", err);
        else if (rc == CKPT_OK && memcmp(digest, items->at[i].digest, sizeof digest) != 0)
            rc = att_differs(c, path, "was changed: its SHA-256 is not that of the statement", err);
        else if (rc != CKPT_OK)
            (void)ckpt_fail(err, rc, "%s", why.text);
    }
    ckpt_arena_free(arena);
    return rc;
}

/* Take a file of the statement with this hash; digest NULL: with the last part of this name. */
static bool att_meet(const ckpt_signed_items *items, bool *met, const uint8_t *digest,
                     const char *name)
{
    for (size_t i = 0; i < items->n; i++) {
        const ckpt_signed_item *item = &items->at[i];

        if (met[i] || (digest ? memcmp(item->digest, digest, sizeof item->digest) != 0
                              : strcmp(att_last(item->name), att_last(name)) != 0))
            continue;
        met[i] = true;
        return true;
    }
    return false;
}

/* Report the files that are not those of the statement. */
static int att_unmet(att_check *c, const ckpt_map *from, const bool *same, bool *met, ckpt_err *err)
{
    const ckpt_signed_items *items = &c->a->source;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < from->files.n; i++) {
        const char *path = from->files.at[i].path;

        if (!same[i])
            rc = att_differs(c, path,
                             att_meet(items, met, NULL, path)
                                 ? "was changed: its SHA-256 is not that of the statement"
                                 : "is not one of the sources of the statement",
                             err);
    }
    for (size_t i = 0; rc == CKPT_OK && i < items->n; i++) {
        if (!met[i])
            rc = att_differs(c, items->at[i].name,
                             "of the statement is none of the files of the source", err);
    }
    return rc;
}

/*
 * Compare the files of the sources by their hashes: they may be in other folders than those of the
 * conversion, and the statement does not choose the files that are read.
 */
static int att_sources(att_check *c, const ckpt_map *from, ckpt_err *err)
{
    const ckpt_signed_items *items = &c->a->source;
    const size_t n = from->files.n;
    bool *same = ckpt_alloc(n + 1), *met = ckpt_alloc(items->n + 1);
    uint8_t digest[32];
    int rc = same && met ? CKPT_OK : ckpt_fail_memory(err);

    if (rc == CKPT_OK) {
        memset(same, 0, n + 1);
        memset(met, 0, items->n + 1);
    }
    for (size_t i = 0; rc == CKPT_OK && i < n; i++) {
        rc = att_hash_source(digest, &from->files.at[i], c->progress, err);
        if (rc == CKPT_OK)
            same[i] = att_meet(items, met, digest, from->files.at[i].path);
        c->n_files++;
    }
    if (rc == CKPT_OK)
        rc = att_unmet(c, from, same, met, err);
    ckpt_free(same);
    ckpt_free(met);
    return rc;
}

int ckpt_attest_check(const ckpt_attested *a, const char *target, const ckpt_map *from,
                      const ckpt_verify_opts *opts, uint64_t *n_files, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_verify_opts own;
    ckpt_run_opts run;
    int rc = ckpt_opts_take(&own, sizeof own, opts, "ckpt_verify_opts", err);
    att_check c = {.a = a, .opts = &own};

    if (rc == CKPT_OK)
        rc = ckpt_opts_take(&run, sizeof run, own.run, "ckpt_run_opts", err);
    if (rc == CKPT_OK && (!a || !target || !from))
        rc = ckpt_fail(err, CKPT_EUSAGE, "a statement, its result and its source are needed");
    if (rc == CKPT_OK)
        rc = ckpt_progress_new(&c.progress, &run, 0, err);
    if (rc == CKPT_OK)
        rc = att_results(&c, target, err);
    if (rc == CKPT_OK)
        rc = att_sources(&c, from, err);
    ckpt_progress_free(c.progress);
    if (n_files)
        *n_files = c.n_files;
    if (rc == CKPT_OK && c.n_different)
        rc = ckpt_fail(err, CKPT_EDIGEST, "%s: does not match the files", a->file);
    return rc;
}
