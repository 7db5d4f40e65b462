/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sink_inside.h: defines the state of a sink, for sink.c and sink_files.c.
 */
#ifndef CKPT_COMMIT_SINK_INSIDE_H
#define CKPT_COMMIT_SINK_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>

#include "libckpt/commit/publish.h"
#include "libckpt/commit/resume.h"
#include "libckpt/commit/sink.h"

#define SINK_NAME  256                 /* a path part and its terminator */
#define SINK_LARGE (UINT64_C(1) << 20) /* files from this size on get their space at opening */

typedef struct sink_window {
    _Atomic uint64_t n; /* bytes written so far */
} sink_window;

/*
 * Windows of a file under write-back whose pages are to be dropped; the number limits the bytes
 * under way.
 */
#define SINK_LAG 8

typedef struct sink_file {
    const char *name; /* its final name, borrowed from the target map */
    uint64_t size;
    int fd;           /* -1: closed for now */
    unsigned n_users; /* writes in progress, during which it must stay open */
    uint64_t used_at; /* clock value of the last use */
    bool made, renamed;
    bool elsewhere;          /* another process writes it */
    bool written;            /* written since its last sync */
    bool unsynced;           /* new or written since its last sync */
    char *temp;              /* its name until commit; NULL: its own, in the staging folder */
    sink_window *window;     /* one for each SINK_WINDOW bytes of the file */
    uint64_t late[SINK_LAG]; /* windows under write-back, a ring */
    uint64_t n_late;         /* number of windows put into `late` so far */
} sink_file;

struct ckpt_sink {
    ckpt_sink_opts opts;
    const ckpt_map *target;
    ckpt_dir dir;
    ckpt_publish *stage; /* NULL: each file is published by itself */
    bool staged;         /* files already have their own names, in a staging folder */
    bool attached;       /* the files belong to another process's sink */
    ckpt_sink_how how;   /* only if attached */
    int at;              /* descriptor of the files' folder; borrowed from dir or stage */
    char *shown;         /* the path for messages */
    ckpt_kept *kept;     /* per file; only a staging folder has kept files */
    size_t n_kept;
    pthread_mutex_t lock; /* protects the descriptors */
    unsigned n_open, max_open;
    uint32_t *open; /* indexes of the open files; capacity: one for each file */
    uint64_t clock;
    size_t n;
    sink_file *file;
};

/* Close a file to make room for one more; create and open a file with its space. */
int sink_make_room(ckpt_sink *s, ckpt_err *err);
int sink_create(ckpt_sink *s, sink_file *f, ckpt_err *err);

/* Allocate the counters of a file that is made. */
bool sink_make_windows(sink_file *f);

/* fsync and close file i, once per file; several threads sync different files. */
int sink_sync(ckpt_sink *s, uint32_t i, ckpt_err *err);

/* Start write-back of several files before waiting for each of them. */
void sink_start_write_back(ckpt_sink *s, const ckpt_journal_entry *entry, size_t n);

#endif
