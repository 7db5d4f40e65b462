/* SPDX-License-Identifier: Apache-2.0 */
/* report.c: reports on a run: metrics as JSON lines, progress for people, a profile. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt_extra.h"
#include "tools/zerotrain/zerotrain.h"

#define RP_RANKS 16 /* maximum number of listed ranks */

/* True if the progress line can be redrawn: on a terminal that supports it, and without --quiet. */
static bool rp_is_live(const report *r)
{
    const char *term = getenv("TERM");

    return !r->told->quiet && isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
}

/* True if the run resumes from a checkpoint, so existing outputs are its own. */
static bool rp_resumes(const report *r)
{
    return r->told->run.load && r->about.with_optimizer;
}

/* Refuse to replace a file of an earlier run without --force. */
static int rp_spare(const report *r, const char *path, const char *what, ckpt_err *err)
{
    struct stat st;

    if (r->told->run.force || rp_resumes(r) || stat(path, &st) != 0 || !S_ISREG(st.st_mode) ||
        st.st_size == 0)
        return CKPT_OK;
    return ckpt_fail(
        err, CKPT_EUSAGE,
        "%s: holds %s of another run; choose another name, or use --force to replace them", path,
        what);
}

/* Open the outputs other than --metrics. */
static int rp_open_more(report *r, ckpt_err *err)
{
    int rc = monitor_open(&r->monitor, r->told, r->about.config, err);

    if (rc == CKPT_OK && r->told->plot && !r->told->run.evaluate) {
        r->plot = ckpt_arena_alloc(r->told->arena, sizeof *r->plot);
        rc = r->plot ? rp_spare(r, r->told->plot, "the curves", err) : ckpt_fail_memory(err);
        // the picture takes the place of the file, so that place must not be a device or a link
        if (rc == CKPT_OK)
            rc = ckpt_output_check(r->told->plot, err);
        if (rc == CKPT_OK)
            rc = plot_try(r->told->plot, err);
    }
    r->live = rp_is_live(r);
    return rc;
}

int report_open(report *r, ckpt_err *err)
{
    int rc = CKPT_OK;

    r->monitor = (monitor){.event = {{.fd = -1}, {.fd = -1}}};
    if (r->about.rank == 0 && r->told->metrics) {
        // a resumed run, or an evaluation, appends to the existing file
        bool more = rp_resumes(r) || r->told->run.evaluate;
        bool print = strcmp(r->told->metrics, "-") == 0;
        if (!print && !more)
            rc = rp_spare(r, r->told->metrics, "metrics", err);
        if (rc == CKPT_OK)
            r->metrics = print ? stdout : fopen(r->told->metrics, more ? "a" : "w");
        if (rc == CKPT_OK && !r->metrics)
            rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot be written", r->told->metrics);
    }
    if (rc == CKPT_OK && r->about.rank == 0)
        rc = rp_open_more(r, err);
    return zt_engine_agree(r->engine, rc, err);
}

/* Remove the progress line before other output on stderr. */
static void rp_clear(const report *r)
{
    if (r->live)
        fputs("\r\033[K", stderr);
}

/* Update running means: the loss over about 10 and 50 updates, the seconds of one. */
static void rp_follow(report *r, const zt_progress *p)
{
    if (p->loss - p->loss == 0) {
        r->fast = r->slow == 0 ? p->loss : r->fast + (p->loss - r->fast) / 10;
        r->slow = r->slow == 0 ? p->loss : r->slow + (p->loss - r->slow) / 50;
    }
    r->pace = r->pace == 0 ? p->seconds : r->pace + (p->seconds - r->pace) / 20;
}

/* Redraw the progress line: position, trend of the loss, time left. */
static void rp_live(const report *r, const zt_standing *now, const zt_progress *p)
{
    const double left = r->pace * (double)(r->about.total_steps - now->steps);
    const double trend = r->slow != 0 ? 100 * (r->fast / r->slow - 1) : 0;
    const int64_t s = left < 1e15 ? (int64_t)(left + 0.5) : 0;

    fprintf(stderr,
            "\rstep %" PRId64 "/%" PRId64 "  loss %.4f (%s %.1f %%)  lr %.3g  ETA %" PRId64
            ":%02d:%02d\033[K",
            now->steps, r->about.total_steps, isnan(p->loss) ? (double)NAN : p->loss,
            trend < 0 ? "falling" : "rising", trend < 0 ? -trend : trend, p->step.lr, s / 3600,
            (int)(s / 60 % 60), (int)(s % 60));
    (void)fflush(stderr);
}

