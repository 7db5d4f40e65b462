/* SPDX-License-Identifier: Apache-2.0 */
/* verb.c: implements ckpt mount, which shows a view as a file system. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ckpt_extra.h"
#include "tools/ckpt/effects.h"
#include "tools/ckpt/job.h"
#include "tools/ckpt/prepare.h"
#include "tools/ckpt/report.h"
#include "tools/ckpt/training.h"
#include "tools/ckpt/verbs.h"
#include "tools/mount/mounter.h"

/* The fields of this command. */
typedef struct mount_args {
    prepare_args prepare; /* first: the parser fills the whole */
    bool allow_other, daemon, check_first;
    const char *name;
    struct mounter *mounter; /* started before the sandbox */
} mount_args;

enum {
    MNT_NAME = 256,  /* maximum length of a name in file systems, with the NUL */
    MNT_THREADS = 8, /* the library's own maximum if --jobs is not given */
    MNT_MORE = 2     /* threads that answer while the others produce blocks */
};

/* The mount and its state. */
typedef struct mount_job {
    convert_job convert;
    ckpt_view *view;
    mount_tree tree;
    mounter *mounter;
    const mount_plugin *plugin;
    const char *dir;
    pthread_mutex_t lock;
    uint64_t n_failed;
    ckpt_err first;                            /* reason for the first failed read */
    ckpt_err ending;                           /* reason for a failed unmount */
    char last[sizeof((ckpt_err *)NULL)->text]; /* the last printed failure */
} mount_job;

/* ---- checking the command line ---- */

/* Set the target: the mounted folder, or a single file in it. */
static int mnt_target(mount_args *a, char name[MNT_NAME], ckpt_err *err)
{
    const ckpt_format_info *f;

    if (!a->prepare.write.target.format)
        return fail(err, CKPT_EUSAGE, "the format of the files is missing: use --to FORMAT");
    f = ckpt_format_find(a->prepare.write.target.format);
    a->prepare.write.target.path = a->prepare.write.cli.operand[1];
    if (!f || write_into_folder(&a->prepare.write.target))
        return a->name ? fail(err, CKPT_EUSAGE,
                              "--name is only for formats of one file, but format %s is a folder",
                              a->prepare.write.target.format)
                       : CKPT_OK;
    if (a->name &&
        (!*a->name || strchr(a->name, '/') || a->name[0] == '.' || strlen(a->name) >= MNT_NAME))
        return fail(err, CKPT_EUSAGE, "--name: '%s' is not a file name", a->name);
    (void)snprintf(name, MNT_NAME, "%s", a->name ? a->name : "model");
    if (!a->name && f->suffixes)
        (void)snprintf(name + strlen(name), MNT_NAME - strlen(name), "%.*s",
                       (int)strcspn(f->suffixes, " "), f->suffixes);
    a->prepare.write.target.path = name;
    return CKPT_OK;
}

/* Lay out the target, and print the effects of options and source. */
static int mnt_lay_out(mount_job *m, write_args *a, ckpt_err *err)
{
    convert_job *job = &m->convert;
    int rc = job_lay_out(job, err);

    if (rc != CKPT_OK)
        return rc;
    effects_of_layout(a, job->from, job->to);
    job_say_findings(job, !a->cli.quiet);
    return effects_strict(&a->cli, err);
}

/* ---- reading ---- */

/* Handle a failed read: print it unless it repeats the last one; returns the plugin's error. */
static int mnt_failed(mount_job *m, ckpt_err *why)
{
    // the read was cancelled because the mount ends
    if (why->code == CKPT_ECANCELED && m->plugin->ended())
        return EIO;
    pthread_mutex_lock(&m->lock);
    job_explain(&m->convert, why->code, why);
    if (m->n_failed++ == 0)
        m->first = *why;
    if (strcmp(m->last, why->text) != 0)
        say_error("%s", why->text);
    (void)snprintf(m->last, sizeof m->last, "%s", why->text);
    pthread_mutex_unlock(&m->lock);
    if (why->code == CKPT_ELIMIT)
        return ENOMEM;
    return why->code == CKPT_EFORMAT || why->code == CKPT_EMISMATCH ? -EIO : EIO;
}

static int mnt_read(void *ctx, size_t file, void *buf, size_t n, uint64_t at)
{
    mount_job *m = ctx;
    ckpt_err err = {0};

    return ckpt_view_read(m->view, file, buf, n, at, &err) == CKPT_OK ? 0 : mnt_failed(m, &err);
}

static int mnt_ahead(void *ctx, size_t file, uint64_t n, uint64_t at)
{
    mount_job *m = ctx;
    ckpt_err err = {0};

    if (ckpt_view_prefetch(m->view, file, n, at, &err) == CKPT_OK)
        return 0;
    // the bytes may never be read, so report only damage of the source
    return err.code == CKPT_EFORMAT || err.code == CKPT_EMISMATCH ? mnt_failed(m, &err) : 0;
}

