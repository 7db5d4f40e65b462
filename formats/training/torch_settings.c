/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_settings.c: completes a group's settings to those that torch's optimizer needs to resume.
 *
 * dcp.load requires every key of the program's own optimizer.  DeepSpeed's FusedAdam and CPUAdam
 * have fewer keys than torch's Adam and AdamW, and additionally bias_correction.
 */
#include <assert.h>
#include <strings.h>

#include "formats/training/default_settings.h"
#include "formats/training/ds_config.h"
#include "formats/training/torch_settings.h"
#include "libckpt/map/map.h"
#include "libckpt/map/state.h"

/*
 * Whether weight decay is decoupled from the gradient; NULL if unknown.
 * deepspeed/runtime/engine.py, _configure_basic_optimizer: always for AdamW, for Adam unless
 * adam_w_mode is off.
 */
static ckpt_value *dpt_decoupled(ckpt_arena *arena, const ckpt_state *state, const ckpt_group *g)
{
    const ckpt_value *type = ckpt_train_config_get(state, "optimizer", "type"),
                     *mode = ckpt_value_get(ckpt_train_config_get(state, "optimizer", "params"),
                                            "adam_w_mode");
    bool named = type && type->kind == CKPT_V_STR;

    if (named && strcasecmp(type->as.text.at, "adamw") == 0)
        return ckpt_value_bool(arena, true);
    if (named && strcasecmp(type->as.text.at, "adam") == 0)
        return ckpt_value_bool(arena, !mode || mode->kind != CKPT_V_BOOL || mode->as.i);
    return ckpt_value_get(g->fields, "bias_correction") ? ckpt_value_bool(arena, true) : NULL;
}

/* The group's settings from the checkpoint, or else from its configuration. */
static int dpt_fields(ckpt_value **out, ckpt_map *to, const ckpt_state *state, const ckpt_group *g,
                      ckpt_err *err)
{
    *out = g->fields;
    return g->fields || state->foreign || !state->optim
               ? CKPT_OK
               : ckpt_train_configured(out, to, state, g, err);
}

int ckpt_train_torch_settings(ckpt_value **out, ckpt_map *to, const ckpt_state *state,
                              const ckpt_group *g, ckpt_err *err)
{
    assert(out && to && state && g);
    ckpt_group own = *g;
    int rc = dpt_fields(&own.fields, to, state, g, err);
    const ckpt_value *corrects = ckpt_value_get(own.fields, "bias_correction");
    ckpt_dict from = ckpt_value_map(own.fields);
    bool ok = (*out = ckpt_value_new(to->arena, CKPT_V_DICT)) != NULL;

    if (rc != CKPT_OK)
        return rc;
    for (uint64_t i = 0; ok && i < from.n; i++)
        ok = ckpt_dict_add(to->arena, &(*out)->as.map, from.at[i].key, from.at[i].value);
    if (ok && ckpt_state_is_adam(&own))
        ok = ckpt_state_adam(to->arena, *out, dpt_decoupled(to->arena, state, &own));
    if (!ok)
        return ckpt_fail_memory(err);
    if (corrects && corrects->kind == CKPT_V_BOOL && !corrects->as.i)
        return ckpt_map_note(to, CKPT_WARNING, err,
                             "param_groups: bias_correction is off, which torch's Adam does not "
                             "know: its next updates are larger");
    return CKPT_OK;
}
