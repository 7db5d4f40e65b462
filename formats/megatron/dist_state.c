/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dist_state.c: reads the optimizers of a torch_dist checkpoint: finds groups and step counts in
 * common.pt, and checks that each state tensor has a parameter.
 */
#include <inttypes.h>
#include <string.h>

#include "ckpt.h"
#include "formats/megatron/megatron.h"

enum { MGD_MAX_OPTIMIZERS = 64 };

typedef struct mgd_reader {
    ckpt_meg_job *job;
    ckpt_map *map;
    ckpt_meg_groups group;
    ckpt_err *err;
} mgd_reader;

/* Read the step count that a torch optimizer keeps once for all parameters. */
static int mgd_common_step(mgd_reader *m, const char *path, bool *has, double *step)
{
    const ckpt_map *common = m->job->common;
    const char *name = ckpt_arena_printf(m->map->arena, "%s.state.common_step", path);
    ckpt_reader *reader = NULL;
    size_t at;
    int rc;

    if (!name)
        return ckpt_fail_memory(m->err);
    at = ckpt_map_index(common, name, strlen(name));
    *has = at != SIZE_MAX && common->tensors.at[at]->n_elems == 1;
    if (!*has)
        return CKPT_OK;
    // the map has adopted common.pt, so it can read its bytes
    rc = ckpt_reader_new(&reader, m->map, m->err);
    if (rc == CKPT_OK)
        rc = ckpt_reader_read(reader, common->tensors.at[at], 0, 1, CKPT_F64, step, m->err);
    ckpt_reader_free(reader);
    return rc;
}

/*
 * Find the groups that were saved together with flat buffers; those of the first rank are valid for
 * all.
 */
static const ckpt_value *mgd_beside(const mgd_reader *m, int64_t number)
{
    static const char name[] = "optimizer.distributed.dp_group_idx_0.optimizer/";
    ckpt_dict all = ckpt_value_map(m->map->values);

    for (uint64_t i = 0; i < all.n; i++) {
        const ckpt_value *key = all.at[i].key;
        ckpt_seq one = ckpt_value_seq(all.at[i].value);
        const char *at = key->kind == CKPT_V_STR ? key->as.text.at : "";
        int64_t of = 0;
        if (strncmp(at, "chained_", 8) == 0 && at[8] >= '0' && at[8] <= '9' && at[9] == '.') {
            of = at[8] - '0';
            at += 10;
        }
        if (of == number && strncmp(at, name, sizeof name - 1) == 0)
            return one.n == 1 ? ckpt_value_get(one.at[0], "param_groups") : NULL;
    }
    return NULL;
}

/* Read one optimizer; its groups are in it or in the optimizer that it wraps. */
static int mgd_optimizer(mgd_reader *m, const ckpt_value *optimizer, const char *path,
                         int64_t number)
{
    const ckpt_value *inner = ckpt_value_get(optimizer, "optimizer"), *list;
    bool has = false;
    double step = 0;

    if (inner) {
        path = ckpt_arena_printf(m->map->arena, "%s.optimizer", path);
        optimizer = inner;
        if (!path)
            return ckpt_fail_memory(m->err);
    }
    list = ckpt_value_get(optimizer, "param_groups");
    if (!list)
        list = mgd_beside(m, number);
    if (!list)
        return CKPT_OK;
    int rc = mgd_common_step(m, path, &has, &step);
    return rc == CKPT_OK ? ckpt_meg_groups_add(&m->group, m->job, list, has ? &step : NULL) : rc;
}

/* Read all optimizers: a single one, or a dict of them by number; NeMo 2 has a list of one. */
static int mgd_optimizers(mgd_reader *m)
{
    const ckpt_value *all = ckpt_value_get(m->job->root, "optimizer");
    ckpt_seq list = ckpt_value_seq(all);
    const char *at = "optimizer";
    int rc = CKPT_OK;

    if (!all)
        return ckpt_meg_none(m->map, "it was saved without its optimizer", NULL, m->err);
    if (all->kind == CKPT_V_LIST && list.n > 1)
        return ckpt_meg_none(m->map, "it has several optimizers, expected one", NULL, m->err);
    if (all->kind == CKPT_V_LIST && list.n == 1)
        all = list.at[0], at = "optimizer.0";
    ckpt_dict map = ckpt_value_map(all);
    if (map.n == 0 || map.at[0].key->kind != CKPT_V_INT)
        return mgd_optimizer(m, all, at, 0);
    for (uint64_t i = 0; rc == CKPT_OK && i < map.n && i < MGD_MAX_OPTIMIZERS; i++) {
        const char *path =
            map.at[i].key->kind == CKPT_V_INT
                ? ckpt_arena_printf(m->map->arena, "%s.%lld", at, (long long)map.at[i].key->as.i)
                : "";
        rc = path ? mgd_optimizer(m, map.at[i].value, path,
                                  map.at[i].key->kind == CKPT_V_INT ? map.at[i].key->as.i : -1)
                  : ckpt_fail_memory(m->err);
    }
    return rc;
}

/* The name of a state tensor without a known parameter, or NULL. */
static const char *mgd_nobodys(const ckpt_map *map)
{
    for (size_t i = 0; i < map->tensors.n; i++) {
        const ckpt_tensor *t = map->tensors.at[i];
        if (t->role == CKPT_ROLE_OTHER && strstr(t->name, "optimizer."))
            return t->name;
    }
    return NULL;
}

static int mgd_read(mgd_reader *m)
{
    const char *why = NULL;
    int rc = mgd_optimizers(m);

    if (rc == CKPT_OK && !m->map->no_state)
        rc = ckpt_meg_buffers(m->job, &why);
    if (rc != CKPT_OK || m->map->no_state)
        return rc;
    if (!why)
        why = mgd_nobodys(m->map);
    if (why)
        return ckpt_meg_none(m->map,
                             "optimizer state in flat buffers without the names of its parameters "
                             "(with --dist-ckpt-optim-fully-reshardable Megatron-LM saves them)",
                             why, m->err);
    return ckpt_meg_state(m->job, &m->group);
}

int ckpt_meg_dist_state(ckpt_meg_job *job)
{
    mgd_reader m = {.job = job, .map = job->map, .err = job->err};
    int rc;

    if (!job->common)
        return ckpt_meg_none(job->map, CKPT_MEG_COMMON " is not there", NULL, job->err);
    rc = mgd_read(&m);
    ckpt_vec_free(&m.group);
    return rc;
}
