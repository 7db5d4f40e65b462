/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ds_config.c: reads values of ds_config and of AutoEP's layers from a state's trees.
 */
#include "formats/training/ds_config.h"

#include <assert.h>

const ckpt_value *ckpt_train_config_get(const ckpt_state *state, const char *section,
                                        const char *key)
{
    const ckpt_value *config = ckpt_value_get(state->model, "ds_config");

    if (!config)
        config = ckpt_value_get(state->optim, "ds_config");
    if (section)
        config = ckpt_value_get(config, section);
    return ckpt_value_get(config, key);
}

uint64_t ckpt_train_config_number(const ckpt_state *state, const char *section, const char *key,
                                  uint64_t otherwise)
{
    assert(key);
    const ckpt_value *v = ckpt_train_config_get(state, section, key);

    if (v && v->kind == CKPT_V_INT && v->as.i > 0)
        return (uint64_t)v->as.i;
    // in JSON a number like 5e8 is a float
    if (v && v->kind == CKPT_V_FLOAT && v->as.f >= 1 && v->as.f < 9e15)
        return (uint64_t)v->as.f;
    return otherwise;
}

bool ckpt_train_config_flag(const ckpt_state *state, const char *section, const char *key)
{
    const ckpt_value *v = ckpt_train_config_get(state, section, key);

    return v && (v->kind == CKPT_V_BOOL || v->kind == CKPT_V_INT) && v->as.i != 0;
}

ckpt_seq ckpt_train_autoep_layers(const ckpt_state *state)
{
    ckpt_seq layers = ckpt_value_seq(ckpt_value_get(state->model, "ds_autoep_layers"));

    return layers.n ? layers : ckpt_value_seq(ckpt_value_get(state->model, "autoep_layers"));
}

uint32_t ckpt_train_autoep(const ckpt_state *state)
{
    ckpt_seq layers = ckpt_train_autoep_layers(state);
    int64_t n = 0;

    if (layers.n)
        (void)ckpt_value_as_int(ckpt_value_get(layers.at[0], "ep_size"), &n);
    return n > 0 && n <= UINT32_MAX ? (uint32_t)n : 0;
}
