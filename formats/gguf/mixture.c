/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mixture.c: chooses each tensor's type by llama.cpp's quantization rules.
 *
 * The rules go by GGUF names of tensors and do not know models.  Source: llama.cpp's converter and
 * llama-quant.cpp, of 2026.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "formats/gguf/model.h"
#include "libckpt/base/cast.h"
#include "libckpt/base/number.h"
#include "libckpt/map/importance.h"

/* The mixtures, with their numbers in general.file_type. */
typedef enum gmx_mix {
    GMX_F32 = 0,
    GMX_F16 = 1,
    GMX_Q4_0 = 2,
    GMX_Q4_1 = 3,
    GMX_Q8_0 = 7,
    GMX_Q5_0 = 8,
    GMX_Q5_1 = 9,
    GMX_Q2_K = 10,
    GMX_Q3_K_S = 11,
    GMX_Q3_K_M = 12,
    GMX_Q3_K_L = 13,
    GMX_Q4_K_S = 14,
    GMX_Q4_K_M = 15,
    GMX_Q5_K_S = 16,
    GMX_Q5_K_M = 17,
    GMX_Q6_K = 18,
    GMX_Q2_K_S = 21,
    GMX_BF16 = 32,
    GMX_MXFP4_MOE = 38
} gmx_mix;

static const struct {
    const char *name;
    gmx_mix mix;
    ckpt_dtype type; /* type of tensors without a rule */
} gmx_mixes[] = {
    {"F32", GMX_F32, CKPT_F32},
    {"F16", GMX_F16, CKPT_F16},
    {"BF16", GMX_BF16, CKPT_BF16},
    {"Q4_0", GMX_Q4_0, CKPT_Q4_0},
    {"Q4_1", GMX_Q4_1, CKPT_Q4_1},
    {"Q8_0", GMX_Q8_0, CKPT_Q8_0},
    {"Q5_0", GMX_Q5_0, CKPT_Q5_0},
    {"Q5_1", GMX_Q5_1, CKPT_Q5_1},
    {"Q2_K", GMX_Q2_K, CKPT_Q2_K},
    {"Q6_K", GMX_Q6_K, CKPT_Q6_K},
    {"Q3_K_S", GMX_Q3_K_S, CKPT_Q3_K},
    {"Q3_K_M", GMX_Q3_K_M, CKPT_Q3_K},
    {"Q3_K_L", GMX_Q3_K_L, CKPT_Q3_K},
    {"Q4_K_S", GMX_Q4_K_S, CKPT_Q4_K},
    {"Q4_K_M", GMX_Q4_K_M, CKPT_Q4_K},
    {"Q5_K_S", GMX_Q5_K_S, CKPT_Q5_K},
    {"Q5_K_M", GMX_Q5_K_M, CKPT_Q5_K},
    {"Q2_K_S", GMX_Q2_K_S, CKPT_Q2_K},
    {"MXFP4_MOE", GMX_MXFP4_MOE, CKPT_MXFP4},
};

typedef struct gmx_rule {
    gmx_mix mix;
    ckpt_dtype type;
    bool pure; /* all tensors get the same type */
    bool tied; /* the token embedding is also the output */
    bool is_70b;
    uint64_t n_layers, n_v, heads_per_kv, n_experts;
    uint64_t i_v, i_down; /* number of tensors seen so far */
    ckpt_map *to;
    ckpt_err *err;
} gmx_rule;

static bool gmx_has(const ckpt_tensor *t, const char *part)
{
    return strstr(t->name, part) != NULL;
}

static bool gmx_ends(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n >= m && strcmp(name + n - m, end) == 0;
}

static bool gmx_is_v(const ckpt_tensor *t)
{
    return gmx_has(t, "attn_v.weight") || gmx_has(t, "attn_qkv.weight") ||
           gmx_has(t, "attn_kv_b.weight");
}

/* True if the type of a matrix is chosen.  Vectors, norms, routers, position embeddings and
 * convolutions over the sequence stay F32. */
