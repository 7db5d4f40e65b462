/* SPDX-License-Identifier: Apache-2.0 */
/*
 * journal.c: computes the fingerprint of a run, and reads and writes the lines of its journal.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/base/digest.h"
#include "libckpt/base/weigh.h"
#include "libckpt/commit/journal.h"
#include "libckpt/io/dir.h"
#include "libckpt/map/nest.h"

enum {
    JL_VERSION = 3,    /* version of the lines, and of the data in the fingerprint */
    JL_BUFFER = 4096,  /* bytes that are hashed at once */
    JL_MET = 64,       /* number of recent lists that are recognised */
    JL_SMALL = 1 << 20 /* largest memory source whose bytes are hashed for a set of files */
};

#define JL_LIMIT (UINT64_C(1) << 30) /* limit of a journal's bytes */

/* ---- fingerprint ---- */

/* A hash with a buffer, because the maps of large runs have millions of small numbers. */
typedef struct jl_hash {
    ckpt_sha256 *sha;
    size_t n;
    uint8_t buffer[JL_BUFFER];
    const ckpt_parts *met[JL_MET]; /* recently hashed lists */
    size_t n_met;
    int rc;
    ckpt_err *err;
} jl_hash;

static void jl_flush(jl_hash *h)
{
    if (h->rc == CKPT_OK)
        h->rc = ckpt_sha256_add(h->sha, h->buffer, h->n, h->err);
    h->n = 0;
}

static void jl_bytes(jl_hash *h, const void *p, size_t n)
{
    if (n > sizeof h->buffer - h->n)
        jl_flush(h);
    if (n > sizeof h->buffer) {
        if (h->rc == CKPT_OK)
            h->rc = ckpt_sha256_add(h->sha, p, n, h->err);
    } else if (n > 0) {
        memcpy(h->buffer + h->n, p, n);
        h->n += n;
    }
}

static void jl_number(jl_hash *h, uint64_t x)
{
    jl_bytes(h, &x, sizeof x);
}

/*
 * Hash a string with its length, so that no two lists of strings give the same stream; NULL differs
 * from "".
 */
static void jl_string(jl_hash *h, const char *s)
{
    jl_number(h, s ? strlen(s) : UINT64_MAX);
    if (s)
        jl_bytes(h, s, strlen(s));
}

/* Hash a rule of extents: its list of parts as the index among earlier lists, or in full. */
static void jl_cut(jl_hash *h, const ckpt_cut *cut)
{
    size_t from = h->n_met > JL_MET ? h->n_met - JL_MET : 0, i = h->n_met;

    jl_number(h, cut->at);
    jl_number(h, cut->count);
    jl_number(h, (uint64_t)cut->stride);
    while (i > from && h->met[(i - 1) % JL_MET] != cut->parts)
        i--;
    jl_number(h, i > from ? i : 0);
    if (i > from)
        return;
    h->met[h->n_met++ % JL_MET] = cut->parts;
    jl_number(h, cut->parts->n);
    for (uint32_t k = 0; k < cut->parts->n; k++) {
        jl_number(h, cut->parts->part[k].source);
        jl_number(h, cut->parts->part[k].at);
    }
}

/* Hash a tensor and its sources, but not its twins and addends. */
static void jl_one_tensor(jl_hash *h, const ckpt_tensor *t)
{
    jl_string(h, t->name);
    jl_string(h, t->origin);
    jl_string(h, t->owner ? t->owner->name : NULL);
    jl_number(h, (uint64_t)t->dtype);
    jl_number(h, t->flags);
    jl_number(h, t->ndim);
    for (uint32_t i = 0; i < t->ndim; i++)
        jl_number(h, t->shape[i]);
    jl_number(h, t->n_extents);
    if (t->cut)
        jl_cut(h, t->cut);
    for (uint32_t i = 0; !t->cut && i < t->n_extents; i++) {
        const ckpt_extent *e = &t->extent[i];

        jl_number(h, e->source);
        jl_number(h, e->at);
        jl_number(h, e->ndim);
        for (uint32_t k = 0; k < e->ndim; k++) {
            jl_number(h, e->axis[k].start);
            jl_number(h, e->axis[k].count);
            jl_number(h, (uint64_t)e->axis[k].stride);
        }
    }
}

