/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_safetensors.c: any bytes as a safetensors file; what is accepted is covered exactly, and
 * laying it out anew and reading that gives the same tensors.
 */
#include "ckpt_extra.h"
#include "formats/safetensors/safetensors.h"
#include "tests/fuzz/fuzz_format.h"

/* A target map with the tensors and metadata of a map, laid out; NULL where that cannot be written.
 */
static ckpt_map *fuzz_place(const ckpt_map *from)
{
    ckpt_map *to = NULL;
    int rc = fuzz_target(&to, &ckpt_format_safetensors, from);

    if (rc == CKPT_OK)
        to->metadata = from->metadata; // borrowed for as long as both live
    if (rc == CKPT_OK)
        rc = ckpt_safetensors_place(to, 0, NULL);
    if (rc == CKPT_OK)
        return to;
    ckpt_map_free(to);
    return NULL;
}

/* Lay out, fill with zeros, read again. */
static void fuzz_round_trip(const ckpt_map *map)
{
    ckpt_map *to = fuzz_place(map), *again = NULL;
    ckpt_bytes file = {0};

    if (to && to->files.at[0].size < (64 << 20)) {
        const ckpt_literal *l = &to->files.at[0].literals.at[0];
        fuzz_require(ckpt_bytes_add(&file, l->bytes, (size_t)l->n));
        fuzz_require(ckpt_bytes_add(&file, NULL, (size_t)(to->files.at[0].size - l->n)));
        again = fuzz_read(&ckpt_format_safetensors, file.at, file.n);
        fuzz_require(again && again->tensors.n >= map->tensors.n);
        for (size_t i = 0; i < map->tensors.n; i++) {
            const ckpt_tensor *t = map->tensors.at[i];
            size_t at = ckpt_map_index(again, t->name, strlen(t->name));
            fuzz_require(at != SIZE_MAX && again->tensors.at[at]->dtype == t->dtype);
            fuzz_require(again->tensors.at[at]->n_elems == t->n_elems);
        }
    }
    ckpt_vec_free(&file);
    ckpt_map_free(again);
    ckpt_map_free(to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_format(&ckpt_format_safetensors, data, size, fuzz_round_trip);
}
