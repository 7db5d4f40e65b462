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
#include <stdlib.h>
#include <string.h>

#include "formats/peft/adapting.h"
#include "formats/peft/extracting.h"
#include "formats/peft/truncate.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/opts.h"
#include "libckpt/copy/budget.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/nest.h"
#include "libckpt/map/savepoint.h"
#include "libckpt/transform/same_config.h"

enum {
    XL_PIECE = 1 << 18, /* elements that are compared at a time */
    XL_NAMES = 5        /* names in a message */
};
/* Bytes of factors that stay in memory. */
#define XL_HEAP (UINT64_C(64) << 20)

typedef struct xl_made {
    ckpt_make make; /* must be first */
    ckpt_xl_store *store;
    size_t record;
} xl_made;

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
    static const char *const names[] = {
        "tok", "wte", "wpe", "shared", "relative_attention_bias", "gate", "router", NULL};
    bool is = strstr(last, "emb") != NULL;

    for (size_t i = 0; !is && names[i]; i++)
        is = strcmp(last, names[i]) == 0;
    return is;
}

/* The module of a linear layer's matrix, in the arena; NULL: another tensor, or no memory. */
static const char *xl_linear(const ckpt_xl_job *j, const ckpt_xl_tensor *e)
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
static int xl_pair(const ckpt_xl_job *j, ckpt_xl_tensor *e)
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

static int xl_pair_all(ckpt_xl_job *j)
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
static int xl_read(const ckpt_xl_job *j, const ckpt_xl_tensor *e, uint64_t at, uint64_t n,
                   ckpt_dtype dtype, void *tuned)
{
    int rc = ckpt_reader_read(j->reader[0], e->t, at, n, dtype, tuned, j->err);

    return rc == CKPT_OK
               ? ckpt_reader_read(j->reader[1], e->base, at, n, dtype, j->piece[1], j->err)
               : rc;
}

/* The dtype in which two tensors are compared; NONE: byte by byte. */
static ckpt_dtype xl_common(const ckpt_xl_tensor *e)
{
    if (!xl_is_float(e->t) || !xl_is_float(e->base))
        return CKPT_DTYPE_NONE;
    return e->t->dtype == CKPT_F64 || e->base->dtype == CKPT_F64 ? CKPT_F64 : CKPT_F32;
}

/* Element i of the tuned model's piece (0) or the base's (1), which have this dtype. */
static double xl_element(const ckpt_xl_job *j, unsigned of, ckpt_dtype dtype, uint64_t i)
{
    return dtype == CKPT_F64 ? ((const double *)j->piece[of])[i]
                             : (double)((const float *)j->piece[of])[i];
}

/* True if n elements of the two pieces differ; zeros of both signs are one number. */
static bool xl_differ(const ckpt_xl_job *j, const ckpt_tensor *t, ckpt_dtype dtype, uint64_t n)
{
    const bool floats = dtype != CKPT_DTYPE_NONE;
    uint64_t bytes = 0;

    if (!ckpt_dtype_bytes(floats ? dtype : t->dtype, n, &bytes) ||
        memcmp(j->piece[0], j->piece[1], bytes) == 0)
        return false;
    for (uint64_t i = 0; floats && i < n; i++) {
        if (!(xl_element(j, 0, dtype, i) == xl_element(j, 1, dtype, i)))
            return true;
    }
    return !floats;
}

/* Find whether a tensor differs. */
static int xl_compare(const ckpt_xl_job *j, ckpt_xl_tensor *e)
{
    const ckpt_dtype dtype = xl_common(e);
    int rc = CKPT_OK;

    e->differs = dtype == CKPT_DTYPE_NONE && e->t->dtype != e->base->dtype;
    for (uint64_t at = 0; rc == CKPT_OK && !e->differs && at < e->t->n_elems; at += XL_PIECE) {
        const uint64_t n = e->t->n_elems - at < XL_PIECE ? e->t->n_elems - at : XL_PIECE;

        rc = xl_read(j, e, at, n, dtype, j->piece[0]);
        e->differs = rc == CKPT_OK && xl_differ(j, e->t, dtype, n);
    }
    return rc;
}

