/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_rotary.c: reads rotary positions and sliding windows from a config.json.
 *
 * Source: LlamaConfig, Qwen2Config, Qwen3Config, MistralConfig, Gemma2Config and GPTNeoXConfig of
 * transformers 5.23, and their models: a query at i sees keys above i - sliding_window.
 */
#include <inttypes.h>

#include "engine/model/config_file.h"

/* ---- rotary positions -------------------------------------------------------------------- */

/* Read a positive number of the rope block. */
static int cr_rope_number(const zt_config_file *f, const ckpt_value *rope, const char *key,
                          double *out)
{
    const ckpt_value *v = zt_config_get(rope, key);

    if (!v)
        return ckpt_fail(f->err, CKPT_EFORMAT, "%s: rope_type llama3 needs %s", f->name, key);
    if (!zt_config_number(v, out) || !(*out > 0 && *out < 1e30))
        return zt_config_fail(f, key, v, "a number above 0");
    return CKPT_OK;
}

static int cr_rope_llama3(const zt_config_file *f, const ckpt_value *rope)
{
    zt_model_config *c = f->out;
    int rc = cr_rope_number(f, rope, "factor", &c->rope_factor);

    if (rc == CKPT_OK)
        rc = cr_rope_number(f, rope, "low_freq_factor", &c->rope_low);
    if (rc == CKPT_OK)
        rc = cr_rope_number(f, rope, "high_freq_factor", &c->rope_high);
    c->rope_old = (double)c->positions;
    if (rc == CKPT_OK && zt_config_get(rope, "original_max_position_embeddings"))
        rc = cr_rope_number(f, rope, "original_max_position_embeddings", &c->rope_old);
    if (rc == CKPT_OK && !(c->rope_high > c->rope_low))
        return ckpt_fail(f->err, CKPT_EFORMAT,
                         "%s: high_freq_factor %g must be above low_freq_factor %g", f->name,
                         c->rope_high, c->rope_low);
    c->rope_llama3 = true;
    return rc;
}

/* Read the base of the frequencies: in the block, or beside it in old files. */
static int cr_rope_theta(const zt_config_file *f, const ckpt_value *rope)
{
    const ckpt_value *v = zt_config_get(rope, "rope_theta");

    if (!v)
        v = zt_config_get(f->json, f->out->arch == ZT_NEOX ? "rotary_emb_base" : "rope_theta");
    f->out->rope_theta = 10000;
    if (v && (!zt_config_number(v, &f->out->rope_theta) ||
              !(f->out->rope_theta > 0 && f->out->rope_theta < 1e30)))
        return zt_config_fail(f, "rope_theta", v, "a number above 0");
    return CKPT_OK;
}

/*
 * Read how much of each head rotates: partial_rotary_factor of the rope block, or rotary_pct in old
 * files, or a quarter.
 */
static int cr_rope_part(const zt_config_file *f, const ckpt_value *rope)
{
    zt_model_config *c = f->out;
    const char *key = "partial_rotary_factor";
    const ckpt_value *v = zt_config_get(rope, key);
    const uint64_t width = c->heads > 0 ? c->hidden / c->heads : 0;
    double x = 0.25;

    if (!v) {
        key = "rotary_pct";
        v = zt_config_get(f->json, key);
    }
    if (v && (!zt_config_number(v, &x) || !(x > 0 && x <= 1)))
        return zt_config_fail(f, key, v, "a number above 0, up to 1");
    c->rotated = (uint64_t)((double)width * x);
    if (c->rotated < 2 || c->rotated % 2 != 0)
        return ckpt_fail(f->err, CKPT_EUNSUPPORTED,
                         "%s: %g of heads of width %" PRIu64 " (%s) are %" PRIu64
                         " elements to rotate; only an even number, 2 or more, is supported",
                         f->name, x, width, key, c->rotated);
    return CKPT_OK;
}

/* Refuse partial rotation. */
static int cr_rope_whole(const zt_config_file *f, const ckpt_value *dict)
{
    const ckpt_value *v = zt_config_get(dict, "partial_rotary_factor");
    double x;

    if (v && !(zt_config_number(v, &x) && x == 1))
        return ckpt_fail(f->err, CKPT_EUNSUPPORTED,
                         "%s: partial_rotary_factor other than 1 is not supported", f->name);
    return CKPT_OK;
}

/* Read rope_scaling, which files before release 5 have, in preference to rope_parameters. */
int zt_config_rope(const zt_config_file *f)
{
    const char *key = "rope_scaling";
    const ckpt_value *rope = zt_config_get(f->json, key), *type;
    int rc;

    if (!rope || zt_config_idle(rope)) {
        key = "rope_parameters";
        rope = zt_config_get(f->json, key);
    }
    if (rope && rope->kind != CKPT_V_DICT)
        return zt_config_fail(f, key, rope, "an object");
    for (uint64_t i = 0; i < ckpt_value_map(rope).n; i++) {
        if (rope->as.map.at[i].value->kind == CKPT_V_DICT)
            return ckpt_fail(f->err, CKPT_EUNSUPPORTED,
                             "%s: %s differs from layer to layer, which is not supported", f->name,
                             key);
    }
    type = zt_config_get(rope, "rope_type");
    type = type ? type : zt_config_get(rope, "type");
    rc = cr_rope_theta(f, rope);
    if (rc == CKPT_OK)
        rc = f->out->arch == ZT_NEOX ? cr_rope_part(f, rope) : cr_rope_whole(f, rope);
    if (rc == CKPT_OK)
        rc = cr_rope_whole(f, f->json);
    if (rc != CKPT_OK || !type || ckpt_value_is(type, "default"))
        return rc;
    if (!ckpt_value_is(type, "llama3"))
        return ckpt_fail(f->err, CKPT_EUNSUPPORTED,
                         "%s: rope_type %s is not supported; default and llama3 are", f->name,
                         zt_config_kind(type));
    return cr_rope_llama3(f, rope);
}

