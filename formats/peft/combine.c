/* SPDX-License-Identifier: Apache-2.0 */
/*
 * combine.c: makes one LoRA adapter from several, as peft 0.21's add_weighted_adapter does
 * (tuners/lora/model.py).
 *
 * With weight w and scale s of an adapter, "cat" puts the rows of A w s below each other and the
 * columns of B beside each other, so that the new update is the weighted sum of the updates.
 * "linear" adds A and B, each times the root of |w s|, A with its sign, which only approximates
 * that sum.  The new rank is the largest of all modules; matrices of a lower rank get zeros.
 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ckpt_shape.h"
#include "formats/peft/peft.h"
#include "formats/peft/product.h"
#include "libckpt/base/opts.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/map/adopt.h"
#include "libckpt/map/nest.h"

/* One of the adapters. */
typedef struct cb_adapter {
    const char *path;
    ckpt_map *map; /* the first is that of the result; the others belong to it once adopted */
    ckpt_peft_config config;
    ckpt_value *tree; /* adapter_config.json */
    double weight;
    uint64_t rank; /* the largest of its modules */
    uint64_t at;   /* cat: first of its ranks in the result */
} cb_adapter;

typedef struct cb_job {
    ckpt_map *map;
    cb_adapter *adapter;
    size_t n, n_adopted;
    bool cat;
    uint64_t rank; /* of the result */
    ckpt_err *err;
} cb_job;

/* A block of the result: a matrix times one factor and then another. */
typedef struct cb_block {
    const ckpt_tensor *t;
    uint64_t row, col, rows, cols; /* its place, and its size */
    float first, second;
} cb_block;

typedef struct cb_make {
    ckpt_make make; /* must be first */
    uint64_t cols;  /* of the result */
    size_t n;
    cb_block *block;
    const ckpt_tensor **input;
} cb_make;

/* ---- computing ---- */

/* Elements at..at+n-1 of the result. */
typedef struct cb_range {
    float *to;
    uint64_t n, at;
} cb_range;

/* Add the part of a block that lies in a range of the result. */
static int cb_add(const cb_make *m, const cb_block *b, ckpt_inputs *in, const cb_range *r,
                  ckpt_err *err)
{
    const uint64_t n = r->n, at = r->at;
    const ckpt_dtype d = b->t->dtype == CKPT_F32 ? CKPT_DTYPE_NONE : b->t->dtype;
    uint64_t low = at / m->cols, high = (at + n - 1) / m->cols + 1;
    float *x;
    int rc;

    low = low > b->row ? low : b->row;
    high = high < b->row + b->rows ? high : b->row + b->rows;
    if (low >= high)
        return CKPT_OK;
    x = in->scratch(in, (high - low) * b->cols * sizeof *x);
    rc = x ? in->read(in, b->t,
                      &(const ckpt_axis){(low - b->row) * b->cols, (high - low) * b->cols, 0},
                      CKPT_F32, x, err)
           : ckpt_fail_memory(err);
    for (uint64_t i = low; rc == CKPT_OK && i < high; i++) {
        float *row = x + (i - low) * b->cols;

        for (uint64_t k = 0; k < b->cols; k++)
            row[k] *= b->first;
        if (b->second != 1)
            ckpt_peft_round(d, row, b->cols);
        for (uint64_t k = 0; k < b->cols; k++) {
            const uint64_t place = i * m->cols + b->col + k;

            if (place >= at && place < at + n)
                r->to[place - at] += row[k] * b->second;
        }
    }
    return rc;
}

static int cb_run(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                  ckpt_err *err)
{
    const cb_make *m = (const cb_make *)(const void *)make;
    const cb_range range = {to, n, at};
    int rc = CKPT_OK;

    memset(to, 0, n * sizeof(float));
    for (size_t i = 0; rc == CKPT_OK && n > 0 && i < m->n; i++)
        rc = cb_add(m, &m->block[i], in, &range, err);
    return rc;
}

/* ---- the parts of modules ---- */

static bool cb_is_a(ckpt_peft_part part)
{
    return part == CKPT_PEFT_A || part == CKPT_PEFT_TABLE_A;
}

static bool cb_is_factor(ckpt_peft_part part)
{
    return cb_is_a(part) || part == CKPT_PEFT_B || part == CKPT_PEFT_TABLE_B;
}

