/* SPDX-License-Identifier: Apache-2.0 */
/*
 * default_settings.c: makes the settings of a parameter group from ds_config, for elastic
 * checkpoints, because these are saved without settings.
 */
#include <string.h>
#include <strings.h>

#include "formats/training/default_settings.h"
#include "formats/training/ds_config.h"
#include "libckpt/map/map.h"

/* Add a member unless the dict has it; false: no memory. */
static bool dwg_put(ckpt_arena *arena, ckpt_value *dict, const char *key, ckpt_value *value)
{
    return ckpt_value_get(dict, key) ||
           (value && ckpt_dict_add_cstr(arena, &dict->as.map, key, value));
}

bool ckpt_train_adam(ckpt_arena *arena, ckpt_value *fields, ckpt_value *decoupled)
{
    return dwg_put(arena, fields, "bias_correction", ckpt_value_bool(arena, true)) &&
           ckpt_state_adam(arena, fields, decoupled);
}

/* Make the tuple (0.9, 0.999). */
static ckpt_value *dwg_betas(ckpt_arena *arena)
{
    ckpt_value *v = ckpt_value_new(arena, CKPT_V_TUPLE);
    bool ok = v && ckpt_seq_add(arena, &v->as.seq, ckpt_value_float(arena, 0.9)) &&
              ckpt_seq_add(arena, &v->as.seq, ckpt_value_float(arena, 0.999));

    return ok && v->as.seq.at[0] && v->as.seq.at[1] ? v : NULL;
}

/* Add Adam's defaults for settings that ds_config lacks. */
static bool dwg_defaults(ckpt_arena *arena, ckpt_value *fields)
{
    static const struct {
        const char *key;
        double number;
    } numbers[] = {{"lr", 1e-3}, {"eps", 1e-8}, {"weight_decay", 0}};
    bool ok = true;

    for (size_t i = 0; ok && i < sizeof numbers / sizeof *numbers; i++)
        ok = dwg_put(arena, fields, numbers[i].key, ckpt_value_float(arena, numbers[i].number));
    return ok && dwg_put(arena, fields, "betas", dwg_betas(arena)) &&
           ckpt_train_adam(arena, fields, ckpt_value_bool(arena, true));
}

/* True for Adam and AdamW; DeepSpeed ignores case. */
static bool dwg_is_adam(const ckpt_value *type)
{
    return type && type->kind == CKPT_V_STR &&
           (strcasecmp(type->as.text.at, "adam") == 0 ||
            strcasecmp(type->as.text.at, "adamw") == 0);
}

/*
 * Warn that the source has no settings: all groups get equal ones, even if the program's differed.
 */
static int dwg_say(ckpt_map *to, bool configured, ckpt_err *err)
{
    const char *text =
        configured
            ? "rewritten: param_groups -> as configured: elastic checkpoints keep no "
              "hyper-parameters; groups to which the program gave other settings differ"
            : "rewritten: param_groups -> Adam's defaults (lr 0.001): neither the elastic "
              "checkpoint nor a configuration in it holds the settings; set them after loading";

    for (size_t i = 0; i < to->findings.n; i++) {
        if (strcmp(to->findings.at[i].text, text) == 0)
            return CKPT_OK;
    }
    return ckpt_map_note(to, CKPT_WARNING, err, "%s", text);
}

/* Copy the optimizer's section of ds_config, and the step. */
static bool dwg_copy(ckpt_arena *arena, ckpt_value *fields, const ckpt_state *state)
{
    const ckpt_value *osd = ckpt_value_get(state->optim, "optimizer_state_dict");
    ckpt_value *step = ckpt_value_get(osd, "base_optimizer_state_step");
    ckpt_dict from = ckpt_value_map(ckpt_train_config_get(state, "optimizer", "params"));
    bool ok = true;

    for (uint64_t i = 0; ok && i < from.n; i++)
        ok = ckpt_dict_add(arena, &fields->as.map, from.at[i].key, from.at[i].value);
    return ok && (!step || dwg_put(arena, fields, "step", step));
}

int ckpt_train_configured(ckpt_value **out, ckpt_map *to, const ckpt_state *state,
                          const ckpt_group *g, ckpt_err *err)
{
    const ckpt_value *type = ckpt_train_config_get(state, "optimizer", "type");
    // before 0.4.0 files have no ds_config, so exp_avg_sq is the only sign of Adam
    bool adam = type ? dwg_is_adam(type) : ckpt_value_get(g->entry, "exp_avg_sq") != NULL;

    *out = ckpt_value_new(to->arena, CKPT_V_DICT);
    if (!*out || !dwg_copy(to->arena, *out, state))
        return ckpt_fail_memory(err);
    if (!type && !adam)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: an elastic checkpoint keeps no hyper-parameters, and its "
                         "configuration names no optimizer to take them from: choose stage 1 "
                         "or 2, which stay elastic",
                         to->path);
    if (adam && !dwg_defaults(to->arena, *out))
        return ckpt_fail_memory(err);
    return dwg_say(to, type != NULL, err);
}
