/* SPDX-License-Identifier: Apache-2.0 */
/*
 * curl.c: implements the transport library libckpt-remote.so: GET requests by libcurl, with one
 * connection for each ckpt_wire.
 *
 * All features of libcurl that could send data to another host than the one in the URL are off:
 * redirects, ~/.netrc, cookies, protocols other than HTTP.  libcurl checks certificates.
 */
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "libckpt/remote/wire.h"

struct ckpt_wire {
    CURL *easy;
    const ckpt_wire_request *request; /* the request of the call in progress */
    bool headers_done, ended;
    const char *slow; /* the reason why curl_pace() gave the request up, or NULL */
    /* when the current window began: milliseconds, and bytes of the body so far */
    int64_t since, n_since;
    char location[4096];
    char error[CURL_ERROR_SIZE];
};

/*
 * Set one option of libcurl unless an earlier one failed.  It is a macro because each option takes
 * a value of its own type.
 */
#define SET(option, value) (rc = rc == CURLE_OK ? curl_easy_setopt(w->easy, (option), (value)) : rc)

static int64_t curl_now(void)
{
    struct timespec t = {0};

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static long curl_status(ckpt_wire *w)
{
    long status = 0;

    (void)curl_easy_getinfo(w->easy, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

/*
 * Report the end of the headers to the caller, once: before the body, or at the end of an answer
 * that has no body.
 */
static bool curl_headers_end(ckpt_wire *w)
{
    if (w->headers_done)
        return true;
    w->headers_done = true;
    w->since = curl_now();
    w->n_since = 0;
    w->ended = w->ended || w->request->got_header(w->request->ctx, curl_status(w), NULL, NULL) != 0;
    return !w->ended;
}

/* One line of the headers: "Name: value\r\n", the status line, or an empty one. */
static size_t curl_header(char *line, size_t one, size_t n, void *ctx)
{
    ckpt_wire *w = ctx;
    char text[4096], *colon, *value, *end;
    long status = curl_status(w);

    (void)one;
    // the headers of an interim answer (100 Continue) and those after the body (trailers) are
    // ignored
    if (n >= sizeof text || w->headers_done || status < 200)
        return n;
    memcpy(text, line, n);
    text[n] = 0;
    // the caller judges the headers here, before the request waits for the first byte of the body
    if (strcmp(text, "\r\n") == 0 || strcmp(text, "\n") == 0)
        return curl_headers_end(w) ? n : 0;
    colon = strchr(text, ':');
    if (!colon || strlen(text) != n)
        return n;
    *colon = 0;
    value = colon + 1 + strspn(colon + 1, " \t");
    for (end = value + strlen(value); end > value && strchr(" \t\r\n", end[-1]);)
        *--end = 0;
    if (strcasecmp(text, "Location") == 0 && !w->location[0] && status / 100 == 3)
        memcpy(w->location, value, strlen(value) + 1);
    if (w->request->got_header(w->request->ctx, status, text, value) != 0) {
        w->ended = true;
        return 0;
    }
    return n;
}

static size_t curl_body(char *bytes, size_t one, size_t n, void *ctx)
{
    ckpt_wire *w = ctx;

    (void)one;
    if (!curl_headers_end(w))
        return 0;
    if (w->request->got_body(w->request->ctx, bytes, n) != 0) {
        w->ended = true;
        return 0;
    }
    return n;
}

/*
 * Give up a request that is too slow.
 *
 * libcurl's own limit only notices silence, so a server that sends a byte now and then would keep a
 * request alive for hours.  Therefore the headers must end in time, and each window of a body must
 * bring its minimum of bytes.
 */
static void curl_pace(ckpt_wire *w, int64_t n_body)
{
    const ckpt_wire_request *r = w->request;
    int64_t window = (int64_t)r->stall_s * 1000, now = curl_now();

    if (!w->headers_done) {
        if (now - w->since > window + (int64_t)r->connect_s * 1000)
            w->slow = "the headers of the answer do not end";
    } else if (now - w->since >= window) {
        if (n_body - w->n_since < (int64_t)r->stall_s * r->least_rate)
            w->slow = "the server sends too slowly";
        w->since = now;
        w->n_since = n_body;
    }
}

static int curl_stop(void *ctx, curl_off_t all, curl_off_t n_body, curl_off_t c, curl_off_t d)
{
    ckpt_wire *w = ctx;

    (void)all, (void)c, (void)d;
    curl_pace(w, n_body);
    w->ended = w->ended || (w->request->stop && w->request->stop(w->request->ctx));
    return w->ended || w->slow;
}

/* Set the options that are the same for each request. */
static CURLcode curl_rules(ckpt_wire *w)
{
    CURLcode rc = CURLE_OK;

#if LIBCURL_VERSION_NUM >= 0x075500
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
#else
    SET(CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    SET(CURLOPT_SSL_VERIFYPEER, 1L);
    SET(CURLOPT_SSL_VERIFYHOST, 2L);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    SET(CURLOPT_TCP_KEEPALIVE, 1L);
    SET(CURLOPT_BUFFERSIZE, 256L << 10);
    SET(CURLOPT_HTTPGET, 1L);
    SET(CURLOPT_ERRORBUFFER, w->error);
    SET(CURLOPT_HEADERFUNCTION, curl_header);
    SET(CURLOPT_HEADERDATA, w);
    SET(CURLOPT_WRITEFUNCTION, curl_body);
    SET(CURLOPT_WRITEDATA, w);
    SET(CURLOPT_NOPROGRESS, 0L);
    SET(CURLOPT_XFERINFOFUNCTION, curl_stop);
    SET(CURLOPT_XFERINFODATA, w);
    return rc;
}

static CURLcode curl_ask(ckpt_wire *w, struct curl_slist *headers)
{
    const ckpt_wire_request *r = w->request;
    const char *trusted = getenv("CURL_CA_BUNDLE");
    CURLcode rc = curl_rules(w);

    // the same variables that the curl command reads
    if (!trusted || !*trusted)
        trusted = getenv("SSL_CERT_FILE");
    if (trusted && *trusted)
        SET(CURLOPT_CAINFO, trusted);

    SET(CURLOPT_URL, r->url);
    SET(CURLOPT_USERAGENT, r->agent);
    SET(CURLOPT_HTTPHEADER, headers);
    SET(CURLOPT_CONNECTTIMEOUT, (long)r->connect_s);
    SET(CURLOPT_LOW_SPEED_LIMIT, 1L);
    SET(CURLOPT_LOW_SPEED_TIME, (long)r->stall_s);
    if (r->sign) {
#if LIBCURL_VERSION_NUM >= 0x074b00
        SET(CURLOPT_AWS_SIGV4, r->sign);
        SET(CURLOPT_USERPWD, r->user);
#else
        return CURLE_UNSUPPORTED_PROTOCOL;
#endif
    }
    return rc == CURLE_OK ? curl_easy_perform(w->easy) : rc;
}

/*
 * Classify a code of libcurl.  The list of codes is long and grows, so an unlisted code counts as a
 * failure that a retry may cure.
 */
static ckpt_wire_end curl_end(CURLcode rc)
{
    if (rc == CURLE_OK)
        return CKPT_WIRE_DONE;
    if (rc == CURLE_PEER_FAILED_VERIFICATION || rc == CURLE_SSL_CACERT_BADFILE ||
        rc == CURLE_SSL_ISSUER_ERROR || rc == CURLE_SSL_CERTPROBLEM)
        return CKPT_WIRE_TRUST;
    if (rc == CURLE_URL_MALFORMAT || rc == CURLE_UNSUPPORTED_PROTOCOL ||
        rc == CURLE_OUT_OF_MEMORY || rc == CURLE_BAD_FUNCTION_ARGUMENT ||
        rc == CURLE_UNKNOWN_OPTION || rc == CURLE_NOT_BUILT_IN)
        return CKPT_WIRE_WRONG;
    return CKPT_WIRE_CUT;
}

/*
 * Fill in the target of a redirect.  libcurl gives it only for answers that it has read to their
 * end, so the Location header is resolved here.
 */
static void curl_next(ckpt_wire *w, ckpt_wire_outcome *out)
{
    CURLU *u = w->location[0] ? curl_url() : NULL;
    char *next = NULL;

    if (u && curl_url_set(u, CURLUPART_URL, w->request->url, 0) == CURLUE_OK &&
        curl_url_set(u, CURLUPART_URL, w->location, CURLU_NON_SUPPORT_SCHEME) == CURLUE_OK &&
        curl_url_get(u, CURLUPART_URL, &next, 0) == CURLUE_OK && strlen(next) < sizeof out->next)
        memcpy(out->next, next, strlen(next) + 1);
    curl_free(next);
    curl_url_cleanup(u);
}

/*
 * Replace the handle, because one with a failed transfer may refuse the next transfer (libcurl
 * 7.88, after a host name that cannot be resolved).
 */
static void curl_renew(ckpt_wire *w)
{
    CURL *easy = curl_easy_init();

    if (!easy)
        return;
    curl_easy_cleanup(w->easy);
    w->easy = easy;
}

static void wire_get(ckpt_wire *w, const ckpt_wire_request *r, ckpt_wire_outcome *out)
{
    struct curl_slist *headers = NULL, *longer;
    CURLcode rc = CURLE_OK;

    *out = (ckpt_wire_outcome){.end = CKPT_WIRE_WRONG};
    w->request = r;
    w->headers_done = w->ended = false;
    w->slow = NULL;
    w->since = curl_now();
    w->error[0] = w->location[0] = 0;
    // this resets all options and keeps the connections and their caches
    curl_easy_reset(w->easy);
    for (size_t i = 0; rc == CURLE_OK && i < r->n_header; i++) {
        longer = curl_slist_append(headers, r->header[i]);
        rc = longer ? CURLE_OK : CURLE_OUT_OF_MEMORY;
        headers = longer ? longer : headers;
    }
    if (rc == CURLE_OK)
        rc = curl_ask(w, headers);
    if (rc == CURLE_OK)
        (void)curl_headers_end(w);
    out->end = w->ended ? CKPT_WIRE_STOPPED : curl_end(rc);
    out->status = curl_status(w);
    (void)snprintf(out->text, sizeof out->text, "%s",
                   w->slow       ? w->slow
                   : w->error[0] ? w->error
                                 : curl_easy_strerror(rc));
    curl_next(w, out);
    // the handle must not keep pointers to objects that end with this call
    (void)curl_easy_setopt(w->easy, CURLOPT_HTTPHEADER, NULL);
    curl_slist_free_all(headers);
    w->request = NULL;
    if (rc != CURLE_OK && !w->ended)
        curl_renew(w);
}

static int wire_begin(void)
{
    return curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK ? 0 : -1;
}

static ckpt_wire *wire_open(void)
{
    ckpt_wire *w = calloc(1, sizeof *w);

    if (w)
        w->easy = curl_easy_init();
    if (w && !w->easy) {
        free(w);
        w = NULL;
    }
    return w;
}

static void wire_close(ckpt_wire *w)
{
    curl_easy_cleanup(w->easy);
    free(w);
}

extern const ckpt_wire_plugin ckpt_wire_table;
__attribute__((visibility("default"))) const ckpt_wire_plugin ckpt_wire_table = {
    .version = CKPT_WIRE_VERSION,
    .begin = wire_begin,
    .open = wire_open,
    .get = wire_get,
    .close = wire_close,
};
