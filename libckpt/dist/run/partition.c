/* SPDX-License-Identifier: Apache-2.0 */
/*
 * partition.c: divides a plan's jobs over ranks.
 *
 * Jobs with the same best nodes make a group. Groups are assigned one after another, those with the
 * fewest ranks first; each fills up the ranks with the fewest bytes so far, in contiguous runs. A
 * group too small to balance anything goes to all its ranks equally, because vectors in a thousand
 * pieces on every machine have few bytes but cost much time.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/index.h"
#include "libckpt/dist/run/locality.h"
#include "libckpt/dist/run/partition.h"
#include "libckpt/map/extent.h"

enum {
    SHR_SNAP = 50, /* a cut moves to the end of a file that is within 1/50 of a rank's part */
    /* a group with less than 1/50 of a rank's part is too small to balance anything */
    SHR_LITTLE = 50,
    SHR_GROUPS = 4096 /* limit of different sets of nodes */
};

/* Jobs with the same best nodes. */
typedef struct shr_group {
    uint32_t number;      /* groups count in the order of their first jobs */
    uint32_t n_ranks;     /* number of ranks on its nodes */
    size_t n_jobs, first; /* its jobs are order[first .. first + n_jobs) */
    uint64_t n_bytes;
} shr_group;

CKPT_VEC(shr_groups, shr_group);
CKPT_VEC(shr_sets, uint64_t);

typedef struct shr_work {
    const ckpt_plan *plan;
    const ckpt_places *places;
    ckpt_share *out;
    double *reads;     /* per target tensor: bytes to read for one element */
    uint32_t *rank_at; /* per node: its ranks begin at ranks[rank_at[node]] */
    uint32_t *ranks;
    uint32_t *file;  /* per job: its target file, or CKPT_SHARE_ANY */
    uint32_t *of;    /* per job: its group, later its rank */
    uint32_t *order; /* jobs, ordered by group */
    uint64_t *far;   /* per job: bytes from other nodes; NULL: none */
    ckpt_near near;
    shr_groups groups;
    shr_sets sets; /* per group: n_words of bits, one bit per node */
    uint64_t *set; /* n_words: the set of the current job */
    size_t n_words;
    ckpt_index index;
    uint64_t little; /* bytes per rank below which a group is too small to balance anything */
    uint64_t *load;  /* bytes of a group's ranks so far, sorted; capacity: all ranks */
    uint32_t *who;   /* ranks that get a part of a group, and their bytes; capacity: all ranks */
    uint64_t *part;
    ckpt_err *err;
} shr_work;

/* ---- the cost of a job ---- */

static uint64_t shr_written(const shr_work *w, const ckpt_job *job)
{
    return ckpt_job_bytes(w->plan->to->tensors.at[job->tensor]->dtype, job->count);
}

/* Bytes read and written for a job. */
static uint64_t shr_cost(const shr_work *w, const ckpt_job *job)
{
    return (uint64_t)(w->reads[job->tensor] * (double)job->count + 0.5) + shr_written(w, job);
}

/* The target file that a job writes to, or CKPT_SHARE_ANY. */
static uint32_t shr_file(const shr_work *w, const ckpt_job *job)
{
    const ckpt_tensor *t = w->plan->to->tensors.at[job->tensor];
    const ckpt_source *s = &w->plan->to->sources.at[ckpt_extent_source(t, job->extent)];

    return s->kind == CKPT_SOURCE_FILE ? s->file : CKPT_SHARE_ANY;
}

static const ckpt_job *shr_job(const shr_work *w, const shr_group *g, size_t i)
{
    return &w->plan->jobs.at[w->order[g->first + i]];
}

/* True if job i of a group has another file than the one before; without files, another tensor. */
static bool shr_begins(const shr_work *w, const shr_group *g, size_t i)
{
    uint32_t file = w->file[w->order[g->first + i]];

    if (file == CKPT_SHARE_ANY)
        return shr_job(w, g, i - 1)->tensor != shr_job(w, g, i)->tensor;
    return w->file[w->order[g->first + i - 1]] != file;
}

