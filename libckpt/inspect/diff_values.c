/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff_values.c: compares the values of two checkpoints beside their tensors: entries of training
 * state, keys of GGUF, the configuration and tokenizer of a model folder.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ckpt_extra.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/index.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/format.h"
#include "libckpt/inspect/value_counts.h"
#include "libckpt/map/state.h"

enum {
    DV_DEPTH = 64,
    DV_NODES = 1 << 24, /* pairs of values compared one by one */
    DV_PATH = 512,
    DV_TEXT = 80,               /* bytes of a value in a difference */
    DV_FILE = 64 * 1024 * 1024, /* bytes of a tokenizer's file */
    DV_KEY = 128,               /* nodes of a key */
    DV_ROPE = 64,               /* settings of rotary positions */
    DV_PARTS = 4                /* levels of parts in a configuration: text_config */
};

typedef struct dv_work {
    ckpt_value_difference_fn fn;
    void *ctx;
    ckpt_counts_fn *counts;
    const ckpt_map *b; /* the second checkpoint */
    bool differs, stopped;
    bool failed;        /* out of memory, or too many keys collide */
    bool tensors_apart; /* tensors that a side lacks were compared as tensors */
    bool json;          /* the values come from JSON, whose loaders take 1 and 1.0 as one number */
    uint64_t n_said;    /* differences so far */
    uint64_t budget;
} dv_work;

/* A tensor as short text: "a tensor F32 [2,3]". */
static void dv_tensor_text(char out[DV_TEXT], const ckpt_tensor_value *t)
{
    int n = snprintf(out, DV_TEXT, "a tensor %.16s [", ckpt_dtype_name(t->dtype));

    for (uint32_t i = 0; i < t->ndim && n < DV_TEXT - 24; i++)
        n += snprintf(out + n, DV_TEXT - (size_t)n, "%s%" PRIu64, i ? "," : "", t->shape[i]);
    (void)snprintf(out + n, DV_TEXT - (size_t)n, "]");
}

/* A value as short text; NULL: there is none. */
static const char *dv_text(char out[DV_TEXT], const ckpt_value *v)
{
    int64_t n;

    if (!v)
        return NULL;
    if (v->kind == CKPT_V_BOOL)
        (void)snprintf(out, DV_TEXT, "%s", v->as.i ? "true" : "false");
    else if (ckpt_value_as_int(v, &n))
        (void)snprintf(out, DV_TEXT, "%" PRId64, n);
    else if (v->kind == CKPT_V_FLOAT)
        (void)snprintf(out, DV_TEXT, "%.9g", v->as.f);
    else if (v->kind == CKPT_V_STR)
        (void)snprintf(out, DV_TEXT, "'%.60s'%s", v->as.text.at, v->as.text.n > 60 ? "..." : "");
    else if (v->kind == CKPT_V_DICT || v->kind == CKPT_V_ODICT)
        (void)snprintf(out, DV_TEXT, "%" PRIu64 " entries", v->as.map.n);
    else if (ckpt_value_seq(v).at)
        (void)snprintf(out, DV_TEXT, "%" PRIu64 " items", ckpt_value_seq(v).n);
    else if (v->kind == CKPT_V_TENSOR)
        dv_tensor_text(out, v->as.tensor);
    else if (v->kind == CKPT_V_DTYPE)
        (void)snprintf(out, DV_TEXT, "%s", ckpt_dtype_name(v->as.dtype));
    else
        (void)snprintf(out, DV_TEXT, "%s", v->kind == CKPT_V_NONE ? "none" : "another value");
    return out;
}

static void dv_say(dv_work *w, const char *path, const char *a, const char *b)
{
    const ckpt_value_difference d = {
        .path = path, .a = a, .b = b, .counts = w->counts(w->b, path, a, b)};

    w->n_said++;
    w->differs = w->differs || d.counts;
    if (!w->stopped && w->fn && w->fn(w->ctx, &d) != 0)
        w->stopped = true;
}

/* ---- dictionaries ---- */

/* The keys of a dictionary, in an index as soon as two dictionaries have them in another order. */
typedef struct dv_keys {
    ckpt_dict of;
    ckpt_index index;
} dv_keys;