/* The tensor of this name in an adapter, or NULL. */
static const ckpt_tensor *cb_find(const cb_adapter *a, const char *name)
{
    const size_t i = ckpt_map_index(a->map, name, strlen(name));
    const ckpt_tensor *t = i == SIZE_MAX ? NULL : a->map->tensors.at[i];

    return t && t->owner ? t->owner : t;
}

/* The rank of a factor: rows of A, columns of B. */
static uint64_t cb_rank(const ckpt_tensor *t, bool is_a)
{
    return t->shape[is_a ? 0 : 1];
}

/* The elements of a factor beside its rank: columns of A with the kernel, rows of B. */
static uint64_t cb_other(const ckpt_tensor *t, bool is_a)
{
    return t->n_elems / cb_rank(t, is_a);
}

/* True if two factors of one module have equal shapes apart from the rank. */
static bool cb_alike(const ckpt_tensor *a, const ckpt_tensor *b, bool is_a)
{
    bool same = a->ndim == b->ndim;

    for (uint32_t i = 0; same && i < a->ndim; i++)
        same = i == (is_a ? 0u : 1u) || a->shape[i] == b->shape[i];
    return same;
}

/* Set a block's factors: of A or B, with the arithmetic of add_weighted_adapter. */
static int cb_factors(const cb_job *j, const cb_adapter *a, const char *module, bool is_a,
                      cb_block *b)
{
    uint64_t rank = 0;
    double scale = 0;
    int rc = ckpt_peft_scale(&a->config, module, &rank, &scale, j->err);

    if (rc == CKPT_OK && rank != cb_rank(b->t, is_a))
        rc = ckpt_fail(j->err, CKPT_EMISMATCH,
                       "%s: %.200s has rank %" PRIu64 ", but rank %" PRIu64 " in %s", a->path,
                       b->t->name, cb_rank(b->t, is_a), rank, a->config.path);
    if (rc != CKPT_OK)
        return rc;
    b->second = 1;
    if (j->cat) {
        b->first = is_a ? (float)a->weight : 1;
        b->second = is_a ? (float)scale : 1;
        return CKPT_OK;
    }
    b->first = (float)sqrt(fabs(a->weight * scale));
    b->first = is_a && a->weight * scale < 0 ? -b->first : b->first;
    return CKPT_OK;
}

/* List the blocks of a factor, from the adapters that have its module. */
static int cb_blocks(cb_job *j, cb_make *m, const char *name, const char *module, bool is_a)
{
    const ckpt_tensor *first = NULL;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < j->n; i++) {
        const cb_adapter *a = &j->adapter[i];
        const ckpt_tensor *t = cb_find(a, name);
        cb_block *b = &m->block[m->n];
        const uint64_t at = j->cat ? a->at : 0;

        if (!t)
            continue;
        if (first && !cb_alike(first, t, is_a))
            return ckpt_fail(j->err, CKPT_EMISMATCH,
                             "%s: %.200s has another shape than in %s: they are adapters of "
                             "different bases",
                             a->path, name, j->adapter[0].path);
        first = first ? first : t;
        b->t = t;
        b->row = is_a ? at : 0;
        b->col = is_a ? 0 : at;
        b->rows = is_a ? cb_rank(t, is_a) : cb_other(t, is_a);
        b->cols = is_a ? cb_other(t, is_a) : cb_rank(t, is_a);
        rc = cb_factors(j, a, module, is_a, b);
        m->n++;
    }
    return rc;
}

/* The dtype that holds the values of all blocks: the common one, or F32. */
static ckpt_dtype cb_dtype(const cb_make *m)
{
    ckpt_dtype d = m->block[0].t->dtype;

    for (size_t i = 1; i < m->n; i++)
        d = m->block[i].t->dtype == d ? d : CKPT_F32;
    return d;
}

