/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c: zerotrain, the program: options, communicator, and what was asked for.
 */
#include <signal.h>
#include <unistd.h>

#include "tools/cli/out.h"
#include "tools/zerotrain/zerotrain.h"

/* What is asked for instead of a run; false: nothing. */
static bool mn_serve(const told *asked, int argc, int *rc, ckpt_err *err)
{
    static const cli_verb *const programs[] = {&options_verb, NULL};
    int closed;

    *rc = CKPT_OK;
    if (asked->help)
        cli_help(&options_verb, asked->help_all);
    else if (asked->version)
        out_printf("zerotrain %s\n", ckpt_version());
    else if (asked->completion)
        *rc = cli_complete(asked->completion, NULL, programs, err);
    else if (argc == 1)
        *rc = ckpt_fail(err, CKPT_EUSAGE,
                        "nothing was asked for: zerotrain --help shows the options");
    else
        return false;
    closed = out_close(*rc == CKPT_OK ? err : NULL);
    *rc = *rc == CKPT_OK ? closed : *rc;
    return true;
}

/* What an engine is for. */
static int mn_work(zt_engine *e, const told *t, ckpt_err *err)
{
    if (!t->run.predictions && !t->run.evaluate)
        return run_train(e, t, err);
    report_weights(e, t);
    return t->run.predictions ? zt_engine_predict(e, t->run.predictions, err)
                              : run_evaluate(e, t, err);
}

static int mn_run(const told *t, zt_comm *comm, bool *running, ckpt_err *err)
{
    zt_engine *e = NULL;
    int rc = zt_engine_new(&e, &t->run, comm, err);

    *running = rc == CKPT_OK;
    if (rc == CKPT_OK && comm->rank == 0 && !t->quiet)
        others_notes(t);
    if (rc == CKPT_OK && t->run.print_config)
        rc = comm->rank == 0 ? zt_config_print(zt_engine_config(e), stdout, err) : CKPT_OK;
    else if (rc == CKPT_OK)
        rc = mn_work(e, t, err);
    zt_engine_free(e);
    return rc;
}

/*
 * Tell a failure once.  One that all ranks agreed on is rank 0's to tell; one of a single rank (a
 * full device, a lost peer) must end the others, which wait for it: whoever is not rank 0 gives
 * rank 0 a second to say it first.
 */
static int mn_fail(zt_comm *comm, bool running, const ckpt_err *err)
{
    int status = ckpt_err_status(err->code);

    if (running && comm->world > 1) {
        if (comm->rank != 0)
            sleep(1);
        comm->ops->abort(comm, status, err->text);
    }
    if ((!comm || comm->rank == 0) && err->text[0])
        fprintf(stderr, "zerotrain: %s\n", err->text);
    return status;
}

/* Hosts or slots were chosen, and no launcher started this process already (it passes its rank). */
static bool mn_launches(const told *o)
{
    return !zt_comm_launched() && o->local_rank < 0 &&
           (o->hostfile || o->include || o->exclude || o->num_slots > 0 || o->num_nodes > 0);
}

/*
 * The ranks come to know each other, even where options are wrong already: only together can they
 * say it once.
 */
static int mn_meet(zt_comm **comm, int rc, ckpt_err *err)
{
    ckpt_err alone = {0};

    if (!zt_comm_launched())
        return rc == CKPT_OK ? zt_comm_self(comm, err) : rc;
    if (zt_comm_mpi(comm, rc == CKPT_OK ? err : &alone) != CKPT_OK)
        return rc == CKPT_OK ? err->code : rc;
    return zt_comm_agree(*comm, rc, err);
}

/* --local_rank N says that there are others, whom nobody else has told of. */
static int mn_local_rank(const told *o, const zt_comm *comm, ckpt_err *err)
{
    if (o->local_rank < comm->world)
        return CKPT_OK;
    return ckpt_fail(err, CKPT_EUSAGE,
                     "--local_rank is %lld, but this process is one of %d: start all of them by "
                     "mpirun or srun --mpi=pmix",
                     (long long)o->local_rank, comm->world);
}

int main(int argc, char **argv)
{
    ckpt_err err = {0};
    ckpt_arena *arena = ckpt_arena_new(0);
    zt_comm *comm = NULL;
    told o;
    bool running = false;
    int rc = arena ? options_read(&o, arena, argc, argv, &err) : ckpt_fail_memory(&err), status = 0;

    o.run.stop = &run_stop;
    // a closed pipe and a limit on the size of files are errors of a write, not deaths
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
    if (rc == CKPT_OK && mn_serve(&o, argc, &rc, &err)) {
        ckpt_arena_free(arena);
        (void)mn_fail(NULL, false, &err);
        return ckpt_err_status(rc);
    }
    if (rc == CKPT_OK)
        rc = zt_comm_alone(mn_launches(&o), &err);
    if (rc == CKPT_OK && mn_launches(&o))
        rc = launch(&o, argc, argv, &err);
    zt_patience_limit(rc == CKPT_OK ? (double)o.wait_limit : 0);
    rc = mn_meet(&comm, rc, &err);
    if (rc == CKPT_OK)
        rc = zt_comm_agree(comm, mn_local_rank(&o, comm, &err), &err);
    if (rc == CKPT_OK)
        rc = mn_run(&o, comm, &running, &err);
    if (rc != CKPT_OK)
        status = mn_fail(comm, running, &err);
    zt_comm_free(comm);
    ckpt_arena_free(arena);
    return status;
}
