/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c: owns the program ckpt: the table of verbs, the names of the drop-ins, and the exit
 * status.
 *
 * A command is a cli_verb: its options, its number of operands, its function.  Commands return a
 * library code and leave the text in err; only this file prints errors and chooses the status.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ckpt_extra.h"
#include "tools/ckpt/effects.h"
#include "tools/ckpt/verbs.h"
#include "tools/cli/json_out.h"
#include "tools/cli/near.h"
#include "tools/cli/progress.h"
#include "tools/mpi/ranks.h"
#include "tools/sandbox/sandbox.h"

/* Verbs in the order of the help text, then the drop-ins. */
static const cli_verb *const commands[] = {
    &verb_ls,
    &verb_info,
    &verb_tree,
    &verb_cat,
    &verb_convert,
    &verb_mount,
    &verb_merge,
    &verb_extract,
    &verb_reshard,
    &verb_verify,
    &verb_diff,
    &verb_sign,
    &verb_manifest,
    &verb_doctor,
    &verb_clean,
    &verb_mem,
    &verb_report,
    &verb_formats,
    &verb_maps,
    &verb_help,
    &verb_completion,
    &verb_version,
    &compat_zero_to_fp32,
    &compat_zero_to_torch,
    &compat_ds_to_universal,
    NULL,
};

/* The drop-in that argv[0] names, with or without folder and ".py"; NULL for ckpt itself. */
static const cli_verb *main_dropin(const char *argv0)
{
    const char *slash = strrchr(argv0, '/'), *name = slash ? slash + 1 : argv0;
    size_t n = strlen(name);

    // a link may have the script's own name
    if (n > 3 && strcmp(name + n - 3, ".py") == 0)
        n -= 3;
    for (const cli_verb *const *v = commands; *v; v++) {
        if ((*v)->compat && strlen((*v)->name) == n && strncmp((*v)->name, name, n) == 0)
            return *v;
    }
    return NULL;
}

/* Print "ckpt 0.1.0", or the drop-in's name and the version. */
static void main_version(void)
{
    out_printf("%s %s\n", out_program(), ckpt_version());
}

/*
 * With several processes, refuse commands that change files, or that write one file or stream,
 * because the processes would collide.
 */
static int main_alone(const cli_args *a, ckpt_err *err)
{
    bool changes = (a->line.verb == &verb_clean && !a->dry_run) ||
                   cli_has(&a->line, "fix-latest") || a->line.verb == &verb_report ||
                   a->line.verb == &verb_manifest || a->line.verb == &verb_mount ||
                   a->line.verb == &verb_sign || args_to_stdout(a);

    return ranks_shared() && changes
               ? fail(err, CKPT_EUSAGE,
                      "this command does not support several processes: start one (CKPT_MPI=no)")
               : CKPT_OK;
}

/* True for a path with a meaning that depends on the working folder. */
static bool main_relative(const char *path)
{
    return path && *path && *path != '/' && !ckpt_path_is_remote(path);
}

/* True if any path of the command line depends on the working folder. */
static bool main_any_relative(const cli_args *a)
{
    bool any = false;

    for (int i = 0; a->local && i < a->n_operands; i++)
        any |= main_relative(a->operand[i]);
    for (const cli_option *o = a->line.verb->options; o && o->name; o++) {
        const char *path = NULL;
        if (o->kind == CLI_FILE || (a->local && o->kind == CLI_SOURCE))
            memcpy(&path, (const char *)a + o->at, sizeof path);
        any |= main_relative(path);
    }
    return any;
}

/*
 * Check that all processes have the same working folder if a path is relative, because otherwise
 * they would open different files.  Files that all processes open are compared at opening; files on
 * local disks, and files of options, are not.
 */
static int main_one_folder(const cli_args *a, ckpt_err *err)
{
    char here[PATH_MAX];

    if (!ranks_shared() || !main_any_relative(a))
        return CKPT_OK;
    if (!getcwd(here, sizeof here))
        return fail(err, CKPT_EIO, "cannot find the working folder: %s", strerror(errno));
    return ckpt_team_same("working folder (give absolute paths, or mpirun -wdir)", here, err);
}

