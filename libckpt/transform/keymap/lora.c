/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lora.c: lets the rules for a model's weights convert a LoRA adapter of that model.
 *
 * The update of a weight [out, in] is B A, with A [r, in] and B [out, r].  While a map is applied,
 * both have the weight's name after "lora_a/" or "lora_b/", like moments of an optimizer.  A rule
 * that reorders the rows of the weight reorders the rows of B, and A only gets another name.  A
 * rule that stacks whole matrices stacks both.
 *
 *     Hugging Face (PEFT)  base_model.model.NAME.lora_A.weight, base_model.model.NAME.lora_B.weight
 *     GGUF (llama.cpp)     NAME.weight.lora_a, NAME.weight.lora_b
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/transform/keymap/instance.h"

/* The text around a weight's name without ".weight", by layout and matrix. */
static const struct {
    const char *before, *after;
} rlo_around[2][2] = {
    {{"base_model.model.", ".lora_A.weight"}, {"base_model.model.", ".lora_B.weight"}},
    {{"", ".weight.lora_a"}, {"", ".weight.lora_b"}},
};

static const char *const rlo_moment[2] = {"lora_a/", "lora_b/"};

bool ckpt_remap_lora(const ckpt_remap *r, const ckpt_map *map)
{
    assert(map && r);
    if (!r->side[0] || !r->side[1] || strcmp(r->side[0], "hf") != 0 ||
        strcmp(r->side[1], "gguf") != 0)
        return false;
    for (size_t i = 0; i < map->keys.n; i++) {
        if (strcmp(map->keys.at[i].name, "general.type") == 0)
            return ckpt_value_is(map->keys.at[i].value, "adapter");
    }
    return false;
}

/* Rename a tensor: drop the text around the name of its weight, and put other text around it. */
static int rlo_rename(ckpt_map *map, ckpt_tensor *t, const char *const from[2],
                      const char *const to[2], bool *did)
{
    size_t n = strlen(t->name), n_before = strlen(from[0]), n_after = strlen(from[1]);

    *did = n > n_before + n_after && strncmp(t->name, from[0], n_before) == 0 &&
           strcmp(t->name + n - n_after, from[1]) == 0;
    if (!*did)
        return CKPT_OK;
    t->name = ckpt_arena_printf(map->arena, "%s%.*s%s", to[0], (int)(n - n_before - n_after),
                                t->name + n_before, to[1]);
    return t->name ? CKPT_OK : CKPT_ELIMIT;
}

/* Refuse an embedding in GGUF: llama.cpp takes its A transposed, and PEFT under other names. */
static int rlo_check(const char *name, bool right, ckpt_err *err)
{
    if (!right || !strstr(name, "_embd.weight.lora_"))
        return CKPT_OK;
    return ckpt_fail(err, CKPT_EUNSUPPORTED,
                     "tensor %.200s: ckpt does not convert the update of an embedding; --exclude "
                     "leaves it out",
                     name);
}

int ckpt_remap_lora_begin(ckpt_map *map, bool right, ckpt_err *err)
{
    assert(map);
    for (size_t i = 0; i < map->tensors.n; i++) {
        ckpt_tensor *t = map->tensors.at[i];
        const char *name = t->name;
        bool did = false;

        for (unsigned k = 0; k < 2 && !did; k++) {
            const char *const from[2] = {rlo_around[right][k].before, rlo_around[right][k].after};
            const char *const to[2] = {rlo_moment[k], ".weight"};
            if (rlo_rename(map, t, from, to, &did) != CKPT_OK)
                return ckpt_fail_memory(err);
        }
        if (!did || t->ndim < 2)
            return ckpt_fail(err, CKPT_EUNSUPPORTED,
                             "tensor %.200s: expected a matrix NAME%s or NAME%s of a LoRA adapter; "
                             "--exclude leaves it out",
                             name, rlo_around[right][0].after, rlo_around[right][1].after);
        if (rlo_check(name, right, err) != CKPT_OK)
            return CKPT_EUNSUPPORTED;
        t->role = CKPT_ROLE_STATE;
    }
    return ckpt_map_reindex(map, err);
}

int ckpt_remap_lora_end(ckpt_map *map, bool right, ckpt_err *err)
{
    assert(map);
    for (size_t i = 0; i < map->tensors.n; i++) {
        ckpt_tensor *t = map->tensors.at[i];
        const char *name = t->name;
        bool did = false;

        for (unsigned k = 0; k < 2 && !did; k++) {
            const char *const from[2] = {rlo_moment[k], ".weight"};
            const char *const to[2] = {rlo_around[right][k].before, rlo_around[right][k].after};
            if (rlo_rename(map, t, from, to, &did) != CKPT_OK)
                return ckpt_fail_memory(err);
        }
        if (!did)
            return ckpt_fail(err, CKPT_EUNSUPPORTED,
                             "tensor %.200s: the layout map makes no weight of it", name);
        if (rlo_check(t->name, right, err) != CKPT_OK)
            return CKPT_EUNSUPPORTED;
        t->role = CKPT_ROLE_WEIGHT;
    }
    return ckpt_map_reindex(map, err);
}

