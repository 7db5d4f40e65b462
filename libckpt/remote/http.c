/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http.c: implements https://host/path: one file, or the folder of a model.
 *
 * A web server lists no folders.  Therefore http.c asks for the file names that a Hugging Face
 * folder has; an index file among them names the others.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/codec/json/json.h"
#include "libckpt/map/map.h"
#include "libckpt/remote/site.h"

/*
 * The origin (scheme, host and port) of the first address that was opened: CKPT_HTTP_HEADER is
 * meant for this origin.
 */
static struct {
    pthread_mutex_t lock;
    char origin[CKPT_FETCH_URL];
} htp_first = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* True if the address has the first origin.  The first call sets it. */
static bool htp_is_first(const char *address)
{
    bool is;

    pthread_mutex_lock(&htp_first.lock);
    if (!htp_first.origin[0])
        (void)snprintf(htp_first.origin, sizeof htp_first.origin, "%s", address);
    is = ckpt_fetch_same_origin(htp_first.origin, address);
    pthread_mutex_unlock(&htp_first.lock);
    return is;
}

/* Parse "Name: value" or "https://HOST Name: value"; *header: the header to send, or NULL */
static int htp_header(const char **header, const char *said, const char *address, ckpt_err *err)
{
    size_t n = strcspn(said, " ");
    const char *scheme = strstr(said, "://");
    bool names_host = scheme && scheme < said + n;
    const char *line = names_host ? said + n + strspn(said + n, " ") : said;
    char host[CKPT_FETCH_URL];

    (void)snprintf(host, sizeof host, "%.*s", (int)(n < sizeof host ? n : 0), said);
    bool ours = names_host ? ckpt_fetch_same_origin(host, address) : htp_is_first(address);
    *header = ours ? line : NULL;
    if (!strchr(line, ':') || strpbrk(line, "\r\n") || strcspn(line, " ") < strcspn(line, ":"))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "CKPT_HTTP_HEADER is not a line like \"Name: value\" or "
                         "\"https://HOST Name: value\"");
    return CKPT_OK;
}

/* Set the credentials of an http address: a header from the environment. */
static int htp_key(ckpt_site *s, const char *address, ckpt_err *err)
{
    const char *said = getenv("CKPT_HTTP_HEADER"), *header = NULL;
    int rc = CKPT_OK;

    s->key.help = "it may want credentials: CKPT_HTTP_HEADER=\"Authorization: Bearer ...\" in the "
                  "environment";
    if (said && *said)
        rc = htp_header(&header, said, address, err);
    if (rc == CKPT_OK && said && *said && !header)
        s->key.help =
            "CKPT_HTTP_HEADER is of another host: it goes to the first address's alone, or "
            "to the one it names (\"https://HOST Name: value\")";
    if (rc != CKPT_OK || !header)
        return rc;
    s->key.header[0] = ckpt_arena_string(s->arena, header, strlen(header));
    return s->key.header[0] ? CKPT_OK : ckpt_fail_memory(err);
}

static int htp_cut(ckpt_site *s, const char *address, bool *is_dir, ckpt_err *err)
{
    const char *host = strstr(address, "://") + 3, *path = host + strcspn(host, "/?#");
    size_t n = strcspn(address, "?");
    bool file = *path == '/' && ckpt_site_is_file(address);

    if (path == host)
        return ckpt_fail(err, CKPT_EUSAGE, "%s: the address has no host", address);
    if (memchr(host, '@', (size_t)(path - host)))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "messages would show the password in the address: use CKPT_HTTP_HEADER "
                         "instead (ckpt-remote(7))");
    if (strchr(address, '#') || strpbrk(address, " \t\r\n\\\""))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s: contains a character that is not allowed here ('#', a blank, a quote "
                         "or a backslash)",
                         address);
    *is_dir = !file;
    if (file) {
        while (address[n - 1] != '/')
            n--;
        s->given_name = ckpt_arena_string(s->arena, address + n, strlen(address + n));
        s->given_url = ckpt_arena_string(s->arena, address, strlen(address));
        if (!s->given_name || !s->given_url)
            return ckpt_fail_memory(err);
        // a query may grant or select this one file, so it must not be reused for others
        s->alone = strchr(address, '?') != NULL;
    }
    while (n > (size_t)(path - address) && address[n - 1] == '/')
        n--;
    s->root = s->base = ckpt_arena_string(s->arena, address, n);
    return s->root ? htp_key(s, address, err) : ckpt_fail_memory(err);
}

static int htp_url(const ckpt_site *s, const char *name, ckpt_bytes *out, ckpt_err *err)
{
    return ckpt_bytes_printf(out, "%s/", s->base) && ckpt_url_quote(out, name)
               ? CKPT_OK
               : ckpt_fail_memory(err);
}