/* Write an update's numbers to monitors, under DeepSpeed's names. */
static int rp_monitor(report *r, const zt_standing *now, const zt_progress *p, ckpt_err *err)
{
    const monitor_value v[] = {{"Train/Samples/train_loss", p->loss},
                               {"Train/Samples/lr", p->step.lr},
                               {"Train/Samples/loss_scale", p->step.loss_scale}};
    const bool scaled = r->about.config->dtype == CKPT_F16;

    return monitor_write(&r->monitor, now->samples, v, scaled ? 3 : 2, err);
}

/* Write the picture: at the end, and as often as a progress line. */
static int rp_plot(report *r, const zt_standing *now, const zt_progress *p, bool due, ckpt_err *err)
{
    const plot_point one = {now->steps, p->loss, p->step.lr};

    if (!r->plot)
        return CKPT_OK;
    plot_add(r->plot, &one);
    return due ? plot_write(r->plot, r->told->plot, err) : CKPT_OK;
}

/* Write a JSON number; null if it is not finite. */
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

/* Print the line about a skipped update. */
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
    bool due;
    int rc;

    if (r->about.rank != 0)
        return CKPT_OK;
    zt_engine_standing(r->engine, &now);
    every = r->told->logging_steps > 0 ? r->told->logging_steps : every;
    due = now.steps % every == 0 || now.steps == r->about.total_steps;
    rp_follow(r, p);
    rp_clear(r);
    r->n_made++;
    r->n_skipped = p->step.skipped ? r->n_skipped + 1 : 0;
    if (p->step.skipped && !r->told->quiet)
        rp_overflow(&now, &p->step);
    if (!r->told->quiet && due)
        rp_progress(r, &now, p);
    if (r->live && now.steps != r->about.total_steps)
        rp_live(r, &now, p);
    rc = rp_monitor(r, &now, p, err);
    if (rc == CKPT_OK)
        rc = rp_plot(r, &now, p, due, err);
    if (rc != CKPT_OK || !r->metrics)
        return rc;
    fprintf(r->metrics, "{\"step\": %" PRId64, now.steps);
    rp_number(r->metrics, "loss", p->loss);
    rp_number(r->metrics, "grad_norm", p->step.grad_norm);
    rp_number(r->metrics, "lr", p->step.lr);
    rp_number(r->metrics, "loss_scale", p->step.loss_scale);
    fprintf(r->metrics, ", \"skipped\": %s, \"tokens\": %" PRIu64,
            p->step.skipped ? "true" : "false", p->tokens);
    if (now.counted)
        fprintf(r->metrics, ", \"sent_bytes\": %" PRIu64 ", \"received_bytes\": %" PRIu64,
                p->traffic.sent, p->traffic.received);
    rp_number(r->metrics, "seconds", p->seconds);
    fputc('}', r->metrics);
    return rp_flush(r, err);
}

/* Print the loaded checkpoint: the path, and the tag if the path does not contain it. */
static void rp_loaded(const report *r, FILE *out)
{
    const char *path = r->told->run.load, *tag = r->about.tag;
    size_t n = strlen(path), m = strlen(tag);
    bool named = m == 0 || (n >= m && strcmp(path + n - m, tag) == 0);

    fprintf(out, "%s%s%s", path, named || path[n - 1] == '/' ? "" : "/", named ? "" : tag);
}

/* Write a score to monitors, under our names, because DeepSpeed has none. */
static int rp_monitor_score(report *r, const zt_standing *now, const zt_score *s, ckpt_err *err)
{
    const monitor_value v[] = {{"Evaluation/Samples/loss", s->loss},
                               {"Evaluation/Samples/accuracy", s->accuracy}};

    return monitor_write(&r->monitor, now->samples, v, s->accuracy - s->accuracy == 0 ? 2 : 1, err);
}

/* Print a score for people, and with --evaluate the table of classes. */
static void rp_score(const report *r, const zt_standing *now, const zt_score *s, FILE *out)
{
    const zt_options *o = &r->told->run;

    fputs("evaluated ", out);
    // if only weights were loaded, now->steps is not the checkpoint's step
    if (o->evaluate && o->load)
        rp_loaded(r, out);
    else
        fprintf(out, "at step %" PRId64, now->steps);
    fprintf(out, ": loss %.6f", s->loss);
    if (!isnan(s->perplexity))
        fprintf(out, ", perplexity %.4f", s->perplexity);
    if (!isnan(s->accuracy))
        fprintf(out, ", accuracy %.2f %%", 100 * s->accuracy);
    fprintf(out, ", %" PRIu64 " samples\n", s->samples);
    if (o->evaluate && s->n_classes > 0)
        table_print(out, s);
}

