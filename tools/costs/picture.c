/* SPDX-License-Identifier: Apache-2.0 */
/* picture.c: draws memory and traffic of training as bars. */
#include "tools/costs/picture.h"

#include <inttypes.h>
#include <stdio.h>

#include "tools/cli/out.h"
#include "tools/report/draw.h"

enum {
    PU_BAR = 16,
    PU_LEFT = 230,  /* width for names */
    PU_RIGHT = 120, /* width for the numbers after the bars */
    PU_PARTS = 4,
    PU_ROWS = 16 /* maximum number of bars in a group */
};
/* heights of a row, and of a group's title */
static const double PU_ROW = 24, PU_HEAD = 36;

static const char *const pu_names[PU_PARTS] = {"weights", "gradients", "optimizer", "activations"};

/* A bar of parts; `host` bytes are only printed, next to the bar. */
typedef struct pu_bar {
    char name[48];
    double part[PU_PARTS], host, seconds;
} pu_bar;

static double pu_sum(const pu_bar *b)
{
    double sum = 0;

    for (unsigned i = 0; i < PU_PARTS; i++)
        sum += b->part[i];
    return sum;
}

static const char *pu_bytes(char buf[HUMAN_ROOM], double n)
{
    return human_bytes(buf, n < 1e19 ? (uint64_t)n : UINT64_MAX);
}

/* Memory of a rank in a stage: 16 bytes per parameter, in three parts, and activations. */
static void pu_memory(pu_bar *b, const acts_job *job, int stage, bool offload, bool wide)
{
    const costs_job *c = &job->cut;
    double params = (double)c->params / (double)(c->tensor * c->pipeline);
    double ranks = (double)costs_data_ranks(c), each = wide ? 4 : 2;
    double kept = (16 - 2 * each) * params / (stage > 0 ? ranks : 1);

    *b = (pu_bar){.part = {each * params / (stage > 2 ? ranks : 1),
                           each * params / (stage > 1 ? ranks : 1), offload ? 0 : kept},
                  .host = offload ? kept : 0,
                  .seconds = -1};
    (void)snprintf(b->name, sizeof b->name, "ZeRO-%d%s", stage,
                   offload ? ", optimizer on the host" : "");
}

/* Bytes of all layers under way, without recomputation. */
static int pu_activations(const acts_job *job, double *out, ckpt_err *err)
{
    uint64_t n = 0;
    int rc = CKPT_OK;

    for (acts_schedule s = 0; s < ACTS_SCHEDULES && rc == CKPT_OK && job->cut.tokens; s++) {
        if (acts_applies(job, s) && s != ACTS_GPIPE)
            rc = acts_bytes(job, s, ACTS_WHOLE, &n, err);
    }
    *out = (double)n;
    return rc;
}

/* Draw a group of bars on one scale; returns the lower edge. */
static double pu_group(sheet *s, const char *title, const pu_bar *bar, unsigned n, double top)
{
    double most = 0, wide = DRAW_WIDTH - PU_LEFT - PU_RIGHT;
    char text[HUMAN_ROOM];

    for (unsigned i = 0; i < n; i++)
        most = pu_sum(&bar[i]) > most ? pu_sum(&bar[i]) : most;
    sheet_printf(s, "<text class=\"strong\" x=\"10\" y=\"%.0f\">%s</text>\n", top + 22, title);
    top += PU_HEAD;
    for (unsigned i = 0; i < n; i++, top += PU_ROW) {
        double x = PU_LEFT, total = pu_sum(&bar[i]);

        sheet_printf(
            s, "<g><title>%s: %s</title>\n<text class=\"end\" x=\"%d\" y=\"%.0f\">%s</text>\n",
            bar[i].name, pu_bytes(text, total), PU_LEFT - 8, top + 13, bar[i].name);
        for (unsigned k = 0; k < PU_PARTS; k++) {
            double w = most > 0 ? bar[i].part[k] / most * wide : 0;
            if (w > 0)
                sheet_printf(
                    s, "<rect class=\"d%u\" x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" height=\"%d\"/>\n",
                    k, x, top, w, PU_BAR);
            x += w;
        }
        sheet_printf(s, "<text class=\"small\" x=\"%.1f\" y=\"%.0f\">%s", x + 6, top + 12,
                     pu_bytes(text, total));
        if (bar[i].host > 0)
            sheet_printf(s, " + %s", pu_bytes(text, bar[i].host));
        if (bar[i].seconds >= 0)
            sheet_printf(s, ", %.3g s", bar[i].seconds);
        sheet_printf(s, "</text></g>\n");
    }
    return top;
}

