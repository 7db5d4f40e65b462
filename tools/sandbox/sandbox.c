/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox.c: finds the paths that a command line needs, and gives up access to all others.
 *
 * A link in a source may point anywhere (the caches of Hugging Face consist of links), so the
 * search allows the targets of all links that exist when the command starts.
 */
#define _GNU_SOURCE /* d_type */
#include "tools/sandbox/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt_extra.h"
#include "tools/cli/words.h"
#include "tools/cli/write_args.h"
#include "tools/sandbox/landlock.h"
#include "tools/sandbox/seccomp.h"

enum {
    SANDBOX_DEPTH = 8,        /* depth of folders searched for links */
    SANDBOX_ENTRIES = 1 << 18 /* maximum number of names examined */
};

/* No sandbox under sanitizers, because they trace the process and read /proc. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANDBOX_NONE 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANDBOX_NONE 1
#endif
#ifndef SANDBOX_NONE
#define SANDBOX_NONE 0
#endif

/* State of the search for links. */
typedef struct sandbox_walk {
    int rules;
    unsigned use;
    size_t left; /* names that may still be examined */
    bool tag;    /* the source is a tag: shards are directly in the first folder */
} sandbox_walk;

/* ---- sources ---- */

/* Open a folder, for reading its names, or (O_PATH) only as a location. */
static int sandbox_open(int at, const char *path, int how)
{
    int fd;

    do
        fd = openat(at, path, how | O_DIRECTORY | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    return fd;
}

static bool sandbox_ends(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n >= m && strcmp(name + n - m, end) == 0;
}

/* True for a name that a folder has if it is one checkpoint of a run: DeepSpeed's, PyTorch's
 * distributed ones, files of FSDP ranks, folders of Megatron-LM's ranks. */
static bool sandbox_of_tag(const char *name)
{
    static const char *const begins[] = {"model_world_size_", "model_rank_", "mp_rank_"};
    bool is = sandbox_ends(name, "_states.pt") || sandbox_ends(name, ".distcp") ||
              strcmp(name, "zero") == 0 || strcmp(name, ".metadata") == 0;

    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        is = is || strncmp(name, begins[i], strlen(begins[i])) == 0;
    return is;
}

/* Search a folder: enter folders, allow links, and enter their targets like folders.  Closes fd. */
static void sandbox_search(sandbox_walk *w, int fd, unsigned depth)
{
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *e;

    if (!dir && fd >= 0)
        (void)close(fd);
    while (dir && w->left > 0 && (e = readdir(dir))) {
        struct stat st;
        unsigned char type = e->d_type;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        w->left--;
        w->tag = w->tag || (depth == 0 && sandbox_of_tag(e->d_name));
        // some file systems do not return the type with the name
        if (type == DT_UNKNOWN && fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            type = S_ISLNK(st.st_mode) ? DT_LNK : S_ISDIR(st.st_mode) ? DT_DIR : DT_REG;
        if (type == DT_LNK)
            (void)landlock_allow(w->rules, fd, e->d_name, w->use);
        if ((type == DT_LNK || type == DT_DIR) && depth < SANDBOX_DEPTH)
            sandbox_search(w, sandbox_open(fd, e->d_name, O_RDONLY), depth + 1);
    }
    if (dir)
        (void)closedir(dir);
}

/* The folder that contains a path ("." for a bare name); the caller frees it. */
static char *sandbox_parent(const char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    while (n > 1 && path[n - 1] == '/')
        n--;
    return n ? strndup(path, n) : strdup(".");
}

/*
 * Allow a tag's run folder, both by the path's spelling and by "..", because links make them
 * differ.
 */
static void sandbox_above(int rules, const char *path)
{
    char *parent = sandbox_parent(path);
    int fd = sandbox_open(AT_FDCWD, path, O_PATH);

    if (parent)
        (void)landlock_allow(rules, AT_FDCWD, parent, LANDLOCK_READ);
    if (fd >= 0) {
        (void)landlock_allow(rules, fd, "..", LANDLOCK_READ);
        (void)close(fd);
    }
    free(parent);
}

/*
 * Allow a source for reading (and, by use, changes): a folder with all files below it, or a file's
 * folder, because shards, indexes and configurations are side by side.  A tag also needs its run
 * folder, which has `latest` and other files of the run.
 */
static void sandbox_source(int rules, const char *path, unsigned use)
{
    sandbox_walk w = {.rules = rules, .use = use, .left = SANDBOX_ENTRIES};
    struct stat st;

    (void)landlock_allow(rules, AT_FDCWD, path, use);
    if (stat(path, &st) != 0)
        return;
    char *folder = S_ISDIR(st.st_mode) ? strdup(path) : sandbox_parent(path);
    if (!folder)
        return;
    (void)landlock_allow(rules, AT_FDCWD, folder, use);
    // if the source is a file, only links in its own folder matter
    sandbox_search(&w, sandbox_open(AT_FDCWD, folder, O_RDONLY),
                   S_ISDIR(st.st_mode) ? 0 : SANDBOX_DEPTH);
    if (w.tag || !S_ISDIR(st.st_mode))
        sandbox_above(rules, folder);
    free(folder);
}

/* ---- the output ---- */

/* Sync the parent of s->folder's first n bytes, so a power cut does not lose the new folder. */
static int sandbox_sync(const char *folder, ckpt_err *err)
{
    char *parent = sandbox_parent(folder);
    int fd = parent ? sandbox_open(AT_FDCWD, parent, O_RDONLY) : -1, rc = CKPT_OK, done;

    do
        done = fd < 0 ? -1 : fsync(fd);
    while (fd >= 0 && done != 0 && errno == EINTR);
    if (done != 0)
        rc = fail(err, CKPT_EIO, "%s: cannot sync the folder: %s", parent ? parent : folder,
                  strerror(errno));
    if (fd >= 0)
        (void)close(fd);
    free(parent);
    return rc;
}

/* Create one folder of the path, which now ends at byte n. */
static int sandbox_make_one(sandbox *s, size_t n, bool sync, ckpt_err *err)
{
    struct stat st;

    if (mkdir(s->folder, 0777) == 0) {
        s->made[s->n_made++] = n;
        return sync ? sandbox_sync(s->folder, err) : CKPT_OK;
    }
    int sys = errno;
    if (stat(s->folder, &st) == 0 && S_ISDIR(st.st_mode))
        return CKPT_OK;
    return fail(err, CKPT_EIO, "%s: cannot create the folder: %s", s->folder, strerror(sys));
}

/* Create the missing folders of the output, outermost first. */
static int sandbox_make(sandbox *s, bool sync, ckpt_err *err)
{
    size_t n = strlen(s->folder);
    int rc = CKPT_OK;

    while (n > 1 && s->folder[n - 1] == '/')
        s->folder[--n] = 0;
    s->made = calloc(n + 1, sizeof *s->made);
    if (!s->made)
        return fail(err, CKPT_ELIMIT, "out of memory");
    for (size_t i = 1; rc == CKPT_OK && i <= n; i++) {
        char was = s->folder[i];
        if (was != '/' && was != 0)
            continue;
        s->folder[i] = 0;
        rc = sandbox_make_one(s, i, sync, err);
        s->folder[i] = was;
    }
    return rc;
}

/* The folder for the files of an output: the output itself, or the folder of its file. */
static char *sandbox_output(const cli_args *a, const char *path, char use)
{
    bool folder = use == 'd';
    const ckpt_target *target = write_target(a);

    if (use == 'o' && target && target->format)
        folder = write_into_folder(target);
    else if (use == 'o')
        folder = !ckpt_format_from_path(path);
    return folder ? strdup(path) : sandbox_parent(path);
}

/* Allow reading and writing the output's folder, and removing folders created for it. */
static int sandbox_allow_output(const sandbox *s, int rules, ckpt_err *err)
{
    if (!landlock_allow(rules, AT_FDCWD, s->folder, LANDLOCK_READ | LANDLOCK_WRITE))
        return fail(err, CKPT_EIO, "%s: cannot open the folder: %s", s->folder, strerror(errno));
    if (s->n_made == 0)
        return CKPT_OK;
    char *outermost = strndup(s->folder, s->made[0]);
    char *parent = outermost ? sandbox_parent(outermost) : NULL;
    if (parent)
        (void)landlock_allow(rules, AT_FDCWD, parent, LANDLOCK_RMDIR);
    free(parent);
    free(outermost);
    return CKPT_OK;
}

/* ---- command lines ---- */

/* Callback for each path of the command line, with the letter of its use (table.h). */
typedef int (*sandbox_fn)(void *ctx, const cli_args *a, const char *path, char use);

/* Call fn for the paths of a list of sources, without their weights. */
static int sandbox_list(const cli_args *a, const cli_list *list, sandbox_fn fn, void *ctx)
{
    char path[PATH_MAX];
    double weight;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < list->n; i++) {
        if (word_weighted(path, sizeof path, list->at[i], &weight))
            rc = fn(ctx, a, path, 'r');
    }
    return rc;
}

/* Context for a checkpoint that a file of options names. */
typedef struct sandbox_input {
    const cli_args *a;
    sandbox_fn fn;
    void *ctx;
    int rc;
} sandbox_input;

static int sandbox_one_input(void *ctx, const char *path)
{
    sandbox_input *in = ctx;

    in->rc = in->fn(in->ctx, in->a, path, 'r');
    return in->rc;
}

/* Call fn for the checkpoints that the files of options name. */
static int sandbox_named(const cli_args *a, sandbox_fn fn, void *ctx)
{
    sandbox_input in = {.a = a, .fn = fn, .ctx = ctx};

    if (a->line.verb->inputs)
        (void)a->line.verb->inputs(a, sandbox_one_input, &in);
    return in.rc;
}

static int sandbox_each(const cli_args *a, sandbox_fn fn, void *ctx)
{
    const cli_option *o = a->line.verb->options;
    const char *uses = a->line.verb->uses ? a->line.verb->uses : "";
    int rc = 0;
    const cli_list operands = {(const char **)(uintptr_t)a->operand, (size_t)a->n_operands};

    if (*uses == 'w')
        rc = sandbox_list(a, &operands, fn, ctx);
    if (rc == 0)
        rc = sandbox_named(a, fn, ctx);
    for (int i = 0; rc == 0 && *uses == 'R' && i < a->n_operands; i++)
        rc = fn(ctx, a, a->operand[i], 'r');
    for (int i = 0; rc == 0 && !strchr("wR", *uses) && i < a->n_operands && uses[i]; i++)
        rc = strchr("tvm-", uses[i]) || (uses[i] == 'o' && args_to_stdout(a))
                 ? 0
                 : fn(ctx, a, a->operand[i], uses[i]);
    for (; rc == 0 && o && o->name; o++) {
        const char *path = NULL;
        if (o->kind == CLI_FILE || o->kind == CLI_SOURCE || o->kind == CLI_OUTPUT ||
            o->kind == CLI_RESULT)
            memcpy(&path, (const char *)a + o->at, sizeof path);
        if (path)
            rc = fn(ctx, a, path,
                    o->kind == CLI_FILE     ? 'f'
                    : o->kind == CLI_SOURCE ? 'r'
                    : o->kind == CLI_RESULT ? 'a'
                    : *uses == 'w'          ? 'o' // merge's output follows the rules of convert's
                                            : 'p');
        if (rc == 0 && o->kind == CLI_SOURCES)
            rc =
                sandbox_list(a, (const cli_list *)(const void *)((const char *)a + o->at), fn, ctx);
    }
    return rc;
}

static int sandbox_check(void *ctx, const cli_args *a, const char *path, char use)
{
    (void)a;
    return strchr("odpa", use) ? ckpt_output_check(path, ctx) : CKPT_OK;
}

int sandbox_check_outputs(const cli_args *a, ckpt_err *err)
{
    const char *uses = a->line.verb->uses ? a->line.verb->uses : "";
    int rc = sandbox_each(a, sandbox_check, err);

    // a mount point is not written to, but must not be a URL either
    for (int i = 0; rc == CKPT_OK && i < a->n_operands && uses[i]; i++) {
        if (uses[i] == 'm' && strstr(a->operand[i], "://"))
            rc = ckpt_output_check(a->operand[i], err);
    }
    return rc;
}

/* True if the command changes files in the folder. */
static bool sandbox_edits(const cli_args *a, char use)
{
    return use == 'e' || (use == 'l' && cli_has(&a->line, "fix-latest"));
}

typedef struct sandbox_paths {
    sandbox *s;
    int rules;
    bool any, writes; /* the command reads files; the command writes files */
    bool network;     /* the command reads from other machines */
    ckpt_err *err;
} sandbox_paths;

/* First pass: find whether there is any untrusted input, and the folder of the output. */
static int sandbox_plan(void *ctx, const cli_args *a, const char *path, char use)
{
    sandbox_paths *p = ctx;
    bool output = use == 'o' || use == 'd' || use == 'p' || use == 'a';

    p->any = p->any || !output;
    p->network = p->network || (!output && ckpt_path_is_remote(path));
    p->writes = p->writes || sandbox_edits(a, use) || (output && !a->dry_run);
    if (!output || p->s->folder || use == 'a')
        return CKPT_OK;
    p->s->folder = sandbox_output(a, path, use);
    if (!p->s->folder)
        return fail(p->err, CKPT_ELIMIT, "out of memory");
    return a->dry_run ? CKPT_OK : sandbox_make(p->s, !a->run.skip_fsync, p->err);
}

/* Allow writing in the folder of a file that is written beside the output. */
static void sandbox_beside(int rules, const char *path)
{
    char *folder = sandbox_parent(path);

    if (folder)
        (void)landlock_allow(rules, AT_FDCWD, folder, LANDLOCK_READ | LANDLOCK_WRITE);
    free(folder);
}

/* Second pass: allow the paths of the command line. */
static int sandbox_rule(void *ctx, const cli_args *a, const char *path, char use)
{
    const sandbox_paths *p = ctx;

    if (ckpt_path_is_remote(path))
        return CKPT_OK;
    if (use == 'f')
        (void)landlock_allow(p->rules, AT_FDCWD, path, LANDLOCK_READ);
    else if (use == 'a' && !a->dry_run)
        sandbox_beside(p->rules, path);
    else if (sandbox_edits(a, use))
        sandbox_source(p->rules, path, LANDLOCK_READ | LANDLOCK_WRITE);
    else if (use == 'r' || use == 'l')
        sandbox_source(p->rules, path, LANDLOCK_READ);
    return CKPT_OK;
}

/* Allow the files for resolving host names and checking certificates; both load libraries. */
static void sandbox_network(int rules)
{
    static const char *const path[] = {
        "/etc/resolv.conf",
        "/etc/hosts",
        "/etc/host.conf",
        "/etc/nsswitch.conf",
        "/etc/gai.conf",
        "/etc/services",
        "/etc/ssl",
        "/etc/pki",
        "/etc/ca-certificates",
        "/usr/lib/ssl",
        "/usr/share/ca-certificates",
        "/usr/local/share/ca-certificates",
        "/lib",
        "/lib64",
        "/usr/lib",
        "/usr/lib64",
        "/etc/ld.so.cache",
        "/run/systemd/resolve",
        "/dev/urandom",
    };
    static const char *const named[] = {"SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE"};

    for (size_t i = 0; i < sizeof path / sizeof *path; i++)
        (void)landlock_allow(rules, AT_FDCWD, path[i], LANDLOCK_READ);
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        const char *said = getenv(named[i]);

        if (said && *said)
            (void)landlock_allow(rules, AT_FDCWD, said, LANDLOCK_READ);
    }
}

