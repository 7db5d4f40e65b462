/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hf.c: implements hf://OWNER/NAME[@REVISION][/PATH]: a model repository on the Hugging Face hub.
 *
 * A revision is a branch or tag that can move, so hf.c first asks which commit it names and uses
 * the commit in all later requests.
 * Source   https://huggingface.co/docs/hub/api and huggingface_hub 0.26: /api/models/ID/revision/R,
 *          /api/models/ID/tree/R with pages by Link, /ID/resolve/R/PATH; HF_ENDPOINT, HF_TOKEN,
 *          HF_TOKEN_PATH, HF_HOME
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/codec/json/json.h"
#include "libckpt/io/io.h"
#include "libckpt/remote/site.h"

enum {
    HUB_PAGES = 2000, /* pages of a listing, of up to 1000 files each */
    HUB_TOKEN = 4096  /* bytes */
};

/* ---- the token ---- */

/* The first word of a text; NULL: there is none. */
static const char *hub_word(ckpt_arena *a, const char *s)
{
    size_t n;

    s += strspn(s, " \t\r\n");
    n = strcspn(s, " \t\r\n");
    return n ? ckpt_arena_string(a, s, n) : NULL;
}

/* The path at which huggingface-cli leaves the token; NULL: the user's home folder is unknown. */
static const char *hub_token_path(ckpt_arena *a)
{
    const char *path = getenv("HF_TOKEN_PATH"), *hub = getenv("HF_HOME"), *home = getenv("HOME");
    const char *cache = getenv("XDG_CACHE_HOME");

    if (path && *path)
        return path;
    if (hub && *hub)
        return ckpt_arena_printf(a, "%s/token", hub);
    if (cache && *cache)
        return ckpt_arena_printf(a, "%s/huggingface/token", cache);
    return home && *home ? ckpt_arena_printf(a, "%s/.cache/huggingface/token", home) : NULL;
}

/*
 * The token found there.  It is read only once, because a sandbox may forbid to open the file
 * later.
 */
static struct {
    pthread_mutex_t lock;
    bool known;
    char token[HUB_TOKEN + 1]; /* "": there is no login */
    ckpt_err why;              /* the error, if the file exists but cannot be read */
} hub_it = {.lock = PTHREAD_MUTEX_INITIALIZER};

void ckpt_hf_begin(void)
{
    ckpt_arena *a = ckpt_arena_new(0);
    const char *path = a ? hub_token_path(a) : NULL, *word;
    char *text = NULL;
    uint64_t n = 0;

    pthread_mutex_lock(&hub_it.lock);
    if (!hub_it.known && path &&
        ckpt_io_slurp(&text, &n, path, HUB_TOKEN, &hub_it.why) == CKPT_OK) {
        text[n] = 0;
        word = hub_word(a, text);
        (void)snprintf(hub_it.token, sizeof hub_it.token, "%s", word ? word : "");
    }
    hub_it.known = true;
    pthread_mutex_unlock(&hub_it.lock);
    ckpt_free(text);
    ckpt_arena_free(a);
}

static int hub_token_file(const char **out, ckpt_err *err)
{
    *out = hub_it.token[0] ? hub_it.token : NULL;
    return hub_it.why.code == CKPT_OK || hub_it.why.code == CKPT_EMISSING
               ? CKPT_OK
               : ckpt_fail(err, hub_it.why.code, "%s", hub_it.why.text);
}

static int hub_key(ckpt_site *s, ckpt_err *err)
{
    const char *said = getenv("HF_TOKEN"), *token = said ? hub_word(s->arena, said) : NULL;
    int rc = token ? CKPT_OK : hub_token_file(&token, err);

    s->key.help = token
                      ? "the token that was sent (HF_TOKEN, or of huggingface-cli login) does not "
                        "allow it: accept the model's terms on its page, or use another one"
                      : "no such repository exists, or it is private or gated: set HF_TOKEN, or "
                        "run huggingface-cli login";
    for (const char *p = token; rc == CKPT_OK && p && *p; p++) {
        if (*p < 0x21 || *p > 0x7e)
            rc = ckpt_fail(err, CKPT_EUSAGE,
                           "the Hugging Face token contains blanks, control characters or "
                           "characters outside of ASCII");
    }
    if (rc == CKPT_OK && token) {
        s->key.header[0] = ckpt_arena_printf(s->arena, "Authorization: Bearer %s", token);
        rc = s->key.header[0] ? CKPT_OK : ckpt_fail_memory(err);
    }
    return rc;
}

