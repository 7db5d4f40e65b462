/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff.c: compares two maps by name and value, in any formats.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/cast.h"
#include "libckpt/base/opts.h"
#include "libckpt/dist/run/hooks.h"
#include "libckpt/format.h"
#include "libckpt/inspect/groups.h"
#include "libckpt/inspect/tied.h"
#include "libckpt/map/map.h"
#include "libckpt/map/nest.h"
#include "libckpt/map/state.h"

enum {
    DIFF_BLOCK = 1 << 17, /* elements compared at a time */
    DIFF_NEAR = 256       /* elements with one allowance for sums */
};

/* The differences between the values of a tensor. */
typedef struct diff_part {
    uint64_t tensor; /* index of the tensor in A */
    uint64_t n_different, first, n_rounded;
    double max_abs, first_a, first_b;
    ckpt_sums sums; /* with opts->group */
} diff_part;

CKPT_VEC(diff_parts, diff_part);

/* Consecutive elements of a tensor. */
typedef struct diff_range {
    uint64_t first;
    size_t n;
} diff_range;

typedef struct diff_state {
    const ckpt_map *map_a, *map_b;
    ckpt_reader *ra, *rb;
    void *a, *b;             /* DIFF_BLOCK elements of up to 16 bytes each */
    double *wide_a, *wide_b; /* the elements as doubles, if the dtypes are floating */
    const ckpt_diff_opts *opts;
    ckpt_difference_fn fn;
    void *ctx;
    bool differs, stopped;
    uint64_t done, total; /* bytes of A to compare */
    ckpt_team *team;      /* NULL: this process works alone */
    diff_parts parts;     /* differences of all processes of a team, ascending by tensor */
    size_t next_part;
    double *count_a, *count_b; /* step counts of groups, by tensor; NULL: not needed yet */
    ckpt_sums sums;            /* of the current tensor */
    uint64_t n_rounded;        /* its elements that are equal only by opts->rounded */
    bool rounded;              /* it may have such elements */
    ckpt_diff_groups groups;
} diff_state;

static void diff_say(diff_state *s, const ckpt_difference *d)
{
    s->differs = true;
    if (!s->stopped && s->fn && s->fn(s->ctx, d) != 0)
        s->stopped = true;
}

static bool diff_equal(double a, double b, double tolerance)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    return a == b || fabs(a - b) <= tolerance;
}

/* The distance of a number from the next larger one of a dtype; 0: its elements lie in blocks. */
static double diff_step(ckpt_dtype dtype, double x)
{
    static const struct {
        ckpt_dtype dtype;
        int digits, lowest; /* bits of the fraction, exponent of the smallest number */
    } type[] = {
        {CKPT_F64, 52, -1074}, {CKPT_F32, 23, -149}, {CKPT_F16, 10, -24}, {CKPT_BF16, 7, -133}};
    int e = 0;

    for (size_t i = 0; isfinite(x) && i < sizeof type / sizeof *type; i++) {
        if (type[i].dtype != dtype)
            continue;
        (void)frexp(x, &e);
        e -= type[i].digits + 1;
        return ldexp(1, x != 0 && e > type[i].lowest ? e : type[i].lowest);
    }
    return 0;
}

/* The dtype of two that has the smaller steps; the first if the steps of one are unknown. */
static ckpt_dtype diff_finer(ckpt_dtype a, ckpt_dtype b)
{
    const double x = diff_step(a, 1), y = diff_step(b, 1);

    return x > 0 && y > 0 && y < x ? b : a;
}

/* The largest finite absolute value. */
static double diff_largest(const double *x, size_t n)
{
    double most = 0;

    for (size_t i = 0; i < n; i++)
        most = isfinite(x[i]) && fabs(x[i]) > most ? fabs(x[i]) : most;
    return most;
}

/* The allowance for sums in another order, near element i of a block. */
static double diff_sum_error(const diff_state *s, size_t i, size_t n)
{
    const size_t from = i - i % DIFF_NEAR;

    return ldexp(diff_largest(s->wide_a + from, n - from < DIFF_NEAR ? n - from : DIFF_NEAR), -20);
}

