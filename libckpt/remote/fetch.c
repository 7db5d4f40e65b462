/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fetch.c: fetches one part of a file: sends the request, checks the answer, follows redirects and
 * tries again.
 *
 * It makes sure that bytes of two versions of a file never mix: it compares size, ETag and
 * Last-Modified before it takes the first byte of an answer, and a retry continues only if they are
 * the same.
 */
#include "libckpt/remote/fetch.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "ckpt.h"

enum {
    FET_REDIRECTS = 10,
    FET_CONNECT = 15, /* seconds */
    /* after this many bytes of progress the count of failures starts again */
    FET_PROGRESS = 64 << 10,
    FET_PATIENCE = 60, /* the longest Retry-After that we wait for, in seconds */
    /* a wait checks after each slice of this many milliseconds whether the program wants to end */
    FET_SLICE = 50,
    FET_HEADERS = 8,
    FET_SAID = 200,   /* bytes of the text of a refusal that a message shows */
    FET_HEARD = 4096, /* bytes of that text that we read */
    /* an unwanted body up to this size is read, so that the connection can be used again */
    FET_SHORT = 16 << 10,
    FET_RATE = 1024 /* the least rate of a body, in bytes a second */
};

/* The next step after an answer. */
typedef enum fet_verdict { FET_DONE, FET_AGAIN, FET_FAIL, FET_MOVED } fet_verdict;

/* One part to fetch, and the answer that is coming in. */
typedef struct fet_job {
    const ckpt_fetch_from *from;
    const char *url; /* URL of the current hop */
    /* the chain of redirects has left the first host, so no key is sent any more */
    bool away;
    // members for a transfer of a range of the file:
    uint8_t *buf;
    uint64_t at, want, got;
    ckpt_fetch_seen *seen;
    // members for a transfer of the whole file:
    ckpt_bytes *all;
    uint64_t max;
    char *next;
    // members for the answer:
    bool has_length, has_range, encoded, multipart, judged, accepted;
    long status;
    uint64_t length, first, last, total, left;
    char etag[256], modified[64], said[FET_SAID];
    size_t n_said, n_heard;
    unsigned wait_s;
    ckpt_err why; /* the reason why the answer is unusable */
} fet_job;

/* ---- numbers and names in headers ---- */

/* Read at most 18 digits at *p and move *p past them. */
static bool fet_number(const char **p, uint64_t *out)
{
    size_t n = strspn(*p, "0123456789");

    *out = 0;
    if (n == 0 || n > 18)
        return false;
    for (; n > 0; n--)
        *out = *out * 10 + (uint64_t)(*(*p)++ - '0');
    return true;
}

/*
 * Parse "bytes 0-99/1000". An answer 416 has "bytes", "*" and the total, which leaves first > last.
 */
static bool fet_content_range(fet_job *j, const char *v)
{
    if (strncasecmp(v, "bytes", 5) != 0)
        return false;
    v += 5 + strspn(v + 5, " \t");
    if (*v == '*') {
        v++;
        j->first = 1;
        j->last = 0;
    } else if (!fet_number(&v, &j->first) || *v++ != '-' || !fet_number(&v, &j->last) ||
               j->last < j->first) {
        return false;
    }
    return *v++ == '/' && fet_number(&v, &j->total) && *v == 0 &&
           (j->first > j->last || j->last < j->total);
}

static size_t fet_origin(const char *url)
{
    const char *host = strstr(url, "://");

    return host ? (size_t)(host - url) + 3 + strcspn(host + 3, "/?#") : 0;
}

bool ckpt_fetch_same_origin(const char *a, const char *b)
{
    size_t n = fet_origin(a);

    return n > 0 && n == fet_origin(b) && strncasecmp(a, b, n) == 0;
}

/* Find <URL>; rel="next" among the links of an answer. */
static void fet_link(fet_job *j, const char *v)
{
    while (j->next && (v = strchr(v, '<'))) {
        const char *end = strchr(v, '>'), *comma = end ? strchr(end, ',') : NULL;
        const char *rel = end ? strstr(end, "rel=\"next\"") : NULL;

        if (!end)
            return;
        if (rel && (!comma || rel < comma) && (size_t)(end - v) <= CKPT_FETCH_URL - 1) {
            memcpy(j->next, v + 1, (size_t)(end - v - 1));
            j->next[end - v - 1] = 0;
            return;
        }
        v = end;
    }
}

