/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.c: what a run tells: metrics as JSON lines, progress for people, where the time went.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "tools/zerotrain/zerotrain.h"

int report_open(report *r, ckpt_err *err)
{
    int rc = CKPT_OK;

    if (r->about.rank == 0 && r->told->metrics) {
        // A resumed run, or one that evaluates, goes on in the file of the first.
        bool more = r->about.loaded_steps > 0 || r->told->run.evaluate;
        r->metrics =
            strcmp(r->told->metrics, "-") == 0 ? stdout : fopen(r->told->metrics, more ? "a" : "w");
        if (!r->metrics)
            rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot be written", r->told->metrics);
    }
    return zt_engine_agree(r->engine, rc, err);
}

/* A number as JSON has it: what is not finite is null. */
static void rp_number(FILE *f, const char *key, double v)
{
    if (v - v == 0)
        fprintf(f, ", \"%s\": %.17g", key, v);
    else
        fprintf(f, ", \"%s\": null", key);
}

static int rp_flush(report *r, ckpt_err *err)
{
    if (fputc('\n', r->metrics) == EOF || fflush(r->metrics) != 0)
        return ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot be written", r->told->metrics);
    return CKPT_OK;
}

/* The line of a skipped update. */
static void rp_overflow(const zt_standing *now, const zt_step *s)
{
    const zt_scaler *scaler = &now->scaler;

    if (scaler->scale < s->loss_scale)
        fprintf(stderr,
                "zerotrain: OVERFLOW at step %" PRId64
                ", skipped: loss scale %.10g, reduced to %.10g\n",
                now->steps, s->loss_scale, scaler->scale);
    else if (scaler->dynamic)
        fprintf(stderr,
                "zerotrain: OVERFLOW at step %" PRId64
                ", skipped: loss scale %.10g stays, hysteresis reduced to %" PRId64 "\n",
                now->steps, s->loss_scale, scaler->left);
    else
        fprintf(stderr, "zerotrain: OVERFLOW at step %" PRId64 ", skipped\n", now->steps);
}

static void rp_progress(const report *r, const zt_standing *now, const zt_progress *p)
{
    const zt_memory *m = &now->memory;

    fprintf(
        stderr,
        "step %" PRId64 "/%" PRId64
        "  loss %.4f  norm %.3f  lr %.3g  scale %.4g  %.0f tokens/s  %.0f MiB a rank\n",
        now->steps, r->about.total_steps, p->loss, p->step.grad_norm, p->step.lr,
        p->step.loss_scale, (double)p->tokens / p->seconds,
        (double)(m->weights + m->masters + m->state + m->gradients + m->buffers + m->activations) /
            1048576);
}

int report_step(report *r, const zt_progress *p, ckpt_err *err)
{
    const zt_config *c = r->about.config;
    int64_t every = c->steps_per_print > 0 ? c->steps_per_print : 10;
    zt_standing now;

    if (r->about.rank != 0)
        return CKPT_OK;
    zt_engine_standing(r->engine, &now);
    if (p->step.skipped && !r->told->quiet)
        rp_overflow(&now, &p->step);
    if (!r->told->quiet && (now.steps % every == 0 || now.steps == r->about.total_steps))
        rp_progress(r, &now, p);
    if (!r->metrics)
        return CKPT_OK;
    fprintf(r->metrics, "{\"step\": %" PRId64, now.steps);
    rp_number(r->metrics, "loss", p->loss);
    rp_number(r->metrics, "grad_norm", p->step.grad_norm);
    rp_number(r->metrics, "lr", p->step.lr);
    rp_number(r->metrics, "loss_scale", p->step.loss_scale);
    fprintf(r->metrics, ", \"skipped\": %s, \"tokens\": %" PRIu64,
            p->step.skipped ? "true" : "false", p->tokens);
    rp_number(r->metrics, "seconds", p->seconds);
    fputc('}', r->metrics);
    return rp_flush(r, err);
}

/* What was loaded: the path, and the tag where the path leaves it open. */
static void rp_loaded(const report *r, FILE *out)
{
    const char *path = r->told->run.load, *tag = r->about.tag;
    size_t n = strlen(path), m = strlen(tag);
    bool named = m == 0 || (n >= m && strcmp(path + n - m, tag) == 0);

    fprintf(out, "%s%s%s", path, named || path[n - 1] == '/' ? "" : "/", named ? "" : tag);
}

