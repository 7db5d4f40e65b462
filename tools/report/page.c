/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page.c: writes the sections of the page, one after the other.
 *
 * Sections that need no script are plain HTML: facts, tags, layers.  page.js makes the tensors and
 * the map from the data at the end, so the page stays small with many thousands of tensors.
 */
#include "tools/report/page.h"

#include <inttypes.h>
#include <string.h>

#include "tools/ckpt/report.h"
#include "tools/report/data.h"
#include "tools/report/draw.h"
#include "tools/report/sections.h"
#include "tools/report/style.h"

enum { PAGE_OPEN_ROWS = 40 }; /* longer tables are folded */

/* ---- the top ---- */

static void page_fact(sheet *s, const char *key, const char *text)
{
    sheet_printf(s, "<dt>");
    sheet_text(s, key, 0);
    sheet_printf(s, "</dt><dd>");
    sheet_text(s, text, 0);
    sheet_printf(s, "</dd>\n");
}

static void page_head(sheet *s, const page *p)
{
    const char *end = p->path + strlen(p->path), *name;

    while (end > p->path + 1 && end[-1] == '/')
        end--;
    for (name = end; name > p->path && name[-1] != '/';)
        name--;
    sheet_printf(s, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    style_policy(s);
    sheet_printf(s,
                 "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                 "<meta name=\"color-scheme\" content=\"light dark\">\n"
                 "<meta name=\"generator\" content=\"ckpt %s\">\n<title>",
                 ckpt_version());
    sheet_text(s, name, 0);
    sheet_printf(s, " - checkpoint report</title>\n");
    style_page(s);
    sheet_printf(s, "</head>\n<body>\n<a class=\"skip\" href=\"#main\">Skip to the report</a>\n"
                    "<header><h1>");
    sheet_text(s, name, 0);
    sheet_printf(s, "</h1>\n");
}

static void page_link(sheet *s, bool there, const char *id, const char *title)
{
    if (there)
        sheet_printf(s, "<li><a href=\"#%s\">%s</a></li>\n", id, title);
}

static void page_links(sheet *s, const page *p)
{
    sheet_printf(s, "<nav aria-label=\"Sections\"><ul>\n");
    page_link(s, p->run && p->run->n, "checkpoints", "Checkpoints");
    page_link(s, p->curves, "training", "Training");
    page_link(s, p->differ, "differences", "Differences");
    page_link(s, p->map, "layers", "Layers");
    page_link(s, p->map, "map", "Map");
    page_link(s, p->map, "tensors", "Tensors");
    page_link(s, p->map, "files", "Files");
    sheet_printf(s, "</ul></nav></header>\n<main id=\"main\">\n");
}

static void page_facts(sheet *s, const page *p)
{
    const char *key, *text;
    char room[4 * HUMAN_ROOM], count[HUMAN_ROOM], bytes[HUMAN_ROOM];
    int severity, code;
    map_totals sum;
    bool number;

    sheet_printf(s, "<dl class=\"facts\">\n");
    page_fact(s, "path", p->path);
    if (p->map) {
        map_count(&sum, p->map);
        page_fact(s, "format", ckpt_map_format(p->map));
        for (size_t i = 0; ckpt_map_fact_at(p->map, i, &key, &text, &number); i++)
            page_fact(s, key, text);
        (void)snprintf(room, sizeof room, "%" PRIu64 " (%" PRIu64 " tied), %s elements, %s",
                       sum.n_tensors, sum.n_tied, human_count(count, sum.n_elems),
                       human_bytes(bytes, sum.n_bytes));
        page_fact(s, "tensors", room);
    }
    sheet_printf(s, "</dl>\n");
    if (p->trouble) {
        sheet_printf(
            s, "<p class=\"trouble\" role=\"alert\"><strong>It could not be opened:</strong> ");
        sheet_text(s, p->trouble, 0);
        sheet_printf(s, "</p>\n");
    }
    for (size_t i = 0; ckpt_map_finding_at(p->map, i, &severity, &code, &text); i++) {
        sheet_printf(s, "<p class=\"%s\">", severity > 0 ? "trouble" : "note");
        sheet_text(s, text, 0);
        sheet_printf(s, "</p>\n");
    }
}

/* ---- tags ---- */

static void page_number(sheet *s, int64_t n, bool known)
{
    if (known)
        sheet_printf(s, "<td class=\"n\">%" PRId64 "</td>", n);
    else
        sheet_printf(s, "<td class=\"n\">-</td>");
}

static void page_tag(sheet *s, const tag *t)
{
    char bytes[HUMAN_ROOM];

    sheet_printf(s, "<tr><th scope=\"row\" class=\"name\">");
    sheet_text(s, t->name, 0);
    sheet_printf(s, "</th>");
    page_number(s, t->step, t->step >= 0);
    page_number(s, t->stage, t->stage >= 0);
    page_number(s, t->world, t->world > 0);
    sheet_printf(s, "<td class=\"n\">%s</td><td class=\"%s\">%s%s</td><td>%s%s%s</td><td>",
                 human_bytes(bytes, t->n_bytes), t->health == CKPT_TAG_WHOLE ? "good" : "bad",
                 tags_state(t->health), t->is_universal ? ", universal" : "",
                 t->is_latest ? "latest" : "", t->is_latest && t->is_newest ? ", " : "",
                 t->is_newest ? "newest complete" : "");
    sheet_text(s, t->reason, 0);
    sheet_printf(s, "</td></tr>\n");
}

static void page_tags(sheet *s, const tags *t)
{
    if (!t || !t->n)
        return;
    sheet_printf(s,
                 "<section aria-labelledby=\"checkpoints\"><h2 id=\"checkpoints\">Checkpoints of "
                 "the run</h2>\n<div class=\"wide\">");
    draw_timeline(s, t, false);
    sheet_printf(s, "</div>\n");
    for (size_t i = 0; i < t->run.n; i++) {
        const tags_run *r = &t->run.at[i];
        if (r->good || !*r->pointer)
            continue;
        sheet_printf(s, "<p class=\"trouble\">");
        sheet_text(s, *r->reason ? r->reason : "the newest checkpoint is not complete", 0);
        if (*r->newest) {
            sheet_printf(s, "; the newest complete one is ");
            sheet_text(s, r->newest, 0);
        }
        sheet_printf(s, "</p>\n");
    }
    sheet_printf(s,
                 "<div class=\"wide\"><table><caption>The oldest first</caption><thead><tr>"
                 "<th scope=\"col\">Tag</th><th scope=\"col\" class=\"n\">Step</th>"
                 "<th scope=\"col\" class=\"n\">Stage</th><th scope=\"col\" class=\"n\">World</th>"
                 "<th scope=\"col\" class=\"n\">Size</th><th scope=\"col\">State</th>"
                 "<th scope=\"col\">Named</th><th scope=\"col\">Reason</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < t->n; i++)
        page_tag(s, &t->at[i]);
    sheet_printf(s, "</tbody></table></div></section>\n");
}

/* ---- layers ---- */

static void page_layer(sheet *s, const layer *l)
{
    char count[HUMAN_ROOM], bytes[HUMAN_ROOM];
    const char *comma = "";

    sheet_printf(s, "<tr><th scope=\"row\" class=\"name\">");
    sheet_text(s, l->name, 0);
    sheet_printf(s,
                 "</th><td class=\"n\">%" PRIu64 "</td><td class=\"n\">%s</td>"
                 "<td class=\"n\">%s</td><td>",
                 l->n_tensors, human_count(count, l->n_elems), human_bytes(bytes, l->n_bytes));
    for (int d = 0; d < CKPT_N_DTYPES; d++) {
        if (!l->bytes_of[d])
            continue;
        sheet_printf(s, "%s%s %s", comma, ckpt_dtype_name((ckpt_dtype)d),
                     human_bytes(bytes, l->bytes_of[d]));
        comma = ", ";
    }
    sheet_printf(s, "</td></tr>\n");
}

static void page_layers(sheet *s, const layers *l)
{
    sheet_printf(s, "<section aria-labelledby=\"layers\"><h2 id=\"layers\">Dtypes and sizes by "
                    "layer</h2>\n<div class=\"wide\">");
    draw_layers(s, l, false);
    sheet_printf(s,
                 "</div>\n<details%s><summary>Table of layers</summary><div class=\"wide\"><table>"
                 "<caption>%zu layers</caption><thead><tr><th scope=\"col\">Layer</th>"
                 "<th scope=\"col\" class=\"n\">Tensors</th><th scope=\"col\" class=\"n\">Elements"
                 "</th><th scope=\"col\" class=\"n\">Size</th><th scope=\"col\">Dtypes</th></tr>"
                 "</thead><tbody>\n",
                 l->n <= PAGE_OPEN_ROWS ? " open" : "", l->n);
    for (size_t i = 0; i < l->n; i++)
        page_layer(s, &l->at[i]);
    sheet_printf(s, "</tbody></table></div></details></section>\n");
}

/* ---- sections that page.js fills ---- */

static void page_map(sheet *s, const parts *p)
{
    sheet_printf(s, "<section aria-labelledby=\"map\"><h2 id=\"map\">Which file holds what</h2>\n");
    if (!p->n_used) {
        sheet_printf(s, "<p>No file holds elements.</p></section>\n");
        return;
    }
    sheet_printf(
        s,
        "<p id=\"map-help\" class=\"faint\">Elements of all tensors to the right, %zu files "
        "downwards. With the map in focus: arrows move it, + and - zoom, Home shows all, n and p "
        "go from tensor to tensor, Enter shows the tensor in the middle. Mouse: drag to move, "
        "click and turn the wheel to zoom. The table of tensors lists the same as text.</p>\n<div "
        "class=\"bar-row\" role=\"group\" aria-label=\"View of the map\"><button type=\"button\" "
        "id=\"in\">Zoom in</button><button type=\"button\" id=\"out\">Zoom out</button><button "
        "type=\"button\" id=\"fit\">Show all</button><label><input type=\"checkbox\" id=\"equal\"> "
        "tensors of equal width</label></div>\n<canvas id=\"canvas\" tabindex=\"0\" "
        "role=\"application\" aria-roledescription=\"zoomable map\" aria-label=\"Map of files and "
        "tensors\" aria-describedby=\"map-help where\"></canvas>\n<p id=\"where\" role=\"status\" "
        "aria-live=\"polite\"></p></section>\n",
        p->n_used);
}

static void page_tensors(sheet *s)
{
    sheet_printf(
        s,
        "<section aria-labelledby=\"tensors\"><h2 id=\"tensors\">Tensors</h2>\n"
        "<noscript><p class=\"trouble\">The table of tensors and the map need JavaScript; "
        "<code>ckpt ls -l</code> prints the same as text.</p></noscript>\n"
        "<div class=\"bar-row\" role=\"search\"><label for=\"search\">Search</label>"
        "<input type=\"search\" id=\"search\" placeholder=\"part of a name, or layers.*.weight\" "
        "size=\"34\" autocomplete=\"off\" spellcheck=\"false\"><label for=\"dtype\">dtype</label>"
        "<select id=\"dtype\"><option value=\"\">all</option></select>"
        "<span id=\"found\" role=\"status\" aria-live=\"polite\"></span></div>\n"
        "<div id=\"one\" role=\"region\" aria-label=\"One tensor\" hidden></div>\n"
        "<div class=\"wide\"><table><caption>Tensors: a name opens its details, a head sorts"
        "</caption><thead id=\"head\"></thead><tbody id=\"rows\"></tbody></table></div>\n"
        "<p><button type=\"button\" id=\"more\" hidden>Show more</button></p></section>\n");
}

static void page_files(sheet *s, const page *p)
{
    const parts *all = p->parts;
    char bytes[HUMAN_ROOM], held[HUMAN_ROOM];

    sheet_printf(s,
                 "<section aria-labelledby=\"files\"><h2 id=\"files\">Files</h2>\n<details%s>"
                 "<summary>%zu files, %zu of them with elements of these tensors</summary>"
                 "<div class=\"wide\"><table><thead><tr><th scope=\"col\">File</th>"
                 "<th scope=\"col\" class=\"n\">Size</th><th scope=\"col\" class=\"n\">Of these "
                 "tensors</th></tr></thead><tbody>\n",
                 all->n_files <= PAGE_OPEN_ROWS ? " open" : "", all->n_files, all->n_used);
    for (size_t i = 0; i < all->n_files; i++) {
        sheet_printf(s, "<tr><th scope=\"row\" class=\"name\">");
        sheet_text(s, map_relative(p->map, all->file[i].path), 0);
        sheet_printf(s, "</th><td class=\"n\">%s</td><td class=\"n\">%s</td></tr>\n",
                     human_bytes(bytes, all->file[i].n_bytes),
                     human_bytes(held, all->file[i].held));
    }
    sheet_printf(s, "</tbody></table></div></details></section>\n");
}

void page_write(sheet *s, const page *p)
{
    page_head(s, p);
    page_links(s, p);
    page_facts(s, p);
    page_tags(s, p->run);
    if (p->curves)
        section_curves(s, p->curves);
    if (p->differ)
        section_differences(s, p->differ, p->other);
    if (p->map) {
        page_layers(s, p->layers);
        page_map(s, p->parts);
        page_tensors(s);
        page_files(s, p);
    }
    sheet_printf(s, "</main>\n<footer class=\"faint\"><p>Made by ckpt %s.</p></footer>\n",
                 ckpt_version());
    if (p->map) {
        data_write(s, p);
        style_script(s);
    }
    sheet_printf(s, "</body>\n</html>\n");
}
