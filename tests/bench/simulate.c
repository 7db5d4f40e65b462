/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simulate.c: how long a conversion by many machines would take, without payload.
 *
 *     simulate [--to fp32|half] [--local] [--nodes N] [--ranks N] [--workers N] [RATES] CHECKPOINT
 *
 * The checkpoint may be sparse (gen_zero --sparse): it is opened, laid out, planned and split over
 * ranks by the library, as each process of a team does it.  Then the jobs are carried out on a
 * clock: each worker of a rank takes the rank's next job, reads its pieces one after the other,
 * converts them and writes the result; disks, links and the file system serve one block after
 * another at the given rates.  One line of JSON is printed; simulate.py makes tables of them.
 *
 * Not modelled: page caches (every byte goes to the disk at once), reading ahead within a worker,
 * other users of the file system, and failures.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "ckpt.h"
#include "libckpt/base/dtype.h"
#include "libckpt/copy/job.h"
#include "libckpt/copy/work.h"
#include "libckpt/dist/run/partition.h"
#include "libckpt/map/join.h"
#include "tests/bench/clock.h"

/* What is assumed of the machines; a rate of 0 is without limit. */
typedef struct sim_rates {
    double disk_read, disk_write;     /* GB/s of a node's disk */
    double shared_read, shared_write; /* GB/s of the shared file system, all nodes together */
    double client;                    /* GB/s of one node with the file system, either way */
    double net;                       /* GB/s of a node's link, either way */
    double cpu;                       /* GB/s that one worker reads and writes in memory */
    double disk_latency, shared_latency, net_latency; /* us: of one read, of one message */
    double opens;                                     /* files a second: of a node's disk */
    double shared_opens;                              /* of the file system */
} sim_rates;

/* The servers of one node, and the file system's two after those of all nodes. */
enum { SIM_DISK_IN, SIM_DISK_OUT, SIM_CLIENT_IN, SIM_CLIENT_OUT, SIM_NET_IN, SIM_NET_OUT, SIM_PER };

/*
 * What a rank is told of a shard that another has opened: its first and last 64 KiB with the
 * opening (io/peer_io.c), then the rest of its directory and pickle; counted with strace, the mean
 * of a model's and an optimizer's file.
 */
enum { SIM_ASKS = 4, SIM_TOLD = 270000 /* bytes */ };

/* The bytes of one job that come from one place. */
typedef struct sim_part {
    uint64_t n_bytes, n_pieces;
} sim_part;

typedef struct sim {
    sim_rates rates;
    const char *path;
    bool half, local;
    unsigned n_nodes, per_node, n_workers, source_nodes;
    ckpt_map *from, *to;
    ckpt_plan *plan;
    ckpt_places places;
    ckpt_share share;
    uint32_t *node_of_rank, *node_of_file, *target_node;
    uint8_t *sees;
    double planned, shared; /* s of the processor: up to the plan; the split */
    long peak;              /* KiB, when the plan was split */
    /* while the clock runs */
    uint32_t *run, *next; /* per rank: the run and the job in it that is next */
    sim_part *part;       /* per node; of the last one: what comes from the shared file system */
    uint32_t *touched;
    unsigned n_touched;
    uint64_t item, n_pieces, n_messages, n_far;
    clock_server *server;
    ckpt_err err;
} sim;

static void sim_die(const sim *s, const char *what)
{
    fprintf(stderr, "simulate: %s: %s\n", what, s->err.text);
    exit(1);
}

static void sim_ok(const sim *s, int rc, const char *what)
{
    if (rc != CKPT_OK)
        sim_die(s, what);
}

static void *sim_alloc(const sim *s, size_t n, size_t size)
{
    void *p = calloc(n > 0 ? n : 1, size);

    if (!p)
        sim_die(s, "out of memory");
    return p;
}

