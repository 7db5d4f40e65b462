/* SPDX-License-Identifier: Apache-2.0 */
/*
 * extract.c: makes a LoRA adapter from a model and the base that it was trained from.
 *
 * For each matrix of a linear layer that differs, B A is the best approximation of the difference
 * by a matrix of rank r.  With lora_alpha = r the scale of peft is 1, so the adapter has no other
 * factor.  The factors are computed once, and lie in memory or in a temporary file until they are
 * written.
 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "formats/peft/adapting.h"
#include "formats/peft/truncate.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/opts.h"
#include "libckpt/base/vec.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/copy/budget.h"
#include "libckpt/io/spool.h"
#include "libckpt/map/nest.h"
#include "libckpt/map/savepoint.h"

enum {
    XL_PIECE = 1 << 18, /* elements that are compared at a time */
    XL_NAMES = 5        /* names in a message */
};
/* Bytes of factors that stay in memory. */
#define XL_HEAP (UINT64_C(64) << 20)

/* A tensor of the tuned model. */
typedef struct xl_tensor {
    ckpt_tensor *t;
    const ckpt_tensor *base;
    const char *module; /* of a matrix of a linear layer: its name without ".weight"; else NULL */
    bool differs;       /* from the base */
    bool saved;         /* written whole */
    bool bias;          /* of a module with an update; saved beside its factors */
} xl_tensor;

/* The factors of all matrices, two records for each; freed with the map. */
typedef struct xl_store {
    ckpt_spool *spool;
} xl_store;

typedef struct xl_made {
    ckpt_make make; /* must be first */
    xl_store *store;
    size_t record;
} xl_made;

typedef struct xl_job {
    ckpt_map *map, *base;
    ckpt_extract opts;
    ckpt_training_info info;
    ckpt_reader *reader[2]; /* of the tuned model and of its base */
    xl_tensor *all;
    size_t n;
    float *piece[2];
    size_t n_changed, n_rest; /* matrices that differ; other tensors that differ */
    xl_store *store;
    ckpt_err *err;
} xl_job;

/* ---- the tensors ---- */

static bool xl_is_float(const ckpt_tensor *t)
{
    return ckpt_dtype_get(t->dtype)->kind == CKPT_IS_FLOAT;
}

/*
 * True for the last part of a module's name that is no linear layer, though its weight is a matrix:
 * embeddings, and the routers of experts, which transformers' models have as bare parameters.
 */
static bool xl_no_linear(const char *last)
{
    static const char *const names[] = {"wte",  "wpe",    "shared", "relative_attention_bias",
                                        "gate", "router", NULL};
    bool is = strstr(last, "embed") != NULL;

    for (size_t i = 0; !is && names[i]; i++)
        is = strcmp(last, names[i]) == 0;
    return is;
}

/* The module of a linear layer's matrix, in the arena; NULL: another tensor, or no memory. */
static const char *xl_linear(const xl_job *j, const xl_tensor *e)
{
    const char *name = e->t->name, *last;
    const size_t n = strlen(name), n_end = strlen(".weight");
    char *module;

    if (n <= n_end || strcmp(name + n - n_end, ".weight") != 0 || e->t->ndim != 2 ||
        e->t->n_elems == 0 || !xl_is_float(e->t) || !xl_is_float(e->base) || e->t->owner ||
        e->base->owner)
        return NULL;
    module = ckpt_arena_string(j->map->arena, name, n - n_end);
    last = module ? strrchr(module, '.') : NULL;
    return module && !xl_no_linear(last ? last + 1 : module) ? module : NULL;
}

static bool xl_same_shape(const ckpt_tensor *a, const ckpt_tensor *b)
{
    return a->ndim == b->ndim &&
           (a->ndim == 0 || memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0);
}

