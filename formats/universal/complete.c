/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complete.c: reports state files that zero/ should hold but does not.
 *
 * A universal checkpoint has no list of its files. Parameters of one optimizer all have the same
 * kinds of state, so that a parameter with a proper subset of another parameter's kinds has lost
 * files in a copy. Parameters of two optimizers (Muon and AdamW) do not count as damaged, because
 * each has a kind that the other lacks.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/universal/universal.h"

enum { UCM_KINDS = 64 }; /* kinds of state; far above any optimizer's number */

typedef struct ucm {
    ckpt_uni *u;
    const char *kind[UCM_KINDS]; /* without fp32 */
    size_t n_kinds;
    uint64_t *sets; /* bit set of the kinds of each parameter */
} ucm;

/* The bit of a kind; 0 for fp32 and for kinds beyond UCM_KINDS. */
static uint64_t ucm_bit(ucm *c, const char *name)
{
    size_t k = 0;

    if (strcmp(name, "fp32") == 0)
        return 0;
    while (k < c->n_kinds && strcmp(c->kind[k], name) != 0)
        k++;
    if (k == UCM_KINDS)
        return 0;
    c->kind[k] = name;
    c->n_kinds += k == c->n_kinds;
    return UINT64_C(1) << k;
}

static void ucm_survey(ucm *c)
{
    const ckpt_uni *u = c->u;

    for (size_t i = 0; i < u->param.n; i++) {
        size_t at = u->param.at[i].entry;
        const ckpt_uni_entry *e = at != SIZE_MAX ? &u->dir.entry.at[at] : NULL;
        for (size_t k = 0; e && k < e->n; k++)
            c->sets[i] |= ucm_bit(c, u->dir.file.at[e->first + k]);
    }
}

/* The kinds by which a proper superset in `seen` exceeds `set`, or 0. */
static uint64_t ucm_lacks(const uint64_t *seen, size_t n, uint64_t set)
{
    for (size_t i = 0; i < n; i++) {
        if ((seen[i] & set) == set && seen[i] != set)
            return seen[i] & ~set;
    }
    return 0;
}

static int ucm_say(const ucm *c, size_t param, uint64_t lacks)
{
    ckpt_uni *u = c->u;
    const ckpt_uni_param *p = &u->param.at[param];
    size_t k = 0;

    while (!(lacks >> k & 1))
        k++;
    // a warning, because the weights are whole without this file
    if (!u->job.opts->with_optimizer)
        return ckpt_map_note(u->job.map, CKPT_WARNING, u->job.err,
                             "%s/%s.pt is not there, though other parameters have it: the run "
                             "cannot be resumed",
                             u->dir.entry.at[p->entry].path, c->kind[k]);
    return ckpt_ds_problem(&u->job, CKPT_EMISSING,
                           "%s/%s.pt is not there, though other parameters have it: the conversion "
                           "did not finish, or it was not copied",
                           u->dir.entry.at[p->entry].path, c->kind[k]);
}

int ckpt_uni_complete(ckpt_uni *u)
{
    ucm c = {.u = u, .sets = ckpt_alloc((u->param.n + 1) * sizeof(uint64_t))};
    uint64_t seen[UCM_KINDS];
    size_t n = 0;
    int rc = c.sets ? CKPT_OK : ckpt_fail_memory(u->job.err);

    if (rc == CKPT_OK)
        ucm_survey(&c);
    for (size_t i = 0; rc == CKPT_OK && i < u->param.n; i++) {
        size_t k = 0;
        while (k < n && seen[k] != c.sets[i])
            k++;
        if (k == n && n < UCM_KINDS)
            seen[n++] = c.sets[i];
    }
    for (size_t i = 0; rc == CKPT_OK && i < u->param.n; i++) {
        const ckpt_uni_param *p = &u->param.at[i];
        uint64_t lacks = ucm_lacks(seen, n, c.sets[i]);
        if (lacks && p->trained && p->entry != SIZE_MAX && (!p->t || p->t->n_elems > 0))
            rc = ucm_say(&c, i, lacks);
    }
    ckpt_free(c.sets);
    return rc;
}

int ckpt_uni_models(ckpt_uni *u)
{
    const ckpt_value *step = ckpt_value_get(u->head.model.root, "global_steps");
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && u->dir.whole.n && i < u->dir.parts.n; i++) {
        ckpt_ds_shard s;
        rc = ckpt_ds_shard_open(&u->job, &s, &u->dir.parts.at[i]);
        const ckpt_value *other = s.map ? ckpt_value_get(s.root, "global_steps") : NULL;
        if (rc == CKPT_OK && step && other && !ckpt_value_equal(step, other, 16))
            rc = ckpt_ds_problem(&u->job, CKPT_EMISMATCH,
                                 "%s: is of another step than %s: from another save",
                                 u->dir.parts.at[i].path, u->dir.whole.at[0].path);
        ckpt_ds_shard_close(&s);
    }
    return rc;
}
