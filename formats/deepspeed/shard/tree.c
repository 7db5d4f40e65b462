/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.c: copies a shard's tree of values into the output map's arena.
 */
#include <assert.h>
#include <string.h>

#include "formats/deepspeed/shard/shard.h"
#include "libckpt/map/value_copy.h"

typedef struct dst_storage {
    const ckpt_storage *from;
    ckpt_storage *to;
} dst_storage;

typedef struct dst_copy {
    const ckpt_ds_job *job;
    ckpt_ds_shard *shard;
    dst_storage *storage; /* one per source of the shard, set on first use */
} dst_copy;

/* Copies a text into the output map's arena. */
static bool dst_text(ckpt_arena *arena, const ckpt_text *from, ckpt_text *to)
{
    to->at = ckpt_arena_string(arena, from->at ? from->at : "", from->n);
    return to->at != NULL;
}

/* Copies a storage once, so shared storages remain shared; its source becomes the output map's. */
static bool dst_storage_copy(void *ctx, const ckpt_storage *from, ckpt_storage **to)
{
    dst_copy *c = ctx;
    ckpt_arena *arena = c->job->map->arena;
    uint32_t source = from->source;
    dst_storage *slot = source < c->shard->map->sources.n ? &c->storage[source] : NULL;

    if (slot && slot->from == from) {
        *to = slot->to;
        return true;
    }
    ckpt_storage *copy = ckpt_arena_copy(arena, from, sizeof *from);
    if (!copy || !dst_text(arena, &from->key, &copy->key) ||
        !dst_text(arena, &from->location, &copy->location))
        return false;
    copy->source = UINT32_MAX;
    if (slot && ckpt_ds_shard_source(c->job, c->shard, source, &copy->source) != CKPT_OK)
        return false;
    if (slot && !slot->from)
        *slot = (dst_storage){from, copy};
    *to = copy;
    return true;
}

int ckpt_ds_value_copy(const ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_value *v,
                       ckpt_value **out)
{
    assert(s->map && out);
    dst_copy c = {.job = job, .shard = s};
    const ckpt_value_copier copier = {
        .arena = job->map->arena, .whole = true, .ctx = &c, .storage = dst_storage_copy};

    *out = NULL;
    if (!v)
        return CKPT_OK;
    c.storage = ckpt_alloc((s->map->sources.n + 1) * sizeof *c.storage);
    *out = c.storage ? ckpt_value_copy(&copier, v) : NULL;
    ckpt_free(c.storage);
    return *out ? CKPT_OK : ckpt_fail_memory(job->err);
}

int ckpt_ds_tree_copy(const ckpt_ds_job *job, ckpt_ds_shard *s, ckpt_value **out)
{
    assert(s->map && out);
    int rc = s->tree ? CKPT_OK : ckpt_ds_value_copy(job, s, s->root, &s->tree);

    *out = s->tree;
    return rc;
}
