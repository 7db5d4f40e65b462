/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks.c: decides whether this process is one of several processes of an MPI job, joins the job,
 * and leaves it.
 *
 * Launchers set environment variables for their processes, and their children inherit them: a
 * training script may call ckpt, which must then run alone.  So the variables count only if the
 * launcher is the parent of this process, directly or through a shell.  CKPT_MPI=yes or no in the
 * environment overrides that.
 */
#define _GNU_SOURCE // stpcpy
#include "tools/mpi/ranks.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/number.h"
#include "libckpt/base/plugin.h"
#include "tools/cli/out.h"
#include "tools/mpi/mail.h"

enum {
    RANKS_PATIENCE = 20, /* seconds of waiting before a message is printed */
    RANKS_PARENTS = 8
};

static struct {
    void (*close)(void);
    bool shared;
    unsigned rank;
} ranks_it;

bool ranks_shared(void)
{
    return ranks_it.shared;
}

/* ---- parent of this process ---- */

/* True for names of programs that only start another one. */
static bool ranks_wraps(const char *name)
{
    static const char *const shell[] = {"sh",      "bash",   "dash", "zsh",     "ksh",
                                        "env",     "nice",   "time", "timeout", "numactl",
                                        "taskset", "strace", "tini"};

    for (size_t i = 0; i < sizeof shell / sizeof *shell; i++) {
        if (strcmp(name, shell[i]) == 0)
            return true;
    }
    return false;
}

/* Read a file of /proc/PID, at most room - 1 bytes; returns the number of bytes. */
static size_t ranks_proc(long pid, const char *file, char *out, size_t room)
{
    char path[64];
    FILE *f;
    size_t n = 0;

    (void)snprintf(path, sizeof path, "/proc/%ld/%s", pid, file);
    f = fopen(path, "re");
    if (f) {
        n = fread(out, 1, room - 1, f);
        (void)fclose(f);
    }
    out[n] = 0;
    return n;
}

/* The parent of a process, and the process's name; 0: unknown. */
static long ranks_parent(long pid, char name[64])
{
    char text[1024], *first, *end;
    long parent = 0;
    char state;

    (void)ranks_proc(pid, "stat", text, sizeof text);
    first = strchr(text, '(');
    end = strrchr(text, ')');
    if (!first || !end || end < first)
        return 0;
    *end = 0;
    (void)snprintf(name, 64, "%.63s", first + 1);
    return sscanf(end + 1, " %c %ld", &state, &parent) == 2 ? parent : 0;
}

/*
 * True if the launcher's variables are in the environment of process `pid`, so it is one of the
 * launcher's processes.
 */
static bool ranks_launched(long pid)
{
    static char text[1 << 17];
    size_t n = ranks_proc(pid, "environ", text, sizeof text);
    static const char *const sign[] = {
        "OMPI_COMM_WORLD_RANK=", "PMI_RANK=", "MV2_COMM_WORLD_RANK=", "SLURM_STEP_NUM_TASKS="};

    for (const char *p = text; p < text + n; p += strlen(p) + 1) {
        for (size_t i = 0; i < sizeof sign / sizeof *sign; i++) {
            if (strncmp(p, sign[i], strlen(sign[i])) == 0)
                return true;
        }
    }
    return false;
}

/*
 * True if the nearest ancestor that is not a shell is the launcher itself, and not one of its
 * processes.
 */
static bool ranks_direct(void)
{
    char name[64] = "";
    long pid = ranks_parent((long)getpid(), name);

    for (unsigned i = 0; i < RANKS_PARENTS && pid > 1; i++) {
        long above = ranks_parent(pid, name);

        if (!ranks_launched(pid))
            return true;
        if (!ranks_wraps(name))
            return false;
        pid = above;
    }
    return true;
}

/* Number of processes to join; 1: this process is alone. */
static long ranks_size(void)
{
    const char *said = getenv("CKPT_MPI");
    long n = ckpt_team_launched();

    if (said && (strcmp(said, "no") == 0 || strcmp(said, "0") == 0))
        return 1;
    if (n < 2)
        return 1;
    return (said && *said) || ranks_direct() ? n : 1;
}

/* ---- entering and leaving ---- */

/*
 * Print a message from a signal handler, because MPI waits silently, and other processes may never
 * join.
 */
static void ranks_alarm(int sig)
{
    static const char text[] =
        "ckpt: waiting for the other processes that the launcher started; does each of them run "
        "this command?  CKPT_MPI=no in the environment runs it alone\n";

    (void)sig;
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
        return;
}

/* Redirect the output of this process to /dev/null, because only rank 0 prints. */
static int ranks_mute(ckpt_err *err)
{
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

    if (fd < 0 || fflush(NULL) != 0 || dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0)
        return fail(err, CKPT_EIO, "/dev/null: cannot be opened");
    (void)close(fd);
    return CKPT_OK;
}

/* Read CKPT_MPI_LIMIT: seconds without a sign of life until a failure; 0: the default. */
static int ranks_limit(unsigned *limit, ckpt_err *err)
{
    const char *said = getenv("CKPT_MPI_LIMIT");
    uint64_t n = 0;

    *limit = 0;
    if (!said || !*said)
        return CKPT_OK;
    if (!ckpt_parse_u64(said, &n) || n < 1 || n > 1000000)
        return fail(err, CKPT_EUSAGE,
                    "CKPT_MPI_LIMIT is '%.40s': expected a number of seconds from 1 to 1000000",
                    said);
    *limit = (unsigned)n;
    return CKPT_OK;
}

