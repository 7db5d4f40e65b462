/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deepspeed_names.c: parses file names of a DeepSpeed tag folder into kind, prefix and ranks.
 *
 * The data-parallel rank has no leading zeros, the model-parallel rank has two digits. Releases up
 * to 0.3.13 omitted the underscore before "optim_states" in names of optimizer files.
 */
#include <assert.h>
#include <string.h>

#include "formats/training/deepspeed_names.h"

enum { DS_MAX_DIGITS = 9 }; /* limit of a rank's digits, so that it fits uint32_t */

/* Moves *p past a literal; false, with *p unmoved, if it is absent. */
static bool dsn_skip(const char **p, const char *literal)
{
    size_t n = strlen(literal);

    if (strncmp(*p, literal, n) != 0)
        return false;
    *p += n;
    return true;
}

/* Reads a number and moves past it. */
static bool dsn_number(const char **p, uint32_t *out)
{
    const char *at = *p;
    uint32_t v = 0;

    while (*at >= '0' && *at <= '9' && at - *p < DS_MAX_DIGITS)
        v = v * 10 + (uint32_t)(*at++ - '0');
    if (at == *p || (*at >= '0' && *at <= '9'))
        return false;
    *p = at;
    *out = v;
    return true;
}

/* Reads "mp_rank_00". */
static bool dsn_mp(const char **p, uint32_t *mp)
{
    return dsn_skip(p, "mp_rank_") && dsn_number(p, mp);
}

/* Parses "zero_pp_rank_3_mp_rank_00" with its suffix. */
static bool dsn_zero(const char *p, ckpt_ds_name *out)
{
    out->bf16 = dsn_skip(&p, "bf16_");
    if (!dsn_skip(&p, "zero_pp_rank_") || !dsn_number(&p, &out->dp) || !dsn_skip(&p, "_") ||
        !dsn_mp(&p, &out->mp))
        return false;
    if (strcmp(p, "_optim_states.pt") == 0 || strcmp(p, "optim_states.pt") == 0)
        out->kind = CKPT_DS_OPTIM;
    else if (strcmp(p, "_model_states.pt") == 0 && !out->bf16)
        out->kind = CKPT_DS_MODEL_RANK;
    return out->kind != CKPT_DS_OTHER;
}

/* Parses names of expert-parallel runs: "layer_0_expert_1_mp_rank_00_...", "expert_1_...",
 * "expp_rank_0_...". */
static bool dsn_expert(const char *p, ckpt_ds_name *out)
{
    out->has_layer = dsn_skip(&p, "layer_");
    if (out->has_layer && (!dsn_number(&p, &out->layer) || !dsn_skip(&p, "_")))
        return false;
    bool expert = dsn_skip(&p, "expert_");
    if (!expert && (out->has_layer || !dsn_skip(&p, "expp_rank_")))
        return false;
    if (!dsn_number(&p, &out->dp) || !dsn_skip(&p, "_") || !dsn_mp(&p, &out->mp))
        return false;
    if (strcmp(p, expert ? "_model_states.pt" : "_optim_states.pt") == 0)
        out->kind = expert ? CKPT_DS_EXPERT : CKPT_DS_EXPP;
    return out->kind != CKPT_DS_OTHER;
}

/* Parses names of pipeline modules: "layer_03-model_states.pt",
 * "layer_03-model_00-model_states.pt". */
static bool dsn_layer(const char *p, ckpt_ds_name *out)
{
    uint32_t slice = 0;

    if (!dsn_skip(&p, "layer_") || !dsn_number(&p, &out->dp) || !dsn_skip(&p, "-"))
        return false;
    const char *tail = p;
    if (dsn_skip(&tail, "model_") && dsn_number(&tail, &slice) && dsn_skip(&tail, "-")) {
        p = tail;
        out->mp = slice;
    }
    if (strcmp(p, "model_states.pt") == 0)
        out->kind = CKPT_DS_LAYER;
    return out->kind != CKPT_DS_OTHER;
}

ckpt_ds_name ckpt_ds_name_parse(const char *name)
{
    assert(name);
    static const ckpt_ds_name other = {0};
    ckpt_ds_name out = other;
    const char *p = name;

    if (dsn_mp(&p, &out.mp) && strcmp(p, "_model_states.pt") == 0) {
        out.kind = CKPT_DS_MODEL;
        return out;
    }
    out = other;
    if (dsn_zero(name, &out))
        return out;
    out = other;
    if (dsn_expert(name, &out))
        return out;
    out = other;
    return dsn_layer(name, &out) ? out : other;
}

bool ckpt_ds_name_is_shard(const char *name)
{
    return ckpt_ds_name_parse(name).kind != CKPT_DS_OTHER;
}

bool ckpt_ds_name_run(const char *name, uint64_t *out)
{
    assert(name && out);
    uint32_t n = 0;

    if (!dsn_skip(&name, "checkpoint-") || !dsn_number(&name, &n) || *name)
        return false;
    *out = n;
    return true;
}
