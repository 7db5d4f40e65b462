/* SPDX-License-Identifier: Apache-2.0 */
/*
 * curves.h: declares the curves of a training run: loss, learning rate, gradient norm and loss
 * scale by step, from zerotrain's --metrics (JSON lines) or the Trainer's trainer_state.json
 * (log_history).
 */
#ifndef TOOLS_CURVES_H
#define TOOLS_CURVES_H

#include "ckpt.h"

typedef enum curve_kind {
    CURVE_LOSS,
    CURVE_EVAL_LOSS,
    CURVE_LR,
    CURVE_GRAD_NORM,
    CURVE_LOSS_SCALE,
    CURVE_KINDS
} curve_kind;

typedef struct curve_point {
    int64_t step;
    double value; /* NaN or infinite: a gap */
} curve_point;

typedef struct curve {
    curve_point *at; /* points in the order of the file */
    size_t n, room;
    size_t n_gaps;      /* points that are not finite */
    double least, most; /* limits of the finite points */
} curve;

typedef struct curves {
    char *path; /* path of the file */
    curve of[CURVE_KINDS];
    int64_t first, last;         /* lowest and highest step */
    size_t n_records, n_skipped; /* records; records of skipped updates */
    size_t n_back;               /* steps that go back, because the run was resumed */
} curves;

/* The title of a curve: "loss", "evaluation loss", "learning rate" ... */
const char *curve_title(curve_kind kind);

/*
 * Read a file of metrics.
 *
 * Errors   CKPT_EFORMAT: no JSON, a known key without a number, a record without a step, no record
 *          with a known key; CKPT_EIO, CKPT_ELIMIT
 */
int curves_read(curves *out, const char *path, ckpt_err *err);

/*
 * Find the metrics file in a checkpoint's folder, or in the folder above it.  Returns its path,
 * which the caller frees, or NULL.
 */
char *curves_beside(const char *path);
void curves_free(curves *c);

#endif
