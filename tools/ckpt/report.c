/* SPDX-License-Identifier: Apache-2.0 */
/* report.c: prints shapes, totals, facts and proofs in the same way for every verb. */
#include "tools/ckpt/report.h"
#include "ckpt_extra.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Append to a fixed buffer, cut to its size. */
CKPT_PRINTF(3, 4)
static void report_add(char *buf, size_t room, const char *fmt, ...)
{
    size_t n = strlen(buf);
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(buf + n, room - n, fmt, args);
    va_end(args);
}

const char *count_text(char buf[COUNT_ROOM], uint64_t n, const char *noun)
{
    (void)snprintf(buf, COUNT_ROOM, "%" PRIu64 " %s%s", n, noun, n == 1 ? "" : "s");
    return buf;
}

const char *shape_text(char buf[SHAPE_ROOM], const ckpt_tensor *t)
{
    buf[0] = '[';
    buf[1] = 0;
    for (uint32_t i = 0; i < t->ndim; i++) {
        // room for the longest number, its comma, and the ending
        if (strlen(buf) > SHAPE_ROOM - 32) {
            report_add(buf, SHAPE_ROOM, ", ...");
            break;
        }
        report_add(buf, SHAPE_ROOM, "%s%" PRIu64, i ? ", " : "", t->shape[i]);
    }
    report_add(buf, SHAPE_ROOM, "]");
    return buf;
}

const char *role_name(uint32_t role)
{
    static const char *const names[] = {"weight", "frozen", "buffer", "state", "other"};

    return role <= CKPT_ROLE_OTHER ? names[role] : "?";
}

void map_count(map_totals *out, const ckpt_map *map)
{
    *out = (map_totals){.n_tensors = ckpt_map_tensor_count(map)};
    for (size_t i = 0; i < out->n_tensors; i++) {
        const ckpt_tensor *t = ckpt_map_tensor_at(map, i);
        // a tied name has no bytes of its own
        if (t->owner) {
            out->n_tied++;
            continue;
        }
        out->n_elems += t->n_elems;
        out->n_bytes += ckpt_tensor_bytes(t);
    }
}

void map_summary(const ckpt_map *map)
{
    char a[HUMAN_ROOM], b[HUMAN_ROOM], n[COUNT_ROOM];
    map_totals sum;

    map_count(&sum, map);
    out_printf("%s", count_text(n, sum.n_tensors, "tensor"));
    if (sum.n_tied)
        out_printf(" (%" PRIu64 " tied)", sum.n_tied);
    out_printf(", %s element%s, %s\n", human_count(a, sum.n_elems), sum.n_elems == 1 ? "" : "s",
               human_bytes(b, sum.n_bytes));
}

const char *map_fact(const ckpt_map *map, const char *key)
{
    const char *k, *text;
    bool number;

    for (size_t i = 0; ckpt_map_fact_at(map, i, &k, &text, &number); i++) {
        if (strcmp(k, key) == 0)
            return text;
    }
    return NULL;
}

const char *map_relative(const ckpt_map *map, const char *path)
{
    const char *base = ckpt_map_path(map);
    size_t n = base ? strlen(base) : 0;

    if (n > 0 && base[n - 1] == '/')
        n--;
    if (n > 0 && strncmp(path, base, n) == 0 && path[n] == '/')
        return path + n + 1;
    // the path itself was opened: the last part is enough
    const char *slash = base && strcmp(path, base) == 0 ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path;
}

bool map_has_records(const ckpt_map *map)
{
    const char *path, *record = NULL;
    ckpt_box room;
    uint64_t at;

    // the first tensor with bytes shows whether the format has records
    for (size_t i = 0; i < ckpt_map_tensor_count(map); i++) {
        const ckpt_tensor *t = ckpt_map_tensor_at(map, i);
        if (t->n_extents &&
            ckpt_map_locate(map, ckpt_tensor_extent(t, 0, &room), &path, &record, &at) && path)
            return record != NULL;
    }
    return false;
}