/* The entry of a tensor's owner; NULL: the tensor is not tied. */
static const ckpt_xl_tensor *xl_owner(const ckpt_xl_job *j, const ckpt_tensor *t)
{
    const size_t at =
        t->owner ? ckpt_map_index(j->map, t->owner->name, strlen(t->owner->name)) : SIZE_MAX;

    return at < j->n ? &j->all[at] : NULL;
}

/* Warn of matrices that differ and have another dtype in the base. */
static int xl_warn_dtypes(const ckpt_xl_job *j)
{
    const ckpt_xl_tensor *first = NULL;
    size_t n = 0;

    for (size_t i = 0; i < j->n; i++) {
        const ckpt_xl_tensor *e = &j->all[i];

        if (!e->module || !e->differs || e->t->dtype == e->base->dtype)
            continue;
        first = first ? first : e;
        n++;
    }
    return !first
               ? CKPT_OK
               : ckpt_map_note(j->map, CKPT_WARNING, j->err,
                               "%zu matri%s (%s%.200s is %s in %s, but %s in %s): the difference "
                               "contains the rounding errors of the narrower one",
                               n, n == 1 ? "x has two dtypes" : "ces have two dtypes",
                               n == 1 ? "" : "the first: ", first->t->name,
                               ckpt_dtype_name(first->t->dtype), j->map->path,
                               ckpt_dtype_name(first->base->dtype), j->base->path);
}

/* True for a name that both models tie to the same one. */
static bool xl_follows(const ckpt_xl_tensor *e)
{
    return e->t->owner && e->base->owner && strcmp(e->t->owner->name, e->base->owner->name) == 0;
}

/* Compare all tensors; a tied name follows its owner if both models tie it to that. */
static int xl_compare_all(ckpt_xl_job *j)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < j->n; i++) {
        ckpt_xl_tensor *e = &j->all[i];

        if (xl_follows(e))
            continue;
        rc = xl_compare(j, e);
        j->n_changed += e->differs && e->module;
        j->n_rest += e->differs && !e->module;
    }
    return rc == CKPT_OK ? xl_warn_dtypes(j) : rc;
}

/*
 * Refuse tied names in the base if the adapter would change only one of them. peft changes one
 * module at a time, and the other name would keep the old values.
 */
static int xl_check_shared(const ckpt_xl_job *j)
{
    for (size_t i = 0; i < j->n; i++) {
        const ckpt_xl_tensor *e = &j->all[i], *owner = xl_owner(j, e->base);

        if (owner && owner->differs &&
            (owner->module || (owner->saved && !e->saved && xl_follows(e))))
            return ckpt_fail(j->err, CKPT_EUNSUPPORTED,
                             "%.200s shares the values of %.200s in %s, and peft would change only "
                             "one of them",
                             e->t->name, owner->t->name, j->base->path);
    }
    return CKPT_OK;
}

/* ---- other tensors that differ ---- */

/* True if a tensor is inside the module of the first n bytes of a name. */
static bool xl_inside(const char *tensor, const char *name, size_t n)
{
    return n > 0 && strncmp(tensor, name, n) == 0 && tensor[n] == '.';
}

/* True for an embedding with a tied head, because peft would replace only the embedding. */
static bool xl_tied(const ckpt_xl_job *j, const char *name)
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
static int xl_own_bias(const ckpt_xl_job *j, const char *name, bool *own)
{
    const size_t n = ckpt_xl_parent(name);
    char *weight = NULL;

    *own = false;
    if (strcmp(name + n, ".bias") != 0)
        return CKPT_OK;
    weight = ckpt_alloc(n + sizeof ".weight");
    if (!weight)
        return ckpt_fail_memory(j->err);
    memcpy(weight, name, n);
    memcpy(weight + n, ".weight", sizeof ".weight");
    const size_t at = ckpt_map_index(j->map, weight, strlen(weight));

    *own = at < j->n && j->all[at].module && j->all[at].differs;
    ckpt_free(weight);
    return CKPT_OK;
}

static int xl_by_name(const void *pa, const void *pb)
{
    const ckpt_xl_tensor *const *a = pa, *const *b = pb;

    return strcmp((*a)->t->name, (*b)->t->name);
}

