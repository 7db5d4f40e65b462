/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_pickle.c: any bytes through the pickle reader; what it accepts is printed in both forms,
 * written, read again and written again: the two pickles must be the same.  Read with its objects
 * taken over, what is left is the same, with and without patterns of objects that repeat.
 */
#include "ckpt_extra.h"
#include "libckpt/codec/pickle/pickle.h"
#include "libckpt/map/map.h"
#include "tests/fuzz/fuzz_help.h"

static int fuzz_count(void *ctx, const char *text, size_t n)
{
    (void)text;
    *(uint64_t *)ctx += n;
    return 0;
}

/* Print the tree; its size must stay in proportion to the nodes. */
static void fuzz_print(ckpt_value *root, ckpt_tree_format format, size_t size)
{
    ckpt_map map = {.values = root};
    ckpt_tree_opts opts = {.format = format, .max_items = size % 3 == 0 ? 2 : 0};
    uint64_t n = 0;

    fuzz_require(ckpt_tree_print(&map, &opts, fuzz_count, &n, NULL) == CKPT_OK);
    fuzz_require(n > 0 && n < (size + 1) * 4096);
}

/* The writer leaves a few things that the reader takes; it must say so. */
static void fuzz_round_trip(ckpt_value *root)
{
    ckpt_pickle_opts opts = {.name = "again"};
    ckpt_bytes first = {0}, second = {0};
    ckpt_pickle again;
    ckpt_arena *a = ckpt_arena_new(0);
    int rc = ckpt_pickle_write(&first, root, NULL);

    fuzz_require(a && (rc == CKPT_OK || rc == CKPT_EUNSUPPORTED || rc == CKPT_ELIMIT));
    if (rc == CKPT_OK) {
        rc = ckpt_pickle_read(&again, a, first.at, first.n, &opts, NULL);
        fuzz_require(rc == CKPT_OK || rc == CKPT_ELIMIT); // protocol 2 can take more room
        if (rc == CKPT_OK) {
            fuzz_require(ckpt_pickle_write(&second, again.root, NULL) == CKPT_OK);
            fuzz_require(first.n == second.n && memcmp(first.at, second.at, first.n) == 0);
        }
        ckpt_pickle_free(&again);
    }
    ckpt_vec_free(&first);
    ckpt_vec_free(&second);
    ckpt_arena_free(a);
}

/* A hash of a value's first items; what the caller takes over counts as itself, not by its parts. */
static uint32_t fuzz_hash(const ckpt_value *v, uint32_t h, unsigned depth)
{
    ckpt_seq s = ckpt_value_seq(v);
    ckpt_dict m = ckpt_value_map(v);

    if (v->kind == CKPT_V_OBJECT || (v->kind == CKPT_V_INT && v->state))
        return ckpt_hash_u64(h);
    h = ckpt_hash_u64(((uint64_t)h << 8) + (uint64_t)v->kind);
    if (v->kind == CKPT_V_STR)
        return ckpt_hash_bytes(v->as.text.at, (size_t)v->as.text.n, h);
    if (v->kind == CKPT_V_INT)
        return ckpt_hash_bytes(&v->as.i, sizeof v->as.i, h);
    for (uint64_t i = 0; depth > 0 && i < s.n && i < 8; i++)
        h = fuzz_hash(s.at[i], h, depth - 1);
    for (uint64_t i = 0; depth > 0 && i < m.n && i < 8; i++)
        h = fuzz_hash(m.at[i].value, fuzz_hash(m.at[i].key, h, depth - 1), depth - 1);
    return h;
}

/* The hashes of the states of all objects that were taken over, in order. */
CKPT_VEC(fuzz_hashes, uint32_t);

static bool fuzz_take(void *ctx, const ckpt_object *o, int64_t *number)
{
    fuzz_hashes *all = ctx;
    uint32_t *to = ckpt_vec_push(all);

    fuzz_require(o->state != NULL && to != NULL);
    *to = fuzz_hash(o->state, 0, 3);
    *number = (int64_t)all->n - 1;
    return true;
}

/* The number of values that stand in one: several that were taken over, or one. */
static uint64_t fuzz_width(const ckpt_value *v)
{
    return v->kind == CKPT_V_INT && v->state && v->as.taken.n > 0 ? v->as.taken.n : 1;
}

