/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank_names.c: decides for each tensor of a model which model-parallel ranks have it, under which
 * name, and which slice of it.
 *
 *     layers     over pipeline stages, evenly; numbers begin at 0 in each stage
 *     experts    over expert-parallel ranks, evenly; numbers begin at 0 in each
 *     embedding  in the first stage; in the last one too if the head is tied to it
 *     head, last norm  in the last stage
 *
 * Norms and experts have the names of Transformer Engine's layers, which fuse norms with the next
 * linear layer and experts into one module, or the names of Megatron-Core's own layers.  Checked
 * against mbridge's names and slices, and by loading (tests/interop/mcore_import.py, mcore.py).
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/megatron/write_ranks.h"
#include "libckpt/base/index.h"
#include "libckpt/base/number.h"

enum { MGN_MAX_NUMBER = 1 << 20 };

/* ---- numbers in names ---- */

/* Skip a prefix; NULL: the name has another one. */
static const char *mrn_after(const char *name, const char *prefix)
{
    size_t n = strlen(prefix);

    return strncmp(name, prefix, n) == 0 ? name + n : NULL;
}

/* Read "12." of "decoder.layers.12.mlp..."; returns the rest behind the dot, or NULL. */
static const char *mrn_layer(const char *name, uint64_t *layer)
{
    const char *at = mrn_after(name, "decoder.layers.");

    at = at ? ckpt_scan_u64(at, layer) : NULL;
    return at && *at == '.' && *layer < MGN_MAX_NUMBER ? at + 1 : NULL;
}

/* An expert's tensor: "linear_fc1", "weight", and the expert's number. */
typedef struct mrn_expert {
    uint64_t number;
    char module[16], part[8];
} mrn_expert;

/* Copy the part of a name before a character; false: it is absent, or the part is too long. */
static bool mrn_part(char *out, size_t room, const char **at, char end)
{
    const char *stop = end ? strchr(*at, end) : *at + strcspn(*at, "0123456789");
    size_t n = stop ? (size_t)(stop - *at) : room;

    if (n == 0 || n >= room)
        return false;
    memcpy(out, *at, n);
    out[n] = 0;
    *at = stop + (end != 0);
    return true;
}

/* Read both forms of names: local_experts.3.linear_fc1.weight, linear_fc1.weight3. */
static bool mrn_is_expert(const char *rest, mrn_expert *e)
{
    const char *at = mrn_after(rest, "mlp.experts."),
               *own = at ? mrn_after(at, "local_experts.") : NULL;

    if (own) {
        at = ckpt_scan_u64(own, &e->number);
        if (!at || *at++ != '.' || !mrn_part(e->module, sizeof e->module, &at, '.'))
            return false;
        return *at && strlen(at) < sizeof e->part && strcpy(e->part, at) &&
               e->number < MGN_MAX_NUMBER;
    }
    if (!at || !mrn_part(e->module, sizeof e->module, &at, '.') ||
        !mrn_part(e->part, sizeof e->part, &at, 0))
        return false;
    at = ckpt_scan_u64(at, &e->number);
    return at && !*at && e->number < MGN_MAX_NUMBER && strncmp(e->module, "linear_fc", 9) == 0;
}

/* ---- names ---- */

static bool mrn_has(const ckpt_meg_division *d, const char *name)
{
    return name && ckpt_map_index(d->job->from, name, strlen(name)) != SIZE_MAX;
}

/* True if a layer has experts or their router. */
static bool mrn_mixed(const ckpt_meg_division *d, uint64_t layer)
{
    static const char *const names[] = {
        "router.weight", "experts.local_experts.0.linear_fc1.weight", "experts.linear_fc1.weight0"};
    bool is = false;

    for (size_t i = 0; !is && i < sizeof names / sizeof *names; i++)
        is = mrn_has(d, ckpt_arena_printf(d->job->to->arena, "decoder.layers.%" PRIu64 ".mlp.%s",
                                          layer, names[i]));
    return is;
}