/* ---- an answer ---- */

/* Fail because the answer is unusable. */
#define FET_WRONG(j, code, ...) (ckpt_fail(&(j)->why, code, __VA_ARGS__), -1)

static int fet_changed(fet_job *j)
{
    return FET_WRONG(j, CKPT_EIO, "%s: changed while being read, on its server: start again",
                     j->from->name);
}

/* Check the answer against everything known of the file: an answer of another version fails. */
static int fet_same(fet_job *j, uint64_t total)
{
    ckpt_fetch_seen *s = j->seen;

    if (!s->known) {
        s->known = true;
        s->total = total;
        (void)snprintf(s->etag, sizeof s->etag, "%s", j->etag);
        (void)snprintf(s->modified, sizeof s->modified, "%s", j->modified);
        (void)snprintf(s->origin, sizeof s->origin, "%.*s", (int)fet_origin(j->url), j->url);
        return 0;
    }
    if (s->total != total || strcmp(s->etag, j->etag) != 0 ||
        (!*s->etag && strcmp(s->modified, j->modified) != 0))
        return fet_changed(j);
    return 0;
}

/* Check a 206: it must hold exactly the requested range, or as much of it as the file has. */
static int fet_partial(fet_job *j)
{
    uint64_t at = j->at + j->got, want = j->want - j->got, end;

    if (j->multipart || !j->has_range || j->first > j->last)
        return FET_WRONG(
            j, CKPT_EUNSUPPORTED,
            "%s: the server answers a range request without a valid Content-Range header",
            j->from->name);
    end = want < j->total && at < j->total - want ? at + want : j->total;
    if (j->first != at || j->last + 1 != end)
        return FET_WRONG(j, CKPT_EIO,
                         "%s: requested bytes %" PRIu64 " to %" PRIu64
                         ", but the server sends %" PRIu64 " to %" PRIu64 " of %" PRIu64,
                         j->from->name, at, at + want - 1, j->first, j->last, j->total);
    j->left = end - at;
    if (j->has_length && j->length != j->left)
        return FET_WRONG(j, CKPT_EIO,
                         "%s: the server announces %" PRIu64 " bytes for a range of %" PRIu64,
                         j->from->name, j->length, j->left);
    return fet_same(j, j->total);
}

/* Check a 200 to a request for a range: it is fine if the range is the whole file. */
static int fet_whole(fet_job *j)
{
    bool small = j->at + j->got == 0 && j->has_length && j->length <= j->want;

    if (!small)
        return FET_WRONG(j, CKPT_EUNSUPPORTED,
                         "%s: the server sends whole files only, not ranges of bytes: it cannot be "
                         "read in parts; download it first",
                         j->from->name);
    j->left = j->length;
    return fet_same(j, j->length);
}

/*
 * Judge an answer by its headers: may the caller take its body?
 *
 * The body of a refusal is read for its text; the body of a redirect is read only if it is short.
 */
static int fet_judge(fet_job *j, long status)
{
    j->status = status;
    j->judged = true;
    if (status >= 300 && status < 400)
        return j->has_length && j->length <= FET_SHORT ? 0 : -1;
    if (status != 200 && status != 206)
        return 0;
    if (j->encoded)
        return FET_WRONG(
            j, CKPT_EUNSUPPORTED,
            "%s: the server sends it encoded (Content-Encoding), which ckpt did not request",
            j->from->name);
    j->accepted = true;
    if (j->all) {
        if (status != 200)
            return FET_WRONG(j, CKPT_EIO,
                             "%s: the server sends a part, although the whole was requested",
                             j->from->name);
        if (j->has_length && j->length > j->max)
            return FET_WRONG(j, CKPT_ELIMIT,
                             "%s: a listing of %" PRIu64 " bytes, at most %" PRIu64 " are accepted",
                             j->from->name, j->length, j->max);
        return 0;
    }
    return status == 206 ? fet_partial(j) : fet_whole(j);
}

