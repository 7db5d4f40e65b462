/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sink_inside.h: the state of a sink, for sink.c and sink_files.c.
 */
#ifndef CKPT_COPY_SINK_INSIDE_H
#define CKPT_COPY_SINK_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>

#include "libckpt/copy/keep.h"
#include "libckpt/copy/publish.h"
#include "libckpt/copy/sink.h"

#define SINK_NAME  256                 /* a path part and its terminator */
#define SINK_LARGE (UINT64_C(1) << 20) /* files whose space is reserved early in any case */

typedef struct sink_window {
    _Atomic uint64_t n; /* bytes written so far */
} sink_window;

/*
 * Windows of a file that are written back and not waited for yet, where they are to be let go: so
 * much of each file is on its way at most.
 */
#define SINK_LAG 8

typedef struct sink_file {
    const char *name; /* final; borrowed from the target map */
    uint64_t size;
    int fd;           /* -1: closed for now */
    unsigned n_users; /* writes in progress: not to be closed */
    uint64_t used_at; /* clock of the last use */
    bool made, renamed;
    bool elsewhere;          /* another process writes it */
    bool written;            /* since its last sync */
    bool unsynced;           /* it is new, or was written, since its last sync */
    char *temp;              /* its name until commit; NULL: its own, in the staging folder */
    sink_window *window;     /* one for each SINK_WINDOW bytes of the file */
    uint64_t late[SINK_LAG]; /* windows that are written back, round and round */
    uint64_t n_late;         /* how many have been so far */
} sink_file;

struct ckpt_sink {
    ckpt_sink_opts opts;
    const ckpt_map *target;
    ckpt_dir dir;
    ckpt_publish *stage; /* NULL: files stand alone */
    bool staged;         /* files have their own names already, in a staging folder */
    bool attached;       /* they are another process's */
    ckpt_sink_how how;   /* of one that is attached */
    int at;              /* the folder that files are written to; borrowed from one of these */
    char *shown;         /* the path that messages name */
    ckpt_kept *kept;     /* per file; only in a staging folder is any of them kept */
    size_t n_kept;
    pthread_mutex_t lock; /* of the descriptors */
    unsigned n_open, max_open;
    uint32_t *open; /* indexes of the open files; room for n files */
    uint64_t clock;
    size_t n;
    sink_file *file;
};

/* Files that may be open at a time. */
unsigned sink_default_open(void);

/* Make room for one more open file; make a file, open, with its space. */
int sink_make_room(ckpt_sink *s, ckpt_err *err);
int sink_create(ckpt_sink *s, sink_file *f, ckpt_err *err);

/* Counters of what is written, for a file that is made. */
bool sink_make_windows(sink_file *f);

/* fsync and close file i, once per file; files are synced side by side. */
int sink_sync(ckpt_sink *s, uint32_t i, ckpt_err *err);

/* Let the disk begin with all of several files, before each of them is waited for. */
void sink_start_write_back(ckpt_sink *s, const ckpt_journal_entry *entry, size_t n);

#endif
