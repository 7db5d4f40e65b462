/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s3.c: implements s3://BUCKET/PREFIX: a folder or a file in S3 or a compatible object store.
 *
 * libcurl signs the requests if there is a key; otherwise they are anonymous.
 * Source   Amazon S3 API reference: ListObjectsV2, GetObject, virtual hosting of buckets;
 *          AWS_ENDPOINT_URL_S3 and the other variables as in the AWS SDKs' reference guide
 */
#include <stdlib.h>
#include <string.h>

#include "libckpt/map/map.h"
#include "libckpt/remote/site.h"
#include "libckpt/remote/xml.h"

/*
 * S3 refuses signed requests without the hash of their body.  libcurl adds it only from later
 * releases than 7.88 on, and the body of a GET is always empty: this is the SHA-256 of nothing.
 */
static const char aws_empty[] =
    "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

enum {
    AWS_PAGES = 2000, /* pages of a listing, of up to 1000 keys each */
    AWS_TOKEN = 2048  /* bytes of a continuation token */
};

/* ---- credentials ---- */

/* The value of an environment variable; NULL: it is unset or empty. */
static const char *aws_said(const char *name)
{
    const char *said = getenv(name);

    return said && *said ? said : NULL;
}

static const char *aws_region(void)
{
    const char *said = aws_said("AWS_REGION");

    said = said ? said : aws_said("AWS_DEFAULT_REGION");
    return said ? said : "us-east-1";
}

static int aws_key(ckpt_site *s, ckpt_err *err)
{
    const char *id = aws_said("AWS_ACCESS_KEY_ID"), *secret = aws_said("AWS_SECRET_ACCESS_KEY");
    const char *token = aws_said("AWS_SESSION_TOKEN");

    s->key.help = id && secret
                      ? "the key in AWS_ACCESS_KEY_ID (and AWS_SESSION_TOKEN) does not allow it, "
                        "or AWS_REGION is another one's"
                      : "asked without a key: set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, "
                        "AWS_REGION (and AWS_SESSION_TOKEN)";
    if (!id != !secret)
        return ckpt_fail(
            err, CKPT_EUSAGE,
            "only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set; set both or neither");
    if (!id)
        return CKPT_OK;
    if (strpbrk(id, ":\r\n") || strpbrk(secret, "\r\n") || (token && strpbrk(token, "\r\n")))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "the key of AWS in the environment holds odd characters");
    s->key.sign = ckpt_arena_printf(s->arena, "aws:amz:%s:s3", aws_region());
    s->key.user = ckpt_arena_printf(s->arena, "%s:%s", id, secret);
    s->key.header[1] = aws_empty;
    if (token)
        s->key.header[0] = ckpt_arena_printf(s->arena, "x-amz-security-token: %s", token);
    return s->key.sign && s->key.user && (!token || s->key.header[0]) ? CKPT_OK
                                                                      : ckpt_fail_memory(err);
}

/* ---- the address ---- */

/* True if the text holds only lower-case letters, digits and the characters in `more`. */
static bool aws_plain(const char *s, size_t n, const char *more)
{
    for (size_t i = 0; i < n; i++) {
        if (!(s[i] >= 'a' && s[i] <= 'z') && !(s[i] >= '0' && s[i] <= '9') &&
            (!s[i] || !strchr(more, s[i])))
            return false;
    }
    return n > 0 && n <= 63;
}

/* Set the URL of the bucket: below the endpoint in the environment, or a host name of Amazon's. */
static int aws_base(ckpt_site *s, const char *bucket, ckpt_err *err)
{
    const char *end = aws_said("AWS_ENDPOINT_URL_S3"), *region = aws_region();

    end = end ? end : aws_said("AWS_ENDPOINT_URL");
    if (!aws_plain(region, strlen(region), "-"))
        return ckpt_fail(err, CKPT_EUSAGE, "AWS_REGION is '%.40s', which is not a region", region);
    if (end && strncmp(end, "https://", 8) != 0 && strncmp(end, "http://", 7) != 0)
        return ckpt_fail(err, CKPT_EUSAGE, "AWS_ENDPOINT_URL is '%.200s', which is not a URL", end);
    if (end) {
        size_t n = strlen(end);

        while (n > 0 && end[n - 1] == '/')
            n--;
        s->base = ckpt_arena_printf(s->arena, "%.*s/%s", (int)n, end, bucket);
    } else if (strchr(bucket, '.')) {
        // Amazon's wildcard certificate does not cover bucket names with dots, so the bucket goes
        // into the path
        s->base = ckpt_arena_printf(s->arena, "https://s3.%s.amazonaws.com/%s", region, bucket);
    } else {
        s->base = ckpt_arena_printf(s->arena, "https://%s.s3.%s.amazonaws.com", bucket, region);
    }
    return s->base ? CKPT_OK : ckpt_fail_memory(err);
}

