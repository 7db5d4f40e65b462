/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress.h: how far a run is, on stderr; and signals, which stop a run through its progress
 * callback.
 *
 * On a terminal one line is redrawn; elsewhere a line is printed at each tenth, at most one a
 * second, so that short runs leave logs alone.
 */
#ifndef TOOLS_PROGRESS_H
#define TOOLS_PROGRESS_H

#include "ckpt.h"

typedef struct progress {
    const char *label; /* "converting" */
    bool quiet;
    double start,
        last;       /* seconds of the monotonic clock: when it began, when a line was last shown */
    unsigned tenth; /* the last tenth that was reported */
    bool drawn;     /* a line stands on the terminal */
    /* bytes that the whole stands for, set by the caller; 0: those of the library */
    uint64_t size;
} progress;

/* From here to progress_end, SIGINT, SIGTERM and SIGHUP only set a flag, and runs must use opts. */
void progress_begin(progress *p, const char *label, bool quiet, ckpt_run_opts *opts);
void progress_end(progress *p);

/* The signal that arrived meanwhile, or 0. */
int progress_signal(void);

#endif