/* A norm's name in a layer, in Megatron-Core's own layers and in Transformer Engine's. */
static const char *mrn_norm(const ckpt_meg_division *d, const char *rest, uint64_t layer)
{
    const struct {
        const char *local, *fused;
        bool fuses;
    } norm[] = {
        {"input_layernorm.", "self_attention.linear_qkv.layer_norm_", !d->latent},
        {"pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_", !mrn_mixed(d, layer)},
        {"self_attention.q_layernorm.", "self_attention.linear_q_up_proj.layer_norm_", d->latent},
        {"self_attention.kv_layernorm.", "self_attention.linear_kv_up_proj.layer_norm_", d->latent},
    };

    for (size_t i = 0; i < sizeof norm / sizeof *norm; i++) {
        const char *local = mrn_after(rest, norm[i].local), *fused = mrn_after(rest, norm[i].fused);
        if (!d->size.local && local && norm[i].fuses)
            return ckpt_arena_printf(d->job->to->arena, "%s%s", norm[i].fused, local);
        if (d->size.local && fused)
            return ckpt_arena_printf(d->job->to->arena, "%s%s", norm[i].local, fused);
    }
    return rest;
}

/* Place a tensor of a layer. */
static int mrn_in_layer(ckpt_meg_division *d, ckpt_meg_entry *e, const char *rest, uint64_t layer)
{
    ckpt_arena *arena = d->job->to->arena;
    uint64_t each = d->layers / d->size.pp, per_rank = d->experts / d->size.ep;
    mrn_expert expert;

    e->stage = (uint32_t)(layer / each);
    e->layer = layer;
    e->expert = mrn_is_expert(rest, &expert);
    if (!e->expert) {
        e->part = rest = mrn_norm(d, rest, layer);
    } else {
        e->part = ckpt_arena_printf(arena, "mlp.experts.%s.%s", expert.module, expert.part);
        e->ep = (uint32_t)(expert.number / per_rank);
        expert.number %= per_rank;
        rest = d->size.local
                   ? ckpt_arena_printf(arena, "mlp.experts.local_experts.%" PRIu64 ".%s.%s",
                                       expert.number, expert.module, expert.part)
                   : ckpt_arena_printf(arena, "mlp.experts.%s.%s%" PRIu64, expert.module,
                                       expert.part, expert.number);
    }
    if (rest && e->part)
        e->local = ckpt_arena_printf(arena, "decoder.layers.%" PRIu64 ".%s", layer % each, rest);
    return e->local ? CKPT_OK : ckpt_fail_memory(d->job->err);
}

/* Place a tensor; refuse one that no rank's model has. */
static int mrn_place(ckpt_meg_division *d, ckpt_meg_entry *e)
{
    const char *name = e->tensor->name, *rest;
    mrn_expert expert;
    uint64_t layer = 0;

    rest = mrn_layer(name, &layer);
    // experts of a layer in one tensor would have to be apart; extra states are no weights
    if (rest && !strstr(rest, "._extra_state") &&
        (!strstr(rest, ".experts.") || mrn_is_expert(rest, &expert)))
        return mrn_in_layer(d, e, rest, layer);
    e->local = name;
    if (mrn_after(name, "embedding."))
        return CKPT_OK;
    e->stage = d->size.pp - 1;
    if (mrn_after(name, "output_layer.") || mrn_after(name, "decoder.final_layernorm."))
        return CKPT_OK;
    return ckpt_fail(d->job->err, CKPT_EUNSUPPORTED,
                     "%s: '%.200s' is not a tensor of a GPTModel of Megatron-Core with its layers "
                     "and experts apart, which is divided among ranks; rename it by a layout map "
                     "(--map hf:megatron:mp_rank), or write all of it by --to megatron",
                     d->job->from->path, name);
}

/* ---- slices ---- */

static int mrn_uneven(const ckpt_meg_division *d, const ckpt_tensor *t, const char *why)
{
    return ckpt_fail(d->job->err, CKPT_EUNSUPPORTED,
                     "%s: '%.200s' cannot be divided among %" PRIu32
                     " tensor-parallel ranks: %s; choose another --tensor-model-parallel-size",
                     d->job->from->path, t->name, d->size.tp, why);
}