/* Print a score, unless the run is quiet and has another result. */
static int rp_show_score(const report *r, const zt_standing *now, const zt_score *s, ckpt_err *err)
{
    const bool result = r->told->run.evaluate;
    // do not mix text with lines of JSON
    FILE *out = result && r->metrics != stdout ? stdout : stderr;
    int rc = CKPT_OK;

    if (r->told->quiet && !result)
        return CKPT_OK;
    rp_clear(r);
    if (r->told->json)
        rc = table_json(out, s, now->steps, err);
    else
        rp_score(r, now, s, out);
    if (rc == CKPT_OK && result && fflush(out) != 0)
        rc = ckpt_fail_sys(err, CKPT_EIO, errno, "the result of the evaluation cannot be written");
    return rc;
}

int report_score(report *r, const zt_score *s, ckpt_err *err)
{
    zt_standing now;
    int rc;

    if (r->about.rank != 0)
        return CKPT_OK;
    zt_engine_standing(r->engine, &now);
    rc = rp_show_score(r, &now, s, err);
    if (rc == CKPT_OK)
        rc = rp_monitor_score(r, &now, s, err);
    if (rc != CKPT_OK || !r->metrics)
        return rc;
    fprintf(r->metrics, "{\"step\": %" PRId64 ", \"evaluation\": true", now.steps);
    rp_number(r->metrics, "eval_loss", s->loss);
    rp_number(r->metrics, "eval_accuracy", s->accuracy);
    if (s->n_classes > 0) {
        rp_number(r->metrics, "eval_precision", s->precision);
        rp_number(r->metrics, "eval_recall", s->recall);
        rp_number(r->metrics, "eval_f1", s->f1);
    }
    if (!isnan(s->perplexity))
        rp_number(r->metrics, "eval_perplexity", s->perplexity);
    fprintf(r->metrics, ", \"samples\": %" PRIu64 "}", s->samples);
    return rp_flush(r, err);
}

void report_skipped(const report *r)
{
    // a loss scale that begins high skips the first updates of a run, and a few later
    if (r->about.rank != 0 || r->n_skipped == 0 || (r->n_skipped < 3 && r->n_skipped < r->n_made))
        return;
    rp_clear(r);
    fprintf(stderr,
            "zerotrain: warning: gradients of the last %" PRId64
            " updates were not finite, so these updates were skipped\n",
            r->n_skipped);
}

void report_better(const report *r)
{
    const zt_best *b = zt_engine_get_best(r->engine);

    if (r->about.rank != 0 || r->told->quiet || !b)
        return;
    rp_clear(r);
    fprintf(stderr, "best %s so far: %.6g, saved as %s/%s\n", b->metric, b->value,
            r->told->run.save, b->tag);
}

void report_best(const report *r)
{
    const zt_options *o = &r->told->run;
    const zt_best *b = zt_engine_get_best(r->engine);
    const char *out = o->save_model ? o->save_model : o->save_weights;

    if (r->about.rank == 0 && o->save_best && !b) {
        rp_clear(r);
        fprintf(stderr,
                "zerotrain: warning: --save-best %s: no evaluation had a finite score, so no "
                "checkpoint is the best%s\n",
                o->save_best,
                out && o->load_best ? "; the final outputs have the last weights" : "");
    }
    if (r->about.rank != 0 || r->told->quiet || !b)
        return;
    rp_clear(r);
    fprintf(stderr, "best %s: %.6g at step %" PRId64 ", in %s/%s%s%s\n", b->metric, b->value,
            b->step, o->save, b->tag, out && o->load_best ? "; its weights are in " : "",
            out && o->load_best ? out : "");
}

void report_save(const report *r)
{
    char names[ZT_SAVE_NAMES];
    ckpt_err remark;

    if (zt_engine_remark(r->engine, &remark)) {
        rp_clear(r);
        fprintf(stderr, "zerotrain: warning: %s; the run goes on\n", remark.text);
    }
    if (zt_engine_gone(r->engine, names) && !r->told->quiet) {
        rp_clear(r);
        fprintf(stderr, "note: --keep %" PRId64 " has removed %s from %s\n", r->told->run.keep,
                names, r->told->run.save);
    }
}

