/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optim.h: declares optimizers, learning rate schedules and the loss scaler, with the settings and
 * defaults of DeepSpeed 0.19.8.
 *
 * Optimizers work on flat fp32 pieces.  Any division of parameters is possible, because all are
 * element-wise except LAMB, whose norms are per piece.  The device computes elements (zt_update);
 * this code computes the numbers of each step.
 */
#ifndef ZT_OPTIM_OPTIM_H
#define ZT_OPTIM_OPTIM_H

#include "engine/device/device.h"
#include "libckpt/base/mem.h"
#include "libckpt/map/value.h"

typedef enum zt_optim_type {
    ZT_OPT_ADAM,
    ZT_OPT_ADAMW,
    ZT_OPT_SGD,
    ZT_OPT_ADAGRAD,
    ZT_OPT_LION,
    ZT_OPT_LAMB,
    ZT_OPT_ONEBIT_ADAM,
    ZT_OPT_MUON
} zt_optim_type;

/*
 * Settings that may differ between parameter groups.  Checkpoints keep them in param_groups, from
 * which a resumed run takes them.  Schedules change lr and betas.
 */
typedef struct zt_hyper {
    double lr, beta1, beta2, weight_decay, eps;
    double momentum, dampening, lr_decay; /* for SGD and Muon; SGD; torch's Adagrad */
    double min_coeff, max_coeff;          /* LAMB */
    bool bias_correction, nesterov;
    bool muon_gram; /* Muon's ns_method */
} zt_hyper;

/* The optimizer block of the config, with defaults filled in. */
typedef struct zt_optim {
    zt_optim_type type;
    const char *name;         /* spelling of the config */
    const ckpt_value *params; /* the settings as the config has them, or NULL */
    /* torch_adam, or a class of torch itself: torch's state keys and defaults */
    bool torch;
    unsigned class; /* OPT_ bits of optim.c, which select rows of the settings' table */
    zt_hyper h;     /* initial values of groups */
    bool decoupled, eps_inside;
    double muon_lr, adam_lr; /* NaN: lr */
    int64_t freeze_step;
    /*
     * State tensors per element and their names in checkpoints; n_state 0..2.  MUON: those of the
     * Adam half (zt_optim_state).
     */
    unsigned n_state;
    const char *state[2]; /* "exp_avg", "exp_avg_sq" | "momentum_buffer" | "sum" */
    bool zero_up;         /* Lion: see zt_update */
} zt_optim;

/*
 * Read {"type": ..., "params": {...}}. offload: the optimizer runs on the host, the model does not.
 *
 * Errors  CKPT_EUNSUPPORTED: a type or setting that is unknown or not supported (the text names
 *         it); CKPT_EUSAGE: a wrong value
 */
int zt_optim_parse(zt_optim *out, const ckpt_value *block, bool offload, ckpt_err *err);

/*
 * True for classes with betas, because OneCycle changes only theirs (for others clear the
 * schedule's cycle_momentum).
 */
bool zt_optim_has_betas(const zt_optim *o);

/*
 * Name of state i of a group in checkpoints; NULL: the optimizer has no such state.  muon: the half
 * of MUON that updates matrices.
 */
const char *zt_optim_state(const zt_optim *o, bool muon, unsigned i);

/* A group's settings before a schedule.  muon: the half of MUON that updates matrices. */
zt_hyper zt_optim_hyper(const zt_optim *o, bool muon);

/*
 * Set h from a checkpoint's entry of param_groups, of this or another class; settings that it lacks
 * stay unchanged.
 *
 * Errors  CKPT_EFORMAT: a wrong value; CKPT_EUNSUPPORTED: a setting that is not supported
 *         (amsgrad), or that contradicts o (decoupled weight decay or not, momentum or none);
 *         CKPT_EMISMATCH: the settings are another optimizer's.  The text names the setting and the
 *         remedy
 */
int zt_optim_take(const zt_optim *o, zt_hyper *h, const ckpt_value *fields, ckpt_err *err);

/* True if the config has a setting of that name. */
bool zt_optim_names(const zt_optim *o, const char *name);

/* One piece of a parameter group. */
typedef struct zt_piece {
    uint64_t n;
    float *p, *state[2];
    const void *g;
    ckpt_dtype g_dtype;
    float g_scale;
    void *low;
    ckpt_dtype low_dtype;
} zt_piece;

/*
 * Update one piece in place.  t: number of this update, from 1.  For all types except ONEBIT_ADAM;
 * for MUON only the Adam part.  Source: the papers and formulas in update.c
 */
void zt_optim_update(zt_device *d, const zt_optim *o, const zt_hyper *h, int64_t t,
                     const zt_piece *piece);

/* ---- schedules ---- */

typedef enum zt_schedule_type {
    ZT_SCHEDULE_NONE,
    ZT_WARMUP,
    ZT_WARMUP_DECAY,
    ZT_WARMUP_COSINE,
    ZT_RANGE_TEST,
    ZT_ONE_CYCLE,
    // those of transformers: factors of each group's base rate
    ZT_HF_CONSTANT,
    ZT_HF_WARMUP,
    ZT_HF_LINEAR,
    ZT_HF_COSINE,
    ZT_HF_COSINE_MIN,
    ZT_HF_RESTARTS,
    ZT_HF_POLYNOMIAL,
    ZT_HF_INVERSE_SQRT
} zt_schedule_type;