/* Find the base's tensor of the same name and shape. */
static int xl_pair(const xl_job *j, xl_tensor *e)
{
    const size_t i = ckpt_map_index(j->base, e->t->name, strlen(e->t->name));
    char mine[120], theirs[120];

    if (i == SIZE_MAX)
        return ckpt_fail(j->err, CKPT_EMISSING,
                         "%s has a tensor %.200s, which %s lacks: an adapter needs the base that "
                         "the model was trained from",
                         j->map->path, e->t->name, j->base->path);
    e->base = j->base->tensors.at[i];
    if (!xl_same_shape(e->t, e->base))
        return ckpt_fail(j->err, CKPT_EMISMATCH,
                         "%.200s is %s in %s, but %s in %s: an adapter cannot change a shape; "
                         "resize the base's embeddings first (ckpt convert --vocab-size)",
                         e->t->name, ckpt_adapt_shape(mine, e->t), j->map->path,
                         ckpt_adapt_shape(theirs, e->base), j->base->path);
    e->module = xl_linear(j, e);
    return CKPT_OK;
}

static int xl_pair_all(xl_job *j)
{
    int rc = CKPT_OK;

    j->n = j->map->tensors.n;
    j->all = ckpt_alloc((j->n + 1) * sizeof *j->all);
    if (!j->all)
        return ckpt_fail_memory(j->err);
    for (size_t i = 0; rc == CKPT_OK && i < j->n; i++) {
        j->all[i].t = j->map->tensors.at[i];
        rc = xl_pair(j, &j->all[i]);
    }
    for (size_t i = 0; rc == CKPT_OK && i < j->base->tensors.n; i++) {
        const char *name = j->base->tensors.at[i]->name;

        if (ckpt_map_index(j->map, name, strlen(name)) == SIZE_MAX)
            rc = ckpt_fail(j->err, CKPT_EMISSING,
                           "%s has a tensor %.200s, which %s lacks: they are not one model before "
                           "and after training",
                           j->base->path, name, j->map->path);
    }
    return rc;
}

/* Read elements at..at+n-1 of the tuned model, and those of the base into the second piece. */
static int xl_read(const xl_job *j, const xl_tensor *e, uint64_t at, uint64_t n, ckpt_dtype dtype,
                   void *tuned)
{
    int rc = ckpt_reader_read(j->reader[0], e->t, at, n, dtype, tuned, j->err);

    return rc == CKPT_OK
               ? ckpt_reader_read(j->reader[1], e->base, at, n, dtype, j->piece[1], j->err)
               : rc;
}

/* True if n elements of the two pieces differ; zeros of both signs are one number. */
static bool xl_differ(const xl_job *j, const ckpt_tensor *t, bool floats, uint64_t n)
{
    uint64_t bytes = 0;

    if (!ckpt_dtype_bytes(floats ? CKPT_F32 : t->dtype, n, &bytes) ||
        memcmp(j->piece[0], j->piece[1], bytes) == 0)
        return false;
    for (uint64_t i = 0; floats && i < n; i++) {
        if (!(j->piece[0][i] == j->piece[1][i]))
            return true;
    }
    return !floats;
}

/* Find whether a tensor differs. */
static int xl_compare(const xl_job *j, xl_tensor *e)
{
    const bool floats = xl_is_float(e->t) && xl_is_float(e->base);
    int rc = CKPT_OK;

    e->differs = !floats && e->t->dtype != e->base->dtype;
    for (uint64_t at = 0; rc == CKPT_OK && !e->differs && at < e->t->n_elems; at += XL_PIECE) {
        const uint64_t n = e->t->n_elems - at < XL_PIECE ? e->t->n_elems - at : XL_PIECE;

        rc = xl_read(j, e, at, n, floats ? CKPT_F32 : CKPT_DTYPE_NONE, j->piece[0]);
        e->differs = rc == CKPT_OK && xl_differ(j, e->t, floats, n);
    }
    return rc;
}