static bool gmx_is_chosen(const ckpt_tensor *t)
{
    if (gmx_ends(t->name, ".weight.lora_a") || gmx_ends(t->name, ".weight.lora_b"))
        return t->ndim >= 2;
    return t->ndim >= 2 && gmx_ends(t->name, "weight") && !gmx_has(t, "_norm.weight") &&
           !gmx_has(t, "ffn_gate_inp.weight") && !gmx_has(t, "ssm_conv1d.weight") &&
           strcmp(t->name, "position_embd.weight") != 0 &&
           strcmp(t->name, "token_types.weight") != 0;
}

/* True for layers that llama.cpp gives more bits: the first and last eighth, and every third
 * between. */
static bool gmx_more(uint64_t i, uint64_t n)
{
    return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
}

/* ---- the rules ---- */

static ckpt_dtype gmx_output(const gmx_rule *r, const ckpt_tensor *t)
{
    uint64_t row = t->shape[t->ndim - 1];

    if (row % ckpt_dtype_get(r->type)->per != 0 || r->type == CKPT_Q8_0)
        return CKPT_Q8_0;
    return CKPT_Q6_K;
}

static ckpt_dtype gmx_v(gmx_rule *r)
{
    uint64_t i = r->i_v++;
    ckpt_dtype type = r->type;

    if (r->mix == GMX_Q2_K)
        type = r->heads_per_kv >= 4 ? CKPT_Q4_K : CKPT_Q3_K;
    else if (r->mix == GMX_Q2_K_S && r->heads_per_kv >= 4)
        type = CKPT_Q4_K;
    else if (r->mix == GMX_Q3_K_M)
        type = i < 2 ? CKPT_Q5_K : CKPT_Q4_K;
    else if (r->mix == GMX_Q3_K_L)
        type = CKPT_Q5_K;
    else if ((r->mix == GMX_Q4_K_M || r->mix == GMX_Q5_K_M) && gmx_more(i, r->n_v))
        type = CKPT_Q6_K;
    else if (r->mix == GMX_Q4_K_S && i < 4)
        type = CKPT_Q5_K;
    if (r->is_70b && (type == CKPT_Q3_K || type == CKPT_Q4_K))
        type = CKPT_Q5_K;
    return r->n_experts == 8 ? CKPT_Q8_0 : type;
}

/* llama.cpp counts these tensors in the order of the file, but with experts it uses the block
 * number. */
static ckpt_dtype gmx_down(gmx_rule *r, const ckpt_tensor *t)
{
    uint64_t i = r->i_down++, n = r->n_layers;
    ckpt_dtype type = r->type;

    if (r->n_experts > 1 && strncmp(t->name, "blk.", 4) == 0)
        (void)ckpt_scan_u64(t->name + 4, &i);
    if (r->mix == GMX_Q2_K)
        type = CKPT_Q3_K;
    else if (r->mix == GMX_Q2_K_S && i < n / 8)
        type = CKPT_Q4_K;
    else if (r->mix == GMX_Q3_K_M)
        type = i < n / 16 ? CKPT_Q5_K : CKPT_Q4_K;
    else if (r->mix == GMX_Q3_K_L)
        type = CKPT_Q5_K;
    else if ((r->mix == GMX_Q4_K_M || r->mix == GMX_Q5_K_M) && gmx_more(i, n))
        type = CKPT_Q6_K;
    else if (r->mix == GMX_Q4_K_S && i < n / 8)
        type = CKPT_Q5_K;
    else if (r->to->importance && (r->mix == GMX_Q4_0 || r->mix == GMX_Q5_0) && i < n / 8)
        type = r->mix == GMX_Q4_0 ? CKPT_Q4_1 : CKPT_Q5_1;
    return type;
}

