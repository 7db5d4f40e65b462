/* SPDX-License-Identifier: Apache-2.0 */
/* layers.c: sorts tensor names into layers, and sums them up. */
#include "tools/report/layers.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/vec.h"
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

typedef struct layers_key {
    const char *name;
    size_t n;
} layers_key;

static bool layers_same(const void *ctx, uint32_t number, const void *key)
{
    const layers *l = ctx;
    const layers_key *k = key;
    const char *other = l->at[number].name;

    return strncmp(other, k->name, k->n) == 0 && !other[k->n];
}

size_t layers_find(layers *l, const char *name, size_t n)
{
    const layers_key key = {name, n};
    uint32_t hash = ckpt_hash_bytes(name, n, 0);
    uint32_t found = ckpt_index_find(&l->names, hash, layers_same, l, &key);

    if (found != CKPT_INDEX_NONE)
        return found;
    layer *added = ckpt_vec_push(l);
    if (!added)
        return SIZE_MAX;
    added->name = strndup(name, n);
    if (!added->name || !ckpt_index_add(&l->names, hash, (uint32_t)l->n - 1))
        return SIZE_MAX;
    return l->n - 1;
}

int layers_make(layers *out, const ckpt_map *map, ckpt_err *err)
{
    size_t n = ckpt_map_tensor_count(map);

    *out = (layers){.of = calloc(n ? n : 1, sizeof *out->of)};
    if (!out->of)
        return fail(err, CKPT_ELIMIT, "out of memory");
    for (size_t i = 0; i < n; i++) {
        const ckpt_tensor *t = ckpt_map_tensor_at(map, i);
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
    ckpt_vec_free(l);
    free(l->of);
    ckpt_index_free(&l->names);
    *l = (layers){0};
}