/* Compare all tensors; a tied name follows its owner, unless only one of the models ties it. */
static int xl_compare_all(xl_job *j)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < j->n; i++) {
        xl_tensor *e = &j->all[i];

        if (e->t->owner && e->base->owner)
            continue;
        rc = xl_compare(j, e);
        j->n_changed += e->differs && e->module;
        j->n_rest += e->differs && !e->module;
    }
    return rc;
}

/* ---- other tensors that differ ---- */

/* The length of the name of the module that has a tensor; 0: none. */
static size_t xl_parent(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot ? (size_t)(dot - name) : 0;
}

/* True if a tensor is inside the module of the first n bytes of a name. */
static bool xl_inside(const char *tensor, const char *name, size_t n)
{
    return n > 0 && strncmp(tensor, name, n) == 0 && tensor[n] == '.';
}

/*
 * True for an embedding whose head is tied to it: peft would replace the embedding and leave the
 * head as it was.
 */
static bool xl_tied(const xl_job *j, const char *name)
{
    static const char *const heads[] = {"lm_head.weight", "embed_out.weight", "output_layer.weight",
                                        NULL};
    const char *a = j->info.architecture;
    bool tied = !a || strstr(a, "ForCausalLM") || strstr(a, "LMHead") ||
                strstr(a, "ForConditionalGeneration") || strstr(a, "ForMaskedLM");

    for (size_t i = 0; heads[i]; i++) {
        const size_t at = ckpt_map_index(j->map, heads[i], strlen(heads[i]));

        tied = tied && (at == SIZE_MAX || j->map->tensors.at[at]->owner);
    }
    return tied && (strstr(name, "embed_tokens.") || strstr(name, "wte.") ||
                    strstr(name, "word_embeddings.") || strstr(name, "embed_in."));
}

/* True for the bias of a module with an update, which peft can save beside its factors. */
static bool xl_own_bias(const xl_job *j, const char *name)
{
    const size_t n = xl_parent(name);
    bool own = false;

    for (size_t i = 0; strcmp(name + n, ".bias") == 0 && !own && i < j->n; i++) {
        const xl_tensor *e = &j->all[i];

        own = e->module && e->differs && strlen(e->module) == n && memcmp(e->module, name, n) == 0;
    }
    return own;
}

/* Mark all tensors of a module to be written whole; one with an update cannot be. */
static int xl_save(xl_job *j, xl_tensor *of)
{
    const char *name = of->t->name;
    const size_t n = xl_parent(name);
    const char *why = n == 0             ? "its module is the model itself"
                      : xl_tied(j, name) ? "the head is tied to it, and peft would not change that"
                                         : NULL;

    if (xl_own_bias(j, name)) {
        of->saved = of->bias = true;
        return CKPT_OK;
    }
    for (size_t i = 0; !why && i < j->n; i++) {
        xl_tensor *e = &j->all[i];

        if (!xl_inside(e->t->name, name, n))
            continue;
        why = e->module && e->differs ? "its module has a matrix with an update, too" : NULL;
        e->saved = true;
    }
    return !why ? CKPT_OK
                : ckpt_fail(j->err, CKPT_EUNSUPPORTED,
                            "%.200s differs, and cannot be saved whole: %s; --drop-rest leaves it "
                            "out",
                            name, why);
}

/* The names of the first tensors that differ and have no update: "a, b and 3 others". */
static const char *xl_rest_names(const xl_job *j)
{
    const char *text = "";
    size_t n = 0;

    for (size_t i = 0; text && i < j->n; i++) {
        const xl_tensor *e = &j->all[i];

        if (!e->differs || e->module || n++ >= XL_NAMES)
            continue;
        text = ckpt_arena_printf(j->map->arena, "%s%s%.200s", text, n > 1 ? ", " : "", e->t->name);
    }
    if (text && n > XL_NAMES)
        text = ckpt_arena_printf(j->map->arena, "%s and %zu more", text, n - XL_NAMES);
    return text;
}