/* ---- grouping ---- */

static void shr_set_all(shr_work *w)
{
    memset(w->set, 0, w->n_words * sizeof *w->set);
    for (unsigned n = 0; n < w->places->n_nodes; n++)
        w->set[n / 64] |= UINT64_C(1) << n % 64;
}

static void shr_set_one(shr_work *w, uint32_t node)
{
    assert(node < w->places->n_nodes);
    memset(w->set, 0, w->n_words * sizeof *w->set);
    w->set[node / 64] = UINT64_C(1) << node % 64;
}

/* Set the nodes that see most of the job last given to near. */
static void shr_set_nearest(shr_work *w)
{
    const ckpt_near *near = &w->near;
    uint64_t most = 0;

    for (uint32_t i = 0; i < near->n_touched; i++) {
        uint64_t bytes = near->bytes[near->touched[i]];

        most = bytes > most ? bytes : most;
    }
    memset(w->set, 0, w->n_words * sizeof *w->set);
    for (uint32_t i = 0; i < near->n_touched; i++) {
        uint32_t node = near->touched[i];

        if (near->bytes[node] == most)
            w->set[node / 64] |= UINT64_C(1) << node % 64;
    }
}

/* The first node of the set, if it has one. */
static uint32_t shr_first_node(const shr_work *w)
{
    for (uint32_t n = 0; n < w->places->n_nodes; n++) {
        if (w->set[n / 64] >> n % 64 & 1)
            return n;
    }
    return 0;
}

/* ckpt_same_fn */
static bool shr_same_set(const void *ctx, uint32_t number, const void *key)
{
    const shr_work *w = ctx;

    return memcmp(w->sets.at + number * w->n_words, key, w->n_words * sizeof *w->sets.at) == 0;
}

/* Count the ranks of the nodes of the set. */
static uint32_t shr_count_ranks(const shr_work *w)
{
    uint32_t count = 0;

    for (uint32_t n = 0; n < w->places->n_nodes; n++) {
        if (w->set[n / 64] >> n % 64 & 1)
            count += w->rank_at[n + 1] - w->rank_at[n];
    }
    return count;
}

/* Add a group for the set. */
static int shr_add_group(shr_work *w, uint32_t hash, uint32_t *number)
{
    shr_group *g = ckpt_vec_push(&w->groups);

    if (!g)
        return ckpt_fail_memory(w->err);
    *number = (uint32_t)(w->groups.n - 1);
    *g = (shr_group){.number = *number, .n_ranks = shr_count_ranks(w)};
    for (size_t i = 0; i < w->n_words; i++) {
        uint64_t *word = ckpt_vec_push(&w->sets);

        if (!word)
            return ckpt_fail_memory(w->err);
        *word = w->set[i];
    }
    return ckpt_index_add(&w->index, hash, *number) ? CKPT_OK : ckpt_fail_memory(w->err);
}

/* Find the group of the current set; *number: the group of the job before. */
static int shr_group_of(shr_work *w, uint32_t *number)
{
    uint32_t hash;

    if (w->groups.n > *number && shr_same_set(w, *number, w->set))
        return CKPT_OK;
    hash = ckpt_hash_bytes(w->set, w->n_words * sizeof *w->set, 0);
    *number = ckpt_index_find(&w->index, hash, shr_same_set, w, w->set);
    if (*number != CKPT_INDEX_NONE)
        return CKPT_OK;
    if (w->groups.n >= SHR_GROUPS && shr_count_ranks(w) > 1) {
        shr_set_one(w, shr_first_node(w));
        hash = ckpt_hash_bytes(w->set, w->n_words * sizeof *w->set, 0);
        *number = ckpt_index_find(&w->index, hash, shr_same_set, w, w->set);
        if (*number != CKPT_INDEX_NONE)
            return CKPT_OK;
    }
    return shr_add_group(w, hash, number);
}