static int fet_header(void *ctx, long status, const char *name, const char *value)
{
    fet_job *j = ctx;
    const char *v = value;

    if (!name)
        return fet_judge(j, status);
    if (strcasecmp(name, "Content-Length") == 0)
        j->has_length = fet_number(&v, &j->length) && *v == 0;
    else if (strcasecmp(name, "Content-Range") == 0)
        j->has_range = fet_content_range(j, value);
    else if (strcasecmp(name, "Content-Encoding") == 0)
        j->encoded = strcasecmp(value, "identity") != 0;
    else if (strcasecmp(name, "Content-Type") == 0)
        j->multipart = strncasecmp(value, "multipart/byteranges", 20) == 0;
    else if (strcasecmp(name, "ETag") == 0)
        (void)snprintf(j->etag, sizeof j->etag, "%s", value);
    else if (strcasecmp(name, "Last-Modified") == 0)
        (void)snprintf(j->modified, sizeof j->modified, "%s", value);
    else if (strcasecmp(name, "Link") == 0)
        fet_link(j, value);
    else if (strcasecmp(name, "Retry-After") == 0) {
        uint64_t s;

        // a date is ignored, because the clocks of server and client differ
        if (fet_number(&v, &s) && *v == 0)
            j->wait_s = s < 1000000 ? (unsigned)s : 1000000;
    }
    return 0;
}

/* Append the text of a refusal, with line breaks turned into blanks. */
static void fet_hear(fet_job *j, const char *p, size_t n)
{
    for (size_t i = 0; i < n && j->n_said < sizeof j->said - 1; i++) {
        bool blank = p[i] == ' ' || p[i] == '\n' || p[i] == '\r' || p[i] == '\t';

        if (!blank || (j->n_said > 0 && j->said[j->n_said - 1] != ' '))
            j->said[j->n_said++] = blank ? ' ' : p[i];
    }
    j->said[j->n_said] = 0;
}

static int fet_body(void *ctx, const void *bytes, size_t n)
{
    fet_job *j = ctx;

    if (!j->accepted) {
        fet_hear(j, bytes, n);
        j->n_heard += n;
        // a longer text is not read to its end, even though that gives the connection up
        if (j->has_length && j->length <= FET_SHORT)
            return 0;
        return j->n_said >= sizeof j->said - 1 || j->n_heard >= FET_HEARD ? -1 : 0;
    }
    if (j->all) {
        if (n > j->max - j->all->n)
            return FET_WRONG(j, CKPT_ELIMIT, "%s: a listing of more than %" PRIu64 " bytes",
                             j->from->name, j->max);
        return ckpt_bytes_add(j->all, bytes, n) ? 0 : (ckpt_fail_memory(&j->why), -1);
    }
    if (n > j->left)
        return FET_WRONG(j, CKPT_EIO, "%s: the server sends more bytes than it said",
                         j->from->name);
    memcpy(j->buf + j->got, bytes, n);
    j->got += n;
    j->left -= n;
    return 0;
}

static bool fet_expired(const fet_job *j)
{
    return j->from->until && ckpt_fetch_now() >= j->from->until;
}

static bool fet_stop(void *ctx)
{
    return ckpt_fetch_stopped() || fet_expired(ctx);
}

/* ---- a request ---- */

/*
 * Set the headers of one hop.  The key goes only to its own host, and If-Match only to the host
 * that gave the ETag.
 */
static size_t fet_headers(const fet_job *j, const char *header[FET_HEADERS], char range[96],
                          char match[300])
{
    const ckpt_fetch_key *key = j->from->key;
    const ckpt_fetch_seen *s = j->seen;
    size_t n = 0;

    header[n++] = "Accept-Encoding: identity";
    if (!j->all) {
        (void)snprintf(range, 96, "Range: bytes=%" PRIu64 "-%" PRIu64, j->at + j->got,
                       j->at + j->want - 1);
        header[n++] = range;
        // a weak ETag never matches in If-Match, so fet_same compares it when the answer comes
        if (s->known && s->etag[0] == '"' && ckpt_fetch_same_origin(s->origin, j->url)) {
            (void)snprintf(match, 300, "If-Match: %s", s->etag);
            header[n++] = match;
        }
    }
    for (size_t i = 0; key && i < 2; i++) {
        if (key->header[i] && !j->away)
            header[n++] = key->header[i];
    }
    return n;
}