/* Make the listed tensor t, of the result, from the blocks. */
static int cb_put(cb_job *j, cb_make *m, ckpt_tensor *t, bool is_a)
{
    const uint64_t other = cb_other(t, is_a);
    const ckpt_dtype dtype = cb_dtype(m);
    uint64_t *shape = ckpt_arena_copy(j->map->arena, t->shape, t->ndim * sizeof *shape);
    uint32_t source = 0;
    int rc;

    // the first adapter's own tensor moves out of the list
    for (size_t i = 0; i < m->n; i++) {
        if (m->block[i].t == t)
            m->block[i].t = ckpt_nest_hide(j->map, t, j->err);
        m->input[i] = m->block[i].t;
        if (!m->input[i])
            return CKPT_ELIMIT;
    }
    if (!shape)
        return ckpt_fail_memory(j->err);
    if (!ckpt_mul(other, j->rank, &t->n_elems))
        return ckpt_fail(j->err, CKPT_ELIMIT, "%.200s would be too large", t->name);
    shape[is_a ? 0 : 1] = j->rank;
    t->shape = shape;
    m->cols = is_a ? other : j->rank;
    m->make = (ckpt_make){.name = t->name,
                          .dtype = CKPT_F32,
                          .n_inputs = (uint32_t)m->n,
                          .input = m->input,
                          .make = cb_run};
    m->make.terms = "";
    for (size_t i = 0; m->make.terms && i < m->n; i++) {
        const cb_block *b = &m->block[i];

        m->make.terms =
            ckpt_arena_printf(j->map->arena, "%s %" PRIu64 " %" PRIu64 " %.9g %.9g", m->make.terms,
                              b->row, b->col, (double)b->first, (double)b->second);
    }
    if (!m->make.terms)
        return ckpt_fail_memory(j->err);
    rc = ckpt_map_add_made(j->map, &m->make, t->n_elems, &source, j->err);
    t->export_dtype = dtype;
    t->dtype = CKPT_F32;
    t->owner = NULL;
    t->twin = t->addend = NULL;
    return rc == CKPT_OK ? ckpt_map_back_whole(j->map, t, source, 0, j->err) : rc;
}

/* Combine the factor that `like` is in one of the adapters; adapters before it lack it. */
static int cb_factor(cb_job *j, const ckpt_tensor *like, const ckpt_peft_name *name)
{
    const bool is_a = cb_is_a(name->part);
    const char *module = ckpt_arena_string(j->map->arena, name->module, name->n);
    cb_make *m = ckpt_arena_alloc(j->map->arena, sizeof *m);
    const size_t at = ckpt_map_index(j->map, like->name, strlen(like->name));
    ckpt_tensor *t = at == SIZE_MAX ? NULL : j->map->tensors.at[at];
    int rc;

    if (!module || !m)
        return ckpt_fail_memory(j->err);
    m->block = ckpt_arena_alloc(j->map->arena, j->n * sizeof *m->block);
    m->input = ckpt_arena_alloc(j->map->arena, j->n * sizeof(void *));
    if (!m->block || !m->input)
        return ckpt_fail_memory(j->err);
    rc = cb_blocks(j, m, like->name, module, is_a);
    if (rc == CKPT_OK && !t) {
        const ckpt_tensor shape = {.dtype = like->dtype, .ndim = like->ndim, .shape = like->shape};

        rc = ckpt_map_add(j->map, like->name, strlen(like->name), &shape, &t, j->err);
    }
    return rc == CKPT_OK ? cb_put(j, m, t, is_a) : rc;
}

/*
 * Keep the unmodified embedding that peft saves beside its factors: that of the first adapter with
 * one.  Reads compare it with those of the other adapters.
 */
static int cb_carry(cb_job *j, const ckpt_tensor *like)
{
    const size_t at = ckpt_map_index(j->map, like->name, strlen(like->name));
    ckpt_tensor *t = at == SIZE_MAX ? ckpt_arena_copy(j->map->arena, like, sizeof *like)
                                    : j->map->tensors.at[at];
    ckpt_tensor *last = t;
    int rc = !t               ? ckpt_fail_memory(j->err)
             : at == SIZE_MAX ? ckpt_map_append(j->map, t, j->err)
                              : CKPT_OK;

    for (size_t i = 1; rc == CKPT_OK && i < j->n; i++) {
        const ckpt_tensor *other = cb_find(&j->adapter[i], like->name);
        ckpt_tensor *copy = other && other != like ? ckpt_nest_hide(j->map, other, j->err) : NULL;

        if (!other || other == like)
            continue;
        if (other->ndim != t->ndim || other->dtype != t->dtype ||
            memcmp(other->shape, t->shape, t->ndim * sizeof *t->shape) != 0)
            return ckpt_fail(j->err, CKPT_EMISMATCH,
                             "%s: %.200s has another shape or dtype than in another adapter: they "
                             "are adapters of different bases",
                             j->adapter[i].path, like->name);
        rc = copy ? CKPT_OK : CKPT_ELIMIT;
        if (copy)
            last->twin = copy;
        last = copy;
    }
    return rc;
}

