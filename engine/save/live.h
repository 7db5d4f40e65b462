/* SPDX-License-Identifier: Apache-2.0 */
/*
 * live.h: declares a run's memory as a checkpoint map, which saving reads.
 *
 * The map has every parameter of the model on every rank, so all ranks lay out the same files.
 * Only the runs that this rank holds are backed by memory; the rest is on other ranks
 * (CKPT_SOURCE_ELSEWHERE).
 */
#ifndef ZT_SAVE_LIVE_H
#define ZT_SAVE_LIVE_H

#include "engine/save/save.h"
#include "libckpt/map/state.h"

/* Working weights of one parameter: elements first .. first + count. */
typedef struct zt_low {
    void *at; /* the weights; NULL: this rank has none of them */
    /* the device that has them in its memory; NULL: they are a copy on the host */
    zt_device *device;
    uint64_t first, count;
} zt_low;

/*
 * The part of a run's state that this rank can read.  Parts that are not copied stay in the run's
 * memory, possibly on a GPU: the map's sources read them piece by piece.
 */
typedef struct zt_image {
    zt_zero *zero;
    uint32_t n_held; /* number of partitions that zt_zero_hold keeps in memory for this image */
    zt_device *home; /* device memory of the arrays; NULL: copies on the host */
    const float **master, **state[2]; /* per partition */
    zt_low *low;                      /* per parameter of the model */
    /* per parameter: optimizer state that files do not divide over ranks (Muon's); or NULL */
    float **whole;
    void **own; /* buffers of this image */
    size_t n_own, room;
} zt_image;

/*
 * Take an image.  Partitions are held until the image is dropped, or (copy) copied to the host and
 * released at once.  All ranks must call it; they agree on the outcome.
 *
 * model  this rank writes the model files that all ranks share, so it needs all working weights
 */
int zt_image_take(zt_image *out, zt_zero *zero, bool model, bool copy, ckpt_err *err);
void zt_image_drop(zt_image *image);

/* The map of an image, with its training state (tree.c) if client is not NULL or with_state is set.
 * While it exists, only its readers may use the device of parts that are not copied. */
int zt_live_map(ckpt_map **out, const zt_image *image, const ckpt_value *client, ckpt_err *err);

/* Fill map->states with a run's state: groups, and the values of a rank's files (tree.c). */
int zt_live_state(ckpt_map *map, const zt_zero *zero, const ckpt_value *client, ckpt_err *err);

#endif
