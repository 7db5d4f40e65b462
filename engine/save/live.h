/* SPDX-License-Identifier: Apache-2.0 */
/*
 * live.h: a run's memory as a checkpoint map: what saving reads.
 *
 * The map has every parameter of the model on every rank, so that all ranks lay out the same files;
 * only the runs that this rank holds are backed by memory, the rest is elsewhere
 * (CKPT_SOURCE_ELSEWHERE).
 */
#ifndef ZT_SAVE_LIVE_H
#define ZT_SAVE_LIVE_H

#include "engine/save/save.h"
#include "libckpt/map/state.h"

/* Working weights of one parameter: elements first .. first + count. */
typedef struct zt_low {
    void *at;          /* NULL: not here */
    zt_device *device; /* they are read where they are, in its memory; NULL: a copy, on the host */
    uint64_t first, count;
} zt_low;

/*
 * What of a run's state this rank can read.  What is not copied stays where it is, on a GPU too:
 * the map's sources read it piece by piece.
 */
typedef struct zt_image {
    zt_zero *zero;
    uint32_t n_held;                  /* partitions that zt_zero_hold has given, from the first */
    zt_device *home;                  /* in whose memory they are; NULL: copies, on the host */
    const float **master, **state[2]; /* per partition */
    zt_low *low;                      /* per parameter of the model */
    /* per parameter: all of a state that files do not cut; or NULL */
    float **whole;
    void **own; /* buffers of this image */
    size_t n_own, room;
} zt_image;

/*
 * Take it: partitions are held until the image is dropped, or copied to the host and given back at
 * once.  All ranks call it; they agree on the outcome.
 *
 * model  this rank writes model files that all ranks share: it needs all working weights
 */
int zt_image_take(zt_image *out, zt_zero *zero, bool model, bool copy, ckpt_err *err);
void zt_image_drop(zt_image *image);

/* The map of an image, with its training state (tree.c) where client is not NULL or with_state is
 * set.  Until it is freed the device of what is not copied is the map's readers' alone. */
int zt_live_map(ckpt_map **out, const zt_image *image, const ckpt_value *client, ckpt_err *err);

/* The state of a run for map->states: groups, the trees of a rank's files (engine/save/tree.c). */
int zt_live_state(ckpt_map *map, const zt_zero *zero, const ckpt_value *client, ckpt_err *err);

#endif