/* ---- a folder ---- */

/* The names to ask for (ckpt-remote(7) lists the same). */
static const char *const htp_names[] = {
    "model.safetensors.index.json",
    "model.safetensors",
    "pytorch_model.bin.index.json",
    "pytorch_model.bin",
    "adapter_model.safetensors",
    "adapter_config.json",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
    "preprocessor_config.json",
};

enum { HTP_NAMES = sizeof htp_names / sizeof *htp_names, HTP_SHARDS = 4096 };

static bool htp_same(const void *ctx, uint32_t number, const void *key)
{
    const ckpt_site *s = ctx;

    return strcmp(s->files.at[number].name, key) == 0;
}

/* Add the names in weight_map, each one once. */
static int htp_shards(ckpt_site *s, const ckpt_value *index, ckpt_err *err)
{
    const ckpt_dict map = ckpt_value_map(ckpt_value_get(index, "weight_map"));
    size_t first = s->files.n;
    ckpt_index known = {0};
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < map.n; i++) {
        const ckpt_value *v = map.at[i].value;

        if (v->kind != CKPT_V_STR || !ckpt_path_part_ok(v->as.text.at, v->as.text.n))
            continue; // the reader of the index reports this error
        uint32_t hash = ckpt_hash_bytes(v->as.text.at, strlen(v->as.text.at), 0);
        if (ckpt_index_find(&known, hash, htp_same, s, v->as.text.at) != CKPT_INDEX_NONE)
            continue;
        if (s->files.n - first >= HTP_SHARDS)
            rc = ckpt_fail(err, CKPT_ELIMIT, "%s: an index of more than %d files", s->root,
                           HTP_SHARDS);
        else
            rc = ckpt_site_add(s, v->as.text.at, 0, err);
        if (rc == CKPT_OK && !ckpt_index_add(&known, hash, (uint32_t)(s->files.n - 1)))
            rc = ckpt_fail_memory(err);
    }
    ckpt_index_free(&known);
    return rc;
}

/* Add the shards listed in an index. */
static int htp_index(ckpt_site *s, ckpt_remote_file *f, ckpt_err *err)
{
    ckpt_json_text text = {
        .name = ckpt_remote_file_name(f), .n = ckpt_remote_file_size(f), .max = CKPT_SITE_PAGE};
    ckpt_value *index = NULL;
    char *bytes = text.n <= CKPT_SITE_PAGE ? ckpt_alloc((size_t)text.n + 1) : NULL;
    int rc = bytes ? ckpt_remote_file_read(f, bytes, text.n, 0, err) : ckpt_fail_memory(err);

    text.at = bytes;
    if (rc == CKPT_OK)
        rc = ckpt_json_parse(&index, s->arena, &text, err);
    if (rc == CKPT_OK)
        rc = htp_shards(s, index, err);
    ckpt_free(bytes);
    return rc;
}

/* Ask for n files at once; `is` receives those that exist. */
static int htp_look(ckpt_site *s, const char *const *names, size_t n, ckpt_remote_file **is,
                    ckpt_err *err)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < n; i++)
        rc = ckpt_site_get(&is[i], s, names[i], err);
    if (rc == CKPT_OK)
        ckpt_remote_file_open_all(is, n, s->until);
    for (size_t i = 0; rc == CKPT_OK && i < n; i++) {
        ckpt_err why = {0};
        int there = ckpt_remote_file_open(is[i], s->until, &why);

        if (there == CKPT_EMISSING)
            is[i] = NULL;
        else if (there != CKPT_OK)
            rc = ckpt_fail(err, there, "%s", why.text);
    }
    return rc;
}

static int htp_list(ckpt_site *s, ckpt_err *err)
{
    ckpt_remote_file *is[HTP_NAMES] = {0};

    if (s->alone)
        return ckpt_site_add(s, s->given_name, 0, err);
    int rc = htp_look(s, htp_names, HTP_NAMES, is, err);

    for (size_t i = 0; rc == CKPT_OK && i < HTP_NAMES; i++) {
        if (is[i])
            rc = ckpt_site_add(s, htp_names[i], ckpt_remote_file_size(is[i]), err);
        // if both kinds of weights exist, the drivers read safetensors, so pytorch_model's index is
        // not needed
        if (rc == CKPT_OK && is[i] && (i == 0 || (i == 2 && !is[0] && !is[1])))
            rc = htp_index(s, is[i], err);
    }
    return rc;
}

const ckpt_site_kind ckpt_site_https = {
    .scheme = "https://", .cut = htp_cut, .list = htp_list, .url = htp_url};
const ckpt_site_kind ckpt_site_http = {
    .scheme = "http://", .cut = htp_cut, .list = htp_list, .url = htp_url};
