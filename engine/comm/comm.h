/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm.h: declares communicators: one table of collective operations for each kind of network.
 *
 * All ranks must call the same operations in the same order.  Buffers are device pointers if the
 * communicator has a `device`, otherwise host memory.  Operations on device pointers are queued:
 * they run after the work that the device already has and before later work, so the host does not
 * wait, and the results are ready for the device's next operation, not for the host.  Counts are
 * elements.  16-bit sums add the values of all ranks in fp32, in rank order, and round once, so
 * results depend neither on timing nor on the size of a message.  NCCL alone differs: it adds in
 * the order of its own ring or tree, and rounds 16-bit sums at every hop (cuda/nccl.c).
 *
 * Failures are return values: CKPT_EIO with the rank and the operation.  A rank that fails calls
 * abort, which ends all ranks within seconds and prints its text.  The other ranks notice a rank
 * that died within 30 s and name it; mpi.c explains which processes notice this.  Wrong arguments
 * (CKPT_EUSAGE, EUNSUPPORTED, ELIMIT) are refused before any byte is sent.
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
 * Bytes that this rank has sent and received since the communicator was made; a message to several
 * ranks counts once for each of them.  Tensors: fp32, fp16, bf16, and bytes outside broadcasts.
 * Words: control data other than tensors (integers, fp64, broadcasts).
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
    /*
     * Exchange bytes: part r of `to` [world * n] becomes the part of rank r's `from` [world * n]
     * that is for this rank.
     */
    int (*all_to_all)(zt_comm *c, void *to, const void *from, uint64_t n_bytes, ckpt_err *err);
    int (*barrier)(zt_comm *c, ckpt_err *err);

    /*
     * Begin a reduce_scatter or all_gather that goes on while the caller computes; buffers stay
     * untouched until wait.  At most ZT_COMM_PENDING are under way; wait completes the oldest
     * first.  A communicator may do all the work in wait.
     */
    int (*start)(zt_comm *c, const zt_collective *what, ckpt_err *err);
    int (*wait)(zt_comm *c, ckpt_err *err);

    /*
     * Memory that this communicator can send fastest (device memory registered with NCCL), 64-byte
     * aligned, or NULL. The call is local: other ranks need not allocate at the same time, nor the
     * same amount.
     */
    void *(*alloc)(zt_comm *c, uint64_t n_bytes);
    void (*release)(zt_comm *c, void *p);

    /* End the whole job; text is printed once with this rank's number.  Does not return. */
    void (*abort)(zt_comm *c, int status, const char *text);
    void (*free)(zt_comm *c);
} zt_comm_ops;

struct zt_comm {
    const zt_comm_ops *ops;
    int rank, world;             /* number and count of all processes */
    int local_rank, local_world; /* number and count among the processes of this node */
    const char *host;            /* name of this node */
    zt_device *device;           /* its memory holds the buffers; NULL: host memory */
    const zt_traffic *traffic;   /* so far; NULL: not counted (NCCL does not report its traffic) */
};

/* A communicator of one process. */
int zt_comm_self(zt_comm **out, ckpt_err *err);

/*
 * A communicator of the processes that mpirun or srun started.  Calls MPI_Init; free calls
 * MPI_Finalize.
 *
 * Errors  CKPT_EUNSUPPORTED: built without MPI; CKPT_EIO
 */
int zt_comm_mpi(zt_comm **out, ckpt_err *err);

/*
 * A communicator that exchanges the memory of `device` between the processes of `base`, through
 * bounded host buffers.  Several ranks on one GPU need it, because NCCL refuses them; tests compare
 * NCCL with it.  base stays the caller's and must outlive the result.
 */
int zt_comm_staged(zt_comm **out, zt_comm *base, zt_device *device, ckpt_err *err);

/*
 * True if the environment shows that an MPI launcher started this process as one of several.  Calls
 * no MPI function.
 */
bool zt_comm_launched(void);

/*
 * Check that the launcher's environment variables agree with the number of MPI processes (1 without
 * MPI). torchrun, srun without PMI and others start several processes without MPI; each would be a
 * run of its own and write the same files.
 *
 * launching  this process is about to start mpirun itself
 * Errors     CKPT_EUSAGE: the variable, and how to start the run
 */
int zt_comm_alone(bool launching, ckpt_err *err);

void zt_comm_free(zt_comm *c); /* NULL is fine */

/*
 * Agree on an outcome.  Every rank passes its own code; if any rank failed, all get the code and
 * text of the lowest rank that failed.  Call it after every step that can fail on one rank alone
 * (opening files, allocating), because otherwise the other ranks wait in the next collective.
 */
int zt_comm_agree(zt_comm *c, int rc, ckpt_err *err);

/*
 * Check that all ranks have the same text: lines of a name, a tab and a value.  Ranks exchange
 * digests, and rank 0's text if the digests differ (same.c). text NULL: this rank had no memory for
 * it.
 *
 * Errors  CKPT_EMISMATCH: the first name that differs, the ranks, both values; the same on all
 *         ranks
 */
int zt_comm_same(zt_comm *c, const char *text, ckpt_err *err);

#endif
