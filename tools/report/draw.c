/* SPDX-License-Identifier: Apache-2.0 */
/* draw.c: draws the frame of all pictures, the time line, and layers. */
#include "tools/report/draw.h"

#include <inttypes.h>
#include <string.h>

#include "tools/cli/out.h"
#include "tools/report/style.h"

enum {
    DRAW_TAG_TOP = 44,
    DRAW_TAG_HEIGHT = 110, /* height of the highest bar */
    DRAW_TAG_NAME = 10,
    DRAW_TAG_LABELS = 24, /* with more tags, only some have labels */
    DRAW_MOST_LAYERS = 300,
};
/* height of a row, and width for names of layers */
static const int DRAW_ROW = 18, DRAW_LABEL = 250;

void draw_begin(sheet *s, double height, const char *title, bool alone)
{
    sheet_printf(s, "<svg%s viewBox=\"0 0 %d %.0f\"",
                 alone ? " xmlns=\"http://www.w3.org/2000/svg\"" : "", DRAW_WIDTH, height);
    if (alone)
        sheet_printf(s, " width=\"%d\" height=\"%.0f\"", DRAW_WIDTH, height);
    sheet_printf(s, " role=\"img\" class=\"picture\" aria-label=\"");
    sheet_text(s, title, 0);
    sheet_printf(s, "\">\n<title>");
    sheet_text(s, title, 0);
    sheet_printf(s, "</title>\n");
    if (!alone)
        return;
    sheet_printf(s, "<style>\n");
    style_picture(s);
    sheet_printf(s, "</style>\n<rect class=\"ground\" width=\"100%%\" height=\"100%%\"/>\n");
}

void draw_end(sheet *s)
{
    sheet_printf(s, "</svg>\n");
}

/* The colour of a dtype, as a class from 0 to 7. */
static unsigned draw_dtype(ckpt_dtype d)
{
    switch (ckpt_dtype_bits(d)) {
    case 64:
        return 4;
    case 32:
        return d == CKPT_F32 ? 0 : 5;
    case 16:
        return d == CKPT_BF16 ? 1 : 2;
    case 8:
        return 3;
    case 0:
        return 6;
    default:
        return 7;
    }
}

/* ---- the time line ---- */

static const char *draw_state_class(ckpt_tag_health h)
{
    return h == CKPT_TAG_WHOLE ? "good" : h == CKPT_TAG_UNKNOWN ? "dim" : "bad";
}

/* A sign for the state, in addition to the colour, for colour-blind readers. */
static const char *draw_state_sign(ckpt_tag_health h)
{
    return h == CKPT_TAG_WHOLE ? "\u2713" : h == CKPT_TAG_UNKNOWN ? "?" : "\u2717";
}

/* The end of a name, in which tags differ. */
static const char *draw_end_of(const char *name)
{
    size_t n = strlen(name), at = n > DRAW_TAG_NAME ? n - DRAW_TAG_NAME : 0;

    // do not cut within a UTF-8 character
    while (at < n && ((unsigned char)name[at] & 0xc0) == 0x80)
        at++;
    return name + at;
}

static void draw_tag(sheet *s, const tags *t, size_t i, double step)
{
    const tag *it = &t->at[i];
    double part = t->most_bytes ? (double)it->n_bytes / (double)t->most_bytes : 0;
    double wide = step > 60 ? 44 : step * 0.75, high = 4 + part * (DRAW_TAG_HEIGHT - 4);
    double mid = 20 + step * ((double)i + 0.5), foot = DRAW_TAG_TOP + DRAW_TAG_HEIGHT;
    size_t every = 1 + (t->n - 1) / DRAW_TAG_LABELS;
    char bytes[HUMAN_ROOM];

    sheet_printf(
        s, "<g><rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>",
        draw_state_class(it->health), mid - wide / 2, foot - high, wide, high);
    sheet_text(s, it->name, 0);
    sheet_printf(s, ": %s, %s%s%s", tags_state(it->health), human_bytes(bytes, it->n_bytes),
                 it->is_latest ? ", latest" : "", it->is_newest ? ", newest complete" : "");
    sheet_printf(s, "</title></rect>\n");
    if (step >= 10)
        sheet_printf(s, "<text class=\"middle\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", mid,
                     foot - high - 5, draw_state_sign(it->health));
    if (i % every == 0 || it->is_latest) {
        sheet_printf(s, "<text class=\"middle small\" x=\"%.1f\" y=\"%.1f\">", mid, foot + 15);
        if (it->step >= 0)
            sheet_printf(s, "%" PRId64, it->step);
        else
            sheet_text(s, draw_end_of(it->name), 0);
        sheet_printf(s, "</text>\n");
    }
    if (it->is_latest || it->is_newest)
        sheet_printf(s, "<text class=\"middle small strong\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                     mid, foot + (it->is_latest ? 32.0 : 47.0),
                     it->is_latest && it->is_newest ? "\u25b2 latest, newest"
                     : it->is_latest                ? "\u25b2 latest"
                                                    : "\u25b2 newest complete");
    sheet_printf(s, "</g>\n");
}