/* ---- the tree ---- */

static const char *mnt_path(void *ctx, size_t file)
{
    return ckpt_view_file_path(((const mount_job *)ctx)->view, file);
}

static uint64_t mnt_size(void *ctx, size_t file)
{
    return ckpt_view_file_size(((const mount_job *)ctx)->view, file);
}

static int mnt_tree(mount_job *m, ckpt_err *err)
{
    size_t n = ckpt_view_file_count(m->view), bad = 0;
    int rc = mount_tree_make(&m->tree, n, mnt_path, mnt_size, m, &bad);

    if (rc == 0)
        return CKPT_OK;
    return fail(err, rc == ENOMEM ? CKPT_ELIMIT : CKPT_EUNSUPPORTED,
                "%s: cannot be shown under this name: %s",
                n > bad ? ckpt_view_file_path(m->view, bad) : "", strerror(rc));
}

/* The time of the newest source file, so each mount shows the same time. */
static int64_t mnt_time(const ckpt_map *from)
{
    int64_t newest = 0;
    struct stat st;

    for (size_t i = 0; i < ckpt_map_file_count(from); i++) {
        const char *path = ckpt_map_file_path(from, i);

        if (!ckpt_path_is_remote(path) && stat(path, &st) == 0 && st.st_mtime > newest)
            newest = st.st_mtime;
    }
    return newest > 0 ? newest : (int64_t)time(NULL);
}

/* ---- mounting and serving ---- */

static void mnt_ending(void *ctx)
{
    mount_job *m = ctx;

    (void)mounter_unmount(m->mounter, &m->ending);
}

/* The plugin; waiting functions ask it whether the mount is ending. */
static const mount_plugin *mnt_plugin;

static bool mnt_stop(void *ctx)
{
    (void)ctx;
    return mnt_plugin->ended();
}

static unsigned mnt_threads(const cli_args *a)
{
    long n = a->run.jobs > 0 ? (long)a->run.jobs : sysconf(_SC_NPROCESSORS_ONLN);

    if (a->run.jobs == 0 && n > MNT_THREADS)
        n = MNT_THREADS;
    return (unsigned)(n < 1 ? 1 : n) + MNT_MORE;
}

static void mnt_say(const mount_job *m, const mount_args *a)
{
    char files[COUNT_ROOM], bytes[HUMAN_ROOM];

    say_note("%s: %s, %s, as %s; %s", m->dir, count_text(files, m->tree.n_files, "file"),
             human_bytes(bytes, m->tree.n_bytes), a->prepare.write.target.format,
             a->daemon ? "unmount it with fusermount3 -u"
                       : "unmount it with Ctrl-C or fusermount3 -u");
}

static int mnt_serve(mount_job *m, const mount_args *a, ckpt_err *err)
{
    const mount_served served = {.tree = &m->tree,
                                 .time = mnt_time(m->convert.from),
                                 .n_threads = mnt_threads(&a->prepare.write.cli),
                                 .ctx = m,
                                 .read = mnt_read,
                                 .ahead = mnt_ahead};
    char why[300] = "";
    int fd, rc;

    rc = mounter_attach(m->mounter, &fd, err);
    if (rc != CKPT_OK)
        return rc;
    if (!a->prepare.write.cli.quiet)
        mnt_say(m, a);
    ckpt_remote_set_stop(mnt_stop, NULL);
    rc = mounter_serving(m->mounter, err);
    if (rc != CKPT_OK)
        return rc;
    if (m->plugin->serve(fd, &served, mnt_ending, why, sizeof why) != 0)
        rc = fail(err, CKPT_EIO, "%s: %s", m->dir, why);
    if (rc == CKPT_OK && m->ending.code != CKPT_OK)
        rc = fail(err, m->ending.code, "%s", m->ending.text);
    return rc;
}

/* Print the findings about the source that arose while it was mounted. */
static int mnt_close(mount_job *m, const cli_args *a, ckpt_err *err)
{
    char reads[COUNT_ROOM];
    ckpt_view_counts n;

    ckpt_view_get_counts(m->view, &n);
    job_take_counts(&m->convert, &n);
    job_warn_values(&m->convert);
    if (m->n_failed > 0)
        return fail(err, m->first.code, "%s: %s failed; the first error: %s", m->dir,
                    count_text(reads, m->n_failed, "read"), m->first.text);
    if (!a->quiet && n.n_held + n.n_partly > 0)
        say_note("%s: unmounted; CRC-32 of %" PRIu64 " records held; %" PRIu64
                 " records were read in part, so their CRC-32 was not checked%s",
                 m->dir, n.n_held, n.n_partly,
                 n.n_partly > 0 ? " (use --verify to read them whole)" : "");
    return CKPT_OK;
}

