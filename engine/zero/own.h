/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own.h: declares the internals that the files of this folder share; only they may include it.
 *
 * zt_zero.own is a zr_own.  A stage is a table (zr_stage): flat.c implements stages 0, 1, 2,
 * sharded.c stage 3.  The chain of layers (pass.c) calls hold before and leave after every layer;
 * the optimizer step (zero.c) calls reduce, updates every partition, then calls publish.
 */
#ifndef ZT_ZERO_OWN_H
#define ZT_ZERO_OWN_H

#include <assert.h>

#include "engine/zero/zero.h"

#define ZR_NONE UINT32_MAX

/* The location of a parameter. */
typedef struct zr_place {
    uint32_t group, part; /* ZR_NONE: frozen */
    uint32_t first, last; /* layers that use it; ZR_NONE: no layer does */
    uint64_t at;          /* flat: element in its group; stage 3: element in the partition */
    uint64_t chunk;       /* stage 3: elements per rank */
    bool persistent;      /* stage 3: is always gathered */
} zr_place;

/*
 * Factors of the mean over ranks; factors of 1 are skipped.  `fold` is applied together with the
 * update if delaying the division changes no rounding.
 */
typedef struct zr_average {
    float source;    /* factor on gradients in their own dtype, before the cast */
    float before[2]; /* factors in the communication dtype, before the sum */
    float after;     /* factor in the communication dtype, after the sum */
    float fold;
} zr_average;

/* Buffers for the activations of one micro batch; they grow and never shrink. */
typedef struct zr_chain {
    void *x, *tape, *grad, *scratch;
    uint64_t x_bytes, tape_bytes, grad_bytes, scratch_bytes; /* allocated */
    uint64_t row_bytes; /* bytes of one layer's output, rounded up to 64 */
    uint64_t *tape_at;  /* offset of each layer's tape; n_layers + 1 */
    void *inputs;       /* copy of a micro batch on devices that cannot read host memory */
    uint64_t inputs_bytes;
} zr_chain;

typedef struct zr_stage {
    int (*setup)(zt_zero *z, ckpt_err *err);
    void (*free)(zt_zero *z);
    /* Called before and after a layer's forward or backward computation. */
    int (*hold)(zt_zero *z, uint32_t layer, bool backward, ckpt_err *err);
    int (*leave)(zt_zero *z, uint32_t layer, bool backward, ckpt_err *err);
    int (*begin)(zt_zero *z, ckpt_err *err); /* start of a micro step that trains */
    int (*end)(zt_zero *z, ckpt_err *err);
    int (*reduce)(zt_zero *z, ckpt_err *err);  /* part[].grad * fold becomes the mean */
    int (*publish)(zt_zero *z, ckpt_err *err); /* send this rank's updated weights to all ranks */
    /* Address of those elements of a parameter's working weights that this rank must fill. */
    void *(*low)(zt_zero *z, uint32_t param, uint64_t *first, uint64_t *count);
    /* A parameter's working weights, complete; valid until the next call into the runtime. */
    int (*whole)(zt_zero *z, uint32_t param, const void **out, ckpt_err *err);
} zr_stage;

extern const zr_stage zr_flat_stage;
extern const zr_stage zr_sharded_stage;

typedef struct zr_block {
    void *p;
    zt_device *of; /* NULL: memory of the communicator */
} zr_block;
CKPT_VEC(zr_blocks, zr_block);

typedef enum zr_wrapper {
    ZR_BARE, /* stage 0, fp32 */
    ZR_FP16, /* stage 0, 16-bit */
    ZR_BF16, /* stage 1, bf16 with fp32 accumulation */
    ZR_ZERO12,
    ZR_ZERO3
} zr_wrapper;

struct zr_flat;
struct zr_sharded;
struct zr_files;
struct zr_home;

typedef struct zr_own {
    zt_zero_opts opts;
    zr_wrapper wrapper;
    const zr_stage *stage;
    zr_place *place; /* [parameters of the model] */
    zt_owned *owned;
    size_t n_owned;
    zr_average average;
    void *cast;            /* average.c: buffer for gradients in the communication dtype */
    ckpt_dtype grad_dtype; /* dtype of part[].grad */
    bool alias;            /* fp32: masters are the working weights */
    bool training;         /* the current pass trains */
    bool failed;           /* an allocation failed */
    zr_blocks blocks;
    zr_chain chain;
    zt_memory memory;
    zt_device
        /*
         * holds masters and state: the training device, or, if that is a GPU, possibly the CPU
         * device
         */
        *home;
    struct zr_home *homes; /* offload to the CPU device; NULL: `home` is the training device */
    zt_onebit **onebit;    /* one per group */
    struct zr_flat *flat;
    struct zr_sharded *sharded;
    struct zr_files *files; /* offload to files; NULL: none */
    bool swapped;           /* masters and state are in files */
    bool mapped;            /* partitions of weights are in files */
} zr_own;

static inline zr_own *zr_of(const zt_zero *z)
{
    return z->own;
}