/* Check that ranks get whole heads: all rows of a group of queries stay on one rank. */
static int mrn_heads(const ckpt_meg_division *d, const ckpt_tensor *t)
{
    static const char *const heads[] = {"linear_qkv.", "linear_q_proj.", "linear_q_up_proj.",
                                        "linear_kv_up_proj.", "core_attention.softmax_offset"};
    int64_t n = ckpt_meg_argument(d->job, "num_attention_heads"),
            groups = ckpt_meg_argument(d->job, "num_query_groups");
    bool is = false;

    for (size_t i = 0; !is && i < sizeof heads / sizeof *heads; i++)
        is = strstr(t->name, heads[i]) != NULL;
    if (!is || strstr(t->name, "layer_norm"))
        return CKPT_OK;
    n = strstr(t->name, "linear_qkv.") && ckpt_meg_is_grouped(d->job) ? groups : n;
    // without a layout map, --config and --size have no effect
    if (n <= 0)
        return mrn_uneven(d, t,
                          d->job->from->config.file
                              ? "the number of attention heads or query groups is unknown: give "
                                "--config, or --size num_attention_heads=N and num_query_groups=N"
                              : "the number of attention heads or query groups is unknown");
    if (t->ndim == 0 || t->shape[0] % (uint64_t)n != 0)
        return ckpt_fail(d->job->err, CKPT_EMISMATCH,
                         "%s: '%.200s' has %" PRIu64 " rows, which are not a multiple of the "
                         "%" PRId64 " attention heads or query groups that the arguments say: "
                         "they are of another model%s",
                         d->job->from->path, t->name, t->ndim ? t->shape[0] : 0, n,
                         d->job->from->config.file ? "; correct --config or --size" : "");
    return n % d->size.tp == 0 ? CKPT_OK
                               : mrn_uneven(d, t, "its heads or query groups are not a multiple");
}

/* Find how ranks divide a tensor, and the shape of a slice. */
static int mrn_slice(const ckpt_meg_division *d, ckpt_meg_entry *e)
{
    const ckpt_tensor *t = e->tensor;
    uint64_t *shape = ckpt_arena_array(d->job->to->arena, (uint64_t)t->ndim + 1, sizeof *shape);
    uint64_t parts = d->size.tp;
    int rc;

    if (!shape)
        return ckpt_fail_memory(d->job->err);
    if (t->ndim > 0)
        memcpy(shape, t->shape, t->ndim * sizeof *shape);
    e->shape = shape;
    if (d->size.tp == 1)
        return CKPT_OK;
    if (e->expert && strstr(t->name, ".bias"))
        return mrn_uneven(d, t,
                          "Megatron-Core has biases of experts only if it does not divide experts "
                          "among tensor-parallel ranks");
    if (!ckpt_meg_rule(&e->rule, d->job->from, t->name, 0))
        return mrn_uneven(d, t, "ckpt knows no rule for this name");
    if (e->rule.kind == CKPT_SLICE_SAME)
        return d->size.local && d->latent && strstr(t->name, "_down_proj.")
                   ? mrn_uneven(d, t, "--layout local does so, and no reader of ckpt joins that")
                   : CKPT_OK;
    rc = mrn_heads(d, t);
    if (rc != CKPT_OK)
        return rc;
    if (e->rule.kind == CKPT_SLICE_SUB)
        parts *= e->rule.n_subs;
    if (e->rule.axis >= t->ndim || t->shape[e->rule.axis] % parts != 0)
        return mrn_uneven(d, t, "its size is not a multiple");
    shape[e->rule.axis] /= d->size.tp;
    return CKPT_OK;
}

/* ---- the model ---- */

/* True for a tensor that is written: a weight, but not a head that is tied to the embedding. */
static bool mrn_is_written(const ckpt_meg_division *d, const ckpt_tensor *t)
{
    return t->role != CKPT_ROLE_STATE && t->role != CKPT_ROLE_OTHER &&
           !ckpt_meg_is_tied_head(d->job, t);
}

