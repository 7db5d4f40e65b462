/* SPDX-License-Identifier: Apache-2.0 */
/*
 * activations.c: computes bytes of activations by formula.
 *
 * With e bytes per element (2 in the papers) a layer's 34 s b h are (16 e + 2) s b h.  Of these, 4
 * e + 2 (inputs of norms, attention and MLP; masks of two dropouts) are complete on every tensor
 * parallel rank, and 12 e are divided.  Attention's 5 a s s b are 2 e + 1.
 */
#include "tools/costs/activations.h"

#include <inttypes.h>

#include "tools/cli/out.h"

#define AW_MOST (UINT64_C(1) << 31) /* maximum of every factor */

__extension__ typedef unsigned __int128 aw_wide;

int acts_check(const acts_job *job, ckpt_err *err)
{
    const costs_job *c = &job->cut;

    if (c->layers > AW_MOST || c->hidden > AW_MOST || c->tokens > AW_MOST ||
        c->micro_batch > AW_MOST || job->heads > AW_MOST)
        return fail(err, CKPT_ELIMIT,
                    "--layers, --hidden, --heads, --seq-length and --micro-batch: expected at most "
                    "2^31 each");
    if (job->heads % c->tensor)
        return fail(err, CKPT_EUSAGE,
                    "--tensor-parallel %" PRIu64 " does not divide the %" PRIu64 " heads",
                    c->tensor, job->heads);
    if (job->sequence && c->tensor == 1)
        return fail(err, CKPT_EUSAGE,
                    "--sequence-parallel has no effect without --tensor-parallel");
    if (job->sequence && c->tokens % c->tensor)
        return fail(err, CKPT_EUSAGE,
                    "--sequence-parallel: %" PRIu64 " ranks cannot split samples of %" PRIu64
                    " tokens evenly",
                    c->tensor, c->tokens);
    if (c->interleave > 1 && c->accumulation % c->pipeline)
        return fail(err, CKPT_EUSAGE,
                    "--interleave needs a multiple of %" PRIu64
                    " micro batches (--accumulation), not %" PRIu64,
                    c->pipeline, c->accumulation);
    return CKPT_OK;
}

/* Add a * b * c / by, rounded up, to *sum. */
static bool aw_add(aw_wide *sum, uint64_t a, aw_wide b, uint64_t c, uint64_t by)
{
    aw_wide x;

    if (__builtin_mul_overflow((aw_wide)a, b, &x) || __builtin_mul_overflow(x, (aw_wide)c, &x))
        return false;
    return !__builtin_add_overflow(*sum, x / by + (x % by != 0), sum) && *sum <= UINT64_MAX;
}

int acts_layer(const acts_job *job, acts_mode mode, uint64_t *out, ckpt_err *err)
{
    const costs_job *c = &job->cut;
    uint64_t e = c->weight_bytes, t = c->tensor, split = job->sequence ? t : 1;
    uint64_t tokens = c->micro_batch; // of all samples
    aw_wide sum = 0, rows;
    bool fits = !__builtin_mul_overflow(tokens, c->tokens, &tokens);

    // bytes that attention stores for each row of scores
    rows = job->flash ? 4 : (aw_wide)(2 * e + 1) * c->tokens;
    if (mode == ACTS_FULL) {
        fits = fits && aw_add(&sum, tokens, c->hidden, e, split);
    } else {
        fits = fits && aw_add(&sum, tokens, c->hidden, 4 * e + 2, split) &&
               aw_add(&sum, tokens, c->hidden, 12 * e, t);
        if (mode == ACTS_WHOLE)
            fits = fits && aw_add(&sum, tokens, rows, job->heads, t);
    }
    *out = (uint64_t)sum;
    return fits ? CKPT_OK
                : fail(err, CKPT_ELIMIT,
                       "64 bits cannot count the bytes of a layer's activations: use a smaller "
                       "--seq-length or --micro-batch");
}

bool acts_applies(const acts_job *job, acts_schedule schedule)
{
    bool pipeline = job->cut.pipeline > 1, interleaved = job->cut.interleave > 1;

    switch (schedule) {
    case ACTS_ONE:
        return !pipeline;
    case ACTS_1F1B:
    case ACTS_GPIPE:
        return pipeline && !interleaved;
    case ACTS_INTERLEAVED:
        return pipeline && interleaved;
    case ACTS_SCHEDULES:
        break;
    }
    return false;
}

uint64_t acts_under_way(const acts_job *job, acts_schedule schedule)
{
    const costs_job *c = &job->cut;
    uint64_t p = c->pipeline, v = c->interleave, m = c->accumulation, parts;

    switch (schedule) {
    case ACTS_1F1B:
        return c->layers / p * (m < p ? m : p);
    case ACTS_GPIPE:
        return c->layers / p * m;
    case ACTS_INTERLEAVED: // L (1 + (p-1) / (p v)), with enough micro batches
        parts = p * v + p - 1 < m * v ? p * v + p - 1 : m * v;
        return c->layers / (p * v) * parts;
    case ACTS_ONE:
    case ACTS_SCHEDULES:
        break;
    }
    return c->layers;
}

int acts_bytes(const acts_job *job, acts_schedule schedule, acts_mode mode, uint64_t *out,
               ckpt_err *err)
{
    uint64_t each, whole = 0;
    int rc = acts_layer(job, mode, &each, err);

    if (rc == CKPT_OK && mode == ACTS_FULL)
        rc = acts_layer(job, ACTS_WHOLE, &whole, err);
    if (rc == CKPT_OK && (__builtin_mul_overflow(each, acts_under_way(job, schedule), out) ||
                          __builtin_add_overflow(*out, whole, out)))
        rc = fail(err, CKPT_ELIMIT,
                  "64 bits cannot count the bytes of the activations: use a smaller "
                  "--seq-length or --micro-batch");
    return rc;
}

double acts_idle(const costs_job *job)
{
    double p = (double)job->pipeline;

    return (p - 1) / ((double)job->interleave * (double)job->accumulation + p - 1);
}

const char *acts_mode_name(acts_mode mode)
{
    static const char *const names[ACTS_MODES] = {"none", "selective", "full"};

    return names[mode];
}

const char *acts_schedule_name(acts_schedule schedule)
{
    static const char *const names[ACTS_SCHEDULES] = {"one", "1f1b", "gpipe", "interleaved"};

    return names[schedule];
}