/* Hash a tensor with its chains of twins and addends; each chain ends with a mark. */
static void jl_chains(jl_hash *h, const ckpt_tensor *t)
{
    jl_one_tensor(h, t);
    for (const ckpt_tensor *twin = t->twin; twin != NULL; twin = twin->twin)
        jl_one_tensor(h, twin);
    jl_number(h, UINT64_MAX);
    for (const ckpt_tensor *a = t->addend; a != NULL; a = a->addend)
        jl_one_tensor(h, a);
    jl_number(h, UINT64_MAX);
}

static void jl_tensors(jl_hash *h, const ckpt_map *map)
{
    jl_number(h, map->tensors.n);
    for (size_t i = 0; i < map->tensors.n; i++) {
        const ckpt_tensor *t = map->tensors.at[i];

        jl_chains(h, t);
        jl_number(h, t->donor != NULL);
        if (t->donor)
            jl_chains(h, t->donor);
        if (t->importance)
            jl_bytes(h, t->importance->of,
                     (size_t)(t->n_elems / t->importance->rows * sizeof *t->importance->of));
    }
}

/* Hash the bytes that a function reads, a buffer at a time. */
static void jl_far(jl_hash *h, const ckpt_source *s)
{
    const ckpt_far *far = s->memory;

    for (uint64_t at = 0; h->rc == CKPT_OK && at < s->n_bytes; at += JL_BUFFER) {
        uint64_t left = s->n_bytes - at;

        jl_flush(h);
        h->n = left < JL_BUFFER ? (size_t)left : JL_BUFFER;
        if (h->rc == CKPT_OK)
            h->rc = far->read(far, h->buffer, h->n, at, h->err);
    }
}

/* Hash a value that no other run has, because no later run can resume from data in memory. */
static void jl_once(jl_hash *h)
{
    struct timespec t = {0};

    (void)clock_gettime(CLOCK_REALTIME, &t);
    jl_number(h, (uint64_t)t.tv_sec << 30 ^ (uint64_t)t.tv_nsec);
    jl_number(h, (uint64_t)getpid());
}

/* Hash the inputs of a nested source; inner sources are in the list themselves. */
static void jl_nested(jl_hash *h, const ckpt_source *s)
{
    const ckpt_tensor *in;

    for (uint32_t i = 0; (in = ckpt_source_input(s, i)) != NULL; i++)
        jl_chains(h, in->owner ? in->owner : in);
    if (s->kind == CKPT_SOURCE_MADE) {
        const ckpt_make *m = s->memory;

        jl_number(h, m->dtype);
        jl_string(h, m->name);
        jl_string(h, m->terms);
    }
}

/*
 * Hash sources. Those in memory count with their bytes if they are read; with `small` set, a large
 * one makes the fingerprint unique instead.
 */
static void jl_sources(jl_hash *h, const ckpt_map *map, bool read, bool small)
{
    jl_number(h, map->sources.n);
    for (size_t i = 0; i < map->sources.n; i++) {
        const ckpt_source *s = &map->sources.at[i];

        jl_number(h, (uint64_t)s->kind << 16 | (uint64_t)s->coding << 8 | s->swap);
        jl_number(h, s->file);
        jl_number(h, s->at);
        jl_number(h, s->n_stored);
        jl_number(h, s->n_bytes);
        if (!read)
            continue;
        jl_nested(h, s);
        // The expected CRC of a record is part of its identity; that of a record to be written is
        // not yet known.
        jl_number(h, s->has_crc ? s->crc : UINT64_MAX);
        if (small && s->n_bytes > JL_SMALL &&
            (s->kind == CKPT_SOURCE_MEMORY || s->kind == CKPT_SOURCE_FAR))
            jl_once(h);
        else if (s->kind == CKPT_SOURCE_MEMORY)
            jl_bytes(h, s->memory, (size_t)s->n_bytes);
        else if (s->kind == CKPT_SOURCE_FAR)
            jl_far(h, s);
    }
}

