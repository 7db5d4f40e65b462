/* SPDX-License-Identifier: Apache-2.0 */
/* layers.c: sorts tensor names into layers, and sums them up. */
#include "tools/report/layers.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/out.h"

size_t layer_of(const char *name)
{
    size_t last = 0;

    for (const char *part = name;;) {
        size_t n = strcspn(part, "./");
        if (n > 0 && strspn(part, "0123456789") == n)
            return (size_t)(part - name) + n;
        if (!part[n])
            break;
        last = (size_t)(part - name) + n;
        part += n + 1;
    }
    return last ? last : strlen(name);
}

const char *layer_rest(const char *name)
{
    size_t n = layer_of(name);

    return name[n] ? name + n + 1 : name + n;
}

/* FNV-1a. */
static uint64_t layers_hash(const char *name, size_t n)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)name[i]) * UINT64_C(0x100000001b3);
    return h;
}

/* Find the slot of a name: that of its layer, or a free one. */
static size_t *layers_slot(const layers *l, const char *name, size_t n)
{
    size_t i = (size_t)layers_hash(name, n) & (l->n_slots - 1);

    while (l->slot[i]) {
        const char *other = l->at[l->slot[i] - 1].name;
        if (strncmp(other, name, n) == 0 && !other[n])
            break;
        i = (i + 1) & (l->n_slots - 1);
    }
    return &l->slot[i];
}

/* Double the tables when half of the slots are used. */
static bool layers_grow(layers *l)
{
    size_t n_slots = l->n_slots ? 2 * l->n_slots : 64;
    layer *at = realloc(l->at, n_slots / 2 * sizeof *at);

    if (!at)
        return false;
    l->at = at;
    size_t *slot = calloc(n_slots, sizeof *slot);
    if (!slot)
        return false;
    free(l->slot);
    l->slot = slot;
    l->n_slots = n_slots;
    for (size_t i = 0; i < l->n; i++)
        *layers_slot(l, l->at[i].name, strlen(l->at[i].name)) = i + 1;
    return true;
}

size_t layers_find(layers *l, const char *name, size_t n)
{
    if (l->n == l->n_slots / 2 && !layers_grow(l))
        return SIZE_MAX;
    size_t *slot = layers_slot(l, name, n);
    if (*slot)
        return *slot - 1;
    char *copy = strndup(name, n);
    if (!copy)
        return SIZE_MAX;
    l->at[l->n] = (layer){.name = copy};
    *slot = ++l->n;
    return l->n - 1;
}

int layers_make(layers *out, const ckpt_map *map, ckpt_err *err)
{
    size_t n = ckpt_map_count(map);

    *out = (layers){.of = calloc(n ? n : 1, sizeof *out->of)};
    if (!out->of)
        return fail(err, CKPT_ELIMIT, "out of memory");
    for (size_t i = 0; i < n; i++) {
        const ckpt_tensor *t = ckpt_map_tensor(map, i);
        size_t k = layers_find(out, t->name, layer_of(t->name));
        uint64_t bytes = t->owner ? 0 : ckpt_tensor_bytes(t);
        if (k == SIZE_MAX)
            return fail(err, CKPT_ELIMIT, "out of memory");
        layer *l = &out->at[k];
        out->of[i] = (uint32_t)k;
        l->n_tensors++;
        l->n_elems += t->owner ? 0 : t->n_elems;
        l->n_bytes += bytes;
        l->bytes_of[t->dtype] += bytes;
        out->bytes_of[t->dtype] += bytes;
        out->most_bytes = l->n_bytes > out->most_bytes ? l->n_bytes : out->most_bytes;
    }
    return CKPT_OK;
}

void layers_free(layers *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->at[i].name);
    free(l->at);
    free(l->of);
    free(l->slot);
    *l = (layers){0};
}
