/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scaler.c: implements the loss scale, which keeps 16-bit gradients in range (Micikevicius et al.
 * 2018).
 *
 * Source: DeepSpeed 0.19.8, runtime/fp16/loss_scaler.py (stages 1 to 3), fused_optimizer.py (stage
 * 0), runtime/precision_config.py (the settings).
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "engine/optim/optim.h"
#include "libckpt/base/number.h"

/*
 * Limit of step counts: larger than any real one, and small enough that sums of a few do not
 * overflow.
 */
#define SC_MOST (INT64_C(1) << 53)

/* Get a member of the block; NULL if it is absent or "auto", which means the default. */
static const ckpt_value *sc_get(const ckpt_value *block, const char *key)
{
    const ckpt_value *v = ckpt_value_get(block, key);

    return v && ckpt_value_is(v, "auto") ? NULL : v;
}

/* Convert a number, or a string with a number, because DeepSpeed's typed blocks accept both. */
static bool sc_number(const ckpt_value *v, double *out)
{
    if (v->kind == CKPT_V_INT || v->kind == CKPT_V_FLOAT) {
        *out = v->kind == CKPT_V_INT ? (double)v->as.i : v->as.f;
        return isfinite(*out);
    }
    return v->kind == CKPT_V_STR && strlen(v->as.text.at) == v->as.text.n &&
           ckpt_parse_f64(v->as.text.at, out);
}

/* Read an integer, also written as 1e3 or "1000". */
static int sc_integer(const ckpt_value *block, const char *key, int64_t *out, ckpt_err *err)
{
    const ckpt_value *v = sc_get(block, key);
    double x;

    if (!v)
        return CKPT_OK;
    if (!sc_number(v, &x) || x != floor(x) || fabs(x) > 0x1p53)
        return ckpt_fail(err, CKPT_EUSAGE, "fp16.%s: an integer expected", key);
    *out = (int64_t)x;
    return CKPT_OK;
}

/* Read true, false, or a spelling of them (1, 0, "yes", "off" ...). */
static int sc_flag(const ckpt_value *block, const char *key, bool *out, ckpt_err *err)
{
    static const char *const words[2][6] = {{"0", "off", "f", "false", "n", "no"},
                                            {"1", "on", "t", "true", "y", "yes"}};
    const ckpt_value *v = sc_get(block, key);
    double x;

    if (!v)
        return CKPT_OK;
    if (v->kind == CKPT_V_BOOL) {
        *out = v->as.i != 0;
        return CKPT_OK;
    }
    if (v->kind != CKPT_V_STR && sc_number(v, &x) && (x == 0 || x == 1)) {
        *out = x == 1;
        return CKPT_OK;
    }
    for (size_t i = 0; v->kind == CKPT_V_STR && i < 12; i++) {
        if (strcasecmp(words[i / 6][i % 6], v->as.text.at) == 0) {
            *out = i >= 6;
            return CKPT_OK;
        }
    }
    return ckpt_fail(err, CKPT_EUSAGE, "fp16.%s: true or false expected", key);
}

static bool sc_between(int64_t v, int64_t least, int64_t most)
{
    return v >= least && v <= most;
}

static bool sc_positive(double v)
{
    return isfinite(v) && v > 0;
}

/* Check the settings of a dynamic scale; DeepSpeed checks them only for dynamic scales. */
static int sc_limits(const zt_scaler *s, int64_t power, int64_t min, ckpt_err *err)
{
    if (power < -1022 || power > 1023)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "fp16.initial_scale_power: an integer from -1022 to 1023 expected");
    if (s->window <= 0)
        return ckpt_fail(err, CKPT_EUSAGE, "fp16.loss_scale_window: an integer > 0 expected");
    if (min <= 0)
        return ckpt_fail(err, CKPT_EUSAGE, "fp16.min_loss_scale: an integer > 0 expected");
    if (!sc_between(s->hysteresis, -SC_MOST, SC_MOST))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "fp16.hysteresis: an integer from -2^53 to 2^53 expected");
    return CKPT_OK;
}