static void jl_files_read(jl_hash *h, const ckpt_map *map)
{
    jl_number(h, map->files.n);
    for (size_t i = 0; i < map->files.n; i++) {
        const ckpt_map_file *f = &map->files.at[i];

        jl_string(h, f->path);
        jl_number(h, f->size);
        // without the device, because each machine of a team numbers a shared one itself
        jl_number(h, f->ino);
        jl_number(h, (uint64_t)f->mtime_s);
        jl_number(h, (uint64_t)f->mtime_ns);
        // a caller's bytes may have changed without a sign
        if (f->input)
            jl_once(h);
    }
}

/*
 * Hash the files to write. Lengths go before bytes, so that no two different lists give the same
 * stream.
 */
static void jl_files_written(jl_hash *h, const ckpt_map *map)
{
    jl_number(h, map->files.n);
    for (size_t i = 0; i < map->files.n; i++) {
        const ckpt_map_file *f = &map->files.at[i];

        jl_string(h, f->path);
        jl_string(h, f->prefix);
        jl_number(h, f->size);
        jl_number(h, f->literals.n);
        for (size_t k = 0; k < f->literals.n; k++) {
            jl_number(h, f->literals.at[k].at);
            jl_number(h, f->literals.at[k].n);
            jl_bytes(h, f->literals.at[k].bytes, (size_t)f->literals.at[k].n);
        }
    }
}

int ckpt_journal_fingerprint(char out[65], const ckpt_map *to, const ckpt_map *from,
                             bool skip_fsync, ckpt_err *err)
{
    assert(to);
    jl_hash h = {.err = err};
    uint8_t digest[32];

    h.rc = ckpt_sha256_new(&h.sha, err);
    jl_number(&h, JL_VERSION);
    // A run that promises synced files must not keep files that were never synced.
    jl_number(&h, skip_fsync);
    jl_string(&h, to->folder);
    jl_string(&h, to->set ? to->set->name : NULL);
    jl_string(&h, to->pointer);
    jl_string(&h, to->pointer_text);
    jl_files_written(&h, to);
    jl_sources(&h, to, false, false);
    jl_tensors(&h, to);
    if (from) {
        jl_files_read(&h, from);
        jl_sources(&h, from, true, to->set != NULL);
        jl_tensors(&h, from);
    }
    jl_flush(&h);
    if (h.rc == CKPT_OK)
        h.rc = ckpt_sha256_end(h.sha, digest, err);
    if (h.rc == CKPT_OK)
        ckpt_sha256_hex(digest, out);
    ckpt_sha256_free(h.sha);
    return h.rc;
}

/* ---- reading ---- */

/* Parse a number and the character after it; false if the text differs. */
static bool jl_parse(const char **p, unsigned base, char behind, uint64_t *out)
{
    const char *s = *p;

    *out = 0;
    for (; *s != behind || s == *p; s++) {
        unsigned d = *s >= '0' && *s <= '9'   ? (unsigned)(*s - '0')
                     : *s >= 'a' && *s <= 'f' ? (unsigned)(*s - 'a') + 10
                                              : 99;

        if (d >= base || !ckpt_mul(*out, base, out) || !ckpt_add(*out, d, out))
            return false;
    }
    *p = s + 1;
    return true;
}

/* Skip a word; false if the text does not begin with it. */
static bool jl_word(const char **p, const char *word)
{
    size_t n = strlen(word);

    if (strncmp(*p, word, n) != 0)
        return false;
    *p += n;
    return true;
}