/* Save, drop or refuse the tensors that differ and are no matrices of linear layers. */
static int xl_rest(xl_job *j)
{
    const char *names = j->n_rest > 0 ? xl_rest_names(j) : "";
    int rc = CKPT_OK;

    if (!names)
        return ckpt_fail_memory(j->err);
    if (j->n_rest == 0)
        return CKPT_OK;
    if (j->opts.rest == CKPT_EXTRACT_REFUSE)
        return ckpt_fail(j->err, CKPT_EUNSUPPORTED,
                         "%zu tensor%s that LoRA does not change differ%s: %s; --save-rest writes "
                         "them whole (modules_to_save), --drop-rest leaves them out",
                         j->n_rest, j->n_rest == 1 ? "" : "s", j->n_rest == 1 ? "s" : "", names);
    if (j->opts.rest == CKPT_EXTRACT_DROP)
        return ckpt_map_note(j->map, CKPT_INFO, j->err,
                             "%zu tensor%s that differ%s from the base are left out: %s", j->n_rest,
                             j->n_rest == 1 ? "" : "s", j->n_rest == 1 ? "s" : "", names);
    for (size_t i = 0; rc == CKPT_OK && i < j->n; i++) {
        if (j->all[i].differs && !j->all[i].module)
            rc = xl_save(j, &j->all[i]);
    }
    return rc;
}

/* ---- the factors ---- */

/* True for a module with a transposed matrix, [in, out]. */
static bool xl_turned(const xl_job *j, const char *module)
{
    const ckpt_adapting like = {.model_type = j->info.model_type};

    return ckpt_adapt_is_conv1d(&like, module);
}

/* Read the difference of a matrix into x. */
static int xl_difference(const xl_job *j, const xl_tensor *e, float *x)
{
    for (uint64_t at = 0; at < e->t->n_elems; at += XL_PIECE) {
        const uint64_t n = e->t->n_elems - at < XL_PIECE ? e->t->n_elems - at : XL_PIECE;
        int rc = xl_read(j, e, at, n, CKPT_F32, x + at);

        if (rc != CKPT_OK)
            return rc;
        for (uint64_t i = at; i < at + n; i++) {
            x[i] -= j->piece[1][i - at];
            if (!isfinite(x[i]))
                return ckpt_fail(j->err, CKPT_EDOUBT,
                                 "%.200s: element %" PRIu64
                                 " of the difference is not finite: the model or its base has a "
                                 "NaN, an infinity, or a value near the largest of F32",
                                 e->t->name, i);
        }
    }
    return CKPT_OK;
}

/* Put a factor, [rows, cols], into the spool; turned: transposed. */
static int xl_keep(const xl_job *j, size_t record, const float *x, uint64_t rows, uint64_t cols,
                   bool turned)
{
    const uint64_t n = rows * cols * sizeof *x;
    float *other = turned ? ckpt_alloc(n) : NULL;
    int rc = turned && !other ? ckpt_fail_memory(j->err)
                              : ckpt_spool_begin(j->store->spool, record, n, j->err);

    for (uint64_t i = 0; other && i < rows; i++) {
        for (uint64_t k = 0; k < cols; k++)
            other[k * rows + i] = x[i * cols + k];
    }
    if (rc == CKPT_OK)
        rc = ckpt_spool_write(j->store->spool, record, other ? other : x, n, 0, j->err);
    if (rc == CKPT_OK)
        ckpt_spool_end(j->store->spool, record);
    ckpt_free(other);
    return rc;
}

