/* SPDX-License-Identifier: Apache-2.0 */
/* set.c: makes the module of the model file from the entries of several files. */
#include <assert.h>
#include <string.h>

#include "formats/deepspeed/module/module.h"

/* Fails if a name occurs in two of the module's files, because one of them is then from another
 * run. */
static int dsa_twice(ckpt_ds_job *job, ckpt_dict dict)
{
    ckpt_ds_index names;
    int rc = ckpt_ds_index_new(&names, dict, job->err);

    for (size_t i = 1; rc == CKPT_OK && i < names.n; i++) {
        const ckpt_text *a = &names.at[i - 1]->key->as.text, *b = &names.at[i]->key->as.text;
        if (a->n == b->n && memcmp(a->at, b->at, a->n) == 0)
            rc = ckpt_ds_problem(job, CKPT_EMISMATCH,
                                 "%s: %.200s appears in two of the module files: one of them is "
                                 "left over from another run",
                                 job->map->path, a->at);
    }
    ckpt_ds_index_free(&names);
    return rc;
}

int ckpt_ds_module_set(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_pairs *more,
                       bool keep)
{
    assert(head && more);
    ckpt_arena *arena = head->model.map->arena;
    ckpt_dict root = ckpt_value_map(head->model.root);
    ckpt_value *made = ckpt_value_new(arena, CKPT_V_ODICT), *old = NULL;
    bool fits = made != NULL;

    for (uint64_t i = 0; fits && i < root.n; i++) {
        if (!ckpt_value_is(root.at[i].key, "module"))
            continue;
        old = root.at[i].value;
        root.at[i].value = made;
    }
    ckpt_dict before = keep ? ckpt_value_map(old) : (ckpt_dict){0};
    if (fits && keep && old)
        made->state = old->state;
    for (uint64_t i = 0; fits && i < before.n; i++)
        fits = ckpt_dict_add(arena, &made->as.map, before.at[i].key, before.at[i].value);
    for (size_t i = 0; fits && i < more->n; i++)
        fits = ckpt_dict_add(arena, &made->as.map, more->at[i].key, more->at[i].value);
    return fits ? dsa_twice(job, made->as.map) : ckpt_fail_memory(job->err);
}
