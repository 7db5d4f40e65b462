/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostfile.c: parses hostfiles, applies filters, and makes arguments for launchers.
 */
#include "libckpt/base/hostfile.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/vec.h"

// Far above any cluster; the limits bound the memory that a wrong file can reserve.
enum { HF_TEXT = 1 << 20, HF_HOSTS = 10000, HF_SLOTS = 65536, HF_TOTAL = 1 << 20 };

CKPT_VEC(host_hosts, ckpt_host);

/* ---- reading ---- */

typedef struct host_text {
    const char *at;
    size_t n;
} host_text;

static bool host_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Digits at s[0..n) as a number up to HF_TOTAL; *used: how many. */
static uint32_t host_number(const char *s, size_t n, size_t *used)
{
    uint32_t v = 0;

    for (*used = 0; *used < n && s[*used] >= '0' && s[*used] <= '9'; (*used)++)
        v = v > HF_TOTAL ? v : v * 10 + (uint32_t)(s[*used] - '0');
    return v;
}

/*
 * True for a name that is safe in a list of hosts and in JSON: visible ASCII without commas, quotes
 * and backslashes, and not an option.
 */
static bool host_good_name(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i] <= ' ' || s[i] > '~' || strchr(",\"\\", s[i]) != NULL)
            return false;
    }
    return n > 0 && n < 256 && s[0] != '-';
}

/* Make the list of slots 0 to n-1. */
static const uint32_t *host_count(ckpt_arena *arena, uint32_t n)
{
    uint32_t *slot = ckpt_arena_array(arena, n, sizeof *slot);

    for (uint32_t i = 0; slot && i < n; i++)
        slot[i] = i;
    return slot;
}

/* Parse "name slots=4", without blanks around it; text after the digits is ignored. */
static bool host_line(ckpt_arena *arena, const char *s, size_t n, ckpt_host *out)
{
    static const char word[] = "slots=";
    size_t name = 0, at, used = 0;

    while (name < n && !host_blank(s[name]))
        name++;
    for (at = name; at < n && host_blank(s[at]); at++) {
    }
    if (at == name || n - at < sizeof word || memcmp(s + at, word, sizeof word - 1) != 0 ||
        !host_good_name(s, name))
        return false;
    at += sizeof word - 1;
    out->n_slots = host_number(s + at, n - at, &used);
    out->name = ckpt_arena_string(arena, s, name);
    return used > 0;
}

/* Parse one line of the file into the list; number: for messages. */
static int host_take(host_hosts *list, ckpt_arena *arena, const host_text *line, const char *where,
                     ckpt_err *err)
{
    ckpt_host host = {0}, *to;
    uint64_t total;

    if (!host_line(arena, line->at, (size_t)line->n, &host))
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: \"%.*s\" is not a host; expected: name slots=number", where,
                         line->n < 60 ? (int)line->n : 60, line->at);
    if (!host.name)
        return ckpt_fail_memory(err);
    total = host.n_slots;
    for (size_t i = 0; i < list->n; i++) {
        total += list->at[i].n_slots;
        if (strcmp(list->at[i].name, host.name) == 0)
            return ckpt_fail(err, CKPT_EFORMAT, "%s: host %.80s appears twice; keep one line",
                             where, host.name);
    }
    if (host.n_slots > HF_SLOTS || list->n == HF_HOSTS || total > HF_TOTAL)
        return ckpt_fail(err, CKPT_ELIMIT,
                         "%s: the limits are %d hosts of %d slots, and %d slots in all", where,
                         HF_HOSTS, HF_SLOTS, HF_TOTAL);
    host.slot = host_count(arena, host.n_slots);
    to = ckpt_vec_push(list);
    if (!to || !host.slot)
        return ckpt_fail_memory(err);
    *to = host;
    return CKPT_OK;
}

/* Parse every line except blank ones and comments. */
static int host_lines(host_hosts *list, ckpt_arena *arena, const host_text *text, const char *name,
                      ckpt_err *err)
{
    const char *s = text->at;
    size_t n = (size_t)text->n, number = 0;
    int rc = CKPT_OK;

    for (size_t at = 0, end; at < n && rc == CKPT_OK; at = end + 1) {
        char where[280];
        size_t from = at, to;

        for (end = at; end < n && s[end] != '\n' && s[end] != '\r'; end++) {
        }
        number += end == n || s[end] == '\n';
        for (to = end; from < to && host_blank(s[from]); from++) {
        }
        for (; to > from && host_blank(s[to - 1]); to--) {
        }
        if (from < to && s[from] != '#') {
            host_text line = {.at = s + from, .n = to - from};

            (void)snprintf(where, sizeof where, "%.240s: line %zu", name, number);
            rc = host_take(list, arena, &line, where, err);
        }
    }
    return rc;
}

