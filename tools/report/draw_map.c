/* SPDX-License-Identifier: Apache-2.0 */
/* draw_map.c: draws the distribution of tensors over files as SVG. */
#include <stdio.h>

#include "tools/report/draw.h"

enum {
    DRAW_STAIRS = 24, /* a run of more parts is drawn as a band */
    DRAW_RUNS = 4096  /* maximum number of runs of one tensor */
};
static const int DRAW_MAP_HEIGHT = 480;

typedef struct chart_parts {
    sheet *s;
    const ckpt_tensor *t;
    double x, wide, row; /* left edge and width of the tensor; height of a file */
    uint64_t done;       /* elements that were drawn */
    unsigned colour;
} chart_parts;

static void chart_rect(const chart_parts *d, double from, double to, double file, double n)
{
    double w = (to - from) * d->wide, h = n * d->row;

    sheet_printf(d->s, "<rect class=\"m%u\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"/>",
                 d->colour, d->x + from * d->wide, 30 + file * d->row, w > 0.4 ? w : 0.4,
                 h > 0.4 ? h : 0.4);
}

/* Draw a box at its position along the last axis that is divided. */
static void chart_box(const chart_parts *d, const part_run *run)
{
    const ckpt_extent *e = run->box;
    double from = 0, to = 1;

    if (e->ndim == 1 && d->t->ndim != 1 && d->t->n_elems) {
        from = (double)e->axis[0].start / (double)d->t->n_elems;
        to = from + (double)e->axis[0].count / (double)d->t->n_elems;
    }
    for (uint32_t k = 0; e->ndim == d->t->ndim && k < e->ndim; k++) {
        if (e->axis[k].count == d->t->shape[k])
            continue;
        from = (double)e->axis[k].start / (double)d->t->shape[k];
        to = from + (double)e->axis[k].count / (double)d->t->shape[k];
    }
    chart_rect(d, from, to, run->file, 1);
}

static void chart_run(void *ctx, const part_run *run)
{
    chart_parts *d = ctx;
    double all = d->t->n_elems ? (double)d->t->n_elems : 1;

    if (run->file != PARTS_NO_FILE && run->box)
        chart_box(d, run);
    for (uint64_t k = 0; run->file != PARTS_NO_FILE && k < run->n && run->n <= DRAW_STAIRS; k++) {
        double from = (double)(d->done + k * run->count) / all,
               to = from + (double)run->count / all;
        chart_rect(d, from, to > 1 ? 1 : to, (double)(run->file + k), 1);
    }
    if (run->file != PARTS_NO_FILE && run->n > DRAW_STAIRS) {
        double from = d->x + (double)d->done / all * d->wide, n = (double)run->n,
               one = (double)run->count / all * d->wide, top = 30 + run->file * d->row;
        double to = from + one * n, most = d->x + d->wide;
        to = to > most ? most : to;
        // steps would be much smaller than a pixel, so draw a band from the first part to the last
        one = one < 0.5 ? 0.5 : one;
        sheet_printf(d->s,
                     "<polygon class=\"m%u\" points=\"%.2f,%.2f %.2f,%.2f %.2f,%.2f %.2f,%.2f\"/>",
                     d->colour, from, top, from + one, top, to + 0.3, top + n * d->row, to - one,
                     top + n * d->row);
    }
    d->done += run->count * run->n;
}

void draw_map(sheet *s, parts *p, const layers *l, bool alone)
{
    const ckpt_map *map = p->map;
    double total = 0, rows = p->n_used ? (double)p->n_used : 1, row = DRAW_MAP_HEIGHT / rows,
           x = 20;
    char title[128];

    row = row > 28 ? 28 : row;
    for (size_t i = 0; i < ckpt_map_tensor_count(map); i++)
        total +=
            ckpt_map_tensor_at(map, i)->owner ? 0 : (double)ckpt_map_tensor_at(map, i)->n_elems;
    (void)snprintf(title, sizeof title, "Which of %zu files (down) holds which part of %zu tensors",
                   p->n_used, ckpt_map_tensor_count(map));
    draw_begin(s, row * rows + 60, title, alone);
    sheet_printf(s, "<text x=\"20\" y=\"18\">%s</text>\n", title);
    for (size_t i = 0; i < ckpt_map_tensor_count(map); i++) {
        const ckpt_tensor *t = ckpt_map_tensor_at(map, i);
        double wide = t->owner || total <= 0 ? 0 : (double)t->n_elems / total * (DRAW_WIDTH - 40.0);
        chart_parts d = {.s = s, .t = t, .x = x, .wide = wide, .row = row, .colour = l->of[i] % 6};
        if (t->owner)
            continue;
        sheet_printf(s, "<g><title>");
        sheet_text(s, t->name, 0);
        sheet_printf(s, "</title>");
        (void)parts_each(p, t, DRAW_RUNS, chart_run, &d);
        sheet_printf(s, "</g>\n");
        x += wide;
    }
    sheet_printf(s,
                 "<rect class=\"frame\" x=\"20\" y=\"30\" width=\"%d\" height=\"%.1f\"/>\n"
                 "<text class=\"small\" x=\"20\" y=\"%.1f\">elements of all tensors, in their "
                 "order; colours change with the layer</text>\n",
                 DRAW_WIDTH - 40, row * rows, row * rows + 50);
    draw_end(s);
}
