/* SPDX-License-Identifier: Apache-2.0 */
/*
 * facts.c: fills in the facts of a universal checkpoint that `ckpt info` prints.
 */
#include <assert.h>
#include <inttypes.h>

#include "formats/universal/universal.h"

enum { UC_MAX_LISTED = 5 }; /* limit of step counts in one fact */

static int uc_fact_int(ckpt_uni *u, const char *fact, const char *key)
{
    int64_t n = 0;

    if (!ckpt_value_as_int(ckpt_value_get(u->head.model.root, key), &n))
        return CKPT_OK;
    return ckpt_map_fact_int(u->job.map, fact, n, u->job.err);
}

/* The distinct step counts of the parameters in order of first appearance: "4", or "4, 7". */
static int uc_fact_steps(ckpt_uni *u)
{
    double seen[UC_MAX_LISTED];
    const char *text = NULL;
    size_t n = 0, k;

    for (size_t i = 0; i < u->param.n && n < UC_MAX_LISTED; i++) {
        const ckpt_uni_param *p = &u->param.at[i];
        for (k = 0; k < n; k++) {
            if (!(seen[k] < p->step) && !(seen[k] > p->step))
                break;
        }
        if (!p->has_step || k < n)
            continue;
        seen[n++] = p->step;
        text = ckpt_arena_printf(u->job.map->arena, "%s%s%.0f", text ? text : "", text ? ", " : "",
                                 p->step);
        if (!text)
            return ckpt_fail_memory(u->job.err);
    }
    return text ? ckpt_map_fact(u->job.map, u->job.err, "optimizer steps", "%s", text) : CKPT_OK;
}

int ckpt_uni_facts(ckpt_uni *u)
{
    assert(u->job.map && u->tag);
    ckpt_map *map = u->job.map;
    ckpt_err *err = u->job.err;
    const ckpt_value *version = u->head.model.map ? ckpt_ds_version(&u->head.model) : NULL;
    uint64_t groups = ckpt_value_seq(ckpt_value_get(u->head.optim.root, "param_groups")).n;
    int rc = ckpt_map_fact(map, err, "layout", "universal checkpoint");

    if (rc == CKPT_OK)
        rc = ckpt_map_fact(map, err, "tag", "%s", u->tag);
    if (rc == CKPT_OK)
        rc = ckpt_map_fact(map, err, "tag folder", "%s", u->job.map->path);
    if (rc == CKPT_OK)
        rc = uc_fact_int(u, "world size", "dp_world_size");
    if (rc == CKPT_OK && version)
        rc = ckpt_map_fact(map, err, "DeepSpeed version", "%s", version->as.text.at);
    if (rc == CKPT_OK && groups)
        rc = ckpt_map_fact_int(map, "parameter groups", (int64_t)groups, err);
    if (rc == CKPT_OK)
        rc = uc_fact_int(u, "step", "global_steps");
    if (rc == CKPT_OK)
        rc = uc_fact_int(u, "skipped steps", "skipped_steps");
    return rc == CKPT_OK ? uc_fact_steps(u) : rc;
}
