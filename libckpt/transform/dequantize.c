/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dequantize.c: turns quantized weights into floating tensors.
 *
 * A weight of low-precision numbers and the tensors that belong to it, found by their names, become
 * one tensor that is computed during reads, by the decoder of its form.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ckpt_shape.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/nest.h"
#include "libckpt/map/quantized.h"
#include "libckpt/map/savepoint.h"
#include "libckpt/transform/dequantize.h"
#include "libckpt/transform/keymap/expr.h"

/* A form of quantized weights. */
typedef struct dqz_form {
    /* suffixes of the names of the weight, of its scales, and of the result */
    const char *weight, *scale, *name;
    ckpt_quant_ways ways; /* the ways of quantization that have this form */
    /* suffixes of the other tensors; the decoder refuses missing ones that it needs */
    const char *other[CKPT_DEQUANT_OTHERS];
    int (*make)(ckpt_dequantizing *w, const ckpt_dequant_parts *p);
    /* makes blocks of another format instead, under the weight's own name; NULL: none has them */
    int (*keep)(ckpt_dequantizing *w, const ckpt_dequant_parts *p);
} dqz_form;

static const dqz_form dqz_forms[] = {
    {"_blocks",
     "_scales",
     "",
     CKPT_QUANT_SCALED,
     {"_zero_point"},
     ckpt_dequant_mxfp4,
     ckpt_repack_mxfp4},
    {"", "_scale_inv", "", CKPT_QUANT_SCALED, {"_zero_point"}, ckpt_dequant_blocks, NULL},
    {"", "_scale", "", CKPT_QUANT_SCALED, {"_zero_point"}, ckpt_dequant_scaled, NULL},
    {".qweight",
     ".scales",
     ".weight",
     CKPT_QUANT_GPTQ | CKPT_QUANT_AWQ | CKPT_QUANT_GEMV,
     {".qzeros", ".g_idx"},
     ckpt_dequant_columns,
     NULL},
    {"_packed",
     "_scale",
     "",
     CKPT_QUANT_PACKED,
     {"_zero_point", "_g_idx", "_shape"},
     ckpt_dequant_packed,
     NULL},
    {"",
     ".absmax",
     "",
     CKPT_QUANT_BNB4,
     {".quant_state.bitsandbytes__nf4", ".quant_state.bitsandbytes__fp4", ".quant_map",
      ".nested_absmax", ".nested_quant_map"},
     ckpt_dequant_codes,
     NULL},
    {"_packed",
     "_scale",
     "",
     CKPT_QUANT_FP4,
     {"_global_scale", "_zero_point"},
     ckpt_dequant_fp4,
     NULL},
    {".weight",
     ".weight_scale",
     ".weight",
     CKPT_QUANT_MODELOPT,
     {".weight_scale_2"},
     ckpt_dequant_modelopt,
     NULL},
    {"_qdata",
     "_scale",
     "",
     CKPT_QUANT_TORCHAO,
     {"_zero_point", "_act_pre_scale", "_act_quant_scale", "_act_quant_zero_point",
      "_per_tensor_scale", "_act_per_tensor_scale"},
     ckpt_dequant_torchao,
     NULL},
    {".weight", ".scales", ".weight", CKPT_QUANT_MLX, {".biases"}, ckpt_dequant_mlx, NULL},
    {".weight", ".SCB", ".weight", CKPT_QUANT_BNB8, {".weight_format"}, ckpt_dequant_rows, NULL},
};

enum { DQZ_FORMS = sizeof dqz_forms / sizeof *dqz_forms, DQZ_NODES = 1 << 22 };

/* Suffixes of scales for activations and KV caches, which do not belong to weights. */
static const char *const dqz_others[] = {".activation_scale",  ".input_scale", ".output_scale",
                                         ".k_scale",           ".v_scale",     ".q_scale",
                                         ".input_global_scale"};

/* ---- all tensors ---- */

static bool dqz_ends(const char *name, const char *end, size_t *keep)
{
    size_t n = strlen(name), m = strlen(end);

    *keep = n - m;
    return n > m && strcmp(name + n - m, end) == 0;
}

