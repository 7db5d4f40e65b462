/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_io.c: reads files through another process of the team, mainly their headers.
 *
 * If N processes open the same checkpoint, one process opens each file and answers the questions of
 * the others, so that a file system sees each file opened only once. The answer to the opening also
 * carries the first and the last bytes, because headers need them most often.
 */
#include <assert.h>
#include <string.h>

#include "libckpt/base/digest.h"
#include "libckpt/io/listing.h"
#include "libckpt/io/peer_io.h"

enum {
    FAR_END = 64 * 1024,     /* bytes of each end of a file in the answer to an opening */
    FAR_PIECE = 1024 * 1024, /* limit of an answer's bytes */
    FAR_ASKS = 64,           /* number of reads of a file after which this process opens it too */
    FAR_OPEN = 128           /* files that the answering process keeps open */
};

enum far_what { FAR_OPENING = 1, FAR_READING, FAR_LISTING };

/* A question; the path follows, without a terminator. */
typedef struct far_question {
    uint64_t what;
    uint64_t at, n;   /* of FAR_READING */
    ckpt_identity id; /* FAR_READING: identity of the opened file */
} far_question;

/* An entry of a listing; the name follows, without a terminator. */
typedef struct far_name {
    uint64_t size;
    uint32_t sum, n;
    uint64_t is_dir;
} far_name;

/* The answer to an opening; the first bytes follow, then the last. */
typedef struct far_opened {
    uint64_t size;
    ckpt_identity id;
    uint64_t n_head, n_tail;
} far_opened;

typedef struct far_io {
    ckpt_io io; /* first */
    ckpt_team *team;
    unsigned owner;
    ckpt_letter *opened; /* the answer to the opening */
    const uint8_t *head, *tail;
    uint64_t n_head, n_tail;
    unsigned n_asks;
    bool visible;  /* this process can open it too */
    ckpt_io *here; /* also opened here, because many of its bytes were needed */
    char path[];
} far_io;

static int far_answer_list(ckpt_bytes *answer, const char *folder, ckpt_err *err);

/* ---- asking ---- */

static int far_ask(ckpt_team *t, unsigned rank, const far_question *q, const char *path,
                   ckpt_letter **out, ckpt_err *err)
{
    ckpt_bytes b = {0};
    int rc = CKPT_OK;

    if (!ckpt_bytes_add(&b, q, sizeof *q) || !ckpt_bytes_add(&b, path, strlen(path)))
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = ckpt_team_ask(t, rank, b.at, b.n, out, err);
    ckpt_vec_free(&b);
    return rc;
}

/*
 * Report that the file differs from the one that was opened; `whose` names the process that
 * noticed.
 */
static int far_unlike(const char *path, unsigned whose, ckpt_err *err)
{
    return ckpt_fail(err, CKPT_EIO,
                     "%s: rank %u sees another file under this path: it was changed, or not all "
                     "processes share one folder of one file system (see --local)",
                     path, whose);
}

/* Read one piece of at most FAR_PIECE bytes through the process that has the file. */
static int far_piece(const far_io *f, uint8_t *to, uint64_t n, uint64_t at, ckpt_err *err)
{
    const far_question q = {.what = FAR_READING, .at = at, .n = n, .id = f->io.id};
    ckpt_letter *l = NULL;
    int rc = far_ask(f->team, f->owner, &q, f->path, &l, err);

    if (rc == CKPT_OK && l->n != n)
        rc = ckpt_fail(err, CKPT_EIO, "%s: rank %u has sent %zu bytes instead of %llu", f->path,
                       f->owner, l->n, (unsigned long long)n);
    if (rc == CKPT_OK)
        memcpy(to, l->bytes, (size_t)n);
    ckpt_free(l);
    return rc;
}

static int far_read_at(ckpt_io *io, void *buf, uint64_t n, uint64_t at, ckpt_err *err)
{
    far_io *f = (far_io *)io;
    uint8_t *to = buf;
    int rc = CKPT_OK;

    if (ckpt_within(at, n, f->n_head)) {
        memcpy(to, f->head + at, (size_t)n);
        return CKPT_OK;
    }
    if (at >= io->size - f->n_tail) {
        memcpy(to, f->tail + (at - (io->size - f->n_tail)), (size_t)n);
        return CKPT_OK;
    }
    if (!f->here && f->visible && f->n_asks++ >= FAR_ASKS)
        (void)ckpt_io_open_here(&f->here, f->path, NULL);
    if (f->here && (f->here->size != io->size || !ckpt_identity_same(&f->here->id, &io->id)))
        return far_unlike(f->path, f->team->rank, err);
    if (f->here)
        return ckpt_io_read(f->here, buf, n, at, err);
    for (uint64_t done = 0; rc == CKPT_OK && done < n;) {
        uint64_t some = n - done < FAR_PIECE ? n - done : FAR_PIECE;

        rc = far_piece(f, to + done, some, at + done, err);
        done += some;
    }
    return rc;
}