static void mrn_count(ckpt_meg_division *d)
{
    d->layers = d->experts = 0;
    for (size_t i = 0; i < d->job->from->tensors.n; i++) {
        const ckpt_tensor *t = d->job->from->tensors.at[i];
        mrn_expert expert;
        uint64_t layer = 0;
        const char *rest = mrn_is_written(d, t) ? mrn_layer(t->name, &layer) : NULL;
        if (!rest)
            continue;
        d->layers = layer >= d->layers ? layer + 1 : d->layers;
        d->latent = d->latent || mrn_after(rest, "self_attention.linear_kv_down_proj.");
        if (mrn_is_expert(rest, &expert) && expert.number >= d->experts)
            d->experts = expert.number + 1;
    }
}

/* Check that layers and experts are divided evenly. */
static int mrn_even(const ckpt_meg_division *d)
{
    int64_t known = ckpt_meg_argument(d->job, "num_layers");

    // names of another layout; mrn_place reports them
    if (d->layers > 0 && known > 0 && (uint64_t)known != d->layers)
        return ckpt_fail(d->job->err, CKPT_EMISSING,
                         "%s: tensors of %" PRIu64 " layers are here, but num_layers is %" PRId64
                         ": a part of the model is missing, or the arguments are of another model",
                         d->job->from->path, d->layers, known);
    if (d->layers % d->size.pp != 0)
        return ckpt_fail(d->job->err, CKPT_EUNSUPPORTED,
                         "%s: %" PRIu64 " layers cannot be divided evenly among %" PRIu32
                         " pipeline stages; choose another --pipeline-model-parallel-size",
                         d->job->from->path, d->layers, d->size.pp);
    if (d->size.ep > 1 && (d->experts == 0 || d->experts % d->size.ep != 0))
        return ckpt_fail(d->job->err, CKPT_EUNSUPPORTED,
                         "%s: %" PRIu64 " experts cannot be divided evenly among %" PRIu32
                         " expert-parallel ranks; choose another --expert-model-parallel-size",
                         d->job->from->path, d->experts, d->size.ep);
    return CKPT_OK;
}

static int mrn_add(ckpt_meg_division *d, const ckpt_tensor *t)
{
    ckpt_meg_entry *e = ckpt_vec_push(&d->entry);
    uint64_t n = (uint64_t)d->size.ep * d->size.tp;
    int rc;

    if (!e)
        return ckpt_fail_memory(d->job->err);
    *e = (ckpt_meg_entry){.tensor = t, .rule = {.kind = CKPT_SLICE_SAME}};
    e->source = ckpt_arena_array(d->job->to->arena, n, sizeof *e->source);
    rc = e->source ? mrn_place(d, e) : ckpt_fail_memory(d->job->err);
    return rc == CKPT_OK ? mrn_slice(d, e) : rc;
}

/* The last stage has a copy of a tied table, as its head. */
static int mrn_head(ckpt_meg_division *d)
{
    static const char table[] = "embedding.word_embeddings.weight", head[] = "output_layer.weight";
    size_t at = ckpt_map_index(d->job->from, table, sizeof table - 1),
           own = ckpt_map_index(d->job->from, head, sizeof head - 1);
    int rc;

    if (at == SIZE_MAX)
        return ckpt_fail(d->job->err, CKPT_EMISSING, "%s: holds no '%s'", d->job->from->path,
                         table);
    d->size.untied = own != SIZE_MAX && mrn_is_written(d, d->job->from->tensors.at[own]);
    rc = ckpt_meg_check_head(d->job);
    if (rc == CKPT_OK)
        rc = ckpt_meg_check_vocab(d->job);
    if (rc == CKPT_OK)
        rc = ckpt_meg_check_whole(d->job);
    if (rc != CKPT_OK || d->size.pp == 1 || d->size.untied)
        return rc;
    rc = mrn_add(d, d->job->from->tensors.at[at]);
    if (rc == CKPT_OK) {
        ckpt_meg_entry *e = &d->entry.at[d->entry.n - 1];
        e->local = head;
        e->stage = d->size.pp - 1;
    }
    return rc;
}

/* ---- names that are absent, or twice ---- */

