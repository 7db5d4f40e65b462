/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtypes.c: chooses a tensor's dtype by its name: the first matching rule wins. A rule that never
 * wins is probably a mistake and is reported.
 */
#include "libckpt/transform/dtypes.h"

#include <fnmatch.h>
#include <string.h>

#include "libckpt/base/dtype.h"

/* Parse one item of n bytes. */
static int dts_item(ckpt_dtype_rules *out, ckpt_arena *arena, const char *text, size_t n,
                    ckpt_err *err)
{
    char *item = ckpt_arena_string(arena, text, n);
    char *colon = item ? strchr(item, ':') : NULL;
    ckpt_dtype_rule *rule = item ? ckpt_vec_push(out) : NULL;

    if (!rule)
        return ckpt_fail_memory(err);
    if (colon)
        *colon = '\0';
    *rule = (ckpt_dtype_rule){.dtype = ckpt_dtype_parse(item), .glob = colon ? colon + 1 : "*"};
    if (rule->dtype == CKPT_DTYPE_NONE)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "dtypes: '%.80s' is not a dtype; expected DTYPE:GLOB, items divided by "
                         "commas, such as f32:*norm*,bf16:*",
                         item);
    if (!*rule->glob)
        return ckpt_fail(err, CKPT_EUSAGE, "dtypes: '%.80s:' names no tensors; expected DTYPE:GLOB",
                         item);
    return CKPT_OK;
}

int ckpt_dtypes_parse(ckpt_dtype_rules *out, ckpt_arena *arena, const char *text, ckpt_err *err)
{
    int rc = CKPT_OK;

    for (bool more = true; rc == CKPT_OK && more;) {
        size_t n = strcspn(text, ",");
        rc = dts_item(out, arena, text, n, err);
        more = text[n] == ',';
        text += n + more;
    }
    return rc;
}

ckpt_dtype ckpt_dtypes_of(ckpt_dtype_rules *rules, const ckpt_tensor *t)
{
    ckpt_dtype found = CKPT_DTYPE_NONE;
    bool floating = ckpt_dtype_get(t->dtype)->kind == CKPT_IS_FLOAT;

    for (size_t i = 0; i < rules->n; i++) {
        ckpt_dtype_rule *r = &rules->at[i];
        if (fnmatch(r->glob, t->name, 0) != 0)
            continue;
        r->n_met++;
        r->met = r->met ? r->met : t;
        // a tied name shares the bytes of its owner, and their dtype
        if (t->owner) {
            r->tie = r->tie ? r->tie : t;
        } else if (floating && found == CKPT_DTYPE_NONE) {
            found = r->dtype;
            r->n_took++;
        }
    }
    return found;
}

bool ckpt_dtype_stays(const char *name, ckpt_dtype has, ckpt_dtype wanted)
{
    static const char *const leaves[] = {"expert_bias", "expert_bias_E", "e_score_correction_bias"};
    const char *dot = strrchr(name, '.'), *leaf = dot ? dot + 1 : name;
    bool is = false;

    for (size_t i = 0; i < sizeof leaves / sizeof *leaves; i++)
        is |= strcmp(leaf, leaves[i]) == 0;
    return is && wanted != CKPT_DTYPE_NONE && ckpt_dtype_get(has)->kind == CKPT_IS_FLOAT &&
           ckpt_dtype_get(has)->bits >= 32 && ckpt_dtype_get(wanted)->bits < 32;
}

int ckpt_dtypes_used(const ckpt_dtype_rules *rules, ckpt_err *err)
{
    for (size_t i = 0; i < rules->n; i++) {
        const ckpt_dtype_rule *r = &rules->at[i];
        const char *dtype = ckpt_dtype_name(r->dtype);

        if (r->n_took > 0)
            continue;
        if (r->n_met == 0)
            return ckpt_fail(err, CKPT_EUSAGE, "dtype %s:%.200s: matches no tensor", dtype,
                             r->glob);
        if (r->tie && r->tie == r->met)
            return ckpt_fail(err, CKPT_EUSAGE,
                             "dtype %s:%.200s: %.200s is tied to %.200s and has its dtype: give a "
                             "pattern for that tensor",
                             dtype, r->glob, r->tie->name, r->tie->owner->name);
        if (ckpt_dtype_get(r->met->dtype)->kind != CKPT_IS_FLOAT)
            return ckpt_fail(err, CKPT_EUSAGE,
                             "dtype %s:%.200s: %.200s is %s: only floating tensors are converted",
                             dtype, r->glob, r->met->name, ckpt_dtype_name(r->met->dtype));
        return ckpt_fail(err, CKPT_EUSAGE,
                         "dtype %s:%.200s: has no effect: earlier patterns match all of its "
                         "tensors, such as %.200s",
                         dtype, r->glob, r->met->name);
    }
    return CKPT_OK;
}