static void far_close(ckpt_io *io)
{
    far_io *f = (far_io *)io;

    ckpt_io_close(f->here);
    ckpt_free(f->opened);
    ckpt_free(f);
}

/* Parse the answer to the opening. */
static int far_understand(far_io *f, ckpt_err *err)
{
    far_opened o;
    const ckpt_letter *l = f->opened;

    if (l->n < sizeof o)
        return ckpt_fail(err, CKPT_EIO, "%s: the answer of rank %u is too short", f->path,
                         f->owner);
    memcpy(&o, l->bytes, sizeof o);
    if (o.n_head > l->n || o.n_tail > l->n || l->n - sizeof o != o.n_head + o.n_tail ||
        o.n_head > o.size || o.n_tail > o.size)
        return ckpt_fail(err, CKPT_EIO, "%s: the answer of rank %u is malformed", f->path,
                         f->owner);
    f->io = (ckpt_io){
        .name = f->path, .size = o.size, .id = o.id, .read_at = far_read_at, .close = far_close};
    f->head = l->bytes + sizeof o;
    f->tail = f->head + o.n_head;
    f->n_head = o.n_head;
    f->n_tail = o.n_tail;
    return CKPT_OK;
}

int ckpt_far_open(ckpt_io **out, ckpt_team *team, unsigned owner, bool visible, const char *path,
                  ckpt_err *err)
{
    assert(out && team && path);
    const far_question q = {.what = FAR_OPENING};
    size_t n = strlen(path) + 1;
    far_io *f = ckpt_alloc(sizeof *f + n);
    int rc;

    *out = NULL;
    if (!f)
        return ckpt_fail_memory(err);
    f->team = team;
    f->owner = owner;
    f->visible = visible;
    memcpy(f->path, path, n);
    rc = far_ask(team, owner, &q, path, &f->opened, err);
    if (rc == CKPT_OK)
        rc = far_understand(f, err);
    if (rc == CKPT_OK)
        *out = &f->io;
    else
        far_close(&f->io);
    return rc;
}

/* Parse a listing; the names belong to the message. */
static int far_names(ckpt_far_listing *out, const uint8_t *p, size_t n, ckpt_err *err)
{
    size_t room = n / sizeof(far_name) + 1;

    out->entry = ckpt_alloc(room * sizeof *out->entry);
    // each name also gets a terminator
    out->text = ckpt_alloc(n + room);
    if (!out->entry || !out->text)
        return ckpt_fail_memory(err);
    for (char *text = out->text; n >= sizeof(far_name);) {
        ckpt_far_entry *e = &out->entry[out->n];
        far_name f;

        memcpy(&f, p, sizeof f);
        if (f.n > n - sizeof f)
            return ckpt_fail(err, CKPT_EIO,
                             "%s: the listing that another process sent is cut short", out->folder);
        memcpy(text, p + sizeof f, f.n);
        *e = (ckpt_far_entry){.name = text, .size = f.size, .sum = f.sum, .is_dir = f.is_dir != 0};
        text += f.n + 1;
        p += sizeof f + f.n;
        n -= sizeof f + f.n;
        out->n++;
    }
    return CKPT_OK;
}

int ckpt_far_list(ckpt_far_listing *out, ckpt_team *team, unsigned rank, const char *folder,
                  ckpt_err *err)
{
    const far_question q = {.what = FAR_LISTING};
    ckpt_letter *l = NULL;
    ckpt_bytes own = {0};
    int rc;

    *out = (ckpt_far_listing){.folder = folder};
    if (rank == team->rank)
        rc = far_answer_list(&own, folder, err);
    else
        rc = far_ask(team, rank, &q, folder, &l, err);
    if (rc == CKPT_OK)
        rc = far_names(out, l ? l->bytes : own.at, l ? l->n : own.n, err);
    ckpt_free(l);
    ckpt_vec_free(&own);
    return rc;
}

void ckpt_far_list_free(ckpt_far_listing *l)
{
    ckpt_free(l->entry);
    ckpt_free(l->text);
    *l = (ckpt_far_listing){0};
}

/* ---- answering ---- */

/* Files that this process has open for others; only the answering thread uses them. */
static ckpt_io *far_files[FAR_OPEN];
static unsigned far_next;

/* True if the path still names this file; one process answers the openings of all others. */
static bool far_still(const ckpt_io *io)
{
    struct stat st;
    ckpt_identity now;

    if (stat(io->name, &st) != 0)
        return false;
    now = ckpt_identity_of(&st);
    return io->id.dev == now.dev && ckpt_identity_same(&io->id, &now);
}