static int aws_cut(ckpt_site *s, const char *address, bool *is_dir, ckpt_err *err)
{
    const char *bucket = address + strlen("s3://"), *key = bucket + strcspn(bucket, "/"), *name;
    size_t n = strlen(address), n_bucket = (size_t)(key - bucket);
    int rc;

    if (!aws_plain(bucket, n_bucket, "-.") || strstr(key, "//"))
        return ckpt_fail(err, CKPT_EUSAGE, "%s: expected s3://BUCKET/PREFIX", address);
    *is_dir = !*key || !ckpt_site_is_file(key);
    if (!*is_dir) {
        while (address[n - 1] != '/')
            n--;
    }
    while (n > (size_t)(key - address) && address[n - 1] == '/')
        n--;
    name = ckpt_arena_string(s->arena, bucket, n_bucket);
    s->root = ckpt_arena_string(s->arena, address, n);
    if (!name || !s->root)
        return ckpt_fail_memory(err);
    // the prefix of the site's keys: nothing, or a folder with its slash
    s->more = s->root[key - address]
                  ? ckpt_arena_printf(s->arena, "%s/", s->root + (key - address) + 1)
                  : "";
    if (!s->more)
        return ckpt_fail_memory(err);
    rc = aws_base(s, name, err);
    return rc == CKPT_OK ? aws_key(s, err) : rc;
}

static int aws_url(const ckpt_site *s, const char *name, ckpt_bytes *out, ckpt_err *err)
{
    return ckpt_bytes_printf(out, "%s/", s->base) && ckpt_url_quote(out, s->more) &&
                   ckpt_url_quote(out, name)
               ? CKPT_OK
               : ckpt_fail_memory(err);
}

/* ---- the listing ---- */

/* A page that is being parsed. */
typedef struct aws_page {
    ckpt_site *site;
    char key[CKPT_SITE_NAME + 1024 + 1], size[32], token[AWS_TOKEN];
    unsigned n_keys, n_sizes; /* numbers of Key and Size elements in the current entry */
    /* the root is ListBucketResult; IsTruncated is true; IsTruncated was present */
    bool root, more, told;
} aws_page;

static int aws_wrong(const aws_page *p, const char *what, ckpt_err *err)
{
    return ckpt_fail(err, CKPT_EFORMAT, "%s: its listing has %s", p->site->root, what);
}

/* Copy a text; false: it is too long. */
static bool aws_keep(char *to, size_t room, const char *text)
{
    size_t n = text ? strlen(text) : room;

    if (n >= room)
        return false;
    memcpy(to, text, n + 1);
    return true;
}

/*
 * Add one key with its size.  A key that ends in a slash stands for a folder, so it is not a file.
 */
static int aws_entry(aws_page *p, ckpt_err *err)
{
    size_t n = strlen(p->key), n_prefix = strlen(p->site->more), digits = strlen(p->size);
    uint64_t size = 0;

    if (p->n_keys != 1 || p->n_sizes != 1)
        return aws_wrong(p, "an entry that does not have exactly one key and one size", err);
    if (digits == 0 || digits > 18 || strspn(p->size, "0123456789") != digits)
        return aws_wrong(p, "an entry whose size is not a number", err);
    for (const char *d = p->size; *d; d++)
        size = size * 10 + (uint64_t)(*d - '0');
    if (strncmp(p->key, p->site->more, n_prefix) != 0)
        return aws_wrong(p, "a key outside of the requested prefix", err);
    return n == 0 || p->key[n - 1] == '/' ? ckpt_site_count(p->site, err)
                                          : ckpt_site_add(p->site, p->key + n_prefix, size, err);
}