static uint32_t dv_hash(const ckpt_value *key, unsigned depth)
{
    const ckpt_seq seq = ckpt_value_seq(key);
    uint32_t hash = ckpt_hash_u64((uint64_t)key->kind);

    if (key->kind == CKPT_V_STR || key->kind == CKPT_V_BYTES)
        return ckpt_hash_bytes(key->as.text.at, (size_t)key->as.text.n, hash);
    if (key->kind == CKPT_V_INT || key->kind == CKPT_V_BOOL)
        return ckpt_hash_u64((uint64_t)key->as.i);
    for (uint64_t i = 0; depth > 0 && i < seq.n && i < DV_KEY; i++)
        hash = ckpt_hash_u64((uint64_t)hash << 32 | dv_hash(seq.at[i], depth - 1));
    return hash;
}

/* Hash index callback: compare the key of pair `number`. */
static bool dv_same_key(const void *ctx, uint32_t number, const void *key)
{
    const ckpt_dict *d = ctx;

    return ckpt_value_equal(d->at[number].key, key, DV_KEY);
}

/* Index the keys; a failure ends the comparison. */
static void dv_index(dv_work *w, dv_keys *k)
{
    for (uint64_t i = 0; !w->failed && i < k->of.n; i++)
        w->failed =
            i > INT32_MAX || !ckpt_index_add(&k->index, dv_hash(k->of.at[i].key, 2), (uint32_t)i);
    w->stopped = w->stopped || w->failed;
}

/* The value of a key that the other dictionary has at position i. */
static const ckpt_value *dv_partner(dv_work *w, dv_keys *k, uint64_t i, const ckpt_value *key)
{
    uint32_t at;

    if (i < k->of.n && ckpt_value_equal(k->of.at[i].key, key, DV_KEY))
        return k->of.at[i].value;
    if (k->index.n == 0)
        dv_index(w, k);
    at = ckpt_index_find(&k->index, dv_hash(key, 2), dv_same_key, &k->of, key);
    return at == CKPT_INDEX_NONE ? NULL : k->of.at[at].value;
}

/* ---- values ---- */

/* Make the text of a value longer, to tell it apart: all digits of a float, else its kind. */
static void dv_exact(char out[DV_TEXT], const ckpt_value *v)
{
    const size_t n = strlen(out);

    if (v->kind == CKPT_V_FLOAT)
        (void)snprintf(out, DV_TEXT, "%.17g", v->as.f);
    else if (v->kind == CKPT_V_STR && n < DV_TEXT - 32)
        (void)snprintf(out + n, DV_TEXT - n, " (%" PRIu64 " bytes)", v->as.text.n);
}

static void dv_values(dv_work *w, const char *path, const ckpt_value *a, const ckpt_value *b)
{
    char x[DV_TEXT], y[DV_TEXT];
    const char *s = dv_text(x, a), *t = dv_text(y, b);

    if (s && t && strcmp(x, y) == 0) {
        dv_exact(x, a);
        dv_exact(y, b);
    }
    dv_say(w, path, s, t);
}

static void dv_compare(dv_work *w, const char *path, const ckpt_value *a, const ckpt_value *b,
                       unsigned depth);

/* The path of an entry: "path.key", or "path[3]". */
static void dv_join(char out[DV_PATH], const char *path, const ckpt_value *key, uint64_t i)
{
    if (key && key->kind == CKPT_V_STR)
        (void)snprintf(out, DV_PATH, "%.380s%s%.120s", path,
                       *path && path[strlen(path) - 1] != ' ' ? "." : "", key->as.text.at);
    else if (key && key->kind == CKPT_V_INT)
        (void)snprintf(out, DV_PATH, "%.480s[%" PRId64 "]", path, key->as.i);
    else
        (void)snprintf(out, DV_PATH, "%.480s[%" PRIu64 "]", path, i);
}