/* Set w->set to the best nodes for a job, and count the bytes that they read from other nodes. */
static int shr_place(shr_work *w, size_t i)
{
    const ckpt_job *job = &w->plan->jobs.at[i];
    uint32_t file = w->file[i] = shr_file(w, job), target = CKPT_SHARE_ANY;
    int rc = w->far ? ckpt_near_job(&w->near, job, w->err) : CKPT_OK;

    if (rc != CKPT_OK)
        return rc;
    if (w->places->target_node && file != CKPT_SHARE_ANY)
        target = w->places->target_node[file];
    if (target != CKPT_SHARE_ANY)
        shr_set_one(w, target);
    else if (w->near.n_touched > 0)
        shr_set_nearest(w);
    else
        shr_set_all(w);
    if (w->far)
        w->far[i] = w->near.n_bytes - w->near.bytes[shr_first_node(w)];
    return CKPT_OK;
}

static int shr_group_jobs(shr_work *w)
{
    uint32_t number = 0;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < w->plan->jobs.n; i++) {
        rc = shr_place(w, i);
        if (rc == CKPT_OK)
            rc = shr_group_of(w, &number);
        if (rc != CKPT_OK)
            break;
        w->of[i] = number;
        w->groups.at[number].n_jobs++;
        w->groups.at[number].n_bytes += shr_cost(w, &w->plan->jobs.at[i]);
    }
    return rc;
}

/* Sort the jobs by group. */
static int shr_sort_jobs(shr_work *w)
{
    size_t *next = ckpt_alloc((w->groups.n + 1) * sizeof *next), at = 0;

    if (!next)
        return ckpt_fail_memory(w->err);
    for (size_t g = 0; g < w->groups.n; g++) {
        w->groups.at[g].first = next[g] = at;
        at += w->groups.at[g].n_jobs;
    }
    for (size_t i = 0; i < w->plan->jobs.n; i++)
        w->order[next[w->of[i]]++] = (uint32_t)i;
    ckpt_free(next);
    return CKPT_OK;
}

/* ---- assigning ---- */

static int shr_less_u64(const void *pa, const void *pb)
{
    const uint64_t *a = pa, *b = pb;

    return (*a > *b) - (*a < *b);
}

/* For qsort: groups with the fewest ranks come first. */
static int shr_less_choice(const void *pa, const void *pb)
{
    const shr_group *a = pa, *b = pb;

    if (a->n_ranks != b->n_ranks)
        return a->n_ranks < b->n_ranks ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

/*
 * Compute the level to which n more bytes fill up the ranks with the fewest bytes. load: the
 * current bytes of the ranks, ascending.
 */
static uint64_t shr_level(const uint64_t *load, uint32_t n_ranks, uint64_t n)
{
    uint64_t sum = n;

    for (uint32_t i = 0; i < n_ranks; i++) {
        // n bytes do not suffice to raise the i least loaded ranks to load[i]
        if (i > 0 && load[i] >= sum / i)
            return sum / i;
        sum += load[i];
    }
    return sum / n_ranks;
}

/* Compute the ranks that get a part of a group, ascending, and their bytes: w->who, w->part. */
static uint32_t shr_parts_of(shr_work *w, const shr_group *g)
{
    const uint64_t *set = w->sets.at + g->number * w->n_words;
    uint32_t n = 0, some = 0;
    uint64_t level;

    for (uint32_t r = 0; r < w->places->n_ranks; r++) {
        uint32_t node = w->places->node_of_rank[r];

        if (!(set[node / 64] >> node % 64 & 1))
            continue;
        w->load[n] = w->out->n_bytes[r];
        w->who[n++] = r;
    }
    if (g->n_bytes / n <= w->little) {
        for (uint32_t i = 0; i < n; i++)
            w->part[i] = g->n_bytes / n;
        return n;
    }
    qsort(w->load, n, sizeof *w->load, shr_less_u64);
    level = shr_level(w->load, n, g->n_bytes);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t r = w->who[i];

        if (w->out->n_bytes[r] >= level)
            continue;
        w->part[some] = level - w->out->n_bytes[r];
        w->who[some++] = r;
    }
    return some > 0 ? some : 1;
}