static int aws_end(void *ctx, unsigned depth, const char *name, const char *text, ckpt_err *err)
{
    aws_page *p = ctx;
    int rc = CKPT_OK;

    if (depth == 3 && strcmp(name, "Key") == 0) {
        p->n_keys++;
        if (!aws_keep(p->key, sizeof p->key, text))
            return aws_wrong(p, "a key that is not text, or too long", err);
    } else if (depth == 3 && strcmp(name, "Size") == 0) {
        p->n_sizes++;
        if (!aws_keep(p->size, sizeof p->size, text))
            return aws_wrong(p, "an entry whose size is not a number", err);
    } else if (depth == 2) {
        if (strcmp(name, "Contents") == 0)
            rc = aws_entry(p, err);
        p->n_keys = p->n_sizes = 0;
        if (strcmp(name, "IsTruncated") == 0) {
            p->told = true;
            p->more = text && strcmp(text, "true") == 0;
            if (!p->more && (!text || strcmp(text, "false") != 0))
                rc = aws_wrong(p, "an IsTruncated that is neither true nor false", err);
        } else if (strcmp(name, "NextContinuationToken") == 0 &&
                   !aws_keep(p->token, sizeof p->token, text)) {
            rc = aws_wrong(p, "a continuation token that is not text, or too long", err);
        }
    } else if (depth == 1) {
        p->root = strcmp(name, "ListBucketResult") == 0;
    }
    return rc;
}

/* Quote a query parameter.  Slashes are quoted too, because the signature requires it. */
static bool aws_quote(ckpt_bytes *out, const char *s)
{
    size_t from = out->n;
    ckpt_bytes plain = {0};
    bool ok = ckpt_url_quote(&plain, s);

    for (size_t i = 0; ok && i < plain.n; i++)
        ok = plain.at[i] == '/' ? ckpt_bytes_add(out, "%2F", 3)
                                : ckpt_bytes_add(out, &plain.at[i], 1);
    ckpt_vec_free(&plain);
    return ok && out->n >= from;
}

/* The URL of a page.  Its parameters are sorted by name, because the signature requires it. */
static bool aws_page_url(const ckpt_site *s, const char *token, ckpt_bytes *out)
{
    bool ok = ckpt_bytes_printf(out, "%s/?", s->base);

    if (ok && *token)
        ok = ckpt_bytes_printf(out, "continuation-token=") && aws_quote(out, token) &&
             ckpt_bytes_printf(out, "&");
    return ok && ckpt_bytes_printf(out, "list-type=2&max-keys=1000&prefix=") &&
           aws_quote(out, s->more) && ckpt_bytes_add(out, "", 1);
}

/*
 * Fetch and parse one page.  p->token holds the token of this page and receives that of the next
 * one.
 */
static int aws_read(aws_page *p, ckpt_err *err)
{
    ckpt_bytes url = {0}, text = {0};
    char last[AWS_TOKEN];
    int rc = aws_page_url(p->site, p->token, &url) ? CKPT_OK : ckpt_fail_memory(err);
    const ckpt_fetch_from from = {p->site->root, (const char *)url.at, NULL, &p->site->key,
                                  p->site->until};

    memcpy(last, p->token, sizeof last);
    p->token[0] = 0;
    p->more = p->told = p->root = false;
    if (rc == CKPT_OK)
        rc = ckpt_fetch_all(&from, &text, CKPT_SITE_PAGE, NULL, err);
    if (rc == CKPT_OK)
        rc = ckpt_xml_read(p->site->root, (const char *)text.at, text.n, aws_end, p, err);
    if (rc == CKPT_OK && !p->root)
        rc = aws_wrong(p, "a root element other than ListBucketResult", err);
    // a page with a token but without IsTruncated counts as continued, so that no key is lost
    p->more = p->more || (!p->told && p->token[0]);
    if (rc == CKPT_OK && p->more && (!p->token[0] || strcmp(p->token, last) == 0))
        rc = aws_wrong(p, "more pages, but no valid continuation token", err);
    ckpt_vec_free(&text);
    ckpt_vec_free(&url);
    return rc;
}

static int aws_list(ckpt_site *s, ckpt_err *err)
{
    aws_page *p = ckpt_alloc(sizeof *p);
    int rc = p ? CKPT_OK : ckpt_fail_memory(err);
    unsigned n = 0;

    if (rc != CKPT_OK)
        return rc;
    p->site = s;
    do {
        if (++n > AWS_PAGES)
            rc = ckpt_fail(err, CKPT_ELIMIT, "%s: a listing of more than %d pages", s->root,
                           AWS_PAGES);
        else
            rc = aws_read(p, err);
    } while (rc == CKPT_OK && p->more);
    ckpt_free(p);
    return rc;
}

const ckpt_site_kind ckpt_site_s3 = {
    .scheme = "s3://", .cut = aws_cut, .list = aws_list, .url = aws_url, .tells = true};
