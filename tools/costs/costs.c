/* SPDX-License-Identifier: Apache-2.0 */
/*
 * costs.c: computes the bytes between GPUs in one update by formula; exact until one final rounding
 * up.
 */
#include "tools/costs/costs.h"

#include <inttypes.h>

#include "tools/cli/out.h"

#define CW_MOST (UINT64_C(1) << 24) /* maximum of GPUs, nodes, and divisions */

__extension__ typedef unsigned __int128 cw_wide;

/* A sum or product that remembers an overflow. */
typedef struct cw_sum {
    cw_wide n;
    bool lost;
} cw_sum;

static cw_sum cw_times(cw_sum a, uint64_t b)
{
    cw_sum out = {.lost = a.lost};

    out.lost |= __builtin_mul_overflow(a.n, (cw_wide)b, &out.n);
    return out;
}

static cw_sum cw_plus(cw_sum a, cw_sum b)
{
    cw_sum out = {.lost = a.lost || b.lost};

    out.lost |= __builtin_add_overflow(a.n, b.n, &out.n);
    return out;
}

static cw_sum cw_of(uint64_t n)
{
    return (cw_sum){.n = n};
}

/* n / by, rounded up; false: overflow. */
static bool cw_share(cw_sum n, uint64_t by, uint64_t *out)
{
    cw_wide q = n.n / by + (n.n % by != 0);

    *out = (uint64_t)q;
    return !n.lost && q <= UINT64_MAX;
}

uint64_t costs_data_ranks(const costs_job *job)
{
    return job->gpus * job->nodes / (job->tensor * job->pipeline);
}

/* ---- possible jobs ---- */

/* True if groups of `block` adjacent GPUs fill nodes, or nodes fill groups. */
static bool cw_fills(uint64_t block, uint64_t gpus)
{
    return block % gpus == 0 || gpus % block == 0;
}

static int cw_check_cut(const costs_job *job, ckpt_err *err)
{
    uint64_t all = job->gpus * job->nodes;

    if (job->tensor > all || all % job->tensor)
        return fail(err, CKPT_EUSAGE,
                    "--tensor-parallel %" PRIu64 " does not divide the %" PRIu64
                    " GPUs of the job (--gpus x --nodes)",
                    job->tensor, all);
    all /= job->tensor;
    if (job->pipeline > all || all % job->pipeline)
        return fail(err, CKPT_EUSAGE,
                    "--pipeline %" PRIu64 " does not divide the job's %" PRIu64 " GPUs%s",
                    job->pipeline, all, job->tensor > 1 ? " (groups of --tensor-parallel)" : "");
    if (!cw_fills(job->tensor, job->gpus))
        return fail(err, CKPT_EUSAGE,
                    "--tensor-parallel %" PRIu64 ": these groups do not fill nodes of %" PRIu64
                    " GPUs: use a divisor or a multiple of that number",
                    job->tensor, job->gpus);
    if (!cw_fills(job->tensor * costs_data_ranks(job), job->gpus))
        return fail(err, CKPT_EUSAGE,
                    "--pipeline %" PRIu64 ": a stage of %" PRIu64
                    " GPUs would end in the middle of a node of %" PRIu64,
                    job->pipeline, job->tensor * costs_data_ranks(job), job->gpus);
    if (job->layers && job->layers % (job->pipeline * job->interleave))
        return fail(err, CKPT_EUSAGE,
                    "--pipeline: %" PRIu64 " layers cannot be divided into %" PRIu64 " equal parts",
                    job->layers, job->pipeline * job->interleave);
    return CKPT_OK;
}

/*
 * Refuse a link speed without traffic on that link, and a job whose time needs a speed that is
 * missing.
 */
static int cw_check_links(const costs_job *job, ckpt_err *err)
{
    bool inside = job->gpus > 1, between = job->nodes > 1;

    if (job->link > 0 && !inside)
        return fail(err, CKPT_EUSAGE,
                    "--link has no effect: a node has one GPU (--gpus), so GPUs of one node "
                    "exchange nothing%s",
                    between ? "; use --node-link for traffic between nodes" : "");
    if (job->node_link > 0 && !between)
        return fail(err, CKPT_EUSAGE, "--node-link has no effect: there is one node (--nodes)");
    if (job->link > 0 && between && !(job->node_link > 0))
        return fail(err, CKPT_EUSAGE, "--link needs --node-link, too, to compute times");
    if (job->node_link > 0 && inside && !(job->link > 0))
        return fail(err, CKPT_EUSAGE, "--node-link needs --link, too, to compute times");
    return CKPT_OK;
}