void map_say_findings(const ckpt_map *map, bool notes)
{
    const char *text;
    int severity, code;

    for (size_t i = 0; ckpt_map_finding_at(map, i, &severity, &code, &text); i++) {
        // errors are findings only if the reader was set to continue after them
        if (severity > 0)
            say_warning("%s", text);
        else if (notes)
            say_note("%s", text);
    }
}

/* Number of facts in the line about a source. */
enum { SAY_FACTS = 3 };

/*
 * False for facts that the line leaves out: sizes of layers, and the path, which the line already
 * has.
 */
static bool report_is_said(const ckpt_map *map, const char *key, const char *text)
{
    static const char *const sizes[] = {"hidden layers", "hidden size", "attention heads"};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (strcmp(key, sizes[i]) == 0)
            return false;
    }
    return strcmp(text, ckpt_map_path(map)) != 0;
}

void map_say_understood(const ckpt_map *map)
{
    const char *key, *text;
    char facts[512] = "";
    bool number;
    int said = 0;

    // the first facts are the most important; `ckpt info` prints all
    for (size_t i = 0; said < SAY_FACTS && ckpt_map_fact_at(map, i, &key, &text, &number); i++) {
        if (!report_is_said(map, key, text))
            continue;
        report_add(facts, sizeof facts, "%s%s %s", said ? ", " : ": ", key, text);
        said++;
    }
    say_note("reading %s, format %s%s", ckpt_map_path(map), ckpt_map_format(map), facts);
}

void json_shape(json_out *j, const char *key, const ckpt_tensor *t)
{
    json_open_flat(j, key, '[');
    for (uint32_t i = 0; i < t->ndim; i++)
        json_uint(j, NULL, t->shape[i]);
    json_close(j, ']');
}

/* Add the bytes exchanged by the processes of an MPI job. */
static void json_processes(json_out *j)
{
    ckpt_team_member m;

    if (ckpt_team_size() < 2)
        return;
    json_open(j, "processes", '[');
    for (unsigned i = 0; ckpt_team_member_at(i, &m); i++) {
        json_open(j, NULL, '{');
        json_text(j, "host", m.host);
        json_uint(j, "bytes_share", m.n_share);
        json_uint(j, "letters_sent", m.n_letters);
        json_uint(j, "bytes_sent", m.n_sent);
        json_uint(j, "bytes_from_others", m.n_far);
        json_close(j, '}');
    }
    json_close(j, ']');
}

void json_report(json_out *j, const char *key, const ckpt_run_report *r)
{
    json_open(j, key, '{');
    json_uint(j, "tensors", r->n_tensors);
    json_uint(j, "elements", r->n_elems);
    json_uint(j, "bytes_read", r->n_read);
    json_uint(j, "bytes_written", r->n_written);
    json_uint(j, "files", r->n_files);
    json_uint(j, "files_kept", r->n_files_kept);
    json_uint(j, "records_checked", r->n_records_checked);
    json_uint(j, "records_without_crc", r->n_records_no_crc);
    json_uint(j, "elements_compared", r->n_compared);
    json_uint(j, "elements_unlike", r->n_unlike);
    json_uint(j, "state_carried", r->n_state_carried);
    json_uint(j, "state_rewritten", r->n_state_rewritten);
    json_uint(j, "state_left_out", r->n_state_left_out);
    json_uint(j, "nan", r->n_nan);
    json_uint(j, "inf", r->n_inf);
    json_uint(j, "source_nan", r->n_source_nan);
    json_uint(j, "source_inf", r->n_source_inf);
    json_uint(j, "overflowed", r->n_over);
    json_uint(j, "rounded_to_zero", r->n_zero);
    json_text(j, "page_cache", r->let_go ? "let go" : "kept");
    json_real(j, "seconds", r->seconds);
    json_processes(j);
    json_close(j, '}');
}

