/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside.h: what a run consists of, for the files of this folder.
 */
#ifndef ZT_INSIDE_H
#define ZT_INSIDE_H

#include "engine/data/data.h"
#include "engine/engine.h"
#include "engine/save/save.h"

struct zt_engine {
    const zt_options *opts;
    ckpt_arena *arena;
    zt_comm *comm;
    zt_device *device;
    zt_comm *wire; /* of a GPU's memory; NULL: the device is the host, or this rank is alone */
    unsigned char gpu[16]; /* its identity */
    unsigned threads;      /* of this rank, on the processor */
    zt_config config;
    zt_model_config model_config;
    zt_model *model;
    zt_zero *zero;
    zt_data *data, *eval_data;
    zt_saver *saver;
    zt_loaded loaded;
    const char *vocab; /* of text; NULL: none */
    bool lower_case;
    const char *init;         /* first weights; NULL: drawn, or those of --load alone */
    const char *drawn;        /* why they are drawn; NULL: they are not */
    bool drawn_warns;         /* other weights may have been meant */
    size_t n_drawn;           /* parameters that init lacks */
    uint64_t batch_size, seq; /* micro batch, tokens of a sample */
    int64_t total_steps;      /* updates of the whole run */
    double seconds[ZT_T_COUNT];
    zt_traffic traffic; /* of zt_engine_step */
    int64_t made;       /* calls of it that ended well */
};

/*
 * first.c: where first weights come from (e->init, e->drawn); putting them in place, and those of
 * --load over them.  All ranks call zt_first_fill.
 *
 * Errors  CKPT_EUSAGE: --evaluate or --predict without weights; those of zt_load_initial, zt_load
 */
int zt_first_choose(zt_engine *e, ckpt_err *err);
int zt_first_fill(zt_engine *e, ckpt_err *err);

/* The folder of --model, or that of its file; *named: the folder itself was given.  NULL: memory.
 */
const char *zt_model_folder(zt_engine *e, bool *named);

/*
 * agree.c: options, configuration, model and data are the same on all ranks.
 *
 * Errors  CKPT_EMISMATCH: what differs, on which rank, both values
 */
int zt_agree_start(const zt_engine *e, ckpt_err *err);

#endif