/* Append a word and its prefix; returns the new end. */
static char *ranks_word(char *to, const char *before, const char *word)
{
    to = stpcpy(to, before);
    return stpcpy(to, word);
}

/* Compare the inputs that decide about results: the command's words, and CKPT_MAPS. */
static int ranks_alike(int argc, char **argv, ckpt_err *err)
{
    const char *maps = getenv("CKPT_MAPS");
    size_t n = maps ? strlen(maps) + 16 : 16;
    char *text, *end;
    int rc;

    // not argv[0], because machines may have the program in different folders
    for (int i = 1; i < argc; i++)
        n += strlen(argv[i]) + 1;
    text = malloc(n + strlen(out_program()));
    if (!text)
        return fail(err, CKPT_ELIMIT, "out of memory for the arguments of the command");
    end = ranks_word(text, "", out_program());
    for (int i = 1; i < argc; i++)
        end = ranks_word(end, " ", argv[i]);
    if (maps)
        (void)ranks_word(end, " CKPT_MAPS=", maps);
    rc = ckpt_team_same("command", text, err);
    free(text);
    return rc;
}

/*
 * Load the plugin.  Its symbols are global, because Open MPI's own plugins look up symbols in all
 * libraries.
 */
static int ranks_plugin(int (**start)(ckpt_mail *, char *, size_t), ckpt_err *err)
{
    static const ckpt_plugin_want want = {.file = MAIL_PLUGIN,
                                          .variable = "CKPT_MPI_PLUGIN",
                                          .library = "Open MPI",
                                          .package = "libopenmpi3",
                                          .global = true};
    char why[400];
    void *plugin = ckpt_plugin_open(&want, why, sizeof why);

    if (!plugin)
        return fail(err, CKPT_EUNSUPPORTED,
                    "a launcher has started several processes, and the MPI plugin cannot be "
                    "loaded: %s; or start one process (CKPT_MPI=no)",
                    why);
    if (!ckpt_plugin_find(plugin, MAIL_OPEN, start) ||
        !ckpt_plugin_find(plugin, MAIL_CLOSE, &ranks_it.close))
        return fail(err, CKPT_EUNSUPPORTED, "%s is not a plugin of ckpt", MAIL_PLUGIN);
    return CKPT_OK;
}

/* Start MPI; print a message if that takes long. */
static int ranks_mail(ckpt_mail *mail, ckpt_err *err)
{
    int (*start)(ckpt_mail *, char *, size_t) = NULL;
    struct sigaction action = {.sa_handler = ranks_alarm}, old;
    char why[512] = "";
    int rc = ranks_plugin(&start, err);

    if (rc != CKPT_OK)
        return rc;
    (void)sigaction(SIGALRM, &action, &old);
    (void)alarm(RANKS_PATIENCE);
    if (start(mail, why, sizeof why) != 0)
        rc = fail(err, CKPT_EIO, "%s", why);
    (void)alarm(0);
    (void)sigaction(SIGALRM, &old, NULL);
    return rc;
}

static int ranks_start(long n, int argc, char **argv, ckpt_err *err)
{
    ckpt_mail mail = {0};
    unsigned limit;
    int rc = ranks_limit(&limit, err);

    if (rc == CKPT_OK)
        rc = ranks_mail(&mail, err);
    if (rc == CKPT_OK && mail.n_ranks < 2)
        return fail(err, CKPT_EUSAGE,
                    "the launcher started %ld processes, but MPI sees only one, so each would do "
                    "the whole work: use the launcher of the MPI that ckpt was built with (srun "
                    "--mpi=pmix), or CKPT_MPI=no",
                    n);
    if (rc == CKPT_OK)
        rc = ckpt_team_join(&mail, limit, err);
    ranks_it.shared = rc == CKPT_OK;
    ranks_it.rank = mail.rank;
    if (rc == CKPT_OK && mail.rank > 0)
        rc = ranks_mute(err);
    return rc == CKPT_OK ? ranks_alike(argc, argv, err) : rc;
}

int ranks_enter(int argc, char **argv, ckpt_err *err)
{
    long n = ranks_size();

    return n > 1 ? ranks_start(n, argc, argv, err) : CKPT_OK;
}

void ranks_tell(void)
{
    ckpt_team_member m;
    uint64_t n_letters = 0, n_sent = 0, most = 0, n_far = 0;
    char a[HUMAN_ROOM], b[HUMAN_ROOM], c[HUMAN_ROOM];
    unsigned n = 0;

    for (; ckpt_team_member_at(n, &m); n++) {
        n_letters += m.n_letters;
        n_sent += m.n_sent;
        n_far += m.n_far;
        most = m.n_sent > most ? m.n_sent : most;
    }
    if (n_letters > 0)
        say_note("%u processes sent %s in %llu messages, at most %s each; %s of the input came "
                 "from other machines",
                 n, human_bytes(a, n_sent), (unsigned long long)n_letters, human_bytes(b, most),
                 human_bytes(c, n_far));
}

int ranks_leave(int rc, ckpt_err *err)
{
    return ranks_it.shared ? ckpt_team_leave(rc, err) : rc;
}

int ranks_close(int status)
{
    if (!ranks_it.shared)
        return status;
    (void)fflush(NULL);
    ranks_it.close();
    // other ranks return 0, because a launcher ends all processes at the first failure, before rank
    // 0 has printed
    return ranks_it.rank == 0 ? status : 0;
}
