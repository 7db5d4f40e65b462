/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress.c: prints the progress line, and sets a flag on signals.
 *
 * Signals are caught only while a run is active that must clean up.  The handler sets a flag; the
 * next progress callback returns it to the library, which removes its unfinished files; main then
 * raises the signal again.
 */
#include "tools/cli/progress.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "ckpt_team.h"
#include "tools/cli/out.h"

/* Columns of the bar, and of a terminal that does not report its width. */
static const int BAR_WIDTH = 24, PROGRESS_COLUMNS = 79;
static const double REDRAW_SECONDS = 0.1, LINE_SECONDS = 1.0;

static volatile sig_atomic_t caught;

static const int progress_signals[] = {SIGINT, SIGTERM, SIGHUP};
enum { N_SIGNALS = sizeof progress_signals / sizeof *progress_signals };

/* Only set the flag, because other actions are unsafe in a handler. */
static void progress_catch(int sig)
{
    caught = sig;
}

/* Set the action of the signals, except of those that the caller ignores (nohup). */
static void progress_actions(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler}, old;

    sigemptyset(&action.sa_mask);
    // let the kernel restart reads and writes, because the flag is checked between blocks
    action.sa_flags = SA_RESTART;
    for (size_t i = 0; i < N_SIGNALS; i++) {
        if (sigaction(progress_signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            (void)sigaction(progress_signals[i], &action, NULL);
    }
}

int progress_signal(void)
{
    return caught;
}

/* Seconds of the monotonic clock. */
static double progress_now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Format a duration: "0:07", "12:34", "3:05:00". */
static void progress_clock(char buf[HUMAN_ROOM], double seconds)
{
    unsigned s = seconds > 359999 ? 359999 : (unsigned)(seconds + 0.5);

    if (s >= 3600)
        (void)snprintf(buf, HUMAN_ROOM, "%u:%02u:%02u", s / 3600, s / 60 % 60, s % 60);
    else
        (void)snprintf(buf, HUMAN_ROOM, "%u:%02u", s / 60, s % 60);
}

/* Print a bar of BAR_WIDTH columns. */
static void progress_bar(double part)
{
    const char *full = out_utf8() ? "\xe2\x94\x81" : "#", *empty = out_utf8() ? " " : ".";
    int n = (int)(part * BAR_WIDTH);

    (void)fputs(out_colour() ? "\033[36m" : "", stderr);
    for (int i = 0; i < BAR_WIDTH; i++)
        (void)fputs(i < n ? full : empty, stderr);
    (void)fputs(out_colour() ? "\033[0m " : " ", stderr);
}

/* Usable columns of the terminal: one less than its width, because the cursor would wrap. */
static int progress_columns(void)
{
    struct winsize size = {0};

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return PROGRESS_COLUMNS;
    return size.ws_col - 1;
}

/* Format the slowest process of an MPI job: ", rank 3 at 41%". */
static void progress_slowest(char *out, size_t room)
{
    ckpt_team_member m;
    unsigned slowest = 0;
    double least = 2;

    out[0] = 0;
    for (unsigned i = 0; ckpt_team_member_at(i, &m); i++) {
        double part = m.n_share > 0 ? (double)m.n_done / (double)m.n_share : 2;

        if (part < least) {
            least = part;
            slowest = i;
        }
    }
    if (least < 1)
        (void)snprintf(out, room, ", rank %u at %d%%", slowest, (int)(least * 100));
}

/*
 * Print a line: percent, bytes, speed, time left.  Bytes and speed are those of the output, or of
 * the input if the command writes nothing, as in the plan and the closing line.
 */
static void progress_show(const progress *p, uint64_t done, uint64_t total, double now)
{
    double part = total ? (double)done / (double)total : 1, seconds = now - p->start;
    uint64_t size = p->size ? p->size : total, have = (uint64_t)(part * (double)size);
    double speed = seconds > 0 ? (double)have / seconds : 0;
    char a[HUMAN_ROOM], b[HUMAN_ROOM], c[HUMAN_ROOM], left[HUMAN_ROOM] = "?";
    char head[64], tail[160], slowest[40];
    int room = progress_columns();

    // use the mean speed, because the current one varies too much
    if (speed > 0)
        progress_clock(left, (double)(size - have) / speed);
    progress_slowest(slowest, sizeof slowest);
    (void)snprintf(head, sizeof head, "%s %3d%% ", p->label, (int)(part * 100));
    (void)snprintf(tail, sizeof tail, "%s of %s, %s/s, %s left%s", human_bytes(a, have),
                   human_bytes(b, size), human_bytes(c, (uint64_t)speed), left, slowest);
    if (!out_terminal()) {
        (void)fprintf(stderr, "%s%s\n", head, tail);
    } else {
        int n = (int)strlen(head), m = (int)strlen(tail);

        // a narrow terminal omits the bar first, then the end of the line
        (void)fprintf(stderr, "\r%.*s", room, head);
        if (n + m + BAR_WIDTH + 1 <= room)
            progress_bar(part);
        (void)fprintf(stderr, "%.*s\033[K", room > n ? room - n : 0, tail);
    }
    (void)fflush(stderr);
}

/* Callback of the library: stop after a signal, else print a line if it is due. */
static int progress_step(void *ctx, uint64_t done, uint64_t total)
{
    progress *p = ctx;
    double now = progress_now();
    unsigned tenth = total ? (unsigned)((double)done / (double)total * 10) : 10;

    if (caught)
        return 1;
    // quiet runs check the flag too
    if (p->quiet || done > total)
        return 0;
    if (out_terminal()) {
        if (now - p->last < REDRAW_SECONDS)
            return 0;
        p->drawn = true;
    } else if (tenth == p->tenth || now - p->last < LINE_SECONDS) {
        return 0;
    }
    p->last = now;
    p->tenth = tenth;
    progress_show(p, done, total, now);
    return 0;
}

void progress_begin(progress *p, const char *label, bool quiet, ckpt_run_opts *opts)
{
    double now = progress_now();

    *p = (progress){.label = label, .quiet = quiet, .start = now, .last = now};
    // quiet runs need the callback too, for signals
    opts->progress = progress_step;
    opts->progress_ctx = p;
    progress_actions(progress_catch);
}

void progress_end(progress *p)
{
    // remove the line from the terminal
    if (p->drawn) {
        (void)fputs("\r\033[K", stderr);
        (void)fflush(stderr);
    }
    p->drawn = false;
    progress_actions(SIG_DFL);
}
