/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fill.c: makes tensors that only the target has, from an expression for each element.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "libckpt/transform/keymap/instance.h"

/* Limit of elements that are evaluated one by one; constants may have any number. */
#define FILL_MAX (UINT64_C(1) << 20)
/* Limit of sizes evaluated for all elements together. */
#define FILL_STEPS (UINT64_C(1) << 18)

/* Compute the shape of a term from sizes alone. */
static int fill_shape(const ckpt_rm_facts *f, const ckpt_rm_rule *rule, uint64_t *shape,
                      ckpt_err *err)
{
    const ckpt_rm_term *t = &rule->term[0].at[0];
    uint64_t size;
    int rc = CKPT_OK;

    for (uint32_t i = 0; i < t->n_axes && i < CKPT_MAX_DIM; i++)
        shape[i] = 1;
    for (uint32_t i = 0; rc == CKPT_OK && i < t->n_atoms; i++) {
        uint64_t sum = t->atom[i].n_parts == 0;
        for (uint32_t p = 0; rc == CKPT_OK && p < t->atom[i].n_parts; p++) {
            rc = ckpt_rm_size_of(f, t->atom[i].part[p], &size, err);
            if (rc == CKPT_OK && (size == CKPT_RM_UNKNOWN || !ckpt_add(sum, size, &sum)))
                rc = ckpt_fail(err, CKPT_EMISSING, "%s:%u: the size %.60s is unknown", f->r->name,
                               rule->line, f->r->names.at[t->atom[i].part[p]]);
        }
        if (rc == CKPT_OK && !ckpt_mul(shape[t->atom[i].axis], sum, &shape[t->atom[i].axis]))
            rc = ckpt_fail(err, CKPT_ELIMIT, "%s:%u: too large", f->r->name, rule->line);
    }
    return rc;
}

/* Evaluate one element. */
static int fill_element(float *out, const ckpt_rm_facts *f, const ckpt_rm_rule *rule, uint64_t i,
                        uint64_t *steps, ckpt_err *err)
{
    const ckpt_value *v = NULL;
    int rc = ckpt_rm_expr_at(&v, f, &rule->with, i, steps, err);

    if (rc != CKPT_OK)
        return rc;
    if (v && v->kind == CKPT_V_INT)
        *out = (float)v->as.i;
    else if (v && v->kind == CKPT_V_FLOAT && fabs(v->as.f) <= 3.4028234663852886e38)
        *out = (float)v->as.f;
    else
        return ckpt_fail(err, CKPT_EUSAGE, "%s:%u: element %" PRIu64 " of '%.100s' is not a number",
                         f->r->name, rule->line, i, rule->term[0].at[0].text);
    return CKPT_OK;
}

int ckpt_rm_fill(ckpt_tensor **out, ckpt_map *map, const ckpt_rm_facts *f, const ckpt_rm_rule *rule,
                 ckpt_err *err)
{
    const char *name = rule->term[0].at[0].text;
    uint64_t shape[CKPT_MAX_DIM] = {1};
    ckpt_tensor like = {.dtype = CKPT_F32,
                        .export_dtype = CKPT_F32,
                        .ndim = rule->term[0].at[0].n_axes,
                        .shape = shape,
                        .file = UINT32_MAX};
    const ckpt_value *first = NULL;
    ckpt_source values = {.kind = CKPT_SOURCE_MEMORY, .name = name};
    uint32_t source = 0;
    uint64_t steps = FILL_STEPS;
    int rc = ckpt_rm_expr_at(&first, f, &rule->with, 0, &steps, err);

    *out = NULL;
    if (rc != CKPT_OK || !first)
        return rc; // without a value, this model does not have the tensor
    rc = fill_shape(f, rule, shape, err);
    if (rc == CKPT_OK)
        rc = ckpt_map_add_hidden(map, name, strlen(name), &like, out, err);
    uint64_t n = rc == CKPT_OK ? (*out)->n_elems : 0;
    if (n > FILL_MAX)
        rc = ckpt_fail(err, CKPT_ELIMIT, "%s:%u: '%.100s' would have more than 2^20 elements",
                       f->r->name, rule->line, name);
    float *value = rc == CKPT_OK ? ckpt_arena_array(map->arena, n, sizeof *value) : NULL;
    if (rc == CKPT_OK && !value)
        rc = ckpt_fail_memory(err);
    for (uint64_t i = 0; rc == CKPT_OK && i < n; i++)
        rc = fill_element(&value[i], f, rule, i, &steps, err);
    values.memory = value;
    values.n_bytes = values.n_stored = n * sizeof *value;
    if (rc == CKPT_OK)
        rc = ckpt_map_add_source(map, &values, &source, err);
    if (rc == CKPT_OK)
        rc = ckpt_map_back_whole(map, *out, source, 0, err);
    if (rc != CKPT_OK)
        *out = NULL;
    return rc;
}