/* The text of the next line, terminated; NULL: no complete line is left. */
static const char *jl_line(char **next, const char *end)
{
    char *line = *next, *stop = memchr(line, '\n', (size_t)(end - line));
    const char *p = line;
    uint64_t crc;

    if (!stop)
        return NULL;
    *stop = 0;
    // Eight digits, and a rest with this CRC.
    if (!jl_parse(&p, 16, ' ', &crc) || p != line + 9 ||
        ckpt_crc32(0, p, (size_t)(stop - p)) != crc)
        return NULL;
    *next = stop + 1;
    return p;
}

/* Parse a line after the first; *ok is false for a line that ckpt cannot have written. */
static int jl_take(ckpt_journal *j, const char *p, bool *ok, ckpt_err *err)
{
    uint64_t file, size, crc;
    ckpt_journal_entry *e;

    *ok = true;
    if (jl_word(&p, "place ") && jl_parse(&p, 10, ' ', &j->dev) && jl_parse(&p, 10, 0, &j->ino)) {
        j->has_place = true;
        return CKPT_OK;
    }
    *ok = jl_word(&p, "file ") && jl_parse(&p, 10, ' ', &file) && file < UINT32_MAX &&
          jl_parse(&p, 10, ' ', &size) && jl_parse(&p, 16, ' ', &crc) && crc <= UINT32_MAX;
    if (!*ok)
        return CKPT_OK;
    e = ckpt_vec_push(&j->entry);
    if (!e)
        return ckpt_fail_memory(err);
    *e = (ckpt_journal_entry){.file = (uint32_t)file, .crc = (uint32_t)crc, .size = size};
    return CKPT_OK;
}

/* Parse all lines, up to the first incomplete one. */
static int jl_lines(ckpt_journal *j, char *text, uint64_t n, const char *fingerprint, bool *match,
                    ckpt_err *err)
{
    char *next = text;
    const char *p = jl_line(&next, text + n);
    uint64_t version;
    bool ok = true;
    int rc = CKPT_OK;

    *match = p && jl_word(&p, "ckpt-journal ") && jl_parse(&p, 10, ' ', &version) &&
             version == JL_VERSION && strcmp(p, fingerprint) == 0;
    while (*match && rc == CKPT_OK && ok) {
        j->end = (uint64_t)(next - text);
        p = jl_line(&next, text + n);
        if (!p)
            break;
        rc = jl_take(j, p, &ok, err);
    }
    return rc;
}

int ckpt_journal_read(ckpt_journal *j, const char *fingerprint, bool *match, ckpt_err *err)
{
    assert(j->fd >= 0 && j->where && fingerprint && match);
    struct stat st;
    uint64_t done = 0;
    char *text;
    int rc = CKPT_OK;

    *match = false;
    if (fstat(j->fd, &st) != 0)
        return ckpt_fail_sys(err, CKPT_EIO, errno, "%s/journal: cannot stat", j->where);
    if (st.st_size <= 0 || (uint64_t)st.st_size > JL_LIMIT)
        return CKPT_OK;
    text = ckpt_alloc((size_t)st.st_size + 1);
    if (!text)
        return ckpt_fail_memory(err);
    while (rc == CKPT_OK && done < (uint64_t)st.st_size) {
        ssize_t got = pread(j->fd, text + done, (size_t)st.st_size - (size_t)done, (off_t)done);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s/journal: cannot read", j->where);
        if (got <= 0)
            break;
        done += (uint64_t)got;
    }
    if (rc == CKPT_OK)
        rc = jl_lines(j, text, done, fingerprint, match, err);
    ckpt_free(text);
    return rc;
}

/* ---- writing ---- */

static int jl_failed(const ckpt_journal *j, int sys, ckpt_err *err)
{
    return ckpt_fail_sys(err, CKPT_EIO, sys, "%s/journal: cannot write", j->where);
}

/* Begin a line; jl_end inserts its CRC. */
static size_t jl_start(ckpt_bytes *b, bool *ok)
{
    size_t at = b->n;

    *ok = *ok && ckpt_bytes_add(b, "00000000 ", 9);
    return at;
}

