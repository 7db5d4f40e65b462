/* SPDX-License-Identifier: Apache-2.0 */
/*
 * same_config.c: finds fields of two config.json with different values.
 *
 * A field that only one file has says nothing: releases of transformers store the same settings
 * under different names (rope_theta, rope_parameters).
 */
#include "libckpt/transform/same_config.h"

#include <assert.h>

#include "libckpt/transform/keymap/expr.h"

enum { SCF_NODES = 4096, SCF_DEPTH = 4 };

typedef struct scf_work {
    ckpt_map *into;
    ckpt_rm_listed differ;
    ckpt_err *err;
} scf_work;

/* Compare the fields that both dicts have; above: the name of the dicts, "" for the files. */
static int scf_dicts(scf_work *w, const ckpt_value *a, const ckpt_value *b, const char *above,
                     unsigned depth)
{
    const ckpt_dict all = ckpt_value_map(a);
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
        const ckpt_value *key = all.at[i].key, *mine = all.at[i].value;
        const ckpt_value *other =
            key->kind == CKPT_V_STR ? ckpt_value_get(b, key->as.text.at) : NULL;
        if (!other || (!*above && ckpt_rm_common_field(key->as.text.at)))
            continue;
        const char *name =
            ckpt_arena_printf(w->into->arena, "%s%s%s", above, *above ? "." : "", key->as.text.at);
        if (!name)
            rc = ckpt_fail_memory(w->err);
        else if (mine->kind == CKPT_V_DICT && other->kind == CKPT_V_DICT && depth < SCF_DEPTH)
            rc = scf_dicts(w, mine, other, name, depth + 1);
        else if (!ckpt_rm_same(CKPT_KEY_F64, mine, other) &&
                 !ckpt_value_equal(mine, other, SCF_NODES))
            rc = ckpt_rm_list_value(&w->differ, w->into->arena, name, mine, w->err);
    }
    return rc;
}

int ckpt_config_compare(ckpt_map *into, ckpt_map *model, ckpt_map *base, ckpt_err *err)
{
    assert(into && model && base);
    const ckpt_value *a = NULL, *b = NULL;
    scf_work w = {.into = into, .err = err};
    int rc = ckpt_rm_beside(&a, model, "config.json", err);

    if (rc == CKPT_OK)
        rc = ckpt_rm_beside(&b, base, "config.json", err);
    if (rc == CKPT_OK && a && b)
        rc = scf_dicts(&w, a, b, "", 0);
    if (rc != CKPT_OK || !w.differ.text)
        return rc;
    return ckpt_map_note(into, CKPT_WARNING, err,
                         "%s: its config.json has other values than that of %s, by which the "
                         "output computes: %s",
                         model->path, base->path, w.differ.text);
}