/* Print the source of parameters that the named checkpoint lacks. */
static void rp_lacking(const report *r, size_t n, const char *init)
{
    if (n == 0)
        return;
    fprintf(stderr, ", except %zu parameters that it does not have: ", n);
    if (init)
        fprintf(stderr, "from %s", init);
    else
        fprintf(stderr, "random, from --seed %" PRId64, r->told->run.seed);
}

/*
 * Warn if the counters of a checkpoint's files disagree, of settings in the configuration that have
 * no effect, and if the checkpoint is from a run with other samples.
 */
static void rp_resumed(const report *r)
{
    const zt_about *a = &r->about;

    if (a->rank == 0 && a->with_optimizer && a->replaced[0])
        fprintf(stderr,
                "zerotrain: warning: %s: the optimizer continues with the checkpoint's settings: "
                "%s; --module-only begins a new run with the settings of the configuration\n",
                r->told->run.load, a->replaced);
    if (a->rank == 0 && a->with_optimizer && a->fresh_schedule)
        fprintf(stderr,
                "zerotrain: warning: %s: has no state of a schedule, so the scheduler of the "
                "configuration begins at its first step, although the run has made %" PRId64
                " updates\n",
                r->told->run.load, a->updates);
    if (a->rank == 0 && a->unlike_data[0])
        fprintf(stderr,
                "zerotrain: warning: %s: was saved by a run with other samples: %s; this run may "
                "read some samples a second time and leave others out\n",
                r->told->run.load, a->unlike_data);
    if (a->rank == 0 && a->with_optimizer && a->optimizer_updates >= 0 &&
        a->optimizer_updates != a->updates)
        fprintf(stderr,
                "zerotrain: warning: %s: the optimizer has made %" PRId64
                " updates, but the model file counts %" PRId64
                ": the files may be from different saves\n",
                r->told->run.load, a->optimizer_updates, a->updates);
}

/* Print the source of the weights; with --quiet too, if the user may have meant others. */
static void rp_weights(const report *r)
{
    const zt_about *a = &r->about;
    const zt_options *o = &r->told->run;
    const bool trains = !o->evaluate && !o->predictions && !o->generate;
    const bool lacks = o->load ? a->n_missing > 0 && (!a->init || a->n_drawn > 0) : a->n_drawn > 0;
    const bool warns = (!o->load && a->drawn_warns) || (lacks && !trains);

    if (a->rank == 0 && a->unlike_model[0])
        fprintf(stderr, "zerotrain: warning: %s: belongs to another model of the same shapes: %s\n",
                a->unlike_path, a->unlike_model);
    if (a->rank != 0 || (r->told->quiet && !warns))
        return;
    fputs(warns ? "zerotrain: warning: " : "", stderr);
    if (o->load) {
        fputs(trains ? "resumed from " : "weights: from ", stderr);
        rp_loaded(r, stderr);
        if (trains)
            fprintf(stderr, " at step %" PRId64 "%s", a->loaded_steps,
                    a->with_optimizer ? "" : ", weights only");
        rp_lacking(r, a->n_missing, a->init);
    } else if (a->init) {
        fprintf(stderr, "weights: from %s", a->init);
        rp_lacking(r, a->n_drawn, NULL);
        if (a->n_unused > 0)
            fprintf(stderr, "; %zu of its tensors are not in the model", a->n_unused);
    } else {
        fprintf(stderr, "weights: random, from --seed %" PRId64 " (%s)", o->seed, a->drawn);
    }
    fputc('\n', stderr);
}

/* Warn of samples that are longer than the texts for which the model's positions are made. */
static void rp_reach(const zt_about *a, const char *path, uint64_t row)
{
    if (row <= a->reach)
        return;
    fprintf(stderr,
            "zerotrain: warning: %s: samples have up to %" PRIu64
            " tokens, but the model's rotary positions are made for %" PRIu64
            " (max_position_embeddings is %" PRIu64 " in its config.json%s); use a smaller --seq, "
            "or state the new length in config.json\n",
            path, row, a->reach, a->positions,
            a->reach > a->positions ? ", multiplied by the factor of rope_scaling" : "");
}

