/* SPDX-License-Identifier: Apache-2.0 */
/* beside.c: reports values in the files of zero/ that neither DeepSpeed nor ckpt reads. */
#include <assert.h>

#include "formats/universal/universal.h"

int ckpt_uni_beside(ckpt_uni *u, const ckpt_uni_file *f)
{
    assert(u && f);
    static const char *const known[] = {"param",         "cat_dim",         "param_n_sub_params",
                                        "vocab_tensor",  "sub_param_shape", "is_expert_param",
                                        "ep_num_experts"};
    ckpt_dict all = ckpt_value_map(f->shard->root);

    for (uint64_t i = 0; i < all.n; i++) {
        const ckpt_value *key = all.at[i].key;
        bool is = false;

        for (size_t k = 0; !is && k < sizeof known / sizeof *known; k++)
            is = ckpt_value_is(key, known[k]);
        if (is || u->n_beside++ > 0)
            continue;
        u->beside = ckpt_arena_printf(u->job.map->arena, "%s: %.100s", f->want->path,
                                      key->kind == CKPT_V_STR ? key->as.text.at : "another key");
        if (!u->beside)
            return ckpt_fail_memory(u->job.err);
    }
    return CKPT_OK;
}

int ckpt_uni_say_beside(ckpt_uni *u)
{
    if (u->n_beside == 0)
        return CKPT_OK;
    return ckpt_map_note(u->job.map, CKPT_WARNING, u->job.err,
                         "%s/zero: %zu values beside the tensors in its files are left out; the "
                         "first is %.300s",
                         u->job.map->path, u->n_beside, u->beside);
}