/* Count the differing elements of one block of floating values. */
static void diff_floats(diff_state *s, ckpt_difference *d, uint64_t first, size_t n)
{
    const ckpt_dtype dtype = diff_finer(d->b->dtype, d->a->dtype);
    const bool rounded = s->rounded && diff_step(dtype, 1) > 0;
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        double a = s->wide_a[i], b = s->wide_b[i];
        if (rounded && i % DIFF_NEAR == 0)
            sum = diff_sum_error(s, i, n);
        double by_rounding = rounded ? diff_step(dtype, fabs(a) > fabs(b) ? a : b) + sum : 0;
        if (diff_equal(a, b, s->opts->tolerance))
            continue;
        if (diff_equal(a, b, s->opts->tolerance + by_rounding)) {
            s->n_rounded++;
            continue;
        }
        double by = fabs(a - b);
        d->max_abs = by > d->max_abs || isnan(by) ? by : d->max_abs;
        if (d->n_different++ == 0) {
            d->first = first + i;
            d->first_a = a;
            d->first_b = b;
        }
    }
}

/*
 * Whether a tensor's values may be rounded in another way: not if the map that opts->computed names
 * only copies it.
 */
static int diff_may_round(diff_state *s, const char *name, ckpt_err *err)
{
    const ckpt_map *map = s->opts->computed;
    const ckpt_tensor *t = map ? ckpt_map_find(map, name) : NULL;
    uint8_t *used;

    s->rounded = s->opts->rounded;
    if (!s->rounded || !t || map->sources.n == 0)
        return CKPT_OK;
    used = ckpt_alloc(map->sources.n);
    if (!used)
        return ckpt_fail_memory(err);
    memset(used, 0, map->sources.n);
    ckpt_nest_mark(map, t, used);
    s->rounded = (t->owner ? t->owner : t)->addend != NULL;
    for (size_t i = 0; i < map->sources.n; i++)
        s->rounded = s->rounded || (used[i] && map->sources.at[i].kind == CKPT_SOURCE_MADE);
    ckpt_free(used);
    return CKPT_OK;
}

/* Element i of packed ones, the first in the lowest bits; it may cross two bytes. */
static unsigned diff_packed(const uint8_t *p, size_t i, unsigned bits)
{
    size_t at = i * bits;
    unsigned shift = at % 8, both = p[at / 8];

    if (shift + bits > 8)
        both |= (unsigned)p[at / 8 + 1] << 8;
    return both >> shift & ((1u << bits) - 1);
}

/* Count the differing elements of one block of other values: by bits, which have no distance. */
static void diff_bits(diff_state *s, ckpt_difference *d, uint64_t first, size_t n,
                      const ckpt_dtype_info *type)
{
    unsigned bits = type->bits;
    size_t width = type->bytes;
    const uint8_t *a = s->a, *b = s->b;

    d->max_abs = -1;
    // in blocks without a decoder either all elements differ or none
    for (size_t i = 0; bits == 0 && i < n; i += type->per) {
        if (memcmp(a + i / type->per * width, b + i / type->per * width, width) != 0) {
            d->first = d->n_different == 0 ? first + i : d->first;
            d->n_different += type->per;
        }
    }
    for (size_t i = 0; bits > 0 && i < n; i++) {
        bool same = bits < 8 ? diff_packed(a, i, bits) == diff_packed(b, i, bits)
                             : memcmp(a + i * width, b + i * width, width) == 0;
        if (!same)
            d->first = d->n_different++ == 0 ? first + i : d->first;
    }
}

/*
 * Choose this process's blocks k..end-1 of n_blocks; each tensor starts with another process. One
 * process sums a whole tensor, so that the order of the additions never changes.
 */
static void diff_share(const diff_state *s, size_t tensor, uint64_t n_blocks, uint64_t *k,
                       uint64_t *end)
{
    uint64_t n = s->team ? s->team->n : 1, rank = s->team ? (s->team->rank + tensor) % n : 0;

    if (s->opts->group) {
        *k = 0;
        *end = rank == 0 ? n_blocks : 0;
        return;
    }
    *k = n_blocks / n * rank + n_blocks % n * rank / n;
    *end = n_blocks / n * (rank + 1) + n_blocks % n * (rank + 1) / n;
}