/* Return an open file, opening it if needed; anew: reopen it if the path names another file now. */
static int far_file(ckpt_io **out, const char *path, bool anew, ckpt_err *err)
{
    ckpt_io **place = NULL;
    int rc;

    for (unsigned i = 0; i < FAR_OPEN && !place; i++) {
        if (far_files[i] && strcmp(far_files[i]->name, path) == 0)
            place = &far_files[i];
    }
    *out = place ? *place : NULL;
    if (place && (!anew || far_still(*place)))
        return CKPT_OK;
    if (!place)
        place = &far_files[far_next++ % FAR_OPEN];
    ckpt_io_close(*place);
    *place = NULL;
    rc = ckpt_io_open_here(out, path, err);
    if (rc == CKPT_OK)
        *place = *out;
    return rc;
}

/* Append n bytes of a file to the answer. */
static int far_add(ckpt_bytes *answer, ckpt_io *io, uint64_t n, uint64_t at, ckpt_err *err)
{
    size_t had = answer->n;

    if (!ckpt_bytes_add(answer, NULL, (size_t)n))
        return ckpt_fail_memory(err);
    return ckpt_io_read(io, answer->at + had, n, at, err);
}

static int far_answer_open(ckpt_bytes *answer, ckpt_io *io, ckpt_err *err)
{
    far_opened o = {.size = io->size, .id = io->id};
    int rc;

    o.n_head = io->size < FAR_END ? io->size : FAR_END;
    o.n_tail = io->size - o.n_head < FAR_END ? io->size - o.n_head : FAR_END;
    if (!ckpt_bytes_add(answer, &o, sizeof o))
        return ckpt_fail_memory(err);
    rc = far_add(answer, io, o.n_head, 0, err);
    return rc == CKPT_OK ? far_add(answer, io, o.n_tail, io->size - o.n_tail, err) : rc;
}

/* CRC-32 of a file's ends, to compare files of one name; 0 if it cannot be read. */
static uint32_t far_sum(const char *path)
{
    uint8_t *p = ckpt_alloc(FAR_END);
    ckpt_io *io = NULL;
    uint32_t crc = 0;

    if (p && ckpt_io_open_here(&io, path, NULL) == CKPT_OK) {
        size_t n = io->size < FAR_END ? (size_t)io->size : FAR_END;

        if (ckpt_io_read(io, p, n, 0, NULL) == CKPT_OK)
            crc = ckpt_crc32(crc, p, n);
        if (ckpt_io_read(io, p, n, io->size - n, NULL) == CKPT_OK)
            crc = ckpt_crc32(crc, p, n);
    }
    ckpt_io_close(io);
    ckpt_free(p);
    return crc;
}

static int far_answer_list(ckpt_bytes *answer, const char *folder, ckpt_err *err)
{
    ckpt_listing list;
    ckpt_map *map = NULL;
    int rc = ckpt_map_create(&map, 0, err);

    if (rc == CKPT_OK)
        rc = ckpt_listing_read_here(&list, map, folder, err);
    for (size_t i = 0; rc == CKPT_OK && i < list.n; i++) {
        const ckpt_entry *e = &list.entry[i];
        const char *path = ckpt_path_join(map->arena, folder, e->name);
        const far_name f = {.size = e->size,
                            .sum = path && !e->is_dir ? far_sum(path) : 0,
                            .n = (uint32_t)strlen(e->name),
                            .is_dir = e->is_dir};

        if (!path || !ckpt_bytes_add(answer, &f, sizeof f) || !ckpt_bytes_add(answer, e->name, f.n))
            rc = ckpt_fail_memory(err);
    }
    ckpt_map_free(map);
    return rc;
}

int ckpt_far_answer(const ckpt_letter *question, ckpt_bytes *answer, ckpt_err *err)
{
    far_question q;
    ckpt_io *io = NULL;
    char *path;
    int rc;

    if (question->n < sizeof q)
        return ckpt_fail(err, CKPT_EIO, "a request of rank %u is too short", question->peer);
    memcpy(&q, question->bytes, sizeof q);
    path = ckpt_alloc(question->n - sizeof q + 1);
    if (!path)
        return ckpt_fail_memory(err);
    memcpy(path, question->bytes + sizeof q, question->n - sizeof q);
    if (q.what == FAR_LISTING) {
        rc = far_answer_list(answer, path, err);
        ckpt_free(path);
        return rc;
    }
    rc = far_file(&io, path, q.what == FAR_OPENING, err);
    if (rc == CKPT_OK && q.what == FAR_OPENING)
        rc = far_answer_open(answer, io, err);
    else if (rc == CKPT_OK && !ckpt_identity_same(&io->id, &q.id))
        rc = far_unlike(path, ckpt_team_rank(), err);
    else if (rc == CKPT_OK && q.n > FAR_PIECE)
        rc = ckpt_fail(err, CKPT_EIO, "%s: rank %u asks for too many bytes at once", path,
                       question->peer);
    else if (rc == CKPT_OK)
        rc = far_add(answer, io, q.n, q.at, err);
    ckpt_free(path);
    return rc;
}
