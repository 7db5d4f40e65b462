/* SPDX-License-Identifier: Apache-2.0 */
/* sections.c: writes training curves and differences as HTML. */
#include "tools/report/sections.h"

#include <inttypes.h>
#include <math.h>

#include "tools/report/draw.h"

enum {
    SECTION_COLUMNS = 40, /* with more names, use a list instead of a table */
    SECTION_LIST = 500,
    SECTION_GAPS = 20
};

/* ---- training ---- */

static void section_cell(sheet *s, double x)
{
    sheet_printf(s, "<td class=\"n\">%.6g</td>", x);
}

/* List the steps at which a curve is not finite. */
static void section_gaps(sheet *s, const curve *c)
{
    size_t told = 0;

    sheet_printf(s, "<td>");
    for (size_t i = 0; i < c->n && told < SECTION_GAPS; i++) {
        if (isfinite(c->at[i].value))
            continue;
        sheet_printf(s, "%s%" PRId64, told ? ", " : "steps ", c->at[i].step);
        told++;
    }
    if (c->n_gaps > told)
        sheet_printf(s, " and %zu more", c->n_gaps - told);
    sheet_printf(s, "</td>");
}

void section_curves(sheet *s, const curves *c)
{
    sheet_printf(s, "<section aria-labelledby=\"training\"><h2 id=\"training\">Training</h2>\n"
                    "<p class=\"faint\">From <span class=\"name\">");
    sheet_text(s, c->path, 0);
    sheet_printf(s, "</span>: %zu records, steps %" PRId64 " to %" PRId64, c->n_records, c->first,
                 c->last);
    if (c->n_skipped)
        sheet_printf(s, "; %zu updates were skipped", c->n_skipped);
    if (c->n_back)
        sheet_printf(s, "; resumed %zu times from an earlier step", c->n_back);
    sheet_printf(s, ".</p>\n<div class=\"wide\">");
    draw_curves(s, c, false);
    sheet_printf(s,
                 "</div>\n<div class=\"wide\"><table><caption>The curves in numbers</caption>"
                 "<thead><tr><th scope=\"col\">Curve</th><th scope=\"col\" class=\"n\">Points</th>"
                 "<th scope=\"col\" class=\"n\">First</th><th scope=\"col\" class=\"n\">Last</th>"
                 "<th scope=\"col\" class=\"n\">Least</th><th scope=\"col\" class=\"n\">Most</th>"
                 "<th scope=\"col\">Not finite</th></tr></thead><tbody>\n");
    for (int k = 0; k < CURVE_KINDS; k++) {
        const curve *of = &c->of[k];
        if (!of->n)
            continue;
        sheet_printf(s, "<tr><th scope=\"row\">%s</th><td class=\"n\">%zu</td>",
                     curve_title((curve_kind)k), of->n);
        section_cell(s, of->at[0].value);
        section_cell(s, of->at[of->n - 1].value);
        section_cell(s, of->n > of->n_gaps ? of->least : (double)NAN);
        section_cell(s, of->n > of->n_gaps ? of->most : (double)NAN);
        section_gaps(s, of);
        sheet_printf(s, "</tr>\n");
    }
    sheet_printf(s, "</tbody></table></div></section>\n");
}

/* ---- differences ---- */

/* Write a cell of the heat map. */
static void section_heat(sheet *s, const differ *d, size_t cell)
{
    char word[DIFFER_WORD];

    if (!cell) {
        sheet_printf(s, "<td></td>");
        return;
    }
    const difference *it = &d->at[cell - 1];
    unsigned level = differ_level(it);
    if (it->what & ~(unsigned)DIFFER_VALUES)
        sheet_printf(s, "<td class=\"hx\">");
    else if (level)
        sheet_printf(s, "<td class=\"h%u\">", level);
    else
        sheet_printf(s, "<td>");
    sheet_printf(s, "%s</td>", differ_word(word, it));
}

static void section_grid(sheet *s, const differ *d)
{
    sheet_printf(s,
                 "<div class=\"wide\"><table class=\"heat\"><caption>Largest absolute difference; "
                 "= is equal, an empty cell no tensor</caption><thead><tr>"
                 "<th scope=\"col\">Layer</th>");
    for (size_t k = 0; k < d->n_columns; k++) {
        sheet_printf(s, "<th scope=\"col\">");
        sheet_text(s, *d->column[k] ? d->column[k] : "(itself)", 60);
        sheet_printf(s, "</th>");
    }
    sheet_printf(s, "</tr></thead><tbody>\n");
    for (size_t i = 0; i < d->n_rows; i++) {
        sheet_printf(s, "<tr><th scope=\"row\" class=\"name\">");
        sheet_text(s, d->row[i], 0);
        sheet_printf(s, "</th>");
        for (size_t k = 0; k < d->n_columns; k++)
            section_heat(s, d, d->cell[i * d->n_columns + k]);
        sheet_printf(s, "</tr>\n");
    }
    sheet_printf(s, "</tbody></table></div>\n");
}

/* List the tensors that differ, one per line. */
static void section_list(sheet *s, const differ *d)
{
    size_t told = 0;
    char word[DIFFER_WORD];

    sheet_printf(s,
                 "<details%s><summary>Tensors that differ</summary><div class=\"wide\"><table>"
                 "<caption>%zu tensors differ</caption><thead><tr><th scope=\"col\">Tensor</th>"
                 "<th scope=\"col\">What</th><th scope=\"col\" class=\"n\">Elements</th></tr>"
                 "</thead><tbody>\n",
                 d->n_columns > SECTION_COLUMNS ? " open" : "", d->n_different);
    for (size_t i = 0; i < d->n && told < SECTION_LIST; i++) {
        if (!d->at[i].what)
            continue;
        told++;
        sheet_printf(s, "<tr><th scope=\"row\" class=\"name\">");
        sheet_text(s, d->at[i].name, 0);
        sheet_printf(s, "</th><td>%s</td><td class=\"n\">%" PRIu64 "</td></tr>\n",
                     differ_word(word, &d->at[i]), d->at[i].n_different);
    }
    sheet_printf(s, "</tbody></table></div>");
    if (d->n_different > told)
        sheet_printf(s, "<p>And %zu more.</p>", d->n_different - told);
    sheet_printf(s, "</details>\n");
}

void section_differences(sheet *s, const differ *d, const char *other)
{
    sheet_printf(s, "<section aria-labelledby=\"differences\"><h2 id=\"differences\">Differences"
                    "</h2>\n<p>Compared with B, <span class=\"name\">");
    sheet_text(s, other, 0);
    sheet_printf(s, "</span>: %zu of %zu tensors differ.</p>\n", d->n_different, d->n);
    if (d->n_columns <= SECTION_COLUMNS)
        section_grid(s, d);
    if (d->n_different)
        section_list(s, d);
    sheet_printf(s, "</section>\n");
}