static bool mrn_same(const void *ctx, uint32_t number, const void *key)
{
    const ckpt_meg_entry *a = &((const ckpt_meg_division *)ctx)->entry.at[number], *b = key;

    return a->stage == b->stage && a->ep == b->ep && strcmp(a->local, b->local) == 0;
}

/* Check that no two tensors have one name in the same file. */
static int mrn_distinct(const ckpt_meg_division *d)
{
    ckpt_index known = {0};
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < d->entry.n; i++) {
        const ckpt_meg_entry *e = &d->entry.at[i];
        uint32_t hash = ckpt_hash_bytes(e->local, strlen(e->local), e->stage ^ (e->ep << 16)),
                 at = ckpt_index_find(&known, hash, mrn_same, d, e);
        if (at != CKPT_INDEX_NONE)
            rc = ckpt_fail(d->job->err, CKPT_EMISMATCH,
                           "%s: '%.200s' and '%.200s' would both be '%.200s' of one rank; leave "
                           "out one of them (--exclude)",
                           d->job->from->path, d->entry.at[at].tensor->name, e->tensor->name,
                           e->local);
        else if (!ckpt_index_add(&known, hash, (uint32_t)i))
            rc = ckpt_fail_memory(d->job->err);
    }
    ckpt_index_free(&known);
    return rc;
}

/* The layers of the model, and the names in them. */
typedef struct mrn_stack {
    const ckpt_meg_division *d;
    uint8_t *kind;    /* of each layer: MRN_ABSENT, MRN_DENSE, MRN_MIXED */
    uint64_t of[3];   /* number of layers of each kind */
    ckpt_index parts; /* finds a name by kind */
    uint64_t *n;      /* by entry: the tensors with its name, if it is the first with it */
} mrn_stack;

enum { MRN_ABSENT, MRN_DENSE, MRN_MIXED };

static bool mrn_same_part(const void *ctx, uint32_t number, const void *key)
{
    const mrn_stack *s = ctx;
    const ckpt_meg_entry *a = &s->d->entry.at[number], *b = key;

    return s->kind[a->layer] == s->kind[b->layer] && strcmp(a->part, b->part) == 0;
}

/* The first entry with the name and the kind of layer of an entry, or CKPT_INDEX_NONE. */
static uint32_t mrn_part_at(const mrn_stack *s, const ckpt_meg_entry *e, uint32_t *hash)
{
    *hash = ckpt_hash_bytes(e->part, strlen(e->part), s->kind[e->layer]);
    return ckpt_index_find(&s->parts, *hash, mrn_same_part, s, e);
}

/* Find the kinds of layers: with experts, or dense. */
static void mrn_kinds(mrn_stack *s)
{
    const ckpt_meg_division *d = s->d;

    for (size_t i = 0; i < d->entry.n; i++) {
        const ckpt_meg_entry *e = &d->entry.at[i];
        if (e->part && (e->expert || strcmp(e->part, "mlp.router.weight") == 0))
            s->kind[e->layer] = MRN_MIXED;
        else if (e->part && s->kind[e->layer] == MRN_ABSENT)
            s->kind[e->layer] = MRN_DENSE;
    }
    for (uint64_t i = 0; i < d->layers; i++)
        s->of[s->kind[i]]++;
}

/* Count the tensors of each name. */
static int mrn_parts(mrn_stack *s)
{
    for (size_t i = 0; i < s->d->entry.n; i++) {
        const ckpt_meg_entry *e = &s->d->entry.at[i];
        uint32_t hash = 0, at;
        if (!e->part)
            continue;
        at = mrn_part_at(s, e, &hash);
        if (at == CKPT_INDEX_NONE && !ckpt_index_add(&s->parts, hash, (uint32_t)i))
            return ckpt_fail_memory(s->d->job->err);
        s->n[at == CKPT_INDEX_NONE ? i : at]++;
    }
    return CKPT_OK;
}