/* Enforce the rules for files, if the kernel supports them. */
static int sandbox_files(sandbox_paths *p, const cli_args *a)
{
    bool output = p->s->folder && p->writes;
    int rc = CKPT_OK;

    p->rules = landlock_new(p->writes, p->network);
    if (p->rules < 0)
        return CKPT_OK;
    // load the files that could not be opened later
    (void)ckpt_prepare(output ? CKPT_PREPARE_WRITE : CKPT_PREPARE_READ, NULL);
    if (p->network)
        sandbox_network(p->rules);
    (void)sandbox_each(a, sandbox_rule, p);
    if (output)
        rc = sandbox_allow_output(p->s, p->rules, p->err);
    else if (p->s->folder)
        (void)landlock_allow(p->rules, AT_FDCWD, p->s->folder, LANDLOCK_READ);
    // contains the number of CPUs
    (void)landlock_allow(p->rules, AT_FDCWD, "/sys/devices/system/cpu", LANDLOCK_READ);
    p->s->files = landlock_enforce(p->rules);
    return rc;
}

int sandbox_enter(sandbox *s, const cli_args *a, ckpt_err *err)
{
    sandbox_paths p = {.s = s, .err = err};

    if (a->no_sandbox || SANDBOX_NONE)
        return CKPT_OK;
    int rc = sandbox_each(a, sandbox_plan, &p);
    // commands such as help read no untrusted files
    if (rc != CKPT_OK || !p.any)
        return rc;
    // tokens and the transport's library must be read now, because they are not accessible later
    if (p.network)
        rc = ckpt_prepare(CKPT_PREPARE_FETCH, err);
    if (rc == CKPT_OK)
        rc = sandbox_files(&p, a);
    (void)seccomp_enforce(p.network, a->line.verb->takes_files);
    return rc;
}

