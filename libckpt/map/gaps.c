/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gaps.c: counts the tensors of each layer by name, and compares the counts of layers.
 */
#include "libckpt/map/gaps.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/mem.h"
#include "libckpt/base/number.h"
#include "libckpt/base/vec.h"

/* LY_LAYERS, LY_KEYS: larger stacks are not compared.  LY_MANY: a kind with fewer layers is no
 * model for others.  LY_SPARSE: cells of a table for each tensor. */
enum { LY_LAYERS = 512, LY_KEYS = 1024, LY_MANY = 3, LY_SPARSE = 16 };

/* A name after the layer's number, and how many tensors each layer has of it. */
typedef struct ly_key {
    char text[160];
    size_t n;
    bool expert; /* tensors of numbered experts are counted; of other names one is enough */
    uint32_t of[LY_LAYERS];
} ly_key;

CKPT_VEC(ly_keys, ly_key);

typedef struct ly_table {
    ly_keys keys;
    uint64_t n_layers;        /* highest number + 1 */
    uint32_t same[LY_LAYERS]; /* how many layers have the same counts; 0: the layer has no tensor */
    uint64_t n_tensors;
    bool full;
} ly_table;

/* True for tensors beside a weight: layers of a quantized model may differ in them. */
static bool ly_beside(const char *leaf)
{
    static const char *const words[] = {"scale", "zero",   "g_idx",        "perm",  "shape",
                                        "_inv",  "absmax", "quant",        "group", "inv_freq",
                                        "SCB",   "format", "bitsandbytes", NULL};

    for (size_t i = 0; words[i]; i++) {
        if (strstr(leaf, words[i]))
            return true;
    }
    return false;
}

/* Write a name with an expert's number as '*', other inner numbers as '#', and the names of a
 * quantized weight as "weight".  False: the name is not compared. */
static bool ly_normal(const char *name, ly_key *key)
{
    const char *leaf = strrchr(name, '.');
    size_t at = 0;

    leaf = leaf ? leaf + 1 : name;
    *key = (ly_key){.n = 0};
    if (ly_beside(leaf) || strlen(name) + 8 >= sizeof key->text)
        return false;
    for (const char *s = name; s < leaf;) {
        const char *end = strchr(s, '.') + 1;
        uint64_t k;
        const char *after = ckpt_scan_u64(s, &k);
        bool number = after && *after == '.';
        bool expert = number && at >= 8 && strncmp(key->text + at - 8, "experts.", 8) == 0;
        int n = number ? 2 : (int)(end - s);
        memcpy(key->text + at, !number ? s : expert ? "*." : "#.", (size_t)n);
        key->expert |= expert;
        at += (size_t)n;
        s = end;
    }
    (void)snprintf(key->text + at, sizeof key->text - at, "%s",
                   strstr(leaf, "weight") ? "weight" : leaf);
    key->n = strlen(key->text);
    return true;
}

static bool ly_count(ly_table *t, uint64_t layer, const char *name)
{
    ly_key key, *to = NULL;

    if (!ly_normal(name, &key))
        return true;
    for (size_t i = 0; i < t->keys.n && !to; i++) {
        ly_key *k = &t->keys.at[i];
        to = k->n == key.n && memcmp(k->text, key.text, key.n) == 0 ? k : NULL;
    }
    if (!to) {
        if (t->keys.n == LY_KEYS) {
            t->full = true;
            return true;
        }
        to = ckpt_vec_push(&t->keys);
        if (!to)
            return false;
        *to = key;
    }
    to->of[layer] = key.expert ? to->of[layer] + 1 : 1;
    t->n_layers = layer + 1 > t->n_layers ? layer + 1 : t->n_layers;
    return true;
}

/* True if layer a has no more of any name than layer b; *less: it has fewer of some. */
static bool ly_within(const ly_table *t, uint64_t a, uint64_t b, bool *less)
{
    *less = false;
    for (size_t i = 0; i < t->keys.n; i++) {
        const ly_key *k = &t->keys.at[i];
        if (k->of[a] > k->of[b])
            return false;
        *less = *less || k->of[a] < k->of[b];
    }
    return true;
}

static void ly_kinds(ly_table *t)
{
    for (uint64_t a = 0; a < t->n_layers; a++) {
        bool any = false, less;
        for (size_t i = 0; i < t->keys.n; i++)
            any = any || t->keys.at[i].of[a];
        for (uint64_t b = 0; any && b < t->n_layers; b++)
            t->same[a] += ly_within(t, a, b, &less) && !less;
    }
}