static void dv_dicts(dv_work *w, const char *path, const ckpt_value *a, const ckpt_value *b,
                     unsigned depth)
{
    dv_keys x = {.of = ckpt_value_map(a)}, y = {.of = ckpt_value_map(b)};
    char below[DV_PATH];

    for (uint64_t i = 0; !w->stopped && i < x.of.n; i++) {
        const ckpt_pair *p = &x.of.at[i];
        const ckpt_value *other = dv_partner(w, &y, i, p->key);

        dv_join(below, path, p->key, i);
        dv_compare(w, below, p->value, other, depth + 1);
    }
    for (uint64_t i = 0; !w->stopped && i < y.of.n; i++) {
        const ckpt_pair *p = &y.of.at[i];

        if (dv_partner(w, &x, i, p->key) || w->stopped)
            continue;
        dv_join(below, path, p->key, i);
        dv_compare(w, below, NULL, p->value, depth + 1);
    }
    ckpt_index_free(&x.index);
    ckpt_index_free(&y.index);
}

/* True for an integer and a float that are one number. */
static bool dv_same_number(const ckpt_value *i, const ckpt_value *f)
{
    return i->kind == CKPT_V_INT && f->kind == CKPT_V_FLOAT && fabs(f->as.f) < 0x1p63 &&
           (double)i->as.i == f->as.f && (int64_t)f->as.f == i->as.i;
}

static bool dv_scalars_equal(const dv_work *w, const ckpt_value *a, const ckpt_value *b)
{
    if (a->kind == CKPT_V_FLOAT && b->kind == CKPT_V_FLOAT)
        return a->as.f == b->as.f || (isnan(a->as.f) && isnan(b->as.f));
    return (w->json && (dv_same_number(a, b) || dv_same_number(b, a))) ||
           ckpt_value_equal(a, b, DV_NODES);
}

/* Compare two lists up to their first difference. */
static void dv_lists(dv_work *w, const char *path, const ckpt_value *a, const ckpt_value *b,
                     unsigned depth)
{
    const ckpt_seq x = ckpt_value_seq(a), y = ckpt_value_seq(b);
    char below[DV_PATH];

    if (x.n != y.n) {
        dv_values(w, path, a, b);
        return;
    }
    for (uint64_t i = 0; !w->stopped && i < x.n; i++) {
        bool scalar = !ckpt_value_has_children(x.at[i]) && !ckpt_value_has_children(y.at[i]);
        const uint64_t n = w->n_said;

        if (scalar && dv_scalars_equal(w, x.at[i], y.at[i]))
            continue;
        dv_join(below, path, NULL, i);
        dv_compare(w, below, x.at[i], y.at[i], depth + 1);
        if (scalar && w->n_said > n)
            return;
    }
}

static bool dv_is_dict(const ckpt_value *v)
{
    return v->kind == CKPT_V_DICT || v->kind == CKPT_V_ODICT;
}

static bool dv_is_list(const ckpt_value *v)
{
    return v->kind == CKPT_V_LIST || v->kind == CKPT_V_TUPLE;
}

/* True for a missing value, None, and an empty container, which writers leave out. */
static bool dv_is_none(const ckpt_value *v)
{
    return !v || v->kind == CKPT_V_NONE || (dv_is_dict(v) && v->as.map.n == 0) ||
           (dv_is_list(v) && v->as.seq.n == 0);
}

/* True if two values are tensors of one dtype and shape: the map compares their elements. */
static bool dv_tensors(const ckpt_value *a, const ckpt_value *b)
{
    const ckpt_tensor_value *x, *y;

    if (!a || !b || a->kind != CKPT_V_TENSOR || b->kind != CKPT_V_TENSOR)
        return false;
    x = a->as.tensor;
    y = b->as.tensor;
    return x->dtype == y->dtype && x->ndim == y->ndim &&
           (x->ndim == 0 || memcmp(x->shape, y->shape, x->ndim * sizeof *x->shape) == 0);
}

static bool dv_is_tensor(const ckpt_value *v)
{
    return v && v->kind == CKPT_V_TENSOR;
}