/* Facts that are numbers become JSON numbers; their printable form is valid JSON. */
void json_facts(json_out *j, const char *key, const ckpt_map *map)
{
    const char *name, *text;
    char k[64];
    bool number;

    json_open(j, key, '{');
    for (size_t i = 0; ckpt_map_fact_at(map, i, &name, &text, &number); i++) {
        size_t n = 0;
        // turn a fact's name into an identifier
        for (; n < sizeof k - 1 && name[n]; n++)
            k[n] = name[n] == ' ' || name[n] == '-' ? '_' : (char)tolower((unsigned char)name[n]);
        k[n] = 0;
        if (number)
            json_literal(j, k, text);
        else
            json_text(j, k, text);
    }
    json_close(j, '}');
}

/* The severity of ckpt_map_finding_at as a word. */
static const char *severity_name(int severity)
{
    static const char *const names[] = {"note", "warning", "error"};

    return severity >= 0 && severity <= 2 ? names[severity] : "?";
}

void json_finding(json_out *j, int severity, const char *text)
{
    json_open(j, NULL, '{');
    json_text(j, "severity", severity_name(severity));
    json_text(j, "text", text);
    json_close(j, '}');
}

void json_findings_of(json_out *j, const ckpt_map *map)
{
    const char *text;
    int severity, code;

    for (size_t i = 0; ckpt_map_finding_at(map, i, &severity, &code, &text); i++)
        json_finding(j, severity, text);
}

void json_findings(json_out *j, const char *key, const ckpt_map *map)
{
    json_open(j, key, '[');
    json_findings_of(j, map);
    json_close(j, ']');
}

/*
 * Append the counts of training state entries: carried, rewritten, left out, or, after reading,
 * understood.
 */
static void report_state(char *buf, const ckpt_run_report *r, bool read)
{
    uint64_t n = r->n_state_carried + r->n_state_rewritten + r->n_state_left_out;

    if (n == 0)
        return;
    if (read)
        report_add(buf, PROOF_ROOM, "; %" PRIu64 " of %" PRIu64 " entries of training state known",
                   r->n_state_carried, n);
    else
        report_add(buf, PROOF_ROOM,
                   "; training state: %" PRIu64 " carried, %" PRIu64 " rewritten, %" PRIu64
                   " left out",
                   r->n_state_carried, r->n_state_rewritten, r->n_state_left_out);
}

const char *proof_text(char buf[PROOF_ROOM], const ckpt_run_report *r, const char *did)
{
    char n[COUNT_ROOM];

    (void)snprintf(buf, PROOF_ROOM, "%s, %" PRIu64 " element%s each %s once",
                   count_text(n, r->n_tensors, "tensor"), r->n_elems, r->n_elems == 1 ? "" : "s",
                   did);
    if (r->n_records_checked)
        report_add(buf, PROOF_ROOM, "; CRC-32 of %s held",
                   count_text(n, r->n_records_checked, "record"));
    // only stages 1 and 2 keep a copy for comparison
    if (r->n_compared)
        report_add(buf, PROOF_ROOM, "; %" PRIu64 " elements equal their 16-bit copy",
                   r->n_compared);
    if (r->n_unlike)
        report_add(buf, PROOF_ROOM, "; %" PRIu64 " elements differ from their 16-bit copy",
                   r->n_unlike);
    if (r->n_nan || r->n_inf)
        report_add(buf, PROOF_ROOM, "; %" PRIu64 " NaN, %" PRIu64 " infinite", r->n_nan, r->n_inf);
    else
        report_add(buf, PROOF_ROOM, "; no NaN or infinity");
    if (r->n_source_nan != r->n_nan || r->n_source_inf != r->n_inf)
        report_add(buf, PROOF_ROOM, " (%" PRIu64 " NaN, %" PRIu64 " infinite before)",
                   r->n_source_nan, r->n_source_inf);
    if (r->n_over)
        report_add(buf, PROOF_ROOM, "; %" PRIu64 " beyond the dtype's range", r->n_over);
    if (r->n_zero)
        report_add(buf, PROOF_ROOM, "; %" PRIu64 " rounded to 0", r->n_zero);
    report_state(buf, r, strcmp(did, "read") == 0);
    return buf;
}
