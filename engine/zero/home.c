/* SPDX-License-Identifier: Apache-2.0 */
/*
 * home.c: keeps masters and optimizer state in host memory while the weights are on a GPU
 * (offload).
 *
 * The CPU device computes the update.  Gradients arrive and rounded weights leave in pieces,
 * through two pinned buffers that the GPU accesses directly (alloc_host).  A second thread updates
 * one piece while the calling thread, which alone uses the GPU, fetches the next one and sends the
 * last one.  With state in files the masters and state are in offload.c's buffers; the rest is the
 * same.
 *
 * Source: Ren et al. 2021 (ZeRO-Offload).
 */
#include <assert.h>
#include <pthread.h>
#include <time.h>

#include "engine/zero/own.h"

/* Elements of a piece (or reduce_bucket_size if that is less): 16 MiB of gradients, for which the
 * cost of starting a copy does not matter. */
#define HM_PIECE (UINT64_C(1) << 22)

typedef enum hm_state { HM_IDLE, HM_READY, HM_DONE } hm_state;

/* A piece on its way between the device and the thread. */
typedef struct hm_slot {
    void *grad, *low; /* host memory of the device's alloc_host */
    zt_piece piece;
    void *to; /* device address for the new weights; NULL: none */
    hm_state state;
} hm_slot;

typedef struct zr_home {
    zt_zero *zero;
    uint64_t room; /* elements of a slot */
    hm_slot slot[2];
    uint32_t part; /* partition being updated */
    unsigned next; /* slot of the next piece; the thread counts in step */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    bool locks, threaded, stop;
    zt_home_times times;
    ckpt_err err; /* failure of the thread */
} zr_home;

/* Seconds, monotonic. */
static double hm_now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the thread ---- */