/*
 * A cut is due before job i of a group, which begins at byte `at` of the group. Returns a later job
 * at which a file ends and the cut may move to, at most at byte `until`; else i.
 */
static size_t shr_file_end(const shr_work *w, const shr_group *g, size_t i, uint64_t at,
                           uint64_t until)
{
    size_t k = i;

    for (; k < g->n_jobs; k++) {
        if (k > i && shr_begins(w, g, k))
            return k;
        at += shr_cost(w, shr_job(w, g, k));
        if (at > until)
            return i;
    }
    return k;
}

/* Give a job to a rank. */
static void shr_give(shr_work *w, uint32_t job, uint32_t rank, uint64_t cost)
{
    w->of[job] = rank;
    w->out->n_bytes[rank] += cost;
    if (w->far)
        w->out->n_far[rank] += w->far[job];
}

static uint64_t shr_apart(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* Assign one group's jobs, in contiguous runs to ascending ranks. */
static void shr_deal(shr_work *w, const shr_group *g)
{
    uint32_t n = shr_parts_of(w, g), k = 0;
    uint64_t at = 0, cut = w->part[0];
    size_t keep = 0; // jobs before this one stay with rank k

    for (size_t i = 0; i < g->n_jobs; i++) {
        uint64_t cost = shr_cost(w, shr_job(w, g, i));
        bool ends = i > 0 && shr_begins(w, g, i);
        bool due = at + cost / 2 >= cut;

        if (due && !ends && i >= keep)
            keep = shr_file_end(w, g, i, at, cut + w->part[k] / SHR_SNAP);
        if (i >= keep && (due || (ends && shr_apart(at, cut) <= w->part[k] / SHR_SNAP))) {
            do {
                if (k + 1 >= n)
                    break;
                cut += w->part[++k];
            } while (at + cost / 2 >= cut);
        }
        shr_give(w, w->order[g->first + i], w->who[k], cost);
        at += cost;
    }
}

/* Assign all groups. */
static void shr_deal_all(shr_work *w)
{
    uint64_t total = 0;

    if (w->groups.n > 0)
        qsort(w->groups.at, w->groups.n, sizeof *w->groups.at, shr_less_choice);
    for (size_t i = 0; i < w->groups.n; i++)
        total += w->groups.at[i].n_bytes;
    w->little = total / w->places->n_ranks / SHR_LITTLE;
    for (size_t i = 0; i < w->groups.n; i++)
        shr_deal(w, &w->groups.at[i]);
}

/* ---- the result ---- */

/* Compute each rank's runs from the ranks of all jobs. */
static int shr_runs(shr_work *w)
{
    ckpt_share *s = w->out;
    size_t n = w->plan->jobs.n;
    uint32_t total = 0, *next;

    for (size_t i = 0; i < n; i++) {
        if (i == 0 || w->of[i] != w->of[i - 1]) {
            s->at[w->of[i] + 1]++;
            total++;
        }
    }
    for (unsigned r = 0; r < s->n_ranks; r++)
        s->at[r + 1] += s->at[r];
    s->run = ckpt_alloc(((size_t)total + 1) * sizeof *s->run);
    next = ckpt_alloc(s->n_ranks * sizeof *next);
    if (!s->run || !next) {
        ckpt_free(next);
        return ckpt_fail_memory(w->err);
    }
    memcpy(next, s->at, s->n_ranks * sizeof *next);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && w->of[end] == w->of[i];)
            end++;
        s->run[next[w->of[i]]++] = (ckpt_job_range){(uint32_t)i, (uint32_t)end};
    }
    ckpt_free(next);
    return CKPT_OK;
}