typedef struct zt_schedule {
    zt_schedule_type type;
    const char *name;
    int64_t last; /* last_batch_iteration: -1 before the first step */
    double min_lr, max_lr, min_ratio, cos_ratio; /* max_lr NaN: the group's own rate */
    int64_t warmup, total;
    bool linear;
    double step_size, step_rate; /* range test */
    bool staircase;
    double first_size, second_size, decay_size, decay_lr, decay_mom, min_mom, max_mom;
    int64_t first_stairs, second_stairs;
    bool cycle_momentum;
    // transformers' schedules; lr_init: the optimizer's rate, which the polynomial starts from
    double cycles, power, lr_end, lr_init;
    int64_t timescale;
    /*
     * Lists with one number per group, if the config has them instead of min_lr, max_lr, min_mom,
     * max_mom.
     */
    const ckpt_value *min_lrs, *max_lrs, *min_moms, *max_moms;
} zt_schedule;

/*
 * Read {"type": ..., "params": {...}}; block NULL: constant rates.  Types and settings are those of
 * DeepSpeed, or of transformers' get_scheduler ("linear", num_warmup_steps ...).
 */
int zt_schedule_parse(zt_schedule *out, const ckpt_value *block, ckpt_err *err);

/*
 * Give a schedule of transformers the optimizer's rate, with which some settings are compared.
 * Errors  CKPT_EUSAGE: lr_end is not below it
 */
int zt_schedule_base(zt_schedule *s, double lr, ckpt_err *err);

/* True for transformers' schedules, which torch saves as a LambdaLR. */
bool zt_schedule_is_factor(const zt_schedule *s);

/* Their factor after a number of applied updates. */
double zt_schedule_factor(const zt_schedule *s, int64_t applied);

/*
 * Fail with CKPT_EUSAGE if a list of s does not have one number for each of n groups.  Must be
 * called before zt_schedule_begin.
 */
int zt_schedule_check(const zt_schedule *s, size_t n, ckpt_err *err);

/* Set the groups' hyper-parameters for update 0 (a new run); own_lr: each group's configured lr. */
void zt_schedule_begin(zt_schedule *s, zt_hyper *group, const double *own_lr, size_t n);

/* After an applied update, set the hyper-parameters of the next one. */
void zt_schedule_step(zt_schedule *s, zt_hyper *group, const double *own_lr, size_t n);

/* ---- loss scale ---- */

typedef struct zt_scaler {
    bool dynamic, consecutive, stage0; /* stage0: no hysteresis and no abort (FP16_Optimizer) */
    double scale, min_scale, factor;
    int64_t window, hysteresis, left, iter, last_overflow;
    bool touched; /* the scale has changed, so it is pickled as a float */
} zt_scaler;

/* Read the fp16 block (NULL, or fp16 false: constant 1). */
int zt_scaler_parse(zt_scaler *out, const ckpt_value *block, bool fp16, int stage, ckpt_err *err);

/* Check fields that were read from a file: CKPT_EFORMAT if updates cannot work with them. */
int zt_scaler_check(const zt_scaler *s, ckpt_err *err);

/*
 * Call after each optimizer step, skipped ones included.  CKPT_ELIMIT: an overflow at the smallest
 * scale, so the run cannot continue.
 */
int zt_scaler_update(zt_scaler *s, bool overflow, ckpt_err *err);

/* ---- 1-bit Adam (Tang et al. 2021) ---- */

struct zt_comm;
typedef struct zt_onebit zt_onebit;

/* Error feedback for one flat group of n elements; every rank must hold all of them. */
int zt_onebit_new(zt_onebit **out, struct zt_comm *c, zt_device *d, uint64_t n, ckpt_err *err);
void zt_onebit_free(zt_onebit *b);

/* True while gradients must be averaged over ranks before the update (until freeze_step). */
bool zt_onebit_warm(const zt_optim *o, int64_t t);

/*
 * Update all n elements; piece->g is the averaged gradient while zt_onebit_warm, and later this
 * rank's own.
 */
int zt_onebit_update(zt_onebit *b, const zt_optim *o, const zt_hyper *h, int64_t t,
                     const zt_piece *piece, ckpt_err *err);

/* ---- Muon (Jordan et al. 2024) ---- */

/*
 * Replace g [rows, cols] (fp32) by the orthogonalised update, and update momentum [rows, cols];
 * scratch has zt_muon_scratch bytes.
 */
uint64_t zt_muon_scratch(uint64_t rows, uint64_t cols); /* bytes */
void zt_muon_direction(zt_device *d, const zt_hyper *h, uint64_t rows, uint64_t cols, float *g,
                       float *momentum, void *scratch);

/* Apply directions: p = p (1 - lr weight_decay) - lr g g_scale.  The state stays. */
void zt_muon_apply(zt_device *d, const zt_hyper *h, const zt_piece *piece);

#endif