int costs_check(const costs_job *job, ckpt_err *err)
{
    int rc;

    if (job->gpus > CW_MOST || job->nodes > CW_MOST || job->params > UINT64_C(1) << 50 ||
        job->tensor > CW_MOST || job->pipeline > CW_MOST || job->interleave > CW_MOST ||
        job->accumulation > UINT32_MAX)
        return fail(
            err, CKPT_ELIMIT,
            "expected at most 2^50 parameters, 2^24 GPUs, nodes and parts (--gpus, --nodes, "
            "--tensor-parallel, --pipeline, --interleave) and 2^32 - 1 micro batches "
            "(--accumulation)");
    rc = cw_check_cut(job, err);
    return rc == CKPT_OK ? cw_check_links(job, err) : rc;
}

/* ---- traffic ---- */

static const char *const cw_names[COSTS_SCHEMES] = {
    "parameter-server", "all-reduce", "zero-1", "zero-2", "zero-3", "tensor-parallel", "pipeline"};
static const char *const cw_titles[COSTS_SCHEMES] = {
    "parameter server", "ZeRO-0 (all-reduce)", "ZeRO-1",  "ZeRO-2",
    "ZeRO-3",           "tensor parallel",     "pipeline"};

const char *costs_name(costs_scheme scheme)
{
    return cw_names[scheme];
}

const char *costs_title(costs_scheme scheme)
{
    return cw_titles[scheme];
}

bool costs_applies(const costs_job *job, costs_scheme scheme)
{
    bool known = job->layers && job->hidden && job->micro_batch && job->tokens;

    switch (scheme) {
    case COSTS_ZERO2:
    case COSTS_ZERO3:
        return job->pipeline == 1;
    case COSTS_TENSOR:
        return job->tensor > 1 && known;
    case COSTS_PIPELINE:
        return job->pipeline > 1 && known;
    case COSTS_SERVER:
    case COSTS_ZERO0:
    case COSTS_ZERO1:
    case COSTS_SCHEMES:
        break;
    }
    return true;
}

/* Bytes per update in collectives; each costs a rank (n-1)/n of them. */
static cw_sum cw_volume(const costs_job *job, costs_scheme scheme)
{
    cw_sum k = cw_of(job->params), g = cw_times(k, job->gradient_bytes),
           w = cw_times(k, job->weight_bytes), each;

    switch (scheme) {
    case COSTS_ZERO0:
        return cw_times(g, 2);
    case COSTS_ZERO1:
        return cw_plus(g, w);
    case COSTS_ZERO2:
        return cw_plus(cw_times(g, job->accumulation), w);
    case COSTS_ZERO3:
        return cw_times(cw_plus(g, cw_times(w, 2)), job->accumulation);
    case COSTS_SERVER:
        return cw_plus(g, w);
    case COSTS_TENSOR: // per layer, two all-reduces in the forward and two in the backward pass
        each = cw_times(cw_times(cw_of(job->micro_batch), job->tokens), job->hidden);
        each = cw_times(cw_times(each, job->weight_bytes), 4 * 2);
        return cw_times(cw_times(each, job->layers), job->accumulation);
    case COSTS_PIPELINE: // across one stage border in one direction
        each = cw_times(cw_times(cw_of(job->micro_batch), job->tokens), job->hidden);
        return cw_times(cw_times(each, job->weight_bytes), job->accumulation);
    case COSTS_SCHEMES:
        break;
    }
    return cw_of(0);
}

/*
 * A group of n ranks that communicate, at distance `apart`; each transfers a part of the model,
 * which is divided by `cut`.
 */
typedef struct cw_group {
    uint64_t n, apart, cut;
} cw_group;

/*
 * Links of a node that carry traffic to other nodes: a node's ranks belong to min(apart, gpus)
 * rings, if rings are longer than a node, and each ring has one hop out of it.
 */
