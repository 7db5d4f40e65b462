/* SPDX-License-Identifier: Apache-2.0 */
/*
 * joined.c: makes one tensor from several of one shape: copies of each other, or addends of a sum
 * or mean; gives tied names their owners among new tensors.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/copy/mean.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/nest.h"
#include "libckpt/transform/keymap/instance.h"

/* An operation that sums several tensors. */
typedef struct jo_sum {
    ckpt_make make;
    const ckpt_tensor *input[];
} jo_sum;

/* Add in F32 (F64 for F64), in the order of the ranks, so that only the result is rounded. */
static int jo_make(const ckpt_make *m, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                   ckpt_err *err)
{
    unsigned bytes = ckpt_dtype_get(ckpt_mean_dtype(m->dtype))->bits / 8;
    uint8_t *sum = in->scratch(in, n * bytes);
    int rc = sum ? CKPT_OK : ckpt_fail_memory(err);

    if (sum)
        memset(sum, 0, (size_t)(n * bytes));
    for (uint32_t i = 0; rc == CKPT_OK && i < m->n_inputs; i++) {
        rc = in->read(in, m->input[i], &(const ckpt_axis){at, n, 0}, m->dtype, to, err);
        if (rc == CKPT_OK)
            ckpt_mean_add(m->dtype, sum, to, n);
    }
    if (rc == CKPT_OK)
        ckpt_mean_end(m->dtype, to, sum, 1, n);
    return rc;
}

static int jo_sum_of(ckpt_tensor *out, ckpt_rm_instance *in, const ckpt_rm_members *from,
                     ckpt_err *err)
{
    const ckpt_tensor *first = from->at[0].t;
    jo_sum *s = ckpt_arena_alloc(in->map->arena, sizeof *s + from->n * sizeof *s->input);
    uint32_t source = 0;

    if (!s)
        return ckpt_fail_memory(err);
    if (ckpt_mean_dtype(first->dtype) == CKPT_DTYPE_NONE)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s:%u: '%.150s': elements of %s cannot be added",
                         in->f->r->name, in->rule->line, first->name,
                         ckpt_dtype_name(first->dtype));
    s->make = (ckpt_make){.name = first->name,
                          .dtype = first->dtype,
                          .n_inputs = (uint32_t)from->n,
                          .input = s->input,
                          .terms = "sum",
                          .make = jo_make};
    for (size_t i = 0; i < from->n; i++)
        s->input[i] = from->at[i].t->owner ? from->at[i].t->owner : from->at[i].t;
    int rc = ckpt_map_add_made(in->map, &s->make, first->n_elems, &source, err);
    out->twin = out->addend = NULL;
    out->owner = NULL;
    return rc == CKPT_OK ? ckpt_map_back_whole(in->map, out, source, 0, err) : rc;
}

/* Copy the members' tensors, each linked to the next as its twin or its addend. */
static ckpt_tensor *jo_chain(ckpt_rm_instance *in, const ckpt_rm_members *from, size_t i,
                             ckpt_rm_joins how)
{
    const ckpt_tensor *last = NULL;
    ckpt_tensor *t = NULL;

    for (size_t k = from->n; k-- > i;) {
        t = ckpt_arena_copy(in->map->arena, from->at[k].t, sizeof *t);
        if (!t)
            return NULL;
        if (how == CKPT_RM_MEAN)
            t->addend = last;
        else if (!t->twin && !t->owner)
            t->twin = last;
        last = t;
    }
    return t;
}

int ckpt_rm_joined(ckpt_tensor **out, ckpt_rm_instance *in, const ckpt_rm_members *from,
                   ckpt_rm_joins how, ckpt_err *err)
{
    const ckpt_tensor *first = from->at[0].t;

    for (size_t i = 1; i < from->n; i++) {
        const ckpt_tensor *t = from->at[i].t;
        if (t->ndim != first->ndim ||
            memcmp(t->shape, first->shape, t->ndim * sizeof *t->shape) != 0)
            return ckpt_fail(err, CKPT_EMISMATCH, "%s:%u: '%.120s' and '%.120s' differ in shape",
                             in->f->r->name, in->rule->line, first->name, t->name);
    }
    *out = jo_chain(in, from, 0, how == CKPT_RM_SUM ? CKPT_RM_COPIES : how);
    if (!*out)
        return ckpt_fail_memory(err);
    return how == CKPT_RM_SUM ? jo_sum_of(*out, in, from, err) : CKPT_OK;
}

void ckpt_rm_owners(const ckpt_tensors *made)
{
    assert(made);
    for (size_t i = 0; i < made->n; i++) {
        ckpt_tensor *t = made->at[i];
        const ckpt_tensor *owner = t->owner, *now = NULL;

        for (size_t k = 0; owner && !now && k < made->n; k++) {
            const ckpt_tensor *o = made->at[k];
            bool same = o == owner ||
                        (!o->owner && ckpt_extent_is_shared(o, owner) && o->twin == owner->twin);
            now = same && o != t ? o : NULL;
        }
        if (owner && !now) {
            ckpt_extent_share(t, owner);
            t->twin = owner->twin;
            t->addend = owner->addend;
        }
        t->owner = now;
    }
}