/* Name the first layer of a kind that lacks a name which others of its kind have. */
static int mrn_lacks(const mrn_stack *s, const ckpt_meg_entry *like)
{
    const ckpt_meg_division *d = s->d;
    uint64_t *n = ckpt_arena_array(d->job->to->arena, d->layers + 1, sizeof *n), layer = 0,
             all = like->expert ? d->experts : 1;

    if (!n)
        return ckpt_fail_memory(d->job->err);
    memset(n, 0, (d->layers + 1) * sizeof *n);
    for (size_t i = 0; i < d->entry.n; i++) {
        const ckpt_meg_entry *e = &d->entry.at[i];
        if (e->part && strcmp(e->part, like->part) == 0)
            n[e->layer]++;
    }
    while (layer < d->layers && (s->kind[layer] != s->kind[like->layer] || n[layer] >= all))
        layer++;
    if (like->expert)
        return ckpt_fail(d->job->err, CKPT_EMISSING,
                         "%s: decoder.layers.%" PRIu64 " has '%.200s' of %" PRIu64
                         " experts, expected %" PRIu64 ": a part of the model is missing",
                         d->job->from->path, layer, like->part, n[layer], all);
    return ckpt_fail(d->job->err, CKPT_EMISSING,
                     "%s: decoder.layers.%" PRIu64 " has no '%.200s', but layer %" PRIu64
                     " has it: a part of the model is missing",
                     d->job->from->path, layer, like->part, like->layer);
}

/* Check that layers of a kind have the same names, and that all experts do. */
static int mrn_alike(mrn_stack *s)
{
    const ckpt_meg_division *d = s->d;
    int rc;

    mrn_kinds(s);
    for (uint64_t i = 0; i < d->layers; i++) {
        if (s->kind[i] == MRN_ABSENT)
            return ckpt_fail(d->job->err, CKPT_EMISSING,
                             "%s: decoder.layers.%" PRIu64
                             " is absent: a part of the model is missing",
                             d->job->from->path, i);
    }
    rc = mrn_parts(s);
    for (size_t i = 0; rc == CKPT_OK && i < d->entry.n; i++) {
        const ckpt_meg_entry *e = &d->entry.at[i];
        if (s->n[i] > 0 && s->n[i] != s->of[s->kind[e->layer]] * (e->expert ? d->experts : 1))
            rc = mrn_lacks(s, e);
    }
    return rc;
}

/* Check that the model has all of its parts, once each. */
static int mrn_whole(const ckpt_meg_division *d)
{
    ckpt_arena *arena = d->job->to->arena;
    mrn_stack s = {.d = d,
                   .kind = ckpt_arena_array(arena, d->layers + 1, sizeof *s.kind),
                   .n = ckpt_arena_array(arena, (uint64_t)d->entry.n + 1, sizeof *s.n)};
    int rc = mrn_distinct(d);

    if (rc != CKPT_OK)
        return rc;
    if (!s.kind || !s.n)
        return ckpt_fail_memory(d->job->err);
    if (d->layers == 0 || !mrn_has(d, "decoder.final_layernorm.weight"))
        return ckpt_fail(d->job->err, CKPT_EMISSING,
                         "%s: holds no '%s': a part of the model is "
                         "missing",
                         d->job->from->path,
                         d->layers ? "decoder.final_layernorm.weight" : "decoder.layers.0");
    memset(s.kind, MRN_ABSENT, d->layers + 1);
    memset(s.n, 0, (d->entry.n + 1) * sizeof *s.n);
    rc = mrn_alike(&s);
    ckpt_index_free(&s.parts);
    return rc;
}

int ckpt_meg_divide(ckpt_meg_division *d)
{
    assert(d && d->job && d->size.tp > 0 && d->size.pp > 0 && d->size.ep > 0);
    int rc;

    mrn_count(d);
    rc = mrn_even(d);
    for (size_t i = 0; rc == CKPT_OK && i < d->job->from->tensors.n; i++) {
        const ckpt_tensor *t = d->job->from->tensors.at[i];
        if (mrn_is_written(d, t))
            rc = mrn_add(d, t);
    }
    if (rc == CKPT_OK)
        rc = mrn_head(d);
    return rc == CKPT_OK ? mrn_whole(d) : rc;
}