static int diff_canceled(ckpt_err *err)
{
    return ckpt_fail(err, CKPT_ECANCELED, "comparing was stopped by its caller");
}

/* Report a compared block of A; an error if the caller cancels. */
static int diff_progress(diff_state *s, uint64_t n_bytes, ckpt_err *err)
{
    s->done += n_bytes;
    if (s->opts->progress && s->opts->progress(s->opts->progress_ctx, s->done, s->total) != 0)
        return diff_canceled(err);
    return CKPT_OK;
}

/* True if a name ends with another one, as those of slices end with that of their tensor. */
static bool diff_same_end(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);

    return n >= m && strcmp(name + n - m, end) == 0;
}

/*
 * Compare copies that a map keeps of a tensor, rounded to their dtype: heads that a layout map has
 * dropped as another name of their table, and, of the source of a conversion, 16-bit copies of
 * masters.  As the run does, which refuses copies that differ.
 */
static int diff_copies(diff_state *s, const ckpt_map *map, ckpt_reader *r, const ckpt_tensor *t,
                       const diff_range *at, ckpt_err *err)
{
    int rc = CKPT_OK;

    for (const ckpt_tensor *copy = t->twin; rc == CKPT_OK && copy; copy = copy->twin) {
        uint64_t n_bytes;

        if ((copy->flags & CKPT_TENSOR_LAGS) || copy->n_elems != t->n_elems ||
            !ckpt_dtype_bytes(copy->dtype, at->n, &n_bytes) ||
            n_bytes > (uint64_t)DIFF_BLOCK * sizeof(double) ||
            (copy->dtype != t->dtype && !ckpt_cast_find(copy->dtype, t->dtype)) ||
            (!s->opts->exact && diff_same_end(copy->name, t->name)))
            continue;
        rc = ckpt_reader_read(r, t, at->first, at->n, copy->dtype, s->wide_a, err);
        if (rc == CKPT_OK)
            rc = ckpt_reader_read(r, copy, at->first, at->n, CKPT_DTYPE_NONE, s->wide_b, err);
        if (rc == CKPT_OK && memcmp(s->wide_a, s->wide_b, (size_t)n_bytes) != 0)
            rc = ckpt_fail(err, CKPT_EMISMATCH,
                           "%s: tensor %s differs from its copy %s in elements %" PRIu64
                           " to %" PRIu64 ": they should be equal",
                           map->path, t->name, copy->name, at->first, at->first + at->n - 1);
    }
    return rc;
}

/* True for dtypes of 8 bits that are floats. */
static bool diff_float8(ckpt_dtype dtype)
{
    return dtype == CKPT_F8_E4M3 || dtype == CKPT_F8_E5M2 || dtype == CKPT_F8_E4M3FNUZ ||
           dtype == CKPT_F8_E5M2FNUZ || dtype == CKPT_F8_E8M0;
}

/*
 * The dtype of a tensor's elements.  npz lacks BF16 and floats of 8 bits: writers store their bits
 * as unsigned integers, which are floats if the other map's tensor has floats.
 */
static ckpt_dtype diff_dtype(const ckpt_map *map, const ckpt_tensor *t, const ckpt_tensor *other)
{
    const ckpt_dtype to = other->dtype;

    if (!map->format || strcmp(map->format, "npz") != 0)
        return t->dtype;
    if (t->dtype == CKPT_U8 && diff_float8(to))
        return to;
    return t->dtype == CKPT_U16 &&
                   (to == CKPT_BF16 || to == CKPT_F16 || to == CKPT_F32 || to == CKPT_F64)
               ? CKPT_BF16
               : t->dtype;
}

/*
 * Compare block by block. Blocks of equal bytes are equal. Others are compared as doubles if both
 * dtypes convert, so that NaN, signed zeros and a tolerance have their usual meaning.
 */