/* The index of the tensor with the same name but for its suffix; SIZE_MAX: there is none. */
static int dqz_at(const ckpt_dequantizing *w, const char *name, size_t keep, const char *end,
                  size_t *at)
{
    size_t n = strlen(end);
    char *other = ckpt_alloc(keep + n + 1);

    if (!other)
        return ckpt_fail_memory(w->err);
    memcpy(other, name, keep);
    memcpy(other + keep, end, n + 1);
    *at = ckpt_map_index(w->map, other, keep + n);
    ckpt_free(other);
    return CKPT_OK;
}

/*
 * True for scales of activations, and of the keys and values of attention, which no weight needs.
 */
static bool dqz_is_other(const char *name)
{
    size_t keep;

    for (size_t k = 0; k < sizeof dqz_others / sizeof *dqz_others; k++) {
        if (dqz_ends(name, dqz_others[k], &keep))
            return true;
    }
    return false;
}

/* True if the configuration allows a form, or if there is none and names decide. */
static bool dqz_takes(const ckpt_dequantizing *w, const dqz_form *f)
{
    return (w->scheme.ways & f->ways) &&
           (!w->scheme.scale || strcmp(w->scheme.scale, f->scale) == 0);
}

/* True for the dtypes of packed weights, and of ModelOpt's. */
static bool dqz_is_packed(const ckpt_tensor *t)
{
    return t->dtype == CKPT_F8_E4M3 || t->dtype == CKPT_I32 || t->dtype == CKPT_U32 ||
           t->dtype == CKPT_U8 || t->dtype == CKPT_I8;
}

/* True if a tensor with this ending belongs to a weight of the form. */
static bool dqz_is_known(const dqz_form *f, const char *end)
{
    bool known = strcmp(end, ".bias") == 0 || strcmp(end, f->weight) == 0 ||
                 strcmp(end, f->scale) == 0 || strcmp(end, f->name) == 0 || dqz_is_other(end);

    for (size_t o = 0; o < CKPT_DEQUANT_OTHERS && f->other[o]; o++)
        known = known || strcmp(end, f->other[o]) == 0;
    for (size_t k = 0; k < sizeof dqz_others / sizeof *dqz_others; k++)
        known = known || strcmp(end, dqz_others[k]) == 0;
    return known;
}

/*
 * Refuse a tensor that belongs to a packed weight by its name but is none of the form's parts,
 * because it may change the meaning of the weight.
 */
static int dqz_stray(const ckpt_dequantizing *w, const char *name)
{
    const char *dot = strrchr(name, '.'), *end = dot;
    size_t at;
    int rc = CKPT_OK;

    for (size_t k = 0; dot && rc == CKPT_OK && k < DQZ_FORMS; k++) {
        const dqz_form *f = &dqz_forms[k];
        bool dotted = *f->weight != '_';

        if (f->ways == CKPT_QUANT_SCALED || !dqz_takes(w, f))
            continue;
        for (end = dotted ? dot : strchr(dot, '_'); rc == CKPT_OK && end;
             end = dotted ? NULL : strchr(end + 1, '_')) {
            rc = dqz_at(w, name, (size_t)(end - name), f->weight, &at);
            if (rc == CKPT_OK && at != SIZE_MAX && dqz_is_packed(w->map->tensors.at[at]) &&
                !dqz_is_known(f, end))
                return ckpt_fail(
                    w->err, CKPT_EUNSUPPORTED,
                    "%s: '%.150s' belongs to the packed weight '%.150s' by its name, and "
                    "ckpt does not know how it changes the weight (%.100s)",
                    ckpt_dequant_path(w), name, w->map->tensors.at[at]->name, ckpt_dequant_how(w));
        }
    }
    return rc;
}

