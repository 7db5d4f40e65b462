/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: owns the program zerotrain: options, communicator, mode. */
#include <signal.h>
#include <unistd.h>

#include "tools/cli/out.h"
#include "tools/zerotrain/zerotrain.h"

/* Handle a request other than a run, such as --help; false: there is none. */
static bool mn_serve(const told *asked, int argc, int *rc, ckpt_err *err)
{
    static const cli_verb *const programs[] = {&options_verb, NULL};
    int closed;

    *rc = CKPT_OK;
    if (asked->help)
        cli_help(&options_verb, asked->help_all);
    else if (asked->version)
        out_printf("zerotrain %s\n", ckpt_version());
    else if (asked->names)
        others_list();
    else if (asked->completion)
        *rc = cli_complete(asked->completion, NULL, programs, err);
    else if (argc == 1)
        *rc = ckpt_fail(err, CKPT_EUSAGE, "options are missing: zerotrain --help shows them");
    else
        return false;
    closed = out_close(*rc == CKPT_OK ? err : NULL);
    *rc = *rc == CKPT_OK ? closed : *rc;
    return true;
}

/* Train, evaluate, predict or generate. */
static int mn_work(zt_engine *e, const told *t, ckpt_err *err)
{
    if (!t->run.predictions && !t->run.evaluate && !t->run.generate)
        return run_train(e, t, err);
    report_weights(e, t);
    if (t->run.generate)
        return zt_engine_generate(e, err);
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
 * Report a failure once.  Rank 0 reports a failure on which all ranks agreed.  A failure of a
 * single rank (a full device, a lost peer) must end the other ranks, because they wait for it.
 * Other ranks give rank 0 a second to report first.
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

/*
 * True if the user chose hosts or slots, and no launcher has started this process (it would pass
 * its rank).
 */
static bool mn_launches(const told *o)
{
    return !zt_comm_launched() && o->local_rank < 0 &&
           (o->hostfile || o->include || o->exclude || o->num_slots > 0 || o->num_nodes > 0);
}

/*
 * Connect the ranks, even if options are wrong, because only connected ranks can report an error
 * once.
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

/* Check --local_rank N: it shows that there are other ranks, even if no launcher variable does. */
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
    // a closed pipe and a file-size limit must be write errors, not signals
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