int ckpt_hosts_parse(ckpt_hosts *out, ckpt_arena *arena, const char *text, size_t n,
                     const char *name, ckpt_err *err)
{
    host_text all = {.at = text, .n = n};
    host_hosts list = {0};
    int rc;

    *out = (ckpt_hosts){0};
    if (n > HF_TEXT)
        return ckpt_fail(err, CKPT_ELIMIT,
                         "%s: the hostfile has %zu bytes, more than the limit of %d", name, n,
                         HF_TEXT);
    rc = host_lines(&list, arena, &all, name, err);
    if (rc == CKPT_OK && list.n == 0)
        rc = ckpt_fail(err, CKPT_EFORMAT,
                       "%s: it names no host; expected lines of: name "
                       "slots=number",
                       name);
    if (rc == CKPT_OK) {
        out->n = list.n;
        out->at = ckpt_arena_copy(arena, list.at, list.n * sizeof *list.at);
        rc = out->at ? CKPT_OK : ckpt_fail_memory(err);
    }
    ckpt_vec_free(&list);
    return rc;
}

int ckpt_hosts_read(ckpt_hosts *out, ckpt_arena *arena, const char *path, ckpt_err *err)
{
    char *text = ckpt_alloc(HF_TEXT + 1);
    FILE *f;
    size_t n;
    int rc;

    *out = (ckpt_hosts){0};
    if (!text)
        return ckpt_fail_memory(err);
    f = fopen(path, "rb");
    if (!f) {
        ckpt_free(text);
        return ckpt_fail_sys(err, ckpt_open_code(errno), errno, "%s: cannot be opened", path);
    }
    n = fread(text, 1, HF_TEXT + 1, f);
    rc = ferror(f) ? ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot be read", path)
                   : ckpt_hosts_parse(out, arena, text, n, path, err);
    (void)fclose(f);
    ckpt_free(text);
    return rc;
}

/* ---- filters ---- */

/* The effect of a filter on one host. */
typedef struct host_mark {
    bool named;  // the filter names the host without slots
    bool listed; // the filter lists slots of the host, and only these count
    uint8_t *slot;
} host_mark;

static size_t host_find(const ckpt_hosts *hosts, const char *s, size_t n)
{
    size_t i = 0;

    while (i < hosts->n && (strlen(hosts->at[i].name) != n || memcmp(hosts->at[i].name, s, n) != 0))
        i++;
    return i;
}

/* Parse the slots of one host: "0,2". */
static int host_slots(const ckpt_host *host, host_mark *mark, const char *s, size_t n,
                      ckpt_err *err)
{
    size_t at = 0, used = 0;

    do {
        uint32_t slot = host_number(s + at, n - at, &used);

        at += used;
        if (used == 0 || (at < n && s[at] != ','))
            return ckpt_fail(err, CKPT_EUSAGE,
                             "\"%.*s\": expected slots of %.80s as numbers separated by commas",
                             n < 60 ? (int)n : 60, s, host->name);
        if (slot >= host->n_slots)
            return ckpt_fail(err, CKPT_EUSAGE, "host %.80s has slots 0 to %d, but not %" PRIu32,
                             host->name, (int)host->n_slots - 1, slot);
        mark->slot[slot] = 1;
        mark->listed = true;
        at++;
    } while (at <= n);
    return CKPT_OK;
}

/* Parse one part of a filter: "host" or "host:0,2". */
static int host_part(const ckpt_hosts *all, host_mark *mark, const char *s, size_t n, ckpt_err *err)
{
    const char *colon = memchr(s, ':', n);
    size_t name = colon ? (size_t)(colon - s) : n, i = host_find(all, s, name);

    if (i == all->n)
        return ckpt_fail(err, CKPT_EUSAGE, "\"%.*s\" is not in the hostfile",
                         name < 80 ? (int)name : 80, s);
    if (!colon) {
        mark[i].named = true;
        return CKPT_OK;
    }
    return host_slots(&all->at[i], &mark[i], colon + 1, n - name - 1, err);
}

/* Parse "h1@h2:0,2". */
static int host_parts(const ckpt_hosts *all, host_mark *mark, const char *filter, ckpt_err *err)
{
    const char *at = filter;
    int rc = CKPT_OK;

    while (rc == CKPT_OK && at) {
        const char *end = strchr(at, '@');
        size_t n = end ? (size_t)(end - at) : strlen(at);

        rc = host_part(all, mark, at, n, err);
        at = end ? end + 1 : NULL;
    }
    return rc;
}

/* List the slots of one host that the filter keeps; false: out of memory. */
static bool host_left(ckpt_arena *arena, const ckpt_host *host, const host_mark *mark, bool include,
                      ckpt_host *out)
{
    uint32_t *slot = ckpt_arena_array(arena, host->n_slots, sizeof *slot);

    *out = (ckpt_host){.name = host->name, .slot = slot};
    for (uint32_t i = 0; slot && i < host->n_slots; i++) {
        bool meant = mark->listed ? mark->slot[i] != 0 : mark->named;

        if (meant == include)
            slot[out->n_slots++] = host->slot[i];
    }
    return slot != NULL;
}

