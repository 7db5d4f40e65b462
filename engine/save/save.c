/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save.c: runs one save of all ranks.  Each writes its own files; they are published together or
 * not at all.
 *
 * The node's writer (rank 0; with use_node_local_storage the first rank of every node) opens the
 * staging folder (libckpt/commit/publish.h), and all ranks write into its `new`.  When every rank
 * has reported that its files are on disk, the writer renames the folder to its tag and updates
 * `latest`.  Every step that can fail on one rank ends with an agreement, so all ranks fail
 * together.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/save/keep.h"
#include "engine/save/live.h"
#include "engine/save/same.h"
#include "engine/save/together.h"
#include "libckpt/commit/publish.h"
#include "libckpt/plan_run.h"

enum { SV_TAG = 256, SV_PATH = 4096 };

/* One save, from the image to the commit. */
typedef struct sv_job {
    char tag[SV_TAG], spare[SV_TAG];
    char dir[SV_PATH], stage_path[SV_PATH + 2 * SV_TAG];
    int64_t keep, step;
    bool force;
    const zt_lineage *lineage;
    bool writer;        /* this rank creates and commits the folder on its node */
    int32_t *writer_of; /* [world], the writer of each rank's node */
    zt_image image;
    ckpt_map *from, *to;
    ckpt_map *shell; /* map with only the folder and the pointer, for the staging */
    ckpt_plan *plan;
    ckpt_dir path;
    ckpt_publish *stage;
    ckpt_run_opts run;
    pthread_t thread;
    bool threaded;
    int rc; /* result of writing the files */
    ckpt_err err;
} sv_job;

struct zt_saver {
    zt_zero *zero;
    sv_job *job;     /* under way; NULL: none */
    ckpt_err remark; /* not reported yet */
    zt_lineage lineage;
    char gone[ZT_KEEP_GONE]; /* tags that --keep removed, not reported yet */
};

/* ---- agreement of all ranks ---- */

/*
 * Broadcast rank 0's tag.  If tag validation is FAIL, it is an error if this rank's own tag
 * differs.
 */
static int sv_agree_tag(sv_job *j, const zt_zero *z, ckpt_err *err)
{
    char tag[SV_TAG];
    int rc;

    memcpy(tag, j->tag, sizeof tag);
    rc = z->comm->ops->broadcast(z->comm, tag, sizeof tag, 0, err);
    if (rc == CKPT_OK && strcmp(tag, j->tag) != 0 && z->config->tag_validation == ZT_TAG_FAIL)
        rc = ckpt_fail(err, CKPT_EMISMATCH,
                       "tag %.200s on rank %d, but %.200s on rank 0 (checkpoint.tag_validation)",
                       j->tag, z->comm->rank, tag);
    memcpy(j->tag, tag, sizeof tag);
    return rc;
}

static int sv_names(sv_job *j, const zt_zero *z, const zt_save_opts *o, ckpt_err *err)
{
    int n = o->tag ? snprintf(j->tag, sizeof j->tag, "%s", o->tag)
                   : snprintf(j->tag, sizeof j->tag, "global_step%" PRId64, z->global_steps);

    if (n < 0 || n >= SV_TAG - 32 || !ckpt_path_part_ok(j->tag, (size_t)n))
        return ckpt_fail(err, CKPT_EUSAGE, "tag '%.200s' is not a valid folder name",
                         o->tag ? o->tag : j->tag);
    n = snprintf(j->dir, sizeof j->dir, "%s", o->dir ? o->dir : "");
    if (n <= 0 || n >= SV_PATH - 2 * SV_TAG)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "the path of the folder to save to must have 1 to %d bytes",
                         SV_PATH - 2 * SV_TAG);
    return CKPT_OK;
}

/* ---- layout and plan ---- */

/* Mark the files that other ranks write; the node's writer writes the shared ones. */
static void sv_mark_files(sv_job *j, const zt_comm *c)
{
    for (size_t i = 0; i < j->to->files.n; i++) {
        ckpt_map_file *f = &j->to->files.at[i];
        f->elsewhere = f->rank == UINT32_MAX ? !j->writer : f->rank != (uint32_t)c->rank;
    }
    // the writer publishes the staging folder later, so this plan must not rename it
    j->to->folder = NULL;
    j->to->pointer = NULL;
}

