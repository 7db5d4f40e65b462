/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokens.c: reads an embedding with some rows replaced.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/peft/tokens.h"

typedef struct ptok_make {
    ckpt_make make; /* must be first */
    ckpt_tokens of;
    const ckpt_tensor *input[2];
} ptok_make;

/* The first token with a row not before `row`. */
static uint64_t ptok_first(const ckpt_tokens *o, uint64_t row)
{
    uint64_t low = 0, high = o->n;

    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;

        if (o->token[middle].row < row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int ptok_run(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                    ckpt_err *err)
{
    const ptok_make *m = (const ptok_make *)(const void *)make;
    const ckpt_tokens *o = &m->of;
    const uint64_t width = o->base->shape[1], end = at + n;
    float *x = to;
    int rc = in->read(in, o->base, &(const ckpt_axis){at, n, 0}, CKPT_F32, x, err);

    for (uint64_t i = ptok_first(o, at / width);
         rc == CKPT_OK && i < o->n && o->token[i].row * width < end; i++) {
        const uint64_t first = o->token[i].row * width, last = first + width;
        const uint64_t from = first > at ? first : at, stop = last < end ? last : end;

        if (from < stop)
            rc = in->read(
                in, o->rows,
                &(const ckpt_axis){o->token[i].at * width + (from - first), stop - from, 0},
                CKPT_F32, x + (from - at), err);
    }
    return rc;
}

int ckpt_tokens_put(ckpt_map *map, ckpt_tensor *t, const ckpt_tokens *tokens, ckpt_err *err)
{
    assert(map && t && tokens && tokens->base && tokens->base->ndim == 2 && tokens->rows);
    ptok_make *m = ckpt_arena_alloc(map->arena, sizeof *m);
    uint32_t source = 0;
    int rc;

    if (!m)
        return ckpt_fail_memory(err);
    m->of = *tokens;
    m->input[0] = tokens->base;
    m->input[1] = tokens->rows;
    m->make = (ckpt_make){
        .name = t->name, .dtype = CKPT_F32, .n_inputs = 2, .input = m->input, .make = ptok_run};
    m->make.terms = "tokens";
    for (uint64_t i = 0; m->make.terms && i < tokens->n; i++)
        m->make.terms = ckpt_arena_printf(map->arena, "%s %" PRIu64 "=%" PRIu64, m->make.terms,
                                          tokens->token[i].row, tokens->token[i].at);
    if (!m->make.terms)
        return ckpt_fail_memory(err);
    rc = ckpt_map_add_made(map, &m->make, tokens->base->n_elems, &source, err);
    if (t->export_dtype == CKPT_DTYPE_NONE)
        t->export_dtype = t->dtype;
    t->dtype = CKPT_F32;
    t->twin = t->addend = NULL;
    return rc == CKPT_OK ? ckpt_map_back_whole(map, t, source, 0, err) : rc;
}