static int diff_blocks(diff_state *s, size_t tensor, ckpt_difference *d, ckpt_err *err)
{
    const ckpt_tensor *a = d->a, *b = d->b;
    const ckpt_dtype to = diff_dtype(s->map_b, b, a), as = diff_dtype(s->map_a, a, b);
    bool same = as == to;
    ckpt_cast_fn wide_a = ckpt_cast_find(CKPT_F64, as), wide_b = ckpt_cast_find(CKPT_F64, to);
    const ckpt_dtype_info *type = ckpt_dtype_get(as);
    uint64_t n_bytes = 0, n_before, k, end;
    int rc = diff_may_round(s, a->name, err);
    const bool loose = s->opts->tolerance > 0 || s->rounded;

    s->sums = (ckpt_sums){0};
    s->n_rounded = 0;
    diff_share(s, tensor, (a->n_elems + DIFF_BLOCK - 1) / DIFF_BLOCK, &k, &end);
    for (; rc == CKPT_OK && k < end; k++) {
        uint64_t first = k * DIFF_BLOCK;
        size_t n = a->n_elems - first < DIFF_BLOCK ? (size_t)(a->n_elems - first) : DIFF_BLOCK;
        const diff_range at = {first, n};
        rc = diff_copies(s, s->map_a, s->ra, a, &at, err);
        if (rc == CKPT_OK)
            rc = diff_copies(s, s->map_b, s->rb, b, &at, err);
        if (rc == CKPT_OK)
            rc = ckpt_reader_read(s->ra, a, first, n, CKPT_DTYPE_NONE, s->a, err);
        if (rc == CKPT_OK)
            rc = ckpt_reader_read(s->rb, b, first, n, CKPT_DTYPE_NONE, s->b, err);
        // the last elements of F4 may end inside a byte
        if (!ckpt_dtype_bytes(a->dtype, n, &n_bytes))
            n_bytes = (n * type->bits + 7) / 8;
        if (rc == CKPT_OK)
            rc = diff_progress(s, n_bytes, err);
        const bool equal = rc == CKPT_OK && same && memcmp(s->a, s->b, (size_t)n_bytes) == 0;
        if (rc != CKPT_OK || (equal && !s->opts->group))
            continue;
        n_before = d->n_different;
        if (wide_a && wide_b) {
            wide_a(s->wide_a, s->a, n);
            wide_b(s->wide_b, s->b, n);
            if (s->opts->group)
                ckpt_sums_add(&s->sums, s->wide_a, s->wide_b, n);
            diff_floats(s, d, first, n);
        }
        if (equal)
            continue;
        // zeros of both signs are one number, as other scales of a quantized block may be, but
        // other bytes
        if (!wide_a || !wide_b || (s->opts->exact && same && d->n_different == n_before && !loose))
            diff_bits(s, d, first, n, type);
    }
    return rc;
}

/* Get the result for the values of tensor `tensor` of A: compare now, or use the team's result. */
static int diff_values(diff_state *s, size_t tensor, const ckpt_tensor *a, const ckpt_tensor *b,
                       ckpt_err *err)
{
    ckpt_difference d = {.name = a->name,
                         .what = "values",
                         .a = a,
                         .b = b,
                         .first_a = (double)NAN,
                         .first_b = (double)NAN};
    int rc = s->team ? CKPT_OK : diff_blocks(s, tensor, &d, err);

    s->n_rounded = s->team ? 0 : s->n_rounded;
    for (; s->team && s->next_part < s->parts.n && s->parts.at[s->next_part].tensor <= tensor;
         s->next_part++) {
        const diff_part *p = &s->parts.at[s->next_part];

        if (p->tensor != tensor)
            continue;
        s->n_rounded += p->n_rounded;
        if (p->n_different > 0 && (d.n_different == 0 || p->first < d.first)) {
            d.first = p->first;
            d.first_a = p->first_a;
            d.first_b = p->first_b;
        }
        d.max_abs = isnan(d.max_abs) || p->max_abs <= d.max_abs ? d.max_abs : p->max_abs;
        d.max_abs = p->max_abs < 0 ? p->max_abs : d.max_abs;
        d.n_different += p->n_different;
        s->sums = p->sums;
    }
    if (rc == CKPT_OK && s->opts->n_rounded)
        *s->opts->n_rounded += s->n_rounded;
    if (rc == CKPT_OK && d.n_different)
        diff_say(s, &d);
    return rc == CKPT_OK && s->opts->group ? ckpt_diff_groups_add(&s->groups, &d, &s->sums, err)
                                           : rc;
}