/* Threads per rank of the node. */
static unsigned sv_threads(const zt_comm *c)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);

    n = n > 0 && c->local_world > 0 ? n / c->local_world : 1;
    return n < 1 ? 1 : n > 8 ? 8 : (unsigned)n;
}

static int sv_plan(sv_job *j, const zt_zero *z, const zt_save_opts *o, ckpt_err *err)
{
    ckpt_target target = {.format = "zero", .path = j->dir, .tag = j->tag, .keep_objects = true};
    int rc = zt_live_map(&j->from, &j->image, o->client_state, err);

    target.stage = z->config->stage ? z->config->stage : CKPT_STAGE_NONE;
    target.world = (uint32_t)z->comm->world;
    j->run = (ckpt_run_opts){.memory = UINT64_C(64) << 20, .jobs = sv_threads(z->comm)};
    if (rc == CKPT_OK)
        rc = ckpt_layout(&j->to, j->from, &target, err);
    if (rc != CKPT_OK)
        return rc;
    sv_mark_files(j, z->comm);
    // drop the working weights, because comparing them with masters is the task of `ckpt verify`
    for (size_t i = 0; i < j->from->tensors.n; i++)
        j->from->tensors.at[i]->twin = NULL;
    return ckpt_plan_new(&j->plan, j->from, j->to, &j->run, err);
}

/* ---- the staging folder ---- */

/*
 * Describe the save to the staging code: the folder, its pointer, and a random mark, so remains of
 * an interrupted save are not mistaken for this one's.
 */
static int sv_shell(sv_job *j, const zt_zero *z, ckpt_err *err)
{
    ckpt_map_file mark = {.path = "mark"};
    struct timespec now = {0};
    uint64_t salt[3];
    uint32_t file = 0;
    int rc = ckpt_map_create(&j->shell, 0, err);

    (void)clock_gettime(CLOCK_REALTIME, &now);
    salt[0] = (uint64_t)now.tv_sec;
    salt[1] = (uint64_t)now.tv_nsec;
    salt[2] = (uint64_t)getpid() << 20 ^ (uint64_t)z->comm->rank;
    if (rc == CKPT_OK)
        rc = ckpt_map_add_file(j->shell, &mark, &file, err);
    if (rc == CKPT_OK)
        rc = ckpt_map_add_literal(j->shell, file, 0, salt, sizeof salt, err);
    if (rc != CKPT_OK)
        return rc;
    j->shell->folder = j->shell->pointer_text = j->tag;
    j->shell->pointer = "latest";
    return CKPT_OK;
}

/* The writer's steps before any rank writes its files. */
static int sv_open_stage(sv_job *j, const zt_zero *z, ckpt_err *err)
{
    ckpt_publish_opts opts = {.jobs = 1};
    bool anew = false;
    int rc = CKPT_OK;

    if (!j->writer)
        return CKPT_OK;
    rc = sv_shell(j, z, err);
    if (rc == CKPT_OK)
        rc = ckpt_dir_make(&j->path, j->dir, err);
    // another program may have created a folder of that name since the start
    if (rc == CKPT_OK)
        rc = zt_lineage_spare(j->path.fd, j->dir, j->tag, err);
    opts.force =
        rc == CKPT_OK && (j->force || zt_lineage_may_replace(j->lineage, j->path.fd, j->tag));
    if (rc == CKPT_OK)
        rc = ckpt_publish_open(&j->stage, &j->path, j->shell, NULL, &opts, err);
    if (rc == CKPT_OK)
        rc = ckpt_publish_begin(j->stage, 0, &anew, err);
    return rc;
}

/* True if this rank is the writer for all ranks. */
static bool sv_sees_all(const sv_job *j, const zt_comm *c)
{
    assert(j->writer && j->writer_of);
    for (int r = 0; r < c->world; r++) {
        if (j->writer_of[r] != c->rank)
            return false;
    }
    return true;
}

