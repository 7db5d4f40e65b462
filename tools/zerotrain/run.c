/* SPDX-License-Identifier: Apache-2.0 */
/* run.c: trains from the first update to the last, and reports in between. */
#define _XOPEN_SOURCE 700 // sigaltstack

#include <signal.h>
#include <string.h>

#include "tools/zerotrain/zerotrain.h"

volatile sig_atomic_t run_stop;

static void go_signal(int number)
{
    run_stop = number;
}

/* Catch signals; a second one ends the process at once. */
static void go_catch(void)
{
    // a separate stack: see cpu_sgemm.h
    static char stack[1 << 16];
    const stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction a;

    memset(&a, 0, sizeof a);
    (void)sigaltstack(&alternate, NULL);
    a.sa_handler = go_signal;
    a.sa_flags = (int)(SA_RESTART | SA_RESETHAND | SA_ONSTACK);
    sigaction(SIGTERM, &a, NULL);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGUSR1, &a, NULL);
}

/* Evaluate, and report the score. */
static int go_score(report *r, ckpt_err *err)
{
    zt_engine *e = r->engine;
    zt_score score;
    bool better = false;
    int rc = zt_engine_evaluate(e, &score, err);

    if (rc == CKPT_OK)
        rc = zt_engine_agree(e, report_score(r, &score, err), err);
    if (rc != CKPT_OK || r->told->run.evaluate)
        return rc;
    rc = zt_engine_best(e, &score, &better, err);
    report_save(r);
    if (better)
        report_better(r);
    return rc;
}

static int64_t go_steps(const zt_engine *e)
{
    zt_standing now;

    zt_engine_standing(e, &now);
    return now.steps;
}

static bool go_due(int64_t every, int64_t step)
{
    return every > 0 && step % every == 0;
}

/* Take the actions due after an update: save first, and do not evaluate if the run was stopped. */
static int go_after(report *r, bool last, ckpt_err *err)
{
    zt_engine *e = r->engine;
    const zt_options *o = &r->told->run;
    int64_t step = go_steps(e);
    const int64_t before = r->epochs;
    bool end = step >= r->about.total_steps, epoch;
    int rc = CKPT_OK;

    r->epochs = zt_engine_epochs(e);
    epoch = r->epochs > before;
    if (o->save && (last || go_due(o->save_every, step) || (o->save_epochs && epoch))) {
        rc = zt_engine_save(e, err);
        report_save(r);
    }
    if (rc == CKPT_OK && o->eval_data &&
        (end || (!last && (go_due(o->eval_every, step) || (o->eval_epochs && epoch)))))
        rc = go_score(r, err);
    return rc;
}

/* Print the final reports; a failure to write them counts only if there was none before. */
static int go_end(report *r, int rc, ckpt_err *err)
{
    int closed;

    report_profile(r);
    closed = report_close(r, rc == CKPT_OK ? err : NULL);
    return rc == CKPT_OK ? zt_engine_agree(r->engine, closed, err) : rc;
}

int run_train(zt_engine *e, const told *t, ckpt_err *err)
{
    report r = {.engine = e, .told = t};
    int rc = zt_engine_try_outputs(e, err);

    zt_engine_about(e, &r.about);
    if (rc == CKPT_OK)
        rc = report_open(&r, err);
    go_catch();
    report_start(&r);
    report_save(&r);
    r.epochs = zt_engine_epochs(e);
    bool stop = go_steps(e) >= r.about.total_steps;
    while (rc == CKPT_OK && !stop) {
        zt_progress p;

        rc = zt_engine_step(e, &p, &stop, err);
        if (rc == CKPT_OK)
            rc = zt_engine_agree(e, report_step(&r, &p, err), err);
        if (rc == CKPT_OK)
            rc = go_after(&r, stop, err);
    }
    report_skipped(&r);
    if (rc == CKPT_OK) {
        rc = zt_engine_finish(e, err);
        report_save(&r);
        if (rc == CKPT_OK)
            report_best(&r);
    }
    if (rc == CKPT_OK)
        rc = report_traffic(&r, err);
    return go_end(&r, rc, err);
}

int run_evaluate(zt_engine *e, const told *t, ckpt_err *err)
{
    report r = {.engine = e, .told = t};
    int rc;

    zt_engine_about(e, &r.about);
    rc = report_open(&r, err);
    if (rc == CKPT_OK)
        rc = go_score(&r, err);
    return go_end(&r, rc, err);
}