static bool diff_same_shape(const ckpt_tensor *a, const ckpt_tensor *b)
{
    return a->ndim == b->ndim &&
           (a->ndim == 0 || memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0);
}

/*
 * True if values can be compared: equal shapes, and equal dtypes or two that convert to double.
 */
static bool diff_comparable(const diff_state *s, const ckpt_tensor *a, const ckpt_tensor *b)
{
    const ckpt_dtype to = diff_dtype(s->map_b, b, a);
    const ckpt_dtype from = diff_dtype(s->map_a, a, b);

    if (!diff_same_shape(a, b) || from == to)
        return diff_same_shape(a, b);
    return ckpt_cast_find(CKPT_F64, from) && ckpt_cast_find(CKPT_F64, to);
}

static int diff_tensor(diff_state *s, size_t tensor, const ckpt_tensor *a, const ckpt_tensor *b,
                       ckpt_err *err)
{
    ckpt_difference d = {
        .name = a->name, .a = a, .b = b, .first_a = (double)NAN, .first_b = (double)NAN};

    if (!diff_same_shape(a, b)) {
        d.what = "shape";
        diff_say(s, &d);
        return CKPT_OK;
    }
    if (diff_dtype(s->map_a, a, b) != diff_dtype(s->map_b, b, a) &&
        !(s->opts->ignore_dtype && diff_comparable(s, a, b))) {
        d.what = "dtype";
        diff_say(s, &d);
    }
    return diff_comparable(s, a, b) ? diff_values(s, tensor, a, b, err) : CKPT_OK;
}

/* ---- several processes ---- */

/* Compare this process's blocks of all tensors in both maps. */
static int diff_own(diff_state *s, const ckpt_map *a, const ckpt_map *b, ckpt_bytes *out,
                    ckpt_err *err)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < a->tensors.n; i++) {
        const ckpt_tensor *ta = a->tensors.at[i], *tb = ckpt_map_find(b, ta->name);
        ckpt_difference d = {.a = ta, .b = tb, .first_a = (double)NAN, .first_b = (double)NAN};

        if (!tb || !diff_comparable(s, ta, tb))
            continue;
        rc = diff_blocks(s, i, &d, err);
        const diff_part p = {.tensor = i,
                             .n_different = d.n_different,
                             .first = d.first,
                             .n_rounded = s->n_rounded,
                             .max_abs = d.max_abs,
                             .first_a = d.first_a,
                             .first_b = d.first_b,
                             .sums = s->sums};
        if (rc == CKPT_OK && (d.n_different > 0 || s->n_rounded > 0 || s->sums.n_all > 0) &&
            !ckpt_bytes_add(out, &p, sizeof p))
            rc = ckpt_fail_memory(err);
        if (rc == CKPT_OK)
            rc = ckpt_team_check(s->team, err);
    }
    return rc;
}

static int diff_order(const void *pa, const void *pb)
{
    const diff_part *a = pa, *b = pb;

    return (a->tensor > b->tensor) - (a->tensor < b->tensor);
}

/* Collect the differences that all processes have found. */
static int diff_gather(diff_state *s, const ckpt_map *a, const ckpt_map *b, ckpt_err *err)
{
    ckpt_bytes mine = {0};
    ckpt_blobs all = {0};
    int rc = ckpt_team_same_map(s->team, a, err);

    if (rc == CKPT_OK)
        rc = ckpt_team_same_map(s->team, b, err);
    if (rc == CKPT_OK)
        rc = diff_own(s, a, b, &mine, err);
    rc = ckpt_team_agree(s->team, rc, err);
    if (rc == CKPT_OK)
        rc = ckpt_team_all(s->team, mine.at, mine.n, &all, err);
    for (unsigned i = 0; rc == CKPT_OK && i < s->team->n; i++) {
        for (size_t at = 0; rc == CKPT_OK && all.n[i] - at >= sizeof(diff_part);
             at += sizeof(diff_part)) {
            diff_part *p = ckpt_vec_push(&s->parts);

            if (p)
                memcpy(p, all.at[i] + at, sizeof *p);
            else
                rc = ckpt_fail_memory(err);
        }
    }
    if (s->parts.n > 1)
        qsort(s->parts.at, s->parts.n, sizeof *s->parts.at, diff_order);
    ckpt_blobs_free(&all);
    ckpt_vec_free(&mine);
    return rc;
}