/* Compute the factors of the k-th matrix that differs. */
static int xl_factors(const xl_job *j, const xl_tensor *e, size_t k)
{
    ckpt_truncation t = {.rows = e->t->shape[0],
                         .cols = e->t->shape[1],
                         .rank = j->opts.rank,
                         .round = j->opts.dtype,
                         .threads = ckpt_run_jobs(j->opts.jobs)};
    float *x = ckpt_alloc(e->t->n_elems * sizeof *x);
    const bool turned = xl_turned(j, e->module);
    int rc = x ? xl_difference(j, e, x) : ckpt_fail_memory(j->err);

    t.x = x;
    t.left = rc == CKPT_OK ? ckpt_alloc(t.rows * t.rank * sizeof *t.left) : NULL;
    t.right = rc == CKPT_OK ? ckpt_alloc(t.rank * t.cols * sizeof *t.right) : NULL;
    if (rc == CKPT_OK)
        rc = t.left && t.right ? ckpt_truncate(&t, j->err) : ckpt_fail_memory(j->err);
    ckpt_free(x);
    // A is [r, in] and B [out, r]
    if (rc == CKPT_OK)
        rc = turned ? xl_keep(j, 2 * k, t.left, t.rows, t.rank, true)
                    : xl_keep(j, 2 * k, t.right, t.rank, t.cols, false);
    if (rc == CKPT_OK)
        rc = turned ? xl_keep(j, 2 * k + 1, t.right, t.rank, t.cols, true)
                    : xl_keep(j, 2 * k + 1, t.left, t.rows, t.rank, false);
    ckpt_free(t.left);
    ckpt_free(t.right);
    const ckpt_extracted done = {.module = e->module,
                                 .index = k,
                                 .total = j->n_changed,
                                 .rows = t.rows,
                                 .cols = t.cols,
                                 .norm = t.norm,
                                 .rest = t.rest};
    if (rc == CKPT_OK && j->opts.fn && j->opts.fn(j->opts.ctx, &done) != 0)
        rc = ckpt_fail(j->err, CKPT_ECANCELED, "canceled");
    return rc;
}

static int xl_factors_all(xl_job *j)
{
    size_t k = 0;
    int rc;

    if (j->n_changed == 0)
        return ckpt_fail(j->err, CKPT_EMISSING,
                         "%s and %s have equal matrices in all linear layers: there is nothing to "
                         "extract",
                         j->map->path, j->base->path);
    j->store = ckpt_arena_alloc(j->map->arena, sizeof *j->store);
    rc = j->store ? ckpt_spool_new(&j->store->spool, 2 * j->n_changed, NULL, XL_HEAP, j->err)
                  : ckpt_fail_memory(j->err);
    for (size_t i = 0; rc == CKPT_OK && i < j->n; i++) {
        if (j->all[i].module && j->all[i].differs)
            rc = xl_factors(j, &j->all[i], k++);
    }
    return rc;
}

/* ---- the adapter's tensors ---- */

static int xl_run(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                  ckpt_err *err)
{
    const xl_made *m = (const xl_made *)(const void *)make;

    (void)in;
    return ckpt_spool_read(m->store->spool, m->record, to, n * sizeof(float), at * sizeof(float),
                           err);
}

static void xl_release(ckpt_make *make)
{
    xl_made *m = (xl_made *)(void *)make;

    ckpt_spool_free(m->store->spool);
    m->store->spool = NULL;
}

/* Add the tensor of a record. */
static int xl_add(const xl_job *j, const char *name, size_t record, uint64_t rows, uint64_t cols)
{
    const uint64_t shape[2] = {rows, cols};
    const ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 2, .shape = shape};
    xl_made *m = ckpt_arena_alloc(j->map->arena, sizeof *m);
    ckpt_tensor *t = NULL;
    uint32_t source = 0;
    int rc;

    if (!name || !m)
        return ckpt_fail_memory(j->err);
    m->store = j->store;
    m->record = record;
    m->make = (ckpt_make){.name = name, .dtype = CKPT_F32, .make = xl_run, .release = xl_release};
    rc = ckpt_map_add(j->map, name, strlen(name), &like, &t, j->err);
    if (rc == CKPT_OK)
        rc = ckpt_map_add_made(j->map, &m->make, t->n_elems, &source, j->err);
    if (rc != CKPT_OK)
        return rc;
    t->export_dtype = j->opts.dtype == CKPT_DTYPE_NONE ? CKPT_F32 : j->opts.dtype;
    return ckpt_map_back_whole(j->map, t, source, 0, j->err);
}

