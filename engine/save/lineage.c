/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lineage.c: reads and writes .zerotrain, which records the run of a checkpoint, and decides which
 * checkpoints a run may replace.
 */
#include "engine/save/lineage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/base/number.h"
#include "libckpt/io/dir.h"

#define LG_FILE ".zerotrain"

enum {
    LG_BYTES = 1 << 16, /* maximum size of .zerotrain; older ancestors are dropped first */
    LG_LINE = 40,       /* maximum length of a line */
    LG_NAME = 256,
    LG_PATH = 4096
};

void zt_lineage_begin(zt_lineage *l)
{
    struct timespec now = {0};

    *l = (zt_lineage){0};
    if (getrandom(&l->id, sizeof l->id, 0) == (ssize_t)sizeof l->id)
        return;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    l->id = (uint64_t)now.tv_sec * UINT64_C(1000000007) ^ (uint64_t)now.tv_nsec << 20 ^
            (uint64_t)getpid();
}

void zt_lineage_free(zt_lineage *l)
{
    ckpt_vec_free(&l->from);
}

/* ---- .zerotrain ---- */

/* Parse a line; false: it is malformed. */
static bool lg_line(const char *line, zt_lineage_step *out)
{
    const char *end;
    uint64_t step = 0;

    if (strspn(line, "0123456789abcdef") != 16 || line[16] != ' ')
        return false;
    out->id = strtoull(line, NULL, 16);
    end = ckpt_scan_u64(line + 17, &step);
    out->step = (int64_t)step;
    return end && *end == '\n' && step <= INT64_MAX;
}

/* Read dir/name as text with a NUL at its end; NULL: no readable file, or out of memory. */
static char *lg_text(int dir, const char *name)
{
    char path[LG_PATH + sizeof "/" LG_FILE], *text = ckpt_alloc(LG_BYTES + 1);
    int n = snprintf(path, sizeof path, "%s/" LG_FILE, name), fd = -1;
    ssize_t got = -1;

    if (text && n > 0 && n < (int)sizeof path)
        fd = openat(dir, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) {
        got = read(fd, text, LG_BYTES);
        (void)close(fd);
    }
    if (got >= 0) {
        text[got] = 0;
        return text;
    }
    ckpt_free(text);
    return NULL;
}