/* Compute the total of diff_progress: the bytes of A with a counterpart in B. */
static void diff_measure(diff_state *s, const ckpt_map *a, const ckpt_map *b)
{
    for (size_t i = 0; s->opts->progress && i < a->tensors.n; i++) {
        const ckpt_tensor *ta = a->tensors.at[i], *tb = ckpt_map_find(b, ta->name);

        // no overflow: these bytes exist; tied names count again, because each is compared
        if (tb && diff_comparable(s, ta, tb))
            s->total += ckpt_tensor_bytes(ta);
    }
    s->total = s->team ? s->total / s->team->n : s->total;
}

/* ---- step counts ---- */

static const char diff_step_of[] = "step/";

/* True for the step count of one parameter. */
static bool diff_counts_steps(const ckpt_tensor *t)
{
    return t->role == CKPT_ROLE_STATE && t->n_elems == 1 &&
           strncmp(t->name, diff_step_of, sizeof diff_step_of - 1) == 0;
}

/*
 * The step counts that a map's optimizer keeps for groups, by tensor of the map: NaN for none, also
 * if it keeps any for a parameter.  NULL: out of memory.
 */
static double *diff_counts(const ckpt_map *map)
{
    double *count = ckpt_alloc((map->tensors.n + 1) * sizeof *count);
    const ckpt_state *state = map->states.n == 1 ? map->states.at[0] : NULL;

    for (size_t i = 0; count && i < map->tensors.n; i++) {
        count[i] = (double)NAN;
        state = diff_counts_steps(map->tensors.at[i]) ? NULL : state;
    }
    for (size_t g = 0; count && state && g < state->group.n; g++) {
        const ckpt_group *group = &state->group.at[g];
        const ckpt_value *step = ckpt_value_get(group->entry, "step");
        int64_t n;
        step = step ? step : ckpt_value_get(group->fields, "step");
        if (!ckpt_value_as_int(step, &n))
            continue;
        for (size_t i = 0; i < group->n * group->n_lanes; i++) {
            const char *name = state->param.at[group->first + i]->name;
            size_t at = ckpt_map_index(map, name, strlen(name));
            if (at != SIZE_MAX)
                count[at] = (double)n;
        }
    }
    return count;
}

/* Report a tensor as another name of one that both maps have; *tied: it is. */
static int diff_tied(diff_state *s, const ckpt_difference *d, bool *tied, ckpt_err *err)
{
    ckpt_difference own = *d;
    const ckpt_tensor *table = NULL;
    int rc;

    *tied = false;
    if (!s->opts->tied)
        return CKPT_OK;
    rc = d->a ? ckpt_tied_to(&table, s->map_a, s->map_b, s->ra, d->a, err)
              : ckpt_tied_to(&table, s->map_b, s->map_a, s->rb, d->b, err);
    if (rc != CKPT_OK || !table)
        return rc;
    *tied = true;
    own.what = d->a ? "tied in A" : "tied in B";
    own.a = d->a ? d->a : d->b;
    own.b = table;
    return s->opts->tied(s->ctx, &own) == 0 ? CKPT_OK : diff_canceled(err);
}

/*
 * Report a tensor that only one map has, unless it is tied to a tensor that both have, or is a step
 * count that the other map's optimizer keeps for the parameter's group, as apex's FusedAdam does.
 * An exact comparison wants the tensor.
 */