static void jl_end(ckpt_bytes *b, size_t at, bool *ok)
{
    static const char digit[] = "0123456789abcdef";
    uint32_t crc;

    if (!*ok)
        return;
    crc = ckpt_crc32(0, b->at + at + 9, b->n - at - 9);
    for (unsigned i = 0; i < 8; i++)
        b->at[at + i] = (uint8_t)digit[crc >> (28 - 4 * i) & 15];
    *ok = ckpt_bytes_add(b, "\n", 1);
}

/* Append lines. The sync is outside the lock, so that several threads can wait for it together. */
static int jl_append(ckpt_journal *j, const ckpt_bytes *b, ckpt_err *err)
{
    int rc = CKPT_OK;

    pthread_mutex_lock(&j->lock);
    if (ckpt_pwrite(j->fd, b->at, b->n, j->end) != 0)
        rc = jl_failed(j, errno, err);
    else
        j->end += b->n;
    pthread_mutex_unlock(&j->lock);
    if (rc == CKPT_OK && !j->skip_fsync && ckpt_fdatasync(j->fd) != 0)
        rc = jl_failed(j, errno, err);
    return rc;
}

int ckpt_journal_go_on(ckpt_journal *j, ckpt_err *err)
{
    int rc;

    do
        rc = ftruncate(j->fd, (off_t)j->end);
    while (rc != 0 && errno == EINTR);
    return rc == 0 ? CKPT_OK : jl_failed(j, errno, err);
}

/* Append b unless memory ran out while it was made. */
static int jl_send(ckpt_journal *j, ckpt_bytes *b, bool ok, ckpt_err *err)
{
    int rc = ok ? jl_append(j, b, err) : ckpt_fail_memory(err);

    ckpt_vec_free(b);
    return rc;
}

int ckpt_journal_begin(ckpt_journal *j, const char *fingerprint, ckpt_err *err)
{
    assert(j->fd >= 0 && fingerprint);
    ckpt_bytes b = {0};
    bool ok = true;
    size_t at = jl_start(&b, &ok);
    int rc;

    ckpt_vec_free(&j->entry);
    j->has_place = false;
    j->end = 0;
    rc = ckpt_journal_go_on(j, err);
    ok = ok && ckpt_bytes_printf(&b, "ckpt-journal %d %s", JL_VERSION, fingerprint);
    jl_end(&b, at, &ok);
    if (rc == CKPT_OK)
        return jl_send(j, &b, ok, err);
    ckpt_vec_free(&b);
    return rc;
}

/*
 * Append the name for human readers of the journal, without control characters, which would break
 * the lines.
 */
static bool jl_name(ckpt_bytes *b, const char *name)
{
    size_t n = strlen(name), at = b->n;

    if (!ckpt_bytes_add(b, name, n))
        return false;
    for (size_t i = at; i < at + n; i++) {
        if (b->at[i] < ' ')
            b->at[i] = '?';
    }
    return true;
}

int ckpt_journal_files(ckpt_journal *j, const ckpt_journal_entry *entry, size_t n,
                       const ckpt_map *to, ckpt_err *err)
{
    assert(j->fd >= 0 && (entry || n == 0) && to);
    ckpt_bytes b = {0};
    bool ok = true;

    for (size_t i = 0; ok && i < n; i++) {
        size_t at = jl_start(&b, &ok);

        ok = ok &&
             ckpt_bytes_printf(&b, "file %" PRIu32 " %" PRIu64 " %08" PRIx32 " ", entry[i].file,
                               entry[i].size, entry[i].crc) &&
             jl_name(&b, to->files.at[entry[i].file].path);
        jl_end(&b, at, &ok);
    }
    return jl_send(j, &b, ok, err);
}

int ckpt_journal_place(ckpt_journal *j, uint64_t dev, uint64_t ino, ckpt_err *err)
{
    ckpt_bytes b = {0};
    bool ok = true;
    size_t at = jl_start(&b, &ok);

    ok = ok && ckpt_bytes_printf(&b, "place %" PRIu64 " %" PRIu64, dev, ino);
    jl_end(&b, at, &ok);
    return jl_send(j, &b, ok, err);
}
