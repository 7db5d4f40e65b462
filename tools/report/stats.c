/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stats.c: computes statistics of elements in constant memory.
 *
 * Sums of squares about 0 would lose a small deviation from a large mean.  So each block has its
 * own mean, and blocks are merged as by Chan, Golub and LeVeque ("Updating formulae and a pairwise
 * algorithm for computing sample variances", 1979).
 */
#include "tools/report/stats.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt_extra.h"
#include "tools/ckpt/scalar.h"
#include "tools/cli/out.h"

enum { STATS_BLOCK = 1 << 16, STATS_JOBS = 8, STATS_WIDEST = 16 };

/* Above this, a square may overflow a double. */
#define STATS_LARGE 1e150

/* The sums of one tensor. */
typedef struct stats_sum {
    uint64_t n; /* finite elements */
    long double mean, m2, squares;
    double min, max;
    uint64_t bin[STATS_BINS];
} stats_sum;

/* The threads' shared state: the next tensor, progress, the failure. */
typedef struct stats_work {
    pthread_mutex_t lock;
    const ckpt_map *map;
    const ckpt_run_opts *run;
    stats *out;
    size_t next;
    uint64_t done, total; /* bytes of the source */
    int rc;
    ckpt_err err;
} stats_work;

/* ---- one block ---- */

static void stats_count(tensor_stats *t, stats_sum *s, double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    int e = (int)(bits >> 52 & 0x7ff);
    if (e == 0x7ff) {
        t->n_nan += (bits << 12) != 0;
        t->n_above += (bits << 12) == 0 && !(bits >> 63);
        t->n_below += (bits << 12) == 0 && bits >> 63;
        return;
    }
    if (bits << 1 == 0) {
        t->n_zero++;
        return;
    }
    int p = e - 1023 - STATS_EXPONENT;
    p = p < 0 ? 0 : p >= STATS_HALF ? STATS_HALF - 1 : p;
    s->bin[bits >> 63 ? STATS_HALF - 1 - p : STATS_HALF + p]++;
}

/* Sum up the n finite elements of a block, and merge them with the earlier blocks. */
static void stats_join(stats_sum *s, const double *x, size_t n, double least, double most)
{
    bool large = least < -STATS_LARGE || most > STATS_LARGE;
    double sum = 0, m2 = 0, squares = 0;
    long double wide = 0, wide_m2 = 0, wide_squares = 0, mean;

    for (size_t i = 0; i < n; i++)
        sum += x[i];
    for (size_t i = 0; large && i < n; i++)
        wide += (long double)x[i];
    mean = (large ? wide : (long double)sum) / (long double)n;
    const double about = (double)mean;
    for (size_t i = 0; !large && i < n; i++) {
        m2 += (x[i] - about) * (x[i] - about);
        squares += x[i] * x[i];
    }
    for (size_t i = 0; large && i < n; i++) {
        long double one = (long double)x[i];
        wide_m2 += (one - mean) * (one - mean);
        wide_squares += one * one;
    }
    long double all = (long double)s->n + (long double)n, delta = mean - s->mean;
    s->m2 += (large ? wide_m2 : (long double)m2) +
             delta * delta * (long double)s->n * (long double)n / all;
    s->mean += delta * (long double)n / all;
    s->squares += large ? wide_squares : (long double)squares;
    s->min = s->n == 0 || least < s->min ? least : s->min;
    s->max = s->n == 0 || most > s->max ? most : s->max;
    s->n += n;
}

/* Count a block, and add its finite elements; overwrites the block. */
static void stats_block(tensor_stats *t, stats_sum *s, double *x, size_t n)
{
    double least = (double)INFINITY, most = -(double)INFINITY;
    size_t finite = 0;

    for (size_t i = 0; i < n; i++)
        stats_count(t, s, x[i]);
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i]))
            continue;
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
        x[finite++] = x[i];
    }
    if (finite)
        stats_join(s, x, finite, least, most);
}

/* ---- one tensor ---- */

