/* SPDX-License-Identifier: Apache-2.0 */
/*
 * values.c: rebuilds the tree of values that the program gave to torch before it was flattened.
 *
 * Each item is put at the end of its path.  A dict whose keys are the numbers from 0 on was a list.
 * A tensor is a leaf.  It has a storage only if one chunk covers it; otherwise its values are in
 * the map.
 */
#include <assert.h>
#include <string.h>

#include "formats/dcp/dcp.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/index.h"

/* A container of the tree, with its key for the index. */
typedef struct dvl_node {
    const ckpt_value *parent, *key; /* key NULL: the root */
    ckpt_value *v;
    bool is_leaf;
} dvl_node;

CKPT_VEC(dvl_nodes, dvl_node);

typedef struct dvl_tree {
    ckpt_arena *arena;
    dvl_nodes node;
    ckpt_index index;
    bool clash; /* two items have the same path, or one is below the other */
} dvl_tree;

/* ---- containers ---- */

static uint32_t dvl_hash(const dvl_node *n)
{
    uint32_t hash = ckpt_hash_u64((uint64_t)(uintptr_t)n->parent);

    return n->key->kind == CKPT_V_STR
               ? ckpt_hash_bytes(n->key->as.text.at, (size_t)n->key->as.text.n, hash)
               : ckpt_hash_bytes(&n->key->as.i, sizeof n->key->as.i, hash);
}

static bool dvl_same(const void *ctx, uint32_t number, const void *key)
{
    const dvl_node *a = &((const dvl_tree *)ctx)->node.at[number], *b = key;

    if (a->parent != b->parent || a->key->kind != b->key->kind)
        return false;
    if (a->key->kind == CKPT_V_INT)
        return a->key->as.i == b->key->as.i;
    return a->key->as.text.n == b->key->as.text.n &&
           memcmp(a->key->as.text.at, b->key->as.text.at, (size_t)a->key->as.text.n) == 0;
}

/*
 * Find or make the entry under a key of a dict: `leaf`, or with leaf NULL a dict.  NULL: no memory,
 * or two items conflict.
 */
static ckpt_value *dvl_below(dvl_tree *t, ckpt_value *parent, ckpt_value *key, ckpt_value *leaf)
{
    dvl_node want = {.parent = parent, .key = key, .is_leaf = leaf != NULL}, *made;
    uint32_t hash = dvl_hash(&want), at = ckpt_index_find(&t->index, hash, dvl_same, t, &want);

    if (at != CKPT_INDEX_NONE) {
        t->clash = leaf || t->node.at[at].is_leaf;
        return t->clash ? NULL : t->node.at[at].v;
    }
    want.v = leaf ? leaf : ckpt_value_new(t->arena, CKPT_V_DICT);
    made = ckpt_vec_push(&t->node);
    if (!want.v || !made || !ckpt_dict_add(t->arena, &parent->as.map, key, want.v))
        return NULL;
    *made = want;
    return ckpt_index_add(&t->index, hash, (uint32_t)(t->node.n - 1)) ? want.v : NULL;
}

/* Turn a dict with the keys 0 to n-1, in any order, back into a list. */
static bool dvl_list(ckpt_arena *arena, ckpt_value *v)
{
    ckpt_dict map = v->as.map;
    ckpt_value **at = map.n > 0 ? ckpt_arena_array(arena, map.n, sizeof *at) : NULL;

    for (uint64_t i = 0; i < map.n; i++) {
        const ckpt_value *key = map.at[i].key;
        if (key->kind != CKPT_V_INT || key->as.i < 0 || (uint64_t)key->as.i >= map.n)
            return true;
        if (!at || at[key->as.i])
            return at != NULL;
        at[key->as.i] = map.at[i].value;
    }
    if (map.n > 0) {
        v->kind = CKPT_V_LIST;
        v->as.seq = (ckpt_seq){.at = at, .n = map.n};
    }
    return true;
}

/* ---- leaves ---- */

/* ---- the tree ---- */

int ckpt_dcp_tree(ckpt_value **out, const ckpt_dcp_metadata *m, ckpt_value *const *leaf,
                  ckpt_arena *arena, ckpt_err *err)
{
    assert(out && m && arena && (leaf || m->item.n == 0));
    dvl_tree t = {.arena = arena};
    ckpt_value *root = ckpt_value_new(arena, CKPT_V_DICT);
    bool ok = root != NULL;
    int rc = CKPT_OK;

    for (size_t i = 0; ok && i < m->item.n; i++) {
        const ckpt_dcp_item *item = &m->item.at[i];
        ckpt_seq path = ckpt_value_seq(item->path);
        ckpt_value *at = root, *key = path.n > 0
                                          ? path.at[path.n - 1]
                                          : ckpt_value_str(arena, item->name.at, item->name.n);
        if (!leaf[i])
            continue;
        for (uint64_t k = 0; at && k + 1 < path.n; k++)
            at = dvl_below(&t, at, path.at[k], NULL);
        ok = at && key && dvl_below(&t, at, key, leaf[i]);
        if (t.clash)
            rc = ckpt_fail(err, CKPT_EMISMATCH,
                           "planner_data places %.200s where it also places another item",
                           item->name.at);
    }
    for (size_t i = 0; ok && i < t.node.n; i++)
        ok = t.node.at[i].is_leaf || dvl_list(arena, t.node.at[i].v);
    ckpt_vec_free(&t.node);
    ckpt_index_free(&t.index);
    *out = root;
    return ok || rc != CKPT_OK ? rc : ckpt_fail_memory(err);
}
