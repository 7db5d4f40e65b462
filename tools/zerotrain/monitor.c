/* SPDX-License-Identifier: Apache-2.0 */
/*
 * monitor.c: writes the monitoring files of a run: TensorBoard's event files (--tensorboard, and
 * the block of ds_config.json) and csv_monitor's files.
 *
 * Names and locations are DeepSpeed's (monitor/tensorboard.py, monitor/csv_monitor.py): the folder
 * is output_path/job_name, the x axis counts samples.  Each process begins a new event file, as
 * TensorBoard requires; csv files are appended to.
 */
#define _POSIX_C_SOURCE 200809L // gethostname

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/base/number.h"
#include "libckpt/io/dir.h"
#include "tools/zerotrain/events.h"
#include "tools/zerotrain/zerotrain.h"

enum { MO_PATH = 4096 };

static double mo_wall(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int mo_folder(const char *path, ckpt_err *err)
{
    ckpt_dir d;
    const int rc = ckpt_dir_make(&d, path, err);

    d.n_made = rc == CKPT_OK ? 0 : d.n_made; // keep the folder, although it is still empty
    ckpt_dir_close(&d);
    return rc;
}

/* Write all bytes, or fail. */
static int mo_write(int fd, const char *path, const void *bytes, size_t n, ckpt_err *err)
{
    const char *at = bytes;

    while (n > 0) {
        const ssize_t put = write(fd, at, n);

        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return ckpt_fail_sys(err, CKPT_EIO, put < 0 ? errno : ENOSPC, "%s: cannot be written",
                                 path);
        at += put;
        n -= (size_t)put;
    }
    return CKPT_OK;
}

/* ---- event files ---- */

static int mo_flush(monitor_file *f, ckpt_bytes *text, bool complete, ckpt_err *err)
{
    const int rc =
        complete ? mo_write(f->fd, f->path, text->at, text->n, err) : ckpt_fail_memory(err);

    ckpt_vec_free(text);
    return rc;
}

/* Create a new file in the folder; existing ones are never reused. */
static int mo_open(monitor_file *f, const char *folder, ckpt_arena *arena, ckpt_err *err)
{
    char host[256] = "localhost";
    ckpt_bytes text = {0};
    int rc = mo_folder(folder, err);

    (void)gethostname(host, sizeof host - 1);
    for (unsigned i = 0; rc == CKPT_OK && f->fd < 0; i++) {
        f->path = ckpt_arena_printf(arena, "%s/events.out.tfevents.%010lld.%s.%ld.%u", folder,
                                    (long long)time(NULL), host, (long)getpid(), i);
        if (!f->path)
            return ckpt_fail_memory(err);
        f->fd = open(f->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (f->fd < 0 && errno != EEXIST)
            rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot be written", f->path);
    }
    if (rc != CKPT_OK)
        return rc;
    return mo_flush(f, &text, events_version(&text, mo_wall()), err);
}

/* ---- csv_monitor ---- */

/* Format the shortest text that reads back as v, as Python does. */
static void mo_number(char out[40], double v)
{
    (void)ckpt_print_f64(out, v, 1);
    if (strspn(out, "-0123456789") == strlen(out))
        (void)strcat(out, ".0");
}

/*
 * Append to a file: Train/Samples/lr is Train_Samples_lr.csv with a column lr, with Python's line
 * ends.
 */
static int mo_csv(const char *folder, const monitor_value *v, int64_t x, ckpt_err *err)
{
    const char *column = strrchr(v->name, '/');
    char path[MO_PATH], line[512] = "", number[40];
    int fd, rc = CKPT_OK, n = snprintf(path, sizeof path, "%s/%s.csv", folder, v->name);

    if (n < 0 || n >= MO_PATH)
        return ckpt_fail(err, CKPT_EUSAGE, "%.200s: the path is too long", folder);
    for (char *c = path + strlen(folder) + 1; *c; c++)
        *c = *c == '/' ? '_' : *c;
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0)
        return ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot be written", path);
    mo_number(number, v->value);
    if (lseek(fd, 0, SEEK_END) == 0)
        (void)snprintf(line, sizeof line, "step,%s\r\n", column ? column + 1 : v->name);
    n = (int)strlen(line);
    (void)snprintf(line + n, sizeof line - (size_t)n, "%" PRId64 ",%s\r\n", x, number);
    rc = mo_write(fd, path, line, strlen(line), err);
    if (close(fd) != 0 && rc == CKPT_OK)
        rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot be written", path);
    return rc;
}

/* ---- all kinds ---- */

/* The folder of a block; without output_path, relative to the working folder. */
static const char *mo_of(const zt_monitor *m, ckpt_arena *arena)
{
    const bool here = !m->path || m->path[0] == '\0';

    return ckpt_arena_printf(arena, "%s%s%s", here ? "" : m->path,
                             here || m->path[strlen(m->path) - 1] == '/' ? "" : "/",
                             m->job && m->job[0] != '\0' ? m->job : ".");
}

int monitor_open(monitor *m, const told *t, const zt_config *c, ckpt_err *err)
{
    const char *folder = t->tensorboard;
    int rc = CKPT_OK;

    *m = (monitor){.event = {{.fd = -1}, {.fd = -1}}};
    if (folder)
        rc = mo_open(&m->event[0], folder, t->arena, err);
    if (rc == CKPT_OK && c->tensorboard.enabled) {
        folder = mo_of(&c->tensorboard, t->arena);
        rc = folder ? mo_open(&m->event[1], folder, t->arena, err) : ckpt_fail_memory(err);
    }
    if (rc == CKPT_OK && c->csv_monitor.enabled) {
        m->csv = mo_of(&c->csv_monitor, t->arena);
        rc = m->csv ? mo_folder(m->csv, err) : ckpt_fail_memory(err);
    }
    return rc;
}

int monitor_write(monitor *m, int64_t x, const monitor_value *v, size_t n, ckpt_err *err)
{
    const double wall = mo_wall();
    int rc = CKPT_OK;

    for (size_t k = 0; rc == CKPT_OK && k < MONITOR_FILES; k++) {
        ckpt_bytes text = {0};
        bool ok = true;

        for (size_t i = 0; ok && m->event[k].fd >= 0 && i < n; i++)
            ok = events_scalar(&text, wall, x, v[i].name, v[i].value);
        if (m->event[k].fd >= 0)
            rc = mo_flush(&m->event[k], &text, ok, err);
    }
    for (size_t i = 0; rc == CKPT_OK && m->csv && i < n; i++)
        rc = mo_csv(m->csv, &v[i], x, err);
    return rc;
}

int monitor_close(monitor *m, ckpt_err *err)
{
    int rc = CKPT_OK;

    for (size_t k = 0; k < MONITOR_FILES; k++) {
        if (m->event[k].path && m->event[k].fd >= 0 && close(m->event[k].fd) != 0 && rc == CKPT_OK)
            rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot be written", m->event[k].path);
        m->event[k] = (monitor_file){.fd = -1};
    }
    m->csv = NULL;
    return rc;
}