/* Combine all factors, those of the first adapter first. */
static int cb_all(cb_job *j)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < j->n; i++) {
        const size_t n = j->adapter[i].map->tensors.n;

        for (size_t k = 0; rc == CKPT_OK && k < n; k++) {
            const ckpt_tensor *t = j->adapter[i].map->tensors.at[k];
            ckpt_peft_name name;
            bool before = false;

            for (size_t b = 0; b < i; b++)
                before = before || cb_find(&j->adapter[b], t->name);
            if (!before && ckpt_peft_parse(&name, t->name))
                rc = cb_is_factor(name.part) ? cb_factor(j, t, &name) : cb_carry(j, t);
        }
    }
    return rc;
}

/* ---- checks ---- */

/* Refuse members that add_weighted_adapter refuses, or leaves out. */
static int cb_check_config(const cb_job *j, const cb_adapter *a)
{
    const ckpt_peft_config *c = &a->config;
    const char *why = ckpt_peft_beyond_products(c);

    if (!why && c->fan_in_fan_out != j->adapter[0].config.fan_in_fan_out)
        why = "fan_in_fan_out is not that of the first adapter";
    return !why ? CKPT_OK
                : ckpt_fail(j->err, CKPT_EUNSUPPORTED,
                            "%s: %s, which one adapter made of several cannot express: merge each "
                            "adapter into the base (ckpt convert --adapter)",
                            c->path, why);
}

/* True for the unmodified weight of an embedding that has factors: peft saves both. */
static bool cb_is_table(const cb_job *j, const cb_adapter *a, const ckpt_peft_name *name)
{
    const char *factor =
        name->part == CKPT_PEFT_BASE_WEIGHT
            ? ckpt_arena_printf(j->map->arena, "base_model.model.%.*s.lora_embedding_A",
                                (int)name->n, name->module)
            : NULL;

    return factor && cb_find(a, factor);
}

/* Check an adapter's tensors, and find its largest rank. */
static int cb_check_tensors(const cb_job *j, cb_adapter *a)
{
    for (size_t i = 0; i < a->map->tensors.n; i++) {
        const ckpt_tensor *t = a->map->tensors.at[i];
        ckpt_peft_name name;
        const bool known = ckpt_peft_parse(&name, t->name);

        if (known && !t->owner && cb_is_table(j, a, &name))
            continue;
        if (!known || !cb_is_factor(name.part))
            return ckpt_fail(j->err, CKPT_EUNSUPPORTED,
                             "%s: %.200s is neither A nor B of LoRA, and only these are combined: "
                             "merge each adapter into the base (ckpt convert --adapter)",
                             a->path, t->name);
        if (t->owner)
            return ckpt_fail(j->err, CKPT_EUNSUPPORTED, "%s: %.200s and %.200s share their values",
                             a->path, t->name, t->owner->name);
        if (t->ndim < 2 || t->n_elems == 0 ||
            (t->dtype != CKPT_F32 && t->dtype != CKPT_F16 && t->dtype != CKPT_BF16) ||
            (!cb_is_a(name.part) && t->shape[0] * t->shape[1] != t->n_elems))
            return ckpt_fail(j->err, CKPT_EFORMAT, "%s: %.200s is not a matrix of F32, F16 or BF16",
                             a->path, t->name);
        const uint64_t rank = cb_rank(t, cb_is_a(name.part));
        a->rank = rank > a->rank ? rank : a->rank;
    }
    return a->rank > 0 ? CKPT_OK : ckpt_fail(j->err, CKPT_EMISSING, "%s: has no tensors", a->path);
}