/* ---- the address ---- */

static int hub_wrong(const char *address, ckpt_err *err)
{
    return ckpt_fail(
        err, CKPT_EUSAGE,
        "%s: expected hf://OWNER/NAME, hf://OWNER/NAME@REVISION or hf://OWNER/NAME/FILE", address);
}

/* True if the text holds only letters, digits and the characters in `more`. */
static bool hub_plain(const char *s, size_t n, const char *more)
{
    for (size_t i = 0; i < n; i++) {
        bool letter = (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') ||
                      (s[i] >= '0' && s[i] <= '9');

        if (!letter && (!s[i] || !strchr(more, s[i])))
            return false;
    }
    return n > 0 && n <= 256 && *s != '.';
}

static int hub_cut(ckpt_site *s, const char *address, bool *is_dir, ckpt_err *err)
{
    const char *id = address + strlen("hf://"), *slash = strchr(id, '/');
    const char *name = slash ? slash + 1 : id, *end = name + strcspn(name, "/");
    const char *at = memchr(id, '@', (size_t)(end - id)), *site = getenv("HF_ENDPOINT");
    const char *id_end = at ? at : end;
    size_t n;

    // the oldest repositories have no owner
    if (at && slash && at < slash)
        return hub_wrong(address, err);
    if ((slash && !hub_plain(id, (size_t)(slash - id), "-_.")) ||
        !hub_plain(name, (size_t)(id_end - name), "-_.") ||
        (at && !hub_plain(at + 1, (size_t)(end - at - 1), "-_.%+")))
        return hub_wrong(address, err);
    *is_dir = *end == 0;
    site = site && *site ? site : "https://huggingface.co";
    for (n = strlen(site); n > 0 && site[n - 1] == '/';)
        n--;
    if (strncmp(site, "https://", 8) != 0 && strncmp(site, "http://", 7) != 0)
        return ckpt_fail(err, CKPT_EUSAGE, "HF_ENDPOINT is '%.200s', which is not a URL", site);
    s->root = ckpt_arena_string(s->arena, address, (size_t)(end - address));
    s->base = ckpt_arena_string(s->arena, site, n);
    s->more = ckpt_arena_string(s->arena, id, (size_t)(id_end - id));
    s->revision = at ? ckpt_arena_string(s->arena, at + 1, (size_t)(end - at - 1)) : "main";
    return s->root && s->base && s->more && s->revision ? hub_key(s, err) : ckpt_fail_memory(err);
}

/* ---- the listing ---- */

/* Fetch one page of JSON. */
static int hub_ask(ckpt_value **out, ckpt_arena *arena, const ckpt_site *s, const char *url,
                   char next[CKPT_FETCH_URL], ckpt_err *err)
{
    const ckpt_fetch_from from = {s->root, url, NULL, &s->key, s->until};
    ckpt_json_text text = {.name = s->root, .max = CKPT_SITE_PAGE};
    ckpt_bytes page = {0};
    int rc = url ? ckpt_fetch_all(&from, &page, CKPT_SITE_PAGE, next, err) : ckpt_fail_memory(err);

    text.at = (const char *)page.at;
    text.n = page.n;
    if (rc == CKPT_OK && page.n == 0)
        rc = ckpt_fail(err, CKPT_EFORMAT, "%s: the hub's answer is empty", s->root);
    if (rc == CKPT_OK)
        rc = ckpt_json_parse(out, arena, &text, err);
    ckpt_vec_free(&page);
    return rc;
}

/* Fetch the commit that a revision names now. */
static int hub_commit(ckpt_site *s, ckpt_err *err)
{
    const char *url =
        ckpt_arena_printf(s->arena, "%s/api/models/%s/revision/%s", s->base, s->more, s->revision);
    ckpt_value *answer = NULL;
    const ckpt_value *sha;
    int rc = hub_ask(&answer, s->arena, s, url, NULL, err);

    if (rc != CKPT_OK)
        return rc;
    sha = ckpt_value_get(answer, "sha");
    if (!sha || sha->kind != CKPT_V_STR || sha->as.text.n < 7 || sha->as.text.n > 64 ||
        strspn(sha->as.text.at, "0123456789abcdef") != sha->as.text.n)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: the hub's answer does not contain a commit",
                         s->root);
    s->revision = sha->as.text.at;
    return CKPT_OK;
}

