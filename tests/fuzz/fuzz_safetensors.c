/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_safetensors.c: any bytes as a safetensors file; what is accepted is covered exactly, and
 * laying it out anew and reading that gives the same tensors.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/safetensors/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Abort when the promise does not hold: the fuzzer then keeps the input. */
static void fuzz_require(bool held)
{
    if (!held)
        abort();
}

/* The map of a file in memory, or NULL. */
static ckpt_map *fuzz_read(const void *bytes, uint64_t n)
{
    ckpt_map_file file = {.path = "fuzz", .size = n, .format = &ckpt_format_safetensors};
    ckpt_map *map = NULL;
    ckpt_io *io = NULL;
    uint32_t index = 0;
    int rc = ckpt_map_new(&map, 64 << 20, NULL);

    if (rc == CKPT_OK)
        rc = ckpt_io_memory(&io, "fuzz", bytes, n, NULL);
    if (rc == CKPT_OK)
        rc = ckpt_map_add_file(map, &file, &index, NULL);
    if (rc == CKPT_OK)
        rc = ckpt_format_safetensors.read(map, io, index, NULL);
    ckpt_io_close(io);
    if (rc == CKPT_OK)
        return map;
    ckpt_map_free(map);
    return NULL;
}

/* A target map with the tensors and metadata of a map, laid out; NULL where that cannot be written.
 */
static ckpt_map *fuzz_place(const ckpt_map *from)
{
    ckpt_map_file file = {.path = "fuzz", .format = &ckpt_format_safetensors};
    ckpt_map *to = NULL;
    uint32_t index = 0;
    int rc = ckpt_map_new(&to, 256 << 20, NULL);

    if (rc == CKPT_OK)
        rc = ckpt_map_add_file(to, &file, &index, NULL);
    for (size_t i = 0; rc == CKPT_OK && i < from->tensors.n; i++) {
        const ckpt_tensor *t = from->tensors.at[i];
        ckpt_tensor like = *t, *made = NULL;
        like.file = 0;
        like.owner = NULL;
        if (t->owner)
            like.owner = to->tensors.at[ckpt_map_index(to, t->owner->name, strlen(t->owner->name))];
        rc = ckpt_map_add(to, t->name, strlen(t->name), &like, &made, NULL);
    }
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
        again = fuzz_read(file.at, file.n);
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
    ckpt_map *map = fuzz_read(data, size);

    (void)ckpt_format_safetensors.probe(data, size < 512 ? size : 512, size);
    if (map) {
        fuzz_require(ckpt_map_check(map, NULL) == CKPT_OK);
        fuzz_round_trip(map);
    }
    ckpt_map_free(map);
    return 0;
}