/* Check that A and B of each module are there. */
static int cb_check_pairs(const cb_job *j, const cb_adapter *a)
{
    static const char *const end[] = {".lora_A.weight", ".lora_B.weight", ".lora_embedding_A",
                                      ".lora_embedding_B"};

    for (size_t i = 0; i < a->map->tensors.n; i++) {
        const char *name = a->map->tensors.at[i]->name;
        const size_t n = strlen(name);

        for (unsigned k = 0; k < 4; k++) {
            const size_t n_end = strlen(end[k]);
            const char *other;

            if (n <= n_end || strcmp(name + n - n_end, end[k]) != 0)
                continue;
            other = ckpt_arena_printf(j->map->arena, "%.*s%s", (int)(n - n_end), name, end[k ^ 1]);
            if (!other)
                return ckpt_fail_memory(j->err);
            if (!cb_find(a, other))
                return ckpt_fail(j->err, CKPT_EMISSING,
                                 "%s: %.200s is there and %.200s is not: the file is cut, or is "
                                 "only a part of an adapter",
                                 a->path, name, other);
        }
    }
    return CKPT_OK;
}

/* Set the ranks of the result. */
static int cb_ranks(cb_job *j)
{
    for (size_t i = 0; i < j->n; i++) {
        cb_adapter *a = &j->adapter[i];

        a->at = j->rank;
        if (j->cat && !ckpt_add(j->rank, a->rank, &j->rank))
            return ckpt_fail(j->err, CKPT_ELIMIT, "the ranks are too large");
        if (!j->cat && i > 0 && a->rank != j->adapter[0].rank)
            return ckpt_fail(j->err, CKPT_EMISMATCH,
                             "%s has rank %" PRIu64 " and %s rank %" PRIu64
                             ": linear needs equal ranks; use --method cat",
                             j->adapter[0].path, j->adapter[0].rank, a->path, a->rank);
        j->rank = j->cat ? j->rank : a->rank;
    }
    return CKPT_OK;
}

/* ---- the configuration ---- */

/* True if a member is there and neither null nor an empty list. */
static bool cb_is_given(const ckpt_value *tree, const char *key)
{
    const ckpt_value *v = ckpt_value_get(tree, key);

    return v && v->kind != CKPT_V_NONE && !(v->kind == CKPT_V_LIST && ckpt_value_seq(v).n == 0);
}

/* True if target_modules alone chooses the modules, by a list of names. */
static bool cb_by_names(const cb_adapter *a)
{
    const ckpt_value *targets = ckpt_value_get(a->tree, "target_modules");

    return targets && targets->kind == CKPT_V_LIST && !cb_is_given(a->tree, "exclude_modules") &&
           !cb_is_given(a->tree, "layers_to_transform") && !cb_is_given(a->tree, "layers_pattern");
}

static bool cb_has(const ckpt_value *list, const ckpt_value *item)
{
    const ckpt_seq all = ckpt_value_seq(list);

    for (uint64_t i = 0; i < all.n; i++) {
        if (item->kind == CKPT_V_STR && ckpt_value_is(all.at[i], item->as.text.at))
            return true;
    }
    return false;
}

/* Make target_modules: the union of the lists, or the paths of all modules; NULL: no memory. */
static ckpt_value *cb_targets(const cb_job *j)
{
    ckpt_arena *arena = j->map->arena;
    ckpt_value *list = ckpt_value_new(arena, CKPT_V_LIST);
    bool by_names = list != NULL, ok = list != NULL;

    for (size_t i = 0; i < j->n; i++)
        by_names = by_names && cb_by_names(&j->adapter[i]);
    for (size_t i = 0; ok && by_names && i < j->n; i++) {
        const ckpt_seq all = ckpt_value_seq(ckpt_value_get(j->adapter[i].tree, "target_modules"));

        for (uint64_t k = 0; ok && k < all.n; k++)
            ok = cb_has(list, all.at[k]) || ckpt_seq_add(arena, &list->as.seq, all.at[k]);
    }
    for (size_t i = 0; ok && !by_names && i < j->map->tensors.n; i++) {
        ckpt_peft_name name;
        const char *module;

        if (!ckpt_peft_parse(&name, j->map->tensors.at[i]->name) || !cb_is_a(name.part))
            continue;
        module = ckpt_arena_string(arena, name.module, name.n);
        ok = module && ckpt_seq_add(arena, &list->as.seq, ckpt_value_cstr(arena, module));
    }
    return ok ? list : NULL;
}

