/* SPDX-License-Identifier: Apache-2.0 */
/* groups.c: sums over the elements of compared tensors, by groups. */
#include "libckpt/inspect/groups.h"

#include <math.h>
#include <string.h>

#include "libckpt/base/err.h"

enum { GRP_CHUNK = 512 /* elements that are summed without a correction */ };

/* ---- sums ---- */

static void grp_sum(ckpt_sum *s, double x)
{
    const double sum = s->sum + x;

    s->lost += fabs(s->sum) >= fabs(x) ? (s->sum - sum) + x : (x - sum) + s->sum;
    s->sum = sum;
}

static double grp_total(ckpt_sum s)
{
    // an infinite sum has lost a NaN
    return isfinite(s.sum) ? s.sum + s.lost : s.sum;
}

static void grp_join(ckpt_sum *to, ckpt_sum from)
{
    grp_sum(to, from.sum);
    to->lost += from.lost;
}

/* The sums of a chunk. */
typedef struct grp_chunk {
    double aa, bb, ab, dd, max_abs;
} grp_chunk;

/* Sum a chunk, in four parts that the processor adds beside each other. */
static grp_chunk grp_fast(const double *a, const double *b, size_t n)
{
    grp_chunk part[4] = {{0}}, all = {0};

    for (size_t i = 0; i < n; i++) {
        grp_chunk *p = &part[i % 4];
        const double d = a[i] - b[i];

        p->aa += a[i] * a[i];
        p->bb += b[i] * b[i];
        p->ab += a[i] * b[i];
        p->dd += d * d;
        p->max_abs = fabs(d) > p->max_abs ? fabs(d) : p->max_abs;
    }
    for (unsigned i = 0; i < 4; i++) {
        all.aa += part[i].aa;
        all.bb += part[i].bb;
        all.ab += part[i].ab;
        all.dd += part[i].dd;
        all.max_abs = part[i].max_abs > all.max_abs ? part[i].max_abs : all.max_abs;
    }
    return all;
}

/* Sum a chunk with elements that are NaN or infinite, or too large for their squares. */
static grp_chunk grp_careful(ckpt_sums *s, const double *a, const double *b, size_t n)
{
    grp_chunk all = {0};

    for (size_t i = 0; i < n; i++) {
        const double x = a[i], y = b[i], d = x - y;

        if (!isfinite(x) || !isfinite(y)) {
            s->n_nan_a += isnan(x) != 0;
            s->n_nan_b += isnan(y) != 0;
            s->n_inf_a += isinf(x) != 0;
            s->n_inf_b += isinf(y) != 0;
            s->n--;
            continue;
        }
        all.aa += x * x;
        all.bb += y * y;
        all.ab += x * y;
        all.dd += d * d;
        all.max_abs = fabs(d) > all.max_abs ? fabs(d) : all.max_abs;
    }
    return all;
}

void ckpt_sums_add(ckpt_sums *s, const double *a, const double *b, size_t n)
{
    s->n_all += n;
    s->n += n;
    for (size_t from = 0; from < n; from += GRP_CHUNK) {
        const size_t count = n - from < GRP_CHUNK ? n - from : GRP_CHUNK;
        grp_chunk all = grp_fast(a + from, b + from, count);

        if (!isfinite(all.aa) || !isfinite(all.bb))
            all = grp_careful(s, a + from, b + from, count);
        grp_sum(&s->aa, all.aa);
        grp_sum(&s->bb, all.bb);
        grp_sum(&s->ab, all.ab);
        grp_sum(&s->dd, all.dd);
        s->max_abs = all.max_abs > s->max_abs ? all.max_abs : s->max_abs;
    }
}

/* ---- groups ---- */

/* The name of a tensor's group: '*' instead of numbers between dots or slashes. */
static char *grp_name(const char *name)
{
    char *out = ckpt_alloc(strlen(name) + 1), *to = out;

    for (const char *at = name; out && *at;) {
        const size_t n = strcspn(at, "./"), digits = strspn(at, "0123456789");

        if (n > 0 && digits == n) {
            *to++ = '*';
        } else {
            memcpy(to, at, n);
            to += n;
        }
        at += n;
        if (*at)
            *to++ = *at++;
    }
    return out;
}