/* Write .zerotrain into the new folder. */
static int sv_mark(const sv_job *j, ckpt_err *err)
{
    int fd = open(j->stage_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc;

    if (fd < 0)
        return ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot be opened", j->stage_path);
    rc = zt_lineage_mark(j->lineage, fd, j->stage_path, j->step, err);
    (void)close(fd);
    return rc;
}

/* The writer's steps once the files of all ranks are on disk. */
static int sv_commit(sv_job *j, const zt_comm *c, ckpt_err *err)
{
    int rc = CKPT_OK;

    if (!j->writer)
        return CKPT_OK;
    rc = zt_together_look(c, j->to, j->stage_path, j->writer_of, err);
    if (rc == CKPT_OK)
        rc = ckpt_dir_sync_made(&j->path, err);
    // with node-local folders, no node sees the files of all ranks
    if (rc == CKPT_OK && sv_sees_all(j, c))
        rc = ckpt_plan_check(j->from, j->to, j->stage_path, err);
    if (rc == CKPT_OK)
        rc = sv_mark(j, err);
    if (rc == CKPT_OK)
        rc = ckpt_publish_commit(j->stage, err);
    if (rc == CKPT_OK)
        j->path.n_made = 0; // keep the created folders
    return rc;
}

/* ---- one save ---- */

static void sv_free(sv_job *j)
{
    if (!j)
        return;
    ckpt_plan_free(j->plan);
    ckpt_map_free(j->to);
    ckpt_map_free(j->from);
    zt_image_drop(&j->image);
    ckpt_publish_close(j->stage);
    ckpt_dir_close(&j->path);
    ckpt_map_free(j->shell);
    ckpt_free(j->writer_of);
    ckpt_free(j);
}

/* Write this rank's files, in the caller's thread or another. */
static void *sv_write(void *ctx)
{
    sv_job *j = ctx;

    j->rc = ckpt_plan_run_in(j->plan, j->stage_path, &j->run, NULL, &j->err);
    return NULL;
}

/* Find the writer of each rank. */
static int sv_writers(sv_job *j, const zt_zero *z, ckpt_err *err)
{
    zt_comm *c = z->comm;
    int rc;

    j->writer_of = ckpt_alloc((size_t)c->world * sizeof *j->writer_of);
    rc = zt_comm_agree(c, j->writer_of ? CKPT_OK : ckpt_fail_memory(err), err);
    if (rc == CKPT_OK)
        rc = zt_together_writers(c, z->config->node_local, j->writer_of, err);
    j->writer = rc == CKPT_OK && j->writer_of[c->rank] == c->rank;
    return rc;
}

/* Prepare a save up to the first byte; all ranks agree on the outcome. */
static int sv_begin(sv_job *j, zt_saver *s, const zt_save_opts *o, ckpt_err *err)
{
    zt_zero *z = s->zero;
    zt_comm *c = z->comm;
    int rc = zt_comm_agree(c, sv_names(j, z, o, err), err);

    j->keep = o->keep;
    (void)snprintf(j->spare, sizeof j->spare, "%s", o->spare ? o->spare : "");
    j->step = z->global_steps;
    j->force = o->force;
    j->lineage = &s->lineage;
    if (rc == CKPT_OK)
        rc = zt_comm_agree(c, sv_agree_tag(j, z, err), err);
    if (rc == CKPT_OK)
        rc = zt_same_state(z, err);
    if (rc == CKPT_OK)
        rc = sv_writers(j, z, err);
    if (rc != CKPT_OK)
        return rc;
    rc = zt_image_take(&j->image, z, j->writer, o->async, err);
    if (rc != CKPT_OK)
        return rc;
    (void)snprintf(j->stage_path, sizeof j->stage_path, "%s/.%s.ckpt-partial/new", j->dir, j->tag);
    rc = sv_plan(j, z, o, err);
    if (rc == CKPT_OK)
        rc = sv_open_stage(j, z, err);
    return zt_comm_agree(c, rc, err);
}

/* Wait for the files, then publish them; all ranks agree. */
static int sv_finish(sv_job *j, zt_saver *s, ckpt_err *err)
{
    const zt_zero *z = s->zero;
    const zt_keep keep = {j->dir, j->tag, j->spare, j->keep, &s->lineage};
    int rc;

    assert(j->plan && j->writer_of);
    if (j->threaded)
        (void)pthread_join(j->thread, NULL);
    j->threaded = false;
    rc = j->rc;
    if (rc != CKPT_OK)
        (void)ckpt_fail(err, rc, "%s", j->err.text);
    rc = zt_comm_agree(z->comm, rc, err);
    if (rc == CKPT_OK)
        rc = zt_comm_agree(z->comm, sv_commit(j, z->comm, err), err);
    if (rc != CKPT_OK)
        return rc;
    // remove old tags only now, because the new one is safe
    if (j->writer && j->keep > 0)
        (void)zt_keep_newest(&keep, s->gone, &s->remark);
    return CKPT_OK;
}

int zt_saver_new(zt_saver **out, zt_zero *zero, ckpt_err *err)
{
    *out = ckpt_alloc(sizeof **out);
    if (!*out)
        return ckpt_fail_memory(err);
    assert(zero);
    (*out)->zero = zero;
    zt_lineage_begin(&(*out)->lineage);
    return CKPT_OK;
}

void zt_saver_resume(zt_saver *s, const zt_load_opts *from, const zt_loaded *loaded)
{
    zt_lineage_resume(&s->lineage, from->path, loaded->tag, from->tag != NULL,
                      loaded->global_steps);
}

void zt_saver_keep_facts(zt_saver *s, const char *facts)
{
    s->lineage.facts = facts;
}

char *zt_loaded_facts(const zt_load_opts *from, const zt_loaded *loaded)
{
    return zt_lineage_facts(from->path, loaded->tag);
}

int zt_saver_try(zt_saver *s, const zt_save_opts *opts, ckpt_err *err)
{
    const zt_lineage_place to = {opts->dir, opts->tag, opts->force};

    return zt_lineage_check(&s->lineage, &to, &s->remark, err);
}

void zt_saver_free(zt_saver *s)
{
    if (!s)
        return;
    if (s->job && s->job->threaded)
        (void)pthread_join(s->job->thread, NULL);
    sv_free(s->job);
    zt_lineage_free(&s->lineage);
    ckpt_free(s);
}

zt_zero *zt_saver_zero(const zt_saver *s)
{
    return s->zero;
}

ckpt_err *zt_saver_remark(zt_saver *s)
{
    return &s->remark;
}

bool zt_save_remark(zt_saver *s, ckpt_err *out)
{
    *out = s->remark;
    s->remark = (ckpt_err){0};
    return out->code != CKPT_OK;
}

bool zt_save_gone(zt_saver *s, char out[ZT_SAVE_NAMES])
{
    memcpy(out, s->gone, ZT_SAVE_NAMES);
    s->gone[0] = 0;
    return out[0] != 0;
}

int zt_save_wait(zt_saver *s, ckpt_err *err)
{
    int rc = CKPT_OK;

    if (s->job)
        rc = sv_finish(s->job, s, err);
    sv_free(s->job);
    s->job = NULL;
    return rc;
}

int zt_save(zt_saver *s, const zt_save_opts *opts, ckpt_err *err)
{
    sv_job *j;
    int rc = zt_save_wait(s, err);

    if (rc != CKPT_OK)
        return rc;
    j = ckpt_alloc(sizeof *j);
    rc = zt_comm_agree(s->zero->comm, j ? CKPT_OK : ckpt_fail_memory(err), err);
    if (rc == CKPT_OK) {
        j->path = CKPT_DIR_NONE;
        rc = sv_begin(j, s, opts, err);
    }
    if (rc != CKPT_OK) {
        sv_free(j);
        return rc;
    }
    assert(!s->job); // zt_save_wait has finished the one before
    s->job = j;
    // if no thread can be started, write the files now
    j->threaded = opts->async && pthread_create(&j->thread, NULL, sv_write, j) == 0;
    if (!j->threaded)
        (void)sv_write(j);
    return opts->async ? CKPT_OK : zt_save_wait(s, err);
}