static void fet_ask(fet_job *j, ckpt_wire *wire, ckpt_wire_outcome *out)
{
    const ckpt_fetch_key *key = j->from->key;
    const char *header[FET_HEADERS];
    char range[96], match[300];
    bool ours = !j->away;
    ckpt_wire_request r = {
        .url = j->url,
        .header = header,
        .agent = "ckpt/" CKPT_VERSION,
        .sign = key && ours ? key->sign : NULL,
        .user = key && ours ? key->user : NULL,
        .connect_s = ckpt_fetch_stall() < FET_CONNECT ? ckpt_fetch_stall() : FET_CONNECT,
        .stall_s = ckpt_fetch_stall(),
        .least_rate = FET_RATE,
        .got_header = fet_header,
        .got_body = fet_body,
        .stop = fet_stop,
        .ctx = j,
    };

    r.n_header = fet_headers(j, header, range, match);
    j->has_length = j->has_range = j->encoded = j->multipart = false;
    j->judged = j->accepted = false;
    j->etag[0] = j->modified[0] = j->said[0] = 0;
    j->n_said = j->n_heard = 0;
    j->wait_s = 0;
    j->why = (ckpt_err){0};
    if (j->next)
        j->next[0] = 0;
    if (j->all)
        j->all->n = 0;
    ckpt_wire_get(wire, &r, out);
}

/* ---- judging an answer ---- */

static const char *fet_words(long status)
{
    switch (status) {
    case 400:
        return "Bad Request";
    case 401:
        return "Unauthorized";
    case 403:
        return "Forbidden";
    case 404:
        return "Not Found";
    case 408:
        return "Request Timeout";
    case 410:
        return "Gone";
    case 429:
        return "Too Many Requests";
    case 500:
        return "Internal Server Error";
    case 502:
        return "Bad Gateway";
    case 503:
        return "Service Unavailable";
    case 504:
        return "Gateway Timeout";
    default:
        return "";
    }
}

/* The text of a refusal, or "" for an HTML page. */
static const char *fet_said(const fet_job *j)
{
    return strncasecmp(j->said, "<!doctype html", 14) == 0 || strncasecmp(j->said, "<html", 5) == 0
               ? ""
               : j->said;
}

static fet_verdict fet_refused(fet_job *j, long status, ckpt_err *err)
{
    const ckpt_fetch_key *key = j->from->key;
    const char *said = fet_said(j);

    if (status == 404 || status == 410)
        (void)ckpt_fail(err, CKPT_EMISSING, "%s: not found (%ld %s)", j->from->name, status,
                        fet_words(status));
    else if (status == 401 || status == 403)
        (void)ckpt_fail(err, CKPT_EIO, "%s: the server refuses it (%ld %s): %s%s%.120s",
                        j->from->name, status, fet_words(status),
                        key && key->help ? key->help : "it requires credentials",
                        *said ? "; it says: " : "", said);
    else
        (void)ckpt_fail(err, CKPT_EIO, "%s: the server answers with status %ld %s%s%.120s",
                        j->from->name, status, fet_words(status), *said ? ": " : "", said);
    return FET_FAIL;
}

/* 416: the file has no bytes at this offset, which is correct for an empty file only. */
static fet_verdict fet_nothing(fet_job *j, ckpt_err *err)
{
    if (!j->all && j->has_range && j->total == 0 && j->at + j->got == 0 && fet_same(j, 0) == 0)
        return FET_DONE;
    if (!j->all && j->seen->known)
        (void)fet_changed(j);
    (void)ckpt_fail(err, CKPT_EIO, "%s", j->why.code ? j->why.text : j->from->name);
    return FET_FAIL;
}

static bool fet_passes(long status)
{
    return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 ||
           status == 504;
}

