/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files.c: reads the many small files of zero/ with the threads of the shard reader.
 */
#include <assert.h>
#include <string.h>

#include "formats/universal/universal.h"

/* The list of files, and the callback for each. */
typedef struct ux_hand {
    ckpt_uni *u;
    const ckpt_uni_wants *wants;
    ckpt_uni_file_fn fn;
} ux_hand;

/* Pass a file to the callback; the shard's rank is the index of the file in the list. */
static int ux_take(void *ctx, ckpt_ds_shard *s)
{
    const ux_hand *h = ctx;
    ckpt_uni_file f = {.want = &h->wants->at[s->rank], .shard = s};

    return h->fn(h->u, &f);
}

int ckpt_uni_files_each(ckpt_uni *u, const ckpt_uni_wants *wants, ckpt_uni_file_fn fn)
{
    assert(u && wants && fn);
    bool steps = wants->n && strcmp(wants->at[0].state, "step") == 0;
    ux_hand h = {.u = u, .wants = wants, .fn = fn};
    ckpt_ds_parts parts = {0};
    bool fits = true;

    for (size_t i = 0; fits && i < wants->n; i++) {
        ckpt_ds_part *p = ckpt_vec_push(&parts);
        fits = p != NULL;
        if (p)
            *p = (ckpt_ds_part){.path = wants->at[i].path, .rank = (uint32_t)i};
    }
    int rc = fits ? ckpt_ds_shard_each(&u->job, &parts, 0, steps ? CKPT_DS_STEPS : CKPT_DS_VALUES,
                                       ux_take, &h)
                  : ckpt_fail_memory(u->job.err);
    ckpt_vec_free(&parts);
    return rc;
}