/* True if the library can convert the elements to double; otherwise they are decoded one by one. */
static bool stats_widens(const ckpt_tensor *t)
{
    return ckpt_dtype_converts(CKPT_F64, t->dtype);
}

static bool stats_are_numbers(const ckpt_tensor *t)
{
    scalar_class is = scalar_class_of(t->dtype);

    return !t->owner && (is == SCALAR_REAL || is == SCALAR_SIGNED || is == SCALAR_UNSIGNED ||
                         is == SCALAR_BOOL || (is == SCALAR_NONE && stats_widens(t)));
}

/* Data of one thread: its reader, and memory for STATS_BLOCK elements. */
typedef struct stats_own {
    ckpt_reader *r;
    double *x;
    void *raw; /* elements in their own dtype */
} stats_own;

/* Read n elements from `first` on as doubles into own->x. */
static int stats_read(const stats_own *own, const ckpt_tensor *t, uint64_t first, size_t n,
                      ckpt_err *err)
{
    scalar one;

    if (stats_widens(t))
        return ckpt_reader_read(own->r, t, first, n, CKPT_F64, own->x, err);
    int rc = ckpt_reader_read(own->r, t, first, n, t->dtype, own->raw, err);
    for (size_t i = 0; rc == CKPT_OK && i < n; i++) {
        scalar_get(&one, t->dtype, own->raw, i);
        own->x[i] = scalar_real(&one);
    }
    return rc;
}

/* Compute the results from the sums. */
static int stats_finish(tensor_stats *t, const stats_sum *s, ckpt_err *err)
{
    unsigned last = STATS_BINS;
    double none = (double)NAN;

    t->known = true;
    t->min = s->n ? s->min : none;
    t->max = s->n ? s->max : none;
    t->mean = s->n ? (double)s->mean : none;
    t->std = s->n ? (double)sqrtl(s->m2 / (long double)s->n) : none;
    t->norm = s->n ? (double)sqrtl(s->squares) : none;
    while (last > 0 && s->bin[last - 1] == 0)
        last--;
    while (t->first < last && s->bin[t->first] == 0)
        t->first++;
    t->n_bins = last - t->first;
    t->bin = malloc((t->n_bins ? t->n_bins : 1) * sizeof *t->bin);
    if (!t->bin)
        return fail(err, CKPT_ELIMIT, "out of memory");
    memcpy(t->bin, s->bin + t->first, t->n_bins * sizeof *t->bin);
    return CKPT_OK;
}

/* Report n more bytes; a code other than CKPT_OK means stop. */
static int stats_step(stats_work *w, uint64_t n, ckpt_err *err)
{
    (void)pthread_mutex_lock(&w->lock);
    w->done += n;
    int rc = w->rc;
    if (rc == CKPT_OK && w->run->progress &&
        w->run->progress(w->run->progress_ctx, w->done, w->total) != 0)
        rc = fail(err, CKPT_ECANCELED, "interrupted");
    (void)pthread_mutex_unlock(&w->lock);
    return rc;
}

/* Bytes of n elements, for progress; packed elements have fractions of bytes. */
static uint64_t stats_bytes(const ckpt_tensor *t, size_t n)
{
    return (uint64_t)((double)ckpt_tensor_bytes(t) * (double)n / (double)t->n_elems);
}

static int stats_tensor(stats_work *w, const stats_own *own, size_t i, ckpt_err *err)
{
    const ckpt_tensor *t = ckpt_map_tensor_at(w->map, i);
    tensor_stats *to = &w->out->at[i];
    stats_sum sum = {0};
    int rc = CKPT_OK;

    if (!stats_are_numbers(t))
        return CKPT_OK;
    to->n = t->n_elems;
    for (uint64_t done = 0; rc == CKPT_OK && done < t->n_elems; done += STATS_BLOCK) {
        uint64_t left = t->n_elems - done;
        size_t n = left < STATS_BLOCK ? (size_t)left : STATS_BLOCK;
        rc = stats_read(own, t, done, n, err);
        if (rc == CKPT_OK)
            stats_block(to, &sum, own->x, n);
        if (rc == CKPT_OK)
            rc = stats_step(w, stats_bytes(t, n), err);
    }
    return rc == CKPT_OK ? stats_finish(to, &sum, err) : rc;
}