/* The first of the sorted entries that is not before a module's tensors: "module." */
static size_t xl_first_in(const ckpt_xl_job *j, const char *name, size_t n)
{
    size_t low = 0, high = j->n;

    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        const char *at = j->sorted[mid]->t->name;
        const int order = strncmp(at, name, n + 1);

        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Mark all tensors of a module to be written whole; one with an update cannot be. */
static int xl_save(ckpt_xl_job *j, ckpt_xl_tensor *of)
{
    const char *name = of->t->name;
    const size_t n = ckpt_xl_parent(name);
    const char *why = n == 0             ? "its module is the model itself"
                      : xl_tied(j, name) ? "the head is tied to it, and peft would not change that"
                                         : NULL;
    bool own = false;
    int rc = xl_own_bias(j, name, &own);

    if (rc != CKPT_OK)
        return rc;
    if (own) {
        of->saved = of->bias = true;
        return CKPT_OK;
    }
    for (size_t i = why || of->saved ? j->n : xl_first_in(j, name, n);
         !why && i < j->n && xl_inside(j->sorted[i]->t->name, name, n); i++) {
        ckpt_xl_tensor *e = j->sorted[i];

        why = e->module && e->differs ? "its module has a matrix with an update, too" : NULL;
        e->saved = true;
    }
    return !why ? CKPT_OK
                : ckpt_fail(j->err, CKPT_EUNSUPPORTED,
                            "%.200s differs, and cannot be saved whole: %s; --drop-rest leaves it "
                            "out",
                            name, why);
}

/* Save all that differs and is no matrix of a linear layer. */
static int xl_save_all(ckpt_xl_job *j)
{
    int rc = CKPT_OK;

    j->sorted = ckpt_alloc((j->n + 1) * sizeof *j->sorted);
    if (!j->sorted)
        return ckpt_fail_memory(j->err);
    for (size_t i = 0; i < j->n; i++)
        j->sorted[i] = &j->all[i];
    qsort(j->sorted, j->n, sizeof(ckpt_xl_tensor *), xl_by_name);
    for (size_t i = 0; rc == CKPT_OK && i < j->n; i++) {
        if (j->all[i].differs && !j->all[i].module)
            rc = xl_save(j, &j->all[i]);
    }
    return rc;
}

/* The names of the first tensors that differ and have no update: "a, b and 3 others". */
static const char *xl_rest_names(const ckpt_xl_job *j)
{
    const char *text = "";
    size_t n = 0;

    for (size_t i = 0; text && i < j->n; i++) {
        const ckpt_xl_tensor *e = &j->all[i];

        if (!e->differs || e->module || n++ >= XL_NAMES)
            continue;
        text = ckpt_arena_printf(j->map->arena, "%s%s%.200s", text, n > 1 ? ", " : "", e->t->name);
    }
    if (text && n > XL_NAMES)
        text = ckpt_arena_printf(j->map->arena, "%s and %zu more", text, n - XL_NAMES);
    return text;
}

/* Save, drop or refuse the tensors that differ and are no matrices of linear layers. */
static int xl_rest(ckpt_xl_job *j)
{
    const char *names = j->n_rest > 0 ? xl_rest_names(j) : "";

    if (!names)
        return ckpt_fail_memory(j->err);
    if (j->n_rest == 0)
        return CKPT_OK;
    if (j->opts.rest == CKPT_EXTRACT_REFUSE)
        return ckpt_fail(
            j->err, CKPT_EUNSUPPORTED,
            "LoRA cannot store the changes of %zu tensor%s: %s; --save-rest saves whole "
            "tensors (modules_to_save), --drop-rest leaves the changes out",
            j->n_rest, j->n_rest == 1 ? "" : "s", names);
    if (j->opts.rest == CKPT_EXTRACT_DROP)
        return ckpt_map_note(j->map, CKPT_INFO, j->err,
                             "%zu tensor%s that differ%s from the base %s left out: %s", j->n_rest,
                             j->n_rest == 1 ? "" : "s", j->n_rest == 1 ? "s" : "",
                             j->n_rest == 1 ? "is" : "are", names);
    return xl_save_all(j);
}

/* ---- the factors ---- */

/* Read the difference of a matrix into x. */
static int xl_difference(const ckpt_xl_job *j, const ckpt_xl_tensor *e, float *x)
{
    const ckpt_dtype dtype = xl_common(e);

    for (uint64_t at = 0; at < e->t->n_elems; at += XL_PIECE) {
        const uint64_t n = e->t->n_elems - at < XL_PIECE ? e->t->n_elems - at : XL_PIECE;
        int rc = xl_read(j, e, at, n, dtype, j->piece[0]);

        if (rc != CKPT_OK)
            return rc;
        for (uint64_t i = at; i < at + n; i++) {
            x[i] = (float)(xl_element(j, 0, dtype, i - at) - xl_element(j, 1, dtype, i - at));
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
static int xl_keep(const ckpt_xl_job *j, size_t record, const float *x, uint64_t rows,
                   uint64_t cols, bool turned)
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

/* Refuse factors that the dtype cannot hold, and count those that it makes zeros. */
static int xl_check_range(ckpt_xl_job *j, const ckpt_xl_tensor *e, const ckpt_truncation *t)
{
    if (!isfinite(t->rest))
        return ckpt_fail(j->err, CKPT_EDOUBT,
                         "%.200s: its factors are beyond the range of %s; leave --dtype out to "
                         "write them as F32",
                         e->module,
                         ckpt_dtype_name(t->round == CKPT_DTYPE_NONE ? CKPT_F32 : t->round));
    // rounding alone changes a factor by 2^-12 of it
    if (t->round == CKPT_F16 && t->rounded > 1.0 / 512) {
        j->coarse = j->coarse ? j->coarse : e->module;
        j->n_coarse++;
    }
    return CKPT_OK;
}

/*
 * Refuse the matrix of a module that may be transformers' Conv1D, [in, out], or a linear layer,
 * [out, in]: the shape does not tell, nor do the names of GPT-2's modules, which others have too.
 */
static int xl_check_turned(const ckpt_xl_job *j, const ckpt_xl_tensor *e)
{
    static const char *const names[] = {"c_attn", "c_proj", "c_fc", NULL};
    const char *last = ckpt_xl_last(e->module);

    for (size_t i = 0; !j->info.model_type && names[i]; i++) {
        if (strcmp(last, names[i]) == 0)
            return ckpt_fail(
                j->err, CKPT_EDOUBT,
                "%.200s: the order of its axes, [in, out] or [out, in], depends on the type "
                "of the model, and %s has no config.json: give one with --config",
                e->t->name, j->map->path);
    }
    return CKPT_OK;
}

/* Compute the factors of the k-th matrix that differs. */
static int xl_factors(ckpt_xl_job *j, const ckpt_xl_tensor *e, size_t k)
{
    ckpt_truncation t = {.rows = e->t->shape[0],
                         .cols = e->t->shape[1],
                         .rank = j->opts.rank,
                         .round = j->opts.dtype,
                         .threads = ckpt_run_jobs(j->opts.jobs)};
    float *x = ckpt_alloc(e->t->n_elems * sizeof *x);
    const bool turned = ckpt_xl_turned(j, e->module);
    int rc = x ? xl_difference(j, e, x) : ckpt_fail_memory(j->err);

    t.x = x;
    t.left = rc == CKPT_OK ? ckpt_alloc(t.rows * t.rank * sizeof *t.left) : NULL;
    t.right = rc == CKPT_OK ? ckpt_alloc(t.rank * t.cols * sizeof *t.right) : NULL;
    if (rc == CKPT_OK)
        rc = t.left && t.right ? ckpt_truncate(&t, j->err) : ckpt_fail_memory(j->err);
    ckpt_free(x);
    if (rc == CKPT_OK)
        rc = xl_check_range(j, e, &t);
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

static int xl_factors_all(ckpt_xl_job *j)
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
        if (!j->all[i].module || !j->all[i].differs)
            continue;
        rc = xl_check_turned(j, &j->all[i]);
        if (rc == CKPT_OK)
            rc = xl_factors(j, &j->all[i], k++);
    }
    return rc != CKPT_OK || j->n_coarse == 0
               ? rc
               : ckpt_map_note(j->map, CKPT_WARNING, j->err,
                               "%zu matri%s (%s%.200s) ha%s factors that are too small for F16, "
                               "and lose more than its rounding; --dtype bf16 keeps them",
                               j->n_coarse, j->n_coarse == 1 ? "x" : "ces",
                               j->n_coarse == 1 ? "" : "the first: ", j->coarse,
                               j->n_coarse == 1 ? "s" : "ve");
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
static int xl_add(const ckpt_xl_job *j, const char *name, size_t record, uint64_t rows,
                  uint64_t cols)
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
static int xl_add_pair(const ckpt_xl_job *j, const ckpt_xl_tensor *e, size_t k)
{
    const bool turned = ckpt_xl_turned(j, e->module);
    const uint64_t n_in = e->t->shape[turned ? 0 : 1], n_out = e->t->shape[turned ? 1 : 0];
    ckpt_arena *a = j->map->arena;
    const char *name = ckpt_arena_printf(a, "base_model.model.%s.lora_A.weight", e->module);
    int rc = xl_add(j, name, 2 * k, j->opts.rank, n_in);

    name = ckpt_arena_printf(a, "base_model.model.%s.lora_B.weight", e->module);
    return rc == CKPT_OK ? xl_add(j, name, 2 * k + 1, n_out, j->opts.rank) : rc;
}

/* Replace the model's tensors by those of the adapter. */
static int xl_tensors(ckpt_xl_job *j)
{
    ckpt_map *map = j->map;
    size_t k = 0;
    int rc;

    map->tensors.n = 0;
    rc = ckpt_map_reindex(map, j->err);
    for (size_t i = 0; rc == CKPT_OK && i < j->n; i++) {
        ckpt_xl_tensor *e = &j->all[i];

        if (e->module && e->differs)
            rc = xl_add_pair(j, e, k++);
        if (rc != CKPT_OK || !e->saved)
            continue;
        // peft saves a copy of each module, and the owner may have no place in the adapter
        if (e->t->owner)
            ckpt_extent_own(e->t, NULL, 0);
        e->t->name = ckpt_arena_printf(
            map->arena, "base_model.model.%.*s%s%s", (int)ckpt_xl_parent(e->t->name), e->t->name,
            e->bias ? ".base_layer" : "", e->t->name + ckpt_xl_parent(e->t->name));
        rc = e->t->name ? ckpt_map_append(map, e->t, j->err) : ckpt_fail_memory(j->err);
    }
    return rc;
}

/* ---- all ---- */

/* Refuse models of two kinds. */
static int xl_one_kind(const ckpt_xl_job *j)
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
static int xl_change(ckpt_xl_job *j)
{
    int rc = ckpt_map_dequantize(j->map, true, j->err);

    if (rc == CKPT_OK)
        rc = ckpt_map_dequantize(j->base, true, j->err);
    ckpt_map_training_info(j->map, &j->info);
    if (rc == CKPT_OK)
        rc = j->opts.config_text ? ckpt_xl_read_config(j) : xl_one_kind(j);
    if (rc == CKPT_OK && !j->opts.config_text)
        rc = ckpt_config_compare(j->map, j->map, j->base, j->err);
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
        rc = xl_check_shared(j);
    if (rc == CKPT_OK)
        rc = xl_factors_all(j);
    if (rc == CKPT_OK)
        rc = xl_tensors(j);
    if (rc == CKPT_OK)
        rc = ckpt_xl_config(j);
    const size_t n_equal = j->n - j->n_changed - j->n_rest;

    return rc == CKPT_OK
               ? ckpt_map_note(j->map, CKPT_INFO, j->err,
                               "rank %" PRIu64 " of %zu matri%s; %zu tensor%s equal in both models",
                               (uint64_t)j->opts.rank, j->n_changed,
                               j->n_changed == 1 ? "x" : "ces", n_equal,
                               n_equal == 1 ? " is" : "s are")
               : rc;
}

/* Check the options. */
static int xl_opts(ckpt_xl_job *j, const ckpt_extract *extract)
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
    ckpt_xl_job j = {.map = tuned, .base = base, .err = err};
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
    ckpt_free(j.sorted);
    ckpt_free(j.all);
    return rc;
}
