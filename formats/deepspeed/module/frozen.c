/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frozen.c: reads the fragments of frozen parameters of stage 3 from the model files of all ranks,
 * and finds fragments of either stage that no shape belongs to.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/deepspeed/layout/stage3.h"
#include "formats/deepspeed/module/module.h"

int ckpt_ds_frozen_back(const ckpt_ds_job *job, const ckpt_ds_head *head,
                        const ckpt_ds_module *module, size_t frozen, ckpt_tensor *t)
{
    assert(t && frozen < module->frozen.n);
    const ckpt_ds_flat *flat = &module->fragment[frozen * head->world];
    const ckpt_parts *parts = NULL;

    if (t->n_elems == 0)
        return CKPT_OK;
    int rc = ckpt_ds_stage3_parts(job, head, flat, &parts);
    return rc == CKPT_OK ? ckpt_ds_stage3_back(job, flat, parts, 0, t) : rc;
}

/* Reads one rank's fragment of one parameter. */
static int dsfr_fragment(ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_module *module,
                         ckpt_ds_shard *s, size_t i, const ckpt_value *v)
{
    const ckpt_ds_param *p = &module->frozen.at[i];
    ckpt_ds_flat *f = &module->fragment[i * head->world + s->rank];
    uint64_t want = ckpt_zero_partition(p->numel, head->world);

    // DeepSpeed does not flatten a parameter without elements.
    if (p->numel == 0) {
        f->dtype = v && v->kind == CKPT_V_TENSOR ? (uint32_t)v->as.tensor->dtype : CKPT_F32;
        return CKPT_OK;
    }
    int rc = ckpt_ds_shard_flat(job, s, v, p->name, f);
    if (rc == CKPT_OK && f->n != want)
        rc = ckpt_ds_problem(job, CKPT_EMISMATCH,
                             "%s: the fragment of frozen parameter %.200s has %" PRIu64
                             " elements, expected %" PRIu64 " on each of %" PRIu32 " ranks",
                             s->path, p->name, f->n, want, head->world);
    if (rc == CKPT_OK && f->dtype != module->fragment[i * head->world].dtype)
        rc = ckpt_ds_problem(job, CKPT_EMISMATCH,
                             "%s: frozen parameter %.200s has another dtype than on rank 0",
                             s->path, p->name);
    return rc;
}

int ckpt_ds_frozen_unlisted(ckpt_ds_job *job, const ckpt_ds_module *module, const char *path,
                            ckpt_dict fragments)
{
    assert(module && path);
    for (uint64_t i = 0; fragments.n > module->frozen.n && i < fragments.n; i++) {
        const ckpt_value *key = fragments.at[i].key;
        const char *name = key->kind == CKPT_V_STR ? key->as.text.at : "an entry without a name";
        bool listed = false;

        for (size_t k = 0; key->kind == CKPT_V_STR && !listed && k < module->frozen.n; k++)
            listed = module->frozen.at[k].n_name == key->as.text.n &&
                     memcmp(module->frozen.at[k].name, name, key->as.text.n) == 0;
        if (!listed)
            return ckpt_ds_problem(job, CKPT_EMISMATCH,
                                   "%s: frozen_param_fragments has %.200s, which "
                                   "frozen_param_shapes does not list",
                                   path, name);
    }
    return CKPT_OK;
}

int ckpt_ds_frozen_read(ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_module *module,
                        ckpt_ds_shard *s)
{
    assert(module && s && s->rank < head->world);
    ckpt_dict dict = ckpt_value_map(ckpt_value_get(s->root, "frozen_param_fragments"));
    int rc = CKPT_OK;

    if (dict.n > module->frozen.n)
        return ckpt_ds_frozen_unlisted(job, module, s->path, dict);
    if (module->frozen.n && !module->fragment) {
        module->fragment = ckpt_alloc(module->frozen.n * head->world * sizeof *module->fragment);
        if (!module->fragment)
            return ckpt_fail_memory(job->err);
    }
    for (size_t i = 0; rc == CKPT_OK && i < module->frozen.n; i++) {
        const ckpt_ds_param *p = &module->frozen.at[i];
        // Every rank writes the fragments in the order of frozen_param_shapes.
        const ckpt_pair *e = i < dict.n ? &dict.at[i] : NULL;
        if (e && e->key->kind == CKPT_V_STR && e->key->as.text.n == p->n_name &&
            memcmp(e->key->as.text.at, p->name, p->n_name) == 0)
            rc = dsfr_fragment(job, head, module, s, i, e->value);
        else
            rc = ckpt_ds_problem(job, CKPT_EMISSING,
                                 "%s: no fragment of frozen parameter %.200s, which rank 0 lists",
                                 s->path, p->name);
    }
    return rc;
}