/* Bytes of n elements of one of the three dtypes of training. */
static inline uint64_t zr_bytes(ckpt_dtype dt, uint64_t n)
{
    assert(dt == CKPT_F32 || dt == CKPT_F16 || dt == CKPT_BF16);
    return n * (dt == CKPT_F32 ? 4u : 2u);
}

/* The code of the failure in err, which callers may leave NULL. */
static inline int zr_code(const ckpt_err *err)
{
    return err && err->code != CKPT_OK ? err->code : CKPT_ELIMIT;
}

/*
 * Call before a collective: a communicator over host memory reads the results of the device, which
 * must be finished.  A communicator over device memory is ordered behind them anyway.
 */
static inline void zr_ready(zt_zero *z)
{
    if (!z->wire->device)
        z->device->ops->sync(z->device);
}

static inline void *zr_at(void *p, ckpt_dtype dt, uint64_t element)
{
    return (char *)p + zr_bytes(dt, element);
}

/*
 * Allocate zeroed memory for the lifetime of the runtime, and count it in *count.  travels: it is
 * sent to other ranks.  If no memory is left, returns NULL and sets own->failed: callers continue,
 * so zt_zero_new fails on all ranks together.
 */
void *zr_alloc(zt_zero *z, uint64_t n_bytes, uint64_t *count, bool travels);
/* The same for masters and state, which never travel, in the memory of own->home. */
void *zr_alloc_home(zt_zero *z, uint64_t n_bytes, uint64_t *count);
void zr_free_blocks(zt_zero *z); // frees all blocks

/* groups.c */
int zr_groups_new(zt_zero *z, ckpt_err *err);
zt_hyper zr_settings(const zt_zero *z, uint32_t group); /* hyper-parameters before any schedule */
bool zr_is_trained(const zt_zero *z, uint32_t param);

/* average.c: sums over ranks */
void zr_average_plan(zt_zero *z);
int zr_sum(zt_zero *z, void *x, ckpt_dtype dt, uint64_t n, int root, ckpt_err *err);
int zr_sum_scatter(zt_zero *z, void *x, ckpt_dtype dt, uint64_t slice, ckpt_err *err);
void zr_scale(zt_zero *z, ckpt_dtype dt, uint64_t n, void *x, float factor);

/* zero.c: hyper-parameters of update 0 */
int zr_rates_begin(zt_zero *z, ckpt_err *err);

/* update.c: step all partitions, with gradients multiplied by g_scale */
int zr_update(zt_zero *z, float g_scale, ckpt_err *err);
int zr_update_initial(zt_zero *z, ckpt_err *err);
/* Step a piece of partition i; all its pointers must be memory of device d. */
int zr_update_piece(zt_zero *z, zt_device *d, uint32_t i, const zt_piece *piece, ckpt_err *err);
/* Working weights that partition i must write after its masters; NULL: the masters are the weights,
 * or this rank's part is all padding. */
void *zr_low(zt_zero *z, uint32_t i);

/* muon.c: replace gradients of matrices, multiplied by g_scale, by Muon's directions */
int zr_muon(zt_zero *z, float g_scale, ckpt_err *err);
bool zr_has_muon(const zt_zero *z);

/*
 * home.c: owns the memory of masters and state if that is not the device's.  Call new before any
 * allocation, ready once partitions exist, stop before memory is freed, free after that.
 */
int zr_home_new(zt_zero *z, ckpt_err *err);
int zr_home_ready(zt_zero *z, ckpt_err *err);
void zr_home_stop(zt_zero *z);
void zr_home_free(zt_zero *z);
/* True if masters and state are not in the device's memory. */
bool zr_is_home(const zt_zero *z);
/* Update partition i, with gradients and weights on the device, masters and state at home. */
int zr_home_update(zt_zero *z, uint32_t part, const zt_piece *piece, ckpt_err *err);
/* Copy masters from n working weights, and back. */
void zr_masters_read(zt_zero *z, float *master, const void *low, uint64_t n);
void zr_masters_write(zt_zero *z, void *low, const float *master, uint64_t n);

/* pass.c */
int zr_chain_new(zt_zero *z, ckpt_err *err);
void zr_chain_free(zt_zero *z);

/*
 * offload.c: keeps masters and state in files; partition i's are in memory between bring and
 * put_back.  Call ready once partitions exist; settle waits until pending writes are done.
 */
int zr_files_new(zt_zero *z, ckpt_err *err);
int zr_files_ready(zt_zero *z, ckpt_err *err);
void zr_files_free(zt_zero *z);
int zr_bring(zt_zero *z, uint32_t part, ckpt_err *err);
int zr_put_back(zt_zero *z, uint32_t part, bool changed, ckpt_err *err);
int zr_settle(zt_zero *z, ckpt_err *err);
/* Zeroed memory, mapped from a file that id names, for weights; NULL: an error.  cool: let its
 * pages leave memory. */
void *zr_files_low(zt_zero *z, uint64_t n_bytes, uint32_t id, ckpt_err *err);
void zr_files_cool(zt_zero *z);

#endif
