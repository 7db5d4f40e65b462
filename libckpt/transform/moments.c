/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moments.c: converts a run's state from bitsandbytes' moments to those of Adam in fp32.
 *
 * Readers already list the F32 values (map/moments8.h). Here the state only drops the 8-bit form
 * and gets Adam's settings, so that writers write the F32 values.
 */
#include <inttypes.h>
#include <string.h>

#include "ckpt_shape.h"
#include "libckpt/map/map.h"
#include "libckpt/map/savepoint.h"
#include "libckpt/map/state.h"

/*
 * True for the settings of AdEMAMix, which bitsandbytes keeps in the groups of all its optimizers.
 */
static bool mom_is_foreign(const ckpt_value *key)
{
    return ckpt_value_is(key, "alpha") || ckpt_value_is(key, "t_alpha") ||
           ckpt_value_is(key, "t_beta3");
}

/*
 * Convert the group's settings to Adam's. bitsandbytes' Adam and AdamW both decay weights
 * separately from the gradient (backends/default/ops.py), so the result is AdamW.
 */
static int mom_fields(ckpt_map *map, ckpt_group *g, ckpt_err *err)
{
    ckpt_value *fields = ckpt_value_new(map->arena, CKPT_V_DICT);
    ckpt_dict from = ckpt_value_map(g->fields);
    bool ok = fields != NULL;

    for (uint64_t i = 0; ok && i < from.n; i++)
        ok = mom_is_foreign(from.at[i].key) ||
             ckpt_dict_add(map->arena, &fields->as.map, from.at[i].key, from.at[i].value);
    ok = ok && ckpt_state_adam(map->arena, fields, ckpt_value_bool(map->arena, true));
    if (!ok)
        return ckpt_fail_memory(err);
    g->fields = fields;
    return CKPT_OK;
}

static int mom_group(ckpt_map *map, ckpt_group *g, size_t number, ckpt_err *err)
{
    const ckpt_value *betas = ckpt_value_get(g->fields, "betas");

    if (!ckpt_state_is_adam(g))
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: group %zu keeps moments of bitsandbytes that are not Adam's (one "
                         "moment: Lion, Momentum, RMSprop or Adagrad): --moments writes Adam's "
                         "alone; --drop-optimizer leaves the moments out",
                         map->path, number);
    if (ckpt_value_seq(betas).n != 2)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: group %zu has %" PRIu64 " betas, Adam has 2: --moments writes Adam's "
                         "moments alone; --drop-optimizer leaves the moments out",
                         map->path, number, ckpt_value_seq(betas).n);
    g->stored = NULL;
    g->became_adam = true;
    return mom_fields(map, g, err);
}

/* Convert all groups; a failure leaves some of them converted. */
static int mom_change(ckpt_map *map, uint64_t *n, ckpt_err *err)
{
    int rc = CKPT_OK;

    for (size_t i = 0; i < map->states.n; i++) {
        ckpt_state *s = map->states.at[i];
        for (size_t g = 0; rc == CKPT_OK && g < s->group.n; g++) {
            if (!s->group.at[g].stored)
                continue;
            rc = mom_group(map, &s->group.at[g], g, err);
            *n += s->group.at[g].n * s->group.at[g].n_lanes;
        }
    }
    if (rc != CKPT_OK || *n == 0)
        return rc;
    return ckpt_map_note(map, CKPT_INFO, err,
                         "%s: converted the bitsandbytes moments of %" PRIu64 " parameters to fp32 "
                         "exp_avg and exp_avg_sq; the run continues with decoupled weight decay "
                         "(AdamW)",
                         map->path, *n);
}

int ckpt_map_dequantize_moments(ckpt_map *map, uint64_t *n, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_savepoint *saved = NULL;

    if (!map || !n)
        return ckpt_fail(err, CKPT_EUSAGE, "no map is given");
    *n = 0;
    int rc = ckpt_savepoint_new(&saved, map, err);
    if (rc == CKPT_OK)
        rc = ckpt_savepoint_end(saved, mom_change(map, n, err));
    if (rc != CKPT_OK)
        *n = 0;
    return rc;
}