/* Handle --local and --local-target: source or output are on the disks of several machines. */
static int main_local(const cli_args *a, ckpt_err *err)
{
    static const char no_effect[] = "%s has no effect: this is one process (see ckpt-mpi(7))";

    if (a->local && !ranks_shared())
        say_warning(no_effect, "--local");
    if (a->local_target && !ranks_shared())
        say_warning(no_effect, "--local-target");
    if (a->hostfile && !ranks_shared())
        say_warning(no_effect, "--hostfile");
    ckpt_team_local(a->local);
    if (!ranks_shared() || (!a->local_target && !a->hostfile))
        return CKPT_OK;
    return a->hostfile ? ckpt_team_hostfile(a->hostfile, err) : ckpt_team_spread(NULL, 0, err);
}

/* Print the progress of opening a remote checkpoint, if that takes more than some seconds. */
static void main_show_opening(void)
{
    enum { FIRST = 5, EACH = 10 }; // seconds
    static _Atomic int64_t due;
    uint64_t n_open, n_all;
    struct timespec now = {0};

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t at = atomic_load(&due), s = now.tv_sec;
    if (!ckpt_remote_progress(&n_open, &n_all)) {
        atomic_store(&due, 0);
        return;
    }
    // only one of the waiting threads prints
    if (at == 0)
        (void)atomic_compare_exchange_strong(&due, &at, s + FIRST);
    else if (s >= at && atomic_compare_exchange_strong(&due, &at, s + EACH))
        say_note("opening: %" PRIu64 " of %" PRIu64 " files", n_open, n_all);
}

/* Stop waiting for another machine at the first signal. */
static bool main_stop(void *ctx)
{
    const cli_args *a = ctx;

    if (!a->quiet)
        main_show_opening();
    return progress_signal() != 0;
}

/* Run a command inside the sandbox. */
static int main_confined(cli_args *args, ckpt_err *err)
{
    sandbox box = {0};
    ckpt_remote_set_stop(main_stop, args);
    int rc = sandbox_check_outputs(args, err);

    if (rc == CKPT_OK && args->line.verb->before)
        rc = args->line.verb->before(args, err);

    // no sandbox under MPI, which opens files and sockets at any time
    if (rc == CKPT_OK && !ranks_shared())
        rc = sandbox_enter(&box, args, err);
    if (rc == CKPT_OK)
        rc = args->line.verb->run(args, err);
    if (rc == CKPT_OK && !args->quiet && !args->json)
        ranks_tell();
    if (rc != CKPT_OK && sandbox_suspect(&box, err))
        say_note("the sandbox may have caused this error: --no-sandbox turns it off");
    sandbox_leave(&box);
    return rc;
}

/* Parse and run one command whose zeroed fields are at args. */
static int main_parse(cli_args *args, const cli_verb *verb, int argc, char **argv, ckpt_err *err)
{
    args->commands = commands;
    int rc = args_parse(args, verb, argc, argv, err);

    if (rc == CKPT_OK && args->line.help)
        cli_help(verb, args->line.help_all);
    else if (rc == CKPT_OK && args->line.version)
        main_version();
    else if (rc == CKPT_OK)
        rc = args_rules(args, err);
    if (rc == CKPT_OK && !args->line.help && !args->line.version) {
        effects_of_options(args);
        rc = main_one_folder(args, err);
        if (rc == CKPT_OK)
            rc = main_local(args, err);
        if (rc == CKPT_OK)
            rc = main_alone(args, err);
    }
    if (rc == CKPT_OK && !args->line.help && !args->line.version)
        rc = main_confined(args, err);
    args_free(args);
    return rc;
}

/* Run one command with fields of its own; failures are in err. */
static int main_run(const cli_verb *verb, int argc, char **argv, ckpt_err *err)
{
    size_t room = verb->room ? verb->room : sizeof(cli_args);
    cli_args *args = calloc(1, room);

    for (const cli_option *o = verb->options; o && o->name; o++)
        assert(o->at < room);
    int rc =
        args ? main_parse(args, verb, argc, argv, err) : fail(err, CKPT_ELIMIT, "out of memory");

    free(args);
    return rc;
}

/* ckpt without a known verb: print help or version, or fail with a usage error. */
static int main_top(int argc, char **argv, ckpt_err *err)
{
    near_word near;

    if (argc < 2)
        return fail(err, CKPT_EUSAGE, "a command is missing");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return verb_help.run(&(cli_args){.commands = commands}, err);
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        main_version();
        return CKPT_OK;
    }
    near_begin(&near, argv[1], strlen(argv[1]));
    for (const cli_verb *const *v = commands; !(*v)->compat; v++)
        near_try(&near, (*v)->name);
    return fail(err, CKPT_EUSAGE, "'%s' is not a command%s%s%s", argv[1],
                near.best ? "; did you mean '" : "", near.best ? near.best : "",
                near.best ? "'?" : "");
}