/* List the hosts with slots left, in the order of the hostfile. */
static int host_choose(ckpt_hosts *out, ckpt_arena *arena, const ckpt_hosts *all,
                       const ckpt_host_filter *f, ckpt_err *err)
{
    bool include = f->include && f->include[0] != '\0';
    host_mark *mark = ckpt_arena_array(arena, all->n, sizeof *mark);
    ckpt_host *left = ckpt_arena_array(arena, all->n, sizeof *left);
    int rc = mark && left ? CKPT_OK : ckpt_fail_memory(err);

    for (size_t i = 0; i < all->n && rc == CKPT_OK; i++) {
        mark[i].slot = ckpt_arena_alloc(arena, all->at[i].n_slots);
        rc = mark[i].slot ? CKPT_OK : ckpt_fail_memory(err);
    }
    if (rc == CKPT_OK)
        rc = host_parts(all, mark, include ? f->include : f->exclude, err);
    *out = (ckpt_hosts){.at = left};
    for (size_t i = 0; i < all->n && rc == CKPT_OK; i++) {
        if (!host_left(arena, &all->at[i], &mark[i], include, &left[out->n]))
            rc = ckpt_fail_memory(err);
        else
            out->n += left[out->n].n_slots > 0;
    }
    if (rc == CKPT_OK && out->n == 0)
        rc = ckpt_fail(err, CKPT_EUSAGE, "the filter excludes all slots of all hosts");
    return rc;
}

/*
 * Apply --num_nodes: keep the first hosts; --num_gpus: take slots 0 to n-1 of each, even if the
 * file lists fewer.
 */
static int host_first(ckpt_hosts *out, ckpt_arena *arena, const ckpt_hosts *all,
                      const ckpt_host_filter *f, ckpt_err *err)
{
    ckpt_host *host = ckpt_arena_copy(arena, all->at, all->n * sizeof *host);
    const uint32_t *slot = NULL;

    *out = (ckpt_hosts){.at = host, .n = all->n};
    if (!host)
        return ckpt_fail_memory(err);
    if (f->num_nodes > 0 && (uint64_t)f->num_nodes < out->n)
        out->n = (size_t)f->num_nodes;
    if (f->num_slots < 1)
        return CKPT_OK;
    if (f->num_slots > HF_SLOTS)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%" PRId64 " slots on each host are more than the limit of %d",
                         f->num_slots, HF_SLOTS);
    slot = host_count(arena, (uint32_t)f->num_slots);
    for (size_t i = 0; i < out->n; i++) {
        host[i].n_slots = (uint32_t)f->num_slots;
        host[i].slot = slot;
    }
    return slot ? CKPT_OK : ckpt_fail_memory(err);
}

int ckpt_hosts_filter(ckpt_hosts *out, ckpt_arena *arena, const ckpt_hosts *all,
                      const ckpt_host_filter *f, ckpt_err *err)
{
    bool include = f->include && f->include[0] != '\0';
    bool exclude = f->exclude && f->exclude[0] != '\0';
    bool counted = f->num_nodes > 0 || f->num_slots > 0;
    uint64_t total = 0;
    int rc = CKPT_OK;

    *out = *all;
    if (include && exclude)
        return ckpt_fail(err, CKPT_EUSAGE, "--include and --exclude cannot be used together");
    if ((include || exclude) && counted)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "--num_nodes and --num_gpus cannot be used with --include or --exclude");
    if (include || exclude)
        return host_choose(out, arena, all, f, err);
    if (counted)
        rc = host_first(out, arena, all, f, err);
    for (size_t i = 0; rc == CKPT_OK && i < out->n; i++)
        total += out->at[i].n_slots;
    if (rc == CKPT_OK && total == 0)
        rc = ckpt_fail(err, CKPT_EUSAGE,
                       "the chosen hosts have no slots, so that no process can run");
    return rc;
}

/* ---- for launchers ---- */

const char *const *ckpt_hosts_mpirun(ckpt_arena *arena, const ckpt_hosts *hosts)
{
    // zeroed, so that it is NULL-terminated
    const char **argv = ckpt_arena_array(arena, 5, sizeof *argv);
    ckpt_bytes list = {0};
    uint64_t total = 0;
    bool ok = argv != NULL;

    for (size_t i = 0; i < hosts->n; i++) {
        const ckpt_host *h = &hosts->at[i];

        if (h->n_slots > 0) {
            ok = ok && ckpt_bytes_printf(&list, "%s%s:%" PRIu32, total > 0 ? "," : "", h->name,
                                         h->n_slots);
            total += h->n_slots;
        }
    }
    if (ok) {
        argv[0] = "-np";
        argv[1] = ckpt_arena_printf(arena, "%" PRIu64, total);
        argv[2] = "--host";
        argv[3] = ckpt_arena_string(arena, list.n > 0 ? (const char *)list.at : "", list.n);
        ok = argv[1] && argv[3];
    }
    ckpt_vec_free(&list);
    return ok ? argv : NULL;
}