/* ---- windows ------------------------------------------------------------------------------ */

/* Defaults of missing window keys. */
enum { CR_WINDOW = 4096, CR_UPPER = 28 };

/* Read sliding_window: a width, or 0 for null. */
static int cr_width(const zt_config_file *f, uint64_t *out)
{
    const ckpt_value *v = ckpt_value_get(f->json, "sliding_window");

    *out = v ? 0 : CR_WINDOW;
    return zt_config_get(f->json, "sliding_window") ? zt_config_size(f, "sliding_window", v, out)
                                                    : CKPT_OK;
}

/*
 * Qwen: find the first layer with a window; without use_sliding_window it is past the last layer.
 */
static int cr_first(const zt_config_file *f, uint64_t *out)
{
    const ckpt_value *use = ckpt_value_get(f->json, "use_sliding_window");
    const ckpt_value *first = ckpt_value_get(f->json, "max_window_layers");

    if (use && use->kind != CKPT_V_BOOL)
        return zt_config_fail(f, "use_sliding_window", use, "true or false");
    if (first && (first->kind != CKPT_V_INT || first->as.i < 0))
        return zt_config_fail(f, "max_window_layers", first, "a whole number, 0 or more");
    *out = first ? (uint64_t)first->as.i : CR_UPPER;
    if (!use || use->as.i == 0)
        *out = UINT64_MAX;
    return CKPT_OK;
}

/* Convert an entry of layer_types; fails with CKPT_EUNSUPPORTED for other kinds of attention. */
static int cr_layer_type(const zt_config_file *f, const ckpt_value *v, bool *slides)
{
    *slides = ckpt_value_is(v, "sliding_attention");
    if (*slides || ckpt_value_is(v, "full_attention"))
        return CKPT_OK;
    return ckpt_fail(f->err, CKPT_EUNSUPPORTED,
                     "%s: layer_types has %s; full_attention and sliding_attention are supported",
                     f->name, zt_config_kind(v));
}

/* Read layer_types, which overrides Qwen's other keys; Mistral's model ignores it. */
static int cr_layer_types(const zt_config_file *f, zt_windows kind, bool *slides)
{
    const ckpt_value *types = zt_config_get(f->json, "layer_types");
    const ckpt_seq list = ckpt_value_seq(types);

    if (!types)
        return CKPT_OK;
    if (types->kind != CKPT_V_LIST || list.n != f->out->layers)
        return ckpt_fail(f->err, CKPT_EFORMAT,
                         "%s: layer_types must be a list of %" PRIu64 " names, one for each layer",
                         f->name, f->out->layers);
    for (uint64_t i = 0; i < list.n; i++) {
        const bool before = slides[i];
        const int rc = cr_layer_type(f, list.at[i], &slides[i]);

        if (rc != CKPT_OK)
            return rc;
        if (kind == ZT_WINDOW_ALL && slides[i] != before)
            return ckpt_fail(
                f->err, CKPT_EUNSUPPORTED,
                "%s: layer_types has %s for layer %" PRIu64
                ", which contradicts sliding_window: all layers of %s have the same attention",
                f->name, zt_config_kind(list.at[i]), i, f->out->class_name);
    }
    return CKPT_OK;
}

int zt_config_windows(const zt_config_file *f, zt_windows kind)
{
    zt_model_config *c = f->out;
    uint64_t width = 0, first = 0, n = 0;
    bool *slides;
    int rc = CKPT_OK;

    if (kind == ZT_WINDOW_NONE)
        return CKPT_OK;
    slides = ckpt_arena_array(f->arena, c->layers, sizeof *slides);
    if (!slides)
        return ckpt_fail_memory(f->err);
    rc = cr_width(f, &width);
    if (rc == CKPT_OK && kind == ZT_WINDOW_UPPER)
        rc = cr_first(f, &first);
    if (first == UINT64_MAX)
        width = 0;
    for (uint64_t i = 0; rc == CKPT_OK && i < c->layers; i++)
        slides[i] = width > 0 && i >= first && !(kind == ZT_WINDOW_PATTERN && i % 2 == 1);
    if (rc == CKPT_OK)
        rc = cr_layer_types(f, kind, slides);
    for (uint64_t i = 0; i < c->layers; i++)
        n += slides[i] ? 1 : 0;
    if (rc == CKPT_OK && n > 0 && width == 0)
        return ckpt_fail(
            f->err, CKPT_EFORMAT, "%s: layer_types has sliding_attention, but sliding_window is %s",
            f->name, kind == ZT_WINDOW_UPPER ? "off (use_sliding_window, sliding_window)" : "null");
    c->window = n > 0 ? width : 0;
    c->slides = n > 0 ? slides : NULL;
    return rc;
}
