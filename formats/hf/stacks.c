/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stacks.c: sorts the names of a model by prefix and number, so that a model with many prefixes
 * costs no more than a model with one.
 */
#include "formats/hf/stacks.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/mem.h"
#include "libckpt/base/number.h"

/* A name with a number between dots. */
typedef struct stk_name {
    const char *text;
    size_t n_prefix; /* bytes before the dot and the number */
    uint64_t number;
    size_t at; /* of the tensor in the map */
} stk_name;

/* Find the first number of a name; false: it has none. */
static bool stk_parse(stk_name *out, const char *name, size_t at)
{
    for (const char *s = strchr(name, '.'); s; s = strchr(s + 1, '.')) {
        uint64_t k = 0;
        const char *end = ckpt_scan_u64(s + 1, &k);
        if (!end || *end != '.' || k >= CKPT_HF_LAYERS)
            continue;
        *out = (stk_name){.text = name, .n_prefix = (size_t)(s - name), .number = k, .at = at};
        return true;
    }
    return false;
}

static int stk_by_prefix(const stk_name *a, const stk_name *b)
{
    const size_t n = a->n_prefix < b->n_prefix ? a->n_prefix : b->n_prefix;
    const int order = memcmp(a->text, b->text, n);

    return order != 0 ? order : (a->n_prefix > b->n_prefix) - (a->n_prefix < b->n_prefix);
}

/* For qsort: by prefix, number, place. */
static int stk_by_name(const void *pa, const void *pb)
{
    const stk_name *a = pa, *b = pb;
    const int order = stk_by_prefix(a, b);

    if (order != 0)
        return order;
    return a->number != b->number ? (a->number > b->number) - (a->number < b->number)
                                  : (a->at > b->at) - (a->at < b->at);
}

/* A stack, and the place of its first tensor. */
typedef struct stk_place {
    ckpt_hf_stack stack;
    size_t at;
} stk_place;

static int stk_by_place(const void *pa, const void *pb)
{
    const stk_place *a = pa, *b = pb;

    return (a->at > b->at) - (a->at < b->at);
}

/* Make the stack of n sorted names with one prefix. */
static stk_place stk_make(const stk_name *name, size_t n, const char **names)
{
    stk_place p = {.stack = {.prefix = name->text, .n_prefix = name->n_prefix}, .at = name->at};

    for (size_t i = 0; i < n; i++) {
        const bool other = i == 0 || name[i].number != name[i - 1].number;
        p.stack.n += other;
        p.stack.hole += other && name[i].number == p.stack.hole;
        p.at = name[i].at < p.at ? name[i].at : p.at;
        names[i] = name[i].text;
    }
    p.stack.names = names;
    p.stack.n_names = n;
    return p;
}

/* Divide sorted names into stacks, in the order of the model. */
static bool stk_divide(ckpt_hf_stacks *out, const stk_name *name, size_t n, stk_place *place)
{
    size_t n_stacks = 0;

    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && stk_by_prefix(&name[i], &name[end]) == 0;)
            end++;
        place[n_stacks++] = stk_make(&name[i], end - i, out->names + i);
    }
    if (n_stacks > 1)
        qsort(place, n_stacks, sizeof *place, stk_by_place);
    for (size_t i = 0; i < n_stacks; i++) {
        ckpt_hf_stack *s = ckpt_vec_push(&out->stack);
        if (!s)
            return false;
        *s = place[i].stack;
    }
    return true;
}

int ckpt_hf_stacks_find(ckpt_hf_stacks *out, const ckpt_map *map, ckpt_err *err)
{
    assert(out && map);
    const size_t most = map->tensors.n;
    stk_name *name = ckpt_alloc((most + 1) * sizeof *name);
    stk_place *place = ckpt_alloc((most + 1) * sizeof *place);
    size_t n = 0;
    bool fits;

    *out = (ckpt_hf_stacks){.names = ckpt_alloc((most + 1) * sizeof *out->names)};
    fits = name && place && out->names;
    for (size_t i = 0; fits && i < most; i++) {
        const ckpt_tensor *t = map->tensors.at[i];
        // moments of frozen parameters are missing on purpose
        n += t->role < CKPT_ROLE_STATE && stk_parse(&name[n], t->name, i);
    }
    if (n > 1)
        qsort(name, n, sizeof *name, stk_by_name);
    fits = fits && stk_divide(out, name, n, place);
    ckpt_free(name);
    ckpt_free(place);
    return fits ? CKPT_OK : ckpt_fail_memory(err);
}

void ckpt_hf_stacks_free(ckpt_hf_stacks *stacks)
{
    ckpt_vec_free(&stacks->stack);
    ckpt_free(stacks->names);
    stacks->names = NULL;
}

bool ckpt_hf_stack_is_layers(const ckpt_hf_stack *stack)
{
    static const char *const ends[] = {"layers", "layer", "h", "blocks", "block", NULL};

    for (size_t i = 0; ends[i]; i++) {
        size_t n = strlen(ends[i]);
        if (stack->n_prefix < n)
            continue;
        const char *at = stack->prefix + stack->n_prefix - n;
        if (memcmp(at, ends[i], n) == 0 && (stack->n_prefix == n || at[-1] == '.'))
            return true;
    }
    return false;
}
