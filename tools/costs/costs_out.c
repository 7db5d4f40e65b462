/* SPDX-License-Identifier: Apache-2.0 */
/* costs_out.c: prints traffic and activations as tables and as JSON. */
#include "tools/costs/costs_out.h"

#include <inttypes.h>
#include <stdio.h>

#include "tools/cli/out.h"

/* Format "12.3 ms"; empty if unknown. */
static const char *ct_time(char buf[HUMAN_ROOM], double s)
{
    if (s < 0)
        buf[0] = 0;
    else if (!(s > 0))
        snprintf(buf, HUMAN_ROOM, "0 s");
    else if (s < 1e-3)
        snprintf(buf, HUMAN_ROOM, "%.3g us", s * 1e6);
    else if (s < 1)
        snprintf(buf, HUMAN_ROOM, "%.3g ms", s * 1e3);
    else if (s < 1000)
        snprintf(buf, HUMAN_ROOM, "%.3g s", s);
    else
        snprintf(buf, HUMAN_ROOM, "%.0f s", s);
    return buf;
}

static const char *ct_dtype(uint64_t n_bytes)
{
    return n_bytes == 4 ? "fp32" : "16 bits";
}

/* Print "in nodes of 8 GPUs", and the division into layers and stages. */
static void ct_head(const costs_job *job)
{
    uint64_t ranks = job->gpus * job->nodes;

    out_printf(
        "\nData that each of %" PRIu64 " ranks (%" PRIu64 " x %" PRIu64
        ") sends in an update (and receives the same amount),\ngradients in %s, weights in %s",
        ranks, job->nodes, job->gpus, ct_dtype(job->gradient_bytes), ct_dtype(job->weight_bytes));
    if (job->accumulation > 1)
        out_printf(", %" PRIu64 " micro batches", job->accumulation);
    if (job->tensor * job->pipeline > 1)
        out_printf(";\n%" PRIu64 " tensor parallel x %" PRIu64 " pipeline x %" PRIu64
                   " data parallel",
                   job->tensor, job->pipeline, costs_data_ranks(job));
    out_printf(":\n");
}

int costs_print(const costs_job *job, ckpt_err *err)
{
    char sent[HUMAN_ROOM], node[HUMAN_ROOM], time[HUMAN_ROOM];
    bool timed = job->link > 0 || job->node_link > 0;
    costs_flow f;

    if (job->gpus * job->nodes == 1) {
        out_printf("\nOne rank sends nothing.\n");
        return CKPT_OK;
    }
    ct_head(job);
    out_printf("  %-20s %10s%s%s\n", "", "a rank", job->nodes > 1 ? "  leaves node" : "",
               timed ? "  time at least" : "");
    for (costs_scheme s = 0; s < COSTS_SCHEMES; s++) {
        if (!costs_applies(job, s))
            continue;
        int rc = costs_flow_of(job, s, &f, err);
        if (rc != CKPT_OK)
            return rc;
        out_printf("  %-20s %10s", costs_title(s), human_bytes(sent, f.sent));
        if (job->nodes > 1)
            out_printf("  %11s", human_bytes(node, f.node));
        if (timed)
            out_printf("  %13s", ct_time(time, f.seconds));
        if (f.server)
            out_printf("  (%s through the server)", human_bytes(sent, f.server));
        out_printf("\n");
    }
    if (job->tensor * job->pipeline > 1 && !job->tokens)
        out_printf("  (use --seq-length to estimate the memory and traffic of activations)\n");
    if (job->pipeline > 1)
        out_printf("  (ZeRO-2 and 3 do not support pipelines; each of %" PRIu64
                   " stages with %" PRIu64 " micro batches\n  is idle for %.1f %% of a step)\n",
                   job->pipeline, job->accumulation, 100 * acts_idle(job));
    return CKPT_OK;
}

static int ct_scheme(const costs_job *job, costs_scheme s, json_out *j, ckpt_err *err)
{
    costs_flow f;
    int rc = costs_flow_of(job, s, &f, err);

    if (rc != CKPT_OK)
        return rc;
    json_open(j, NULL, '{');
    json_text(j, "scheme", costs_name(s));
    json_uint(j, "rank_bytes", f.sent);
    json_uint(j, "node_bytes", f.node);
    json_uint(j, "all_bytes", f.all);
    json_uint(j, "server_bytes", f.server);
    if (f.seconds < 0)
        json_text(j, "least_seconds", NULL);
    else
        json_real(j, "least_seconds", f.seconds);
    json_close(j, '}');
    return CKPT_OK;
}