static double pu_legend(sheet *s, double top, bool activations)
{
    for (unsigned k = 0; k < (activations ? PU_PARTS : PU_PARTS - 1); k++)
        sheet_printf(s,
                     "<rect class=\"d%u\" x=\"%u\" y=\"%.0f\" width=\"12\" height=\"12\"/>"
                     "<text class=\"small\" x=\"%u\" y=\"%.0f\">%s</text>\n",
                     k, PU_LEFT + 110 * k, top + 8, PU_LEFT + 110 * k + 18, top + 18, pu_names[k]);
    return top + 24;
}

/* Both groups of bars: memory and traffic. */
typedef struct pu_all {
    pu_bar memory[PU_ROWS], sent[PU_ROWS];
    unsigned n_memory, n_sent;
    bool activations;
} pu_all;

static int pu_fill(pu_all *all, const acts_job *job, bool wide, ckpt_err *err)
{
    double activations = 0;
    costs_flow f;
    int rc = pu_activations(job, &activations, err);

    for (int stage = 0; stage < (job->cut.pipeline > 1 ? 2 : 4); stage++) {
        for (int offload = 0; offload < (stage > 0 ? 2 : 1); offload++) {
            pu_memory(&all->memory[all->n_memory], job, stage, offload, wide);
            all->memory[all->n_memory++].part[3] = activations;
        }
    }
    all->activations = activations > 0;
    for (costs_scheme s = 0; s < COSTS_SCHEMES && rc == CKPT_OK; s++) {
        pu_bar *b = &all->sent[all->n_sent];
        if (job->cut.gpus * job->cut.nodes == 1 || !costs_applies(&job->cut, s))
            continue;
        rc = costs_flow_of(&job->cut, s, &f, err);
        *b = (pu_bar){.part = {(double)f.sent}, .seconds = f.seconds};
        (void)snprintf(b->name, sizeof b->name, "%s", costs_title(s));
        all->n_sent++;
    }
    return rc;
}

static void pu_draw(sheet *s, const pu_all *all, const acts_job *job, const char *model)
{
    double height = 34 + 24 + PU_HEAD + PU_ROW * all->n_memory + 12 +
                    (all->n_sent ? PU_HEAD + PU_ROW * all->n_sent : 0);
    char title[200], n[HUMAN_ROOM];

    (void)snprintf(title, sizeof title,
                   "What training %s parameters takes on %" PRIu64 " x %" PRIu64 " GPUs",
                   human_count(n, job->cut.params), job->cut.nodes, job->cut.gpus);
    draw_begin(s, height, title, true);
    sheet_printf(s, "<text class=\"strong\" x=\"10\" y=\"22\">%s", title);
    if (model) {
        sheet_printf(s, ": ");
        sheet_text(s, model, 60);
    }
    sheet_printf(s, "</text>\n");
    double top = pu_group(s, "Memory of a rank (+: of the host)", all->memory, all->n_memory, 34);
    top = pu_legend(s, top, all->activations);
    if (all->n_sent)
        (void)pu_group(s, "What a rank sends in an update", all->sent, all->n_sent, top);
    draw_end(s);
}

int picture_write(const char *path, bool force, const acts_job *job, const char *model, bool wide,
                  ckpt_err *err)
{
    pu_all all = {.n_memory = 0};
    sheet s = {0};
    int rc = sheet_allowed(path, force, (const ckpt_map *const[]){NULL}, model, err);

    if (rc == CKPT_OK)
        rc = pu_fill(&all, job, wide, err);
    if (rc == CKPT_OK)
        rc = sheet_open(&s, path, force, err);
    if (rc == CKPT_OK) {
        pu_draw(&s, &all, job, model);
        rc = sheet_keep(&s, err);
    }
    sheet_drop(&s);
    return rc;
}