static ckpt_dtype gmx_attention_output(const gmx_rule *r)
{
    bool small = r->mix == GMX_Q2_K || r->mix == GMX_Q3_K_S || r->mix == GMX_Q3_K_M ||
                 r->mix == GMX_Q4_K_S || r->mix == GMX_Q4_K_M;

    if (r->n_experts == 8)
        return small ? CKPT_Q5_K : r->type;
    if (r->mix == GMX_Q2_K)
        return CKPT_Q3_K;
    if (r->mix == GMX_Q3_K_M)
        return CKPT_Q4_K;
    return r->mix == GMX_Q3_K_L ? CKPT_Q5_K : r->type;
}

static ckpt_dtype gmx_mixed(gmx_rule *r, const ckpt_tensor *t)
{
    bool table = strcmp(t->name, "token_embd.weight") == 0;

    // experts have three axes
    if (r->mix == GMX_MXFP4_MOE)
        return t->ndim > 2 && t->shape[t->ndim - 3] > 1 ? CKPT_MXFP4 : CKPT_Q8_0;
    if (strcmp(t->name, "output.weight") == 0 || (table && r->tied))
        return gmx_output(r, t);
    if (gmx_is_v(t))
        return gmx_v(r);
    if (gmx_has(t, "attn_k.weight"))
        return r->n_experts == 8 ? CKPT_Q8_0 : r->type;
    if (gmx_has(t, "attn_output.weight"))
        return gmx_attention_output(r);
    return gmx_has(t, "ffn_down") ? gmx_down(r, t) : r->type;
}

/* Rows that do not fill whole blocks get a similar type with blocks of 32 elements, or F16. */
static ckpt_dtype gmx_fits(ckpt_dtype type, uint64_t row)
{
    assert(type != CKPT_DTYPE_NONE);
    if (row % ckpt_dtype_get(type)->per == 0)
        return type;
    switch ((int)type) {
    case CKPT_Q4_K:
        type = CKPT_Q5_0;
        break;
    case CKPT_Q5_K:
        type = CKPT_Q5_1;
        break;
    case CKPT_Q6_K:
        type = CKPT_Q8_0;
        break;
    case CKPT_Q2_K:
    case CKPT_Q3_K:
        type = CKPT_Q4_0;
        break;
    default:
        break;
    }
    return row % ckpt_dtype_get(type)->per == 0 ? type : CKPT_F16;
}

static ckpt_dtype gmx_type(gmx_rule *r, const ckpt_tensor *t)
{
    ckpt_dtype type = r->type;

    if (!gmx_is_chosen(t))
        return CKPT_F32;
    // to the quantizer a matrix of one row is a vector; the converter has a rule for this one
    if (ckpt_dtype_packed(type) ? t->n_elems == t->shape[t->ndim - 1]
                                : gmx_has(t, "ffn_gate_inp_shexp.weight"))
        return CKPT_F32;
    if (ckpt_dtype_packed(type) && !r->pure)
        type = gmx_mixed(r, t);
    return gmx_fits(type, t->shape[t->ndim - 1]);
}

/* ---- all tensors ---- */

/* Set a tensor's type, if a conversion exists. */
static int gmx_set(gmx_rule *r, ckpt_tensor *t, const ckpt_tensor *from)
{
    ckpt_dtype type = gmx_type(r, t);

    if (ckpt_dtype_get(from->dtype)->kind != CKPT_IS_FLOAT)
        return CKPT_OK;
    if (r->mix == GMX_Q2_K_S && type == CKPT_Q2_K && !r->to->importance &&
        strcmp(t->name, "token_embd.weight") != 0)
        return ckpt_fail(r->err, CKPT_EUNSUPPORTED,
                         "tensor %.200s: q2_k_s needs an importance matrix (--imatrix FILE); q2_k "
                         "needs none",
                         t->name);
    if (type != from->dtype && ckpt_dtype_packed(type) && ckpt_dtype_packed(from->dtype))
        return ckpt_fail(r->err, CKPT_EUNSUPPORTED,
                         "tensor %.200s is already %s: quantizing it again to %s loses more "
                         "precision than either; convert the original weights",
                         t->name, ckpt_dtype_name(from->dtype), ckpt_dtype_name(type));
    if (!ckpt_cast_find(type, from->dtype) && type != from->dtype)
        return ckpt_fail(r->err, CKPT_EUNSUPPORTED, "tensor %.200s: %s cannot be converted to %s",
                         t->name, ckpt_dtype_name(from->dtype), ckpt_dtype_name(type));
    t->dtype = type;
    return CKPT_OK;
}