/* Add one entry of a tree. */
static int hub_entry(ckpt_site *s, const ckpt_value *e, ckpt_err *err)
{
    const ckpt_value *path = ckpt_value_get(e, "path");
    int64_t size;

    if (ckpt_value_is(ckpt_value_get(e, "type"), "directory"))
        return ckpt_site_count(s, err);
    if (!path || path->kind != CKPT_V_STR || strlen(path->as.text.at) != path->as.text.n ||
        !ckpt_value_as_int(ckpt_value_get(e, "size"), &size) || size < 0)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: the hub lists a file without path or size",
                         s->root);
    return ckpt_site_add(s, path->as.text.at, (uint64_t)size, err);
}

/* Read one page of the listing; its values are freed with it. */
static int hub_page(ckpt_site *s, const char *url, char next[CKPT_FETCH_URL], ckpt_err *err)
{
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_value *page = NULL;
    int rc = arena ? hub_ask(&page, arena, s, url, next, err) : ckpt_fail_memory(err);

    if (rc == CKPT_OK && page->kind != CKPT_V_LIST)
        rc = ckpt_fail(err, CKPT_EFORMAT, "%s: the hub's listing is not a list", s->root);
    for (uint64_t i = 0; rc == CKPT_OK && i < page->as.seq.n; i++)
        rc = hub_entry(s, page->as.seq.at[i], err);
    ckpt_arena_free(arena);
    return rc;
}

static int hub_list(ckpt_site *s, ckpt_err *err)
{
    char next[CKPT_FETCH_URL] = "";
    const char *url;
    unsigned n = 0;
    int rc = hub_commit(s, err);

    if (rc != CKPT_OK)
        return rc;
    url = ckpt_arena_printf(s->arena, "%s/api/models/%s/tree/%s?recursive=1", s->base, s->more,
                            s->revision);
    do {
        rc = hub_page(s, url, next, err);
        if (rc == CKPT_OK && *next && !ckpt_fetch_same_origin(next, s->base))
            rc = ckpt_fail(err, CKPT_EUNSAFE, "%s: its listing continues on another host: %.100s",
                           s->root, next);
        if (rc == CKPT_OK && *next && ++n >= HUB_PAGES)
            rc = ckpt_fail(err, CKPT_ELIMIT, "%s: a listing of more than %d pages", s->root,
                           HUB_PAGES);
        url = ckpt_arena_string(s->arena, next, strlen(next));
    } while (rc == CKPT_OK && *next);
    return rc;
}

static int hub_url(const ckpt_site *s, const char *name, ckpt_bytes *out, ckpt_err *err)
{
    return ckpt_bytes_printf(out, "%s/%s/resolve/%s/", s->base, s->more, s->revision) &&
                   ckpt_url_quote(out, name)
               ? CKPT_OK
               : ckpt_fail_memory(err);
}

const ckpt_site_kind ckpt_site_hf = {.scheme = "hf://",
                                     .cut = hub_cut,
                                     .list = hub_list,
                                     .url = hub_url,
                                     .tells = true,
                                     .at_once = true};
