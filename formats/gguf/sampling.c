/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sampling.c: writes the sampling options of generation_config.json as keys.
 *
 * The names are those of the gguf package (Metadata.load); it has no key for do_sample.
 */
#include <math.h>
#include <string.h>

#include "formats/gguf/tokenizer.h"

static const struct {
    const char *name, *key;
    uint8_t type;
} gsa_names[] = {
    {"sequence", "general.sampling.sequence", CKPT_KEY_STRING},
    {"top_k", "general.sampling.top_k", CKPT_KEY_I32},
    {"top_p", "general.sampling.top_p", CKPT_KEY_F32},
    {"min_p", "general.sampling.min_p", CKPT_KEY_F32},
    {"xtc_probability", "general.sampling.xtc_probability", CKPT_KEY_F32},
    {"xtc_threshold", "general.sampling.xtc_threshold", CKPT_KEY_F32},
    {"temperature", "general.sampling.temp", CKPT_KEY_F32},
    {"penalty_last_n", "general.sampling.penalty_last_n", CKPT_KEY_I32},
    {"penalty_repeat", "general.sampling.penalty_repeat", CKPT_KEY_F32},
    {"mirostat", "general.sampling.mirostat", CKPT_KEY_I32},
    {"mirostat_tau", "general.sampling.mirostat_tau", CKPT_KEY_F32},
    {"mirostat_eta", "general.sampling.mirostat_eta", CKPT_KEY_F32},
};

/* True if the key's type can hold the value. */
static bool gsa_fits(const ckpt_value *v, uint8_t type)
{
    if (type == CKPT_KEY_STRING)
        return v->kind == CKPT_V_STR;
    if (type == CKPT_KEY_I32)
        return v->kind == CKPT_V_INT && v->as.i >= INT32_MIN && v->as.i <= INT32_MAX;
    return v->kind == CKPT_V_INT || (v->kind == CKPT_V_FLOAT && isfinite((float)v->as.f));
}

/* Copy a value into the map's arena. */
static const ckpt_value *gsa_copy(ckpt_arena *arena, const ckpt_value *v)
{
    if (v->kind == CKPT_V_STR)
        return ckpt_value_str(arena, v->as.text.at, v->as.text.n);
    return v->kind == CKPT_V_INT ? ckpt_value_int(arena, v->as.i)
                                 : ckpt_value_float(arena, v->as.f);
}

int ckpt_gguf_sampling(ckpt_gguf_tokenizer_work *w)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < sizeof gsa_names / sizeof *gsa_names; i++) {
        const char *name = gsa_names[i].name, *key = gsa_names[i].key;
        const ckpt_value *v = ckpt_value_get(w->generation, name);

        // transformers' name of penalty_repeat
        if (!v && strcmp(name, "penalty_repeat") == 0)
            v = ckpt_value_get(w->generation, name = "repetition_penalty");
        if (!v || v->kind == CKPT_V_NONE || ckpt_gguf_key(w->to, key))
            continue;
        if (gsa_fits(v, gsa_names[i].type))
            rc = ckpt_gguf_add(w->to, key, gsa_names[i].type, false, gsa_copy(w->to->arena, v),
                               w->err);
        else
            rc =
                ckpt_map_note(w->to, CKPT_WARNING, w->err,
                              "%s/generation_config.json: %s is not a value that %s can hold: left "
                              "out",
                              w->list.folder, name, key);
    }
    return rc;
}
