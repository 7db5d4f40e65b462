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
    const zt_engine *e = r->engine;
    int rc = CKPT_OK;

    if (e->comm->rank == 0 && r->told->metrics) {
        // A resumed run, or one that evaluates, goes on in the file of the first.
        bool more = e->loaded.global_steps > 0 || e->opts->evaluate;
        r->metrics =
            strcmp(r->told->metrics, "-") == 0 ? stdout : fopen(r->told->metrics, more ? "a" : "w");
        if (!r->metrics)
            rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot be written", r->told->metrics);
    }
    return zt_comm_agree(e->comm, rc, err);
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
static void rp_overflow(const zt_engine *e, const zt_step *s)
{
    const zt_scaler *now = &e->zero->scaler;

    if (now->scale < s->loss_scale)
        fprintf(stderr,
                "zerotrain: OVERFLOW at step %" PRId64
                ", skipped: loss scale %.10g, reduced to %.10g\n",
                e->zero->global_steps, s->loss_scale, now->scale);
    else if (now->dynamic)
        fprintf(stderr,
                "zerotrain: OVERFLOW at step %" PRId64
                ", skipped: loss scale %.10g stays, hysteresis reduced to %" PRId64 "\n",
                e->zero->global_steps, s->loss_scale, now->left);
    else
        fprintf(stderr, "zerotrain: OVERFLOW at step %" PRId64 ", skipped\n",
                e->zero->global_steps);
}

static void rp_progress(const zt_engine *e, const zt_progress *p)
{
    zt_memory m;

    zt_zero_memory(e->zero, &m);
    fprintf(stderr,
            "step %" PRId64 "/%" PRId64
            "  loss %.4f  norm %.3f  lr %.3g  scale %.4g  %.0f tokens/s  %.0f MiB a rank\n",
            e->zero->global_steps, e->total_steps, p->loss, p->step.grad_norm, p->step.lr,
            p->step.loss_scale, (double)p->tokens / p->seconds,
            (double)(m.weights + m.masters + m.state + m.gradients + m.buffers + m.activations) /
                1048576);
}

int report_step(report *r, const zt_progress *p, ckpt_err *err)
{
    const zt_engine *e = r->engine;
    int64_t every = e->config.steps_per_print > 0 ? e->config.steps_per_print : 10;
    int64_t step = e->zero->global_steps;

    if (e->comm->rank != 0)
        return CKPT_OK;
    if (p->step.skipped && !r->told->quiet)
        rp_overflow(e, &p->step);
    if (!r->told->quiet && (step % every == 0 || step == e->total_steps))
        rp_progress(e, p);
    if (!r->metrics)
        return CKPT_OK;
    fprintf(r->metrics, "{\"step\": %" PRId64, step);
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
static void rp_loaded(const zt_engine *e, FILE *out)
{
    const char *path = e->opts->load, *tag = e->loaded.tag;
    size_t n = strlen(path), m = strlen(tag);
    bool named = m == 0 || (n >= m && strcmp(path + n - m, tag) == 0);

    fprintf(out, "%s%s%s", path, named || path[n - 1] == '/' ? "" : "/", named ? "" : tag);
}

int report_score(report *r, const zt_score *s, ckpt_err *err)
{
    const zt_engine *e = r->engine;
    int64_t step = e->zero->global_steps;

    if (e->comm->rank != 0)
        return CKPT_OK;
    if (!r->told->quiet || e->opts->evaluate) {
        // lines of JSON are not mixed with text
        FILE *out = e->opts->evaluate && r->metrics != stdout ? stdout : stderr;
        fputs("evaluated ", out);
        if (e->opts->evaluate && e->opts->load) // weights alone: the step is not theirs
            rp_loaded(e, out);
        else
            fprintf(out, "at step %" PRId64, step);
        fprintf(out, ": loss %.6f", s->loss);
        if (s->accuracy - s->accuracy == 0)
            fprintf(out, ", accuracy %.2f %%", 100 * s->accuracy);
        fprintf(out, ", %" PRIu64 " samples\n", s->samples);
        if (e->opts->evaluate && fflush(out) != 0)
            return ckpt_fail_sys(err, CKPT_EIO, errno, "the score cannot be written");
    }
    if (!r->metrics)
        return CKPT_OK;
    fprintf(r->metrics, "{\"step\": %" PRId64 ", \"evaluation\": true", step);
    rp_number(r->metrics, "eval_loss", s->loss);
    rp_number(r->metrics, "eval_accuracy", s->accuracy);
    fprintf(r->metrics, ", \"samples\": %" PRIu64 "}", s->samples);
    return rp_flush(r, err);
}

void report_save(const report *r)
{
    const zt_engine *e = r->engine;
    ckpt_err remark;

    if (zt_save_remark(e->saver, &remark))
        fprintf(stderr, "zerotrain: warning: %s; the run goes on\n", remark.text);
}

void report_start(const report *r)
{
    const zt_engine *e = r->engine;
    const zt_config *c = &e->config;

    if (e->comm->rank != 0)
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
            e->model_config.class_name, zt_model_count(e->model, false),
            zt_model_count(e->model, true), c->stage, ckpt_dtype_name(c->dtype), e->comm->world,
            e->comm->world == 1 ? "rank" : "ranks", c->train_batch, c->micro_batch, c->accumulation,
            e->comm->world);
    if (!e->device->host)
        fprintf(stderr, "note: on %s%s%s\n", e->device->ops->name,
                e->wire ? ", exchanging by " : "", e->wire ? e->wire->ops->name : "");
    if (e->n_drawn > 0)
        fprintf(stderr, "note: %zu parameters are not in %s: they begin as drawn\n", e->n_drawn,
                e->opts->init);
    if (e->opts->load) {
        fputs("resumed from ", stderr);
        rp_loaded(e, stderr);
        fprintf(stderr, " at step %" PRId64 "%s\n", e->loaded.global_steps,
                e->loaded.with_optimizer ? "" : ", weights alone");
    }
    if (e->zero->global_steps >= e->total_steps)
        fprintf(stderr, "note: all %" PRId64 " updates are made already\n", e->total_steps);
}

void report_profile(const report *r)
{
    const zt_engine *e = r->engine;
    static const char *const name[ZT_T_COUNT] = {"data", "forward and backward", "update", "save",
                                                 "evaluate"};
    double sum = 0;
    zt_memory m;

    if (e->comm->rank != 0 || !(r->told->profile || e->config.wall_clock))
        return;
    for (int i = 0; i < ZT_T_COUNT; i++)
        sum += e->seconds[i];
    for (int i = 0; i < ZT_T_COUNT; i++)
        fprintf(stderr, "profile: %-22s %8.3f s %5.1f %%\n", name[i], e->seconds[i],
                sum > 0 ? 100 * e->seconds[i] / sum : 0);
    zt_zero_memory(e->zero, &m);
    fprintf(stderr,
            "profile: bytes of this rank: weights %" PRIu64 ", masters %" PRIu64
            ", optimizer state %" PRIu64 ", gradients %" PRIu64 ", buffers %" PRIu64
            ", activations %" PRIu64 "\n",
            m.weights, m.masters, m.state, m.gradients, m.buffers, m.activations);
}

int report_close(report *r, ckpt_err *err)
{
    int rc = CKPT_OK;

    if (r->metrics && (r->metrics == stdout ? fflush(stdout) : fclose(r->metrics)) != 0)
        rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot be written", r->told->metrics);
    r->metrics = NULL;
    return rc;
}