/* The new value of a member of the first adapter's configuration; NULL: it stays. */
static ckpt_value *cb_member(const cb_job *j, const char *key, ckpt_value *targets)
{
    ckpt_arena *arena = j->map->arena;

    if (strcmp(key, "r") == 0 || strcmp(key, "lora_alpha") == 0)
        return ckpt_value_int(arena, (int64_t)j->rank);
    if (strcmp(key, "target_modules") == 0)
        return targets;
    if (strcmp(key, "rank_pattern") == 0 || strcmp(key, "alpha_pattern") == 0)
        return ckpt_value_new(arena, CKPT_V_DICT);
    // only how factors begin; some kinds need ranks that the sum of the ranks is not
    if (strcmp(key, "init_lora_weights") == 0)
        return ckpt_value_bool(arena, true);
    // the scale is 1 only without it
    if (strcmp(key, "use_rslora") == 0)
        return ckpt_value_bool(arena, false);
    if (strcmp(key, "exclude_modules") == 0 || strcmp(key, "layers_to_transform") == 0 ||
        strcmp(key, "layers_pattern") == 0)
        return ckpt_value_new(arena, CKPT_V_NONE);
    return NULL;
}

/* Write the configuration of the result: that of the first adapter, with other ranks and targets.
 */
static int cb_config(const cb_job *j)
{
    static const ckpt_json_style style = {.indent = 2, .sort_keys = true};
    const ckpt_dict all = ckpt_value_map(j->adapter[0].tree);
    ckpt_arena *arena = j->map->arena;
    ckpt_value *root = ckpt_value_new(arena, CKPT_V_DICT), *targets = cb_targets(j);
    ckpt_bytes text = {0};
    bool ok = root && targets;
    int rc;

    for (uint64_t i = 0; ok && i < all.n; i++) {
        ckpt_value *v = cb_member(j, all.at[i].key->as.text.at, targets);

        ok = ckpt_dict_add(arena, &root->as.map, all.at[i].key, v ? v : all.at[i].value);
    }
    if (ok && !ckpt_value_get(root, "target_modules"))
        ok = ckpt_dict_add_cstr(arena, &root->as.map, "target_modules", targets);
    rc = ok ? ckpt_json_write(&text, root, &style, j->err) : ckpt_fail_memory(j->err);
    if (rc == CKPT_OK) {
        j->map->n_adapter_config = text.n;
        j->map->adapter_config = ckpt_arena_copy(arena, text.at, text.n);
        rc = j->map->adapter_config ? CKPT_OK : ckpt_fail_memory(j->err);
    }
    ckpt_vec_free(&text);
    return rc;
}

/* Warn if the configurations name different bases. */
static int cb_bases(const cb_job *j)
{
    const ckpt_value *first = ckpt_value_get(j->adapter[0].tree, "base_model_name_or_path");

    for (size_t i = 1; i < j->n; i++) {
        const ckpt_value *v = ckpt_value_get(j->adapter[i].tree, "base_model_name_or_path");

        if (!first || !v || first->kind != CKPT_V_STR || v->kind != CKPT_V_STR ||
            ckpt_value_is(v, first->as.text.at))
            continue;
        return ckpt_map_note(j->map, CKPT_WARNING, j->err,
                             "%s is an adapter of %.200s, but %s of %.200s: their sum fits "
                             "neither, unless these are one model",
                             j->adapter[0].path, first->as.text.at, j->adapter[i].path,
                             v->as.text.at);
    }
    return CKPT_OK;
}

/* ---- opening ---- */

