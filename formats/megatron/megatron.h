/* SPDX-License-Identifier: Apache-2.0 */
/*
 * megatron.h: what the files of the driver for Megatron-LM's checkpoints share.  Not for anyone
 * else.
 *
 *     folder.c    from what the user named to the folder of one iteration
 *     names.c     what a name says: layers, experts, weight decay, optimizer state
 *     state.c     the training state: groups, masters, moments, step counts
 *     megatron.c  the driver: torch_dist folders
 *
 * A run, as Megatron-LM with Megatron-Core leaves it:
 *
 *     latest_checkpointed_iteration.txt   "3", or "release"
 *     iter_0000003/, or release/          one checkpoint
 *         metadata.json                   written last: without it the save did not finish
 *         common.pt                       what is not sharded: arguments, groups, scheduler
 *         .metadata, *.distcp             a distributed checkpoint of PyTorch (formats/dcp)
 *
 * Layers that are alike are stacked: "decoder.layers.mlp.linear_fc1.weight" has all of them along
 * its first axis.
 */
#ifndef CKPT_FORMATS_MEGATRON_H
#define CKPT_FORMATS_MEGATRON_H

#include "formats/dcp/dcp.h"

#define CKPT_MEG_TRACKER "latest_checkpointed_iteration.txt"
#define CKPT_MEG_COMMON  "common.pt"
#define CKPT_MEG_DONE    "metadata.json"

/* What every step of the reader is handed. */
typedef struct ckpt_meg_job {
    ckpt_map *map;            /* its path is the iteration's folder */
    const ckpt_listing *list; /* of that folder */
    const ckpt_open_opts *opts;
    const ckpt_map *common; /* common.pt, which the map owns; NULL: it is not there */
    const ckpt_value *root; /* its tree, a DICT, or NULL */
    ckpt_err *err;
} ckpt_meg_job;

/* ---- folder.c ---- */

/* The listing is of a folder with one checkpoint: torch_dist, whole or not. */
bool ckpt_meg_is_dist(const ckpt_listing *list);

/* A folder's name is that of an iteration: "iter_" and digits. */
bool ckpt_meg_is_iter(const char *name);

/*
 * Go down to the folder of one iteration: by the tag, by the tracker file, or because it is one.
 *
 * list    in: what was named; out: the iteration's
 * Errors  CKPT_EMISSING: there is none of that name, or nothing says which; CKPT_EFORMAT: a
 *         tracker file that names no iteration; CKPT_EUNSAFE: one that names another place
 */
int ckpt_meg_find(ckpt_map *map, ckpt_listing *list, const ckpt_open_opts *opts, ckpt_err *err);

/* ---- names.c ---- */

/* What items of a torch_dist checkpoint are (ckpt_dcp_roles_fn). */
int ckpt_meg_roles(ckpt_dcp_role *out, const ckpt_dcp_metadata *m, ckpt_arena *arena,
                   ckpt_err *err);

/* A parameter of experts that are spread over ranks. */
bool ckpt_meg_is_expert(const char *name);

/* Axes that stacking has put before a parameter's own: layers, experts. */
uint32_t ckpt_meg_stacked(const char *name);

/* ---- state.c ---- */

/*
 * Make the training state of a map that was read with its optimizer: fp32 masters become the
 * weights, with the model's as their copies.  Where there is none, or none that can be told, the
 * map's no_state says why.
 *
 * Errors  CKPT_EFORMAT: values of another kind than Megatron's; CKPT_ELIMIT
 */
int ckpt_meg_state(ckpt_meg_job *job);

#endif