/* Names of which a layer has all or none. */
static const char *const ly_sets[][4] = {
    {"gate_proj.weight", "up_proj.weight", "down_proj.weight"},
    {"q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"},
    {"input_layernorm.weight", "post_attention_layernorm.weight"},
    {"ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"},
    {"attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_output.weight"},
    {"attn_norm.weight", "ffn_norm.weight"},
};

/* The set of a name, and the length of the text before the set's name in it. */
static const char *const *ly_set_of(const ly_key *k, size_t *n)
{
    for (size_t s = 0; s < sizeof ly_sets / sizeof *ly_sets; s++) {
        for (size_t i = 0; i < 4 && ly_sets[s][i]; i++) {
            size_t m = strlen(ly_sets[s][i]);
            *n = k->n - m;
            if (k->n >= m && strcmp(k->text + *n, ly_sets[s][i]) == 0 &&
                (*n == 0 || k->text[*n - 1] == '.'))
                return ly_sets[s];
        }
    }
    return NULL;
}

/* True if a layer has another name of the set of `k`. */
static bool ly_torn(const ly_table *t, const ly_key *k, uint64_t layer)
{
    size_t n = 0, m = 0;
    const char *const *set = ly_set_of(k, &n);

    for (size_t i = 0; set && i < t->keys.n; i++) {
        const ly_key *o = &t->keys.at[i];
        if (o != k && o->of[layer] && ly_set_of(o, &m) == set && m == n &&
            memcmp(o->text, k->text, n) == 0)
            return true;
    }
    return false;
}

/* True if the complete layer `like` and its kind lie before and after the layer; first and last
 * layers often lack names on purpose. */
static bool ly_inner(const ly_table *t, uint64_t layer, uint64_t like)
{
    bool before = false, after = false, less;

    for (uint64_t i = 0; i < t->n_layers; i++) {
        if (t->same[i] == 0 || !ly_within(t, i, like, &less) || less)
            continue;
        before = before || i < layer;
        after = after || i > layer;
    }
    return before && after;
}

/* True if a layer has a tensor of the module, whatever its name; a bias is not enough. */
static bool ly_has_module(const ly_table *t, uint64_t layer, const char *module, size_t n)
{
    for (size_t i = 0; i < t->keys.n; i++) {
        const ly_key *k = &t->keys.at[i];
        size_t at = 0;
        while (at < n && at < k->n &&
               (k->text[at] == module[at] || (k->text[at] == '*' && module[at] == '#')))
            at++;
        if (k->of[layer] && at == n && (k->n == n || k->text[n] == '.') &&
            strcmp(k->text + n, ".bias") != 0)
            return true;
    }
    return false;
}

/* Note that a layer lacks a module that no other layer shows. */
static void ly_alone(ckpt_gap *gap, uint64_t layer, const char *module, size_t n)
{
    *gap = (ckpt_gap){.found = true, .alone = true, .layer = layer, .there = 1, .like = layer};
    (void)snprintf(gap->key, sizeof gap->key, "%.*s", (int)n, module);
}

/*
 * Find a name that each layer of this kind has, although no other layer may show it.  A layer
 * without half of the names is rather of another type of model.
 */
static void ly_need(const ly_table *t, const ckpt_stack *s, uint64_t layer, ckpt_gap *gap)
{
    const char *names = layer < s->n_needed ? s->needed[layer] : NULL;
    size_t here = 0, missing = 0;
    ckpt_gap first = {.found = false};

    for (; names && *names; names += strspn(names, " ")) {
        const size_t n = strcspn(names, " ");
        if (ly_has_module(t, layer, names, n))
            here++;
        else if (missing++ == 0)
            ly_alone(&first, layer, names, n);
        names += n;
    }
    if (here >= missing)
        *gap = first;
}

static bool ly_same_kind(const ckpt_stack *s, uint64_t a, uint64_t b)
{
    return s->n_kind == 0 || (a < s->n_kind && b < s->n_kind && s->kind[a] == s->kind[b]);
}

/* Compare a layer with one that may be its model. */
static void ly_compare(const ly_table *t, const ckpt_stack *s, uint64_t a, uint64_t b,
                       ckpt_gap *gap)
{
    bool less, lone;

    if (a == b || t->same[b] == 0 || !ly_same_kind(s, a, b) || !ly_within(t, a, b, &less) || !less)
        return;
    lone = t->same[b] >= LY_MANY && t->same[b] / LY_MANY >= t->same[a] &&
           (t->same[a] == 1 || t->same[b] / 8 >= t->same[a]) && ly_inner(t, a, b);
    for (size_t i = 0; i < t->keys.n && !gap->found; i++) {
        const ly_key *k = &t->keys.at[i];
        if (k->of[a] >= k->of[b] || !(lone || (k->of[a] == 0 && ly_torn(t, k, a))))
            continue;
        *gap =
            (ckpt_gap){.found = true, .layer = a, .here = k->of[a], .there = k->of[b], .like = b};
        (void)snprintf(gap->key, sizeof gap->key, "%s", k->text);
    }
}