void draw_timeline(sheet *s, const tags *t, bool alone)
{
    double step = t->n ? (DRAW_WIDTH - 40.0) / (double)t->n : 0;

    draw_begin(s, DRAW_TAG_TOP + DRAW_TAG_HEIGHT + 54,
               "Checkpoints of the run, the oldest first, by size", alone);
    step = step > 150 ? 150 : step;
    for (size_t i = 0; i < t->n; i++)
        draw_tag(s, t, i, step);
    sheet_printf(s, "<line class=\"axis\" x1=\"10\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>\n",
                 DRAW_WIDTH - 10, DRAW_TAG_TOP + DRAW_TAG_HEIGHT, DRAW_TAG_TOP + DRAW_TAG_HEIGHT);
    sheet_printf(s, "<text class=\"small\" x=\"10\" y=\"14\">\u2713 complete, \u2717 partial, "
                    "damaged or mixed, ? not judged; below: the step</text>\n");
    draw_end(s);
}

/* ---- layers ---- */

/* Draw the colours of the dtypes. */
static void draw_legend(sheet *s, const layers *l)
{
    double x = DRAW_LABEL + 10;

    for (int d = 0; d < CKPT_N_DTYPES; d++) {
        if (!l->bytes_of[d])
            continue;
        sheet_printf(s,
                     "<rect class=\"d%u\" x=\"%.0f\" y=\"6\" width=\"12\" height=\"12\"/>"
                     "<text x=\"%.0f\" y=\"17\">%s</text>\n",
                     draw_dtype((ckpt_dtype)d), x, x + 17, ckpt_dtype_name((ckpt_dtype)d));
        x += 30 + 9 * (double)strlen(ckpt_dtype_name((ckpt_dtype)d));
    }
}

static void draw_layer(sheet *s, const layers *l, size_t i)
{
    const layer *it = &l->at[i];
    double y = 30 + DRAW_ROW * (double)i, x = DRAW_LABEL + 10;
    double most = DRAW_WIDTH - DRAW_LABEL - 100.0;
    char bytes[HUMAN_ROOM];

    sheet_printf(s, "<text class=\"end\" x=\"%d\" y=\"%.0f\">", DRAW_LABEL, y + 12);
    sheet_text(s, it->name, 34);
    sheet_printf(s, "</text>\n");
    for (int d = 0; d < CKPT_N_DTYPES; d++) {
        double wide = it->bytes_of[d] ? most * (double)it->bytes_of[d] / (double)l->most_bytes : 0;
        if (it->bytes_of[d])
            sheet_printf(s,
                         "<rect class=\"d%u\" x=\"%.1f\" y=\"%.0f\" width=\"%.2f\" "
                         "height=\"%d\"/>\n",
                         draw_dtype((ckpt_dtype)d), x, y, wide > 0.5 ? wide : 0.5, DRAW_ROW - 4);
        x += wide;
    }
    sheet_printf(s, "<text x=\"%.1f\" y=\"%.0f\">%s</text>\n", x + 6, y + 12,
                 human_bytes(bytes, it->n_bytes));
}

void draw_layers(sheet *s, const layers *l, bool alone)
{
    size_t n = l->n < DRAW_MOST_LAYERS ? l->n : DRAW_MOST_LAYERS;
    char title[96];

    (void)snprintf(title, sizeof title, "Bytes by layer and dtype: %s%zu of %zu layers",
                   n < l->n ? "the first " : "", n, l->n);
    draw_begin(s, 40 + DRAW_ROW * (double)n, title, alone);
    draw_legend(s, l);
    for (size_t i = 0; i < n; i++)
        draw_layer(s, l, i);
    draw_end(s);
}
