/* SPDX-License-Identifier: Apache-2.0 */
/* process.c: reads /proc to find out whether another rank has ended. */
#include "engine/comm/process.h"
#include "libckpt/base/number.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Read state letter and start time.  False: there is no such process, or no /proc. */
static bool ps_look(int64_t pid, char *state, uint64_t *start)
{
    char path[64], line[1024], *p;
    FILE *f;
    size_t n;

    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    f = fopen(path, "re");
    if (!f)
        return false;
    n = fread(line, 1, sizeof line - 1, f);
    fclose(f);
    line[n] = 0;
    // count fields from the last bracket, because the name (field 2) may hold any character
    p = strrchr(line, ')');
    if (!p || p[1] != ' ')
        return false;
    *state = p[2];
    p += 2;
    for (int field = 3; field < 22; field++) {
        p = strchr(p, ' ');
        if (!p)
            return false;
        p++;
    }
    return ckpt_scan_u64(p, start) != NULL;
}

zt_process zt_process_self(void)
{
    zt_process p = {.pid = getpid()};
    char state;

    if (!ps_look(p.pid, &state, &p.start))
        p.start = 0;
    return p;
}

bool zt_process_alive(zt_process p)
{
    uint64_t start;
    char state;

    if (kill((pid_t)p.pid, 0) != 0 && errno == ESRCH)
        return false;
    if (!ps_look(p.pid, &state, &start)) {
        return true; // /proc is hidden, so only the existence of the pid can be checked
    }
    return state != 'Z' && state != 'X' && (p.start == 0 || p.start == start);
}

bool zt_process_stopped(zt_process p)
{
    uint64_t start;
    char state;

    return ps_look(p.pid, &state, &start) && (p.start == 0 || p.start == start) &&
           (state == 'T' || state == 't');
}

double zt_process_clock(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