int ckpt_rm_lora_width(const ckpt_map *map, const ckpt_value *hidden, ckpt_err *err)
{
    assert(map);
    int64_t width = 0;

    if (!ckpt_value_as_int(hidden, &width) || width < 1)
        return CKPT_OK;
    for (size_t i = 0; i < map->tensors.n; i++) {
        const ckpt_tensor *t = map->tensors.at[i];

        for (uint32_t k = 0; k < t->ndim; k++) {
            if (t->shape[k] == (uint64_t)width)
                return CKPT_OK;
        }
    }
    return ckpt_fail(err, CKPT_EMISMATCH,
                     "config.json has hidden_size %" PRId64 ", but no matrix of the adapter has "
                     "this many rows or columns: it belongs to another model",
                     width);
}

/* True for an axis with one name; *name gets it. */
static bool rlo_axis(const ckpt_rm_term *t, uint32_t axis, uint32_t *name)
{
    uint32_t n = 0;
    bool one = true;

    for (uint32_t i = 0; i < t->n_atoms; i++) {
        const ckpt_rm_atom *a = &t->atom[i];
        if (a->axis != axis)
            continue;
        one = one && n++ == 0 && a->n_parts == 1 && !a->rest;
        *name = one ? a->part[0] : CKPT_RM_NO_NAME;
    }
    return one && n == 1;
}

/* True for a term with `...` last; all axes before number the tensors of the other term. */
static bool rlo_is_stack(const ckpt_rm_term *t, const ckpt_rm_term *other)
{
    bool is = t->n_atoms > 0 && t->atom[t->n_atoms - 1].rest;

    for (uint32_t i = 0; is && i + 1 < t->n_atoms; i++)
        is = t->atom[i].n_parts == 1 && ckpt_rm_captures(other, t->atom[i].part[0]);
    return is;
}

/* True if a name of the term's axes numbers tensors of one of the terms. */
static bool rlo_numbers(const ckpt_rm_term *t, const ckpt_rm_term *other)
{
    bool does = false;

    for (uint32_t i = 0; i < t->n_atoms; i++) {
        for (uint32_t k = 0; k < t->atom[i].n_parts; k++)
            does = does || ckpt_rm_captures(t, t->atom[i].part[k]) ||
                   ckpt_rm_captures(other, t->atom[i].part[k]);
    }
    return does;
}

/* How a rule for a weight applies to the matrices of its update. */
typedef enum rlo_way {
    RLO_NONE,  /* not at all */
    RLO_NAME,  /* both get another name */
    RLO_ROWS,  /* A gets another name, and the rows of B another order */
    RLO_STACK, /* both are stacked, or divided */
} rlo_way;

static rlo_way rlo_rule(const ckpt_rm_rule *rule)
{
    const ckpt_rm_term *l = rule->term[0].at, *r = rule->term[1].at;
    uint32_t in[2] = {CKPT_RM_NO_NAME, CKPT_RM_NO_NAME};

    if (rule->does != CKPT_RM_EQUAL || rule->term[0].n != 1 || rule->term[1].n != 1 ||
        l->joins != CKPT_RM_APART || r->joins != CKPT_RM_APART || rule->plus != 0 || rule->log)
        return RLO_NONE;
    if (l->plain)
        return RLO_NAME;
    if (rlo_is_stack(l, r) && rlo_is_stack(r, l))
        return RLO_STACK;
    if (l->n_axes != 2 || r->n_axes != 2 || !rlo_axis(l, 1, &in[0]) || !rlo_axis(r, 1, &in[1]) ||
        in[0] != in[1] || rlo_numbers(l, r) || rlo_numbers(r, l))
        return RLO_NONE;
    return RLO_ROWS;
}

int ckpt_rm_lora_check(const ckpt_rm_instance *in, const ckpt_rm_rule *rule, bool *name,
                       ckpt_err *err)
{
    assert(in && rule && name);
    const rlo_way way = rlo_rule(rule);
    const char *weight = in->moment + in->n_moment, *r = in->f->r->name;

    *name = way == RLO_NAME ||
            (way == RLO_ROWS && strncmp(in->moment, rlo_moment[0], strlen(rlo_moment[0])) == 0);
    if (way != RLO_NONE)
        return CKPT_OK;
    if (rule->does == CKPT_RM_DROP)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s:%u: the adapter changes %.150s, which the target lacks: %.150s; merge "
                         "the adapter into its base (--adapter) and convert that",
                         r, rule->line, weight, rule->because);
    return ckpt_fail(err, CKPT_EUNSUPPORTED,
                     "%s:%u: the adapter changes %.150s, which this rule transposes, joins or "
                     "splits: its update cannot follow; merge the adapter into its base "
                     "(--adapter) and convert that",
                     r, rule->line, weight);
}
