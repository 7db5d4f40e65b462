/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plus.c: handles tensors that one side stores minus a constant (norms around 0 instead of 1), and
 * negative ones of which it stores the logarithm (A_log of state space models).
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "libckpt/copy/mean.h"
#include "libckpt/map/nest.h"
#include "libckpt/transform/keymap/instance.h"

/* An operation that adds the rule's constant to a tensor. */
typedef struct plus_op {
    ckpt_make make;
    double plus;
    bool exp; /* log_make: the input are logarithms */
    const ckpt_tensor *input;
} plus_op;

/* Add in F32 (F64 for F64), so that only the result is rounded. */
static int plus_make(const ckpt_make *m, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                     ckpt_err *err)
{
    const plus_op *op = (const plus_op *)m;
    bool wide = ckpt_mean_dtype(m->dtype) == CKPT_F64;
    uint64_t bytes = n * (wide ? sizeof(double) : sizeof(float));
    void *sum = in->scratch(in, bytes);
    float narrow = (float)op->plus;
    int rc = sum ? CKPT_OK : ckpt_fail_memory(err);

    for (uint64_t i = 0; rc == CKPT_OK && i < n; i++) {
        if (wide)
            memcpy((double *)sum + i, &op->plus, sizeof op->plus);
        else
            memcpy((float *)sum + i, &narrow, sizeof narrow);
    }
    if (rc == CKPT_OK)
        rc = in->read(in, op->input, &(const ckpt_axis){at, n, 0}, m->dtype, to, err);
    if (rc == CKPT_OK) {
        ckpt_mean_add(m->dtype, sum, to, n);
        ckpt_mean_end(m->dtype, to, sum, 1, n);
    }
    return rc;
}

/* Compute -exp(x), or back log(-x). */
static double log_one(const plus_op *op, double x)
{
    return op->exp ? -exp(x) : log(-x);
}

/* Compute in F64, and round to F32 once (F64 stays). */
static int log_make(const ckpt_make *m, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                    ckpt_err *err)
{
    const plus_op *op = (const plus_op *)m;
    int rc = in->read(in, op->input, &(const ckpt_axis){at, n, 0}, m->dtype, to, err);

    for (uint64_t i = 0; rc == CKPT_OK && i < n; i++) {
        float narrow;
        double x, y;

        if (m->dtype == CKPT_F64) {
            memcpy(&x, (const double *)to + i, sizeof x);
            y = log_one(op, x);
            memcpy((double *)to + i, &y, sizeof y);
        } else {
            memcpy(&narrow, (const float *)to + i, sizeof narrow);
            x = (double)narrow;
            y = log_one(op, x);
            narrow = (float)y;
            memcpy((float *)to + i, &narrow, sizeof narrow);
        }
        if (isnan(y) && !isnan(x))
            rc = ckpt_fail(err, CKPT_EFORMAT,
                           "tensor '%.200s': element %" PRIu64
                           " of the source is %g: expected a negative number, of which the rule "
                           "takes log(-x)",
                           m->name, at + i, x);
    }
    return rc;
}

int ckpt_rm_plus(ckpt_tensor *t, ckpt_rm_instance *in, ckpt_err *err)
{
    const ckpt_tensor *from = in->member[in->from].at[0].t;
    plus_op *op = ckpt_arena_alloc(in->map->arena, sizeof *op);
    double plus = in->to == 0 ? in->rule->plus : -in->rule->plus;
    uint32_t source = 0;

    if (!op)
        return ckpt_fail_memory(err);
    if (ckpt_mean_dtype(from->dtype) == CKPT_DTYPE_NONE)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s:%u: '%.150s': elements of %s cannot be added",
                         in->f->r->name, in->rule->line, from->name, ckpt_dtype_name(from->dtype));
    // the sum of 16-bit values is not rounded before the target's dtype is known
    const ckpt_dtype sum = ckpt_mean_dtype(from->dtype);
    if (sum != from->dtype) {
        t->export_dtype = t->export_dtype != CKPT_DTYPE_NONE ? t->export_dtype : t->dtype;
        t->dtype = sum;
    }
    op->plus = plus;
    op->exp = in->to == 1;
    op->input = from->owner ? from->owner : from;
    op->make =
        (ckpt_make){.name = t->name,
                    .dtype = sum,
                    .n_inputs = 1,
                    .input = &op->input,
                    .terms = !in->rule->log ? ckpt_arena_printf(in->map->arena, "plus %.17g", plus)
                             : op->exp      ? "-exp"
                                            : "log of -",
                    .make = in->rule->log ? log_make : plus_make};
    if (!op->make.terms)
        return ckpt_fail_memory(err);
    int rc = ckpt_map_add_made(in->map, &op->make, t->n_elems, &source, err);
    t->twin = t->addend = NULL;
    t->owner = NULL;
    return rc == CKPT_OK ? ckpt_map_back_whole(in->map, t, source, 0, err) : rc;
}
