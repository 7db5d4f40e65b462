/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complete.c: reports state files that zero/ should hold but does not.
 *
 * A universal checkpoint has no list of its files. Parameters of one optimizer all have the same
 * kinds of state, so a parameter with a proper subset of another parameter's kinds has lost files
 * in a copy. Parameters of two optimizers (Muon and AdamW) do not count as damaged, because each
 * has a kind that the other lacks.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/universal/universal.h"

#include "formats/deepspeed/layout/same.h"

enum { UCM_KINDS = 64 }; /* limit of kinds of state; far above that of any optimizer */

typedef struct ucm {
    ckpt_uni *u;
    const char *kind[UCM_KINDS]; /* without fp32 */
    size_t n_kinds;
    uint64_t *sets; /* per parameter: set of its kinds of state, as bits */
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

/* Kinds that another parameter has besides all of `set`, because `set` may lack files; or 0. */
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
    // only a warning, because the weights are complete without this file
    if (!u->job.opts->with_optimizer)
        return ckpt_map_note(u->job.map, CKPT_WARNING, u->job.err,
                             "%s/%s.pt is missing, but other parameters have it: the run "
                             "cannot be resumed",
                             u->dir.entry.at[p->entry].path, c->kind[k]);
    return ckpt_ds_problem(&u->job, CKPT_EMISSING,
                           "%s/%s.pt is missing, but other parameters have it: the conversion "
                           "did not finish, or it was not copied",
                           u->dir.entry.at[p->entry].path, c->kind[k]);
}

int ckpt_uni_complete(ckpt_uni *u)
{
    assert(u->job.map);
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

/* ---- model files ---- */

/*
 * Check the model files of stages 1 and 2: one for each tensor-parallel rank, numbered from 0 on.
 */
static int ucm_whole(ckpt_uni *u)
{
    if (u->dir.whole.n == 0 || u->dir.whole.n >= u->dir.n_mp)
        return CKPT_OK;
    return ckpt_ds_problem(&u->job, CKPT_EMISSING,
                           "%s: the model files (mp_rank_..._model_states.pt) of %u of %u "
                           "tensor-parallel ranks are not there; copy them from the run",
                           u->job.map->path, u->dir.n_mp - (unsigned)u->dir.whole.n, u->dir.n_mp);
}

/*
 * Check the model files of stage 3, one per data-parallel rank. Only rank 0's file lists tied
 * names; programs that write universal checkpoints may omit all others.
 */
static int ucm_parts(ckpt_uni *u)
{
    const ckpt_ds_parts *parts = &u->dir.parts;
    int64_t world = 0;

    if (u->dir.whole.n || parts->n == 0)
        return CKPT_OK;
    if (parts->at[0].rank != 0)
        return ckpt_ds_problem(&u->job, CKPT_EMISSING,
                               "%s: the model file of rank 0 is missing: expected "
                               "zero_pp_rank_0_mp_rank_00_model_states.pt, found rank %" PRIu32
                               "'s; copy it: it alone lists tied names",
                               u->job.map->path, parts->at[0].rank);
    if (parts->n < 2 ||
        !ckpt_value_as_int(ckpt_value_get(u->head.model.root, "dp_world_size"), &world) ||
        world < (int64_t)parts->at[parts->n - 1].rank + 1)
        world = (int64_t)parts->at[parts->n - 1].rank + 1;
    if ((uint64_t)world <= parts->n)
        return CKPT_OK;
    return ckpt_map_note(u->job.map, CKPT_WARNING, u->job.err,
                         "%s: model files (zero_pp_rank_..._model_states.pt) are missing: expected "
                         "%" PRId64 ", found %zu; copy the others",
                         u->job.map->path, world, parts->n);
}

int ckpt_uni_ranks(ckpt_uni *u)
{
    int rc = ucm_whole(u);

    return rc == CKPT_OK && !u->job.broken ? ucm_parts(u) : rc;
}

int ckpt_uni_same_save(ckpt_uni *u, const ckpt_ds_shard *s)
{
    static const char *const key[] = {"global_steps", "skipped_steps", "ds_version",
                                      "lr_scheduler"};
    bool same = true;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && same && i < sizeof key / sizeof *key; i++) {
        const ckpt_value *first = ckpt_value_get(u->head.model.root, key[i]),
                         *own = ckpt_value_get(s->root, key[i]);
        rc = ckpt_ds_same(&u->job, first, own, &same);
        if (rc == CKPT_OK && !same)
            rc = ckpt_ds_problem(&u->job, CKPT_EMISMATCH,
                                 "%s: %s differs from that of %s: the files are from different "
                                 "saves; copy both from one save",
                                 s->path, key[i], u->head.model.path);
    }
    return rc;
}

int ckpt_uni_models(ckpt_uni *u)
{
    int rc = CKPT_OK;

    // without model files of stages 0 to 2, the first stage 3 file is open as the model file
    for (size_t i = u->dir.whole.n ? 0 : 1; rc == CKPT_OK && i < u->dir.parts.n; i++) {
        ckpt_ds_shard s;
        rc = ckpt_ds_shard_open(&u->job, &s, &u->dir.parts.at[i]);
        if (rc == CKPT_OK && s.map)
            rc = ckpt_uni_same_save(u, &s);
        ckpt_ds_shard_close(&s);
    }
    return rc;
}