/* ---- threads ---- */

/* Get the next tensor; false: none is left, or there was a failure. */
static bool stats_next(stats_work *w, size_t *i)
{
    (void)pthread_mutex_lock(&w->lock);
    bool more = w->rc == CKPT_OK && w->next < w->out->n;
    *i = w->next;
    w->next += more;
    (void)pthread_mutex_unlock(&w->lock);
    return more;
}

/* Record a failure; only the first one is reported. */
static void stats_fail(stats_work *w, int rc, const ckpt_err *err)
{
    (void)pthread_mutex_lock(&w->lock);
    if (w->rc == CKPT_OK) {
        w->rc = rc;
        w->err = *err;
    }
    (void)pthread_mutex_unlock(&w->lock);
}

static void *stats_thread(void *ctx)
{
    stats_work *w = ctx;
    stats_own own = {.x = calloc(STATS_BLOCK, sizeof *own.x),
                     .raw = calloc(STATS_BLOCK, STATS_WIDEST)};
    ckpt_err err = {0};
    int rc = CKPT_ELIMIT;
    size_t i;

    if (own.x && own.raw) {
        rc = ckpt_reader_new(&own.r, w->map, &err);
        if (rc == CKPT_OK)
            ckpt_reader_compare(own.r);
        while (rc == CKPT_OK && stats_next(w, &i))
            rc = stats_tensor(w, &own, i, &err);
    } else {
        (void)fail(&err, rc, "out of memory");
    }
    if (rc != CKPT_OK)
        stats_fail(w, rc, &err);
    ckpt_reader_free(own.r);
    free(own.raw);
    free(own.x);
    return NULL;
}

/* Run the work in this thread and in as many others as possible. */
static void stats_run(stats_work *w)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned jobs = w->run->jobs, n = 0;
    pthread_t thread[STATS_JOBS];

    if (jobs == 0)
        jobs = cores > 0 ? (unsigned)cores : 1;
    jobs = jobs > STATS_JOBS ? STATS_JOBS : jobs;
    while (n + 1 < jobs && pthread_create(&thread[n], NULL, stats_thread, w) == 0)
        n++;
    (void)stats_thread(w);
    while (n > 0)
        (void)pthread_join(thread[--n], NULL);
}

int stats_make(stats *out, const ckpt_map *map, const ckpt_run_opts *run, ckpt_err *err)
{
    size_t n = ckpt_map_tensor_count(map);
    stats_work w = {.map = map, .run = run, .out = out};

    *out = (stats){.at = calloc(n ? n : 1, sizeof *out->at), .n = n};
    if (!out->at)
        return fail(err, CKPT_ELIMIT, "out of memory");
    for (size_t i = 0; i < n; i++)
        w.total += stats_are_numbers(ckpt_map_tensor_at(map, i))
                       ? ckpt_tensor_bytes(ckpt_map_tensor_at(map, i))
                       : 0;
    if (pthread_mutex_init(&w.lock, NULL) != 0)
        return fail(err, CKPT_ELIMIT, "out of memory");
    stats_run(&w);
    (void)pthread_mutex_destroy(&w.lock);
    for (size_t i = 0; i < n; i++) {
        out->n_nan += out->at[i].n_nan;
        out->n_inf += out->at[i].n_above + out->at[i].n_below;
    }
    if (w.rc != CKPT_OK && w.rc != w.err.code)
        return fail(err, w.rc, "the values cannot be read");
    if (w.rc != CKPT_OK && err)
        *err = w.err;
    return w.rc;
}

void stats_free(stats *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->at[i].bin);
    free(s->at);
    *s = (stats){0};
}