/* End the process by the signal, as if it had not been caught, so shells and schedulers see it. */
static void main_raise(int sig)
{
    struct sigaction action = {.sa_handler = SIG_DFL};

    sigemptyset(&action.sa_mask);
    (void)sigaction(sig, &action, NULL);
    (void)raise(sig);
}

/* True if the words contain --json; parsing may have failed, so the words decide. */
static bool main_wants_json(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--json") == 0)
            return true;
    }
    return false;
}

/* The name of a library code: "EFORMAT" for CKPT_EFORMAT. */
static const char *main_code(int rc)
{
#define MAIN_CODE(name, value, status, text)                                                       \
    if (rc == (value))                                                                             \
        return #name;
    CKPT_ERRORS(MAIN_CODE)
#undef MAIN_CODE
    return "unknown";
}

/*
 * Print an error document if --json was given and no document was begun; a begun document has its
 * own end.
 */
static void main_json(int rc, const ckpt_err *err)
{
    json_out j;

    json_begin(&j);
    json_open(&j, "error", '{');
    json_text(&j, "code", main_code(rc));
    json_int(&j, "status", ckpt_err_status(rc));
    json_text(&j, "text", err->text);
    json_close(&j, '}');
    json_end(&j);
}

/* Report an outcome on stderr and return the exit status. */
static int main_end(const cli_verb *verb, int rc, const ckpt_err *err)
{
    if (rc == CKPT_OK || rc == CKPT_EDIFFERS)
        return ckpt_err_status(rc);
    // verbs that have already reported the failure leave the text empty
    if (err->code != CKPT_OK && err->text[0])
        say_error("%s", err->text);
    if (rc == CKPT_EUSAGE && verb)
        (void)fprintf(stderr, "Try '%s --help'.\n", verb->command);
    else if (rc == CKPT_EUSAGE)
        (void)fprintf(stderr, "Try 'ckpt --help' for the list of commands.\n");
    if (rc == CKPT_ECANCELED && progress_signal() && !ranks_shared())
        main_raise(progress_signal());
    return ckpt_err_status(rc);
}

/*
 * If the caller has closed stdin, stdout or stderr, the next opened file would get that number, and
 * messages would go into an output.  So open /dev/null in its place, read-only, so lost output is
 * still an error.
 */
static int main_hold_streams(ckpt_err *err)
{
    // only if one is closed, because an empty chroot has no /dev
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd)
            return fail(err, CKPT_EIO, "/dev/null: cannot be opened");
    }
    return CKPT_OK;
}

/* Choose the command, run it, flush its output, and return one status. */
int main(int argc, char **argv)
{
    const cli_verb *verb = argc > 0 ? main_dropin(argv[0]) : NULL;
    bool dropin = verb != NULL;
    ckpt_err err = {0}, lost = {0};
    int rc;

    // phase 1: the process.  A closed pipe and a full disk must be write errors, not signals
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
    out_init(dropin ? verb->name : "ckpt");

    const int n_words = argc;
    char **const words = argv;

    // phase 2: the command.  Drop-ins may also be called as verbs: ckpt zero_to_fp32 ...
    if (!dropin && argc > 1)
        verb = cli_find(commands, argv[1]);
    if (verb && !dropin) {
        argc--;
        argv++;
    }
    rc = main_hold_streams(&err);
    if (rc == CKPT_OK)
        rc = ranks_enter(n_words, words, &err);
    if (rc == CKPT_OK)
        rc = verb ? main_run(verb, argc, argv, &err) : main_top(argc, argv, &err);
    rc = ranks_leave(rc, &err);

    if (rc != CKPT_OK && rc != CKPT_EDIFFERS && !out_begun() && main_wants_json(argc, argv))
        main_json(rc, &err);

    // phase 3: the outcome.  Lost output turns success into a failure, but does not hide a failure;
    // callbacks that print stop the library's work when the output is lost
    int written = out_close(&lost);
    const bool stopped = rc == CKPT_ECANCELED && !progress_signal();
    if (written != CKPT_OK && (rc == CKPT_OK || rc == CKPT_EDIFFERS || stopped)) {
        int status = ranks_close(main_end(verb, written, &lost));
        if (out_unread())
            out_die();
        return status;
    }
    return ranks_close(main_end(verb, rc, &err));
}