/* Combine the weight with index `at` with its scales, tensor i, and with its other tensors. */
static int dqz_weight(ckpt_dequantizing *w, const dqz_form *f, size_t at, size_t i)
{
    ckpt_tensor *const *all = w->map->tensors.at;
    ckpt_dequant_parts p = {.weight = all[at], .scale = all[i]};
    size_t keep = strlen(p.weight->name) - strlen(f->weight), k = SIZE_MAX;
    int rc = CKPT_OK;

    w->gone[i] = true;
    for (size_t o = 0; rc == CKPT_OK && o < CKPT_DEQUANT_OTHERS && f->other[o]; o++) {
        rc = dqz_at(w, p.weight->name, keep, f->other[o], &k);
        if (rc != CKPT_OK || k == SIZE_MAX || w->gone[k])
            continue;
        p.other[o] = all[k];
        w->gone[k] = true;
    }
    p.name = p.weight->name;
    if (rc == CKPT_OK && *f->weight) {
        p.name = ckpt_arena_printf(w->map->arena, "%.*s%s", (int)keep, p.weight->name, f->name);
        rc = p.name ? dqz_at(w, p.name, strlen(p.name), "", &k) : ckpt_fail_memory(w->err);
        if (rc == CKPT_OK && k != SIZE_MAX && k != at)
            rc = ckpt_fail(w->err, CKPT_EMISMATCH,
                           "%.200s is stored as floats and, quantized, as '%.150s'", p.name,
                           p.weight->name);
    }
    if (rc == CKPT_OK && w->blocks && f->keep) {
        p.name = p.weight->name;
        return f->keep(w, &p);
    }
    if (rc == CKPT_OK && w->transposed && f->ways != CKPT_QUANT_SCALED &&
        f->make != ckpt_dequant_columns)
        rc = ckpt_dequant_turned(w, &p);
    return rc == CKPT_OK ? f->make(w, &p) : rc;
}

/* Clear *scales if a tensor belongs to a weight, but is not its scales: X_global_scale. */
static int dqz_is_besides(const ckpt_dequantizing *w, const char *name, bool *scales)
{
    size_t keep, at;
    int rc = CKPT_OK;

    for (size_t k = 0; k < DQZ_FORMS; k++) {
        const dqz_form *f = &dqz_forms[k];

        for (size_t o = 0; rc == CKPT_OK && o < CKPT_DEQUANT_OTHERS && f->other[o]; o++) {
            if (!dqz_takes(w, f) || !dqz_ends(name, f->other[o], &keep))
                continue;
            rc = dqz_at(w, name, keep, f->weight, &at);
            *scales = *scales && at == SIZE_MAX;
        }
    }
    return rc;
}

/* If tensor i has scales, combine them with their weight. */
static int dqz_scale(ckpt_dequantizing *w, size_t i)
{
    const char *name = w->map->tensors.at[i]->name;
    bool scales = false;
    size_t keep, at;
    int rc = CKPT_OK;

    for (size_t k = 0; rc == CKPT_OK && k < DQZ_FORMS; k++) {
        const dqz_form *f = &dqz_forms[k];

        if (!dqz_takes(w, f) || !dqz_ends(name, f->scale, &keep))
            continue;
        scales = true;
        rc = dqz_at(w, name, keep, f->weight, &at);
        if (rc == CKPT_OK && at != SIZE_MAX)
            return w->gone[at] ? CKPT_OK : dqz_weight(w, f, at, i);
    }
    if (rc == CKPT_OK && scales)
        rc = dqz_is_besides(w, name, &scales);
    if (rc == CKPT_OK && scales && w->scheme.scale && !dqz_is_other(name))
        rc = ckpt_fail(w->err, CKPT_EMISSING, "'%.200s' has no weight that it would scale (%.200s)",
                       name, ckpt_dequant_how(w));
    return rc;
}

/* Tensors are renamed during the loop; a renamed one is never looked up again. */
static int dqz_all(ckpt_dequantizing *w)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < w->map->tensors.n; i++)
        rc = dqz_stray(w, w->map->tensors.at[i]->name);
    for (size_t i = 0; rc == CKPT_OK && i < w->map->tensors.n; i++)
        rc = w->gone[i] ? CKPT_OK : dqz_scale(w, i);
    for (size_t i = 0; rc == CKPT_OK && i < w->map->tensors.n; i++) {
        if (!w->gone[i] && dqz_is_other(w->map->tensors.at[i]->name)) {
            w->gone[i] = true;
            w->n_others++;
        }
    }
    return rc;
}

