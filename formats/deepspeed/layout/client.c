/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client.c: records the values in model files that differ by rank.
 *
 * At stage 3 each rank writes a model file, with the client_state that its process passed (states
 * of random number generators, positions in the data), and with its own buffers, which differ if
 * the ranks compute them from their own samples (BatchNorm).  Lower stages have one model file.
 */
#include <assert.h>
#include <string.h>

#include "formats/deepspeed/layout/same.h"
#include "formats/training/deepspeed_keys.h"
#include "libckpt/map/map.h"
#include "libckpt/map/state.h"

enum {
    DCL_DEPTH = 64,
    DCL_NODES = 1 << 24,
    DCL_READ = 1 << 16 /* bytes: larger tensors without checksums are not read */
};

/* A comparison of values in the files of two ranks. */
typedef struct dcl_pair {
    ckpt_ds_shard *first, *own;
    uint64_t left; /* nodes that may still be compared: values may be shared many times */
} dcl_pair;

static bool dcl_same(dcl_pair *p, const ckpt_value *a, const ckpt_value *b, unsigned depth);

/* Read a record of n bytes; false: it cannot be read, which the caller takes for a difference. */
static bool dcl_read(ckpt_ds_shard *s, uint32_t source, uint64_t n, uint8_t *to)
{
    ckpt_tensor like = {.dtype = CKPT_U8, .ndim = 1, .n_elems = n, .shape = &n};
    ckpt_tensor *t = NULL;

    return (s->reader || ckpt_reader_new(&s->reader, s->map, NULL) == CKPT_OK) &&
           ckpt_map_add_hidden(s->map, "client", 6, &like, &t, NULL) == CKPT_OK &&
           ckpt_map_back_whole(s->map, t, source, 0, NULL) == CKPT_OK &&
           ckpt_reader_read(s->reader, t, 0, n, CKPT_DTYPE_NONE, to, NULL) == CKPT_OK;
}

static bool dcl_same_bytes(const dcl_pair *p, uint32_t first, uint32_t own, uint64_t n)
{
    uint8_t *bytes = n <= DCL_READ ? ckpt_alloc(2 * (size_t)n) : NULL;
    bool same = bytes && dcl_read(p->first, first, n, bytes) &&
                dcl_read(p->own, own, n, bytes + n) && memcmp(bytes, bytes + n, (size_t)n) == 0;

    ckpt_free(bytes);
    return same;
}

/*
 * Compare two tensors by the checksums of their records, because a program may keep a copy of the
 * model there.  Only small ones are read if there are no checksums; larger ones count as different.
 */
static bool dcl_same_tensor(const dcl_pair *p, const ckpt_tensor_value *a,
                            const ckpt_tensor_value *b)
{
    const ckpt_sources *x = &p->first->map->sources, *y = &p->own->map->sources;
    const ckpt_source *s, *t;

    if (a->offset != b->offset || a->ndim != b->ndim || a->flags != b->flags ||
        memcmp(a->stride, b->stride, a->ndim * sizeof *a->stride) != 0)
        return false;
    if (!a->storage || !b->storage)
        return a->storage == b->storage;
    if (a->storage->source >= x->n || b->storage->source >= y->n)
        return false;
    s = &x->at[a->storage->source];
    t = &y->at[b->storage->source];
    if (s->n_bytes != t->n_bytes || s->n_bytes == 0)
        return s->n_bytes == t->n_bytes;
    return s->has_crc && t->has_crc
               ? s->crc == t->crc
               : dcl_same_bytes(p, a->storage->source, b->storage->source, s->n_bytes);
}

static bool dcl_same_list(dcl_pair *p, ckpt_seq a, ckpt_seq b, unsigned depth)
{
    bool same = true;

    for (uint64_t i = 0; same && i < a.n; i++)
        same = dcl_same(p, a.at[i], b.at[i], depth);
    return same;
}

static bool dcl_same_dict(dcl_pair *p, ckpt_dict a, ckpt_dict b, unsigned depth)
{
    const ckpt_value of_b = {.kind = CKPT_V_DICT, .as.map = b};
    bool same = true;

    for (uint64_t i = 0; same && i < a.n; i++) {
        const ckpt_value *key = a.at[i].key;
        same = dcl_same(p, a.at[i].value,
                        key->kind == CKPT_V_STR ? ckpt_value_get(&of_b, key->as.text.at)
                                                : b.at[i].value,
                        depth);
    }
    return same;
}

/* Compare the elements of tensors in two values that ckpt_value_equal calls equal. */
static bool dcl_same(dcl_pair *p, const ckpt_value *a, const ckpt_value *b, unsigned depth)
{
    if (!a || !b)
        return a == b;
    if (depth == 0 || p->left == 0)
        return false;
    p->left--;
    if (a->kind == CKPT_V_TENSOR)
        return dcl_same_tensor(p, a->as.tensor, b->as.tensor);
    if (a->kind == CKPT_V_OBJECT) {
        const ckpt_object *x = a->as.object, *y = b->as.object;
        return dcl_same(p, x->args, y->args, depth - 1) &&
               dcl_same(p, x->state, y->state, depth - 1) &&
               dcl_same_list(p, x->items, y->items, depth - 1) &&
               dcl_same_dict(p, x->pairs, y->pairs, depth - 1);
    }
    return dcl_same_list(p, ckpt_value_seq(a), ckpt_value_seq(b), depth - 1) &&
           dcl_same_dict(p, ckpt_value_map(a), ckpt_value_map(b), depth - 1);
}

/* A member of the model file, or a buffer in its module. */
typedef struct dcl_member {
    const ckpt_value *key; /* STR */
    bool in_module;
    const ckpt_value *first, *own; /* value on rank 0 and on the other rank; NULL: none */
} dcl_member;

