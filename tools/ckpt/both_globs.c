/* SPDX-License-Identifier: Apache-2.0 */
/* both_globs.c: applies --include and --exclude to the two sides of a comparison. */
#include "tools/ckpt/both_globs.h"

#include <fnmatch.h>
#include <stdlib.h>

#include "tools/cli/out.h"

int both_globs_new(both_globs *g, const cli_args *a, ckpt_err *err)
{
    const size_t n = a->include.n + a->exclude.n + 1;

    g->seen = calloc(n, sizeof *g->seen);
    g->met = calloc(n, sizeof *g->met);
    return g->seen && g->met ? CKPT_OK : fail(err, CKPT_ELIMIT, "out of memory");
}

void both_globs_free(both_globs *g)
{
    free(g->seen);
    free(g->met);
    *g = (both_globs){0};
}

static bool bgl_any(const cli_list *globs, const char *name)
{
    bool any = false;

    for (size_t i = 0; !any && i < globs->n; i++)
        any = fnmatch(globs->at[i], name, 0) == 0;
    return any;
}

/* True if a glob matches a name; --exclude means only names that --include keeps. */
static bool bgl_meets(const cli_args *a, const char *glob, const ckpt_map *map, bool exclude)
{
    bool met = false;

    for (size_t i = 0; !met && i < ckpt_map_tensor_count(map); i++) {
        const char *name = ckpt_map_tensor_at(map, i)->name;

        met = fnmatch(glob, name, 0) == 0 &&
              (!exclude || a->include.n == 0 || bgl_any(&a->include, name));
    }
    return met;
}

void both_globs_see(both_globs *g, const cli_args *a, const ckpt_map *map, bool used)
{
    const size_t n = a->include.n;
    bool *to = used ? g->met : g->seen;

    for (size_t i = 0; i < n + a->exclude.n; i++)
        to[i] = to[i] || bgl_meets(a, i < n ? a->include.at[i] : a->exclude.at[i - n], map, i >= n);
}

/* List the globs that match a name of a side; returns their number. */
static size_t bgl_list(const char **out, const cli_args *a, const ckpt_map *map, bool exclude)
{
    const cli_list *of = exclude ? &a->exclude : &a->include;
    size_t n = 0;

    for (size_t i = 0; i < of->n; i++) {
        if (bgl_meets(a, of->at[i], map, exclude))
            out[n++] = of->at[i];
    }
    return n;
}

int both_globs_select(both_globs *g, const cli_args *a, ckpt_map *map, ckpt_err *err)
{
    const char **in = calloc(a->include.n + 1, sizeof *in);
    const char **out = calloc(a->exclude.n + 1, sizeof *out);
    ckpt_filter filter;
    int rc = CKPT_OK;

    if (!in || !out) {
        rc = fail(err, CKPT_ELIMIT, "out of memory");
    } else if (args_filter(&filter, a)) {
        both_globs_see(g, a, map, true);
        // without a match on this side, ckpt_map_select says that nothing is left
        if (bgl_list(in, a, map, false) > 0)
            filter.include = in;
        filter.exclude = bgl_list(out, a, map, true) > 0 ? out : NULL;
        if (filter.include || filter.exclude)
            rc = ckpt_map_select(map, &filter, err);
    }
    free(in);
    free(out);
    return rc;
}

void both_globs_say(const both_globs *g, const cli_args *a)
{
    const size_t n = a->include.n;

    for (size_t i = 0; i < n + a->exclude.n; i++) {
        const char *word = i < n ? "include" : "exclude";
        const char *glob = i < n ? a->include.at[i] : a->exclude.at[i - n];

        if (!g->met[i] && !g->seen[i])
            say_warning("%s '%s': matches no tensor of either side", word, glob);
        else if (!g->met[i] && !a->quiet && !a->json)
            say_note("%s '%s': matches only names that were left out or changed before the "
                     "comparison",
                     word, glob);
    }
}