/* Two readings of one node: all is the same but what was taken; what lies below that is gone. */
static void fuzz_same(const ckpt_value *a, const ckpt_value *b, unsigned depth)
{
    ckpt_seq sa = ckpt_value_seq(a), sb = ckpt_value_seq(b);
    ckpt_dict ma = ckpt_value_map(a), mb = ckpt_value_map(b);

    if (b->kind == CKPT_V_INT && b->state) {
        fuzz_require(a->kind == CKPT_V_OBJECT && b->state->kind == CKPT_V_GLOBAL);
        return;
    }
    fuzz_require(a->kind == b->kind);
    if (a->kind == CKPT_V_STR)
        fuzz_require(a->as.text.n == b->as.text.n &&
                     memcmp(a->as.text.at, b->as.text.at, (size_t)a->as.text.n) == 0);
    if (a->kind == CKPT_V_INT)
        fuzz_require(a->as.i == b->as.i);
    uint64_t n = 0;
    for (uint64_t i = 0; i < sb.n; i++) {
        fuzz_require(n < sa.n);
        if (depth > 0 && i < 64)
            fuzz_same(sa.at[n], sb.at[i], depth - 1);
        n += fuzz_width(sb.at[i]);
    }
    fuzz_require(n == sa.n);
    n = 0;
    for (uint64_t i = 0; i < mb.n; i++) {
        const uint64_t width = fuzz_width(mb.at[i].key);

        fuzz_require(n < ma.n && (width == 1 || width % 2 == 0));
        if (depth > 0 && i < 64)
            fuzz_same(ma.at[n].key, mb.at[i].key, depth - 1);
        if (depth > 0 && i < 64 && width == 1)
            fuzz_same(ma.at[n].value, mb.at[i].value, depth - 1);
        n += width > 1 ? width / 2 : 1;
    }
    fuzz_require(n == ma.n);
}

/*
 * Read it with all objects taken over: what is left must be as it was without.  root NULL: reading
 * it failed.
 */
static int fuzz_taken(const ckpt_value *root, const ckpt_pickle_opts *plain, const uint8_t *data,
                      size_t size, fuzz_hashes *all)
{
    ckpt_pickle_opts opts = *plain;
    ckpt_arena *a = ckpt_arena_new(512ull << 20);
    ckpt_pickle p;
    int rc;

    opts.take = fuzz_take;
    opts.ctx = all;
    fuzz_require(a != NULL);
    rc = ckpt_pickle_read(&p, a, data, size, &opts, NULL);
    if (rc == CKPT_OK && root) {
        fuzz_same(root, p.root, 4);
        fuzz_print(p.root, CKPT_TREE_TEXT, size);
    }
    ckpt_pickle_free(&p);
    ckpt_arena_free(a);
    return rc;
}

/* Objects read by patterns must be the same as those read opcode by opcode. */
static void fuzz_patterns(const ckpt_value *root, const ckpt_pickle_opts *plain,
                          const uint8_t *data, size_t size)
{
    ckpt_pickle_opts slow = *plain;
    fuzz_hashes a = {0}, b = {0};
    int rc = fuzz_taken(root, plain, data, size, &a), other;

    slow.no_patterns = true;
    other = fuzz_taken(root, &slow, data, size, &b);
    if (rc != CKPT_ELIMIT && other != CKPT_ELIMIT) {
        fuzz_require(rc == other && a.n == b.n);
        fuzz_require(a.n == 0 || memcmp(a.at, b.at, a.n * sizeof *a.at) == 0);
    }
    ckpt_vec_free(&a);
    ckpt_vec_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    // the first byte chooses the options, so that one corpus covers them all
    ckpt_pickle_opts opts = {.name = "fuzz",
                             .may_continue = size > 0 && data[0] % 2 == 1,
                             .legacy_storages = size > 0 && data[0] % 3 == 1};
    ckpt_arena *a = ckpt_arena_new(512ull << 20);
    ckpt_pickle p;

    fuzz_require(a != NULL);
    if (ckpt_pickle_read(&p, a, data, size, &opts, NULL) == CKPT_OK) {
        fuzz_require(p.root && p.end <= size);
        fuzz_print(p.root, CKPT_TREE_TEXT, size);
        fuzz_print(p.root, CKPT_TREE_JSON, size);
        fuzz_round_trip(p.root);
    }
    fuzz_patterns(p.root, &opts, data, size);
    ckpt_pickle_free(&p);
    ckpt_arena_free(a);
    return 0;
}
