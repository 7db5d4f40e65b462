/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress.h: declares the progress display on stderr, and signals, which stop a run through its
 * progress callback.
 *
 * On a terminal one line is redrawn.  Otherwise a line is printed at each tenth, at most one per
 * second, so short runs leave no lines in logs.
 */
#ifndef TOOLS_PROGRESS_H
#define TOOLS_PROGRESS_H

#include "ckpt.h"

typedef struct progress {
    const char *label; /* "converting" */
    bool quiet;
    double start, last; /* seconds of the monotonic clock: the start, and the last printed line */
    unsigned tenth;     /* last reported tenth */
    bool drawn;         /* the terminal has a line */
    /* total bytes to display, set by the caller; 0: the library's */
    uint64_t size;
} progress;

/* Until progress_end, SIGINT, SIGTERM and SIGHUP only set a flag, so runs must use opts. */
void progress_begin(progress *p, const char *label, bool quiet, ckpt_run_opts *opts);
void progress_end(progress *p);

/* The signal that arrived since then, or 0. */
int progress_signal(void);

#endif
