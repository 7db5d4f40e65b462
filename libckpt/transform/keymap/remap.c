/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remap.c: tells what a parsed layout map declares and what its last application did, and frees it.
 */
#include <string.h>

#include "libckpt/transform/keymap/rule.h"

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

void ckpt_remap_free(ckpt_remap *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->rules.n; i++) {
        ckpt_vec_free(&r->rules.at[i].term[0]);
        ckpt_vec_free(&r->rules.at[i].term[1]);
    }
    ckpt_vec_free(&r->names);
    ckpt_vec_free(&r->sizes);
    ckpt_vec_free(&r->keys);
    ckpt_vec_free(&r->neutral);
    ckpt_vec_free(&r->config[0]);
    ckpt_vec_free(&r->config[1]);
    ckpt_vec_free(&r->fields[0]);
    ckpt_vec_free(&r->fields[1]);
    ckpt_vec_free(&r->asked);
    ckpt_vec_free(&r->rules);
    ckpt_vec_free(&r->whens);
    ckpt_vec_free(&r->only);
    ckpt_vec_free(&r->strip);
    ckpt_arena_free(r->arena);
    ckpt_free(r);
}