/* Open an adapter's folder, and read its configuration. */
static int cb_open(cb_job *j, cb_adapter *a, const ckpt_open_opts *opts)
{
    const char *file, *slash, *path;
    int rc = ckpt_open(&a->map, a->path, opts, j->err);

    if (rc != CKPT_OK)
        return rc;
    j->map = j->adapter[0].map;
    if (ckpt_peft_is_live(a->map))
        return ckpt_fail(j->err, CKPT_EUNSUPPORTED,
                         "%s: is a run that trained an adapter: export the adapter first (ckpt "
                         "convert --adapter-only)",
                         a->path);
    file = a->map->files.n > 0 ? a->map->files.at[0].path : a->path;
    slash = strrchr(file, '/');
    path = ckpt_arena_printf(j->map->arena, "%.*sadapter_config.json",
                             slash ? (int)(slash - file + 1) : 0, file);
    if (!path)
        return ckpt_fail_memory(j->err);
    rc = ckpt_peft_config_read(&a->config, j->map->arena, path, j->err);
    if (rc == CKPT_OK)
        rc = ckpt_peft_only_lora(&a->config,
                                 "is combined with others; merge each adapter into the base (ckpt "
                                 "convert --adapter)",
                                 j->err);
    if (rc == CKPT_OK)
        rc = ckpt_json_read(&a->tree, j->map->arena, path, UINT64_C(4) << 20, j->err);
    if (rc == CKPT_OK)
        rc = cb_check_config(j, a);
    if (rc == CKPT_OK)
        rc = cb_check_tensors(j, a);
    return rc == CKPT_OK ? cb_check_pairs(j, a) : rc;
}

static int cb_work(cb_job *j, const ckpt_adapters *set)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < j->n; i++) {
        j->adapter[i].path = set->adapters[i].path;
        j->adapter[i].weight = set->adapters[i].weight;
        rc = cb_open(j, &j->adapter[i], set->open);
    }
    if (rc == CKPT_OK)
        rc = cb_ranks(j);
    for (size_t i = 1; rc == CKPT_OK && i < j->n; i++) {
        rc = ckpt_map_adopt(j->map, j->adapter[i].map, NULL, j->err);
        j->n_adopted += rc == CKPT_OK;
    }
    if (rc == CKPT_OK)
        rc = cb_all(j);
    if (rc == CKPT_OK)
        rc = cb_config(j);
    if (rc == CKPT_OK)
        rc = cb_bases(j);
    return rc == CKPT_OK ? ckpt_map_note(j->map, CKPT_INFO, j->err,
                                         "%s of %zu adapters: rank %" PRIu64 ", %zu tensors",
                                         set->method, j->n, j->rank, j->map->tensors.n)
                         : rc;
}

/* Check the method, of which peft has more. */
static int cb_method(cb_job *j, const char *method)
{
    if (method && (strcmp(method, "linear") == 0 || strcmp(method, "cat") == 0)) {
        j->cat = *method == 'c';
        return CKPT_OK;
    }
    return ckpt_fail(j->err, method && strstr(method, "svd") ? CKPT_EUNSUPPORTED : CKPT_EUSAGE,
                     "method %.60s: adapters are combined by cat, which is exact and adds their "
                     "ranks, or by linear, which keeps the rank and is an approximation; peft's "
                     "add_weighted_adapter has others",
                     method ? method : "(none)");
}

int ckpt_adapters_open(ckpt_map **out, const ckpt_adapters *set, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_adapters opts = {0};
    cb_job j = {.err = err};
    int rc = !out || !set ? ckpt_fail(err, CKPT_EUSAGE, "no adapters, or no place for the result")
                          : ckpt_opts_take(&opts, sizeof opts, set, "ckpt_adapters", err);

    if (out)
        *out = NULL;
    if (rc == CKPT_OK && (opts.n_adapters == 0 || !opts.adapters))
        rc = ckpt_fail(err, CKPT_EUSAGE, "no adapters to combine");
    if (rc == CKPT_OK)
        rc = cb_method(&j, opts.method);
    if (rc != CKPT_OK)
        return rc;
    j.n = opts.n_adapters;
    j.adapter = ckpt_alloc(j.n * sizeof *j.adapter);
    rc = j.adapter ? cb_work(&j, &opts) : ckpt_fail_memory(err);
    for (size_t i = 0; j.adapter && i < j.n; i++) {
        ckpt_peft_config_free(&j.adapter[i].config);
        // adopted maps are freed with the first
        if (rc != CKPT_OK && (i == 0 || i > j.n_adopted))
            ckpt_map_free(j.adapter[i].map);
    }
    if (rc == CKPT_OK)
        *out = j.map;
    ckpt_free(j.adapter);
    return rc;
}