/* Compare two values. */
static void dv_compare(dv_work *w, const char *path, const ckpt_value *a, const ckpt_value *b,
                       unsigned depth)
{
    const bool walk = depth < DV_DEPTH && w->budget > 0;

    w->budget -= walk;
    if (w->stopped || dv_tensors(a, b) || (dv_is_none(a) && dv_is_none(b)))
        return;
    if (w->tensors_apart && (!a || dv_is_tensor(a)) && (!b || dv_is_tensor(b)))
        return;
    if (!a || !b || dv_is_tensor(a) || dv_is_tensor(b))
        dv_values(w, path, a, b);
    else if (walk && dv_is_dict(a) && dv_is_dict(b))
        dv_dicts(w, path, a, b, depth);
    else if (walk && dv_is_list(a) && dv_is_list(b))
        dv_lists(w, path, a, b, depth);
    else if (walk && a->kind == CKPT_V_OBJECT && b->kind == CKPT_V_OBJECT && a->as.object->state &&
             b->as.object->state && ckpt_value_equal(a->as.object->cls, b->as.object->cls, DV_KEY))
        dv_compare(w, path, a->as.object->state, b->as.object->state, depth + 1);
    else if (!dv_scalars_equal(w, a, b))
        dv_values(w, path, a, b);
}

/* ---- keys of GGUF ---- */

/* Hash index callback: compare the name of key `number`. */
static bool dv_same_name(const void *ctx, uint32_t number, const void *name)
{
    const ckpt_keys *keys = ctx;

    return strcmp(keys->at[number].name, name) == 0;
}

static const char *dv_type(char out[DV_TEXT], const ckpt_key *k)
{
    static const char *const name[] = {"U8",   "I8",     "U16", "I16", "U32", "I32", "F32",
                                       "BOOL", "STRING", "?",   "U64", "I64", "F64"};

    (void)snprintf(out, DV_TEXT, "type %s%s", k->list ? "ARRAY of " : "",
                   k->type < sizeof name / sizeof *name ? name[k->type] : "?");
    return out;
}

/* Compare the types of keys: llama.cpp refuses a number of another type. */
static void dv_types(dv_work *w, const ckpt_keys *a, const ckpt_keys *b)
{
    ckpt_index index = {0};
    char x[DV_TEXT], y[DV_TEXT];

    for (size_t i = 0; !w->failed && i < b->n; i++) {
        const char *name = b->at[i].name;

        w->failed = i > INT32_MAX ||
                    !ckpt_index_add(&index, ckpt_hash_bytes(name, strlen(name), 0), (uint32_t)i);
    }
    w->stopped = w->stopped || w->failed;
    for (size_t i = 0; !w->stopped && i < a->n; i++) {
        const ckpt_key *k = &a->at[i];
        const uint32_t at = ckpt_index_find(&index, ckpt_hash_bytes(k->name, strlen(k->name), 0),
                                            dv_same_name, b, k->name);

        if (at != CKPT_INDEX_NONE && (k->type != b->at[at].type || k->list != b->at[at].list))
            dv_say(w, k->name, dv_type(x, k), dv_type(y, &b->at[at]));
    }
    ckpt_index_free(&index);
}

/* ---- files beside the weights ---- */

static bool dv_ends(const char *text, const char *with)
{
    const size_t n = strlen(text), m = strlen(with);

    return n >= m && strcmp(text + n - m, with) == 0;
}

/*
 * Add a value under a name that several keys of a file may have.  A second value counts as another
 * key, because programs choose between the two in different ways.
 */
static bool dv_add(ckpt_arena *arena, ckpt_value *to, const char *prefix, const char *name,
                   ckpt_value *v)
{
    const char *key = ckpt_arena_printf(arena, "%s%s", prefix, name);
    const ckpt_value *before = key ? ckpt_value_get(to, key) : NULL;

    if (before && dv_scalars_equal(&(dv_work){.json = true}, before, v))
        return true;
    if (before)
        key = ckpt_arena_printf(arena, "%s%s", key, ckpt_second_key);
    return key && ckpt_dict_add_cstr(arena, &to->as.map, key, v);
}

/* True for one of the two keys with the settings of rotary positions; models have few. */
static bool dv_is_rope(const ckpt_pair *p)
{
    return (ckpt_value_is(p->key, "rope_parameters") || ckpt_value_is(p->key, "rope_scaling")) &&
           dv_is_dict(p->value) && p->value->as.map.n < DV_ROPE;
}

