/* SPDX-License-Identifier: Apache-2.0 */
/*
 * far.c: files whose headers another process of the team reads for this one.
 *
 * Of N processes that open the same checkpoint one opens each file; it answers the questions of the
 * others, so that a file system sees each file opened once.  What is most often wanted, the first
 * and the last bytes, comes with the answer to the opening.
 */
#include <assert.h>
#include <string.h>

#include "libckpt/copy/far.h"
#include "libckpt/copy/io.h"

enum {
    FAR_END = 64 * 1024,     /* bytes of a file's beginning, and of its end, that come unasked */
    FAR_PIECE = 1024 * 1024, /* bytes of an answer, at most */
    FAR_ASKS = 64,           /* of one file, before it is opened here as well */
    FAR_OPEN = 32            /* files that the one who answers keeps open */
};

/* A question; behind it stands the path, without its end. */
typedef struct far_question {
    uint64_t at, n; /* n == 0: open it */
} far_question;

/* The answer to an opening; behind it stand the first bytes, then the last. */
typedef struct far_opened {
    uint64_t size;
    ckpt_identity id;
    uint64_t n_head, n_tail;
} far_opened;

typedef struct far_io {
    ckpt_io io; /* first */
    ckpt_team *team;
    unsigned owner;
    ckpt_letter *opened; /* what came with the opening */
    const uint8_t *head, *tail;
    uint64_t n_head, n_tail;
    unsigned n_asks;
    ckpt_io *here; /* opened here too: its headers are all over it */
    char path[];
} far_io;

/* ---- asking ---- */

static int far_ask(const far_io *f, uint64_t at, uint64_t n, ckpt_letter **out, ckpt_err *err)
{
    const far_question q = {.at = at, .n = n};
    ckpt_bytes b = {0};
    int rc = CKPT_OK;

    if (!ckpt_bytes_add(&b, &q, sizeof q) || !ckpt_bytes_add(&b, f->path, strlen(f->path)))
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = ckpt_team_ask(f->team, f->owner, b.at, b.n, out, err);
    ckpt_vec_free(&b);
    return rc;
}

/* One piece. */
static int far_piece(const far_io *f, uint8_t *to, uint64_t n, uint64_t at, ckpt_err *err)
{
    ckpt_letter *l = NULL;
    int rc = far_ask(f, at, n, &l, err);

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
    if (!f->here && f->n_asks++ >= FAR_ASKS)
        (void)ckpt_io_open_here(&f->here, f->path, NULL);
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

/* Look at what has come with the opening. */
static int far_understand(far_io *f, ckpt_err *err)
{
    far_opened o;
    const ckpt_letter *l = f->opened;

    if (l->n < sizeof o)
        return ckpt_fail(err, CKPT_EIO, "%s: rank %u has sent a short answer", f->path, f->owner);
    memcpy(&o, l->bytes, sizeof o);
    if (o.n_head > l->n || o.n_tail > l->n || l->n - sizeof o != o.n_head + o.n_tail ||
        o.n_head > o.size || o.n_tail > o.size)
        return ckpt_fail(err, CKPT_EIO, "%s: rank %u has sent a wrong answer", f->path, f->owner);
    f->io = (ckpt_io){
        .name = f->path, .size = o.size, .id = o.id, .read_at = far_read_at, .close = far_close};
    f->head = l->bytes + sizeof o;
    f->tail = f->head + o.n_head;
    f->n_head = o.n_head;
    f->n_tail = o.n_tail;
    return CKPT_OK;
}

/* FNV-1a: which process opens a file, the same for all. */
static unsigned far_owner(const ckpt_team *t, const char *path)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (; *path; path++)
        h = (h ^ (unsigned char)*path) * UINT64_C(0x100000001b3);
    return (unsigned)((h ^ h >> 32) % t->n);
}

int ckpt_io_open(ckpt_io **out, const char *path, ckpt_err *err)
{
    assert(out && path);
    ckpt_team *team = ckpt_team_now();
    unsigned owner = team ? far_owner(team, path) : 0;
    size_t n = strlen(path) + 1;
    far_io *f;
    int rc;

    if (!team || owner == team->rank)
        return ckpt_io_open_here(out, path, err);
    *out = NULL;
    f = ckpt_alloc(sizeof *f + n);
    if (!f)
        return ckpt_fail_memory(err);
    f->team = team;
    f->owner = owner;
    memcpy(f->path, path, n);
    rc = far_ask(f, 0, 0, &f->opened, err);
    if (rc == CKPT_OK)
        rc = far_understand(f, err);
    if (rc == CKPT_OK)
        *out = &f->io;
    else
        far_close(&f->io);
    return rc;
}

/* ---- answering ---- */

/* Files that were asked for; the clerk's own: one thread answers. */
static ckpt_io *far_files[FAR_OPEN];
static unsigned far_next;

/* A file that is open, or is opened now; anew: as it is now. */
static int far_file(ckpt_io **out, const char *path, bool anew, ckpt_err *err)
{
    ckpt_io **place = NULL;
    int rc;

    for (unsigned i = 0; i < FAR_OPEN && !place; i++) {
        if (far_files[i] && strcmp(far_files[i]->name, path) == 0)
            place = &far_files[i];
    }
    *out = place ? *place : NULL;
    if (place && !anew)
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

/* n bytes of a file behind what is in the answer already. */
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

int ckpt_far_answer(const ckpt_letter *question, ckpt_bytes *answer, ckpt_err *err)
{
    far_question q;
    ckpt_io *io = NULL;
    char *path;
    int rc;

    if (question->n < sizeof q)
        return ckpt_fail(err, CKPT_EIO, "a question of rank %u is too short", question->peer);
    memcpy(&q, question->bytes, sizeof q);
    path = ckpt_alloc(question->n - sizeof q + 1);
    if (!path)
        return ckpt_fail_memory(err);
    memcpy(path, question->bytes + sizeof q, question->n - sizeof q);
    rc = far_file(&io, path, q.n == 0, err);
    if (rc == CKPT_OK && q.n == 0)
        rc = far_answer_open(answer, io, err);
    else if (rc == CKPT_OK && q.n > FAR_PIECE)
        rc = ckpt_fail(err, CKPT_EIO, "%s: rank %u asks for too much", path, question->peer);
    else if (rc == CKPT_OK)
        rc = far_add(answer, io, q.n, q.at, err);
    ckpt_free(path);
    return rc;
}