int report_score(report *r, const zt_score *s, ckpt_err *err)
{
    const zt_options *o = &r->told->run;
    zt_standing now;

    if (r->about.rank != 0)
        return CKPT_OK;
    zt_engine_standing(r->engine, &now);
    if (!r->told->quiet || o->evaluate) {
        // lines of JSON are not mixed with text
        FILE *out = o->evaluate && r->metrics != stdout ? stdout : stderr;
        fputs("evaluated ", out);
        if (o->evaluate && o->load) // weights alone: the step is not theirs
            rp_loaded(r, out);
        else
            fprintf(out, "at step %" PRId64, now.steps);
        fprintf(out, ": loss %.6f", s->loss);
        if (s->accuracy - s->accuracy == 0)
            fprintf(out, ", accuracy %.2f %%", 100 * s->accuracy);
        fprintf(out, ", %" PRIu64 " samples\n", s->samples);
        if (o->evaluate && fflush(out) != 0)
            return ckpt_fail_sys(err, CKPT_EIO, errno, "the score cannot be written");
    }
    if (!r->metrics)
        return CKPT_OK;
    fprintf(r->metrics, "{\"step\": %" PRId64 ", \"evaluation\": true", now.steps);
    rp_number(r->metrics, "eval_loss", s->loss);
    rp_number(r->metrics, "eval_accuracy", s->accuracy);
    fprintf(r->metrics, ", \"samples\": %" PRIu64 "}", s->samples);
    return rp_flush(r, err);
}

void report_save(const report *r)
{
    ckpt_err remark;

    if (zt_engine_remark(r->engine, &remark))
        fprintf(stderr, "zerotrain: warning: %s; the run goes on\n", remark.text);
}

void report_start(const report *r)
{
    const zt_about *a = &r->about;
    const zt_config *c = a->config;
    zt_standing now;

    if (a->rank != 0)
        return;
    for (size_t i = 0; c->notes && c->notes[i]; i++) {
        if (c->note_warns[i])
            fprintf(stderr, "zerotrain: warning: %s\n", c->notes[i]);
        else if (!r->told->quiet)
            fprintf(stderr, "note: %s\n", c->notes[i]);
    }
    if (r->told->quiet)
        return;
    fprintf(stderr,
            "%s: %" PRIu64 " parameters, %" PRIu64
            " trained; ZeRO stage %d, %s, %d %s; global batch %" PRId64 " = %" PRId64 " x %" PRId64
            " x %d\n",
            a->class_name, a->n_params, a->n_trained, c->stage, ckpt_dtype_name(c->dtype), a->world,
            a->world == 1 ? "rank" : "ranks", c->train_batch, c->micro_batch, c->accumulation,
            a->world);
    if (a->device)
        fprintf(stderr, "note: on %s%s%s\n", a->device, a->wire ? ", exchanging by " : "",
                a->wire ? a->wire : "");
    if (a->n_drawn > 0)
        fprintf(stderr, "note: %zu parameters are not in %s: they begin as drawn\n", a->n_drawn,
                r->told->run.init);
    if (r->told->run.load) {
        fputs("resumed from ", stderr);
        rp_loaded(r, stderr);
        fprintf(stderr, " at step %" PRId64 "%s\n", a->loaded_steps,
                a->with_optimizer ? "" : ", weights alone");
    }
    zt_engine_standing(r->engine, &now);
    if (now.steps >= a->total_steps)
        fprintf(stderr, "note: all %" PRId64 " updates are made already\n", a->total_steps);
}

void report_profile(const report *r)
{
    static const char *const name[ZT_T_COUNT] = {"data", "forward and backward", "update", "save",
                                                 "evaluate"};
    double sum = 0;
    zt_standing now;

    if (r->about.rank != 0 || !(r->told->profile || r->about.config->wall_clock))
        return;
    zt_engine_standing(r->engine, &now);
    const zt_memory *m = &now.memory;
    for (int i = 0; i < ZT_T_COUNT; i++)
        sum += now.seconds[i];
    for (int i = 0; i < ZT_T_COUNT; i++)
        fprintf(stderr, "profile: %-22s %8.3f s %5.1f %%\n", name[i], now.seconds[i],
                sum > 0 ? 100 * now.seconds[i] / sum : 0);
    fprintf(stderr,
            "profile: bytes of this rank: weights %" PRIu64 ", masters %" PRIu64
            ", optimizer state %" PRIu64 ", gradients %" PRIu64 ", buffers %" PRIu64
            ", activations %" PRIu64 "\n",
            m->weights, m->masters, m->state, m->gradients, m->buffers, m->activations);
}

int report_close(report *r, ckpt_err *err)
{
    int rc = CKPT_OK;

    if (r->metrics && (r->metrics == stdout ? fflush(stdout) : fclose(r->metrics)) != 0)
        rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot be written", r->told->metrics);
    r->metrics = NULL;
    return rc;
}