/* Add the settings of rotary positions under the older names. */
static bool dv_rope(ckpt_arena *arena, ckpt_value *to, const ckpt_value *v)
{
    const ckpt_dict in = ckpt_value_map(v);
    bool ok = true;

    for (uint64_t i = 0; ok && i < in.n; i++) {
        const ckpt_pair *r = &in.at[i];
        const bool type = ckpt_value_is(r->key, "rope_type") || ckpt_value_is(r->key, "type");

        if (type && !ckpt_value_is(r->value, "default"))
            ok = dv_add(arena, to, "rope_scaling.", "type", r->value);
        else if (!type)
            ok = dv_add(arena, to, ckpt_value_is(r->key, "rope_theta") ? "" : "rope_scaling.",
                        r->key->as.text.at, r->value);
    }
    return ok;
}

/* Add the size of heads that programs compute if the key is missing. */
static bool dv_head(ckpt_arena *arena, ckpt_value *config)
{
    int64_t size, n;

    if (!ckpt_value_as_int(ckpt_value_get(config, "hidden_size"), &size) ||
        !ckpt_value_as_int(ckpt_value_get(config, "num_attention_heads"), &n) || n <= 0 ||
        ckpt_value_get(config, "head_dim"))
        return true;
    return ckpt_dict_add_cstr(arena, &config->as.map, "head_dim", ckpt_value_int(arena, size / n));
}

/*
 * A configuration, and those of its parts, under the names of older transformers: version 5 writes
 * dtype for torch_dtype, and rope_parameters for rope_theta and rope_scaling.
 */
static ckpt_value *dv_config(ckpt_arena *arena, const ckpt_value *v, unsigned depth)
{
    ckpt_value *out = ckpt_value_new(arena, CKPT_V_DICT);
    const ckpt_dict all = ckpt_value_map(v);
    bool ok = out != NULL;

    for (uint64_t i = 0; ok && i < all.n; i++) {
        const ckpt_pair *p = &all.at[i];
        ckpt_value *of = p->value;

        if (of->kind == CKPT_V_NONE)
            continue;
        if (dv_is_rope(p)) {
            ok = dv_rope(arena, out, of);
            continue;
        }
        if (depth > 0 && dv_is_dict(of))
            of = dv_config(arena, of, depth - 1);
        if (!of)
            return NULL;
        if (ckpt_value_is(p->key, "dtype") || ckpt_value_is(p->key, "torch_dtype"))
            ok = dv_add(arena, out, "", "torch_dtype", of);
        else if (ckpt_value_is(p->key, "rope_theta"))
            ok = dv_add(arena, out, "", "rope_theta", of);
        else
            ok = ckpt_dict_add(arena, &out->as.map, p->key, of);
    }
    return ok && dv_head(arena, out) ? out : NULL;
}

/* Read a file of a folder. */
static int dv_slurp(char **out, uint64_t *n, ckpt_arena *arena, const ckpt_listing *list,
                    const char *name, ckpt_err *err)
{
    const char *path = ckpt_path_join(arena, list->folder, name);

    return path ? ckpt_io_slurp(out, n, path, DV_FILE, err) : ckpt_fail_memory(err);
}

/* Compare two texts as JSON if both are JSON, else by their bytes. */
static int dv_texts(dv_work *w, ckpt_arena *arena, const char *name, const ckpt_text *a,
                    const ckpt_text *b, ckpt_err *err)
{
    const bool config = strcmp(name, "config.json") == 0;
    char path[DV_PATH];
    ckpt_value *x = NULL, *y = NULL;

    if (a->n == b->n && memcmp(a->at, b->at, (size_t)a->n) == 0)
        return CKPT_OK;
    if (ckpt_json_parse(&x, arena, &(ckpt_json_text){name, 0, a->at, a->n, DV_FILE, false}, NULL) !=
            CKPT_OK ||
        ckpt_json_parse(&y, arena, &(ckpt_json_text){name, 0, b->at, b->n, DV_FILE, false}, NULL) !=
            CKPT_OK) {
        dv_say(w, name, "a file", "another file");
        return CKPT_OK;
    }
    x = config ? dv_config(arena, x, DV_PARTS) : x;
    y = config ? dv_config(arena, y, DV_PARTS) : y;
    if (!x || !y)
        return ckpt_fail_memory(err);
    (void)snprintf(path, sizeof path, "%.200s: ", name);
    w->json = true;
    dv_compare(w, path, x, y, 0);
    w->json = false;
    return CKPT_OK;
}

