/* SPDX-License-Identifier: Apache-2.0 */
/*
 * legacy_steps.c: checks that the optimizers of all ranks counted the same steps and have the same
 * settings.
 */
#include <assert.h>
#include <string.h>

#include "ckpt.h"
#include "formats/megatron/legacy.h"

enum { MGX_COUNTS = 4096, MGX_NODES = 1 << 20 };

/* The step count of one optimizer, where it was seen first. */
typedef struct mgx_count {
    const char *prefix; /* n bytes: the text before ".state." or ".param_groups" */
    size_t n;
    const char *path; /* the file that has this count */
    double step;
} mgx_count;

typedef struct mgx_steps {
    const ckpt_meg_job *job;
    mgx_count *of; /* room for MGX_COUNTS */
    size_t n;
    bool found; /* a difference was reported; the first is enough */
} mgx_steps;

/* Report a rank's count that differs from an earlier one. */
static int mgx_report(mgx_steps *s, const mgx_count *first, double step, const char *path)
{
    s->found = true;
    if (first->path != path)
        return ckpt_map_problem(s->job->map, CKPT_EMISMATCH, s->job->err,
                                "%s: its optimizer counts %.0f steps, but that in %s counts "
                                "%.0f: they are from different saves",
                                path, step, first->path, first->step);
    return ckpt_map_problem(s->job->map, CKPT_EMISMATCH, s->job->err,
                            "%s: its optimizer counts %.0f steps for one parameter or group and "
                            "%.0f for another, but a converted run has one count: use another "
                            "save, or convert the weights alone",
                            path, first->step, step);
}

/* Compare a count with the optimizer's first one in the rank and in the run. */
static int mgx_compare(mgx_steps *s, const char *prefix, size_t n, double step, const char *path)
{
    const mgx_count *run = NULL, *rank = NULL;

    for (size_t i = 0; i < s->n; i++) {
        const mgx_count *c = &s->of[i];
        if (c->n != n || memcmp(c->prefix, prefix, n) != 0)
            continue;
        run = run ? run : c;
        rank = c->path == path ? c : rank;
    }
    // one file is of one save, and weights need no counts
    if (rank && rank->step != step && s->job->opts->with_optimizer)
        return mgx_report(s, rank, step, path);
    if (rank)
        return CKPT_OK;
    if (run && run->step != step)
        return mgx_report(s, run, step, path);
    if (s->n < MGX_COUNTS)
        s->of[s->n++] = (mgx_count){.prefix = prefix, .n = n, .path = path, .step = step};
    return CKPT_OK;
}

/* Compare the counts that a rank keeps for each parameter: "<optimizer>.state.<number>.step". */
static int mgx_rank(mgx_steps *s, const ckpt_meg_rank *rank, ckpt_reader *reader)
{
    for (size_t i = 0; i < rank->map->tensors.n; i++) {
        const ckpt_tensor *t = rank->map->tensors.at[i];
        const char *state = strstr(t->name, ".state."), *leaf = strrchr(t->name, '.');
        double step = 0;

        if (!state || strcmp(leaf, ".step") != 0 || t->n_elems != 1)
            continue;
        int rc = ckpt_reader_read(reader, t, 0, 1, CKPT_F64, &step, s->job->err);
        if (rc == CKPT_OK)
            rc = mgx_compare(s, t->name, (size_t)(state - t->name), step, rank->path);
        if (rc != CKPT_OK || s->found)
            return rc;
    }
    return CKPT_OK;
}

/* Compare the counts that a rank keeps for each group of an optimizer. */
static int mgx_groups(mgx_steps *s, const ckpt_meg_rank *rank, const ckpt_value *optimizer,
                      size_t number)
{
    const ckpt_value *inner = ckpt_value_get(optimizer, "optimizer");
    const ckpt_seq groups =
        ckpt_value_seq(ckpt_value_get(inner ? inner : optimizer, "param_groups"));
    const char *name = ckpt_arena_printf(s->job->map->arena, "groups of %zu", number);
    int rc = name ? CKPT_OK : ckpt_fail_memory(s->job->err);

    for (uint64_t i = 0; rc == CKPT_OK && i < groups.n && !s->found; i++) {
        const ckpt_value *v = ckpt_value_get(groups.at[i], "step");
        if (v && v->kind == CKPT_V_INT)
            rc = mgx_compare(s, name, strlen(name), (double)v->as.i, rank->path);
    }
    return rc;
}

/* Compare the counts of all optimizers of a rank. */
static int mgx_all_groups(mgx_steps *s, const ckpt_meg_rank *rank)
{
    const ckpt_value *v = ckpt_value_get(rank->root, "optimizer");
    const ckpt_seq list = ckpt_value_seq(v);
    int rc = CKPT_OK;

    if (!v || v->kind != CKPT_V_LIST)
        return mgx_groups(s, rank, v, 0);
    for (uint64_t i = 0; rc == CKPT_OK && i < list.n; i++)
        rc = mgx_groups(s, rank, list.at[i], (size_t)i);
    return rc;
}