static double sim_processor(void)
{
    struct rusage u;

    (void)getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static long sim_peak(void)
{
    struct rusage u;

    (void)getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

/* ---- where files are ---- */

/* The node of data-parallel rank `rank` of `world`: consecutive ranks share one. */
static uint32_t sim_node(unsigned n_nodes, uint64_t rank, uint32_t world)
{
    return world > 0 && rank < world ? (uint32_t)(rank * n_nodes / world) : 0;
}

/* The rank in a shard's name; those of model states alone ("mp_rank_00_...") are rank 0's. */
static uint64_t sim_rank_in(const char *path)
{
    const char *at = strstr(path, "zero_pp_rank_");

    return at ? strtoull(at + strlen("zero_pp_rank_"), NULL, 10) : 0;
}

static void sim_places(sim *s)
{
    unsigned n_ranks = s->n_nodes * s->per_node;
    ckpt_training_info known = {.size = sizeof known};

    s->node_of_rank = sim_alloc(s, n_ranks, sizeof *s->node_of_rank);
    for (unsigned r = 0; r < n_ranks; r++)
        s->node_of_rank[r] = r / s->per_node;
    s->places =
        (ckpt_places){.n_ranks = n_ranks, .node_of_rank = s->node_of_rank, .n_nodes = s->n_nodes};
    if (!s->local)
        return;
    ckpt_map_training_info(s->from, &known);
    s->node_of_file = sim_alloc(s, s->from->files.n, sizeof *s->node_of_file);
    s->sees = sim_alloc(s, s->from->files.n * s->n_nodes, 1);
    for (size_t i = 0; i < s->from->files.n; i++) {
        s->node_of_file[i] =
            sim_node(s->source_nodes, sim_rank_in(s->from->files.at[i].path), known.world);
        s->sees[i * s->n_nodes + s->node_of_file[i]] = 1;
    }
    s->places.sees = s->sees;
    if (!s->half)
        return;
    s->target_node = sim_alloc(s, s->to->files.n, sizeof *s->target_node);
    for (size_t i = 0; i < s->to->files.n; i++) {
        uint32_t rank = s->to->files.at[i].rank;

        s->target_node[i] = sim_node(s->n_nodes, rank, known.world / 2);
    }
    s->places.target_node = s->target_node;
}

/* ---- the plan ---- */

static void sim_plan(sim *s)
{
    const ckpt_open_opts open = {.whole_checkpoint = true,
                                 .with_optimizer = s->half,
                                 .training = s->half,
                                 .size = sizeof open};
    ckpt_target target = {.size = sizeof target, .format = "hf", .path = "out", .dtype = CKPT_F32};
    const ckpt_run_opts opts = {.size = sizeof opts, .jobs = s->n_workers};
    ckpt_training_info known = {.size = sizeof known};
    double begun = sim_processor();

    sim_ok(s, ckpt_open(&s->from, s->path, &open, &s->err), "open");
    ckpt_map_training_info(s->from, &known);
    target.max_shard_size = UINT64_C(5000000000);
    if (s->half)
        target = (ckpt_target){
            .size = sizeof target, .format = "zero", .path = "out", .world = known.world / 2};
    sim_ok(s, ckpt_layout(&s->to, s->from, &target, &s->err), "layout");
    sim_ok(s, ckpt_plan_new(&s->plan, s->from, s->to, &opts, &s->err), "plan");
    s->planned = sim_processor() - begun;
    sim_places(s);
    begun = sim_processor();
    sim_ok(s, ckpt_share_make(&s->share, s->plan, &s->places, &s->err), "split");
    s->shared = sim_processor() - begun;
    s->peak = sim_peak();
}

/* ---- one job ---- */

/* ckpt_piece_fn */
static int sim_piece(void *ctx, const ckpt_piece *p, ckpt_err *err)
{
    sim *s = ctx;
    const ckpt_source *source = &s->from->sources.at[p->source];
    uint32_t node = s->local ? s->node_of_file[source->file] : s->n_nodes;

    (void)err;
    if (source->kind != CKPT_SOURCE_FILE)
        return CKPT_OK;
    if (s->part[node].n_pieces == 0)
        s->touched[s->n_touched++] = node;
    s->part[node].n_pieces++;
    s->part[node].n_bytes += p->n_elems * s->item;
    s->n_pieces++;
    return CKPT_OK;
}

/* Where a job's bytes come from: s->part of the nodes in s->touched. */
static uint64_t sim_sources(sim *s, const ckpt_job *job)
{
    ckpt_job_view v;
    uint64_t n = 0;

    for (unsigned i = 0; i < s->n_touched; i++)
        s->part[s->touched[i]] = (sim_part){0};
    s->n_touched = 0;
    ckpt_job_look(&v, s->plan, job);
    for (const ckpt_tensor *slice = v.origin; slice; slice = slice->addend) {
        for (const ckpt_tensor *twin = slice; twin; twin = twin->twin) {
            s->item = ckpt_dtype_get(twin->dtype)->bytes;
            sim_ok(s, ckpt_join(twin, v.region, v.n_axes, sim_piece, s, &s->err), "join");
        }
    }
    for (unsigned i = 0; i < s->n_touched; i++)
        n += s->part[s->touched[i]].n_bytes;
    return n;
}

static uint32_t sim_server(uint32_t node, int which)
{
    return node * SIM_PER + (uint32_t)which;
}

/* Reading one part to a node; the steps that it takes. */
static unsigned sim_read(sim *s, uint32_t node, uint32_t from, clock_step *step)
{
    const sim_part *p = &s->part[from];
    double n = (double)p->n_bytes, wait = (double)p->n_pieces * 1e-6;

    if (from == s->n_nodes) {
        step[0] = (clock_step){wait * s->rates.shared_latency, sim_server(from, 0), n};
        step[1] = (clock_step){0, sim_server(node, SIM_CLIENT_IN), n};
        return 2;
    }
    step[0] = (clock_step){wait * s->rates.disk_latency, sim_server(from, SIM_DISK_IN), n};
    if (from == node)
        return 1;
    // for each piece a question, then an answer
    s->n_messages += 2 * p->n_pieces;
    s->n_far += p->n_bytes;
    step[0].wait += 2 * wait * s->rates.net_latency;
    step[1] = (clock_step){0, sim_server(from, SIM_NET_OUT), n};
    step[2] = (clock_step){0, sim_server(node, SIM_NET_IN), n};
    return 3;
}

/* Converting what was read, and writing. */
static unsigned sim_write(const sim *s, uint32_t node, const ckpt_job *job, uint64_t n_read,
                          clock_step *step)
{
    ckpt_dtype dtype = s->to->tensors.at[job->tensor]->dtype;
    double n = (double)ckpt_job_bytes(dtype, job->count);
    double cpu = s->rates.cpu > 0 ? (n + (double)n_read) / (s->rates.cpu * 1e9) : 0;

    if (s->target_node) {
        step[0] = (clock_step){cpu, sim_server(node, SIM_DISK_OUT), n};
        return 1;
    }
    step[0] = (clock_step){cpu, sim_server(node, SIM_CLIENT_OUT), n};
    step[1] = (clock_step){0, sim_server(s->n_nodes, 1), n};
    return 2;
}

/* clock_next_fn: the rank's next job, for one of its workers. */
static unsigned sim_next(void *ctx, uint32_t worker, clock_step *step)
{
    sim *s = ctx;
    uint32_t rank = worker / s->n_workers, node = s->node_of_rank[rank];
    const ckpt_job *job;
    unsigned n = 0;

    if (s->run[rank] == s->share.at[rank + 1])
        return 0;
    job = &s->plan->jobs.at[s->next[rank]++];
    if (s->next[rank] == s->share.run[s->run[rank]].end && ++s->run[rank] < s->share.at[rank + 1])
        s->next[rank] = s->share.run[s->run[rank]].first;
    uint64_t n_read = sim_sources(s, job);
    if (3 * s->n_touched + 2 > CLOCK_STEPS)
        sim_die(s, "a job's bytes lie on too many nodes");
    for (unsigned i = 0; i < s->n_touched; i++)
        n += sim_read(s, node, s->touched[i], step + n);
    return n + sim_write(s, node, job, n_read, step + n);
}

/* ---- the run ---- */

static void sim_servers(sim *s)
{
    const sim_rates *r = &s->rates;
    const double rate[SIM_PER] = {
        [SIM_DISK_IN] = r->disk_read, [SIM_DISK_OUT] = r->disk_write, [SIM_CLIENT_IN] = r->client,
        [SIM_CLIENT_OUT] = r->client, [SIM_NET_IN] = r->net,          [SIM_NET_OUT] = r->net};

    s->server = sim_alloc(s, (size_t)s->n_nodes * SIM_PER + 2, sizeof *s->server);
    for (uint32_t i = 0; i < s->n_nodes * SIM_PER; i++)
        s->server[i].rate = rate[i % SIM_PER] * 1e9;
    s->server[s->n_nodes * SIM_PER].rate = r->shared_read * 1e9;
    s->server[s->n_nodes * SIM_PER + 1].rate = r->shared_write * 1e9;
}

/* Let the clock run; how long the copying takes, s. */
static double sim_copy(sim *s)
{
    unsigned n_ranks = s->places.n_ranks;
    clock_run r = {.n_servers = s->n_nodes * SIM_PER + 2,
                   .n_workers = n_ranks * s->n_workers,
                   .next = sim_next,
                   .ctx = s};
    double takes;

    sim_servers(s);
    r.server = s->server;
    r.end = sim_alloc(s, r.n_workers, sizeof *r.end);
    s->part = sim_alloc(s, s->n_nodes + 1, sizeof *s->part);
    s->touched = sim_alloc(s, s->n_nodes + 1, sizeof *s->touched);
    s->run = sim_alloc(s, n_ranks, sizeof *s->run);
    s->next = sim_alloc(s, n_ranks, sizeof *s->next);
    for (unsigned i = 0; i < n_ranks; i++) {
        s->run[i] = s->share.at[i];
        if (s->run[i] < s->share.at[i + 1])
            s->next[i] = s->share.run[s->run[i]].first;
    }
    takes = clock_go(&r);
    if (takes < 0)
        sim_die(s, "out of memory");
    free(r.end);
    return takes;
}

/* Bytes of headers that go over the links: each rank is told of what it has not opened. */
static double sim_told(const sim *s)
{
    double n = (double)s->from->files.n;

    return s->places.n_ranks > 1 ? n * SIM_TOLD * (s->places.n_ranks - 1) : 0;
}

/*
 * Headers: each shard is opened by one rank, of a node that has it; every other rank asks for what
 * it reads, file after file.
 */
static double sim_headers(const sim *s)
{
    double n = (double)s->from->files.n, rate = s->rates.shared_opens, asked = 0;

    if (s->local)
        rate = s->rates.opens * s->source_nodes;
    if (s->places.n_ranks > 1)
        asked = n * SIM_ASKS * 2 * s->rates.net_latency * 1e-6;
    if (s->rates.net > 0)
        asked += sim_told(s) / s->n_nodes / (s->rates.net * 1e9);
    return (rate > 0 ? n / rate : 0) + asked;
}

/* Each file of the target is made, and sealed and named later. */
static double sim_files(const sim *s)
{
    double rate = s->target_node ? s->rates.opens * s->n_nodes : s->rates.shared_opens;

    return rate > 0 ? 2 * (double)s->to->files.n / rate : 0;
}

/* The busiest of the servers of one kind: its part of the time of copying. */
static double sim_busy(const sim *s, int which, double takes)
{
    double most = 0;

    for (uint32_t n = 0; n < s->n_nodes; n++) {
        double busy = s->server[sim_server(n, which)].busy;

        most = busy > most ? busy : most;
    }
    return takes > 0 ? most / takes : 0;
}

static void sim_print(const sim *s, double copy)
{
    const clock_server *fs = &s->server[s->n_nodes * SIM_PER];
    double headers = sim_headers(s), files = sim_files(s), mean, least;
    uint64_t most = 0, few = UINT64_MAX, all = 0, far = 0;
    unsigned n = s->places.n_ranks;

    for (unsigned r = 0; r < n; r++) {
        all += s->share.n_bytes[r];
        far += s->share.n_far[r];
        most = s->share.n_bytes[r] > most ? s->share.n_bytes[r] : most;
        few = s->share.n_bytes[r] < few ? s->share.n_bytes[r] : few;
    }
    if (all != s->plan->n_read + s->plan->n_write || far != s->n_far) {
        fprintf(stderr, "simulate: the split and what was simulated differ\n");
        exit(1);
    }
    mean = (double)all / n;
    least = mean > 0 ? (double)few / mean : 1;
    printf("{\"nodes\": %u, \"ranks\": %u, \"workers\": %u, \"files\": %zu, \"out_files\": %zu, ",
           s->n_nodes, n, s->n_workers, s->from->files.n, s->to->files.n);
    printf("\"jobs\": %zu, \"runs\": %" PRIu32 ", \"pieces\": %" PRIu64 ", \"read\": %" PRIu64
           ", \"written\": %" PRIu64 ", ",
           s->plan->jobs.n, s->share.at[n], s->n_pieces, s->plan->n_read, s->plan->n_write);
    printf("\"rank_mean\": %.0f, \"rank_most\": %" PRIu64 ", \"over\": %.4f, \"under\": %.4f, ",
           mean, most, mean > 0 ? (double)most / mean : 1, least);
    printf("\"far\": %" PRIu64 ", \"messages\": %" PRIu64 ", \"told\": %.0f, ", far, s->n_messages,
           sim_told(s));
    printf("\"plan_s\": %.3f, \"split_s\": %.3f, \"headers_s\": %.9g, \"copy_s\": %.9g, "
           "\"files_s\": %.9g, \"s\": %.9g, ",
           s->planned, s->shared, headers, copy, files,
           headers + s->planned + s->shared + copy + files);
    printf("\"plan_kib\": %ld, \"buffers\": %" PRIu64 ", ", s->peak,
           (uint64_t)s->n_workers * CKPT_WORK_BLOCKS * s->plan->block);
    printf("\"busy\": {\"disk_read\": %.2f, \"disk_write\": %.2f, \"client_in\": %.2f, "
           "\"client_out\": %.2f, \"net_in\": %.2f, \"net_out\": %.2f, \"shared_read\": %.2f, "
           "\"shared_write\": %.2f}}\n",
           sim_busy(s, SIM_DISK_IN, copy), sim_busy(s, SIM_DISK_OUT, copy),
           sim_busy(s, SIM_CLIENT_IN, copy), sim_busy(s, SIM_CLIENT_OUT, copy),
           sim_busy(s, SIM_NET_IN, copy), sim_busy(s, SIM_NET_OUT, copy),
           copy > 0 ? fs[0].busy / copy : 0, copy > 0 ? fs[1].busy / copy : 0);
}

/* ---- the command line ---- */

static const struct option sim_options[] = {{"to", 1, NULL, 't'},
                                            {"local", 0, NULL, 'l'},
                                            {"nodes", 1, NULL, 'n'},
                                            {"ranks", 1, NULL, 'r'},
                                            {"workers", 1, NULL, 'w'},
                                            {"source-nodes", 1, NULL, 's'},
                                            {"disk-read", 1, NULL, 0},
                                            {"disk-write", 1, NULL, 1},
                                            {"shared-read", 1, NULL, 2},
                                            {"shared-write", 1, NULL, 3},
                                            {"client", 1, NULL, 4},
                                            {"net", 1, NULL, 5},
                                            {"cpu", 1, NULL, 6},
                                            {"disk-latency", 1, NULL, 7},
                                            {"shared-latency", 1, NULL, 8},
                                            {"net-latency", 1, NULL, 9},
                                            {"opens", 1, NULL, 10},
                                            {"shared-opens", 1, NULL, 11},
                                            {NULL, 0, NULL, 0}};

static void sim_usage(void)
{
    fprintf(stderr, "usage: simulate [--to fp32|half] [--local] [--nodes N] [--ranks N (a node)] "
                    "[--workers N (a rank)] [--source-nodes N] [--disk-read GB/s] "
                    "[--disk-write GB/s] [--shared-read GB/s] [--shared-write GB/s] "
                    "[--client GB/s] [--net GB/s] [--cpu GB/s] [--disk-latency us] "
                    "[--shared-latency us] [--net-latency us] [--opens N/s] [--shared-opens N/s] "
                    "CHECKPOINT\n");
    exit(2);
}

static void sim_args(sim *s, int argc, char **argv)
{
    double *rate[12] = {&s->rates.disk_read,    &s->rates.disk_write,   &s->rates.shared_read,
                        &s->rates.shared_write, &s->rates.client,       &s->rates.net,
                        &s->rates.cpu,          &s->rates.disk_latency, &s->rates.shared_latency,
                        &s->rates.net_latency,  &s->rates.opens,        &s->rates.shared_opens};
    int c;

    while ((c = getopt_long(argc, argv, "", sim_options, NULL)) != -1) {
        unsigned n = optarg ? (unsigned)strtoul(optarg, NULL, 10) : 0;

        if (c >= 0 && c < 12)
            *rate[c] = strtod(optarg, NULL);
        else if (c == 't')
            s->half = strcmp(optarg, "half") == 0;
        else if (c == 'l')
            s->local = true;
        else if (c == 'n')
            s->n_nodes = n;
        else if (c == 'r')
            s->per_node = n;
        else if (c == 'w')
            s->n_workers = n;
        else if (c == 's')
            s->source_nodes = n;
        else
            sim_usage();
    }
    if (s->source_nodes == 0)
        s->source_nodes = s->n_nodes;
    if (optind + 1 != argc || s->n_nodes < 1 || s->per_node < 1 || s->n_workers < 1 ||
        s->source_nodes > s->n_nodes)
        sim_usage();
    s->path = argv[optind];
}

int main(int argc, char **argv)
{
    sim s = {.n_nodes = 1, .per_node = 1, .n_workers = 1};

    sim_args(&s, argc, argv);
    sim_plan(&s);
    sim_print(&s, sim_copy(&s));
    ckpt_share_free(&s.share);
    ckpt_plan_free(s.plan);
    ckpt_map_free(s.to);
    ckpt_map_free(s.from);
    free(s.node_of_rank);
    free(s.node_of_file);
    free(s.target_node);
    free(s.sees);
    free(s.server);
    free(s.part);
    free(s.touched);
    free(s.run);
    free(s.next);
    return 0;
}
