/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peers.h: all that a run knows of the other processes that do the same work together with this
 * one: a table of hooks, and the jobs and files that this process takes.
 *
 * libckpt/dist has the table for the processes of a team. ckpt_peers_alone is the table of a
 * process that works alone: its hooks exchange nothing. The hooks are collective unless they say
 * otherwise: all processes call them in the same order.
 */
#ifndef CKPT_RUN_PEERS_H
#define CKPT_RUN_PEERS_H

#include "libckpt/commit/sink.h"
#include "libckpt/copy/crc_ledger.h"
#include "libckpt/copy/work.h"

typedef struct ckpt_peer_hooks ckpt_peer_hooks;

/* This process's share in a file of the target. */
typedef enum ckpt_file_share {
    CKPT_FILE_HOME = 1,   /* it finishes the file (finish.h) */
    CKPT_FILE_SHARED = 2, /* several processes write the file */
    CKPT_FILE_COPIED = 4  /* one machine makes the file, and others copy it */
} ckpt_file_share;

typedef struct ckpt_peers {
    const ckpt_peer_hooks *hooks;
    const ckpt_plan *plan;      /* NULL: the processes read a map together, and share no plan */
    ckpt_map *map;              /* has the findings that the processes exchange */
    size_t n_told;              /* findings of the map that all processes have */
    unsigned rank, n;           /* n is 1 without other processes */
    bool leads;                 /* this process creates outputs: for all, or for its machine */
    bool decided;               /* the last agree had the same result on all of several processes */
    size_t n_machines;          /* that get outputs; 0: outputs are not spread over machines */
    uint64_t n_copies;          /* bytes of all copies of files */
    uint8_t *file;              /* per file of the plan's target: ckpt_file_share */
    uint8_t *elsewhere;         /* per file: 1 if this machine does not get it; NULL: it gets all */
    const ckpt_job_range *jobs; /* the jobs of this process */
    size_t n_jobs;              /* ranges */
    ckpt_job_range every;       /* jobs of a process without others */
    void *state;                /* of the hooks */
} ckpt_peers;

/* A part of an array that each process has; the parts are in the order of ranks, without gaps. */
typedef struct ckpt_peer_part {
    void *array;
    size_t size;       /* bytes of an element */
    size_t first, end; /* elements of this process */
    size_t n;          /* elements */
} ckpt_peer_part;

/* Results to combine; zeros are not exchanged. */
typedef struct ckpt_results {
    bool messages; /* at the end of a run: the numbers of messages and bytes (ckpt_team_member) */
    bool findings; /* since the last time, so that all have them in the order of ranks */
    uint64_t *sum; /* n_sum counters to add up */
    size_t n_sum;
    ckpt_work *work; /* the tallies of its target's tensors, and the first mismatch */
    /* CRCs of stretches; each process gets those of the records that it must check, or all */
    ckpt_segments *read;
    bool read_all;
    ckpt_peer_part part; /* all get the whole array */
} ckpt_results;

/* Reads complete outputs at `where`; NULL: the caller does not read them by their path. */
typedef int (*ckpt_look_fn)(void *ctx, const char *where, ckpt_err *err);

struct ckpt_peer_hooks {
    /*
     * Check that all processes have the same plan, or the same map, and divide the jobs; ckpt_peers
     * has plan and map.
     *
     * Errors  CKPT_EMISMATCH: they have not
     */
    int (*begin)(ckpt_peers *p, ckpt_err *err);

    /* Release memory. No process can record files any more. Not collective. */
    void (*end)(ckpt_peers *p);

    /* All return the result of the lowest process that failed. */
    int (*agree)(ckpt_peers *p, int rc, ckpt_err *err);

    int (*exchange)(ckpt_peers *p, const ckpt_results *r, ckpt_err *err);

    /* Open *sink, which the leader has opened, for writing in the other processes. */
    int (*outputs)(ckpt_peers *p, ckpt_sink **sink, const char *folder, const ckpt_sink_opts *opts,
                   ckpt_err *err);

    /*
     * Sync this process's parts of shared files, and send their checksums to the process that
     * finishes the file.
     *
     * seg   per file: what this process has written
     * mine  gets the segments of all processes for the files that this one finishes
     */
    int (*give)(ckpt_peers *p, ckpt_work *work, ckpt_segments *seg, ckpt_segments *mine,
                ckpt_err *err);

    /*
     * Copy finished files (CKPT_FILE_COPIED) to the other machines that need them.
     *
     * crc        per file of the target: its CRC-32, where this process has finished it
     * n_written  increased by the bytes that this process has written
     */
    int (*copy)(ckpt_peers *p, ckpt_work *work, const uint32_t *crc, unsigned n_workers,
                uint64_t *n_written, ckpt_err *err);

    /*
     * Call fn on the complete outputs: in all processes if the outputs are spread, and then as on
     * one folder; else only the leader calls this.
     *
     * where  the leader's path of the outputs, or NULL; fn is not called if leaders have different
     *        paths, because an earlier run was killed while it gave names: it had checked its
     *        outputs before
     * rc     the result so far: fn is not called after a failure
     */
    int (*look)(ckpt_peers *p, const char *where, int rc, ckpt_look_fn fn, void *ctx,
                ckpt_err *err);

    /* Call fn without the other processes. Not collective. */
    int (*apart)(ckpt_look_fn fn, void *ctx, ckpt_err *err);
};

extern const ckpt_peer_hooks ckpt_peers_alone;

/* Call begin of a table; NULL: ckpt_peers_alone. The caller must call p->hooks->end in any case. */
int ckpt_peers_begin(ckpt_peers *p, const ckpt_peer_hooks *hooks, ckpt_err *err);

#endif