int ckpt_meg_same_steps(const ckpt_meg_job *job, const ckpt_meg_grid *grid)
{
    assert(job && grid);
    mgx_steps s = {.job = job,
                   .of = ckpt_arena_array(job->map->arena, MGX_COUNTS, sizeof(mgx_count))};
    ckpt_reader *reader = NULL;
    int rc = s.of ? ckpt_reader_new(&reader, job->map, job->err) : ckpt_fail_memory(job->err);

    for (size_t i = 0; rc == CKPT_OK && !s.found && i < grid->rank.n; i++)
        rc = mgx_rank(&s, &grid->rank.at[i], reader);
    for (size_t i = 0; rc == CKPT_OK && !s.found && i < grid->rank.n; i++)
        rc = mgx_all_groups(&s, &grid->rank.at[i]);
    ckpt_reader_free(reader);
    return rc;
}

/* ---- settings ---- */

/* Find a member that differs between two dicts, except `skip`, unless one is known; NULL: none. */
static int mgx_differs(const char **what, const ckpt_value *a, const ckpt_value *b,
                       const char *const *skip, ckpt_err *err)
{
    int rc = CKPT_OK;

    for (unsigned side = 0; side < 2; side++) {
        ckpt_dict all = ckpt_value_map(side ? b : a);
        for (uint64_t i = 0; rc == CKPT_OK && !*what && i < all.n; i++) {
            const ckpt_value *key = all.at[i].key, *other;
            bool skipped = key->kind != CKPT_V_STR, same = false;
            for (size_t k = 0; !skipped && skip[k]; k++)
                skipped = ckpt_value_is(key, skip[k]);
            other = skipped ? NULL : ckpt_value_get(side ? a : b, key->as.text.at);
            if (other)
                rc = ckpt_value_compare(&same, all.at[i].value, other, MGX_NODES, err);
            if (rc == CKPT_OK && !skipped && !same)
                *what = key->as.text.at;
        }
    }
    return rc;
}

/* Compare the groups and other values of one optimizer with those of the first rank. */
static int mgx_same_optimizer(const ckpt_meg_job *job, const ckpt_meg_rank *first,
                              const ckpt_meg_rank *rank, const ckpt_value *a, const ckpt_value *b)
{
    static const char *const params[] = {"params", NULL}, *const read[] = {
                                                              "optimizer",
                                                              "state",
                                                              "param_groups",
                                                              "fp32_from_fp16_params",
                                                              "shard_fp32_from_float16_groups",
                                                              NULL};
    const ckpt_value *inner_a = ckpt_value_get(a, "optimizer"),
                     *inner_b = ckpt_value_get(b, "optimizer");
    ckpt_seq x = ckpt_value_seq(ckpt_value_get(inner_a ? inner_a : a, "param_groups")),
             y = ckpt_value_seq(ckpt_value_get(inner_b ? inner_b : b, "param_groups"));
    const char *what = NULL;
    int rc = CKPT_OK;

    for (uint64_t g = 0; rc == CKPT_OK && x.n == y.n && g < x.n; g++)
        rc = mgx_differs(&what, x.at[g], y.at[g], params, job->err);
    if (rc == CKPT_OK)
        rc = mgx_differs(&what, a, b, read, job->err);
    if (rc == CKPT_OK && inner_a && inner_b)
        rc = mgx_differs(&what, inner_a, inner_b, read, job->err);
    if (rc != CKPT_OK)
        return rc;
    return what ? ckpt_map_problem(job->map, CKPT_EMISMATCH, job->err,
                                   "%s: '%.100s' of its optimizer differs from that in %s: the "
                                   "ranks were trained with different settings, or are from "
                                   "different saves",
                                   rank->path, what, first->name)
                : CKPT_OK;
}

int ckpt_meg_same_settings(const ckpt_meg_job *job, const ckpt_meg_grid *grid)
{
    assert(job && grid && grid->rank.n > 0);
    static const char *const schedule[] = {"opt_param_scheduler", "lr_scheduler"};
    const ckpt_meg_rank *first = &grid->rank.at[0];
    const ckpt_value *a = ckpt_value_get(first->root, "optimizer");
    ckpt_seq listed = ckpt_value_seq(a);
    int rc = CKPT_OK;

    for (size_t i = 1; rc == CKPT_OK && i < grid->rank.n; i++) {
        const ckpt_meg_rank *rank = &grid->rank.at[i];
        const ckpt_value *b = ckpt_value_get(rank->root, "optimizer");
        ckpt_seq own = ckpt_value_seq(b);
        for (size_t k = 0; rc == CKPT_OK && k < 2; k++) {
            const ckpt_value *x = ckpt_value_get(first->root, schedule[k]),
                             *y = ckpt_value_get(rank->root, schedule[k]);
            bool same = x == y;
            if (!same && x && y)
                rc = ckpt_value_compare(&same, x, y, MGX_NODES, job->err);
            if (rc == CKPT_OK && !same)
                rc = ckpt_map_problem(job->map, CKPT_EMISMATCH, job->err,
                                      "%s: its %s differs from that in %s: the ranks were trained "
                                      "with different settings, or are from different saves",
                                      rank->path, schedule[k], first->name);
        }
        if (rc == CKPT_OK && !listed.n)
            rc = mgx_same_optimizer(job, first, rank, a, b);
        for (uint64_t o = 0; rc == CKPT_OK && o < listed.n && o < own.n; o++)
            rc = mgx_same_optimizer(job, first, rank, listed.at[o], own.at[o]);
    }
    return rc;
}