/* Note the failure in err, so that the error after the last try gives the reason. */
static fet_verdict fet_again(fet_job *j, const ckpt_wire_outcome *out, ckpt_err *err)
{
    if (out->end == CKPT_WIRE_DONE && out->status >= 400)
        (void)ckpt_fail(err, CKPT_EIO, "%s: the server answers with status %ld %s", j->from->name,
                        out->status, fet_words(out->status));
    else if (out->end == CKPT_WIRE_DONE)
        (void)ckpt_fail(err, CKPT_EIO, "%s: the answer ends %" PRIu64 " bytes too early",
                        j->from->name, j->left);
    else
        (void)ckpt_fail(err, CKPT_EIO, "%s: %s", j->from->name, out->text);
    return FET_AGAIN;
}

static int fet_spent(const fet_job *j, ckpt_err *err)
{
    return ckpt_fail(err, CKPT_ELIMIT,
                     "%s: gave up opening it after %" PRId64
                     " s of requests, 20 times CKPT_REMOTE_TIMEOUT, which is %u s now",
                     j->from->name, ckpt_fetch_budget() / 1000, ckpt_fetch_stall());
}

static fet_verdict fet_verdict_of(fet_job *j, const ckpt_wire_outcome *out, ckpt_err *err)
{
    // the headers of a refusal suffice, even if its body failed
    bool heard = j->judged && !j->accepted;

    if (ckpt_fetch_stopped()) {
        (void)ckpt_fail(err, CKPT_ECANCELED, "%s: interrupted", j->from->name);
        return FET_FAIL;
    }
    if (fet_expired(j)) {
        (void)fet_spent(j, err);
        return FET_FAIL;
    }
    if (j->why.code) {
        (void)ckpt_fail(err, j->why.code, "%s", j->why.text);
        return FET_FAIL;
    }
    if (out->end == CKPT_WIRE_CUT && !heard)
        return fet_again(j, out, err);
    if (out->end != CKPT_WIRE_DONE && !heard) {
        (void)ckpt_fail(err, CKPT_EIO, "%s: %s", j->from->name, out->text);
        return FET_FAIL;
    }
    if (fet_passes(out->status)) {
        const ckpt_wire_outcome done = {.end = CKPT_WIRE_DONE, .status = out->status};
        return fet_again(j, &done, err);
    }
    if (out->status >= 300 && out->status < 400 && out->next[0])
        return FET_MOVED;
    if (out->status == 412) {
        (void)fet_changed(j);
        (void)ckpt_fail(err, CKPT_EIO, "%s", j->why.text);
        return FET_FAIL;
    }
    if (out->status == 416)
        return fet_nothing(j, err);
    if (!j->accepted)
        return fet_refused(j, out->status, err);
    return j->all || j->left == 0 ? FET_DONE : fet_again(j, out, err);
}

/* ---- redirects, and tries ---- */

/* Follow one URL to the end of its redirects; `hop` receives the last URL. */
static fet_verdict fet_follow(fet_job *j, ckpt_wire *wire, char hop[CKPT_FETCH_URL], ckpt_err *err)
{
    ckpt_wire_outcome out;
    fet_verdict v;

    j->away = false;
    for (unsigned n = 0;; n++) {
        j->url = hop;
        j->away = j->away || !ckpt_fetch_same_origin(j->from->url, hop);
        fet_ask(j, wire, &out);
        v = fet_verdict_of(j, &out, err);
        if (v != FET_MOVED)
            return v;
        if (n >= FET_REDIRECTS) {
            (void)ckpt_fail(err, CKPT_EIO, "%s: more than %d redirects", j->from->name,
                            FET_REDIRECTS);
            return FET_FAIL;
        }
        if (strncasecmp(hop, "https:", 6) == 0 && strncasecmp(out.next, "https:", 6) != 0) {
            (void)ckpt_fail(err, CKPT_EUNSAFE, "%s: redirects from https to %.100s: refused",
                            j->from->name, out.next);
            return FET_FAIL;
        }
        (void)snprintf(hop, CKPT_FETCH_URL, "%s", out.next);
    }
}