int zt_scaler_check(const zt_scaler *s, ckpt_err *err)
{
    if (!sc_positive(s->scale) || !sc_positive(s->factor) || !sc_positive(s->min_scale))
        return ckpt_fail(err, CKPT_EFORMAT,
                         "the checkpoint's loss scale is %g, its factor %g, its minimum %g: "
                         "numbers above 0 expected",
                         s->scale, s->factor, s->min_scale);
    if (!sc_between(s->window, 1, SC_MOST) || !sc_between(s->iter, 0, SC_MOST) ||
        !sc_between(s->last_overflow, -1, s->iter))
        return ckpt_fail(err, CKPT_EFORMAT,
                         "the checkpoint's loss scale has impossible values: a window of %" PRId64
                         " steps, step %" PRId64 ", and its last overflow at step %" PRId64,
                         s->window, s->iter, s->last_overflow);
    if (!sc_between(s->hysteresis, -SC_MOST, SC_MOST) || !sc_between(s->left, -SC_MOST, SC_MOST))
        return ckpt_fail(err, CKPT_EFORMAT,
                         "the checkpoint's loss scale has a hysteresis of %" PRId64 " with %" PRId64
                         " left, which is out of range",
                         s->hysteresis, s->left);
    return CKPT_OK;
}

int zt_scaler_parse(zt_scaler *out, const ckpt_value *block, bool fp16, int stage, ckpt_err *err)
{
    const ckpt_value *v = sc_get(block, "loss_scale");
    int64_t power = 16, min = 1;
    double scale = 0;
    int rc;

    memset(out, 0, sizeof *out);
    *out = (zt_scaler){.stage0 = stage == 0, .scale = 1, .factor = 2, .window = 1000};
    out->hysteresis = 2;
    out->last_overflow = -1;
    out->touched = true; // constants are pickled as floats
    if (v && (!sc_number(v, &scale) || scale < 0))
        return ckpt_fail(err, CKPT_EUSAGE, "fp16.loss_scale: a number >= 0 expected (0: dynamic)");
    rc = sc_integer(block, "initial_scale_power", &power, err);
    rc = rc == CKPT_OK ? sc_integer(block, "loss_scale_window", &out->window, err) : rc;
    rc = rc == CKPT_OK ? sc_integer(block, "hysteresis", &out->hysteresis, err) : rc;
    rc = rc == CKPT_OK ? sc_integer(block, "min_loss_scale", &min, err) : rc;
    rc = rc == CKPT_OK ? sc_flag(block, "consecutive_hysteresis", &out->consecutive, err) : rc;
    out->left = out->hysteresis;
    out->min_scale = (double)min;
    if (rc != CKPT_OK || !fp16)
        return rc;
    out->dynamic = scale == 0;
    if (!out->dynamic) {
        out->scale = scale;
        return CKPT_OK;
    }
    out->scale = ldexp(1, (int)(power < -1022 || power > 1023 ? 0 : power));
    out->touched = power < 0;
    return sc_limits(out, power, min, err);
}

/* After an overflow: use up hysteresis, then halve the scale. */
static int sc_lower(zt_scaler *s, ckpt_err *err)
{
    double next = s->scale / s->factor;

    if (!s->stage0 && s->hysteresis != 1 && s->left != 1) {
        s->left--;
        return CKPT_OK;
    }
    if (!s->stage0 && s->scale == s->min_scale)
        return ckpt_fail(err, CKPT_ELIMIT,
                         "gradients overflow although the loss scale is at its minimum of %g: the "
                         "run cannot go on (lower the learning rate, or use bf16)",
                         s->min_scale);
    // the config's minimum is an integer, so a scale set to it is pickled as one
    s->touched = s->min_scale <= next;
    s->scale = s->touched ? next : s->min_scale;
    return CKPT_OK;
}

/* After a step without an overflow: double the scale after every `window` such steps. */
static void sc_calm(zt_scaler *s)
{
    int64_t since = s->iter - s->last_overflow - 1;
    bool raise = since > 0 && since % s->window == 0;

    if (!s->stage0 && (s->consecutive || raise))
        s->left = s->hysteresis;
    if (raise) {
        s->scale *= s->factor;
        s->touched = true;
    }
}

int zt_scaler_update(zt_scaler *s, bool overflow, ckpt_err *err)
{
    int rc = CKPT_OK;

    if (s->dynamic && overflow) {
        rc = sc_lower(s, err);
        if (rc != CKPT_OK) {
            return rc; // unchanged: iter does not advance
        }
        s->last_overflow = s->iter;
    } else if (s->dynamic) {
        sc_calm(s);
    }
    s->iter++;
    return rc;
}