static bool grp_same(const void *ctx, uint32_t number, const void *key)
{
    const ckpt_group_list *list = ctx;

    return strcmp(list->at[number].name, key) == 0;
}

/* Find or add the group of a name; NULL: out of memory. */
static ckpt_group_sums *grp_of(ckpt_diff_groups *g, const char *tensor)
{
    char *name = grp_name(tensor);
    const uint32_t hash = name ? ckpt_hash_bytes(name, strlen(name), 0) : 0;
    const uint32_t at =
        name ? ckpt_index_find(&g->index, hash, grp_same, &g->list, name) : CKPT_INDEX_NONE;
    ckpt_group_sums *own;

    if (at != CKPT_INDEX_NONE) {
        ckpt_free(name);
        return &g->list.at[at];
    }
    own = name && g->list.n < CKPT_INDEX_NONE / 2 ? ckpt_vec_push(&g->list) : NULL;
    if (!own) {
        ckpt_free(name);
        return NULL;
    }
    own->name = name;
    return ckpt_index_add(&g->index, hash, (uint32_t)g->list.n - 1) ? own : NULL;
}

int ckpt_diff_groups_add(ckpt_diff_groups *g, const ckpt_difference *d, const ckpt_sums *sums,
                         ckpt_err *err)
{
    ckpt_group_sums *own = grp_of(g, d->name);

    if (!own)
        return ckpt_fail_memory(err);
    own->group.n_tensors++;
    own->group.n_tensors_different += d->n_different > 0;
    own->group.n_elems += d->a->n_elems;
    own->group.n_different += d->n_different;
    own->group.n_nan_a += sums->n_nan_a;
    own->group.n_nan_b += sums->n_nan_b;
    own->group.n_inf_a += sums->n_inf_a;
    own->group.n_inf_b += sums->n_inf_b;
    own->sums.n += sums->n;
    own->sums.max_abs = sums->max_abs > own->sums.max_abs ? sums->max_abs : own->sums.max_abs;
    grp_join(&own->sums.aa, sums->aa);
    grp_join(&own->sums.bb, sums->bb);
    grp_join(&own->sums.ab, sums->ab);
    grp_join(&own->sums.dd, sums->dd);
    return CKPT_OK;
}

/* Compute the distances of a group from its sums. */
static void grp_distances(ckpt_group_sums *own)
{
    const double aa = grp_total(own->sums.aa), bb = grp_total(own->sums.bb);
    const double dd = grp_total(own->sums.dd), ab = grp_total(own->sums.ab);
    const double norms = sqrt(aa) * sqrt(bb);
    ckpt_diff_group *g = &own->group;

    g->name = own->name;
    g->relative_error = g->cosine = g->max_abs = (double)NAN;
    if (own->sums.n == 0)
        return;
    g->max_abs = own->sums.max_abs;
    if (isfinite(dd) && isfinite(aa) && (aa > 0 || !(g->max_abs > 0)))
        g->relative_error = dd > 0 ? sqrt(dd) / sqrt(aa) : 0;
    else if (dd > 0 && !(aa > 0))
        g->relative_error = (double)INFINITY;
    if (norms > 0 && isfinite(norms) && isfinite(ab))
        g->cosine = dd > 0 ? fmax(-1, fmin(1, ab / norms)) : 1;
}

int ckpt_diff_groups_tell(ckpt_diff_groups *g, ckpt_diff_group_fn fn, void *ctx, ckpt_err *err)
{
    for (size_t i = 0; i < g->list.n; i++) {
        grp_distances(&g->list.at[i]);
        if (fn(ctx, &g->list.at[i].group) != 0)
            return ckpt_fail(err, CKPT_ECANCELED, "comparing was stopped by its caller");
    }
    return CKPT_OK;
}

void ckpt_diff_groups_free(ckpt_diff_groups *g)
{
    for (size_t i = 0; i < g->list.n; i++)
        ckpt_free(g->list.at[i].name);
    ckpt_vec_free(&g->list);
    ckpt_index_free(&g->index);
}
