/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows.c: handles tensors whose first axis a rule gives in several ranges of rows, because they
 * have different axes: queries, keys and values, each with all heads.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/cast.h"
#include "libckpt/map/nest.h"
#include "libckpt/transform/keymap/instance.h"

bool ckpt_rm_is_rows(const ckpt_rm_terms *terms, size_t term)
{
    assert(term < terms->n);
    return terms->at[term].follows || (term + 1 < terms->n && terms->at[term + 1].follows);
}

/* Multiply the sizes of the first axis. */
static bool rows_count(const ckpt_rm_view *v, uint64_t *n)
{
    bool ok = true;

    *n = 1;
    for (uint32_t i = 0; i < v->n_atoms; i++)
        ok = ok && (v->atom[i].axis != 0 || ckpt_mul(*n, v->size[i], n));
    return ok;
}

int ckpt_rm_rows(ckpt_rm_instance *in, unsigned side, ckpt_err *err)
{
    const ckpt_rm_terms *terms = &in->rule->term[side];
    ckpt_rm_members *list = &in->member[side];
    uint64_t at = 0, n = 0;

    for (size_t i = 0; i < list->n; i++) {
        ckpt_rm_member *m = &list->at[i];

        if (!ckpt_rm_is_rows(terms, m->term))
            continue;
        m->row = terms->at[m->term].follows ? at : 0;
        if (!rows_count(&in->view[side][m->term], &n) || !ckpt_add(m->row, n, &at))
            return ckpt_fail(err, CKPT_ELIMIT, "%s:%u: the product of the sizes overflows",
                             in->f->r->name, in->rule->line);
        const bool last = m->term + 1 == terms->n || !terms->at[m->term + 1].follows;
        if (side == in->from && last && at != m->t->shape[0])
            return ckpt_fail(err, CKPT_EMISMATCH,
                             "%s:%u: '%.150s' has %" PRIu64 " rows, but the rule expects %" PRIu64,
                             in->f->r->name, in->rule->line, m->t->name, m->t->shape[0], at);
    }
    return CKPT_OK;
}

int ckpt_rm_stack_rows(ckpt_tensor **out, ckpt_rm_instance *in, const ckpt_rm_member *piece,
                       size_t n, ckpt_err *err)
{
    const ckpt_tensor *first = piece[0].t;
    const unsigned bytes = ckpt_dtype_get(first->dtype)->bits / 8;
    ckpt_extent extent[CKPT_RM_TERMS];
    ckpt_axis axis[CKPT_RM_TERMS];
    uint64_t shape[CKPT_MAX_DIM], at = 0;
    ckpt_tensor like = *first;
    int rc = CKPT_OK;

    assert(n <= CKPT_RM_TERMS && first->ndim > 0);
    memcpy(shape, first->shape, first->ndim * sizeof *shape);
    shape[0] = 0;
    for (size_t i = 0; rc == CKPT_OK && i < n; i++) {
        const ckpt_tensor *t = piece[i].t;
        uint32_t source = 0;

        if (memcmp(t->shape + 1, shape + 1, (t->ndim - 1) * sizeof *shape) != 0)
            return ckpt_fail(err, CKPT_EMISMATCH,
                             "%s:%u: the rows of '%.150s' differ in their other axes",
                             in->f->r->name, in->rule->line, t->name);
        rc = ckpt_map_add_nested(in->map, t, &source, err);
        axis[i] = (ckpt_axis){at, t->n_elems, bytes};
        extent[i] = (ckpt_extent){.source = source, .ndim = 1, .axis = &axis[i]};
        // they are parts of the source's elements, so their sum cannot overflow
        at += t->n_elems;
        shape[0] += t->shape[0];
    }
    like.shape = shape;
    like.extent = NULL;
    like.n_extents = 0;
    if (rc == CKPT_OK)
        rc = ckpt_map_add_hidden(in->map, first->name, strlen(first->name), &like, out, err);
    return rc == CKPT_OK ? ckpt_map_back(in->map, *out, extent, (uint32_t)n, err) : rc;
}