/* Read the model's properties that the rules need. */
static void gmx_facts(gmx_rule *r)
{
    char key[128];
    const ckpt_key *arch = ckpt_gguf_key(r->to, "general.architecture");
    const char *name = arch && arch->value->kind == CKPT_V_STR ? arch->value->as.text.at : "";
    uint64_t heads = 1, kv;

    (void)snprintf(key, sizeof key, "%.60s.block_count", name);
    (void)ckpt_gguf_number(r->to, key, &r->n_layers);
    (void)snprintf(key, sizeof key, "%.60s.expert_count", name);
    (void)ckpt_gguf_number(r->to, key, &r->n_experts);
    (void)snprintf(key, sizeof key, "%.60s.attention.head_count", name);
    (void)ckpt_gguf_number(r->to, key, &heads);
    kv = heads;
    (void)snprintf(key, sizeof key, "%.60s.attention.head_count_kv", name);
    (void)ckpt_gguf_number(r->to, key, &kv);
    r->heads_per_kv = kv ? heads / kv : 1;
    r->is_70b = strcmp(name, "llama") == 0 && r->n_layers == 80 && heads != kv;
    r->tied = true;
    for (size_t i = 0; i < r->to->tensors.n; i++) {
        const ckpt_tensor *t = r->to->tensors.at[i];

        r->n_v += gmx_is_v(t);
        r->tied = r->tied && strcmp(t->name, "output.weight") != 0;
    }
}

/* Find a mixture by name or dtype.  A dtype that is not a llama.cpp mixture is used everywhere,
 * with the number of a related mixture. */
static bool gmx_find(gmx_rule *r, const char *name, ckpt_dtype type)
{
    for (size_t i = 0; i < sizeof gmx_mixes / sizeof *gmx_mixes; i++) {
        bool same = name && strcasecmp(gmx_mixes[i].name, name) == 0;

        r->pure = !same && !name && gmx_mixes[i].type == type;
        if (!same && !r->pure)
            continue;
        if (r->pure && strcmp(gmx_mixes[i].name, ckpt_dtype_name(type)) == 0)
            r->pure = false;
        r->mix = gmx_mixes[i].mix;
        r->type = gmx_mixes[i].type;
        return true;
    }
    return false;
}

/* The tensor of the source with the values of a target tensor, or that itself. */
static const ckpt_tensor *gmx_origin(const ckpt_map *from, const ckpt_tensor *t)
{
    size_t at = ckpt_map_index(from, t->origin, strlen(t->origin));
    const ckpt_tensor *o = at == SIZE_MAX ? t : from->tensors.at[at];

    return o->owner ? o->owner : o;
}

int ckpt_gguf_mix(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, uint64_t *number,
                  ckpt_err *err)
{
    assert(to && from && target && number);
    gmx_rule r = {.to = to, .err = err};
    int rc = CKPT_OK;

    if (!gmx_find(&r, target->mixture, target->dtype))
        return ckpt_fail(err, CKPT_EUSAGE, "%s is not a type that a GGUF model can have",
                         target->mixture ? target->mixture : ckpt_dtype_name(target->dtype));
    *number = (uint64_t)r.mix;
    gmx_facts(&r);
    for (size_t i = 0; rc == CKPT_OK && i < to->tensors.n; i++)
        rc = gmx_set(&r, to->tensors.at[i], gmx_origin(from, to->tensors.at[i]));
    return rc;
}