/* The values of a member, rank 0's for all ranks until others are known; NULL: no memory. */
static ckpt_ranked *dcl_entry(const ckpt_ds_job *job, ckpt_ds_head *head, const dcl_member *m)
{
    ckpt_ranked *r = ckpt_ranked_add(job->map->arena, &head->client, m->key, m->in_module);
    ckpt_value *first = NULL;

    if (!r || r->at)
        return r;
    r->at = ckpt_arena_array(job->map->arena, head->world, sizeof(ckpt_value *));
    if (!r->at || ckpt_ds_value_copy(job, &head->model, m->first, &first) != CKPT_OK)
        return NULL;
    for (uint32_t i = 0; i < head->world; i++)
        r->at[i] = first;
    return r;
}

/* Record a member if the rank has another value than rank 0. */
static int dcl_note(const ckpt_ds_job *job, ckpt_ds_head *head, ckpt_ds_shard *s,
                    const dcl_member *m)
{
    dcl_pair pair = {&head->model, s, DCL_NODES};
    bool same = m->first && m->own;
    ckpt_ranked *r;
    int rc = CKPT_OK;

    if (same && m->first != m->own)
        rc = ckpt_ds_same(job, m->first, m->own, &same);
    if (rc != CKPT_OK || (same && dcl_same(&pair, m->first, m->own, DCL_DEPTH)))
        return rc;
    r = dcl_entry(job, head, m);
    if (!r)
        return ckpt_fail_memory(job->err);
    return s->rank < head->world ? ckpt_ds_value_copy(job, s, m->own, &r->at[s->rank]) : rc;
}

/* True for members that may differ by rank: the program's, and the positions in the data. */
static bool dcl_is_client(const ckpt_value *key)
{
    return key->kind == CKPT_V_STR &&
           (ckpt_value_is(key, "data_sampler") || ckpt_value_is(key, "random_ltd") ||
            !ckpt_train_is_deepspeed_key(key->as.text.at));
}

static int dcl_buffers(const ckpt_ds_job *job, ckpt_ds_head *head, ckpt_ds_shard *s)
{
    ckpt_seq names = ckpt_value_seq(ckpt_value_get(head->model.root, "buffer_names"));
    const ckpt_value *first = ckpt_value_get(head->model.root, "module"),
                     *own = ckpt_value_get(s->root, "module");
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < names.n; i++) {
        const ckpt_value *name = names.at[i];
        dcl_member m = {.key = name, .in_module = true};
        if (name->kind != CKPT_V_STR)
            continue;
        m.first = ckpt_value_get(first, name->as.text.at);
        m.own = ckpt_value_get(own, name->as.text.at);
        rc = m.first && m.own ? dcl_note(job, head, s, &m) : rc;
    }
    return rc;
}

int ckpt_ds_client_note(const ckpt_ds_job *job, ckpt_ds_head *head, ckpt_ds_shard *s)
{
    assert(head && s && s->map);
    ckpt_dict first = ckpt_value_map(head->model.root), own = ckpt_value_map(s->root);
    int rc = job->opts->with_optimizer ? dcl_buffers(job, head, s) : CKPT_OK;

    for (uint64_t i = 0; job->opts->with_optimizer && rc == CKPT_OK && i < first.n; i++) {
        const ckpt_value *key = first.at[i].key;
        if (dcl_is_client(key))
            rc = dcl_note(job, head, s,
                          &(dcl_member){key, false, first.at[i].value,
                                        ckpt_value_get(s->root, key->as.text.at)});
    }
    for (uint64_t i = 0; job->opts->with_optimizer && rc == CKPT_OK && i < own.n; i++) {
        const ckpt_value *key = own.at[i].key;
        if (dcl_is_client(key) && !ckpt_value_get(head->model.root, key->as.text.at))
            rc = dcl_note(job, head, s, &(dcl_member){key, false, NULL, own.at[i].value});
    }
    return rc;
}

/* Record a member whose value one model-parallel rank has alone; NULL at: rank 0's is taken. */
static int dcl_note_lost(const ckpt_ds_job *job, ckpt_state *to, const ckpt_value *key)
{
    return ckpt_ranked_add(job->map->arena, &to->client, key, false) ? CKPT_OK
                                                                     : ckpt_fail_memory(job->err);
}

int ckpt_ds_client_join(const ckpt_ds_job *job, ckpt_state *to, ckpt_map *first, ckpt_map *own)
{
    assert(to && first->states.n > 0 && own->states.n > 0);
    ckpt_ds_shard shards[2] = {{.map = first}, {.map = own}};
    const ckpt_value *a = first->states.at[0]->model, *b = own->states.at[0]->model;
    ckpt_dict all = ckpt_value_map(a), other = ckpt_value_map(b);
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
        dcl_pair pair = {&shards[0], &shards[1], DCL_NODES};
        const ckpt_value *key = all.at[i].key, *x = all.at[i].value,
                         *y = dcl_is_client(key) ? ckpt_value_get(b, key->as.text.at) : NULL;
        bool same = y != NULL;
        if (!dcl_is_client(key))
            continue;
        if (same)
            rc = ckpt_ds_same(job, x, y, &same);
        if (rc == CKPT_OK && !(same && dcl_same(&pair, x, y, DCL_DEPTH)))
            rc = dcl_note_lost(job, to, key);
    }
    for (uint64_t i = 0; rc == CKPT_OK && i < other.n; i++) {
        if (dcl_is_client(other.at[i].key) && !ckpt_value_get(a, other.at[i].key->as.text.at))
            rc = dcl_note_lost(job, to, other.at[i].key);
    }
    ckpt_reader_free(shards[0].reader);
    ckpt_reader_free(shards[1].reader);
    return rc;
}