/* Compute home and writers of the file of jobs first..end-1; bytes: per rank, zeros. */
static void shr_one_home(shr_work *w, uint32_t file, size_t first, size_t end, uint64_t *bytes)
{
    ckpt_share *s = w->out;
    uint32_t best = w->of[first];

    for (size_t i = first; i < end; i++) {
        uint64_t *b = &bytes[w->of[i]], n = shr_written(w, &w->plan->jobs.at[i]);

        s->n_writers[file] += *b == 0 && n > 0;
        *b += n;
    }
    for (size_t i = first; i < end; i++) {
        uint32_t r = w->of[i];

        if (bytes[r] > bytes[best] || (r < best && bytes[r] == bytes[best]))
            best = r;
    }
    s->home[file] = best;
    for (size_t i = first; i < end; i++)
        bytes[w->of[i]] = 0;
}

/*
 * Assign files without jobs to ranks in turn: to all ranks, or to those of the node that can write
 * it.
 */
static void shr_spread(shr_work *w, uint32_t *turn)
{
    ckpt_share *s = w->out;
    unsigned n_nodes = w->places->n_nodes;

    for (size_t f = 0; f < w->plan->to->files.n; f++) {
        uint32_t node = w->places->target_node ? w->places->target_node[f] : CKPT_SHARE_ANY;

        if (s->n_writers[f] > 0)
            continue;
        if (node == CKPT_SHARE_ANY) {
            s->home[f] = turn[n_nodes]++ % s->n_ranks;
        } else {
            uint32_t n = w->rank_at[node + 1] - w->rank_at[node];

            s->home[f] = w->ranks[w->rank_at[node] + turn[node]++ % n];
        }
    }
}

static int shr_homes(shr_work *w)
{
    const ckpt_jobs *jobs = &w->plan->jobs;
    uint64_t *bytes = ckpt_alloc(w->out->n_ranks * sizeof *bytes);
    uint32_t *turn = ckpt_alloc((w->places->n_nodes + 1) * sizeof *turn);
    bool ok = bytes && turn;

    for (size_t i = 0, end; ok && i < jobs->n; i = end) {
        uint32_t file = w->file[i];

        for (end = i + 1; end < jobs->n && w->file[end] == file;)
            end++;
        if (file != CKPT_SHARE_ANY)
            shr_one_home(w, file, i, end, bytes);
    }
    if (ok)
        shr_spread(w, turn);
    ckpt_free(bytes);
    ckpt_free(turn);
    return ok ? CKPT_OK : ckpt_fail_memory(w->err);
}

/* ---- the division ---- */

/* List the ranks of each node. */
static void shr_list_ranks(shr_work *w)
{
    const ckpt_places *p = w->places;

    for (unsigned r = 0; r < p->n_ranks; r++) {
        assert(p->node_of_rank[r] < p->n_nodes);
        w->rank_at[p->node_of_rank[r] + 1]++;
    }
    for (unsigned n = 0; n < p->n_nodes; n++) {
        assert(w->rank_at[n + 1] > 0);
        w->rank_at[n + 1] += w->rank_at[n];
    }
    // rank_at[n] is the place of node n's next rank: it advances here, and is moved back below
    for (unsigned r = 0; r < p->n_ranks; r++)
        w->ranks[w->rank_at[p->node_of_rank[r]]++] = r;
    for (unsigned n = p->n_nodes; n > 0; n--)
        w->rank_at[n] = w->rank_at[n - 1];
    w->rank_at[0] = 0;
}

