/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_rotary.c: reads rotary positions and sliding windows from a config.json.
 *
 * Source: the config classes of transformers 5.23 and their models: a query at i sees keys above
 * i - sliding_window.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "engine/model/config_file.h"

/* ---- rotary positions -------------------------------------------------------------------- */

static bool cr_is_gemma3(const zt_config_file *f)
{
    return strcmp(f->out->model_type, "gemma3_text") == 0;
}

/* The name of the rope block's kind. */
static const char *cr_type(const zt_config_file *f, const ckpt_value *rope)
{
    const ckpt_value *v = zt_config_get(rope, "rope_type");

    v = v ? v : zt_config_get(rope, "type");
    // of old files of Phi-3
    if (v && strcmp(f->out->model_type, "phi3") == 0 && ckpt_value_is(v, "su"))
        return "longrope";
    return v ? zt_config_kind(v) : "default";
}

/* Read a positive number of the rope block. */
static int cr_rope_number(const zt_config_file *f, const ckpt_value *rope, const char *key,
                          double *out)
{
    const ckpt_value *v = zt_config_get(rope, key);

    if (!v)
        return ckpt_fail(f->err, CKPT_EFORMAT, "%s: rope_type %s needs %s", f->name,
                         cr_type(f, rope), key);
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
    return rc;
}

/* Read a list of positive numbers of the rope block, one for each rotated pair. */
static int cr_rope_list(const zt_config_file *f, const ckpt_value *rope, const char *key,
                        const double **out)
{
    const ckpt_value *v = zt_config_get(rope, key);
    const ckpt_seq list = ckpt_value_seq(v);
    double *at;

    if (!v || v->kind != CKPT_V_LIST || list.n != f->out->rotated / 2)
        return ckpt_fail(f->err, CKPT_EFORMAT,
                         "%s: rope_type longrope needs %s, a list of %" PRIu64
                         " numbers, one for each rotated pair; found %" PRIu64,
                         f->name, key, f->out->rotated / 2, list.n);
    at = ckpt_arena_array(f->arena, list.n, sizeof *at);
    if (!at)
        return ckpt_fail_memory(f->err);
    for (uint64_t i = 0; i < list.n; i++) {
        if (!zt_config_number(list.at[i], &at[i]) || !(at[i] > 0 && at[i] < 1e30))
            return zt_config_fail(f, key, list.at[i], "numbers above 0");
    }
    *out = at;
    return CKPT_OK;
}

/*
 * Phi-3: read LongRoPE.  The length of pretraining lies beside the block.  Cosines and sines are
 * multiplied by attention_factor, or by a number that follows from how far the model reaches.
 */
static int cr_rope_long(const zt_config_file *f, const ckpt_value *rope)
{
    zt_model_config *c = f->out;
    const ckpt_value *v = zt_config_get(f->json, "original_max_position_embeddings");
    uint64_t old = 4096;
    double factor;
    int rc = cr_rope_list(f, rope, "short_factor", &c->rope_short);

    if (rc == CKPT_OK)
        rc = cr_rope_list(f, rope, "long_factor", &c->rope_long);
    if (rc == CKPT_OK && v)
        rc = zt_config_size(f, "original_max_position_embeddings", v, &old);
    if (rc == CKPT_OK && old < 2)
        rc = zt_config_fail(f, "original_max_position_embeddings", v, "2 or more");
    if (rc != CKPT_OK)
        return rc;
    c->rope_old = (double)old;
    factor = (double)c->positions / c->rope_old;
    if (zt_config_get(rope, "factor"))
        rc = cr_rope_number(f, rope, "factor", &factor);
    c->rope_factor = factor <= 1 ? 1 : sqrt(1 + log(factor) / log(c->rope_old));
    if (rc == CKPT_OK && zt_config_get(rope, "attention_factor"))
        rc = cr_rope_number(f, rope, "attention_factor", &c->rope_factor);
    return rc;
}

/* Read the base of the frequencies: in the block, or beside it in old files. */
static int cr_rope_theta(const zt_config_file *f, const ckpt_value *rope)
{
    const ckpt_value *v = zt_config_get(rope, "rope_theta");

    if (!v)
        v = zt_config_get(f->json, f->out->arch == ZT_NEOX ? "rotary_emb_base" : "rope_theta");
    f->out->rope_theta = cr_is_gemma3(f) ? 1e6 : 10000;
    if (v && (!zt_config_number(v, &f->out->rope_theta) ||
              !(f->out->rope_theta > 0 && f->out->rope_theta < 1e30)))
        return zt_config_fail(f, "rope_theta", v, "a number above 0");
    return CKPT_OK;
}