void sandbox_leave(sandbox *s)
{
    while (s->n_made > 0) {
        s->folder[s->made[--s->n_made]] = 0;
        (void)rmdir(s->folder);
    }
    free(s->made);
    free(s->folder);
    *s = (sandbox){0};
}

bool sandbox_suspect(const sandbox *s, const ckpt_err *err)
{
    const char *end = strstr(err->text, ": ");
    char path[sizeof err->text];

    if (!s->files || !end || !strstr(err->text, strerror(EACCES)))
        return false;
    (void)snprintf(path, sizeof path, "%.*s", (int)(end - err->text), err->text);
    // access() ignores Landlock and checks only the user's permissions
    return access(path, R_OK) == 0;
}

void sandbox_describe(char *out, size_t room)
{
    int abi = landlock_abi();

    if (SANDBOX_NONE)
        (void)snprintf(out, room, "none: built with a sanitizer");
    else if (abi && seccomp_known())
        (void)snprintf(out, room, "files (Landlock %d%s), system calls (seccomp), no new rights",
                       abi, abi < 2 ? ", readers only" : "");
    else if (abi)
        (void)snprintf(out, room,
                       "files (Landlock %d%s), no new rights; this kernel has no seccomp", abi,
                       abi < 2 ? ", readers only" : "");
    else if (seccomp_known())
        (void)snprintf(out, room,
                       "system calls (seccomp), no new rights; this kernel has no Landlock");
    else
        (void)snprintf(out, room, "none: this kernel has neither Landlock nor seccomp");
}