static int shr_init(shr_work *w)
{
    size_t n_jobs = w->plan->jobs.n, n_tensors = w->plan->to->tensors.n;
    size_t n_files = w->plan->to->files.n, n_ranks = w->places->n_ranks;
    ckpt_share *s = w->out;

    if (n_jobs >= UINT32_MAX)
        return ckpt_fail(w->err, CKPT_ELIMIT,
                         "%zu copy jobs are too many to divide among processes", n_jobs);
    w->n_words = (w->places->n_nodes + 63) / 64;
    s->n_ranks = w->places->n_ranks;
    s->at = ckpt_alloc((n_ranks + 1) * sizeof *s->at);
    s->n_bytes = ckpt_alloc(n_ranks * sizeof *s->n_bytes);
    s->n_far = ckpt_alloc(n_ranks * sizeof *s->n_far);
    s->home = ckpt_alloc((n_files + 1) * sizeof *s->home);
    s->n_writers = ckpt_alloc((n_files + 1) * sizeof *s->n_writers);
    w->reads = ckpt_alloc((n_tensors + 1) * sizeof *w->reads);
    w->rank_at = ckpt_alloc((w->places->n_nodes + 1) * sizeof *w->rank_at);
    w->ranks = ckpt_alloc(n_ranks * sizeof *w->ranks);
    w->file = ckpt_alloc((n_jobs + 1) * sizeof *w->file);
    w->of = ckpt_alloc((n_jobs + 1) * sizeof *w->of);
    w->order = ckpt_alloc((n_jobs + 1) * sizeof *w->order);
    w->set = ckpt_alloc(w->n_words * sizeof *w->set);
    w->load = ckpt_alloc(n_ranks * sizeof *w->load);
    w->who = ckpt_alloc(n_ranks * sizeof *w->who);
    w->part = ckpt_alloc(n_ranks * sizeof *w->part);
    if (w->places->sees)
        w->far = ckpt_alloc((n_jobs + 1) * sizeof *w->far);
    if (!s->at || !s->n_bytes || !s->n_far || !s->home || !s->n_writers || !w->reads ||
        !w->rank_at || !w->ranks || !w->file || !w->of || !w->order || !w->set || !w->load ||
        !w->who || !w->part || (w->places->sees && !w->far))
        return ckpt_fail_memory(w->err);
    for (size_t i = 0; i < n_tensors; i++) {
        uint64_t n = w->plan->to->tensors.at[i]->n_elems;

        w->reads[i] = n > 0 ? ckpt_plan_reads(w->plan, i) / (double)n : 0;
    }
    shr_list_ranks(w);
    return w->places->sees
               ? ckpt_near_init(&w->near, w->plan, w->places->sees, w->places->n_nodes, w->err)
               : CKPT_OK;
}

static void shr_free(shr_work *w)
{
    ckpt_free(w->reads);
    ckpt_free(w->rank_at);
    ckpt_free(w->ranks);
    ckpt_free(w->file);
    ckpt_free(w->of);
    ckpt_free(w->order);
    ckpt_free(w->far);
    ckpt_free(w->set);
    ckpt_free(w->load);
    ckpt_free(w->who);
    ckpt_free(w->part);
    ckpt_vec_free(&w->groups);
    ckpt_vec_free(&w->sets);
    ckpt_index_free(&w->index);
    ckpt_near_free(&w->near);
}

int ckpt_share_make(ckpt_share *out, const ckpt_plan *plan, const ckpt_places *places,
                    ckpt_err *err)
{
    assert(out && plan && places && places->n_ranks > 0 && places->n_nodes > 0);
    shr_work w = {.plan = plan, .places = places, .out = out, .err = err};
    int rc;

    *out = (ckpt_share){0};
    rc = shr_init(&w);
    if (rc == CKPT_OK)
        rc = shr_group_jobs(&w);
    if (rc == CKPT_OK)
        rc = shr_sort_jobs(&w);
    if (rc == CKPT_OK) {
        shr_deal_all(&w);
        rc = shr_runs(&w);
    }
    if (rc == CKPT_OK)
        rc = shr_homes(&w);
    shr_free(&w);
    if (rc != CKPT_OK)
        ckpt_share_free(out);
    return rc;
}

void ckpt_share_free(ckpt_share *s)
{
    if (!s)
        return;
    ckpt_free(s->run);
    ckpt_free(s->at);
    ckpt_free(s->n_bytes);
    ckpt_free(s->n_far);
    ckpt_free(s->home);
    ckpt_free(s->n_writers);
    *s = (ckpt_share){0};
}