/* Add A and B of the k-th matrix. */
static int xl_add_pair(const xl_job *j, const xl_tensor *e, size_t k)
{
    const bool turned = xl_turned(j, e->module);
    const uint64_t n_in = e->t->shape[turned ? 0 : 1], n_out = e->t->shape[turned ? 1 : 0];
    ckpt_arena *a = j->map->arena;
    const char *name = ckpt_arena_printf(a, "base_model.model.%s.lora_A.weight", e->module);
    int rc = xl_add(j, name, 2 * k, j->opts.rank, n_in);

    name = ckpt_arena_printf(a, "base_model.model.%s.lora_B.weight", e->module);
    return rc == CKPT_OK ? xl_add(j, name, 2 * k + 1, n_out, j->opts.rank) : rc;
}

/* Replace the model's tensors by those of the adapter. */
static int xl_tensors(xl_job *j)
{
    ckpt_map *map = j->map;
    size_t k = 0;
    int rc;

    map->tensors.n = 0;
    rc = ckpt_map_reindex(map, j->err);
    for (size_t i = 0; rc == CKPT_OK && i < j->n; i++) {
        xl_tensor *e = &j->all[i];

        if (e->module && e->differs)
            rc = xl_add_pair(j, e, k++);
        if (rc != CKPT_OK || !e->saved)
            continue;
        e->t->name = ckpt_arena_printf(
            map->arena, "base_model.model.%.*s%s%s", (int)xl_parent(e->t->name), e->t->name,
            e->bias ? ".base_layer" : "", e->t->name + xl_parent(e->t->name));
        rc = e->t->name ? ckpt_map_append(map, e->t, j->err) : ckpt_fail_memory(j->err);
    }
    return rc;
}

/* ---- the configuration ---- */

/* The last part of a module's name. */
static const char *xl_last(const char *module)
{
    const char *dot = strrchr(module, '.');

    return dot ? dot + 1 : module;
}

/* True if peft would take a module that has no update for a target by the last part of its name. */
static bool xl_is_other(const xl_job *j, const char *last)
{
    bool other = false;

    for (size_t i = 0; !other && i < j->n; i++) {
        const xl_tensor *e = &j->all[i];
        const char *name = e->t->name;
        const size_t n = xl_parent(name), m = strlen(last);

        other = !(e->module && e->differs) && n >= m && strcmp(name + n, ".weight") == 0 &&
                memcmp(name + n - m, last, m) == 0 && (n == m || name[n - m - 1] == '.');
    }
    return other;
}

/* Append a text to a list unless it is there. */
static bool xl_append(ckpt_arena *a, ckpt_value *list, const char *text)
{
    const ckpt_seq all = ckpt_value_seq(list);

    for (uint64_t i = 0; text && i < all.n; i++) {
        if (ckpt_value_is(all.at[i], text))
            return true;
    }
    return text && ckpt_seq_add(a, &list->as.seq, ckpt_value_cstr(a, text));
}

/* target_modules: the last parts of names if they choose exactly the modules with an update. */
static ckpt_value *xl_targets(const xl_job *j)
{
    ckpt_arena *a = j->map->arena;
    ckpt_value *list = ckpt_value_new(a, CKPT_V_LIST);
    bool by_names = true, ok = list != NULL;

    for (size_t i = 0; by_names && i < j->n; i++) {
        const xl_tensor *e = &j->all[i];

        by_names = !e->module || !e->differs || !xl_is_other(j, xl_last(e->module));
    }
    for (size_t i = 0; ok && i < j->n; i++) {
        const xl_tensor *e = &j->all[i];

        if (e->module && e->differs)
            ok = xl_append(a, list, by_names ? xl_last(e->module) : e->module);
    }
    return ok ? list : NULL;
}