int costs_json(const costs_job *job, json_out *j, ckpt_err *err)
{
    int rc = CKPT_OK;

    json_uint(j, "ranks", job->gpus * job->nodes);
    json_uint(j, "data_parallel_ranks", costs_data_ranks(job));
    if (job->pipeline > 1)
        json_real(j, "idle_share", acts_idle(job));
    json_open(j, "traffic", '[');
    for (costs_scheme s = 0; s < COSTS_SCHEMES && rc == CKPT_OK; s++) {
        if (costs_applies(job, s))
            rc = ct_scheme(job, s, j, err);
    }
    json_close(j, ']');
    return rc;
}

/* ---- activations ---- */

static const char *const ct_schedules[ACTS_SCHEDULES] = {"a micro batch", "1F1B", "GPipe",
                                                         "interleaved 1F1B"};

int acts_print(const acts_job *job, ckpt_err *err)
{
    const costs_job *c = &job->cut;
    char text[HUMAN_ROOM];
    uint64_t n;
    int rc = CKPT_OK;

    out_printf("\nActivations of a rank: %" PRIu64 " layers of %" PRIu64 ", %" PRIu64
               " heads; micro batches of %" PRIu64 " x %" PRIu64 " tokens%s%s\n",
               c->layers, c->hidden, job->heads, c->micro_batch, c->tokens,
               job->flash ? ", flash attention" : "", job->sequence ? ", sequence parallel" : "");
    out_printf("  %-20s %10s  %10s  %10s  computed again\n", "", "nothing", "attention",
               "all layers");
    out_printf("  %-20s", "one layer keeps");
    for (acts_mode m = 0; m < ACTS_MODES && rc == CKPT_OK; m++) {
        rc = acts_layer(job, m, &n, err);
        out_printf(m ? "  %10s" : " %10s", human_bytes(text, n));
    }
    out_printf("\n");
    for (acts_schedule s = 0; s < ACTS_SCHEDULES && rc == CKPT_OK; s++) {
        if (!acts_applies(job, s))
            continue;
        out_printf("  %-20s", ct_schedules[s]);
        for (acts_mode m = 0; m < ACTS_MODES && rc == CKPT_OK; m++) {
            rc = acts_bytes(job, s, m, &n, err);
            out_printf(m ? "  %10s" : " %10s", human_bytes(text, n));
        }
        out_printf("  (%" PRIu64 " layers under way)\n", acts_under_way(job, s));
    }
    return rc;
}

static int ct_schedule(const acts_job *job, acts_schedule s, json_out *j, ckpt_err *err)
{
    uint64_t n;
    int rc = CKPT_OK;

    json_open(j, NULL, '{');
    json_text(j, "schedule", acts_schedule_name(s));
    json_uint(j, "layers_under_way", acts_under_way(job, s));
    json_open(j, "recomputation_bytes", '{');
    for (acts_mode m = 0; m < ACTS_MODES && rc == CKPT_OK; m++) {
        rc = acts_bytes(job, s, m, &n, err);
        json_uint(j, acts_mode_name(m), n);
    }
    json_close(j, '}');
    json_close(j, '}');
    return rc;
}

int acts_json(const acts_job *job, json_out *j, ckpt_err *err)
{
    uint64_t n;
    int rc = CKPT_OK;

    json_open(j, "activations", '{');
    json_uint(j, "layers", job->cut.layers);
    json_uint(j, "hidden", job->cut.hidden);
    json_uint(j, "heads", job->heads);
    json_open(j, "layer_bytes", '{');
    for (acts_mode m = 0; m < ACTS_MODES && rc == CKPT_OK; m++) {
        rc = acts_layer(job, m, &n, err);
        json_uint(j, acts_mode_name(m), n);
    }
    json_close(j, '}');
    json_open(j, "schedules", '[');
    for (acts_schedule s = 0; s < ACTS_SCHEDULES && rc == CKPT_OK; s++) {
        if (acts_applies(job, s))
            rc = ct_schedule(job, s, j, err);
    }
    json_close(j, ']');
    json_close(j, '}');
    return rc;
}
