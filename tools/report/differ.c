/* SPDX-License-Identifier: Apache-2.0 */
/* differ.c: collects the differences that ckpt_diff reports, by name, in rows and columns. */
#include "tools/report/differ.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/out.h"
#include "tools/report/layers.h"

/* Names sorted by their bytes, for searching. */
typedef struct differ_name {
    const char *name;
    size_t at;
} differ_name;

typedef struct differ_all {
    differ *out;
    differ_name *names; /* sorted, without duplicates */
    size_t n;
    const ckpt_run_opts *run;
} differ_all;

unsigned differ_level(const difference *d)
{
    unsigned level = 1;

    if (!(d->what & DIFFER_VALUES))
        return 0;
    // values compared by bits have no distance
    if (d->max_abs < 0)
        return DIFFER_LEVELS;
    for (double limit = 1e-6; level < DIFFER_LEVELS && d->max_abs > limit; limit *= 100)
        level++;
    return level;
}

const char *differ_word(char buf[DIFFER_WORD], const difference *d)
{
    const char *word = d->what & DIFFER_ONLY_A   ? "only A"
                       : d->what & DIFFER_ONLY_B ? "only B"
                       : d->what & DIFFER_SHAPE  ? "shape"
                       : d->what & DIFFER_DTYPE  ? "dtype"
                       : d->max_abs < 0          ? "bits"
                                                 : NULL;

    if (!d->what)
        word = "=";
    if (word)
        (void)snprintf(buf, DIFFER_WORD, "%s", word);
    else
        (void)snprintf(buf, DIFFER_WORD, "%.2g", d->max_abs);
    return buf;
}

static int differ_order(const void *a, const void *b)
{
    const differ_name *x = a, *y = b;
    int order = strcmp(x->name, y->name);

    return order ? order : x->at < y->at ? -1 : 1;
}

static int differ_by_name(const void *a, const void *b)
{
    return strcmp(((const differ_name *)a)->name, ((const differ_name *)b)->name);
}

/* Find the entry of a name, or NULL. */
static difference *differ_find(const differ_all *all, const char *name)
{
    const differ_name key = {.name = name};
    const differ_name *found =
        bsearch(&key, all->names, all->n, sizeof *all->names, differ_by_name);

    return found ? &all->out->at[found->at] : NULL;
}

/* Add one difference; a name may have two, of its dtype and of its values. */
static int differ_one(void *ctx, const ckpt_difference *from)
{
    differ_all *all = ctx;
    difference *d = differ_find(all, from->name);

    if (!d)
        return 0;
    if (strcmp(from->what, "values") == 0) {
        d->what |= DIFFER_VALUES;
        d->n_different = from->n_different;
        d->max_abs = from->max_abs;
    } else if (!from->b) {
        d->what |= DIFFER_ONLY_A;
    } else if (!from->a) {
        d->what |= DIFFER_ONLY_B;
    } else {
        d->what |= strcmp(from->what, "shape") == 0 ? DIFFER_SHAPE : DIFFER_DTYPE;
    }
    return 0;
}

/* Collect all names once: those of A, then those that only B has. */
static int differ_names(differ_all *all, const ckpt_map *a, const ckpt_map *b, ckpt_err *err)
{
    size_t n_a = ckpt_map_tensor_count(a), n = n_a + ckpt_map_tensor_count(b), kept = 0;
    differ *out = all->out;

    out->at = calloc(n ? n : 1, sizeof *out->at);
    all->names = calloc(n ? n : 1, sizeof *all->names);
    if (!out->at || !all->names)
        return fail(err, CKPT_ELIMIT, "out of memory");
    out->n = out->n_a = n_a;
    for (size_t i = 0; i < n; i++) {
        const ckpt_tensor *t = i < n_a ? ckpt_map_tensor_at(a, i) : ckpt_map_tensor_at(b, i - n_a);
        all->names[i] = (differ_name){t->name, i};
        out->at[i].name = t->name;
    }
    qsort(all->names, n, sizeof *all->names, differ_order);
    // for names in both, keep A's entry; B's other entries follow in B's order
    for (size_t i = 0; i < n; i++) {
        if (kept > 0 && strcmp(all->names[kept - 1].name, all->names[i].name) == 0)
            out->at[all->names[i].at].name = NULL;
        else
            all->names[kept++] = all->names[i];
    }
    all->n = kept;
    for (size_t i = n_a; i < n; i++) {
        const char *name = out->at[i].name;
        if (!name)
            continue;
        out->at[out->n].name = name;
        const differ_name key = {.name = name};
        differ_name *found = bsearch(&key, all->names, kept, sizeof key, differ_by_name);
        found->at = out->n++;
    }
    return CKPT_OK;
}

/* Take the names out of a list of layers, in their order. */
static char **differ_take(layers *l, size_t *n)
{
    char **names = calloc(l->n ? l->n : 1, sizeof *names);

    *n = names ? l->n : 0;
    for (size_t i = 0; names && i < l->n; i++) {
        names[i] = l->at[i].name;
        l->at[i].name = NULL;
    }
    return names;
}

/* Arrange the names in rows and columns. */
static int differ_place(differ *d, ckpt_err *err)
{
    layers rows = {0}, columns = {0};
    bool lost = false;

    for (size_t i = 0; i < d->n && !lost; i++) {
        const char *name = d->at[i].name, *rest = layer_rest(name);
        d->at[i].row = layers_find(&rows, name, layer_of(name));
        d->at[i].column = layers_find(&columns, rest, strlen(rest));
        lost = d->at[i].row == SIZE_MAX || d->at[i].column == SIZE_MAX;
    }
    if (!lost) {
        d->row = differ_take(&rows, &d->n_rows);
        d->column = differ_take(&columns, &d->n_columns);
        // calloc fails if there are too many cells, which no picture could show
        d->cell = calloc(d->n_rows * d->n_columns + 1, sizeof *d->cell);
        lost = !d->row || !d->column || !d->cell;
    }
    for (size_t i = 0; i < d->n && !lost; i++) {
        d->cell[d->at[i].row * d->n_columns + d->at[i].column] = i + 1;
        d->n_different += d->at[i].what != 0;
    }
    layers_free(&rows);
    layers_free(&columns);
    return lost ? fail(err, CKPT_ELIMIT, "out of memory") : CKPT_OK;
}

int differ_make(differ *out, const ckpt_map *a, const ckpt_map *b, const ckpt_run_opts *run,
                ckpt_err *err)
{
    const ckpt_diff_opts opts = {
        .size = sizeof opts, .progress = run->progress, .progress_ctx = run->progress_ctx};
    differ_all all = {.out = out, .run = run};

    *out = (differ){0};
    int rc = differ_names(&all, a, b, err);
    if (rc == CKPT_OK)
        rc = ckpt_diff(a, b, &opts, differ_one, &all, err);
    if (rc == CKPT_EDIFFERS) {
        // differences are the expected result
        *err = (ckpt_err){0};
        rc = CKPT_OK;
    }
    if (rc == CKPT_OK)
        rc = differ_place(out, err);
    free(all.names);
    return rc;
}

static void differ_drop(char **names, size_t n)
{
    for (size_t i = 0; names && i < n; i++)
        free(names[i]);
    free(names);
}

void differ_free(differ *d)
{
    differ_drop(d->row, d->n_rows);
    differ_drop(d->column, d->n_columns);
    free(d->cell);
    free(d->at);
    *d = (differ){0};
}
