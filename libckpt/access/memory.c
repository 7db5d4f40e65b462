/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c: makes maps of arrays in the caller's memory, for conversion to any format.
 */
#include <string.h>

#include "ckpt.h"
#include "libckpt/base/opts.h"
#include "libckpt/map/map.h"

int ckpt_map_new(ckpt_map **out, const char *name, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_map *map = NULL;
    int rc;

    if (out)
        *out = NULL;
    if (!out || !name)
        return ckpt_fail(err, CKPT_EUSAGE, "no name for the map, or no place for it");
    rc = ckpt_map_create(&map, 0, err);
    if (rc != CKPT_OK)
        return rc;
    map->format = "memory";
    map->path = ckpt_arena_string(map->arena, name, strlen(name));
    if (!map->path) {
        ckpt_map_free(map);
        return ckpt_fail_memory(err);
    }
    *out = map;
    return CKPT_OK;
}

static bool arr_is_empty(const ckpt_array *a)
{
    for (uint32_t i = 0; i < a->ndim; i++) {
        if (a->shape[i] == 0)
            return true;
    }
    return false;
}

/* Check that the map comes from ckpt_map_new and that the array is complete. */
static int arr_check(const ckpt_map *map, const ckpt_array *a, ckpt_err *err)
{
    if (!map || strcmp(map->format, "memory") != 0)
        return ckpt_fail(err, CKPT_EUSAGE, "no map of ckpt_map_new to put an array into");
    if (!a->name)
        return ckpt_fail(err, CKPT_EUSAGE, "an array without a name");
    if (a->dtype == CKPT_DTYPE_NONE || (unsigned)a->dtype >= CKPT_N_DTYPES)
        return ckpt_fail(err, CKPT_EUSAGE, "array %.200s: %d is not a dtype", a->name,
                         (int)a->dtype);
    if (a->ndim > CKPT_MAX_DIM || (a->ndim > 0 && !a->shape))
        return ckpt_fail(err, CKPT_EUSAGE, "array %.200s: no shape of %u axes (at most %d)",
                         a->name, (unsigned)a->ndim, CKPT_MAX_DIM);
    if (!a->data && !arr_is_empty(a))
        return ckpt_fail(err, CKPT_EUSAGE, "array %.200s: no data", a->name);
    return CKPT_OK;
}

int ckpt_map_put(ckpt_map *map, const ckpt_array *array, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_array a;
    ckpt_tensor *t = NULL;
    uint32_t source = 0;
    int rc = ckpt_opts_take(&a, sizeof a, array, "ckpt_array", err);

    if (rc == CKPT_OK)
        rc = arr_check(map, &a, err);
    if (rc != CKPT_OK)
        return rc;
    ckpt_tensor like = {.dtype = a.dtype, .ndim = a.ndim, .shape = a.shape};
    // a source's memory is only read
    ckpt_source s = {.kind = CKPT_SOURCE_MEMORY, .memory = (void *)(uintptr_t)a.data};
    rc = ckpt_map_add_hidden(map, a.name, strlen(a.name), &like, &t, err);
    if (rc != CKPT_OK || t->n_elems == 0)
        return rc == CKPT_OK ? ckpt_map_append(map, t, err) : rc;
    s.name = t->name;
    s.n_bytes = s.n_stored = ckpt_tensor_bytes(t);
    rc = ckpt_map_add_source(map, &s, &source, err);
    if (rc != CKPT_OK)
        return rc;
    rc = ckpt_map_back_whole(map, t, source, 0, err);
    // The tensor is listed last, so that a failure leaves only a source to remove.
    if (rc == CKPT_OK)
        rc = ckpt_map_append(map, t, err);
    if (rc != CKPT_OK)
        map->sources.n--;
    return rc;
}

int ckpt_map_put_metadata(ckpt_map *map, const char *key, const char *text, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_value *k, *v;

    if (!map || !key || !text || strcmp(map->format, "memory") != 0)
        return ckpt_fail(err, CKPT_EUSAGE, "no map of ckpt_map_new, no key or no text");
    if (!ckpt_utf8_ok(key, strlen(key)) || !ckpt_utf8_ok(text, strlen(text)))
        return ckpt_fail(err, CKPT_EUSAGE, "metadata is UTF-8");
    k = ckpt_value_cstr(map->arena, key);
    v = ckpt_value_cstr(map->arena, text);
    return k && v && ckpt_dict_add(map->arena, &map->metadata, k, v) ? CKPT_OK
                                                                     : ckpt_fail_memory(err);
}
