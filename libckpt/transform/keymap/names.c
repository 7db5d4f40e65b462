/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.c: numbers the names of a layout map, records the names that its text looks up, and returns
 * what its text declares.
 */
#include <string.h>

#include "libckpt/transform/keymap/rule.h"

uint32_t ckpt_rm_name(ckpt_remap *r, const char *s, size_t n)
{
    for (size_t i = 0; i < r->names.n; i++) {
        if (strlen(r->names.at[i]) == n && memcmp(r->names.at[i], s, n) == 0)
            return (uint32_t)i;
    }
    if (r->names.n >= CKPT_RM_NAMES)
        return CKPT_RM_NO_NAME;
    const char *copy = ckpt_arena_string(r->arena, s, n);
    const char **slot = copy ? ckpt_vec_push(&r->names) : NULL;
    if (!slot)
        return CKPT_RM_NO_NAME;
    *slot = copy;
    return (uint32_t)(r->names.n - 1);
}

ckpt_rm_line *ckpt_rm_size(const ckpt_remap *r, uint32_t name)
{
    for (size_t i = 0; i < r->sizes.n; i++) {
        if (r->sizes.at[i].name == name)
            return &r->sizes.at[i];
    }
    return NULL;
}

bool ckpt_rm_ask(ckpt_remap *r, const char *name)
{
    for (size_t i = 0; i < r->asked.n; i++) {
        if (strcmp(r->asked.at[i], name) == 0)
            return true;
    }
    const char *copy =
        r->asked.n < CKPT_RM_NAMES ? ckpt_arena_string(r->arena, name, strlen(name)) : NULL;
    const char **slot = copy ? ckpt_vec_push(&r->asked) : NULL;
    if (slot)
        *slot = copy;
    return slot != NULL;
}

bool ckpt_remap_has_size(const ckpt_remap *r, const char *name)
{
    for (size_t i = 0; r && name && i < r->sizes.n; i++) {
        if (strcmp(r->names.at[r->sizes.at[i].name], name) == 0)
            return true;
    }
    for (size_t i = 0; r && name && i < r->asked.n; i++) {
        if (strcmp(r->asked.at[i], name) == 0)
            return true;
    }
    return false;
}

bool ckpt_remap_rule_at(const ckpt_remap *r, size_t i, ckpt_remap_rule *out)
{
    static const char what[] = {
        [CKPT_RM_EQUAL] = '=', [CKPT_RM_DROP] = 'd', [CKPT_RM_TIE] = 't', [CKPT_RM_FILL] = 'f'};

    if (!r || !out || i >= r->rules.n)
        return false;
    const ckpt_rm_rule *rule = &r->rules.at[i];
    const bool both = rule->does == CKPT_RM_EQUAL;
    const ckpt_rm_terms *left = both || rule->side == 0 ? &rule->term[0] : NULL;
    const ckpt_rm_terms *right = both ? &rule->term[1] : rule->side == 1 ? &rule->term[0] : NULL;

    *out = (ckpt_remap_rule){.line = rule->line,
                             .what = what[rule->does],
                             .left = left && left->n > 0 ? left->at[0].text : NULL,
                             .right = right && right->n > 0 ? right->at[0].text : NULL,
                             .n_left = left ? left->n : 0,
                             .n_right = right ? right->n : 0,
                             .optional = rule->optional,
                             .off = rule->off,
                             .n_tensors = rule->n_taken};
    return true;
}

const char *ckpt_remap_name(const ckpt_remap *r)
{
    return r->name;
}

ckpt_remap_proof ckpt_remap_proved(const ckpt_remap *r)
{
    ckpt_remap_proof p = r->proof;

    for (size_t i = 0; i < r->rules.n; i++)
        p.n_rules += r->rules.at[i].met && r->rules.at[i].does != CKPT_RM_DROP;
    return p;
}

const char *ckpt_remap_side(const ckpt_remap *r, bool right)
{
    return r->side[right];
}

bool ckpt_remap_keeps_slices(const ckpt_remap *r, bool right)
{
    return r->keeps_slices[right];
}

bool ckpt_remap_keeps_blocks(const ckpt_remap *r, bool right)
{
    return r->keeps_blocks[right];
}

const char *ckpt_remap_description(const ckpt_remap *r)
{
    return r->about;
}
