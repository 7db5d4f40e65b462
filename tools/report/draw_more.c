/* SPDX-License-Identifier: Apache-2.0 */
/* draw_more.c: draws curves and differences as SVG. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "tools/report/draw.h"

enum {
    PLOT_BUCKETS = 800, /* with more points, each bucket's minimum and maximum are drawn */
    PLOT_MARKS = 100,
    HEAT_ROWS = 300,
    HEAT_COLUMNS = 64
};
/* PLOT_HEIGHT: height of one chart; PLOT_ROOM: with its title and steps */
static const int PLOT_LEFT = 80, PLOT_HEIGHT = 130, PLOT_ROOM = 190;
static const int HEAT_LEFT = 250, HEAT_TOP = 150, HEAT_ROW = 18;

/* ---- curves ---- */

typedef struct plot {
    sheet *s;
    const curves *c;
    const curve *of;
    double top;
    bool log;       /* logarithmic scale */
    bool down;      /* true: a line has been started */
    int64_t before; /* step of the last point */
} plot;

static double plot_x(const plot *p, int64_t step)
{
    double span = (double)p->c->last - (double)p->c->first;
    double part = span > 0 ? ((double)step - (double)p->c->first) / span : 0.5;

    return PLOT_LEFT + part * (DRAW_WIDTH - PLOT_LEFT - 20);
}

static double plot_y(const plot *p, double value)
{
    double low = p->of->least, high = p->of->most, v = value;

    if (p->log) {
        low = log10(low);
        high = log10(high);
        v = log10(v);
    }
    // halve first, because the difference of two doubles may overflow
    double span = high / 2 - low / 2, part = span > 0 ? (v / 2 - low / 2) / span : 0.5;
    return p->top + PLOT_HEIGHT * (1 - part);
}

/* Draw the next point.  The line is broken if the step goes back, because the run was resumed. */
static void plot_point(plot *p, int64_t step, double value)
{
    bool on = p->down && step >= p->before;

    sheet_printf(p->s, "%s%.1f %.1f", on ? "L" : "M", plot_x(p, step), plot_y(p, value));
    p->down = true;
    p->before = step;
}

/* Draw points from..to-1: one by one, or, if there are many, minimum and maximum. */
static void plot_bucket(plot *p, size_t from, size_t to)
{
    double least = (double)INFINITY, most = -(double)INFINITY;

    for (size_t i = from; i < to; i++) {
        const curve_point *at = &p->of->at[i];
        if (!isfinite(at->value)) {
            p->down = false;
            continue;
        }
        if (to - from == 1)
            plot_point(p, at->step, at->value);
        least = at->value < least ? at->value : least;
        most = at->value > most ? at->value : most;
    }
    if (to - from > 1 && least <= most) {
        int64_t step = p->of->at[from].step;
        plot_point(p, step, least);
        plot_point(p, step, most);
    }
}

static void plot_line(plot *p)
{
    size_t per = 1 + (p->of->n - 1) / PLOT_BUCKETS, marks = 0;

    sheet_printf(p->s, "<path class=\"curve\" d=\"");
    for (size_t i = 0; i < p->of->n; i += per)
        plot_bucket(p, i, i + per < p->of->n ? i + per : p->of->n);
    sheet_printf(p->s, "\"/>\n");
    if (p->of->n - p->of->n_gaps == 1 || per == 1) {
        // a single point has no line, so draw a circle
        for (size_t i = 0; i < p->of->n && p->of->n <= 60; i++) {
            if (isfinite(p->of->at[i].value))
                sheet_printf(p->s, "<circle class=\"bar\" cx=\"%.1f\" cy=\"%.1f\" r=\"2\"/>",
                             plot_x(p, p->of->at[i].step), plot_y(p, p->of->at[i].value));
        }
    }
    for (size_t i = 0; i < p->of->n && marks < PLOT_MARKS; i++) {
        if (isfinite(p->of->at[i].value))
            continue;
        marks++;
        sheet_printf(
            p->s,
            "<rect class=\"gap\" x=\"%.1f\" y=\"%.1f\" width=\"3\" height=\"%d\"><title>step "
            "%" PRId64 ": not finite</title></rect>\n",
            plot_x(p, p->of->at[i].step) - 1.5, p->top, PLOT_HEIGHT, p->of->at[i].step);
    }
}

/* Draw a horizontal line with its value. */
static void plot_grid(const plot *p, double part)
{
    const curve *of = p->of;
    double value = of->least * (1 - part) + of->most * part, y = p->top + PLOT_HEIGHT * (1 - part);

    if (p->log)
        value = pow(10, log10(of->least) * (1 - part) + log10(of->most) * part);
    sheet_printf(p->s,
                 "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                 "<text class=\"small end\" x=\"%d\" y=\"%.1f\">%.4g</text>\n",
                 PLOT_LEFT, DRAW_WIDTH - 20, y, y, PLOT_LEFT - 6, y + 4, value);
}