/* Name the parts of the data files that are not used. */
static void rp_unused(const report *r)
{
    const zt_about *a = &r->about;

    for (int i = 0; a->rank == 0 && i < 2; i++) {
        const zt_data_unused *u = &a->unused[i];
        const char *path = i == 0 ? r->told->run.data : r->told->run.eval_data;
        char of[40] = "";

        if (u->of > 0)
            (void)snprintf(of, sizeof of, " of the first %" PRIu64, u->of);
        rp_reach(a, path, a->row[i]);
        if (u->records > 0)
            fprintf(stderr,
                    "zerotrain: warning: %s: %" PRIu64
                    " records have no answer within a row of --seq tokens, and are left out\n",
                    path, u->records);
        if (u->names)
            fprintf(stderr,
                    "zerotrain: warning: %s: %s that the model does not take are not used: %s\n",
                    path, u->what, u->names);
        if (a->n_silent[i] > 0)
            fprintf(stderr,
                    "zerotrain: warning: %s: all labels of %" PRIu64 " of its %" PRIu64
                    " samples are -100; a micro batch of such samples has no gradient, and its "
                    "loss is not a number\n",
                    path, a->n_silent[i], a->n_samples[i]);
        if (u->cut > 0 && !r->told->quiet)
            fprintf(stderr,
                    "note: %s: %" PRIu64 "%s texts have more than %" PRIu64
                    " tokens (--seq), and only their first %" PRIu64 " are used\n",
                    path, u->cut, of, a->row[i], a->row[i]);
        if (u->tokens > 0 && !r->told->quiet)
            fprintf(stderr,
                    "note: %s: its last %" PRIu64 " tokens do not fill a sample of %" PRIu64
                    " (--seq), and are not used\n",
                    path, u->tokens, a->row[i]);
    }
}

void report_weights(zt_engine *e, const told *t)
{
    report r = {.engine = e, .told = t};

    zt_engine_about(e, &r.about);
    rp_unused(&r);
    rp_weights(&r);
}

/* Warn of a choice for GPUs that has no effect, because the run is on a processor. */
static void rp_attention(const report *r)
{
    const char *text = getenv("ZEROTRAIN_ATTENTION");

    if (!r->about.device && text && *text && strcmp(text, "own") != 0)
        fprintf(stderr,
                "zerotrain: warning: ZEROTRAIN_ATTENTION=%.40s has no effect: the run is on a "
                "processor\n",
                text);
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
    rp_attention(r);
    rp_unused(r);
    rp_resumed(r);
    if (r->told->quiet) {
        rp_weights(r);
        return;
    }
    fprintf(stderr,
            "%s: %" PRIu64 " parameters, %" PRIu64
            " trained; ZeRO stage %d, %s, %d %s; global batch %" PRId64 " = %" PRId64 " x %" PRId64
            " x %d (micro batch, accumulation, ranks)\n",
            a->class_name, a->n_params, a->n_trained, c->stage, ckpt_dtype_name(c->dtype), a->world,
            a->world == 1 ? "rank" : "ranks", c->train_batch, c->micro_batch, c->accumulation,
            a->world);
    if (a->device)
        fprintf(stderr, "note: on %s%s%s\n", a->device, a->wire ? ", communicating by " : "",
                a->wire ? a->wire : "");
    rp_weights(r);
    zt_engine_standing(r->engine, &now);
    if (now.steps >= a->total_steps)
        fprintf(stderr,
                "note: nothing to do: the checkpoint has made %" PRId64 " of %" PRId64
                " updates; --max-steps and --epochs count from the start of the run\n",
                now.steps, a->total_steps);
}

/*
 * Dense bf16 peaks of GPUs in TFLOP/s, from NVIDIA's data sheets; a name that contains another one
 * comes first.
 */
static const struct {
    const char *name;
    double tflops;
} rp_peaks[] = {{"H100 PCIe", 756}, {"H100 NVL", 835}, {"H100", 989},    {"H200", 989},
                {"GH200", 989},     {"H800", 989},     {"B200", 2250},   {"A100", 312},
                {"A800", 312},      {"A30", 165},      {"L40S", 362},    {"L4", 121},
                {"A10", 125},       {"RTX 4090", 165}, {"RTX 3090", 71}, {"RTX A6000", 155}};

/* The peak of the card in TFLOP/s; 0: it is not known. */
static double rp_peak(const report *r)
{
    if (r->told->peak_tflops > 0)
        return r->told->peak_tflops;
    for (size_t i = 0; i < sizeof rp_peaks / sizeof *rp_peaks; i++) {
        if (strstr(r->about.card, rp_peaks[i].name))
            return rp_peaks[i].tflops;
    }
    return 0;
}