/* Check that a layer has the stated number of experts, all with the same weights. */
static void ly_experts(const ly_table *t, const ckpt_stack *s, uint64_t layer, ckpt_gap *gap)
{
    uint64_t most = s->experts;

    for (size_t i = 0; i < t->keys.n; i++) {
        const ly_key *k = &t->keys.at[i];
        most = k->expert && k->of[layer] > most ? k->of[layer] : most;
    }
    for (size_t i = 0; i < t->keys.n && !gap->found; i++) {
        const ly_key *k = &t->keys.at[i];
        bool weight = k->n > 7 && strcmp(k->text + k->n - 7, ".weight") == 0;
        bool enough = k->of[layer] >= most || (s->idle && k->of[layer] >= s->experts);
        if (!k->expert || !weight || k->of[layer] == 0 || enough)
            continue;
        *gap = (ckpt_gap){
            .found = true, .layer = layer, .here = k->of[layer], .there = most, .like = layer};
        (void)snprintf(gap->key, sizeof gap->key, "%s", k->text);
    }
}

/* Find a name that is missing in one layer, in a model with the same names in all layers of a
 * kind. */
static void ly_uniform(const ly_table *t, const ckpt_stack *s, ckpt_gap *gap)
{
    for (size_t i = 0; i < t->keys.n && !gap->found; i++) {
        const ly_key *k = &t->keys.at[i];
        for (uint64_t a = 0; a < t->n_layers && !gap->found && !strstr(k->text, "lora_"); a++) {
            uint64_t like = 0;
            while (like < t->n_layers && (k->of[like] == 0 || !ly_same_kind(s, a, like)))
                like++;
            if (k->of[a] > 0 || t->same[a] == 0 || like == t->n_layers)
                continue;
            *gap = (ckpt_gap){.found = true, .layer = a, .there = k->of[like], .like = like};
            (void)snprintf(gap->key, sizeof gap->key, "%s", k->text);
        }
    }
}

static void ly_look(ly_table *t, const ckpt_stack *s, ckpt_gap *gap)
{
    ly_kinds(t);
    if (s->uniform)
        ly_uniform(t, s, gap);
    for (uint64_t a = 0; a < t->n_layers && !gap->found; a++) {
        if (t->same[a] == 0)
            continue;
        ly_experts(t, s, a, gap);
        for (uint64_t b = 0; b < t->n_layers && !gap->found; b++)
            ly_compare(t, s, a, b, gap);
    }
    // last, because the messages of the others name a complete layer
    for (uint64_t a = 0; a < t->n_layers && !gap->found; a++) {
        if (t->same[a] > 0)
            ly_need(t, s, a, gap);
    }
}

/* Count a tensor of the stack; false: out of memory. */
static bool ly_take(ly_table *t, const ckpt_stack *stack, const char *name)
{
    const char *end;
    uint64_t layer = 0;

    if (strncmp(name, stack->prefix, stack->n_prefix) != 0 || name[stack->n_prefix] != '.')
        return true;
    end = ckpt_scan_u64(name + stack->n_prefix + 1, &layer);
    if (!end || *end != '.')
        return true;
    t->full = t->full || layer >= LY_LAYERS;
    t->n_tensors++;
    return t->full || ly_count(t, layer, end + 1);
}

/* True if most layers lack most names: such names are not those of layers, and hostile ones would
 * take long. */
static bool ly_sparse(const ly_table *t)
{
    return t->n_layers * t->keys.n / LY_SPARSE > t->n_tensors;
}

int ckpt_gap_find(const ckpt_map *map, const ckpt_stack *stack, ckpt_gap *gap, ckpt_err *err)
{
    assert(map && stack && gap);
    ly_table *t = ckpt_alloc(sizeof *t);
    bool fits = t != NULL;

    *gap = (ckpt_gap){.found = false};
    for (size_t i = 0; stack->names && fits && i < stack->n_names; i++)
        fits = ly_take(t, stack, stack->names[i]);
    for (size_t i = 0; !stack->names && fits && i < map->tensors.n; i++)
        fits = ly_take(t, stack, map->tensors.at[i]->name);
    if (fits && !t->full && !ly_sparse(t))
        ly_look(t, stack, gap);
    if (t)
        ckpt_vec_free(&t->keys);
    ckpt_free(t);
    return fits ? CKPT_OK : ckpt_fail_memory(err);
}