/* Compare one file of the first folder with the second one's. */
static int dv_file(dv_work *w, ckpt_arena *arena, const ckpt_listing list[2], const char *name,
                   ckpt_err *err)
{
    char *text[2] = {NULL, NULL};
    uint64_t n[2] = {0};
    int rc = CKPT_OK;

    w->counts = ckpt_counts_of_file(name);
    if (!ckpt_listing_has(&list[1], name, false))
        dv_say(w, name, "a file", NULL);
    // the bytes of an archive differ from program to program
    if (!ckpt_listing_has(&list[1], name, false) || dv_ends(name, ".pt"))
        return CKPT_OK;
    for (size_t i = 0; rc == CKPT_OK && i < 2; i++)
        rc = dv_slurp(&text[i], &n[i], arena, &list[i], name, err);
    if (rc == CKPT_OK)
        rc =
            dv_texts(w, arena, name, &(ckpt_text){text[0], n[0]}, &(ckpt_text){text[1], n[1]}, err);
    ckpt_free(text[0]);
    ckpt_free(text[1]);
    return rc;
}

/* True for a file that the map was read from, or the index of such files. */
static bool dv_in_map(const ckpt_map *map, const char *name)
{
    static const char index[] = ".index.json";
    const char *stem = strchr(name, '.');
    const size_t n = dv_ends(name, index) && stem ? (size_t)(stem - name) : 0;
    bool is = false;

    for (size_t i = 0; !is && i < map->files.n; i++) {
        const char *slash = strrchr(map->files.at[i].path, '/');
        const char *file = slash ? slash + 1 : map->files.at[i].path;

        is = strcmp(file, name) == 0 || (n > 0 && strncmp(file, name, n) == 0 && file[n] == '-');
    }
    return is;
}

/* Compare the files beside the weights of two folders. */
static int dv_folders(dv_work *w, const ckpt_map *a, const ckpt_map *b, ckpt_err *err)
{
    ckpt_map *scratch = NULL;
    ckpt_listing list[2];
    int rc = ckpt_map_create(&scratch, 0, err);

    if (rc == CKPT_OK)
        rc = ckpt_listing_read(&list[0], scratch, a->path, err);
    if (rc == CKPT_OK)
        rc = ckpt_listing_read(&list[1], scratch, b->path, err);
    for (size_t i = 0; rc == CKPT_OK && i < list[0].n; i++) {
        const char *name = list[0].entry[i].name;

        if (!list[0].entry[i].is_dir && !ckpt_is_weights(name) && !dv_in_map(a, name))
            rc = dv_file(w, scratch->arena, list, name, err);
    }
    for (size_t i = 0; rc == CKPT_OK && i < list[1].n; i++) {
        const char *name = list[1].entry[i].name;

        if (list[1].entry[i].is_dir || dv_in_map(b, name) ||
            (!ckpt_is_weights(name) && ckpt_listing_find(&list[0], name)))
            continue;
        // a vocabulary may come from elsewhere, but loaders may prefer other weights
        w->counts = ckpt_is_weights(name) ? ckpt_counts_all : ckpt_counts_none;
        dv_say(w, name, NULL, "a file");
    }
    ckpt_map_free(scratch);
    return rc;
}

/* ---- training state ---- */

/* The values that differ by rank in two states a and b, and the trees with rank 0's values. */
typedef struct dv_ranked {
    const ckpt_ranked *a, *b;
    const char *of; /* begins the names in messages: "param_groups[0]." */
    const ckpt_value *a_first[2], *b_first[2]; /* [in_entry] */
} dv_ranked;

/* The value of rank k; `common` if all ranks have it. */
static const ckpt_value *dv_of_rank(const ckpt_ranked *r, uint32_t k, const ckpt_value *common)
{
    return r ? (r->at ? r->at[k] : NULL) : common;
}

/* Compare the values that differ by rank on one side or on both. */
static void dv_ranks(dv_work *w, const dv_ranked *list, const ckpt_state *a, const ckpt_state *b)
{
    char path[DV_PATH];

    for (int side = 0; side < 2; side++) {
        for (const ckpt_ranked *r = side ? list->b : list->a; r; r = r->next) {
            const ckpt_ranked *x = ckpt_ranked_find(list->a, r->key, r->in_entry),
                              *y = ckpt_ranked_find(list->b, r->key, r->in_entry);
            const char *key = r->key->as.text.at;

            for (uint32_t k = 0; r->at && !(side && x) && k < a->world && k < b->world; k++) {
                (void)snprintf(path, sizeof path, "%.60s%.60s%.200s on rank %u", a->prefix,
                               list->of, key, (unsigned)k);
                dv_compare(w, path,
                           dv_of_rank(x, k, ckpt_value_get(list->a_first[r->in_entry], key)),
                           dv_of_rank(y, k, ckpt_value_get(list->b_first[r->in_entry], key)), 0);
            }
        }
    }
}