/* Serve, and report.  Failed reads are more important than a failed unmount. */
static int mnt_mounted(mount_job *m, const mount_args *a, ckpt_err *err)
{
    ckpt_err lost = {0};
    int rc = mnt_serve(m, a, &lost);

    if (rc == CKPT_OK || m->n_failed > 0) {
        if (rc != CKPT_OK)
            say_error("%s", lost.text);
        return mnt_close(m, &a->prepare.write.cli, err);
    }
    return fail(err, rc, "%s", lost.text);
}

/* Serve the view of an open source until it is unmounted. */
static int mnt_carry_out(mount_job *m, mount_args *a, ckpt_err *err)
{
    const ckpt_view_opts opts = {
        .size = sizeof opts, .run = &m->convert.run, .check_first = a->check_first};
    int rc = mnt_lay_out(m, &a->prepare.write, err);

    if (rc == CKPT_OK)
        rc = ckpt_view_new(&m->view, m->convert.from, m->convert.to, &opts, err);
    if (rc == CKPT_OK)
        rc = mnt_tree(m, err);
    if (rc == CKPT_OK)
        rc = mnt_mounted(m, a, err);
    ckpt_view_free(m->view);
    mount_tree_free(&m->tree);
    job_free(&m->convert);
    return rc;
}

static int mount_before(cli_args *cli, ckpt_err *err)
{
    mount_args *a = (mount_args *)cli;
    char name[MNT_NAME];
    const mounter_opts opts = {.dir = a->prepare.write.cli.operand[1],
                               .from = a->prepare.write.cli.operand[0],
                               .allow_other = a->allow_other,
                               .daemon = a->daemon};

    int rc = mnt_target(a, name, err);

    return rc == CKPT_OK ? mounter_begin(&a->mounter, &opts, err) : rc;
}

static int mount_run(cli_args *cli, ckpt_err *err)
{
    mount_args *a = (mount_args *)cli;
    mount_job m = {.mounter = a->mounter,
                   .plugin = mounter_plugin(a->mounter),
                   .dir = a->prepare.write.cli.operand[1],
                   .lock = PTHREAD_MUTEX_INITIALIZER};
    ckpt_map *map = NULL;
    char name[MNT_NAME];
    int rc = mnt_target(a, name, err);

    mnt_plugin = m.plugin;
    if (rc == CKPT_OK)
        rc = convert_prepare(&map, &a->prepare, err);
    m.convert = (convert_job){.from = map,
                              .target = a->prepare.write.target,
                              .run = a->prepare.write.cli.run,
                              .quiet = a->prepare.write.cli.quiet};
    if (rc == CKPT_OK)
        rc = mnt_carry_out(&m, a, err);
    mounter_end(m.mounter);
    training_free(&a->prepare.write);
    ckpt_map_free(map);
    return rc;
}

#define AT(field) offsetof(mount_args, field)
static const cli_option mount_options[] = {
    OPTION_TO,
    {"name", 0, CLI_TEXT, AT(name), "FILE",
     "name of a single file (default: model and the suffix)"},
    {"verify", 0, CLI_FLAG, AT(check_first), NULL,
     "check the CRC of each record before serving it"},
    {"daemon", 0, CLI_FLAG, AT(daemon), NULL, "return after mounting; send messages to syslog"},
    {"allow-other", 0, CLI_FLAG, AT(allow_other), NULL, "allow other users to read"},
    PREPARE_OPTIONS,
    OPTION_STAGE,
    OPTION_SUB_GROUP_SIZE,
    OPTION_DEEPSPEED_VERSION,
    OPTION_JOIN,
    OPTION_QUIET,
    CLI_NO_SANDBOX,
    CLI_END,
};

static const cli_moot mount_moot[] = {
    PREPARE_MOOT,
    {NULL, NULL, NULL},
};

static const cli_heading mount_headings[] = {
    {"Common options", "to name dtype daemon verify allow-other include exclude tag world"},
    PREPARE_HEADINGS,
    {"Output", "max-shard-size no-side-files quiet memory jobs"},
    {NULL, NULL},
};

const cli_verb verb_mount = {
    .name = "mount",
    .command = "ckpt mount",
    .operands = "SRC DIR",
    .summary = "Show a checkpoint as files of another format, without writing them.",
    .options = mount_options,
    .moot = mount_moot,
    .headings = mount_headings,
    .min = 2,
    .max = 2,
    .uses = "rm",
    .takes_files = true,
    .before = mount_before,
    .run = mount_run,
    .room = sizeof(mount_args),
    WRITE_HOOKS,
};