/* True for the name of a form's weight, or of another tensor that belongs to one. */
static bool dqz_is_part(const ckpt_dequantizing *w, const char *name)
{
    size_t keep;

    for (size_t k = 0; k < DQZ_FORMS; k++) {
        const dqz_form *f = &dqz_forms[k];

        if (!w->scheme.scale || !dqz_takes(w, f))
            continue;
        if (*f->weight && dqz_ends(name, f->weight, &keep))
            return true;
        for (size_t o = 0; o < CKPT_DEQUANT_OTHERS && f->other[o]; o++) {
            if (dqz_ends(name, f->other[o], &keep))
                return true;
        }
    }
    return false;
}

/* True for a low-precision tensor that cannot be converted to floats without scales. */
static bool dqz_is_stored(const ckpt_dequantizing *w, const ckpt_tensor *t)
{
    size_t keep;

    if (w->scheme.integers && t->dtype == CKPT_I8)
        return w->scheme.scale && dqz_ends(t->name, ".weight", &keep);
    if (t->dtype == CKPT_U8 && (w->scheme.ways & CKPT_QUANT_BNB4) &&
        dqz_ends(t->name, ".weight", &keep))
        return true;
    if (t->dtype == CKPT_U8 || t->dtype == CKPT_I32 || t->dtype == CKPT_U32 ||
        t->dtype == CKPT_I64 || t->dtype == CKPT_I8)
        return dqz_is_part(w, t->name);
    return t->dtype == CKPT_F8_E4M3 || t->dtype == CKPT_F8_E5M2 || t->dtype == CKPT_F8_E4M3FNUZ ||
           t->dtype == CKPT_F8_E5M2FNUZ;
}

/* Remove the scales from the list, and fail if a low-precision tensor without scales remains. */
static int dqz_drop(ckpt_dequantizing *w)
{
    size_t n = 0;

    for (size_t i = 0; i < w->map->tensors.n; i++) {
        ckpt_tensor *t = w->map->tensors.at[i];

        if (!w->gone[i] && dqz_is_stored(w, t))
            return ckpt_fail(w->err, CKPT_EMISSING,
                             "tensor %.200s has dtype %s like the quantized weights, but no scales",
                             t->name, ckpt_dtype_name(t->dtype));
        if (!w->gone[i])
            w->map->tensors.at[n++] = t;
    }
    w->map->tensors.n = n;
    return ckpt_map_reindex(w->map, w->err);
}

/* Find out whether the model's linear layers store [in, out]: transformers' Conv1D. */
static bool dqz_transposed(const ckpt_rm_facts *facts)
{
    static const char *const types[] = {"gpt2", "openai-gpt", "imagegpt", "decision_transformer"};
    const ckpt_value *v = ckpt_rm_fact(facts, "model_type");

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (ckpt_value_is(v, types[i]))
            return true;
    }
    return false;
}

/*
 * Read ModelOpt's own file, which its older releases wrote instead of a quantization_config, and
 * newer ones write besides.
 */
static int dqz_modelopt(ckpt_dequantizing *w, const ckpt_value **q)
{
    const ckpt_value *file = NULL, *own, *algo, *other = ckpt_value_get(*q, "quant_algo");
    int rc = CKPT_OK;

    if (!*q || ckpt_value_is(ckpt_value_get(*q, "quant_method"), "modelopt"))
        rc = ckpt_rm_beside(&file, w->map, "hf_quant_config.json", w->err);
    own = ckpt_value_get(file, "quantization");
    algo = ckpt_value_get(own, "quant_algo");
    if (rc != CKPT_OK || !algo || algo->kind != CKPT_V_STR)
        return rc;
    if (*q && !ckpt_value_equal(algo, other, DQZ_NODES))
        return ckpt_fail(w->err, CKPT_EMISMATCH,
                         "%s: quant_algo in hf_quant_config.json is %.100s, and in config.json "
                         "another one, so ckpt cannot know how the weights are stored",
                         ckpt_dequant_path(w), algo->as.text.at);
    if (*q)
        return CKPT_OK;
    *q = own;
    w->map->known.quantized = ckpt_arena_printf(
        w->map->arena, "hf_quant_config.json: modelopt, %.100s", algo->as.text.at);
    return w->map->known.quantized ? CKPT_OK : ckpt_fail_memory(w->err);
}