/* modules_to_save: the whole paths, because peft compares the ends of names; null if empty. */
static ckpt_value *xl_saved(const xl_job *j)
{
    static const char before[] = "base_model.model.";
    ckpt_arena *a = j->map->arena;
    ckpt_value *list = ckpt_value_new(a, CKPT_V_LIST);
    bool ok = list != NULL, any = false;

    for (size_t i = 0; ok && i < j->n; i++) {
        const xl_tensor *e = &j->all[i];
        // saved tensors have their new names by now
        const char *name = e->t->name + (e->saved ? sizeof before - 1 : 0);

        if (e->module || !e->differs || !e->saved || e->bias)
            continue;
        any = true;
        ok = xl_append(a, list, ckpt_arena_string(a, name, xl_parent(name)));
    }
    return !ok ? NULL : any ? list : ckpt_value_new(a, CKPT_V_NONE);
}

/* True if biases are saved beside factors. */
static bool xl_any_bias(const xl_job *j)
{
    bool any = false;

    for (size_t i = 0; !any && i < j->n; i++)
        any = j->all[i].bias;
    return any;
}

/* True if a matrix with an update is transposed. */
static bool xl_any_turned(const xl_job *j)
{
    bool any = false;

    for (size_t i = 0; !any && i < j->n; i++)
        any = j->all[i].module && j->all[i].differs && xl_turned(j, j->all[i].module);
    return any;
}

/* Make adapter_config.json: peft's LoraConfig, with the other members at their defaults. */
static int xl_config(const xl_job *j)
{
    static const ckpt_json_style style = {.indent = 2, .sort_keys = true};
    ckpt_arena *a = j->map->arena;
    const char *base = j->opts.base_name ? j->opts.base_name : j->base->path;
    const bool causal = j->info.architecture && strstr(j->info.architecture, "ForCausalLM");
    const struct {
        const char *key;
        ckpt_value *value;
    } member[] = {
        {"base_model_name_or_path", ckpt_value_cstr(a, base)},
        {"bias", ckpt_value_cstr(a, xl_any_bias(j) ? "lora_only" : "none")},
        {"fan_in_fan_out", ckpt_value_bool(a, xl_any_turned(j))},
        {"inference_mode", ckpt_value_bool(a, true)},
        {"init_lora_weights", ckpt_value_bool(a, true)},
        {"lora_alpha", ckpt_value_int(a, (int64_t)j->opts.rank)},
        {"lora_dropout", ckpt_value_int(a, 0)},
        {"modules_to_save", xl_saved(j)},
        {"peft_type", ckpt_value_cstr(a, "LORA")},
        {"r", ckpt_value_int(a, (int64_t)j->opts.rank)},
        {"target_modules", xl_targets(j)},
        {"task_type", causal ? ckpt_value_cstr(a, "CAUSAL_LM") : ckpt_value_new(a, CKPT_V_NONE)},
        {"use_dora", ckpt_value_bool(a, false)},
        {"use_rslora", ckpt_value_bool(a, false)},
    };
    ckpt_value *root = ckpt_value_new(a, CKPT_V_DICT);
    ckpt_bytes text = {0};
    bool ok = root != NULL;
    int rc;

    for (size_t i = 0; ok && i < sizeof member / sizeof *member; i++)
        ok =
            member[i].value && ckpt_dict_add_cstr(a, &root->as.map, member[i].key, member[i].value);
    rc = ok ? ckpt_json_write(&text, root, &style, j->err) : ckpt_fail_memory(j->err);
    if (rc == CKPT_OK) {
        j->map->n_adapter_config = text.n;
        j->map->adapter_config = ckpt_arena_copy(a, text.at, text.n);
        rc = j->map->adapter_config ? CKPT_OK : ckpt_fail_memory(j->err);
    }
    ckpt_vec_free(&text);
    return rc;
}

/* ---- all ---- */