uint64_t ckpt_gguf_mix_own(ckpt_map *to, bool keep)
{
    ckpt_dtype most = CKPT_F32;
    bool blocks = false;

    for (size_t i = 0; i < to->tensors.n; i++) {
        ckpt_tensor *t = to->tensors.at[i];

        blocks = blocks || t->dtype == CKPT_MXFP4;
        if (ckpt_dtype_get(t->dtype)->kind != CKPT_IS_FLOAT)
            continue;
        if (gmx_is_chosen(t))
            most = t->dtype;
        else if (!keep && ckpt_cast_find(CKPT_F32, t->dtype))
            t->dtype = CKPT_F32;
    }
    if (blocks)
        return GMX_MXFP4_MOE; // whatever the other tensors are, as llama.cpp's converter says
    for (size_t i = 0; i < sizeof gmx_mixes / sizeof *gmx_mixes; i++) {
        if (gmx_mixes[i].type == most)
            return (uint64_t)gmx_mixes[i].mix;
    }
    return GMX_F32;
}

/* ---- importance ---- */

/* Quantized tensors without an entry, and tensors with one. */
typedef struct gmx_weighed {
    uint64_t n, n_missing;
    const char *missing; /* the first of them that is no embedding */
    bool needs;          /* the mixture cannot do without */
} gmx_weighed;

/* Find the importance of one tensor that is quantized from floats. */
static int gmx_weigh(ckpt_map *to, ckpt_tensor *t, gmx_weighed *w, ckpt_err *err)
{
    const bool table = gmx_ends(t->name, "token_embd.weight");
    ckpt_importance *by = ckpt_arena_alloc(to->arena, sizeof *by);
    int rc = by ? ckpt_importance_find(by, to->importance, t, err) : ckpt_fail_memory(err);

    if (rc != CKPT_OK)
        return rc;
    if (by->of) {
        t->importance = by;
        w->n++;
        return CKPT_OK;
    }
    if (w->needs && t->dtype == CKPT_Q2_K && !table)
        return ckpt_fail(err, CKPT_EMISSING,
                         "tensor %.200s: q2_k_s needs its importance, but %.200s has no entry for "
                         "it",
                         t->name, to->importance->path);
    if (!table) {
        w->missing = w->missing ? w->missing : t->name;
        w->n_missing++;
    }
    return CKPT_OK;
}

/* Report tensors without an entry in the matrix, and a matrix without effect. */
static int gmx_weighed_notes(ckpt_map *to, const gmx_weighed *w, ckpt_err *err)
{
    const char *path = to->importance->path;

    if (w->n == 0 && w->n_missing > 0)
        return ckpt_fail(err, CKPT_EMISMATCH,
                         "%s: the importance matrix has no entry for any quantized tensor, such as "
                         "%.200s: the matrix is of another model",
                         path, w->missing);
    if (w->n == 0)
        return ckpt_map_note(to, CKPT_WARNING, err,
                             "%s: the importance matrix has no effect: no tensor gets a type that "
                             "takes it (all quantized types but q8_0 and mxfp4)",
                             path);
    if (w->n_missing == 0)
        return CKPT_OK;
    return ckpt_map_note(
        to, CKPT_WARNING, err,
        "%s: the importance matrix has no entry for %" PRIu64
        " quantized tensor%s, such as %.200s: ckpt quantizes them without importance",
        path, w->n_missing, w->n_missing == 1 ? "" : "s", w->missing);
}

int ckpt_gguf_weigh(ckpt_map *to, const ckpt_map *from, uint64_t number, ckpt_err *err)
{
    gmx_weighed w = {.needs = number == GMX_Q2_K_S};
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < to->tensors.n; i++) {
        ckpt_tensor *t = to->tensors.at[i];

        if (!t->owner && ckpt_dtype_weighs(t->dtype) && t->dtype != gmx_origin(from, t)->dtype)
            rc = gmx_weigh(to, t, &w, err);
    }
    for (size_t i = 0; rc == CKPT_OK && i < to->importance->keys.n; i++)
        rc = ckpt_gguf_put(to, &to->importance->keys.at[i], err);
    return rc == CKPT_OK ? gmx_weighed_notes(to, &w, err) : rc;
}
