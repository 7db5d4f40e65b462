/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offload.c: keeps optimizer state and partitions of weights in files (offload to "nvme").
 *
 * State: one file per partition, with masters and state arrays one after another, each rounded up
 * to 64 bytes.  A few buffers of the largest partition's size bound the memory: a thread reads the
 * next partition and writes the last one while the update works on a third.  A save holds all
 * partitions at once; those beyond the buffers are mapped.  Weights: files mapped into memory.  The
 * kernel can reclaim the pages of mapped files.
 *
 * Files are scratch space: each run creates them, filled with zeros, and removes them at its end.
 * With a host device, offload to "cpu" changes nothing; beside a GPU the buffers are host memory
 * (home.c).
 */
#define _DEFAULT_SOURCE // madvise

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/zero/own.h"
#include "libckpt/io/dir.h"

#define OF_SLOTS 3 // for the partition in use, the one being read, the one being written

typedef enum of_state { OF_IDLE, OF_READ, OF_WRITE } of_state;

/* A buffer for one partition. */
typedef struct of_slot {
    char *mem;
    uint32_t part; // ZR_NONE: empty
    of_state state;
    unsigned held;
    bool extra; // beyond the planned slots: the file itself, mapped
} of_slot;

typedef struct of_map {
    void *at;
    uint64_t n_bytes;
    uint32_t id;
} of_map;
CKPT_VEC(of_maps, of_map);

typedef struct zr_files {
    zt_zero *zero;
    ckpt_dir dir, param_dir;
    uint64_t n_planned, slot_bytes;
    of_slot *slot; // [partitions]
    uint32_t n_slots, n_room;
    uint32_t *queue; // slots with pending requests, oldest first
    uint32_t n_queue;
    pthread_t thread;
    bool threaded, stop, locks;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    ckpt_err err; // failure of the thread
    of_maps maps;
} zr_files;

static uint64_t of_round(uint64_t n)
{
    return (n + 63) & ~UINT64_C(63);
}

/* Bytes of one array of a partition (of_bytes: of all arrays). */
static uint64_t of_stride(const zt_zero *z, uint32_t part)
{
    return of_round(4 * z->part[part].n_elems);
}

static uint64_t of_bytes(const zt_zero *z, uint32_t part)
{
    return of_stride(z, part) * (1 + z->config->optim.n_state);
}

/* ---- the thread ---- */

/* Read or write a whole partition; returns 0 or an errno value. */
static int of_transfer(int fd, char *p, uint64_t n, bool write)
{
    for (uint64_t at = 0; at < n;) {
        size_t part = n - at < (UINT64_C(1) << 26) ? (size_t)(n - at) : (size_t)1 << 26;
        ssize_t did =
            write ? pwrite(fd, p + at, part, (off_t)at) : pread(fd, p + at, part, (off_t)at);

        if (did < 0 && errno == EINTR)
            continue;
        if (did <= 0)
            return did < 0 ? errno : ENODATA;
        at += (uint64_t)did;
    }
    return 0;
}

/* File names as in DeepSpeed's swapper. */
static void of_name(char *out, size_t n, uint32_t part)
{
    snprintf(out, n, "%" PRIu32 ".tensor.swp", part);
}

static void of_param_name(char *out, size_t n, uint32_t id)
{
    snprintf(out, n, "%" PRIu32 "_param.tensor.swp", id);
}

