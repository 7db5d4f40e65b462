/* SPDX-License-Identifier: Apache-2.0 */
/* diff_stats.c: prints the sums by groups of compared tensors, as text and as JSON. */
#include "tools/ckpt/diff_stats.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/out.h"

enum { DFS_NAME = 60 /* columns of a group's name */ };

int diff_stats_add(diff_stats *groups, const ckpt_diff_group *g)
{
    char *name = strdup(g->name);
    diff_stat *own = name ? ckpt_vec_push(groups) : NULL;

    if (!own) {
        free(name);
        return 1;
    }
    own->group = *g;
    own->name = name;
    return 0;
}

void diff_stats_free(diff_stats *groups)
{
    for (size_t i = 0; i < groups->n; i++)
        free(groups->at[i].name);
    ckpt_vec_free(groups);
}

/* Format the part n of all elements in percent; never 0 % of some, or 100 % of less than all. */
static const char *dfs_share(char text[32], uint64_t n, uint64_t all)
{
    if (n == 0 || n == all)
        return n == 0 ? "0 %" : "100 %";
    (void)snprintf(text, 32, "%.3g %%", 100 * ((double)n / (double)all));
    return strcmp(text, "100 %") == 0 ? ">99.9 %" : text;
}

/* Format a distance; "-": it is not defined. */
static const char *dfs_distance(char text[32], double x, int digits)
{
    if (isnan(x))
        return "-";
    (void)snprintf(text, 32, "%.*g", digits, x);
    return text;
}

/* Print "  NaN: 3 in A, 0 in B" if there are any. */
static void dfs_odd(const char *what, uint64_t a, uint64_t b)
{
    if (a || b)
        out_printf("  %s: %" PRIu64 " in A, %" PRIu64 " in B", what, a, b);
}

void diff_stats_text(const diff_stats *groups)
{
    size_t width = strlen("group");

    for (size_t i = 0; i < groups->n; i++) {
        const size_t n = text_width(groups->at[i].name);
        width = n > width && n <= DFS_NAME ? n : width;
    }
    out_padded("group", width);
    out_printf("  tensors  changed     relative error  cosine         largest\n");
    for (size_t i = 0; i < groups->n; i++) {
        const ckpt_diff_group *g = &groups->at[i].group;
        char share[32], error[32], cosine[32], most[32];

        out_padded(groups->at[i].name, width);
        out_printf("  %7" PRIu64 "  %-10s  %-14s  %-13s  %s", g->n_tensors,
                   dfs_share(share, g->n_different, g->n_elems),
                   dfs_distance(error, g->relative_error, 6), dfs_distance(cosine, g->cosine, 9),
                   dfs_distance(most, g->max_abs, 6));
        dfs_odd("NaN", g->n_nan_a, g->n_nan_b);
        dfs_odd("infinite", g->n_inf_a, g->n_inf_b);
        out_printf("\n");
    }
}

/* A number, or null if it is not defined. */
static void dfs_json_real(json_out *j, const char *key, double x)
{
    if (isnan(x))
        json_text(j, key, NULL);
    else
        json_real(j, key, x);
}

void diff_stats_json(json_out *j, const diff_stats *groups)
{
    json_open(j, "groups", '[');
    for (size_t i = 0; i < groups->n; i++) {
        const ckpt_diff_group *g = &groups->at[i].group;

        json_open(j, NULL, '{');
        json_text(j, "name", groups->at[i].name);
        json_uint(j, "tensors", g->n_tensors);
        json_uint(j, "tensors_different", g->n_tensors_different);
        json_uint(j, "elements", g->n_elems);
        json_uint(j, "elements_different", g->n_different);
        dfs_json_real(j, "relative_error", g->relative_error);
        dfs_json_real(j, "cosine", g->cosine);
        dfs_json_real(j, "max_abs", g->max_abs);
        json_uint(j, "nan_a", g->n_nan_a);
        json_uint(j, "nan_b", g->n_nan_b);
        json_uint(j, "infinite_a", g->n_inf_a);
        json_uint(j, "infinite_b", g->n_inf_b);
        json_close(j, '}');
    }
    json_close(j, ']');
}