/* Speed, and its share of the peak (model FLOPs utilization, MFU). */
static void rp_speed(const report *r, const zt_standing *now)
{
    const zt_about *a = &r->about;
    double speed = 0, tflops, peak = rp_peak(r);

    if (now->paced_seconds > 0)
        speed = (double)now->paced_tokens / now->paced_seconds / a->world;
    tflops = speed * (double)a->flops * 1e-12;
    if (speed <= 0 || (!a->device && peak <= 0))
        return;
    fprintf(stderr, "profile: %.0f tokens/s a rank after the first update, %.4g TFLOP/s", speed,
            tflops);
    if (peak > 0)
        fprintf(stderr, ", MFU %.1f %% of %.4g TFLOP/s\n", 100 * tflops / peak, peak);
    else
        fprintf(stderr, "; for the MFU, give --peak-tflops: no peak of %s is known\n",
                *a->card ? a->card : "this device");
}

void report_profile(const report *r)
{
    static const char *const name[ZT_T_COUNT] = {"data", "forward and backward", "update", "save",
                                                 "evaluate"};
    double sum = 0;
    zt_standing now;

    if (r->about.rank != 0 || !(r->told->run.profile || r->about.config->wall_clock))
        return;
    zt_engine_standing(r->engine, &now);
    const zt_memory *m = &now.memory;
    for (int i = 0; i < ZT_T_COUNT; i++)
        sum += now.seconds[i];
    for (int i = 0; i < ZT_T_COUNT; i++)
        fprintf(stderr, "profile: %-22s %8.3f s %5.1f %%\n", name[i], now.seconds[i],
                sum > 0 ? 100 * now.seconds[i] / sum : 0);
    if (now.home.update > 0)
        fprintf(stderr,
                "profile: offloaded optimizer: updates on the host %.3f s, copies at the same time "
                "%.3f s\n",
                now.home.update, now.home.copies);
    fprintf(stderr,
            "profile: bytes of this rank: weights %" PRIu64 ", masters %" PRIu64
            ", optimizer state %" PRIu64 ", gradients %" PRIu64 ", buffers %" PRIu64
            ", activations %" PRIu64 "\n",
            m->weights, m->masters, m->state, m->gradients, m->buffers, m->activations);
    fprintf(stderr, "profile: peak of device memory: %" PRIu64 " bytes\n", now.peak);
    if (*now.attention)
        fprintf(stderr, "profile: attention by %s\n", now.attention);
    if (r->about.products)
        fprintf(stderr, "profile: bf16 matrices are multiplied %s\n", r->about.products);
    rp_speed(r, &now);
}

/*
 * Print a line for each rank; if there are many ranks, only for those that sent the least and the
 * most.
 */
static void rp_traffic(const zt_traffic *t, uint64_t world, int64_t steps)
{
    uint64_t least = 0, most = 0;

    for (uint64_t i = 0; i < world; i++) {
        least = t[i].sent < t[least].sent ? i : least;
        most = t[i].sent > t[most].sent ? i : most;
    }
    for (uint64_t i = 0; i < world; i++) {
        if (world <= RP_RANKS || i == least || i == most)
            fprintf(stderr,
                    "profile: rank %" PRIu64 " in %" PRId64 " updates: sent %" PRIu64
                    ", received %" PRIu64 " bytes of tensors; %" PRIu64 ", %" PRIu64
                    " bytes of control messages\n",
                    i, steps, t[i].sent, t[i].received, t[i].words_sent, t[i].words_received);
    }
}

int report_traffic(const report *r, ckpt_err *err)
{
    uint64_t world = (uint64_t)r->about.world;
    zt_traffic *t = calloc(world, sizeof *t);
    zt_standing now;
    int rc = zt_engine_agree(r->engine, t ? CKPT_OK : ckpt_fail_memory(err), err);

    if (rc == CKPT_OK)
        rc = zt_engine_traffic(r->engine, t, err);
    zt_engine_standing(r->engine, &now);
    if (rc == CKPT_OK && r->about.rank == 0 && world > 1 && now.counted &&
        (r->told->run.profile || r->about.config->wall_clock))
        rp_traffic(t, world, now.made);
    free(t);
    return rc;
}

int report_close(report *r, ckpt_err *err)
{
    int rc = monitor_close(&r->monitor, err);

    rp_clear(r);
    if (rc == CKPT_OK && r->plot)
        rc = plot_write(r->plot, r->told->plot, err);
    if (r->metrics && (r->metrics == stdout ? fflush(stdout) : fclose(r->metrics)) != 0)
        rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot be written", r->told->metrics);
    r->metrics = NULL;
    return rc;
}