static int diff_only(diff_state *s, const ckpt_difference *d, const ckpt_map *other, ckpt_err *err)
{
    const ckpt_tensor *t = d->a ? d->a : d->b;
    double **count = d->a ? &s->count_b : &s->count_a, is = 0;
    const char *param;
    bool tied;
    int rc = diff_tied(s, d, &tied, err);

    if (rc != CKPT_OK || tied)
        return rc;
    if (!s->opts->exact && diff_counts_steps(t)) {
        param = t->name + sizeof diff_step_of - 1;
        size_t at = ckpt_map_index(other, param, strlen(param));
        *count = *count ? *count : diff_counts(other);
        if (!*count)
            return ckpt_fail_memory(err);
        if (at != SIZE_MAX && !isnan((*count)[at])) {
            rc = ckpt_reader_read(d->a ? s->ra : s->rb, t, 0, 1, CKPT_F64, &is, err);
            if (rc != CKPT_OK || diff_equal(is, (*count)[at], 0))
                return rc;
        }
    }
    diff_say(s, d);
    return rc;
}

/* Compare in the order of A, then report tensors only in B. */
static int diff_maps(diff_state *s, const ckpt_map *a, const ckpt_map *b, ckpt_err *err)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && !s->stopped && i < a->tensors.n; i++) {
        const ckpt_tensor *ta = a->tensors.at[i], *tb = ckpt_map_find(b, ta->name);
        ckpt_difference d = {.name = ta->name,
                             .what = "only in A",
                             .a = ta,
                             .first_a = (double)NAN,
                             .first_b = (double)NAN};
        if (tb)
            rc = diff_tensor(s, i, ta, tb, err);
        else
            rc = diff_only(s, &d, b, err);
    }
    for (size_t i = 0; rc == CKPT_OK && !s->stopped && i < b->tensors.n; i++) {
        const ckpt_tensor *tb = b->tensors.at[i];
        ckpt_difference d = {.name = tb->name,
                             .what = "only in B",
                             .b = tb,
                             .first_a = (double)NAN,
                             .first_b = (double)NAN};
        if (!ckpt_map_find(a, tb->name))
            rc = diff_only(s, &d, a, err);
    }
    return rc;
}

int ckpt_diff(const ckpt_map *a, const ckpt_map *b, const ckpt_diff_opts *opts,
              ckpt_difference_fn fn, void *ctx, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_diff_opts own;
    diff_state s = {.map_a = a, .map_b = b, .opts = &own, .fn = fn, .ctx = ctx};
    int rc = ckpt_opts_take(&own, sizeof own, opts, "ckpt_diff_opts", err);

    if (rc != CKPT_OK)
        return rc;
    rc = ckpt_reader_new(&s.ra, a, err);
    if (rc == CKPT_OK)
        rc = ckpt_reader_new(&s.rb, b, err);
    s.a = ckpt_alloc((size_t)DIFF_BLOCK * 16);
    s.b = ckpt_alloc((size_t)DIFF_BLOCK * 16);
    s.wide_a = ckpt_alloc((size_t)DIFF_BLOCK * sizeof(double));
    s.wide_b = ckpt_alloc((size_t)DIFF_BLOCK * sizeof(double));
    if (rc == CKPT_OK && (!s.a || !s.b || !s.wide_a || !s.wide_b))
        rc = ckpt_fail_memory(err);
    s.team = ckpt_team_now();
    if (rc == CKPT_OK)
        diff_measure(&s, a, b);
    if (rc == CKPT_OK && s.team)
        rc = diff_gather(&s, a, b, err);
    if (rc == CKPT_OK)
        rc = diff_maps(&s, a, b, err);
    if (rc == CKPT_OK && own.group)
        rc = ckpt_diff_groups_tell(&s.groups, own.group, ctx, err);
    if (rc == CKPT_OK && s.differs)
        rc = ckpt_fail(err, CKPT_EDIFFERS, "%s and %s differ", a->path, b->path);
    ckpt_free(s.a);
    ckpt_free(s.b);
    ckpt_free(s.wide_a);
    ckpt_free(s.wide_b);
    ckpt_free(s.count_a);
    ckpt_free(s.count_b);
    ckpt_vec_free(&s.parts);
    ckpt_diff_groups_free(&s.groups);
    ckpt_reader_free(s.ra);
    ckpt_reader_free(s.rb);
    return rc;
}
