/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moments8.c: computes F32 values from bitsandbytes' 8-bit moments.
 */
#include <assert.h>
#include <string.h>

#include "libckpt/map/moments8.h"
#include "libckpt/map/nest.h"

/* Compute elements at, at + 1 ... from the codes, their table and the scales of their blocks. */
static int m8_run(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                  ckpt_err *err)
{
    const ckpt_moments8 *m = (const ckpt_moments8 *)(const void *)make;
    uint64_t first = at / CKPT_M8_BLOCK, blocks = ckpt_m8_blocks(at + n) - first;
    float *table = in->scratch(in, (CKPT_M8_CODES + blocks) * sizeof *table + n);
    float *scale = table ? table + CKPT_M8_CODES : NULL, *out = to;
    uint8_t *code = table ? (uint8_t *)(scale + blocks) : NULL;
    int rc = table ? CKPT_OK : ckpt_fail_memory(err);

    if (rc == CKPT_OK)
        rc = in->read(in, m->table, &(const ckpt_axis){0, CKPT_M8_CODES, 0}, CKPT_DTYPE_NONE, table,
                      err);
    if (rc == CKPT_OK)
        rc = in->read(in, m->scale, &(const ckpt_axis){first, blocks, 0}, CKPT_DTYPE_NONE, scale,
                      err);
    if (rc == CKPT_OK)
        rc = in->read(in, m->codes, &(const ckpt_axis){at, n, 0}, CKPT_DTYPE_NONE, code, err);
    for (uint64_t i = 0; rc == CKPT_OK && i < n; i++)
        out[i] = table[code[i]] * scale[(at + i) / CKPT_M8_BLOCK - first];
    return rc;
}

/* Find the code with the value 0 in the table. */
static int m8_run_zero(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                       ckpt_err *err)
{
    float *table = in->scratch(in, CKPT_M8_CODES * sizeof *table);
    int rc = table ? CKPT_OK : ckpt_fail_memory(err);
    unsigned code = 0;

    (void)at;
    if (rc == CKPT_OK)
        rc = in->read(in, make->input[0], &(const ckpt_axis){0, CKPT_M8_CODES, 0}, CKPT_DTYPE_NONE,
                      table, err);
    while (rc == CKPT_OK && code < CKPT_M8_CODES && table[code] != 0)
        code++;
    if (rc == CKPT_OK && code == CKPT_M8_CODES)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: the code table has no code for 0, which padding needs", make->name);
    if (rc == CKPT_OK)
        memset(to, (int)code, n);
    return rc;
}

/* Make the tensor with this code. */
static int m8_zero(ckpt_map *map, const ckpt_tensor *table, const ckpt_tensor **out, ckpt_err *err)
{
    static const uint64_t one = 1;
    const ckpt_tensor like = {.dtype = CKPT_U8, .ndim = 1, .shape = &one, .role = CKPT_ROLE_STATE};
    ckpt_make *m = ckpt_arena_alloc(map->arena, sizeof *m);
    const ckpt_tensor **input = ckpt_arena_copy(map->arena, &table, sizeof *input);
    ckpt_tensor *t = NULL;
    uint32_t source = 0;
    int rc;

    if (!m || !input)
        return ckpt_fail_memory(err);
    *m = (ckpt_make){.name = table->name, .dtype = CKPT_U8, .n_inputs = 1, .make = m8_run_zero};
    m->input = input;
    rc = ckpt_map_add_made(map, m, one, &source, err);
    if (rc == CKPT_OK)
        rc = ckpt_map_add_hidden(map, table->name, strlen(table->name), &like, &t, err);
    if (rc == CKPT_OK)
        rc = ckpt_map_back_whole(map, t, source, 0, err);
    *out = t;
    return rc;
}

int ckpt_m8_add(ckpt_map *map, const char *name, const ckpt_moments8 *of, uint32_t *source,
                ckpt_err *err)
{
    assert(map && name && of && of->codes && of->scale && of->table && source);
    ckpt_moments8 *m = ckpt_arena_copy(map->arena, of, sizeof *of);
    int rc = m ? m8_zero(map, of->table, &m->zero, err) : ckpt_fail_memory(err);

    if (rc != CKPT_OK)
        return rc;
    const ckpt_tensor *input[] = {of->codes, of->scale, of->table, m->zero};
    m->make = (ckpt_make){.name = name, .dtype = CKPT_F32, .n_inputs = 4, .make = m8_run};
    m->make.input = ckpt_arena_copy(map->arena, input, sizeof input);
    if (!m->make.input)
        return ckpt_fail_memory(err);
    return ckpt_map_add_made(map, &m->make, of->codes->n_elems, source, err);
}

const ckpt_moments8 *ckpt_m8_of(const ckpt_source *s)
{
    const ckpt_make *m = s->kind == CKPT_SOURCE_MADE ? s->memory : NULL;

    return m && m->make == m8_run ? (const ckpt_moments8 *)(const void *)m : NULL;
}