/* One try.  It goes directly to the target of the last redirect as long as that works. */
static fet_verdict fet_once(fet_job *j, ckpt_wire *wire, bool *direct, ckpt_err *err)
{
    char hop[CKPT_FETCH_URL];
    ckpt_err lost = {0};
    fet_verdict v;

    if (*direct) {
        (void)snprintf(hop, sizeof hop, "%s", j->from->direct);
        v = fet_follow(j, wire, hop, &lost);
        if (v != FET_FAIL || lost.code == CKPT_ECANCELED || j->accepted) {
            if (lost.code)
                (void)ckpt_fail(err, lost.code, "%s", lost.text);
            return v;
        }
        // such targets are signed URLs that expire after an hour or so
        *direct = false;
    }
    (void)snprintf(hop, sizeof hop, "%s", j->from->url);
    v = fet_follow(j, wire, hop, err);
    // a chain that came back to the first host must not be kept: a later request to it would not
    // know that the chain had left the host
    bool plain =
        strcmp(hop, j->from->url) == 0 || (j->away && ckpt_fetch_same_origin(hop, j->from->url));
    if (v == FET_DONE && j->seen)
        (void)snprintf(j->seen->direct, CKPT_FETCH_URL, "%s", plain ? "" : hop);
    return v;
}

/* Sleep.  Errors: CKPT_ECANCELED; CKPT_ELIMIT: the budget is spent */
static int fet_wait(fet_job *j, unsigned ms, ckpt_err *err)
{
    const struct timespec slice = {.tv_nsec = FET_SLICE * 1000000L};

    for (unsigned at = 0; at < ms && !fet_stop(j); at += FET_SLICE)
        (void)nanosleep(&slice, NULL);
    if (ckpt_fetch_stopped())
        return ckpt_fail(err, CKPT_ECANCELED, "%s: interrupted", j->from->name);
    return fet_expired(j) ? fet_spent(j, err) : CKPT_OK;
}

static int fet_run(fet_job *j, ckpt_err *err)
{
    ckpt_wire *wire = ckpt_wire_take();
    bool direct = j->from->direct && j->from->direct[0];
    unsigned tries = 0;
    int rc = CKPT_OK;

    if (!wire)
        return ckpt_fail_memory(err);
    for (bool more = true; more;) {
        ckpt_err why = {0};
        uint64_t before = j->got;
        fet_verdict v = fet_once(j, wire, &direct, &why);
        unsigned ms = j->wait_s > 0 ? j->wait_s * 1000 : 250u << (tries < 5 ? tries : 5);

        tries = j->got - before >= FET_PROGRESS ? 0 : tries;
        more = v == FET_AGAIN && tries < ckpt_fetch_retries() && j->wait_s <= FET_PATIENCE;
        if (v == FET_FAIL)
            rc = ckpt_fail(err, why.code, "%s", why.text);
        else if (v == FET_AGAIN && j->wait_s > FET_PATIENCE)
            rc = ckpt_fail(err, CKPT_EIO, "%s; it asks to wait for %u s before the next request",
                           why.text, j->wait_s);
        else if (v == FET_AGAIN && !more)
            rc = ckpt_fail(err, CKPT_EIO, "%s; %u tries", why.text, tries + 1);
        if (more)
            rc = fet_wait(j, ms, err);
        more = more && rc == CKPT_OK;
        tries++;
    }
    ckpt_wire_give(wire);
    return rc;
}

int ckpt_fetch_range(const ckpt_fetch_from *from, ckpt_fetch_part *part, ckpt_fetch_seen *seen,
                     ckpt_err *err)
{
    assert(from && part->buf && part->n > 0 && part->n <= INT64_MAX && part->at <= INT64_MAX &&
           seen);
    fet_job j = {.from = from, .buf = part->buf, .at = part->at, .want = part->n, .seen = seen};
    int rc = fet_run(&j, err);

    part->got = j.got;
    return rc;
}

int ckpt_fetch_all(const ckpt_fetch_from *from, ckpt_bytes *out, uint64_t max,
                   char next[CKPT_FETCH_URL], ckpt_err *err)
{
    assert(from && out && out->n == 0);
    fet_job j = {.from = from, .all = out, .max = max, .next = next};

    return fet_run(&j, err);
}