static void plot_chart(plot *p, curve_kind kind)
{
    const curve *of = p->of;
    double foot = p->top + PLOT_HEIGHT;
    bool some = of->n > of->n_gaps;

    p->log = some && of->least > 0 && of->most / of->least > 1000;
    p->down = false;
    sheet_printf(p->s, "<g><text class=\"strong\" x=\"%d\" y=\"%.1f\">%s%s</text>\n", PLOT_LEFT,
                 p->top - 10, curve_title(kind), p->log ? " (by powers of ten)" : "");
    if (of->n_gaps)
        sheet_printf(
            p->s, "<text class=\"small end\" x=\"%d\" y=\"%.1f\">red: %zu %s not finite</text>\n",
            DRAW_WIDTH - 20, p->top - 10, of->n_gaps, of->n_gaps == 1 ? "step is" : "steps are");
    if (some && of->least < of->most) {
        plot_grid(p, 0);
        plot_grid(p, 0.5);
        plot_grid(p, 1);
    } else if (some) {
        plot_grid(p, 0.5);
    }
    plot_line(p);
    sheet_printf(p->s,
                 "<text class=\"small\" x=\"%d\" y=\"%.1f\">%" PRId64 "</text>"
                 "<text class=\"small end\" x=\"%d\" y=\"%.1f\">step %" PRId64 "</text></g>\n",
                 PLOT_LEFT, foot + 16, p->c->first, DRAW_WIDTH - 20, foot + 16, p->c->last);
}

void draw_curves(sheet *s, const curves *c, bool alone)
{
    plot p = {.s = s, .c = c, .top = 30};
    int n = 0;

    for (int k = 0; k < CURVE_KINDS; k++)
        n += c->of[k].n > 0;
    draw_begin(s, n * PLOT_ROOM + 10, "Loss, learning rate, gradient norm and loss scale by step",
               alone);
    for (int k = 0; k < CURVE_KINDS; k++) {
        p.of = &c->of[k];
        if (!p.of->n)
            continue;
        plot_chart(&p, (curve_kind)k);
        p.top += PLOT_ROOM;
    }
    draw_end(s);
}

/* ---- differences ---- */

static void heat_cell(sheet *s, const differ *d, size_t i, size_t k, double wide)
{
    size_t cell = d->cell[i * d->n_columns + k];
    char word[DIFFER_WORD];

    if (!cell)
        return;
    const difference *it = &d->at[cell - 1];
    double x = HEAT_LEFT + wide * (double)k, y = HEAT_TOP + HEAT_ROW * (double)i;
    if (it->what & ~(unsigned)DIFFER_VALUES)
        sheet_printf(s, "<rect class=\"cell hx\"");
    else
        sheet_printf(s, "<rect class=\"cell h%u\"", differ_level(it));
    sheet_printf(s, " x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\"><title>", x, y, wide,
                 HEAT_ROW);
    sheet_text(s, it->name, 0);
    sheet_printf(s, ": %s</title></rect>", differ_word(word, it));
}

void draw_heat(sheet *s, const differ *d, bool alone)
{
    size_t rows = d->n_rows < HEAT_ROWS ? d->n_rows : HEAT_ROWS;
    size_t columns = d->n_columns < HEAT_COLUMNS ? d->n_columns : HEAT_COLUMNS;
    double wide = columns ? (DRAW_WIDTH - HEAT_LEFT - 60.0) / (double)columns : 0;
    char title[160];

    wide = wide > 60 ? 60 : wide;
    (void)snprintf(title, sizeof title,
                   "Differences of %zu of %zu tensors: %zu of %zu layers, %zu of %zu names in them",
                   d->n_different, d->n, rows, d->n_rows, columns, d->n_columns);
    draw_begin(s, HEAT_TOP + HEAT_ROW * (double)rows + 40, title, alone);
    sheet_printf(s, "<text x=\"10\" y=\"18\">%s</text>\n", title);
    for (size_t k = 0; k < columns; k++) {
        double x = HEAT_LEFT + wide * ((double)k + 0.5);
        sheet_printf(s,
                     "<text class=\"small\" x=\"%.1f\" y=\"%d\" transform=\"rotate(-40 %.1f %d)\">",
                     x, HEAT_TOP - 6, x, HEAT_TOP - 6);
        sheet_text(s, *d->column[k] ? d->column[k] : "(itself)", 26);
        sheet_printf(s, "</text>\n");
    }
    for (size_t i = 0; i < rows; i++) {
        sheet_printf(s, "<text class=\"end\" x=\"%d\" y=\"%.1f\">", HEAT_LEFT - 8,
                     HEAT_TOP + HEAT_ROW * (double)i + 13);
        sheet_text(s, d->row[i], 34);
        sheet_printf(s, "</text>\n");
        for (size_t k = 0; k < columns; k++)
            heat_cell(s, d, i, k, wide);
        sheet_printf(s, "\n");
    }
    sheet_printf(
        s,
        "<text class=\"small\" x=\"10\" y=\"%.1f\">empty: equal; from light to dark: up to "
        "1e-6, 1e-4, 0.01, 1, above; grey: only in one, another shape or dtype</text>\n",
        HEAT_TOP + HEAT_ROW * (double)rows + 24);
    draw_end(s);
}