/* The first of these sizes that the configuration has; 0: none. */
static uint64_t dqz_size(const ckpt_rm_facts *facts, const char *const *keys, size_t n)
{
    int64_t size = 0;

    for (size_t i = 0; i < n; i++) {
        if (ckpt_value_as_int(ckpt_rm_fact(facts, keys[i]), &size) && size > 0)
            return (uint64_t)size;
    }
    return 0;
}

/* Read the configuration: the model's dtype and the quantization. */
static int dqz_config(ckpt_dequantizing *w)
{
    static const char *const keys[] = {"quantization_config", "compression_config",
                                       "text_config.quantization_config", "quantization"};
    static const char *const vocab[] = {"vocab_size", "text_config.vocab_size"},
                             *const hidden[] = {"hidden_size", "text_config.hidden_size", "n_embd"};
    const ckpt_value *q = NULL, *mlx = NULL;
    ckpt_remap none = {0};
    const ckpt_remap_how how = {0};
    ckpt_rm_facts facts;
    int rc = ckpt_rm_facts_open(&facts, &none, w->map, &how, w->err);

    for (size_t i = 0; rc == CKPT_OK && !q && i < sizeof keys / sizeof *keys; i++) {
        const ckpt_value *v = ckpt_rm_fact(&facts, keys[i]);
        q = v && v->kind == CKPT_V_DICT ? v : NULL;
    }
    // mlx-lm writes the same object twice, and reads this one
    if (rc == CKPT_OK && q && !ckpt_value_get(q, "quant_method"))
        mlx = ckpt_rm_fact(&facts, "quantization");
    if (mlx && !ckpt_value_equal(mlx, q, DQZ_NODES))
        rc = ckpt_fail(w->err, CKPT_EMISMATCH,
                       "%s: quantization and quantization_config in config.json differ, so ckpt "
                       "cannot know how the weights are stored",
                       ckpt_dequant_path(w));
    if (rc == CKPT_OK)
        rc = dqz_modelopt(w, &q);
    if (rc == CKPT_OK)
        rc = ckpt_quant_scheme_of(&w->scheme, q, ckpt_dequant_path(w), w->err);
    // weights of a pickle, or a single file of torchao's
    if (rc == CKPT_OK && !q && ckpt_dequant_torchao_has(w->map))
        w->scheme.ways |= CKPT_QUANT_TORCHAO;
    if (rc == CKPT_OK)
        w->transposed = dqz_transposed(&facts);
    if (rc == CKPT_OK) {
        w->n_vocab = dqz_size(&facts, vocab, 2);
        w->n_hidden = dqz_size(&facts, hidden, 3);
    }
    for (size_t i = 0; rc == CKPT_OK && i < 2 && w->model == CKPT_DTYPE_NONE; i++) {
        const ckpt_value *v = ckpt_rm_fact(&facts, i ? "torch_dtype" : "dtype");
        if (v && v->kind == CKPT_V_STR)
            w->model = ckpt_dtype_parse(v->as.text.at);
    }
    for (size_t i = 0; w->model == CKPT_DTYPE_NONE && i < w->map->tensors.n; i++) {
        ckpt_dtype d = w->map->tensors.at[i]->dtype;
        if (d == CKPT_BF16 || d == CKPT_F16)
            w->model = d;
    }
    if (w->model != CKPT_F32 && w->model != CKPT_F16)
        w->model = CKPT_BF16;
    return rc;
}

/* The quantization of the weights, for facts and messages. */
static const char *dqz_how(const ckpt_dequantizing *w)
{
    return w->map->known.quantized ? w->map->known.quantized
           : w->own                ? "torchao, pickled"
                                   : "by their scales";
}

/* Add a fact with a number of weights, unless it is 0. */
static int dqz_fact(const ckpt_dequantizing *w, const char *key, uint64_t n)
{
    return n > 0 ? ckpt_map_fact(w->map, w->err, key, "%" PRIu64 " weight%s (%.100s)", n,
                                 n == 1 ? "" : "s", dqz_how(w))
                 : CKPT_OK;
}