/* The first line of facts. */
static char *lg_facts(char *text)
{
    while (*text && *text != '-') {
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
    return text;
}

/* Read the runs in dir/name; false: no readable file, or out of memory. */
static bool lg_read(int dir, const char *name, zt_lineage_steps *out)
{
    char *text = lg_text(dir, name), *facts = text ? lg_facts(text) : NULL;
    bool ok = text != NULL;

    out->n = 0;
    for (char *line = text; ok && line < facts;) {
        char *end = memchr(line, '\n', (size_t)(facts - line));
        zt_lineage_step *at = end ? ckpt_vec_push(out) : NULL;
        ok = at && lg_line(line, at);
        line = end ? end + 1 : line;
    }
    ckpt_free(text);
    return ok && out->n > 0;
}

/* Add lines of facts, as many as half of the file holds; false: no memory. */
static bool lg_add_facts(ckpt_bytes *to, const char *facts)
{
    bool ok = true;

    for (const char *end, *line = facts; ok && line && (end = strchr(line, '\n')); line = end + 1) {
        if (end + 1 - facts > LG_BYTES / 4)
            break;
        ok = ckpt_bytes_printf(to, "- %.*s\n", (int)(end - line), line);
    }
    return ok;
}

int zt_lineage_mark(const zt_lineage *l, int folder, const char *shown, int64_t step, ckpt_err *err)
{
    const size_t most = LG_BYTES / 2 / LG_LINE - 1;
    ckpt_bytes text = {0};
    size_t at = 0;
    int fd, sys = 0;
    bool ok = true;

    for (size_t i = l->from.n > most ? l->from.n - most : 0; ok && i < l->from.n; i++)
        ok = ckpt_bytes_printf(&text, "%016" PRIx64 " %" PRId64 "\n", l->from.at[i].id,
                               l->from.at[i].step);
    ok = ok && ckpt_bytes_printf(&text, "%016" PRIx64 " %" PRId64 "\n", l->id, step);
    if (!ok || !lg_add_facts(&text, l->facts)) {
        ckpt_vec_free(&text);
        return ckpt_fail_memory(err);
    }
    fd = openat(folder, LG_FILE, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    sys = fd < 0 ? errno : 0;
    while (sys == 0 && at < text.n) {
        ssize_t put = write(fd, text.at + at, text.n - at);
        if (put < 0 && errno != EINTR)
            sys = errno;
        at += put > 0 ? (size_t)put : 0;
    }
    if (sys == 0 && ckpt_fsync(fd) != 0)
        sys = errno;
    if (fd >= 0)
        (void)close(fd);
    ckpt_vec_free(&text);
    return sys == 0 ? CKPT_OK
                    : ckpt_fail_sys(err, CKPT_EIO, sys, "%s/" LG_FILE ": cannot be written", shown);
}

/* ---- the loaded checkpoint ---- */

static bool lg_is_folder(const char *path, struct stat *st)
{
    return stat(path, st) == 0 && S_ISDIR(st->st_mode);
}

/* Shorten a path to the folder that contains its last part ("." if it has one part). */
static void lg_up(char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    while (n > 1 && path[n - 1] == '/')
        n--;
    if (n == 0)
        path[n++] = '.';
    path[n] = 0;
}

/* Find the folder of the checkpoint; false: there is none.  *named: the path itself names it. */
static bool lg_find(char *out, const char *path, const char *tag, bool *named, struct stat *st)
{
    int n = snprintf(out, LG_PATH, "%s/%s", path, tag);

    if (tag[0] && n > 0 && n < LG_PATH && lg_is_folder(out, st))
        return true;
    *named = true;
    n = snprintf(out, LG_PATH, "%s", path);
    if (n <= 0 || n >= LG_PATH)
        return false;
    if (!lg_is_folder(out, st))
        lg_up(out); // the path names a file: use its folder
    return lg_is_folder(out, st);
}

void zt_lineage_resume(zt_lineage *l, const char *path, const char *tag, bool named, int64_t step)
{
    char folder[LG_PATH], above[LG_PATH + 4];
    struct stat st;

    l->resumed = true;
    l->chosen = named;
    l->step = step;
    if (!lg_find(folder, path, tag, &l->chosen, &st))
        return;
    l->dev = st.st_dev;
    l->ino = st.st_ino;
    (void)snprintf(above, sizeof above, "%s/..", folder);
    if (lg_is_folder(above, &st)) {
        l->run_dev = st.st_dev;
        l->run_ino = st.st_ino;
    }
    if (!lg_read(AT_FDCWD, folder, &l->from))
        l->from.n = 0;
}

char *zt_lineage_facts(const char *path, const char *tag)
{
    char folder[LG_PATH], *text = NULL, *to;
    struct stat st;
    bool named;

    if (lg_find(folder, path, tag, &named, &st))
        text = lg_text(AT_FDCWD, folder);
    to = text;
    for (const char *line = text ? lg_facts(text) : NULL, *end; line && *line; line = end) {
        end = line + strcspn(line, "\n");
        end += *end == '\n';
        line += strncmp(line, "- ", 2) == 0 ? 2 : 0;
        memmove(to, line, (size_t)(end - line));
        to += end - line;
    }
    if (text)
        *to = 0;
    return text;
}

/* ---- owner of a checkpoint ---- */

bool zt_lineage_has(const zt_lineage *l, int dir, const char *name)
{
    zt_lineage_steps lines = {0};
    struct stat st;
    bool has = l->resumed && l->ino && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
               st.st_dev == l->dev && st.st_ino == l->ino;

    if (!has && lg_read(dir, name, &lines)) {
        const zt_lineage_step last = lines.at[lines.n - 1];

        has = last.id == l->id;
        for (size_t i = 0; !has && i < l->from.n; i++)
            has = l->from.at[i].id == last.id && last.step <= l->from.at[i].step;
    }
    ckpt_vec_free(&lines);
    return has;
}

/* True if the folder contains the loaded checkpoint. */
static bool lg_is_here(const zt_lineage *l, int dir)
{
    struct stat st;

    return l->resumed && l->run_ino && fstat(dir, &st) == 0 && st.st_dev == l->run_dev &&
           st.st_ino == l->run_ino;
}

bool zt_lineage_may_replace(const zt_lineage *l, int dir, const char *name)
{
    // the run resumed from `latest`, which is older; the user was warned about this at the start
    return zt_lineage_has(l, dir, name) || (lg_is_here(l, dir) && !l->chosen);
}

/* ---- before a run ---- */

static bool lg_ends(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n >= m && strcmp(name + n - m, end) == 0;
}

bool zt_lineage_is_tag(int dir, const char *name)
{
    int fd = ckpt_dir_open_at(dir, name);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    bool found = false;

    if (!d && fd >= 0)
        (void)close(fd);
    for (struct dirent *e; d && !found && (e = readdir(d));)
        found = lg_ends(e->d_name, "_model_states.pt");
    if (d)
        (void)closedir(d);
    return found;
}

/* True if a folder has files, but no file of a checkpoint: a run never replaces it. */
static bool lg_is_foreign(int dir, const char *name)
{
    static const char *const ends[] = {"_model_states.pt", "_optim_states.pt", NULL};
    int fd = ckpt_dir_open_at(dir, name);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    bool known = false, any = false;

    if (!d && fd >= 0)
        (void)close(fd);
    for (struct dirent *e; d && !known && (e = readdir(d));) {
        any = any || (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0);
        known = strcmp(e->d_name, LG_FILE) == 0;
        for (size_t i = 0; !known && ends[i]; i++)
            known = lg_ends(e->d_name, ends[i]);
    }
    if (d)
        (void)closedir(d);
    return any && !known;
}

int zt_lineage_spare(int dir, const char *shown, const char *name, ckpt_err *err)
{
    if (!lg_is_foreign(dir, name))
        return CKPT_OK;
    return ckpt_fail(err, CKPT_EUSAGE,
                     "--save %.200s: its folder %.80s would be replaced, but is not a checkpoint "
                     "(it has no file *_model_states.pt): rename it, or save to another folder",
                     shown, name);
}

/* Checkpoints of other runs in a folder. */
typedef struct lg_held {
    char name[LG_NAME]; /* the latest of them */
    uint64_t number;
    size_t n;
    bool absent;           /* `latest` names it, but it does not exist */
    char foreign[LG_NAME]; /* a folder with a name of this run's, but without a checkpoint */
} lg_held;

static void lg_hold(lg_held *h, const char *name, uint64_t number)
{
    if (h->n++ > 0 && number < h->number)
        return;
    h->number = number;
    (void)snprintf(h->name, sizeof h->name, "%.255s", name);
}

/* Read `latest` without its newline; false: there is none. */
static bool lg_latest(int dir, char out[LG_NAME])
{
    int fd = openat(dir, "latest", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out, LG_NAME - 1) : -1;

    if (fd >= 0)
        (void)close(fd);
    out[n > 0 ? n : 0] = 0;
    out[strcspn(out, "\r\n")] = 0;
    return n >= 0;
}

/*
 * Find checkpoints of other runs that this run would replace, or that would be newer than `latest`.
 * If the run did not resume from this folder, all of its checkpoints count.
 */
static void lg_look(const zt_lineage *l, int dir, DIR *d, const char *tag, lg_held *out)
{
    static const char series[] = "global_step";
    const bool here = lg_is_here(l, dir);
    char latest[LG_NAME];

    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        const char *name = e->d_name;
        const size_t n = strlen(series);
        const bool numbered =
            strncmp(name, series, n) == 0 && name[n] && !name[n + strspn(name + n, "0123456789")];
        uint64_t number = UINT64_MAX; // also of a number that is too large
        struct stat st;

        if (!numbered)
            number = 0;
        else
            (void)ckpt_parse_u64(name + n, &number);
        if (name[0] == '.' || fstatat(dir, name, &st, 0) != 0 || !S_ISDIR(st.st_mode) ||
            zt_lineage_has(l, dir, name))
            continue;
        if (lg_is_foreign(dir, name)) {
            if (tag ? strcmp(name, tag) == 0 : numbered && number > (uint64_t)l->step)
                (void)snprintf(out->foreign, sizeof out->foreign, "%.255s", name);
            continue;
        }
        if (tag && strcmp(name, tag) == 0)
            lg_hold(out, name, UINT64_MAX);
        else if (here ? numbered && number > (uint64_t)l->step
                      : numbered || zt_lineage_is_tag(dir, name))
            lg_hold(out, name, number);
    }
    if (lg_latest(dir, latest) && (!here || l->chosen) && latest[0] &&
        !zt_lineage_has(l, dir, latest)) {
        out->absent = out->n == 0 && faccessat(dir, latest, F_OK, 0) != 0;
        lg_hold(out, latest, UINT64_MAX);
    }
}

/* Make the error or the warning. */
static int lg_say(const zt_lineage *l, bool here, const char *dir, const lg_held *h,
                  ckpt_err *remark, ckpt_err *err)
{
    if (h->absent)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "--save %.200s: its file `latest` names %.80s, which is missing: restore "
                         "that tag and --load it, save to another folder, or use --force",
                         dir, h->name);
    if (!here)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "--save %.200s: the folder has checkpoints of another run (%.80s): use "
                         "--load %.200s to resume that run, --force to replace checkpoints of the "
                         "same name, or save to another folder",
                         dir, h->name, dir);
    if (l->chosen)
        return ckpt_fail(
            err, CKPT_EUSAGE,
            "--save %.200s: the folder has %.80s, which is not in the history of step %" PRId64
            ", where this run resumes: use only --load %.200s to resume from the latest, --force "
            "to replace checkpoints of the same name, or save this branch to another folder",
            dir, h->name, l->step, dir);
    if (remark->code == CKPT_OK)
        (void)ckpt_fail(remark, CKPT_EUSAGE,
                        "%.200s/%.80s is later than step %" PRId64
                        ", which `latest` names: a checkpoint of the same name replaces it",
                        dir, h->name, l->step);
    return CKPT_OK;
}

int zt_lineage_check(const zt_lineage *l, const zt_lineage_place *to, ckpt_err *remark,
                     ckpt_err *err)
{
    const char *dir = to->dir;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), list, rc = CKPT_OK;
    lg_held held = {.n = 0};
    DIR *d;

    if (fd < 0)
        return errno == ENOENT
                   ? CKPT_OK
                   : ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot open the folder", dir);
    list = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    d = list >= 0 ? fdopendir(list) : NULL;
    if (!d) {
        rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot list the folder", dir);
        if (list >= 0)
            (void)close(list);
    } else {
        lg_look(l, fd, d, to->tag, &held);
        (void)closedir(d);
    }
    if (rc == CKPT_OK && held.foreign[0])
        rc = zt_lineage_spare(fd, dir, held.foreign, err);
    if (rc == CKPT_OK && held.n > 0 && !to->force)
        rc = lg_say(l, lg_is_here(l, fd), dir, &held, remark, err);
    (void)close(fd);
    return rc;
}