/* Refuse models of two kinds. */
static int xl_one_kind(const xl_job *j)
{
    ckpt_training_info other = {0};
    const char *mine = j->info.model_type;

    ckpt_map_training_info(j->base, &other);
    if (!mine || !other.model_type || strcmp(mine, other.model_type) == 0)
        return CKPT_OK;
    return ckpt_fail(j->err, CKPT_EMISMATCH, "%s is a model of type %.60s, but %s of type %.60s",
                     j->map->path, mine, j->base->path, other.model_type);
}

/* Make an adapter of the map; a failure leaves the map half changed. */
static int xl_change(xl_job *j)
{
    int rc = ckpt_map_dequantize(j->map, true, j->err);

    if (rc == CKPT_OK)
        rc = ckpt_map_dequantize(j->base, true, j->err);
    ckpt_map_training_info(j->map, &j->info);
    if (rc == CKPT_OK)
        rc = xl_one_kind(j);
    if (rc == CKPT_OK)
        rc = xl_pair_all(j);
    for (unsigned i = 0; rc == CKPT_OK && i < 2; i++) {
        // elements have at most 16 bytes
        j->piece[i] = ckpt_alloc((size_t)XL_PIECE * 16);
        rc = j->piece[i] ? ckpt_reader_new(&j->reader[i], i ? j->base : j->map, j->err)
                         : ckpt_fail_memory(j->err);
    }
    if (rc == CKPT_OK)
        rc = xl_compare_all(j);
    if (rc == CKPT_OK)
        rc = xl_rest(j);
    if (rc == CKPT_OK)
        rc = xl_factors_all(j);
    if (rc == CKPT_OK)
        rc = xl_tensors(j);
    if (rc == CKPT_OK)
        rc = xl_config(j);
    return rc == CKPT_OK ? ckpt_map_note(j->map, CKPT_INFO, j->err,
                                         "rank %" PRIu64 " of %zu matrices; %zu tensors are equal "
                                         "in both models",
                                         (uint64_t)j->opts.rank, j->n_changed,
                                         j->n - j->n_changed - j->n_rest)
                         : rc;
}

/* Check the options. */
static int xl_opts(xl_job *j, const ckpt_extract *extract)
{
    int rc = ckpt_opts_take(&j->opts, sizeof j->opts, extract, "ckpt_extract", j->err);

    if (rc != CKPT_OK)
        return rc;
    if (j->opts.rank == 0 || j->opts.rank > CKPT_EXTRACT_MAX_RANK)
        return ckpt_fail(j->err, CKPT_EUSAGE, "the rank of an adapter is from 1 to %d",
                         CKPT_EXTRACT_MAX_RANK);
    if (j->opts.dtype == CKPT_F32)
        j->opts.dtype = CKPT_DTYPE_NONE;
    if (j->opts.dtype != CKPT_DTYPE_NONE && j->opts.dtype != CKPT_F16 && j->opts.dtype != CKPT_BF16)
        return ckpt_fail(j->err, CKPT_EUSAGE, "the factors of an adapter are F32, F16 or BF16");
    return CKPT_OK;
}

int ckpt_map_extract_lora(ckpt_map *tuned, ckpt_map *base, const ckpt_extract *extract,
                          ckpt_err *err)
{
    ckpt_err_clear(err);
    xl_job j = {.map = tuned, .base = base, .err = err};
    ckpt_savepoint *saved = NULL;
    int rc = !tuned || !base || !extract || tuned == base
                 ? ckpt_fail(err, CKPT_EUSAGE, "no two models to extract an adapter from")
                 : xl_opts(&j, extract);

    if (rc == CKPT_OK)
        rc = ckpt_savepoint_new(&saved, tuned, err);
    if (rc == CKPT_OK)
        rc = ckpt_savepoint_end(saved, xl_change(&j));
    if (rc != CKPT_OK && j.store) {
        ckpt_spool_free(j.store->spool);
        j.store->spool = NULL;
    }
    for (unsigned i = 0; i < 2; i++) {
        ckpt_free(j.piece[i]);
        ckpt_reader_free(j.reader[i]);
    }
    ckpt_free(j.all);
    return rc;
}