/* Update the facts to the new tensors. */
static int dqz_facts(const ckpt_dequantizing *w)
{
    ckpt_facts *facts = &w->map->facts;
    size_t n = 0;
    int rc = dqz_fact(w, "dequantized", w->n_made - w->n_kept);

    if (rc == CKPT_OK)
        rc = dqz_fact(w, "kept in blocks", w->n_kept);
    for (size_t i = 0; i < facts->n; i++) {
        if (strcmp(facts->at[i].key, "quantized") != 0)
            facts->at[n++] = facts->at[i];
    }
    facts->n = n;
    return rc;
}

static int dqz_say(const ckpt_dequantizing *w)
{
    const uint64_t n = w->n_made - w->n_kept;
    int rc = CKPT_OK;

    if (w->n_kept > 0)
        rc = ckpt_map_note(w->map, CKPT_INFO, w->err,
                           "%s: kept in blocks: %" PRIu64 " weight%s (%.100s), with the same bits",
                           ckpt_dequant_path(w), w->n_kept, w->n_kept == 1 ? "" : "s", dqz_how(w));
    if (rc == CKPT_OK && n > 0)
        rc = ckpt_map_note(w->map, CKPT_INFO, w->err,
                           "%s: dequantized: %" PRIu64 " weight%s (%.100s), %s where nothing "
                           "else is asked for",
                           ckpt_dequant_path(w), n, n == 1 ? "" : "s", dqz_how(w),
                           w->own ? "each in its dtype" : ckpt_dtype_name(w->model));

    if (rc == CKPT_OK && w->n_others > 0)
        rc = ckpt_map_note(w->map, CKPT_INFO, w->err,
                           "%s: left out %" PRIu64
                           " scales of activations and KV caches, because the "
                           "output's weights are not quantized",
                           ckpt_dequant_path(w), w->n_others);
    return rc;
}

bool ckpt_map_is_quantized(const ckpt_map *map)
{
    return map && ckpt_quantized(map);
}

/* Replace weights and drop scales; a failure leaves the map half changed. */
static int dqz_change(ckpt_dequantizing *w)
{
    int rc = dqz_config(w);

    if (rc == CKPT_OK)
        rc = dqz_all(w);
    if (rc == CKPT_OK && w->n_made > 0)
        rc = dqz_drop(w);
    if (rc == CKPT_OK && w->n_made > 0)
        rc = dqz_say(w);
    if (rc == CKPT_OK && w->n_made > 0)
        rc = dqz_facts(w);
    if (rc == CKPT_OK && (w->scheme.ways & CKPT_QUANT_TORCHAO))
        ckpt_dequant_torchao_forget(w->map);
    if (rc == CKPT_OK && w->n_made > 0) {
        w->map->known.quantized = NULL;
        w->map->dequantized = true;
        w->map->wrapped = false;
    }
    return rc == CKPT_OK ? ckpt_quantized_refuse(w->map, "asking for floats", w->err) : rc;
}

static int dqz_map(ckpt_map *map, bool rounded, bool blocks, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_dequantizing w = {.map = map,
                           .model = CKPT_DTYPE_NONE,
                           .rounded = rounded,
                           .blocks = blocks,
                           .own = map && map->wrapped,
                           .err = err};
    ckpt_savepoint *saved = NULL;
    int rc;

    if (!map)
        return ckpt_fail(err, CKPT_EUSAGE, "no map to dequantize");
    if (!ckpt_quantized(map))
        return CKPT_OK;
    if (map->quantized_part)
        return ckpt_quantized_refuse(map, "asking for floats", err);
    w.gone = ckpt_alloc(map->tensors.n + 1);
    rc = w.gone ? ckpt_savepoint_new(&saved, map, err) : ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = ckpt_savepoint_end(saved, dqz_change(&w));
    ckpt_reader_free(w.reader);
    ckpt_index_free(&w.said);
    ckpt_free(w.gone);
    return rc;
}

int ckpt_map_dequantize(ckpt_map *map, bool rounded, ckpt_err *err)
{
    return dqz_map(map, rounded, false, err);
}

int ckpt_map_repack(ckpt_map *map, bool rounded, ckpt_err *err)
{
    return dqz_map(map, rounded, true, err);
}