/* Must be called without the lock. */
static int of_job(zr_files *f, uint32_t part, char *mem, bool write, ckpt_err *err)
{
    char name[64];
    int fd, sys;

    of_name(name, sizeof name, part);
    fd = openat(f->dir.fd, name, (write ? O_WRONLY : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return ckpt_fail_sys(err, CKPT_EIO, errno, "%s/%s", f->dir.path, name);
    sys = of_transfer(fd, mem, of_bytes(f->zero, part), write);
    if (close(fd) != 0 && sys == 0)
        sys = errno;
    if (sys != 0)
        return ckpt_fail_sys(err, CKPT_EIO, sys, "%s/%s: error while %s optimizer state",
                             f->dir.path, name, write ? "writing" : "reading");
    return CKPT_OK;
}

/* Serves requests in order, so a read sees an earlier write of the same partition. */
static void *of_worker(void *ctx)
{
    zr_files *f = ctx;

    pthread_mutex_lock(&f->lock);
    for (;;) {
        while (f->n_queue == 0 && !f->stop)
            pthread_cond_wait(&f->work, &f->lock);
        if (f->n_queue == 0)
            break;
        uint32_t i = f->queue[0];
        of_slot s = f->slot[i];
        ckpt_err err = {0};

        pthread_mutex_unlock(&f->lock);
        int rc = of_job(f, s.part, s.mem, s.state == OF_WRITE, &err);
        pthread_mutex_lock(&f->lock);
        if (rc != CKPT_OK && f->err.code == CKPT_OK)
            f->err = err;
        memmove(f->queue, f->queue + 1, (f->n_queue - 1) * sizeof *f->queue);
        f->n_queue--;
        f->slot[i].state = OF_IDLE;
        pthread_cond_broadcast(&f->done);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* The functions from here on must be called with the lock held. */
/* Queue a request; a slot has at most one, so the queue cannot overflow. */
static void of_submit(zr_files *f, of_slot *s, of_state what)
{
    assert(s->state == OF_IDLE && what != OF_IDLE && f->n_queue < f->n_room);
    s->state = what;
    f->queue[f->n_queue++] = (uint32_t)(s - f->slot);
    pthread_cond_signal(&f->work);
}

/* Wait until the slot's request is done. */
static void of_wait(zr_files *f, const of_slot *s)
{
    while (s->state != OF_IDLE)
        pthread_cond_wait(&f->done, &f->lock);
}

static of_slot *of_find(zr_files *f, uint32_t part)
{
    for (uint32_t i = 0; i < f->n_slots; i++) {
        if (f->slot[i].part == part && f->slot[i].mem)
            return &f->slot[i];
    }
    return NULL;
}

/*
 * A planned slot that is not held.  If `wait`, also one with a pending request, after waiting for
 * it.
 */
static of_slot *of_vacant(zr_files *f, bool wait)
{
    of_slot *busy = NULL;

    for (uint32_t i = 0; i < f->n_planned; i++) {
        of_slot *s = &f->slot[i];

        if (s->held == 0 && s->state == OF_IDLE)
            return s;
        busy = s->held == 0 ? s : busy;
    }
    if (busy && wait) {
        of_wait(f, busy);
        return busy;
    }
    return NULL;
}

/* Bytes to map: at least 1, because a mapping cannot be empty. */
static size_t of_mapped(const zr_files *f, uint32_t part)
{
    uint64_t n = of_bytes(f->zero, part);
    return n > 0 ? (size_t)n : 1;
}

/* Map the partition's file, if all planned slots are held.  The file has no pending writes, because
 * a slot is reused only when its request is done. */
static of_slot *of_extra(zr_files *f, uint32_t part, ckpt_err *err)
{
    uint32_t i = (uint32_t)f->n_planned;
    char name[64];
    void *at = MAP_FAILED;
    int fd;

    while (f->slot[i].mem)
        i++;
    assert(i < f->n_room); // there is room for each partition
    of_name(name, sizeof name, part);
    fd = openat(f->dir.fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0)
        at = mmap(NULL, of_mapped(f, part), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        (void)ckpt_fail_sys(err, CKPT_EIO, errno, "mapping %s/%s", f->dir.path, name);
    if (fd >= 0)
        (void)close(fd);
    if (at == MAP_FAILED)
        return NULL;
    f->slot[i] = (of_slot){.mem = at, .part = part, .extra = true};
    f->n_slots = i >= f->n_slots ? i + 1 : f->n_slots;
    return &f->slot[i];
}

static void of_unmap(zr_files *f, of_slot *s)
{
    (void)munmap(s->mem, of_mapped(f, s->part));
    *s = (of_slot){.part = ZR_NONE};
}

/* Point the partition's arrays into slot s (NULL: to NULL). */
static void of_point(zr_files *f, uint32_t part, const of_slot *s)
{
    zt_partition *p = &f->zero->part[part];
    uint64_t stride = of_stride(f->zero, part);

    assert(!s || s->part == part);
    p->master = !s ? NULL : (void *)s->mem;
    for (unsigned k = 0; k < f->zero->config->optim.n_state; k++)
        p->state[k] = !s ? NULL : (void *)(s->mem + stride * (k + 1));
}

/* The thread's failure, if any; the next call of the engine reports it. */
static int of_error(zr_files *f, ckpt_err *err)
{
    return f->err.code == CKPT_OK ? CKPT_OK : ckpt_fail(err, f->err.code, "%s", f->err.text);
}

/* Find partition i in a slot, read it into one, or map it. */
static of_slot *of_bring(zr_files *f, uint32_t part, ckpt_err *err)
{
    of_slot *s = of_find(f, part);

    if (!s) {
        s = of_vacant(f, true);
        if (s) {
            s->part = part;
            of_submit(f, s, OF_READ);
        } else {
            s = of_extra(f, part, err);
        }
        if (!s)
            return NULL;
    }
    s->held++;
    of_wait(f, s);
    return s;
}

int zr_bring(zt_zero *z, uint32_t part, ckpt_err *err)
{
    zr_files *f = zr_of(z)->files;
    int rc;

    if (!zr_of(z)->swapped)
        return CKPT_OK;
    assert(f && part < z->n_parts);
    pthread_mutex_lock(&f->lock);
    of_slot *s = of_bring(f, part, err);

    rc = !s ? zr_code(err) : of_error(f, err);
    if (rc == CKPT_OK) {
        of_point(f, part, s);
        // start reading the next partition while this one is updated
        if (part + 1 < z->n_parts && !of_find(f, part + 1)) {
            of_slot *ahead = of_vacant(f, false);

            if (ahead) {
                ahead->part = part + 1;
                of_submit(f, ahead, OF_READ);
            }
        }
    }
    pthread_mutex_unlock(&f->lock);
    return rc;
}

int zr_put_back(zt_zero *z, uint32_t part, bool changed, ckpt_err *err)
{
    zr_files *f = zr_of(z)->files;
    int rc;

    if (!zr_of(z)->swapped)
        return CKPT_OK;
    assert(f && part < z->n_parts);
    z->device->ops->sync(z->device);
    pthread_mutex_lock(&f->lock);
    of_slot *s = of_find(f, part);

    if (!s || s->held == 0) {
        pthread_mutex_unlock(&f->lock);
        return ckpt_fail(err, CKPT_EUSAGE, "partition %u is released but was not in memory", part);
    }
    s->held--;
    if (changed && !s->extra) {
        of_wait(f, s);
        of_submit(f, s, OF_WRITE);
    }
    if (s->held == 0)
        of_point(f, part, NULL);
    if (s->held == 0 && s->extra)
        of_unmap(f, s);
    rc = of_error(f, err);
    pthread_mutex_unlock(&f->lock);
    return rc;
}

int zr_settle(zt_zero *z, ckpt_err *err)
{
    zr_files *f = zr_of(z)->files;
    int rc;

    if (!zr_of(z)->swapped)
        return CKPT_OK;
    pthread_mutex_lock(&f->lock);
    while (f->n_queue > 0)
        pthread_cond_wait(&f->done, &f->lock);
    rc = of_error(f, err);
    pthread_mutex_unlock(&f->lock);
    return rc;
}

/* ---- weights ---- */

/* Create a file of n bytes; returns its descriptor or -1. */
static int of_create(const ckpt_dir *dir, const char *name, uint64_t n, ckpt_err *err)
{
    int fd = openat(dir->fd, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    int sys = fd < 0 ? errno : 0;

    // reserve the space now, so a full disk is reported before the run
    if (sys == 0 && n > 0)
        sys = posix_fallocate(fd, 0, (off_t)n);
    if (sys != 0) {
        (void)ckpt_fail_sys(err, CKPT_EIO, sys,
                            "%s/%s: cannot create this file of %" PRIu64 " bytes", dir->path, name,
                            n);
        if (fd >= 0)
            (void)close(fd);
        return -1;
    }
    return fd;
}

void *zr_files_low(zt_zero *z, uint64_t n_bytes, uint32_t id, ckpt_err *err)
{
    zr_files *f = zr_of(z)->files;
    uint64_t n = of_round(n_bytes < 64 ? 64 : n_bytes);
    of_map *m = ckpt_vec_push(&f->maps);
    char name[64];
    int fd;

    if (!m) {
        (void)ckpt_fail_memory(err);
        return NULL;
    }
    *m = (of_map){.n_bytes = n, .id = id};
    of_param_name(name, sizeof name, id);
    fd = of_create(&f->param_dir, name, n, err);
    if (fd < 0)
        return NULL;
    m->at = mmap(NULL, (size_t)n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    if (m->at == MAP_FAILED) {
        m->at = NULL;
        (void)ckpt_fail_sys(err, CKPT_EIO, errno, "mapping %s/%s", f->param_dir.path, name);
    }
    return m->at;
}

void zr_files_cool(zt_zero *z)
{
    zr_files *f = zr_of(z)->files;

    // Remove the mapping's pages.  Nothing is lost, because dirty pages stay in the kernel's cache
    // until they are written.
    for (size_t i = 0; f && i < f->maps.n; i++) {
        if (f->maps.at[i].at)
            (void)madvise(f->maps.at[i].at, (size_t)f->maps.at[i].n_bytes, MADV_DONTNEED);
    }
}

/* ---- creating and freeing ---- */

/* Open this rank's own folder, so ranks may share a disk. */
static int of_folder(zt_zero *z, ckpt_dir *dir, const char *base, const char *kind, ckpt_err *err)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/zero_stage_%d/%s/rank%d", base, z->config->stage, kind,
                     z->comm->rank);

    if (n < 0 || (size_t)n >= sizeof path)
        return ckpt_fail(err, CKPT_EUSAGE, "nvme_path is longer than 4000 bytes");
    return ckpt_dir_make(dir, path, err);
}

static int of_thread(zr_files *f, ckpt_err *err)
{
    if (pthread_mutex_init(&f->lock, NULL) != 0)
        return ckpt_fail_memory(err);
    (void)pthread_cond_init(&f->work, NULL);
    (void)pthread_cond_init(&f->done, NULL);
    f->locks = true;
    f->threaded = pthread_create(&f->thread, NULL, of_worker, f) == 0;
    return f->threaded ? CKPT_OK
                       : ckpt_fail(err, CKPT_ELIMIT, "cannot start the thread for offloading");
}

/* Open the folders first, so a bad path is reported before anything else is created. */
int zr_files_new(zt_zero *z, ckpt_err *err)
{
    const zt_config *c = z->config;
    bool state = c->offload_optimizer.place == ZT_ON_NVME;
    bool param = c->offload_param.place == ZT_ON_NVME;
    const char *kind = c->dtype == CKPT_F32    ? "float32params"
                       : c->dtype == CKPT_BF16 ? "bfloat16params"
                                               : "float16params";
    zr_files *f;
    int rc = CKPT_OK;

    if (!state && !param)
        return CKPT_OK;
    f = ckpt_alloc(sizeof *f);
    if (!f)
        return ckpt_fail_memory(err);
    zr_of(z)->files = f;
    zr_of(z)->swapped = state;
    zr_of(z)->mapped = param;
    f->zero = z;
    f->dir = f->param_dir = CKPT_DIR_NONE;
    if (state)
        rc = of_folder(z, &f->dir, c->offload_optimizer.path, "optimizer", err);
    if (rc == CKPT_OK && param)
        rc = of_folder(z, &f->param_dir, c->offload_param.path, kind, err);
    return rc;
}

/* Create files and buffers; partitions must exist. */
int zr_files_ready(zt_zero *z, ckpt_err *err)
{
    zr_files *f = zr_of(z)->files;
    uint64_t count = (uint64_t)z->config->offload_optimizer.buffer_count;

    if (!zr_of(z)->swapped)
        return CKPT_OK;
    for (uint32_t i = 0; i < z->n_parts; i++) {
        char name[64];
        int fd;

        f->slot_bytes = of_bytes(z, i) > f->slot_bytes ? of_bytes(z, i) : f->slot_bytes;
        of_name(name, sizeof name, i);
        fd = of_create(&f->dir, name, of_bytes(z, i), err);
        if (fd < 0)
            return zr_code(err);
        (void)close(fd);
    }
    f->n_planned = count < OF_SLOTS ? (count < 1 ? 1 : count) : OF_SLOTS;
    f->n_planned = z->n_parts < f->n_planned ? z->n_parts : f->n_planned;
    f->n_room = z->n_parts + OF_SLOTS;
    f->n_slots = (uint32_t)f->n_planned;
    f->slot = ckpt_alloc(f->n_room * sizeof *f->slot);
    f->queue = ckpt_alloc(f->n_room * sizeof *f->queue);
    if (!f->slot || !f->queue)
        return ckpt_fail_memory(err);
    for (uint32_t i = 0; i < f->n_room; i++)
        f->slot[i].part = ZR_NONE;
    for (uint32_t i = 0; i < f->n_planned; i++) {
        f->slot[i].mem = zr_alloc_home(z, f->slot_bytes, &zr_of(z)->memory.buffers);
        if (!f->slot[i].mem)
            return ckpt_fail_memory(err);
    }
    return of_thread(f, err);
}

/* Remove the files.  Failures are ignored, because the run has succeeded. */
static void of_remove(zt_zero *z)
{
    zr_files *f = zr_of(z)->files;
    char name[64];

    for (uint32_t i = 0; f->dir.fd >= 0 && i < z->n_parts; i++) {
        of_name(name, sizeof name, i);
        (void)unlinkat(f->dir.fd, name, 0);
    }
    for (size_t i = 0; i < f->maps.n; i++) {
        if (f->maps.at[i].at)
            (void)munmap(f->maps.at[i].at, (size_t)f->maps.at[i].n_bytes);
        of_param_name(name, sizeof name, f->maps.at[i].id);
        (void)unlinkat(f->param_dir.fd, name, 0);
    }
    ckpt_vec_free(&f->maps);
    ckpt_dir_close(&f->param_dir);
    ckpt_dir_close(&f->dir); // last, because closing it removes the folders above both
}

void zr_files_free(zt_zero *z)
{
    zr_files *f = zr_of(z)->files;

    if (!f)
        return;
    if (f->threaded) {
        pthread_mutex_lock(&f->lock);
        f->stop = true;
        pthread_cond_signal(&f->work);
        pthread_mutex_unlock(&f->lock);
        pthread_join(f->thread, NULL);
    }
    if (f->locks) {
        pthread_mutex_destroy(&f->lock);
        pthread_cond_destroy(&f->work);
        pthread_cond_destroy(&f->done);
    }
    for (uint32_t i = 0; i < f->n_slots; i++) {
        if (f->slot[i].extra)
            of_unmap(f, &f->slot[i]);
    }
    of_remove(z);
    ckpt_free(f->slot);
    ckpt_free(f->queue);
    ckpt_free(f);
    zr_of(z)->files = NULL;
}
