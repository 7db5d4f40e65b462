/* SPDX-License-Identifier: Apache-2.0 */
/* tags.c: copies the results of ckpt_doctor. */
#include "tools/report/tags.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/out.h"

const char *tags_state(ckpt_tag_health health)
{
    static const char *const names[] = {"complete", "partial", "damaged", "mixed", "unknown"};

    return names[health];
}

static char *tags_copy(tags *t, const char *text)
{
    char *copy = strdup(text ? text : "");

    t->lost = t->lost || !copy;
    return copy;
}

static int tags_keep(void *ctx, const ckpt_tag *from)
{
    tags *t = ctx;
    tag *to = ckpt_vec_push(t);

    t->lost = t->lost || !to;
    if (!to)
        return 1;
    *to = (tag){.name = tags_copy(t, from->name),
                .reason = tags_copy(t, from->reason),
                .health = from->health,
                .step = from->step,
                .stage = from->stage,
                .world = from->world,
                .n_bytes = from->n_bytes,
                .is_latest = from->is_latest,
                .is_universal = from->is_universal,
                .run = t->run.n};
    t->most_bytes = from->n_bytes > t->most_bytes ? from->n_bytes : t->most_bytes;
    return t->lost;
}

/*
 * True if the tag is the newest complete one, according to its run (with or without the run's
 * name).
 */
static bool tags_is(const tag *t, const ckpt_run_health *run)
{
    size_t n = strlen(t->name), m = run->newest ? strlen(run->newest) : 0;

    return m > 0 && n >= m && strcmp(t->name + n - m, run->newest) == 0 &&
           (n == m || t->name[n - m - 1] == '/');
}

static int tags_keep_run(void *ctx, const ckpt_run_health *from)
{
    tags *t = ctx;

    for (size_t i = 0; i < t->n; i++) {
        if (t->at[i].run == t->run.n && t->at[i].name)
            t->at[i].is_newest = tags_is(&t->at[i], from);
    }
    tags_run *to = ckpt_vec_push(&t->run);
    t->lost = t->lost || !to;
    if (!to)
        return 1;
    *to = (tags_run){.name = tags_copy(t, from->name),
                     .pointer = tags_copy(t, from->pointer),
                     .latest = tags_copy(t, from->latest),
                     .newest = tags_copy(t, from->newest),
                     .reason = tags_copy(t, from->reason),
                     .good = from->code == CKPT_OK};
    return t->lost;
}

/* The sort key of a tag: its step, or else the number at the end of its name. */
static int64_t tags_when(const tag *t)
{
    size_t n = strlen(t->name), at = n;
    int64_t step = 0;

    if (t->step >= 0)
        return t->step;
    while (at > 0 && n - at < 18 && t->name[at - 1] >= '0' && t->name[at - 1] <= '9')
        at--;
    for (size_t i = at; i < n; i++)
        step = 10 * step + (t->name[i] - '0');
    return at < n ? step : -1;
}

/* Sort each run's tags, oldest first; tags of the same step keep their order. */
static void tags_sort(tags *t)
{
    for (size_t i = 1; i < t->n; i++) {
        const tag one = t->at[i];
        size_t k = i;
        for (; k > 0 && t->at[k - 1].run == one.run && tags_when(&t->at[k - 1]) > tags_when(&one);
             k--)
            t->at[k] = t->at[k - 1];
        t->at[k] = one;
    }
}

int tags_make(tags *out, const char *path, const ckpt_run_opts *run, ckpt_err *err)
{
    const ckpt_doctor_opts opts = {
        .run = run, .tag = tags_keep, .health = tags_keep_run, .ctx = out};
    ckpt_err said = {0};

    *out = (tags){0};
    // other failures are not errors here: the copies contain damaged tags and reasons, and a file
    // has no tags
    int rc = ckpt_doctor(path, &opts, &said);
    if (out->lost || rc == CKPT_ELIMIT)
        return fail(err, CKPT_ELIMIT, "out of memory");
    if (rc != CKPT_ECANCELED) {
        tags_sort(out);
        return CKPT_OK;
    }
    *err = said;
    return rc;
}

void tags_free(tags *t)
{
    for (size_t i = 0; i < t->n; i++) {
        free(t->at[i].name);
        free(t->at[i].reason);
    }
    for (size_t i = 0; i < t->run.n; i++) {
        free(t->run.at[i].name);
        free(t->run.at[i].pointer);
        free(t->run.at[i].latest);
        free(t->run.at[i].newest);
        free(t->run.at[i].reason);
    }
    ckpt_vec_free(t);
    ckpt_vec_free(&t->run);
    *t = (tags){0};
}
