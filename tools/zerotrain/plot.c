/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plot.c: implements --plot: the loss and the learning rate of a run in one standalone SVG.
 *
 * Points are in the order of updates.  If there are more than PLOT_POINTS, neighbours are merged
 * into their mean, so a long run gives a small picture.  The file is replaced as a whole.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/zerotrain/zerotrain.h"

enum { PL_PATH = 4096 };
static const int PL_WIDTH = 760, PL_HEIGHT = 260, PL_LEFT = 70, PL_TOP = 40, PL_GAP = 90;

/* Merge neighbouring points. */
static void pl_halve(plot *p)
{
    for (size_t i = 0; i < p->n / 2; i++) {
        const plot_point *a = &p->at[2 * i], *b = &p->at[2 * i + 1];

        p->at[i] = (plot_point){b->step, (a->loss + b->loss) / 2, (a->lr + b->lr) / 2};
    }
    p->n /= 2;
    p->each *= 2;
}

void plot_add(plot *p, const plot_point *one)
{
    if (p->left > 0) { // the mean of all updates that the point stands for
        plot_point *last = &p->at[p->n - 1];
        const double k = (double)(p->each - p->left);

        last->step = one->step;
        last->loss += (one->loss - last->loss) / (k + 1);
        last->lr += (one->lr - last->lr) / (k + 1);
        p->left--;
        return;
    }
    p->each = p->each > 0 ? p->each : 1;
    if (p->n == PLOT_POINTS)
        pl_halve(p);
    p->at[p->n++] = *one;
    p->left = p->each - 1;
}

/* A value of a point: 0 the loss, 1 the rate. */
static double pl_value(const plot_point *p, int which)
{
    return which == 0 ? p->loss : p->lr;
}

/* The range of the finite values; a range of one number is widened. */
static void pl_range(const plot *p, int which, double range[2])
{
    range[0] = range[1] = 0;
    for (size_t i = 0, seen = 0; i < p->n; i++) {
        const double v = pl_value(&p->at[i], which);

        if (v - v != 0)
            continue;
        range[0] = seen == 0 || v < range[0] ? v : range[0];
        range[1] = seen == 0 || v > range[1] ? v : range[1];
        seen++;
    }
    if (range[1] <= range[0])
        range[1] = range[0] + (range[0] != 0 ? 0.1 * (range[0] < 0 ? -range[0] : range[0]) : 1);
}

static void pl_curve(FILE *f, const plot *p, int which, const double range[2], int top)
{
    const double first = (double)p->at[0].step, last = (double)p->at[p->n - 1].step;
    bool open = false;

    for (size_t i = 0; i < p->n; i++) {
        const double v = pl_value(&p->at[i], which);

        if (v - v != 0) { // a gap at a value that is not finite
            fputs(open ? "\"/>\n" : "", f);
            open = false;
            continue;
        }
        fprintf(f, "%s%.1f,%.1f", open ? " " : "<polyline class=\"c\" points=\"",
                PL_LEFT + (last > first ? ((double)p->at[i].step - first) / (last - first) : 0.5) *
                              PL_WIDTH,
                top + PL_HEIGHT - (v - range[0]) / (range[1] - range[0]) * PL_HEIGHT);
        open = true;
    }
    fputs(open ? "\"/>\n" : "", f);
}

/* Draw one panel: its name, four lines with numbers, the curve. */
static void pl_panel(FILE *f, const plot *p, int which, const char *name)
{
    const int top = PL_TOP + which * (PL_HEIGHT + PL_GAP);
    double range[2];

    pl_range(p, which, range);
    fprintf(f, "<text x=\"%d\" y=\"%d\">%s</text>\n", PL_LEFT, top - 12, name);
    for (int i = 0; i <= 4; i++) {
        const int y = top + PL_HEIGHT * i / 4;

        fprintf(f,
                "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/><text class=\"e\" x=\"%d\" "
                "y=\"%d\">%.4g</text>\n",
                PL_LEFT, y, PL_LEFT + PL_WIDTH, y, PL_LEFT - 8, y + 4,
                range[1] - (range[1] - range[0]) * i / 4);
    }
    fprintf(f,
            "<text x=\"%d\" y=\"%d\">update %" PRId64 "</text><text class=\"e\" x=\"%d\" "
            "y=\"%d\">%" PRId64 "</text>\n",
            PL_LEFT, top + PL_HEIGHT + 20, p->at[0].step, PL_LEFT + PL_WIDTH, top + PL_HEIGHT + 20,
            p->at[p->n - 1].step);
    pl_curve(f, p, which, range, top);
}

static void pl_picture(FILE *f, const plot *p)
{
    const int width = PL_LEFT + PL_WIDTH + 20, height = PL_TOP + 2 * (PL_HEIGHT + PL_GAP);

    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d "
            "%d\" role=\"img\">\n<title>Loss and learning rate, updates %" PRId64 " to %" PRId64
            "</title>\n",
            width, height, width, height, p->at[0].step, p->at[p->n - 1].step);
    fputs("<style>svg{background:#fff;font:12px sans-serif}text{fill:#333}line{stroke:#ddd}"
          ".c{fill:none;stroke:#1667c0;stroke-width:1.5}.e{text-anchor:end}"
          "@media(prefers-color-scheme:dark){svg{background:#181818}text{fill:#ccc}"
          "line{stroke:#3a3a3a}.c{stroke:#6ab0ff}}</style>\n",
          f);
    pl_panel(f, p, 0, "loss");
    pl_panel(f, p, 1, "learning rate");
    fputs("</svg>\n", f);
}

/* Open the temporary file beside the picture; NULL: it cannot be created. */
static FILE *pl_begin(const char *path, char temp[PL_PATH], ckpt_err *err)
{
    const int n = snprintf(temp, PL_PATH, "%s.ckpt-plot.tmp", path);
    FILE *f = NULL;

    if (n < 0 || n >= PL_PATH) {
        ckpt_fail(err, CKPT_EUSAGE, "%.200s: the path is too long", path);
        return NULL;
    }
    f = fopen(temp, "w");
    if (!f)
        ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot be written", path);
    return f;
}

int plot_try(const char *path, ckpt_err *err)
{
    char temp[PL_PATH];
    FILE *f = pl_begin(path, temp, err);

    if (!f)
        return CKPT_EIO;
    (void)fclose(f);
    (void)unlink(temp);
    return CKPT_OK;
}

int plot_write(const plot *p, const char *path, ckpt_err *err)
{
    char temp[PL_PATH];
    FILE *f;
    bool ok;

    if (p->n == 0)
        return CKPT_OK;
    f = pl_begin(path, temp, err);
    if (!f)
        return CKPT_EIO;
    pl_picture(f, p);
    ok = ferror(f) == 0;
    ok = fclose(f) == 0 && ok;
    if (ok && rename(temp, path) == 0)
        return CKPT_OK;
    ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot be written", path);
    (void)unlink(temp);
    return CKPT_EIO;
}