static uint64_t cw_leaving(const costs_job *job, const cw_group *g)
{
    return g->n * g->apart <= job->gpus ? 0 : g->apart < job->gpus ? g->apart : job->gpus;
}

static bool cw_rings(const costs_job *job, cw_sum volume, const cw_group *g, costs_flow *out)
{
    uint64_t ranks = job->gpus * job->nodes, by = g->n * g->cut;
    cw_sum part = cw_times(volume, g->n - 1), node = cw_times(part, cw_leaving(job, g));
    bool fits = cw_share(part, by, &out->sent) && cw_share(cw_times(part, ranks), by, &out->all) &&
                cw_share(node, by, &out->node);

    out->inside = g->apart < job->gpus ? out->sent : 0;
    return fits;
}

/*
 * Transfers between neighbouring stages: with `parts` stages, each `v` times, a middle one sends v
 * forward and v backward; with two stages both are at an end, so one direction is missing.
 */
static uint64_t cw_ways(uint64_t parts, uint64_t v)
{
    return 2 * v - (parts == 2);
}

static bool cw_stages(const costs_job *job, cw_sum volume, costs_flow *out)
{
    uint64_t p = job->pipeline, v = job->interleave, block = job->gpus * job->nodes / p;
    bool small = block < job->gpus; // several stages per node
    uint64_t leaving = job->nodes == 1 ? 0
                       : small         ? block * cw_ways(job->nodes, v)
                                       : job->gpus * cw_ways(p, v);
    bool fits = cw_share(cw_times(volume, cw_ways(p, v)), 1, &out->sent) &&
                cw_share(cw_times(cw_times(volume, 2 * (p * v - 1)), block), 1, &out->all) &&
                cw_share(cw_times(volume, leaving), 1, &out->node);

    out->inside = small ? out->sent : 0;
    return fits;
}

/* All ranks send to one machine and receive from it. */
static bool cw_server(const costs_job *job, cw_sum volume, costs_flow *out)
{
    cw_sum g = cw_times(cw_of(job->params), job->gradient_bytes);
    uint64_t ranks = job->gpus * job->nodes, cut = job->tensor * job->pipeline;
    bool fits = cw_share(g, cut, &out->sent) && cw_share(cw_times(g, ranks), cut, &out->all) &&
                cw_share(cw_times(g, job->nodes > 1 ? job->gpus : 0), cut, &out->node) &&
                cw_share(cw_times(volume, ranks), cut, &out->server);

    out->inside = job->nodes > 1 ? 0 : out->sent;
    return fits;
}

static double cw_seconds(const costs_job *job, const costs_flow *f)
{
    double inside = 0, between = 0, gbs = 1e9;

    if ((job->gpus > 1 && !(job->link > 0)) || (job->nodes > 1 && !(job->node_link > 0)))
        return -1;
    if (f->server) // gradients in, then weights out, all through the server's own link
        return (double)f->server / ((job->nodes > 1 ? job->node_link : job->link) * gbs);
    if (f->inside)
        inside = (double)f->inside / (job->link * gbs);
    if (f->node)
        between = (double)f->node / (job->node_link * gbs);
    return inside > between ? inside : between;
}

int costs_flow_of(const costs_job *job, costs_scheme scheme, costs_flow *out, ckpt_err *err)
{
    cw_sum volume = cw_volume(job, scheme);
    cw_group data = {costs_data_ranks(job), job->tensor, job->tensor * job->pipeline},
             tensor = {job->tensor, 1, job->pipeline};
    bool fits;

    *out = (costs_flow){.seconds = -1};
    if (scheme == COSTS_SERVER)
        fits = data.n == 1 || cw_server(job, volume, out);
    else if (scheme == COSTS_PIPELINE)
        fits = cw_stages(job, volume, out);
    else
        fits = cw_rings(job, volume, scheme == COSTS_TENSOR ? &tensor : &data, out);
    if (!fits)
        return fail(err, CKPT_ELIMIT,
                    "%s: 64 bits cannot count the bytes of the traffic: use fewer GPUs, "
                    "parameters or micro batches",
                    cw_names[scheme]);
    if (job->gpus * job->nodes > 1)
        out->seconds = cw_seconds(job, out);
    return CKPT_OK;
}