/* Compare the values that differ by rank, and the files of further model ranks. */
static void dv_state(dv_work *w, const ckpt_state *a, const ckpt_state *b, size_t i)
{
    char path[DV_PATH];

    if (i > 0) {
        (void)snprintf(path, sizeof path, "%.100smodel_states", a->prefix);
        dv_compare(w, path, a->model, b->model, 0);
        (void)snprintf(path, sizeof path, "%.100soptim_states", a->prefix);
        dv_compare(w, path, a->optim, b->optim, 0);
    }
    dv_ranks(w,
             &(dv_ranked){a->client,
                          b->client,
                          "model_states.",
                          {a->model, ckpt_value_get(a->model, "module")},
                          {b->model, ckpt_value_get(b->model, "module")}},
             a, b);
    for (size_t g = 0; g < a->group.n && g < b->group.n; g++) {
        const ckpt_group *x = &a->group.at[g], *y = &b->group.at[g];

        (void)snprintf(path, sizeof path, "param_groups[%zu].", g);
        dv_ranks(
            w,
            &(dv_ranked){x->ranked, y->ranked, path, {x->fields, x->entry}, {y->fields, y->entry}},
            a, b);
    }
}

int ckpt_diff_values(const ckpt_map *a, const ckpt_map *b, ckpt_value_difference_fn fn, void *ctx,
                     ckpt_err *err)
{
    ckpt_err_clear(err);
    dv_work w = {.fn = fn, .ctx = ctx, .b = b, .budget = DV_NODES};
    int rc = CKPT_OK;

    if (!a || !b)
        return ckpt_fail(err, CKPT_EUSAGE, "ckpt_diff_values needs two maps");
    const bool gguf = strcmp(a->format, "gguf") == 0;
    const bool torch = strcmp(a->format, "torch") == 0 && strcmp(b->format, "torch") == 0;
    const unsigned caps = ckpt_format_caps(a->format);

    w.tensors_apart = torch;
    w.counts = gguf                                  ? ckpt_counts_gguf
               : torch                               ? ckpt_counts_torch
               : strcmp(a->format, "universal") == 0 ? ckpt_counts_universal
                                                     : ckpt_counts_state;
    if (gguf || torch || (caps & CKPT_READS_STATE))
        dv_compare(&w, "", a->values, b->values, 0);
    if (gguf)
        dv_types(&w, &a->keys, &b->keys);
    for (size_t i = 0; i < a->states.n && i < b->states.n; i++)
        dv_state(&w, a->states.at[i], b->states.at[i], i);
    if (a->states.n != b->states.n) {
        char x[DV_TEXT], y[DV_TEXT];

        (void)snprintf(x, sizeof x, "%zu", a->states.n);
        (void)snprintf(y, sizeof y, "%zu", b->states.n);
        dv_say(&w, "optimizers", x, y);
    }
    w.counts = ckpt_counts_none;
    w.tensors_apart = false;
    dv_keys metadata = {.of = b->metadata};
    for (uint64_t i = 0; !gguf && !w.stopped && i < a->metadata.n; i++) {
        const ckpt_pair *p = &a->metadata.at[i];

        dv_compare(&w, p->key->as.text.at, p->value, dv_partner(&w, &metadata, i, p->key), 0);
    }
    ckpt_index_free(&metadata.index);
    if ((caps & CKPT_IS_FOLDER) && strcmp(a->format, b->format) == 0)
        rc = dv_folders(&w, a, b, err);
    if (rc == CKPT_OK && w.failed)
        rc = ckpt_fail_memory(err);
    return rc == CKPT_OK && w.differs
               ? ckpt_fail(err, CKPT_EDIFFERS, "%s and %s have different values", a->path, b->path)
               : rc;
}
