/* SPDX-License-Identifier: Apache-2.0 */
/*
 * help.h: a transport that answers from a list instead of a network, and sites made from addresses.
 *
 * It replaces ckpt_wire_load, so the library's own transport is not linked.
 */
#ifndef TESTS_UNIT_LIBCKPT_REMOTE_HELP_H
#define TESTS_UNIT_LIBCKPT_REMOTE_HELP_H

#include "libckpt/remote/site.h"
#include "tests/unit/unit.h"

enum { WIRE_HEADERS = 5, WIRE_LOG = 16 };

/* One answer.  Zeros: the connection is cut before any byte arrives. */
typedef struct wire_answer {
    long status;
    const char *body;
    const char *name[WIRE_HEADERS], *value[WIRE_HEADERS];
    const char *next; /* target of a redirect */
    bool cut;         /* the connection ends after this body */
} wire_answer;

/* A request as the transport received it. */
typedef struct wire_asked {
    char url[CKPT_FETCH_URL], headers[1024]; /* each header ends with a line break */
    char sign[64], user[128];
} wire_asked;

static struct {
    const wire_answer *answer;
    size_t n_answers, n_asked;
    wire_asked asked[WIRE_LOG];
} wire_it;

static inline int wire_begin(void)
{
    return 0;
}

static inline ckpt_wire *wire_open(void)
{
    return (ckpt_wire *)(void *)&wire_it;
}

static inline void wire_close(ckpt_wire *wire)
{
    assert_ptr_equal(wire, &wire_it);
}

static inline void wire_log(const ckpt_wire_request *r)
{
    assert_true(wire_it.n_asked < WIRE_LOG);
    wire_asked *to = &wire_it.asked[wire_it.n_asked++];

    memset(to, 0, sizeof *to);
    (void)snprintf(to->url, sizeof to->url, "%s", r->url);
    (void)snprintf(to->sign, sizeof to->sign, "%s", r->sign ? r->sign : "");
    (void)snprintf(to->user, sizeof to->user, "%s", r->user ? r->user : "");
    for (size_t i = 0; i < r->n_header; i++) {
        size_t n = strlen(to->headers);
        (void)snprintf(to->headers + n, sizeof to->headers - n, "%s\n", r->header[i]);
    }
}

/* Send headers and body to the callbacks, as the transport does; false: one ended the request. */
static inline bool wire_send(const ckpt_wire_request *r, const wire_answer *a)
{
    bool more = true;

    for (size_t i = 0; more && i < WIRE_HEADERS && a->name[i]; i++)
        more = r->got_header(r->ctx, a->status, a->name[i], a->value[i]) == 0;
    more = more && r->got_header(r->ctx, a->status, NULL, NULL) == 0;
    for (const char *p = a->body; more && p && *p; p++)
        more = r->got_body(r->ctx, p, 1) == 0;
    return more;
}

static inline void wire_get(ckpt_wire *wire, const ckpt_wire_request *r, ckpt_wire_outcome *out)
{
    assert_ptr_equal(wire, &wire_it);
    wire_log(r);
    if (wire_it.n_asked > wire_it.n_answers)
        fail_msg("request %zu was not expected: %s", wire_it.n_asked, r->url);
    const wire_answer *a = &wire_it.answer[wire_it.n_asked - 1];

    *out = (ckpt_wire_outcome){.end = CKPT_WIRE_CUT, .status = a->status};
    (void)snprintf(out->text, sizeof out->text, "the connection was cut");
    if (a->status == 0)
        return;
    bool whole = wire_send(r, a);
    out->end = !whole ? CKPT_WIRE_STOPPED : a->cut ? CKPT_WIRE_CUT : CKPT_WIRE_DONE;
    (void)snprintf(out->next, sizeof out->next, "%s", a->next ? a->next : "");
}

/* Replaces the library's loader. */
int ckpt_wire_load(const ckpt_wire_plugin **out, ckpt_err *err)
{
    static const ckpt_wire_plugin table = {.version = CKPT_WIRE_VERSION,
                                           .begin = wire_begin,
                                           .open = wire_open,
                                           .get = wire_get,
                                           .close = wire_close};

    (void)err;
    *out = &table;
    return CKPT_OK;
}

/* Answer the next requests from this list, and forget those before. */
static inline void wire_expect(const wire_answer *answer, size_t n)
{
    wire_it.answer = answer;
    wire_it.n_answers = n;
    wire_it.n_asked = 0;
}

/* ---- sites ---- */

/* Cut an address into a site, which site_end frees. */
static inline int site_begin(ckpt_site *s, const ckpt_site_kind *kind, const char *address,
                             bool *is_dir, ckpt_err *err)
{
    *s = (ckpt_site){.kind = kind, .arena = ckpt_arena_new(0), .left = 3600000};
    *err = (ckpt_err){0};
    assert_non_null(s->arena);
    return kind->cut(s, address, is_dir, err);
}

static inline void site_end(ckpt_site *s)
{
    for (size_t i = 0; i < s->opened.n; i++)
        ckpt_remote_file_free(s->opened.at[i]);
    ckpt_vec_free(&s->opened);
    ckpt_vec_free(&s->files);
    ckpt_index_free(&s->by_name);
    ckpt_arena_free(s->arena);
}

/* Forget the settings of the caller's environment. */
static inline void site_clear_environment(void)
{
    static const char *const names[] = {
        "AWS_REGION",        "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL",   "HF_ENDPOINT",       "AWS_ENDPOINT_URL_S3",
        "HF_TOKEN",          "CKPT_HTTP_HEADER"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        (void)unsetenv(names[i]);
}

#endif
