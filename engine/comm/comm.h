/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm.h: the processes of a run and what they exchange: one table of collective operations per
 * kind of network.
 *
 * All ranks call the same operations in the same order.  Buffers are device pointers where the
 * communicator says so (`device`), else host memory.  Operations on device pointers come after what
 * the device was told before, and before what it is told after: nobody has to wait for the device,
 * and results are there for its next operation, not for the host.  Counts are elements.  16-bit
 * sums are formed in fp32 from all ranks' values, in rank order, and rounded once, whatever the
 * algorithm: results depend neither on timing nor on the message's size.  NCCL alone differs: it
 * adds along its own path and rounds 16-bit sums at every hop (cuda/nccl.c).
 *
 * Errors are values: CKPT_EIO with the rank and the operation.  A rank that fails calls abort,
 * which ends all ranks within seconds with its text; a rank that dies is noticed by the others
 * (within 30 s) and named.  Who notices what is told in mpi.c.  Wrong arguments (CKPT_EUSAGE,
 * EUNSUPPORTED, ELIMIT) are refused before anything is sent.
 */
#ifndef ZT_COMM_COMM_H
#define ZT_COMM_COMM_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/device/device.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/err.h"

typedef struct zt_comm zt_comm;

typedef enum zt_reduce { ZT_SUM, ZT_MAX, ZT_MIN } zt_reduce;

/*
 * Bytes that this rank has sent to others and received from them since the communicator was made;
 * what goes to several ranks counts for each of them.  Tensors: fp32, fp16, bf16, and bytes but for
 * broadcasts; words: what ranks tell each other beside them (integers, fp64, broadcasts).
 */
typedef struct zt_traffic {
    uint64_t sent, received;             /* tensors */
    uint64_t words_sent, words_received; /* the rest */
} zt_traffic;

#define ZT_COMM_PENDING 8

typedef struct zt_collective {
    enum { ZT_REDUCE_SCATTER, ZT_ALL_GATHER } kind;
    void *to;
    const void *from;
    uint64_t n;
    ckpt_dtype dt;
} zt_collective;

typedef struct zt_comm_ops {
    const char *name; /* "self", "mpi", "nccl" */

    /* dtype: F32, F64, F16, BF16, I32, I64, U8 (U8: gather, broadcast) */
    int (*all_reduce)(zt_comm *c, void *x, uint64_t n, ckpt_dtype dt, zt_reduce op, ckpt_err *err);
    /*
     * to [n] = sum over ranks of their from[rank * n .. ); from [world * n]; to may be from + rank
     * * n.
     */
    int (*reduce_scatter)(zt_comm *c, void *to, const void *from, uint64_t n, ckpt_dtype dt,
                          ckpt_err *err);
    /* to [world * n] = from [n] of all ranks in order; from may be to + rank * n. */
    int (*all_gather)(zt_comm *c, void *to, const void *from, uint64_t n, ckpt_dtype dt,
                      ckpt_err *err);
    /* x [n] of root = sum over ranks of their x [n], which the others keep. */
    int (*reduce)(zt_comm *c, void *x, uint64_t n, ckpt_dtype dt, int root, ckpt_err *err);
    int (*broadcast)(zt_comm *c, void *x, uint64_t n_bytes, int root, ckpt_err *err);
    /* to [world * n]: part r is what rank r has for this one; from [world * n]; bytes. */
    int (*all_to_all)(zt_comm *c, void *to, const void *from, uint64_t n_bytes, ckpt_err *err);
    int (*barrier)(zt_comm *c, ckpt_err *err);

    /*
     * Begin a reduce_scatter or all_gather that goes on while the caller computes; buffers stay
     * untouched until wait.  At most ZT_COMM_PENDING are under way; wait completes the oldest
     * first.  A communicator may do it all in wait.
     */
    int (*start)(zt_comm *c, const zt_collective *what, ckpt_err *err);
    int (*wait)(zt_comm *c, ckpt_err *err);

    /*
     * Memory that this communicator moves best (a device's, registered with NCCL): 64-byte aligned;
     * NULL when there is none.  Each rank for itself: other ranks need not allocate the same, nor
     * at the same time.
     */
    void *(*alloc)(zt_comm *c, uint64_t n_bytes);
    void (*release)(zt_comm *c, void *p);

    /* End the whole job; text is printed once with this rank's number.  Does not return. */
    void (*abort)(zt_comm *c, int status, const char *text);
    void (*free)(zt_comm *c);
} zt_comm_ops;

struct zt_comm {
    const zt_comm_ops *ops;
    int rank, world;             /* over all processes */
    int local_rank, local_world; /* among those of this node */
    const char *host;            /* name of this node */
    zt_device *device;           /* buffers are its pointers; NULL: host memory */
    const zt_traffic *traffic;   /* so far; NULL: not counted (NCCL's own paths are its secret) */
};

/* One process. */
int zt_comm_self(zt_comm **out, ckpt_err *err);

/*
 * The processes that mpirun or srun started (MPI_Init is called here, MPI_Finalize by free).
 *
 * Errors  CKPT_EUNSUPPORTED: built without MPI; CKPT_EIO
 */
int zt_comm_mpi(zt_comm **out, ckpt_err *err);

/*
 * The processes of `base`, exchanging the memory of `device` through bounded buffers of the host:
 * for several ranks on one GPU, and what NCCL is compared with.  base stays the caller's and
 * outlives the result.
 */
int zt_comm_staged(zt_comm **out, zt_comm *base, zt_device *device, ckpt_err *err);

/*
 * True if this process was started by an MPI launcher as one of several (from its environment;
 * nothing is called).
 */
bool zt_comm_launched(void);

/*
 * Whether what launchers leave in the environment fits the processes that MPI has, or this one
 * alone.  torchrun, srun without PMI and others start several processes that MPI knows nothing of:
 * they would be as many runs, each over the same files.
 *
 * launching  this process is about to start mpirun itself
 * Errors     CKPT_EUSAGE: the variable, and how to start the run
 */
int zt_comm_alone(bool launching, ckpt_err *err);

void zt_comm_free(zt_comm *c); /* NULL is fine */

/*
 * Agree on an outcome: every rank passes its own code; if any failed, all get the code and text of
 * the lowest rank that did.  What every step that may fail on one rank alone (opening files,
 * memory) ends with.
 */
int zt_comm_agree(zt_comm *c, int rc, ckpt_err *err);

/*
 * What must be equal on all ranks, as lines of a name, a tab and a value: digests are exchanged,
 * and rank 0's text where they differ (same.c).  text NULL: this rank had no memory for it.
 *
 * Errors  CKPT_EMISMATCH: what differs, on which rank, both values; the same on all ranks
 */
int zt_comm_same(zt_comm *c, const char *text, ckpt_err *err);

#endif