/* The worker thread: updates the pieces in the order of their arrival, in slots 0, 1, 0 ... */
static void *hm_worker(void *ctx)
{
    zr_home *h = ctx;
    unsigned next = 0;

    pthread_mutex_lock(&h->lock);
    for (;;) {
        hm_slot *s = &h->slot[next];
        ckpt_err err = {0};

        while (s->state != HM_READY && !h->stop)
            pthread_cond_wait(&h->work, &h->lock);
        if (s->state != HM_READY)
            break;
        pthread_mutex_unlock(&h->lock);
        const double from = hm_now();
        int rc = zr_update_piece(h->zero, zr_of(h->zero)->home, h->part, &s->piece, &err);
        pthread_mutex_lock(&h->lock);
        h->times.update += hm_now() - from;
        if (rc != CKPT_OK && h->err.code == CKPT_OK)
            h->err = err;
        s->state = HM_DONE;
        next ^= 1;
        pthread_cond_signal(&h->done);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

/* ---- creating and freeing ---- */

bool zr_is_home(const zt_zero *z)
{
    return zr_of(z)->home != z->device;
}

zt_device *zt_zero_home(const zt_zero *z)
{
    return zr_of(z)->home;
}

static int hm_thread(zr_home *h, ckpt_err *err)
{
    if (pthread_mutex_init(&h->lock, NULL) != 0)
        return ckpt_fail_memory(err);
    (void)pthread_cond_init(&h->work, NULL);
    (void)pthread_cond_init(&h->done, NULL);
    h->locks = true;
    h->threaded = pthread_create(&h->thread, NULL, hm_worker, h) == 0;
    return h->threaded
               ? CKPT_OK
               : ckpt_fail(err, CKPT_ELIMIT, "cannot start the thread for updates on the host");
}

int zr_home_new(zt_zero *z, ckpt_err *err)
{
    zr_own *o = zr_of(z);

    o->home = z->device;
    if (z->device->host || z->config->offload_optimizer.place == ZT_ON_DEVICE)
        return CKPT_OK;
    o->homes = ckpt_alloc(sizeof *o->homes);
    if (!o->homes)
        return ckpt_fail_memory(err);
    o->homes->zero = z;
    return zt_cpu_new(&o->home, o->opts.host_threads, err);
}

static void *hm_room(zt_zero *z)
{
    uint64_t n = (4 * zr_of(z)->homes->room + 63) & ~UINT64_C(63);
    void *p = z->device->ops->alloc_host(z->device, n);

    zr_of(z)->memory.buffers += !p ? 0 : n;
    return p;
}

/* Allocate the buffers; partitions must exist. */
int zr_home_ready(zt_zero *z, ckpt_err *err)
{
    zr_own *o = zr_of(z);
    zr_home *h = o->homes;
    uint64_t most = 64, piece = z->config->reduce_bucket;

    if (!h)
        return CKPT_OK;
    piece = piece < 64 ? 64 : piece > HM_PIECE ? HM_PIECE : piece;
    for (uint32_t i = 0; i < z->n_parts; i++)
        most = z->part[i].n_elems > most ? z->part[i].n_elems : most;
    // LAMB's partitions are not divided into pieces, because its norms are over complete partitions
    h->room = most < piece || z->config->optim.type == ZT_OPT_LAMB ? most : piece;
    assert(h->room > 0);
    for (unsigned i = 0; i < 2; i++) {
        h->slot[i].grad = hm_room(z);
        h->slot[i].low = hm_room(z);
    }
    int rc = zt_device_check(z->device, err); // an allocation that failed above is reported here

    return rc == CKPT_OK ? hm_thread(h, err) : rc;
}

/* Stop the thread, before other memory is freed. */
void zr_home_stop(zt_zero *z)
{
    zr_home *h = zr_of(z)->homes;

    if (!h)
        return;
    if (h->threaded) {
        pthread_mutex_lock(&h->lock);
        h->stop = true;
        pthread_cond_signal(&h->work);
        pthread_mutex_unlock(&h->lock);
        pthread_join(h->thread, NULL);
    }
    if (h->locks) {
        pthread_mutex_destroy(&h->lock);
        pthread_cond_destroy(&h->work);
        pthread_cond_destroy(&h->done);
    }
    for (unsigned i = 0; i < 2; i++) {
        z->device->ops->release_host(z->device, h->slot[i].grad);
        z->device->ops->release_host(z->device, h->slot[i].low);
    }
    ckpt_free(h);
    zr_of(z)->homes = NULL;
}

/* Free the CPU device, after all its memory has been freed. */
void zr_home_free(zt_zero *z)
{
    if (zr_of(z)->home && zr_is_home(z))
        zt_device_free(zr_of(z)->home);
    zr_of(z)->home = NULL;
}

/* ---- updates ---- */

/* Wait until the thread has updated a slot, and send its weights to the device. */
static void hm_settle(zr_home *h, hm_slot *s)
{
    zt_zero *z = h->zero;

    pthread_mutex_lock(&h->lock);
    while (s->state == HM_READY)
        pthread_cond_wait(&h->done, &h->lock);
    pthread_mutex_unlock(&h->lock);
    const double from = hm_now();
    if (s->state == HM_DONE && s->to)
        z->device->ops->put(z->device, s->to, s->low, zr_bytes(s->piece.low_dtype, s->piece.n));
    h->times.copies += hm_now() - from;
    s->state = HM_IDLE;
}

/* Pass n elements of `all`, from `at` on, to the thread in slot s. */
static void hm_give(zr_home *h, hm_slot *s, const zt_piece *all, uint64_t at, uint64_t n)
{
    zt_device *d = h->zero->device;

    assert(s->state == HM_IDLE && n > 0 && n <= h->room && at + n <= all->n);
    s->piece = *all;
    s->piece.n = n;
    s->piece.p = all->p + at;
    for (unsigned k = 0; k < 2; k++)
        s->piece.state[k] = !all->state[k] ? NULL : all->state[k] + at;
    s->to = !all->low ? NULL : zr_at(all->low, all->low_dtype, at);
    s->piece.low = !s->to ? NULL : s->low;
    s->piece.g = s->grad;
    const double from = hm_now();
    d->ops->get(d, s->grad, (const char *)all->g + zr_bytes(all->g_dtype, at),
                zr_bytes(all->g_dtype, n));
    h->times.copies += hm_now() - from;
    pthread_mutex_lock(&h->lock);
    s->state = HM_READY;
    pthread_cond_signal(&h->work);
    pthread_mutex_unlock(&h->lock);
}

/* piece: p and state are on the host, g and low on the device. */
int zr_home_update(zt_zero *z, uint32_t part, const zt_piece *piece, ckpt_err *err)
{
    zr_home *h = zr_of(z)->homes;

    assert(h && part < z->n_parts && h->next < 2);
    h->part = part;
    for (uint64_t at = 0; at < piece->n; at += h->room) {
        uint64_t left = piece->n - at;

        hm_settle(h, &h->slot[h->next]);
        hm_give(h, &h->slot[h->next], piece, at, left < h->room ? left : h->room);
        h->next ^= 1;
    }
    // the older one first
    hm_settle(h, &h->slot[h->next]);
    hm_settle(h, &h->slot[h->next ^ 1]);
    if (h->err.code != CKPT_OK)
        return ckpt_fail(err, h->err.code, "%s", h->err.text);
    return zt_device_check(zr_of(z)->home, err);
}

void zt_zero_home_times(const zt_zero *z, zt_home_times *out)
{
    const zr_home *h = zr_of(z)->homes;

    // the thread has nothing to do between updates
    *out = h ? h->times : (zt_home_times){0};
}

/* ---- copies between weights and masters ---- */

void zr_masters_read(zt_zero *z, float *master, const void *low, uint64_t n)
{
    zr_home *h = zr_of(z)->homes;
    ckpt_dtype dt = z->model->dtype;

    assert(n == 0 || (master && low));
    if (!h) {
        z->device->ops->cast(z->device, n, master, CKPT_F32, low, dt);
        return;
    }
    for (uint64_t at = 0; at < n; at += h->room) {
        uint64_t m = n - at < h->room ? n - at : h->room;
        zt_device *home = zr_of(z)->home;

        z->device->ops->get(z->device, h->slot[0].low, (const char *)low + zr_bytes(dt, at),
                            zr_bytes(dt, m));
        home->ops->cast(home, m, master + at, CKPT_F32, h->slot[0].low, dt);
    }
}

void zr_masters_write(zt_zero *z, void *low, const float *master, uint64_t n)
{
    zr_home *h = zr_of(z)->homes;
    ckpt_dtype dt = z->model->dtype;

    assert(n == 0 || (master && low));
    if (!h) {
        z->device->ops->cast(z->device, n, low, dt, master, CKPT_F32);
        return;
    }
    for (uint64_t at = 0; at < n; at += h->room) {
        uint64_t m = n - at < h->room ? n - at : h->room;
        zt_device *home = zr_of(z)->home;

        home->ops->cast(home, m, h->slot[0].low, dt, master + at, CKPT_F32);
        z->device->ops->put(z->device, zr_at(low, dt, at), h->slot[0].low, zr_bytes(dt, m));
    }
}