/*
 * Read how much of each head rotates: partial_rotary_factor of the rope block, or beside it `old`,
 * or by default `x`.
 */
static int cr_rope_part(const zt_config_file *f, const ckpt_value *rope, const char *old, double x)
{
    zt_model_config *c = f->out;
    const char *key = "partial_rotary_factor";
    const ckpt_value *v = zt_config_get(rope, key);
    const uint64_t even = c->heads > 0 ? c->hidden / c->heads : 0;
    const uint64_t width = c->head_width > 0 ? c->head_width : even;

    if (!v) {
        key = old;
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

/* Read the base of Gemma 3's layers with a window, from their block or beside it. */
static int cr_rope_local(const zt_config_file *f, const ckpt_value *rope)
{
    const char *key = "rope_theta";
    const ckpt_value *v = zt_config_get(rope, key);

    if (!v) {
        key = "rope_local_base_freq";
        v = zt_config_get(f->json, key);
    }
    f->out->rope_local = 10000;
    if (v && (!zt_config_number(v, &f->out->rope_local) ||
              !(f->out->rope_local > 0 && f->out->rope_local < 1e30)))
        return zt_config_fail(f, key, v, "a number above 0");
    if (strcmp(cr_type(f, rope), "default") != 0)
        return ckpt_fail(f->err, CKPT_EUNSUPPORTED,
                         "%s: rope_type of sliding_attention is %s; only default is supported",
                         f->name, cr_type(f, rope));
    return cr_rope_whole(f, rope);
}

/*
 * Gemma 3: refuse a rope_scaling whose type differs from its rope_type, which alone counts there:
 * the class merges it into a block that has a rope_type already, default.
 */
static int cr_rope_old(const zt_config_file *f, const ckpt_value *rope)
{
    const ckpt_value *old = zt_config_get(rope, "type"), *v = zt_config_get(rope, "rope_type");
    const char *type = v ? zt_config_kind(v) : "default";

    if (old && strcmp(zt_config_kind(old), type) != 0)
        return ckpt_fail(f->err, CKPT_EUNSUPPORTED,
                         "%s: rope_scaling has type %s, which Gemma 3 ignores: its rope_type is "
                         "%s; write the kind as rope_type",
                         f->name, zt_config_kind(old), type);
    return CKPT_OK;
}

/*
 * Read the positions of Gemma 3, which has two kinds: rope_parameters has a block for each, and
 * files before release 5 have rope_scaling for the layers without a window.
 */
static int cr_rope_gemma3(const zt_config_file *f, const ckpt_value **rope)
{
    const ckpt_value *all = zt_config_get(f->json, "rope_parameters");
    const ckpt_value *old = zt_config_get(f->json, "rope_scaling");
    const ckpt_value *full = zt_config_get(all, "full_attention");
    const ckpt_value *local = zt_config_get(all, "sliding_attention");
    const uint64_t known = (full ? 1U : 0U) + (local ? 1U : 0U);
    int rc;

    old = old && zt_config_idle(old) ? NULL : old;
    *rope = old ? old : full;
    if ((all && old) || (all && ckpt_value_map(all).n != known) ||
        (full && full->kind != CKPT_V_DICT) || (local && local->kind != CKPT_V_DICT))
        return ckpt_fail(f->err, CKPT_EUNSUPPORTED,
                         "%s: rope_parameters may have the objects full_attention and "
                         "sliding_attention, and nothing else; without it rope_scaling is read",
                         f->name);
    rc = cr_rope_old(f, old);
    return rc == CKPT_OK ? cr_rope_local(f, local) : rc;
}

/* Read the kind of scaling and its numbers. */
static int cr_rope_kind(const zt_config_file *f, const ckpt_value *rope)
{
    zt_model_config *c = f->out;
    const char *type = cr_type(f, rope);
    const bool phi3 = strcmp(c->model_type, "phi3") == 0;

    if (strcmp(type, "default") == 0)
        return CKPT_OK;
    if (strcmp(type, "longrope") == 0 && phi3) {
        c->rope_kind = ZT_ROPE_LONG;
        return cr_rope_long(f, rope);
    }
    if (strcmp(type, "linear") == 0 && !phi3) {
        c->rope_kind = ZT_ROPE_LINEAR;
        return cr_rope_number(f, rope, "factor", &c->rope_factor);
    }
    if (strcmp(type, "llama3") == 0 && !phi3) {
        c->rope_kind = ZT_ROPE_LLAMA3;
        return cr_rope_llama3(f, rope);
    }
    return ckpt_fail(f->err, CKPT_EUNSUPPORTED, "%s: rope_type %s is not supported; supported: %s",
                     f->name, type, phi3 ? "default, longrope" : "default, linear, llama3");
}

/* Read rope_scaling, which files before release 5 have, in preference to rope_parameters. */
int zt_config_rope(const zt_config_file *f)
{
    const char *key = "rope_scaling";
    const bool phi3 = strcmp(f->out->model_type, "phi3") == 0;
    const ckpt_value *rope = zt_config_get(f->json, key);
    int rc;

    if (cr_is_gemma3(f)) {
        rc = cr_rope_gemma3(f, &rope);
        if (rc != CKPT_OK)
            return rc;
    } else if (!rope || zt_config_idle(rope)) {
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
    rc = cr_rope_theta(f, rope);
    if (rc == CKPT_OK && f->out->arch == ZT_NEOX)
        rc = cr_rope_part(f, rope, "rotary_pct", 0.25);
    else if (rc == CKPT_OK && phi3)
        rc = cr_rope_part(f, rope, "partial_rotary_factor", 1);
    else if (rc == CKPT_OK)
        rc = cr_rope_whole(f, rope);
    if (rc == CKPT_OK && !phi3)
        rc = cr_rope_whole(f, f->json);
    return rc == CKPT_OK ? cr_rope_kind(f, rope) : rc;
}

uint64_t zt_model_config_reach(const zt_model_config *c)
{
    const bool scaled = c->rope_kind == ZT_ROPE_LINEAR && strcmp(c->model_type, "gemma3_text") != 0;
    const double reach = (double)c->positions * c->rope_factor;

    if (c->arch == ZT_BLOOM || c->arch == ZT_T5)
        return UINT64_MAX;
    // Gemma 3 states the length after its scaling; a factor below 1 does not shorten texts
    if (!scaled || c->rope_factor <= 1)
        return c->positions;
    return reach < 0x1p63 ? (uint64_t)reach : UINT64_MAX;
}

/* ---- windows ------------------------------------------------------------------------------ */

/* Defaults of missing window keys. */
enum { CR_WINDOW = 4096, CR_UPPER = 28 };

/* Read sliding_window: a width, or 0 for null. */
static int cr_width(const zt_config_file *f, zt_windows kind, uint64_t *out)
{
    const ckpt_value *v = ckpt_value_get(f->json, "sliding_window");

    *out = v || kind == ZT_WINDOW_GIVEN ? 0 : CR_WINDOW;
    return zt_config_get(f->json, "sliding_window") ? zt_config_size(f, "sliding_window", v, out)
                                                    : CKPT_OK;
}

/* Gemma: find which layers have no window: every *out-th. */
static int cr_pattern(const zt_config_file *f, uint64_t *out)
{
    const bool gemma3 = cr_is_gemma3(f);
    const ckpt_value *v = gemma3 ? ckpt_value_get(f->json, "sliding_window_pattern") : NULL;

    *out = gemma3 ? 6 : 2;
    return v ? zt_config_size(f, "sliding_window_pattern", v, out) : CKPT_OK;
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
        if ((kind == ZT_WINDOW_ALL || kind == ZT_WINDOW_GIVEN) && slides[i] != before)
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
    uint64_t width = 0, first = 0, n = 0, pattern = UINT64_MAX;
    bool *slides;
    int rc = CKPT_OK;

    if (kind == ZT_WINDOW_NONE)
        return CKPT_OK;
    slides = ckpt_arena_array(f->arena, c->layers, sizeof *slides);
    if (!slides)
        return ckpt_fail_memory(f->err);
    rc = cr_width(f, kind, &width);
    if (rc == CKPT_OK && kind == ZT_WINDOW_UPPER)
        rc = cr_first(f, &first);
    if (rc == CKPT_OK && kind == ZT_WINDOW_PATTERN)
        rc = cr_pattern(f, &pattern);
    if (first == UINT64_MAX)
        width = 0;
    for (uint64_t i = 0; rc == CKPT_OK && i < c->layers; i++)
        slides[i] = (width > 0 || pattern < UINT64_MAX) && i >= first && (i + 1) % pattern != 0;
    if (rc == CKPT_OK)
        rc = cr_layer_types(f, kind, slides);
    for (uint64_t i = 0; i < c->layers; i++)
        n += slides[i] ? 1 : 0;
    if (rc == CKPT_OK && n > 0 && width == 0)
        return ckpt_fail(
            f->err, CKPT_EFORMAT, "%s: layers have sliding_attention, but sliding_window is %s",
            f->name, kind == ZT_WINDOW_UPPER ? "off (use_sliding_window, sliding_window)" : "null");
    c->window = n > 0 ? width : 0;
    c->slides = n > 0 ? slides : NULL;
    return rc;
}
